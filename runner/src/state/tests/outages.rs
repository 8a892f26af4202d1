//! Outages of the server: short, long, and final.

use torc_api::execution::ExecutionConfig;
use torc_api::wire::{RunnerPolicy, WorkRequest};

use super::*;

fn gone() -> LinkError {
    LinkError::Unreachable("connection refused".to_owned())
}

/// Returns a runner with one running job that the server knows, and one waiting job.
fn at_work(settings: AgentSettings) -> AgentHarness {
    let mut agent = AgentHarness::with(settings);
    agent.answer([1, 2]);
    agent.started(1).later(Duration::from_millis(100));
    agent.answer([]);
    agent.until_due();
    agent
}

/// Fails all calls until a moment. Returns their number.
fn fail_until(agent: &mut AgentHarness, end: BootInstant) -> usize {
    let mut calls = 0;
    loop {
        if agent.has_sync() {
            calls += 1;
            agent.fail(gone());
        }
        match agent.state.wake_at().filter(|due| *due <= end) {
            Some(_) => drop(agent.until_due()),
            None => break,
        }
    }
    agent.now = end;
    agent.handle(AgentEvent::Tick);
    calls
}

fn drain(agent: &mut AgentHarness) {
    for _ in 0..100_000 {
        if agent.state.session.is_draining() {
            return;
        }
        if agent.has_sync() {
            agent.fail(gone());
        } else {
            agent.until_due();
        }
    }
    panic!("it never drained: {:?}", agent.state);
}

fn logged(agent: &AgentHarness) -> Vec<RunnerEvent> {
    let observed = |effect: &Effect| match effect {
        Effect::Log(event) => Some(event.clone()),
        _ => None,
    };
    agent.effects.iter().filter_map(observed).collect()
}

fn journalled(agent: &AgentHarness) -> Vec<JournalledResult> {
    let written = |effect: &Effect| match effect {
        Effect::Journal(results) => Some(results.clone()),
        _ => None,
    };
    agent.effects.iter().filter_map(written).flatten().collect()
}

fn unjournalled(agent: &AgentHarness) -> Vec<i64> {
    let removed = |effect: &Effect| match effect {
        Effect::Unjournal(keys) => Some(keys.clone()),
        _ => None,
    };
    agent.effects.iter().filter_map(removed).flatten().map(|key| key.job).collect()
}

fn acknowledged(agent: &AgentHarness) -> Vec<i64> {
    let forgotten = |effect: &Effect| match effect {
        Effect::Acknowledge(keys) => Some(keys.clone()),
        _ => None,
    };
    agent.effects.iter().filter_map(forgotten).flatten().map(|key| key.job).collect()
}

// J31
#[test]
fn calls_are_repeated_for_the_window_and_then_it_drains() {
    let minutes = |minutes| SyncResponse {
        terms: RunnerPolicy { wait_for_healthy_database_minutes: minutes, ..RunnerPolicy::default() },
        ..SyncResponse::default()
    };
    let cases = [
        (None, None, 1_200, "20 minutes by default"),
        (Some(3), None, 180, "what the workflow says"),
        (Some(0), None, 0, "at the first failure"),
        (Some(3), Some(Duration::from_millis(1_500)), 1, "the runner's setting wins"),
    ];
    for (observed, retry_window, expected, why) in cases {
        let offline = RunnerSettings { server_retry_window: retry_window, ..user() };
        let mut agent = at_work(AgentSettings { user: offline, ..settings(1) });
        if let Some(observed) = observed {
            agent.respond(minutes(observed)).until_due();
        }
        let before = agent.now;
        drain(&mut agent);
        assert_eq!(agent.now.since(before).as_secs(), expected, "{why}");
        let draining = |event: &RunnerEvent| matches!(event, RunnerEvent::Draining { running: 1, .. });
        assert!(logged(&agent).iter().any(draining), "{why}: {:?}", agent.effects);
        assert!(agent.terminated().is_empty() && agent.exit().is_none(), "{why}: running jobs go on");
    }
}

/// In Torc 1.0 nothing was collected and no deadline was kept while calls were repeated.
// J16, J31, J39
#[test]
fn nothing_is_held_up_while_calls_are_repeated() {
    let mut agent = AgentHarness::new(2);
    agent.profile.runtime_seconds = 1;
    agent.profile.execution_config =
        Some(ExecutionConfig { enforce_runtime: Some(true), ..ExecutionConfig::default() });
    agent.answer([1, 2, 3]);
    agent.started(1).started(2).later(Duration::from_millis(100));
    agent.answer([]).until_due();
    agent.fail(gone());
    assert_eq!(agent.state.jobs.ledger().free().cpus, 0);
    agent.ended(1, 7);
    assert_eq!(agent.starts(), [3], "its place is free and taken by the next");
    agent.started(3).ended(3, 0);
    assert_eq!(agent.state.jobs.ledger().free().cpus, 1, "what it used is free");
    while agent.terminated().is_empty() {
        if agent.has_sync() {
            agent.fail(gone());
        } else {
            agent.until_due();
        }
    }
    assert_eq!(agent.terminated(), [(2, 15, 30_000)], "its time is over whether the server is there or not");
    assert_eq!(agent.state.reports.len(), 2, "results wait");
    assert!(!agent.state.session.is_draining());
}

// J30, J34
#[test]
fn the_server_is_called_every_two_minutes_whatever_else_happens() {
    let mut agent = at_work(AgentSettings {
        user: RunnerSettings { poll_interval: Duration::from_secs(5), ..user() },
        ..settings(1)
    });
    drain(&mut agent);
    let mut pings = Vec::new();
    let mut before = agent.now;
    for round in 0..4 {
        while !agent.has_sync() {
            agent.until_due();
        }
        pings.push(agent.now.since(before).as_secs());
        before = agent.now;
        assert_eq!((agent.sync().want, agent.sync().wait_ms), (WorkRequest::default(), 0), "no new work, no waiting");
        agent.fail(gone());
        if round == 1 {
            agent.ended(1, 0);
        }
    }
    assert_eq!(pings, [120, 120, 120, 120]);
}

// J32, J33, J16
#[test]
fn a_draining_runner_writes_results_to_the_journal() {
    let mut agent = at_work(settings(2));
    assert_eq!(agent.state.job_counts().0, 2);
    agent.started(2).later(Duration::from_millis(100));
    agent.answer([]).until_due();
    agent.ended(1, 3);
    assert_eq!(journalled(&agent), [], "not before it drains");
    drain(&mut agent);
    let results = journalled(&agent);
    assert_eq!(results.len(), 1, "what was not delivered is written at once");
    assert_eq!((results[0].name.as_str(), results[0].runner), ("job1", Some(5)));
    assert_eq!((results[0].finished.return_code, results[0].finished.cause), (3, Some(Cause::ExitCode)));
    assert_eq!(results[0].finished.ended_ms_ago / 1_000, 1_200, "its age becomes a time of day where it is written");
    assert_eq!(acknowledged(&agent), Vec::<i64>::new(), "it is not on the disk yet");
    agent.handle(AgentEvent::Journalled(vec![key(1)]));
    assert_eq!(acknowledged(&agent), [1]);
    agent.ended(2, 0);
    assert_eq!(journalled(&agent).len(), 1, "and each that ends from then on");
    assert_eq!(journalled(&agent)[0].finished.key, key(2));
}

// J12, J14, J18, J32
#[test]
fn drained_it_leaves_with_a_hint_and_stays_registered() {
    let mut agent = at_work(settings(1));
    drain(&mut agent);
    assert_eq!(agent.state.job_counts(), (1, 0), "the lease that waited has run out");
    agent.ended(1, 0);
    assert!(agent.exit().is_none(), "not before the result is safe");
    agent.handle(AgentEvent::Journalled(vec![key(1)]));
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Drained)));
    let hints = vec!["torc workflows reconcile 1 1 --base-dir /out".to_owned()];
    assert!(logged(&agent).contains(&RunnerEvent::LeftResults { journalled: 1, unwritten: 0, hints }));
    assert!(!agent.has_sync(), "no shutdown_grace: for the server it is still there");
}

// J18
#[test]
fn with_nothing_to_do_it_leaves_as_soon_as_it_drains() {
    let mut agent = AgentHarness::new(1);
    agent.answer([]).until_due();
    drain(&mut agent);
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Drained)));
    assert!(logged(&agent).contains(&RunnerEvent::LeftResults { journalled: 0, unwritten: 0, hints: Vec::new() }));
}

// J34
#[test]
fn the_server_comes_back_and_everything_goes_on() {
    let mut agent = at_work(settings(1));
    drain(&mut agent);
    let mut waited = 0;
    while !agent.has_sync() {
        agent.until_due();
        waited += 1;
    }
    assert!(waited > 0);
    agent.fail(gone());
    agent.handle(AgentEvent::Adopted(Box::new(shim_job(9, BootInstant::default()))));
    agent.ended(1, 0).handle(AgentEvent::Journalled(vec![key(1)]));
    while !agent.has_sync() {
        agent.until_due();
    }
    assert_eq!(agent.sync().finished.len(), 1, "the call that asks whether it is back brings the results");
    agent.answer([]);
    assert!(logged(&agent).contains(&RunnerEvent::Resumed { results: 1 }));
    assert_eq!(unjournalled(&agent), [1]);
    assert_eq!(acknowledged(&agent), [1]);
    assert!(agent.sync().want.limit > 0 && agent.sync().wait_ms > 0, "it asks for work again, at once");
    agent.answer([3]);
    assert_eq!(agent.starts(), [3]);
    assert!(agent.state.reports.is_empty());
}

// J34
#[test]
fn a_server_that_forgot_the_runner_gets_everything_again() {
    let mut agent = at_work(settings(1));
    drain(&mut agent);
    agent.handle(AgentEvent::Adopted(Box::new(shim_job(9, BootInstant::default()))));
    agent.ended(1, 0).handle(AgentEvent::Journalled(vec![key(1)]));
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.fail(LinkError::Unknown);
    assert!(agent.effects.iter().any(|effect| matches!(effect, Effect::Register)), "at once: {:?}", agent.effects);
    agent.handle(AgentEvent::Registered(RegisterResponse { runner: 6, version: String::new(), lease_ms: 120_000 }));
    assert!(logged(&agent).contains(&RunnerEvent::Resumed { results: 1 }));
    while !agent.has_sync() {
        agent.until_due();
    }
    assert_eq!((agent.sync().finished.len(), agent.sync().running.len()), (1, 1));
}

#[test]
fn a_result_delivered_during_its_write_leaves_the_journal() {
    let mut agent = at_work(settings(1));
    drain(&mut agent);
    agent.handle(AgentEvent::Adopted(Box::new(shim_job(9, BootInstant::default()))));
    agent.ended(1, 0);
    assert_eq!(journalled(&agent).len(), 1);
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.answer([]);
    assert_eq!(unjournalled(&agent), Vec::<i64>::new());
    agent.handle(AgentEvent::Journalled(vec![key(1)]));
    assert_eq!(unjournalled(&agent), [1]);
}

#[test]
fn a_full_disk_loses_nothing() {
    let mut agent = at_work(settings(1));
    drain(&mut agent);
    agent.ended(1, 0);
    let mut observed = 0;
    for _ in 0..5 {
        assert_eq!(journalled(&agent).len(), 1, "tried again");
        agent.handle(AgentEvent::NotJournalled("no space left on device".to_owned()));
        observed += logged(&agent).len();
        assert!(acknowledged(&agent).is_empty(), "the shim holds it");
        assert!(journalled(&agent).is_empty(), "not in a loop");
        while journalled(&agent).is_empty() {
            if agent.has_sync() {
                agent.fail(gone());
            } else {
                agent.until_due();
            }
            assert!(agent.exit().is_none(), "it does not leave with a result that is nowhere");
        }
    }
    assert_eq!(observed, 1, "a person is observed once");
    agent.handle(AgentEvent::Journalled(vec![key(1)]));
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Drained)));
}

// J35
#[test]
fn draining_can_be_switched_off() {
    let offline = RunnerSettings { offline_drain: false, ..user() };
    let mut agent = at_work(AgentSettings { user: offline, ..settings(1) });
    let before = agent.now;
    fail_until(&mut agent, before.plus(Duration::from_secs(1_199)));
    assert!(agent.terminated().is_empty());
    while agent.terminated().is_empty() {
        if agent.has_sync() {
            agent.fail(gone());
        } else {
            agent.until_due();
        }
    }
    assert_eq!(agent.now.since(before), Duration::from_secs(1_200));
    assert_eq!(agent.terminated(), [(1, 15, 30_000)]);
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(15), agent.now))));
    assert_eq!(agent.exit(), Some(Err(gone())));
    assert!(journalled(&agent).is_empty() && acknowledged(&agent).is_empty(), "the result stays with the shim");
}

// J23
#[test]
fn a_draining_runner_stops_without_waiting_for_the_server() {
    let mut agent = at_work(settings(1));
    drain(&mut agent);
    agent.handle(AgentEvent::Stop);
    assert_eq!(agent.terminated(), [(1, 15, 30_000)]);
    let before = agent.now;
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(15), agent.now))));
    assert_eq!(journalled(&agent)[0].finished.cause, Some(Cause::Stopped));
    agent.handle(AgentEvent::Journalled(vec![key(1)]));
    assert_eq!((agent.exit(), agent.now), (Some(Ok(RunnerExit::Stopped)), before));
}

#[test]
fn a_runner_stopped_in_an_outage_journals_its_results() {
    let mut agent = at_work(settings(1));
    agent.fail(gone());
    agent.handle(AgentEvent::Stop);
    let before = agent.now;
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(15), agent.now))));
    assert_eq!(journalled(&agent).len(), 1);
    agent.handle(AgentEvent::Journalled(vec![key(1)]));
    while agent.exit().is_none() {
        if agent.has_sync() {
            agent.fail(gone());
        } else {
            agent.until_due();
        }
    }
    assert_eq!(agent.now.since(before), Duration::from_secs(15), "the server had its chance");
    assert!(logged(&agent).iter().any(|event| matches!(event, RunnerEvent::LeftResults { journalled: 1, .. })));
}

#[test]
fn what_a_predecessor_wrote_down_is_delivered_first() {
    let now = BootInstant(50 * SECOND);
    let mut agent = AgentHarness::unregistered(settings(1), now);
    let finished = torc_api::wire::FinishedAttempt { key: key(7), return_code: 4, ..Default::default() };
    let result = JournalledResult { name: "job7".to_owned(), finished, ..JournalledResult::default() };
    // It ended a day ago, long before the start of this machine.
    agent.handle(AgentEvent::Recovered(vec![(result, Duration::from_secs(86_400))]));
    // The shim has the result, too.
    agent.handle(AgentEvent::Ended(Box::new(ended(7, Outcome::Exited(4), now))));
    agent.handle(AgentEvent::Registered(RegisterResponse { runner: 5, version: String::new(), lease_ms: 120_000 }));
    while !agent.has_sync() {
        agent.until_due();
    }
    let observed = agent.sync().finished.clone();
    assert_eq!((observed.len(), observed[0].return_code), (1, 4), "once");
    assert!(observed[0].ended_ms_ago >= 86_400_000, "{}", observed[0].ended_ms_ago);
    agent.answer([]);
    assert_eq!((unjournalled(&agent), acknowledged(&agent)), (vec![7], vec![7]));
}

#[test]
fn one_that_is_to_stay_waits_for_the_server_for_ever() {
    let mut agent =
        AgentHarness::with(AgentSettings { user: RunnerSettings { persistent: true, ..user() }, ..settings(1) });
    agent.answer([]).until_due();
    drain(&mut agent);
    let end = agent.now.plus(Duration::from_secs(86_400));
    assert_eq!(fail_until(&mut agent, end), 720, "a call every two minutes");
    assert!(agent.exit().is_none());
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.answer([]);
    assert!(agent.sync().want.limit > 0);
}
