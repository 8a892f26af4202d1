//! Recovery scripts: a failed job waits until its script has succeeded, and is ready only then.

use torc_api::event_reason::EventReason;
use torc_api::state::Cause;
use torc_api::termination::EndMargin;
use torc_api::wire::FinishedAttempt;

use super::tx::Tx;
use super::workflow::Workflow;
use crate::class::RunnerView;
use crate::ids::{JobId, RunnerId};
use crate::job::{Ending, JobEvent};
use crate::rows::{RecoveryRow, TaskLease};

/// How many waiting scripts are looked at for one answer.
const LOOK_AT_MOST: usize = 64;

/// The attempt that a recovery script follows.
pub(super) struct FailedAttempt<'a> {
    pub finished: &'a FinishedAttempt,
    pub cause: Cause,
    pub runner: Option<RunnerId>,
}

impl Workflow {
    /// A job has failed, and a script runs before it is tried again.
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

    /// The first scripts that this runner may have now. Elsewhere than where the attempt failed, the job has to fit.
    pub fn recoveries_for(
        &self,
        runner: RunnerId,
        place: &RunnerView<'_>,
        end: EndMargin,
        is_there: impl Fn(RunnerId) -> bool,
        limit: usize,
    ) -> Vec<JobId> {
        if !self.is_active() {
            return Vec::new();
        }
        let suits = |job: &JobId| {
            let class = self.graph.ordinal(*job).and_then(|job| self.graph.class_of(job));
            class.is_some_and(|class| class.suits(place, end))
        };
        self.recoveries.for_runner(runner, is_there).take(LOOK_AT_MOST).filter(suits).take(limit).collect()
    }
}

impl Workflow {
    /// A recovery script has ended, or is known to be gone after it had been started.
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
                    // A lease of it is still being ended: the next attempt waits for that.
                    1.. => JobEvent::Reset { unmet: self.graph.count_unmet(job) },
                    _ => JobEvent::Recovered,
                };
                let _ = self.transition(job, event, tx);
            }
            Some(Cause::Stopped) => self.recoveries.change(job_id, tx, |row| free(&mut row.lease)),
            Some(Cause::Lost) if tries + 1 < TaskLease::MAX_TRIES => self.recoveries.change(job_id, tx, |row| {
                row.lease.tries += 1;
                free(&mut row.lease);
            }),
            why => {
                let how = match why {
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

/// No runner has it.
fn free(task: &mut TaskLease) {
    task.runner = None;
    task.started_ms = None;
}
