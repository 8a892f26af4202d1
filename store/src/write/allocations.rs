//! Writes Slurm allocations and clusters. There are few of them, and they are written whole.

use std::collections::HashSet;
use std::sync::LazyLock;

use sqlx::SqliteConnection;
use torc_core::ids::WorkflowId;
use torc_core::rows::{AllocationRow, Changes};

use crate::bulk::BulkStatement;
use crate::error::Failure;

/// Writes what changed. Rows of a workflow that the same group deletes are left out.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    changes: &Changes,
    gone: &HashSet<WorkflowId>,
) -> Result<(), Failure> {
    let rows: Vec<&AllocationRow> = changes.allocations.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    write_allocations(connection, &rows).await?;
    for row in &changes.clusters {
        sqlx::query!(
            "insert or replace into slurm_clusters (name, document, generation, created_ms) values (?, ?, ?, ?)",
            row.name,
            row.document,
            row.generation,
            row.created_ms
        )
        .execute(&mut *connection)
        .await?;
    }
    for name in &changes.removed_clusters {
        sqlx::query!("delete from slurm_clusters where name = ?", name).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Deletes what belongs to a workflow.
pub(super) async fn delete_workflow(connection: &mut SqliteConnection, workflow: WorkflowId) -> Result<(), Failure> {
    let id = workflow.0;
    sqlx::query!("delete from allocations where workflow = ?", id).execute(&mut *connection).await?;
    Ok(())
}

async fn write_allocations(connection: &mut SqliteConnection, rows: &[&AllocationRow]) -> Result<(), Failure> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            31,
            "insert or replace into allocations (id, workflow, cluster, scheduler, origin, action, status, slurm_job_id,
                slurm_state, slurm_reason, partition, account, nodes, cpus, memory_bytes, gpus, seconds,
                one_worker_per_node, max_parallel_jobs, node_list, created_ms, called_ms, submitted_ms, started_ms,
                ended_ms, estimated_start_ms, expected_end_ms, canceled_ms, unseen_since_ms, has_reported,
                message)
            select * from $rows where column1 is not null",
        )
    });
    let write = INSERT.run(connection, rows, |row, places| {
        places.add(row.id.0)?.add(row.workflow.0)?.add(row.cluster.as_str())?.add(row.scheduler.as_deref())?;
        places.add(row.origin.as_str())?.add(row.action.map(|action| action.0))?.add(row.status.as_str())?;
        places.add(row.slurm_job_id.as_deref())?.add(row.slurm_state.as_deref())?.add(row.slurm_reason.as_deref())?;
        places.add(row.partition.as_deref())?.add(row.account.as_deref())?.add(row.nodes)?.add(row.cpus)?;
        places.add(row.memory_bytes)?.add(row.gpus)?.add(row.seconds)?.add(row.one_worker_per_node)?;
        places.add(row.max_parallel_jobs)?.add(row.node_list.as_deref())?.add(row.created_ms)?.add(row.called_ms)?;
        places.add(row.submitted_ms)?.add(row.started_ms)?.add(row.ended_ms)?.add(row.estimated_start_ms)?;
        places.add(row.expected_end_ms)?.add(row.canceled_ms)?.add(row.unseen_since_ms)?.add(row.has_reported)?;
        places.add(row.message.as_deref()).map(drop)
    });
    Ok(write.await?)
}
