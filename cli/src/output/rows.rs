//! Which columns each resource has.

use jiff::Timestamp;
use serde::Serialize;
use torc_api::action::ActionState;
use torc_api::api::{Event, Job, JobResult, Runner, RunnerStatus, Workflow, WorkflowAction};
use torc_api::state::JobState;
use torc_api::wire::RunnerKind;

use super::human;
use super::table::{Column, Paint, TableCell, Tabular};
use crate::workflow_phase::{WorkflowPhase, has_condition, phase};

impl Tabular for Workflow {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("STATUS"),
        Column::always("PROGRESS"),
        Column::always("RUNNING"),
        Column::always("FAILED"),
        Column::always("ALLOCS"),
        Column::always("AGE"),
        Column::wide("ID"),
        Column::wide("NAMESPACE"),
        Column::wide("OWNER"),
        Column::wide("RUN"),
        Column::wide("READY"),
        Column::wide("BLOCKED"),
        Column::wide("FOLDER"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let jobs = &self.status.jobs;
        vec![
            self.name.as_str().into(),
            TableCell::painted(status_word(self), phase_paint(phase(self))),
            format!("{}/{}", jobs.settled(), jobs.total).into(),
            jobs.running.into(),
            TableCell::painted(jobs.failed.to_string(), if jobs.failed > 0 { Paint::Bad } else { Paint::Plain }),
            allocations(self).into(),
            human::age(&self.creation_time, now).into(),
            self.id.into(),
            self.namespace.as_str().into(),
            self.owner.as_str().into(),
            self.status.run_id.map_or(String::new(), |run| run.to_string()).into(),
            jobs.ready.into(),
            jobs.blocked.into(),
            self.working_dir.as_str().into(),
        ]
    }
}

/// How many allocations it has that run; nothing for a workflow that has nothing to do with Slurm.
fn allocations(workflow: &Workflow) -> String {
    let counts = workflow.status.allocations.as_ref();
    counts.map_or_else(String::new, |counts| counts.active.to_string())
}

/// How a workflow stands, in one word.
pub fn status_word(workflow: &Workflow) -> &'static str {
    match phase(workflow) {
        WorkflowPhase::Succeeded => "Succeeded",
        WorkflowPhase::Failed => "Failed",
        WorkflowPhase::Canceled => "Canceled",
        WorkflowPhase::NeedsDecision => "NeedsDecision",
        WorkflowPhase::Suspended => "Suspended",
        WorkflowPhase::Active if has_condition(workflow, "Recovering") => "Recovering",
        WorkflowPhase::Active if workflow.status.jobs.running > 0 => "Running",
        WorkflowPhase::Active if is_rejected(workflow) => "Rejected",
        WorkflowPhase::Active => "Waiting",
    }
}

/// Whether the controller of a cluster has refused the object.
fn is_rejected(workflow: &Workflow) -> bool {
    workflow.status.conditions.iter().any(|condition| condition.type_ == "Accepted" && condition.status == "False")
}

fn phase_paint(phase: WorkflowPhase) -> Paint {
    match phase {
        WorkflowPhase::Succeeded => Paint::Good,
        WorkflowPhase::Failed | WorkflowPhase::Canceled | WorkflowPhase::NeedsDecision => Paint::Bad,
        WorkflowPhase::Active => Paint::Active,
        WorkflowPhase::Suspended => Paint::Faint,
    }
}

fn state_cell(state: JobState) -> TableCell {
    let paint = match state {
        JobState::Completed => Paint::Good,
        JobState::Failed | JobState::Terminated | JobState::Canceled | JobState::PendingFailed => Paint::Bad,
        JobState::Running | JobState::Leased | JobState::Recovering => Paint::Active,
        JobState::Uninitialized | JobState::Blocked | JobState::Disabled => Paint::Faint,
        JobState::Ready => Paint::Plain,
    };
    TableCell::painted(state.as_str(), paint)
}

impl Tabular for Job {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("STATUS"),
        Column::always("ATTEMPT"),
        Column::always("NODE"),
        Column::always("FOR"),
        Column::wide("ID"),
        Column::wide("WORKFLOW"),
        Column::wide("RUN"),
        Column::wide("PRIORITY"),
        Column::wide("CPUS"),
        Column::wide("MEMORY"),
        Column::wide("GPUS"),
        Column::wide("WAITING"),
        Column::wide("COMMAND"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let since = match (&self.start_time, self.status) {
            (Some(start), JobState::Running) => human::age(start, now),
            _ => String::new(),
        };
        vec![
            self.name.as_str().into(),
            state_cell(self.status),
            self.attempt.into(),
            self.node.clone().unwrap_or_default().into(),
            since.into(),
            self.id.into(),
            self.workflow.as_str().into(),
            self.run_id.into(),
            self.priority.into(),
            self.resources.num_cpus.into(),
            human::bytes(self.resources.memory_bytes).into(),
            self.resources.num_gpus.into(),
            self.waiting_for.into(),
            shortened(&self.command).into(),
        ]
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
    const COLUMNS: &'static [Column] = &[
        Column::always("JOB"),
        Column::always("RUN"),
        Column::always("ATTEMPT"),
        Column::always("STATUS"),
        Column::always("CODE"),
        Column::always("CAUSE"),
        Column::always("DURATION"),
        Column::always("AGE"),
        Column::wide("NODE"),
        Column::wide("PEAK MEMORY"),
        Column::wide("MEMORY"),
        Column::wide("PEAK CPU"),
        Column::wide("CPU"),
        Column::wide("PEAK GPU"),
        Column::wide("GPU"),
        Column::wide("PEAK GPU MEMORY"),
        Column::wide("STDOUT"),
        Column::wide("STDERR"),
        Column::wide("MESSAGE"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let text = |value: &Option<String>| TableCell::from(value.clone().unwrap_or_default());
        vec![
            self.job.as_str().into(),
            self.run_id.into(),
            self.attempt.into(),
            state_cell(self.status),
            self.return_code.map_or(String::new(), |code| code.to_string()).into(),
            self.cause.map_or(String::new(), |cause| cause.to_string()).into(),
            human::precise(self.duration_seconds).into(),
            human::age(&self.end_time, now).into(),
            text(&self.node),
            self.usage.peak_memory_bytes.map_or(String::new(), human::bytes).into(),
            self.usage.average_memory_bytes.map_or(String::new(), human::bytes).into(),
            self.usage.peak_cpu_percent.map_or(String::new(), human::percent).into(),
            self.usage.average_cpu_percent.map_or(String::new(), human::percent).into(),
            self.usage.peak_gpu_percent.map_or(String::new(), human::percent).into(),
            self.usage.average_gpu_percent.map_or(String::new(), human::percent).into(),
            self.usage.peak_gpu_memory_bytes.map_or(String::new(), human::bytes).into(),
            text(&self.stdout),
            text(&self.stderr),
            text(&self.message),
        ]
    }
}

impl Tabular for Runner {
    const COLUMNS: &'static [Column] = &[
        Column::always("ID"),
        Column::always("HOST"),
        Column::always("KIND"),
        Column::always("STATUS"),
        Column::always("CPUS"),
        Column::always("MEMORY"),
        Column::always("GPUS"),
        Column::always("RUNNING"),
        Column::always("QUEUED"),
        Column::always("AGE"),
        Column::wide("PID"),
        Column::wide("WORKFLOW"),
        Column::wide("LABELS"),
        Column::wide("VERSION"),
        Column::wide("LOGS"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let (status, paint) = match self.status {
            RunnerStatus::Active => ("active", Paint::Good),
            RunnerStatus::Silent => ("silent", Paint::Bad),
            RunnerStatus::Gone => ("gone", Paint::Faint),
        };
        let kind = match self.kind {
            RunnerKind::Local => "local",
            RunnerKind::Slurm => "slurm",
            RunnerKind::Remote => "remote",
            RunnerKind::Pod => "pod",
        };
        vec![
            self.id.into(),
            self.host.as_str().into(),
            kind.into(),
            TableCell::painted(status, paint),
            self.capacity.cpus.into(),
            human::bytes(self.capacity.memory_bytes).into(),
            self.capacity.gpus.into(),
            self.running.into(),
            self.queued.into(),
            human::age(&self.start_time, now).into(),
            self.pid.into(),
            self.workflow.clone().unwrap_or_default().into(),
            self.labels.join(",").into(),
            self.version.as_str().into(),
            self.output_dir.as_str().into(),
        ]
    }
}

impl Tabular for Event {
    const COLUMNS: &'static [Column] = &[
        Column::always("AGE"),
        Column::always("WORKFLOW"),
        Column::always("REASON"),
        Column::always("MESSAGE"),
        Column::wide("SEQUENCE"),
        Column::wide("TIME"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        vec![
            human::age(&self.time, now).into(),
            self.workflow.clone().unwrap_or_default().into(),
            self.reason.as_str().into(),
            event_text(self).into(),
            self.sequence.into(),
            self.time.as_str().into(),
        ]
    }
}

impl Tabular for WorkflowAction {
    const COLUMNS: &'static [Column] = &[
        Column::always("NUMBER"),
        Column::always("TRIGGER"),
        Column::always("TYPE"),
        Column::always("STATUS"),
        Column::always("TRIES"),
        Column::always("RUNNER"),
        Column::always("ENDED"),
        Column::wide("IS_RECOVERY"),
        Column::wide("SCHEDULER"),
        Column::wide("WORKER"),
        Column::wide("RUN"),
        Column::wide("CODE"),
        Column::wide("COMMANDS"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let number = |value: Option<i64>| TableCell::from(value.map_or(String::new(), |value| value.to_string()));
        let paint = match self.status {
            ActionState::Failed => Paint::Bad,
            ActionState::Executed => Paint::Good,
            _ => Paint::Plain,
        };
        let status = if self.every_worker { "each worker".to_owned() } else { self.status.to_string() };
        vec![
            self.id.into(),
            self.trigger_type.as_str().into(),
            self.action_type.as_str().into(),
            TableCell::painted(status, paint),
            i64::from(self.tries).into(),
            match (&self.node, self.runner) {
                (Some(node), Some(runner)) => format!("{runner} ({node})").into(),
                (_, runner) => number(runner),
            },
            self.end_time.as_deref().map_or(String::new(), |time| human::age(time, now)).into(),
            self.is_recovery.to_string().into(),
            self.scheduler.clone().unwrap_or_default().into(),
            number(self.worker),
            i64::from(self.run_id).into(),
            number(self.return_code.map(i64::from)),
            shortened(&self.commands.join("; ")).into(),
        ]
    }
}

/// The message of an event, or the jobs that moved.
pub fn event_text(event: &Event) -> String {
    const LISTED: usize = 4;
    if !event.message.is_empty() || event.jobs.is_empty() {
        return event.message.clone();
    }
    let mut parts: Vec<String> = event
        .jobs
        .iter()
        .take(LISTED)
        .map(|job| {
            let name = if job.name.is_empty() { job.id.to_string() } else { job.name.clone() };
            format!("{name} {}", job.status)
        })
        .collect();
    if event.jobs.len() > LISTED {
        parts.push(format!("and {} more", event.jobs.len() - LISTED));
    }
    parts.join(", ")
}

/// A setting with its origin.
#[derive(Clone, Debug, Serialize)]
pub struct SettingRow {
    /// Section and key.
    pub key: &'static str,
    /// What it is set to; absent when nobody said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Who said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl Tabular for SettingRow {
    const COLUMNS: &'static [Column] = &[Column::always("SETTING"), Column::always("VALUE"), Column::always("FROM")];

    fn cells(&self, _: Timestamp) -> Vec<TableCell> {
        let text = |value: &Option<String>| TableCell::from(value.clone().unwrap_or_default());
        vec![self.key.into(), text(&self.value), text(&self.origin)]
    }
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
    fn a_command_of_sixty_letters_is_whole() {
        for (length, expected) in [(59, 59), (60, 60), (61, 60)] {
            let shown = shortened(&"x".repeat(length));
            assert_eq!((shown.chars().count(), shown.ends_with('…')), (expected, length > 60));
        }
    }
}
