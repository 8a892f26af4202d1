//! What people ask for beside the document: cancel, suspend, resume, retry, delete.

use std::collections::BTreeSet;

use torc_api::api::JobNames;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::state::JobState;
use torc_api::workflow::StopPolicy;

use super::tx::Tx;
use super::{CommandError, Engine};
use crate::ids::WorkflowId;
use crate::job::JobEvent;

/// Which jobs run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Every job that failed, was ended or cancelled.
    Failed,
    /// These, by name or number.
    Jobs(Vec<String>),
    /// These, by name or number, because their files have changed, and those whose data has.
    Changed(Vec<String>),
    /// Everything, as a new run.
    All,
}

impl Engine {
    /// No new leases, and those that have not started are taken back; running jobs go on.
    pub fn suspend(&mut self, id: WorkflowId, tx: &mut Tx) -> Result<(), CommandError> {
        let workflow = self.workflow_mut(id)?;
        if !std::mem::replace(&mut workflow.row.suspended, true) {
            tx.changes.workflow(&workflow.row);
            tx.event(Some(id), EventReason::WorkflowSuspended, "no new jobs start".to_owned());
            self.wake_version += 1;
        }
        Ok(())
    }

    /// Undoes `suspend` and `cancel`: leases are given out again, and cancelled jobs are wanted again.
    pub fn resume(&mut self, id: WorkflowId, tx: &mut Tx) -> Result<(), CommandError> {
        let workflow = self.workflow_mut(id)?;
        let said = match (workflow.spec.suspend, workflow.spec.stop_policy) {
            (_, Some(StopPolicy::Cancel)) => Some("`stopPolicy: Cancel`"),
            (_, Some(StopPolicy::Drain)) => Some("`stopPolicy: Drain`"),
            (Some(true), _) => Some("`suspend: true`"),
            _ if workflow.is_managed_by_other() => Some("`managedBy`"),
            _ => None,
        };
        if let Some(said) = said {
            return Err(CommandError::Conflict(format!("the document says {said}; change it and apply it again")));
        }
        let was_exhausted = workflow.allocations.forget_unproductive();
        if !workflow.row.suspended && !workflow.row.canceled {
            if was_exhausted {
                workflow.refresh_conditions(tx);
                self.wake_version += 1;
            }
            return Ok(());
        }
        workflow.row.suspended = false;
        tx.event(Some(id), EventReason::WorkflowResumed, "jobs start again".to_owned());
        let canceled = workflow.row.canceled.then(|| workflow.canceled_jobs());
        workflow.row.canceled = false;
        workflow.row.expired = false;
        tx.changes.workflow(&workflow.row);
        if let Some(canceled) = canceled {
            self.reset(id, canceled, tx);
            self.session.workflows.insert(id);
        }
        self.wake_version += 1;
        Ok(())
    }

    /// Nothing more starts, and what runs is ended. Returns how many jobs that concerns.
    pub fn cancel(&mut self, id: WorkflowId, tx: &mut Tx) -> Result<i64, CommandError> {
        let workflow = self.workflow_mut(id)?;
        if workflow.graph.is_settled() {
            return Ok(0);
        }
        workflow.row.canceled = true;
        tx.changes.workflow(&workflow.row);
        let affected = self.cancel_jobs(id, tx);
        tx.event(Some(id), EventReason::WorkflowCanceled, format!("{} canceled", count(affected, "job")));
        Ok(affected)
    }

    /// Cancels every job that has not ended; running ones are ended by their runners.
    pub(super) fn cancel_jobs(&mut self, id: WorkflowId, tx: &mut Tx) -> i64 {
        let Some(workflow) = self.workflows.get_mut(&id) else { return 0 };
        workflow.cancel_actions(tx);
        let mut affected = 0;
        for job in workflow.graph.all() {
            let Some(state) = self.workflows.get(&id).map(|workflow| workflow.graph.job(job).state()) else {
                continue;
            };
            if matches!(state, JobState::Leased | JobState::Recovering) {
                self.revoke_leases_of_job(id, job, tx);
            }
            let Some(workflow) = self.workflows.get_mut(&id) else { continue };
            if state == JobState::Running || workflow.transition(job, JobEvent::Canceled, tx).is_ok() {
                affected += 1;
                workflow.forget_expired_leases(job, tx);
            }
        }
        self.revoke_stale_actions(id, tx);
        self.wake_version += 1;
        affected
    }

    /// Jobs run again, and so does what depends on them. Returns how many jobs that concerns.
    pub fn retry(&mut self, id: WorkflowId, which: &Retry, tx: &mut Tx) -> Result<i64, CommandError> {
        let jobs = self.chosen(id, which)?;
        if matches!(which, Retry::Changed(_)) && jobs.is_empty() {
            self.undo_regeneration(id, tx);
            return Ok(0);
        }
        let workflow = self.workflows.get_mut(&id).ok_or_else(|| CommandError::NoWorkflow(id.to_string()))?;
        workflow.row.canceled = false;
        workflow.row.expired = false;
        workflow.allocations.forget_unproductive();
        if *which == Retry::All {
            workflow.begin_run(workflow.row.run + 1, tx);
            workflow.data.forget_ephemeral(tx);
        }
        tx.changes.workflow(&workflow.row);
        if *which == Retry::All {
            self.undo_regeneration(id, tx);
        }
        self.forget_leases_without_target(id, tx);
        let affected = self.reset(id, jobs, tx).len();
        self.session.workflows.insert(id);
        tx.event(Some(id), EventReason::WorkflowRetried, format!("{} reset to run again", count(affected, "job")));
        Ok(affected as i64)
    }

    /// The names of the jobs that would run again.
    pub fn retry_preview(&self, id: WorkflowId, which: &Retry) -> Result<JobNames, CommandError> {
        let workflow = self.workflow(id)?;
        let mut names = JobNames::default();
        let again = workflow.graph.with_descendants(&self.chosen(id, which)?);
        // What they have spawned goes instead, and comes again if they say so.
        for job in again.difference(&workflow.spawned_by(&again)) {
            names.push(workflow.graph.name(*job));
        }
        Ok(names)
    }

    /// The jobs that are asked for, without what depends on them.
    fn chosen(&self, id: WorkflowId, which: &Retry) -> Result<BTreeSet<u32>, CommandError> {
        let workflow = self.workflow(id)?;
        if workflow.spec.stop_policy == Some(StopPolicy::Cancel) {
            let message = "the document says `stopPolicy: Cancel`; change it and apply it again";
            return Err(CommandError::Conflict(message.to_owned()));
        }
        let all = || workflow.graph.all();
        Ok(match which {
            Retry::All => all().filter(|job| workflow.graph.job(*job).state() != JobState::Disabled).collect(),
            Retry::Failed => all().filter(|job| workflow.may_be_retried(*job)).collect(),
            Retry::Jobs(references) => workflow.find_all(references)?,
            Retry::Changed(references) => {
                let mut jobs = workflow.find_all(references)?;
                jobs.extend(all().filter(|job| workflow.stale_data(*job).is_some()));
                jobs
            }
        })
    }

    /// Forgets a workflow. Its running jobs are ended by their runners, for their keys are no longer known.
    pub fn delete(&mut self, id: WorkflowId, tx: &mut Tx) -> Result<(), CommandError> {
        let workflow = self.workflows.remove(&id).ok_or_else(|| CommandError::NoWorkflow(id.to_string()))?;
        self.names.remove(&(workflow.row.namespace.clone(), workflow.row.name.clone()));
        self.session.workflows.remove(&id);
        self.live.remove(&id);
        self.forget_leases(|target| target.workflow == id, tx);
        tx.changes.deleted(id, |job| workflow.graph.ordinal(job).is_some());
        tx.event(None, EventReason::WorkflowDeleted, format!("workflow '{}' was deleted", workflow.row.name));
        self.wake_version += 1;
        Ok(())
    }
}

impl super::workflow::Workflow {
    /// Returns a job by name or number.
    pub(super) fn require_job(&self, reference: &str) -> Result<u32, CommandError> {
        let missing = || CommandError::NoJob { workflow: self.row.name.clone(), job: reference.to_owned() };
        self.graph.find(reference).ok_or_else(missing)
    }

    pub(super) fn find_all(&self, references: &[String]) -> Result<BTreeSet<u32>, CommandError> {
        let missing = |job: &str| CommandError::NoJob { workflow: self.row.name.clone(), job: job.to_owned() };
        self.graph.find_all(references).map_err(missing)
    }

    /// Jobs that were cancelled or are being ended because of that.
    fn canceled_jobs(&self) -> BTreeSet<u32> {
        let canceled = |job: &u32| self.graph.job(*job).state() == JobState::Canceled || self.should_terminate(*job);
        self.graph.all().filter(canceled).collect()
    }

    /// It did not succeed, or is being ended.
    fn may_be_retried(&self, job: u32) -> bool {
        let state = self.graph.job(job).state();
        matches!(state, JobState::Failed | JobState::Terminated | JobState::Canceled | JobState::PendingFailed)
            || self.should_terminate(job)
    }
}
