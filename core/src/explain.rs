//! Explains the state of a job, its reruns and its failures. Pure functions from facts to sentences.

mod attempts;
mod waiting;

use torc_api::explain::{JobPhase, Reason, ReasonKind};
use torc_api::quantity::{format_bytes, format_duration};
use torc_api::state::{Cause, JobState};

use crate::class::JobClass;
use crate::expanded::Requirements;
use crate::failure::{Escalated, LimitReached};

pub use attempts::{EndedAttempt, attempt_reports};
pub use waiting::{ServingRunner, SlurmFacts, WaitingAllocation, ready_reasons};

/// Maximum number of jobs that a reason lists.
const MAX_LISTED_JOBS: usize = 20;

/// Facts about a job.
#[derive(Debug)]
pub struct JobFacts<'a> {
    /// The state of the job.
    pub state: JobState,
    /// Its class, which decides where it may run.
    pub class: &'a JobClass,
    /// Its dependencies: name and state.
    pub parents: Vec<(&'a str, JobState)>,
    /// The number of its revoked leases that have not ended.
    pub ending: u8,
    /// The host of its runner.
    pub host: Option<&'a str>,
    /// Seconds for which it has been running.
    pub running_seconds: Option<i64>,
    /// Its runner is silent.
    pub unconfirmed: bool,
    /// Its recovery script, if it waits for one.
    pub script: Option<ScriptFacts>,
    /// The cause and return code of its last failure.
    pub last_failure: Option<(Cause, i32)>,
}

/// A recovery script that decides about a retry, and the failure before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptFacts {
    /// The cause of the failure of the attempt before it.
    pub cause: Cause,
    /// Exit code of that attempt.
    pub return_code: i32,
    /// A runner executes it now.
    pub is_running: bool,
}

/// Facts about a workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkflowFacts<'a> {
    /// The name, as commands take it.
    pub name: &'a str,
    /// It is suspended, so no jobs start.
    pub is_suspended: bool,
    /// It is canceled, so its jobs are terminated.
    pub is_canceled: bool,
    /// Its `on_workflow_start` commands have not ended.
    pub is_starting: bool,
}

/// The increase that recovery would give a failed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryHint {
    /// The requirements of its last attempt.
    pub had: Requirements,
    /// The requirements of its next attempt.
    pub next: Escalated,
}

/// Returns the reasons for the state of a job.
pub fn job_reasons(
    job: &JobFacts<'_>,
    workflow: WorkflowFacts<'_>,
    runners: &[ServingRunner<'_>],
    slurm: &SlurmFacts<'_>,
) -> Vec<Reason> {
    match job.state {
        JobState::Running => vec![running(job)],
        JobState::Leased => {
            let host = job.host.unwrap_or("a runner");
            vec![Reason::new(
                ReasonKind::Promised,
                format!("it is leased to the runner on {host}, which starts it when resources are free"),
            )]
        }
        JobState::Blocked => blocked(job),
        JobState::Ready => ready(job, workflow, runners, slurm),
        JobState::Recovering => vec![recovering(job)],
        JobState::PendingFailed => {
            let message = format!("{}; it needs a manual decision: retry it, or accept the failure", last_failure(job));
            vec![Reason::new(ReasonKind::NeedsDecision, message)]
        }
        JobState::Failed | JobState::Terminated => vec![Reason::new(ReasonKind::Failed, last_failure(job))],
        JobState::Canceled => vec![canceled(job, workflow)],
        JobState::Disabled => vec![Reason::new(ReasonKind::Disabled, "it is disabled")],
        JobState::Completed => vec![Reason::new(ReasonKind::Completed, "it has succeeded")],
        JobState::Uninitialized => vec![Reason::new(ReasonKind::NotStarted, "it is not part of a run yet")],
    }
}

fn running(job: &JobFacts<'_>) -> Reason {
    let host = job.host.unwrap_or("a runner");
    if job.unconfirmed {
        let message = format!(
            "its runner on {host} is silent, so it is unknown whether it still runs; if the runner reports again, its result counts"
        );
        return Reason::new(ReasonKind::RunnerSilent, message);
    }
    let since = job.running_seconds.map_or(String::new(), |seconds| format!(" for {}", format_duration(seconds)));
    Reason::new(ReasonKind::Running, format!("it has been running on {host}{since}"))
}

fn blocked(job: &JobFacts<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let open: Vec<(&str, JobState)> = job.parents.iter().copied().filter(|(_, state)| !state.is_complete()).collect();
    if !open.is_empty() {
        let message = match open.as_slice() {
            [(name, state)] => format!("it waits for job {name}, which is {}", state_text(*state)),
            several => format!("it waits for {} jobs: {}", several.len(), named(several)),
        };
        reasons.push(Reason { jobs: job_phases(&open), ..Reason::new(ReasonKind::Dependency, message) });
    }
    if job.ending > 0 {
        reasons.push(Reason::new(ReasonKind::AttemptEnding, "it waits for the end of its previous attempt"));
    }
    reasons
}

fn ready(
    job: &JobFacts<'_>,
    workflow: WorkflowFacts<'_>,
    runners: &[ServingRunner<'_>],
    slurm: &SlurmFacts<'_>,
) -> Vec<Reason> {
    if workflow.is_suspended {
        return vec![Reason::new(ReasonKind::Suspended, "its workflow is suspended: no jobs start")];
    }
    if workflow.is_starting && !runners.is_empty() {
        return vec![Reason::new(ReasonKind::StartActions, "the workflow's on_workflow_start commands have not ended")];
    }
    ready_reasons(job.class, runners, slurm)
}

fn recovering(job: &JobFacts<'_>) -> Reason {
    let message = match job.script {
        Some(ScriptFacts { cause, return_code, is_running }) => {
            let stands = if is_running { "runs" } else { "waits for a runner" };
            format!(
                "{}; its recovery script {stands}; if the script succeeds, the job is retried",
                failure(cause, return_code)
            )
        }
        None => "it waits to be retried".to_owned(),
    };
    Reason::new(ReasonKind::RecoveryScript, message)
}

fn canceled(job: &JobFacts<'_>, workflow: WorkflowFacts<'_>) -> Reason {
    let failed: Vec<(&str, JobState)> =
        job.parents.iter().copied().filter(|(_, state)| state.is_complete() && *state != JobState::Completed).collect();
    if !workflow.is_canceled && !failed.is_empty() {
        let message = match failed.as_slice() {
            [(name, state)] => format!("it depends on job {name}, which is {state}"),
            several => format!("{} jobs that it depends on did not succeed: {}", several.len(), named(several)),
        };
        return Reason { jobs: job_phases(&failed), ..Reason::new(ReasonKind::DependencyFailed, message) };
    }
    Reason::new(ReasonKind::Canceled, "it was canceled by a user or by the document")
}

fn last_failure(job: &JobFacts<'_>) -> String {
    job.last_failure.map_or_else(|| "its last attempt failed".to_owned(), |(cause, code)| failure(cause, code))
}

/// Describes a failure as the start of a sentence, with its exit code.
pub fn failure(cause: Cause, return_code: i32) -> String {
    let code = exit_code(return_code);
    match cause {
        Cause::OutOfMemory => format!("it ran out of memory ({code})"),
        Cause::Timeout => format!("it ran out of time ({code})"),
        Cause::NodeFailure => "its node failed".to_owned(),
        Cause::Preempted => "its allocation was preempted".to_owned(),
        Cause::Lost => "it was lost with its runner".to_owned(),
        Cause::ExitCode => format!("it failed with {code}"),
        Cause::Canceled => "it was canceled".to_owned(),
        Cause::StartFailed => format!("it could not be started ({code})"),
        Cause::MissingOutput => "it succeeded, but one of its output files is missing".to_owned(),
        Cause::Stopped => "its runner was stopped".to_owned(),
    }
}

fn exit_code(code: i32) -> String {
    match code {
        129..=192 if code != 152 => format!("exit code {code}, signal {}", code - 128),
        _ => format!("exit code {code}"),
    }
}

/// Returns commands or changes that help with the first of these reasons.
pub fn next_steps(workflow: &str, job: &str, reasons: &[Reason], recovery: Option<&RecoveryHint>) -> Vec<String> {
    let Some(first) = reasons.first() else { return Vec::new() };
    let again = format!("`torc retry {workflow} --job {job}` runs it again");
    match first.reason {
        ReasonKind::NoRunner => vec![format!("`torc run {workflow}` runs it on this machine")],
        ReasonKind::NoAllocation => vec![format!(
            "`torc submit {workflow}` submits its allocations; `torc slurm regenerate {workflow} --submit` plans them again"
        )],
        ReasonKind::Capacity => vec![
            "reduce its resource requirements and apply the document again".to_owned(),
            format!("or start a larger runner: `torc runner {workflow}` on a machine with enough resources"),
        ],
        ReasonKind::Label => vec![format!("`torc runner {workflow} --label LABEL` starts a runner with this label")],
        ReasonKind::TimeLeft => vec!["start a runner or submit an allocation with more time".to_owned()],
        ReasonKind::Suspended => vec![format!("`torc resume {workflow}` lets jobs start again")],
        ReasonKind::Canceled => vec![format!("`torc resume {workflow}` or `torc retry {workflow}` runs it again")],
        ReasonKind::DependencyFailed | ReasonKind::Dependency => {
            let jobs = first.jobs.iter().filter(|state_text| needs_explanation(state_text.status));
            jobs.take(3)
                .map(|state_text| format!("`torc explain job/{} -w {workflow}` says why", state_text.job))
                .collect()
        }
        ReasonKind::NeedsDecision => {
            vec![format!("decide with `torc jobs retry {job} -w {workflow}` or `torc jobs fail {job} -w {workflow}`")]
        }
        ReasonKind::Failed => after_failure(workflow, again, recovery),
        ReasonKind::AllocationRefused | ReasonKind::NoPartition => {
            vec!["change the scheduler or the requirements in the document, and apply it again".to_owned()]
        }
        ReasonKind::SlurmUnreachable => vec!["`scontrol ping` shows whether Slurm's controller is up".to_owned()],
        ReasonKind::AllocationLimit => vec!["raise `maxAllocations` in the document".to_owned()],
        ReasonKind::AllocationsFruitless => {
            vec!["read the output of the allocations in their output folder, then apply the document again".to_owned()]
        }
        _ => Vec::new(),
    }
}

fn needs_explanation(state: JobState) -> bool {
    !matches!(state, JobState::Running | JobState::Leased | JobState::Completed)
}

fn after_failure(workflow: &str, again: String, recovery: Option<&RecoveryHint>) -> Vec<String> {
    match recovery.map(|hint| (&hint.next, &hint.had)) {
        Some((Escalated::To(next), had)) => {
            let (resource, from, to) = if next.memory_bytes == had.memory_bytes {
                ("time", format_duration(had.runtime_seconds), format_duration(next.runtime_seconds))
            } else {
                ("memory", format_bytes(had.memory_bytes), format_bytes(next.memory_bytes))
            };
            vec![format!(
                "`torc recover {workflow}` retries it with more {resource} ({from} -> {to}); `recovery: {{policy: Auto}}` does so \
                 automatically"
            )]
        }
        Some((Escalated::Not(LimitReached::Memory { .. }), _)) => {
            vec!["change the job so that it needs less memory, or make a larger node available".to_owned(), again]
        }
        Some((Escalated::Not(LimitReached::Time { .. }), _)) => {
            vec!["change the job so that it needs less time, or make a longer time limit available".to_owned(), again]
        }
        Some((Escalated::Unneeded, _)) | None => vec![again],
    }
}

/// Describes the requirements that recovery has changed.
pub fn raised(declared: &Requirements, now: &Requirements) -> Vec<String> {
    let mut raised = Vec::new();
    if declared.memory_bytes != now.memory_bytes {
        let (from, to) = (format_bytes(declared.memory_bytes), format_bytes(now.memory_bytes));
        raised.push(format!("memory from {from} to {to}"));
    }
    if declared.runtime_seconds != now.runtime_seconds {
        let (from, to) = (format_duration(declared.runtime_seconds), format_duration(now.runtime_seconds));
        raised.push(format!("runtime from {from} to {to}"));
    }
    if declared.num_cpus != now.num_cpus {
        raised.push(format!("CPUs from {} to {}", declared.num_cpus, now.num_cpus));
    }
    raised
}

fn state_text(state: JobState) -> &'static str {
    match state {
        JobState::PendingFailed => "waiting for a decision",
        JobState::Recovering => "waiting to be retried",
        other => other.as_str(),
    }
}

fn named(jobs: &[(&str, JobState)]) -> String {
    const MAX_NAMED_JOBS: usize = 5;
    let mut names: Vec<String> =
        jobs.iter().take(MAX_NAMED_JOBS).map(|(name, state)| format!("{name} ({})", state_text(*state))).collect();
    if jobs.len() > MAX_NAMED_JOBS {
        names.push(format!("and {} more", jobs.len() - MAX_NAMED_JOBS));
    }
    names.join(", ")
}

fn job_phases(jobs: &[(&str, JobState)]) -> Vec<JobPhase> {
    let state_text = |(name, status): &(&str, JobState)| JobPhase { job: (*name).to_owned(), status: *status };
    jobs.iter().take(MAX_LISTED_JOBS).map(state_text).collect()
}

#[cfg(test)]
mod tests;
