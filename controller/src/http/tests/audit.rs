//! The audit log: the rows of each verb, and its readers.

use serde_json::{Value, json};
use torc_api::error_code::ErrorCode;
use torc_api::token::{Grant, Scope};
use torc_core::ids::Now;

use super::{callers, two_workflows};
use crate::audit::{self, AuditContext, AuditOutcome, AuditVerb};
use crate::engine::EngineError;
use crate::tests::{ADMIN, START_MS, TestServer, document, jobs, registration};

/// Returns the rows after a sequence number: who, scope, verb, object, outcome.
async fn rows(server: &TestServer, after: i64) -> Vec<[String; 5]> {
    let page = server.ok("GET", &format!("/v1/audit?cursor={after}"), None).await;
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    let fields = ["who", "scope", "verb", "object", "outcome"];
    page["items"].as_array().unwrap().iter().map(|row| fields.map(|field| text(row, field))).collect()
}

async fn last(server: &TestServer) -> i64 {
    let page = server.ok("GET", "/v1/audit", None).await;
    page["items"].as_array().unwrap().last().map_or(0, |row| row["sequence"].as_i64().unwrap())
}

#[tokio::test]
async fn each_verb_is_on_record_with_its_author_and_object() {
    let server = two_workflows().await;
    let sweep = |namespace: &str, name: &str, job: &str| json!({ "workingDir": "/w", "document": document(namespace, name, json!({ "jobs": jobs(&[job]) })) });
    let cluster = json!({ "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": "c1" }, "spec": {} });
    let stats = json!({ "items": [{ "workflow": 2, "job": 2, "run": 1, "attempt": 1 }] });
    let spawn = json!({ "lineage": "l", "jobs": [], "runId": 1, "attempt": 1 });
    let backup = server.folder.path().join("copy.db");
    let (ada, bob, editor) = ("owner ada", "owner bob", "editor of lab");
    let ok = "ok";
    #[rustfmt::skip]
    let calls: Vec<(&str, &str, &str, Value, [&str; 5])> = vec![
        ("administrator", "POST", "/v1/workflows", sweep("default", "new", "j"), ["root", "admin", "apply", "workflows/new", ok]),
        (ada, "POST", "/v1/workflows", sweep("default", "sweep", "other"), ["ada", "owner", "apply", "workflows/sweep", ok]),
        (bob, "POST", "/v1/workflows", sweep("default", "sweep", "other"), ["bob", "owner", "apply", "workflows/sweep", "Forbidden"]),
        (ada, "POST", "/v1/workflows/sweep/suspend", Value::Null, ["ada", "owner", "suspend", "workflows/sweep/suspend", ok]),
        (ada, "POST", "/v1/workflows/1/resume", Value::Null, ["ada", "owner", "resume", "workflows/1/resume", ok]),
        (editor, "POST", "/v1/workflows/sweep/cancel?namespace=lab", Value::Null, ["editor of lab", "editor", "cancel", "workflows/sweep/cancel", ok]),
        (bob, "POST", "/v1/workflows/2/retry", json!({ "all": true }), ["bob", "owner", "retry", "workflows/2/retry", ok]),
        (bob, "POST", "/v1/workflows/2/retry", json!({ "jobs": ["absent"] }), ["bob", "owner", "retry", "workflows/2/retry", "JobNotFound"]),
        (ada, "POST", "/v1/workflows/1/sync-status", json!({}), ["ada", "owner", "sync status", "workflows/1/sync-status", ok]),
        (ada, "POST", "/v1/workflows/1/recover", json!({}), ["ada", "owner", "recover", "workflows/1/recover", ok]),
        (ada, "POST", "/v1/workflows/1/regenerate", json!({}), ["ada", "owner", "regenerate", "workflows/1/regenerate", ok]),
        (ada, "POST", "/v1/workflows/1/correct-resources", json!({}), ["ada", "owner", "correct resources", "workflows/1/correct-resources", ok]),
        (ada, "POST", "/v1/workflows/1/classify", json!({ "class": "Fail" }), ["ada", "owner", "classify", "workflows/1/classify", ok]),
        (ada, "POST", "/v1/workflows/1/schedule-nodes", json!({}), ["ada", "owner", "schedule nodes", "workflows/1/schedule-nodes", "Conflict"]),
        (ada, "POST", "/v1/workflows/1/submit", Value::Null, ["ada", "owner", "submit", "workflows/1/submit", ok]),
        (ada, "POST", "/v1/workflows/1/jobs/other/spawn", spawn, ["ada", "owner", "spawn", "workflows/1/jobs/other/spawn", "Conflict"]),
        (ada, "POST", "/v1/workflows/1/runs/1/results", json!({ "results": [] }), ["ada", "owner", "replay", "workflows/1/runs/1/results", ok]),
        (ada, "PUT", "/v1/workflows/1/user-data/lr", json!({ "data": 1 }), ["ada", "owner", "write data", "workflows/1/user-data/lr", ok]),
        (ada, "DELETE", "/v1/workflows/1/user-data/lr", Value::Null, ["ada", "owner", "delete data", "workflows/1/user-data/lr", ok]),
        (ada, "POST", "/v1/workflows/1/remote-workers", json!({ "workers": [{ "address": "h1" }] }), ["ada", "owner", "add workers", "workflows/1/remote-workers", ok]),
        (ada, "DELETE", "/v1/workflows/1/remote-workers/h1", Value::Null, ["ada", "owner", "remove worker", "workflows/1/remote-workers/h1", ok]),
        (bob, "POST", "/v1/slurm_stats", stats, ["bob", "owner", "record slurm stats", "slurm_stats", ok]),
        ("administrator", "POST", "/v1/slurmclusters", cluster, ["root", "admin", "apply cluster", "slurmclusters/c1", ok]),
        ("administrator", "DELETE", "/v1/slurmclusters/c1", Value::Null, ["root", "admin", "delete cluster", "slurmclusters/c1", ok]),
        ("administrator", "POST", "/v1/gc", json!({ "olderThanSeconds": 1_000_000 }), ["root", "admin", "gc", "gc", ok]),
        ("administrator", "POST", "/v1/backup", json!({ "path": backup }), ["root", "admin", "backup", "backup", ok]),
        (ada, "POST", "/v1/tokens", json!({ "scope": "runner", "workflow": "sweep" }), ["ada", "owner", "create token", "tokens/runner of workflow 1", ok]),
        (ada, "POST", "/v1/tokens", json!({ "scope": "runner", "workflow": "2" }), ["ada", "owner", "create token", "tokens", "Forbidden"]),
        (ada, "POST", "/v1/tokens", json!({ "scope": "owner", "user": "ada" }), ["ada", "owner", "create token", "tokens/owner ada", ok]),
        (ada, "POST", "/v1/tokens", json!({ "scope": "owner", "user": "bob" }), ["ada", "owner", "create token", "tokens", "Forbidden"]),
        (ada, "POST", "/v1/tokens", json!({ "scope": "admin" }), ["ada", "owner", "create token", "tokens", "Forbidden"]),
        ("administrator", "POST", "/v1/tokens", json!({ "scope": "admin" }), ["root", "admin", "create token", "tokens/admin", ok]),
        ("administrator", "POST", "/v1/tokens", json!({ "scope": "pool" }), ["root", "admin", "create token", "tokens/pool", ok]),
        ("administrator", "POST", "/v1/tokens", json!({ "scope": "metrics" }), ["root", "admin", "create token", "tokens/metrics", ok]),
        ("administrator", "POST", "/v1/tokens", json!({ "scope": "viewer", "namespace": "lab" }), ["root", "admin", "create token", "tokens/viewer of lab", ok]),
        ("administrator", "POST", "/v1/tokens", json!({ "scope": "editor" }), ["root", "admin", "create token", "tokens/editor of default", ok]),
        (ada, "POST", "/v1/runners", registration("n7", Some("default/sweep")), ["ada", "owner", "register", "runners on n7", ok]),
        ("runner of workflow 2", "POST", "/v1/runners", registration("n8", Some("2")), ["runner of workflow 2", "runner", "register", "runners on n8", ok]),
        ("runner of workflow 2", "POST", "/v1/runners", registration("n8", Some("1")), ["runner of workflow 2", "runner", "register", "runners on n8", "Forbidden"]),
        ("runner of workflow 2", "POST", "/v1/runners/1/sync", json!({ "sequence": 1 }), ["runner of workflow 2", "runner", "sync", "runners/1/sync", "Forbidden"]),
        ("runner of workflow 2", "POST", "/v1/workflows/2/cancel", Value::Null, ["runner of workflow 2", "runner", "cancel", "workflows/2/cancel", "Forbidden"]),
        ("job of workflow 1", "GET", "/v1/workflows/2", Value::Null, ["runner of workflow 1", "runner", "read", "workflows/2", "Forbidden"]),
        ("viewer of lab", "GET", "/v1/workflows/1/jobs", Value::Null, ["viewer of lab", "viewer", "read", "workflows/1/jobs", "Forbidden"]),
        ("pool", "POST", "/v1/gc", json!({ "olderThanSeconds": 1 }), ["runner of a pool", "pool", "gc", "gc", "Forbidden"]),
        ("metrics", "GET", "/v1/events", Value::Null, ["metrics", "metrics", "read", "events", "Forbidden"]),
        (bob, "DELETE", "/v1/workflows/2", Value::Null, ["bob", "owner", "delete", "workflows/2", ok]),
    ];
    let callers = callers(&server);
    for (who, method, path, body, expected) in calls {
        let before = last(&server).await;
        let token = callers.iter().find(|(name, _)| *name == who).unwrap().1.as_deref();
        let body = (!body.is_null()).then_some(body);
        let reply = server.send(method, path, token, body).await;
        assert_eq!(rows(&server, before).await, [expected.map(str::to_owned)], "{who} {method} {path}: {}", reply.text);
        assert_eq!(reply.status.is_success(), expected[4] == ok, "{who} {method} {path}: {}", reply.text);
    }
}

#[tokio::test]
async fn reading_and_the_work_of_runners_leave_no_rows() {
    let server = two_workflows().await;
    let (runner, before) = (server.token(Grant::Runner { workflow: 1 }, None), last(&server).await);
    for (method, path, body, token) in [
        ("GET", "/v1/workflows", None, ADMIN),
        ("GET", "/v1/workflows/1", None, runner.as_str()),
        ("POST", "/v1/runners/1/sync", Some(json!({ "sequence": 1 })), &runner),
        ("PUT", "/v1/workflows/1/user-data/lr", Some(json!({ "data": 1 })), &runner),
        ("POST", "/v1/workflows/1/runs/1/results", Some(json!({ "results": [] })), &runner),
        ("POST", "/v1/workflows/1/retry", Some(json!({ "dryRun": true })), ADMIN),
        ("POST", "/v1/gc", Some(json!({ "olderThanSeconds": 9, "dryRun": true })), ADMIN),
    ] {
        let reply = server.send(method, path, Some(token), body).await;
        assert!(reply.status.is_success(), "{method} {path}: {}", reply.text);
    }
    // A request that is refused before its caller is known has no row.
    assert_eq!(server.send("GET", "/v1/workflows", Some("wrong"), None).await.status.as_u16(), 401);
    assert_eq!(rows(&server, before).await, Vec::<[String; 5]>::new());
}

#[tokio::test]
async fn owners_read_their_own_rows_page_by_page() {
    let server = two_workflows().await;
    let ada = server.token(Grant::Owner { user: "ada".to_owned() }, None);
    let before = last(&server).await;
    server.clock.advance(2_000);
    for (token, path) in [(ada.as_str(), "suspend"), (ADMIN, "suspend"), (&ada, "resume"), (&ada, "cancel")] {
        server.send("POST", &format!("/v1/workflows/1/{path}"), Some(token), None).await;
    }
    let page = server.send("GET", "/v1/audit?limit=2", Some(&ada), None).await.body;
    let read = |page: &Value| -> Vec<(i64, String, String)> {
        let row = |row: &Value| {
            let text = |field: &str| row[field].as_str().unwrap().to_owned();
            (row["sequence"].as_i64().unwrap() - before, text("verb"), text("time"))
        };
        page["items"].as_array().unwrap().iter().map(row).collect()
    };
    let time = torc_core::time::rfc3339(START_MS + 2_000);
    let row = |sequence, verb: &str| (sequence, verb.to_owned(), time.clone());
    assert_eq!(read(&page), [row(1, "suspend"), row(3, "resume")], "the administrator's is not shown");
    let next = page["next"].as_str().unwrap();
    let rest = server.send("GET", &format!("/v1/audit?limit=2&cursor={next}"), Some(&ada), None).await.body;
    assert_eq!((read(&rest), rest.get("next")), (vec![row(4, "cancel")], None));
    let reply = server.send("GET", "/v1/audit?cursor=x", Some(&ada), None).await;
    assert_eq!(
        (reply.status.as_u16(), reply.body["message"].as_str()),
        (400, Some("'x' is not a cursor of this list"))
    );
}

#[tokio::test]
async fn a_row_names_the_caller_and_what_it_was_done_to() {
    use AuditOutcome::{Done, Failed, Refused};
    use AuditVerb::{Apply, Register, Spawn};
    let now = Now { wall_ms: 5, mono_ms: 6 };
    let context = |scope, verb| AuditContext::new("who".to_owned(), scope, verb, "what".to_owned());
    let row = context(Scope::Pool, Apply).row(Done, now).unwrap();
    assert_eq!((row.time_ms, row.who.as_str(), row.scope.as_str()), (5, "who", Scope::Pool.name()));
    assert_eq!((row.verb.as_str(), row.object.as_str(), row.outcome.as_str()), ("apply", "what", "ok"));
    let (forbidden, wrong) = (EngineError::forbidden("no".to_owned()), EngineError::bad_request("no"));
    assert_eq!(
        (forbidden.audit_outcome(), wrong.audit_outcome()),
        (Refused(ErrorCode::Forbidden), Failed(ErrorCode::BadRequest))
    );
    for (scope, verb, outcome, expected) in [
        (Scope::Runner, Register, Done, Some("ok")),
        (Scope::Runner, Register, Failed(ErrorCode::BadRequest), Some("BadRequest")),
        (Scope::Runner, Spawn, Done, None),
        (Scope::Runner, Spawn, Failed(ErrorCode::BadRequest), None),
        (Scope::Runner, Spawn, Refused(ErrorCode::Forbidden), Some("Forbidden")),
        (Scope::Admin, Spawn, Failed(ErrorCode::BadRequest), Some("BadRequest")),
    ] {
        let found = context(scope, verb).row(outcome.clone(), now).map(|row| row.outcome);
        assert_eq!(found.as_deref(), expected, "{scope:?} {verb} {outcome:?}");
    }
    assert!(audit::current().is_none(), "the server's own commands are not audited");
    let named = audit::scope(context(Scope::Admin, Apply), async {
        audit::set_object("something else".to_owned());
        audit::current().unwrap().row(Done, now).unwrap().object
    });
    assert_eq!(named.await, "something else");
}
