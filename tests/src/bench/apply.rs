//! A large workflow: the time to apply it, its memory, and the time until a restarted server leases jobs.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use torc_api::wire::{PROTOCOL, RegisterRequest, RegisterResponse, Resources, SyncRequest, SyncResponse, WorkRequest};

use crate::report::{Bar, Report};
use crate::server::Server;

/// Returns ten layers of ten jobs in each of a thousand groups. Every job waits for the ten of the layer before.
const GROUPS: usize = 1_000;
const LAYERS: usize = 10;
const WIDTH: usize = 10;

pub async fn measure(torc: &Path, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("torc.db");
    let server = Server::start(torc, &database).await?;
    let jobs = (GROUPS * LAYERS * WIDTH) as f64;
    let before = server.resident_bytes()?;
    let started = Instant::now();
    let request = json!({ "document": document(), "workingDir": "/" });
    server.post("/v1/workflows", &request).await?;
    report.record_with_bar(
        "apply 100,000 jobs, 1,000,000 edges",
        started.elapsed().as_secs_f64(),
        "s",
        Bar::AtMost(3.0),
    );
    drop(server);

    let started = Instant::now();
    let server = Server::start(torc, &database).await?;
    first_lease(&server).await?;
    report.record_with_bar(
        "restart with 100,000 jobs to first lease",
        started.elapsed().as_secs_f64(),
        "s",
        Bar::AtMost(1.0),
    );
    let memory = (server.resident_bytes()? - before) / jobs;
    report.record_with_bar("memory of a waiting job, after a restart", memory, "B", Bar::AtMost(500.0));
    Ok(())
}

fn document() -> Value {
    let jobs: Vec<Value> = (0..LAYERS)
        .map(|layer| {
            let mut job = json!({
                "name": format!("l{layer}_g{{g}}_{{i}}"),
                "command": "simulate --group {g} --member {i}",
                "parameters": { "g": format!("1:{GROUPS}"), "i": format!("1:{WIDTH}") },
            });
            if layer > 0 {
                job["dependsOnRegexes"] = json!([format!("^l{}_g{{g}}_", layer - 1)]);
            }
            job
        })
        .collect();
    json!({ "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": "large" }, "spec": { "jobs": jobs } })
}

async fn first_lease(server: &Server) -> Result<()> {
    let capacity = Resources { cpus: 1, memory_bytes: 1 << 30, gpus: 0, nodes: 1 };
    let registration =
        RegisterRequest { protocol: PROTOCOL, host: "bench".to_owned(), capacity, ..RegisterRequest::default() };
    let registered: RegisterResponse = server.call("/v1/runners", &registration).await?;
    let want = WorkRequest { free: capacity, limit: 1, ..WorkRequest::default() };
    let request = SyncRequest { sequence: 1, want, ..SyncRequest::default() };
    let answer: SyncResponse = server.call(&format!("/v1/runners/{}/sync", registered.runner), &request).await?;
    answer.leases.first().context("no lease after the restart")?;
    Ok(())
}
