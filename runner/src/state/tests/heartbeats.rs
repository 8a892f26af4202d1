//! Heartbeats from the agent to the shim. A lease lasts 120 s unless a test says otherwise.

use super::*;
use crate::state::jobs::JobStage;

const ALLOWED_SILENCE: Duration = Duration::from_secs(40);
/// A ninth of a lease, in whole microseconds.
const INTERVAL: Duration = Duration::from_micros(13_333_333);

/// Returns a runner whose only CPU has a job, and whose shim has two followers.
fn with_handed_jobs() -> AgentHarness {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer(1..=3);
    assert_eq!(agent.state.jobs.handed(), 2);
    agent
}

/// Returns the moments until which the agent counts as alive, one for each heartbeat.
fn heartbeats(agent: &AgentHarness) -> Vec<BootInstant> {
    let observed = agent.effects.iter().filter_map(|effect| match effect {
        Effect::Heartbeat { alive_until } => Some(*alive_until),
        _ => None,
    });
    observed.collect()
}

// P08
#[test]
fn the_first_handed_job_comes_with_a_heartbeat() {
    let agent = with_handed_jobs();
    assert_eq!(heartbeats(&agent), [agent.now.plus(ALLOWED_SILENCE)]);
}

// P08. To the microsecond.
#[test]
fn a_heartbeat_is_due_after_a_ninth_of_the_lease() {
    for (after, count) in [(INTERVAL - Duration::from_micros(1), 0), (INTERVAL, 1), (INTERVAL * 2, 1)] {
        let mut agent = with_handed_jobs();
        let due = agent.now.plus(INTERVAL);
        agent.started(1);
        assert!(agent.state.wake_at().is_some_and(|at| at <= due), "it wakes up for it");
        agent.later(after);
        assert_eq!(heartbeats(&agent), vec![agent.now.plus(ALLOWED_SILENCE); count], "{after:?}");
    }
}

// P08. A punctual agent is never silent for too long, and sends no more heartbeats than needed.
#[test]
fn heartbeats_go_on_while_jobs_are_handed() {
    let mut agent = with_handed_jobs();
    let mut alive_until = heartbeats(&agent)[0];
    agent.started(1);
    let end = agent.now.plus(Duration::from_secs(1_200));
    let mut count = 0;
    while agent.now < end {
        if agent.has_sync() {
            agent.answer([]);
        } else {
            agent.until_due();
        }
        assert!(agent.now <= alive_until, "silent from {alive_until:?} to {:?}", agent.now);
        if let Some(until) = heartbeats(&agent).first() {
            alive_until = *until;
            count += 1;
        }
    }
    assert_eq!(count, 1_200_000 / 13_333, "nine for each of ten leases");
}

// P03, P08. Jobs in quick succession do not cost a heartbeat each.
#[test]
fn many_handed_jobs_share_one_heartbeat() {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(1));
    agent.answer(1..=1_000);
    let mut count = heartbeats(&agent).len();
    for job in 1..900 {
        agent.now = agent.now.plus(Duration::from_millis(1));
        let mut over = ended(job, Outcome::Exited(0), agent.now);
        over.started = agent.now.minus(Duration::from_millis(1));
        over.successor = Some(key(job + 1));
        agent.handle(AgentEvent::Ended(Box::new(over)));
        assert_eq!(agent.state.jobs[&key(job + 1)].stage, JobStage::Starting);
        count += heartbeats(&agent).len();
    }
    assert_eq!(count, 1);
}

// P08. Without handed jobs there is neither a wake-up nor a message.
#[test]
fn without_handed_jobs_there_are_no_heartbeats() {
    // Long jobs wait in the agent's queue.
    let mut agent = AgentHarness::new(1);
    agent.answer(1..=3).started(1);
    while agent.now < BootInstant(2_000 * SECOND) {
        if agent.has_sync() {
            agent.answer([]);
        } else {
            agent.until_due();
        }
        assert_eq!(heartbeats(&agent), []);
    }
    assert_eq!(agent.state.heartbeat.sent_at(), None);
    // The handed jobs are recalled.
    let mut agent = with_handed_jobs();
    agent.started(1).handle(AgentEvent::Stop);
    agent.later(INTERVAL);
    assert_eq!(heartbeats(&agent), [], "it has nothing to start any more");
    // The handed jobs have started.
    let mut agent = with_handed_jobs();
    agent.started(1);
    for job in [1, 2] {
        let successor = Some(key(job + 1));
        agent.handle(AgentEvent::Ended(Box::new(JobExit { successor, ..ended(job, Outcome::Exited(0), agent.now) })));
    }
    assert_eq!(agent.state.jobs.handed(), 0);
    agent.later(INTERVAL);
    assert_eq!(heartbeats(&agent), []);
}

// P08. The next heartbeat uses a new lease time, and may be due at once.
#[test]
fn heartbeats_follow_the_lease_time() {
    for (lease_ms, after_ms, expected_ms) in
        [(9_000, 999, None), (9_000, 1_000, Some(3_000)), (1_200_000, 14_000, None)]
    {
        let mut agent = with_handed_jobs();
        agent.started(1);
        if !agent.has_sync() {
            agent.later(Duration::from_millis(100));
        }
        agent.now = BootInstant(1_000 * SECOND).plus(Duration::from_millis(after_ms));
        let sequence = agent.state.session.sequence();
        agent.handle(AgentEvent::Answered(Box::new(SyncResponse { sequence, lease_ms, ..SyncResponse::default() })));
        let expected = expected_ms.map(|silence| agent.now.plus(Duration::from_millis(silence)));
        assert_eq!(heartbeats(&agent), Vec::from_iter(expected), "{lease_ms} ms, after {after_ms} ms");
    }
}

// J32, P08. Without the server the agent counts as alive until its leases expire.
#[test]
fn an_offline_agent_is_alive_until_its_leases_expire() {
    let mut agent = with_handed_jobs();
    let mut alive_until = heartbeats(&agent)[0];
    agent.started(1);
    let lease_until = agent.state.session.lease_until();
    while agent.state.jobs.handed() > 0 {
        assert!(agent.now <= alive_until && agent.now < lease_until);
        if agent.has_sync() {
            agent.fail(LinkError::Unreachable("x".to_owned()));
        } else {
            agent.until_due();
        }
        alive_until = heartbeats(&agent).first().copied().unwrap_or(alive_until);
    }
    assert_eq!((agent.now, heartbeats(&agent)), (lease_until, vec![]));
    let handed = [key(2), key(3)];
    assert!(agent.effects.iter().any(|effect| matches!(effect, Effect::Revoke(keys) if *keys == handed)));
}

// P03, P08. The agent fills an empty slot as soon as it is back, if the lease is still valid.
#[test]
fn an_agent_that_was_frozen_goes_on_or_gives_up() {
    for (frozen, goes_on) in [(41, true), (119, true), (121, false)] {
        let mut agent = with_handed_jobs();
        agent.started(1);
        agent.now = BootInstant(1_000 * SECOND).plus(Duration::from_secs(frozen));
        agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Exited(0), agent.now))));
        let goes = agent.effects.iter().any(|effect| matches!(effect, Effect::StartNow(next) if *next == key(2)));
        let revoked = agent.effects.iter().any(|effect| matches!(effect, Effect::Revoke(_)));
        assert_eq!((goes, revoked), (goes_on, !goes_on), "frozen for {frozen} s");
        assert_eq!(heartbeats(&agent).len(), usize::from(goes_on), "frozen for {frozen} s");
    }
}

// P08. A new shim does not know earlier heartbeats.
#[test]
fn another_shim_gets_a_heartbeat_at_once() {
    let mut agent = with_handed_jobs();
    agent.started(1).handle(AgentEvent::ShimLost);
    assert_eq!(agent.state.jobs.handed(), 0);
    agent.handle(AgentEvent::Registered(RegisterResponse { runner: 6, version: String::new(), lease_ms: 120_000 }));
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer(11..=13);
    assert_eq!(agent.state.jobs.handed(), 2);
    assert_eq!(heartbeats(&agent), [agent.now.plus(ALLOWED_SILENCE)]);
}
