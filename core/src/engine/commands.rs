//! Commands that do not change the document: suspend, resume, cancel, retry, delete.

use std::collections::BTreeSet;

use torc_api::api::JobNames;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::state::JobState;
use torc_api::workflow::StopPolicy;

use super::tx::Tx;
use super::workflow::LiveWorkflow;
use super::{CommandError, Engine};
use crate::ids::WorkflowId;

/// The jobs that a retry resets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retry {
    /// All jobs that failed, were terminated or canceled.
    Failed,
    /// The jobs with these names or numbers.
    Jobs(Vec<String>),
    /// The jobs with these names or numbers, whose files have changed, and the jobs whose user data has changed.
    Changed(Vec<String>),
    /// All jobs, in a new run.
    All,
}

impl Engine {
    /// Suspends a workflow: no lease is granted, and unstarted leases are requested back. Running jobs continue.
    pub fn suspend(&mut self, id: WorkflowId, tx: &mut Tx) -> Result<(), CommandError> {
        let workflow = self.workflows.require_mut(id)?;
        if workflow.record.suspend(tx) {
            tx.event(Some(id), EventReason::WorkflowSuspended, "no new jobs start".to_owned());
            self.runners.wake();
        }
        Ok(())
    }

    /// Undoes `suspend` and `cancel`: leases are granted again, and canceled jobs are reset.
    pub fn resume(&mut self, id: WorkflowId, tx: &mut Tx) -> Result<(), CommandError> {
        let workflow = self.workflows.require_mut(id)?;
        let spec = workflow.spec();
        let setting = match (spec.suspend, spec.stop_policy) {
            (_, Some(StopPolicy::Cancel)) => Some("`stopPolicy: Cancel`"),
            (_, Some(StopPolicy::Drain)) => Some("`stopPolicy: Drain`"),
            (Some(true), _) => Some("`suspend: true`"),
            _ if spec.is_managed_by_other() => Some("`managedBy`"),
            _ => None,
        };
        if let Some(setting) = setting {
            return Err(CommandError::Conflict(format!("the document sets {setting}; change it and apply it again")));
        }
        let was_exhausted = workflow.allocations.forget_unproductive();
        let (was_suspended, was_canceled) = (workflow.row().suspended, workflow.row().canceled);
        if !was_suspended && !was_canceled {
            if was_exhausted {
                workflow.refresh_conditions(tx);
                self.runners.wake();
            }
            return Ok(());
        }
        let canceled = was_canceled.then(|| canceled_jobs(workflow));
        workflow.record.resume(tx);
        tx.event(Some(id), EventReason::WorkflowResumed, "jobs start again".to_owned());
        if let Some(canceled) = canceled {
            self.leases().reset(id, canceled, tx);
            self.workflows.session.add(id);
        }
        self.runners.wake();
        Ok(())
    }

    /// Cancels a workflow: no job starts, and runners terminate running jobs. Returns the number of affected jobs.
    pub fn cancel(&mut self, id: WorkflowId, tx: &mut Tx) -> Result<i64, CommandError> {
        let workflow = self.workflows.require_mut(id)?;
        if workflow.is_settled() {
            return Ok(0);
        }
        workflow.record.cancel(tx);
        let affected = self.leases().cancel_jobs(id, tx);
        tx.event(Some(id), EventReason::WorkflowCanceled, format!("{} canceled", count(affected, "job")));
        Ok(affected)
    }

    /// Resets jobs and their dependents, so that they run again. Returns the number of affected jobs.
    pub fn retry(&mut self, id: WorkflowId, which: &Retry, tx: &mut Tx) -> Result<i64, CommandError> {
        let workflow = self.workflows.require_mut(id)?;
        let jobs = chosen_jobs(workflow, which)?;
        if matches!(which, Retry::Changed(_)) && jobs.is_empty() {
            workflow.forget_regenerated(tx);
            return Ok(0);
        }
        workflow.record.uncancel(tx);
        workflow.allocations.forget_unproductive();
        if *which == Retry::All {
            workflow.begin_run(workflow.row().run + 1, tx);
            workflow.forget_regenerated(tx);
        }
        let mut leases = self.leases();
        leases.forget_without_target(id, tx);
        let affected = leases.reset(id, jobs, tx).len();
        self.workflows.session.add(id);
        tx.event(Some(id), EventReason::WorkflowRetried, format!("{} reset to run again", count(affected, "job")));
        Ok(affected as i64)
    }

    /// Returns the names of the jobs that a retry would reset.
    pub fn retry_preview(&self, id: WorkflowId, which: &Retry) -> Result<JobNames, CommandError> {
        let workflow = self.workflows.require(id)?;
        let mut names = JobNames::default();
        let reset = workflow.graph.with_descendants(&chosen_jobs(workflow, which)?);
        // Jobs that these have spawned are removed. The next attempts spawn them again or not.
        for job in reset.difference(&workflow.graph.spawned_by(&reset)) {
            names.push(workflow.graph.name(*job));
        }
        Ok(names)
    }

    /// Deletes a workflow. Runners terminate its jobs, because their keys are unknown.
    pub fn delete(&mut self, id: WorkflowId, tx: &mut Tx) -> Result<(), CommandError> {
        let workflow = self.workflows.remove(id).ok_or_else(|| CommandError::NoWorkflow(id.to_string()))?;
        self.leases().forget(|target| target.workflow == id, tx);
        tx.changes.deleted(id, |job| workflow.graph.ordinal(job).is_some());
        tx.event(None, EventReason::WorkflowDeleted, format!("workflow '{}' was deleted", workflow.row().name));
        self.runners.wake();
        Ok(())
    }
}

/// Returns the jobs that a retry names, without their dependents.
fn chosen_jobs(workflow: &LiveWorkflow, which: &Retry) -> Result<BTreeSet<u32>, CommandError> {
    if workflow.spec().stop_policy == Some(StopPolicy::Cancel) {
        let message = "the document sets `stopPolicy: Cancel`; change it and apply it again";
        return Err(CommandError::Conflict(message.to_owned()));
    }
    let all = || workflow.graph.ordinals();
    Ok(match which {
        Retry::All => all().filter(|job| workflow.graph.job(*job).state() != JobState::Disabled).collect(),
        Retry::Failed => all().filter(|job| may_be_retried(workflow, *job)).collect(),
        Retry::Jobs(references) => workflow.require_jobs(references)?,
        Retry::Changed(references) => {
            let mut jobs = workflow.require_jobs(references)?;
            jobs.extend(all().filter(|job| workflow.stale_data(*job).is_some()));
            jobs
        }
    })
}

/// Returns the jobs that were canceled or are being terminated because of a cancellation.
fn canceled_jobs(workflow: &LiveWorkflow) -> BTreeSet<u32> {
    let is_canceled = |(_, state): &(u32, JobState)| *state == JobState::Canceled;
    let states = workflow.graph.iter().map(|(job, record)| (job, record.state()));
    states.filter(|one| is_canceled(one) || workflow.should_terminate(one.0)).map(|(job, _)| job).collect()
}

/// Returns whether a job did not succeed, or is being terminated.
fn may_be_retried(workflow: &LiveWorkflow, job: u32) -> bool {
    let state = workflow.graph.job(job).state();
    matches!(state, JobState::Failed | JobState::Terminated | JobState::Canceled | JobState::PendingFailed)
        || workflow.should_terminate(job)
}
