//! A state that was read from the store: it goes on as the one that was dropped would have.

use proptest::prelude::*;
use torc_api::action::{ActionState, TriggerType};
use torc_api::slurm::SlurmState;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{LEASE_SECONDS, SyncRequest};

use super::actions::commands;
use super::allocations::{for_slurm, in_slurm};
use super::history::History;
use super::plan::{Plan, job};
use super::random::{plans, steps};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::engine::{Engine, Observation, Retry};
use crate::ids::{Now, RunnerId};
use crate::planning::orphans::SlurmObservation;
use crate::rows::Changes;

/// Sets everything back that the store does not keep: what only the messages since the last start have told.
fn forget_what_is_not_kept(engine: &mut Engine, now: Now) {
    engine.runners.forget_unstored(now);
    for workflow in engine.workflows.values_mut() {
        workflow.graph.forget_unstored();
    }
    engine.slurm.forget_dismissed();
}

/// Messages of all runners, then everything that follows from a long silence, a retry and a cancellation.
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
        let now = history.world.now;
        let known = |runner: RunnerId| history.world.engine.runners.get(&runner).is_some();
        let mut fleet = history.fleet.clone();
        let speaking = fleet.iter_mut().filter(|runner| !runner.gone);
        let requests: Vec<(RunnerId, SyncRequest)> = speaking
            .filter_map(|runner| Some((runner.id.filter(|id| known(*id))?, runner.message(2, 5, now.mono_ms))))
            .collect();
        let mut restored = Engine::restore(history.world.database.snapshot(), now).unwrap();
        restored.continue_session(history.world.engine.session());
        // The number of a lease that was withdrawn before it was written may be given out again, for another attempt.
        restored.last.lease_id = history.world.engine.last.lease_id;
        let live = &mut history.world.engine;
        forget_what_is_not_kept(live, now);
        let expected = go_on(live, &requests, now);
        prop_assert_eq!(go_on(&mut restored, &requests, now), expected);
    }
}

/// `a` and `b` run in an allocation, in a runner that came before the server was restarted.
fn restarted_in_slurm() -> (World, RunnerId, crate::engine::AllocationKey) {
    let mut world = World::with(&for_slurm());
    let key = world.allocation("7");
    world.allocation("8");
    let id = world.register(&in_slurm("n1", "7"));
    world.sync(id, &ask(1, 2));
    let keys = ["a", "b"].map(|name| running(world.key(name)));
    world.sync(id, &SyncRequest { running: keys.to_vec(), ..say(2) });
    world.restart();
    (world, id, key)
}

#[test]
fn a_runner_is_in_its_allocation_after_a_restart() {
    let (mut world, id, key) = restarted_in_slurm();
    let inhabited: Vec<usize> =
        world.engine.slurm_needs(None, world.now)[0].allocations.iter().map(|one| one.runners).collect();
    assert_eq!(inhabited, [1, 0], "the runner counts in its own allocation");
    assert!(!world.row(key).has_reported);
    let report =
        SyncRequest { running: vec![running(world.key("b"))], finished: vec![success(world.key("a"))], ..say(3) };
    world.sync(id, &report);
    assert!(world.row(key).has_reported, "a result of its runner says that the allocation was of use");
}

// R01
#[test]
fn jobs_are_lost_with_their_allocation_after_a_restart() {
    let (mut world, id, key) = restarted_in_slurm();
    let seen =
        Observation { sighting: SlurmObservation::Recorded(SlurmState::NodeFailure), ..Observation::unanswered(key) };
    world.run(|engine, tx| engine.observe_allocations(&[seen], tx));
    assert_eq!(world.states(&["a", "b"]), [JobState::Ready; 2]);
    let causes: Vec<_> = ["a", "b"].map(|name| world.results_of(name)[0].cause).to_vec();
    assert_eq!(causes, [Some(Cause::NodeFailure); 2]);
    assert!(world.database.runners[&id].ended_ms.is_some(), "the runner went with its allocation");
    let event = world.database.events.iter().find(|event| event.reason == "OrphansReclaimed").unwrap();
    assert_eq!(event.message, "2 running jobs lost with their allocations (1 runner)");
}

#[test]
fn an_actions_tries_count_on_after_a_restart() {
    let plan = Plan::new([job("a")]).with(|spec| spec.actions = vec![commands(TriggerType::OnWorkflowStart, "x")]);
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    let mut lease = world.sync(id, &ask(1, 1)).leases[0].clone();
    for (attempt, state) in [(1, ActionState::Pending), (2, ActionState::Pending), (3, ActionState::Failed)] {
        assert_eq!(lease.key.attempt, attempt);
        world.restart();
        let failed = vec![failure(lease.key, 3, Cause::ExitCode)];
        let answer = world.sync(id, &SyncRequest { finished: failed, ..ask(1 + attempt.unsigned_abs() as u64, 1) });
        let action = &world.engine.actions(world.workflow()).unwrap()[0];
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
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    let mut sequence = 0;
    let mut names = Vec::new();
    for _ in 0..6 {
        sequence += 1;
        let leases = world.sync(id, &ask(sequence, 1)).leases;
        names.extend(leases.iter().map(|lease| lease.name.clone()));
        world.restart();
        sequence += 1;
        let finished = leases.iter().map(|lease| success(lease.key)).collect();
        world.sync(id, &SyncRequest { finished, ..say(sequence) });
        world.restart();
    }
    names.sort();
    assert_eq!(names, ["a", "b", "on_jobs_ready", "on_workflow_start"]);
}

/// Failures of an earlier run use up no budget of the present one, neither before a restart nor after it.
#[test]
fn budgets_are_those_of_the_present_run_after_a_restart() {
    let mut world = World::with(&Plan::new([job("a")]));
    let workflow = world.workflow();
    let mut sequence = 0;
    for run in 1..=2 {
        let id = world.register(&runner("one"));
        sequence = 0;
        for attempt in 1..=3 {
            let lease = world.sync(id, &ask(sequence + 1, 1)).leases[0].clone();
            assert_eq!((lease.key.run, lease.key.attempt), (run, attempt));
            let lost = SyncRequest { finished: vec![failure(lease.key, -128, Cause::Lost)], ..say(sequence + 2) };
            world.sync(id, &lost);
            sequence += 2;
            world.restart();
            assert_eq!(world.state_of("a"), JobState::Ready, "run {run}, attempt {attempt}");
        }
        if run == 1 {
            world.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
            world.restart();
        }
    }
    let id = world.register(&runner("one"));
    let lease = world.sync(id, &ask(1, 1)).leases[0].clone();
    world.sync(id, &SyncRequest { finished: vec![failure(lease.key, -128, Cause::Lost)], ..say(2) });
    assert_eq!(world.state_of("a"), JobState::Failed, "the fourth loss of a run is one too many");
    assert!(sequence > 0);
}

#[test]
fn numbers_go_on_after_a_restart_even_of_what_is_gone() {
    let mut world = World::with(&for_slurm());
    world.allocation("7");
    world.register(&runner("one"));
    let before = world.engine.last;
    let id = world.workflow();
    world.run(|engine, tx| engine.delete(id, tx)).unwrap();
    world.restart();
    assert_eq!(world.engine.last.workflow, before.workflow);
    assert_eq!((world.engine.last.job, world.engine.last.profile), (before.job, before.profile));
    assert_eq!((world.engine.last.runner, world.engine.last.allocation), (before.runner, before.allocation));
    world.apply(&for_slurm());
    assert!(world.workflow() > id && world.job("a").id.0 > before.job);
}
