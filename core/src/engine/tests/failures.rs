//! Failed attempts: which jobs are retried, with which resources, how often, and the effects on other jobs.

use torc_api::failure::{Escalation, FailureHandler, FailureRule, Recovery, RecoveryPolicy, RetryLimit};
use torc_api::state::{Cause, JobState};
use torc_api::wire::{FinishedAttempt, Profile, SyncRequest};

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job, needs};
use crate::ids::RunnerId;

struct FailuresFixture {
    harness: EngineHarness,
    id: RunnerId,
    sequence: u64,
}

impl FailuresFixture {
    fn new(plan: &Plan) -> Self {
        let mut harness = EngineHarness::with(plan);
        let id = harness.register(&runner("one"));
        Self { harness, id, sequence: 0 }
    }

    fn sync(&mut self, request: SyncRequest) -> torc_api::wire::SyncResponse {
        self.sequence += 1;
        self.harness.sync(self.id, &SyncRequest { sequence: self.sequence, acknowledged: self.sequence - 1, ..request })
    }

    /// Leases the next job and reports its end with this code and cause.
    fn end(&mut self, code: i32, cause: Option<Cause>) -> (String, Profile) {
        let mut answer = self.sync(work_request(1, 1));
        let lease = answer.leases.remove(0);
        let finished = cause.map_or_else(|| success(lease.key), |cause| failure(lease.key, code, cause));
        self.sync(SyncRequest { finished: vec![finished], ..sync_request(1) });
        (lease.name, answer.profiles.remove(lease.profile as usize))
    }
}

fn auto() -> Recovery {
    Recovery { policy: Some(RecoveryPolicy::Auto), ..Recovery::default() }
}

#[test]
fn dependents_of_a_failure_are_canceled_or_run_anyway() {
    let plan = Plan::new([
        job("d").after(&["c", "x"]),
        job("c").after(&["b"]),
        job("x").after(&["a"]).runs_after_failures(),
        job("b").after(&["a"]),
        job("a"),
    ]);
    let mut fixture = FailuresFixture::new(&plan);
    fixture.end(7, Some(Cause::ExitCode));
    use JobState::{Canceled, Failed, Ready};
    assert_eq!(fixture.harness.states(&["a", "b", "c", "d", "x"]), [Failed, Canceled, Canceled, Canceled, Ready]);
    assert_eq!(fixture.harness.database.results.len(), 1, "a canceled job has no result");
}

#[test]
fn each_ending_has_its_state_and_its_result() {
    use JobState::{Canceled, Completed, Failed, Ready, Terminated};
    let table = [
        (0, None, Completed, Completed, 1),
        (3, Some(Cause::ExitCode), Failed, Failed, 1),
        (137, Some(Cause::OutOfMemory), Failed, Failed, 1),
        (152, Some(Cause::Timeout), Terminated, Terminated, 1),
        (0, Some(Cause::MissingOutput), Failed, Failed, 1),
        (127, Some(Cause::StartFailed), Failed, Failed, 1),
        (143, Some(Cause::Canceled), Canceled, Canceled, 1),
        (143, Some(Cause::Stopped), Ready, Terminated, 2),
        (-128, Some(Cause::Lost), Ready, Failed, 2),
        (-128, Some(Cause::Preempted), Ready, Failed, 2),
    ];
    for (code, cause, state, recorded, attempt) in table {
        let mut fixture = FailuresFixture::new(&Plan::new([job("a")]));
        fixture.end(code, cause);
        let row = fixture.harness.job("a");
        assert_eq!((row.state, row.attempt), (state, attempt), "{cause:?}");
        let result = fixture.harness.results_of("a")[0];
        assert_eq!((result.state, result.cause, result.return_code), (recorded, cause, code));
    }
}

#[test]
fn an_exit_code_without_a_cause_is_a_failure() {
    let mut fixture = FailuresFixture::new(&Plan::new([job("a")]));
    let key = fixture.sync(work_request(1, 1)).leases[0].key;
    let finished = FinishedAttempt { return_code: 2, ..success(key) };
    fixture.sync(SyncRequest { finished: vec![finished], ..sync_request(1) });
    assert_eq!(fixture.harness.results_of("a")[0].cause, Some(Cause::ExitCode));
}

#[test]
fn a_stopped_runner_costs_an_attempt_and_no_budget() {
    let mut fixture = FailuresFixture::new(&Plan::new([job("a")]));
    for _ in 0..10 {
        fixture.end(143, Some(Cause::Stopped));
    }
    assert_eq!((fixture.harness.state_of("a"), fixture.harness.job("a").attempt), (JobState::Ready, 11));
}

#[test]
fn budgets_count_each_cause_for_itself_and_survive_a_restart() {
    let recovery = Recovery { lost: Some(RetryLimit { limit: Some(2) }), ..auto() };
    let mut fixture = FailuresFixture::new(&Plan::new([job("a")]).with(|spec| spec.recovery = Some(recovery)));
    let attempts = [Cause::Lost, Cause::OutOfMemory, Cause::Lost, Cause::OutOfMemory];
    for cause in attempts {
        fixture.end(1, Some(cause));
        fixture.harness.restart();
        assert_eq!(fixture.harness.state_of("a"), JobState::Ready, "{cause}");
    }
    fixture.end(1, Some(Cause::Lost));
    assert_eq!((fixture.harness.state_of("a"), fixture.harness.job("a").attempt), (JobState::Failed, 5));
    assert_eq!(fixture.harness.results_of("a").len(), 5);
}

// S20
#[test]
fn only_the_job_that_ran_out_gets_more() {
    let recovery = Recovery { timeout: Some(Escalation { limit: Some(1), increase_percent: Some(200) }), ..auto() };
    let jobs = [job("a").needs(needs(1, 0, 2)).priority(1), job("b").needs(needs(1, 0, 2))];
    let mut fixture = FailuresFixture::new(&Plan::new(jobs).with(|spec| spec.recovery = Some(recovery)));
    let (_, first) = fixture.end(137, Some(Cause::OutOfMemory));
    assert_eq!((first.resources.memory_bytes, first.runtime_seconds), (2 << 30, 60));
    let (name, second) = fixture.end(152, Some(Cause::Timeout));
    assert_eq!((name.as_str(), second.resources.memory_bytes, second.runtime_seconds), ("a", 3 << 30, 60));
    fixture.harness.restart();
    let (name, third) = fixture.end(0, None);
    assert_eq!((name.as_str(), third.resources.memory_bytes, third.runtime_seconds), ("a", 3 << 30, 120));
    let (name, other) = fixture.end(0, None);
    assert_eq!((name.as_str(), other.resources.memory_bytes, other.runtime_seconds), ("b", 2 << 30, 60));
}

#[test]
fn jobs_that_ran_out_alike_wait_in_one_class() {
    let plan = Plan::new(["a", "b", "c"].map(job)).with(|spec| spec.recovery = Some(auto()));
    let mut fixture = FailuresFixture::new(&plan);
    let leases = fixture.sync(work_request(1, 3)).leases;
    let finished = leases.iter().map(|lease| failure(lease.key, 137, Cause::OutOfMemory)).collect();
    fixture.sync(SyncRequest { finished, ..sync_request(1) });
    assert_eq!(fixture.harness.database.profiles.len(), 2);
}

#[test]
fn a_handler_is_asked_before_the_recovery_policy() {
    let rule = FailureRule { exit_codes: vec![7], max_retries: Some(1), ..FailureRule::default() };
    let handler = FailureHandler { name: "h".to_owned(), rules: vec![rule] };
    let mut plan = Plan::new([job("a")]).edit("a", |job| job.handler = Some("h".to_owned()));
    plan.spec.failure_handlers = vec![handler];
    for (code, attempts) in [(7, 2), (8, 1)] {
        let mut fixture = FailuresFixture::new(&plan);
        for _ in 0..attempts {
            assert_eq!(fixture.harness.state_of("a"), JobState::Ready);
            fixture.end(code, Some(Cause::ExitCode));
        }
        assert_eq!(fixture.harness.state_of("a"), JobState::Failed);
    }
}

#[test]
fn a_failure_that_needs_a_decision_holds_its_dependents() {
    let manual = Recovery { policy: Some(RecoveryPolicy::Manual), ..Recovery::default() };
    let plan = Plan::new([job("a"), job("b").after(&["a"])]).with(|spec| spec.recovery = Some(manual));
    let mut fixture = FailuresFixture::new(&plan);
    fixture.end(1, Some(Cause::ExitCode));
    assert_eq!(fixture.harness.states(&["a", "b"]), [JobState::PendingFailed, JobState::Blocked]);
    let workflow = fixture.harness.workflow();
    let affected = fixture.harness.run(|engine, tx| engine.retry(workflow, &crate::engine::Retry::Failed, tx).unwrap());
    assert_eq!(affected, 2);
    fixture.end(0, None);
    assert_eq!(fixture.harness.states(&["a", "b"]), [JobState::Completed, JobState::Ready]);
}

#[test]
fn latest_failures_include_timeouts() {
    let mut fixture = FailuresFixture::new(&Plan::new((0..25).map(|index| job(&format!("j{index:02}")))));
    for index in 0..25 {
        let (code, cause) = if index % 2 == 0 { (152, Cause::Timeout) } else { (1, Cause::ExitCode) };
        fixture.end(code, Some(cause));
    }
    let summary = fixture.harness.engine.workflow_summary(fixture.harness.workflow()).unwrap();
    let shown: Vec<&str> = summary.status.failures.iter().map(|sample| sample.job.as_str()).collect();
    let expected: Vec<String> = (5..25).map(|index| format!("j{index:02}")).collect();
    assert_eq!(shown, expected);
}

/// Reports may come late. A restart does not change the list, and an old failure does not displace a newer one.
#[test]
fn failures_are_shown_by_their_ends_whenever_they_are_told() {
    let mut fixture = FailuresFixture::new(&Plan::new((0..22).map(|index| job(&format!("j{index:02}")))));
    let shown = |fixture: &FailuresFixture| -> Vec<String> {
        let summary = fixture.harness.engine.workflow_summary(fixture.harness.workflow()).unwrap();
        summary.status.failures.into_iter().map(|sample| sample.job).collect()
    };
    let names = |numbers: &[u32]| numbers.iter().map(|number| format!("j{number:02}")).collect::<Vec<_>>();
    let end = |fixture: &mut FailuresFixture, ended_ms_ago| {
        let key = fixture.sync(work_request(1, 1)).leases.remove(0).key;
        let finished = FinishedAttempt { ended_ms_ago, ..failure(key, 1, Cause::ExitCode) };
        fixture.sync(SyncRequest { finished: vec![finished], ..sync_request(1) });
    };
    for ended_ms_ago in [300, 500, 400] {
        end(&mut fixture, ended_ms_ago);
    }
    assert_eq!(shown(&fixture), names(&[1, 2, 0]));
    fixture.harness.restart();
    assert_eq!(shown(&fixture), names(&[1, 2, 0]), "after a restart");
    for _ in 3..20 {
        end(&mut fixture, 10);
    }
    let twenty: Vec<u32> = [1, 2, 0].into_iter().chain(3..20).collect();
    assert_eq!(shown(&fixture), names(&twenty));
    end(&mut fixture, 900);
    assert_eq!(shown(&fixture), names(&twenty), "the oldest of 21 is not shown, though it was told last");
    end(&mut fixture, 350);
    let newer: Vec<u32> = [2, 21, 0].into_iter().chain(3..20).collect();
    assert_eq!(shown(&fixture), names(&newer));
}

#[test]
fn a_canceled_job_that_succeeds_first_has_succeeded() {
    for (finished, expected) in [(None, JobState::Completed), (Some(Cause::ExitCode), JobState::Canceled)] {
        let mut fixture = FailuresFixture::new(&Plan::new([job("a"), job("b").after(&["a"])]));
        let key = fixture.sync(work_request(1, 1)).leases[0].key;
        fixture.sync(SyncRequest { running: vec![running(key)], ..sync_request(1) });
        let workflow = fixture.harness.workflow();
        fixture.harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
        let answer = fixture.sync(SyncRequest { running: vec![running(key)], ..sync_request(1) });
        assert_eq!(answer.cancel, [key]);
        let finished = finished.map_or_else(|| success(key), |cause| failure(key, 143, cause));
        fixture.sync(SyncRequest { finished: vec![finished], ..sync_request(1) });
        assert_eq!(fixture.harness.states(&["a", "b"]), [expected, JobState::Canceled]);
    }
}
