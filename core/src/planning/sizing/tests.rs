#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use torc_api::termination::EndMargin;

use super::super::partition::tests::{GIB, needs, partition, site};
use super::*;

/// A margin of five minutes in total.
const MARGIN: WalltimeMargin = WalltimeMargin {
    startup_seconds: 200,
    end: EndMargin { headroom_seconds: 70, notice_seconds: 30, in_step: false },
};
const LIMITS: AllocationLimits = AllocationLimits {
    max_allocations: 4,
    walltime: Walltime::FromJobs,
    margin: MARGIN,
    suspended: false,
    finished: false,
};

fn ready(needs: &Requirements, ready: i64) -> JobDemand<'_> {
    JobDemand { needs, labels: &[], ready, waiting: 0 }
}

/// Returns an allocation of one whole node of 104 CPUs.
fn node(seconds: i64) -> AllocationShape {
    AllocationShape { partition: "short".to_owned(), nodes: 1, cpus: 104, memory_bytes: 240 * GIB, gpus: 0, seconds }
}

fn pending(marker: &str, shape: AllocationShape) -> ExistingAllocation {
    ExistingAllocation { marker: marker.to_owned(), shape, stage: AllocationStage::Pending }
}

fn running(
    marker: &str,
    shape: AllocationShape,
    seconds_left: i64,
    free_cpus: i64,
    busy_seconds: i64,
) -> ExistingAllocation {
    let free = Resources { cpus: free_cpus, ..shape.capacity() };
    ExistingAllocation {
        marker: marker.to_owned(),
        shape,
        stage: AllocationStage::Running { seconds_left, free, busy_seconds },
    }
}

#[test]
fn what_is_missing_is_asked_for_and_never_more_than_allowed() {
    let whole = needs(104, 100, 0, 1, 1);
    let count = |jobs: i64, max: i64| {
        let limits = AllocationLimits { max_allocations: max, ..LIMITS };
        let result = difference(&[ready(&whole, jobs)], &[], &site(), limits);
        (result.submit.len(), result.held_back)
    };
    assert_eq!(count(0, 4), (0, 0));
    assert_eq!(count(3, 4), (3, 0));
    assert_eq!(count(9, 4), (4, 5));
    assert_eq!(count(9, 0), (0, 9));
    let shape = difference(&[ready(&whole, 1)], &[], &site(), LIMITS).submit.remove(0);
    assert_eq!(shape, node(5_400));
    assert!((shape.node_hours() - 1.5).abs() < 1e-9);
}

#[test]
fn existing_allocations_are_counted() {
    let whole = needs(104, 100, 0, 1, 1);
    let mut existing: Vec<ExistingAllocation> = Vec::new();
    for round in 0..5 {
        let result = difference(&[ready(&whole, 3)], &existing, &site(), LIMITS);
        assert_eq!(result.submit.len(), if round == 0 { 3 } else { 0 }, "round {round}");
        assert_eq!(result.cancel, Vec::<String>::new());
        let new = result.submit.into_iter().enumerate();
        existing.extend(new.map(|(index, shape)| pending(&format!("a{index}"), shape)));
    }
}

/// Pending allocations without jobs are canceled. Above the limit, the newest of the others are canceled, too.
#[test]
fn needless_allocations_count_against_the_limit_first() {
    let whole = needs(104, 100, 0, 1, 1);
    let mut existing = vec![pending("idle", AllocationShape { cpus: 1, memory_bytes: GIB, ..node(5_400) })];
    existing.extend(["a", "b", "c"].map(|marker| pending(marker, node(5_400))));
    let cancel = |most: i64| {
        let limits = AllocationLimits { max_allocations: most, ..LIMITS };
        difference(&[ready(&whole, 3)], &existing, &site(), limits).cancel
    };
    assert_eq!(cancel(3), ["idle"], "three are left, which is the limit");
    assert_eq!(cancel(2), ["idle", "c"]);
    assert_eq!(cancel(1), ["idle", "b", "c"]);
}

#[test]
fn room_in_running_allocations_counts_first() {
    let half = needs(52, 100, 0, 1, 1);
    let jobs = [ready(&half, 2)];
    // Empty, with an hour and the margin left: it takes two jobs side by side.
    let free = running("a", node(5_400), 3_900, 104, 0);
    assert_eq!(difference(&jobs, std::slice::from_ref(&free), &site(), LIMITS).submit, []);
    // One half is free for an hour, the other half is free after an hour for another hour.
    let busy = running("a", node(7_500), 7_500, 52, 3_600);
    assert_eq!(difference(&[ready(&half, 3)], std::slice::from_ref(&busy), &site(), LIMITS).submit, []);
    assert_eq!(difference(&[ready(&half, 4)], &[busy], &site(), LIMITS).submit.len(), 1);
    // Its remaining time is too short.
    let late = running("a", node(5_400), 1_800, 104, 0);
    let result = difference(&jobs, &[late], &site(), LIMITS);
    assert_eq!((result.submit.len(), result.keep.len()), (1, 1), "a running allocation leaves by itself");
}

#[test]
fn unneeded_pending_allocations_are_canceled() {
    let whole = needs(104, 100, 0, 1, 1);
    let existing = [pending("a", node(5_400)), pending("b", node(5_400)), running("c", node(5_400), 5_000, 0, 3_600)];
    let result = difference(&[ready(&whole, 1)], &existing, &site(), LIMITS);
    assert_eq!((result.keep, result.cancel), (vec!["a".to_owned(), "c".to_owned()], vec!["b".to_owned()]));
    // Jobs that become ready later are a reason to keep it.
    let soon = JobDemand { waiting: 1, ..ready(&whole, 1) };
    assert_eq!(difference(&[soon], &existing, &site(), LIMITS).cancel, Vec::<String>::new());
    // But they are no reason to submit another one.
    let later = JobDemand { waiting: 9, ..ready(&whole, 0) };
    assert_eq!(difference(&[later], &[], &site(), LIMITS).submit, []);
}

#[test]
fn a_lower_limit_takes_the_newest_pending_ones_away() {
    let whole = needs(104, 100, 0, 1, 1);
    let existing: Vec<ExistingAllocation> = ["a", "b", "c"].map(|marker| pending(marker, node(5_400))).into();
    let limits = AllocationLimits { max_allocations: 1, ..LIMITS };
    let result = difference(&[ready(&whole, 9)], &existing, &site(), limits);
    assert_eq!(result.cancel, ["b", "c"]);
    assert_eq!(result.submit, []);
    let running = [running("r", node(5_400), 5_400, 0, 0), existing[0].clone()];
    let result = difference(&[ready(&whole, 9)], &running, &site(), limits);
    assert_eq!((result.keep, result.cancel), (vec!["r".to_owned()], vec!["a".to_owned()]), "what runs is not killed");
}

#[test]
fn the_end_and_a_pause() {
    let whole = needs(104, 100, 0, 1, 1);
    let existing = [pending("a", node(5_400)), running("b", node(5_400), 5_000, 104, 0)];
    let over = difference(&[], &existing, &site(), AllocationLimits { finished: true, ..LIMITS });
    assert_eq!(over.cancel, ["a", "b"]);
    let paused = difference(&[ready(&whole, 9)], &existing, &site(), AllocationLimits { suspended: true, ..LIMITS });
    assert_eq!((paused.submit.len(), paused.cancel, paused.keep), (0, vec!["a".to_owned()], vec!["b".to_owned()]));
}

#[test]
fn classes_share_allocations_and_nodes() {
    let (long, short) = (needs(80, 100, 0, 1, 2), needs(24, 10, 0, 1, 1));
    // The short jobs would go to `shared`, but they fit beside the long one.
    let result = difference(&[ready(&short, 3), ready(&long, 1)], &[], &site(), LIMITS);
    assert_eq!(result.submit.len(), 2, "{:?}", result.submit);
    assert_eq!((result.submit[1].partition.as_str(), result.submit[1].cpus), ("shared", 24));
    let result = difference(&[ready(&short, 2)], &[], &site(), LIMITS);
    assert_eq!((result.submit[0].cpus, result.submit[0].memory_bytes), (48, 20 * GIB));
}

#[test]
fn gpus_and_several_nodes() {
    let (gpu, wide) = (needs(8, 10, 1, 1, 1), needs(4, 4, 0, 3, 1));
    let result = difference(&[ready(&gpu, 5), ready(&wide, 2)], &[], &site(), LIMITS);
    let shapes: Vec<(&str, i64, i64)> =
        result.submit.iter().map(|shape| (shape.partition.as_str(), shape.nodes, shape.gpus)).collect();
    assert_eq!(shapes, [("short", 3, 0), ("short", 3, 0), ("gpu", 1, 4), ("gpu", 1, 4)]);
}

#[test]
fn what_has_no_place_is_told() {
    let (huge, labelled) = (needs(1, 9_000, 0, 1, 1), needs(1, 1, 0, 1, 1));
    let labels = ["licence".to_owned()];
    let demands = [
        JobDemand { waiting: 1, ..ready(&huge, 0) },
        JobDemand { labels: &labels, ..ready(&labelled, 2) },
        ready(&labelled, 1),
    ];
    let result = difference(&demands, &[], &site(), LIMITS);
    assert!(matches!(result.unplaced[0], (0, NoMatchingPartition::Memory { .. })), "{:?}", result.unplaced);
    assert!(matches!(result.unplaced[1], (1, NoMatchingPartition::Labels { .. })));
    assert_eq!((result.submit.len(), result.held_back), (1, 0));
}

fn kinds() -> impl Strategy<Value = Vec<(i64, i64, i64, i64, i64, i64)>> {
    let kind = (1_i64..140, 1_i64..400, 0_i64..5, 1_i64..4, 1_i64..30, 0_i64..300);
    proptest::collection::vec(kind, 0..5)
}

proptest! {
    #[test]
    fn enough_but_never_too_many_and_stable(kinds in kinds(), max in 0_i64..30) {
        let kinds: Vec<(Requirements, i64)> = kinds
            .into_iter()
            .map(|(cpus, gib, gpus, nodes, hours, jobs)| (needs(cpus, gib, gpus, nodes, hours), jobs))
            .collect();
        let demands: Vec<JobDemand<'_>> = kinds.iter().map(|(needs, jobs)| ready(needs, *jobs)).collect();
        let limits = AllocationLimits { max_allocations: max, ..LIMITS };
        let partitions = site();
        let result = difference(&demands, &[], &partitions, limits);
        prop_assert!(result.submit.len() as i64 <= max);
        // Without a limit, every job has a place or a reason.
        let all = difference(&demands, &[], &partitions, AllocationLimits { max_allocations: i64::MAX, ..limits });
        prop_assert_eq!(all.held_back, 0);
        for shape in &all.submit {
            let partition = partitions.iter().find(|one| one.name == shape.partition).unwrap();
            prop_assert!(shape.seconds <= partition.seconds && shape.cpus <= partition.cpus && !partition.on_request);
        }
        // A second call with the submitted allocations changes nothing.
        let existing: Vec<ExistingAllocation> =
            (0..).zip(all.submit).map(|(index, shape): (i32, AllocationShape)| pending(&index.to_string(), shape)).collect();
        let again = difference(&demands, &existing, &partitions, AllocationLimits { max_allocations: i64::MAX, ..limits });
        prop_assert_eq!(again.submit, vec![]);
        prop_assert_eq!(again.held_back, 0);
    }

    #[test]
    fn more_jobs_never_need_fewer_allocations(
        (cpus, gib, gpus, nodes, hours) in (1_i64..140, 1_i64..400, 0_i64..5, 1_i64..4, 1_i64..30),
        jobs in 0_i64..500,
        more in 0_i64..100,
    ) {
        let needs = needs(cpus, gib, gpus, nodes, hours);
        let partitions = site();
        let count = |jobs: i64| {
            difference(&[ready(&needs, jobs)], &[], &partitions, AllocationLimits { max_allocations: i64::MAX, ..LIMITS }).submit.len()
        };
        prop_assert!(count(jobs) <= count(jobs + more));
    }

    #[test]
    fn the_same_number_as_by_counting(cpus in 30_i64..104, hours in 1_i64..4, jobs in 0_i64..500) {
        let needs = needs(cpus, 100, 0, 1, hours);
        let one = [partition("p", 104, 240, 0, 48)];
        let limits = AllocationLimits { max_allocations: i64::MAX, ..LIMITS };
        let submitted = difference(&[ready(&needs, jobs)], &[], &one, limits).submit.len() as i64;
        let seconds = walltime(Sequence::of_one(needs.runtime_seconds), &one[0], Walltime::FromJobs, MARGIN);
        let counted = super::super::fit::allocations(&[super::super::fit::Load { needs: &needs, jobs }], &one[0], seconds, MARGIN);
        prop_assert_eq!(submitted, counted);
    }
}
