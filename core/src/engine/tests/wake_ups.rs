//! Changes that concern a runner wake the waiting syncs; other changes do not.

use std::collections::BTreeSet;

use torc_api::state::Cause;
use torc_api::wire::SyncRequest;

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use super::spawn::spawn_from;
use crate::engine::Retry;
use crate::ids::RunnerId;

/// `a` runs, `b` waits in the runner, `c` depends on `a`.
fn busy() -> (EngineHarness, RunnerId) {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b"), job("c").after(&["a"])]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    harness.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..sync_request(2) });
    (harness, id)
}

/// Returns whether a change wakes the waiting syncs.
fn wakes(harness: &mut EngineHarness, change: impl FnOnce(&mut EngineHarness)) -> bool {
    let before = harness.engine.wake_version();
    change(harness);
    harness.engine.wake_version() > before
}

#[test]
fn changes_that_free_or_end_leases_wake_waiting_syncs() {
    type Change = fn(&mut EngineHarness, RunnerId);
    let changes: [(&str, Change); 10] = [
        ("a result makes a dependent ready", |harness, id| {
            let [a, b] = ["a", "b"].map(|name| harness.key(name));
            harness.sync(id, &SyncRequest { finished: vec![success(a)], queued: vec![b], ..sync_request(3) });
        }),
        ("a failure cancels a dependent", |harness, id| {
            let [a, b] = ["a", "b"].map(|name| harness.key(name));
            let failed = failure(a, 1, Cause::ExitCode);
            harness.sync(id, &SyncRequest { finished: vec![failed], queued: vec![b], ..sync_request(3) });
        }),
        ("a lease is returned", |harness, id| {
            let [a, b] = ["a", "b"].map(|name| harness.key(name));
            harness.sync(id, &SyncRequest { running: vec![running(a)], returned: vec![b], ..sync_request(3) });
        }),
        ("a runner does not have a lease", |harness, id| {
            let a = harness.key("a");
            harness.sync(id, &SyncRequest { running: vec![running(a)], ..sync_request(3) });
        }),
        ("a runner leaves", |harness, id| {
            harness.sync(id, &SyncRequest { leaving: true, ..sync_request(3) });
        }),
        ("a runner is silent", |harness, _| harness.silence(121_000)),
        ("a running job is retried", |harness, _| {
            let id = harness.workflow();
            harness.run(|engine, tx| engine.retry(id, &Retry::All, tx)).unwrap();
        }),
        ("a workflow is canceled", |harness, _| {
            let id = harness.workflow();
            harness.run(|engine, tx| engine.cancel(id, tx)).unwrap();
        }),
        ("a workflow is deleted", |harness, _| {
            let id = harness.workflow();
            harness.run(|engine, tx| engine.delete(id, tx)).unwrap();
        }),
        ("a job spawns a job", |harness, _| {
            spawn_from(harness, "a", &[], [job("d")], None).unwrap();
        }),
    ];
    for (name, change) in changes {
        let (mut harness, id) = busy();
        assert!(wakes(&mut harness, |harness| change(harness, id)), "{name}");
    }
}

#[test]
fn the_end_of_a_revoked_lease_wakes_waiting_syncs() {
    let (mut harness, id) = busy();
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    assert_eq!(
        harness.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..sync_request(3) }).cancel.len(),
        2
    );
    let ended = SyncRequest { finished: vec![success(a)], queued: vec![b], ..sync_request(4) };
    assert!(wakes(&mut harness, |harness| drop(harness.sync(id, &ended))));
}

#[test]
fn syncs_without_changes_wake_no_other_runner() {
    let (mut harness, id) = busy();
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    let held = |sequence| SyncRequest { running: vec![running(a)], queued: vec![b], ..sync_request(sequence) };
    assert!(!wakes(&mut harness, |harness| drop(harness.sync(id, &held(3)))), "a heartbeat");
    harness.pass(60_000);
    assert!(!wakes(&mut harness, |harness| harness.run(|engine, tx| engine.expire(tx))), "within the lease");
    let started = SyncRequest { running: vec![running(a), running(b)], ..sync_request(4) };
    assert!(!wakes(&mut harness, |harness| drop(harness.sync(id, &started))), "a start");
    let names: BTreeSet<&str> = harness.reasons().into_iter().collect();
    assert!(!names.contains("RunnerSilent"));
}
