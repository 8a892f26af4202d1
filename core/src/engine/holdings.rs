//! What a runner says it has and what it has done, taken in: confirmed, adopted, recorded, reclaimed.
//!
//! A lease is known by its number. The attempt's number in a runner's key is the one that the lease was given out with; the
//! job may have gone on to a higher one meanwhile, when the lease was given up and turned up again.

use std::collections::HashSet;

use torc_api::quantity::format_duration;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, FinishedAttempt, SyncRequest};

use super::Engine;
use super::attempt::ago;
use super::runner::HeldLease;
use super::tx::Tx;
use super::workflow::Workflow;
use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::job::JobEvent;
use crate::rows::DetachedLease;

impl Engine {
    /// Takes in what a runner says it holds, gave back or no longer has.
    pub(super) fn ingest(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) {
        self.note_waiting(id, request, tx.now);
        for key in &request.returned {
            let is_released = self.release(id, key, tx);
            if is_released && request.out_of_time.contains(key) {
                self.note_out_of_time(id, key, tx);
            }
        }
        for running in &request.running {
            self.confirm_running(id, &running.key, ago(tx.now.wall_ms, running.elapsed_ms), tx);
        }
        for key in &request.queued {
            self.confirm_queued(id, key, tx);
        }
        self.reclaim_missing(id, request, tx);
        self.reclaim_tasks(id, request, tx);
        if request.leaving {
            self.retire(id, request, tx);
        }
    }

    /// A result counts as long as nothing newer of its job has started. One of a lease that was taken away is only recorded.
    pub(super) fn accept_result(&mut self, id: RunnerId, finished: &FinishedAttempt, tx: &mut Tx) -> bool {
        let key = &finished.key;
        self.take_slurm_stats(finished.slurm_stats.as_deref().map_or(&[], std::slice::from_ref), tx);
        self.note_report(id, tx);
        if let Some(lease) = self.take_revoked(id, key) {
            self.end_revoked(lease, Ok(finished), tx);
            return true;
        }
        if let Some(accepted) = self.accept_task(id, finished, tx) {
            return accepted;
        }
        let Some((workflow_id, job)) = self.locate(key) else { return self.refuse(finished, tx) };
        let Some(workflow) = self.workflows.get(&workflow_id) else { return false };
        let record = &workflow.jobs[job as usize];
        let (holder, state, is_present) = (record.runner, record.state, workflow.is_present(job, key));
        let has_expired_lease = record.run == key.run && workflow.has_expired_lease(job, key.epoch);
        let counts = match state {
            // All that is known against it is that it was lost.
            JobState::Failed | JobState::Terminated | JobState::PendingFailed if has_expired_lease => {
                self.undo_loss((workflow_id, job), finished, tx)
            }
            // The answer to an earlier report was lost: it is already written down.
            _ if is_present && (state.is_complete() || awaits_more(state)) => return true,
            JobState::Ready | JobState::Leased | JobState::Running if is_present => true,
            _ => has_expired_lease && self.revive((workflow_id, job), key.epoch, tx),
        };
        if !counts {
            return self.refuse(finished, tx);
        }
        if let Some(holder) = holder.and_then(|holder| self.runners.get_mut(&holder)) {
            holder.held.remove(&JobId(key.job));
        }
        self.end_attempt(workflow_id, job, finished, Some(id), tx);
        true
    }

    /// A report that changes nothing is kept for the record all the same.
    fn refuse(&self, finished: &FinishedAttempt, tx: &mut Tx) -> bool {
        let FinishedAttempt { key, return_code, .. } = finished;
        let workflow = self.workflows.get(&WorkflowId(key.workflow));
        let name = workflow.and_then(|workflow| Some(workflow.name(workflow.ordinal(JobId(key.job))?)));
        let job = name.map_or_else(|| format!("job {}", key.job), |name| format!("job '{name}'"));
        let message =
            format!("attempt {} of {job} in run {} ended with {return_code} and counts no more", key.attempt, key.run);
        tx.event(workflow.map(Workflow::id), "ResultRefused", message);
        false
    }

    fn locate(&self, key: &AttemptKey) -> Option<(WorkflowId, u32)> {
        let workflow = self.workflows.get(&WorkflowId(key.workflow))?;
        Some((workflow.id(), workflow.ordinal(JobId(key.job))?))
    }

    /// The job whose present lease this is, if the runner has it.
    pub(super) fn held_by(&self, id: RunnerId, key: &AttemptKey) -> Option<(&Workflow, u32)> {
        let (workflow, job) = self.locate(key)?;
        let workflow = self.workflows.get(&workflow)?;
        (workflow.jobs[job as usize].runner == Some(id) && workflow.is_present(job, key)).then_some((workflow, job))
    }

    /// The runner gives back what it has not started: the attempt's number stays good.
    fn release(&mut self, id: RunnerId, key: &AttemptKey, tx: &mut Tx) -> bool {
        if let Some(lease) = self.take_revoked(id, key) {
            self.end_revoked(DetachedLease { started_ms: None, ..lease }, Err("it was given back"), tx);
            return false;
        }
        if self.release_task(id, key, tx) {
            return false;
        }
        let Some((workflow_id, job)) = self.held_by(id, key).map(|(workflow, job)| (workflow.id(), job)) else {
            return false;
        };
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return false };
        if workflow.transition(job, JobEvent::LeaseEnded, tx).is_err() {
            return false;
        }
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.held.remove(&JobId(key.job));
        }
        self.wake_version += 1;
        true
    }

    /// Records why a runner has returned a lease.
    fn note_out_of_time(&self, id: RunnerId, key: &AttemptKey, tx: &mut Tx) {
        let (Some(runner), Some((workflow_id, job))) = (self.runners.get(&id), self.locate(key)) else { return };
        let Some(workflow) = self.workflows.get(&workflow_id) else { return };
        let message = format!(
            "the runner on {} returned job '{}' unstarted: too little of its time is left for a runtime of {}",
            runner.row.host,
            workflow.name(job),
            format_duration(workflow.profile(job).requirements.runtime_seconds),
        );
        tx.event(Some(workflow_id), "LeaseReturned", message);
    }

    /// The runner runs it. What really runs wins over a promise that nobody has acted upon.
    fn confirm_running(&mut self, id: RunnerId, key: &AttemptKey, started_ms: i64, tx: &mut Tx) {
        if self.confirm_task(id, key, Some(started_ms), tx) {
            return;
        }
        let Some((workflow_id, job)) = self.locate(key) else { return };
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        let is_present = workflow.is_present(job, key);
        let record = &mut workflow.jobs[job as usize];
        let is_of_this_run = record.run == key.run;
        if record.state == JobState::Running {
            record.unconfirmed &= !(is_present && record.runner == Some(id));
            return;
        }
        let is_unstarted = matches!(record.state, JobState::Ready | JobState::Leased);
        let counts = is_unstarted && (is_present || is_of_this_run && self.revive((workflow_id, job), key.epoch, tx));
        if !counts {
            return;
        }
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        workflow.forget_expired_leases(job, tx);
        let record = &mut workflow.jobs[job as usize];
        let previous = record.runner.replace(id);
        record.started_ms = Some(started_ms);
        let _ = workflow.transition(job, JobEvent::Started, tx);
        if workflow.row.started_ms.is_none() {
            workflow.row.started_ms = Some(started_ms.min(tx.now.wall_ms));
            tx.changes.workflow(&workflow.row);
        }
        self.transfer(previous, id, JobId(key.job), workflow_id);
    }

    /// The runner still has it waiting. A lease that ran out and was not given to anybody else is its own again.
    fn confirm_queued(&mut self, id: RunnerId, key: &AttemptKey, tx: &mut Tx) {
        if self.confirm_task(id, key, None, tx) {
            return;
        }
        let Some((workflow_id, job)) = self.locate(key) else { return };
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        if workflow.jobs[job as usize].state != JobState::Ready || !workflow.is_present(job, key) {
            return;
        }
        workflow.is_back(job, key.epoch, tx);
        workflow.jobs[job as usize].runner = Some(id);
        let _ = workflow.transition(job, JobEvent::Granted, tx);
        self.transfer(None, id, JobId(key.job), workflow_id);
    }

    fn transfer(&mut self, from: Option<RunnerId>, to: RunnerId, job: JobId, workflow: WorkflowId) {
        if let Some(previous) = from.filter(|previous| *previous != to).and_then(|id| self.runners.get_mut(&id)) {
            previous.held.remove(&job);
        }
        if let Some(runner) = self.runners.get_mut(&to) {
            let granted_in = runner.held.get(&job).map_or(0, |holding| holding.granted_in);
            runner.held.insert(job, HeldLease { workflow, granted_in });
        }
    }

    /// What we think the runner has and it does not name, though it has taken in the answer that brought it, is gone.
    fn reclaim_missing(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        let running = request.running.iter().map(|running| &running.key);
        let named: HashSet<(i64, i64)> = request.queued.iter().chain(running).map(|key| (key.job, key.epoch)).collect();
        let is_named = |job: JobId, epoch: i64| named.contains(&(job.0, epoch));
        let present = |job: JobId, workflow: WorkflowId| {
            let workflow = self.workflows.get(&workflow)?;
            Some(workflow.jobs[workflow.ordinal(job)? as usize].epoch)
        };
        let ended = runner.ending.extract_if(.., |epoch, ending| {
            ending.granted_in <= request.acknowledged && !is_named(ending.lease.job, *epoch)
        });
        let ended: Vec<DetachedLease> = ended.map(|(_, ending)| ending.lease).collect();
        let mut missing: Vec<(JobId, WorkflowId)> = runner
            .held
            .iter()
            .filter(|(_, holding)| holding.granted_in <= request.acknowledged)
            .filter(|(job, holding)| present(**job, holding.workflow).is_none_or(|epoch| !is_named(**job, epoch)))
            .map(|(job, holding)| (*job, holding.workflow))
            .collect();
        missing.sort_unstable();
        for lease in ended {
            self.end_revoked(lease, Err("its runner has ended it"), tx);
        }
        // Who has had an answer from us, or has its predecessor's shim, knows what was started. A successor that has just
        // come to an empty place does not.
        let knows = request.acknowledged > 0 || request.shim_found;
        let word = if knows { NotHeldReason::NotStarted } else { NotHeldReason::None };
        for (job, workflow) in missing {
            self.abandon_lease(id, (workflow, job), "its runner no longer has it", word, tx);
        }
    }

    /// A runner does not have a job any more: a promise returns to the pool, a started attempt is lost.
    pub(super) fn abandon_lease(
        &mut self,
        id: RunnerId,
        (workflow_id, job_id): (WorkflowId, JobId),
        why: &str,
        word: NotHeldReason,
        tx: &mut Tx,
    ) {
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.held.remove(&job_id);
        }
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        let Some(job) = workflow.ordinal(job_id) else { return };
        let record = &workflow.jobs[job as usize];
        if record.runner != Some(id) {
            return;
        }
        let lease = workflow.lease_to_expire(job);
        match record.state {
            JobState::Leased => {
                let _ = workflow.transition(job, JobEvent::LeaseEnded, tx);
                if word == NotHeldReason::NotStarted {
                    self.wake_version += 1;
                    return;
                }
            }
            JobState::Running => self.mark_lost(workflow_id, job, (word.cause(), why), tx),
            _ => return,
        }
        self.wake_version += 1;
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        // What a person has cancelled stays as it is, whoever turns up.
        let is_canceled = workflow.jobs[job as usize].state == JobState::Canceled;
        if let Some(lease) = lease.filter(|_| !is_canceled) {
            workflow.remember_expired_lease(lease, tx);
        }
    }

    fn retire(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) {
        self.end_all_revoked(id, "its runner has left", tx);
        let Some(mut runner) = self.remove_runner(id) else { return };
        let mut held: Vec<_> = runner.held.drain().collect();
        held.sort_unstable_by_key(|(job, _)| *job);
        runner.row.ended_ms = Some(tx.now.wall_ms);
        tx.changes.runner(&runner.row);
        tx.event(None, "RunnerLeft", format!("runner {id} on {} has left", runner.row.host));
        let queued: HashSet<i64> = request.queued.iter().map(|key| key.job).collect();
        for (job, holding) in held {
            let word = if queued.contains(&job.0) { NotHeldReason::NotStarted } else { NotHeldReason::None };
            self.abandon_lease(id, (holding.workflow, job), "its runner left without it", word, tx);
        }
        self.lose_tasks(id, runner.tasks.into_keys(), "its runner left without it", tx);
        self.forget_worker(id, tx);
    }
}

/// The job's attempt has ended and is written down, and somebody or something decides what follows.
fn awaits_more(state: JobState) -> bool {
    matches!(state, JobState::PendingFailed | JobState::Recovering)
}

/// What a runner says about a lease that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotHeldReason {
    /// It has not started it: the attempt's number can be used for the next lease.
    NotStarted,
    /// Nothing. Somebody may have started it: the next lease is of the next attempt, though no retry is used up by that.
    None,
    /// It cannot say anything any more: the place that it lived in is gone, for this cause.
    Gone(Cause),
}

impl NotHeldReason {
    /// Why an attempt of which no more is known is over.
    const fn cause(self) -> Cause {
        match self {
            Self::Gone(cause) => cause,
            Self::NotStarted | Self::None => Cause::Lost,
        }
    }
}

impl Workflow {
    /// The key names the latest lease of the job.
    fn is_present(&self, job: u32, key: &AttemptKey) -> bool {
        let record = &self.jobs[job as usize];
        key.epoch > 0 && record.epoch == key.epoch && record.run == key.run
    }
}
