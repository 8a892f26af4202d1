//! What a runner says while it works, and how that reads in its log.

use std::time::Duration;

use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, Resources};
use tracing::{debug, info, warn};

use crate::command::signal_name;
use crate::mode::LaunchMode;

/// Something that a person may want to see.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerEvent {
    /// The server knows the runner.
    Registered {
        /// Under this number.
        runner: i64,
    },
    /// A shim with jobs was found and taken over.
    TookOver {
        /// Jobs that run.
        running: usize,
        /// Jobs that had ended, with results that nobody had yet.
        finished: usize,
    },
    /// A job runs.
    Started {
        /// Which attempt.
        key: AttemptKey,
        /// The job's name.
        name: String,
    },
    /// A job has ended.
    Finished {
        /// Which attempt.
        key: AttemptKey,
        /// The job's name.
        name: String,
        /// Exit code.
        return_code: i32,
        /// Why it did not succeed.
        cause: Option<Cause>,
    },
    /// A job has more memory than it may have.
    OomViolation {
        /// Which attempt.
        key: AttemptKey,
        /// Its first process.
        pid: i32,
        /// What it has.
        memory_bytes: i64,
        /// What it may have.
        limit_bytes: i64,
    },
    /// It is killed for that.
    OomKill {
        /// Which attempt.
        key: AttemptKey,
    },
    /// The server cannot be reached; jobs go on.
    Unreachable {
        /// Why.
        reason: String,
    },
    /// The server is back.
    Reconnected,
    /// The server stays away: nothing new is taken, running jobs go on, results are written to the journal.
    Draining {
        /// For how long it was called in vain.
        after: Duration,
        /// How many jobs run.
        running: usize,
    },
    /// The server is back before everything was drained.
    Resumed {
        /// How many results it gets now.
        results: usize,
    },
    /// The runner leaves without having been able to tell the server about results.
    LeftResults {
        /// How many are in the journal.
        journalled: usize,
        /// How many are not, and stay with the shim for the next runner in the same place.
        unwritten: usize,
        /// What to type once the server is back.
        hints: Vec<String>,
    },
    /// The first work of a workflow has come.
    Serving {
        /// The workflow's number.
        workflow: i64,
        /// Its run.
        run: i32,
        /// Who starts its jobs here.
        mode: LaunchMode,
        /// Jobs may not use more than they declared.
        limit_resources: bool,
        /// What the runner has for them.
        capacity: Resources,
    },
    /// Running jobs of a workflow are being ended.
    Terminating {
        /// The workflow's number.
        workflow: i64,
        /// How many.
        count: usize,
    },
    /// A job was asked to end.
    Signaled {
        /// Which attempt.
        key: AttemptKey,
        /// With this signal.
        signal: i32,
    },
    /// The allocation goes to somebody more important.
    Preempted,
    /// A step got more time.
    Extended {
        /// Which attempt.
        key: AttemptKey,
        /// In total.
        minutes: u64,
    },
    /// A step was warned of its end.
    Warned {
        /// Which attempt.
        key: AttemptKey,
        /// By this signal.
        signal: String,
    },
    /// A lease was returned because too little time is left for its job.
    OutOfTime {
        /// Which attempt.
        key: AttemptKey,
        /// The job's declared runtime.
        runtime_seconds: i64,
        /// Time until the runner has to end.
        remaining: Duration,
    },
    /// Jobs that were asked to end have time for it.
    Waiting {
        /// So much at most.
        lead: Duration,
    },
    /// A job did not end in that time, and was killed.
    Killed {
        /// Which attempt.
        key: AttemptKey,
    },
    /// Something is wrong but does not stop the runner.
    Problem {
        /// What.
        message: String,
    },
}

impl RunnerEvent {
    /// Writes it to the log. Single starts and successes are for debugging: there may be a hundred thousand of them.
    pub fn log(&self) {
        match self {
            Self::Registered { runner } => info!(runner_id = runner, "Runner registered"),
            Self::TookOver { running, finished } => info!(running, finished, "Jobs of an earlier runner taken over"),
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
                debug!(workflow_id = key.workflow, job_id = key.job, attempt_id = key.attempt, name, "Job started");
            }
            Self::Finished { key, name, return_code, cause: None } => {
                debug!(workflow_id = key.workflow, job_id = key.job, name, return_code, "Job completed");
            }
            Self::Finished { key, name, return_code, cause: Some(cause) } => info!(
                workflow_id = key.workflow,
                job_id = key.job,
                attempt_id = key.attempt,
                name,
                return_code,
                cause = %cause,
                "Job did not complete"
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
                warn!("The server cannot be reached; jobs go on and calls are repeated: {reason}");
            }
            Self::Reconnected => warn!("The server is back"),
            Self::Draining { after, running } => warn!(
                running,
                "The server has been out of reach for {}: draining offline. Running jobs go on, their results are \
                 written to the offline journal, and nothing new is taken",
                length(*after)
            ),
            Self::Resumed { results } => warn!(results, "The server is back: results are delivered, work goes on"),
            Self::LeftResults { journalled, unwritten, hints } => {
                log_left_results(*journalled, *unwritten);
                hints.iter().for_each(|hint| warn!("When the server is back: {hint}"));
            }
            Self::Terminating { workflow, count } => info!(workflow_id = workflow, count, "Jobs terminating"),
            Self::Signaled { key, signal } => {
                info!(workflow_id = key.workflow, job_id = key.job, "Job {}", signal_name(*signal));
            }
            Self::Preempted => warn!(
                "The allocation is being preempted: running jobs have the time that is left, and nothing new is taken"
            ),
            Self::Extended { key, minutes } => {
                info!(workflow_id = key.workflow, job_id = key.job, minutes, "Job has more time");
            }
            Self::Warned { key, signal } => {
                info!(workflow_id = key.workflow, job_id = key.job, signal, "Job is warned of its end");
            }
            Self::OutOfTime { key, runtime_seconds, remaining } => info!(
                workflow_id = key.workflow,
                job_id = key.job,
                runtime_seconds,
                remaining_seconds = remaining.as_secs(),
                "lease returned: too little time is left"
            ),
            Self::Waiting { lead } => {
                info!("Waiting {}s for graceful termination before SIGKILL", lead.as_secs_f64().ceil());
            }
            Self::Killed { key } => info!(workflow_id = key.workflow, job_id = key.job, "Job SIGKILL"),
            Self::Problem { message } => warn!("{message}"),
        }
    }
}

/// Bytes in powers of 1024, always as `2.50GB`: lines of a log are compared.
fn gigabytes(bytes: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let amount = bytes as f64 / f64::from(1 << 30);
    format!("{amount:.2}GB")
}

fn log_left_results(journalled: usize, unwritten: usize) {
    match (journalled, unwritten) {
        (0, 0) => warn!("Leaving without the server; no results wait for it"),
        (_, 0) => warn!(journalled, "Leaving without the server; results are in the offline journal"),
        _ => warn!(
            journalled,
            unwritten,
            "Leaving without the server; what is not in the offline journal is delivered by the same command on this host"
        ),
    }
}

/// `20 min`, `90 s`.
fn length(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // X02, X18. Lines of a log are compared, so their numbers always look alike.
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
