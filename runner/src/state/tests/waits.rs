//! Delays between calls without long polls.

use super::*;

fn without_long_polls(base: u64, most: u64) -> AgentHarness {
    AgentHarness::with(AgentSettings {
        user: RunnerSettings {
            long_poll: false,
            poll_interval: Duration::from_secs(base),
            claim_backoff_max: Duration::from_secs(most),
            ..user()
        },
        ..settings(2)
    })
}

/// Returns the seconds from an answer without news to the next call.
fn wait(agent: &mut AgentHarness, lease: u64) -> u64 {
    let before = agent.now;
    let sequence = agent.state.session.sequence();
    let answer = SyncResponse { sequence, lease_ms: lease * 1_000, ..SyncResponse::default() };
    agent.handle(AgentEvent::Answered(Box::new(answer)));
    while !agent.has_sync() {
        agent.until_due();
    }
    assert_eq!(agent.sync().wait_ms, 0, "the server is not asked to wait");
    agent.now.since(before).as_secs()
}

fn busy(agent: &mut AgentHarness, lease: u64) {
    let sequence = agent.state.session.sequence();
    let answer = SyncResponse {
        sequence,
        leases: vec![lease_of(1)],
        profiles: vec![profile(1)],
        lease_ms: lease * 1_000,
        ..SyncResponse::default()
    };
    agent.handle(AgentEvent::Answered(Box::new(answer)));
    agent.started(1);
    while !agent.has_sync() {
        agent.until_due();
    }
}

fn lease_of(job: i64) -> Lease {
    lease(job)
}

// J27, J28
#[test]
fn while_jobs_run_and_nothing_happens_the_wait_doubles() {
    let mut agent = without_long_polls(5, 300);
    busy(&mut agent, 3_600);
    let waits: Vec<u64> = (0..8).map(|_| wait(&mut agent, 3_600)).collect();
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    // The end of a job is reported at once, and resets the delay.
    agent.answer([]);
    agent.later(Duration::from_secs(1)).ended(1, 0);
    assert_eq!(agent.sync().finished.len(), 1);
    assert_eq!(wait(&mut agent, 3_600), 5, "progress");
}

// J28
#[test]
fn new_work_resets_the_delay() {
    let mut agent = without_long_polls(5, 300);
    busy(&mut agent, 3_600);
    assert_eq!([(); 3].map(|()| wait(&mut agent, 3_600)), [10, 20, 40]);
    agent.answer([2]).started(2);
    while !agent.has_sync() {
        agent.until_due();
    }
    assert_eq!(wait(&mut agent, 3_600), 10);
}

// J29
#[test]
fn without_jobs_it_looks_at_least_every_thirty_seconds() {
    let mut agent = without_long_polls(5, 300);
    assert_eq!([wait(&mut agent, 3_600), wait(&mut agent, 3_600)], [5, 5]);
    let mut agent = without_long_polls(300, 3_600);
    assert_eq!([wait(&mut agent, 3_600), wait(&mut agent, 3_600)], [30, 30]);
}

/// Without calls in time leases would expire. Torc 1.0 had no leases.
#[test]
fn no_wait_is_longer_than_a_third_of_the_lease() {
    let mut agent = without_long_polls(5, 300);
    busy(&mut agent, 120);
    let waits: Vec<u64> = (0..5).map(|_| wait(&mut agent, 120)).collect();
    assert_eq!(waits, [10, 20, 40, 40, 40]);
}

// J05
#[test]
fn an_exit_is_reported_at_once_during_any_wait() {
    let mut agent = without_long_polls(3_000, 3_000);
    busy(&mut agent, 36_000);
    agent.answer([]);
    agent.later(Duration::from_secs(1));
    assert!(!agent.has_sync());
    agent.ended(1, 0);
    assert_eq!((agent.sync().finished.len(), agent.sync().want.limit > 0), (1, true));
}

/// A proxy may cut long calls short.
#[test]
fn calls_that_should_have_waited_and_did_not_are_slowed_down() {
    let mut agent = AgentHarness::with(AgentSettings {
        user: RunnerSettings { poll_interval: Duration::from_secs(2), ..user() },
        ..settings(2)
    });
    agent.answer([1]);
    agent.started(1);
    let mut delays = Vec::new();
    for _ in 0..12 {
        while !agent.has_sync() {
            agent.until_due();
        }
        assert!(agent.sync().wait_ms > 0);
        let before = agent.now;
        agent.answer([]);
        while !agent.has_sync() {
            agent.until_due();
        }
        delays.push(agent.now.since(before).as_millis());
    }
    assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 40_000, 40_000, 40_000]);
}

/// The policy of the workflows is needed even without work.
#[test]
fn the_first_call_is_answered_at_once() {
    let mut agent = AgentHarness::new(1);
    assert_eq!(agent.sync().wait_ms, 0);
    agent.answer([]);
    while !agent.has_sync() {
        agent.until_due();
    }
    assert!(agent.sync().wait_ms >= 30_000);
}

/// Returns the delays after long polls that returned too early, in milliseconds.
fn delays_when_cut_short(agent: &mut AgentHarness, count: usize, lease: u64) -> Vec<u128> {
    let mut delays = Vec::new();
    for _ in 0..count {
        while !agent.has_sync() {
            agent.until_due();
        }
        assert!(agent.sync().wait_ms > 0, "the server is asked to wait");
        let before = agent.now;
        let sequence = agent.state.session.sequence();
        let answer = SyncResponse { sequence, lease_ms: lease * 1_000, ..SyncResponse::default() };
        agent.handle(AgentEvent::Answered(Box::new(answer)));
        while !agent.has_sync() {
            agent.until_due();
        }
        delays.push(agent.now.since(before).as_millis());
    }
    delays
}

// J26, J27, J29. The delay of long polls that return too early is bounded by the poll mode, too.
#[test]
fn a_cut_long_poll_pauses_no_longer_than_its_regime() {
    let ramp = [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200];
    // Base, maximum, whether a job runs, the longest delay.
    let cases = [
        (2, 300, false, 2_000, "without jobs the base"),
        (7, 300, false, 7_000, "without jobs the base"),
        (60, 3_600, false, 30_000, "without jobs at most 30 s"),
        (29, 3_600, false, 29_000, "without jobs the base below 30 s"),
        (2, 20, true, 20_000, "with jobs the most"),
        (1, 40, true, 40_000, "with jobs the most"),
    ];
    for (base, most, busy, longest, why) in cases {
        let mut agent = AgentHarness::with(AgentSettings {
            user: RunnerSettings {
                poll_interval: Duration::from_secs(base),
                claim_backoff_max: Duration::from_secs(most),
                ..user()
            },
            ..settings(2)
        });
        agent.answer(if busy { vec![1] } else { vec![] });
        if busy {
            agent.started(1);
        }
        let expected: Vec<u128> = ramp.iter().map(|delay| (*delay).min(longest)).collect();
        assert_eq!(delays_when_cut_short(&mut agent, ramp.len(), 36_000), expected, "{why}: {base} s, {most} s");
    }
}

// J26, J28. An answer after half of the requested wait shows that the server does wait.
#[test]
fn a_call_that_waited_for_half_of_its_time_is_followed_at_once() {
    for (waited_ms, pause_ms) in [(14_999, 100), (15_000, 5), (30_000, 5)] {
        let mut agent = AgentHarness::new(2);
        agent.answer([]);
        while !agent.has_sync() {
            agent.until_due();
        }
        assert_eq!(agent.sync().wait_ms, 30_000);
        agent.now = agent.now.plus(Duration::from_millis(waited_ms));
        agent.answer([]);
        let before = agent.now;
        while !agent.has_sync() {
            agent.until_due();
        }
        assert_eq!(agent.now.since(before).as_millis(), pause_ms, "after {waited_ms} ms");
    }
}

// P01, P03. After a complete answer there may be more work; after a partial one there is hardly more.
#[test]
fn an_answer_with_all_that_was_asked_for_is_followed_at_once() {
    for (jobs, pause_ms) in [(vec![1, 2], 0), (vec![1], 5), (vec![], 5)] {
        let mut agent = AgentHarness::new(2);
        assert_eq!(agent.sync().want.limit, 2);
        agent.answer(jobs.clone());
        let before = agent.now;
        while !agent.has_sync() {
            agent.until_due();
        }
        assert_eq!(agent.now.since(before).as_millis(), pause_ms, "{jobs:?}");
    }
}

// J26, J28
#[test]
fn a_claim_resets_the_ramp_without_long_polls() {
    let mut agent = without_long_polls(5, 300);
    busy(&mut agent, 3_600);
    assert_eq!([(); 4].map(|()| wait(&mut agent, 3_600)), [10, 20, 40, 80]);
    let before = agent.now;
    let sequence = agent.state.session.sequence();
    let answer = SyncResponse {
        sequence,
        leases: vec![lease_of(2)],
        profiles: vec![profile(2)],
        lease_ms: 3_600_000,
        ..SyncResponse::default()
    };
    // A job of two CPUs waits beside a running one: work arrived, but nothing starts.
    agent.handle(AgentEvent::Answered(Box::new(answer)));
    while !agent.has_sync() {
        agent.until_due();
    }
    assert!(agent.now.since(before) <= Duration::from_secs(5), "{:?}", agent.now.since(before));
    assert_eq!(wait(&mut agent, 3_600), 10, "the delay is reset");
}

// J27, J30. No delay exceeds the remaining time.
#[test]
fn no_wait_is_longer_than_the_time_that_is_left() {
    let began = BootInstant(1_000 * SECOND);
    let mut agent = AgentHarness::with(AgentSettings {
        user: RunnerSettings {
            long_poll: false,
            poll_interval: Duration::from_secs(100),
            claim_backoff_max: Duration::from_secs(3_000),
            ..user()
        },
        time: Some(TimeSpan { began, end: began.plus(Duration::from_secs(130)) }),
        ..settings(2)
    });
    busy(&mut agent, 3_600);
    agent.answer([]);
    assert!(agent.state.wake_at().is_some_and(|due| due <= began.plus(Duration::from_secs(130))));
}

// J31. Number and distance of repeated calls. Each failure of the same outage counts once.
#[test]
fn failed_calls_are_repeated_at_the_poll_interval_at_most() {
    for (poll_ms, expected) in [
        (350, [100, 200, 350, 350, 350]),
        (400, [100, 200, 400, 400, 400]),
        (50, [50, 50, 50, 50, 50]),
        (10_000, [100, 200, 400, 800, 1_600]),
    ] {
        let mut agent = AgentHarness::with(AgentSettings {
            user: RunnerSettings { poll_interval: Duration::from_millis(poll_ms), ..user() },
            ..settings(1)
        });
        let delays = [(); 5].map(|()| {
            let before = agent.now;
            agent.fail(LinkError::Unreachable("x".to_owned())).until_due();
            assert!(agent.has_sync(), "{poll_ms} ms");
            agent.now.since(before).as_millis()
        });
        assert_eq!(delays, expected, "{poll_ms} ms");
    }
}

// P08. A runner without reports calls within a third of its lease time.
#[test]
fn leases_are_renewed_within_a_third_of_their_time() {
    for lease in [6, 60, 120, 600] {
        let mut agent = without_long_polls(3_000, 3_000);
        busy(&mut agent, lease);
        let before = agent.now;
        let sequence = agent.state.session.sequence();
        let answer = SyncResponse { sequence, lease_ms: lease * 1_000, ..SyncResponse::default() };
        agent.handle(AgentEvent::Answered(Box::new(answer)));
        while !agent.has_sync() {
            agent.until_due();
        }
        assert_eq!(agent.now.since(before).as_secs(), lease / 3, "a lease of {lease} s");
    }
}

// P09. The report interval bounds the time for which a result is batched.
#[test]
fn a_report_waits_for_company_for_its_interval_and_no_longer() {
    for interval_ms in [1, 100, 249] {
        let report_interval = Duration::from_millis(interval_ms);
        let mut agent = AgentHarness::with(AgentSettings { report_interval, ..settings(1) });
        agent.answer([1, 2, 3, 4]);
        agent.started(1).later(Duration::from_secs(1));
        agent.answer([]);
        while !agent.has_sync() {
            agent.until_due();
        }
        // The runner starts a long poll.
        agent.later(report_interval);
        let before = agent.now;
        agent.ended(1, 0);
        assert_eq!(agent.sync().finished.len(), 1, "{interval_ms} ms after the last message: at once");
        agent.answer([]);
        agent.started(2).ended(2, 0).started(3);
        assert!(!agent.has_sync(), "{interval_ms} ms: it waits for company");
        while !agent.has_sync() || agent.sync().finished.is_empty() {
            agent.until_due();
        }
        assert!(agent.now.since(before) <= report_interval, "{interval_ms} ms");
        assert_eq!(agent.sync().finished.len(), 1);
    }
}

// P08. An answer without a lease time leaves it unchanged.
#[test]
fn a_lease_time_stays_until_another_is_said() {
    let mut agent = without_long_polls(3_000, 3_000);
    busy(&mut agent, 600);
    let before = agent.now;
    let sequence = agent.state.session.sequence();
    agent.handle(AgentEvent::Answered(Box::new(SyncResponse { sequence, lease_ms: 0, ..SyncResponse::default() })));
    while !agent.has_sync() {
        agent.until_due();
    }
    assert_eq!(agent.now.since(before).as_secs(), 200, "a third of 600 s");
}
