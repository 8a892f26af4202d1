//! An end, an apply and a retry touch only what they change, however large the workflow is.

use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;

use super::plan::{Plan, PlannedJob, job};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::engine::Retry;
use crate::rows::Changes;

/// Returns the changes of a message of runner 1.
fn written(world: &mut World, request: &SyncRequest) -> Changes {
    let id = world.engine.runners()[0].id;
    let mut tx = world.engine.begin(world.now);
    world.engine.sync(crate::ids::RunnerId(id), request, &mut tx).unwrap();
    world.engine.finish(tx)
}

#[test]
fn an_end_writes_the_jobs_that_it_moves_and_no_others() {
    let chain =
        |n: usize| [job(&format!("first_{n:03}")), job(&format!("then_{n:03}")).after(&[&format!("first_{n:03}")])];
    let mut world = World::with(&Plan::new((0..500).flat_map(chain)));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    let key = world.key("first_000");
    let changes = written(&mut world, &SyncRequest { finished: vec![success(key)], ..ask(2, 1) });
    assert_eq!((changes.jobs.len(), changes.results.len(), changes.workflows.len()), (0, 1, 1));
    let mut moved: Vec<i64> = changes.job_updates.iter().map(|update| update.id.0).collect();
    moved.sort_unstable();
    moved.dedup();
    // It has ended, its successor is ready, and one of the ready ones was given out.
    assert!(moved.len() <= 3 && moved.starts_with(&[key.job, key.job + 1]), "{moved:?}");
}

#[test]
fn a_whole_workflow_is_one_group_of_rows() {
    let mut world = World::new();
    world.open();
    world.apply(&Plan::new((0..500).map(|n| job(&format!("j{n}")))));
    assert_eq!(world.database.jobs.len(), 0, "nothing is stored before all of it is");
    world.commit();
    assert_eq!(world.database.jobs.len(), 500);
}

const LAYERS: usize = 60;
const WIDTH: usize = 3;

/// Every job of a layer waits for every job of the layer before: too many paths to visit each of them.
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
    let mut world = World::with(&layered());
    let workflow = world.workflow();
    let id = world.register(&runner("one"));
    let leases = world.sync(id, &ask(1, 3)).leases;
    let finished = leases.iter().map(|lease| failure(lease.key, 1, Cause::ExitCode)).collect();
    world.sync(id, &SyncRequest { finished, ..say(2) });
    assert_eq!(world.state_of("l59_2"), JobState::Canceled, "it was canceled along all those paths, too");
    let affected = world.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx));
    assert_eq!(affected, Ok((LAYERS * WIDTH) as i64));
    assert_eq!(world.states(&["l00_0", "l01_0", "l59_2"]), [JobState::Ready, JobState::Blocked, JobState::Blocked]);
}

#[test]
fn a_retry_never_sets_a_descendant_free_that_still_runs() {
    let plan = Plan::new([job("bad"), job("below").after(&["bad"]).runs_after_failures()]);
    let mut world = World::with(&plan);
    let (workflow, id) = (world.workflow(), world.register(&runner("one")));
    world.sync(id, &ask(1, 1));
    let bad = failure(world.key("bad"), 1, Cause::ExitCode);
    world.sync(id, &SyncRequest { finished: vec![bad], ..ask(2, 1) });
    let below = world.key("below");
    world.sync(id, &SyncRequest { running: vec![running(below)], ..say(3) });
    world.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx)).unwrap();
    // The retried job succeeds while the descendant of the attempt before is still being ended.
    let other = world.register(&runner("two"));
    let again = world.sync(other, &ask(1, 2)).leases;
    assert_eq!(again.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), ["bad"]);
    let answer = world.sync(other, &SyncRequest { finished: vec![success(again[0].key)], ..ask(2, 2) });
    assert_eq!((answer.leases.len(), world.state_of("below")), (0, JobState::Blocked));
    assert_eq!(world.sync(id, &SyncRequest { running: vec![running(below)], ..say(4) }).cancel, [below]);
    world.sync(id, &SyncRequest { finished: vec![failure(below, 143, Cause::Canceled)], ..say(5) });
    assert_eq!((world.state_of("below"), world.job("below").attempt), (JobState::Ready, 2));
}
