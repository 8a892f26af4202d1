//! The epoch of the writer. A server that becomes the leader stores its epoch. From then on the transactions of all
//! servers with a lower epoch fail, even those of a frozen server that still believes that it leads.

use sqlx::SqliteConnection;

use crate::error::QueryError;

/// A leader and its epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader {
    /// Rises with every change of the leader.
    pub epoch: i64,
    /// The name of the server, for messages.
    pub holder: String,
}

/// Returns the current epoch.
async fn epoch(connection: &mut SqliteConnection) -> Result<i64, QueryError> {
    Ok(sqlx::query_scalar!("select epoch from leadership").fetch_one(connection).await?)
}

/// Stores the epoch of a new leader, within a transaction.
pub(crate) async fn acquire_leadership(connection: &mut SqliteConnection, leader: &Leader) -> Result<(), QueryError> {
    let last = epoch(connection).await?;
    if leader.epoch <= last {
        return Err(QueryError::Superseded { epoch: leader.epoch, by: last });
    }
    sqlx::query!("update leadership set epoch = ?, holder = ?", leader.epoch, leader.holder)
        .execute(connection)
        .await?;
    Ok(())
}

/// Returns an error unless the epoch is current, within a transaction.
pub(crate) async fn check(connection: &mut SqliteConnection, epoch_of_writer: i64) -> Result<(), QueryError> {
    let by = epoch(connection).await?;
    if by == epoch_of_writer { Ok(()) } else { Err(QueryError::Superseded { epoch: epoch_of_writer, by }) }
}

/// Returns the last event that was published to Kubernetes.
pub(crate) async fn event_cursor(connection: &mut SqliteConnection) -> Result<i64, QueryError> {
    Ok(sqlx::query_scalar!("select event_cursor from leadership").fetch_one(connection).await?)
}

/// Records that all events up to `sequence` were published to Kubernetes.
pub(crate) async fn set_event_cursor(connection: &mut SqliteConnection, sequence: i64) -> Result<(), QueryError> {
    sqlx::query!("update leadership set event_cursor = max(event_cursor, ?)", sequence).execute(connection).await?;
    Ok(())
}
