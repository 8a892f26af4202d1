//! Finds allocations and runners that have ended, and the jobs that were lost with them.
//!
//! An allocation has ended only if Slurm says so. A missing or unknown answer changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use torc_api::slurm::SlurmState;
use torc_api::state::Cause;

/// Time in milliseconds after which an allocation counts as ended if Slurm neither lists it nor has recorded its end.
/// Slurm's accounting can lag behind its queue.
pub const UNSEEN_TIMEOUT_MS: i64 = 60_000;

/// An allocation as the store knows it, with Slurm's answer about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedAllocation {
    /// Number of the allocation in the store.
    pub id: i64,
    /// It has started according to the store.
    pub is_active: bool,
    /// Slurm's answer about it.
    pub observation: SlurmObservation,
    /// Milliseconds for which Slurm has not known it.
    pub unseen_ms: i64,
    /// Slurm reports a later start than the store knows.
    pub has_restarted: bool,
    /// The final state of its earlier start, if it was requeued and the accounting has it.
    pub former_end: Option<SlurmState>,
}

/// Slurm's answer about an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlurmObservation {
    /// It did not answer.
    NoAnswer,
    /// It is in the queue. The queue overrides the accounting, which may be about an earlier start.
    Queued(SlurmState),
    /// It is no longer in the queue, and the accounting has this state.
    Recorded(SlurmState),
    /// It is neither in the queue nor in the accounting.
    Unseen,
}

/// A runner that is registered and has not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRunner {
    /// Number of the runner's registration.
    pub id: i64,
    /// The allocation it lives in.
    pub allocation: Option<i64>,
    /// It has been silent for as long as a lease lasts.
    pub is_silent: bool,
}

/// A job that runs according to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningJob {
    /// Number of the job in the store.
    pub id: i64,
    /// The runner that has it.
    pub runner: i64,
}

/// The differences between Slurm and the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrphanFindings {
    /// Allocations that are over: number, and the state in which they ended.
    pub over: Vec<(i64, SlurmState)>,
    /// Allocations that Slurm has requeued after they had started.
    pub requeued: Vec<i64>,
    /// Allocations that may or may not have ended.
    pub in_doubt: Vec<i64>,
    /// Runners that cannot be alive.
    pub stale_runners: Vec<i64>,
    /// Jobs that cannot be alive: number and cause.
    pub lost_jobs: Vec<(i64, Cause)>,
}

/// Returns the differences between the answers of Slurm and the store.
pub fn detect(allocations: &[ObservedAllocation], runners: &[KnownRunner], jobs: &[RunningJob]) -> OrphanFindings {
    let mut findings = OrphanFindings::default();
    let mut ends: BTreeMap<i64, Cause> = BTreeMap::new();
    for allocation in allocations {
        match classify(allocation) {
            Classification::Lives => {}
            Classification::InDoubt => findings.in_doubt.push(allocation.id),
            Classification::ComesBack(cause) => {
                findings.requeued.push(allocation.id);
                ends.insert(allocation.id, cause);
            }
            Classification::Over(state) => {
                findings.over.push((allocation.id, state));
                ends.insert(allocation.id, state.cause_of_its_jobs().unwrap_or(Cause::Lost));
            }
        }
    }
    let known: BTreeSet<i64> = allocations.iter().map(|allocation| allocation.id).collect();
    let mut live: BTreeSet<i64> = BTreeSet::new();
    let mut dead: BTreeMap<i64, Cause> = BTreeMap::new();
    for runner in runners {
        let end = runner.allocation.and_then(|allocation| ends.get(&allocation).copied());
        // An allocation that is not among the live ones has ended earlier. Its runner is lost if it is silent, too.
        let homeless = runner.allocation.is_some_and(|allocation| !known.contains(&allocation)) && runner.is_silent;
        match end.or(homeless.then_some(Cause::Lost)) {
            Some(cause) => {
                findings.stale_runners.push(runner.id);
                dead.insert(runner.id, cause);
            }
            None => {
                live.insert(runner.id);
            }
        }
    }
    // A job whose runner is not registered has no process that could report its end.
    let lost = |job: &RunningJob| match dead.get(&job.runner) {
        Some(cause) => Some((job.id, *cause)),
        None => (!live.contains(&job.runner)).then_some((job.id, Cause::Lost)),
    };
    findings.lost_jobs = jobs.iter().filter_map(lost).collect();
    findings
}

enum Classification {
    Lives,
    InDoubt,
    ComesBack(Cause),
    Over(SlurmState),
}

/// Returns the cause for which Slurm has requeued an allocation: a node failure or a preemption.
fn requeued_for(allocation: &ObservedAllocation) -> Cause {
    let end = allocation.former_end.and_then(SlurmState::cause_of_its_jobs);
    end.filter(|cause| *cause == Cause::NodeFailure).unwrap_or(Cause::Preempted)
}

fn classify(allocation: &ObservedAllocation) -> Classification {
    match allocation.observation {
        SlurmObservation::NoAnswer
        | SlurmObservation::Queued(SlurmState::Unknown)
        | SlurmObservation::Recorded(SlurmState::Unknown) => Classification::InDoubt,
        SlurmObservation::Queued(state) if state.is_over() => Classification::Over(state),
        SlurmObservation::Queued(state) if state.has_nodes() => {
            // It runs again after a requeue: what ran in it before is gone.
            if allocation.is_active && allocation.has_restarted {
                return Classification::ComesBack(requeued_for(allocation));
            }
            Classification::Lives
        }
        // It waits although it had started: it was requeued, whatever Slurm calls it.
        SlurmObservation::Queued(_) if allocation.is_active => Classification::ComesBack(requeued_for(allocation)),
        SlurmObservation::Queued(_) => Classification::Lives,
        SlurmObservation::Recorded(state) if state.is_over() => Classification::Over(state),
        // Not in the queue, and not recorded as ended: the accounting lags, or Slurm has lost the job.
        SlurmObservation::Recorded(_) | SlurmObservation::Unseen if allocation.unseen_ms >= UNSEEN_TIMEOUT_MS => {
            Classification::Over(SlurmState::Failed)
        }
        SlurmObservation::Recorded(_) | SlurmObservation::Unseen => Classification::InDoubt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(id: i64, is_active: bool, observation: SlurmObservation) -> ObservedAllocation {
        ObservedAllocation { id, is_active, observation, unseen_ms: 0, has_restarted: false, former_end: None }
    }

    fn runner(id: i64, allocation: Option<i64>) -> KnownRunner {
        KnownRunner { id, allocation, is_silent: false }
    }

    fn one(allocation: ObservedAllocation) -> OrphanFindings {
        let runners = [runner(10, Some(allocation.id))];
        detect(&[allocation], &runners, &[RunningJob { id: 100, runner: 10 }])
    }

    // R01
    #[test]
    fn an_active_allocation_that_is_gone_takes_its_jobs_with_it() {
        use SlurmState::*;
        let cases = [
            (NodeFailure, Cause::NodeFailure),
            (BootFailure, Cause::NodeFailure),
            (Preempted, Cause::Preempted),
            (Timeout, Cause::Timeout),
            (Deadline, Cause::Timeout),
            (Cancelled, Cause::Lost),
            (Completed, Cause::Lost),
            (Failed, Cause::Lost),
            (OutOfMemory, Cause::Lost),
        ];
        for (state, cause) in cases {
            for observation in [SlurmObservation::Queued(state), SlurmObservation::Recorded(state)] {
                let found = one(allocation(1, true, observation));
                assert_eq!(found.over, [(1, state)], "{state}");
                assert_eq!((found.stale_runners, found.lost_jobs), (vec![10], vec![(100, cause)]), "{state}");
            }
        }
    }

    // R02
    #[test]
    fn a_pending_allocation_that_is_gone_is_over() {
        for gone in [SlurmObservation::Recorded(SlurmState::Cancelled), SlurmObservation::Queued(SlurmState::Cancelled)]
        {
            let canceled = detect(&[allocation(1, false, gone)], &[], &[]);
            assert_eq!(canceled.over, [(1, SlurmState::Cancelled)], "{gone:?}");
        }
        let waits = detect(&[allocation(1, false, SlurmObservation::Queued(SlurmState::Pending))], &[], &[]);
        assert_eq!(waits, OrphanFindings::default());
        let held = detect(&[allocation(1, false, SlurmObservation::Queued(SlurmState::ComingBack))], &[], &[]);
        assert_eq!(held, OrphanFindings::default(), "one that is held may still start");
    }

    // R03
    #[test]
    fn jobs_that_run_with_no_runner_are_lost() {
        let jobs = [RunningJob { id: 100, runner: 10 }, RunningJob { id: 101, runner: 11 }];
        let found = detect(&[], &[runner(10, None)], &jobs);
        assert_eq!(found.lost_jobs, [(101, Cause::Lost)]);
        assert_eq!(found.stale_runners, Vec::<i64>::new(), "a silent runner elsewhere may come back");
    }

    // R03
    #[test]
    fn a_silent_runner_of_an_ended_allocation_is_stale() {
        let speaks = detect(&[], &[runner(10, Some(7))], &[RunningJob { id: 100, runner: 10 }]);
        assert_eq!(speaks, OrphanFindings::default());
        let silent = KnownRunner { is_silent: true, ..runner(10, Some(7)) };
        let found = detect(&[], &[silent], &[RunningJob { id: 100, runner: 10 }]);
        assert_eq!((found.stale_runners, found.lost_jobs), (vec![10], vec![(100, Cause::Lost)]));
    }

    // R01, R02
    #[test]
    fn no_answer_changes_nothing() {
        let unknown = [
            SlurmObservation::NoAnswer,
            SlurmObservation::Queued(SlurmState::Unknown),
            SlurmObservation::Recorded(SlurmState::Unknown),
        ];
        for observation in unknown {
            for is_active in [true, false] {
                let waited = ObservedAllocation { unseen_ms: i64::MAX, ..allocation(1, is_active, observation) };
                let found = one(waited);
                assert_eq!(found, OrphanFindings { in_doubt: vec![1], ..OrphanFindings::default() }, "{observation:?}");
            }
        }
    }

    // R01, R02
    #[test]
    fn what_slurm_has_not_seen_is_gone_only_after_a_while() {
        for observation in [
            SlurmObservation::Unseen,
            SlurmObservation::Recorded(SlurmState::Running),
            SlurmObservation::Recorded(SlurmState::Pending),
        ] {
            for is_active in [true, false] {
                let just_now = one(ObservedAllocation {
                    unseen_ms: UNSEEN_TIMEOUT_MS - 1,
                    ..allocation(1, is_active, observation)
                });
                assert_eq!(
                    just_now,
                    OrphanFindings { in_doubt: vec![1], ..OrphanFindings::default() },
                    "{observation:?}"
                );
                let for_long =
                    one(ObservedAllocation { unseen_ms: UNSEEN_TIMEOUT_MS, ..allocation(1, is_active, observation) });
                assert_eq!(for_long.over, [(1, SlurmState::Failed)], "{observation:?}, active: {is_active}");
                assert_eq!(for_long.lost_jobs, [(100, Cause::Lost)]);
            }
        }
    }

    #[test]
    fn suspended_and_ending_allocations_live() {
        for state in [SlurmState::Running, SlurmState::Suspended] {
            assert_eq!(one(allocation(1, true, SlurmObservation::Queued(state))), OrphanFindings::default(), "{state}");
        }
    }

    // R01
    #[test]
    fn a_requeued_allocation_stays_but_its_jobs_are_gone() {
        let expected = OrphanFindings {
            requeued: vec![1],
            stale_runners: vec![10],
            lost_jobs: vec![(100, Cause::Preempted)],
            ..OrphanFindings::default()
        };
        // A preempted job that was requeued is simply pending again.
        for state in [SlurmState::Pending, SlurmState::ComingBack] {
            assert_eq!(one(allocation(1, true, SlurmObservation::Queued(state))), expected, "{state}");
        }
        let again = ObservedAllocation {
            has_restarted: true,
            ..allocation(1, true, SlurmObservation::Queued(SlurmState::Running))
        };
        assert_eq!(one(again), expected, "it runs again already");
    }

    #[test]
    fn one_live_allocation_hides_no_dead_one() {
        let allocations = [
            allocation(1, true, SlurmObservation::Queued(SlurmState::Running)),
            allocation(2, true, SlurmObservation::Recorded(SlurmState::NodeFailure)),
            allocation(3, true, SlurmObservation::NoAnswer),
        ];
        let runners = [runner(10, Some(1)), runner(11, Some(2)), runner(12, Some(3)), runner(13, None)];
        let jobs: Vec<RunningJob> = (10..14).map(|runner| RunningJob { id: runner * 10, runner }).collect();
        let found = detect(&allocations, &runners, &jobs);
        assert_eq!((found.stale_runners, found.in_doubt), (vec![11], vec![3]));
        assert_eq!(found.lost_jobs, [(110, Cause::NodeFailure)]);
    }
}
