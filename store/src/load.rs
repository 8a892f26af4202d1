//! Reads the live state once, at the start of a server. It uses the writer's connection, so nothing changes meanwhile.

mod actions;
mod allocations;

use sqlx::SqliteConnection;
use torc_api::filter::RunnerFilter;
use torc_api::state::Cause;
use torc_core::ids::{JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{DetachedLease, DetachedState, JobRow, LastIds, ProfileRow, ResultRow, Snapshot, WorkflowRow};

use crate::error::QueryError;
use crate::query::results::FAILED_STATES;
use crate::query::{data, runners};
use crate::records::{JobColumns, ResultColumns, cause, from_json, small};

/// Failures that are loaded for each workflow.
const MAX_LISTED_FAILURES: i64 = 20;

/// Reads the live state.
pub(crate) async fn load(connection: &mut SqliteConnection) -> Result<Snapshot, QueryError> {
    Ok(Snapshot {
        workflows: workflows(connection).await?,
        profiles: profiles(connection).await?,
        jobs: jobs(connection).await?,
        user_data: data::live_user_data(connection).await?,
        runners: runners::list(connection, RunnerFilter { all: false }).await?,
        detached_leases: detached_leases(connection).await?,
        actions: actions::actions(connection).await?,
        recoveries: actions::recoveries(connection).await?,
        failures: failures(connection).await?,
        latest_failures: latest_failures(connection).await?,
        allocations: allocations::live(connection).await?,
        finished_allocations: allocations::finished(connection).await?,
        ended_slurm_jobs: allocations::ended_slurm_jobs(connection).await?,
        clusters: allocations::clusters(connection).await?,
        identity: allocations::identity(connection).await?,
        last: last_ids(connection).await?,
    })
}

async fn workflows(connection: &mut SqliteConnection) -> Result<Vec<WorkflowRow>, QueryError> {
    sqlx::query!("select data, document from workflows w join documents d on d.workflow = w.id order by id")
        .fetch_all(connection)
        .await?
        .into_iter()
        .map(|record| Ok(WorkflowRow { document: record.document, ..from_json("workflow", &record.data)? }))
        .collect()
}

async fn profiles(connection: &mut SqliteConnection) -> Result<Vec<ProfileRow>, QueryError> {
    sqlx::query!("select id, workflow, profile from profiles order by id")
        .fetch_all(connection)
        .await?
        .into_iter()
        .map(|record| {
            Ok(ProfileRow {
                id: ProfileId(record.id),
                workflow: WorkflowId(record.workflow),
                profile: from_json("profile", &record.profile)?,
            })
        })
        .collect()
}

/// Reads all jobs. A row costs the driver about 10 µs whatever it contains, so 1,000 jobs travel as one JSON text: this saves
/// several seconds for 1,000,000 jobs. JSON has no bytes, so these are hexadecimal digits.
async fn jobs(connection: &mut SqliteConnection) -> Result<Vec<JobRow>, QueryError> {
    let mut jobs: Vec<JobRow> = Vec::new();
    loop {
        let after = jobs.last().map_or(i64::MIN, |job| job.id.0);
        let encoded = sqlx::query_scalar!(
            r#"select json_group_array(json_array(id, workflow, name, command, profile, priority, hex(hash), hex(depends_on),
                state, run, attempt, lease_id, runner, started_ms)) as "encoded!: String"
            from (
                select j.*, s.state, s.run, s.attempt, s.lease_id, s.runner, s.started_ms
                from jobs j join job_states s on s.id = j.id
                where j.removed = 0 and j.id > ? order by j.id limit 1000
            )"#,
            after
        )
        .fetch_one(&mut *connection)
        .await?;
        let records: Vec<JobColumns> = from_json("jobs", &encoded)?;
        if records.is_empty() {
            return Ok(jobs);
        }
        for record in records {
            jobs.push(record.try_into()?);
        }
    }
}

async fn detached_leases(connection: &mut SqliteConnection) -> Result<Vec<DetachedLease>, QueryError> {
    sqlx::query!(
        "select lease_id, workflow, job, run, attempt, runner, started_ms, expired, role from detached_leases
        order by lease_id"
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|record| {
        Ok(DetachedLease {
            lease_id: record.lease_id,
            workflow: WorkflowId(record.workflow),
            job: JobId(record.job),
            run: small("run", record.run)?,
            attempt: small("attempt", record.attempt)?,
            runner: RunnerId(record.runner),
            started_ms: record.started_ms,
            state: if record.expired == 0 { DetachedState::Revoked } else { DetachedState::Expired },
            role: record.role.parse().map_err(QueryError::Damage)?,
        })
    })
    .collect()
}

async fn failures(connection: &mut SqliteConnection) -> Result<Vec<(JobId, Cause, i32)>, QueryError> {
    sqlx::query!(
        r#"select r.job as "job!", r.cause as "cause!", count(*) as "count!: i64"
        from results r join job_states s on s.id = r.job join jobs j on j.id = r.job
        where r.cause is not null and r.run = s.run and j.removed = 0
        group by r.job, r.cause order by r.job, r.cause"#
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|record| Ok((JobId(record.job), cause(&record.cause)?, small("count", record.count)?)))
    .collect()
}

async fn latest_failures(connection: &mut SqliteConnection) -> Result<Vec<ResultRow>, QueryError> {
    let [failed, terminated] = FAILED_STATES.map(|state| state.code());
    sqlx::query_as!(
        ResultColumns,
        r#"select workflow as "workflow!", job as "job!", run as "run!", attempt as "attempt!", state as "state!",
            return_code as "return_code!", cause, message, started_ms as "started_ms!", ended_ms as "ended_ms!", runner,
            stdout, stderr, peak_memory_bytes, average_memory_bytes, peak_cpu_percent, average_cpu_percent,
            peak_gpu_percent, average_gpu_percent, peak_gpu_memory_bytes
        from (
            select r.*, row_number() over (partition by r.workflow order by r.ended_ms desc, r.job desc, r.attempt desc) as age
            from results r
            join workflows w on w.id = r.workflow and w.run = r.run
            join jobs j on j.id = r.job and j.removed = 0
            where r.cause is not null and r.state in (?, ?)
        )
        where age <= ? order by workflow, ended_ms, job, attempt"#,
        failed,
        terminated,
        MAX_LISTED_FAILURES
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(ResultRow::try_from)
    .collect()
}

async fn last_ids(connection: &mut SqliteConnection) -> Result<LastIds, QueryError> {
    let record = sqlx::query!("select workflow, job, profile, runner, event, lease_id, allocation from last_ids")
        .fetch_one(connection)
        .await?;
    Ok(LastIds {
        workflow: record.workflow,
        job: record.job,
        profile: record.profile,
        runner: record.runner,
        event: record.event,
        lease_id: record.lease_id,
        allocation: record.allocation,
    })
}
