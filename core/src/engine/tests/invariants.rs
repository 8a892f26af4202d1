//! Invariants of the live state after every command, and of a restored state.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use torc_api::state::{Cause, JobState};
use torc_api::status::JobCounts;

use crate::engine::Engine;
use crate::engine::runners::LeaseTarget;
use crate::engine::runners::LiveRunner;
use crate::engine::workflow::LiveWorkflow;
use crate::ids::{JobId, RunnerId};
use crate::matching::ResourcesInUse;
use crate::rows::{DetachedLease, DetachedState};

/// Checks that counters, queues, dependencies and leases agree with each other.
pub fn check_live(engine: &Engine) {
    for workflow in engine.workflows.values() {
        check_counts(workflow);
        check_usage(workflow);
        check_queues(workflow);
        check_dependencies(workflow);
        check_recoveries(workflow);
    }
    check_leases(engine);
    let open = engine.workflows.values().filter(|workflow| !workflow.is_settled());
    assert!(open.map(LiveWorkflow::id).all(|id| engine.workflows.is_live(id)), "a workflow is forgotten");
    check_held(engine);
}

fn check_counts(workflow: &LiveWorkflow) {
    let mut counts = JobCounts::default();
    for (_, job) in workflow.graph.iter() {
        counts.add(job.state(), 1);
    }
    assert_eq!(*workflow.graph.counts(), counts);
    assert_eq!(
        JobState::ALL.iter().copied().map(|state| counts.of(state)).sum::<i64>(),
        i64::from(workflow.graph.len())
    );
}

fn check_usage(workflow: &LiveWorkflow) {
    let mut usage = ResourcesInUse::default();
    for (job, _) in workflow.graph.iter().filter(|(_, record)| record.state().is_held()) {
        usage.add(&workflow.graph.profile(job).requirements, 1);
    }
    assert_eq!(workflow.graph.usage(), usage, "what runners have of it");
}

fn check_queues(workflow: &LiveWorkflow) {
    let mut queued = BTreeMap::new();
    for (class, queue) in workflow.graph.queues().iter().enumerate() {
        for job in queue.jobs() {
            assert_eq!(queued.insert(job, class as u32), None, "{} waits twice", workflow.graph.name(job));
        }
        let ranks: Vec<(Reverse<i64>, Reverse<u32>, u32)> = queue.jobs().map(|job| rank(workflow, job)).collect();
        assert!(ranks.is_sorted(), "the most urgent job comes first: {ranks:?}");
    }
    let ready: BTreeMap<u32, u32> = workflow
        .graph
        .iter()
        .filter(|(_, record)| record.state() == JobState::Ready)
        .map(|(job, _)| (job, workflow.graph.class_index(job)))
        .collect();
    assert_eq!(queued, ready, "the queues hold exactly the ready jobs");
}

/// Sorts the jobs of a class: by priority, then by the path below them.
fn rank(workflow: &LiveWorkflow, job: u32) -> (Reverse<i64>, Reverse<u32>, u32) {
    let record = workflow.graph.job(job);
    (Reverse(record.priority()), Reverse(record.downstream_seconds()), job)
}

fn check_dependencies(workflow: &LiveWorkflow) {
    for (job, record) in workflow.graph.iter() {
        let name = workflow.graph.name(job);
        let parents: Vec<JobState> =
            workflow.graph.parents(job).iter().map(|parent| workflow.graph.job(*parent).state()).collect();
        let open = parents.iter().filter(|state| !state.is_complete()).count() as u32;
        let ending = u32::from(record.ending());
        let failed = parents.iter().any(|state| state.is_complete() && *state != JobState::Completed);
        let doomed = failed && workflow.graph.profile(job).cancel_on_blocking_job_failure;
        match record.state() {
            JobState::Blocked => {
                assert_eq!(record.unmet(), open + ending, "{name} waits for its open parents and its own ends");
                assert!(record.unmet() > 0, "{name} is blocked by nothing");
                assert!(!doomed, "{name} waits although a parent failed");
            }
            JobState::Ready | JobState::Leased | JobState::Running => {
                assert_eq!(open, 0, "{name} may run although a parent has not ended");
                assert!(
                    ending == 0 || record.state() == JobState::Running,
                    "{name} may start before its last lease is over"
                );
                assert!(!doomed, "{name} may run although a parent failed");
            }
            _ => {}
        }
    }
}

fn check_leases(engine: &Engine) {
    let mut held: BTreeMap<JobId, RunnerId> = BTreeMap::new();
    for (id, runner) in engine.runners.iter() {
        for (_, job) in runner.leases.jobs() {
            assert_eq!(held.insert(job, *id), None, "job {job} has two leases");
        }
    }
    let jobs = engine.workflows.values().flat_map(|workflow| workflow.graph.iter());
    let owned: BTreeMap<JobId, RunnerId> = jobs
        .inspect(|(_, job)| {
            assert_eq!(job.runner().is_some(), job.state().is_held(), "job {} is {}", job.id(), job.state())
        })
        .filter_map(|(_, job)| Some((job.id(), job.runner()?)))
        .collect();
    assert_eq!(held, owned, "runners hold what jobs say");
    check_revoked(engine);
}

fn check_revoked(engine: &Engine) {
    let mut ending: BTreeMap<JobId, u32> = BTreeMap::new();
    for (id, runner) in engine.runners.iter() {
        for lease in runner.leases.revoked() {
            assert_eq!((lease.runner, lease.state), (*id, DetachedState::Revoked));
            *ending.entry(lease.job).or_default() += 1;
        }
    }
    let mut counted = BTreeMap::new();
    for workflow in engine.workflows.values() {
        let of_jobs = workflow
            .graph
            .iter()
            .filter(|(_, job)| job.ending() > 0)
            .map(|(_, job)| (job.id(), u32::from(job.ending())));
        counted.extend(of_jobs);
        counted.extend(workflow.leases.revoked().1);
        assert_eq!(
            workflow.leases.revoked().0,
            workflow.graph.iter().map(|(_, job)| u32::from(job.ending())).sum::<u32>()
        );
        for (job, leases) in workflow.leases.expired() {
            let record = workflow.graph.job(workflow.graph.ordinal(*job).unwrap());
            let open =
                [JobState::Ready, JobState::Leased, JobState::Failed, JobState::Terminated, JobState::PendingFailed];
            assert!(
                !leases.is_empty() && (open.contains(&record.state()) || record.ending() > 0),
                "{}",
                record.state()
            );
            for lease in leases {
                assert_eq!((lease.run, lease.state), (record.run(), DetachedState::Expired));
                let is_older = lease.attempt < record.attempt() || record.state() != JobState::Leased;
                assert!(is_older, "two leases of attempt {} of job {job}", lease.attempt);
            }
        }
    }
    assert_eq!(ending, counted, "jobs wait for exactly what runners are ending");
}

fn detached_leases(engine: &Engine) -> BTreeMap<i64, DetachedLease> {
    let expired =
        engine.workflows.values().flat_map(|workflow| workflow.leases.expired().flat_map(|(_, leases)| leases));
    let revoked = engine.runners.values().flat_map(|runner| runner.leases.revoked());
    expired.chain(revoked).map(|lease| (lease.lease_id, *lease)).collect()
}

/// Checks that exactly the recovering jobs have a script.
fn check_recoveries(workflow: &LiveWorkflow) {
    let recovering: BTreeSet<JobId> =
        workflow.graph.iter().filter(|(_, job)| job.state() == JobState::Recovering).map(|(_, job)| job.id()).collect();
    assert_eq!(workflow.recoveries.iter().map(|row| row.job).collect::<BTreeSet<_>>(), recovering);
}

/// Checks that the leases of runners agree with those of the workflows, by their numbers.
fn check_held(engine: &Engine) {
    for (target, holder, key) in engine.workflows.values().flat_map(LiveWorkflow::held_leases) {
        let held =
            engine.runners.get(&holder).unwrap().leases.get(&target).map(|held| (held.key.lease_id, held.key.run));
        assert_eq!(held, Some((key.lease_id, key.run)), "{target:?} of runner {holder}");
    }
}

/// Checks that a restored state equals the live one, except for what is not stored: silence of runners, the answers
/// that granted leases, return requests, the summary of the last plan, and the count of unproductive allocations.
pub fn check_same(live: &Engine, restored: &Engine) {
    let ids = |engine: &Engine| engine.workflows.keys().copied().collect::<Vec<_>>();
    assert_eq!(ids(live), ids(restored));
    assert_eq!(live.workflows.index(), restored.workflows.index(), "nothing that has settled is examined");
    for (live, restored) in live.workflows.values().zip(restored.workflows.values()) {
        assert_eq!(live.row(), restored.row());
        assert_eq!(live.spec(), restored.spec());
        assert_eq!(live.graph.counts(), restored.graph.counts());
        assert_eq!(jobs(live), jobs(restored));
        assert_eq!(budgets(live), budgets(restored));
        assert_eq!(live.failures.recovering(), restored.failures.recovering());
        assert_eq!(live.actions.summary(), restored.actions.summary());
        let workers = (restored.actions.workers(), live.actions.workers());
        assert!(workers.0.is_subset(workers.1), "workers with actions of their own: {workers:?}");
        assert_eq!(live.recoveries, restored.recoveries);
        assert_eq!(live.data, restored.data);
        assert_eq!(live.schedulers, restored.schedulers);
        assert_eq!(live.leases, restored.leases);
        let rows = |workflow: &LiveWorkflow| workflow.allocations.iter().cloned().collect::<Vec<_>>();
        assert_eq!(rows(live), rows(restored));
        assert_eq!(live.allocations.finished(), restored.allocations.finished());
        let latest = |workflow: &LiveWorkflow| workflow.failures.latest().cloned().collect::<Vec<_>>();
        assert!(latest(restored).ends_with(&latest(live)), "{:?} after {:?}", latest(restored), latest(live));
    }
    assert_eq!(detached_leases(live), detached_leases(restored));
    assert_eq!(live.slurm.stored(), restored.slurm.stored());
    let ids = |engine: &Engine| engine.runners.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(ids(live), ids(restored));
    for (live, restored) in live.runners.values().zip(restored.runners.values()) {
        assert_eq!(live.row(), restored.row());
        assert_eq!(live.allocation(), restored.allocation(), "the allocation of runner {}", live.id());
        assert_eq!(held(live), held(restored), "the leases of runner {}", live.id());
    }
}

/// Returns the held and the revoked leases of a runner, by their numbers.
fn held(runner: &LiveRunner) -> (BTreeMap<LeaseTarget, i64>, Vec<DetachedLease>) {
    let held = runner.leases.iter().map(|(target, held)| (*target, held.key.lease_id));
    (held.collect(), runner.leases.revoked().copied().collect())
}

fn jobs(workflow: &LiveWorkflow) -> Vec<String> {
    workflow
        .graph
        .ordinals()
        .map(|job| {
            let row = workflow.graph.row(job);
            let record = workflow.graph.job(job);
            let unmet = if row.state == JobState::Blocked { record.unmet() } else { 0 };
            let class = workflow.graph.class_of(job);
            format!("{row:?} {unmet} {} {:?} {class:?}", record.ending(), workflow.graph.complete_profile(job))
        })
        .collect()
}

/// Returns the failure counts of the causes that have a budget.
fn budgets(workflow: &LiveWorkflow) -> BTreeSet<(JobId, Cause, i32)> {
    workflow
        .failures
        .counts()
        .filter(|(job, cause, _)| {
            workflow.graph.ordinal(*job).is_some() && !matches!(cause, Cause::Stopped | Cause::Canceled)
        })
        .collect()
}
