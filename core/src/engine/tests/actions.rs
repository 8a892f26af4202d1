//! Actions: their triggers, the runners that execute them, the work that waits for them, and their resets.

use torc_api::action::{Action, ActionState, ActionType, TriggerType};
use torc_api::state::{Cause, JobState};
use torc_api::wire::{Lease, LeaseRole, RunnerDirective, SyncRequest, SyncResponse};
use torc_api::workflow::WorkflowSpec;

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::engine::Retry;
use crate::ids::RunnerId;

use ActionState::{Executed, Failed, Pending, Running, Skipped, Waiting};
use TriggerType::{OnJobsComplete, OnJobsReady, OnWorkerComplete, OnWorkerStart, OnWorkflowComplete, OnWorkflowStart};

/// Returns an action that runs a command at a trigger. The command identifies the action.
pub fn commands(trigger_type: TriggerType, command: &str) -> Action {
    Action {
        trigger_type,
        action_type: ActionType::RunCommands,
        jobs: None,
        job_name_regexes: None,
        commands: Some(vec![command.to_owned()]),
        scheduler: None,
        scheduler_type: None,
        num_allocations: None,
        start_one_worker_per_node: None,
        max_parallel_jobs: None,
        persistent: None,
    }
}

fn after_jobs(trigger_type: TriggerType, jobs: &[&str]) -> Action {
    Action { jobs: Some(jobs.iter().map(|job| (*job).to_owned()).collect()), ..commands(trigger_type, "gate") }
}

fn nodes(trigger_type: TriggerType) -> Action {
    Action {
        action_type: ActionType::ScheduleNodes,
        commands: None,
        scheduler: Some("s".to_owned()),
        ..commands(trigger_type, "")
    }
}

fn with(actions: impl IntoIterator<Item = Action>) -> impl FnOnce(&mut WorkflowSpec) {
    let actions: Vec<Action> = actions.into_iter().collect();
    |spec| spec.actions = actions
}

/// A runner whose messages the test sends.
struct TestRunner {
    id: RunnerId,
    sequence: u64,
}

struct ActionsFixture {
    harness: EngineHarness,
}

impl ActionsFixture {
    fn new(plan: &Plan) -> Self {
        Self { harness: EngineHarness::with(plan) }
    }

    fn register(&mut self, host: &str) -> TestRunner {
        TestRunner { id: self.harness.register(&runner(host)), sequence: 0 }
    }

    fn sync(&mut self, test_runner: &mut TestRunner, request: SyncRequest) -> SyncResponse {
        test_runner.sequence += 1;
        let request = SyncRequest { sequence: test_runner.sequence, acknowledged: test_runner.sequence - 1, ..request };
        self.harness.sync(test_runner.id, &request)
    }

    /// Requests work and returns the leases of the answer.
    fn request_work(&mut self, test_runner: &mut TestRunner) -> Vec<Lease> {
        self.sync(test_runner, work_request(1, 8)).leases
    }

    fn end(&mut self, test_runner: &mut TestRunner, lease: &Lease) -> SyncResponse {
        self.sync(test_runner, SyncRequest { finished: vec![success(lease.key)], ..work_request(1, 8) })
    }

    fn fail(&mut self, test_runner: &mut TestRunner, lease: &Lease, cause: Cause) -> SyncResponse {
        self.sync(test_runner, SyncRequest { finished: vec![failure(lease.key, 3, cause)], ..work_request(1, 8) })
    }

    fn states(&self) -> Vec<ActionState> {
        self.harness.engine.actions(self.harness.workflow()).unwrap().iter().map(|action| action.status).collect()
    }

    fn count(&self, reason: &str) -> usize {
        self.harness.reasons().into_iter().filter(|known| *known == reason).count()
    }
}

fn names(leases: &[Lease]) -> Vec<&str> {
    leases
        .iter()
        .map(|lease| if lease.role.is_job() { lease.name.as_str() } else { last_line(&lease.command) })
        .collect()
}

fn last_line(command: &str) -> &str {
    command.lines().last().unwrap()
}

// J11
#[test]
fn first_the_workflow_starts_then_the_worker_then_jobs_run() {
    let start = [commands(OnWorkflowStart, "one"), commands(OnWorkflowStart, "two"), commands(OnWorkerStart, "worker")];
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with(start)));
    let mut test_runner = fixture.register("one");
    let mut leases = fixture.request_work(&mut test_runner);
    for expected in ["one", "two", "worker"] {
        assert_eq!(names(&leases), [expected], "one after the other, in the document's order");
        let held = SyncRequest { queued: vec![leases[0].key], ..work_request(1, 8) };
        assert_eq!(fixture.sync(&mut test_runner, held).leases, [], "nothing else before it has ended");
        leases = fixture.end(&mut test_runner, &leases[0].clone()).leases;
    }
    assert_eq!(names(&leases), ["a"]);
    assert_eq!(fixture.states(), [Executed, Executed, Waiting, Executed]);
}

#[test]
fn an_action_is_a_lease_without_resources_in_one_shell() {
    let mut action = commands(OnWorkflowStart, "mkdir -p out");
    action.commands.as_mut().unwrap().push("date > out/start".to_owned());
    let plan = Plan::new([job("a")]).with(|spec| {
        spec.actions = vec![action];
        spec.env.insert("WHO".to_owned(), "ada".to_owned());
    });
    let mut fixture = ActionsFixture::new(&plan);
    let mut test_runner = fixture.register("one");
    // Also leased to a runner that wants no jobs, because it takes no resources.
    let answer = fixture.sync(&mut test_runner, sync_request(1));
    let lease = &answer.leases[0];
    assert_eq!(lease.role, LeaseRole::Action);
    assert_eq!(lease.command, "set -e\nmkdir -p out\ndate > out/start");
    assert_eq!(lease.env["TORC_TRIGGER_TYPE"], "on_workflow_start");
    let profile = &answer.profiles[lease.profile as usize];
    assert_eq!((profile.resources.cpus, profile.resources.memory_bytes), (0, 0));
    assert_eq!(profile.env["WHO"], "ada");
    assert_eq!(LeaseRole::Action.log_name(&lease.key), format!("action_wf1_n{}_r1_a1", lease.key.job));
    assert!(lease.key.job > fixture.harness.job("a").id.0, "its number is from the sequence of jobs");
}

// J11
#[test]
fn every_worker_starts_for_itself_unless_one_is_enough() {
    let each = commands(OnWorkerStart, "each");
    let once = Action { persistent: Some(false), ..commands(OnWorkerStart, "once") };
    let mut fixture = ActionsFixture::new(&Plan::new([job("a"), job("b")]).with(with([each, once])));
    let (mut one, mut two) = (fixture.register("one"), fixture.register("two"));
    let first = fixture.request_work(&mut one);
    assert_eq!(names(&first), ["each"]);
    let first = fixture.end(&mut one, &first[0]).leases;
    assert_eq!(names(&first), ["once"]);
    let second = fixture.request_work(&mut two);
    assert_eq!(names(&second), ["each"]);
    let answer = fixture.end(&mut two, &second[0]);
    assert_eq!(names(&answer.leases), ["a", "b"], "the second worker does not wait for the first");
    assert_eq!(fixture.states(), [Waiting, Pending, Executed, Executed]);
}

#[test]
fn an_action_is_executed_once_it_succeeds_in_three_tries() {
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowStart, "x")])));
    let mut test_runner = fixture.register("one");
    let mut leases = fixture.request_work(&mut test_runner);
    assert_eq!(names(&leases), ["x"], "no job before it has ended");
    let mut lease = leases.remove(0);
    let keys = |lease: &Lease| (lease.key.attempt, lease.role);
    assert_eq!(keys(&lease), (1, LeaseRole::Action));
    fixture.sync(&mut test_runner, SyncRequest { running: vec![running(lease.key)], ..sync_request(1) });
    assert_eq!(fixture.states(), [Running], "not executed yet");
    fixture.harness.restart();
    assert_eq!(fixture.states(), [Running]);
    for attempt in 2..4 {
        lease = fixture.fail(&mut test_runner, &lease, Cause::ExitCode).leases.remove(0);
        assert_eq!(keys(&lease), (attempt, LeaseRole::Action));
    }
    let answer = fixture.fail(&mut test_runner, &lease, Cause::ExitCode);
    assert_eq!(fixture.states(), [Failed]);
    assert_eq!(names(&answer.leases), ["a"], "the workflow goes on");
    assert_eq!((fixture.count("ActionRetried"), fixture.count("ActionFailed")), (2, 1));
}

#[test]
fn a_stopped_runner_is_no_failure_and_a_lost_one_is() {
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowStart, "x")])));
    let mut test_runner = fixture.register("one");
    let mut lease = fixture.request_work(&mut test_runner).remove(0);
    for _ in 0..5 {
        lease = fixture.fail(&mut test_runner, &lease, Cause::Stopped).leases.remove(0);
    }
    let tries = |fixture: &ActionsFixture| fixture.harness.engine.actions(fixture.harness.workflow()).unwrap()[0].tries;
    assert_eq!(tries(&fixture), 0);
    fixture.sync(&mut test_runner, SyncRequest { running: vec![running(lease.key)], ..sync_request(1) });
    fixture.sync(&mut test_runner, SyncRequest { leaving: true, ..sync_request(1) });
    assert_eq!((tries(&fixture), fixture.states()), (1, vec![Pending]));
    let mut other = fixture.register("two");
    let lease = fixture.request_work(&mut other).remove(0);
    // A lease that was never started is no try.
    fixture.sync(&mut other, SyncRequest { returned: vec![lease.key], leaving: true, ..sync_request(1) });
    assert_eq!((tries(&fixture), fixture.states()), (1, vec![Pending]));
}

#[test]
fn an_action_that_its_runner_did_not_start_keeps_its_attempt() {
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowStart, "one")])));
    let mut test_runner = fixture.register("one");
    let lease = fixture.request_work(&mut test_runner).remove(0);
    let again = fixture.request_work(&mut test_runner).remove(0);
    assert_eq!((again.key.job, again.key.attempt), (lease.key.job, 1), "it has the answer, and has started nothing");
    assert_ne!(again.key.lease_id, lease.key.lease_id);
}

// P08
#[test]
fn a_silent_runners_action_goes_to_another() {
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowStart, "x")])));
    let mut silent = fixture.register("one");
    let lease = fixture.request_work(&mut silent).remove(0);
    fixture.harness.silence(121_000);
    let mut other = fixture.register("two");
    let again = fixture.request_work(&mut other).remove(0);
    assert_eq!((again.key.job, again.key.attempt), (lease.key.job, 2), "a runner may have started the first");
    assert_ne!(again.key.lease_id, lease.key.lease_id);
    let mut back = fixture.register("one");
    let answer = fixture.sync(&mut back, SyncRequest { running: vec![running(lease.key)], ..sync_request(1) });
    assert_eq!(answer.cancel, [lease.key], "it is not its own any more");
    fixture.end(&mut other, &again);
    assert_eq!(fixture.states(), [Executed]);
}

// J19
#[test]
fn gates_open_when_all_jobs_are_there_and_canceled_ones_count() {
    let ready = after_jobs(OnJobsReady, &["b", "c"]);
    let complete = after_jobs(OnJobsComplete, &["a", "b"]);
    let jobs = [job("a"), job("b").after(&["a"]), job("c").after(&["b"])];
    let mut fixture = ActionsFixture::new(&Plan::new(jobs).with(with([ready, complete])));
    let mut test_runner = fixture.register("one");
    let a = fixture.request_work(&mut test_runner).remove(0);
    assert_eq!(fixture.states(), [Waiting, Waiting]);
    // b and c are canceled with a: they count as ready and as complete.
    fixture.fail(&mut test_runner, &a, Cause::ExitCode);
    assert_eq!(fixture.harness.states(&["b", "c"]), [JobState::Canceled; 2]);
    assert_eq!(fixture.states(), [Pending, Pending]);
}

// J19
#[test]
fn jobs_that_run_again_arm_their_actions_again() {
    let gates = [
        after_jobs(OnJobsComplete, &["a"]),
        after_jobs(OnJobsComplete, &["b"]),
        commands(OnWorkflowStart, "start"),
        commands(OnWorkflowComplete, "end"),
    ];
    let mut fixture = ActionsFixture::new(&Plan::new([job("a"), job("b")]).with(with(gates)));
    let mut test_runner = fixture.register("one");
    fixture.work_off(&mut test_runner);
    assert_eq!(fixture.states(), [Executed; 4]);
    let id = fixture.harness.workflow();
    let again = Retry::Jobs(vec!["a".to_owned()]);
    fixture.harness.run(|engine, tx| engine.retry(id, &again, tx)).unwrap();
    assert_eq!(fixture.states(), [Waiting, Executed, Executed, Waiting], "only what a and the end set off");
    let done = fixture.work_off(&mut test_runner);
    assert_eq!(done, ["a", "gate", "end"]);
    fixture.harness.run(|engine, tx| engine.retry(id, &Retry::All, tx)).unwrap();
    let mut done = fixture.work_off(&mut test_runner);
    assert_eq!(done.remove(0), "start", "a new run resets the triggers");
    done.sort();
    assert_eq!(done, ["a", "b", "end", "gate", "gate"]);
}

impl ActionsFixture {
    /// Reports success for every lease until no more are granted.
    fn work_off(&mut self, test_runner: &mut TestRunner) -> Vec<String> {
        let mut done = Vec::new();
        let mut leases = self.request_work(test_runner);
        while !leases.is_empty() {
            done.extend(names(&leases).into_iter().map(str::to_owned));
            let finished = leases.iter().map(|lease| success(lease.key)).collect();
            leases = self.sync(test_runner, SyncRequest { finished, ..work_request(1, 8) }).leases;
        }
        done
    }

    fn is_finished(&self) -> bool {
        self.harness.engine.workflow_summary(self.harness.workflow()).unwrap().status.completion_time.is_some()
    }
}

// J15
#[test]
fn the_end_is_held_back_until_what_it_set_off_has_ended() {
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowComplete, "end")])));
    let mut test_runner = fixture.register("one");
    let a = fixture.request_work(&mut test_runner).remove(0);
    let answer = fixture.end(&mut test_runner, &a);
    assert_eq!((names(&answer.leases), answer.directive), (vec!["end"], RunnerDirective::Continue));
    assert!(!fixture.is_finished());
    fixture.harness.restart();
    assert!(!fixture.is_finished());
    let end = answer.leases[0].clone();
    let answer = fixture.end(&mut test_runner, &end);
    assert_eq!(answer.directive, RunnerDirective::Complete);
    assert!(fixture.is_finished());
    let reasons = fixture.harness.reasons();
    let at = |reason| reasons.iter().position(|known| *known == reason);
    assert!(at("ActionExecuted") < at("WorkflowFinished"));
}

// J15
#[test]
fn without_a_runner_the_action_waits_and_the_workflow_ends() {
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowComplete, "end")])));
    let mut test_runner = fixture.register("one");
    let a = fixture.request_work(&mut test_runner).remove(0);
    fixture.end(&mut test_runner, &a);
    assert!(!fixture.is_finished());
    fixture.sync(&mut test_runner, SyncRequest { leaving: true, ..sync_request(1) });
    assert_eq!((fixture.is_finished(), fixture.states()), (true, vec![Pending]));
    let mut next = fixture.register("two");
    assert_eq!(fixture.work_off(&mut next), ["end"]);
    assert_eq!(fixture.states(), [Executed]);
}

// J15
#[test]
fn a_canceled_workflow_runs_only_its_completion_actions() {
    let actions =
        [commands(OnWorkflowComplete, "end"), after_jobs(OnJobsComplete, &["a"]), commands(OnWorkflowStart, "x")];
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with(actions)));
    let mut test_runner = fixture.register("one");
    let start = fixture.request_work(&mut test_runner).remove(0);
    let id = fixture.harness.workflow();
    fixture.harness.run(|engine, tx| engine.cancel(id, tx)).unwrap();
    let answer =
        fixture.sync(&mut test_runner, SyncRequest { running: vec![running(start.key)], ..work_request(1, 8) });
    assert_eq!(answer.cancel, [start.key]);
    assert_eq!((names(&answer.leases), answer.directive), (vec!["end"], RunnerDirective::Continue));
    assert_eq!(fixture.states(), [Pending, Waiting, Skipped]);
    let end = answer.leases[0].clone();
    assert_eq!(fixture.end(&mut test_runner, &end).directive, RunnerDirective::Canceled);
    fixture.harness.run(|engine, tx| engine.resume(id, tx)).unwrap();
    assert_eq!(fixture.states(), [Waiting, Waiting, Pending], "wanted again");
}

// J12
#[test]
fn a_leaving_worker_is_given_its_last_commands() {
    let each = commands(OnWorkerComplete, "each");
    let once = Action { persistent: Some(false), ..commands(OnWorkerComplete, "once") };
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with([each, once])));
    let (mut one, mut two) = (fixture.register("one"), fixture.register("two"));
    assert_eq!(fixture.work_off(&mut one), ["a"]);
    fixture.request_work(&mut two);
    let completing = || SyncRequest { completing: true, stopping: true, ..sync_request(1) };
    let mut leases = fixture.sync(&mut one, completing()).leases;
    for expected in ["each", "once"] {
        assert_eq!(names(&leases), [expected]);
        let finished = vec![success(leases[0].key)];
        leases = fixture.sync(&mut one, SyncRequest { finished, ..completing() }).leases;
    }
    assert_eq!(leases, []);
    assert_eq!(fixture.sync(&mut two, completing()).leases, [], "it came after the end");
    assert_eq!(fixture.states(), [Waiting, Executed, Executed]);
}

// J12
#[test]
fn a_worker_that_disappears_skips_its_last_commands() {
    let mut fixture =
        ActionsFixture::new(&Plan::new([job("a"), job("b")]).with(with([commands(OnWorkerComplete, "x")])));
    let mut test_runner = fixture.register("one");
    let leases = fixture.request_work(&mut test_runner);
    assert_eq!(fixture.states(), [Waiting, Waiting]);
    fixture.sync(
        &mut test_runner,
        SyncRequest { returned: leases.iter().map(|lease| lease.key).collect(), ..sync_request(1) },
    );
    fixture.harness.silence(121_000);
    assert_eq!(fixture.states(), [Waiting, Skipped]);
}

#[test]
fn a_successor_goes_on_where_the_worker_was() {
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with([commands(OnWorkerStart, "x")])));
    let mut test_runner = fixture.register("one");
    let promised = fixture.request_work(&mut test_runner).remove(0);
    let mut next = fixture.register("one");
    let again = fixture.request_work(&mut next).remove(0);
    assert_eq!(
        again.key.job, promised.key.job,
        "it does not have what its predecessor was promised, and gets it again"
    );
    let a = fixture.end(&mut next, &again).leases;
    assert_eq!(names(&a), ["a"]);
    let mut last = fixture.register("one");
    assert_eq!(names(&fixture.request_work(&mut last)), ["a"], "the place is ready for work");
}

// J25
#[test]
fn actions_that_can_still_bring_something_keep_an_idle_runner() {
    let table = [
        (nodes(OnJobsReady), true, "can still fire"),
        (nodes(OnWorkflowComplete), false, "comes too late"),
        (after_jobs(OnJobsComplete, &["a"]), false, "commands that wait bring no capacity"),
        (commands(OnWorkflowStart, "x"), true, "commands that are pending are work"),
    ];
    for (action, expected, why) in table {
        let mut fixture = ActionsFixture::new(&Plan::new([job("a"), job("b").after(&["a"])]).with(with([action])));
        let mut test_runner = fixture.register("one");
        assert_eq!(fixture.sync(&mut test_runner, sync_request(1)).capacity_expected, expected, "{why}");
    }
}

#[test]
fn asking_for_nodes_is_left_to_the_controller() {
    let mut fixture = ActionsFixture::new(
        &Plan::new([job("a"), job("b").after(&["a"])])
            .with(with([nodes(OnWorkflowStart), Action { jobs: Some(vec!["b".to_owned()]), ..nodes(OnJobsReady) }])),
    );
    let mut test_runner = fixture.register("one");
    let numbers =
        |fixture: &ActionsFixture| fixture.harness.node_requests().iter().map(|p| p.action.0).collect::<Vec<_>>();
    let pending = numbers(&fixture);
    assert_eq!(pending.len(), 1);
    let a = fixture.request_work(&mut test_runner);
    assert_eq!(names(&a), ["a"], "nothing waits for it, and no runner carries it out");
    let answer = fixture.end(&mut test_runner, &a[0]);
    assert_eq!(names(&answer.leases), ["b"]);
    assert_eq!(numbers(&fixture).len(), 2);
    let b = answer.leases[0].clone();
    assert_eq!(fixture.end(&mut test_runner, &b).directive, RunnerDirective::Complete, "nor does the end");
}

#[test]
fn edits_keep_what_is_the_same() {
    let plan = Plan::new([job("a")]);
    let (x, y) = (commands(OnWorkflowStart, "x"), commands(OnWorkflowComplete, "y"));
    let mut fixture = ActionsFixture::new(&plan.clone().with(with([x.clone(), y.clone()])));
    let mut test_runner = fixture.register("one");
    let lease = fixture.request_work(&mut test_runner).remove(0);
    fixture.end(&mut test_runner, &lease);
    let numbers = |fixture: &ActionsFixture| {
        let actions = fixture.harness.engine.actions(fixture.harness.workflow()).unwrap();
        actions.iter().map(|action| (action.id, action.status)).collect::<Vec<_>>()
    };
    let before = numbers(&fixture);
    fixture.harness.apply(&plan.clone().with(with([y, commands(OnWorkerComplete, "z"), x])));
    let after = numbers(&fixture);
    assert_eq!(after[..2], before[..]);
    assert_eq!(after.len(), 3);
    fixture.harness.apply(&plan.with(with([])));
    assert_eq!(numbers(&fixture), []);
    assert!(fixture.harness.database.actions.is_empty());
}

#[test]
fn suspended_and_deleted_workflows_start_no_actions() {
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowStart, "x")])));
    let id = fixture.harness.workflow();
    fixture.harness.run(|engine, tx| engine.suspend(id, tx)).unwrap();
    let mut test_runner = fixture.register("one");
    assert_eq!(fixture.request_work(&mut test_runner), []);
    fixture.harness.run(|engine, tx| engine.resume(id, tx)).unwrap();
    let lease = fixture.request_work(&mut test_runner).remove(0);
    fixture.harness.run(|engine, tx| engine.delete(id, tx)).unwrap();
    assert!(fixture.harness.database.actions.is_empty());
    let answer = fixture.sync(&mut test_runner, SyncRequest { running: vec![running(lease.key)], ..sync_request(1) });
    assert_eq!(answer.cancel, [lease.key]);
}

// J12, J15
#[test]
fn what_belongs_to_an_end_runs_in_a_suspended_workflow() {
    let gate = after_jobs(OnJobsComplete, &["a"]);
    let actions = [gate, commands(OnWorkflowComplete, "end"), commands(OnWorkerComplete, "worker")];
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with(actions)));
    let mut test_runner = fixture.register("one");
    let a = fixture.request_work(&mut test_runner).remove(0);
    let id = fixture.harness.workflow();
    fixture.harness.run(|engine, tx| engine.suspend(id, tx)).unwrap();
    let leases = fixture.end(&mut test_runner, &a).leases;
    assert_eq!(names(&leases), ["end"], "commands of the gate wait until it is resumed");
    assert_eq!(fixture.states()[..2], [Pending, Pending]);
    let completing = SyncRequest { completing: true, stopping: true, ..sync_request(1) };
    let leases =
        fixture.sync(&mut test_runner, SyncRequest { finished: vec![success(leases[0].key)], ..completing }).leases;
    assert_eq!(names(&leases), ["worker"]);
}

/// Commands that are triggered again must not run beside the earlier ones that have not ended.
#[test]
fn a_triggered_action_waits_for_its_earlier_commands() {
    let mut fixture = ActionsFixture::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowComplete, "end")])));
    let mut test_runner = fixture.register("one");
    let a = fixture.request_work(&mut test_runner).remove(0);
    let end = fixture.end(&mut test_runner, &a).leases.remove(0);
    fixture.sync(&mut test_runner, SyncRequest { running: vec![running(end.key)], ..sync_request(1) });
    let id = fixture.harness.workflow();
    let again = Retry::Jobs(vec!["a".to_owned()]);
    fixture.harness.run(|engine, tx| engine.retry(id, &again, tx)).unwrap();
    let mut other = fixture.register("two");
    let a = fixture.request_work(&mut other).remove(0);
    assert_eq!(names(&fixture.end(&mut other, &a).leases), [""; 0], "its end has set the action off again");
    assert_eq!(fixture.states(), [Pending]);
    for _ in 0..2 {
        let answer =
            fixture.sync(&mut test_runner, SyncRequest { running: vec![running(end.key)], ..work_request(1, 8) });
        assert_eq!((answer.cancel, answer.leases.len()), (vec![end.key], 0));
        assert_eq!(fixture.request_work(&mut other), []);
        fixture.harness.restart();
    }
    let answer = fixture.fail(&mut test_runner, &end, Cause::Canceled);
    assert_eq!((names(&answer.leases), answer.refused.len()), (vec!["end"], 0));
    assert_eq!(answer.leases[0].key.attempt, 2);
    fixture.end(&mut test_runner, &answer.leases[0]);
    assert_eq!(fixture.states(), [Executed]);
    assert!(fixture.harness.database.detached_leases.is_empty());
}
