//! Actions: what sets them off, who carries them out, what waits for them, and what arms them again.

use torc_api::action::{Action, ActionState, ActionType, TriggerType};
use torc_api::state::{Cause, JobState};
use torc_api::wire::{Lease, LeaseRole, RunnerDirective, SyncRequest, SyncResponse};
use torc_api::workflow::WorkflowSpec;

use super::plan::{Plan, job};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::engine::Retry;
use crate::ids::RunnerId;

use ActionState::{Executed, Failed, Pending, Running, Skipped, Waiting};
use TriggerType::{OnJobsComplete, OnJobsReady, OnWorkerComplete, OnWorkerStart, OnWorkflowComplete, OnWorkflowStart};

/// Commands with a trigger; the command says which action it is.
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

/// A runner that a test speaks for.
struct Hand {
    id: RunnerId,
    sequence: u64,
}

struct Lab {
    world: World,
}

impl Lab {
    fn new(plan: &Plan) -> Self {
        Self { world: World::with(plan) }
    }

    fn hire(&mut self, host: &str) -> Hand {
        Hand { id: self.world.register(&runner(host)), sequence: 0 }
    }

    fn say(&mut self, hand: &mut Hand, request: SyncRequest) -> SyncResponse {
        hand.sequence += 1;
        let request = SyncRequest { sequence: hand.sequence, acknowledged: hand.sequence - 1, ..request };
        self.world.sync(hand.id, &request)
    }

    /// Asks for work; what it is given, as commands.
    fn ask(&mut self, hand: &mut Hand) -> Vec<Lease> {
        self.say(hand, ask(1, 8)).leases
    }

    fn end(&mut self, hand: &mut Hand, lease: &Lease) -> SyncResponse {
        self.say(hand, SyncRequest { finished: vec![success(lease.key)], ..ask(1, 8) })
    }

    fn fail(&mut self, hand: &mut Hand, lease: &Lease, cause: Cause) -> SyncResponse {
        self.say(hand, SyncRequest { finished: vec![failure(lease.key, 3, cause)], ..ask(1, 8) })
    }

    fn states(&self) -> Vec<ActionState> {
        self.world.engine.actions(self.world.workflow()).unwrap().iter().map(|action| action.status).collect()
    }

    fn count(&self, reason: &str) -> usize {
        self.world.reasons().into_iter().filter(|known| *known == reason).count()
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
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with(start)));
    let mut hand = lab.hire("one");
    let mut leases = lab.ask(&mut hand);
    for expected in ["one", "two", "worker"] {
        assert_eq!(names(&leases), [expected], "one after the other, in the document's order");
        let held = SyncRequest { queued: vec![leases[0].key], ..ask(1, 8) };
        assert_eq!(lab.say(&mut hand, held).leases, [], "nothing else before it has ended");
        leases = lab.end(&mut hand, &leases[0].clone()).leases;
    }
    assert_eq!(names(&leases), ["a"]);
    assert_eq!(lab.states(), [Executed, Executed, Waiting, Executed]);
}

#[test]
fn an_action_is_a_lease_without_resources_in_one_shell() {
    let mut action = commands(OnWorkflowStart, "mkdir -p out");
    action.commands.as_mut().unwrap().push("date > out/start".to_owned());
    let plan = Plan::new([job("a")]).with(|spec| {
        spec.actions = vec![action];
        spec.env.insert("WHO".to_owned(), "ada".to_owned());
    });
    let mut lab = Lab::new(&plan);
    let mut hand = lab.hire("one");
    // Also to a runner that wants no jobs: it takes no resources.
    let answer = lab.say(&mut hand, say(1));
    let lease = &answer.leases[0];
    assert_eq!(lease.role, LeaseRole::Action);
    assert_eq!(lease.command, "set -e\nmkdir -p out\ndate > out/start");
    assert_eq!(lease.env["TORC_TRIGGER_TYPE"], "on_workflow_start");
    let profile = &answer.profiles[lease.profile as usize];
    assert_eq!((profile.resources.cpus, profile.resources.memory_bytes), (0, 0));
    assert_eq!(profile.env["WHO"], "ada");
    assert_eq!(LeaseRole::Action.log_name(&lease.key), format!("action_wf1_n{}_r1_a1", lease.key.job));
    assert!(lease.key.job > lab.world.job("a").id.0, "its number is from the sequence of jobs");
}

// J11
#[test]
fn every_worker_starts_for_itself_unless_one_is_enough() {
    let each = commands(OnWorkerStart, "each");
    let once = Action { persistent: Some(false), ..commands(OnWorkerStart, "once") };
    let mut lab = Lab::new(&Plan::new([job("a"), job("b")]).with(with([each, once])));
    let (mut one, mut two) = (lab.hire("one"), lab.hire("two"));
    let first = lab.ask(&mut one);
    assert_eq!(names(&first), ["each"]);
    let first = lab.end(&mut one, &first[0]).leases;
    assert_eq!(names(&first), ["once"]);
    let second = lab.ask(&mut two);
    assert_eq!(names(&second), ["each"]);
    let answer = lab.end(&mut two, &second[0]);
    assert_eq!(names(&answer.leases), ["a", "b"], "the second worker does not wait for the first");
    assert_eq!(lab.states(), [Waiting, Pending, Executed, Executed]);
}

#[test]
fn an_action_is_executed_once_it_succeeds_in_three_tries() {
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowStart, "x")])));
    let mut hand = lab.hire("one");
    let mut leases = lab.ask(&mut hand);
    assert_eq!(names(&leases), ["x"], "no job before it has ended");
    let mut lease = leases.remove(0);
    let keys = |lease: &Lease| (lease.key.attempt, lease.role);
    assert_eq!(keys(&lease), (1, LeaseRole::Action));
    lab.say(&mut hand, SyncRequest { running: vec![running(lease.key)], ..say(1) });
    assert_eq!(lab.states(), [Running], "not executed yet");
    lab.world.restart();
    assert_eq!(lab.states(), [Running]);
    for attempt in 2..4 {
        lease = lab.fail(&mut hand, &lease, Cause::ExitCode).leases.remove(0);
        assert_eq!(keys(&lease), (attempt, LeaseRole::Action));
    }
    let answer = lab.fail(&mut hand, &lease, Cause::ExitCode);
    assert_eq!(lab.states(), [Failed]);
    assert_eq!(names(&answer.leases), ["a"], "the workflow goes on");
    assert_eq!((lab.count("ActionRetried"), lab.count("ActionFailed")), (2, 1));
}

#[test]
fn a_stopped_runner_is_no_failure_and_a_lost_one_is() {
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowStart, "x")])));
    let mut hand = lab.hire("one");
    let mut lease = lab.ask(&mut hand).remove(0);
    for _ in 0..5 {
        lease = lab.fail(&mut hand, &lease, Cause::Stopped).leases.remove(0);
    }
    let tries = |lab: &Lab| lab.world.engine.actions(lab.world.workflow()).unwrap()[0].tries;
    assert_eq!(tries(&lab), 0);
    lab.say(&mut hand, SyncRequest { running: vec![running(lease.key)], ..say(1) });
    lab.say(&mut hand, SyncRequest { leaving: true, ..say(1) });
    assert_eq!((tries(&lab), lab.states()), (1, vec![Pending]));
    let mut other = lab.hire("two");
    let lease = lab.ask(&mut other).remove(0);
    // A lease that was never started is no try.
    lab.say(&mut other, SyncRequest { returned: vec![lease.key], leaving: true, ..say(1) });
    assert_eq!((tries(&lab), lab.states()), (1, vec![Pending]));
}

#[test]
fn an_action_that_its_runner_did_not_start_keeps_its_attempt() {
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowStart, "one")])));
    let mut hand = lab.hire("one");
    let lease = lab.ask(&mut hand).remove(0);
    let again = lab.ask(&mut hand).remove(0);
    assert_eq!((again.key.job, again.key.attempt), (lease.key.job, 1), "it has the answer, and has started nothing");
    assert_ne!(again.key.lease_id, lease.key.lease_id);
}

// P08
#[test]
fn a_silent_runners_action_goes_to_another() {
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowStart, "x")])));
    let mut silent = lab.hire("one");
    let lease = lab.ask(&mut silent).remove(0);
    lab.world.silence(121_000);
    let mut other = lab.hire("two");
    let again = lab.ask(&mut other).remove(0);
    assert_eq!((again.key.job, again.key.attempt), (lease.key.job, 2), "a runner may have started the first");
    assert_ne!(again.key.lease_id, lease.key.lease_id);
    let mut back = lab.hire("one");
    let answer = lab.say(&mut back, SyncRequest { running: vec![running(lease.key)], ..say(1) });
    assert_eq!(answer.cancel, [lease.key], "it is not its own any more");
    lab.end(&mut other, &again);
    assert_eq!(lab.states(), [Executed]);
}

// J19
#[test]
fn gates_open_when_all_jobs_are_there_and_canceled_ones_count() {
    let ready = after_jobs(OnJobsReady, &["b", "c"]);
    let complete = after_jobs(OnJobsComplete, &["a", "b"]);
    let jobs = [job("a"), job("b").after(&["a"]), job("c").after(&["b"])];
    let mut lab = Lab::new(&Plan::new(jobs).with(with([ready, complete])));
    let mut hand = lab.hire("one");
    let a = lab.ask(&mut hand).remove(0);
    assert_eq!(lab.states(), [Waiting, Waiting]);
    // b and c are canceled with a: they are beyond ready, and complete.
    lab.fail(&mut hand, &a, Cause::ExitCode);
    assert_eq!(lab.world.states(&["b", "c"]), [JobState::Canceled; 2]);
    assert_eq!(lab.states(), [Pending, Pending]);
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
    let mut lab = Lab::new(&Plan::new([job("a"), job("b")]).with(with(gates)));
    let mut hand = lab.hire("one");
    lab.work_off(&mut hand);
    assert_eq!(lab.states(), [Executed; 4]);
    let id = lab.world.workflow();
    let again = Retry::Jobs(vec!["a".to_owned()]);
    lab.world.run(|engine, tx| engine.retry(id, &again, tx)).unwrap();
    assert_eq!(lab.states(), [Waiting, Executed, Executed, Waiting], "only what a and the end set off");
    let done = lab.work_off(&mut hand);
    assert_eq!(done, ["a", "gate", "end"]);
    lab.world.run(|engine, tx| engine.retry(id, &Retry::All, tx)).unwrap();
    let mut done = lab.work_off(&mut hand);
    assert_eq!(done.remove(0), "start", "a new run resets the triggers");
    done.sort();
    assert_eq!(done, ["a", "b", "end", "gate", "gate"]);
}

impl Lab {
    /// Everything that is given out succeeds, until nothing more is.
    fn work_off(&mut self, hand: &mut Hand) -> Vec<String> {
        let mut done = Vec::new();
        let mut leases = self.ask(hand);
        while !leases.is_empty() {
            done.extend(names(&leases).into_iter().map(str::to_owned));
            let finished = leases.iter().map(|lease| success(lease.key)).collect();
            leases = self.say(hand, SyncRequest { finished, ..ask(1, 8) }).leases;
        }
        done
    }

    fn is_finished(&self) -> bool {
        self.world.engine.workflow_summary(self.world.workflow()).unwrap().status.completion_time.is_some()
    }
}

// J15
#[test]
fn the_end_is_held_back_until_what_it_set_off_has_ended() {
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowComplete, "end")])));
    let mut hand = lab.hire("one");
    let a = lab.ask(&mut hand).remove(0);
    let answer = lab.end(&mut hand, &a);
    assert_eq!((names(&answer.leases), answer.directive), (vec!["end"], RunnerDirective::Continue));
    assert!(!lab.is_finished());
    lab.world.restart();
    assert!(!lab.is_finished());
    let end = answer.leases[0].clone();
    let answer = lab.end(&mut hand, &end);
    assert_eq!(answer.directive, RunnerDirective::Complete);
    assert!(lab.is_finished());
    let reasons = lab.world.reasons();
    let at = |reason| reasons.iter().position(|known| *known == reason);
    assert!(at("ActionExecuted") < at("WorkflowFinished"));
}

// J15
#[test]
fn without_a_runner_the_action_waits_and_the_workflow_ends() {
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowComplete, "end")])));
    let mut hand = lab.hire("one");
    let a = lab.ask(&mut hand).remove(0);
    lab.end(&mut hand, &a);
    assert!(!lab.is_finished());
    lab.say(&mut hand, SyncRequest { leaving: true, ..say(1) });
    assert_eq!((lab.is_finished(), lab.states()), (true, vec![Pending]));
    let mut next = lab.hire("two");
    assert_eq!(lab.work_off(&mut next), ["end"]);
    assert_eq!(lab.states(), [Executed]);
}

// J15
#[test]
fn a_canceled_workflow_runs_only_its_completion_actions() {
    let actions =
        [commands(OnWorkflowComplete, "end"), after_jobs(OnJobsComplete, &["a"]), commands(OnWorkflowStart, "x")];
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with(actions)));
    let mut hand = lab.hire("one");
    let start = lab.ask(&mut hand).remove(0);
    let id = lab.world.workflow();
    lab.world.run(|engine, tx| engine.cancel(id, tx)).unwrap();
    let answer = lab.say(&mut hand, SyncRequest { running: vec![running(start.key)], ..ask(1, 8) });
    assert_eq!(answer.cancel, [start.key]);
    assert_eq!((names(&answer.leases), answer.directive), (vec!["end"], RunnerDirective::Continue));
    assert_eq!(lab.states(), [Pending, Waiting, Skipped]);
    let end = answer.leases[0].clone();
    assert_eq!(lab.end(&mut hand, &end).directive, RunnerDirective::Canceled);
    lab.world.run(|engine, tx| engine.resume(id, tx)).unwrap();
    assert_eq!(lab.states(), [Waiting, Waiting, Pending], "wanted again");
}

// J12
#[test]
fn a_leaving_worker_is_given_its_last_commands() {
    let each = commands(OnWorkerComplete, "each");
    let once = Action { persistent: Some(false), ..commands(OnWorkerComplete, "once") };
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with([each, once])));
    let (mut one, mut two) = (lab.hire("one"), lab.hire("two"));
    assert_eq!(lab.work_off(&mut one), ["a"]);
    lab.ask(&mut two);
    let completing = || SyncRequest { completing: true, stopping: true, ..say(1) };
    let mut leases = lab.say(&mut one, completing()).leases;
    for expected in ["each", "once"] {
        assert_eq!(names(&leases), [expected]);
        let finished = vec![success(leases[0].key)];
        leases = lab.say(&mut one, SyncRequest { finished, ..completing() }).leases;
    }
    assert_eq!(leases, []);
    assert_eq!(lab.say(&mut two, completing()).leases, [], "it came after the end");
    assert_eq!(lab.states(), [Waiting, Executed, Executed]);
}

// J12
#[test]
fn a_worker_that_disappears_skips_its_last_commands() {
    let mut lab = Lab::new(&Plan::new([job("a"), job("b")]).with(with([commands(OnWorkerComplete, "x")])));
    let mut hand = lab.hire("one");
    let leases = lab.ask(&mut hand);
    assert_eq!(lab.states(), [Waiting, Waiting]);
    lab.say(&mut hand, SyncRequest { returned: leases.iter().map(|lease| lease.key).collect(), ..say(1) });
    lab.world.silence(121_000);
    assert_eq!(lab.states(), [Waiting, Skipped]);
}

#[test]
fn a_successor_goes_on_where_the_worker_was() {
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with([commands(OnWorkerStart, "x")])));
    let mut hand = lab.hire("one");
    let promised = lab.ask(&mut hand).remove(0);
    let mut next = lab.hire("one");
    let again = lab.ask(&mut next).remove(0);
    assert_eq!(
        again.key.job, promised.key.job,
        "it does not have what its predecessor was promised, and gets it again"
    );
    let a = lab.end(&mut next, &again).leases;
    assert_eq!(names(&a), ["a"]);
    let mut last = lab.hire("one");
    assert_eq!(names(&lab.ask(&mut last)), ["a"], "the place is ready for work");
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
        let mut lab = Lab::new(&Plan::new([job("a"), job("b").after(&["a"])]).with(with([action])));
        let mut hand = lab.hire("one");
        assert_eq!(lab.say(&mut hand, say(1)).capacity_expected, expected, "{why}");
    }
}

#[test]
fn asking_for_nodes_is_left_to_the_controller() {
    let mut lab = Lab::new(
        &Plan::new([job("a"), job("b").after(&["a"])])
            .with(with([nodes(OnWorkflowStart), Action { jobs: Some(vec!["b".to_owned()]), ..nodes(OnJobsReady) }])),
    );
    let mut hand = lab.hire("one");
    let numbers = |lab: &Lab| lab.world.node_requests().iter().map(|p| p.action.0).collect::<Vec<_>>();
    let pending = numbers(&lab);
    assert_eq!(pending.len(), 1);
    let a = lab.ask(&mut hand);
    assert_eq!(names(&a), ["a"], "nothing waits for it, and no runner carries it out");
    let answer = lab.end(&mut hand, &a[0]);
    assert_eq!(names(&answer.leases), ["b"]);
    assert_eq!(numbers(&lab).len(), 2);
    let b = answer.leases[0].clone();
    assert_eq!(lab.end(&mut hand, &b).directive, RunnerDirective::Complete, "nor does the end");
}

#[test]
fn edits_keep_what_is_the_same() {
    let plan = Plan::new([job("a")]);
    let (x, y) = (commands(OnWorkflowStart, "x"), commands(OnWorkflowComplete, "y"));
    let mut lab = Lab::new(&plan.clone().with(with([x.clone(), y.clone()])));
    let mut hand = lab.hire("one");
    let lease = lab.ask(&mut hand).remove(0);
    lab.end(&mut hand, &lease);
    let numbers = |lab: &Lab| {
        let actions = lab.world.engine.actions(lab.world.workflow()).unwrap();
        actions.iter().map(|action| (action.id, action.status)).collect::<Vec<_>>()
    };
    let before = numbers(&lab);
    lab.world.apply(&plan.clone().with(with([y, commands(OnWorkerComplete, "z"), x])));
    let after = numbers(&lab);
    assert_eq!(after[..2], before[..]);
    assert_eq!(after.len(), 3);
    lab.world.apply(&plan.with(with([])));
    assert_eq!(numbers(&lab), []);
    assert!(lab.world.database.actions.is_empty());
}

#[test]
fn suspended_and_deleted_workflows_start_no_actions() {
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowStart, "x")])));
    let id = lab.world.workflow();
    lab.world.run(|engine, tx| engine.suspend(id, tx)).unwrap();
    let mut hand = lab.hire("one");
    assert_eq!(lab.ask(&mut hand), []);
    lab.world.run(|engine, tx| engine.resume(id, tx)).unwrap();
    let lease = lab.ask(&mut hand).remove(0);
    lab.world.run(|engine, tx| engine.delete(id, tx)).unwrap();
    assert!(lab.world.database.actions.is_empty());
    let answer = lab.say(&mut hand, SyncRequest { running: vec![running(lease.key)], ..say(1) });
    assert_eq!(answer.cancel, [lease.key]);
}

// J12, J15
#[test]
fn what_belongs_to_an_end_runs_in_a_suspended_workflow() {
    let gate = after_jobs(OnJobsComplete, &["a"]);
    let actions = [gate, commands(OnWorkflowComplete, "end"), commands(OnWorkerComplete, "worker")];
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with(actions)));
    let mut hand = lab.hire("one");
    let a = lab.ask(&mut hand).remove(0);
    let id = lab.world.workflow();
    lab.world.run(|engine, tx| engine.suspend(id, tx)).unwrap();
    let leases = lab.end(&mut hand, &a).leases;
    assert_eq!(names(&leases), ["end"], "commands of the gate wait until it is resumed");
    assert_eq!(lab.states()[..2], [Pending, Pending]);
    let completing = SyncRequest { completing: true, stopping: true, ..say(1) };
    let leases = lab.say(&mut hand, SyncRequest { finished: vec![success(leases[0].key)], ..completing }).leases;
    assert_eq!(names(&leases), ["worker"]);
}

/// Commands that are set off again while the earlier ones are still being ended would run beside them.
#[test]
fn a_triggered_action_waits_for_its_earlier_commands() {
    let mut lab = Lab::new(&Plan::new([job("a")]).with(with([commands(OnWorkflowComplete, "end")])));
    let mut hand = lab.hire("one");
    let a = lab.ask(&mut hand).remove(0);
    let end = lab.end(&mut hand, &a).leases.remove(0);
    lab.say(&mut hand, SyncRequest { running: vec![running(end.key)], ..say(1) });
    let id = lab.world.workflow();
    let again = Retry::Jobs(vec!["a".to_owned()]);
    lab.world.run(|engine, tx| engine.retry(id, &again, tx)).unwrap();
    let mut other = lab.hire("two");
    let a = lab.ask(&mut other).remove(0);
    assert_eq!(names(&lab.end(&mut other, &a).leases), [""; 0], "its end has set the action off again");
    assert_eq!(lab.states(), [Pending]);
    for _ in 0..2 {
        let answer = lab.say(&mut hand, SyncRequest { running: vec![running(end.key)], ..ask(1, 8) });
        assert_eq!((answer.cancel, answer.leases.len()), (vec![end.key], 0));
        assert_eq!(lab.ask(&mut other), []);
        lab.world.restart();
    }
    let answer = lab.fail(&mut hand, &end, Cause::Canceled);
    assert_eq!((names(&answer.leases), answer.refused.len()), (vec!["end"], 0));
    assert_eq!(answer.leases[0].key.attempt, 2);
    lab.end(&mut hand, &answer.leases[0]);
    assert_eq!(lab.states(), [Executed]);
    assert!(lab.world.database.detached_leases.is_empty());
}
