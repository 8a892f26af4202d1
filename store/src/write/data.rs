//! Writes files as jobs saw them, user data, and Slurm's accounting of steps.

use std::collections::HashMap;
use std::sync::LazyLock;

use sqlx::SqliteConnection;
use torc_api::slurm_stats::SlurmStats;
use torc_api::wire::AttemptKey;
use torc_core::ids::WorkflowId;
use torc_core::rows::{FileRow, UserDataRow};

use crate::bulk::BulkStatement;
use crate::error::QueryError;
use crate::records::to_json;

pub(super) async fn write_files(connection: &mut SqliteConnection, rows: &[&FileRow]) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            7,
            "insert into files (workflow, job, path, size_bytes, modified_ms, sha256, seen_ms)
            select * from $rows where column1 is not null
            on conflict (workflow, job, path) do update set
                size_bytes = excluded.size_bytes, modified_ms = excluded.modified_ms, sha256 = excluded.sha256,
                seen_ms = excluded.seen_ms",
        )
    });
    // One statement may contain each key once.
    let rows: Vec<&FileRow> = latest_per_job(rows, |row| (row.workflow, row.job, row.path.as_str()));
    let write = INSERT.run(connection, &rows, |row, binder| {
        binder.add(row.workflow.0)?.add(row.job.0)?.add(row.path.as_str())?;
        binder.add(row.size_bytes)?.add(row.modified_ms)?.add(row.sha256.as_deref())?.add(row.seen_ms).map(drop)
    });
    Ok(write.await?)
}

pub(super) async fn write_slurm_stats(
    connection: &mut SqliteConnection,
    rows: &[&SlurmStats],
) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            13,
            "insert into slurm_stats (workflow, job, run, attempt, slurm_job_id, step, max_rss_bytes, max_vm_size_bytes,
                max_disk_read_bytes, max_disk_write_bytes, ave_cpu_seconds, node_list, state)
            select * from $rows where column1 is not null
            on conflict (workflow, job, run, attempt) do update set
                slurm_job_id = excluded.slurm_job_id, step = excluded.step, max_rss_bytes = excluded.max_rss_bytes,
                max_vm_size_bytes = excluded.max_vm_size_bytes, max_disk_read_bytes = excluded.max_disk_read_bytes,
                max_disk_write_bytes = excluded.max_disk_write_bytes, ave_cpu_seconds = excluded.ave_cpu_seconds,
                node_list = excluded.node_list, state = excluded.state",
        )
    });
    let rows: Vec<&SlurmStats> = latest_per_job(rows, AttemptKey::from);
    let write = INSERT.run(connection, &rows, |row, binder| {
        binder.add(row.workflow)?.add(row.job)?.add(row.run)?.add(row.attempt)?;
        binder.add(row.slurm_job_id.as_deref())?.add(row.step.as_deref())?;
        binder.add(row.max_rss_bytes)?.add(row.max_vm_size_bytes)?;
        binder.add(row.max_disk_read_bytes)?.add(row.max_disk_write_bytes)?.add(row.ave_cpu_seconds)?;
        binder.add(row.node_list.as_deref())?.add(row.state.as_deref()).map(drop)
    });
    Ok(write.await?)
}

pub(super) async fn write_user_data(
    connection: &mut SqliteConnection,
    rows: &[&UserDataRow],
) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            9,
            "insert into user_data (workflow, name, in_document, ephemeral, declared, written, job, lease_id, changed_ms)
            select * from $rows where column1 is not null
            on conflict (workflow, name) do update set
                in_document = excluded.in_document, ephemeral = excluded.ephemeral, declared = excluded.declared,
                written = excluded.written, job = excluded.job, lease_id = excluded.lease_id, changed_ms = excluded.changed_ms",
        )
    });
    let rows: Vec<&UserDataRow> = latest_per_job(rows, |row| (row.workflow, row.name.as_str()));
    let write = INSERT.run(connection, &rows, |row, binder| {
        let json = |value: &Option<serde_json::Value>| value.as_ref().map(to_json).transpose();
        binder.add(row.workflow.0)?.add(row.name.as_str())?.add(row.in_document)?.add(row.ephemeral)?;
        binder.add(json(&row.declared)?)?.add(json(&row.written)?)?;
        binder.add(row.job.map(|job| job.0))?.add(row.lease_id)?.add(row.changed_ms).map(drop)
    });
    Ok(write.await?)
}

pub(super) async fn remove_user_data(
    connection: &mut SqliteConnection,
    names: &[(WorkflowId, String)],
) -> Result<(), QueryError> {
    for (workflow, name) in names {
        let id = workflow.0;
        sqlx::query!("delete from user_data where workflow = ? and name = ?", id, name)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Returns the last row of each key, in the order of the first.
fn latest_per_job<'a, R, K: Eq + std::hash::Hash>(rows: &[&'a R], key: impl Fn(&'a R) -> K) -> Vec<&'a R> {
    let mut positions: HashMap<K, usize> = HashMap::new();
    let mut kept: Vec<&R> = Vec::with_capacity(rows.len());
    for row in rows {
        let position = *positions.entry(key(row)).or_insert(kept.len());
        match kept.get_mut(position) {
            Some(earlier) => *earlier = row,
            None => kept.push(row),
        }
    }
    kept
}
