//! Objects in tables, with the columns that kubectl has for them.

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde::Serialize;

use super::human;
use super::rows::phase_style;
use super::table::{Column, TableCell, Tabular};
use crate::object_view::view;
use crate::workflow_phase::phase;

/// A workflow.
#[derive(Serialize)]
#[serde(transparent)]
pub struct WorkflowObjectRow(pub DynamicObject);

/// A Slurm cluster.
#[derive(Serialize)]
#[serde(transparent)]
pub struct ClusterObjectRow(pub DynamicObject);

/// A condition of an object: its status, its reason and its message.
fn condition<'a>(object: &'a DynamicObject, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == name)?;
    let word = |field: &str| found[field].as_str().unwrap_or_default();
    Some((word("status"), word("reason"), word("message")))
}

fn text(object: &DynamicObject, pointer: &str) -> String {
    match object.data.pointer(pointer) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

fn age(object: &DynamicObject, now: Timestamp) -> String {
    let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
    created.map_or_else(String::new, |time| human::age(&time, now))
}

impl Tabular for WorkflowObjectRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("NAME", |row, _| row.0.metadata.name.clone().unwrap_or_default().into()),
        Column::always("STATUS", |row, _| status(row)),
        Column::always("PROGRESS", |row, _| text(&row.0, "/status/progress").into()),
        Column::always("RUNNING", |row, _| text(&row.0, "/status/jobs/running").into()),
        Column::always("FAILED", |row, _| text(&row.0, "/status/jobs/failed").into()),
        Column::always("ALLOCS", |row, _| text(&row.0, "/status/allocations/active").into()),
        Column::always("AGE", |row, now| age(&row.0, now).into()),
        Column::wide("NAMESPACE", |row, _| row.0.metadata.namespace.clone().unwrap_or_default().into()),
        Column::wide("RUN", |row, _| text(&row.0, "/status/runId").into()),
        Column::wide("READY", |row, _| text(&row.0, "/status/jobs/ready").into()),
        Column::wide("BLOCKED", |row, _| text(&row.0, "/status/jobs/blocked").into()),
        Column::wide("MESSAGE", |row, _| condition(&row.0, "Succeeded").unwrap_or_default().2.into()),
    ];
}

fn status(row: &WorkflowObjectRow) -> TableCell {
    let (_, reason, _) = condition(&row.0, "Succeeded").unwrap_or_default();
    TableCell::styled(reason, phase_style(phase(&view(&row.0))))
}

impl Tabular for ClusterObjectRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("NAME", |row, _| row.0.metadata.name.clone().unwrap_or_default().into()),
        Column::always("READY", |row, _| condition(&row.0, "Ready").unwrap_or_default().0.into()),
        Column::always("LAST-CONTACT", |row, _| text(&row.0, "/status/lastContactTime").into()),
        Column::always("AGE", |row, now| age(&row.0, now).into()),
    ];
}
