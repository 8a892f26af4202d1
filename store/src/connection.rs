//! The connections of a store: one for writing, and several for reading.

use std::ops::DerefMut;
use std::path::Path;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteLockingMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::MutexGuard;

use crate::error::QueryError;
use crate::leadership;

/// Time that a statement waits for a lock of another connection.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of connections for reading. Lists are short; more connections would only hold more page caches.
const READERS: u32 = 3;

/// Returns the options that all connections share. The journal mode is not set here: a file must not change before it is
/// recognized.
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
        // A checkpoint costs two more syncs and delays the group that triggers it: every 16 MiB instead of every 4.
        .pragma("wal_autocheckpoint", "4000")
        .pragma("journal_size_limit", "67108864")
        .disable_statement_logging()
}

/// Returns the connections for reading, opened when needed. They are not `query_only`, which would forbid a backup.
pub(crate) fn readers(path: &Path) -> SqlitePool {
    SqlitePoolOptions::new().max_connections(READERS).min_connections(0).connect_lazy_with(options(path, false))
}

/// The connection for writing.
#[derive(Debug)]
pub(crate) struct WriteConnection {
    connection: Option<SqliteConnection>,
    /// `true` if a transaction has begun and not ended, because its caller was dropped.
    is_unfinished: bool,
    /// The lock of the store, held until it is closed.
    lock: Option<std::fs::File>,
    /// The epoch of this server, where several servers could write.
    epoch: Option<i64>,
}

impl WriteConnection {
    /// Wraps an open connection and the lock of its file, unless an epoch decides who may write.
    pub(crate) fn new(connection: SqliteConnection, lock: Option<std::fs::File>) -> Self {
        Self { connection: Some(connection), is_unfinished: false, lock, epoch: None }
    }

    /// Refuses every transaction from now on if the store has another epoch.
    pub(crate) fn has_epoch(&mut self, epoch: i64) {
        self.epoch = Some(epoch);
    }

    /// Returns the connection, after rolling back the transaction of a dropped caller.
    pub(crate) async fn connection(&mut self) -> Result<&mut SqliteConnection, QueryError> {
        let connection = self.connection.as_mut().ok_or(QueryError::Closed)?;
        if self.is_unfinished {
            roll_back(connection).await;
            self.is_unfinished = false;
        }
        Ok(connection)
    }

    /// Begins a transaction, which [`WriteConnection::end`] ends.
    pub(crate) async fn begin(&mut self) -> Result<&mut SqliteConnection, QueryError> {
        self.connection().await?;
        self.is_unfinished = true;
        let connection = self.connection.as_mut().ok_or(QueryError::Closed)?;
        sqlx::query("begin immediate").execute(&mut *connection).await?;
        if let Some(epoch) = self.epoch
            && let Err(failure) = leadership::check(connection, epoch).await
        {
            // The current leader must not wait for a server that may no longer write.
            roll_back(connection).await;
            self.is_unfinished = false;
            return Err(failure);
        }
        Ok(connection)
    }

    /// Commits the transaction, or rolls it back if writing failed.
    pub(crate) async fn end<T>(&mut self, written: Result<T, QueryError>) -> Result<T, QueryError> {
        let connection = self.connection.as_mut().ok_or(QueryError::Closed)?;
        let ended = match written {
            Ok(value) => sqlx::query("commit").execute(&mut *connection).await.map(|_| value).map_err(QueryError::from),
            Err(failure) => Err(failure),
        };
        if ended.is_err() {
            roll_back(connection).await;
        }
        self.is_unfinished = false;
        ended
    }

    /// Rolls the transaction back.
    pub(crate) async fn discard(&mut self) -> Result<(), QueryError> {
        roll_back(self.connection.as_mut().ok_or(QueryError::Closed)?).await;
        self.is_unfinished = false;
        Ok(())
    }

    /// Closes the connection, then releases the lock.
    pub(crate) async fn close(&mut self) -> Result<(), QueryError> {
        let closed = match self.connection.take() {
            Some(connection) => connection.close().await,
            None => Ok(()),
        };
        self.lock = None;
        closed.map_err(QueryError::from)
    }
}

/// Rolls back. SQLite may have done so already and then reports that there is no transaction: that is no failure.
async fn roll_back(connection: &mut SqliteConnection) {
    let _ = sqlx::query("rollback").execute(connection).await;
}

/// A connection for reading.
pub(crate) enum ReadConnection<'store> {
    /// A connection of the pool.
    Pooled(PoolConnection<Sqlite>),
    /// The connection for writing, where there can be only one.
    Shared(MutexGuard<'store, WriteConnection>),
}

impl ReadConnection<'_> {
    pub(crate) async fn connection(&mut self) -> Result<&mut SqliteConnection, QueryError> {
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

    /// Durability and the interval of checkpoints depend on these settings.
    #[tokio::test]
    async fn connections_have_the_settings_that_durability_needs() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("torc.db");
        for exclusive in [true, false] {
            let mut connection = options(&path, exclusive).create_if_missing(true).connect().await.unwrap();
            for (name, expected) in [
                // FULL: a commit returns after its sync.
                ("synchronous", "2"),
                ("foreign_keys", "0"),
                ("busy_timeout", "5000"),
                ("cache_size", "-16000"),
                // MEMORY.
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
