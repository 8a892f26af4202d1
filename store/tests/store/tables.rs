//! The tables as SQLite has them, and as they should be: every column of every table, by name.
//!
//! Each function destructures a row without `..`, so a new field does not compile before it has a column here. A new column is a
//! difference between both sides.

use std::collections::BTreeMap;

use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, TypeInfo, ValueRef};
use torc_api::remote::RemoteWorker;
use torc_api::slurm_stats::SlurmStats;
use torc_api::state::JobState;
use torc_api::wire::Usage;
use torc_core::ids::{JobId, WorkflowId};
use torc_core::rows::{
    ActionRow, AllocationRow, AuditRow, ClusterRow, DetachedLease, DetachedState, EventRow, FileRow, JobRow, LastIds,
    ProfileRow, RecoveryRow, ResultRow, RunnerRow, UserDataRow, WorkflowRow,
};
use torc_core::testing::Database;
use torc_store::{Leader, Store};

/// A value of SQLite.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<i32> for Cell {
    fn from(value: i32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl From<JobState> for Cell {
    fn from(value: JobState) -> Self {
        Self::Integer(value.code().into())
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<&String> for Cell {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl From<Vec<u8>> for Cell {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value)
    }
}

/// Returns a value that may be absent.
fn cell<T: Clone + Into<Cell>>(value: &Option<T>) -> Cell {
    value.clone().map_or(Cell::Null, Into::into)
}

fn text(value: &Option<String>) -> Cell {
    value.as_ref().map_or(Cell::Null, Into::into)
}

fn json(value: &impl serde::Serialize) -> Cell {
    Cell::Text(serde_json::to_string(value).unwrap())
}

/// A row: values by column.
pub type Record = BTreeMap<String, Cell>;
/// Rows by table, sorted.
pub type Tables = BTreeMap<String, Vec<Record>>;

fn record<const N: usize>(columns: [(&str, Cell); N]) -> Record {
    let record: Record = columns.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    assert_eq!(record.len(), N, "a column is named twice");
    record
}

fn workflow(row: &WorkflowRow) -> Record {
    record([("id", row.id.0.into()), ("data", json(row))])
}

fn document(row: &WorkflowRow) -> Record {
    record([("workflow", row.id.0.into()), ("generation", row.generation.into()), ("document", (&row.document).into())])
}

fn profile(row: &ProfileRow) -> Record {
    let ProfileRow { id, workflow, profile } = row;
    record([("id", id.0.into()), ("workflow", workflow.0.into()), ("profile", json(profile))])
}

/// Appends a number like `varint.rs` does, but written independently.
fn varint(number: i64, bytes: &mut Vec<u8>) {
    let mut rest = if number < 0 { 2 * u128::from(number.unsigned_abs()) - 1 } else { 2 * number as u128 };
    while rest >= 128 {
        bytes.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    bytes.push(rest as u8);
}

fn packed_jobs(jobs: &[JobId]) -> Cell {
    let mut bytes = Vec::new();
    jobs.iter().fold(0, |previous: i64, job| {
        varint(job.0.wrapping_sub(previous), &mut bytes);
        job.0
    });
    Cell::Blob(bytes)
}

fn packed_moves(moves: &[(JobId, i32, JobState)]) -> Cell {
    let mut bytes = Vec::new();
    moves.iter().fold(0, |previous: i64, (job, attempt, state)| {
        varint(job.0.wrapping_sub(previous), &mut bytes);
        varint((*attempt).into(), &mut bytes);
        bytes.push(state.code());
        job.0
    });
    Cell::Blob(bytes)
}

fn job(row: &JobRow, removed: bool) -> (Record, Record) {
    let JobRow {
        id,
        workflow,
        name,
        command,
        profile,
        priority,
        hash,
        depends_on,
        state,
        run,
        attempt,
        lease_id,
        runner,
        started_ms,
    } = row;
    let definition = record([
        ("id", id.0.into()),
        ("workflow", workflow.0.into()),
        ("name", name.into()),
        ("command", command.into()),
        ("profile", profile.0.into()),
        ("priority", (*priority).into()),
        ("hash", hash.to_vec().into()),
        ("depends_on", packed_jobs(depends_on)),
        ("removed", removed.into()),
    ]);
    let state = record([
        ("id", id.0.into()),
        ("state", (*state).into()),
        ("run", (*run).into()),
        ("attempt", (*attempt).into()),
        ("lease_id", (*lease_id).into()),
        ("runner", cell(&runner.map(|runner| runner.0))),
        ("started_ms", cell(started_ms)),
    ]);
    (definition, state)
}

fn result(row: &ResultRow) -> Record {
    let ResultRow {
        workflow,
        job,
        run,
        attempt,
        state,
        return_code,
        cause,
        message,
        started_ms,
        ended_ms,
        runner,
        stdout,
        stderr,
        usage,
    } = row;
    let Usage {
        peak_memory_bytes,
        average_memory_bytes,
        peak_cpu_percent,
        average_cpu_percent,
        peak_gpu_percent,
        average_gpu_percent,
        peak_gpu_memory_bytes,
    } = usage;
    record([
        ("workflow", workflow.0.into()),
        ("job", job.0.into()),
        ("run", (*run).into()),
        ("attempt", (*attempt).into()),
        ("state", (*state).into()),
        ("return_code", (*return_code).into()),
        ("cause", cell(&cause.map(|cause| cause.as_str()))),
        ("message", text(message)),
        ("started_ms", (*started_ms).into()),
        ("ended_ms", (*ended_ms).into()),
        ("runner", cell(&runner.map(|runner| runner.0))),
        ("stdout", text(stdout)),
        ("stderr", text(stderr)),
        ("peak_memory_bytes", cell(peak_memory_bytes)),
        ("average_memory_bytes", cell(average_memory_bytes)),
        ("peak_cpu_percent", cell(peak_cpu_percent)),
        ("average_cpu_percent", cell(average_cpu_percent)),
        ("peak_gpu_percent", cell(peak_gpu_percent)),
        ("average_gpu_percent", cell(average_gpu_percent)),
        ("peak_gpu_memory_bytes", cell(peak_gpu_memory_bytes)),
    ])
}

fn slurm_stats(row: &SlurmStats) -> Record {
    let SlurmStats {
        workflow,
        job,
        run,
        attempt,
        slurm_job_id,
        step,
        max_rss_bytes,
        max_vm_size_bytes,
        max_disk_read_bytes,
        max_disk_write_bytes,
        ave_cpu_seconds,
        node_list,
        state,
    } = row;
    record([
        ("workflow", (*workflow).into()),
        ("job", (*job).into()),
        ("run", (*run).into()),
        ("attempt", (*attempt).into()),
        ("slurm_job_id", text(slurm_job_id)),
        ("step", text(step)),
        ("max_rss_bytes", cell(max_rss_bytes)),
        ("max_vm_size_bytes", cell(max_vm_size_bytes)),
        ("max_disk_read_bytes", cell(max_disk_read_bytes)),
        ("max_disk_write_bytes", cell(max_disk_write_bytes)),
        ("ave_cpu_seconds", cell(ave_cpu_seconds)),
        ("node_list", text(node_list)),
        ("state", text(state)),
    ])
}

fn file(row: &FileRow) -> Record {
    let FileRow { workflow, job, path, size_bytes, modified_ms, sha256, seen_ms } = row;
    record([
        ("workflow", workflow.0.into()),
        ("job", job.0.into()),
        ("path", path.into()),
        ("size_bytes", (*size_bytes).into()),
        ("modified_ms", (*modified_ms).into()),
        ("sha256", text(sha256)),
        ("seen_ms", (*seen_ms).into()),
    ])
}

fn user_data(row: &UserDataRow) -> Record {
    let UserDataRow { workflow, name, in_document, ephemeral, declared, written, job, lease_id, changed_ms } = row;
    record([
        ("workflow", workflow.0.into()),
        ("name", name.into()),
        ("in_document", (*in_document).into()),
        ("ephemeral", (*ephemeral).into()),
        ("declared", declared.as_ref().map_or(Cell::Null, json)),
        ("written", written.as_ref().map_or(Cell::Null, json)),
        ("job", cell(&job.map(|job| job.0))),
        ("lease_id", (*lease_id).into()),
        ("changed_ms", (*changed_ms).into()),
    ])
}

fn detached_lease(row: &DetachedLease) -> Record {
    let DetachedLease { lease_id, workflow, job, run, attempt, runner, started_ms, state, role } = row;
    record([
        ("lease_id", (*lease_id).into()),
        ("workflow", workflow.0.into()),
        ("job", job.0.into()),
        ("run", (*run).into()),
        ("attempt", (*attempt).into()),
        ("runner", runner.0.into()),
        ("started_ms", cell(started_ms)),
        ("expired", matches!(state, DetachedState::Expired).into()),
        ("role", role.as_str().into()),
    ])
}

fn action(row: &ActionRow) -> Record {
    record([("id", row.id.0.into()), ("data", json(row))])
}

fn recovery(row: &RecoveryRow) -> Record {
    record([("job", row.job.0.into()), ("data", json(row))])
}

fn runner(row: &RunnerRow) -> Record {
    record([("id", row.id.0.into()), ("data", json(row))])
}

fn allocation(row: &AllocationRow) -> Record {
    record([("id", row.id.0.into()), ("data", json(row))])
}

fn cluster(row: &ClusterRow) -> Record {
    let ClusterRow { name, document, generation, created_ms } = row;
    record([
        ("name", name.into()),
        ("document", document.into()),
        ("generation", (*generation).into()),
        ("created_ms", (*created_ms).into()),
    ])
}

fn event(row: &EventRow) -> Record {
    let EventRow { sequence, time_ms, workflow, reason, message, jobs } = row;
    record([
        ("sequence", (*sequence).into()),
        ("time_ms", (*time_ms).into()),
        ("workflow", cell(&workflow.map(|workflow| workflow.0))),
        ("reason", reason.into()),
        ("message", message.into()),
        ("jobs", packed_moves(jobs)),
    ])
}

fn audit(sequence: i64, row: &AuditRow) -> Record {
    let AuditRow { time_ms, who, scope, verb, object, outcome } = row;
    record([
        ("sequence", sequence.into()),
        ("time_ms", (*time_ms).into()),
        ("who", who.into()),
        ("scope", scope.into()),
        ("verb", verb.into()),
        ("object", object.into()),
        ("outcome", outcome.into()),
    ])
}

fn last_ids(last: LastIds) -> Record {
    let LastIds { workflow, job, profile, runner, event, lease_id, allocation } = last;
    record([
        ("only_row", 1.into()),
        ("workflow", workflow.into()),
        ("job", job.into()),
        ("profile", profile.into()),
        ("runner", runner.into()),
        ("event", event.into()),
        ("lease_id", lease_id.into()),
        ("allocation", allocation.into()),
    ])
}

/// Rows that are not part of changes.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Remote workers with the times at which they were added.
    pub remote_workers: Vec<(WorkflowId, RemoteWorker, i64)>,
    pub leader: Leader,
    pub event_cursor: i64,
}

fn remote_worker((workflow, worker, added_ms): &(WorkflowId, RemoteWorker, i64)) -> Record {
    record([
        ("workflow", workflow.0.into()),
        ("address", (&worker.address).into()),
        ("folder", text(&worker.folder)),
        ("remote_torc", text(&worker.remote_torc)),
        ("added_ms", (*added_ms).into()),
    ])
}

fn leadership(beside: &Beside) -> Record {
    let Leader { epoch, holder } = &beside.leader;
    record([
        ("only_row", 1.into()),
        ("epoch", (*epoch).into()),
        ("holder", holder.into()),
        ("event_cursor", beside.event_cursor.into()),
    ])
}

/// Returns every table as it should be.
pub fn expected(database: &Database, beside: &Beside) -> Tables {
    let jobs: Vec<(Record, Record)> = database
        .jobs
        .values()
        .map(|row| job(row, false))
        .chain(database.removed_jobs.values().map(|row| job(row, true)))
        .collect();
    let (jobs, job_states) = jobs.into_iter().unzip();
    let tables = [
        ("workflows", database.workflows.values().map(workflow).collect()),
        ("documents", database.workflows.values().map(document).collect()),
        ("profiles", database.profiles.values().map(profile).collect()),
        ("jobs", jobs),
        ("job_states", job_states),
        ("results", database.results.iter().map(result).collect()),
        ("slurm_stats", database.slurm_stats.values().map(slurm_stats).collect()),
        ("files", database.files.values().map(file).collect()),
        ("user_data", database.user_data.values().map(user_data).collect()),
        ("detached_leases", database.detached_leases.values().map(detached_lease).collect()),
        ("actions", database.actions.values().map(action).collect()),
        ("recoveries", database.recoveries.values().map(recovery).collect()),
        ("runners", database.runners.values().map(runner).collect()),
        ("allocations", database.allocations.values().map(allocation).collect()),
        ("slurm_clusters", database.clusters.values().map(cluster).collect()),
        ("events", database.events.iter().map(event).collect()),
        ("audit", (1..).zip(&database.audit).map(|(sequence, row)| audit(sequence, row)).collect()),
        ("last_ids", vec![last_ids(database.last())]),
        ("remote_workers", beside.remote_workers.iter().map(remote_worker).collect()),
        ("leadership", vec![leadership(beside)]),
        ("store_identity", vec![record([("key", (&database.identity).into())])]),
    ];
    let tables = tables.into_iter().map(|(name, rows): (&str, Vec<Record>)| (name.to_owned(), sorted(rows)));
    tables.collect()
}

fn sorted(mut rows: Vec<Record>) -> Vec<Record> {
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}

/// A column of `pragma table_info`, which leaves out generated columns.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub is_nullable: bool,
    pub is_key: bool,
}

/// Returns a connection of the test's own.
async fn connect(store: &Store) -> sqlx::SqliteConnection {
    SqliteConnectOptions::new().filename(store.path()).read_only(true).connect().await.unwrap()
}

/// Returns every table with its columns.
pub async fn schema(store: &Store) -> BTreeMap<String, Vec<Column>> {
    let mut connection = connect(store).await;
    let names: Vec<String> = sqlx::query_scalar(
        "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' and name not like '%sqlx%'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let mut tables = BTreeMap::new();
    for name in names {
        let rows = sqlx::query(AssertSqlSafe(format!("pragma table_info({name})"))).fetch_all(&mut connection).await;
        let column = |row: SqliteRow| Column {
            name: row.get("name"),
            is_nullable: row.get::<i64, _>("notnull") == 0 && row.get::<i64, _>("pk") == 0,
            is_key: row.get::<i64, _>("pk") > 0,
        };
        tables.insert(name, rows.unwrap().into_iter().map(column).collect());
    }
    connection.close().await.unwrap();
    tables
}

/// Returns every table as it is in the file.
pub async fn stored(store: &Store) -> Tables {
    let schema = schema(store).await;
    let mut connection = connect(store).await;
    let mut tables = BTreeMap::new();
    for (table, columns) in schema {
        let rows = sqlx::query(AssertSqlSafe(format!("select * from {table}"))).fetch_all(&mut connection).await;
        let of_row = |row: SqliteRow| columns.iter().map(|column| (column.name.clone(), value(&row, column))).collect();
        tables.insert(table, sorted(rows.unwrap().into_iter().map(of_row).collect()));
    }
    connection.close().await.unwrap();
    tables
}

fn value(row: &SqliteRow, column: &Column) -> Cell {
    let name = column.name.as_str();
    let raw = row.try_get_raw(name).unwrap();
    if raw.is_null() {
        return Cell::Null;
    }
    let kind = raw.type_info().name().to_owned();
    match kind.as_str() {
        "INTEGER" => Cell::Integer(row.get(name)),
        "REAL" => Cell::Real(row.get(name)),
        "TEXT" => Cell::Text(row.get(name)),
        "BLOB" => Cell::Blob(row.get(name)),
        other => panic!("column {name} has the type {other}"),
    }
}

/// Compares table by table, so that a failure names the table.
pub async fn check(store: &Store, database: &Database, beside: &Beside) {
    let (mut found, expected) = (stored(store).await, expected(database, beside));
    for (table, rows) in expected {
        assert_eq!(found.remove(&table), Some(rows), "table {table}");
    }
    assert_eq!(found, BTreeMap::new(), "tables that no test knows");
}
