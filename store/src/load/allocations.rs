//! Slurm allocations and clusters, as they are read at start.

use sqlx::SqliteConnection;
use torc_api::filter::AllocationFilter;
use torc_core::ids::WorkflowId;
use torc_core::rows::{AllocationRow, ClusterRow};

use crate::error::Failure;
use crate::query::allocations::all;

/// Those that are not over, sorted by number.
pub(super) async fn live(connection: &mut SqliteConnection) -> Result<Vec<AllocationRow>, Failure> {
    all(connection, &AllocationFilter { live: true, ..AllocationFilter::default() }).await
}

/// For each workflow: how many are over.
pub(super) async fn finished(connection: &mut SqliteConnection) -> Result<Vec<(WorkflowId, i64)>, Failure> {
    let records = sqlx::query!(
        r#"select workflow, count(*) as "count!: i64" from allocations where ended_ms is not null
        group by workflow order by workflow"#
    )
    .fetch_all(connection)
    .await?;
    Ok(records.into_iter().map(|record| (WorkflowId(record.workflow), record.count)).collect())
}

/// Slurm's numbers of those that are over: their runners are refused.
pub(super) async fn ended_slurm_jobs(connection: &mut SqliteConnection) -> Result<Vec<String>, Failure> {
    Ok(sqlx::query_scalar!(
        r#"select slurm_job_id as "id!" from allocations where ended_ms is not null and slurm_job_id is not null
        order by id"#
    )
    .fetch_all(connection)
    .await?)
}

/// All clusters, sorted by name.
pub(super) async fn clusters(connection: &mut SqliteConnection) -> Result<Vec<ClusterRow>, Failure> {
    let records =
        sqlx::query!(r#"select name as "name!", document, generation, created_ms from slurm_clusters order by name"#)
            .fetch_all(connection)
            .await?;
    let row = |name, document, generation, created_ms| ClusterRow { name, document, generation, created_ms };
    Ok(records.into_iter().map(|r| row(r.name, r.document, r.generation, r.created_ms)).collect())
}

/// What tells this store from others.
pub(super) async fn identity(connection: &mut SqliteConnection) -> Result<String, Failure> {
    Ok(sqlx::query_scalar!("select key from store_identity").fetch_one(connection).await?)
}
