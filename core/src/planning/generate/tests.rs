#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use torc_api::termination::EndMargin;

use super::super::partition::tests::{needs, partition, site};
use super::*;
use crate::expanded::Requirements;

/// A margin of five minutes in total.
const MARGIN: WalltimeMargin = WalltimeMargin {
    startup_seconds: 200,
    end: EndMargin { headroom_seconds: 70, notice_seconds: 30, in_step: false },
};
const SETTINGS: PlanSettings<'static> = PlanSettings {
    account: "science",
    partition: None,
    by_requirements: false,
    walltime: Walltime::FromJobs,
    margin: MARGIN,
    seconds: None,
    single_allocation: false,
    keep_apart: false,
    stamp: None,
};

/// Jobs of some kinds: the requirements of each, whether they wait, and their number.
fn jobs<'a>(kinds: &[(&'a Requirements, bool, usize)]) -> Vec<PendingJob<'a>> {
    let each = kinds.iter().flat_map(|(needs, waits, count)| std::iter::repeat_n((*needs, *waits), *count));
    (0_u32..)
        .zip(each)
        .map(|(index, (requirements, waits))| PendingJob {
            index,
            name: "",
            requirements,
            labels: &[],
            waits,
            // Waiting jobs depend on a job of the same kind.
            chain_seconds: requirements.runtime_seconds * if waits { 2 } else { 1 },
        })
        .collect()
}

fn shown(plan: &SchedulerPlan) -> Vec<(&str, i64, usize)> {
    plan.planned.iter().map(|planned| (planned.name.as_str(), planned.allocations, planned.jobs.len())).collect()
}

// R09, R13
#[test]
fn a_scheduler_for_each_partition_and_every_job_in_one() {
    let partitions = site();
    let (cpu, gpu, wide) = (needs(52, 100, 0, 1, 1), needs(16, 40, 1, 1, 1), needs(104, 200, 0, 3, 1));
    let plan = plan(&jobs(&[(&cpu, false, 10), (&gpu, false, 9), (&wide, false, 2)]), &partitions, SETTINGS);
    assert_eq!(shown(&plan), [("short_scheduler", 5, 10), ("gpu_scheduler", 3, 9), ("short_3nodes_scheduler", 2, 2)]);
    let gpus = &plan.planned[1].scheduler;
    assert_eq!((gpus.gres.as_deref(), gpus.nodes), (Some("gpu:4"), Some(1)), "four jobs count on four GPUs");
    assert_eq!(plan.planned[2].scheduler.nodes, Some(3));
    assert_eq!(plan.planned[2].action(|_| "").start_one_worker_per_node, None, "a job owns the nodes");
    let cpus = &plan.planned[0].scheduler;
    assert_eq!((cpus.gres.as_deref(), cpus.partition.as_deref()), (None, Some("short")));
    assert_eq!((cpus.mem.as_deref(), cpus.walltime.as_deref()), (Some("245760m"), Some("1h30m")));
    assert_eq!(plan.unplaced, []);
    assert!((plan.node_hours() - (5.0 + 3.0 + 6.0) * 1.5).abs() < 1e-9);
}

// R11, R12
#[test]
fn jobs_that_wait_get_allocations_that_wait() {
    let cpu = needs(104, 100, 0, 1, 1);
    let partitions = site();
    let plan = plan(&jobs(&[(&cpu, false, 3), (&cpu, true, 2)]), &partitions, SETTINGS);
    assert_eq!(shown(&plan), [("short_scheduler", 3, 3), ("short_scheduler_deferred", 2, 2)]);
    let names = ["a", "ab", "abc", "late", "later"];
    let name_of = |job: u32| names[job as usize];
    let (first, later) = (&plan.planned[0], &plan.planned[1]);
    assert_eq!(first.action(name_of).trigger_type, TriggerType::OnWorkflowStart);
    assert_eq!(first.recovery_action(name_of), None, "what can start at once needs no recovery action");
    let action = later.recovery_action(name_of).unwrap();
    assert_eq!(action.trigger_type, TriggerType::OnJobsReady);
    assert_eq!(action.jobs, Some(vec!["late".to_owned(), "later".to_owned()]), "names, not beginnings of names");
    assert_eq!((action.scheduler.as_deref(), action.num_allocations), (Some("short_scheduler_deferred"), Some(2)));
    assert_eq!(action.job_name_regexes, None);
}

#[test]
fn few_allocations_are_enough_for_both() {
    let cpu = needs(104, 100, 0, 1, 1);
    let partitions = site();
    let both = |now: usize, later: usize| {
        let plan = plan(&jobs(&[(&cpu, false, now), (&cpu, true, later)]), &partitions, SETTINGS);
        plan.planned.iter().map(|planned| (planned.allocations, planned.waits)).collect::<Vec<_>>()
    };
    assert_eq!(both(1, 1), [(1, false)], "one after the other in one allocation that is long enough for both");
    assert_eq!(both(2, 1), [(2, false), (1, true)]);
    assert_eq!(both(0, 1), [(1, true)]);
}

// R07
#[test]
fn nothing_pending_nothing_planned() {
    assert_eq!(plan(&[], &site(), SETTINGS), SchedulerPlan::default());
}

#[test]
fn by_requirements_with_a_stamp_and_a_named_partition() {
    let (a, b) = (needs(104, 100, 0, 1, 1), needs(104, 90, 0, 1, 1));
    let partitions = site();
    let settings =
        PlanSettings { by_requirements: true, stamp: Some("regen_1"), partition: Some("standard"), ..SETTINGS };
    let plan = plan(&jobs(&[(&a, false, 1), (&b, false, 1), (&b, true, 9)]), &partitions, settings);
    let names: Vec<&str> = plan.planned.iter().map(|planned| planned.name.as_str()).collect();
    let expected = [
        format!("{}_standard_scheduler_regen_1", a.name),
        format!("{}_standard_scheduler_regen_1", b.name),
        format!("{}_standard_scheduler_regen_1_deferred", b.name),
    ];
    assert_eq!(names, expected);
}

#[test]
fn one_allocation_with_all_the_nodes() {
    let cpu = needs(104, 100, 0, 1, 1);
    let single = PlanSettings { single_allocation: true, ..SETTINGS };
    let partitions = site();
    let wide = plan(&jobs(&[(&cpu, false, 7)]), &partitions, single);
    assert_eq!((wide.planned[0].allocations, wide.planned[0].scheduler.nodes), (1, Some(7)));
    assert_eq!(wide.planned[0].action(|_| "").start_one_worker_per_node, Some(true));
    // A partition that limits a job to two nodes.
    let narrow = [PartitionLimits { nodes: Some(2), ..partition("p", 104, 240, 0, 4) }];
    let plan = plan(&jobs(&[(&cpu, false, 7)]), &narrow, single);
    assert_eq!((plan.planned[0].allocations, plan.planned[0].scheduler.nodes), (4, Some(2)));
}

#[test]
fn where_nodes_are_shared_cpus_are_asked_for() {
    let small = needs(1, 1, 0, 1, 1);
    let partitions = site();
    let plan = plan(&jobs(&[(&small, false, 3)]), &partitions, SETTINGS);
    assert_eq!(plan.planned[0].scheduler.extra.as_deref(), Some("--cpus-per-task=104"));
}

#[test]
fn labels_are_kept_apart_and_what_has_no_place_is_told() {
    let (cpu, huge) = (needs(104, 100, 0, 1, 1), needs(104, 9_000, 0, 1, 1));
    let labels = ["licence".to_owned()];
    let mut list = jobs(&[(&cpu, false, 2), (&huge, false, 1)]);
    list[1].labels = &labels;
    let partitions = site();
    let plan = plan(&list, &partitions, SETTINGS);
    assert_eq!(shown(&plan), [("short_scheduler", 1, 1)]);
    let reasons: Vec<(u32, String)> = plan.unplaced.iter().map(|one| (one.job, one.reason.to_string())).collect();
    assert_eq!(reasons[0].0, 1);
    assert!(reasons[0].1.contains("labels (licence)"), "{reasons:?}");
    assert!(reasons[1].1.contains("memory"), "{reasons:?}");
}

proptest! {
    #[test]
    fn every_job_is_in_one_scheduler_or_told_to_have_no_place(
        kinds in proptest::collection::vec((1_i64..200, 1_i64..3_000, 0_i64..6, 1_i64..4, 1_i64..60, any::<bool>(), 1_usize..40), 0..8),
        by_requirements in any::<bool>(),
        single_allocation in any::<bool>(),
    ) {
        let kinds: Vec<(Requirements, bool, usize)> = kinds
            .into_iter()
            .map(|(cpus, gib, gpus, nodes, hours, waits, count)| (needs(cpus, gib, gpus, nodes, hours), waits, count))
            .collect();
        let kinds: Vec<(&Requirements, bool, usize)> = kinds.iter().map(|(needs, waits, count)| (needs, *waits, *count)).collect();
        let list = jobs(&kinds);
        let partitions = site();
        let plan = plan(&list, &partitions, PlanSettings { by_requirements, single_allocation, ..SETTINGS });
        let placed: Vec<u32> = plan.planned.iter().flat_map(|planned| planned.jobs.iter().copied()).collect();
        let all: BTreeSet<u32> = placed.iter().copied().chain(plan.unplaced.iter().map(|one| one.job)).collect();
        prop_assert_eq!(all.len(), list.len());
        prop_assert_eq!(placed.len() + plan.unplaced.len(), list.len());
        let names: BTreeSet<&str> = plan.planned.iter().map(|planned| planned.name.as_str()).collect();
        prop_assert_eq!(names.len(), plan.planned.len(), "two schedulers have one name");
        for planned in &plan.planned {
            let partition = partitions.iter().find(|one| Some(&one.name) == planned.scheduler.partition.as_ref()).unwrap();
            prop_assert!(planned.allocations > 0 && planned.seconds <= partition.seconds);
            prop_assert!(partition.nodes.is_none_or(|most| planned.scheduler.nodes.unwrap() <= most));
            for job in &planned.jobs {
                let job = &list[*job as usize];
                prop_assert!(job.requirements.num_nodes <= planned.scheduler.nodes.unwrap());
                prop_assert!(job.requirements.runtime_seconds <= planned.seconds);
                prop_assert!(planned.waits || !job.waits || planned.allocations <= MAX_MERGED_ALLOCATIONS);
            }
        }
    }
}
