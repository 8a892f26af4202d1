//! Jobs and their current states.

use std::collections::HashMap;

use sqlx::{FromRow, QueryBuilder, SqliteConnection};
use torc_api::api::Page;
use torc_api::filter::JobFilter;
use torc_core::ids::JobId;
use torc_core::rows::{JobProfile, JobRow};

use super::{page, parse_cursor, push_limit, push_states};
use crate::error::QueryError;
use crate::records::{JobColumns, from_json};

/// A job with its profile.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    pub job: JobRow,
    pub profile: JobProfile,
}

#[derive(FromRow)]
struct JobViewRecord {
    #[sqlx(flatten)]
    job: JobColumns,
    profile_json: String,
}

pub(crate) async fn list(connection: &mut SqliteConnection, filter: &JobFilter) -> Result<Page<JobView>, QueryError> {
    let mut sql = QueryBuilder::new(
        "select j.id, j.workflow, j.name, j.command, j.profile, j.priority, j.hash, j.depends_on,
            s.state, s.run, s.attempt, s.lease_id, s.runner, s.started_ms, p.profile as profile_json
        from jobs j join job_states s on s.id = j.id join profiles p on p.id = j.profile
        where j.removed = 0",
    );
    if let Some(cursor) = &filter.cursor {
        let [after] = parse_cursor(cursor)?;
        sql.push(" and j.id > ").push_bind(after);
    }
    if let Some(workflow) = filter.workflow {
        sql.push(" and j.workflow = ").push_bind(workflow);
    }
    if let Some(name) = &filter.name {
        sql.push(" and j.name = ").push_bind(name);
    }
    if let Some(part) = &filter.contains {
        sql.push(" and instr(j.name, ").push_bind(part).push(") > 0");
    }
    push_states(&mut sql, "s.state", &filter.status);
    sql.push(" order by j.id");
    push_limit(&mut sql, filter.limit);
    let records: Vec<JobViewRecord> = sql.build_query_as().fetch_all(connection).await?;
    let views: Result<Vec<JobView>, QueryError> = records
        .into_iter()
        .map(|record| {
            let profile = from_json("profile", &record.profile_json)?;
            Ok(JobView { job: record.job.try_into()?, profile })
        })
        .collect();
    Ok(page(views?, filter.limit, |view| view.job.id.to_string()))
}

/// Returns the names of jobs, including removed ones. Unknown numbers are left out.
pub(crate) async fn names(
    connection: &mut SqliteConnection,
    jobs: &[JobId],
) -> Result<HashMap<JobId, String>, QueryError> {
    let numbers: Vec<String> = jobs.iter().map(JobId::to_string).collect();
    if numbers.is_empty() {
        return Ok(HashMap::new());
    }
    let list = format!("[{}]", numbers.join(","));
    let records = sqlx::query!("select id, name from jobs where id in (select value from json_each(?))", list)
        .fetch_all(connection)
        .await?;
    Ok(records.into_iter().map(|record| (JobId(record.id), record.name)).collect())
}
