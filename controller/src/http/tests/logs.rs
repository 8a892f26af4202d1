//! Logs on the disks of Pods: the runner that is asked, and the error when they are gone.

use serde_json::{Value, json};
use torc_api::logs::LogChunk;

use crate::tests::{ADMIN, Reply, TestServer, jobs, want};

const PATH: &str = "/torc/output/job_stdio/job_wf1_j1_r1_a1.o";

async fn register(server: &TestServer, host: &str, kind: &str) -> i64 {
    let mut request = crate::tests::registration(host, None);
    request["kind"] = json!(kind);
    request["outputDir"] = json!("/torc/output");
    server.ok("POST", "/v1/runners", Some(request)).await["runner"].as_i64().unwrap()
}

/// Starts a server with a job that has ended on a runner of this kind on `pod-1`, which has left.
async fn ended(kind: &str) -> TestServer {
    let server = TestServer::start().await;
    server.apply("ada", "default", "w", jobs(&["j"])).await;
    let runner = register(&server, "pod-1", kind).await;
    let leased = server.sync(runner, json!({ "sequence": 1, "want": want(1) })).await;
    let mut finished = json!({ "key": leased["leases"][0]["key"], "returnCode": 0, "durationMs": 5, "endedMsAgo": 0 });
    finished["stdout"] = json!(PATH);
    server.sync(runner, json!({ "sequence": 2, "acknowledged": 1, "finished": [finished], "leaving": true })).await;
    server
}

async fn log(server: &TestServer, query: &str) -> Reply {
    server.send("GET", &format!("/v1/workflows/w/jobs/j/log?{query}"), Some(ADMIN), None).await
}

/// Requests the log while the runner of a host answers.
async fn answered(server: &TestServer, host: &str, found: bool) -> (Value, Reply) {
    let runner = async {
        let wanted = server.ok("POST", "/v1/logs", Some(json!({ "host": host }))).await["wanted"][0].clone();
        let id = wanted["id"].as_i64().unwrap();
        let piece = if found { LogChunk::new(id, 7, b"text") } else { LogChunk::missing(id) };
        // The runner's next call delivers the chunk and would then wait for more requests, so it is not awaited.
        let bring =
            server.send("POST", "/v1/logs", Some(ADMIN), Some(json!({ "host": "elsewhere", "pieces": [piece] })));
        let _ = tokio::time::timeout(std::time::Duration::from_millis(1), bring).await;
        wanted
    };
    let query = format!("path={PATH}&offset=7&lines=9");
    let (wanted, reply) = tokio::join!(runner, log(server, &query));
    (wanted, reply)
}

#[tokio::test]
async fn a_log_is_brought_by_the_runner_of_its_host_or_of_its_volume() {
    for (host, found, status, code) in [
        ("pod-1", true, 200, ""),
        ("pod-1", false, 200, ""),
        ("pod-2", true, 200, ""),
        ("pod-2", false, 404, "LogGone"),
    ] {
        let server = ended("pod").await;
        register(&server, host, "pod").await;
        let (wanted, reply) = answered(&server, host, found).await;
        assert_eq!((&wanted["path"], &wanted["offset"], &wanted["lines"]), (&json!(PATH), &json!(7), &json!(9)));
        let said = reply.body["code"].as_str().unwrap_or_default();
        assert_eq!((reply.status.as_u16(), said), (status, code), "{host} {found}: {}", reply.text);
        if status == 200 {
            let piece: LogChunk = serde_json::from_value(reply.body).unwrap();
            assert_eq!((piece.found, piece.bytes()), (found, if found { b"text".to_vec() } else { Vec::new() }));
        }
    }
}

#[tokio::test]
async fn a_log_that_no_runner_can_send_is_reported_with_the_reason() {
    for (kind, code) in [("pod", "LogGone"), ("local", "LogElsewhere"), ("slurm", "LogElsewhere")] {
        let server = ended(kind).await;
        let reply = log(&server, &format!("path={PATH}")).await;
        assert_eq!((reply.status.as_u16(), reply.body["code"].as_str()), (404, Some(code)), "{kind}");
        let reply = log(&server, "path=/etc/passwd").await;
        assert_eq!(reply.body["code"], "LogNotFound");
    }
}
