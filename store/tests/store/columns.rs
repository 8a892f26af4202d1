//! Every column of every table is written, overwritten and emptied, with values that no other column has.

use std::collections::{BTreeMap, BTreeSet};

use torc_api::action::ActionState;
use torc_api::allocation::{AllocationOrigin, AllocationStatus};
use torc_api::execution::{Stdio, StdioMode};
use torc_api::filter::{EventFilter, RunnerFilter};
use torc_api::remote::RemoteWorker;
use torc_api::slurm_stats::SlurmStats;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{LeaseRole, ProcessIdentity, Resources, RunnerKind, RunnerScope, Usage};
use torc_core::expanded::Requirements;
use torc_core::ids::{AllocationId, JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{
    ActionRow, AllocationRow, AuditRow, Changes, ClusterRow, DetachedLease, DetachedState, EventRow, FileRow,
    JobProfile, JobRow, JobUpdate, ProfileRow, RecoveryRow, ResultRow, RunnerRow, Spawned, TaskLease, UserDataRow,
    WorkflowRow,
};
use torc_core::testing::Database;
use torc_store::{Leader, OpenOptions, Store};

use crate::samples::options;
use crate::tables::{self, Beside, Cell, Column, Record, Tables, check, schema, stored};

/// The keys of the rows that are overwritten: different from each other and from all other values.
const WORKFLOW: WorkflowId = WorkflowId(101);
const JOB: JobId = JobId(102);
const ACTION: JobId = JobId(103);
const PROFILE: ProfileId = ProfileId(104);
const RUNNER: RunnerId = RunnerId(105);
const ALLOCATION: AllocationId = AllocationId(106);
const STRAY: i64 = 107;

/// Columns whose values are 0 and 1. [`every_flag_is_a_column_of_its_own`] tests that they are not swapped.
const FLAGS: [(&str, &str); 4] =
    [("jobs", "removed"), ("user_data", "in_document"), ("user_data", "ephemeral"), ("detached_leases", "expired")];

/// A generator of values that never repeat.
struct Values(i64);

impl Values {
    fn number(&mut self) -> i64 {
        self.0 += 1;
        self.0
    }

    fn small(&mut self) -> i32 {
        i32::try_from(self.number()).unwrap()
    }

    fn real(&mut self) -> f64 {
        self.number() as f64 + 0.5
    }

    fn text(&mut self) -> String {
        format!("text {}", self.number())
    }

    fn lease(&mut self) -> TaskLease {
        TaskLease {
            run: self.small(),
            attempt: self.small(),
            tries: self.small(),
            lease_id: self.number(),
            runner: Some(RunnerId(self.number())),
            started_ms: Some(self.number()),
        }
    }

    fn requirements(&mut self) -> Requirements {
        Requirements {
            name: self.text(),
            num_cpus: self.number(),
            memory_bytes: self.number(),
            num_gpus: self.number(),
            num_nodes: self.number(),
            runtime_seconds: self.number(),
        }
    }

    fn profile(&mut self, mode: StdioMode) -> JobProfile {
        JobProfile {
            requirements: self.requirements(),
            declared: Some(Box::new(self.requirements())),
            labels: vec![self.text(), self.text()],
            scheduler: Some(self.text()),
            recovery_scheduler: Some(self.text()),
            env: BTreeMap::from([(self.text(), self.text())]),
            invocation_script: Some(self.text()),
            stdio: Some(Stdio { mode: Some(mode), delete_on_success: Some(mode == StdioMode::Packed) }),
            input_files: vec![self.text()],
            output_files: vec![self.text()],
            input_user_data: vec![self.text()],
            output_user_data: vec![self.text()],
            spawned: Some(Spawned { lineage: self.text(), by: JobId(self.number()) }),
            tasks_per_node: Some(self.small()),
            failure_handler: Some(self.text()),
            cancel_on_blocking_job_failure: mode == StdioMode::Combined,
        }
    }

    fn result(&mut self, state: JobState, cause: Cause) -> ResultRow {
        ResultRow {
            workflow: WORKFLOW,
            job: JOB,
            run: self.small(),
            attempt: self.small(),
            state,
            return_code: self.small(),
            cause: Some(cause),
            message: Some(self.text()),
            started_ms: self.number(),
            ended_ms: self.number(),
            runner: Some(RunnerId(self.number())),
            stdout: Some(self.text()),
            stderr: Some(self.text()),
            usage: Usage {
                peak_memory_bytes: Some(self.number()),
                average_memory_bytes: Some(self.number()),
                peak_cpu_percent: Some(self.real()),
                average_cpu_percent: Some(self.real()),
                peak_gpu_percent: Some(self.real()),
                average_gpu_percent: Some(self.real()),
                peak_gpu_memory_bytes: Some(self.number()),
            },
        }
    }

    fn runner(&mut self, kind: RunnerKind) -> RunnerRow {
        RunnerRow {
            id: RUNNER,
            host: self.text(),
            pid: self.number(),
            kind,
            capacity: Resources {
                cpus: self.number(),
                memory_bytes: self.number(),
                gpus: self.number(),
                nodes: self.number(),
            },
            max_parallel_jobs: Some(self.small().cast_unsigned()),
            labels: vec![self.text(), self.text()],
            scope: RunnerScope::Workflow(self.text()),
            scheduler: Some(self.text()),
            slurm_job_id: Some(self.text()),
            output_dir: self.text(),
            place: self.text(),
            process: Some(ProcessIdentity {
                boot_id: self.text(),
                pid_namespace: self.text(),
                start_ticks: self.number().cast_unsigned(),
            }),
            version: self.text(),
            started_ms: self.number(),
            ended_ms: Some(self.number()),
        }
    }

    fn allocation(&mut self, origin: AllocationOrigin, status: AllocationStatus) -> AllocationRow {
        AllocationRow {
            id: ALLOCATION,
            workflow: WORKFLOW,
            cluster: self.text(),
            scheduler: Some(self.text()),
            origin,
            action: Some(JobId(self.number())),
            status,
            slurm_job_id: Some(self.text()),
            slurm_state: Some(self.text()),
            slurm_reason: Some(self.text()),
            partition: Some(self.text()),
            account: Some(self.text()),
            nodes: self.number(),
            cpus: self.number(),
            memory_bytes: self.number(),
            gpus: self.number(),
            seconds: self.number(),
            one_worker_per_node: false,
            max_parallel_jobs: Some(self.small()),
            node_list: Some(self.text()),
            created_ms: self.number(),
            called_ms: Some(self.number()),
            submitted_ms: Some(self.number()),
            started_ms: Some(self.number()),
            ended_ms: Some(self.number()),
            estimated_start_ms: Some(self.number()),
            expected_end_ms: Some(self.number()),
            canceled_ms: Some(self.number()),
            unseen_since_ms: Some(self.number()),
            has_reported: false,
            message: Some(self.text()),
        }
    }

    fn slurm_stats(&mut self) -> SlurmStats {
        SlurmStats {
            workflow: WORKFLOW.0,
            job: JOB.0,
            run: 31,
            attempt: 32,
            slurm_job_id: Some(self.text()),
            step: Some(self.text()),
            max_rss_bytes: Some(self.number()),
            max_vm_size_bytes: Some(self.number()),
            max_disk_read_bytes: Some(self.number()),
            max_disk_write_bytes: Some(self.number()),
            ave_cpu_seconds: Some(self.real()),
            node_list: Some(self.text()),
            state: Some(self.text()),
        }
    }

    fn workflow(&mut self) -> WorkflowRow {
        WorkflowRow {
            id: WORKFLOW,
            namespace: self.text(),
            name: self.text(),
            owner: self.text(),
            document: self.text(),
            generation: self.number(),
            digest: self.text(),
            working_dir: self.text(),
            run: self.small(),
            suspended: false,
            canceled: false,
            expired: false,
            created_ms: self.number(),
            started_ms: Some(self.number()),
            completed_ms: Some(self.number()),
            conditions: self.text(),
            recovery_schedulers: self.text(),
        }
    }

    fn job(&mut self, state: JobState) -> JobRow {
        JobRow {
            id: JOB,
            workflow: WORKFLOW,
            name: self.text(),
            command: self.text(),
            profile: ProfileId(self.number()),
            priority: self.number(),
            hash: std::array::from_fn(|_| self.number().to_le_bytes()[0]),
            depends_on: vec![JobId(self.number()), JobId(self.number())],
            state,
            run: self.small(),
            attempt: self.small(),
            lease_id: self.number(),
            runner: Some(RunnerId(self.number())),
            started_ms: Some(self.number()),
        }
    }
}

/// The first or the second set of values.
#[derive(Clone, Copy)]
enum Side {
    First,
    Second,
}

/// Returns one row of each table. The rows of both sides only have their keys in common.
fn full(side: Side) -> Changes {
    let is_first = matches!(side, Side::First);
    let mut values = Values(if is_first { 1_000 } else { 9_000 });
    let v = &mut values;
    let (state, cause) =
        if is_first { (JobState::Failed, Cause::OutOfMemory) } else { (JobState::Terminated, Cause::Timeout) };
    let mode = if is_first { StdioMode::Packed } else { StdioMode::Combined };
    Changes {
        workflows: vec![v.workflow()],
        profiles: vec![ProfileRow { id: PROFILE, workflow: WORKFLOW, profile: v.profile(mode) }],
        jobs: vec![v.job(state)],
        actions: vec![ActionRow {
            id: ACTION,
            workflow: WORKFLOW,
            position: v.small(),
            definition: Some(v.text()),
            worker: Some(RunnerId(v.number())),
            state: if is_first { ActionState::Pending } else { ActionState::Executed },
            lease: v.lease(),
            ended_ms: Some(v.number()),
            return_code: Some(v.small()),
            message: Some(v.text()),
            stdout: Some(v.text()),
            stderr: Some(v.text()),
        }],
        recoveries: vec![RecoveryRow {
            job: JOB,
            workflow: WORKFLOW,
            script: v.text(),
            return_code: v.small(),
            cause,
            preferred: Some(RunnerId(v.number())),
            lease: v.lease(),
        }],
        results: vec![v.result(state, cause)],
        slurm_stats: vec![v.slurm_stats()],
        files: vec![FileRow {
            workflow: WORKFLOW,
            job: JOB,
            path: "path".to_owned(),
            size_bytes: v.number(),
            modified_ms: v.number(),
            sha256: Some(v.text()),
            seen_ms: v.number(),
        }],
        user_data: vec![UserDataRow {
            workflow: WORKFLOW,
            name: "name".to_owned(),
            in_document: false,
            ephemeral: false,
            declared: Some(v.text().into()),
            written: Some(v.text().into()),
            job: Some(JobId(v.number())),
            lease_id: v.number(),
            changed_ms: v.number(),
        }],
        runners: vec![v.runner(if is_first { RunnerKind::Slurm } else { RunnerKind::Pod })],
        detached_leases: vec![DetachedLease {
            lease_id: STRAY,
            workflow: WORKFLOW,
            job: JobId(v.number()),
            run: v.small(),
            attempt: v.small(),
            runner: RunnerId(v.number()),
            started_ms: Some(v.number()),
            state: if is_first { DetachedState::Revoked } else { DetachedState::Expired },
            role: if is_first { LeaseRole::Action } else { LeaseRole::Recovery },
        }],
        allocations: vec![match side {
            Side::First => v.allocation(AllocationOrigin::Recovery, AllocationStatus::Active),
            Side::Second => v.allocation(AllocationOrigin::Manual, AllocationStatus::Canceled),
        }],
        clusters: vec![ClusterRow {
            name: "cluster".to_owned(),
            document: v.text(),
            generation: v.number(),
            created_ms: v.number(),
        }],
        events: vec![EventRow {
            sequence: v.number(),
            time_ms: v.number(),
            workflow: Some(WORKFLOW),
            reason: v.text(),
            message: v.text(),
            jobs: vec![(JobId(v.number()), v.small(), state), (JOB, v.small(), JobState::Ready)],
        }],
        audit: vec![AuditRow {
            time_ms: v.number(),
            who: v.text(),
            scope: v.text(),
            verb: v.text(),
            object: v.text(),
            outcome: v.text(),
        }],
        ..Changes::default()
    }
}

/// Returns the rows of [`full`] without optional values.
fn bare() -> Changes {
    let mut changes = full(Side::Second);
    let lease = |lease: TaskLease| TaskLease { runner: None, started_ms: None, ..lease };
    for row in &mut changes.workflows {
        (row.started_ms, row.completed_ms) = (None, None);
    }
    for row in &mut changes.jobs {
        (row.runner, row.started_ms) = (None, None);
    }
    for row in &mut changes.actions {
        (row.definition, row.worker, row.lease, row.ended_ms) = (None, None, lease(row.lease), None);
        (row.return_code, row.message, row.stdout, row.stderr) = (None, None, None, None);
    }
    for row in &mut changes.recoveries {
        (row.preferred, row.lease) = (None, lease(row.lease));
    }
    // A result is never overwritten, so this is another attempt.
    for row in &mut changes.results {
        (row.attempt, row.cause, row.message, row.runner) = (33, None, None, None);
        (row.stdout, row.stderr, row.usage) = (None, None, Usage::default());
    }
    for row in &mut changes.slurm_stats {
        let SlurmStats { workflow, job, run, attempt, .. } = *row;
        *row = SlurmStats { workflow, job, run, attempt, ..SlurmStats::default() };
    }
    changes.files.iter_mut().for_each(|row| row.sha256 = None);
    for row in &mut changes.user_data {
        (row.declared, row.written, row.job) = (None, None, None);
    }
    for row in &mut changes.runners {
        (row.max_parallel_jobs, row.scheduler, row.slurm_job_id, row.ended_ms) = (None, None, None, None);
        row.process = None;
    }
    changes.detached_leases.iter_mut().for_each(|row| row.started_ms = None);
    for row in &mut changes.allocations {
        let AllocationRow { id, workflow, origin, status, .. } = *row;
        let AllocationRow { nodes, cpus, memory_bytes, gpus, seconds, created_ms, .. } = *row;
        let cluster = row.cluster.clone();
        let numbers =
            AllocationRow { nodes, cpus, memory_bytes, gpus, seconds, created_ms, ..AllocationRow::default() };
        *row = AllocationRow { id, workflow, origin, status, cluster, ..numbers };
    }
    for row in &mut changes.events {
        (row.sequence, row.workflow) = (row.sequence + 1, None);
    }
    changes
}

/// Writes the tables that [`full`] does not: remote workers, the leader and the event cursor.
async fn write_beside(store: &Store, side: Side) -> Beside {
    let is_first = matches!(side, Side::First);
    let (event_cursor, number, now_ms) = if is_first { (51, 1, 41) } else { (52, 2, 42) };
    let worker = RemoteWorker {
        address: "host".to_owned(),
        folder: Some(format!("folder {number}")),
        remote_torc: Some(format!("torc {number}")),
        creation_time: None,
    };
    store.add_remote_workers(WORKFLOW, std::slice::from_ref(&worker), now_ms).await.unwrap();
    store.set_event_cursor(event_cursor).await.unwrap();
    // The time at which a worker was added stays.
    Beside { remote_workers: vec![(WORKFLOW, worker, 41)], leader: leader(), event_cursor }
}

fn leader() -> Leader {
    Leader { epoch: 61, holder: "server 62".to_owned() }
}

async fn new_store(folder: &tempfile::TempDir) -> (Store, Database) {
    let store = Store::open(OpenOptions { leader: Some(leader()), ..options(folder) }).await.unwrap();
    let identity = store.load().await.unwrap().identity;
    assert_eq!(identity.len(), 8, "every store has a key of its own");
    (store, Database::with_identity(identity))
}

async fn commit(store: &Store, database: &mut Database, changes: &Changes) {
    store.commit(changes).await.unwrap();
    database.write(changes);
}

fn is_flag(table: &str, column: &str) -> bool {
    FLAGS.contains(&(table, column)) || column == "only_row"
}

/// Checks that no two columns of a row have the same value: swapped columns would go unnoticed.
fn check_distinct(table: &str, row: &Record) {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (column, cell) in row.iter().filter(|(column, _)| !is_flag(table, column)) {
        assert_ne!(*cell, Cell::Null, "{table}.{column} has no value");
        let other = seen.insert(format!("{cell:?}"), column);
        assert_eq!(other, None, "{table}.{column} has the value of another column: {cell:?}");
    }
}

fn column<'a>(tables: &'a Tables, table: &str, column: &Column) -> BTreeSet<String> {
    tables[table].iter().map(|row: &'a Record| format!("{:?}", row[&column.name])).collect()
}

/// Every column has one value after the first write and another one after the second. A column that this test does not write
/// makes it fail, so that no new column is forgotten.
// S11, S17
#[tokio::test]
async fn every_column_is_written_overwritten_and_emptied() {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut database) = new_store(&folder).await;
    let schema = schema(&store).await;
    commit(&store, &mut database, &full(Side::First)).await;
    let beside = write_beside(&store, Side::First).await;
    check(&store, &database, &beside).await;
    assert_eq!(store.load().await.unwrap(), database.snapshot());
    let first = stored(&store).await;
    assert_eq!(first.keys().collect::<Vec<_>>(), schema.keys().collect::<Vec<_>>());
    for (table, rows) in &first {
        assert_eq!(rows.len(), 1, "table {table}");
        rows.iter().for_each(|row| check_distinct(table, row));
    }

    commit(&store, &mut database, &full(Side::Second)).await;
    let beside = write_beside(&store, Side::Second).await;
    check(&store, &database, &beside).await;
    assert_eq!(store.load().await.unwrap(), database.snapshot());
    let second = stored(&store).await;
    for (table, columns) in &schema {
        // Never overwritten, or always the same.
        let is_kept = ["results", "events", "audit", "leadership", "store_identity"].contains(&table.as_str());
        assert_eq!(second[table].len(), if ["results", "events", "audit"].contains(&table.as_str()) { 2 } else { 1 });
        let is_fixed = |column: &&Column| {
            let name = column.name.as_str();
            let is_owner = name == "workflow" && table != "last_ids";
            column.is_key
                || is_owner
                || is_flag(table, name)
                || (table.as_str(), name) == ("remote_workers", "added_ms")
        };
        for overwritten in columns.iter().filter(|column| !is_kept && !is_fixed(column)) {
            // These rows are overwritten, so their numbers do not rise.
            if table == "last_ids" && !["event", "lease_id"].contains(&overwritten.name.as_str()) {
                continue;
            }
            let (before, after) = (column(&first, table, overwritten), column(&second, table, overwritten));
            assert!(before.is_disjoint(&after), "{table}.{} stays {before:?}", overwritten.name);
        }
    }

    commit(&store, &mut database, &bare()).await;
    check(&store, &database, &beside).await;
    assert_eq!(store.load().await.unwrap(), database.snapshot());
    let emptied = stored(&store).await;
    for (table, columns) in &schema {
        // The folder and the program of a worker stay until others are named.
        for nullable in columns.iter().filter(|column| column.is_nullable && table != "remote_workers") {
            let null = format!("{:?}", Cell::Null);
            assert!(column(&emptied, table, nullable).contains(&null), "{table}.{} has a value", nullable.name);
        }
    }
}

/// An update of a job writes each column of its state.
#[tokio::test]
async fn a_move_overwrites_every_column_of_a_state() {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut database) = new_store(&folder).await;
    commit(&store, &mut database, &full(Side::First)).await;
    let beside = Beside { leader: leader(), ..Beside::default() };
    let JobRow { id, state, run, attempt, lease_id, runner, started_ms, .. } = full(Side::Second).jobs[0].clone();
    let update = JobUpdate { id, state, run, attempt, lease_id, runner, started_ms };
    for update in [update, JobUpdate { runner: None, started_ms: None, ..update }] {
        commit(&store, &mut database, &Changes { job_updates: vec![update], ..Changes::default() }).await;
        check(&store, &database, &beside).await;
        assert_eq!(store.load().await.unwrap(), database.snapshot());
    }
}

/// Sets each flag alone, and each after another one.
#[tokio::test]
async fn every_flag_is_a_column_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (store, mut database) = new_store(&folder).await;
    let beside = Beside { leader: leader(), ..Beside::default() };
    for position in [0, 1, 2, 0, 2, 1, 3] {
        let is_set = |flag: usize| flag == position;
        let mut changes = full(Side::First);
        changes.events.clear();
        for row in &mut changes.workflows {
            (row.suspended, row.canceled, row.expired) = (is_set(0), is_set(1), is_set(2));
        }
        for row in &mut changes.user_data {
            (row.in_document, row.ephemeral) = (is_set(0), is_set(1));
        }
        for row in &mut changes.allocations {
            (row.one_worker_per_node, row.has_reported) = (is_set(0), is_set(1));
        }
        commit(&store, &mut database, &changes).await;
        check(&store, &database, &beside).await;
        assert_eq!(store.load().await.unwrap(), database.snapshot(), "flag {position}");
        assert_eq!(store.user_data(WORKFLOW, None).await.unwrap(), changes.user_data, "flag {position}");
    }
}

/// Lists return every column as it was written. [`crate::queries`] tests them with many rows.
#[tokio::test]
async fn lists_give_back_every_column() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = new_store(&folder).await;
    let mut changes = full(Side::First);
    // A list of jobs includes their profiles, and results are completed with the accounting of their steps.
    changes.jobs[0].profile = PROFILE;
    changes.results[0].runner = Some(RUNNER);
    store.commit(&changes).await.unwrap();

    let jobs = store.jobs(&Default::default()).await.unwrap().items;
    assert_eq!((&jobs[0].job, &jobs[0].profile), (&changes.jobs[0], &changes.profiles[0].profile));
    let results = store.results(&Default::default()).await.unwrap().items;
    assert_eq!(results[0].result, changes.results[0]);
    assert_eq!(results[0].workflow_name, changes.workflows[0].name);
    assert_eq!(results[0].job_name, changes.jobs[0].name);
    assert_eq!(results[0].host.as_ref(), Some(&changes.runners[0].host));
    assert_eq!(store.slurm_stats(&Default::default()).await.unwrap().items, changes.slurm_stats);
    assert_eq!(store.runners(RunnerFilter { all: true }).await.unwrap(), changes.runners);
    assert_eq!(store.allocations(&Default::default()).await.unwrap().items, changes.allocations);
    assert_eq!(store.user_data(WORKFLOW, None).await.unwrap(), changes.user_data);
    assert_eq!(store.files(WORKFLOW, JOB..=JOB).await.unwrap(), changes.files);
    let events = store.events(&EventFilter::default()).await.unwrap().items;
    assert_eq!(
        (&events[0].event, events[0].workflow_name.as_ref()),
        (&changes.events[0], Some(&changes.workflows[0].name))
    );
    assert_eq!(events[0].job_names, ["", changes.jobs[0].name.as_str()]);
    let audit = store.audit(&Default::default()).await.unwrap().items;
    assert_eq!(audit, [(1, changes.audit[0].clone())]);
    assert_eq!(tables::expected(&Database::default(), &Beside::default()).len(), schema(&store).await.len());
}
