//! Heartbeats from the agent to the shim. A lease lasts 120 s unless a test says otherwise.

use super::*;
use crate::state::jobs::Stage;

const ALLOWED_SILENCE: Duration = Duration::from_secs(40);
/// A ninth of a lease, in whole microseconds.
const INTERVAL: Duration = Duration::from_micros(13_333_333);

/// A runner whose only CPU has a job, and whose shim has two jobs to follow it.
fn with_handed_jobs() -> AgentHarness {
    let mut desk = AgentHarness::new(1);
    desk.state.throughput.job_ended(Duration::from_millis(4));
    desk.answer(1..=3);
    assert_eq!(desk.state.jobs.handed(), 2);
    desk
}

/// Until when the agent counts as alive, by each heartbeat that is to be sent now.
fn heartbeats(desk: &AgentHarness) -> Vec<BootInstant> {
    let told = desk.effects.iter().filter_map(|effect| match effect {
        Effect::Heartbeat { alive_until } => Some(*alive_until),
        _ => None,
    });
    told.collect()
}

// P08
#[test]
fn the_first_handed_job_comes_with_a_heartbeat() {
    let desk = with_handed_jobs();
    assert_eq!(heartbeats(&desk), [desk.now.plus(ALLOWED_SILENCE)]);
}

// P08. To the microsecond.
#[test]
fn a_heartbeat_is_due_after_a_ninth_of_the_lease() {
    for (after, count) in [(INTERVAL - Duration::from_micros(1), 0), (INTERVAL, 1), (INTERVAL * 2, 1)] {
        let mut desk = with_handed_jobs();
        let due = desk.now.plus(INTERVAL);
        desk.started(1);
        assert!(desk.state.wake_at().is_some_and(|at| at <= due), "it wakes up for it");
        desk.later(after);
        assert_eq!(heartbeats(&desk), vec![desk.now.plus(ALLOWED_SILENCE); count], "{after:?}");
    }
}

// P08. Whatever else happens: an agent that does what is due in time is never silent for too long, and says so no oftener than needed.
#[test]
fn heartbeats_go_on_while_jobs_are_handed() {
    let mut desk = with_handed_jobs();
    let mut alive_until = heartbeats(&desk)[0];
    desk.started(1);
    let end = desk.now.plus(Duration::from_secs(1_200));
    let mut count = 0;
    while desk.now < end {
        if desk.has_sync() {
            desk.answer([]);
        } else {
            desk.until_due();
        }
        assert!(desk.now <= alive_until, "silent from {alive_until:?} to {:?}", desk.now);
        if let Some(until) = heartbeats(&desk).first() {
            alive_until = *until;
            count += 1;
        }
    }
    assert_eq!(count, 1_200_000 / 13_333, "nine for each of ten leases");
}

// P03, P08. Jobs that follow each other quickly cost no heartbeat each.
#[test]
fn many_handed_jobs_share_one_heartbeat() {
    let mut desk = AgentHarness::new(1);
    desk.state.throughput.job_ended(Duration::from_millis(1));
    desk.answer(1..=1_000);
    let mut count = heartbeats(&desk).len();
    for job in 1..900 {
        desk.now = desk.now.plus(Duration::from_millis(1));
        let mut over = ended(job, Outcome::Exited(0), desk.now);
        over.started = desk.now.minus(Duration::from_millis(1));
        over.successor = Some(key(job + 1));
        desk.handle(Event::Ended(Box::new(over)));
        assert_eq!(desk.state.jobs[&key(job + 1)].stage, Stage::Starting);
        count += heartbeats(&desk).len();
    }
    assert_eq!(count, 1);
}

// P08. No wake-up and no message where nothing follows by itself.
#[test]
fn without_handed_jobs_there_are_no_heartbeats() {
    // Long jobs wait here, not at the shim.
    let mut desk = AgentHarness::new(1);
    desk.answer(1..=3).started(1);
    while desk.now < BootInstant(2_000 * SECOND) {
        if desk.has_sync() {
            desk.answer([]);
        } else {
            desk.until_due();
        }
        assert_eq!(heartbeats(&desk), []);
    }
    assert_eq!(desk.state.heartbeat.sent_at(), None);
    // What was handed is called back.
    let mut desk = with_handed_jobs();
    desk.started(1).handle(Event::Stop);
    desk.later(INTERVAL);
    assert_eq!(heartbeats(&desk), [], "it has nothing to start any more");
    // What was handed has started.
    let mut desk = with_handed_jobs();
    desk.started(1);
    for job in [1, 2] {
        let successor = Some(key(job + 1));
        desk.handle(Event::Ended(Box::new(JobExit { successor, ..ended(job, Outcome::Exited(0), desk.now) })));
    }
    assert_eq!(desk.state.jobs.handed(), 0);
    desk.later(INTERVAL);
    assert_eq!(heartbeats(&desk), []);
}

// P08. The shim learns of another lease time with the next heartbeat, which may be due at once.
#[test]
fn heartbeats_follow_the_lease_time() {
    for (lease_ms, after_ms, expected_ms) in
        [(9_000, 999, None), (9_000, 1_000, Some(3_000)), (1_200_000, 14_000, None)]
    {
        let mut desk = with_handed_jobs();
        desk.started(1);
        if !desk.has_sync() {
            desk.later(Duration::from_millis(100));
        }
        desk.now = BootInstant(1_000 * SECOND).plus(Duration::from_millis(after_ms));
        let sequence = desk.state.session.sequence();
        desk.handle(Event::Answered(Box::new(SyncResponse { sequence, lease_ms, ..SyncResponse::default() })));
        let expected = expected_ms.map(|silence| desk.now.plus(Duration::from_millis(silence)));
        assert_eq!(heartbeats(&desk), Vec::from_iter(expected), "{lease_ms} ms, after {after_ms} ms");
    }
}

// J32, P08. Without the server the agent is alive all the same, until its leases are over.
#[test]
fn an_offline_agent_is_alive_until_its_leases_expire() {
    let mut desk = with_handed_jobs();
    let mut alive_until = heartbeats(&desk)[0];
    desk.started(1);
    let lease_until = desk.state.session.lease_until();
    while desk.state.jobs.handed() > 0 {
        assert!(desk.now <= alive_until && desk.now < lease_until);
        if desk.has_sync() {
            desk.fail(LinkError::Unreachable("x".to_owned()));
        } else {
            desk.until_due();
        }
        alive_until = heartbeats(&desk).first().copied().unwrap_or(alive_until);
    }
    assert_eq!((desk.now, heartbeats(&desk)), (lease_until, vec![]));
    let handed = [key(2), key(3)];
    assert!(desk.effects.iter().any(|effect| matches!(effect, Effect::Revoke(keys) if *keys == handed)));
}

// P03, P08. A place that the shim left empty is filled from here as soon as the agent is back, if the lease is still good.
#[test]
fn an_agent_that_was_frozen_goes_on_or_gives_up() {
    for (frozen, goes_on) in [(41, true), (119, true), (121, false)] {
        let mut desk = with_handed_jobs();
        desk.started(1);
        desk.now = BootInstant(1_000 * SECOND).plus(Duration::from_secs(frozen));
        desk.handle(Event::Ended(Box::new(ended(1, Outcome::Exited(0), desk.now))));
        let goes = desk.effects.iter().any(|effect| matches!(effect, Effect::StartNow(next) if *next == key(2)));
        let revoked = desk.effects.iter().any(|effect| matches!(effect, Effect::Revoke(_)));
        assert_eq!((goes, revoked), (goes_on, !goes_on), "frozen for {frozen} s");
        assert_eq!(heartbeats(&desk).len(), usize::from(goes_on), "frozen for {frozen} s");
    }
}

// P08. Another shim knows nothing of the heartbeats that the first one got.
#[test]
fn another_shim_gets_a_heartbeat_at_once() {
    let mut desk = with_handed_jobs();
    desk.started(1).handle(Event::ShimLost);
    assert_eq!(desk.state.jobs.handed(), 0);
    desk.handle(Event::Registered(RegisterResponse { runner: 6, version: String::new(), lease_ms: 120_000 }));
    desk.state.throughput.job_ended(Duration::from_millis(4));
    desk.answer(11..=13);
    assert_eq!(desk.state.jobs.handed(), 2);
    assert_eq!(heartbeats(&desk), [desk.now.plus(ALLOWED_SILENCE)]);
}
