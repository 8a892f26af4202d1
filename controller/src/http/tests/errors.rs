//! The status, code and hint of each error.

use axum::response::IntoResponse as _;
use torc_api::problem::Problem;
use torc_core::engine::CommandError;
use torc_core::ids::RunnerId;
use torc_core::tokens::TokenError;

use super::super::error::{ApiError, unauthorized};
use crate::engine::EngineError;
use crate::tests::{ADMIN, TestServer, jobs};

fn status(error: EngineError) -> u16 {
    ApiError::from(error).into_response().status().as_u16()
}

#[test]
fn each_error_has_its_status_and_code() {
    let text = |text: &str| text.to_owned();
    let job = CommandError::NoJob { workflow: text("w"), job: text("j") };
    let data = CommandError::NoData { workflow: text("w"), name: text("d") };
    let iterations = CommandError::TooManyIterations { lineage: text("l"), most: 3 };
    #[rustfmt::skip]
    let errors: Vec<(EngineError, u16, &str, &str)> = vec![
        (CommandError::NoWorkflow(text("w")).into(), 404, "WorkflowNotFound", ""),
        (job.into(), 404, "JobNotFound", "`torc get jobs w` lists its jobs"),
        (data.into(), 404, "UserDataNotFound", "`torc user-data list w` lists its data"),
        (CommandError::NoRunner(RunnerId(3)).into(), 404, "RunnerNotFound", ""),
        (CommandError::NoCluster(text("c")).into(), 404, "ClusterNotFound", "`torc get slurmclusters` lists them"),
        (CommandError::Invalid(text("no")).into(), 422, "Invalid", ""),
        (iterations.into(), 422, "TooManyIterations", "raise `dynamicJobs.maxIterations` in the document, or end the loop with `torc spawn --converged`"),
        (CommandError::AllocationEnded(text("7")).into(), 409, "AllocationEnded", ""),
        (CommandError::Protocol(9).into(), 409, "ProtocolMismatch", "install the same version of torc on both sides"),
        (CommandError::Conflict(text("no")).into(), 409, "Conflict", ""),
        (CommandError::Forbidden(text("no")).into(), 403, "Forbidden", ""),
        (EngineError::forbidden(text("no")), 403, "Forbidden", ""),
        (EngineError::foreign_runner(), 403, "Forbidden", ""),
        (EngineError::invalid(Vec::new()), 422, "InvalidDocument", ""),
        (EngineError::bad_request("no"), 400, "BadRequest", ""),
        (EngineError::no_data("d"), 404, "UserDataNotFound", "`torc get user-data <workflow>` lists the values"),
        (EngineError::no_worker("h"), 404, "WorkerNotFound", "`torc remote list-workers` lists its workers"),
        (EngineError::allocations_left("w", 1), 409, "AllocationsLeft", "delete it again when Slurm answers, or now with `--force`; `squeue` lists the remaining allocations"),
        (EngineError::no_log("/p", "j"), 404, "LogNotFound", ""),
        (EngineError::log_elsewhere("h", "/p"), 404, "LogElsewhere", "read it on that host; only runners in Pods send logs to the server"),
        (EngineError::log_gone("h"), 404, "LogGone", "to keep logs, give the runner pool a volume at /torc/output"),
        (EngineError::internal(text("no")), 500, "Internal", ""),
        (EngineError::stopped(), 503, "Stopped", ""),
        (EngineError::not_ready(text("no")), 503, "NotReady", ""),
        (EngineError::unavailable(text("no")), 503, "StoreUnavailable", "no data is lost; the server retries by itself"),
    ];
    for (error, expected, code, hint) in errors {
        assert_eq!(
            (error.body.code.to_string().as_str(), error.body.hint.as_deref().unwrap_or_default()),
            (code, hint)
        );
        assert_eq!(status(error), expected, "{code}");
    }
}

#[test]
fn messages_name_what_is_concerned() {
    for (error, message) in [
        (EngineError::allocations_left("w", 1), "workflow 'w' is canceled, but 1 allocation may still be in Slurm"),
        (EngineError::allocations_left("w", 2), "workflow 'w' is canceled, but 2 allocations may still be in Slurm"),
        (EngineError::no_log("/p", "j"), "'/p' is not a log of job 'j'"),
        (EngineError::log_elsewhere("h", "/p"), "the log is on a disk of h: /p"),
        (EngineError::log_gone("h"), "runner h was deleted together with the logs on its disk"),
        (EngineError::no_worker("h"), "the workflow has no worker 'h'"),
        (EngineError::no_data("d"), "user data 'd' does not exist"),
    ] {
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn an_invalid_document_is_told_with_all_of_its_problems() {
    let problem = |field: &str, message: &str| Problem::error(field, message);
    let one = EngineError::invalid(vec![problem("spec.a", "is wrong")]);
    assert_eq!((one.body.message.as_str(), one.body.field.as_deref()), ("is wrong", Some("spec.a")));
    let two = EngineError::invalid(vec![problem("", "is wrong"), problem("spec.b", "is, too")]);
    assert_eq!((two.body.message.as_str(), two.body.field.as_deref()), ("the document has 2 problems", None));
    assert_eq!(two.body.problems.len(), 2);
}

#[test]
fn store_errors_say_whose_fault_it_is() {
    let cursor = torc_store::StoreError::InvalidCursor { cursor: "x".to_owned() };
    let exists = torc_store::StoreError::Exists { path: "/p".into() };
    let superseded = torc_store::StoreError::Superseded { epoch: 1, by: 2 };
    for (error, expected, code) in
        [(cursor, 400, "InvalidCursor"), (exists, 409, "Exists"), (superseded, 503, "StoreUnavailable")]
    {
        let error = EngineError::from(error);
        assert_eq!((error.body.code.to_string().as_str(), status(error.clone())), (code, expected));
    }
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_told_why() {
    let name = "pass --token-file or set TORC_TOKEN_FILE to the file that the server printed at its start";
    for (reason, message, hint) in [
        (None, "this request needs a valid token".to_owned(), name),
        (Some(TokenError::Forged), format!("the token is not accepted: {}", TokenError::Forged), name),
        (
            Some(TokenError::Expired),
            format!("the token is not accepted: {}", TokenError::Expired),
            "create a new one with `torc token create`",
        ),
    ] {
        let response = unauthorized(reason).into_response();
        assert_eq!(response.status().as_u16(), 401);
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["code"], "Unauthorized");
        assert_eq!((body["message"].as_str(), body["hint"].as_str()), (Some(message.as_str()), Some(hint)));
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_the_status_of_its_kind() {
    let server = TestServer::start().await;
    server.apply("ada", "default", "w", jobs(&["j"])).await;
    for (method, path, body, expected, code) in [
        ("GET", "/v1/absent", None, 404, "NotFound"),
        ("GET", "/v1/workflows?limit=x", None, 400, "BadRequest"),
        ("GET", "/v1/workflows?cursor=x", None, 400, "BadRequest"),
        ("GET", "/v1/workflows/w/jobs?status=lost", None, 400, "BadRequest"),
        ("GET", "/v1/workflows/w/jobs?cursor=*", None, 400, "InvalidCursor"),
        ("GET", "/v1/workflows/w/jobs/absent", None, 404, "JobNotFound"),
        ("GET", "/v1/workflows/w/user-data/absent", None, 404, "UserDataNotFound"),
        ("GET", "/v1/slurmclusters/absent", None, 404, "ClusterNotFound"),
        ("GET", "/v1/slurm_stats?job_id=j", None, 400, "BadRequest"),
        ("POST", "/v1/workflows/w/retry", Some(r#"{"jobs":3}"#), 422, "BadRequest"),
        ("POST", "/v1/workflows/w/runs/first/results", Some(r#"{"results":[]}"#), 400, "BadRequest"),
        ("POST", "/v1/workflows/w/remote-workers", Some(r#"{"workers":[{"address":"-x"}]}"#), 400, "BadRequest"),
        ("POST", "/v1/workflows/w/regenerate", Some(r#"{"walltime":"soon"}"#), 400, "BadRequest"),
        (
            "POST",
            "/v1/runners",
            Some(
                r#"{"protocol":9,"version":"t","host":"h","pid":1,"capacity":{"cpus":1,"memoryBytes":1,"gpus":0,"nodes":1}}"#,
            ),
            409,
            "ProtocolMismatch",
        ),
        ("POST", "/v1/tokens", Some(r#"{"scope":"runner"}"#), 400, "BadRequest"),
        ("POST", "/v1/tokens", Some(r#"{"scope":"runner","workflow":"w","user":"ada"}"#), 400, "BadRequest"),
        ("POST", "/v1/tokens", Some(r#"{"scope":"runner","workflow":"absent"}"#), 404, "WorkflowNotFound"),
        ("POST", "/v1/tokens", Some(r#"{"scope":"owner"}"#), 400, "BadRequest"),
        ("POST", "/v1/tokens", Some(r#"{"scope":"owner","user":"ada","workflow":"w"}"#), 400, "BadRequest"),
        ("POST", "/v1/tokens", Some(r#"{"scope":"admin","user":"ada"}"#), 400, "BadRequest"),
        ("POST", "/v1/tokens", Some(r#"{"scope":"pool","workflow":"w"}"#), 400, "BadRequest"),
        ("POST", "/v1/tokens", Some(r#"{"scope":"admin","expiresSeconds":0}"#), 400, "BadRequest"),
        ("POST", "/v1/tokens", Some(r#"{"scope":"admin","expiresSeconds":-1}"#), 400, "BadRequest"),
        ("POST", "/v1/tokens", Some(r#"{"scope":"admin","expiresSeconds":1}"#), 200, ""),
        ("POST", "/v1/backup", Some(r#"{"path":"copy.db"}"#), 400, "BadRequest"),
    ] {
        let body = body.map(|body| serde_json::from_str(body).unwrap());
        let reply = server.send(method, path, Some(ADMIN), body.clone()).await;
        let found = reply.body["code"].as_str().unwrap_or_default();
        assert_eq!((reply.status.as_u16(), found), (expected, code), "{method} {path} {body:?}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_token_says_what_was_asked_for_and_until_when() {
    let server = TestServer::start().await;
    server.apply("ada", "lab", "w", jobs(&["j"])).await;
    let before = crate::clock::now().wall_ms / 1_000;
    let request = serde_json::json!({ "scope": "runner", "workflow": "w", "namespace": "lab", "expiresSeconds": 100 });
    let made = server.ok("POST", "/v1/tokens", Some(request)).await;
    let statement = server.issuer.verify(made["token"].as_str().unwrap(), before).unwrap();
    assert_eq!(statement.grant, torc_api::token::Grant::Runner { workflow: 1 });
    assert_eq!((statement.issuer.as_str(), statement.expires), ("root", Some(statement.issued + 100)));
    assert!(statement.issued >= before);
    let unlimited = server.ok("POST", "/v1/tokens", Some(serde_json::json!({ "scope": "pool" }))).await;
    let statement = server.issuer.verify(unlimited["token"].as_str().unwrap(), before).unwrap();
    assert_eq!((statement.grant, statement.expires), (torc_api::token::Grant::Pool, None));
}
