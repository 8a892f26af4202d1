//! Documents that are applied again: the same, or with jobs added, removed, changed or adjusted.

use torc_api::api::ApplyOutcome;
use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;

use super::plan::{Plan, job, needs};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::ids::RunnerId;

/// a → b → c, and d: `a` has completed, `b` and `d` run.
fn half_way() -> (World, Plan, RunnerId) {
    let plan = Plan::new([job("c").after(&["b"]), job("b").after(&["a"]), job("a").priority(1), job("d")]);
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    let done = SyncRequest { finished: vec![success(world.key("a"))], ..ask(2, 8) };
    world.sync(id, &done);
    let keys = ["b", "d"].map(|name| running(world.key(name)));
    world.sync(id, &SyncRequest { running: keys.to_vec(), ..say(3) });
    use JobState::{Blocked, Completed, Running};
    assert_eq!(world.states(&["a", "b", "c", "d"]), [Completed, Running, Blocked, Running]);
    (world, plan, id)
}

fn still_running(world: &World, names: &[&str]) -> SyncRequest {
    SyncRequest { running: names.iter().map(|name| running(world.key(name))).collect(), ..say(4) }
}

#[test]
fn the_same_document_changes_nothing() {
    let (mut world, plan, _) = half_way();
    let rows = world.database.jobs.clone();
    let events = world.database.events.len();
    let answer = world.apply(&plan);
    assert_eq!((answer.outcome, answer.changes.unchanged), (ApplyOutcome::Unchanged, 4));
    assert_eq!((world.database.jobs.clone(), world.database.events.len()), (rows, events));
    assert_eq!(world.database.workflows[&world.workflow()].generation, 1);
}

#[test]
fn an_added_job_appears_where_its_parents_are() {
    let (mut world, plan, _) = half_way();
    let added = [job("e").after(&["a"]), job("f").after(&["a", "c"]), job("g")];
    let answer = world.apply(&added.into_iter().fold(plan, Plan::plus));
    assert_eq!(answer.outcome, ApplyOutcome::Configured);
    assert_eq!((answer.changes.added.count, answer.changes.unchanged), (3, 4));
    assert_eq!(world.states(&["e", "f", "g"]), [JobState::Ready, JobState::Blocked, JobState::Ready]);
    assert_eq!(world.states(&["a", "b", "d"]), [JobState::Completed, JobState::Running, JobState::Running]);
    assert_eq!(world.database.workflows[&world.workflow()].generation, 2);
}

#[test]
fn a_removed_job_is_stopped_and_its_results_stay() {
    let (mut world, plan, id) = half_way();
    let [a, d] = ["a", "d"].map(|name| world.key(name));
    let request = still_running(&world, &["b", "d"]);
    let answer = world.apply(&plan.without("d").without("a"));
    assert_eq!((answer.changes.removed.count, answer.changes.changed.count), (2, 1), "b no longer depends on a");
    assert!(world.database.jobs.values().all(|row| row.name != "a" && row.name != "d"));
    assert_eq!(world.database.results_of(crate::ids::JobId(a.job)).len(), 1);
    let answer = world.sync(id, &request);
    assert!(answer.cancel.contains(&d));
}

#[test]
fn a_removed_job_that_comes_again_is_a_new_one() {
    let (mut world, plan, _) = half_way();
    let before = world.job("d").id;
    world.apply(&plan.clone().without("d"));
    world.apply(&plan);
    assert!(world.job("d").id > before);
    assert_eq!((world.state_of("d"), world.job("d").attempt), (JobState::Ready, 1));
}

#[test]
fn a_changed_job_and_what_depends_on_it_run_again() {
    let (mut world, plan, id) = half_way();
    let request = still_running(&world, &["b", "d"]);
    let [b, d] = ["b", "d"].map(|name| world.key(name));
    let edited = plan.edit("a", |job| job.version = 1);
    let preview = world.engine.preview(&edited.document(), &edited.expanded());
    let answer = world.apply(&edited);
    assert_eq!(answer.changes, preview, "what is shown before is what happens");
    let changes = answer.changes;
    assert_eq!((changes.changed.count, changes.downstream.count, changes.unchanged), (1, 2, 1));
    use JobState::{Blocked, Ready, Running};
    assert_eq!(world.states(&["a", "b", "c", "d"]), [Ready, Blocked, Blocked, Running]);
    assert_eq!(["a", "b", "c", "d"].map(|name| world.job(name).attempt), [2, 2, 1, 1]);
    assert_eq!(world.job("a").run, 1, "an edit raises the attempt, never the run");
    let answer = world.sync(id, &request);
    assert_eq!(answer.cancel, [b]);
    assert_eq!(world.key("d"), d);
}

#[test]
fn resources_and_priority_alone_change_only_the_next_attempt() {
    let (mut world, plan, id) = half_way();
    let request = still_running(&world, &["b", "d"]);
    let edited = plan
        .edit("d", |job| job.needs = needs(2, 0, 2))
        .edit("c", |job| job.priority = 5)
        .edit("a", |job| job.labels = vec!["x".to_owned()]);
    let answer = world.apply(&edited);
    assert_eq!((answer.changes.adjusted.count, answer.changes.unchanged), (3, 1));
    use JobState::{Blocked, Completed, Running};
    assert_eq!(world.states(&["a", "b", "c", "d"]), [Completed, Running, Blocked, Running]);
    assert_eq!(world.sync(id, &request).cancel, []);
    assert_eq!(world.job("c").priority, 5);
    let d = failure(world.key("d"), 143, Cause::Stopped);
    let b = running(world.key("b"));
    let answer = world.sync(id, &SyncRequest { finished: vec![d], running: vec![b], want: ask(5, 8).want, ..say(5) });
    assert_eq!(answer.profiles[answer.leases[0].profile as usize].resources.cpus, 2);
}

#[test]
fn an_edit_of_priorities_reorders_what_is_ready() {
    let plan = Plan::new([job("a"), job("b")]);
    let mut world = World::with(&plan);
    world.apply(&plan.edit("b", |job| job.priority = 1));
    let id = world.register(&runner("one"));
    assert_eq!(world.sync(id, &ask(1, 1)).leases[0].name, "b");
}

#[test]
fn recovered_requirements_last_until_the_document_changes() {
    let auto =
        torc_api::failure::Recovery { policy: Some(torc_api::failure::RecoveryPolicy::Auto), ..Default::default() };
    let plan = Plan::new([job("a"), job("b")]).with(|spec| spec.recovery = Some(auto));
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    world.sync(id, &SyncRequest { finished: vec![failure(world.key("a"), 137, Cause::OutOfMemory)], ..say(2) });
    let memory = |world: &World| world.database.profiles[&world.job("a").profile].profile.requirements.memory_bytes;
    assert_eq!(memory(&world), 3 << 29);
    assert_eq!(world.apply(&plan).changes.unchanged, 2, "the same document is the same");
    let answer = world.apply(&plan.clone().plus(job("c")));
    assert_eq!((answer.changes.adjusted.count, answer.changes.unchanged), (0, 2));
    assert_eq!(memory(&world), 3 << 29);
    let answer = world.apply(&plan.edit("a", |job| job.needs = needs(1, 0, 8)));
    assert_eq!(answer.changes.adjusted.count, 1);
    assert_eq!(memory(&world), 8 << 30);
}

/// Numbers follow the document, dependencies do not: canceling in the order of numbers must not count an end twice.
#[test]
fn replanned_dependents_of_a_failure_are_counted_once() {
    let plan = Plan::new([
        job("end").after(&["second", "slow"]).runs_after_failures(),
        job("first").after(&["bad", "spark"]),
        job("second").after(&["first"]),
        job("slow"),
        job("spark"),
        job("bad").priority(1),
    ]);
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    world.sync(id, &SyncRequest { finished: vec![failure(world.key("bad"), 1, Cause::ExitCode)], ..say(2) });
    use JobState::{Blocked, Canceled};
    assert_eq!(world.states(&["first", "second", "end"]), [Canceled, Canceled, Blocked]);
    // `first` runs again because `spark` changed, and is canceled again because `bad` has failed.
    world.apply(&plan.edit("spark", |job| job.version = 1));
    assert_eq!(world.states(&["first", "second", "end"]), [Canceled, Canceled, Blocked]);
    let moves = world.database.events.iter().flat_map(|event| &event.jobs);
    let end = world.job("end").id;
    assert!(moves.into_iter().all(|(job, _, state)| *job != end || *state == Blocked), "not even for a moment");
}

#[test]
fn a_canceled_workflow_stays_canceled_after_any_apply() {
    let (mut world, plan, _) = half_way();
    let workflow = world.workflow();
    world.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    world.apply(&plan.plus(job("e")).edit("a", |job| job.version = 1));
    use JobState::{Canceled, Running};
    assert_eq!(world.states(&["a", "b", "c", "e"]), [Canceled; 4]);
    assert_eq!(world.state_of("d"), Running, "its runner has yet to end it");
}

#[test]
fn failures_of_removed_jobs_are_no_longer_shown() {
    let plan = Plan::new([job("a"), job("b")]);
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 2));
    let finished = ["a", "b"].map(|name| failure(world.key(name), 1, Cause::ExitCode)).to_vec();
    world.sync(id, &SyncRequest { finished, ..say(2) });
    world.apply(&plan.without("a"));
    let failures = world.engine.workflow_summary(world.workflow()).unwrap().status.failures;
    assert_eq!(failures.iter().map(|sample| sample.job.as_str()).collect::<Vec<_>>(), ["b"]);
}
