//! Files that are opened or refused, and files of older versions.

#![allow(clippy::unwrap_used)]

use sqlx::{Connection, Row};
use tempfile::TempDir;

use super::*;
use crate::Store;

#[test]
fn a_file_is_ours_or_unwritten_and_not_from_the_future() {
    let check = |application, schema, tables| {
        let identity = DatabaseIdentity { application, schema, tables };
        identity.check(Path::new("/s/torc.db"), FIRST_LAYOUT + 2).err()
    };
    for (application, schema, tables) in
        [(APPLICATION_ID, FIRST_LAYOUT + 2, 21), (APPLICATION_ID, FIRST_LAYOUT, 20), (0, 0, 0)]
    {
        let refused = check(application, schema, tables);
        assert!(refused.is_none(), "{application} {schema} {tables}: {refused:?}");
    }
    for (application, schema, tables) in [(0, 0, 1), (7, 0, 0), (7, 99, 3), (APPLICATION_ID + 1, 17, 21)] {
        let refused = check(application, schema, tables);
        assert!(
            matches!(refused, Some(StoreError::NotADatabase { .. })),
            "{application} {schema} {tables}: {refused:?}"
        );
    }
    for application in [APPLICATION_ID, 0] {
        let refused = check(application, FIRST_LAYOUT + 3, 0);
        assert!(
            matches!(refused, Some(StoreError::NewerSchema { found, known, .. }) if found == FIRST_LAYOUT + 3 && known == FIRST_LAYOUT + 2),
            "{refused:?}"
        );
    }
    for schema in [0, 1, FIRST_LAYOUT - 1] {
        let refused = check(APPLICATION_ID, schema, 8);
        let is_refused =
            matches!(refused, Some(StoreError::OlderSchema { found, oldest: FIRST_LAYOUT, .. }) if found == schema);
        assert!(is_refused, "{refused:?}");
    }
}

/// Creates a file with this number of migrations.
async fn older_file(path: &Path, migrations: usize) -> SqliteConnection {
    let mut connection = connection::options(path, false).create_if_missing(true).connect().await.unwrap();
    sqlx::query("pragma journal_mode = wal").execute(&mut connection).await.unwrap();
    bring_to(&mut connection, migrations).await;
    connection
}

async fn bring_to(connection: &mut SqliteConnection, migrations: usize) {
    let newest = MIGRATIONS.iter().nth(migrations - 1).unwrap();
    MIGRATIONS.run_to(newest.version, &mut *connection).await.unwrap();
    let layout = FIRST_LAYOUT - 1 + i64::try_from(migrations).unwrap();
    let version = format!("pragma user_version = {layout}");
    sqlx::query(AssertSqlSafe(version)).execute(connection).await.unwrap();
}

/// Returns the schema and the origin of a file.
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
    assert_eq!((expected.1, expected.2), (1_416_589_923, latest_schema()));
    for migrations in 1..known {
        let old = folder.path().join(format!("old-{migrations}.db"));
        older_file(&old, migrations).await.close().await.unwrap();
        open_store(&old).await.close().await.unwrap();
        assert_eq!(schema(&old).await, expected, "{migrations} migrations");
    }
}

/// Stores of layouts before the first release are refused and stay unchanged.
#[tokio::test]
async fn a_file_of_an_older_layout_is_refused_untouched() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("torc.db");
    open_store(&path).await.close().await.unwrap();
    for found in [0, 1, FIRST_LAYOUT - 1] {
        let mut connection = connection::options(&path, false).connect().await.unwrap();
        sqlx::query(AssertSqlSafe(format!("pragma user_version = {found}"))).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let before = std::fs::read(&path).unwrap();
        let refused = Store::open(OpenOptions::new(path.to_str().unwrap())).await.unwrap_err();
        let is_told = |layout| layout == found;
        assert!(
            matches!(refused, StoreError::OlderSchema { found, oldest: FIRST_LAYOUT, .. } if is_told(found)),
            "{refused:?}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

/// The last leader is read before the store is opened, so also from a store without leaders.
#[tokio::test]
async fn a_file_without_leaders_has_had_none() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("torc.db");
    let mut connection = connection::options(&path, false).create_if_missing(true).connect().await.unwrap();
    sqlx::query("create table workflows (id integer)").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let before = schema(&path).await;
    assert_eq!(last_leader(&path).await.unwrap(), Leader::default());
    assert_eq!(schema(&path).await, before, "asking changes nothing");
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
