//! Documents that are applied again: unchanged, or with jobs added, removed, changed or adjusted.

use torc_api::api::ApplyOutcome;
use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job, needs};
use crate::ids::RunnerId;

/// a → b → c, and d: `a` has completed, `b` and `d` run.
fn half_way() -> (EngineHarness, Plan, RunnerId) {
    let plan = Plan::new([job("c").after(&["b"]), job("b").after(&["a"]), job("a").priority(1), job("d")]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    let done = SyncRequest { finished: vec![success(harness.key("a"))], ..work_request(2, 8) };
    harness.sync(id, &done);
    let keys = ["b", "d"].map(|name| running(harness.key(name)));
    harness.sync(id, &SyncRequest { running: keys.to_vec(), ..sync_request(3) });
    use JobState::{Blocked, Completed, Running};
    assert_eq!(harness.states(&["a", "b", "c", "d"]), [Completed, Running, Blocked, Running]);
    (harness, plan, id)
}

fn still_running(harness: &EngineHarness, names: &[&str]) -> SyncRequest {
    SyncRequest { running: names.iter().map(|name| running(harness.key(name))).collect(), ..sync_request(4) }
}

#[test]
fn the_same_document_changes_nothing() {
    let (mut harness, plan, _) = half_way();
    let rows = harness.database.jobs.clone();
    let events = harness.database.events.len();
    let answer = harness.apply(&plan);
    assert_eq!((answer.outcome, answer.changes.unchanged), (ApplyOutcome::Unchanged, 4));
    assert_eq!((harness.database.jobs.clone(), harness.database.events.len()), (rows, events));
    assert_eq!(harness.database.workflows[&harness.workflow()].generation, 1);
}

#[test]
fn an_added_job_appears_where_its_parents_are() {
    let (mut harness, plan, _) = half_way();
    let added = [job("e").after(&["a"]), job("f").after(&["a", "c"]), job("g")];
    let answer = harness.apply(&added.into_iter().fold(plan, Plan::plus));
    assert_eq!(answer.outcome, ApplyOutcome::Configured);
    assert_eq!((answer.changes.added.count, answer.changes.unchanged), (3, 4));
    assert_eq!(harness.states(&["e", "f", "g"]), [JobState::Ready, JobState::Blocked, JobState::Ready]);
    assert_eq!(harness.states(&["a", "b", "d"]), [JobState::Completed, JobState::Running, JobState::Running]);
    assert_eq!(harness.database.workflows[&harness.workflow()].generation, 2);
}

#[test]
fn a_removed_job_is_stopped_and_its_results_stay() {
    let (mut harness, plan, id) = half_way();
    let [a, d] = ["a", "d"].map(|name| harness.key(name));
    let request = still_running(&harness, &["b", "d"]);
    let answer = harness.apply(&plan.without("d").without("a"));
    assert_eq!((answer.changes.removed.count, answer.changes.changed.count), (2, 1), "b no longer depends on a");
    assert!(harness.database.jobs.values().all(|row| row.name != "a" && row.name != "d"));
    assert_eq!(harness.database.results_of(crate::ids::JobId(a.job)).len(), 1);
    let answer = harness.sync(id, &request);
    assert!(answer.cancel.contains(&d));
}

#[test]
fn a_removed_job_that_comes_again_is_a_new_one() {
    let (mut harness, plan, _) = half_way();
    let before = harness.job("d").id;
    harness.apply(&plan.clone().without("d"));
    harness.apply(&plan);
    assert!(harness.job("d").id > before);
    assert_eq!((harness.state_of("d"), harness.job("d").attempt), (JobState::Ready, 1));
}

#[test]
fn a_changed_job_and_what_depends_on_it_run_again() {
    let (mut harness, plan, id) = half_way();
    let request = still_running(&harness, &["b", "d"]);
    let [b, d] = ["b", "d"].map(|name| harness.key(name));
    let edited = plan.edit("a", |job| job.version = 1);
    let preview = harness.engine.preview(&edited.document(), &edited.expanded());
    let answer = harness.apply(&edited);
    assert_eq!(answer.changes, preview, "what is shown before is what happens");
    let changes = answer.changes;
    assert_eq!((changes.changed.count, changes.downstream.count, changes.unchanged), (1, 2, 1));
    use JobState::{Blocked, Ready, Running};
    assert_eq!(harness.states(&["a", "b", "c", "d"]), [Ready, Blocked, Blocked, Running]);
    assert_eq!(["a", "b", "c", "d"].map(|name| harness.job(name).attempt), [2, 2, 1, 1]);
    assert_eq!(harness.job("a").run, 1, "an edit raises the attempt, never the run");
    let answer = harness.sync(id, &request);
    assert_eq!(answer.cancel, [b]);
    assert_eq!(harness.key("d"), d);
}

#[test]
fn resources_and_priority_alone_change_only_the_next_attempt() {
    let (mut harness, plan, id) = half_way();
    let request = still_running(&harness, &["b", "d"]);
    let edited = plan
        .edit("d", |job| job.needs = needs(2, 0, 2))
        .edit("c", |job| job.priority = 5)
        .edit("a", |job| job.labels = vec!["x".to_owned()]);
    let answer = harness.apply(&edited);
    assert_eq!((answer.changes.adjusted.count, answer.changes.unchanged), (3, 1));
    use JobState::{Blocked, Completed, Running};
    assert_eq!(harness.states(&["a", "b", "c", "d"]), [Completed, Running, Blocked, Running]);
    assert_eq!(harness.sync(id, &request).cancel, []);
    assert_eq!(harness.job("c").priority, 5);
    let d = failure(harness.key("d"), 143, Cause::Stopped);
    let b = running(harness.key("b"));
    let answer = harness.sync(
        id,
        &SyncRequest { finished: vec![d], running: vec![b], want: work_request(5, 8).want, ..sync_request(5) },
    );
    assert_eq!(answer.profiles[answer.leases[0].profile as usize].resources.cpus, 2);
}

#[test]
fn an_edit_of_priorities_reorders_what_is_ready() {
    let plan = Plan::new([job("a"), job("b")]);
    let mut harness = EngineHarness::with(&plan);
    harness.apply(&plan.edit("b", |job| job.priority = 1));
    let id = harness.register(&runner("one"));
    assert_eq!(harness.sync(id, &work_request(1, 1)).leases[0].name, "b");
}

#[test]
fn recovered_requirements_last_until_the_document_changes() {
    let auto =
        torc_api::failure::Recovery { policy: Some(torc_api::failure::RecoveryPolicy::Auto), ..Default::default() };
    let plan = Plan::new([job("a"), job("b")]).with(|spec| spec.recovery = Some(auto));
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    harness.sync(
        id,
        &SyncRequest { finished: vec![failure(harness.key("a"), 137, Cause::OutOfMemory)], ..sync_request(2) },
    );
    let memory = |harness: &EngineHarness| {
        harness.database.profiles[&harness.job("a").profile].profile.requirements.memory_bytes
    };
    assert_eq!(memory(&harness), 3 << 29);
    assert_eq!(harness.apply(&plan).changes.unchanged, 2, "the same document is the same");
    let answer = harness.apply(&plan.clone().plus(job("c")));
    assert_eq!((answer.changes.adjusted.count, answer.changes.unchanged), (0, 2));
    assert_eq!(memory(&harness), 3 << 29);
    let answer = harness.apply(&plan.edit("a", |job| job.needs = needs(1, 0, 8)));
    assert_eq!(answer.changes.adjusted.count, 1);
    assert_eq!(memory(&harness), 8 << 30);
}

/// Numbers follow the document, but dependencies do not. Jobs that are canceled in the order of numbers must not
/// count an end twice.
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
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    harness
        .sync(id, &SyncRequest { finished: vec![failure(harness.key("bad"), 1, Cause::ExitCode)], ..sync_request(2) });
    use JobState::{Blocked, Canceled};
    assert_eq!(harness.states(&["first", "second", "end"]), [Canceled, Canceled, Blocked]);
    // `first` runs again because `spark` changed, and is canceled again because `bad` has failed.
    harness.apply(&plan.edit("spark", |job| job.version = 1));
    assert_eq!(harness.states(&["first", "second", "end"]), [Canceled, Canceled, Blocked]);
    let moves = harness.database.events.iter().flat_map(|event| &event.jobs);
    let end = harness.job("end").id;
    assert!(moves.into_iter().all(|(job, _, state)| *job != end || *state == Blocked), "not even for a moment");
}

#[test]
fn a_canceled_workflow_stays_canceled_after_any_apply() {
    let (mut harness, plan, _) = half_way();
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    harness.apply(&plan.plus(job("e")).edit("a", |job| job.version = 1));
    use JobState::{Canceled, Running};
    assert_eq!(harness.states(&["a", "b", "c", "e"]), [Canceled; 4]);
    assert_eq!(harness.state_of("d"), Running, "its runner has yet to end it");
}

#[test]
fn failures_of_removed_jobs_are_no_longer_shown() {
    let plan = Plan::new([job("a"), job("b")]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let finished = ["a", "b"].map(|name| failure(harness.key(name), 1, Cause::ExitCode)).to_vec();
    harness.sync(id, &SyncRequest { finished, ..sync_request(2) });
    harness.apply(&plan.without("a"));
    let failures = harness.engine.workflow_summary(harness.workflow()).unwrap().status.failures;
    assert_eq!(failures.iter().map(|sample| sample.job.as_str()).collect::<Vec<_>>(), ["b"]);
}
