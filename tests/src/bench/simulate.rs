//! Simulated runners without processes: the throughput of one server with durable results.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;
use torc_api::wire::{
    AttemptKey, FinishedAttempt, PROTOCOL, RegisterRequest, RegisterResponse, Resources, RunnerDirective, SyncRequest,
    SyncResponse, WorkRequest,
};

use crate::report::{Bar, Report};
use crate::server::Server;

const RUNNERS: usize = 8;
/// Jobs per request of a runner with hundreds of short jobs a second.
const BATCH: u32 = 250;

pub async fn measure(torc: &Path, jobs: usize, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let server = Arc::new(Server::start(torc, &folder.path().join("torc.db")).await?);
    let document = json!({
        "apiVersion": "torc.dev/v1alpha1",
        "metadata": { "name": "simulated" },
        "spec": { "jobs": [{ "name": "job_{i}", "command": "true", "parameters": { "i": format!("1:{jobs}") } }] },
    });
    server.post("/v1/workflows", &json!({ "document": document, "workingDir": "/" })).await?;
    let (cpu, started) = (server.cpu_seconds()?, Instant::now());
    let runners: Vec<_> = (0..RUNNERS).map(|_| tokio::spawn(work_off(Arc::clone(&server)))).collect();
    let mut calls = 0;
    for runner in runners {
        calls += runner.await.context("a simulated runner ended early")??;
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu = server.cpu_seconds()? - cpu;
    report.record_with_bar("simulated runners: jobs a second", jobs as f64 / seconds, "/s", Bar::AtLeast(20_000.0));
    report.record_with_bar("simulated runners: server CPU a job", cpu / jobs as f64 * 1e6, "us", Bar::AtMost(20.0));
    report.record("simulated runners: calls a job", f64::from(calls) / jobs as f64, "");
    Ok(())
}

/// Registers a runner and reports every leased job as completed until none is left. Returns the number of calls.
async fn work_off(server: Arc<Server>) -> Result<u32> {
    let capacity = Resources { cpus: i64::from(BATCH), memory_bytes: 1 << 40, gpus: 0, nodes: 1 };
    let registration = RegisterRequest {
        protocol: PROTOCOL,
        version: "bench".to_owned(),
        host: "simulated".to_owned(),
        capacity,
        ..RegisterRequest::default()
    };
    let registered: RegisterResponse = server.call("/v1/runners", &registration).await?;
    let path = format!("/v1/runners/{}/sync", registered.runner);
    let mut request = SyncRequest {
        want: WorkRequest { free: capacity, limit: BATCH, ..WorkRequest::default() },
        wait_ms: 1_000,
        ..SyncRequest::default()
    };
    loop {
        request.sequence += 1;
        let answer: SyncResponse = server.call(&path, &request).await?;
        request.acknowledged = answer.sequence;
        request.finished = answer.leases.iter().map(|lease| done(lease.key)).collect();
        if request.finished.is_empty() && answer.directive != RunnerDirective::Continue {
            return Ok(u32::try_from(request.sequence)?);
        }
    }
}

fn done(key: AttemptKey) -> FinishedAttempt {
    FinishedAttempt { key, duration_ms: 1, ..FinishedAttempt::default() }
}
