//! How often the server is called when nothing of ours waits there.

use super::*;

fn without_long_polls(base: u64, most: u64) -> Desk {
    Desk::with(Settings {
        long_poll: false,
        poll_interval: Duration::from_secs(base),
        backoff_max: Duration::from_secs(most),
        ..settings(2)
    })
}

/// Seconds from an answer without news to the next call.
fn wait(desk: &mut Desk, lease: u64) -> u64 {
    let before = desk.now;
    let sequence = desk.state.contact_sequence();
    let answer = SyncResponse { sequence, lease_ms: lease * 1_000, ..SyncResponse::default() };
    desk.handle(Event::Answered(Box::new(answer)));
    while !desk.has_sync() {
        desk.until_due();
    }
    assert_eq!(desk.sync().wait_ms, 0, "the server is not asked to wait");
    desk.now.since(before).as_secs()
}

fn busy(desk: &mut Desk, lease: u64) {
    let sequence = desk.state.contact_sequence();
    let answer = SyncResponse {
        sequence,
        leases: vec![lease_of(1)],
        profiles: vec![profile(1)],
        lease_ms: lease * 1_000,
        ..SyncResponse::default()
    };
    desk.handle(Event::Answered(Box::new(answer)));
    desk.started(1);
    while !desk.has_sync() {
        desk.until_due();
    }
}

fn lease_of(job: i64) -> Lease {
    lease(job)
}

// J27, J28
#[test]
fn while_jobs_run_and_nothing_happens_the_wait_doubles() {
    let mut desk = without_long_polls(5, 300);
    busy(&mut desk, 3_600);
    let waits: Vec<u64> = (0..8).map(|_| wait(&mut desk, 3_600)).collect();
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    // A job that ends is reported at once, and the ramp begins anew.
    desk.answer([]);
    desk.later(Duration::from_secs(1)).ended(1, 0);
    assert_eq!(desk.sync().finished.len(), 1);
    assert_eq!(wait(&mut desk, 3_600), 5, "progress");
}

// J28
#[test]
fn new_work_lets_the_ramp_begin_anew() {
    let mut desk = without_long_polls(5, 300);
    busy(&mut desk, 3_600);
    assert_eq!([(); 3].map(|()| wait(&mut desk, 3_600)), [10, 20, 40]);
    desk.answer([2]).started(2);
    while !desk.has_sync() {
        desk.until_due();
    }
    assert_eq!(wait(&mut desk, 3_600), 10);
}

// J29
#[test]
fn without_jobs_it_looks_at_least_every_thirty_seconds() {
    let mut desk = without_long_polls(5, 300);
    assert_eq!([wait(&mut desk, 3_600), wait(&mut desk, 3_600)], [5, 5]);
    let mut desk = without_long_polls(300, 3_600);
    assert_eq!([wait(&mut desk, 3_600), wait(&mut desk, 3_600)], [30, 30]);
}

/// Without calls in time the leases would run out; Torc 1.0 had none.
#[test]
fn no_wait_is_longer_than_a_third_of_the_lease() {
    let mut desk = without_long_polls(5, 300);
    busy(&mut desk, 120);
    let waits: Vec<u64> = (0..5).map(|_| wait(&mut desk, 120)).collect();
    assert_eq!(waits, [10, 20, 40, 40, 40]);
}

// J05
#[test]
fn an_exit_is_reported_and_followed_at_once_however_long_the_wait() {
    let mut desk = without_long_polls(3_000, 3_000);
    busy(&mut desk, 36_000);
    desk.answer([]);
    desk.later(Duration::from_secs(1));
    assert!(!desk.has_sync());
    desk.ended(1, 0);
    assert_eq!((desk.sync().finished.len(), desk.sync().want.limit > 0), (1, true));
}

/// E.g. a proxy that cuts long calls short.
#[test]
fn calls_that_should_have_waited_and_did_not_are_slowed_down() {
    let mut desk = Desk::with(Settings { poll_interval: Duration::from_secs(2), ..settings(2) });
    desk.answer([1]);
    desk.started(1);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        while !desk.has_sync() {
            desk.until_due();
        }
        assert!(desk.sync().wait_ms > 0);
        let before = desk.now;
        desk.answer([]);
        while !desk.has_sync() {
            desk.until_due();
        }
        pauses.push(desk.now.since(before).as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 40_000, 40_000, 40_000]);
}

/// How long to stay and how far to lease ahead should not be known only when there is work.
#[test]
fn the_first_call_is_answered_at_once() {
    let mut desk = Desk::new(1);
    assert_eq!(desk.sync().wait_ms, 0);
    desk.answer([]);
    while !desk.has_sync() {
        desk.until_due();
    }
    assert!(desk.sync().wait_ms >= 30_000);
}
