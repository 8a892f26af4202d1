//! Tests of recovery commands.

use torc_api::action::{Action, ActionState, ActionType, TriggerType};
use torc_api::allocation::{AllocationOrigin, OrphanedJob};
use torc_api::failure::{Recovery, RecoveryPolicy};
use torc_api::recovery::{FailureClass, RecoveryDecision, RegenerateReport, RegenerateRequest, ScheduleNodesRequest};
use torc_api::resources::SlurmScheduler;
use torc_api::state::{Cause, JobState};

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job, needs};
use crate::engine::{CommandError, CorrectResources, LatestResults, Recover, Regenerate, Retry};
use crate::failure::RecoveryOptions;
use crate::planning::partition::PartitionLimits;
use torc_api::wire::{FinishedAttempt, SyncRequest};

const GIB: i64 = 1 << 30;

fn scheduling(trigger_type: TriggerType, jobs: Option<Vec<String>>) -> Action {
    Action {
        trigger_type,
        action_type: ActionType::ScheduleNodes,
        jobs,
        job_name_regexes: None,
        commands: None,
        scheduler: Some("s".to_owned()),
        scheduler_type: Some("slurm".to_owned()),
        num_allocations: Some(2),
        start_one_worker_per_node: None,
        max_parallel_jobs: None,
        persistent: None,
    }
}

/// `a` and `b` have no dependencies, `c` depends on `a`, and `d` has other requirements. An action requests nodes at
/// the start.
fn plan() -> Plan {
    let jobs = [
        job("a").needs(needs(1, 0, 1)),
        job("b").needs(needs(1, 0, 1)),
        job("c").needs(needs(1, 0, 1)).after(&["a"]),
        job("d").needs(needs(2, 0, 1)),
    ];
    Plan::new(jobs).with(|spec| {
        spec.slurm_schedulers =
            vec![SlurmScheduler { name: Some("s".to_owned()), account: "x".to_owned(), ..SlurmScheduler::default() }];
        spec.actions = vec![scheduling(TriggerType::OnWorkflowStart, None)];
    })
}

fn partitions() -> Vec<PartitionLimits> {
    vec![PartitionLimits {
        name: "p".to_owned(),
        cpus: 4,
        memory_bytes: 8 * GIB,
        seconds: 86_400,
        ..PartitionLimits::default()
    }]
}

/// A recovery with default options.
pub fn recovery(latest: &LatestResults) -> Recover<'_> {
    Recover { latest, options: RecoveryOptions::default(), partitions: &[], regenerate: None, lost: &[] }
}

impl EngineHarness {
    fn regenerate(&mut self, request: &RegenerateRequest) -> RegenerateReport {
        let (id, partitions) = (self.workflow(), partitions());
        let wanted = Regenerate { request, account: "x", seconds: None, partitions: &partitions, stamp: "regen_1" };
        self.run(|engine, tx| engine.regenerate(id, wanted, tx).unwrap())
    }

    fn action_states(&self) -> Vec<(bool, ActionState)> {
        let actions = self.engine.actions(self.workflow()).unwrap();
        actions.iter().map(|action| (action.is_recovery, action.status)).collect()
    }

    pub fn latest(&self) -> LatestResults {
        let rows = self.database.results.iter();
        rows.map(|row| (row.job, row.clone())).collect()
    }

    fn scheduler_of(&self, name: &str) -> Option<String> {
        let job = self.job(name);
        let profile = &self.database.profiles[&job.profile].profile;
        profile.recovery_scheduler.clone()
    }

    /// Runs all ready jobs, which end with this code and cause.
    fn run_all(&mut self, host: &str, end: impl Fn(&str) -> Option<(i32, Cause)>) {
        let id = self.register(&runner(host));
        let leases = self.sync(id, &work_request(1, 8)).leases;
        let finished = leases.iter().map(|lease| match end(&lease.name) {
            None => success(lease.key),
            Some((code, cause)) => failure(lease.key, code, cause),
        });
        let finished = finished.collect();
        self.sync(id, &SyncRequest { sequence: 2, acknowledged: 1, finished, leaving: true, ..SyncRequest::default() });
    }
}

// R08, R09, R10, R11, R12, R13, R14
#[test]
fn allocations_are_replanned() {
    let mut harness = EngineHarness::with(&plan());
    let report = harness.regenerate(&RegenerateRequest::default());
    let shown: Vec<(&str, i64, bool)> =
        report.schedulers.iter().map(|one| (one.name.as_str(), one.jobs, one.deferred)).collect();
    let [first, second, third] = shown.as_slice() else { panic!("{shown:?}") };
    assert_eq!((first.1, second.1, third.1), (2, 1, 1));
    assert!(shown.iter().filter(|one| one.2).all(|one| one.0.ends_with("_deferred") && one.1 == 1));
    assert_eq!(shown.iter().filter(|one| one.2).count(), 1);
    assert_eq!((report.pending_jobs, report.superseded_actions), (4, 1));
    assert!(report.schedulers.iter().all(|one| one.name.contains("regen_1") && one.allocations == 1));
    let both = [(false, ActionState::Executed), (true, ActionState::Waiting)];
    assert_eq!(harness.action_states(), both, "the document's asks for nothing any more; only jobs that wait get one");
    let names: Vec<Option<String>> = ["a", "b", "c", "d"].map(|name| harness.scheduler_of(name)).to_vec();
    assert!(names.iter().all(Option::is_some) && names[0] == names[1] && names[0] != names[2] && names[0] != names[3]);
    assert_eq!(names[2].as_deref(), shown.iter().find(|one| one.2).map(|one| one.0));
    assert_eq!(harness.engine.live_allocations(None), 0, "the request does not submit anything");
}

// R11
#[test]
fn a_recovery_action_fires_when_its_jobs_are_ready() {
    let mut harness = EngineHarness::with(&plan());
    harness.regenerate(&RegenerateRequest::default());
    harness.run_all("n1", |_| None);
    assert_eq!(harness.state_of("c"), JobState::Ready);
    assert_eq!(harness.action_states()[1], (true, ActionState::Pending));
    let (own, recovery): (Vec<_>, Vec<_>) = harness.database.actions.values().partition(|row| row.definition.is_none());
    assert!(own.iter().all(|row| row.position >= 0), "{own:?}");
    assert!(recovery.iter().all(|row| row.position < 0), "it has no place in the document: {recovery:?}");
}

// R10, R14
#[test]
fn what_waits_for_nothing_is_submitted_if_that_is_wanted() {
    let mut harness = EngineHarness::with(&plan());
    let report = harness.regenerate(&RegenerateRequest { submit: true, ..RegenerateRequest::default() });
    assert_eq!(report.allocations.len(), 2, "one for a and b, one for d, none for c");
    assert_eq!(harness.engine.live_allocations(None), 2);
    let rows: Vec<_> = harness.database.allocations.values().collect();
    assert!(rows.iter().all(|row| row.origin == AllocationOrigin::Recovery && row.called_ms.is_none()));
    assert!(rows.iter().all(|row| row.account.as_deref() == Some("x")), "{rows:?}");
    assert_eq!(
        harness.engine.scheduler_account(harness.workflow()),
        Ok(Some("x".to_owned())),
        "unless a person says otherwise"
    );
    let needs = harness.engine.slurm_needs(Some(&torc_api::wire::RunnerScope::All), harness.now);
    assert_eq!(needs[0].requested.len(), 2, "lost ones are brought back, those of the superseded action are not");
    assert!(needs[0].has_explicit_requests && needs[0].spec.slurm_schedulers.len() == 4);
}

// R07
#[test]
fn nothing_pending_nothing_done() {
    let mut harness = EngineHarness::with(&plan());
    harness.run_all("n1", |_| None);
    harness.run_all("n2", |_| None);
    let before = harness.action_states();
    let report = harness.regenerate(&RegenerateRequest { submit: true, ..RegenerateRequest::default() });
    assert_eq!(report, RegenerateReport::default());
    assert_eq!(harness.action_states(), before);
    let (request, partitions) = (RegenerateRequest::default(), partitions());
    let wanted = Regenerate { request: &request, account: "x", seconds: None, partitions: &partitions, stamp: "s" };
    let preview = harness.engine.regenerate_preview(harness.workflow(), wanted, harness.now).unwrap();
    assert_eq!(preview, RegenerateReport { dry_run: true, ..RegenerateReport::default() });
}

// R07, R09
#[test]
fn only_what_is_still_to_run_is_planned() {
    let mut harness = EngineHarness::with(&plan());
    harness.run_all("n1", |name| (name == "b").then_some((1, Cause::ExitCode)));
    let after_a_failure = harness.regenerate(&RegenerateRequest::default());
    assert_eq!(after_a_failure.pending_jobs, 1, "c: the others have ended, well or not");
    assert!(!after_a_failure.schedulers[0].deferred, "what it waited for is done");
    let mut harness = EngineHarness::with(&plan());
    let id = harness.register(&runner("n1"));
    let answer = harness.sync(id, &work_request(1, 1));
    harness.sync(id, &SyncRequest { running: vec![running(answer.leases[0].key)], ..sync_request(2) });
    assert_eq!(harness.regenerate(&RegenerateRequest::default()).pending_jobs, 3, "one runs");
}

// R13, R14
#[test]
fn as_many_are_submitted_as_the_jobs_need() {
    let jobs = ["a", "b", "c"].map(|name| job(name).needs(needs(4, 0, 1)));
    let mut harness = EngineHarness::with(&Plan::new(jobs));
    let report = harness.regenerate(&RegenerateRequest { submit: true, ..RegenerateRequest::default() });
    assert_eq!((report.schedulers[0].allocations, report.allocations.len()), (3, 3), "one job fills a node");
}

// R08
#[test]
fn actions_that_ask_for_no_nodes_are_left_alone() {
    let commands = Action {
        action_type: ActionType::RunCommands,
        commands: Some(vec!["true".to_owned()]),
        scheduler: None,
        scheduler_type: None,
        num_allocations: None,
        ..scheduling(TriggerType::OnWorkflowComplete, None)
    };
    let mut harness = EngineHarness::with(&plan().with(|spec| spec.actions.push(commands)));
    let report = harness.regenerate(&RegenerateRequest::default());
    assert_eq!(report.superseded_actions, 1);
    let states = harness.action_states();
    assert_eq!(states[..2], [(false, ActionState::Executed), (false, ActionState::Waiting)]);
}

#[test]
fn a_preview_changes_nothing() {
    let harness = EngineHarness::with(&plan());
    let (request, partitions) = (RegenerateRequest { submit: true, ..RegenerateRequest::default() }, partitions());
    let wanted =
        Regenerate { request: &request, account: "x", seconds: Some(7_200), partitions: &partitions, stamp: "regen_1" };
    let report = harness.engine.regenerate_preview(harness.workflow(), wanted, harness.now).unwrap();
    assert!(report.dry_run && report.schedulers.len() == 3 && report.superseded_actions == 1);
    assert!(report.schedulers.iter().all(|one| one.walltime_seconds == 7_200));
    assert_eq!(harness.action_states(), [(false, ActionState::Pending)]);
    assert_eq!((harness.scheduler_of("a"), harness.engine.live_allocations(None)), (None, 0));
}

// R08
#[test]
fn asking_twice_before_slurm_heard_of_it_asks_once() {
    let mut harness = EngineHarness::with(&plan());
    let request = RegenerateRequest { submit: true, ..RegenerateRequest::default() };
    harness.regenerate(&request);
    let again = harness.regenerate(&request);
    assert_eq!(again.superseded_actions, 0, "that was done before");
    assert_eq!(harness.engine.live_allocations(None), 2);
    let both = [(false, ActionState::Executed), (true, ActionState::Waiting)];
    assert_eq!(harness.action_states(), both, "the earlier recovery action is replaced");
}

// R15
#[test]
fn a_reinitialization_that_finds_nothing_changed_undoes_it_too() {
    let mut harness = EngineHarness::with(&plan());
    harness.regenerate(&RegenerateRequest::default());
    let id = harness.workflow();
    let again = harness.run(|engine, tx| engine.retry(id, &Retry::Changed(Vec::new()), tx));
    assert_eq!(again, Ok(0));
    assert_eq!(harness.action_states(), [(false, ActionState::Pending)]);
    assert_eq!(harness.scheduler_of("a"), None);
}

// R15
#[test]
fn putting_jobs_back_to_the_start_undoes_it() {
    for retry in [Retry::Failed, Retry::All] {
        let mut harness = EngineHarness::with(&plan());
        harness.regenerate(&RegenerateRequest::default());
        harness.run_all("n1", |name| (name == "b").then_some((1, Cause::ExitCode)));
        let id = harness.workflow();
        harness.run(|engine, tx| engine.retry(id, &retry, tx)).unwrap();
        let states = harness.action_states();
        assert_eq!(states.len(), 1, "recovery actions are gone after {retry:?}");
        assert!(matches!(states[0], (false, ActionState::Waiting | ActionState::Pending)), "{states:?}");
        assert_eq!(harness.scheduler_of("b"), None);
        assert_eq!(harness.database.workflows[&id].recovery_schedulers, "");
    }
}

/// Edits the document without a change of any job, so that no job is reset.
fn touched(plan: Plan) -> Plan {
    plan.with(|spec| spec.project = Some("renamed".to_owned()))
}

// R08, R11
#[test]
fn an_edit_that_concerns_no_job_keeps_what_recovery_planned() {
    let mut harness = EngineHarness::with(&plan());
    harness.regenerate(&RegenerateRequest { submit: true, ..RegenerateRequest::default() });
    let schedulers = ["a", "b", "c", "d"].map(|name| harness.scheduler_of(name));
    let planned = harness.database.workflows[&harness.workflow()].recovery_schedulers.clone();
    for again in [touched(plan()), touched(plan()).with(|spec| spec.suspend = Some(false))] {
        harness.apply(&again);
        let both = [(false, ActionState::Executed), (true, ActionState::Waiting)];
        assert_eq!(harness.action_states(), both, "the document's action would ask for the same nodes again");
        assert_eq!(["a", "b", "c", "d"].map(|name| harness.scheduler_of(name)), schedulers);
        assert_eq!(harness.database.workflows[&harness.workflow()].recovery_schedulers, planned);
        assert_eq!(harness.engine.live_allocations(None), 2);
        harness.restart();
    }
    harness.run_all("n1", |_| None);
    assert_eq!(harness.action_states()[1], (true, ActionState::Pending), "it fires when its jobs are ready");
    let wanted = harness.node_requests();
    let requested: Vec<_> = wanted.iter().map(|one| one.definition.scheduler.clone()).collect();
    assert_eq!(requested, [schedulers[2].clone()]);
}

// R15
#[test]
fn an_edit_that_runs_jobs_again_undoes_what_recovery_planned() {
    let edits: [(&str, Plan); 4] = [
        ("a changed job", plan().edit("a", |job| job.version += 1)),
        ("a new job", plan().plus(job("e"))),
        ("other requirements", plan().edit("c", |job| job.needs = needs(2, 0, 3))),
        ("a new run", plan().with(|spec| spec.run_id = Some(2))),
    ];
    for (which, edited) in edits {
        let mut harness = EngineHarness::with(&plan());
        harness.regenerate(&RegenerateRequest::default());
        harness.apply(&edited);
        assert_eq!(harness.action_states(), [(false, ActionState::Pending)], "{which}");
        assert_eq!(["a", "b", "c", "d"].map(|name| harness.scheduler_of(name)), [const { None }; 4], "{which}");
        assert_eq!(harness.database.workflows[&harness.workflow()].recovery_schedulers, "", "{which}");
    }
}

// R11, R15
#[test]
fn a_recovery_action_that_fired_stays_fired_through_an_edit() {
    let mut harness = EngineHarness::with(&plan());
    harness.regenerate(&RegenerateRequest::default());
    harness.run_all("n1", |_| None);
    let (id, action) = (harness.workflow(), harness.node_requests()[0].action);
    harness.run(|engine, tx| engine.skip_action(id, action, tx));
    let executed = [(false, ActionState::Executed), (true, ActionState::Executed)];
    assert_eq!(harness.action_states(), executed);
    harness.apply(&touched(plan()));
    assert_eq!(harness.action_states(), executed);
    harness.restart();
    assert_eq!((harness.action_states(), harness.node_requests().len()), (executed.to_vec(), 0));
}

#[test]
fn a_workflow_that_sizes_itself_needs_no_plan() {
    let sized = Plan::new([job("a")]).with(|spec| spec.slurm_cluster = Some("local".to_owned()));
    let harness = EngineHarness::with(&sized);
    let (request, partitions) = (RegenerateRequest::default(), partitions());
    let wanted = Regenerate { request: &request, account: "", seconds: None, partitions: &partitions, stamp: "s" };
    let refused = harness.engine.regenerate_preview(harness.workflow(), wanted, harness.now);
    assert!(matches!(refused, Err(CommandError::Conflict(_))), "{refused:?}");
}

#[test]
fn a_person_asks_for_allocations() {
    let mut harness = EngineHarness::with(&plan());
    let id = harness.workflow();
    let request = ScheduleNodesRequest { num_allocations: Some(2), ..ScheduleNodesRequest::default() };
    let names = harness.run(|engine, tx| engine.schedule_nodes(id, &request, tx)).unwrap();
    assert_eq!(names, ["torc-wf1-a1", "torc-wf1-a2"]);
    assert!(harness.database.allocations.values().all(|row| row.origin == AllocationOrigin::Manual));
    let unknown = ScheduleNodesRequest { scheduler: Some("t".to_owned()), ..request };
    let refused = harness.run(|engine, tx| engine.schedule_nodes(id, &unknown, tx));
    assert!(matches!(refused, Err(CommandError::Conflict(_))));
}

// R04, S20
#[test]
fn each_failed_job_gets_what_it_lacked_and_no_other_does() {
    let mut harness = EngineHarness::with(&plan());
    harness.run_all("n1", |name| match name {
        "a" => Some((137, Cause::OutOfMemory)),
        "b" => Some((1, Cause::ExitCode)),
        "d" => Some((152, Cause::Timeout)),
        _ => None,
    });
    assert_eq!(
        harness.states(&["a", "b", "c", "d"]),
        [JobState::Failed, JobState::Failed, JobState::Canceled, JobState::Terminated]
    );
    let (id, latest) = (harness.workflow(), harness.latest());
    let preview = harness.engine.recover_preview(id, recovery(&latest), harness.now).unwrap();
    assert_eq!((preview.again, harness.state_of("a")), (3, JobState::Failed), "a, what waits for it, and d");
    let report = harness.run(|engine, tx| engine.recover(id, recovery(&latest), tx)).unwrap();
    assert_eq!(report.jobs, preview.jobs);
    let decisions: Vec<RecoveryDecision> = report.jobs.iter().map(|one| one.decision).collect();
    assert_eq!(decisions, [RecoveryDecision::Retry, RecoveryDecision::Leave, RecoveryDecision::Retry]);
    assert_eq!(
        harness.states(&["a", "b", "c", "d"]),
        [JobState::Ready, JobState::Failed, JobState::Blocked, JobState::Ready]
    );
    let memory = |harness: &EngineHarness, name: &str| {
        harness.database.profiles[&harness.job(name).profile].profile.requirements.memory_bytes
    };
    assert_eq!((memory(&harness, "a"), memory(&harness, "b"), memory(&harness, "c")), (GIB * 3 / 2, GIB, GIB));
    assert!(report.jobs[2].raised[0].starts_with("runtime from"));
}

// R04, R07, R09, R10, S20
#[test]
fn a_dry_run_shows_exactly_what_recovery_does() {
    // `e` depends on a job that is retried and on one that stays failed. `f` runs after all of them, even if they
    // fail.
    let jobs = [
        job("e").needs(needs(1, 0, 1)).after(&["a", "b"]),
        job("f").needs(needs(1, 0, 3)).after(&["a", "e"]).runs_after_failures(),
        job("g").needs(needs(3, 0, 1)),
    ];
    let plan = jobs.into_iter().fold(plan(), Plan::plus);
    let mut harness = EngineHarness::with(&plan);
    // The action of the document has requested its nodes, and recovery has planned once before.
    harness.regenerate(&RegenerateRequest { submit: true, ..RegenerateRequest::default() });
    let id = harness.register(&runner("n1"));
    let leases = harness.sync(id, &work_request(1, 8)).leases;
    let ended = |lease: &torc_api::wire::Lease| {
        let failed = |code, cause| FinishedAttempt { duration_ms: 432_000, ..failure(lease.key, code, cause) };
        match lease.name.as_str() {
            "a" => failed(152, Cause::Timeout),
            "b" => failed(1, Cause::ExitCode),
            "d" => failed(137, Cause::OutOfMemory),
            _ => success(lease.key),
        }
    };
    let finished = leases.iter().map(ended).collect();
    harness.sync(id, &SyncRequest { sequence: 2, acknowledged: 1, finished, leaving: true, ..SyncRequest::default() });
    let (id, latest, partitions) = (harness.workflow(), harness.latest(), partitions());
    let request = RegenerateRequest { submit: true, ..RegenerateRequest::default() };
    let plan = Regenerate { request: &request, account: "x", seconds: None, partitions: &partitions, stamp: "regen_2" };
    let wanted = Recover { regenerate: Some(plan), ..recovery(&latest) };
    let before = format!("{:?} {:?}", harness.database.jobs, harness.action_states());
    let would = harness.engine.recover_preview(id, wanted, harness.now).unwrap();
    assert_eq!(format!("{:?} {:?}", harness.database.jobs, harness.action_states()), before, "nothing was changed");
    let done = harness.run(|engine, tx| engine.recover(id, wanted, tx)).unwrap();
    assert!(would.dry_run && !done.dry_run);
    assert_eq!((&would.jobs, would.again), (&done.jobs, done.again));
    let (would, done) = (would.regenerated.unwrap(), done.regenerated.unwrap());
    assert!(would.dry_run && would.allocations.is_empty() && !done.allocations.is_empty());
    assert_eq!(would, RegenerateReport { dry_run: true, allocations: Vec::new(), ..done.clone() });
    assert!(done.schedulers.iter().any(|one| one.deferred && one.name.ends_with("_deferred")), "{done:?}");
    // 7 min 12 s, one and a half times that, and the margin of the plan.
    let longest = done.schedulers.iter().map(|one| one.walltime_seconds).max();
    assert!(longest >= Some(650), "{done:?}");
    assert_eq!(harness.state_of("e"), JobState::Canceled, "b stays failed");
}

// R01, R04
#[test]
fn a_dry_run_takes_for_lost_what_was_found_to_be() {
    let never = Recovery { policy: Some(RecoveryPolicy::Never), ..Recovery::default() };
    for (policy, decided) in [(Some(never), 1), (None, 0)] {
        let first = plan().edit("d", |job| job.priority = 1);
        let mut harness = EngineHarness::with(&first.with(|spec| spec.recovery = policy.clone()));
        let id = harness.register(&runner("n1"));
        let leases = harness.sync(id, &work_request(1, 1)).leases;
        assert_eq!(leases[0].name, "d");
        harness.sync(id, &SyncRequest { running: vec![running(leases[0].key)], ..sync_request(2) });
        let lost = [OrphanedJob { workflow: "w".to_owned(), job: "d".to_owned(), cause: Cause::NodeFailure }];
        let (latest, partitions) = (LatestResults::new(), partitions());
        let request = RegenerateRequest::default();
        let plan =
            Regenerate { request: &request, account: "x", seconds: None, partitions: &partitions, stamp: "regen_2" };
        let wanted = Recover { regenerate: Some(plan), lost: &lost, ..recovery(&latest) };
        let would = harness.engine.recover_preview(harness.workflow(), wanted, harness.now).unwrap();
        assert_eq!((would.jobs.len(), would.again), (decided, decided as i64), "{policy:?}");
        assert_eq!(harness.state_of("d"), JobState::Running, "nothing was changed");
        assert!(would.jobs.iter().all(|one| one.cause == Cause::NodeFailure), "{would:?}");
        assert_eq!(would.regenerated.unwrap().pending_jobs, 4, "the job that was lost is one of them");
    }
}

// R04
#[test]
fn recovery_waits_for_what_runs() {
    let mut harness = EngineHarness::with(&plan());
    let id = harness.register(&runner("n1"));
    harness.sync(id, &work_request(1, 1));
    let refused = harness.engine.recover_preview(harness.workflow(), recovery(&LatestResults::new()), harness.now);
    assert!(matches!(refused, Err(CommandError::Conflict(message)) if message.contains("running")));
}

// R04
#[test]
fn a_canceled_workflow_is_not_recovered() {
    let mut harness = EngineHarness::with(&plan());
    let id = harness.workflow();
    harness.run(|engine, tx| engine.cancel(id, tx)).unwrap();
    let refused = harness.engine.recover_preview(id, recovery(&LatestResults::new()), harness.now);
    assert!(matches!(&refused, Err(CommandError::Conflict(message)) if message.contains("canceled")), "{refused:?}");
}

// S20
#[test]
fn recovery_grants_more_than_was_used() {
    let mut harness = EngineHarness::with(&plan());
    harness.run_all("n1", |name| (name == "a").then_some((137, Cause::ExitCode)));
    let (id, mut latest) = (harness.workflow(), harness.latest());
    latest.get_mut(&harness.job("a").id).unwrap().usage.peak_memory_bytes = Some(4 * GIB);
    harness.run(|engine, tx| engine.recover(id, recovery(&latest), tx)).unwrap();
    let needs = &harness.database.profiles[&harness.job("a").profile].profile.requirements;
    assert_eq!(needs.memory_bytes, 6 * GIB);
}

#[test]
fn a_person_decides_about_jobs_that_wait_for_that() {
    let manual = Plan::new([job("a"), job("b"), job("c").after(&["b"])])
        .with(|spec| spec.recovery = Some(Recovery { policy: Some(RecoveryPolicy::Manual), ..Recovery::default() }));
    let mut harness = EngineHarness::with(&manual);
    harness.run_all("n1", |_| Some((1, Cause::ExitCode)));
    assert_eq!(harness.states(&["a", "b", "c"]), [JobState::PendingFailed, JobState::PendingFailed, JobState::Blocked]);
    let id = harness.workflow();
    let decide = |harness: &mut EngineHarness, name: &str, class| {
        harness.run(|engine, tx| engine.classify(id, &[name.to_owned()], class, tx))
    };
    assert_eq!(decide(&mut harness, "a", FailureClass::Retry), Ok(1));
    assert_eq!(decide(&mut harness, "b", FailureClass::Fail), Ok(1));
    assert_eq!(harness.states(&["a", "b", "c"]), [JobState::Ready, JobState::Failed, JobState::Canceled]);
    assert!(matches!(decide(&mut harness, "b", FailureClass::Fail), Err(CommandError::Conflict(_))));
}

#[test]
fn requirements_are_corrected_by_what_was_observed() {
    let mut harness = EngineHarness::with(&plan());
    harness.run_all("n1", |_| None);
    let mut latest = harness.latest();
    for row in latest.values_mut() {
        row.usage.peak_memory_bytes = Some(2 * GIB);
    }
    let id = harness.workflow();
    let correction = CorrectResources { references: &[], latest: &latest, may_reduce: true };
    let preview = harness.engine.correction_preview(id, correction).unwrap();
    assert!(preview.dry_run && preview.corrections.iter().all(|one| one.changes[0].starts_with("memory from 1 GiB")));
    let report = harness.run(|engine, tx| engine.correct_resources(id, correction, tx)).unwrap();
    assert_eq!(report.corrections, preview.corrections);
    assert!(!report.corrections.is_empty());
    let again = harness.engine.correction_preview(id, correction).unwrap();
    assert_eq!(again.corrections, [], "the same again changes nothing");
}
