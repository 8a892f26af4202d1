//! When a runner leaves, and when it stays.

use torc_api::wire::{RunnerPolicy, WorkRequest};

use super::*;

fn terms() -> RunnerPolicy {
    RunnerPolicy::default()
}

/// Answers with nothing new until the runner leaves or the time is over; when that was.
fn idle_until_leaving(desk: &mut AgentHarness, response: &SyncResponse, at_most: Duration) -> Option<Duration> {
    let before = desk.now;
    desk.respond(response.clone());
    while desk.now.since(before) <= at_most {
        if !desk.has_sync() {
            desk.until_due();
        } else if desk.sync().leaving {
            return Some(desk.now.since(before));
        } else {
            desk.respond(response.clone());
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
    let told = |wait_for_new_jobs_seconds| RunnerPolicy { wait_for_new_jobs_seconds, ..terms() };
    let cases = [
        (IdleExit::AsTold, terms(), false, seconds(90), "90 s unless the workflow says otherwise"),
        (IdleExit::AsTold, told(7), false, seconds(7), "what the workflow says"),
        (IdleExit::AsTold, told(0), false, seconds(0), "at once"),
        (IdleExit::After(Duration::from_secs(33)), told(7), false, seconds(33), "what the command line says wins"),
        (IdleExit::Never, told(7), false, None, "a foreground run waits for its workflow"),
        (IdleExit::AsTold, told(7), true, None, "nor does one that is to stay"),
    ];
    for (idle_exit, terms, persistent, expected, why) in cases {
        let mut desk = AgentHarness::with(Settings { idle_exit, persistent, ..settings(1) });
        desk.answer([1]);
        desk.started(1).later(Duration::from_secs(39));
        assert!(!desk.sync().leaving, "one that works is not idle");
        desk.ended(1, 0);
        let response = SyncResponse { terms, ..SyncResponse::default() };
        assert_eq!(idle_until_leaving(&mut desk, &response, Duration::from_secs(400)), expected, "{why}");
    }
}

// J25
#[test]
fn stays_while_something_could_add_work() {
    let mut desk = AgentHarness::with(Settings { idle_exit: IdleExit::AsTold, ..settings(1) });
    let pending = SyncResponse { capacity_expected: true, ..SyncResponse::default() };
    assert_eq!(idle_until_leaving(&mut desk, &pending, Duration::from_secs(600)), None);
    // The time has passed already, so it leaves when there is nothing to hope for.
    desk.respond(SyncResponse::default());
    assert!(desk.sync().completing);
    desk.answer([]);
    assert!(desk.sync().leaving);
}

#[test]
fn idleness_is_not_counted_while_the_server_is_away() {
    let mut desk = AgentHarness::with(Settings { idle_exit: IdleExit::AsTold, ..settings(1) });
    desk.answer([]);
    let before = desk.now;
    while desk.now.since(before) < Duration::from_secs(300) {
        if desk.has_sync() {
            desk.fail(LinkError::Unreachable("x".to_owned()));
        } else {
            desk.until_due();
        }
        assert!(desk.exit().is_none());
    }
}

// J15
#[test]
fn completion_can_be_ignored_but_not_cancellation() {
    let terms = RunnerPolicy { ignore_workflow_completion: true, ..terms() };
    let complete = SyncResponse { verdict: RunnerDirective::Complete, terms, ..SyncResponse::default() };
    let mut desk = AgentHarness::new(1);
    assert_eq!(idle_until_leaving(&mut desk, &complete, Duration::from_secs(600)), None);
    let canceled = SyncResponse { verdict: RunnerDirective::Canceled, ..complete.clone() };
    assert_eq!(idle_until_leaving(&mut desk, &canceled, Duration::from_secs(600)), seconds(0));
    desk.answer([]);
    assert_eq!(desk.exit(), Some(Ok(RunnerExit::Canceled)));
    let mut desk = AgentHarness::with(Settings { idle_exit: IdleExit::AsTold, ..settings(1) });
    assert_eq!(idle_until_leaving(&mut desk, &complete, Duration::from_secs(600)), seconds(90), "idle it still is");
}

// J20
#[test]
fn no_job_is_leased_near_the_end_of_the_time_limit() {
    let began = BootInstant(1_000 * SECOND);
    let asks = |left: u64, max_parallel_jobs, terms: RunnerPolicy| {
        let time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(left)) });
        let mut desk = AgentHarness::with(Settings { max_parallel_jobs, time, ..settings(4) });
        desk.respond(SyncResponse { terms, ..SyncResponse::default() });
        while !desk.has_sync() {
            desk.until_due();
        }
        let late = desk.sync().completing;
        (desk.sync().want != WorkRequest::default(), late)
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
    let mut desk = AgentHarness::with(Settings { max_parallel_jobs: Some(1), time, ..settings(1) });
    desk.answer([1]);
    desk.started(1).later(Duration::from_secs(11));
    let told = |effect: &Effect| matches!(effect, Effect::Log(RunnerEvent::Problem { message }) if message.contains("less than 300 s"));
    assert!(desk.effects.iter().any(told), "{:?}", desk.effects);
    desk.answer([]).later(Duration::from_secs(1));
    assert!(!desk.effects.iter().any(told), "once");
    desk.ended(1, 0);
    assert_eq!((desk.sync().finished.len(), desk.sync().want), (1, WorkRequest::default()));
    desk.answer([]);
    assert!(desk.sync().completing);
    desk.answer([]);
    assert!(desk.sync().leaving);
    desk.answer([]);
    assert_eq!(desk.exit(), Some(Ok(RunnerExit::Deadline)));
}

// J24
#[test]
fn the_end_of_its_time_comes_with_and_without_a_server() {
    for server in [true, false] {
        let began = BootInstant(1_000 * SECOND);
        let time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(600)) });
        let mut desk = AgentHarness::with(Settings { time, ..settings(1) });
        desk.answer([1]);
        desk.started(1).later(Duration::from_millis(100));
        desk.answer([]);
        while desk.terminated().is_empty() {
            match desk.has_sync() {
                true if server => desk.answer([]),
                true => desk.fail(LinkError::Unreachable("x".to_owned())),
                false => desk.until_due(),
            };
        }
        assert_eq!(desk.now.since(began), Duration::from_secs(600 - 60 - 30), "{server}");
        assert_eq!(desk.terminated(), [(1, 15, 30_000)]);
    }
}

// J25. To the millisecond; what it still has to tell keeps it from being idle.
#[test]
fn idle_time_is_counted_to_the_millisecond() {
    let mut desk = AgentHarness::with(Settings { idle_exit: IdleExit::After(Duration::from_secs(40)), ..settings(1) });
    desk.answer([1]);
    desk.started(1).later(Duration::from_secs(3));
    desk.answer([]);
    desk.ended(1, 0);
    let idle_since = desk.now;
    desk.later(Duration::from_millis(20)).answer([]);
    for (after, leaves) in [(39_999, false), (40_000, true)] {
        while desk.state.wake_at().is_some_and(|due| due < idle_since.plus(Duration::from_millis(after))) {
            desk.until_due();
            if desk.has_sync() {
                desk.answer([]);
            }
        }
        desk.now = idle_since.plus(Duration::from_millis(after));
        desk.handle(Event::Tick);
        assert_eq!(*desk.state.lifecycle.phase() != Phase::Serving, leaves, "{after} ms");
    }
}

// J25. An answer from before the last job ended says nothing about what there is to do now.
#[test]
fn an_answer_has_to_be_newer_than_the_last_work() {
    let mut desk = AgentHarness::with(Settings { idle_exit: IdleExit::After(Duration::ZERO), ..settings(1) });
    desk.answer([1]);
    desk.started(1).later(Duration::from_secs(3));
    desk.answer([]);
    desk.state.reports.clear();
    desk.later(Duration::from_millis(1));
    desk.ended(1, 0);
    desk.state.reports.clear();
    desk.handle(Event::Tick);
    assert_eq!(*desk.state.lifecycle.phase(), Phase::Serving, "the server has not been heard since");
    desk.answer([]);
    assert_ne!(*desk.state.lifecycle.phase(), Phase::Serving);
}

// J15. Results and returned leases are told before it leaves.
#[test]
fn it_does_not_leave_with_something_to_tell() {
    for what in ["result", "returned", "account", "job"] {
        let mut desk = AgentHarness::new(1);
        match what {
            "result" => drop(desk.handle(Event::Ended(Box::new(ended(9, Outcome::Exited(0), desk.now))))),
            "returned" => desk.state.reports.give_back(key(9)),
            "account" => desk.state.sacct.add_news(key(9)),
            _ => drop(desk.handle(Event::Adopted(Box::new(shim_job(9, BootInstant::default()))))),
        }
        desk.state.session.set_settled(RunnerExit::Complete, desk.now);
        desk.handle(Event::Tick);
        assert_eq!(*desk.state.lifecycle.phase(), Phase::Serving, "{what}");
    }
    let mut desk = AgentHarness::new(1);
    desk.state.session.set_settled(RunnerExit::Complete, desk.now);
    desk.handle(Event::Tick);
    assert_ne!(*desk.state.lifecycle.phase(), Phase::Serving, "nothing keeps it");
}
