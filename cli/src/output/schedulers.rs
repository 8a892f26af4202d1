//! Columns of planned schedulers.

use serde::Serialize;
use torc_api::recovery::RecoveryScheduler;
use torc_core::planning::generate::PlannedScheduler;

use super::human;
use super::table::{CellStyle, Column, TableCell, Tabular, text};

/// A scheduler that is planned.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerRow {
    /// Its name; empty where allocations are sized by what jobs need.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// How many jobs it is for.
    pub jobs: usize,
    /// How many allocations.
    pub allocations: i64,
    /// Nodes of each.
    pub nodes: i64,
    /// How long each may last.
    pub walltime_seconds: i64,
    /// Its jobs wait for others, and its allocations for them.
    pub deferred: bool,
    /// What it costs if every allocation lasts as long as it may.
    pub node_hours: f64,
}

impl SchedulerRow {
    /// What a plan says.
    pub fn of(planned: &PlannedScheduler) -> Self {
        Self {
            name: planned.name.clone(),
            partition: planned.scheduler.partition.clone(),
            jobs: planned.jobs.len(),
            allocations: planned.allocations,
            nodes: planned.scheduler.nodes.unwrap_or(1),
            walltime_seconds: planned.seconds,
            deferred: planned.waits,
            node_hours: planned.node_hours(),
        }
    }
}

impl SchedulerRow {
    /// What recovery planned.
    pub fn of_recovery(planned: &RecoveryScheduler) -> Self {
        Self {
            name: planned.name.clone(),
            partition: planned.partition.clone(),
            jobs: usize::try_from(planned.jobs).unwrap_or(0),
            allocations: planned.allocations,
            nodes: planned.nodes,
            walltime_seconds: planned.walltime_seconds,
            deferred: planned.deferred,
            node_hours: planned.node_hours,
        }
    }
}

impl Tabular for SchedulerRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("SCHEDULER", |row, _| row.name.as_str().into()),
        Column::always("PARTITION", |row, _| text(&row.partition)),
        Column::always("JOBS", |row, _| row.jobs.into()),
        Column::always("ALLOCATIONS", |row, _| row.allocations.into()),
        Column::always("NODES", |row, _| row.nodes.into()),
        Column::always("WALLTIME", |row, _| human::duration(row.walltime_seconds).into()),
        Column::always("WHEN", |row, _| if row.deferred { "jobs ready" } else { "start" }.into()),
        Column::always("NODE-HOURS", |row, _| format!("{:.1}", row.node_hours).into()),
    ];
}

/// A way to have nodes.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WayRow {
    /// How many allocations.
    pub allocations: i64,
    /// Nodes of each.
    pub nodes: i64,
    /// When the first would start, from now.
    pub start_seconds: i64,
    /// When the last would be over, from now.
    pub done_seconds: i64,
}

/// Both ways to have the nodes of a scheduler.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocationPlanRow {
    /// The scheduler.
    pub scheduler: String,
    /// The partition.
    pub partition: String,
    /// How many jobs it is for.
    pub jobs: usize,
    /// How many nodes they need.
    pub nodes: i64,
    /// How many are idle.
    pub idle_nodes: i64,
    /// How many jobs wait or run in the partition.
    pub queued_jobs: usize,
    /// How long an allocation lasts.
    pub walltime_seconds: i64,
    /// One allocation with all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<WayRow>,
    /// Why that would never start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together_refused: Option<String>,
    /// An allocation for each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<WayRow>,
    /// Why that would never start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart_refused: Option<String>,
    /// Which is better.
    pub recommended: &'static str,
}

impl Tabular for AllocationPlanRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("SCHEDULER", |row, _| row.scheduler.as_str().into()),
        Column::always("PARTITION", |row, _| row.partition.as_str().into()),
        Column::always("JOBS", |row, _| row.jobs.into()),
        Column::always("NODES", |row, _| row.nodes.into()),
        Column::always("IDLE", |row, _| row.idle_nodes.into()),
        Column::always("QUEUED", |row, _| row.queued_jobs.into()),
        Column::always("TOGETHER", |row, _| way(row.together, row.together_refused.as_deref()).into()),
        Column::always("APART", |row, _| way(row.apart, row.apart_refused.as_deref()).into()),
        Column::always("BETTER", |row, _| TableCell::styled(row.recommended, CellStyle::Good)),
    ];
}

fn way(way: Option<WayRow>, refused: Option<&str>) -> String {
    match (way, refused) {
        (Some(way), _) => format!(
            "{}×{}: starts in {}, over in {}",
            way.allocations,
            way.nodes,
            human::duration(way.start_seconds),
            human::duration(way.done_seconds)
        ),
        (None, Some(sentence)) => format!("never: {sentence}"),
        (None, None) => "unknown".to_owned(),
    }
}
