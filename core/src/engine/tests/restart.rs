//! A restored state continues exactly like the live state that it replaces.

use proptest::prelude::*;
use torc_api::action::{ActionState, TriggerType};
use torc_api::slurm::SlurmState;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{LEASE_SECONDS, SyncRequest};

use super::actions::commands;
use super::allocations::{for_slurm, in_slurm};
use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::history::History;
use super::plan::{Plan, job};
use super::random::{plans, steps};
use crate::engine::{Engine, Observation, Retry};
use crate::ids::{Now, RunnerId};
use crate::planning::orphans::SlurmObservation;
use crate::rows::Changes;

/// Resets everything that the store does not keep and that only later messages restore.
fn forget_what_is_not_kept(engine: &mut Engine, now: Now) {
    engine.runners.forget_unstored(now);
    for workflow in engine.workflows.values_mut() {
        workflow.graph.forget_unstored();
    }
    engine.slurm.forget_dismissed();
}

/// Applies the messages of all runners, then a long silence, a retry and a cancellation.
fn go_on(engine: &mut Engine, requests: &[(RunnerId, SyncRequest)], now: Now) -> (Vec<String>, Vec<Changes>) {
    let later = |ms: u64| Now { wall_ms: now.wall_ms + ms.cast_signed(), mono_ms: now.mono_ms + ms };
    let id = engine.find("default", "w").unwrap();
    let mut answers = Vec::new();
    let mut written = Vec::new();
    let mut tx = engine.begin(now);
    for (runner, request) in requests {
        answers.push(format!("{:?}", engine.sync(*runner, request, &mut tx)));
    }
    written.push(engine.finish(tx));
    for ms in [LEASE_SECONDS * 1_000, LEASE_SECONDS * 1_000 + 1, 3_600_000, 3_600_001] {
        let mut tx = engine.begin(later(ms));
        engine.expire(&mut tx);
        written.push(engine.finish(tx));
    }
    let end = later(3_600_002);
    let mut tx = engine.begin(end);
    answers.push(format!("{:?}", engine.retry(id, &Retry::Failed, &mut tx)));
    written.push(engine.finish(tx));
    let mut tx = engine.begin(end);
    answers.push(format!("{:?}", engine.cancel(id, &mut tx)));
    written.push(engine.finish(tx));
    answers.push(format!("{:?}", engine.actions(id)));
    (answers, written)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_restored_state_goes_on_as_the_live_one(plan in plans(), recruits in prop::collection::vec(any::<u32>(), 1..4), steps in steps()) {
        let mut history = History::new(plan);
        for how in recruits {
            history.step((95, 0, how));
        }
        for step in steps {
            history.step(step);
        }
        history.commit();
        let now = history.harness.now;
        let known = |runner: RunnerId| history.harness.engine.runners.get(&runner).is_some();
        let mut fleet = history.fleet.clone();
        let speaking = fleet.iter_mut().filter(|runner| !runner.gone);
        let requests: Vec<(RunnerId, SyncRequest)> = speaking
            .filter_map(|runner| Some((runner.id.filter(|id| known(*id))?, runner.message(2, 5, now.mono_ms))))
            .collect();
        let mut restored = Engine::restore(history.harness.database.snapshot(), now).unwrap();
        restored.continue_session(history.harness.engine.session());
        // The number of a lease that was withdrawn before it was written may be assigned again, to another attempt.
        restored.last.lease_id = history.harness.engine.last.lease_id;
        let live = &mut history.harness.engine;
        forget_what_is_not_kept(live, now);
        let expected = go_on(live, &requests, now);
        prop_assert_eq!(go_on(&mut restored, &requests, now), expected);
    }
}

/// `a` and `b` run in an allocation, on a runner that registered before the restart of the server.
fn restarted_in_slurm() -> (EngineHarness, RunnerId, crate::engine::AllocationKey) {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    harness.allocation("8");
    let id = harness.register(&in_slurm("n1", "7"));
    harness.sync(id, &work_request(1, 2));
    let keys = ["a", "b"].map(|name| running(harness.key(name)));
    harness.sync(id, &SyncRequest { running: keys.to_vec(), ..sync_request(2) });
    harness.restart();
    (harness, id, key)
}

#[test]
fn a_runner_is_in_its_allocation_after_a_restart() {
    let (mut harness, id, key) = restarted_in_slurm();
    let inhabited: Vec<usize> =
        harness.engine.slurm_needs(None, harness.now)[0].allocations.iter().map(|one| one.runners).collect();
    assert_eq!(inhabited, [1, 0], "the runner counts in its own allocation");
    assert!(!harness.row(key).has_reported);
    let report = SyncRequest {
        running: vec![running(harness.key("b"))],
        finished: vec![success(harness.key("a"))],
        ..sync_request(3)
    };
    harness.sync(id, &report);
    assert!(harness.row(key).has_reported, "a result of its runner says that the allocation was of use");
}

// R01
#[test]
fn jobs_are_lost_with_their_allocation_after_a_restart() {
    let (mut harness, id, key) = restarted_in_slurm();
    let seen = Observation {
        observation: SlurmObservation::Recorded(SlurmState::NodeFailure),
        ..Observation::unanswered(key)
    };
    harness.run(|engine, tx| engine.observe_allocations(&[seen], tx));
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready; 2]);
    let causes: Vec<_> = ["a", "b"].map(|name| harness.results_of(name)[0].cause).to_vec();
    assert_eq!(causes, [Some(Cause::NodeFailure); 2]);
    assert!(harness.database.runners[&id].ended_ms.is_some(), "the runner went with its allocation");
    let event = harness.database.events.iter().find(|event| event.reason == "OrphansReclaimed").unwrap();
    assert_eq!(event.message, "2 running jobs lost with their allocations (1 runner)");
}

#[test]
fn an_actions_tries_count_on_after_a_restart() {
    let plan = Plan::new([job("a")]).with(|spec| spec.actions = vec![commands(TriggerType::OnWorkflowStart, "x")]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    let mut lease = harness.sync(id, &work_request(1, 1)).leases[0].clone();
    for (attempt, state) in [(1, ActionState::Pending), (2, ActionState::Pending), (3, ActionState::Failed)] {
        assert_eq!(lease.key.attempt, attempt);
        harness.restart();
        let failed = vec![failure(lease.key, 3, Cause::ExitCode)];
        let answer =
            harness.sync(id, &SyncRequest { finished: failed, ..work_request(1 + attempt.unsigned_abs() as u64, 1) });
        let action = &harness.engine.actions(harness.workflow()).unwrap()[0];
        assert_eq!((action.status, action.tries), (state, attempt));
        lease = answer.leases[0].clone();
    }
    assert_eq!(lease.name, "a", "a failed start holds nothing back");
}

#[test]
fn a_fired_trigger_does_not_fire_again_after_a_restart() {
    let plan = Plan::new([job("a"), job("b").after(&["a"])]).with(|spec| {
        spec.actions = vec![commands(TriggerType::OnWorkflowStart, "x"), commands(TriggerType::OnJobsReady, "y")];
        spec.actions[1].jobs = Some(vec!["b".to_owned()]);
    });
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    let mut sequence = 0;
    let mut names = Vec::new();
    for _ in 0..6 {
        sequence += 1;
        let leases = harness.sync(id, &work_request(sequence, 1)).leases;
        names.extend(leases.iter().map(|lease| lease.name.clone()));
        harness.restart();
        sequence += 1;
        let finished = leases.iter().map(|lease| success(lease.key)).collect();
        harness.sync(id, &SyncRequest { finished, ..sync_request(sequence) });
        harness.restart();
    }
    names.sort();
    assert_eq!(names, ["a", "b", "on_jobs_ready", "on_workflow_start"]);
}

/// Failures of an earlier run use up no budget of the present one, neither before a restart nor after it.
#[test]
fn budgets_are_those_of_the_present_run_after_a_restart() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let workflow = harness.workflow();
    let mut sequence = 0;
    for run in 1..=2 {
        let id = harness.register(&runner("one"));
        sequence = 0;
        for attempt in 1..=3 {
            let lease = harness.sync(id, &work_request(sequence + 1, 1)).leases[0].clone();
            assert_eq!((lease.key.run, lease.key.attempt), (run, attempt));
            let lost =
                SyncRequest { finished: vec![failure(lease.key, -128, Cause::Lost)], ..sync_request(sequence + 2) };
            harness.sync(id, &lost);
            sequence += 2;
            harness.restart();
            assert_eq!(harness.state_of("a"), JobState::Ready, "run {run}, attempt {attempt}");
        }
        if run == 1 {
            harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
            harness.restart();
        }
    }
    let id = harness.register(&runner("one"));
    let lease = harness.sync(id, &work_request(1, 1)).leases[0].clone();
    harness.sync(id, &SyncRequest { finished: vec![failure(lease.key, -128, Cause::Lost)], ..sync_request(2) });
    assert_eq!(harness.state_of("a"), JobState::Failed, "the fourth loss of a run is one too many");
    assert!(sequence > 0);
}

#[test]
fn numbers_go_on_after_a_restart_even_of_what_is_gone() {
    let mut harness = EngineHarness::with(&for_slurm());
    harness.allocation("7");
    harness.register(&runner("one"));
    let before = harness.engine.last;
    let id = harness.workflow();
    harness.run(|engine, tx| engine.delete(id, tx)).unwrap();
    harness.restart();
    assert_eq!(harness.engine.last.workflow, before.workflow);
    assert_eq!((harness.engine.last.job, harness.engine.last.profile), (before.job, before.profile));
    assert_eq!((harness.engine.last.runner, harness.engine.last.allocation), (before.runner, before.allocation));
    harness.apply(&for_slurm());
    assert!(harness.workflow() > id && harness.job("a").id.0 > before.job);
}
