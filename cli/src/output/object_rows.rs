//! Objects in tables, with the columns that kubectl has for them.

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde::Serialize;

use super::human;
use super::table::{Column, Paint, TableCell, Tabular};
use crate::kubernetes::objects::view;
use crate::workflow_phase::{WorkflowPhase, phase};

/// A workflow.
#[derive(Serialize)]
#[serde(transparent)]
pub struct WorkflowRow(pub DynamicObject);

/// A Slurm cluster.
#[derive(Serialize)]
#[serde(transparent)]
pub struct ClusterRow(pub DynamicObject);

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

impl Tabular for WorkflowRow {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("STATUS"),
        Column::always("PROGRESS"),
        Column::always("RUNNING"),
        Column::always("FAILED"),
        Column::always("ALLOCS"),
        Column::always("AGE"),
        Column::wide("NAMESPACE"),
        Column::wide("RUN"),
        Column::wide("READY"),
        Column::wide("BLOCKED"),
        Column::wide("MESSAGE"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let object = &self.0;
        let (_, reason, message) = condition(object, "Succeeded").unwrap_or_default();
        let paint = match phase(&view(object)) {
            WorkflowPhase::Succeeded => Paint::Good,
            WorkflowPhase::Failed | WorkflowPhase::Canceled | WorkflowPhase::NeedsDecision => Paint::Bad,
            WorkflowPhase::Active => Paint::Active,
            WorkflowPhase::Suspended => Paint::Faint,
        };
        vec![
            object.metadata.name.clone().unwrap_or_default().into(),
            TableCell::painted(reason, paint),
            text(object, "/status/progress").into(),
            text(object, "/status/jobs/running").into(),
            text(object, "/status/jobs/failed").into(),
            text(object, "/status/allocations/active").into(),
            age(object, now).into(),
            object.metadata.namespace.clone().unwrap_or_default().into(),
            text(object, "/status/runId").into(),
            text(object, "/status/jobs/ready").into(),
            text(object, "/status/jobs/blocked").into(),
            message.into(),
        ]
    }
}

impl Tabular for ClusterRow {
    const COLUMNS: &'static [Column] =
        &[Column::always("NAME"), Column::always("READY"), Column::always("LAST-CONTACT"), Column::always("AGE")];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let object = &self.0;
        let (status, ..) = condition(object, "Ready").unwrap_or_default();
        vec![
            object.metadata.name.clone().unwrap_or_default().into(),
            status.into(),
            text(object, "/status/lastContactTime").into(),
            age(object, now).into(),
        ]
    }
}
