//! More memory or time after a failure: observations count, and no request exceeds the largest node.

use torc_api::action::{Action, ActionType, TriggerType};
use torc_api::failure::{Recovery, RecoveryPolicy};
use torc_api::resources::SlurmScheduler;
use torc_api::slurm_stats::SlurmStats;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{FinishedAttempt, RegisterRequest, Resources, SyncRequest, Usage};

use super::harness::{EngineHarness, failure, runner, work_request};
use super::plan::{Plan, job, needs};
use super::recover::recovery;
use crate::engine::Recover;
use crate::expanded::Requirements;
use crate::planning::partition::PartitionLimits;

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

fn auto(plan: Plan) -> Plan {
    plan.with(|spec| spec.recovery = Some(Recovery { policy: Some(RecoveryPolicy::Auto), ..Recovery::default() }))
}

fn declared(memory_bytes: i64, runtime_seconds: i64) -> Requirements {
    Requirements { name: "r".to_owned(), memory_bytes, runtime_seconds, ..Requirements::default() }
}

fn partition(gib: i64, seconds: i64) -> PartitionLimits {
    PartitionLimits { name: "p".to_owned(), cpus: 8, memory_bytes: gib * GIB, seconds, ..PartitionLimits::default() }
}

/// Measurements of an attempt.
#[derive(Clone, Copy, Default)]
struct Observed {
    peak: Option<i64>,
    max_rss: Option<i64>,
    run_seconds: u64,
}

impl EngineHarness {
    /// Runs the ready job, which ends with this cause.
    fn fail(&mut self, on: &RegisterRequest, cause: Cause, observed: Observed) {
        let id = self.register(on);
        let key = self.sync(id, &work_request(1, 1)).leases[0].key;
        let stats = observed.max_rss.map(|bytes| {
            let (workflow, job, run, attempt) = (key.workflow, key.job, key.run, key.attempt);
            Box::new(SlurmStats { workflow, job, run, attempt, max_rss_bytes: Some(bytes), ..SlurmStats::default() })
        });
        let finished = FinishedAttempt {
            duration_ms: observed.run_seconds * 1_000,
            usage: observed.peak.map(|bytes| Usage { peak_memory_bytes: Some(bytes), ..Usage::default() }),
            slurm_stats: stats,
            ..failure(key, if cause == Cause::Timeout { 152 } else { 137 }, cause)
        };
        let finished = vec![finished];
        self.sync(id, &SyncRequest { sequence: 2, acknowledged: 1, finished, ..SyncRequest::default() });
    }

    fn needs_of(&self, name: &str) -> &Requirements {
        &self.database.profiles[&self.job(name).profile].profile.requirements
    }

    fn given(&self, name: &str) -> (i64, i64) {
        let needs = self.needs_of(name);
        (needs.memory_bytes / MIB, needs.runtime_seconds)
    }
}

/// A runner with this much memory.
fn with_memory(gib: i64) -> RegisterRequest {
    RegisterRequest { capacity: Resources { cpus: 8, memory_bytes: gib * GIB, gpus: 2, nodes: 1 }, ..runner("n1") }
}

// S20
#[test]
fn the_policy_and_a_request_give_the_same() {
    let peak = |bytes: i64| Observed { peak: Some(bytes), run_seconds: 3, ..Observed::default() };
    let ran = |run_seconds: u64| Observed { run_seconds, ..Observed::default() };
    // Declared MiB and seconds, the observed use, and the request of the next attempt.
    let cases = [
        ((100, 60), Cause::OutOfMemory, peak(413_000_000), (592, 60)),
        ((100, 60), Cause::OutOfMemory, peak(50 * MIB), (150, 60)),
        ((100, 60), Cause::OutOfMemory, Observed { max_rss: Some(400 * MIB), ..peak(200 * MIB) }, (608, 60)),
        ((100, 60), Cause::Timeout, ran(432), (100, 650)),
        ((100, 5), Cause::Timeout, ran(22), (100, 33)),
        ((100, 60), Cause::Timeout, ran(60), (100, 90)),
        ((64 * 1_024 - 1, 60), Cause::OutOfMemory, peak(3 * MIB), (64 * 1_024, 60)),
    ];
    for ((mib, seconds), cause, observed, expected) in cases {
        let plan = Plan::new([job("a").needs(declared(mib * MIB, seconds))]);
        let mut by_itself = EngineHarness::with(&auto(plan.clone()));
        by_itself.fail(&runner("n1"), cause, observed);
        assert_eq!(
            (by_itself.state_of("a"), by_itself.given("a")),
            (JobState::Ready, expected),
            "{cause} {mib} {seconds}"
        );
        let mut on_request = EngineHarness::with(&plan);
        on_request.fail(&runner("n1"), cause, observed);
        let mut latest = on_request.latest();
        for row in latest.values_mut() {
            // The store completes results with the accounting of Slurm.
            row.usage.peak_memory_bytes = row.usage.peak_memory_bytes.max(observed.max_rss);
        }
        let id = on_request.workflow();
        on_request.run(|engine, tx| engine.recover(id, recovery(&latest), tx)).unwrap();
        assert_eq!(
            (on_request.state_of("a"), on_request.given("a")),
            (JobState::Ready, expected),
            "{cause} on request"
        );
    }
}

#[test]
fn a_job_that_had_the_whole_node_fails_with_the_numbers() {
    let plan = Plan::new([job("a").needs(needs(1, 0, 6))]);
    let mut harness = EngineHarness::with(&auto(plan.clone()));
    harness.fail(&with_memory(8), Cause::OutOfMemory, Observed::default());
    assert_eq!((harness.state_of("a"), harness.given("a").0), (JobState::Ready, 8 * 1_024), "9 GiB, but there are 8");
    harness.fail(&with_memory(8), Cause::OutOfMemory, Observed::default());
    assert_eq!(harness.state_of("a"), JobState::Failed);
    let reason = "it ran out of memory with 8 GiB, and the largest node that it can use has 8 GiB";
    let results = harness.results_of("a");
    assert_eq!(results[1].message.as_deref(), Some(format!("not retried: {reason}").as_str()));
    let event = harness.database.events.iter().find(|event| event.reason == "RecoveryLimitReached").unwrap();
    assert_eq!(event.message, format!("job 'a' is not retried: {reason}"));
    let latest = harness.latest();
    let report = harness.engine.recover_preview(harness.workflow(), recovery(&latest), harness.now).unwrap();
    assert_eq!((report.again, report.jobs[0].reason.as_deref()), (0, Some(reason)));
    // A larger runner connects and raises the limit.
    harness.register(&RegisterRequest { place: "n2:/shim".to_owned(), ..with_memory(64) });
    let report = harness.engine.recover_preview(harness.workflow(), recovery(&latest), harness.now).unwrap();
    assert_eq!(report.jobs[0].raised, ["memory from 8 GiB to 12 GiB"]);
}

#[test]
fn only_runners_that_may_run_the_job_limit_it() {
    let larger = |change: fn(&mut RegisterRequest)| {
        let mut request = RegisterRequest { place: "n2:/shim".to_owned(), ..with_memory(64) };
        change(&mut request);
        request
    };
    let others = [
        ("with labels", larger(|request| request.labels = vec!["x".to_owned()])),
        (
            "of another workflow",
            larger(|request| request.scope = torc_api::wire::RunnerScope::Workflow("v".to_owned())),
        ),
        ("in an allocation", larger(|request| request.slurm_job_id = Some("7".to_owned()))),
        ("with fewer CPUs", larger(|request| request.capacity.cpus = 1)),
    ];
    for (which, other) in others {
        let mut harness = EngineHarness::with(&auto(Plan::new([job("a").needs(needs(2, 0, 8))])));
        harness.register(&other);
        harness.fail(&with_memory(8), Cause::OutOfMemory, Observed::default());
        assert_eq!(harness.state_of("a"), JobState::Failed, "{which}");
    }
    let mut harness = EngineHarness::with(&auto(Plan::new([job("a").needs(needs(2, 0, 8))])));
    harness.register(&larger(|_| {}));
    harness.fail(&with_memory(8), Cause::OutOfMemory, Observed::default());
    assert_eq!(harness.given("a").0, 12 * 1_024);
}

#[test]
fn a_workflow_that_sizes_itself_is_limited_by_the_partitions() {
    let plan =
        auto(Plan::new([job("a").needs(declared(GIB, 60))])).with(|spec| spec.slurm_cluster = Some("c".to_owned()));
    let in_allocation = RegisterRequest {
        slurm_job_id: Some("7".to_owned()),
        scope: torc_api::wire::RunnerScope::Workflow("w".to_owned()),
        ..with_memory(1)
    };
    let late = Observed { run_seconds: 432, ..Observed::default() };
    for (partitions, expected) in [
        (None, Some(650)),
        (Some(vec![partition(1, 86_400)]), Some(650)),
        (Some(vec![partition(1, 480), partition(1, 300)]), Some(480)),
        (Some(vec![partition(1, 432)]), None),
        (Some(vec![PartitionLimits { on_request: true, ..partition(1, 480) }, partition(1, 432)]), None),
    ] {
        let mut harness = EngineHarness::with(&plan);
        if let Some(partitions) = partitions.clone() {
            harness.engine.set_partitions("other".to_owned(), vec![partition(1, 60)]);
            harness.engine.set_partitions("c".to_owned(), partitions);
        }
        harness.fail(&in_allocation, Cause::Timeout, late);
        match expected {
            Some(seconds) => assert_eq!(harness.given("a").1, seconds, "{partitions:?}"),
            None => assert_eq!(harness.state_of("a"), JobState::Terminated, "{partitions:?}"),
        }
    }
    // A recovery on request supplies the partitions.
    let mut harness = EngineHarness::with(&plan.with(|spec| spec.recovery = None));
    harness.fail(&in_allocation, Cause::Timeout, late);
    let (latest, partitions) = (harness.latest(), [partition(1, 500)]);
    let wanted = Recover { partitions: &partitions, ..recovery(&latest) };
    let report = harness.engine.recover_preview(harness.workflow(), wanted, harness.now).unwrap();
    assert_eq!(report.jobs[0].raised, ["runtime from 1m to 8m20s"]);
}

#[test]
fn a_workflow_with_schedulers_is_limited_by_them() {
    let scheduler = |name: &str, walltime: &str| SlurmScheduler {
        name: Some(name.to_owned()),
        walltime: Some(walltime.to_owned()),
        mem: Some("4g".to_owned()),
        ..SlurmScheduler::default()
    };
    let action = Action {
        trigger_type: TriggerType::OnWorkflowStart,
        action_type: ActionType::ScheduleNodes,
        jobs: None,
        job_name_regexes: None,
        commands: None,
        scheduler: Some("s".to_owned()),
        scheduler_type: Some("slurm".to_owned()),
        num_allocations: None,
        start_one_worker_per_node: None,
        max_parallel_jobs: None,
        persistent: None,
    };
    let plan = auto(Plan::new([job("a").needs(declared(GIB, 60))])).with(|spec| {
        spec.slurm_schedulers = vec![scheduler("s", "00:08:00"), scheduler("t", "00:05:00")];
        spec.actions = vec![action];
    });
    let in_allocation = RegisterRequest {
        slurm_job_id: Some("7".to_owned()),
        scope: torc_api::wire::RunnerScope::Workflow("w".to_owned()),
        ..with_memory(4)
    };
    let mut harness = EngineHarness::with(&plan);
    harness.fail(&in_allocation, Cause::Timeout, Observed { run_seconds: 432, ..Observed::default() });
    assert_eq!(harness.given("a"), (1_024, 480), "no allocation of this document lasts longer");
    harness.fail(&in_allocation, Cause::Timeout, Observed { run_seconds: 470, ..Observed::default() });
    assert_eq!(harness.state_of("a"), JobState::Terminated);
    let message = harness.results_of("a")[1].message.clone().unwrap_or_default();
    assert!(message.ends_with("it ran out of time with 8m, and the longest time that it can get is 8m"), "{message}");
    let mut harness = EngineHarness::with(&plan);
    harness.fail(&in_allocation, Cause::OutOfMemory, Observed { peak: Some(3 * GIB), ..Observed::default() });
    assert_eq!(harness.given("a").0, 4 * 1_024);
}
