//! Changes that concern a runner wake the waiting syncs; other changes do not.

use std::collections::BTreeSet;

use torc_api::state::Cause;
use torc_api::wire::SyncRequest;

use super::plan::{Plan, job};
use super::spawn::spawn_from;
use super::world::{World, ask, failure, runner, running, say, success};
use crate::engine::Retry;
use crate::ids::RunnerId;

/// `a` runs, `b` waits in the runner, `c` depends on `a`.
fn busy() -> (World, RunnerId) {
    let mut world = World::with(&Plan::new([job("a"), job("b"), job("c").after(&["a"])]));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    world.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..say(2) });
    (world, id)
}

/// Returns whether a change wakes the waiting syncs.
fn wakes(world: &mut World, change: impl FnOnce(&mut World)) -> bool {
    let before = world.engine.wake_version();
    change(world);
    world.engine.wake_version() > before
}

#[test]
fn changes_that_free_or_end_leases_wake_waiting_syncs() {
    type Change = fn(&mut World, RunnerId);
    let changes: [(&str, Change); 10] = [
        ("a result makes a dependent ready", |world, id| {
            let [a, b] = ["a", "b"].map(|name| world.key(name));
            world.sync(id, &SyncRequest { finished: vec![success(a)], queued: vec![b], ..say(3) });
        }),
        ("a failure cancels a dependent", |world, id| {
            let [a, b] = ["a", "b"].map(|name| world.key(name));
            let failed = failure(a, 1, Cause::ExitCode);
            world.sync(id, &SyncRequest { finished: vec![failed], queued: vec![b], ..say(3) });
        }),
        ("a lease is returned", |world, id| {
            let [a, b] = ["a", "b"].map(|name| world.key(name));
            world.sync(id, &SyncRequest { running: vec![running(a)], returned: vec![b], ..say(3) });
        }),
        ("a runner does not have a lease", |world, id| {
            let a = world.key("a");
            world.sync(id, &SyncRequest { running: vec![running(a)], ..say(3) });
        }),
        ("a runner leaves", |world, id| {
            world.sync(id, &SyncRequest { leaving: true, ..say(3) });
        }),
        ("a runner is silent", |world, _| world.silence(121_000)),
        ("a running job is retried", |world, _| {
            let id = world.workflow();
            world.run(|engine, tx| engine.retry(id, &Retry::All, tx)).unwrap();
        }),
        ("a workflow is canceled", |world, _| {
            let id = world.workflow();
            world.run(|engine, tx| engine.cancel(id, tx)).unwrap();
        }),
        ("a workflow is deleted", |world, _| {
            let id = world.workflow();
            world.run(|engine, tx| engine.delete(id, tx)).unwrap();
        }),
        ("a job spawns a job", |world, _| {
            spawn_from(world, "a", &[], [job("d")], None).unwrap();
        }),
    ];
    for (name, change) in changes {
        let (mut world, id) = busy();
        assert!(wakes(&mut world, |world| change(world, id)), "{name}");
    }
}

#[test]
fn the_end_of_a_revoked_lease_wakes_waiting_syncs() {
    let (mut world, id) = busy();
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    let workflow = world.workflow();
    world.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    assert_eq!(world.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..say(3) }).cancel.len(), 2);
    let ended = SyncRequest { finished: vec![success(a)], queued: vec![b], ..say(4) };
    assert!(wakes(&mut world, |world| drop(world.sync(id, &ended))));
}

#[test]
fn syncs_without_news_wake_no_other_runner() {
    let (mut world, id) = busy();
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    let held = |sequence| SyncRequest { running: vec![running(a)], queued: vec![b], ..say(sequence) };
    assert!(!wakes(&mut world, |world| drop(world.sync(id, &held(3)))), "a heartbeat");
    world.pass(60_000);
    assert!(!wakes(&mut world, |world| world.run(|engine, tx| engine.expire(tx))), "within the lease");
    let started = SyncRequest { running: vec![running(a), running(b)], ..say(4) };
    assert!(!wakes(&mut world, |world| drop(world.sync(id, &started))), "a start");
    let names: BTreeSet<&str> = world.reasons().into_iter().collect();
    assert!(!names.contains("RunnerSilent"));
}
