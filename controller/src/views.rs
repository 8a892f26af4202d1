//! Conversions of rows to types of the API.

use std::collections::HashMap;

use torc_api::api::{
    self, AuditEntry, Event, GcResponse, JobResources, JobResult, JobTransition, Runner, RunnerStatus,
};
use torc_api::wire::RunnerScope;
use torc_core::engine::{Engine, JobDetail};
use torc_core::rows::{AuditRow, EventRow, RunnerRow};
use torc_core::time::rfc3339;
use torc_store::{EventView, GcReport, JobView, ResultView};

/// The fields of a job that only the engine's state has.
pub struct LiveJob {
    pub name: String,
    depends_on: Vec<String>,
    waiting_for: i64,
    in_doubt: bool,
}

impl From<JobDetail<'_>> for LiveJob {
    fn from(detail: JobDetail<'_>) -> Self {
        Self {
            name: detail.name.to_owned(),
            depends_on: detail.depends_on.into_iter().map(str::to_owned).collect(),
            waiting_for: i64::from(detail.unmet),
            in_doubt: detail.unconfirmed,
        }
    }
}

impl LiveJob {
    pub fn add_to(self, job: &mut api::Job) {
        job.depends_on = self.depends_on;
        job.waiting_for = self.waiting_for;
        job.in_doubt = self.in_doubt;
    }
}

pub fn job(view: JobView, workflows: &HashMap<i64, String>, hosts: &HashMap<i64, String>) -> api::Job {
    let JobView { job, profile } = view;
    api::Job {
        id: job.id.0,
        workflow: workflows.get(&job.workflow.0).cloned().unwrap_or_default(),
        name: job.name,
        status: job.state,
        run_id: job.run,
        attempt: job.attempt,
        command: job.command,
        priority: job.priority,
        resources: JobResources::from(&profile.requirements),
        depends_on: Vec::new(),
        waiting_for: 0,
        labels: profile.labels,
        node: job.runner.and_then(|runner| hosts.get(&runner.0).cloned()),
        runner: job.runner.map(|runner| runner.0),
        in_doubt: false,
        start_time: job.started_ms.map(rfc3339),
        origin: profile.spawned.as_ref().map(|_| "spawn".to_owned()),
        lineage: profile.spawned.map(|spawned| spawned.lineage),
    }
}

pub fn result(view: ResultView) -> JobResult {
    let ResultView { result, workflow_name, job_name, host } = view;
    JobResult {
        workflow: workflow_name,
        job: job_name,
        job_id: result.job.0,
        run_id: result.run,
        attempt: result.attempt,
        status: result.state,
        return_code: Some(result.return_code),
        cause: result.cause,
        message: result.message,
        start_time: Some(rfc3339(result.started_ms)),
        end_time: rfc3339(result.ended_ms),
        duration_seconds: (result.ended_ms - result.started_ms) as f64 / 1_000.0,
        node: host,
        runner: result.runner.map(|runner| runner.0),
        stdout: result.stdout,
        stderr: result.stderr,
        usage: result.usage,
    }
}

/// Returns a runner that has left. The engine's state shows the others.
pub fn deregistered_runner(row: &RunnerRow) -> Runner {
    Runner {
        id: row.id.0,
        host: row.host.clone(),
        pid: row.pid,
        kind: row.kind,
        status: RunnerStatus::Gone,
        capacity: row.capacity,
        labels: row.labels.clone(),
        workflow: match &row.scope {
            RunnerScope::Workflow(name) => Some(name.clone()),
            _ => None,
        },
        version: row.version.clone(),
        slurm_job_id: row.slurm_job_id.clone(),
        output_dir: row.output_dir.clone(),
        place: row.place.clone(),
        process: row.process.clone(),
        queued: 0,
        running: 0,
        start_time: rfc3339(row.started_ms),
        last_contact_time: None,
        end_time: row.ended_ms.map(rfc3339),
    }
}

/// Returns an event that was read from the store.
pub fn event(view: EventView) -> Event {
    let names = view.job_names.into_iter().map(Some).chain(std::iter::repeat(None));
    let jobs = view.event.jobs.iter().zip(names).map(|((id, attempt, state), name)| JobTransition {
        id: id.0,
        name: name.unwrap_or_default(),
        attempt: *attempt,
        status: *state,
    });
    Event { jobs: jobs.collect(), ..plain_event(&view.event, view.workflow_name) }
}

/// Returns events that were just committed, with names from the engine's state.
pub fn committed_events(rows: &[EventRow], state: &Engine) -> Vec<Event> {
    rows.iter()
        .map(|row| {
            let name = row.workflow.and_then(|id| state.workflow_name(id)).map(str::to_owned);
            let jobs = row.jobs.iter().map(|(id, attempt, status)| JobTransition {
                id: id.0,
                name: row.workflow.and_then(|workflow| state.job_name(workflow, *id)).unwrap_or_default().to_owned(),
                attempt: *attempt,
                status: *status,
            });
            Event { jobs: jobs.collect(), ..plain_event(row, name) }
        })
        .collect()
}

fn plain_event(row: &EventRow, workflow: Option<String>) -> Event {
    Event {
        sequence: row.sequence,
        time: rfc3339(row.time_ms),
        workflow,
        workflow_id: row.workflow.map(|id| id.0),
        reason: row.reason.clone(),
        message: row.message.clone(),
        jobs: Vec::new(),
    }
}

/// Returns an entry of the audit log.
pub fn audit_entry(sequence: i64, row: AuditRow) -> AuditEntry {
    let AuditRow { time_ms, who, scope, verb, object, outcome } = row;
    AuditEntry { sequence, time: rfc3339(time_ms), who, scope, verb, object, outcome }
}

pub fn gc(report: GcReport) -> GcResponse {
    GcResponse {
        results: report.results.cast_signed(),
        events: report.events.cast_signed(),
        runners: report.runners.cast_signed(),
        allocations: report.allocations.values().sum(),
        log_files: report.log_files,
    }
}

#[cfg(test)]
pub(crate) mod tests;
