//! Rows that the tests of the store write.

use std::path::Path;

use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{Resources, RunnerKind, RunnerScope, Usage};
use torc_core::ids::{JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{
    EventRow, JobProfile, JobRow, JobUpdate, ProfileRow, ResultRow, RunnerRow, Snapshot, WorkflowRow,
};
use torc_store::{OpenOptions, Store};

/// Creates a store and its folder.
pub async fn new_store() -> (TempDir, Store) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(options(&folder)).await.unwrap();
    (folder, store)
}

/// Returns the content of a store without its random key.
pub async fn load(store: &Store) -> Snapshot {
    let snapshot = store.load().await.unwrap();
    assert_eq!(snapshot.identity.len(), 8, "every store has a key of its own");
    Snapshot { identity: String::new(), ..snapshot }
}

/// Returns the layout of a new store: that of the first migration is 17.
pub fn known_schema() -> i64 {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/sqlite");
    i64::try_from(std::fs::read_dir(folder).unwrap().count()).unwrap() + 16
}

/// Runs statements on a closed file.
pub async fn run_sql(path: &Path, sql: &'static str) {
    let mut connection =
        sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Returns the options of the store in a folder.
pub fn options(folder: &TempDir) -> OpenOptions {
    OpenOptions::new(folder.path().join("torc.db").to_str().unwrap()).create(true)
}

pub fn workflow(id: i64) -> WorkflowRow {
    WorkflowRow {
        id: WorkflowId(id),
        namespace: "default".to_owned(),
        name: format!("workflow-{id}"),
        document: "{}".to_owned(),
        generation: 1,
        run: 1,
        ..WorkflowRow::default()
    }
}

pub fn profile(id: i64, workflow: i64) -> ProfileRow {
    ProfileRow { id: ProfileId(id), workflow: WorkflowId(workflow), profile: JobProfile::default() }
}

pub fn job(id: i64, workflow: i64, profile: i64) -> JobRow {
    JobRow {
        id: JobId(id),
        workflow: WorkflowId(workflow),
        name: format!("job-{id}"),
        command: "true".to_owned(),
        profile: ProfileId(profile),
        priority: 0,
        hash: [7; 32],
        depends_on: Vec::new(),
        state: JobState::Ready,
        run: 1,
        attempt: 1,
        lease_id: 0,
        runner: None,
        started_ms: None,
    }
}

pub fn update(id: i64, state: JobState) -> JobUpdate {
    JobUpdate { id: JobId(id), state, run: 1, attempt: 1, lease_id: 0, runner: None, started_ms: None }
}

pub fn result(workflow: i64, job: i64, attempt: i32) -> ResultRow {
    ResultRow {
        workflow: WorkflowId(workflow),
        job: JobId(job),
        run: 1,
        attempt,
        state: JobState::Completed,
        return_code: 0,
        cause: None,
        message: None,
        started_ms: 1_000,
        ended_ms: 2_000,
        runner: None,
        stdout: None,
        stderr: None,
        usage: Usage::default(),
    }
}

pub fn failure(workflow: i64, job: i64, attempt: i32, ended_ms: i64) -> ResultRow {
    ResultRow {
        state: JobState::Failed,
        return_code: 1,
        cause: Some(Cause::ExitCode),
        ended_ms,
        ..result(workflow, job, attempt)
    }
}

pub fn runner(id: i64) -> RunnerRow {
    RunnerRow {
        id: RunnerId(id),
        host: format!("node{id}"),
        pid: 4_711,
        kind: RunnerKind::Local,
        capacity: Resources { cpus: 2, memory_bytes: 1 << 30, gpus: 0, nodes: 1 },
        max_parallel_jobs: None,
        labels: Vec::new(),
        scope: RunnerScope::All,
        scheduler: None,
        slurm_job_id: None,
        output_dir: String::new(),
        place: String::new(),
        process: None,
        version: "0.1.0".to_owned(),
        started_ms: 1_000,
        ended_ms: None,
    }
}

pub fn event(sequence: i64, workflow: Option<i64>) -> EventRow {
    EventRow {
        sequence,
        time_ms: 1_000 * sequence,
        workflow: workflow.map(WorkflowId),
        reason: "JobsMoved".to_owned(),
        ..EventRow::default()
    }
}
