//! Files as jobs saw them, and user data.

use std::ops::RangeInclusive;

use sqlx::{FromRow, QueryBuilder, SqliteConnection};
use torc_core::ids::{JobId, WorkflowId};
use torc_core::lineage;
use torc_core::rows::{FileRow, UserDataRow};

use crate::error::QueryError;
use crate::records::from_json;

/// Returns the files as a range of jobs saw them, in the order of jobs and paths.
pub(crate) async fn files(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    jobs: RangeInclusive<JobId>,
) -> Result<Vec<FileRow>, QueryError> {
    let (first, last) = (jobs.start().0, jobs.end().0);
    sqlx::query!(
        "select job, path, size_bytes, modified_ms, sha256, seen_ms from files
        where workflow = ? and job between ? and ? order by job, path",
        workflow.0,
        first,
        last
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|record| {
        Ok(FileRow {
            workflow,
            job: JobId(record.job),
            path: record.path,
            size_bytes: record.size_bytes,
            modified_ms: record.modified_ms,
            sha256: record.sha256,
            seen_ms: record.seen_ms,
        })
    })
    .collect()
}

#[derive(FromRow)]
struct UserDataRecord {
    workflow: i64,
    name: String,
    in_document: bool,
    ephemeral: bool,
    declared: Option<String>,
    written: Option<String>,
    job: Option<i64>,
    lease_id: i64,
    changed_ms: i64,
}

impl TryFrom<UserDataRecord> for UserDataRow {
    type Error = QueryError;

    fn try_from(record: UserDataRecord) -> Result<Self, QueryError> {
        let json = |text: Option<String>| text.map(|text| from_json("user data", &text)).transpose();
        Ok(Self {
            workflow: WorkflowId(record.workflow),
            name: record.name,
            in_document: record.in_document,
            ephemeral: record.ephemeral,
            declared: json(record.declared)?,
            written: json(record.written)?,
            job: record.job.map(JobId),
            lease_id: record.lease_id,
            changed_ms: record.changed_ms,
        })
    }
}

/// Returns the user data of a workflow in the order of names, all or one.
pub(crate) async fn user_data(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    name: Option<&str>,
) -> Result<Vec<UserDataRow>, QueryError> {
    let mut sql = QueryBuilder::new("select * from user_data where workflow = ");
    sql.push_bind(workflow.0);
    if let Some(name) = name {
        sql.push(" and name = ").push_bind(name.to_owned());
    }
    sql.push(" order by name");
    let records: Vec<UserDataRecord> = sql.build_query_as().fetch_all(connection).await?;
    records.into_iter().map(UserDataRow::try_from).collect()
}

/// Returns the user data of all workflows, without the values of loops.
pub(crate) async fn live_user_data(connection: &mut SqliteConnection) -> Result<Vec<UserDataRow>, QueryError> {
    let mut sql =
        QueryBuilder::new("select workflow, name, in_document, ephemeral, declared, case when substr(name, 1, ");
    sql.push(lineage::PREFIX.len()).push(") = ").push_bind(lineage::PREFIX);
    sql.push(
        " then null else written end as written, job, lease_id, changed_ms from user_data order by workflow, name",
    );
    let records: Vec<UserDataRecord> = sql.build_query_as().fetch_all(connection).await?;
    records.into_iter().map(UserDataRow::try_from).collect()
}
