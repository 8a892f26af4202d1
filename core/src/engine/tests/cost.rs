//! An end, an apply and a retry touch only what they change, however large the workflow is.

use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, PlannedJob, job};
use crate::engine::Retry;
use crate::rows::Changes;

/// Returns the changes that a message of runner 1 causes.
fn written(harness: &mut EngineHarness, request: &SyncRequest) -> Changes {
    let id = harness.engine.runners()[0].id;
    let mut tx = harness.engine.begin(harness.now);
    harness.engine.sync(crate::ids::RunnerId(id), request, &mut tx).unwrap();
    harness.engine.finish(tx)
}

#[test]
fn an_end_writes_the_jobs_that_it_moves_and_no_others() {
    let chain =
        |n: usize| [job(&format!("first_{n:03}")), job(&format!("then_{n:03}")).after(&[&format!("first_{n:03}")])];
    let mut harness = EngineHarness::with(&Plan::new((0..500).flat_map(chain)));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    let key = harness.key("first_000");
    let changes = written(&mut harness, &SyncRequest { finished: vec![success(key)], ..work_request(2, 1) });
    assert_eq!((changes.jobs.len(), changes.results.len(), changes.workflows.len()), (0, 1, 1));
    let mut moved: Vec<i64> = changes.job_updates.iter().map(|update| update.id.0).collect();
    moved.sort_unstable();
    moved.dedup();
    // The job has ended, its successor is ready, and one of the ready jobs was leased.
    assert!(moved.len() <= 3 && moved.starts_with(&[key.job, key.job + 1]), "{moved:?}");
}

#[test]
fn a_whole_workflow_is_one_group_of_rows() {
    let mut harness = EngineHarness::new();
    harness.open();
    harness.apply(&Plan::new((0..500).map(|n| job(&format!("j{n}")))));
    assert_eq!(harness.database.jobs.len(), 0, "nothing is stored before all of it is");
    harness.commit();
    assert_eq!(harness.database.jobs.len(), 500);
}

const LAYERS: usize = 60;
const WIDTH: usize = 3;

/// Every job of a layer depends on every job of the layer before. The number of paths is too large to visit them all.
fn layered() -> Plan {
    let name = |layer: usize, at: usize| format!("l{layer:02}_{at}");
    let layer = |layer: usize| -> Vec<PlannedJob> {
        let before: Vec<String> =
            if layer == 0 { Vec::new() } else { (0..WIDTH).map(|at| name(layer - 1, at)).collect() };
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        (0..WIDTH).map(|at| job(&name(layer, at)).after(&before)).collect()
    };
    Plan::new((0..LAYERS).flat_map(layer))
}

#[test]
fn a_retry_visits_each_dependent_once() {
    let mut harness = EngineHarness::with(&layered());
    let workflow = harness.workflow();
    let id = harness.register(&runner("one"));
    let leases = harness.sync(id, &work_request(1, 3)).leases;
    let finished = leases.iter().map(|lease| failure(lease.key, 1, Cause::ExitCode)).collect();
    harness.sync(id, &SyncRequest { finished, ..sync_request(2) });
    assert_eq!(harness.state_of("l59_2"), JobState::Canceled, "it was canceled along all those paths, too");
    let affected = harness.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx));
    assert_eq!(affected, Ok((LAYERS * WIDTH) as i64));
    assert_eq!(harness.states(&["l00_0", "l01_0", "l59_2"]), [JobState::Ready, JobState::Blocked, JobState::Blocked]);
}

#[test]
fn a_retry_never_sets_a_descendant_free_that_still_runs() {
    let plan = Plan::new([job("bad"), job("below").after(&["bad"]).runs_after_failures()]);
    let mut harness = EngineHarness::with(&plan);
    let (workflow, id) = (harness.workflow(), harness.register(&runner("one")));
    harness.sync(id, &work_request(1, 1));
    let bad = failure(harness.key("bad"), 1, Cause::ExitCode);
    harness.sync(id, &SyncRequest { finished: vec![bad], ..work_request(2, 1) });
    let below = harness.key("below");
    harness.sync(id, &SyncRequest { running: vec![running(below)], ..sync_request(3) });
    harness.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx)).unwrap();
    // The retried job succeeds before the descendant of the earlier attempt has ended.
    let other = harness.register(&runner("two"));
    let again = harness.sync(other, &work_request(1, 2)).leases;
    assert_eq!(again.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), ["bad"]);
    let answer = harness.sync(other, &SyncRequest { finished: vec![success(again[0].key)], ..work_request(2, 2) });
    assert_eq!((answer.leases.len(), harness.state_of("below")), (0, JobState::Blocked));
    assert_eq!(harness.sync(id, &SyncRequest { running: vec![running(below)], ..sync_request(4) }).cancel, [below]);
    harness.sync(id, &SyncRequest { finished: vec![failure(below, 143, Cause::Canceled)], ..sync_request(5) });
    assert_eq!((harness.state_of("below"), harness.job("below").attempt), (JobState::Ready, 2));
}
