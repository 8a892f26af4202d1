//! Recovery scripts: the failed job waits for its script and for nothing else.

use torc_api::failure::{FailureHandler, FailureRule};
use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, Lease, LeaseRole, SyncRequest, SyncResponse};

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job, needs};
use crate::engine::Retry;
use crate::ids::RunnerId;

struct RecoveryFixture {
    harness: EngineHarness,
    sequences: std::collections::HashMap<RunnerId, u64>,
}

fn rule(exit_codes: Vec<i32>, causes: Vec<Cause>) -> FailureRule {
    FailureRule { exit_codes, causes, recovery_script: Some("mend".to_owned()), ..FailureRule::default() }
}

fn plan(rule: FailureRule) -> Plan {
    let mut a = job("a").needs(needs(1, 1, 1));
    a.handler = Some("h".to_owned());
    let b = job("b").after(&["a"]);
    Plan::new([a, b]).with(|spec| {
        spec.failure_handlers = vec![FailureHandler { name: "h".to_owned(), rules: vec![rule] }];
    })
}

impl RecoveryFixture {
    fn new(plan: &Plan) -> Self {
        Self { harness: EngineHarness::with(plan), sequences: std::collections::HashMap::new() }
    }

    fn register(&mut self, host: &str) -> RunnerId {
        self.harness.register(&runner(host))
    }

    fn sync(&mut self, id: RunnerId, request: SyncRequest) -> SyncResponse {
        let sequence = self.sequences.entry(id).or_default();
        *sequence += 1;
        let request = SyncRequest { sequence: *sequence, acknowledged: *sequence - 1, ..request };
        self.harness.sync(id, &request)
    }

    fn request_work(&mut self, id: RunnerId) -> Vec<Lease> {
        self.sync(id, work_request(1, 8)).leases
    }

    fn fail(&mut self, id: RunnerId, key: AttemptKey, code: i32, cause: Cause) -> Vec<Lease> {
        self.sync(id, SyncRequest { finished: vec![failure(key, code, cause)], ..work_request(1, 8) }).leases
    }

    fn succeed(&mut self, id: RunnerId, key: AttemptKey) -> Vec<Lease> {
        self.sync(id, SyncRequest { finished: vec![success(key)], ..work_request(1, 8) }).leases
    }

    /// Returns a failed job whose script is leased to the runner that ran the job.
    fn recovering(plan: &Plan) -> (Self, RunnerId, Lease) {
        let mut fixture = Self::new(plan);
        let id = fixture.register("one");
        let lease = fixture.request_work(id).remove(0);
        let script = fixture.fail(id, lease.key, 7, Cause::ExitCode).remove(0);
        (fixture, id, script)
    }
}

#[test]
fn the_next_attempt_waits_for_its_recovery_script() {
    let mut fixture = RecoveryFixture::new(&plan(rule(vec![7], vec![])));
    let (one, two) = (fixture.register("one"), fixture.register("two"));
    let lease = fixture.request_work(one).remove(0);
    let answer =
        fixture.sync(one, SyncRequest { finished: vec![failure(lease.key, 7, Cause::ExitCode)], ..work_request(1, 8) });
    let script = &answer.leases[0];
    assert_eq!((script.role, script.command.as_str(), script.name.as_str()), (LeaseRole::Recovery, "mend", "a"));
    assert_eq!((script.key.attempt, script.key.run), (1, 1));
    assert_ne!(script.key.lease_id, lease.key.lease_id);
    assert_eq!(script.env["TORC_RETURN_CODE"], "7");
    let profile = &answer.profiles[script.profile as usize];
    assert_eq!((profile.resources.gpus, profile.resources.cpus), (0, 0), "it takes no resources");
    assert_eq!(fixture.harness.state_of("a"), JobState::Recovering);
    assert_eq!(fixture.request_work(two), [], "another runner cannot start the job first");
    let result = fixture.harness.results_of("a")[0].clone();
    assert_eq!((result.attempt, result.return_code, result.state), (1, 7, JobState::Failed), "its result is written");
    let next = fixture.succeed(one, script.key).remove(0);
    assert_eq!((next.key.attempt, next.role), (2, LeaseRole::Job));
    assert_eq!(fixture.harness.reasons().iter().filter(|reason| **reason == "JobRecovered").count(), 1);
    fixture.succeed(one, next.key);
    assert_eq!(fixture.harness.results_of("a").len(), 2, "a row for each attempt");
    assert!(fixture.harness.database.recoveries.is_empty());
}

#[test]
fn rules_match_by_code_and_by_cause_and_attempts_are_counted() {
    for rule in [rule(vec![7], vec![]), rule(vec![], vec![Cause::OutOfMemory])] {
        let (code, cause) = if rule.causes.is_empty() { (7, Cause::ExitCode) } else { (137, Cause::OutOfMemory) };
        let mut fixture = RecoveryFixture::new(&plan(FailureRule { max_retries: Some(2), ..rule }));
        let id = fixture.register("one");
        let mut lease = fixture.request_work(id).remove(0);
        for _ in 0..2 {
            let script = fixture.fail(id, lease.key, code, cause).remove(0);
            assert_eq!(script.role, LeaseRole::Recovery);
            fixture.harness.restart();
            lease = fixture.succeed(id, script.key).remove(0);
        }
        assert_eq!(fixture.fail(id, lease.key, code, cause), []);
        assert_eq!(fixture.harness.states(&["a", "b"]), [JobState::Failed, JobState::Canceled], "{cause}");
        assert_eq!(fixture.harness.results_of("a").len(), 3);
    }
}

#[test]
fn a_script_that_fails_settles_the_job() {
    for (cause, state) in [(Cause::ExitCode, JobState::Failed), (Cause::Timeout, JobState::Terminated)] {
        let mut fixture = RecoveryFixture::new(&plan(rule(vec![7], vec![])));
        let id = fixture.register("one");
        let lease = fixture.request_work(id).remove(0);
        let script = fixture.fail(id, lease.key, 7, cause).remove(0);
        assert_eq!(fixture.fail(id, script.key, 5, Cause::ExitCode), []);
        assert_eq!(fixture.harness.states(&["a", "b"]), [state, JobState::Canceled]);
        let event = fixture.harness.database.events.iter().find(|event| event.reason == "RecoveryFailed").unwrap();
        assert_eq!(event.message, "the recovery script of job 'a' ended with exit code 5 after attempt 1");
        assert_eq!(fixture.harness.results_of("a").len(), 1, "a script has no result of its own");
    }
}

#[test]
fn a_script_prefers_the_runner_of_the_attempt() {
    let mut fixture = RecoveryFixture::new(&plan(rule(vec![7], vec![])));
    let (one, two) = (fixture.register("one"), fixture.register("two"));
    let key = fixture.request_work(one).remove(0).key;
    // The runner is stopping and takes no more work, so the script waits.
    let report = SyncRequest { finished: vec![failure(key, 7, Cause::ExitCode)], stopping: true, ..sync_request(1) };
    assert_eq!(fixture.sync(one, report).leases, []);
    assert_eq!(fixture.request_work(two), [], "its runner is still there");
    let mut small = runner("small");
    small.capacity.gpus = 0;
    let small = fixture.harness.register(&small);
    fixture.sync(one, SyncRequest { leaving: true, ..sync_request(1) });
    assert_eq!(fixture.request_work(small), [], "the job would not fit there");
    assert_eq!(fixture.request_work(two)[0].role, LeaseRole::Recovery);
}

#[test]
fn lost_scripts_are_given_out_again_but_not_for_ever() {
    let (mut fixture, one, mut script) = RecoveryFixture::recovering(&plan(rule(vec![7], vec![])));
    for round in 0..3 {
        assert_eq!(fixture.harness.state_of("a"), JobState::Recovering, "{round}");
        fixture.sync(one, SyncRequest { running: vec![running(script.key)], ..sync_request(1) });
        // The script no longer runs, and its outcome is unknown.
        let answer = fixture.request_work(one);
        if round < 2 {
            script = answer[0].clone();
            assert_eq!(script.role, LeaseRole::Recovery);
        }
    }
    assert_eq!(fixture.harness.state_of("a"), JobState::Failed);
    assert!(fixture.harness.reasons().contains(&"RecoveryFailed"));
}

#[test]
fn a_report_whose_answer_was_lost_changes_nothing_twice() {
    let mut fixture = RecoveryFixture::new(&plan(rule(vec![7], vec![])));
    let id = fixture.register("one");
    let lease = fixture.request_work(id).remove(0);
    let script = fixture.fail(id, lease.key, 7, Cause::ExitCode).remove(0);
    let report = SyncRequest {
        queued: vec![script.key],
        finished: vec![failure(lease.key, 7, Cause::ExitCode)],
        ..work_request(1, 8)
    };
    let answer = fixture.sync(id, report);
    assert_eq!((answer.refused, answer.leases), (vec![], vec![]));
    let next = fixture.succeed(id, script.key).remove(0);
    let answer = fixture
        .sync(id, SyncRequest { queued: vec![next.key], finished: vec![success(script.key)], ..sync_request(1) });
    assert_eq!(answer.refused, [script.key], "the job is beyond it");
    assert_eq!((fixture.harness.state_of("a"), fixture.harness.job("a").attempt), (JobState::Leased, 2));
}

#[test]
fn people_and_edits_end_the_wait() {
    let plan = plan(rule(vec![7], vec![]));
    type Operation = fn(&mut EngineHarness, &Plan);
    let operations: [(&str, Operation, JobState); 4] = [
        (
            "cancel",
            |harness, _| drop(harness.run(|engine, tx| engine.cancel(engine.find("default", "w").unwrap(), tx))),
            JobState::Canceled,
        ),
        (
            "retry",
            |harness, _| {
                let which = Retry::Jobs(vec!["a".to_owned()]);
                drop(harness.run(|engine, tx| engine.retry(engine.find("default", "w").unwrap(), &which, tx)));
            },
            JobState::Blocked,
        ),
        (
            "edit",
            |harness, plan| drop(harness.apply(&plan.clone().edit("a", |job| job.version += 1))),
            JobState::Blocked,
        ),
        (
            "edit of another",
            |harness, plan| drop(harness.apply(&plan.clone().edit("b", |job| job.version += 1))),
            JobState::Recovering,
        ),
    ];
    for (what, operation, state) in operations {
        let (mut fixture, id, script) = RecoveryFixture::recovering(&plan);
        operation(&mut fixture.harness, &plan);
        assert_eq!(fixture.harness.state_of("a"), state, "{what}");
        let answer = fixture.sync(id, SyncRequest { running: vec![running(script.key)], ..sync_request(1) });
        let ended = if state == JobState::Recovering { vec![] } else { vec![script.key] };
        assert_eq!(answer.cancel, ended, "{what}");
        if state == JobState::Blocked {
            assert_eq!(fixture.harness.job("a").attempt, 2, "the failed attempt has a result");
        }
    }
    let (mut fixture, id, script) = RecoveryFixture::recovering(&plan);
    let workflow = fixture.harness.workflow();
    fixture.harness.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    let answer = fixture.sync(id, SyncRequest { finished: vec![success(script.key)], ..sync_request(1) });
    assert_eq!(answer.refused, [script.key]);
    assert!(fixture.harness.database.recoveries.is_empty());
}

#[test]
fn only_as_many_scripts_at_once_as_jobs() {
    let jobs = (0..20).map(|n| {
        let mut job = job(&format!("j{n}")).needs(needs(1, 0, 1));
        job.handler = Some("h".to_owned());
        job
    });
    let handler = FailureHandler { name: "h".to_owned(), rules: vec![rule(vec![7], vec![])] };
    let mut fixture = RecoveryFixture::new(&Plan::new(jobs).with(|spec| spec.failure_handlers = vec![handler]));
    let id = fixture.register("one");
    let leases = fixture.sync(
        id,
        SyncRequest {
            want: torc_api::wire::WorkRequest { ahead: 20, bridge: 20, ..super::harness::want(20) },
            ..work_request(1, 1)
        },
    );
    assert_eq!(leases.leases.len(), 20);
    let finished = leases.leases.iter().map(|lease| failure(lease.key, 7, Cause::ExitCode)).collect();
    let scripts = fixture.sync(id, SyncRequest { finished, ..sync_request(1) }).leases;
    assert_eq!(scripts.len(), 8, "the runner has 8 CPUs");
    let done = SyncRequest {
        queued: scripts[1..].iter().map(|lease| lease.key).collect(),
        finished: vec![success(scripts[0].key)],
        ..sync_request(1)
    };
    assert_eq!(fixture.sync(id, done).leases.len(), 1);
}

/// The user retries or edits while the script runs. The job must wait for the end of the script.
#[test]
fn a_retried_job_waits_until_its_script_has_ended() {
    let again = |fixture: &mut RecoveryFixture, edited: bool| {
        let id = fixture.harness.workflow();
        match edited {
            true => drop(fixture.harness.apply(&plan(rule(vec![7], vec![])).edit("a", |job| job.version += 1))),
            false => {
                let jobs = Retry::Jobs(vec!["a".to_owned()]);
                fixture.harness.run(|engine, tx| engine.retry(id, &jobs, tx)).unwrap();
            }
        }
    };
    for edited in [false, true] {
        let (mut fixture, id, script) = RecoveryFixture::recovering(&plan(rule(vec![7], vec![])));
        fixture.sync(id, SyncRequest { running: vec![running(script.key)], ..sync_request(1) });
        let other = fixture.register("two");
        again(&mut fixture, edited);
        assert_eq!(fixture.harness.state_of("a"), JobState::Blocked);
        for _ in 0..2 {
            assert_eq!(fixture.request_work(other), [], "no runner starts it");
            let answer = fixture.sync(id, SyncRequest { running: vec![running(script.key)], ..work_request(1, 8) });
            assert_eq!((answer.cancel, answer.leases.len()), (vec![script.key], 0), "told in every answer");
            fixture.harness.restart();
        }
        let next = fixture.fail(id, script.key, 143, Cause::Canceled).remove(0);
        assert_eq!((next.name.as_str(), next.key.attempt, next.role), ("a", 2, LeaseRole::Job));
        assert_eq!(fixture.harness.results_of("a").len(), 1, "a script has no result");
        assert!(fixture.harness.database.detached_leases.is_empty());
    }
}

/// The runner that holds the script may also leave, fall silent, or no longer have it.
#[test]
fn a_script_that_no_runner_holds_is_not_waited_for() {
    for how in ["left", "gave back", "has it no more", "silent"] {
        let (mut fixture, id, script) = RecoveryFixture::recovering(&plan(rule(vec![7], vec![])));
        let workflow = fixture.harness.workflow();
        fixture.harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
        assert_eq!(fixture.harness.state_of("a"), JobState::Canceled);
        fixture.harness.run(|engine, tx| engine.resume(workflow, tx)).unwrap();
        assert_eq!(fixture.harness.state_of("a"), JobState::Blocked, "{how}");
        match how {
            "left" => drop(fixture.sync(id, SyncRequest { leaving: true, ..sync_request(1) })),
            "gave back" => drop(fixture.sync(id, SyncRequest { returned: vec![script.key], ..sync_request(1) })),
            "silent" => fixture.harness.silence(200_000),
            _ => drop(fixture.sync(id, sync_request(1))),
        }
        assert_eq!(fixture.harness.state_of("a"), JobState::Ready, "{how}");
        assert!(fixture.harness.database.detached_leases.is_empty(), "{how}");
    }
}
