//! Contents of sync requests, and effects of their answers.

use torc_api::wire::{RunnerPolicy, RunningAttempt};

use super::*;

fn response(lease_ms: u64) -> RegisterResponse {
    RegisterResponse { runner: 31, version: "v".to_owned(), lease_ms }
}

#[test]
fn a_sync_says_everything_that_is() {
    let began = BootInstant(1_000 * SECOND);
    let mut settings = settings(2);
    settings.shim_found = true;
    settings.time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(5_000)) });
    settings.prefetch.lease_seconds = Some(77);
    let mut agent = AgentHarness::with(settings);
    assert_eq!((agent.sync().sequence, agent.sync().acknowledged), (1, 0), "nothing was heard yet");
    agent.answer([1, 2, 3, 4]);
    agent.handle(AgentEvent::Started(key(1), agent.now.minus(Duration::from_millis(1_234)), 100));
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Exited(3), agent.now))));
    assert_eq!(agent.starts(), [3]);
    agent.handle(AgentEvent::Started(key(2), agent.now, 100));
    agent.now = agent.now.plus(Duration::from_millis(450));
    agent.handle(AgentEvent::Tick);
    let sync = agent.sync().clone();
    assert_eq!((sync.sequence, sync.acknowledged, sync.shim_found), (3, 1, true));
    assert_eq!(sync.queued, [key(4)], "what waits");
    let running = [RunningAttempt { key: key(2), elapsed_ms: 450 }, RunningAttempt { key: key(3), elapsed_ms: 0 }];
    assert_eq!(sync.running, running, "what runs, and what is about to");
    let observed: Vec<_> = sync.finished.iter().map(|one| (one.key, one.return_code, one.duration_ms)).collect();
    assert_eq!(observed, [(key(1), 3, 1_000)]);
    assert_eq!(sync.finished[0].ended_ms_ago, 450);
    assert_eq!((sync.remaining_ms, sync.lease_seconds), (Some(4_999_550), Some(77)));
    assert_eq!((sync.stopping, sync.completing, sync.leaving), (false, false, false));
    assert!(matches!(agent.effects.iter().find(|one| matches!(one, Effect::Sync(..))), Some(Effect::Sync(5, _))));
    // The request is repeated until it is answered.
    agent.respond(SyncResponse { give_back: vec![key(4)], ..SyncResponse::default() });
    assert_eq!(agent.state.reports.len(), 0);
    agent.later(Duration::from_millis(100));
    let sync = agent.sync();
    assert_eq!((sync.sequence, sync.acknowledged), (4, 3));
    assert_eq!((sync.finished.len(), sync.returned.clone()), (0, vec![key(4)]));
    agent.answer([]);
    agent.later(Duration::from_secs(60));
    assert_eq!(agent.sync().returned, [], "it was delivered");
}

// J24
#[test]
fn a_call_waits_no_longer_than_the_lease_and_the_time_allow() {
    let began = BootInstant(1_000 * SECOND);
    // Lease time, remaining time, and the longest wait of the server.
    let cases = [
        (120, None, 30_000, "as long as servers wait"),
        (90, None, 30_000, "a third of the lease"),
        (60, None, 20_000, "a third of the lease"),
        (3_600, Some(31), 30_000, "as long as servers wait"),
        (3_600, Some(29), 29_000, "the end of its time"),
    ];
    for (lease, left, expected, why) in cases {
        let time = left.map(|left| TimeSpan {
            began: began.minus(Duration::from_secs(9_000)),
            end: began.plus(Duration::from_secs(left)),
        });
        let mut agent = AgentHarness::with(AgentSettings { time: None, ..settings(1) });
        agent.state.deadlines.set_time(time);
        agent.state.settings.idle_exit = IdleExit::Never;
        agent.state.lifecycle.set_phase(Phase::Serving);
        let sequence = agent.state.session.sequence();
        let answer = SyncResponse { sequence, lease_ms: lease * 1_000, ..SyncResponse::default() };
        agent.state.answered(answer, began, &mut Vec::new());
        assert_eq!(agent.state.request(began).wait_ms, expected, "{why}");
    }
}

// P08. A lease counts from the call, because the answer may arrive late.
#[test]
fn a_lease_counts_from_the_call_that_renewed_it() {
    let mut agent = AgentHarness::new(1);
    let sent = agent.now;
    agent.now = agent.now.plus(Duration::from_secs(50));
    let sequence = agent.state.session.sequence();
    let answer = |lease_ms| SyncResponse { sequence, lease_ms, ..SyncResponse::default() };
    agent.handle(AgentEvent::Answered(Box::new(answer(300_000))));
    assert_eq!(agent.state.session.lease_until(), sent.plus(Duration::from_secs(300)));
    // A shorter lease does not revoke time that was granted, and a missing lease time changes nothing.
    for lease_ms in [0, 60_000] {
        while !agent.has_sync() {
            agent.until_due();
        }
        let sequence = agent.state.session.sequence();
        agent.handle(AgentEvent::Answered(Box::new(SyncResponse { sequence, lease_ms, ..SyncResponse::default() })));
        assert!(agent.state.session.lease_until() >= sent.plus(Duration::from_secs(300)), "{lease_ms}");
    }
}

#[test]
fn registering_gives_a_lease_time_of_at_least_a_second() {
    for (lease_ms, expected) in [(0, 1_000), (999, 1_000), (1_001, 1_001), (45_000, 45_000)] {
        let now = BootInstant(1_000 * SECOND);
        let mut agent = AgentHarness::unregistered(settings(1), now);
        agent.handle(AgentEvent::Tick).handle(AgentEvent::Registered(response(lease_ms)));
        assert_eq!(agent.state.session.lease_until().since(now).as_millis(), expected, "{lease_ms} ms");
        assert_eq!(agent.state.session.last_runner(), Some(31));
        assert!(agent.has_sync(), "the first call follows at once");
        let observed = |effect: &Effect| matches!(effect, Effect::Log(RunnerEvent::Registered { runner: 31 }));
        assert!(agent.effects.iter().any(observed), "{:?}", agent.effects);
    }
}

// J20, J25, J31. Each field of the answer takes effect.
#[test]
fn the_terms_of_an_answer_are_kept() {
    let mut agent = AgentHarness::new(1);
    let terms = RunnerPolicy {
        wait_for_new_jobs_seconds: 11,
        ignore_workflow_completion: true,
        min_time_for_new_jobs_seconds: 22,
        wait_for_healthy_database_minutes: 33,
    };
    for capacity_expected in [true, false] {
        while !agent.has_sync() {
            agent.until_due();
        }
        agent.respond(SyncResponse { terms, capacity_expected, ..SyncResponse::default() });
        assert_eq!(*agent.state.session.policy(), terms);
        assert_eq!(agent.state.session.capacity_expected(), capacity_expected);
    }
}

// J15
#[test]
fn a_directive_gives_the_exit_reason_and_can_be_revoked() {
    let mut agent = AgentHarness::with(AgentSettings { exit_when_complete: false, ..settings(1) });
    let cases = [
        (RunnerDirective::Complete, Some(RunnerExit::Complete)),
        (RunnerDirective::Continue, None),
        (RunnerDirective::Canceled, Some(RunnerExit::Canceled)),
        (RunnerDirective::Continue, None),
    ];
    for (directive, settled) in cases {
        while !agent.has_sync() {
            agent.until_due();
        }
        agent.respond(SyncResponse { directive, ..SyncResponse::default() });
        assert_eq!(agent.state.session.settled(), settled, "{directive:?}");
    }
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.respond(SyncResponse { directive: RunnerDirective::Leave, ..SyncResponse::default() });
    assert!(agent.sync().leaving && !agent.sync().completing, "one that is sent away has no last commands");
    agent.answer([]);
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Dismissed)));
}

// J31. Begin and end of an outage are logged once.
#[test]
fn an_outage_is_told_once_with_its_reason() {
    let mut agent = AgentHarness::new(1);
    let observed = |agent: &AgentHarness| {
        let observed = agent.effects.iter().filter_map(|effect| match effect {
            Effect::Log(RunnerEvent::Unreachable { reason }) => Some(reason.clone()),
            Effect::Log(RunnerEvent::Reconnected) => Some("back".to_owned()),
            _ => None,
        });
        observed.collect::<Vec<_>>()
    };
    agent.fail(LinkError::Unreachable("first".to_owned()));
    assert_eq!(observed(&agent), ["first"]);
    agent.until_due().fail(LinkError::Unreachable("second".to_owned()));
    assert_eq!(observed(&agent), [""; 0]);
    assert_eq!(agent.state.session.last_failure(), "second", "the latest reason is remembered");
    agent.until_due().answer([]);
    assert_eq!(observed(&agent), ["back"]);
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.answer([]);
    assert_eq!(observed(&agent), [""; 0]);
}

// J31. The twenty minutes count from the first failure of this outage.
#[test]
fn an_answer_ends_the_outage_for_the_window() {
    let mut agent = AgentHarness::new(1);
    agent.fail(LinkError::Unreachable("x".to_owned())).until_due();
    agent.later(Duration::from_secs(1_100)).answer([]);
    while !agent.has_sync() {
        agent.until_due();
    }
    let before = agent.now;
    agent.fail(LinkError::Unreachable("x".to_owned()));
    assert_eq!(agent.state.session.failing_since(), Some(before));
    for (after, draining) in [(1_199_999, false), (1_200_000, true)] {
        agent.now = before.plus(Duration::from_millis(after));
        agent.handle(AgentEvent::Tick);
        assert_eq!(agent.state.session.is_draining(), draining, "{after} ms");
        if agent.has_sync() {
            agent.fail(LinkError::Unreachable("x".to_owned()));
        }
    }
}

// A token may be renewed within five minutes after its first rejection.
#[test]
fn an_outdated_token_is_tolerated_for_five_minutes() {
    for (after, is_over) in [(299_999, false), (300_000, true)] {
        let mut agent = AgentHarness::new(1);
        agent.answer([]);
        while !agent.has_sync() {
            agent.until_due();
        }
        let first = agent.now;
        agent.fail(LinkError::Outdated).until_due();
        agent.now = first.plus(Duration::from_millis(after));
        agent.fail(LinkError::Outdated);
        assert_eq!(agent.exit().is_some(), is_over, "{after} ms");
    }
}

#[test]
fn a_server_that_is_no_torc_server_is_out_of_reach() {
    let now = BootInstant(1_000 * SECOND);
    let mut agent = AgentHarness::unregistered(settings(1), now);
    agent.handle(AgentEvent::Tick).handle(AgentEvent::NotRegistered(LinkError::Unknown));
    let observed = |effect: &Effect| matches!(effect, Effect::Log(RunnerEvent::Unreachable { reason }) if reason.contains("no Torc server"));
    assert!(agent.effects.iter().any(observed), "{:?}", agent.effects);
    assert!(!agent.effects.iter().any(|effect| matches!(effect, Effect::Register)), "not in a loop");
    agent.until_due();
    assert!(agent.effects.iter().any(|effect| matches!(effect, Effect::Register)));
    assert_eq!(agent.now.since(now), Duration::from_millis(100));
    // While the runner registers, it sends nothing else.
    agent.later(Duration::from_secs(60));
    assert!(agent.effects.is_empty(), "{:?}", agent.effects);
}

// P09. The content of a lost call is sent again soon: results, returned leases and starts.
#[test]
fn what_a_lost_call_said_is_said_again() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1, 2]);
    agent.started(1);
    agent.later(Duration::from_millis(100));
    assert_eq!(agent.sync().running.len(), 1);
    assert!(!agent.state.jobs[&key(1)].start_known);
    agent.fail(LinkError::Unreachable("x".to_owned())).until_due();
    assert_eq!(agent.sync().running.len(), 1);
    agent.answer([]);
    assert!(agent.state.jobs[&key(1)].start_known, "the server has heard of it");
    assert!(!agent.state.jobs[&key(2)].start_known, "this one has not started");
}

// P04, P06. The duration of a long poll is not a response time.
#[test]
fn a_wait_for_news_is_no_round_trip() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]).started(1);
    while !agent.has_sync() {
        agent.until_due();
    }
    (0..500).for_each(|_| agent.state.throughput.job_ended(Duration::from_millis(10)));
    let target = agent.state.throughput.target(Duration::ZERO);
    agent.now = agent.now.plus(Duration::from_secs(29));
    agent.answer([]);
    assert_eq!(agent.state.throughput.target(Duration::ZERO), target, "nothing was learned");
}

// J15. A runner with rare reports starts a long poll at once, so that leases can move. With frequent reports their
// answers suffice for a quarter of a second.
#[test]
fn a_runner_with_enough_work_listens_to_the_server() {
    for (ended_after_ms, pause_ms) in [(101, 100), (100, 250)] {
        listens_after(Duration::from_millis(ended_after_ms), Duration::from_millis(pause_ms));
    }
}

/// Lets jobs end at this interval. Returns the delay after an answer without news.
fn listens_after(interval: Duration, delay: Duration) {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(interval);
    agent.answer([1, 2, 3]).started(1);
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.answer([]);
    assert_eq!(agent.state.work_request(agent.now).limit, 0, "enough waits");
    let before = agent.now;
    while !agent.has_sync() {
        agent.until_due();
    }
    assert_eq!(agent.now.since(before), delay, "a job ends every {interval:?}");
    assert_eq!(agent.sync().want.limit, 0);
}

// P08. A recalled lease is held until the shim has confirmed the recall.
#[test]
fn a_recalled_lease_is_held_until_the_shim_has_confirmed() {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer(1..=3).started(1).later(Duration::from_millis(100));
    agent.respond(SyncResponse { give_back: vec![key(3)], ..SyncResponse::default() });
    let request = agent.state.request(agent.now);
    assert_eq!(request.queued, [key(2), key(3)]);
    assert_eq!(request.returned, []);
    agent.handle(AgentEvent::Revoked(key(3)));
    let request = agent.state.request(agent.now);
    assert_eq!((request.queued, request.returned), (vec![key(2)], vec![key(3)]));
}

// J12. The actions of a worker's end are requested once, and their answer is awaited.
#[test]
fn the_call_for_last_commands_is_not_repeated() {
    let mut agent = AgentHarness::new(1);
    agent.answer([]).handle(AgentEvent::Stop);
    assert!(agent.sync().completing);
    agent.later(Duration::from_secs(1));
    assert!(!agent.has_sync(), "{:?}", agent.effects);
}

// J23. An unregistered runner sends nothing at its end.
#[test]
fn a_runner_without_a_server_and_without_results_leaves_at_once() {
    let now = BootInstant(1_000 * SECOND);
    let mut agent = AgentHarness::unregistered(settings(1), now);
    agent.handle(AgentEvent::Tick).handle(AgentEvent::NotRegistered(LinkError::Unreachable("x".to_owned())));
    agent.handle(AgentEvent::Stop);
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Stopped)));
}

// J12, J23. The last calls are no long polls.
#[test]
fn the_last_calls_do_not_wait() {
    let mut agent = AgentHarness::new(1);
    agent.answer([]).handle(AgentEvent::Stop);
    assert_eq!((agent.sync().completing, agent.sync().wait_ms), (true, 0));
    agent.answer([]);
    assert_eq!((agent.sync().leaving, agent.sync().wait_ms), (true, 0));
}

// An answer shows that the token was renewed, so the five minutes start again.
#[test]
fn a_token_that_was_accepted_again_has_five_minutes_more() {
    let mut agent = AgentHarness::new(1);
    agent.answer([]);
    while !agent.has_sync() {
        agent.until_due();
    }
    let first = agent.now;
    agent.fail(LinkError::Outdated).until_due();
    agent.now = first.plus(Duration::from_secs(200));
    agent.answer([]);
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.fail(LinkError::Outdated).until_due();
    agent.now = first.plus(Duration::from_secs(450));
    agent.fail(LinkError::Outdated);
    assert_eq!(agent.exit(), None, "four minutes since it was accepted last");
}

#[test]
fn a_runner_that_has_left_does_nothing_more() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]).started(1);
    agent.state.exit(Ok(RunnerExit::Stopped), &mut Vec::new());
    for event in [
        AgentEvent::Tick,
        AgentEvent::Stop,
        AgentEvent::StopNow,
        AgentEvent::ShimLost,
        AgentEvent::Problem("x".to_owned()),
    ] {
        assert!(agent.handle(event.clone()).effects.is_empty(), "{event:?}: {:?}", agent.effects);
    }
}

// This answer is for a call from before the loss of the shim, so its leases are unknown.
#[test]
fn answers_from_before_a_lost_shim_are_thrown_away() {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer(1..=3).started(1).later(Duration::from_millis(100));
    assert!(agent.has_sync());
    let before = agent.state.session.sequence();
    agent.handle(AgentEvent::ShimLost);
    let late = SyncResponse {
        sequence: before,
        leases: vec![lease(9)],
        profiles: vec![profile(1)],
        lease_ms: 120_000,
        ..SyncResponse::default()
    };
    agent.handle(AgentEvent::Answered(Box::new(late)));
    assert_eq!((agent.starts(), agent.state.job_counts()), (vec![], (0, 0)));
}
