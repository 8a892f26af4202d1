//! Slurm allocations and clusters, as the server reads them at its start.

use sqlx::SqliteConnection;
use torc_core::ids::WorkflowId;
use torc_core::rows::{AllocationRow, ClusterRow};

use crate::error::QueryError;
use crate::records::rows_from_json;

/// Reads allocations that have not ended, sorted by number.
pub(super) async fn live(connection: &mut SqliteConnection) -> Result<Vec<AllocationRow>, QueryError> {
    let texts = sqlx::query_scalar!("select data from allocations where status in ('pending', 'active') order by id")
        .fetch_all(connection)
        .await?;
    rows_from_json("allocation", &texts)
}

/// Counts the ended allocations of each workflow.
pub(super) async fn finished(connection: &mut SqliteConnection) -> Result<Vec<(WorkflowId, i64)>, QueryError> {
    let records = sqlx::query!(
        r#"select workflow as "workflow!", count(*) as "count!: i64" from allocations where ended_ms is not null
        group by workflow order by workflow"#
    )
    .fetch_all(connection)
    .await?;
    Ok(records.into_iter().map(|record| (WorkflowId(record.workflow), record.count)).collect())
}

/// Reads the Slurm job IDs of ended allocations: their runners are refused.
pub(super) async fn ended_slurm_jobs(connection: &mut SqliteConnection) -> Result<Vec<String>, QueryError> {
    Ok(sqlx::query_scalar!(
        r#"select slurm_job_id as "id!" from allocations where ended_ms is not null and slurm_job_id is not null
        order by id"#
    )
    .fetch_all(connection)
    .await?)
}

/// Reads all clusters, sorted by name.
pub(super) async fn clusters(connection: &mut SqliteConnection) -> Result<Vec<ClusterRow>, QueryError> {
    let records =
        sqlx::query!(r#"select name as "name!", document, generation, created_ms from slurm_clusters order by name"#)
            .fetch_all(connection)
            .await?;
    let row = |name, document, generation, created_ms| ClusterRow { name, document, generation, created_ms };
    Ok(records.into_iter().map(|r| row(r.name, r.document, r.generation, r.created_ms)).collect())
}

/// Reads the key that distinguishes this store from others.
pub(super) async fn identity(connection: &mut SqliteConnection) -> Result<String, QueryError> {
    Ok(sqlx::query_scalar!("select key from store_identity").fetch_one(connection).await?)
}
