//! Recovery scripts: a failed job waits until its script has succeeded, and is ready only then.

use std::collections::{BTreeMap, BTreeSet};

use torc_api::state::Cause;
use torc_api::termination::EndMargin;
use torc_api::wire::FinishedAttempt;

use super::Engine;
use super::tasks::TRIES;
use super::tx::Tx;
use super::workflow::Workflow;
use crate::class::Place;
use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::job::{Ending, JobEvent};
use crate::rows::{RecoveryRow, TaskLease};

/// How many waiting scripts are looked at for one answer.
const LOOK_AT_MOST: usize = 64;

/// Jobs of a workflow that wait for their recovery scripts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Recoveries {
    rows: BTreeMap<JobId, RecoveryRow>,
    /// Those that nobody has, by the runner that should have them.
    waiting: BTreeMap<Option<RunnerId>, BTreeSet<JobId>>,
}

impl Recoveries {
    pub fn get(&self, job: JobId) -> Option<&RecoveryRow> {
        self.rows.get(&job)
    }

    pub fn iter(&self) -> impl Iterator<Item = &RecoveryRow> {
        self.rows.values()
    }

    pub fn insert(&mut self, row: RecoveryRow) {
        if row.lease.runner.is_none() {
            self.waiting.entry(row.preferred).or_default().insert(row.job);
        }
        self.rows.insert(row.job, row);
    }

    pub fn remove(&mut self, job: JobId) -> Option<RecoveryRow> {
        let row = self.rows.remove(&job)?;
        if let Some(waiting) = self.waiting.get_mut(&row.preferred) {
            waiting.remove(&job);
            if waiting.is_empty() {
                self.waiting.remove(&row.preferred);
            }
        }
        Some(row)
    }

    /// Changes one and notes that it has to be written.
    pub fn change(&mut self, job: JobId, tx: &mut Tx, change: impl FnOnce(&mut RecoveryRow)) {
        if let Some(mut row) = self.remove(job) {
            change(&mut row);
            tx.changes.recovery(&row);
            self.insert(row);
        }
    }

    /// Scripts that wait for this runner, or for one that is not there any more.
    fn for_runner(&self, runner: RunnerId, is_there: impl Fn(RunnerId) -> bool) -> impl Iterator<Item = JobId> {
        let may = move |preferred: &Option<RunnerId>| {
            preferred.is_none_or(|preferred| preferred == runner || !is_there(preferred))
        };
        self.waiting.iter().filter(move |(preferred, _)| may(preferred)).flat_map(|(_, jobs)| jobs.iter().copied())
    }
}

/// The attempt that a recovery script follows.
pub(super) struct FailedAttempt<'a> {
    pub finished: &'a FinishedAttempt,
    pub cause: Cause,
    pub runner: Option<RunnerId>,
}

impl Workflow {
    /// A job has failed, and a script runs before it is tried again.
    pub fn begin_recovery(&mut self, job: u32, script: String, failed: &FailedAttempt<'_>, tx: &mut Tx) {
        let key = self.key(job);
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
        (place, end): (&Place<'_>, EndMargin),
        is_there: impl Fn(RunnerId) -> bool,
        limit: usize,
    ) -> Vec<JobId> {
        if !self.is_active() {
            return Vec::new();
        }
        let suits = |job: &JobId| {
            let class = self.ordinal(*job).and_then(|job| self.class_of(job));
            class.is_some_and(|class| class.suits(place, end))
        };
        self.recoveries.for_runner(runner, is_there).take(LOOK_AT_MOST).filter(suits).take(limit).collect()
    }
}

impl Engine {
    /// A recovery script has ended, or is known to be gone after it had been started.
    pub(super) fn end_recovery(
        &mut self,
        workflow_id: WorkflowId,
        job_id: JobId,
        finished: &FinishedAttempt,
        tx: &mut Tx,
    ) {
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        let (Some(job), Some(row)) = (workflow.ordinal(job_id), workflow.recoveries.get(job_id)) else { return };
        let (cause, tries) = (row.cause, row.lease.tries);
        let name = workflow.name(job).to_owned();
        let attempt = workflow.jobs[job as usize].attempt;
        match finished.cause {
            None if finished.return_code == 0 => {
                let message = format!("the recovery script of job '{name}' has succeeded after attempt {attempt}");
                tx.event(Some(workflow_id), "JobRecovered", message);
                workflow.jobs[job as usize].next_attempt();
                let event = match workflow.jobs[job as usize].ending {
                    // A lease of it is still being ended: the next attempt waits for that.
                    1.. => JobEvent::Reset { unmet: workflow.count_unmet(job) },
                    _ => JobEvent::Recovered,
                };
                let _ = workflow.transition(job, event, tx);
            }
            Some(Cause::Stopped) => workflow.recoveries.change(job_id, tx, |row| free(&mut row.lease)),
            Some(Cause::Lost) if tries + 1 < TRIES => workflow.recoveries.change(job_id, tx, |row| {
                row.lease.tries += 1;
                free(&mut row.lease);
            }),
            why => {
                let how = match why {
                    Some(Cause::Lost) => "was lost too often".to_owned(),
                    _ => format!("ended with exit code {}", finished.return_code),
                };
                let message = format!("the recovery script of job '{name}' {how} after attempt {attempt}");
                tx.event(Some(workflow_id), "RecoveryFailed", message);
                let ending = if cause == Cause::Timeout { Ending::Terminated } else { Ending::Failed };
                if workflow.transition(job, JobEvent::Ended(ending), tx).is_ok() {
                    workflow.settle_dependents(job, tx);
                }
            }
        }
        self.wake_version += 1;
    }
}

/// Nobody has it.
fn free(task: &mut TaskLease) {
    task.runner = None;
    task.started_ms = None;
}
