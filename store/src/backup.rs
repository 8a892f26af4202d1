//! Backups of a store, and their verification.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::connection;
use crate::error::{QueryError, StoreError};
use crate::open::{APPLICATION_ID, identify, latest_schema, sync_folder};

/// The content of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// The schema of the file, which this version can open.
    pub schema: i64,
    pub workflows: i64,
    /// Jobs that are part of a workflow.
    pub jobs: i64,
    pub results: i64,
}

/// Writes a complete copy to a new file and removes it after a failure.
pub(crate) async fn backup(connection: &mut SqliteConnection, from: &Path, to: &Path) -> Result<(), StoreError> {
    // SQLite writes into an empty file and refuses any other. Creating it here sets its mode and claims the name.
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .map_err(|error| StoreError::from_io("create", to, error))?;
    let copied = copy(connection, from, to).await;
    if copied.is_err() {
        // The caller needs the error of the copy; an error of the removal adds nothing.
        let _ = std::fs::remove_file(to);
    }
    copied
}

async fn copy(connection: &mut SqliteConnection, from: &Path, to: &Path) -> Result<(), StoreError> {
    let Some(name) = to.to_str() else {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "its name is not UTF-8");
        return Err(StoreError::Io { operation: "write a backup to", path: to.to_owned(), source });
    };
    sqlx::query("vacuum into ?").bind(name).execute(connection).await.map_err(|error| {
        match StoreError::from_sqlx(to, error) {
            // Only a full disk is a matter of the copy; other errors are about the original.
            full @ StoreError::DiskFull { .. } => full,
            StoreError::Database { source, .. } => StoreError::from_sqlx(from, source),
            other => other,
        }
    })?;
    File::open(to)
        .and_then(|file| file.sync_all())
        .and_then(|()| sync_folder(to))
        .map_err(|error| StoreError::from_io("sync", to, error))
}

/// Checks that a file is an intact Torc database that this version can open. Reads the whole file and changes nothing.
pub async fn verify(path: &Path) -> Result<BackupInfo, StoreError> {
    if !path.exists() {
        return Err(StoreError::NotFound { path: path.to_owned() });
    }
    let at = |failure: QueryError| failure.at(path);
    let mut connection =
        connection::options(path, false).read_only(true).connect().await.map_err(|error| at(error.into()))?;
    let verified = read_through(&mut connection, path).await;
    connection.close().await.map_err(|error| at(error.into()))?;
    verified
}

async fn read_through(connection: &mut SqliteConnection, path: &Path) -> Result<BackupInfo, StoreError> {
    let at = |failure: QueryError| failure.at(path);
    let identity = identify(connection).await.map_err(at)?;
    if identity.application != APPLICATION_ID {
        return Err(StoreError::NotADatabase { path: path.to_owned() });
    }
    identity.check(path, latest_schema())?;
    let found: String = sqlx::query_scalar("pragma integrity_check(1)")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| at(error.into()))?;
    if found != "ok" {
        return Err(at(QueryError::Damage(found)));
    }
    let counts = sqlx::query!(
        r#"select (select count(*) from workflows) as "workflows!: i64",
            (select count(*) from jobs where removed = 0) as "jobs!: i64",
            (select count(*) from results) as "results!: i64""#
    )
    .fetch_one(connection)
    .await
    .map_err(|error| at(error.into()))?;
    Ok(BackupInfo { schema: identity.schema, workflows: counts.workflows, jobs: counts.jobs, results: counts.results })
}
