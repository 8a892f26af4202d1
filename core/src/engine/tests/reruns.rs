//! New runs, by `runId` and by command.

use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;
use torc_api::workflow::RerunPolicy;

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::engine::{CommandError, Retry};

/// `good` has completed, `bad` has failed, `below` was canceled with it, `runs` runs, `waits` is ready.
fn mixed() -> (EngineHarness, Plan, crate::ids::RunnerId) {
    let plan = Plan::new([
        job("below").after(&["bad"]),
        job("good").priority(3),
        job("bad").priority(2),
        job("runs").priority(1),
        job("waits"),
    ]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 3));
    let finished = vec![success(harness.key("good")), failure(harness.key("bad"), 1, Cause::ExitCode)];
    harness.sync(id, &SyncRequest { finished, running: vec![running(harness.key("runs"))], ..sync_request(2) });
    (harness, plan, id)
}

const NAMES: [&str; 5] = ["good", "bad", "below", "runs", "waits"];

#[test]
fn each_policy_runs_again_what_it_says() {
    use JobState::{Blocked, Completed, Ready, Running};
    let table = [
        (Some(RerunPolicy::Failed), [Completed, Ready, Blocked, Running, Ready], [1, 2, 2, 1, 1]),
        // Running jobs have to end before they are ready for the new run.
        (Some(RerunPolicy::Incomplete), [Completed, Ready, Blocked, Blocked, Ready], [1, 2, 2, 2, 2]),
        (None, [Completed, Ready, Blocked, Blocked, Ready], [1, 2, 2, 2, 2]),
        (Some(RerunPolicy::All), [Ready, Ready, Blocked, Blocked, Ready], [2; 5]),
    ];
    for (policy, states, runs) in table {
        let (mut harness, plan, _) = mixed();
        let plan = plan.with(|spec| (spec.run_id, spec.rerun_policy) = (Some(2), policy));
        harness.apply(&plan);
        assert_eq!(harness.states(&NAMES), states, "{policy:?}");
        assert_eq!(NAMES.map(|name| harness.job(name).run), runs, "{policy:?}");
        assert!(NAMES.iter().all(|name| harness.job(name).attempt == 1));
        let summary = harness.engine.workflow_summary(harness.workflow()).unwrap();
        assert_eq!((summary.status.run_id, summary.status.start_time), (Some(2), None), "{policy:?}");
        assert_eq!(summary.status.failures, [], "failures of the last run are history");
        // The same or a lower number requests no new run.
        let rows = harness.database.jobs.clone();
        harness.apply(&plan.with(|spec| spec.run_id = Some(1)));
        assert_eq!(harness.database.jobs, rows);
    }
}

#[test]
fn a_job_of_the_last_run_that_still_runs_may_end() {
    let (mut harness, plan, id) = mixed();
    let key = harness.key("runs");
    harness.apply(&plan.with(|spec| (spec.run_id, spec.rerun_policy) = (Some(2), Some(RerunPolicy::Failed))));
    let answer = harness.sync(id, &SyncRequest { finished: vec![failure(key, 1, Cause::ExitCode)], ..sync_request(3) });
    assert_eq!(answer.refused, []);
    assert_eq!((harness.state_of("runs"), harness.results_of("runs")[0].run), (JobState::Failed, 1));
}

#[test]
fn retry_runs_again_what_failed_and_what_depends_on_it() {
    let (mut harness, _, _) = mixed();
    let workflow = harness.workflow();
    let affected = harness.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx));
    assert_eq!(affected, Ok(2));
    use JobState::{Blocked, Completed, Ready, Running};
    assert_eq!(harness.states(&NAMES), [Completed, Ready, Blocked, Running, Ready]);
    assert_eq!(NAMES.map(|name| harness.job(name).attempt), [1, 2, 1, 1, 1]);
    assert_eq!(NAMES.map(|name| harness.job(name).run), [1; 5]);
}

#[test]
fn retry_by_name_or_number_takes_what_depends_on_it_along() {
    let (mut harness, _, id) = mixed();
    let workflow = harness.workflow();
    let key = harness.key("runs");
    let which = Retry::Jobs(vec![harness.job("bad").id.to_string(), "runs".to_owned()]);
    let affected = harness.run(|engine, tx| engine.retry(workflow, &which, tx));
    assert_eq!(affected, Ok(3));
    assert_eq!((harness.state_of("runs"), harness.job("runs").attempt), (JobState::Blocked, 2));
    let answer = harness.sync(id, &SyncRequest { running: vec![running(key)], ..sync_request(3) });
    assert_eq!(answer.cancel, [key]);
    harness.sync(id, &SyncRequest { finished: vec![failure(key, 143, Cause::Canceled)], ..sync_request(4) });
    assert_eq!((harness.state_of("runs"), harness.job("runs").attempt), (JobState::Ready, 2));
    let unknown = Retry::Jobs(vec!["bad".to_owned(), "none".to_owned()]);
    let refused = harness.run(|engine, tx| engine.retry(workflow, &unknown, tx));
    assert_eq!(refused, Err(CommandError::NoJob { workflow: "w".to_owned(), job: "none".to_owned() }));
}

#[test]
fn retry_of_a_job_below_a_failure_leaves_it_canceled() {
    let (mut harness, _, _) = mixed();
    let workflow = harness.workflow();
    let which = Retry::Jobs(vec!["below".to_owned()]);
    harness.run(|engine, tx| engine.retry(workflow, &which, tx)).unwrap();
    assert_eq!((harness.state_of("below"), harness.job("below").attempt), (JobState::Canceled, 1));
}

#[test]
fn retry_of_everything_is_a_new_run() {
    let (mut harness, _, _) = mixed();
    let workflow = harness.workflow();
    let affected = harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx));
    assert_eq!(affected, Ok(5));
    assert!(NAMES.iter().all(|name| (harness.job(name).run, harness.job(name).attempt) == (2, 1)));
    assert_eq!(harness.database.results.len(), 2, "results of the last run stay");
}

#[test]
fn retry_budgets_are_reset_only_by_a_new_run() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let workflow = harness.workflow();
    let id = harness.register(&runner("one"));
    let mut sequence = 0;
    let mut lose = |harness: &mut EngineHarness| {
        sequence += 2;
        harness.sync(id, &work_request(sequence - 1, 1));
        let lost = failure(harness.key("a"), -128, Cause::Lost);
        harness.sync(id, &SyncRequest { finished: vec![lost], ..sync_request(sequence) });
        harness.state_of("a")
    };
    let four = |harness: &mut EngineHarness, lose: &mut dyn FnMut(&mut EngineHarness) -> JobState| {
        [(); 4].map(|()| lose(harness))
    };
    use JobState::{Failed, Ready};
    assert_eq!(four(&mut harness, &mut lose), [Ready, Ready, Ready, Failed]);
    harness.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx)).unwrap();
    assert_eq!(lose(&mut harness), Failed, "the budget of this run is used up");
    harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    assert_eq!(four(&mut harness, &mut lose), [Ready, Ready, Ready, Failed]);
}
