//! Columns of planned schedulers.

use serde::Serialize;
use torc_api::recovery::RecoveryScheduler;
use torc_core::planning::generate::PlannedScheduler;

use super::human;
use super::table::{CellStyle, Column, TableCell, Tabular, text};

/// A row of a planned scheduler.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerRow {
    /// The name; empty if allocations are sized by the needs of jobs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    pub jobs: usize,
    pub allocations: i64,
    /// Nodes of each allocation.
    pub nodes: i64,
    pub walltime_seconds: i64,
    /// True if the allocations are submitted when the jobs become ready, not at the start of the workflow.
    pub deferred: bool,
    /// Node-hours if every allocation uses its whole walltime.
    pub node_hours: f64,
}

impl SchedulerRow {
    /// Creates the row of a planned scheduler.
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
    /// Creates the row of a scheduler that recovery planned.
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

/// An estimate of one way to get nodes: one allocation, or one per node.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EstimateRow {
    pub allocations: i64,
    /// Nodes of each allocation.
    pub nodes: i64,
    /// Seconds until the first allocation would start.
    pub start_seconds: i64,
    /// Seconds until the last allocation would end.
    pub done_seconds: i64,
}

/// A row that compares one allocation with all nodes to one allocation per node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocationPlanRow {
    pub scheduler: String,
    pub partition: String,
    pub jobs: usize,
    /// Nodes that the jobs need.
    pub nodes: i64,
    /// Idle nodes of the partition.
    pub idle_nodes: i64,
    /// Pending and running Slurm jobs of the partition.
    pub queued_jobs: usize,
    pub walltime_seconds: i64,
    /// The estimate of one allocation with all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<EstimateRow>,
    /// Slurm's reason for refusing it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together_refused: Option<String>,
    /// The estimate of one allocation per node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<EstimateRow>,
    /// Slurm's reason for refusing them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart_refused: Option<String>,
    /// `together`, `apart`, or empty without estimates.
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
        Column::always("TOGETHER", |row, _| estimate(row.together, row.together_refused.as_deref()).into()),
        Column::always("APART", |row, _| estimate(row.apart, row.apart_refused.as_deref()).into()),
        Column::always("BETTER", |row, _| TableCell::styled(row.recommended, CellStyle::Good)),
    ];
}

fn estimate(estimate: Option<EstimateRow>, refused: Option<&str>) -> String {
    match (estimate, refused) {
        (Some(estimate), _) => format!(
            "{}×{}: starts in {}, ends in {}",
            estimate.allocations,
            estimate.nodes,
            human::duration(estimate.start_seconds),
            human::duration(estimate.done_seconds)
        ),
        (None, Some(reason)) => format!("never: {reason}"),
        (None, None) => "unknown".to_owned(),
    }
}
