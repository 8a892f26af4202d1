//! Recovery scripts: the failed job waits for its script, and for nothing else.

use torc_api::failure::{FailureHandler, FailureRule};
use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, Lease, LeaseRole, SyncRequest, SyncResponse};

use super::plan::{Plan, job, needs};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::engine::Retry;
use crate::ids::RunnerId;

struct Lab {
    world: World,
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

impl Lab {
    fn new(plan: &Plan) -> Self {
        Self { world: World::with(plan), sequences: std::collections::HashMap::new() }
    }

    fn hire(&mut self, host: &str) -> RunnerId {
        self.world.register(&runner(host))
    }

    fn say(&mut self, id: RunnerId, request: SyncRequest) -> SyncResponse {
        let sequence = self.sequences.entry(id).or_default();
        *sequence += 1;
        let request = SyncRequest { sequence: *sequence, acknowledged: *sequence - 1, ..request };
        self.world.sync(id, &request)
    }

    fn ask(&mut self, id: RunnerId) -> Vec<Lease> {
        self.say(id, ask(1, 8)).leases
    }

    fn fail(&mut self, id: RunnerId, key: AttemptKey, code: i32, cause: Cause) -> Vec<Lease> {
        self.say(id, SyncRequest { finished: vec![failure(key, code, cause)], ..ask(1, 8) }).leases
    }

    fn succeed(&mut self, id: RunnerId, key: AttemptKey) -> Vec<Lease> {
        self.say(id, SyncRequest { finished: vec![success(key)], ..ask(1, 8) }).leases
    }

    /// A job has failed, and its script is in the hands of the runner that ran it.
    fn recovering(plan: &Plan) -> (Self, RunnerId, Lease) {
        let mut lab = Self::new(plan);
        let id = lab.hire("one");
        let lease = lab.ask(id).remove(0);
        let script = lab.fail(id, lease.key, 7, Cause::ExitCode).remove(0);
        (lab, id, script)
    }
}

#[test]
fn the_next_attempt_waits_for_its_recovery_script() {
    let mut lab = Lab::new(&plan(rule(vec![7], vec![])));
    let (one, two) = (lab.hire("one"), lab.hire("two"));
    let lease = lab.ask(one).remove(0);
    let answer = lab.say(one, SyncRequest { finished: vec![failure(lease.key, 7, Cause::ExitCode)], ..ask(1, 8) });
    let script = &answer.leases[0];
    assert_eq!((script.role, script.command.as_str(), script.name.as_str()), (LeaseRole::Recovery, "mend", "a"));
    assert_eq!((script.key.attempt, script.key.run), (1, 1));
    assert_ne!(script.key.lease_id, lease.key.lease_id);
    assert_eq!(script.env["TORC_RETURN_CODE"], "7");
    let profile = &answer.profiles[script.profile as usize];
    assert_eq!((profile.resources.gpus, profile.resources.cpus), (0, 0), "it takes no resources");
    assert_eq!(lab.world.state_of("a"), JobState::Recovering);
    assert_eq!(lab.ask(two), [], "another runner cannot start the job first");
    let result = lab.world.results_of("a")[0].clone();
    assert_eq!((result.attempt, result.return_code, result.state), (1, 7, JobState::Failed), "its result is written");
    let next = lab.succeed(one, script.key).remove(0);
    assert_eq!((next.key.attempt, next.role), (2, LeaseRole::Job));
    assert_eq!(lab.world.reasons().iter().filter(|reason| **reason == "JobRecovered").count(), 1);
    lab.succeed(one, next.key);
    assert_eq!(lab.world.results_of("a").len(), 2, "a row for each attempt");
    assert!(lab.world.database.recoveries.is_empty());
}

#[test]
fn rules_match_by_code_and_by_cause_and_attempts_are_counted() {
    for rule in [rule(vec![7], vec![]), rule(vec![], vec![Cause::OutOfMemory])] {
        let (code, cause) = if rule.causes.is_empty() { (7, Cause::ExitCode) } else { (137, Cause::OutOfMemory) };
        let mut lab = Lab::new(&plan(FailureRule { max_retries: Some(2), ..rule }));
        let id = lab.hire("one");
        let mut lease = lab.ask(id).remove(0);
        for _ in 0..2 {
            let script = lab.fail(id, lease.key, code, cause).remove(0);
            assert_eq!(script.role, LeaseRole::Recovery);
            lab.world.restart();
            lease = lab.succeed(id, script.key).remove(0);
        }
        assert_eq!(lab.fail(id, lease.key, code, cause), []);
        assert_eq!(lab.world.states(&["a", "b"]), [JobState::Failed, JobState::Canceled], "{cause}");
        assert_eq!(lab.world.results_of("a").len(), 3);
    }
}

#[test]
fn a_script_that_fails_settles_the_job() {
    for (cause, state) in [(Cause::ExitCode, JobState::Failed), (Cause::Timeout, JobState::Terminated)] {
        let mut lab = Lab::new(&plan(rule(vec![7], vec![])));
        let id = lab.hire("one");
        let lease = lab.ask(id).remove(0);
        let script = lab.fail(id, lease.key, 7, cause).remove(0);
        assert_eq!(lab.fail(id, script.key, 5, Cause::ExitCode), []);
        assert_eq!(lab.world.states(&["a", "b"]), [state, JobState::Canceled]);
        let event = lab.world.database.events.iter().find(|event| event.reason == "RecoveryFailed").unwrap();
        assert_eq!(event.message, "the recovery script of job 'a' ended with exit code 5 after attempt 1");
        assert_eq!(lab.world.results_of("a").len(), 1, "a script has no result of its own");
    }
}

#[test]
fn a_script_prefers_the_runner_of_the_attempt() {
    let mut lab = Lab::new(&plan(rule(vec![7], vec![])));
    let (one, two) = (lab.hire("one"), lab.hire("two"));
    let key = lab.ask(one).remove(0).key;
    // It is about to stop and takes nothing more, so that the script waits.
    let report = SyncRequest { finished: vec![failure(key, 7, Cause::ExitCode)], stopping: true, ..say(1) };
    assert_eq!(lab.say(one, report).leases, []);
    assert_eq!(lab.ask(two), [], "its runner is still there");
    let mut small = runner("small");
    small.capacity.gpus = 0;
    let small = lab.world.register(&small);
    lab.say(one, SyncRequest { leaving: true, ..say(1) });
    assert_eq!(lab.ask(small), [], "the job would not fit there");
    assert_eq!(lab.ask(two)[0].role, LeaseRole::Recovery);
}

#[test]
fn lost_scripts_are_given_out_again_but_not_for_ever() {
    let (mut lab, one, mut script) = Lab::recovering(&plan(rule(vec![7], vec![])));
    for round in 0..3 {
        assert_eq!(lab.world.state_of("a"), JobState::Recovering, "{round}");
        lab.say(one, SyncRequest { running: vec![running(script.key)], ..say(1) });
        // It no longer runs, and its outcome is unknown.
        let answer = lab.ask(one);
        if round < 2 {
            script = answer[0].clone();
            assert_eq!(script.role, LeaseRole::Recovery);
        }
    }
    assert_eq!(lab.world.state_of("a"), JobState::Failed);
    assert!(lab.world.reasons().contains(&"RecoveryFailed"));
}

#[test]
fn a_report_whose_answer_was_lost_changes_nothing_twice() {
    let mut lab = Lab::new(&plan(rule(vec![7], vec![])));
    let id = lab.hire("one");
    let lease = lab.ask(id).remove(0);
    let script = lab.fail(id, lease.key, 7, Cause::ExitCode).remove(0);
    let report =
        SyncRequest { queued: vec![script.key], finished: vec![failure(lease.key, 7, Cause::ExitCode)], ..ask(1, 8) };
    let answer = lab.say(id, report);
    assert_eq!((answer.refused, answer.leases), (vec![], vec![]));
    let next = lab.succeed(id, script.key).remove(0);
    let answer = lab.say(id, SyncRequest { queued: vec![next.key], finished: vec![success(script.key)], ..say(1) });
    assert_eq!(answer.refused, [script.key], "the job is beyond it");
    assert_eq!((lab.world.state_of("a"), lab.world.job("a").attempt), (JobState::Leased, 2));
}

#[test]
fn people_and_edits_end_the_wait() {
    let plan = plan(rule(vec![7], vec![]));
    type Operation = fn(&mut World, &Plan);
    let operations: [(&str, Operation, JobState); 4] = [
        (
            "cancel",
            |world, _| drop(world.run(|engine, tx| engine.cancel(engine.find("default", "w").unwrap(), tx))),
            JobState::Canceled,
        ),
        (
            "retry",
            |world, _| {
                let which = Retry::Jobs(vec!["a".to_owned()]);
                drop(world.run(|engine, tx| engine.retry(engine.find("default", "w").unwrap(), &which, tx)));
            },
            JobState::Blocked,
        ),
        ("edit", |world, plan| drop(world.apply(&plan.clone().edit("a", |job| job.version += 1))), JobState::Blocked),
        (
            "edit of another",
            |world, plan| drop(world.apply(&plan.clone().edit("b", |job| job.version += 1))),
            JobState::Recovering,
        ),
    ];
    for (what, operation, state) in operations {
        let (mut lab, id, script) = Lab::recovering(&plan);
        operation(&mut lab.world, &plan);
        assert_eq!(lab.world.state_of("a"), state, "{what}");
        let answer = lab.say(id, SyncRequest { running: vec![running(script.key)], ..say(1) });
        let ended = if state == JobState::Recovering { vec![] } else { vec![script.key] };
        assert_eq!(answer.cancel, ended, "{what}");
        if state == JobState::Blocked {
            assert_eq!(lab.world.job("a").attempt, 2, "the failed attempt has a result");
        }
    }
    let (mut lab, id, script) = Lab::recovering(&plan);
    let workflow = lab.world.workflow();
    lab.world.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    let answer = lab.say(id, SyncRequest { finished: vec![success(script.key)], ..say(1) });
    assert_eq!(answer.refused, [script.key]);
    assert!(lab.world.database.recoveries.is_empty());
}

#[test]
fn only_as_many_scripts_at_once_as_jobs() {
    let jobs = (0..20).map(|n| {
        let mut job = job(&format!("j{n}")).needs(needs(1, 0, 1));
        job.handler = Some("h".to_owned());
        job
    });
    let handler = FailureHandler { name: "h".to_owned(), rules: vec![rule(vec![7], vec![])] };
    let mut lab = Lab::new(&Plan::new(jobs).with(|spec| spec.failure_handlers = vec![handler]));
    let id = lab.hire("one");
    let leases = lab.say(
        id,
        SyncRequest {
            want: torc_api::wire::WorkRequest { ahead: 20, bridge: 20, ..super::world::want(20) },
            ..ask(1, 1)
        },
    );
    assert_eq!(leases.leases.len(), 20);
    let finished = leases.leases.iter().map(|lease| failure(lease.key, 7, Cause::ExitCode)).collect();
    let scripts = lab.say(id, SyncRequest { finished, ..say(1) }).leases;
    assert_eq!(scripts.len(), 8, "the runner has 8 CPUs");
    let done = SyncRequest {
        queued: scripts[1..].iter().map(|lease| lease.key).collect(),
        finished: vec![success(scripts[0].key)],
        ..say(1)
    };
    assert_eq!(lab.say(id, done).leases.len(), 1);
}

/// The user retries or edits while the script runs. The job must wait for the end of the script.
#[test]
fn a_retried_job_waits_until_its_script_has_ended() {
    let again = |lab: &mut Lab, edited: bool| {
        let id = lab.world.workflow();
        match edited {
            true => drop(lab.world.apply(&plan(rule(vec![7], vec![])).edit("a", |job| job.version += 1))),
            false => {
                let jobs = Retry::Jobs(vec!["a".to_owned()]);
                lab.world.run(|engine, tx| engine.retry(id, &jobs, tx)).unwrap();
            }
        }
    };
    for edited in [false, true] {
        let (mut lab, id, script) = Lab::recovering(&plan(rule(vec![7], vec![])));
        lab.say(id, SyncRequest { running: vec![running(script.key)], ..say(1) });
        let other = lab.hire("two");
        again(&mut lab, edited);
        assert_eq!(lab.world.state_of("a"), JobState::Blocked);
        for _ in 0..2 {
            assert_eq!(lab.ask(other), [], "no runner starts it");
            let answer = lab.say(id, SyncRequest { running: vec![running(script.key)], ..ask(1, 8) });
            assert_eq!((answer.cancel, answer.leases.len()), (vec![script.key], 0), "told in every answer");
            lab.world.restart();
        }
        let next = lab.fail(id, script.key, 143, Cause::Canceled).remove(0);
        assert_eq!((next.name.as_str(), next.key.attempt, next.role), ("a", 2, LeaseRole::Job));
        assert_eq!(lab.world.results_of("a").len(), 1, "a script has no result");
        assert!(lab.world.database.detached_leases.is_empty());
    }
}

/// The runner that has the script may also leave, fall silent, or not have it any more.
#[test]
fn a_script_that_no_runner_holds_is_not_waited_for() {
    for how in ["left", "gave back", "has it no more", "silent"] {
        let (mut lab, id, script) = Lab::recovering(&plan(rule(vec![7], vec![])));
        let workflow = lab.world.workflow();
        lab.world.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
        assert_eq!(lab.world.state_of("a"), JobState::Canceled);
        lab.world.run(|engine, tx| engine.resume(workflow, tx)).unwrap();
        assert_eq!(lab.world.state_of("a"), JobState::Blocked, "{how}");
        match how {
            "left" => drop(lab.say(id, SyncRequest { leaving: true, ..say(1) })),
            "gave back" => drop(lab.say(id, SyncRequest { returned: vec![script.key], ..say(1) })),
            "silent" => lab.world.silence(200_000),
            _ => drop(lab.say(id, say(1))),
        }
        assert_eq!(lab.world.state_of("a"), JobState::Ready, "{how}");
        assert!(lab.world.database.detached_leases.is_empty(), "{how}");
    }
}
