//! The connections of a store: one that writes, and readers beside it.

use std::ops::DerefMut;
use std::path::Path;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteLockingMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::MutexGuard;

use crate::error::Failure;
use crate::leadership;

/// How long a statement waits for a lock that another connection holds for a moment.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Lists and watches are short; more connections would only hold more page caches.
const READERS: u32 = 3;

/// What writers and readers have in common. The journal mode is left alone: nothing is changed in a file that has not
/// been recognized yet.
pub(crate) fn options(path: &Path, exclusive: bool) -> SqliteConnectOptions {
    let locking = if exclusive { SqliteLockingMode::Exclusive } else { SqliteLockingMode::Normal };
    SqliteConnectOptions::new()
        .filename(path)
        .locking_mode(locking)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(false)
        .busy_timeout(BUSY_TIMEOUT)
        .row_buffer_size(1024)
        .pragma("cache_size", "-16000")
        .pragma("temp_store", "memory")
        // A checkpoint costs two more syncs and holds up the group that runs into it: every 16 MiB instead of every 4.
        .pragma("wal_autocheckpoint", "4000")
        .pragma("journal_size_limit", "67108864")
        .disable_statement_logging()
}

/// Connections for readers, opened when they are needed. Not `query_only`: that would forbid a backup.
pub(crate) fn readers(path: &Path) -> SqlitePool {
    SqlitePoolOptions::new().max_connections(READERS).min_connections(0).connect_lazy_with(options(path, false))
}

/// The connection that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    connection: Option<SqliteConnection>,
    /// A transaction was begun and not ended: its caller went away in the middle.
    is_unfinished: bool,
    /// Held as long as the store is open: one process owns it.
    lock: Option<std::fs::File>,
    /// The number under which this server leads, where several could write.
    epoch: Option<i64>,
}

impl Writer {
    /// Takes over an open connection and the lock of its file, if a lock decides who may write.
    pub(crate) fn new(connection: SqliteConnection, lock: Option<std::fs::File>) -> Self {
        Self { connection: Some(connection), is_unfinished: false, lock, epoch: None }
    }

    /// From now on every transaction is refused once another number counts.
    pub(crate) fn leads_under(&mut self, epoch: i64) {
        self.epoch = Some(epoch);
    }

    /// The connection, with nothing left over from a caller that went away.
    pub(crate) async fn connection(&mut self) -> Result<&mut SqliteConnection, Failure> {
        let connection = self.connection.as_mut().ok_or(Failure::Closed)?;
        if self.is_unfinished {
            roll_back(connection).await;
            self.is_unfinished = false;
        }
        Ok(connection)
    }

    /// Begins a transaction; [`Writer::end`] ends it.
    pub(crate) async fn begin(&mut self) -> Result<&mut SqliteConnection, Failure> {
        self.connection().await?;
        self.is_unfinished = true;
        let connection = self.connection.as_mut().ok_or(Failure::Closed)?;
        sqlx::query("begin immediate").execute(&mut *connection).await?;
        if let Some(epoch) = self.epoch
            && let Err(failure) = leadership::check(connection, epoch).await
        {
            // Whoever leads now must not have to wait for somebody who has nothing to write any more.
            roll_back(connection).await;
            self.is_unfinished = false;
            return Err(failure);
        }
        Ok(connection)
    }

    /// Makes what was written durable, or forgets it all when it failed.
    pub(crate) async fn end<T>(&mut self, written: Result<T, Failure>) -> Result<T, Failure> {
        let connection = self.connection.as_mut().ok_or(Failure::Closed)?;
        let ended = match written {
            Ok(value) => sqlx::query("commit").execute(&mut *connection).await.map(|_| value).map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        if ended.is_err() {
            roll_back(connection).await;
        }
        self.is_unfinished = false;
        ended
    }

    /// Ends a transaction without keeping anything of it.
    pub(crate) async fn discard(&mut self) -> Result<(), Failure> {
        roll_back(self.connection.as_mut().ok_or(Failure::Closed)?).await;
        self.is_unfinished = false;
        Ok(())
    }

    /// Closes the connection, then lets go of the lock.
    pub(crate) async fn close(&mut self) -> Result<(), Failure> {
        let closed = match self.connection.take() {
            Some(connection) => connection.close().await,
            None => Ok(()),
        };
        self.lock = None;
        closed.map_err(Failure::from)
    }
}

/// SQLite has often rolled back by itself by then, and says that there is nothing to roll back: that is no failure.
async fn roll_back(connection: &mut SqliteConnection) {
    let _ = sqlx::query("rollback").execute(connection).await;
}

/// A connection to read from.
pub(crate) enum Reader<'store> {
    /// One of its own.
    Pooled(PoolConnection<Sqlite>),
    /// The writer's, where there can be only one.
    Shared(MutexGuard<'store, Writer>),
}

impl Reader<'_> {
    /// The connection.
    pub(crate) async fn connection(&mut self) -> Result<&mut SqliteConnection, Failure> {
        match self {
            Self::Pooled(connection) => Ok(connection.deref_mut()),
            Self::Shared(writer) => writer.deref_mut().connection().await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sqlx::{AssertSqlSafe, Row};

    use super::*;

    async fn pragma(connection: &mut SqliteConnection, name: &str) -> String {
        let row = sqlx::query(AssertSqlSafe(format!("pragma {name}"))).fetch_one(connection).await.unwrap();
        row.try_get::<i64, _>(0).map_or_else(|_| row.get(0), |number| number.to_string())
    }

    /// What is durable, and how often a group waits for a checkpoint, hangs on these.
    #[tokio::test]
    async fn connections_have_the_settings_that_durability_needs() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("torc.db");
        for exclusive in [true, false] {
            let mut connection = options(&path, exclusive).create_if_missing(true).connect().await.unwrap();
            for (name, expected) in [
                // Full: a commit returns after its sync.
                ("synchronous", "2"),
                ("foreign_keys", "0"),
                ("busy_timeout", "5000"),
                ("cache_size", "-16000"),
                // Memory.
                ("temp_store", "2"),
                ("wal_autocheckpoint", "4000"),
                ("journal_size_limit", "67108864"),
                ("locking_mode", if exclusive { "exclusive" } else { "normal" }),
            ] {
                assert_eq!(pragma(&mut connection, name).await, expected, "{name}");
            }
            connection.close().await.unwrap();
        }
        let readers = readers(&path);
        assert_eq!((readers.options().get_max_connections(), readers.options().get_min_connections()), (3, 0));
    }
}
