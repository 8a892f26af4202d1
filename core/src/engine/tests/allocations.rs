//! Slurm allocations: recorded before they are submitted, observed, and ended when Slurm says so.

use torc_api::action::{Action, ActionState, ActionType, TriggerType};
use torc_api::allocation::{AllocationOrigin, AllocationStatus};
use torc_api::resources::SlurmScheduler;
use torc_api::slurm::SlurmState;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{RegisterRequest, RunnerKind, RunnerScope, SyncRequest};

use super::harness::{EngineHarness, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::engine::{AllocationKey, CommandError, Observation, UNPRODUCTIVE_LIMIT};
use crate::ids::{RunnerId, WorkflowId};
use crate::planning::orphans::SlurmObservation;
use crate::rows::AllocationRow;

const MINUTE: u64 = 60_000;

pub fn for_slurm() -> Plan {
    Plan::new([job("a"), job("b")]).with(|spec| spec.slurm_cluster = Some("local".to_owned()))
}

pub fn template() -> AllocationRow {
    AllocationRow {
        cluster: "local".to_owned(),
        nodes: 1,
        cpus: 8,
        memory_bytes: 64 << 30,
        seconds: 3_600,
        ..AllocationRow::default()
    }
}

impl EngineHarness {
    pub fn intend(&mut self, count: usize) -> Vec<AllocationKey> {
        let (id, rows) = (self.workflow(), vec![template(); count]);
        let rows = self.run(|engine, tx| engine.record_submissions(id, rows, tx).unwrap());
        rows.iter().map(|row| (row.workflow, row.id)).collect()
    }

    pub fn submitted(&mut self, key: AllocationKey, number: &str) -> bool {
        self.run(|engine, tx| engine.allocation_submitted(key, number, tx))
    }

    /// Adds an allocation that Slurm knows under this job number.
    pub fn allocation(&mut self, number: &str) -> AllocationKey {
        let key = self.intend(1)[0];
        assert!(self.submitted(key, number));
        key
    }

    pub fn row(&self, key: AllocationKey) -> &AllocationRow {
        &self.database.allocations[&key.1]
    }

    pub fn observe_slurm(&mut self, key: AllocationKey, observation: SlurmObservation) {
        let text = match observation {
            SlurmObservation::Queued(state) | SlurmObservation::Recorded(state) => {
                Some(state.to_string().to_uppercase())
            }
            _ => None,
        };
        let seen = Observation { observation, state_text: text, ..Observation::unanswered(key) };
        self.run(|engine, tx| engine.observe_allocations(&[seen], tx));
    }

    fn runner_in(&mut self, host: &str, number: &str) -> RunnerId {
        self.register(&in_slurm(host, number))
    }
}

pub fn in_slurm(host: &str, number: &str) -> RegisterRequest {
    RegisterRequest {
        kind: RunnerKind::Slurm,
        slurm_job_id: Some(number.to_owned()),
        scope: RunnerScope::Workflow("w".to_owned()),
        ..runner(host)
    }
}

#[test]
fn an_allocation_is_durable_before_slurm_is_asked() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.intend(1)[0];
    let row = harness.row(key).clone();
    assert_eq!((row.name().as_str(), row.status), ("torc-wf1-a1", AllocationStatus::Pending));
    assert!(row.called_ms.is_some() && row.slurm_job_id.is_none());
    harness.restart();
    assert_eq!(harness.engine.slurm_needs(None, harness.now)[0].allocations[0].row, row);
    assert!(harness.submitted(key, "17"));
    assert!(harness.submitted(key, "17"), "to say so twice changes nothing");
    assert!(!harness.submitted(key, "18"), "another one is a copy");
    assert_eq!(harness.row(key).slurm_job_id.as_deref(), Some("17"));
    assert_eq!(harness.reasons().iter().filter(|reason| **reason == "AllocationSubmitted").count(), 1);
}

#[test]
fn numbers_are_never_used_again() {
    let mut harness = EngineHarness::with(&for_slurm());
    let first = harness.intend(1)[0];
    harness.run(|engine, tx| {
        engine.allocation_not_submitted(first, "no", false, tx);
        engine.cancel_allocations(&[first], tx);
    });
    assert_eq!(harness.row(first).status, AllocationStatus::Canceled, "Slurm never heard of it");
    harness.restart();
    assert_eq!(harness.intend(1)[0].1.0, 2);
}

#[test]
fn a_refusal_is_told_once_and_tried_again_under_the_same_name() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.intend(1)[0];
    for _ in 0..2 {
        harness.run(|engine, tx| {
            engine.allocation_not_submitted(key, "Invalid account", false, tx);
        });
    }
    assert_eq!(harness.row(key).called_ms, None, "it was certainly not submitted");
    assert_eq!(harness.reasons().iter().filter(|reason| **reason == "AllocationRefused").count(), 1);
    let condition = |harness: &EngineHarness| {
        let status = harness.engine.workflow_summary(harness.workflow()).unwrap().status;
        let found = status.conditions.iter().find(|condition| condition.type_ == "AllocationsReady").unwrap();
        (found.reason.clone(), found.message.clone())
    };
    assert_eq!(condition(&harness), ("SubmitFailed".to_owned(), "Invalid account".to_owned()));
    let again = harness.run(|engine, tx| engine.record_sbatch_call(key, tx)).unwrap();
    assert_eq!(again.id, key.1);
    harness.submitted(key, "5");
    assert_eq!(condition(&harness).0, "WaitingForSlurm");
    let twice = harness.run(|engine, tx| engine.record_sbatch_call(key, tx));
    assert_eq!(twice, None, "what Slurm has is not asked for again");
}

#[test]
fn a_runner_activates_and_identifies_its_allocation() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    harness.runner_in("n1", "7");
    assert_eq!(harness.row(key).status, AllocationStatus::Active);
    let other = harness.intend(1)[0];
    let named = RegisterRequest { allocation: Some("torc-wf1-a2".to_owned()), ..in_slurm("n2", "8") };
    harness.register(&named);
    let row = harness.row(other);
    assert_eq!((row.slurm_job_id.as_deref(), row.status), (Some("8"), AllocationStatus::Active));
    assert!(harness.reasons().contains(&"AllocationStarted"));
    // Allocations of other users are ignored.
    harness.runner_in("n3", "99");
    assert_eq!(harness.database.allocations.len(), 2);
}

// R01
#[test]
fn jobs_are_lost_and_runners_refused_with_their_allocation() {
    for (state, cause, recovers) in [
        (SlurmState::NodeFailure, Cause::NodeFailure, true),
        (SlurmState::Preempted, Cause::Preempted, true),
        (SlurmState::Cancelled, Cause::Lost, true),
        (SlurmState::Timeout, Cause::Timeout, false),
    ] {
        let mut harness = EngineHarness::with(&for_slurm());
        let key = harness.allocation("7");
        let id = harness.runner_in("n1", "7");
        let answer = harness.sync(id, &work_request(1, 1));
        let mut sync_request = sync_request(2);
        sync_request.running = vec![running(answer.leases[0].key)];
        harness.sync(id, &sync_request);
        harness.observe_slurm(key, SlurmObservation::Recorded(state));
        let row = harness.row(key);
        assert_eq!((row.status, row.ended_ms), (AllocationStatus::Complete, Some(harness.now.wall_ms)), "{state}");
        let result = harness.results_of("a")[0];
        assert_eq!((result.cause, result.return_code), (Some(cause), -128), "{state}");
        let expected = if recovers { JobState::Ready } else { JobState::Terminated };
        assert_eq!(harness.state_of("a"), expected, "{state}");
        assert_eq!(harness.try_sync(id, &work_request(3, 1)).unwrap_err(), CommandError::NoRunner(id));
        let refused = harness.run(|engine, tx| engine.register(&in_slurm("n1", "7"), tx).unwrap_err());
        assert_eq!(refused, CommandError::AllocationEnded("7".to_owned()));
        harness.restart();
        let refused = harness.run(|engine, tx| engine.register(&in_slurm("n1", "7"), tx).unwrap_err());
        assert_eq!(refused, CommandError::AllocationEnded("7".to_owned()), "also after a restart");
    }
}

// R02
#[test]
fn a_pending_allocation_that_is_gone_is_over() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    harness.observe_slurm(key, SlurmObservation::Queued(SlurmState::Pending));
    assert_eq!(harness.row(key).status, AllocationStatus::Pending);
    harness.observe_slurm(key, SlurmObservation::Recorded(SlurmState::Cancelled));
    assert_eq!(harness.row(key).status, AllocationStatus::Complete);
    assert_eq!(harness.engine.live_allocations(None), 0);
    let counts = harness.engine.workflow_summary(harness.workflow()).unwrap().status.allocations.unwrap();
    assert_eq!((counts.pending, counts.active, counts.finished), (0, 0, 1));
}

// R01, R02, R05
#[test]
fn a_dry_look_changes_nothing_and_names_everything() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    let id = harness.runner_in("n1", "7");
    let answer = harness.sync(id, &work_request(1, 1));
    let mut sync_request = sync_request(2);
    sync_request.running = vec![running(answer.leases[0].key)];
    harness.sync(id, &sync_request);
    let before = harness.database.clone();
    let gone = Observation {
        observation: SlurmObservation::Recorded(SlurmState::NodeFailure),
        ..Observation::unanswered(key)
    };
    let orphans = harness.engine.find_orphans(&[gone]);
    let elsewhere = harness.engine.orphan_report(&orphans, Some(WorkflowId(99)));
    assert_eq!((elsewhere.allocations.len(), elsewhere.jobs.len()), (0, 0), "nothing of that is another workflow's");
    let report = harness.engine.orphan_report(&orphans, Some(harness.workflow()));
    assert_eq!(
        (report.allocations[0].name.as_str(), report.allocations[0].was),
        ("torc-wf1-a1", AllocationStatus::Active)
    );
    assert_eq!((report.jobs[0].job.as_str(), report.jobs[0].cause), ("a", Cause::NodeFailure));
    assert_eq!(report.runners, [id.0]);
    assert_eq!(
        (before.results.len(), before.events.len()),
        (harness.database.results.len(), harness.database.events.len())
    );
    assert_eq!(harness.state_of("a"), JobState::Running);
}

// R03
#[test]
fn only_jobs_without_a_runner_are_lost() {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b")]));
    let [lives, gone] = ["n1", "n2"].map(|host| harness.register(&runner(host)));
    for id in [lives, gone] {
        let answer = harness.sync(id, &work_request(1, 1));
        harness.sync(id, &SyncRequest { running: vec![running(answer.leases[0].key)], ..sync_request(2) });
    }
    harness.engine.runners.forget(&gone);
    let report = harness.engine.orphan_report(&harness.engine.find_orphans(&[]), None);
    let lost: Vec<(&str, Cause)> = report.jobs.iter().map(|one| (one.job.as_str(), one.cause)).collect();
    assert_eq!(lost, [("b", Cause::Lost)], "the runner of the other is there");
}

// R02
#[test]
fn what_slurm_does_not_know_is_remembered_until_it_does() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    let first_ms = harness.now.wall_ms;
    for (observation, expected) in [
        (SlurmObservation::NoAnswer, None),
        (SlurmObservation::Unseen, Some(first_ms + 2_000)),
        (SlurmObservation::NoAnswer, Some(first_ms + 2_000)),
        (SlurmObservation::Recorded(SlurmState::Running), Some(first_ms + 2_000)),
        (SlurmObservation::Queued(SlurmState::Pending), None),
        (SlurmObservation::Unseen, Some(first_ms + 6_000)),
    ] {
        harness.pass(1_000);
        let seen = Observation { observation, ..Observation::unanswered(key) };
        harness.run(|engine, tx| engine.observe_allocations(&[seen], tx));
        assert_eq!(harness.row(key).unseen_since_ms, expected, "{observation:?}");
    }
}

#[test]
fn no_answer_changes_nothing() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    harness.runner_in("n1", "7");
    for _ in 0..10 {
        harness.pass(MINUTE);
        harness.observe_slurm(key, SlurmObservation::NoAnswer);
    }
    assert_eq!(harness.row(key).status, AllocationStatus::Active);
}

#[test]
fn a_requeued_allocation_accepts_its_next_runner() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    let id = harness.runner_in("n1", "7");
    let answer = harness.sync(id, &work_request(1, 1));
    let mut sync_request = sync_request(2);
    sync_request.running = vec![running(answer.leases[0].key)];
    harness.sync(id, &sync_request);
    harness.observe_slurm(key, SlurmObservation::Queued(SlurmState::Pending));
    assert_eq!(harness.row(key).status, AllocationStatus::Pending);
    assert_eq!(harness.results_of("a")[0].cause, Some(Cause::Preempted));
    // The runner is alive on a node that Slurm has given up. It may not register again, because its new leases would
    // be lost, too.
    let itself = in_slurm("n1", "7");
    let refused = harness.run(|engine, tx| engine.register(&itself, tx));
    assert_eq!(refused, Err(CommandError::AllocationEnded("7".to_owned())));
    assert_eq!(harness.row(key).status, AllocationStatus::Pending);
    harness.runner_in("n2", "7");
    assert_eq!(harness.row(key).status, AllocationStatus::Active);
}

#[test]
fn an_allocation_that_was_requeued_for_a_dead_node_says_so() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    let id = harness.runner_in("n1", "7");
    let answer = harness.sync(id, &work_request(1, 1));
    harness.sync(id, &SyncRequest { running: vec![running(answer.leases[0].key)], ..sync_request(2) });
    let seen = Observation {
        observation: SlurmObservation::Queued(SlurmState::Pending),
        former_end: Some(SlurmState::NodeFailure),
        ..Observation::unanswered(key)
    };
    assert!(seen.is_requeued(harness.row(key)));
    harness.run(|engine, tx| engine.observe_allocations(std::slice::from_ref(&seen), tx));
    assert_eq!(harness.results_of("a")[0].cause, Some(Cause::NodeFailure));
    assert!(!seen.is_requeued(harness.row(key)), "it is known to wait");
}

#[test]
fn an_unseen_restart_loses_only_earlier_jobs_and_runners() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    let old = harness.runner_in("n1", "7");
    let answer = harness.sync(old, &work_request(1, 1));
    let mut message = sync_request(2);
    message.running = vec![running(answer.leases[0].key)];
    harness.sync(old, &message);
    harness.pass(10 * MINUTE);
    let restarted_ms = harness.now.wall_ms;
    harness.pass(5_000);
    let new = harness.runner_in("n2", "7");
    let seen = Observation {
        observation: SlurmObservation::Queued(SlurmState::Running),
        start_ms: Some(restarted_ms),
        ..Observation::unanswered(key)
    };
    harness.run(|engine, tx| engine.observe_allocations(std::slice::from_ref(&seen), tx));
    assert_eq!(harness.results_of("a")[0].cause, Some(Cause::Preempted));
    assert!(harness.try_sync(old, &work_request(3, 1)).is_err());
    assert!(harness.try_sync(new, &work_request(1, 1)).is_ok());
    harness.run(|engine, tx| engine.observe_allocations(&[seen], tx));
    assert!(harness.try_sync(new, &work_request(2, 1)).is_ok(), "the same start is no wake_version");
}

#[test]
fn an_allocation_is_canceled_when_slurm_confirms_it() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    let requested = harness.run(|engine, tx| engine.cancel_allocations(&[key], tx));
    assert_eq!(requested[0].slurm_job_id.as_deref(), Some("7"));
    assert_eq!(harness.row(key).status, AllocationStatus::Pending, "it is there until it is gone");
    harness.observe_slurm(key, SlurmObservation::Recorded(SlurmState::Cancelled));
    assert_eq!(harness.row(key).status, AllocationStatus::Canceled);
}

#[test]
fn allocations_in_vain_are_counted_and_work_forgives_them() {
    let mut harness = EngineHarness::with(&for_slurm());
    let end = |harness: &mut EngineHarness, number: u32, state| {
        let key = harness.allocation(&number.to_string());
        harness.observe_slurm(key, SlurmObservation::Recorded(state));
    };
    for number in 1..UNPRODUCTIVE_LIMIT {
        end(&mut harness, number, SlurmState::Failed);
    }
    let exhausted = |harness: &EngineHarness| harness.engine.slurm_needs(None, harness.now)[0].is_exhausted;
    end(&mut harness, 50, SlurmState::Preempted);
    assert!(!exhausted(&harness), "a preemption does not count");
    end(&mut harness, 51, SlurmState::Failed);
    assert!(exhausted(&harness));
    let status = harness.engine.workflow_summary(harness.workflow()).unwrap().status;
    let stalled = status.conditions.iter().find(|condition| condition.type_ == "Stalled").unwrap();
    assert_eq!((stalled.status.to_string().as_str(), stalled.reason.as_str()), ("True", "RecoveryExhausted"));
    assert_eq!(harness.reasons().iter().filter(|reason| **reason == "RecoveryExhausted").count(), 1, "it is told once");
    // An allocation in which a job ended is not unproductive.
    let key = harness.allocation("60");
    let id = harness.runner_in("n1", "60");
    let lease = harness.sync(id, &work_request(1, 1)).leases[0].key;
    let mut message = sync_request(2);
    message.finished = vec![success(lease)];
    harness.sync(id, &message);
    harness.observe_slurm(key, SlurmObservation::Recorded(SlurmState::Failed));
    assert!(!exhausted(&harness));
}

#[test]
fn local_runners_serve_slurm_workflows_only_by_name() {
    let mut harness = EngineHarness::with(&for_slurm());
    harness.engine.serve_slurm();
    let everything = harness.register(&runner("here"));
    assert!(harness.sync(everything, &work_request(1, 8)).leases.is_empty());
    let by_name = RegisterRequest { scope: RunnerScope::Workflow("w".to_owned()), ..runner("there") };
    let by_name = harness.register(&by_name);
    assert_eq!(harness.sync(by_name, &work_request(1, 8)).leases.len(), 2);
    // In a process that does not submit allocations, local runners serve them like all other workflows.
    let mut harness = EngineHarness::with(&for_slurm());
    let here = harness.register(&runner("here"));
    assert_eq!(harness.sync(here, &work_request(1, 8)).leases.len(), 2);
}

fn with_action(count: i64) -> Plan {
    let action = Action {
        trigger_type: TriggerType::OnWorkflowStart,
        action_type: ActionType::ScheduleNodes,
        scheduler: Some("s".to_owned()),
        scheduler_type: Some("slurm".to_owned()),
        num_allocations: Some(count),
        jobs: None,
        job_name_regexes: None,
        commands: None,
        start_one_worker_per_node: None,
        max_parallel_jobs: None,
        persistent: None,
    };
    let scheduler = SlurmScheduler { name: Some("s".to_owned()), account: "x".to_owned(), ..SlurmScheduler::default() };
    Plan::new([job("a")]).with(|spec| {
        spec.actions = vec![action];
        spec.slurm_schedulers = vec![scheduler];
    })
}

#[test]
fn an_action_is_executed_when_slurm_has_all_that_it_asked_for() {
    let mut harness = EngineHarness::with(&with_action(2));
    let id = harness.workflow();
    let wanted = harness.engine.slurm_needs(Some(&RunnerScope::All), harness.now)[0].actions[0].clone();
    assert!(!wanted.is_begun);
    let row = AllocationRow {
        action: Some(wanted.action),
        origin: AllocationOrigin::Action,
        scheduler: Some("s".to_owned()),
        ..template()
    };
    let rows = harness.run(|engine, tx| {
        engine.begin_action(id, wanted.action, tx);
        engine.record_submissions(id, vec![row.clone(), row], tx).unwrap()
    });
    let state = |harness: &EngineHarness| harness.engine.actions(id).unwrap()[0].status;
    assert_eq!(state(&harness), ActionState::Running);
    assert!(harness.engine.slurm_needs(Some(&RunnerScope::All), harness.now)[0].actions[0].is_begun);
    harness.submitted((id, rows[0].id), "1");
    harness.run(|engine, tx| {
        engine.allocation_not_submitted((id, rows[1].id), "no", false, tx);
    });
    assert_eq!(state(&harness), ActionState::Running, "one of two is not both");
    harness.restart();
    assert_eq!(state(&harness), ActionState::Running);
    harness.submitted((id, rows[1].id), "2");
    assert_eq!(state(&harness), ActionState::Executed);
    let needs = &harness.engine.slurm_needs(Some(&RunnerScope::All), harness.now)[0];
    assert_eq!((needs.actions.len(), needs.requested["s"].0), (0, 2));
}
