//! Queries of the event log.

use sqlx::{FromRow, QueryBuilder, SqliteConnection};
use torc_api::api::Page;
use torc_api::filter::EventFilter;
use torc_core::ids::JobId;
use torc_core::rows::EventRow;

use super::{jobs, page, push_limit};
use crate::error::QueryError;
use crate::records::EventColumns;

/// An event with the names of its workflow and jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct EventView {
    pub event: EventRow,
    /// The name of the workflow; absent when it was deleted.
    pub workflow_name: Option<String>,
    /// The names of the event's jobs, in their order; empty for deleted jobs.
    pub job_names: Vec<String>,
}

#[derive(FromRow)]
struct EventViewRecord {
    #[sqlx(flatten)]
    event: EventColumns,
    workflow_name: Option<String>,
}

pub(crate) async fn list(
    connection: &mut SqliteConnection,
    filter: &EventFilter<i64>,
) -> Result<Page<EventView>, QueryError> {
    let mut sql = QueryBuilder::new(
        "select e.*, w.name as workflow_name from events e left join workflows w on w.id = e.workflow where e.sequence > ",
    );
    sql.push_bind(filter.after.unwrap_or_default());
    if let Some(workflow) = filter.workflow {
        sql.push(" and e.workflow = ").push_bind(workflow);
    }
    sql.push(" order by e.sequence");
    push_limit(&mut sql, filter.limit);
    let records: Vec<EventViewRecord> = sql.build_query_as().fetch_all(&mut *connection).await?;
    let events: Result<Vec<(EventRow, Option<String>)>, QueryError> =
        records.into_iter().map(|record| Ok((record.event.try_into()?, record.workflow_name))).collect();
    let events = events?;
    let moved: Vec<JobId> = events.iter().flat_map(|(event, _)| event.jobs.iter().map(|(job, ..)| *job)).collect();
    let names = jobs::names(connection, &moved).await?;
    let views = events
        .into_iter()
        .map(|(event, workflow_name)| {
            let job_names = event.jobs.iter().map(|(job, ..)| names.get(job).cloned().unwrap_or_default()).collect();
            EventView { event, workflow_name, job_names }
        })
        .collect();
    Ok(page(views, filter.limit, |view: &EventView| view.event.sequence.to_string()))
}
