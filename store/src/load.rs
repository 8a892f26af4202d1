//! Reads everything live, once, at start. On the writer's connection, so nothing changes meanwhile.

mod actions;
mod allocations;

use sqlx::SqliteConnection;
use torc_api::state::Cause;
use torc_core::ids::{JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{
    DetachedLease, DetachedState, JobRow, LastIds, ProfileRow, ResultRow, RunnerRow, Snapshot, WorkflowRow,
};

use crate::error::Failure;
use crate::query::data;
use crate::query::results::FAILED_STATES;
use crate::records::{JobRecord, ResultRecord, RunnerRecord, cause, from_json, small};

/// Failures listed for each workflow.
const LISTED_FAILURES: i64 = 20;

/// Reads everything live.
pub(crate) async fn load(connection: &mut SqliteConnection) -> Result<Snapshot, Failure> {
    Ok(Snapshot {
        workflows: workflows(connection).await?,
        profiles: profiles(connection).await?,
        jobs: jobs(connection).await?,
        user_data: data::live_user_data(connection).await?,
        runners: runners(connection).await?,
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

async fn workflows(connection: &mut SqliteConnection) -> Result<Vec<WorkflowRow>, Failure> {
    sqlx::query!(
        "select id, namespace, name, owner, document, w.generation, digest, working_dir, run, suspended, canceled, expired,
            created_ms, started_ms, completed_ms, conditions, recovery_schedulers
        from workflows w join documents d on d.workflow = w.id order by id"
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|record| {
        Ok(WorkflowRow {
            id: WorkflowId(record.id),
            namespace: record.namespace,
            name: record.name,
            owner: record.owner,
            document: record.document,
            generation: record.generation,
            digest: record.digest,
            working_dir: record.working_dir,
            run: small("run", record.run)?,
            suspended: record.suspended != 0,
            canceled: record.canceled != 0,
            expired: record.expired != 0,
            created_ms: record.created_ms,
            started_ms: record.started_ms,
            completed_ms: record.completed_ms,
            conditions: record.conditions,
            recovery_schedulers: record.recovery_schedulers,
        })
    })
    .collect()
}

async fn profiles(connection: &mut SqliteConnection) -> Result<Vec<ProfileRow>, Failure> {
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

/// A row of the driver costs more than what is in it, so jobs come as JSON, a thousand to a row.
async fn jobs(connection: &mut SqliteConnection) -> Result<Vec<JobRow>, Failure> {
    let mut jobs: Vec<JobRow> = Vec::new();
    loop {
        let after = jobs.last().map_or(i64::MIN, |job| job.id.0);
        let packed = sqlx::query_scalar!(
            r#"select json_group_array(json_array(id, workflow, name, command, profile, priority, hex(hash), hex(depends_on),
                state, run, attempt, lease_id, runner, started_ms)) as "packed!: String"
            from (
                select j.*, s.state, s.run, s.attempt, s.lease_id, s.runner, s.started_ms
                from jobs j join job_states s on s.id = j.id
                where j.removed = 0 and j.id > ? order by j.id limit 1000
            )"#,
            after
        )
        .fetch_one(&mut *connection)
        .await?;
        let records: Vec<JobRecord> = from_json("jobs", &packed)?;
        if records.is_empty() {
            return Ok(jobs);
        }
        for record in records {
            jobs.push(record.try_into()?);
        }
    }
}

async fn runners(connection: &mut SqliteConnection) -> Result<Vec<RunnerRow>, Failure> {
    sqlx::query_as!(
        RunnerRecord,
        "select id, host, pid, kind, capacity, max_parallel_jobs, labels, scope, scheduler, slurm_job_id, output_dir, place,
            process, version, started_ms, ended_ms
        from runners where ended_ms is null order by id"
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(RunnerRow::try_from)
    .collect()
}

async fn detached_leases(connection: &mut SqliteConnection) -> Result<Vec<DetachedLease>, Failure> {
    sqlx::query!(
        "select lease_id, workflow, job, run, attempt, runner, started_ms, given_up, role from detached_leases
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
            fate: if record.given_up == 0 { DetachedState::Revoked } else { DetachedState::Expired },
            role: record.role.parse().map_err(Failure::Damage)?,
        })
    })
    .collect()
}

async fn failures(connection: &mut SqliteConnection) -> Result<Vec<(JobId, Cause, i32)>, Failure> {
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

async fn latest_failures(connection: &mut SqliteConnection) -> Result<Vec<ResultRow>, Failure> {
    let [failed, terminated] = FAILED_STATES.map(|state| state.code());
    sqlx::query_as!(
        ResultRecord,
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
        LISTED_FAILURES
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(ResultRow::try_from)
    .collect()
}

async fn last_ids(connection: &mut SqliteConnection) -> Result<LastIds, Failure> {
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
