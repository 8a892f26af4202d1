//! Reasons for a runner to leave or to stay.

use torc_api::wire::{RunnerPolicy, WorkRequest};

use super::*;

fn terms() -> RunnerPolicy {
    RunnerPolicy::default()
}

/// Answers without news until the runner leaves or the time is over. Returns that moment.
fn idle_until_leaving(agent: &mut AgentHarness, response: &SyncResponse, at_most: Duration) -> Option<Duration> {
    let before = agent.now;
    agent.respond(response.clone());
    while agent.now.since(before) <= at_most {
        if !agent.has_sync() {
            agent.until_due();
        } else if agent.sync().leaving {
            return Some(agent.now.since(before));
        } else {
            agent.respond(response.clone());
        }
    }
    None
}

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

// J25
#[test]
fn leaves_when_idle_for_as_long_as_it_is_told() {
    let observed = |wait_for_new_jobs_seconds| RunnerPolicy { wait_for_new_jobs_seconds, ..terms() };
    let cases = [
        (IdleExit::ByPolicy, terms(), false, seconds(90), "90 s unless the workflow says otherwise"),
        (IdleExit::ByPolicy, observed(7), false, seconds(7), "what the workflow says"),
        (IdleExit::ByPolicy, observed(0), false, seconds(0), "at once"),
        (IdleExit::After(Duration::from_secs(33)), observed(7), false, seconds(33), "what the command line says wins"),
        (IdleExit::Never, observed(7), false, None, "a foreground run waits for its workflow"),
        (IdleExit::ByPolicy, observed(7), true, None, "nor does one that is to stay"),
    ];
    for (idle_exit, terms, persistent, expected, why) in cases {
        let mut agent = AgentHarness::with(AgentSettings {
            user: RunnerSettings { persistent, ..user() },
            idle_exit,
            ..settings(1)
        });
        agent.answer([1]);
        agent.started(1).later(Duration::from_secs(39));
        assert!(!agent.sync().leaving, "one that works is not idle");
        agent.ended(1, 0);
        let response = SyncResponse { terms, ..SyncResponse::default() };
        assert_eq!(idle_until_leaving(&mut agent, &response, Duration::from_secs(400)), expected, "{why}");
    }
}

// J25
#[test]
fn stays_while_something_could_add_work() {
    let mut agent = AgentHarness::with(AgentSettings { idle_exit: IdleExit::ByPolicy, ..settings(1) });
    let pending = SyncResponse { capacity_expected: true, ..SyncResponse::default() };
    assert_eq!(idle_until_leaving(&mut agent, &pending, Duration::from_secs(600)), None);
    // The time has passed already, so the runner leaves when it can expect nothing more.
    agent.respond(SyncResponse::default());
    assert!(agent.sync().completing);
    agent.answer([]);
    assert!(agent.sync().leaving);
}

#[test]
fn idleness_is_not_counted_while_the_server_is_away() {
    let mut agent = AgentHarness::with(AgentSettings { idle_exit: IdleExit::ByPolicy, ..settings(1) });
    agent.answer([]);
    let before = agent.now;
    while agent.now.since(before) < Duration::from_secs(300) {
        if agent.has_sync() {
            agent.fail(LinkError::Unreachable("x".to_owned()));
        } else {
            agent.until_due();
        }
        assert!(agent.exit().is_none());
    }
}

// J15
#[test]
fn completion_can_be_ignored_but_not_cancellation() {
    let terms = RunnerPolicy { ignore_workflow_completion: true, ..terms() };
    let complete = SyncResponse { directive: RunnerDirective::Complete, terms, ..SyncResponse::default() };
    let mut agent = AgentHarness::new(1);
    assert_eq!(idle_until_leaving(&mut agent, &complete, Duration::from_secs(600)), None);
    let canceled = SyncResponse { directive: RunnerDirective::Canceled, ..complete.clone() };
    assert_eq!(idle_until_leaving(&mut agent, &canceled, Duration::from_secs(600)), seconds(0));
    agent.answer([]);
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Canceled)));
    let mut agent = AgentHarness::with(AgentSettings { idle_exit: IdleExit::ByPolicy, ..settings(1) });
    assert_eq!(idle_until_leaving(&mut agent, &complete, Duration::from_secs(600)), seconds(90), "idle it still is");
}

// J20
#[test]
fn no_job_is_leased_near_the_end_of_the_time_limit() {
    let began = BootInstant(1_000 * SECOND);
    let asks = |left: u64, max_parallel_jobs, terms: RunnerPolicy| {
        let time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(left)) });
        let mut agent = AgentHarness::with(AgentSettings {
            user: RunnerSettings { max_parallel_jobs, ..user() },
            time,
            ..settings(4)
        });
        agent.respond(SyncResponse { terms, ..SyncResponse::default() });
        while !agent.has_sync() {
            agent.until_due();
        }
        let late = agent.sync().completing;
        (agent.sync().want != WorkRequest::default(), late)
    };
    assert_eq!(asks(301, Some(2), terms()), (true, false));
    assert_eq!(asks(300, Some(2), terms()), (false, true), "the remaining time has to exceed the minimum");
    assert_eq!(asks(299, Some(2), terms()), (false, true), "and with nothing held it leaves");
    assert_eq!(asks(299, None, terms()), (true, false), "by resources the server looks at each job's runtime");
    let short = |seconds| RunnerPolicy { min_time_for_new_jobs_seconds: seconds, ..terms() };
    assert_eq!(asks(299, Some(2), short(10)), (true, false), "as the workflow says");
    assert_eq!(asks(299, Some(2), short(298)), (true, false), "as the workflow says");
    assert_eq!(asks(299, Some(2), short(299)), (false, true), "as the workflow says");
    assert_eq!(asks(299, None, short(299)), (true, false), "the minimum is for the queue strategy only");
}

// J20
#[test]
fn too_late_for_new_jobs_it_finishes_what_it_holds_and_says_why() {
    let began = BootInstant(1_000 * SECOND);
    let time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(310)) });
    let mut agent = AgentHarness::with(AgentSettings {
        user: RunnerSettings { max_parallel_jobs: Some(1), ..user() },
        time,
        ..settings(1)
    });
    agent.answer([1]);
    agent.started(1).later(Duration::from_secs(11));
    let observed = |effect: &Effect| matches!(effect, Effect::Log(RunnerEvent::Problem { message }) if message.contains("less than 300 s"));
    assert!(agent.effects.iter().any(observed), "{:?}", agent.effects);
    agent.answer([]).later(Duration::from_secs(1));
    assert!(!agent.effects.iter().any(observed), "once");
    agent.ended(1, 0);
    assert_eq!((agent.sync().finished.len(), agent.sync().want), (1, WorkRequest::default()));
    agent.answer([]);
    assert!(agent.sync().completing);
    agent.answer([]);
    assert!(agent.sync().leaving);
    agent.answer([]);
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Deadline)));
}

// J24
#[test]
fn the_end_of_its_time_comes_with_and_without_a_server() {
    for server in [true, false] {
        let began = BootInstant(1_000 * SECOND);
        let time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(600)) });
        let mut agent = AgentHarness::with(AgentSettings { time, ..settings(1) });
        agent.answer([1]);
        agent.started(1).later(Duration::from_millis(100));
        agent.answer([]);
        while agent.terminated().is_empty() {
            match agent.has_sync() {
                true if server => agent.answer([]),
                true => agent.fail(LinkError::Unreachable("x".to_owned())),
                false => agent.until_due(),
            };
        }
        assert_eq!(agent.now.since(began), Duration::from_secs(600 - 60 - 30), "{server}");
        assert_eq!(agent.terminated(), [(1, 15, 30_000)]);
    }
}

// J25. To the millisecond. A runner with unsent reports is not idle.
#[test]
fn idle_time_is_counted_to_the_millisecond() {
    let mut agent =
        AgentHarness::with(AgentSettings { idle_exit: IdleExit::After(Duration::from_secs(40)), ..settings(1) });
    agent.answer([1]);
    agent.started(1).later(Duration::from_secs(3));
    agent.answer([]);
    agent.ended(1, 0);
    let idle_since = agent.now;
    agent.later(Duration::from_millis(20)).answer([]);
    for (after, leaves) in [(39_999, false), (40_000, true)] {
        while agent.state.wake_at().is_some_and(|due| due < idle_since.plus(Duration::from_millis(after))) {
            agent.until_due();
            if agent.has_sync() {
                agent.answer([]);
            }
        }
        agent.now = idle_since.plus(Duration::from_millis(after));
        agent.handle(AgentEvent::Tick);
        assert_eq!(*agent.state.lifecycle.phase() != Phase::Serving, leaves, "{after} ms");
    }
}

// J25. An answer to a call from before the end of the last job does not make the runner idle.
#[test]
fn an_answer_has_to_be_newer_than_the_last_work() {
    let mut agent = AgentHarness::with(AgentSettings { idle_exit: IdleExit::After(Duration::ZERO), ..settings(1) });
    agent.answer([1]);
    agent.started(1).later(Duration::from_secs(3));
    agent.answer([]);
    agent.state.reports.clear();
    agent.later(Duration::from_millis(1));
    agent.ended(1, 0);
    agent.state.reports.clear();
    agent.handle(AgentEvent::Tick);
    assert_eq!(*agent.state.lifecycle.phase(), Phase::Serving, "the server has not been heard since");
    agent.answer([]);
    assert_ne!(*agent.state.lifecycle.phase(), Phase::Serving);
}

// J15. Results and returned leases are delivered before the runner leaves.
#[test]
fn it_does_not_leave_with_something_to_tell() {
    for what in ["result", "returned", "account", "job"] {
        let mut agent = AgentHarness::new(1);
        match what {
            "result" => drop(agent.handle(AgentEvent::Ended(Box::new(ended(9, Outcome::Exited(0), agent.now))))),
            "returned" => agent.state.reports.return_lease(key(9)),
            "account" => agent.state.sacct.add_unreported(key(9)),
            _ => drop(agent.handle(AgentEvent::Adopted(Box::new(shim_job(9, BootInstant::default()))))),
        }
        agent.state.session.set_settled(RunnerExit::Complete, agent.now);
        agent.handle(AgentEvent::Tick);
        assert_eq!(*agent.state.lifecycle.phase(), Phase::Serving, "{what}");
    }
    let mut agent = AgentHarness::new(1);
    agent.state.session.set_settled(RunnerExit::Complete, agent.now);
    agent.handle(AgentEvent::Tick);
    assert_ne!(*agent.state.lifecycle.phase(), Phase::Serving, "nothing keeps it");
}
