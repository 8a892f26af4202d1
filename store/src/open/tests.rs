//! Whose files are opened, and files of older versions.

#![allow(clippy::unwrap_used)]

use sqlx::{Connection, Row};
use tempfile::TempDir;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{LeaseRole, Usage};
use torc_core::ids::{JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{DetachedLease, DetachedState, JobProfile, JobRow, LastIds, ProfileRow, ResultRow, WorkflowRow};

use super::*;
use crate::Store;

#[test]
fn a_file_is_ours_or_unwritten_and_not_from_the_future() {
    let check = |application, schema, tables| {
        let identity = Identity { application, schema, tables };
        identity.check(Path::new("/s/torc.db"), 13).err()
    };
    for (application, schema, tables) in
        [(APPLICATION_ID, 13, 21), (APPLICATION_ID, 12, 20), (APPLICATION_ID, 1, 8), (0, 0, 0)]
    {
        let refused = check(application, schema, tables);
        assert!(refused.is_none(), "{application} {schema} {tables}: {refused:?}");
    }
    for (application, schema, tables) in [(0, 0, 1), (7, 0, 0), (7, 99, 3), (APPLICATION_ID + 1, 13, 21)] {
        let refused = check(application, schema, tables);
        assert!(
            matches!(refused, Some(StoreError::NotADatabase { .. })),
            "{application} {schema} {tables}: {refused:?}"
        );
    }
    for application in [APPLICATION_ID, 0] {
        let refused = check(application, 14, 0);
        assert!(matches!(refused, Some(StoreError::NewerSchema { found: 14, known: 13, .. })), "{refused:?}");
    }
}

/// A file as the version with that many migrations has left it.
async fn older_file(path: &Path, migrations: usize) -> SqliteConnection {
    let mut connection = connection::options(path, false).create_if_missing(true).connect().await.unwrap();
    sqlx::query("pragma journal_mode = wal").execute(&mut connection).await.unwrap();
    bring_to(&mut connection, migrations).await;
    connection
}

async fn bring_to(connection: &mut SqliteConnection, migrations: usize) {
    let newest = MIGRATIONS.iter().nth(migrations - 1).unwrap();
    MIGRATIONS.run_to(newest.version, &mut *connection).await.unwrap();
    let version = format!("pragma user_version = {migrations}");
    sqlx::query(AssertSqlSafe(version)).execute(connection).await.unwrap();
}

/// Everything that the schema says, and who wrote it.
async fn schema(path: &Path) -> (Vec<(String, String)>, i64, i64) {
    let mut connection = connection::options(path, false).connect().await.unwrap();
    let rows = sqlx::query("select name, coalesce(sql, '') as sql from sqlite_schema order by name")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let identity = identify(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let texts = rows.into_iter().map(|row| (row.get("name"), row.get("sql"))).collect();
    (texts, identity.application, identity.schema)
}

async fn open_store(path: &Path) -> Store {
    Store::open(OpenOptions::new(path.to_str().unwrap()).create(true)).await.unwrap()
}

#[tokio::test]
async fn files_of_every_older_schema_become_like_new_ones() {
    let folder = TempDir::new().unwrap();
    let new = folder.path().join("new.db");
    open_store(&new).await.close().await.unwrap();
    let expected = schema(&new).await;
    let known = MIGRATIONS.iter().count();
    assert_eq!((expected.1, expected.2), (1_416_589_923, i64::try_from(known).unwrap()));
    for migrations in 1..known {
        let old = folder.path().join(format!("old-{migrations}.db"));
        older_file(&old, migrations).await.close().await.unwrap();
        open_store(&old).await.close().await.unwrap();
        assert_eq!(schema(&old).await, expected, "{migrations} migrations");
    }
}

/// The number of migrations up to the one with this name.
fn until(name: &str) -> usize {
    MIGRATIONS.iter().position(|migration| migration.description.replace(' ', "_") == name).unwrap() + 1
}

/// The result that [`rows_of_the_first_version_are_read`] writes.
fn first_result() -> ResultRow {
    let usage = Usage {
        peak_memory_bytes: Some(16),
        average_memory_bytes: Some(17),
        peak_cpu_percent: Some(18.5),
        average_cpu_percent: Some(19.5),
        peak_gpu_percent: None,
        average_gpu_percent: None,
        peak_gpu_memory_bytes: None,
    };
    ResultRow {
        workflow: WorkflowId(1),
        job: JobId(7),
        run: 3,
        attempt: 9,
        state: JobState::Failed,
        return_code: 12,
        cause: Some(Cause::Timeout),
        message: None,
        started_ms: 13,
        ended_ms: 14,
        runner: Some(RunnerId(15)),
        stdout: Some("out".to_owned()),
        stderr: Some("err".to_owned()),
        usage,
    }
}

/// Columns that came later have the values that older rows had in effect.
#[tokio::test]
async fn rows_of_the_first_version_are_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("torc.db");
    let mut connection = older_file(&path, 1).await;
    sqlx::raw_sql(
        "insert into workflows values (1, 'ns', 'w', 'ada', 2, 'd1g', '/w', 3, 1, 0, 4, 5, null, '[]');
        insert into documents values (1, 2, '{}');
        insert into profiles values (6, 1, '{}');
        insert into jobs values (7, 1, 'train', 'true', 6, 8, zeroblob(32), x'', 0);
        insert into job_states values (7, 6, 3, 9, 10, null, 11);
        insert into results values (1, 7, 3, 9, 6, 12, 'Timeout', null, 13, 14, 15, 'out', 'err', 16, 17, 18.5, 19.5);
        update last_ids set workflow = 1, job = 7, profile = 6, runner = 15, event = 20, epoch = 10;",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    bring_to(&mut connection, until("create_stray_leases")).await;
    sqlx::query("insert into stray_leases values (10, 1, 7, 3, 9, 15, 21, 1)").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();

    let store = open_store(&path).await;
    let found = store.load().await.unwrap();
    let workflow = WorkflowRow {
        id: WorkflowId(1),
        namespace: "ns".to_owned(),
        name: "w".to_owned(),
        owner: "ada".to_owned(),
        document: "{}".to_owned(),
        generation: 2,
        digest: "d1g".to_owned(),
        working_dir: "/w".to_owned(),
        run: 3,
        suspended: true,
        canceled: false,
        expired: false,
        created_ms: 4,
        started_ms: Some(5),
        completed_ms: None,
        conditions: "[]".to_owned(),
        recovery_schedulers: String::new(),
    };
    assert_eq!(found.workflows, [workflow]);
    let profile = JobProfile::default();
    assert_eq!(found.profiles, [ProfileRow { id: ProfileId(6), workflow: WorkflowId(1), profile }]);
    let job = JobRow {
        id: JobId(7),
        workflow: WorkflowId(1),
        name: "train".to_owned(),
        command: "true".to_owned(),
        profile: ProfileId(6),
        priority: 8,
        hash: [0; 32],
        depends_on: Vec::new(),
        state: JobState::Failed,
        run: 3,
        attempt: 9,
        epoch: 10,
        runner: None,
        started_ms: Some(11),
    };
    assert_eq!(found.jobs, [job]);
    assert_eq!(found.latest_failures, [first_result()]);
    let stray = DetachedLease {
        epoch: 10,
        workflow: WorkflowId(1),
        job: JobId(7),
        run: 3,
        attempt: 9,
        runner: RunnerId(15),
        started_ms: Some(21),
        fate: DetachedState::Expired,
        role: LeaseRole::Job,
    };
    assert_eq!(found.detached_leases, [stray]);
    let last = LastIds { workflow: 1, job: 7, profile: 6, runner: 15, event: 20, epoch: 10, allocation: 0 };
    assert_eq!(found.last, last);
    assert_eq!(found.identity.len(), 8, "it has a key from now on");
    store.close().await.unwrap();
    // A store that nobody has led.
    assert_eq!(leadership::last_leader(&path).await.unwrap(), Leader::default());
}

/// A store is asked who leads before it is opened, so also one that does not know of leaders yet.
#[tokio::test]
async fn an_older_file_has_had_no_leader() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("torc.db");
    older_file(&path, until("create_leadership") - 1).await.close().await.unwrap();
    assert_eq!(leadership::last_leader(&path).await.unwrap(), Leader::default());
    let before = schema(&path).await;
    assert_eq!(before.2, i64::try_from(until("create_leadership")).unwrap() - 1, "asking changes nothing");
}

#[test]
fn a_folder_that_may_not_be_written_to_is_read_only() {
    let of = |kind: ErrorKind| not_writable("create", Path::new("/s/torc.db"), kind.into());
    assert!(matches!(of(ErrorKind::PermissionDenied), StoreError::ReadOnly { .. }));
    assert!(matches!(of(ErrorKind::NotFound), StoreError::NotFound { .. }));
    assert!(matches!(of(ErrorKind::Interrupted), StoreError::Io { operation: "create", .. }));
}

#[test]
fn a_failed_migration_says_what_the_database_said() {
    for error in
        [MigrateError::Execute(sqlx::Error::PoolClosed), MigrateError::ExecuteMigration(sqlx::Error::PoolClosed, 1)]
    {
        assert!(matches!(migration_failure(error), sqlx::Error::PoolClosed));
    }
    assert!(matches!(migration_failure(MigrateError::VersionMissing(7)), sqlx::Error::Migrate(_)));
}
