//! Allocations and runners that are no more, and the jobs that were with them.
//!
//! Something is gone only when Slurm has said so. An answer that did not come, or that nobody understands, changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use torc_api::slurm::SlurmState;
use torc_api::state::Cause;

/// An allocation that Slurm neither lists nor has recorded for so long is gone. Until then its accounting may be on the way.
pub const UNSEEN_MS: i64 = 60_000;

/// An allocation as it is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its number here.
    pub id: i64,
    /// It has started, as far as is known here.
    pub is_active: bool,
    /// What Slurm says about it.
    pub sighting: Sighting,
    /// How long Slurm has known nothing of it.
    pub unseen_ms: i64,
    /// It has come back since its jobs started, as far as Slurm says.
    pub has_restarted: bool,
    /// How its earlier start ended, if it was requeued and the accounting says so.
    pub former_end: Option<SlurmState>,
}

/// What Slurm says about an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// It did not answer.
    NoAnswer,
    /// It is in the queue. This counts more than what is recorded: a record may be about an earlier start.
    Queued(SlurmState),
    /// It is not in the queue any more, and this is recorded.
    Recorded(SlurmState),
    /// It is neither in the queue nor recorded.
    Unseen,
}

/// A runner that has not signed off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Its number.
    pub id: i64,
    /// The allocation it lives in.
    pub allocation: Option<i64>,
    /// It has been silent for as long as a lease lasts.
    pub is_silent: bool,
}

/// A job that is running here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningJob {
    /// Its number.
    pub id: i64,
    /// The runner that has it.
    pub runner: i64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Allocations that are over: number, and the state in which they ended.
    pub over: Vec<(i64, SlurmState)>,
    /// Allocations that had started and now wait to start again.
    pub coming_back: Vec<i64>,
    /// Allocations of which nothing certain is known.
    pub in_doubt: Vec<i64>,
    /// Runners that cannot be alive.
    pub stale_runners: Vec<i64>,
    /// Jobs that cannot be alive: number, and why.
    pub lost_jobs: Vec<(i64, Cause)>,
}

/// Looks at everything at once.
pub fn detect(allocations: &[Allocation], runners: &[Runner], jobs: &[RunningJob]) -> Findings {
    let mut findings = Findings::default();
    let mut ends: BTreeMap<i64, Cause> = BTreeMap::new();
    for allocation in allocations {
        match judge(allocation) {
            Judgement::Lives => {}
            Judgement::InDoubt => findings.in_doubt.push(allocation.id),
            Judgement::ComesBack(cause) => {
                findings.coming_back.push(allocation.id);
                ends.insert(allocation.id, cause);
            }
            Judgement::Over(state) => {
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
        // An allocation that is not in the books any more ended before: what is left is the silence of its runner.
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
    // A job whose runner is not even in the books has nobody who could end it.
    let lost = |job: &RunningJob| match dead.get(&job.runner) {
        Some(cause) => Some((job.id, *cause)),
        None => (!live.contains(&job.runner)).then_some((job.id, Cause::Lost)),
    };
    findings.lost_jobs = jobs.iter().filter_map(lost).collect();
    findings
}

enum Judgement {
    Lives,
    InDoubt,
    ComesBack(Cause),
    Over(SlurmState),
}

/// Why Slurm has requeued an allocation: its node was lost, or somebody else got it.
fn requeued_for(allocation: &Allocation) -> Cause {
    let end = allocation.former_end.and_then(SlurmState::cause_of_its_jobs);
    end.filter(|cause| *cause == Cause::NodeFailure).unwrap_or(Cause::Preempted)
}

fn judge(allocation: &Allocation) -> Judgement {
    match allocation.sighting {
        Sighting::NoAnswer | Sighting::Queued(SlurmState::Unknown) | Sighting::Recorded(SlurmState::Unknown) => {
            Judgement::InDoubt
        }
        Sighting::Queued(state) if state.is_over() => Judgement::Over(state),
        Sighting::Queued(state) if state.has_nodes() => {
            // It runs, but not as it did: what ran in it before is gone.
            if allocation.is_active && allocation.has_restarted {
                return Judgement::ComesBack(requeued_for(allocation));
            }
            Judgement::Lives
        }
        // It waits although it had started: it was requeued, whatever Slurm calls it.
        Sighting::Queued(_) if allocation.is_active => Judgement::ComesBack(requeued_for(allocation)),
        Sighting::Queued(_) => Judgement::Lives,
        Sighting::Recorded(state) if state.is_over() => Judgement::Over(state),
        // Not in the queue, and recorded as if it were: the record is late, or the job is one that Slurm has lost.
        Sighting::Recorded(_) | Sighting::Unseen if allocation.unseen_ms >= UNSEEN_MS => {
            Judgement::Over(SlurmState::Failed)
        }
        Sighting::Recorded(_) | Sighting::Unseen => Judgement::InDoubt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(id: i64, is_active: bool, sighting: Sighting) -> Allocation {
        Allocation { id, is_active, sighting, unseen_ms: 0, has_restarted: false, former_end: None }
    }

    fn runner(id: i64, allocation: Option<i64>) -> Runner {
        Runner { id, allocation, is_silent: false }
    }

    fn one(allocation: Allocation) -> Findings {
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
            for sighting in [Sighting::Queued(state), Sighting::Recorded(state)] {
                let found = one(allocation(1, true, sighting));
                assert_eq!(found.over, [(1, state)], "{state}");
                assert_eq!((found.stale_runners, found.lost_jobs), (vec![10], vec![(100, cause)]), "{state}");
            }
        }
    }

    // R02
    #[test]
    fn a_pending_allocation_that_is_gone_is_over() {
        for gone in [Sighting::Recorded(SlurmState::Cancelled), Sighting::Queued(SlurmState::Cancelled)] {
            let cancelled = detect(&[allocation(1, false, gone)], &[], &[]);
            assert_eq!(cancelled.over, [(1, SlurmState::Cancelled)], "{gone:?}");
        }
        let waits = detect(&[allocation(1, false, Sighting::Queued(SlurmState::Pending))], &[], &[]);
        assert_eq!(waits, Findings::default());
        let held = detect(&[allocation(1, false, Sighting::Queued(SlurmState::ComingBack))], &[], &[]);
        assert_eq!(held, Findings::default(), "one that is held may still start");
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
    fn a_runner_of_an_allocation_that_is_long_over_is_stale_once_it_is_silent() {
        let speaks = detect(&[], &[runner(10, Some(7))], &[RunningJob { id: 100, runner: 10 }]);
        assert_eq!(speaks, Findings::default());
        let silent = Runner { is_silent: true, ..runner(10, Some(7)) };
        let found = detect(&[], &[silent], &[RunningJob { id: 100, runner: 10 }]);
        assert_eq!((found.stale_runners, found.lost_jobs), (vec![10], vec![(100, Cause::Lost)]));
    }

    // R01, R02
    #[test]
    fn no_answer_changes_nothing() {
        let unknown =
            [Sighting::NoAnswer, Sighting::Queued(SlurmState::Unknown), Sighting::Recorded(SlurmState::Unknown)];
        for sighting in unknown {
            for is_active in [true, false] {
                let waited = Allocation { unseen_ms: i64::MAX, ..allocation(1, is_active, sighting) };
                let found = one(waited);
                assert_eq!(found, Findings { in_doubt: vec![1], ..Findings::default() }, "{sighting:?}");
            }
        }
    }

    // R01, R02
    #[test]
    fn what_slurm_has_not_seen_is_gone_only_after_a_while() {
        for sighting in
            [Sighting::Unseen, Sighting::Recorded(SlurmState::Running), Sighting::Recorded(SlurmState::Pending)]
        {
            for is_active in [true, false] {
                let just_now = one(Allocation { unseen_ms: UNSEEN_MS - 1, ..allocation(1, is_active, sighting) });
                assert_eq!(just_now, Findings { in_doubt: vec![1], ..Findings::default() }, "{sighting:?}");
                let for_long = one(Allocation { unseen_ms: UNSEEN_MS, ..allocation(1, is_active, sighting) });
                assert_eq!(for_long.over, [(1, SlurmState::Failed)], "{sighting:?}, active: {is_active}");
                assert_eq!(for_long.lost_jobs, [(100, Cause::Lost)]);
            }
        }
    }

    #[test]
    fn suspended_and_ending_allocations_live() {
        for state in [SlurmState::Running, SlurmState::Suspended] {
            assert_eq!(one(allocation(1, true, Sighting::Queued(state))), Findings::default(), "{state}");
        }
    }

    // R01
    #[test]
    fn a_requeued_allocation_stays_but_its_jobs_are_gone() {
        let expected = Findings {
            coming_back: vec![1],
            stale_runners: vec![10],
            lost_jobs: vec![(100, Cause::Preempted)],
            ..Findings::default()
        };
        // A preempted job that was requeued is simply pending again.
        for state in [SlurmState::Pending, SlurmState::ComingBack] {
            assert_eq!(one(allocation(1, true, Sighting::Queued(state))), expected, "{state}");
        }
        let again = Allocation { has_restarted: true, ..allocation(1, true, Sighting::Queued(SlurmState::Running)) };
        assert_eq!(one(again), expected, "it runs again already");
    }

    #[test]
    fn one_live_allocation_hides_no_dead_one() {
        let allocations = [
            allocation(1, true, Sighting::Queued(SlurmState::Running)),
            allocation(2, true, Sighting::Recorded(SlurmState::NodeFailure)),
            allocation(3, true, Sighting::NoAnswer),
        ];
        let runners = [runner(10, Some(1)), runner(11, Some(2)), runner(12, Some(3)), runner(13, None)];
        let jobs: Vec<RunningJob> = (10..14).map(|runner| RunningJob { id: runner * 10, runner }).collect();
        let found = detect(&allocations, &runners, &jobs);
        assert_eq!((found.stale_runners, found.in_doubt), (vec![11], vec![3]));
        assert_eq!(found.lost_jobs, [(110, Cause::NodeFailure)]);
    }
}
