//! Tests of the request of each method.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use torc_api::api::GcRequest;
use torc_api::data::{SpawnRequest, WriteUserData};
use torc_api::document::{SlurmClusterDocument, WorkflowDocument};
use torc_api::recovery::{
    ClassifyRequest, CorrectResourcesRequest, FailureClass, RecoverRequest, RegenerateRequest, ScheduleNodesRequest,
};
use torc_api::state::JobState;
use torc_api::token::Scope;

use super::*;

/// A received request: method, target, body and some headers.
#[derive(Clone, Debug, Default)]
struct ReceivedRequest {
    line: String,
    body: Value,
    token: String,
    user: bool,
}

/// A server that records requests. It sends its responses in order and repeats the last one.
struct Recorder {
    url: String,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Recorder {
    fn start(answers: Vec<(u16, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let seen: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let written = Arc::clone(&seen);
        std::thread::spawn(move || {
            for (number, connection) in listener.incoming().flatten().enumerate() {
                let (status, text) = answers[number.min(answers.len() - 1)].clone();
                let mut reader = BufReader::new(connection);
                let mut request = ReceivedRequest::default();
                let mut line = String::new();
                reader.read_line(&mut line).expect("a request");
                request.line = line.trim_end_matches(" HTTP/1.1\r\n").to_owned();
                let mut length = 0;
                loop {
                    let mut header = String::new();
                    reader.read_line(&mut header).expect("a header");
                    let Some((name, value)) = header.trim_end().split_once(": ") else { break };
                    match name.to_lowercase().as_str() {
                        "content-length" => length = value.parse().expect("a length"),
                        "authorization" => value.clone_into(&mut request.token),
                        "x-torc-user" => request.user = true,
                        _ => {}
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).expect("a body");
                request.body = serde_json::from_slice(&body).unwrap_or_default();
                written.lock().expect("a list").push(request);
                let head =
                    format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", text.len());
                let _ = reader.into_inner().write_all(format!("{head}{text}").as_bytes());
            }
        });
        Self { url, seen }
    }

    fn client(&self) -> Client {
        Client::new(&self.url, Some("secret".to_owned()), &Trust::System, Some("lab".to_owned())).expect("a client")
    }

    fn take(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut *self.seen.lock().expect("a list"))
    }

    /// Checks the last request and returns its body.
    #[track_caller]
    fn made(&self, expected: &str) -> Value {
        let seen = self.take();
        let lines: Vec<&str> = seen.iter().map(|request| request.line.as_str()).collect();
        assert_eq!(lines, [expected]);
        seen[0].body.clone()
    }
}

fn empty() -> Recorder {
    Recorder::start(vec![(200, r#"{"items": []}"#.to_owned())])
}

#[test]
fn names_are_escaped_in_paths() {
    let client =
        Client::new("http://127.0.0.1:1/base/", None, &Trust::System, Some("n s".to_owned())).expect("a client");
    let url = client.url_of(&["workflows", "w", "jobs", "a/b c?%"], &client.in_namespace());
    assert_eq!(url.as_str(), "http://127.0.0.1:1/base/v1/workflows/w/jobs/a%2Fb%20c%3F%25?namespace=n+s");
    assert_eq!(client.url(), "http://127.0.0.1:1/base");
}

#[tokio::test]
async fn requests_name_their_sender_and_carry_the_token() {
    let server = empty();
    let _ = server.client().version().await;
    let request = server.take().remove(0);
    assert_eq!((request.line.as_str(), request.token.as_str()), ("GET /v1/version", "Bearer secret"));
    assert_eq!(request.user, user_name().is_some());
    let anonymous = Client::new(&server.url, None, &Trust::System, None).expect("a client");
    let _ = anonymous.workflows().await;
    let request = server.take().remove(0);
    assert_eq!((request.line.as_str(), request.token.as_str()), ("GET /v1/workflows?limit=5000", ""));
}

#[tokio::test]
async fn every_read_uses_its_own_route() {
    let server = empty();
    let client = server.client();
    let _ = client.workflows().await;
    server.made("GET /v1/workflows?namespace=lab&limit=5000");
    let _ = client.workflows_everywhere().await;
    server.made("GET /v1/workflows?limit=5000");
    let _ = client.first_workflows(6).await;
    server.made("GET /v1/workflows?namespace=lab&limit=6");
    let _ = client.workflow("w").await;
    server.made("GET /v1/workflows/w?namespace=lab");
    let _ = client.actions("w").await;
    server.made("GET /v1/workflows/w/actions?namespace=lab&limit=5000");
    let filter = JobFilter {
        status: vec![JobState::Ready, JobState::Failed],
        name: Some("n".to_owned()),
        contains: Some("c".to_owned()),
        ..JobFilter::default()
    };
    let _ = client.jobs("w", &filter, Some(3)).await;
    server.made("GET /v1/workflows/w/jobs?namespace=lab&status=ready%2Cfailed&name=n&contains=c&limit=3");
    let _ = client.job("w", "j").await;
    server.made("GET /v1/workflows/w/jobs/j?namespace=lab");
    let _ = client.explain_job("w", "j").await;
    server.made("GET /v1/workflows/w/jobs/j/explain?namespace=lab");
    let _ = client.explain_workflow("w").await;
    server.made("GET /v1/workflows/w/explain?namespace=lab");
    let piece = LogChunkRequest { id: 9, path: "/p".to_owned(), offset: 7, lines: Some(8) };
    let _ = client.log_chunk("w", "j", &piece).await;
    server.made("GET /v1/workflows/w/jobs/j/log?namespace=lab&path=%2Fp&offset=7&lines=8");
    let filter = ResultFilter {
        job: Some("j".to_owned()),
        run: Some(2),
        status: vec![JobState::Failed],
        failed: true,
        return_code: Some(-128),
        ..ResultFilter::default()
    };
    let _ = client.results("w", &filter, None).await;
    server.made(
        "GET /v1/workflows/w/results?namespace=lab&job=j&run=2&status=failed&failed=true&returnCode=-128&limit=5000",
    );
    let _ = client.results("w", &ResultFilter { latest: true, ..ResultFilter::default() }, None).await;
    server.made("GET /v1/workflows/w/results?namespace=lab&latest=true&limit=5000");
    let filter = SlurmStatsFilter {
        job_id: Some("j".to_owned()),
        run_id: Some(2),
        attempt_id: Some(3),
        ..SlurmStatsFilter::default()
    };
    let _ = client.slurm_stats("w", &filter).await;
    server.made("GET /v1/slurm_stats?namespace=lab&workflow_id=w&job_id=j&run_id=2&attempt_id=3&limit=5000");
    let _ = client.events(Some(4), Some(5), Some(6)).await;
    server.made("GET /v1/events?workflow=4&after=5&limit=6");
    let _ = client.runners(false).await;
    server.made("GET /v1/runners?limit=5000");
    let _ = client.runners(true).await;
    server.made("GET /v1/runners?all=true&limit=5000");
    let _ = client.remote_workers("w").await;
    server.made("GET /v1/workflows/w/remote-workers?namespace=lab&limit=5000");
    let _ = client.audit().await;
    server.made("GET /v1/audit?limit=5000");
    let _ = client.allocations(Some("w"), Some(2)).await;
    server.made("GET /v1/allocations?namespace=lab&workflow=w&limit=2");
    let _ = client.live_allocations("w").await;
    server.made("GET /v1/allocations?namespace=lab&workflow=w&live=true&limit=5000");
    let _ = client.clusters().await;
    server.made("GET /v1/slurmclusters?limit=5000");
    let _ = client.cluster("c").await;
    server.made("GET /v1/slurmclusters/c");
    let _ = client.files("w").await;
    server.made("GET /v1/workflows/w/files?namespace=lab");
    let _ = client.file_uses("w").await;
    server.made("GET /v1/workflows/w/file-uses?namespace=lab");
    let _ = client.user_data("w").await;
    server.made("GET /v1/workflows/w/user-data?namespace=lab");
    let _ = client.one_user_data("w", "d").await;
    server.made("GET /v1/workflows/w/user-data/d?namespace=lab");
    let _ = client.staleness("w").await;
    server.made("GET /v1/workflows/w/staleness?namespace=lab");
    let _ = client.ro_crate("w").await;
    server.made("GET /v1/workflows/w/ro-crate?namespace=lab");
    let _ = client.watch(Some(4), Some(5)).await;
    server.made("GET /v1/watch?workflow=4&after=5");
}

#[tokio::test]
async fn every_change_uses_its_own_route() {
    let server = empty();
    let client = server.client();
    let document: WorkflowDocument = serde_json::from_value(
        json!({ "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": "w" }, "spec": { "jobs": [] } }),
    )
    .expect("a document");
    let request = ApplyRequest { document, working_dir: "/w".to_owned(), dry_run: true, store_only: false };
    let _ = client.apply(&request).await;
    let body = server.made("POST /v1/workflows?namespace=lab");
    assert_eq!((&body["workingDir"], &body["dryRun"]), (&json!("/w"), &json!(true)));
    let _ = client.delete_workflow("w", false).await;
    server.made("DELETE /v1/workflows/w?namespace=lab");
    let _ = client.delete_workflow("w", true).await;
    server.made("DELETE /v1/workflows/w?namespace=lab&force=true");
    for (control, word) in [
        (WorkflowControl::Cancel, "cancel"),
        (WorkflowControl::Suspend, "suspend"),
        (WorkflowControl::Resume, "resume"),
    ] {
        let _ = client.control("w", control).await;
        server.made(&format!("POST /v1/workflows/w/{word}?namespace=lab"));
    }
    let retry = RetryRequest { jobs: vec!["j".to_owned()], all: true, changed: false, dry_run: true };
    let _ = client.retry("w", &retry).await;
    let body = server.made("POST /v1/workflows/w/retry?namespace=lab");
    assert_eq!(body, json!({ "jobs": ["j"], "all": true, "changed": false, "dryRun": true }));
    let _ = client.replay("w", 7, &ReplayRequest { results: Vec::new() }).await;
    server.made("POST /v1/workflows/w/runs/7/results?namespace=lab");
    let dry = torc_api::recovery::SyncStatusRequest { dry_run: true, ..Default::default() };
    let _ = client.sync_status("w", &dry).await;
    assert_eq!(server.made("POST /v1/workflows/w/sync-status?namespace=lab")["dryRun"], json!(true));
    let recover = RecoverRequest {
        dry_run: true,
        memory_percent: Some(150),
        runtime_percent: Some(120),
        ..RecoverRequest::default()
    };
    let _ = client.recover("w", &recover).await;
    let body = server.made("POST /v1/workflows/w/recover?namespace=lab");
    assert_eq!((&body["memoryPercent"], &body["runtimePercent"]), (&json!(150), &json!(120)));
    let _ = client.regenerate("w", &RegenerateRequest::default()).await;
    server.made("POST /v1/workflows/w/regenerate?namespace=lab");
    let correct = CorrectResourcesRequest { dry_run: true, no_downsize: false, jobs: vec!["j".to_owned()] };
    let _ = client.correct_resources("w", &correct).await;
    server.made("POST /v1/workflows/w/correct-resources?namespace=lab");
    let _ = client.classify("w", &ClassifyRequest { jobs: Vec::new(), class: FailureClass::Fail }).await;
    server.made("POST /v1/workflows/w/classify?namespace=lab");
    let nodes = ScheduleNodesRequest {
        scheduler: None,
        num_allocations: Some(2),
        start_one_worker_per_node: true,
        max_parallel_jobs: None,
    };
    let _ = client.schedule_nodes("w", &nodes).await;
    server.made("POST /v1/workflows/w/schedule-nodes?namespace=lab");
    let _ = client.submit("w").await;
    server.made("POST /v1/workflows/w/submit?namespace=lab");
    let _ = client.add_remote_workers("w", Vec::new()).await;
    server.made("POST /v1/workflows/w/remote-workers?namespace=lab");
    let _ = client.remove_remote_worker("w", "a@n:1").await;
    server.made("DELETE /v1/workflows/w/remote-workers/a@n:1?namespace=lab");
    let _ = client.gc(&GcRequest { older_than_seconds: 5, dry_run: true }).await;
    assert_eq!(server.made("POST /v1/gc?namespace=lab"), json!({ "olderThanSeconds": 5, "dryRun": true }));
    let _ = client.backup("/b").await;
    assert_eq!(server.made("POST /v1/backup"), json!({ "path": "/b" }));
    let token = TokenRequest {
        scope: Scope::Runner,
        workflow: Some("w".to_owned()),
        namespace: None,
        user: None,
        expires_seconds: Some(9),
    };
    let _ = client.create_token(&token).await;
    assert_eq!(server.made("POST /v1/tokens?namespace=lab")["expiresSeconds"], json!(9));
    let cluster: SlurmClusterDocument =
        serde_json::from_value(json!({ "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": "c" }, "spec": {} }))
            .expect("a cluster");
    let _ = client.apply_cluster(&cluster).await;
    server.made("POST /v1/slurmclusters?namespace=lab");
    let _ = client.delete_cluster("c").await;
    server.made("DELETE /v1/slurmclusters/c");
    let value = WriteUserData { data: json!(1), job: Some("j".to_owned()) };
    let _ = client.write_user_data("w", "d", Some(&value)).await;
    assert_eq!(server.made("PUT /v1/workflows/w/user-data/d?namespace=lab"), json!({ "data": 1, "job": "j" }));
    let _ = client.write_user_data("w", "d", None).await;
    server.made("DELETE /v1/workflows/w/user-data/d?namespace=lab");
    let spawn = SpawnRequest { lineage: "l".to_owned(), run_id: 2, attempt: 3, ..SpawnRequest::default() };
    let _ = client.spawn("w", "j", &spawn).await;
    let body = server.made("POST /v1/workflows/w/jobs/j/spawn?namespace=lab");
    assert_eq!((&body["lineage"], &body["runId"], &body["attempt"]), (&json!("l"), &json!(2), &json!(3)));
}

fn page(items: &[i64], next: Option<&str>) -> (u16, String) {
    let items: Vec<Value> = items.iter().map(|number| json!({ "address": number.to_string() })).collect();
    (200, next.map_or_else(|| json!({ "items": items }), |next| json!({ "items": items, "next": next })).to_string())
}

#[tokio::test]
async fn pages_are_read_to_the_last() {
    let server = Recorder::start(vec![page(&[1, 2], Some("x")), page(&[3], None)]);
    let workers = server.client().remote_workers("w").await.expect("two pages");
    let addresses: Vec<&str> = workers.iter().map(|worker| worker.address.as_str()).collect();
    assert_eq!(addresses, ["1", "2", "3"]);
    let lines: Vec<String> = server.take().into_iter().map(|request| request.line).collect();
    let first = "GET /v1/workflows/w/remote-workers?namespace=lab&limit=5000";
    assert_eq!(lines, [first.to_owned(), format!("{first}&cursor=x")]);
}

#[tokio::test]
async fn no_page_beyond_the_limit_is_read() {
    let workflow = |id: i64| {
        json!({ "id": id, "name": "w", "namespace": "n", "owner": "o", "generation": 1, "creationTime": "t", "workingDir": "/",
            "suspended": false, "canceled": false, "status": {} })
    };
    let page = |ids: &[i64], next: &str| {
        (200, json!({ "items": ids.iter().map(|id| workflow(*id)).collect::<Vec<_>>(), "next": next }).to_string())
    };
    let server = Recorder::start(vec![page(&[1, 2], "x"), page(&[3, 4], "y")]);
    let ids = |found: Vec<Workflow>| found.into_iter().map(|workflow| workflow.id).collect::<Vec<_>>();
    assert_eq!(ids(server.client().first_workflows(3).await.expect("pages")), [1, 2, 3]);
    let lines: Vec<String> = server.take().into_iter().map(|request| request.line).collect();
    assert_eq!(lines, ["GET /v1/workflows?namespace=lab&limit=3", "GET /v1/workflows?namespace=lab&limit=1&cursor=x"]);
    let server = Recorder::start(vec![page(&[1, 2], "x")]);
    assert_eq!(ids(server.client().first_workflows(2).await.expect("a page")), [1, 2]);
    assert_eq!(server.take().len(), 1, "what is wanted is there");
    let server = Recorder::start(vec![page(&[], "x")]);
    assert_eq!(ids(server.client().workflows().await.expect("a page")), Vec::<i64>::new());
    assert_eq!(server.take().len(), 1, "an empty page is the last one");
}

#[tokio::test]
async fn the_next_page_of_events_starts_after_the_last_event() {
    let page = |sequences: &[i64], next: Option<&str>| {
        let items: Vec<Value> =
            sequences.iter().map(|n| json!({ "sequence": n, "time": "t", "reason": "r" })).collect();
        (
            200,
            next.map_or_else(|| json!({ "items": items }), |next| json!({ "items": items, "next": next })).to_string(),
        )
    };
    let server = Recorder::start(vec![page(&[3, 5], Some("x")), page(&[8], None)]);
    let found = server.client().events(None, Some(2), None).await.expect("events");
    assert_eq!(found.iter().map(|event| event.sequence).collect::<Vec<_>>(), [3, 5, 8]);
    let lines: Vec<String> = server.take().into_iter().map(|request| request.line).collect();
    assert_eq!(lines, ["GET /v1/events?after=2&limit=5000", "GET /v1/events?after=5&limit=5000"]);
}

#[tokio::test]
async fn a_page_of_file_uses_may_be_empty_and_not_the_last() {
    let page = |next: Option<&str>| {
        (200, next.map_or_else(|| json!({ "items": [] }), |next| json!({ "items": [], "next": next })).to_string())
    };
    let server = Recorder::start(vec![page(Some("x")), page(Some("y")), page(None)]);
    server.client().file_uses("w").await.expect("three pages");
    let lines: Vec<String> = server.take().into_iter().map(|request| request.line).collect();
    let first = "GET /v1/workflows/w/file-uses?namespace=lab";
    assert_eq!(lines, [first.to_owned(), format!("{first}&cursor=x"), format!("{first}&cursor=y")]);
}

#[tokio::test]
async fn failed_requests_have_their_exit_status() {
    use crate::error::{CliError, ExitStatus};
    let gone = Client::new("http://127.0.0.1:1", None, &Trust::System, None).expect("a client");
    let unreachable = gone.version().await.expect_err("nothing listens there");
    assert!(unreachable.is_unreachable() && !unreachable.is_not_found());
    assert_eq!(CliError::from(unreachable).kind, ExitStatus::Unreachable);
    for (status, text, kind) in [(200, "no JSON", ExitStatus::Unexpected), (409, "{}", ExitStatus::Refused)] {
        let server = Recorder::start(vec![(status, text.to_owned())]);
        let error = server.client().version().await.expect_err("no version");
        assert_eq!(CliError::from(error).kind, kind, "{status} {text}");
    }
}

#[test]
fn a_pinned_token_is_only_sent_over_tls_or_loopback() {
    let pinned = format!("secret~{}", "ab".repeat(32));
    let client = |url: &str| Client::new(url, Some(pinned.clone()), &Trust::System, None);
    for (url, accepted) in [
        ("https://login1:1", true),
        ("http://127.0.0.1:1", true),
        ("http://localhost:1", true),
        ("http://login1:1", false),
        ("http://10.0.0.1:1", false),
    ] {
        assert_eq!(client(url).is_ok(), accepted, "{url}");
    }
    let found = client("https://login1:1").expect("a client");
    assert_eq!(*found.trust(), Trust::Certificate(torc_api::token::Fingerprint([0xab; 32])), "the pin wins");
    assert_eq!(found.token.as_deref(), Some("secret"));
    let open = Client::new("http://login1:1", Some("secret".to_owned()), &Trust::System, None).expect("a client");
    assert_eq!(*open.trust(), Trust::System);
}
