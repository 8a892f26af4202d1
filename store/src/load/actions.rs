//! Actions and recovery scripts, as they are read at start.

use sqlx::SqliteConnection;
use torc_core::ids::{JobId, RunnerId, WorkflowId};
use torc_core::rows::{ActionRow, RecoveryRow, TaskLease};

use crate::error::Failure;
use crate::records::{cause, small};

/// All actions, sorted by number.
pub(super) async fn actions(connection: &mut SqliteConnection) -> Result<Vec<ActionRow>, Failure> {
    sqlx::query!(
        "select id, workflow, position, worker, state, run, attempt, tries, lease_id, runner, started_ms, ended_ms, return_code,
            message, stdout, stderr, definition
        from actions order by id"
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|record| {
        Ok(ActionRow {
            id: JobId(record.id),
            workflow: WorkflowId(record.workflow),
            position: small("position", record.position)?,
            definition: record.definition,
            worker: record.worker.map(RunnerId),
            state: record.state.parse().map_err(Failure::Damage)?,
            lease: TaskLease {
                run: small("run", record.run)?,
                attempt: small("attempt", record.attempt)?,
                tries: small("tries", record.tries)?,
                lease_id: record.lease_id,
                runner: record.runner.map(RunnerId),
                started_ms: record.started_ms,
            },
            ended_ms: record.ended_ms,
            return_code: record.return_code.map(|code| small("return code", code)).transpose()?,
            message: record.message,
            stdout: record.stdout,
            stderr: record.stderr,
        })
    })
    .collect()
}

/// All jobs that wait for a recovery script, sorted by number.
pub(super) async fn recoveries(connection: &mut SqliteConnection) -> Result<Vec<RecoveryRow>, Failure> {
    sqlx::query!(
        "select job, workflow, script, return_code, cause, preferred, run, attempt, tries, lease_id, runner, started_ms
        from recoveries order by job"
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|record| {
        Ok(RecoveryRow {
            job: JobId(record.job),
            workflow: WorkflowId(record.workflow),
            script: record.script,
            return_code: small("return code", record.return_code)?,
            cause: cause(&record.cause)?,
            preferred: record.preferred.map(RunnerId),
            lease: TaskLease {
                run: small("run", record.run)?,
                attempt: small("attempt", record.attempt)?,
                tries: small("tries", record.tries)?,
                lease_id: record.lease_id,
                runner: record.runner.map(RunnerId),
                started_ms: record.started_ms,
            },
        })
    })
    .collect()
}
