//! Who may write. A server that leads under a number takes it down in the store, and from then on everybody with a lower one is
//! refused in the middle of whatever it wanted to write: also one that was frozen and believes to lead.

use sqlx::SqliteConnection;

use crate::error::Failure;

/// Under which number somebody leads, and who.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader {
    /// Rises with every change of leader.
    pub epoch: i64,
    /// Who, for people.
    pub holder: String,
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
