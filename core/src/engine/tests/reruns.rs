//! New runs, by `runId` and by verb.

use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;
use torc_api::workflow::RerunPolicy;

use super::plan::{Plan, job};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::engine::{CommandError, Retry};

/// `good` completed, `bad` failed, `below` was canceled with it, `runs` runs, `waits` is ready.
fn mixed() -> (World, Plan, crate::ids::RunnerId) {
    let plan = Plan::new([
        job("below").after(&["bad"]),
        job("good").priority(3),
        job("bad").priority(2),
        job("runs").priority(1),
        job("waits"),
    ]);
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 3));
    let finished = vec![success(world.key("good")), failure(world.key("bad"), 1, Cause::ExitCode)];
    world.sync(id, &SyncRequest { finished, running: vec![running(world.key("runs"))], ..say(2) });
    (world, plan, id)
}

const NAMES: [&str; 5] = ["good", "bad", "below", "runs", "waits"];

#[test]
fn each_policy_runs_again_what_it_says() {
    use JobState::{Blocked, Completed, Ready, Running};
    let table = [
        (Some(RerunPolicy::Failed), [Completed, Ready, Blocked, Running, Ready], [1, 2, 2, 1, 1]),
        // What runs has to end before it is ready for the new run.
        (Some(RerunPolicy::Incomplete), [Completed, Ready, Blocked, Blocked, Ready], [1, 2, 2, 2, 2]),
        (None, [Completed, Ready, Blocked, Blocked, Ready], [1, 2, 2, 2, 2]),
        (Some(RerunPolicy::All), [Ready, Ready, Blocked, Blocked, Ready], [2; 5]),
    ];
    for (policy, states, runs) in table {
        let (mut world, plan, _) = mixed();
        let plan = plan.with(|spec| (spec.run_id, spec.rerun_policy) = (Some(2), policy));
        world.apply(&plan);
        assert_eq!(world.states(&NAMES), states, "{policy:?}");
        assert_eq!(NAMES.map(|name| world.job(name).run), runs, "{policy:?}");
        assert!(NAMES.iter().all(|name| world.job(name).attempt == 1));
        let summary = world.engine.workflow_summary(world.workflow()).unwrap();
        assert_eq!((summary.status.run_id, summary.status.start_time), (Some(2), None), "{policy:?}");
        assert_eq!(summary.status.failures, [], "failures of the last run are history");
        // The same again, or a lower number, is no new run.
        let rows = world.database.jobs.clone();
        world.apply(&plan.with(|spec| spec.run_id = Some(1)));
        assert_eq!(world.database.jobs, rows);
    }
}

#[test]
fn a_job_of_the_last_run_that_still_runs_may_end() {
    let (mut world, plan, id) = mixed();
    let key = world.key("runs");
    world.apply(&plan.with(|spec| (spec.run_id, spec.rerun_policy) = (Some(2), Some(RerunPolicy::Failed))));
    let answer = world.sync(id, &SyncRequest { finished: vec![failure(key, 1, Cause::ExitCode)], ..say(3) });
    assert_eq!(answer.refused, []);
    assert_eq!((world.state_of("runs"), world.results_of("runs")[0].run), (JobState::Failed, 1));
}

#[test]
fn retry_runs_again_what_failed_and_what_depends_on_it() {
    let (mut world, _, _) = mixed();
    let workflow = world.workflow();
    let affected = world.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx));
    assert_eq!(affected, Ok(2));
    use JobState::{Blocked, Completed, Ready, Running};
    assert_eq!(world.states(&NAMES), [Completed, Ready, Blocked, Running, Ready]);
    assert_eq!(NAMES.map(|name| world.job(name).attempt), [1, 2, 1, 1, 1]);
    assert_eq!(NAMES.map(|name| world.job(name).run), [1; 5]);
}

#[test]
fn retry_by_name_or_number_takes_what_depends_on_it_along() {
    let (mut world, _, id) = mixed();
    let workflow = world.workflow();
    let key = world.key("runs");
    let which = Retry::Jobs(vec![world.job("bad").id.to_string(), "runs".to_owned()]);
    let affected = world.run(|engine, tx| engine.retry(workflow, &which, tx));
    assert_eq!(affected, Ok(3));
    assert_eq!((world.state_of("runs"), world.job("runs").attempt), (JobState::Blocked, 2));
    let answer = world.sync(id, &SyncRequest { running: vec![running(key)], ..say(3) });
    assert_eq!(answer.cancel, [key]);
    world.sync(id, &SyncRequest { finished: vec![failure(key, 143, Cause::Canceled)], ..say(4) });
    assert_eq!((world.state_of("runs"), world.job("runs").attempt), (JobState::Ready, 2));
    let unknown = Retry::Jobs(vec!["bad".to_owned(), "none".to_owned()]);
    let refused = world.run(|engine, tx| engine.retry(workflow, &unknown, tx));
    assert_eq!(refused, Err(CommandError::NoJob { workflow: "w".to_owned(), job: "none".to_owned() }));
}

#[test]
fn retry_of_a_job_below_a_failure_leaves_it_canceled() {
    let (mut world, _, _) = mixed();
    let workflow = world.workflow();
    let which = Retry::Jobs(vec!["below".to_owned()]);
    world.run(|engine, tx| engine.retry(workflow, &which, tx)).unwrap();
    assert_eq!((world.state_of("below"), world.job("below").attempt), (JobState::Canceled, 1));
}

#[test]
fn retry_of_everything_is_a_new_run() {
    let (mut world, _, _) = mixed();
    let workflow = world.workflow();
    let affected = world.run(|engine, tx| engine.retry(workflow, &Retry::All, tx));
    assert_eq!(affected, Ok(5));
    assert!(NAMES.iter().all(|name| (world.job(name).run, world.job(name).attempt) == (2, 1)));
    assert_eq!(world.database.results.len(), 2, "results of the last run stay");
}

#[test]
fn retry_budgets_are_reset_only_by_a_new_run() {
    let mut world = World::with(&Plan::new([job("a")]));
    let workflow = world.workflow();
    let id = world.register(&runner("one"));
    let mut sequence = 0;
    let mut lose = |world: &mut World| {
        sequence += 2;
        world.sync(id, &ask(sequence - 1, 1));
        let lost = failure(world.key("a"), -128, Cause::Lost);
        world.sync(id, &SyncRequest { finished: vec![lost], ..say(sequence) });
        world.state_of("a")
    };
    let four = |world: &mut World, lose: &mut dyn FnMut(&mut World) -> JobState| [(); 4].map(|()| lose(world));
    use JobState::{Failed, Ready};
    assert_eq!(four(&mut world, &mut lose), [Ready, Ready, Ready, Failed]);
    world.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx)).unwrap();
    assert_eq!(lose(&mut world), Failed, "the budget of this run is used up");
    world.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    assert_eq!(four(&mut world, &mut lose), [Ready, Ready, Ready, Failed]);
}
