//! Columns of workflows, jobs, results, runners, events and actions.

use jiff::Timestamp;
use serde::Serialize;
use torc_api::action::ActionState;
use torc_api::api::{Event, Job, JobResult, Runner, RunnerStatus, Workflow, WorkflowAction};
use torc_api::condition::ConditionType;
use torc_api::state::JobState;
use torc_api::wire::RunnerKind;

use super::human;
use super::table::{CellStyle, Column, TableCell, Tabular, ago, bytes, text};
use crate::workflow_phase::{WorkflowPhase, has_condition, phase};

impl Tabular for Workflow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("NAME", |row, _| row.name.as_str().into()),
        Column::always("STATUS", |row, _| TableCell::styled(status_word(row), phase_style(phase(row)))),
        Column::always("PROGRESS", |row, _| format!("{}/{}", row.status.jobs.settled(), row.status.jobs.total).into()),
        Column::always("RUNNING", |row, _| row.status.jobs.running.into()),
        Column::always("FAILED", |row, _| {
            TableCell::styled(
                row.status.jobs.failed.to_string(),
                if row.status.jobs.failed > 0 { CellStyle::Bad } else { CellStyle::Plain },
            )
        }),
        Column::always("ALLOCS", |row, _| allocations(row).into()),
        Column::always("AGE", |row, now| human::age(&row.creation_time, now).into()),
        Column::wide("ID", |row, _| row.id.into()),
        Column::wide("NAMESPACE", |row, _| row.namespace.as_str().into()),
        Column::wide("OWNER", |row, _| row.owner.as_str().into()),
        Column::wide("RUN", |row, _| text(&row.status.run_id)),
        Column::wide("READY", |row, _| row.status.jobs.ready.into()),
        Column::wide("BLOCKED", |row, _| row.status.jobs.blocked.into()),
        Column::wide("FOLDER", |row, _| row.working_dir.as_str().into()),
    ];
}

/// Returns the number of active allocations; empty for a workflow without Slurm.
fn allocations(workflow: &Workflow) -> String {
    let counts = workflow.status.allocations.as_ref();
    counts.map_or_else(String::new, |counts| counts.active.to_string())
}

/// Returns the status of a workflow in one word.
pub fn status_word(workflow: &Workflow) -> &'static str {
    match phase(workflow) {
        WorkflowPhase::Succeeded => "Succeeded",
        WorkflowPhase::Failed => "Failed",
        WorkflowPhase::Canceled => "Canceled",
        WorkflowPhase::NeedsDecision => "NeedsDecision",
        WorkflowPhase::Suspended => "Suspended",
        WorkflowPhase::Active if has_condition(workflow, ConditionType::Recovering) => "Recovering",
        WorkflowPhase::Active if workflow.status.jobs.running > 0 => "Running",
        WorkflowPhase::Active => "Waiting",
    }
}

/// Returns the style of a phase.
pub fn phase_style(phase: WorkflowPhase) -> CellStyle {
    match phase {
        WorkflowPhase::Succeeded => CellStyle::Good,
        WorkflowPhase::Failed | WorkflowPhase::Canceled | WorkflowPhase::NeedsDecision => CellStyle::Bad,
        WorkflowPhase::Active => CellStyle::Active,
        WorkflowPhase::Suspended => CellStyle::Faint,
    }
}

fn state_cell(state: JobState) -> TableCell {
    let style = match state {
        JobState::Completed => CellStyle::Good,
        JobState::Failed | JobState::Terminated | JobState::Canceled | JobState::PendingFailed => CellStyle::Bad,
        JobState::Running | JobState::Leased | JobState::Recovering => CellStyle::Active,
        JobState::Uninitialized | JobState::Blocked | JobState::Disabled => CellStyle::Faint,
        JobState::Ready => CellStyle::Plain,
    };
    TableCell::styled(state.as_str(), style)
}

impl Tabular for Job {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("NAME", |row, _| row.name.as_str().into()),
        Column::always("STATUS", |row, _| state_cell(row.status)),
        Column::always("ATTEMPT", |row, _| row.attempt.into()),
        Column::always("NODE", |row, _| text(&row.node)),
        Column::always("FOR", |row, now| since(row, now).into()),
        Column::wide("ID", |row, _| row.id.into()),
        Column::wide("WORKFLOW", |row, _| row.workflow.as_str().into()),
        Column::wide("RUN", |row, _| row.run_id.into()),
        Column::wide("PRIORITY", |row, _| row.priority.into()),
        Column::wide("CPUS", |row, _| row.resources.num_cpus.into()),
        Column::wide("MEMORY", |row, _| human::bytes(row.resources.memory_bytes).into()),
        Column::wide("GPUS", |row, _| row.resources.num_gpus.into()),
        Column::wide("WAITING", |row, _| row.waiting_for.into()),
        Column::wide("COMMAND", |row, _| shortened(&row.command).into()),
    ];
}

fn since(job: &Job, now: Timestamp) -> String {
    match (&job.start_time, job.status) {
        (Some(start), JobState::Running) => human::age(start, now),
        _ => String::new(),
    }
}

fn shortened(command: &str) -> String {
    const WIDTH: usize = 60;
    let line: String = command.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= WIDTH {
        return line;
    }
    line.chars().take(WIDTH - 1).chain(['…']).collect()
}

impl Tabular for JobResult {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("JOB", |row, _| row.job.as_str().into()),
        Column::always("RUN", |row, _| row.run_id.into()),
        Column::always("ATTEMPT", |row, _| row.attempt.into()),
        Column::always("STATUS", |row, _| state_cell(row.status)),
        Column::always("CODE", |row, _| text(&row.return_code)),
        Column::always("CAUSE", |row, _| text(&row.cause)),
        Column::always("DURATION", |row, _| human::precise(row.duration_seconds).into()),
        Column::always("AGE", |row, now| human::age(&row.end_time, now).into()),
        Column::wide("NODE", |row, _| text(&row.node)),
        Column::wide("PEAK MEMORY", |row, _| bytes(row.usage.peak_memory_bytes)),
        Column::wide("MEMORY", |row, _| bytes(row.usage.average_memory_bytes)),
        Column::wide("PEAK CPU", |row, _| percent(row.usage.peak_cpu_percent)),
        Column::wide("CPU", |row, _| percent(row.usage.average_cpu_percent)),
        Column::wide("PEAK GPU", |row, _| percent(row.usage.peak_gpu_percent)),
        Column::wide("GPU", |row, _| percent(row.usage.average_gpu_percent)),
        Column::wide("PEAK GPU MEMORY", |row, _| bytes(row.usage.peak_gpu_memory_bytes)),
        Column::wide("STDOUT", |row, _| text(&row.stdout)),
        Column::wide("STDERR", |row, _| text(&row.stderr)),
        Column::wide("MESSAGE", |row, _| text(&row.message)),
    ];
}

fn percent(share: Option<f64>) -> TableCell {
    share.map_or(String::new(), human::percent).into()
}

impl Tabular for Runner {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("ID", |row, _| row.id.into()),
        Column::always("HOST", |row, _| row.host.as_str().into()),
        Column::always("KIND", |row, _| kind(row.kind).into()),
        Column::always("STATUS", |row, _| status(row)),
        Column::always("CPUS", |row, _| row.capacity.cpus.into()),
        Column::always("MEMORY", |row, _| human::bytes(row.capacity.memory_bytes).into()),
        Column::always("GPUS", |row, _| row.capacity.gpus.into()),
        Column::always("RUNNING", |row, _| row.running.into()),
        Column::always("QUEUED", |row, _| row.queued.into()),
        Column::always("AGE", |row, now| human::age(&row.start_time, now).into()),
        Column::wide("PID", |row, _| row.pid.into()),
        Column::wide("WORKFLOW", |row, _| text(&row.workflow)),
        Column::wide("LABELS", |row, _| row.labels.join(",").into()),
        Column::wide("VERSION", |row, _| row.version.as_str().into()),
        Column::wide("LOGS", |row, _| row.output_dir.as_str().into()),
    ];
}

fn status(runner: &Runner) -> TableCell {
    let (word, style) = match runner.status {
        RunnerStatus::Active => ("active", CellStyle::Good),
        RunnerStatus::Silent => ("silent", CellStyle::Bad),
        RunnerStatus::Gone => ("gone", CellStyle::Faint),
    };
    TableCell::styled(word, style)
}

fn kind(kind: RunnerKind) -> &'static str {
    match kind {
        RunnerKind::Local => "local",
        RunnerKind::Slurm => "slurm",
        RunnerKind::Remote => "remote",
        RunnerKind::Pod => "pod",
    }
}

impl Tabular for Event {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("AGE", |row, now| human::age(&row.time, now).into()),
        Column::always("WORKFLOW", |row, _| text(&row.workflow)),
        Column::always("REASON", |row, _| row.reason.as_str().into()),
        Column::always("MESSAGE", |row, _| event_text(row).into()),
        Column::wide("SEQUENCE", |row, _| row.sequence.into()),
        Column::wide("TIME", |row, _| row.time.as_str().into()),
    ];
}

impl Tabular for WorkflowAction {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("NUMBER", |row, _| row.id.into()),
        Column::always("TRIGGER", |row, _| row.trigger_type.as_str().into()),
        Column::always("TYPE", |row, _| row.action_type.as_str().into()),
        Column::always("STATUS", |row, _| action_status(row)),
        Column::always("TRIES", |row, _| i64::from(row.tries).into()),
        Column::always("RUNNER", |row, _| runner_and_node(row)),
        Column::always("ENDED", |row, now| ago(&row.end_time, now)),
        Column::wide("IS_RECOVERY", |row, _| row.is_recovery.to_string().into()),
        Column::wide("SCHEDULER", |row, _| text(&row.scheduler)),
        Column::wide("WORKER", |row, _| text(&row.worker)),
        Column::wide("RUN", |row, _| i64::from(row.run_id).into()),
        Column::wide("CODE", |row, _| text(&row.return_code)),
        Column::wide("COMMANDS", |row, _| shortened(&row.commands.join("; ")).into()),
    ];
}

fn action_status(action: &WorkflowAction) -> TableCell {
    let style = match action.status {
        ActionState::Failed => CellStyle::Bad,
        ActionState::Executed => CellStyle::Good,
        _ => CellStyle::Plain,
    };
    let status = if action.every_worker { "each worker".to_owned() } else { action.status.to_string() };
    TableCell::styled(status, style)
}

fn runner_and_node(action: &WorkflowAction) -> TableCell {
    match (&action.node, action.runner) {
        (Some(node), Some(runner)) => format!("{runner} ({node})").into(),
        (_, runner) => text(&runner),
    }
}

/// Returns the message of an event, or its job transitions.
pub fn event_text(event: &Event) -> String {
    const MAX_JOBS: usize = 4;
    if !event.message.is_empty() || event.jobs.is_empty() {
        return event.message.clone();
    }
    let mut parts: Vec<String> = event
        .jobs
        .iter()
        .take(MAX_JOBS)
        .map(|job| {
            let name = if job.name.is_empty() { job.id.to_string() } else { job.name.clone() };
            format!("{name} {}", job.status)
        })
        .collect();
    if event.jobs.len() > MAX_JOBS {
        parts.push(format!("and {} more", event.jobs.len() - MAX_JOBS));
    }
    parts.join(", ")
}

/// A setting with its origin.
#[derive(Clone, Debug, Serialize)]
pub struct SettingRow {
    /// The full key, e.g. `client.url`.
    pub key: &'static str,
    /// Absent if the setting has no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl Tabular for SettingRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("SETTING", |row, _| row.key.into()),
        Column::always("VALUE", |row, _| text(&row.value)),
        Column::always("FROM", |row, _| text(&row.origin)),
    ];
}

#[cfg(test)]
mod tests {
    use torc_api::api::JobTransition;

    use super::*;

    #[test]
    fn long_commands_are_shortened_to_one_line() {
        assert_eq!(shortened("a\n  b"), "a b");
        let long = "x".repeat(100);
        assert_eq!(shortened(&long).chars().count(), 60);
    }

    #[test]
    fn events_without_a_message_list_jobs() {
        let job = |name: &str, status| JobTransition { id: 7, name: name.to_owned(), attempt: 1, status };
        let event = Event {
            sequence: 1,
            time: String::new(),
            workflow: None,
            workflow_id: None,
            reason: "JobsChanged".to_owned(),
            message: String::new(),
            jobs: vec![job("a", JobState::Running), job("", JobState::Completed)],
        };
        assert_eq!(event_text(&event), "a running, 7 completed");
    }

    #[test]
    fn a_command_of_sixty_letters_is_not_shortened() {
        for (length, expected) in [(59, 59), (60, 60), (61, 60)] {
            let shown = shortened(&"x".repeat(length));
            assert_eq!((shown.chars().count(), shown.ends_with('…')), (expected, length > 60));
        }
    }
}
