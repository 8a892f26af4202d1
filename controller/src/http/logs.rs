//! `/v1/logs` and the log of a job: output on a disk that only its runner can read.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use torc_api::api::{Job, JobResult, Runner, RunnerStatus};
use torc_api::filter::ResultFilter;
use torc_api::logs::{LogChunk, LogSyncRequest, LogSyncResponse};
use torc_api::wire::{AttemptKey, RunnerKind};

use super::App;
use super::access::Access;
use super::access::AccessMode::Read;
use super::error::ApiResult;
use super::extract::{Body, Param, Query, TargetWorkflow};
use super::jobs::JobParam;
use super::route::Route;
use crate::audit::AuditVerb;
use crate::engine::EngineError;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/v1/logs", exchange)
            .access(Access::Pool)
            .audit(AuditVerb::ExchangeLogs)
            .summary("Send requested log chunks of a runner, and wait for new requests"),
        Route::get("/v1/workflows/{workflow}/jobs/{job}/log", log_chunk)
            .access(Access::Workflow(Read))
            .summary("Get a chunk of a log on the disk of a runner's Pod"),
    ]
}

async fn exchange(
    State(app): State<App>,
    Body(LogSyncRequest { host, pieces }): Body<LogSyncRequest>,
) -> ApiResult<LogSyncResponse> {
    app.log_relay.deliver(pieces);
    tokio::select! {
        wanted = app.log_relay.poll(&host) => Ok(Json(LogSyncResponse { wanted })),
        () = app.stop.cancelled() => Ok(Json(LogSyncResponse::default())),
    }
}

#[derive(Deserialize, JsonSchema)]
struct LogChunkQuery {
    /// The file, as the result or the runner names it.
    path: String,
    /// The offset of the first byte.
    #[serde(default)]
    offset: i64,
    /// Only the last lines.
    lines: Option<i64>,
}

async fn log_chunk(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Param(JobParam { job }): Param<JobParam>,
    Query(query): Query<LogChunkQuery>,
) -> ApiResult<LogChunk> {
    let job = app.engine.job(id, &job).await?;
    let of_job = ResultFilter { workflow: Some(id.0), job: Some(job.id), ..ResultFilter::default() };
    let results = app.engine.results(&of_job).await?;
    let runners = app.engine.runners(false).await?;
    let Some((host, runner)) = host_of(&query.path, id.0, &job, &results.items, &runners) else {
        return Err(EngineError::no_log(&query.path, &job.name).into());
    };
    let Some(reader) = reader(&query.path, &host, &runners) else {
        let all = app.engine.runners(true).await?;
        let was_pod = all.iter().any(|one| Some(one.id) == runner && one.kind == RunnerKind::Pod);
        return Err(match was_pod {
            true => EngineError::log_gone(&host),
            false => EngineError::log_elsewhere(&host, &query.path),
        }
        .into());
    };
    let brought = tokio::select! {
        brought = app.log_relay.ask(reader, &query.path, query.offset, query.lines) => brought,
        () = app.stop.cancelled() => return Err(EngineError::stopped().into()),
    };
    match brought {
        None => Err(EngineError::not_ready(format!("runner {reader} does not answer")).into()),
        Some(log_chunk) if !log_chunk.found && reader != host => Err(EngineError::log_gone(&host).into()),
        Some(log_chunk) => Ok(Json(log_chunk)),
    }
}

/// Returns the host and the runner that have a log of a job. The file must be in the result of an attempt, or be a log
/// of the running attempt. Other files are never shown.
fn host_of(
    path: &str,
    workflow: i64,
    job: &Job,
    results: &[JobResult],
    runners: &[Runner],
) -> Option<(String, Option<i64>)> {
    let is_its = |result: &&JobResult| [&result.stdout, &result.stderr].into_iter().flatten().any(|file| file == path);
    if let Some(result) = results.iter().find(is_its) {
        return result.node.clone().map(|host| (host, result.runner));
    }
    let runner = runners.iter().find(|runner| Some(runner.id) == job.runner)?;
    let key = AttemptKey { workflow, job: job.id, run: job.run_id, attempt: job.attempt, lease_id: 0 };
    key.log_files(&runner.output_dir).iter().any(|file| file == path).then(|| (runner.host.clone(), job.runner))
}

/// Returns the runner that can read a file: the one on that host, or one that shares the output folder, which may be a shared
/// volume.
fn reader<'a>(path: &str, host: &str, runners: &'a [Runner]) -> Option<&'a str> {
    let there = runners.iter().filter(|runner| runner.kind == RunnerKind::Pod && runner.status == RunnerStatus::Active);
    let candidates = there.filter(|runner| is_below(path, &runner.output_dir)).map(|runner| runner.host.as_str());
    candidates.min_by_key(|reader| *reader != host)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn runner(id: i64, host: &str, status: &str, output_dir: &str) -> Runner {
        serde_json::from_value(json!({
            "id": id, "host": host, "pid": 1, "kind": "pod", "status": status, "version": "1", "queued": 0, "running": 0,
            "capacity": { "cpus": 1, "memoryBytes": 1, "gpus": 0, "nodes": 1 }, "startTime": "", "outputDir": output_dir,
        }))
        .unwrap()
    }

    fn job(runner: Option<i64>) -> Job {
        let mut value: Value = json!({
            "id": 7, "workflow": "w", "name": "j", "status": "running", "runId": 1, "attempt": 2, "command": "",
            "priority": 0, "waitingFor": 0, "resources": serde_json::to_value(torc_api::api::JobResources::default()).unwrap(),
        });
        if let Some(runner) = runner {
            value["runner"] = json!(runner);
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_logs_of_the_job_are_shown() {
        let runners = [runner(1, "pod-1", "active", "/torc/output"), runner(2, "pod-2", "active", "/torc/output")];
        let result: JobResult = serde_json::from_value(json!({
            "workflow": "w", "job": "j", "jobId": 7, "runId": 1, "attempt": 1, "status": "completed", "endTime": "",
            "durationSeconds": 1.0, "node": "pod-0", "stdout": "/torc/output/job_stdio/job_wf3_j7_r1_a1.o",
        }))
        .unwrap();
        let results = [result];
        for (path, runner, expected) in [
            ("/torc/output/job_stdio/job_wf3_j7_r1_a1.o", None, Some("pod-0")),
            ("/torc/output/job_stdio/job_wf3_j7_r1_a2.e", Some(2), Some("pod-2")),
            ("/torc/output/job_stdio/job_wf3_j7_r1_a2.e", None, None),
            ("/torc/output/job_stdio/job_wf3_j8_r1_a2.e", Some(2), None),
            ("/etc/torc/account/token", Some(2), None),
            ("/torc/output/job_stdio/../../../etc/torc/account/token", Some(2), None),
        ] {
            let found = host_of(path, 3, &job(runner), &results, &runners);
            assert_eq!(found.as_ref().map(|(host, _)| host.as_str()), expected, "{path} {runner:?}");
        }
    }

    #[test]
    fn a_volume_that_is_shared_outlives_a_pod() {
        let runners = [
            runner(1, "pod-1", "silent", "/torc/output"),
            runner(2, "pod-2", "active", "/elsewhere"),
            runner(3, "pod-3", "active", "/torc/output/"),
            runner(4, "pod-4", "active", "/torc/output"),
        ];
        let path = "/torc/output/job_stdio/job_wf3_j7_r1_a1.o";
        for (host, expected) in [("pod-4", "pod-4"), ("pod-1", "pod-3"), ("pod-0", "pod-3")] {
            assert_eq!(reader(path, host, &runners), Some(expected), "{host}");
        }
        assert_eq!(reader(path, "pod-1", &runners[..2]), None);
        assert_eq!(reader("/torc/output-2/x", "pod-4", &runners), None);
    }
}
