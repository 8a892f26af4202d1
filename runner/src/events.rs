//! Events of a runner, and their lines in its log.

use std::time::Duration;

use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, Resources};
use tracing::{debug, info, warn};

use crate::command::signal_name;
use crate::mode::LaunchMode;

/// An event that a user may want to see.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerEvent {
    /// The server has registered the runner.
    Registered { runner: i64 },
    /// The runner took over a shim with jobs.
    TookOver {
        /// Number of running jobs.
        running: usize,
        /// Number of jobs that had ended, with undelivered results.
        finished: usize,
    },
    /// A job has started.
    Started { key: AttemptKey, name: String },
    /// A job has ended.
    Finished {
        key: AttemptKey,
        name: String,
        return_code: i32,
        /// The cause of the failure; none after a success.
        cause: Option<Cause>,
    },
    /// A job exceeded its memory limit.
    OomViolation {
        key: AttemptKey,
        pid: i32,
        /// The memory in use.
        memory_bytes: i64,
        limit_bytes: i64,
    },
    /// A job is killed because it exceeded its memory limit.
    OomKill { key: AttemptKey },
    /// The server cannot be reached. Running jobs continue.
    Unreachable { reason: String },
    /// The server can be reached again.
    Reconnected,
    /// The server has been unreachable for too long. The runner takes no new jobs, lets running ones continue, and
    /// writes results into its journal.
    Draining {
        /// Duration of the outage.
        after: Duration,
        /// Number of running jobs.
        running: usize,
    },
    /// The server can be reached again while the runner drains.
    Resumed {
        /// Number of results that the server gets now.
        results: usize,
    },
    /// The runner exits without having delivered all results.
    LeftResults {
        /// Number of results in the journal.
        journalled: usize,
        /// Number of results that stay with the shim for the next runner with the same state folder.
        unwritten: usize,
        /// Commands that deliver the journal once the server is back.
        hints: Vec<String>,
    },
    /// The first lease of a workflow has arrived.
    Serving {
        workflow: i64,
        run: i32,
        /// The launch mode: the runner or Slurm starts the jobs.
        mode: LaunchMode,
        /// True if jobs are limited to their declared resources.
        limit_resources: bool,
        /// Resources of the runner.
        capacity: Resources,
    },
    /// Running jobs of a workflow are asked to end.
    Terminating { workflow: i64, count: usize },
    /// A job got the signal to end.
    Signaled { key: AttemptKey, signal: i32 },
    /// Slurm preempts the allocation.
    Preempted,
    /// Slurm extended a step.
    Extended { key: AttemptKey, minutes: u64 },
    /// A step was warned of its time limit.
    Warned { key: AttemptKey, signal: String },
    /// A lease was returned because too little time is left for its job.
    OutOfTime {
        key: AttemptKey,
        /// The job's declared runtime.
        runtime_seconds: i64,
        /// Time until the runner's end.
        remaining: Duration,
    },
    /// The runner waits for jobs that were asked to end.
    Waiting {
        /// The longest lead of these jobs.
        lead: Duration,
    },
    /// A job did not end within its lead and was killed.
    Killed { key: AttemptKey },
    /// A problem that does not stop the runner.
    Problem { message: String },
}

impl RunnerEvent {
    /// Writes the event to the log. Single starts and successes have level debug, because there may be a hundred
    /// thousand of them.
    pub fn log(&self) {
        match self {
            Self::Registered { runner } => info!(runner_id = runner, "runner registered"),
            Self::TookOver { running, finished } => info!(running, finished, "took over jobs of an earlier runner"),
            Self::Serving { workflow, run, mode, limit_resources, capacity } => info!(
                workflow_id = workflow,
                run_id = run,
                num_cpus = capacity.cpus,
                memory_bytes = capacity.memory_bytes,
                num_gpus = capacity.gpus,
                num_nodes = capacity.nodes,
                execution_mode = %mode,
                limit_resources,
                "Job runner starting"
            ),
            Self::Started { key, name } => {
                debug!(workflow_id = key.workflow, job_id = key.job, attempt_id = key.attempt, name, "job started");
            }
            Self::Finished { key, name, return_code, cause: None } => {
                debug!(workflow_id = key.workflow, job_id = key.job, name, return_code, "job completed");
            }
            Self::Finished { key, name, return_code, cause: Some(cause) } => info!(
                workflow_id = key.workflow,
                job_id = key.job,
                attempt_id = key.attempt,
                name,
                return_code,
                cause = %cause,
                "job failed"
            ),
            Self::OomViolation { key, pid, memory_bytes, limit_bytes } => warn!(
                workflow_id = key.workflow,
                job_id = key.job,
                pid,
                memory = %gigabytes(*memory_bytes),
                limit = %gigabytes(*limit_bytes),
                "OOM violation detected:"
            ),
            Self::OomKill { key } => warn!(workflow_id = key.workflow, job_id = key.job, "Killing OOM job"),
            Self::Unreachable { reason } => {
                warn!(reason, "server unreachable, retrying; running jobs go on");
            }
            Self::Reconnected => warn!("server reachable again"),
            Self::Draining { after, running } => warn!(
                running,
                outage = length(*after),
                "draining offline: running jobs go on, results go to the offline journal, no new jobs are taken"
            ),
            Self::Resumed { results } => warn!(results, "server reachable again, delivering results"),
            Self::LeftResults { journalled, unwritten, hints } => {
                log_left_results(*journalled, *unwritten);
                hints.iter().for_each(|hint| warn!("deliver the results once the server is back: {hint}"));
            }
            Self::Terminating { workflow, count } => info!(workflow_id = workflow, count, "Jobs terminating"),
            Self::Signaled { key, signal } => {
                info!(workflow_id = key.workflow, job_id = key.job, "Job {}", signal_name(*signal));
            }
            Self::Preempted => {
                warn!("allocation preempted: running jobs have the remaining time, no new jobs are taken");
            }
            Self::Extended { key, minutes } => {
                info!(workflow_id = key.workflow, job_id = key.job, minutes, "step extended");
            }
            Self::Warned { key, signal } => {
                info!(workflow_id = key.workflow, job_id = key.job, signal, "step warned of its time limit");
            }
            Self::OutOfTime { key, runtime_seconds, remaining } => info!(
                workflow_id = key.workflow,
                job_id = key.job,
                runtime_seconds,
                remaining_seconds = remaining.as_secs(),
                "lease returned: too little time left for its job"
            ),
            Self::Waiting { lead } => {
                info!("Waiting {}s for graceful termination before SIGKILL", lead.as_secs_f64().ceil());
            }
            Self::Killed { key } => info!(workflow_id = key.workflow, job_id = key.job, "Job SIGKILL"),
            Self::Problem { message } => warn!("{message}"),
        }
    }
}

/// Formats bytes in units of 1024³, always as `2.50GB`: programs compare these log lines.
fn gigabytes(bytes: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let amount = bytes as f64 / f64::from(1 << 30);
    format!("{amount:.2}GB")
}

fn log_left_results(journalled: usize, unwritten: usize) {
    match (journalled, unwritten) {
        (0, 0) => warn!("exiting without the server; all results are delivered"),
        (_, 0) => warn!(journalled, "exiting without the server; results are in the offline journal"),
        _ => warn!(
            journalled,
            unwritten, "exiting without the server; the same command on this host delivers unwritten results"
        ),
    }
}

/// Formats a duration as `20 min` or `90 s`.
fn length(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // X02, X18. Programs compare these log lines, so their numbers have one format.
    #[test]
    fn amounts_of_memory_are_gigabytes_with_two_digits() {
        let cases =
            [(0, "0.00GB"), (1 << 30, "1.00GB"), (5 << 29, "2.50GB"), (10 << 20, "0.01GB"), (3 << 40, "3072.00GB")];
        for (bytes, shown) in cases {
            assert_eq!(gigabytes(bytes), shown, "{bytes}");
        }
    }

    // J31
    #[test]
    fn whole_minutes_are_shown_as_such() {
        let cases = [(0, "0 s"), (59, "59 s"), (60, "1 min"), (61, "61 s"), (90, "90 s"), (1_200, "20 min")];
        for (seconds, shown) in cases {
            assert_eq!(length(Duration::from_secs(seconds)), shown, "{seconds}");
        }
    }
}
