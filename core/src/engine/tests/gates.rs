//! The jobs that an action waits for (its gate), including those that a running job adds.

use torc_api::action::{Action, ActionState, TriggerType};
use torc_api::state::JobState;
use torc_api::wire::{Lease, SyncRequest};

use super::actions::commands;
use super::harness::{EngineHarness, runner, running, success, sync_request, work_request};
use super::plan::{Plan, PlannedJob, job};
use super::spawn::spawn_from;
use crate::engine::Retry;
use crate::ids::RunnerId;

use ActionState::{Executed, Pending, Waiting};
use TriggerType::{OnJobsComplete, OnJobsReady, OnWorkerStart, OnWorkflowStart};

/// Returns an action that waits for jobs: those that an expression matches, or all.
fn gate(trigger: TriggerType, expression: Option<&str>) -> Action {
    Action { job_name_regexes: expression.map(|text| vec![text.to_owned()]), ..commands(trigger, "gate") }
}

/// Returns a workflow with one runner, in which `seed` runs.
struct Loop {
    harness: EngineHarness,
    runner: RunnerId,
    sequence: u64,
}

impl Loop {
    fn new(actions: &[Action], others: impl IntoIterator<Item = PlannedJob>) -> Self {
        let plan = Plan::new([job("seed")].into_iter().chain(others)).with(|spec| spec.actions = actions.to_vec());
        let mut harness = EngineHarness::with(&plan);
        let runner = harness.register(&runner("one"));
        let mut this = Self { harness, runner, sequence: 0 };
        while this.harness.state_of("seed") != JobState::Leased {
            let leases = this.sync(SyncRequest { finished: this.held_actions(), ..work_request(1, 8) });
            assert!(!leases.is_empty(), "seed is leased when its actions have ended");
        }
        let held = vec![running(this.harness.key("seed"))];
        this.sync(SyncRequest { running: held, ..sync_request(1) });
        this
    }

    /// Returns reports of success for all actions that the runner holds.
    fn held_actions(&self) -> Vec<torc_api::wire::FinishedAttempt> {
        let held = self.harness.database.actions.values().filter(|row| row.lease.runner == Some(self.runner));
        let key = |row: &crate::rows::ActionRow| torc_api::wire::AttemptKey {
            workflow: row.workflow.0,
            job: row.id.0,
            run: row.lease.run,
            attempt: row.lease.attempt,
            lease_id: row.lease.lease_id,
        };
        held.map(|row| success(key(row))).collect()
    }

    fn sync(&mut self, request: SyncRequest) -> Vec<Lease> {
        self.sequence += 1;
        let request = SyncRequest { sequence: self.sequence, acknowledged: self.sequence - 1, ..request };
        self.harness.sync(self.runner, &request).leases
    }

    /// Reports a success. The jobs that become ready are leased, and their start is not reported.
    fn end(&mut self, name: &str) {
        let finished = vec![success(self.harness.key(name))];
        let queued = self.harness.database.jobs.values().filter(|row| row.state == JobState::Leased);
        let queued = queued.map(|row| self.harness.key(&row.name)).filter(|key| *key != finished[0].key).collect();
        self.sync(SyncRequest { finished, queued, ..work_request(1, 8) });
    }

    fn spawn(&mut self, jobs: impl IntoIterator<Item = PlannedJob>) {
        spawn_from(&mut self.harness, "seed", &[], jobs, None).unwrap();
    }

    fn states(&self) -> Vec<ActionState> {
        self.harness.engine.actions(self.harness.workflow()).unwrap().iter().map(|action| action.status).collect()
    }
}

// J19
#[test]
fn an_action_for_all_jobs_waits_for_spawned_ones_too() {
    let mut lab = Loop::new(&[gate(OnJobsComplete, None)], []);
    lab.spawn([job("a"), job("b")]);
    for (name, expected) in [("seed", Waiting), ("a", Waiting), ("b", Pending)] {
        lab.end(name);
        assert_eq!(lab.states(), [expected], "after the end of {name}");
    }
}

// J19
#[test]
fn an_action_waits_for_spawned_jobs_that_it_chooses() {
    let gates = [
        gate(OnJobsComplete, Some("^(seed|a)$")),
        gate(OnJobsComplete, Some("^seed$")),
        gate(OnJobsReady, Some("^(seed|c)$")),
        gate(OnJobsReady, Some("^(seed|b)$")),
    ];
    let mut lab = Loop::new(&gates, [job("other").after(&["seed"])]);
    // The gates for ready jobs are met before there is another job to wait for.
    assert_eq!(lab.states(), [Waiting, Waiting, Pending, Pending]);
    lab.spawn([job("a"), job("b"), job("c").after(&["b"])]);
    assert_eq!(lab.states(), [Waiting, Waiting, Pending, Pending], "what was set off stays so");
    lab.end("seed");
    assert_eq!(lab.states(), [Waiting, Pending, Pending, Pending], "a has not ended, and b is of no interest");
    lab.end("a");
    assert_eq!(lab.states()[0], Pending);
}

// J19. Gates after a restart are those before it: World compares them after each command.
#[test]
fn gates_of_spawned_jobs_survive_a_restart() {
    let mut lab = Loop::new(&[gate(OnJobsComplete, None)], []);
    lab.spawn([job("a")]);
    lab.harness.restart();
    lab.end("seed");
    assert_eq!(lab.states(), [Waiting]);
    lab.harness.restart();
    lab.end("a");
    assert_eq!(lab.states(), [Pending]);
}

// J19
#[test]
fn ended_actions_stay_ended_when_jobs_are_spawned() {
    let actions = [commands(OnWorkflowStart, "start"), commands(OnWorkerStart, "worker"), gate(OnJobsComplete, None)];
    let mut lab = Loop::new(&actions, []);
    let before = lab.states();
    assert_eq!(before, [Executed, Waiting, Waiting, Executed], "the last one is the runner's own part");
    lab.spawn([job("a")]);
    assert_eq!(lab.states(), before);
    // The jobs of the next generation are counted in addition to the first.
    lab.spawn([job("b")]);
    for (name, expected) in [("seed", Waiting), ("b", Waiting), ("a", Pending)] {
        lab.end(name);
        assert_eq!(lab.states(), [Executed, Waiting, expected, Executed], "after the end of {name}");
    }
}

// J19, R15
#[test]
fn an_action_does_not_wait_for_spawned_jobs_that_went() {
    let mut lab = Loop::new(&[gate(OnJobsComplete, None)], []);
    lab.spawn([job("a")]);
    lab.end("seed");
    assert_eq!(lab.states(), [Waiting]);
    let (id, seed) = (lab.harness.workflow(), Retry::Jobs(vec!["seed".to_owned()]));
    lab.harness.run(|engine, tx| engine.retry(id, &seed, tx)).unwrap();
    lab.sync(work_request(1, 8));
    lab.end("seed");
    assert_eq!(lab.states(), [Pending], "a is not there any more");
}
