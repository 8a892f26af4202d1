//! Requests of each kind of caller to every route, for a workflow of ada in `default` and one of bob in `lab`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::routes::table;
use super::{callers, two_workflows};
use crate::tests::{Reply, TestServer};

/// The results of the calls of [`callers`], in their order: `+` is allowed or fails for another reason, `x` is 403 and `?` is 401.
/// The first pattern is about workflow 1, the second about workflow 2.
type Pattern = [&'static str; 2];

const ANY_TOKEN: Pattern = ["++++++++++++???", "++++++++++++???"];
const METRICS: Pattern = ["+xxxxxxxxxx+???", "+xxxxxxxxxx+???"];
const ADMINS: Pattern = ["+xxxxxxxxxxx???", "+xxxxxxxxxxx???"];
const OWNERS: Pattern = ["+++xxxxxxxxx???", "+++xxxxxxxxx???"];
/// The owner of the workflow and administrators.
const ITS_OWNER: Pattern = ["++xxxxxxxxxx???", "+x+xxxxxxxxx???"];
/// Runners of all workflows.
const FOR_ALL: Pattern = ["+xxxxxxxxx+x???", "+xxxxxxxxx+x???"];
/// All callers with access to workflows.
const MEMBERS: Pattern = ["+++++++++++x???", "+++++++++++x???"];
const READ: Pattern = ["++x++xx+x++x???", "+x+xx++x+x+x???"];
const WRITE: Pattern = ["++xx+xx+x++x???", "+x+xxx+x+x+x???"];
const STEER: Pattern = ["++xx+xxxxxxx???", "+x+xxx+xxxxx???"];
const STEER_READ: Pattern = ["++x++xxxxxxx???", "+x+xx++xxxxx???"];

const W: &str = "/v1/workflows/{workflow}";

/// Method, path of the route, query, body, status for the administrator, and the patterns. `NS` stands for the workflow's
/// namespace, `ID` for its number (its runner and its job have the same), `OTHER` for that of the other one, `USER` for its owner.
#[rustfmt::skip]
const CALLS: &[(&str, &str, &str, &str, u16, Pattern)] = &[
    ("GET", "/metrics", "", "", 200, METRICS),
    ("GET", "/v1/version", "", "", 200, ANY_TOKEN),
    ("GET", "/v1/openapi.json", "", "", 200, ANY_TOKEN),
    ("POST", "/v1/gc", "", r#"{"olderThanSeconds":1000000,"dryRun":true}"#, 200, ADMINS),
    ("POST", "/v1/backup", "", r#"{"path":"relative"}"#, 400, ADMINS),
    ("GET", "/v1/audit", "", "", 200, OWNERS),
    ("POST", "/v1/tokens", "", r#"{"scope":"runner","workflow":"sweep","namespace":"NS"}"#, 200, ITS_OWNER),
    ("POST", "/v1/tokens", "", r#"{"scope":"owner","user":"USER"}"#, 200, ITS_OWNER),
    ("POST", "/v1/tokens", "", r#"{"scope":"viewer","namespace":"NS"}"#, 200, ADMINS),
    ("POST", "/v1/tokens", "", r#"{"scope":"editor","namespace":"NS"}"#, 200, ADMINS),
    ("POST", "/v1/tokens", "", r#"{"scope":"pool"}"#, 200, ADMINS),
    ("POST", "/v1/tokens", "", r#"{"scope":"metrics"}"#, 200, ADMINS),
    ("POST", "/v1/tokens", "", r#"{"scope":"admin"}"#, 200, ADMINS),
    ("GET", "/v1/events", "", "", 200, MEMBERS),
    ("GET", "/v1/events", "?workflow=sweep&namespace=NS", "", 200, READ),
    ("GET", "/v1/watch", "", "", 200, MEMBERS),
    ("GET", "/v1/watch", "?workflow=sweep&namespace=NS", "", 200, READ),
    ("GET", "/v1/runners", "", "", 200, MEMBERS),
    ("POST", "/v1/runners", "", r#"{"protocol":1,"version":"t","host":"h","pid":1,"scope":{"workflow":"NS/sweep"},"capacity":{"cpus":1,"memoryBytes":1,"gpus":0,"nodes":1}}"#, 200, WRITE),
    ("POST", "/v1/runners", "", r#"{"protocol":1,"version":"t","host":"h","pid":1,"scope":"all","capacity":{"cpus":1,"memoryBytes":1,"gpus":0,"nodes":1}}"#, 200, FOR_ALL),
    ("POST", "/v1/runners", "", r#"{"protocol":1,"version":"t","host":"h","pid":1,"scope":"session","capacity":{"cpus":1,"memoryBytes":1,"gpus":0,"nodes":1}}"#, 200, FOR_ALL),
    ("POST", "/v1/runners/ID/sync", "", r#"{"sequence":1}"#, 200, WRITE),
    ("POST", "/v1/runners/ID/sync", "", r#"{"sequence":1,"returned":[{"workflow":ID,"job":ID,"run":1,"attempt":1,"leaseId":1},{"workflow":OTHER,"job":OTHER,"run":1,"attempt":1,"leaseId":1}]}"#, 200, FOR_ALL),
    ("POST", "/v1/logs", "", r#"{"host":"h"}"#, 200, FOR_ALL),
    ("GET", "/v1/allocations", "", "", 200, MEMBERS),
    ("GET", "/v1/allocations", "?workflow=sweep&namespace=NS", "", 200, READ),
    ("GET", "/v1/slurmclusters", "", "", 200, MEMBERS),
    ("POST", "/v1/slurmclusters", "", r#"{"apiVersion":"torc.dev/v1alpha1","metadata":{"name":"c"},"spec":{}}"#, 200, ADMINS),
    ("GET", "/v1/slurmclusters/c", "", "", 200, MEMBERS),
    ("DELETE", "/v1/slurmclusters/absent", "", "", 404, ADMINS),
    ("GET", "/v1/slurm_stats", "", "", 200, MEMBERS),
    ("GET", "/v1/slurm_stats", "?workflow_id=sweep&namespace=NS", "", 200, READ),
    ("POST", "/v1/slurm_stats", "", r#"{"items":[{"workflow":ID,"job":ID,"run":1,"attempt":1}]}"#, 204, WRITE),
    // Access to one of two workflows is not enough.
    ("POST", "/v1/slurm_stats", "", r#"{"items":[{"workflow":ID,"job":ID,"run":1,"attempt":1},{"workflow":OTHER,"job":OTHER,"run":1,"attempt":1}]}"#, 204, FOR_ALL),
    ("GET", "/v1/workflows", "", "", 200, MEMBERS),
    ("POST", "/v1/workflows", "", r#"{"workingDir":"/work","document":{"apiVersion":"torc.dev/v1alpha1","metadata":{"name":"sweep","namespace":"NS"},"spec":{"jobs":[{"name":"JOB","command":"true"}]}}}"#, 200, ITS_OWNER),
    ("POST", "/v1/workflows", "", r#"{"dryRun":true,"workingDir":"/work","document":{"apiVersion":"torc.dev/v1alpha1","metadata":{"name":"sweep","namespace":"NS"},"spec":{"jobs":[{"name":"JOB","command":"true"}]}}}"#, 200, ITS_OWNER),
    ("POST", "/v1/workflows", "", r#"{"dryRun":true,"workingDir":"/work","document":{"apiVersion":"torc.dev/v1alpha1","metadata":{"name":"new","namespace":"NS"},"spec":{"jobs":[{"name":"JOB","command":"true"}]}}}"#, 200, OWNERS),
    ("GET", W, "?namespace=NS", "", 200, READ),
    // The invalid query shows that the call is allowed, without deleting the workflow.
    ("DELETE", W, "?namespace=NS&force=perhaps", "", 400, STEER),
    ("GET", "/v1/workflows/{workflow}/actions", "?namespace=NS", "", 200, READ),
    ("POST", "/v1/workflows/{workflow}/classify", "?namespace=NS", r#"{"class":"Fail"}"#, 200, STEER),
    ("POST", "/v1/workflows/{workflow}/correct-resources", "?namespace=NS", "{}", 200, STEER),
    ("GET", "/v1/workflows/{workflow}/explain", "?namespace=NS", "", 200, READ),
    ("GET", "/v1/workflows/{workflow}/file-uses", "?namespace=NS", "", 200, READ),
    ("GET", "/v1/workflows/{workflow}/files", "?namespace=NS", "", 200, READ),
    ("GET", "/v1/workflows/{workflow}/jobs", "?namespace=NS", "", 200, READ),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}", "?namespace=NS", "", 200, READ),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}/explain", "?namespace=NS", "", 200, READ),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}/log", "?namespace=NS&path=/etc/passwd", "", 404, READ),
    ("POST", "/v1/workflows/{workflow}/jobs/{job}/spawn", "?namespace=NS", r#"{"lineage":"l","jobs":[],"runId":1,"attempt":1}"#, 409, WRITE),
    ("POST", "/v1/workflows/{workflow}/recover", "?namespace=NS", "{}", 200, STEER),
    ("POST", "/v1/workflows/{workflow}/regenerate", "?namespace=NS", r#"{"dryRun":true}"#, 200, STEER),
    ("GET", "/v1/workflows/{workflow}/remote-workers", "?namespace=NS", "", 200, STEER_READ),
    ("POST", "/v1/workflows/{workflow}/remote-workers", "?namespace=NS", r#"{"workers":[]}"#, 200, STEER),
    ("DELETE", "/v1/workflows/{workflow}/remote-workers/absent", "?namespace=NS", "", 404, STEER),
    ("GET", "/v1/workflows/{workflow}/results", "?namespace=NS", "", 200, READ),
    ("POST", "/v1/workflows/{workflow}/retry", "?namespace=NS", r#"{"dryRun":true}"#, 200, STEER),
    ("GET", "/v1/workflows/{workflow}/ro-crate", "?namespace=NS", "", 200, READ),
    ("POST", "/v1/workflows/{workflow}/runs/1/results", "?namespace=NS", r#"{"results":[]}"#, 200, WRITE),
    ("POST", "/v1/workflows/{workflow}/schedule-nodes", "?namespace=NS", "{}", 409, STEER),
    ("GET", "/v1/workflows/{workflow}/staleness", "?namespace=NS", "", 200, READ),
    ("POST", "/v1/workflows/{workflow}/submit", "?namespace=NS", "", 200, STEER),
    ("POST", "/v1/workflows/{workflow}/suspend", "?namespace=NS", "", 200, STEER),
    ("POST", "/v1/workflows/{workflow}/resume", "?namespace=NS", "", 200, STEER),
    ("POST", "/v1/workflows/{workflow}/sync-status", "?namespace=NS", "{}", 200, STEER),
    ("GET", "/v1/workflows/{workflow}/user-data", "?namespace=NS", "", 200, READ),
    ("PUT", "/v1/workflows/{workflow}/user-data/{name}", "?namespace=NS", r#"{"data":3}"#, 200, WRITE),
    ("GET", "/v1/workflows/{workflow}/user-data/{name}", "?namespace=NS", "", 200, READ),
    ("DELETE", "/v1/workflows/{workflow}/user-data/{name}", "?namespace=NS", "", 200, WRITE),
    ("POST", "/v1/workflows/{workflow}/cancel", "?namespace=NS", "", 200, STEER),
];

/// Fills in the placeholders of a call about workflow 1 or 2.
fn about(workflow: usize, text: &str) -> String {
    let (id, other, namespace, user, job) =
        if workflow == 1 { ("1", "2", "default", "ada", "one") } else { ("2", "1", "lab", "bob", "two") };
    let text = text.replace("{workflow}", "sweep").replace("{job}", job).replace("{name}", "value").replace("JOB", job);
    text.replace("OTHER", other).replace("ID", id).replace("NS", namespace).replace("USER", user)
}

async fn call(server: &TestServer, row: usize, workflow: usize, token: Option<&str>) -> Reply {
    let (method, path, query, body, ..) = CALLS[row];
    let body: Option<Value> = (!body.is_empty()).then(|| serde_json::from_str(&about(workflow, body)).unwrap());
    server.send(method, &about(workflow, &format!("{path}{query}")), token, body).await
}

/// Returns the method and the route of a call.
fn route(method: &str, path: &str) -> (String, String) {
    let path = path.replace("/runners/ID/", "/runners/{runner}/").replace("/runs/1/", "/runs/{run}/");
    let path = path.replace("slurmclusters/c", "slurmclusters/{cluster}");
    let path = path.replace("slurmclusters/absent", "slurmclusters/{cluster}");
    (method.to_owned(), path.replace("remote-workers/absent", "remote-workers/{worker}"))
}

#[test]
fn every_route_is_called() {
    let called: BTreeSet<_> = CALLS.iter().map(|(method, path, ..)| route(method, path)).collect();
    let guarded: BTreeSet<_> = table().into_iter().filter(|(_, path)| path != "/livez" && path != "/readyz").collect();
    assert_eq!(called, guarded);
}

#[tokio::test]
async fn each_kind_of_caller_may_call_what_the_table_says() {
    let server = two_workflows().await;
    let callers = callers(&server);
    let mut wrong = Vec::new();
    for (row, (method, path, query, body, status, expected)) in CALLS.iter().enumerate() {
        for workflow in [1, 2] {
            let mut found = String::new();
            for (index, (_, token)) in callers.iter().enumerate() {
                let reply = call(&server, row, workflow, token.as_deref()).await;
                found.push(match reply.status.as_u16() {
                    401 => '?',
                    403 => 'x',
                    _ => '+',
                });
                if index == 0 && reply.status.as_u16() != *status {
                    wrong.push(format!("{method} {path}{query} {body}: {} {}", reply.status, reply.text));
                }
            }
            let expected = expected[workflow - 1];
            let differs = |(at, (is, should)): (usize, (char, char))| {
                (is != should).then(|| format!("{}: {is} and not {should}", callers[at].0))
            };
            let differing: Vec<String> = found.chars().zip(expected.chars()).enumerate().filter_map(differs).collect();
            if !differing.is_empty() || found.len() != expected.len() {
                wrong
                    .push(format!("{method} {path}{query} {body} about workflow {workflow}: {}", differing.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn health_needs_no_token() {
    let server = two_workflows().await;
    for (_, token) in callers(&server) {
        for path in ["/livez", "/readyz"] {
            let reply = server.send("GET", path, token.as_deref(), None).await;
            assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, "ok"), "{path}");
        }
    }
    server.readiness.add_missing("leadership", "another server leads");
    let reply = server.send("GET", "/readyz", None, None).await;
    assert_eq!((reply.status.as_u16(), reply.body["code"].as_str()), (503, Some("NotReady")));
    assert_eq!(reply.body["message"], "leadership: another server leads");
    assert_eq!(server.send("GET", "/livez", None, None).await.status.as_u16(), 200, "it is alive all the same");
}

#[tokio::test]
async fn refusals_say_what_the_token_is_good_for() {
    let server = two_workflows().await;
    let said = [
        ("owner ada", "the token only allows access to workflows of ada"),
        ("viewer of default", "the token only allows reading workflows of namespace default"),
        ("editor of default", "the token only allows access to existing workflows of namespace default"),
        ("runner of workflow 1", "the token only allows access for runners and jobs of workflow 1"),
        ("pool", "the token only allows access for runners and jobs"),
        ("metrics", "the token only allows reading metrics"),
    ];
    for (name, token) in callers(&server) {
        let Some((_, expected)) = said.iter().find(|(of, _)| *of == name) else { continue };
        let reply = server.send("POST", "/v1/workflows/2/cancel", token.as_deref(), None).await;
        assert_eq!((reply.status.as_u16(), reply.body["code"].as_str()), (403, Some("Forbidden")), "{name}");
        assert_eq!(reply.body["message"], *expected);
    }
}

#[tokio::test]
async fn every_handler_acts_on_the_workflow_of_its_namespace() {
    let server = TestServer::start().await;
    server.stop_http.cancel();
    server.apply("ada", "default", "other", crate::tests::jobs(&["one"])).await;
    assert_eq!(server.apply("bob", "lab", "sweep", crate::tests::jobs(&["two"])).await, 2);
    let mut called = 0;
    for (row, (method, path, query, ..)) in CALLS.iter().enumerate().filter(|(_, call)| call.2.contains("namespace=NS"))
    {
        let reply = call(&server, row, 2, Some(crate::tests::ADMIN)).await;
        assert_ne!(reply.body["code"], "WorkflowNotFound", "{method} {path}{query}: {}", reply.text);
        called += 1;
    }
    assert!(called > 30, "{called} routes were called");
    let deleted = server.send("DELETE", "/v1/workflows/sweep?namespace=lab", Some(crate::tests::ADMIN), None).await;
    assert_eq!(deleted.status.as_u16(), 204);
    // Without a namespace, the default one is used.
    assert_eq!(server.ok("GET", "/v1/workflows/other", None).await["namespace"], "default");
}
