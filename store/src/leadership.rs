//! Who may write. A server that leads under a number takes it down in the store, and from then on everybody with a lower one is
//! refused in the middle of whatever it wanted to write: also one that was frozen and believes to lead.

use std::path::Path;

use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::connection;
use crate::error::{Failure, StoreError};

/// Under which number somebody leads, and who.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader {
    /// Rises with every change of leader.
    pub epoch: i64,
    /// Who, for people.
    pub holder: String,
}

/// Who has led last, under the highest number; 0 for a store that nobody has led or that is not there yet.
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

/// The number that counts.
async fn epoch(connection: &mut SqliteConnection) -> Result<i64, Failure> {
    Ok(sqlx::query_scalar!("select epoch from leadership").fetch_one(connection).await?)
}

/// From now on a new leader's number counts. Within a transaction.
pub(crate) async fn take_office(connection: &mut SqliteConnection, leader: &Leader) -> Result<(), Failure> {
    let last = epoch(connection).await?;
    if leader.epoch <= last {
        return Err(Failure::Superseded { epoch: leader.epoch, by: last });
    }
    sqlx::query!("update leadership set epoch = ?, holder = ?", leader.epoch, leader.holder)
        .execute(connection)
        .await?;
    Ok(())
}

/// Refuses whoever no longer leads. Within a transaction.
pub(crate) async fn check(connection: &mut SqliteConnection, epoch_of_writer: i64) -> Result<(), Failure> {
    let by = epoch(connection).await?;
    if by == epoch_of_writer { Ok(()) } else { Err(Failure::Superseded { epoch: epoch_of_writer, by }) }
}

/// The last event that was told to Kubernetes.
pub(crate) async fn told(connection: &mut SqliteConnection) -> Result<i64, Failure> {
    Ok(sqlx::query_scalar!("select told from leadership").fetch_one(connection).await?)
}

/// Everything up to this event was told to Kubernetes.
pub(crate) async fn note_told(connection: &mut SqliteConnection, sequence: i64) -> Result<(), Failure> {
    sqlx::query!("update leadership set told = max(told, ?)", sequence).execute(connection).await?;
    Ok(())
}
