//! Tests of the rights of tokens to workflows, runners and attempts.

use torc_api::token::Grant;
use torc_api::wire::{AttemptKey, RegisterRequest, RunnerScope, SyncRequest};

use super::harness::{EngineHarness, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::engine::CommandError;
use crate::ids::WorkflowId;

fn owner(user: &str) -> Grant {
    Grant::Owner { user: user.to_owned() }
}

/// Ada's workflow `w` with one job.
fn harness() -> (EngineHarness, WorkflowId) {
    let harness = EngineHarness::with(&Plan::new([job("a")]));
    let id = harness.workflow();
    (harness, id)
}

fn scoped(host: &str, workflow: &str) -> RegisterRequest {
    RegisterRequest { scope: RunnerScope::Workflow(workflow.to_owned()), ..runner(host) }
}

#[test]
fn a_workflow_is_its_owners_its_runners_and_the_administrators() {
    let (harness, id) = harness();
    for (grant, theirs) in [
        (Grant::Admin, true),
        (owner("ada"), true),
        (owner("bob"), false),
        (Grant::Runner { workflow: id.0 }, true),
        (Grant::Runner { workflow: id.0 + 1 }, false),
        (Grant::Viewer { namespace: "default".to_owned() }, true),
        (Grant::Viewer { namespace: "ada".to_owned() }, false),
        (Grant::Editor { namespace: "default".to_owned() }, true),
        (Grant::Editor { namespace: "ada".to_owned() }, false),
        (Grant::Pool, true),
        (Grant::Metrics, false),
    ] {
        assert_eq!(harness.engine.rights().includes(&grant, id), theirs, "{grant:?}");
        let listed = harness.engine.rights().included(&grant).is_none_or(|list| list.contains(&id));
        assert_eq!(listed, theirs, "{grant:?}");
        let applied = harness.engine.rights().may_apply(&grant, "default", "w");
        assert_eq!(applied.is_ok(), theirs, "{grant:?}");
        assert_eq!(harness.engine.rights().may_apply(&grant, "default", "new"), Ok(()), "a free name");
    }
    let refusal = CommandError::Forbidden("workflow 'w' belongs to ada".to_owned());
    assert_eq!(harness.engine.rights().may_apply(&owner("bob"), "default", "w"), Err(refusal));
}

#[test]
fn only_an_administrators_runner_serves_more_than_one_workflow() {
    let (harness, id) = harness();
    let of = |reference: &str| RunnerScope::Workflow(reference.to_owned());
    let number = id.0.to_string();
    for (grant, scope, may) in [
        (Grant::Admin, RunnerScope::All, true),
        (Grant::Admin, RunnerScope::Session, true),
        (owner("ada"), RunnerScope::All, false),
        (owner("ada"), RunnerScope::Session, false),
        (owner("ada"), of("w"), true),
        (owner("ada"), of(&number), true),
        (owner("bob"), of("w"), false),
        (Grant::Runner { workflow: id.0 }, of("default/w"), true),
        (Grant::Runner { workflow: id.0 }, RunnerScope::All, false),
        (Grant::Runner { workflow: id.0 }, of("unknown"), false),
        (Grant::Runner { workflow: 9 }, of("w"), false),
        (Grant::Editor { namespace: "default".to_owned() }, of("w"), true),
        (Grant::Editor { namespace: "default".to_owned() }, RunnerScope::All, false),
        (Grant::Editor { namespace: "other".to_owned() }, of("default/w"), false),
        (Grant::Pool, of("w"), true),
        (Grant::Pool, RunnerScope::All, true),
        (Grant::Metrics, of("w"), false),
    ] {
        assert_eq!(harness.engine.rights().may_serve(&grant, &scope), may, "{grant:?} {scope:?}");
    }
}

#[test]
fn a_token_is_valid_only_for_its_workflow() {
    let (mut harness, id) = harness();
    let everything = harness.register(&runner("h1"));
    let own = harness.register(&scoped("h2", "w"));
    let grant = Grant::Runner { workflow: id.0 };
    let may = |harness: &EngineHarness, runner, request: &SyncRequest| {
        harness.engine.rights().may_sync(&grant, runner, request)
    };
    assert!(may(&harness, own, &work_request(1, 1)));
    assert!(!may(&harness, everything, &work_request(1, 1)), "that one serves others, too");
    assert!(harness.engine.rights().may_sync(&Grant::Admin, everything, &work_request(1, 1)));
    assert!(!harness.engine.rights().may_sync(&owner("bob"), own, &work_request(1, 1)));
    let foreign = AttemptKey { workflow: id.0 + 1, ..AttemptKey::default() };
    let mine = AttemptKey { workflow: id.0, ..AttemptKey::default() };
    for (key, allowed) in [(mine, true), (foreign, false)] {
        for request in [
            SyncRequest { queued: vec![key], ..sync_request(1) },
            SyncRequest { returned: vec![key], ..sync_request(1) },
            SyncRequest { running: vec![running(key)], ..sync_request(1) },
            SyncRequest { finished: vec![success(key)], ..sync_request(1) },
        ] {
            assert_eq!(may(&harness, own, &request), allowed, "{request:?}");
        }
    }
}

#[test]
fn a_runner_of_one_workflow_takes_over_nothing_of_others() {
    let (mut harness, _) = harness();
    harness.apply(&Plan { name: "v".to_owned(), ..Plan::new([job("b")]) });
    let first = harness.register(&scoped("h", "w"));
    let leases = harness.sync(first, &work_request(1, 1)).leases;
    assert_eq!(leases.len(), 1);
    // The same place but another workflow: the runner may lie about its place.
    let pretender = harness.register(&scoped("h", "v"));
    assert_eq!(harness.job("a").runner, Some(first));
    let successor = harness.register(&scoped("h", "default/w"));
    assert_eq!(harness.job("a").runner, Some(successor));
    assert_ne!(pretender, successor);
}
