//! Tests of matching: order, packing, leases ahead of time, and random queues against a slow search.

use proptest::prelude::*;
use torc_api::wire::Resources;

use super::*;
use crate::expanded::Requirements;

fn class(cpus: i64, gpus: i64, memory: i64, runtime: i64) -> JobClass {
    JobClass {
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

fn runner(cpus: i64) -> RunnerView<'static> {
    RunnerView { capacity: capacity(cpus), labels: &[], scheduler: None, remaining_seconds: None, by_count: false }
}

fn want(free_cpus: i64, ahead: u32, limit: u32) -> WorkRequest {
    WorkRequest { free: capacity(free_cpus), ahead, bridge: ahead, limit }
}

/// Jobs in queues of their classes.
fn queues(jobs: &[(JobClass, i64, u32)]) -> Vec<(JobClass, ReadyQueue)> {
    let mut classes: Vec<(JobClass, ReadyQueue)> = Vec::new();
    for (class, priority, job) in jobs {
        let index = classes.iter().position(|(known, _)| known == class).unwrap_or_else(|| {
            classes.push((class.clone(), ReadyQueue::default()));
            classes.len() - 1
        });
        classes[index].1.insert(ReadyJob::new(*priority, 0, *job));
    }
    classes
}

fn class_queues(classes: &[(JobClass, ReadyQueue)]) -> Vec<ClassQueue<'_>> {
    let queue = |(class, queue)| ClassQueue { class, queue, has_other_candidate: false };
    classes.iter().map(|(class, ready)| queue((class, ready))).collect()
}

fn workflow<'a>(id: i64, classes: &'a [(JobClass, ReadyQueue)]) -> WorkflowQueues<'a> {
    WorkflowQueues {
        workflow: WorkflowId(id),
        usage: ResourcesInUse::default(),
        allowance: LeaseAllowance::default(),
        end: EndMargin::default(),
        classes: class_queues(classes),
    }
}

fn owner<'a>(name: &'a str, workflows: Vec<WorkflowQueues<'a>>) -> OwnerQueues<'a> {
    OwnerQueues { owner: name, usage: ResourcesInUse::default(), workflows }
}

/// One workflow with these jobs: class, priority, number. Returns the numbers of those that are chosen.
fn run(runner: &RunnerView<'_>, want: WorkRequest, jobs: &[(JobClass, i64, u32)]) -> Vec<u32> {
    let classes = queues(jobs);
    let chosen = choose(runner, &want, &[owner("ada", vec![workflow(1, &classes)])]);
    chosen.now.into_iter().chain(chosen.ahead).map(|choice| choice.job).collect()
}

/// One workflow whose jobs have one CPU and these paths below them, by number. Returns the numbers of those that are chosen.
fn run_paths(want: WorkRequest, downstream: &[u32]) -> Vec<u32> {
    let mut queue = ReadyQueue::default();
    (0..).zip(downstream).for_each(|(job, downstream)| queue.insert(ReadyJob::new(0, *downstream, job)));
    let classes = [(class(1, 0, 1, 1), queue)];
    let chosen = choose(&runner(4), &want, &[owner("ada", vec![workflow(1, &classes)])]);
    chosen.now.into_iter().chain(chosen.ahead).map(|choice| choice.job).collect()
}

#[test]
fn the_longest_remaining_path_comes_first() {
    assert_eq!(run_paths(want(2, 0, 9), &[0, 7, 3, 7]), [1, 3]);
    let jobs = [(class(1, 0, 1, 5), 0, 0), (class(1, 0, 1, 1), 0, 1)];
    assert_eq!(run(&runner(1), want(1, 0, 9), &jobs), [0], "5 s and nothing below");
    let mut classes = queues(&jobs);
    classes[1].1 = ReadyQueue::default();
    classes[1].1.insert(ReadyJob::new(0, 5, 1));
    let chosen = choose(&runner(1), &want(1, 0, 9), &[owner("ada", vec![workflow(1, &classes)])]);
    assert_eq!(chosen.now, [Choice { workflow: WorkflowId(1), job: 1 }], "1 s and 5 s below");
}

#[test]
fn mixed_jobs_are_leased_ahead_for_one_round_trip() {
    let want = WorkRequest { bridge: 1, ..want(1, 4, 9) };
    assert_eq!(run_paths(want, &[0; 9]), [0, 1, 2, 3, 4], "alike");
    assert_eq!(run_paths(want, &[0, 0, 0, 0, 5]), [4, 0], "of different urgency");
    let classes = |second| [(class(1, 0, 1, 1), 0, 0), (class(1, 0, 1, 1), 0, 1), (class(1, 0, 1, second), 0, 2)];
    assert_eq!(run(&runner(4), want, &classes(1)), [0, 1, 2], "one class");
    assert_eq!(run(&runner(4), want, &classes(2)), [2, 0], "of two classes");
    assert_eq!(run(&runner(4), WorkRequest { bridge: 0, ..want }, &classes(2)), [2]);
    let elsewhere = [(class(9, 0, 1, 1), 0, 0), (class(1, 0, 1, 1), 0, 1), (class(1, 0, 1, 1), 0, 2)];
    assert_eq!(
        run(&runner(4), WorkRequest { bridge: 0, ..want }, &elsewhere),
        [1, 2],
        "another class does not fit the runner"
    );
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
    assert_eq!(run(&runner(64), want(64, 0, 10), &jobs), [6, 5, 4, 3, 2, 0, 1]);
    assert_eq!(run(&runner(64), want(64, 0, 3), &jobs), [6, 5, 4], "no more than the limit");
    assert_eq!(run(&runner(64), want(64, 0, 0), &jobs), [0u32; 0]);
}

#[test]
fn smaller_jobs_fill_what_a_big_one_leaves() {
    let jobs =
        [(class(6, 0, 1, 9), 9, 0), (class(6, 0, 1, 9), 8, 1), (class(1, 0, 1, 1), 0, 2), (class(1, 0, 1, 1), 0, 3)];
    assert_eq!(run(&runner(8), want(8, 0, 10), &jobs), [0, 2, 3]);
    assert_eq!(run(&runner(8), want(7, 0, 10), &jobs), [0, 2]);
    assert_eq!(run(&runner(8), want(0, 0, 10), &jobs), [0u32; 0]);
}

#[test]
fn ahead_comes_after_what_fits_and_within_the_limit() {
    let jobs =
        [(class(6, 0, 1, 9), 9, 0), (class(6, 0, 1, 9), 8, 1), (class(1, 0, 1, 1), 0, 2), (class(9, 0, 1, 1), 10, 3)];
    assert_eq!(run(&runner(8), want(8, 1, 10), &jobs), [0, 2, 1]);
    assert_eq!(run(&runner(8), want(8, 9, 10), &jobs), [0, 2, 1], "job 3 never fits this runner");
    assert_eq!(run(&runner(8), want(8, 9, 2), &jobs), [0, 2]);
    assert_eq!(run(&runner(8), want(0, 2, 10), &jobs), [0, 1]);
}

#[test]
fn the_queue_strategy_counts_and_ignores_requirements() {
    let counting = RunnerView { by_count: true, ..runner(1) };
    let jobs =
        [(class(1, 0, 1, 1), 0, 0), (class(99, 9, 999, 9), 0, 1), (class(2, 0, 1, 1), 5, 2), (class(1, 0, 1, 1), 0, 3)];
    assert_eq!(run(&counting, want(3, 0, 9), &jobs), [2, 0, 1], "three slots: by priority, then by number");
    assert_eq!(run(&counting, want(1, 1, 9), &jobs), [2, 0], "one slot, and one to follow");
    assert_eq!(run(&counting, want(0, 0, 9), &jobs), [0u32; 0], "no slot");
}

#[test]
fn jobs_of_other_schedulers_come_last() {
    let of = |scheduler: &str, cpus| JobClass { scheduler: Some(scheduler.to_owned()), ..class(cpus, 0, 1, 1) };
    let gpu = RunnerView { scheduler: Some("gpu"), ..runner(8) };
    let mut jobs = vec![(of("cpu", 1), 99, 0), (of("gpu", 4), 0, 1), (class(1, 0, 1, 1), 0, 2)];
    assert_eq!(run(&gpu, want(8, 0, 9), &jobs), [1, 2]);
    assert_eq!(run(&runner(8), want(8, 0, 9), &jobs), [2], "outside of every allocation too");
    jobs.truncate(2);
    assert_eq!(run(&gpu, want(2, 0, 9), &jobs), [0], "its own does not fit now");
    assert_eq!(run(&runner(8), want(8, 0, 9), &jobs), [0, 1]);
}

/// Returns the workflows of the chosen jobs, in the order of choice.
fn served(want: WorkRequest, owners: &[OwnerQueues<'_>]) -> Vec<i64> {
    let chosen = choose(&runner(8), &want, owners);
    chosen.now.iter().chain(&chosen.ahead).map(|choice| choice.workflow.0).collect()
}

fn used(cpus: i64) -> ResourcesInUse {
    ResourcesInUse { cpus, jobs: cpus, ..ResourcesInUse::default() }
}

/// Returns `count` jobs of one CPU each.
fn small_jobs(count: u32, priority: i64) -> Vec<(JobClass, ReadyQueue)> {
    queues(&(0..count).map(|job| (class(1, 0, 1, 1), priority, job)).collect::<Vec<_>>())
}

#[test]
fn workflows_of_one_owner_share_equally() {
    let (many, few) = (small_jobs(20, 0), small_jobs(2, 0));
    let both = |first: ResourcesInUse, second: ResourcesInUse| {
        let of = |id, usage, classes| WorkflowQueues { usage, ..workflow(id, classes) };
        [owner("ada", vec![of(1, first, &many[..]), of(2, second, &few[..])])]
    };
    assert_eq!(served(want(6, 0, 9), &both(used(0), used(0))), [1, 2, 1, 2, 1, 1], "in turn, the older one first");
    assert_eq!(served(want(6, 0, 9), &both(used(3), used(0))), [2, 2, 1, 1, 1, 1], "who uses less comes first");
    assert_eq!(served(want(6, 0, 9), &both(used(1), used(0))), [2, 1, 2, 1, 1, 1]);
    assert_eq!(served(want(2, 4, 9), &both(used(0), used(0))), [1, 2, 1, 2, 1, 1], "what is leased ahead counts, too");
}

#[test]
fn a_higher_priority_of_the_same_owner_comes_first() {
    let (low, high) = (small_jobs(9, 0), small_jobs(3, 1));
    let busy = WorkflowQueues { usage: used(7), ..workflow(2, &high) };
    let owners = [owner("ada", vec![workflow(1, &low), busy])];
    assert_eq!(served(want(5, 0, 9), &owners), [2, 2, 2, 1, 1], "although it uses more");
}

#[test]
fn owners_share_equally_whatever_their_priorities_are() {
    let (low, high) = (small_jobs(9, 0), small_jobs(9, 5));
    let owners = |ada: ResourcesInUse, bob: ResourcesInUse| {
        [
            OwnerQueues { usage: ada, ..owner("ada", vec![workflow(1, &high), workflow(2, &high)]) },
            OwnerQueues { usage: bob, ..owner("bob", vec![workflow(3, &low)]) },
        ]
    };
    assert_eq!(served(want(6, 0, 9), &owners(used(0), used(0))), [1, 3, 2, 3, 1, 3]);
    assert_eq!(served(want(4, 0, 9), &owners(used(4), used(1))), [3, 3, 3, 1]);
    assert_eq!(served(want(4, 0, 9), &owners(used(1), used(5))), [1, 2, 1, 2]);
}

#[test]
fn the_dominant_resource_decides_who_uses_less() {
    let runner = RunnerView { capacity: Resources { cpus: 10, memory_bytes: 1_000, gpus: 2, nodes: 1 }, ..runner(1) };
    let share = |cpus, memory_bytes, gpus| ResourcesInUse { cpus, memory_bytes, gpus, jobs: 7 }.dominant_share(&runner);
    assert_eq!([share(1, 0, 0), share(1, 200, 0), share(1, 200, 1)], [100_000, 200_000, 500_000]);
    assert_eq!(share(30, 0, 0), 3_000_000, "of all runners together");
    assert_eq!(
        ResourcesInUse { cpus: 1, jobs: 7, ..ResourcesInUse::default() }
            .dominant_share(&RunnerView { by_count: true, ..runner.clone() }),
        7
    );
    let without = RunnerView { capacity: Resources { gpus: 0, ..runner.capacity }, ..runner };
    assert_eq!(
        ResourcesInUse { gpus: 5, ..ResourcesInUse::default() }.dominant_share(&without),
        0,
        "it has none to share"
    );
}

#[test]
fn usage_counts_every_node_of_a_job() {
    let needs = Requirements { num_cpus: 2, memory_bytes: 3, num_gpus: 4, num_nodes: 5, ..Requirements::default() };
    let mut usage = ResourcesInUse::default();
    usage.add(&needs, 2);
    assert_eq!(usage, ResourcesInUse { cpus: 20, memory_bytes: 30, gpus: 40, jobs: 2 });
    usage.add(&needs, -1);
    assert_eq!(usage, ResourcesInUse { cpus: 10, memory_bytes: 15, gpus: 20, jobs: 1 });
    usage.merge(&ResourcesInUse { cpus: 1, memory_bytes: 2, gpus: 3, jobs: 4 });
    assert_eq!(usage, ResourcesInUse { cpus: 11, memory_bytes: 17, gpus: 23, jobs: 5 });
}

// P06. Free capacity comes first, here and elsewhere.
#[test]
fn nothing_is_leased_ahead_that_another_runner_could_start() {
    let (here, both) = (queues(&[(class(2, 0, 1, 1), 0, 0)]), small_jobs(6, 0));
    let mut queues = WorkflowQueues { classes: class_queues(&both), ..workflow(1, &here) };
    queues.classes[0].has_other_candidate = true;
    queues.classes.extend(class_queues(&here));
    let owners = [owner("ada", vec![queues])];
    let chosen = choose(&runner(8), &want(2, 9, 20), &owners);
    assert_eq!((chosen.now.len(), chosen.ahead.len(), chosen.is_withheld), (1, 0, true), "two CPUs: the larger job");
    let chosen = choose(&runner(8), &want(1, 9, 20), &owners);
    assert_eq!(
        (chosen.now.len(), chosen.ahead.len(), chosen.is_withheld),
        (1, 1, true),
        "only the larger one waits here"
    );
    assert_eq!(chosen.taken, Resources { cpus: 1, memory_bytes: 1, ..Resources::default() });
    let chosen = choose(&runner(8), &want(8, 9, 20), &owners);
    assert_eq!((chosen.now.len(), chosen.ahead.len(), chosen.is_withheld), (7, 0, false), "everything fits");
}

/// Returns the slow way: sort everything, then go through it twice.
fn search(capacity_cpus: i64, want: WorkRequest, jobs: &[(JobClass, i64, u32)]) -> Vec<u32> {
    let mut sorted: Vec<&(JobClass, i64, u32)> =
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
        let jobs: Vec<(JobClass, i64, u32)> =
            jobs.into_iter().zip(0..).map(|((cpus, runtime, priority), job)| (class(cpus, 0, 0, runtime), priority, job)).collect();
        let want = want((cpus - used).max(0), ahead, limit);
        prop_assert_eq!(run(&runner(cpus), want, &jobs), search(cpus, want, &jobs));
    }
}

// P05
#[test]
fn each_workflow_limits_its_own_work() {
    let jobs = small_jobs(6, 0);
    let limits = [
        LeaseAllowance { batch: 3, ..LeaseAllowance::default() },
        LeaseAllowance { ahead: 1, ..LeaseAllowance::default() },
    ];
    let workflows = (1..).zip(limits).map(|(id, allowance)| WorkflowQueues { allowance, ..workflow(id, &jobs) });
    let owners = [owner("ada", workflows.collect())];
    let chosen = choose(&runner(4), &want(4, 20, 20), &owners);
    let of = |chosen: &[Choice], id: i64| chosen.iter().filter(|choice| choice.workflow == WorkflowId(id)).count();
    assert_eq!((of(&chosen.now, 1), of(&chosen.now, 2)), (2, 2));
    assert_eq!((of(&chosen.ahead, 1), of(&chosen.ahead, 2)), (1, 1), "three in one answer; one ahead");
}
