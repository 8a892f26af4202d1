//! Recovery scripts: a failed job waits until its script has succeeded, and is ready again only then.

use torc_api::event_reason::EventReason;
use torc_api::state::Cause;
use torc_api::termination::EndMargin;
use torc_api::wire::FinishedAttempt;

use super::tx::Tx;
use super::workflow::LiveWorkflow;
use crate::class::RunnerView;
use crate::ids::{JobId, RunnerId};
use crate::job::{Ending, JobEvent};
use crate::rows::{RecoveryRow, TaskLease};

/// Number of waiting scripts that are examined for one answer. Limits the time of a sync, and is more than a runner executes at once.
const MAX_SCRIPTS_EXAMINED: usize = 64;

/// The attempt that a recovery script follows.
pub(super) struct FailedAttempt<'a> {
    pub finished: &'a FinishedAttempt,
    pub cause: Cause,
    pub runner: Option<RunnerId>,
}

impl LiveWorkflow {
    /// Lets a failed job wait for a recovery script.
    pub fn begin_recovery(&mut self, job: u32, script: String, failed: &FailedAttempt<'_>, tx: &mut Tx) {
        let key = self.graph.key(job);
        let row = RecoveryRow {
            job: JobId(key.job),
            workflow: self.id(),
            script,
            return_code: failed.finished.return_code,
            cause: failed.cause,
            preferred: failed.runner,
            lease: TaskLease { run: key.run, attempt: key.attempt, ..TaskLease::default() },
        };
        tx.changes.recovery(&row);
        self.recoveries.insert(row);
    }

    /// Returns waiting scripts that a runner may execute now. The job has to fit the runner, because the next attempt should follow there.
    pub fn recoveries_for(
        &self,
        runner: RunnerId,
        view: &RunnerView<'_>,
        end: EndMargin,
        is_there: impl Fn(RunnerId) -> bool,
    ) -> Vec<JobId> {
        if !self.is_active() {
            return Vec::new();
        }
        let matches = |job: &JobId| {
            let class = self.graph.ordinal(*job).and_then(|job| self.graph.class_of(job));
            class.is_some_and(|class| class.matches(view, end))
        };
        self.recoveries.for_runner(runner, is_there).take(MAX_SCRIPTS_EXAMINED).filter(matches).collect()
    }

    /// Ends an attempt of a recovery script: the job is ready, the script is retried, or the job fails.
    pub fn end_recovery(&mut self, job_id: JobId, finished: &FinishedAttempt, tx: &mut Tx) {
        let (Some(job), Some(row)) = (self.graph.ordinal(job_id), self.recoveries.get(job_id)) else { return };
        let (cause, tries) = (row.cause, row.lease.tries);
        let name = self.graph.name(job).to_owned();
        let attempt = self.graph.job(job).attempt();
        match finished.cause {
            None if finished.return_code == 0 => {
                let message = format!("the recovery script of job '{name}' has succeeded after attempt {attempt}");
                tx.event(Some(self.id()), EventReason::JobRecovered, message);
                self.graph.next_attempt(job);
                let event = match self.graph.job(job).ending() {
                    // A revoked lease of the job has not ended: the next attempt waits for that.
                    1.. => JobEvent::Reset { unmet: self.graph.count_unmet(job) },
                    _ => JobEvent::Recovered,
                };
                let _ = self.transition(job, event, tx);
            }
            Some(Cause::Stopped) => self.recoveries.change_lease(job_id, tx, TaskLease::release),
            Some(Cause::Lost) if tries + 1 < TaskLease::MAX_TRIES => {
                self.recoveries.change_lease(job_id, tx, |lease| {
                    lease.tries += 1;
                    lease.release();
                });
            }
            script_cause => {
                let how = match script_cause {
                    Some(Cause::Lost) => "was lost too often".to_owned(),
                    _ => format!("ended with exit code {}", finished.return_code),
                };
                let message = format!("the recovery script of job '{name}' {how} after attempt {attempt}");
                tx.event(Some(self.id()), EventReason::RecoveryFailed, message);
                let ending = if cause == Cause::Timeout { Ending::Terminated } else { Ending::Failed };
                if self.transition(job, JobEvent::Ended(ending), tx).is_ok() {
                    self.settle_dependents(job, tx);
                }
            }
        }
    }
}
