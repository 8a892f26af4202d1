//! Opens a store: checks the file, locks it, and upgrades its schema. A refused file stays unchanged.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection};

use crate::connection::{self, WriteConnection};
use crate::error::{QueryError, StoreError};
use crate::filesystem::has_shared_memory;
use crate::leadership::{self, Leader};

/// Layout of the first migration. Stores of earlier layouts are from before the first release and cannot be read.
const FIRST_LAYOUT: i64 = 17;
/// All migrations; `pragma user_version` of a file is its layout.
pub(crate) static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/sqlite");
/// 'Torc' in ASCII, in the header of database files.
pub(crate) const APPLICATION_ID: i64 = 0x546F_7263;

/// Options of an open store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    pub path: PathBuf,
    /// `true` to create an absent file.
    pub create: bool,
    /// `true` to use a single connection, which needs no shared memory. Absent: the file system decides.
    pub exclusive: Option<bool>,
    /// The leader under whose epoch this process writes. If set, the epoch decides which process may write. No lock
    /// is taken, because a frozen leader would never release it.
    pub leader: Option<Leader>,
}

impl OpenOptions {
    /// Returns the options for a path, or a URL such as `sqlite:torc.db` or `sqlite:///var/lib/torc/torc.db`.
    pub fn new(path_or_url: &str) -> Self {
        let path =
            path_or_url.strip_prefix("sqlite:").map_or(path_or_url, |rest| rest.strip_prefix("//").unwrap_or(rest));
        Self { path: PathBuf::from(path), ..Self::default() }
    }

    /// Sets whether to create an absent file.
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// Sets whether to use a single connection, whatever the file system is.
    pub fn exclusive(self, exclusive: bool) -> Self {
        Self { exclusive: Some(exclusive), ..self }
    }
}

/// Returns the last leader, which has the highest epoch; epoch 0 for a store without a leader or without a file.
pub async fn last_leader(path: &Path) -> Result<Leader, StoreError> {
    if !path.exists() {
        return Ok(Leader::default());
    }
    let at = |error| StoreError::from_sqlx(path, error);
    let mut connection = connection::options(path, false).read_only(true).connect().await.map_err(at)?;
    let known: Result<i64, sqlx::Error> =
        sqlx::query_scalar("select count(*) from sqlite_schema where type = 'table' and name = 'leadership'")
            .fetch_one(&mut connection)
            .await;
    let leader = match known.map_err(at)? {
        0 => Leader::default(),
        _ => sqlx::query_as!(Leader, "select epoch, holder from leadership")
            .fetch_one(&mut connection)
            .await
            .map_err(at)?,
    };
    connection.close().await.map_err(at)?;
    Ok(leader)
}

/// An opened database file with its connections.
pub(crate) struct OpenDatabase {
    pub writer: WriteConnection,
    pub is_exclusive: bool,
}

/// Opens and locks the file and upgrades its schema.
pub(crate) async fn open(options: &OpenOptions) -> Result<OpenDatabase, StoreError> {
    let path = &options.path;
    if !options.create && !path.exists() {
        return Err(StoreError::NotFound { path: path.clone() });
    }
    let lock = if options.leader.is_none() { Some(take_lock(path)?) } else { None };
    create_file(path)?;
    let is_exclusive = options.exclusive.unwrap_or_else(|| !has_shared_memory(path));
    let mut connection =
        connection::options(path, is_exclusive).connect().await.map_err(|error| StoreError::from_sqlx(path, error))?;
    prepare(&mut connection, path).await?;
    let mut writer = WriteConnection::new(connection, lock);
    if let Some(leader) = &options.leader {
        let at = |failure: QueryError| failure.at(path);
        let begun = writer.begin().await.map_err(at)?;
        let taken = leadership::acquire_leadership(begun, leader).await;
        writer.end(taken).await.map_err(at)?;
        writer.has_epoch(leader.epoch);
    }
    Ok(OpenDatabase { writer, is_exclusive })
}

/// Takes a lock file beside the database: SQLite's locks only last for a transaction, and opening the database file a second
/// time would drop them.
fn take_lock(path: &Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push("-lock");
    let lock_path = PathBuf::from(name);
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_path)
        .map_err(|error| not_writable("create the lock file", path, error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.to_owned() }),
        // Lustre without the flock option: only SQLite's own locks remain.
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(lock),
        Err(TryLockError::Error(error)) => Err(StoreError::from_io("lock", &lock_path, error)),
    }
}

/// Creates an empty file that only its owner can read: documents may hold secrets. SQLite's other files get the same mode.
fn create_file(path: &Path) -> Result<(), StoreError> {
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => sync_folder(path).map_err(|error| StoreError::from_io("sync the folder of", path, error)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(not_writable("create", path, error)),
    }
}

/// Makes the name of a file durable.
pub(crate) fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn not_writable(operation: &'static str, path: &Path, error: std::io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::PermissionDenied => StoreError::ReadOnly { path: path.to_owned() },
        _ => StoreError::from_io(operation, path, error),
    }
}

/// Checks the file before anything in it changes.
async fn prepare(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    let at = |failure: QueryError| failure.at(path);
    let identity = identify(connection).await.map_err(at)?;
    let known = latest_schema();
    identity.check(path, known)?;
    let mode: String = sqlx::query_scalar("pragma journal_mode = wal")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| StoreError::from_sqlx(path, error))?;
    if mode != "wal" {
        return Err(QueryError::Damage(format!("its journal mode stays '{mode}'")).at(path));
    }
    if identity.schema < known {
        MIGRATIONS
            .run(&mut *connection)
            .await
            .map_err(|error| StoreError::from_sqlx(path, migration_failure(error)))?;
        // Set here and not in the migrations: after a crash between the two, the next open sets it again.
        sqlx::query(AssertSqlSafe(format!("pragma user_version = {known}")))
            .execute(&mut *connection)
            .await
            .map_err(|error| StoreError::from_sqlx(path, error))?;
    }
    Ok(())
}

/// Returns the newest layout that this version knows.
pub(crate) fn latest_schema() -> i64 {
    let migrations = i64::try_from(MIGRATIONS.iter().count()).unwrap_or(i64::MAX);
    migrations.saturating_add(FIRST_LAYOUT - 1)
}

/// The application and the schema that a database file declares.
pub(crate) struct DatabaseIdentity {
    pub application: i64,
    pub schema: i64,
    /// Tables other than the list of migrations.
    pub tables: i64,
}

impl DatabaseIdentity {
    /// Checks that the file is a Torc store of a supported layout. A file without tables is one whose creation was interrupted.
    pub(crate) fn check(&self, path: &Path, known: i64) -> Result<(), StoreError> {
        let is_unwritten = self.application == 0 && self.tables == 0;
        if self.application != APPLICATION_ID && !is_unwritten {
            return Err(StoreError::NotADatabase { path: path.to_owned() });
        }
        if self.schema > known {
            return Err(StoreError::NewerSchema { path: path.to_owned(), found: self.schema, known });
        }
        if !is_unwritten && self.schema < FIRST_LAYOUT {
            return Err(StoreError::OlderSchema { path: path.to_owned(), found: self.schema, oldest: FIRST_LAYOUT });
        }
        Ok(())
    }
}

/// Reads the application and the schema of a database file.
pub(crate) async fn identify(connection: &mut SqliteConnection) -> Result<DatabaseIdentity, QueryError> {
    let application = sqlx::query_scalar("pragma application_id").fetch_one(&mut *connection).await?;
    let schema = sqlx::query_scalar("pragma user_version").fetch_one(&mut *connection).await?;
    let tables = sqlx::query_scalar("select count(*) from sqlite_schema where name not like '%sqlx_migrations%'")
        .fetch_one(&mut *connection)
        .await?;
    Ok(DatabaseIdentity { application, schema, tables })
}

/// Returns the error of the database behind an error of a migration.
fn migration_failure(error: MigrateError) -> sqlx::Error {
    match error {
        MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => source,
        other => sqlx::Error::Migrate(Box::new(other)),
    }
}

#[cfg(test)]
mod tests;
