//! Actions and recovery scripts, as the server reads them at its start.

use sqlx::SqliteConnection;
use torc_core::rows::{ActionRow, RecoveryRow};

use crate::error::QueryError;
use crate::records::rows_from_json;

/// Reads all actions, sorted by number.
pub(super) async fn actions(connection: &mut SqliteConnection) -> Result<Vec<ActionRow>, QueryError> {
    let texts = sqlx::query_scalar!("select data from actions order by id").fetch_all(connection).await?;
    rows_from_json("action", &texts)
}

/// Reads all jobs that wait for a recovery script, sorted by number.
pub(super) async fn recoveries(connection: &mut SqliteConnection) -> Result<Vec<RecoveryRow>, QueryError> {
    let texts = sqlx::query_scalar!("select data from recoveries order by job").fetch_all(connection).await?;
    rows_from_json("recovery", &texts)
}
