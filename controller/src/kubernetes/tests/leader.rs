//! Leader election: reads and writes of the lease.

use tokio_util::sync::CancellationToken;

use super::super::leader::Candidate;
use super::*;
use crate::leadership::Leadership;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/torc/leases/leader";

fn lease(holder: &str, transitions: i64, version: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "leader", "namespace": "torc", "resourceVersion": version },
        "spec": { "holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": 15 },
    })
}

#[tokio::test]
async fn a_free_lease_is_acquired_with_the_next_epoch() {
    for (seen, expected) in [(None, 1), (Some(lease("", 6, "8")), 7)] {
        let (api, folder) = (FakeApi::default(), tempfile::tempdir().unwrap());
        if let Some(seen) = seen.clone() {
            api.answers("GET", LEASE, 200, seen);
        }
        let mut candidate = Candidate::new(api.client(), "torc", "leader", "torc-0");
        let (leader, _) = candidate.win(&folder.path().join("torc.db"), |_| {}).await;
        assert_eq!(leader.epoch, expected);
        assert!(
            leader.holder.starts_with("torc-0_") && leader.holder.len() == "torc-0_".len() + 8,
            "{}",
            leader.holder
        );
        let written = api.calls().pop().unwrap();
        assert_eq!(written.method, if seen.is_some() { "PUT" } else { "POST" });
        let spec = &written.body["spec"];
        assert_eq!(spec["holderIdentity"].as_str(), Some(leader.holder.as_str()));
        assert_eq!((&spec["leaseTransitions"], &spec["leaseDurationSeconds"]), (&json!(expected), &json!(15)));
        assert_eq!(spec["acquireTime"], spec["renewTime"]);
    }
}

#[tokio::test]
async fn the_number_is_higher_than_any_that_the_store_has_seen() {
    let (api, folder) = (FakeApi::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("torc.db");
    let leader = Some(torc_store::Leader { epoch: 41, holder: "earlier".to_owned() });
    let options = torc_store::OpenOptions { path: path.clone(), create: true, leader, ..Default::default() };
    torc_store::Store::open(options).await.unwrap().close().await.unwrap();
    api.answers("GET", LEASE, 200, lease("", 6, "8"));
    let (leader, _) = Candidate::new(api.client(), "torc", "leader", "torc-0").win(&path, |_| {}).await;
    assert_eq!(leader.epoch, 42);
}

#[tokio::test]
async fn a_standby_reports_the_leader() {
    let (api, folder) = (FakeApi::default(), tempfile::tempdir().unwrap());
    api.answers("GET", LEASE, 200, lease("torc-1_00", 6, "8"));
    let mut candidate = Candidate::new(api.client(), "torc", "leader", "torc-0");
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let path = folder.path().join("torc.db");
    let told = |holder: &str| sender.send(holder.to_owned()).unwrap();
    tokio::select! {
        _ = candidate.win(&path, told) => panic!("another one leads"),
        holder = heard.recv() => assert_eq!(holder.as_deref(), Some("torc-1_00")),
    }
    assert!(api.calls().iter().all(|call| call.method == "GET"));
}

#[tokio::test]
async fn a_lease_that_another_one_has_is_lost() {
    let (api, folder) = (FakeApi::default(), tempfile::tempdir().unwrap());
    let mut candidate = Candidate::new(api.client(), "torc", "leader", "torc-0");
    let (_, asked) = candidate.win(&folder.path().join("torc.db"), |_| {}).await;
    let lost = CancellationToken::new();
    let leadership = Leadership::of_lease(asked, lost.clone());
    assert!(leadership.is_held());
    api.answers("GET", LEASE, 200, lease("torc-1_00", 9, "9"));
    let (code, body) = failure(409, "Conflict", "it was changed");
    api.answers("PUT", LEASE, code, body);
    let holding = candidate.hold(leadership.clone(), CancellationToken::new());
    tokio::time::timeout(Duration::from_secs(30), holding).await.expect("it ends at once");
    assert!(!leadership.is_held() && lost.is_cancelled());
}

#[tokio::test]
async fn a_lease_is_given_back_at_the_end() {
    let (api, folder) = (FakeApi::default(), tempfile::tempdir().unwrap());
    let mut candidate = Candidate::new(api.client(), "torc", "leader", "torc-0");
    let (_, asked) = candidate.win(&folder.path().join("torc.db"), |_| {}).await;
    api.calls();
    let stop = CancellationToken::new();
    stop.cancel();
    candidate.hold(Leadership::of_lease(asked, CancellationToken::new()), stop).await;
    let calls = api.calls();
    assert_eq!((calls.len(), calls[0].method.as_str()), (1, "PUT"));
    assert_eq!(calls[0].body["spec"].get("holderIdentity"), None);
    assert_eq!(calls[0].body["spec"]["leaseDurationSeconds"], 1);
}
