//! Who gets what: order, packing, working ahead, and random queues against a slow search.

use proptest::prelude::*;
use torc_api::wire::Resources;

use super::*;
use crate::expanded::Requirements;

fn class(cpus: i64, gpus: i64, memory: i64, runtime: i64) -> Class {
    Class {
        requirements: Requirements {
            num_cpus: cpus,
            num_gpus: gpus,
            memory_bytes: memory,
            runtime_seconds: runtime,
            ..Requirements::default()
        },
        labels: Vec::new(),
        scheduler: None,
    }
}

fn capacity(cpus: i64) -> Resources {
    Resources { cpus, gpus: 4, memory_bytes: 100, nodes: 1 }
}

fn place(cpus: i64) -> Place<'static> {
    Place { capacity: capacity(cpus), labels: &[], scheduler: None, remaining_seconds: None, by_count: false }
}

fn want(free_cpus: i64, ahead: u32, limit: u32) -> Want {
    Want { free: capacity(free_cpus), ahead, limit }
}

/// Queues of jobs: class, priority, number. Returns the numbers of those that are chosen.
fn run(place: &Place<'_>, want: Want, jobs: &[(Class, i64, u32)]) -> Vec<u32> {
    let mut classes: Vec<(Class, ReadyQueue)> = Vec::new();
    for (class, priority, job) in jobs {
        let index = classes.iter().position(|(known, _)| known == class).unwrap_or_else(|| {
            classes.push((class.clone(), ReadyQueue::default()));
            classes.len() - 1
        });
        classes[index].1.insert(*priority, *job);
    }
    let candidates: Vec<Candidate<'_>> = classes
        .iter()
        .map(|(class, queue)| Candidate {
            workflow: WorkflowId(1),
            class,
            queue,
            allowance: Allowance::default(),
            end: EndMargin::default(),
        })
        .collect();
    choose(place, &want, &candidates).into_iter().map(|choice| choice.job).collect()
}

#[test]
fn priority_then_gpus_runtime_memory_cpus_then_number() {
    let jobs = [
        (class(1, 0, 1, 1), 0, 1),
        (class(2, 0, 1, 1), 0, 2),
        (class(1, 0, 9, 1), 0, 3),
        (class(1, 0, 1, 9), 0, 4),
        (class(1, 1, 1, 1), 0, 5),
        (class(1, 0, 1, 1), 7, 6),
        (class(1, 0, 1, 1), 0, 0),
    ];
    assert_eq!(run(&place(64), want(64, 0, 10), &jobs), [6, 5, 4, 3, 2, 0, 1]);
    assert_eq!(run(&place(64), want(64, 0, 3), &jobs), [6, 5, 4], "no more than the limit");
    assert_eq!(run(&place(64), want(64, 0, 0), &jobs), [0u32; 0]);
}

#[test]
fn smaller_jobs_fill_what_a_big_one_leaves() {
    let jobs =
        [(class(6, 0, 1, 9), 9, 0), (class(6, 0, 1, 9), 8, 1), (class(1, 0, 1, 1), 0, 2), (class(1, 0, 1, 1), 0, 3)];
    assert_eq!(run(&place(8), want(8, 0, 10), &jobs), [0, 2, 3]);
    assert_eq!(run(&place(8), want(7, 0, 10), &jobs), [0, 2]);
    assert_eq!(run(&place(8), want(0, 0, 10), &jobs), [0u32; 0]);
}

#[test]
fn ahead_comes_after_what_fits_and_within_the_limit() {
    let jobs =
        [(class(6, 0, 1, 9), 9, 0), (class(6, 0, 1, 9), 8, 1), (class(1, 0, 1, 1), 0, 2), (class(9, 0, 1, 1), 10, 3)];
    assert_eq!(run(&place(8), want(8, 1, 10), &jobs), [0, 2, 1]);
    assert_eq!(run(&place(8), want(8, 9, 10), &jobs), [0, 2, 1], "job 3 never fits this runner");
    assert_eq!(run(&place(8), want(8, 9, 2), &jobs), [0, 2]);
    assert_eq!(run(&place(8), want(0, 2, 10), &jobs), [0, 1]);
}

#[test]
fn the_queue_strategy_counts_and_ignores_requirements() {
    let counting = Place { by_count: true, ..place(1) };
    let jobs =
        [(class(1, 0, 1, 1), 0, 0), (class(99, 9, 999, 9), 0, 1), (class(2, 0, 1, 1), 5, 2), (class(1, 0, 1, 1), 0, 3)];
    assert_eq!(run(&counting, want(0, 0, 3), &jobs), [2, 0, 1], "by priority, then by number");
}

#[test]
fn jobs_of_another_scheduler_come_only_when_there_is_nothing_else() {
    let of = |scheduler: &str, cpus| Class { scheduler: Some(scheduler.to_owned()), ..class(cpus, 0, 1, 1) };
    let gpu = Place { scheduler: Some("gpu"), ..place(8) };
    let mut jobs = vec![(of("cpu", 1), 99, 0), (of("gpu", 4), 0, 1), (class(1, 0, 1, 1), 0, 2)];
    assert_eq!(run(&gpu, want(8, 0, 9), &jobs), [1, 2]);
    assert_eq!(run(&place(8), want(8, 0, 9), &jobs), [2], "outside of every allocation too");
    jobs.truncate(2);
    assert_eq!(run(&gpu, want(2, 0, 9), &jobs), [0], "its own does not fit now");
    assert_eq!(run(&place(8), want(8, 0, 9), &jobs), [0, 1]);
}

#[test]
fn the_older_workflow_is_served_first() {
    let class = class(1, 0, 1, 1);
    let mut queue = ReadyQueue::default();
    queue.insert(0, 7);
    let candidates = [2, 1].map(|id| Candidate {
        workflow: WorkflowId(id),
        class: &class,
        queue: &queue,
        allowance: Allowance::default(),
        end: EndMargin::default(),
    });
    let served: Vec<i64> =
        choose(&place(8), &want(8, 0, 9), &candidates).iter().map(|choice| choice.workflow.0).collect();
    assert_eq!(served, [1, 2]);
}

/// The slow way: sort everything, then go through it twice.
fn search(capacity_cpus: i64, want: Want, jobs: &[(Class, i64, u32)]) -> Vec<u32> {
    let mut sorted: Vec<&(Class, i64, u32)> =
        jobs.iter().filter(|(class, _, _)| class.requirements.num_cpus <= capacity_cpus).collect();
    sorted.sort_by_key(|(class, priority, job)| {
        let needs = &class.requirements;
        let size = [needs.num_gpus, needs.runtime_seconds, needs.memory_bytes, needs.num_cpus].map(Reverse);
        (Reverse(*priority), size, *job)
    });
    let (mut now, mut later, mut cpus) = (Vec::new(), Vec::new(), want.free.cpus);
    for (class, _, job) in sorted {
        if now.len() < want.limit as usize && class.requirements.num_cpus <= cpus {
            cpus -= class.requirements.num_cpus;
            now.push(*job);
        } else {
            later.push(*job);
        }
    }
    later.truncate((want.ahead as usize).min(want.limit as usize - now.len()));
    now.extend(later);
    now
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn queues_by_class_choose_what_a_search_would(
        jobs in prop::collection::vec((1..10i64, 1..3i64, -1..2i64), 0..40),
        cpus in 1..12i64,
        used in 0..12i64,
        ahead in 0..6u32,
        limit in 0..20u32,
    ) {
        let jobs: Vec<(Class, i64, u32)> =
            jobs.into_iter().zip(0..).map(|((cpus, runtime, priority), job)| (class(cpus, 0, 0, runtime), priority, job)).collect();
        let want = want((cpus - used).max(0), ahead, limit);
        prop_assert_eq!(run(&place(cpus), want, &jobs), search(cpus, want, &jobs));
    }
}

// P05
#[test]
fn each_workflow_limits_its_own_work() {
    let mut queue = ReadyQueue::default();
    (1..7).for_each(|job| queue.insert(0, job));
    let class = class(1, 0, 1, 1);
    let limits = [Allowance { batch: 3, ..Allowance::default() }, Allowance { ahead: 1, ..Allowance::default() }];
    let candidates: Vec<Candidate<'_>> = (1..)
        .zip(limits)
        .map(|(id, allowance)| Candidate {
            workflow: WorkflowId(id),
            class: &class,
            queue: &queue,
            allowance,
            end: EndMargin::default(),
        })
        .collect();
    let chosen = choose(&place(4), &want(4, 20, 20), &candidates);
    let of = |id: i64| chosen.iter().filter(|choice| choice.workflow == WorkflowId(id)).count();
    assert_eq!((of(1), of(2)), (3, 2), "three in one answer; one that fits and one ahead");
}
