//! Leases that their jobs no longer go by, but that a runner may still act upon.
//!
//! One that was taken away, by an edit, a retry or a cancellation, is *ending*: its runner is told to end it in every answer,
//! and nothing newer of its job starts before it has. One that was *given up* is waited for by nobody, because its runner
//! is silent or knows nothing of it. If it turns up all the same it counts, as long as nothing newer has started.
//!
//! Actions and recovery scripts are taken away in the same manner: an action that is set off again waits for the end of its
//! earlier commands, and a job that runs anew for the end of its script.

use std::collections::BTreeSet;

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, FinishedAttempt, LeaseRole};

use super::Engine;
use super::attempt::{cause_of, lost_attempt};
use super::runner::{LeasedTask, RevokedLease, Runner};
use super::tasks::TaskId;
use super::tx::Tx;
use super::workflow::Workflow;
use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::job::JobEvent;
use crate::rows::{DetachedLease, DetachedState};

impl Engine {
    /// Takes a job's lease from its runner, which may have started it, and its recovery script likewise. Until that has ended,
    /// the job waits for it as for a job that it depends on.
    pub(super) fn revoke_lease(&mut self, workflow_id: WorkflowId, job: u32, tx: &mut Tx) {
        self.take_recovery_away(workflow_id, job, tx);
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        let Some(lease) = workflow.present_lease(job, DetachedState::Revoked) else { return };
        let Some(runner) = self.runners.get_mut(&lease.runner) else { return };
        let granted_in = runner.held.remove(&lease.job).map_or(0, |holding| holding.granted_in);
        runner.ending.insert(lease.epoch, RevokedLease { lease, granted_in });
        workflow.await_end(job);
        tx.changes.detached(lease);
    }

    /// Takes the recovery script of a job from its runner: the job runs anew without it.
    fn take_recovery_away(&mut self, id: WorkflowId, job: u32, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        let number = workflow.jobs[job as usize].id;
        let Some(holder) = workflow.recoveries.get(number).and_then(|row| row.lease.runner) else { return };
        self.take_task_away(holder, TaskId { workflow: id, number, role: LeaseRole::Recovery }, tx);
    }

    /// Takes those actions from their runners that were set back meanwhile.
    pub(super) fn take_actions_away(&mut self, id: WorkflowId, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        let is_set_back = |task: &TaskId, held: &LeasedTask| {
            task.workflow == id && task.role == LeaseRole::Action && !workflow.is_present_task(*task, &held.key)
        };
        let of_runner = |(runner, of): (&RunnerId, &Runner)| -> Vec<(RunnerId, TaskId)> {
            let set_back = of.tasks.iter().filter(|(task, held)| is_set_back(task, held));
            set_back.map(|(task, _)| (*runner, *task)).collect()
        };
        let mut set_back: Vec<(RunnerId, TaskId)> = self.runners.iter().flat_map(of_runner).collect();
        set_back.sort_unstable();
        for (runner, task) in set_back {
            self.take_task_away(runner, task, tx);
        }
    }

    fn take_task_away(&mut self, holder: RunnerId, task: TaskId, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get_mut(&task.workflow) else { return };
        let Some(runner) = self.runners.get_mut(&holder) else { return };
        let Some(LeasedTask { key, granted_in }) = runner.tasks.remove(&task) else { return };
        let lease = DetachedLease {
            epoch: key.epoch,
            workflow: task.workflow,
            job: task.number,
            run: key.run,
            attempt: key.attempt,
            runner: holder,
            started_ms: None,
            fate: DetachedState::Revoked,
            role: task.role,
        };
        if workflow.has_what_waits_for(&lease) {
            runner.ending.insert(lease.epoch, RevokedLease { lease, granted_in });
            workflow.await_end_of(&lease);
            tx.changes.detached(lease);
        }
    }

    /// A lease that was being ended is over. With a report, or when it had started, that is written down: as cancelled,
    /// whatever came of it, because it was no longer wanted.
    pub(super) fn end_revoked(&mut self, lease: DetachedLease, report: Result<&FinishedAttempt, &str>, tx: &mut Tx) {
        tx.changes.detached_ended(lease.epoch);
        self.wake_version += 1;
        let Some(workflow) = self.workflows.get_mut(&lease.workflow) else { return };
        if lease.role == LeaseRole::Action {
            return workflow.end_awaited_action(lease.job);
        }
        let Some(job) = workflow.ordinal(lease.job) else { return };
        if lease.role == LeaseRole::Recovery {
            return workflow.end_awaited(job, tx);
        }
        let finished = match report {
            Ok(finished) => Some(finished.clone()),
            Err(why) => lease.started_ms.map(|started| lost_attempt(AttemptKey::default(), Some(started), why, tx.now)),
        };
        if let Some(finished) = finished {
            let message = finished.message.clone().or_else(|| Some("it was no longer wanted".to_owned()));
            let finished = FinishedAttempt { message, ..finished };
            let outcome = (JobState::Canceled, Some(Cause::Canceled));
            let (attempt, runner) = ((lease.run, lease.attempt), Some(lease.runner));
            tx.changes.result(workflow.result_row(job, attempt, &finished, outcome, runner, tx.now));
        }
        workflow.end_awaited(job, tx);
    }

    /// The end of a lease that was being ended, if it is one.
    pub(super) fn take_revoked(&mut self, id: RunnerId, key: &AttemptKey) -> Option<DetachedLease> {
        let ending = &mut self.runners.get_mut(&id)?.ending;
        let same = |ending: &&RevokedLease| ending.lease.job.0 == key.job && ending.lease.run == key.run;
        ending.get(&key.epoch).filter(same)?;
        ending.remove(&key.epoch).map(|ending| ending.lease)
    }

    /// Everything that a runner was ending is over: it is gone, or so silent that nobody waits for it.
    pub(super) fn end_all_revoked(&mut self, id: RunnerId, why: &str, tx: &mut Tx) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        for (_, ending) in std::mem::take(&mut runner.ending) {
            self.end_revoked(ending.lease, Err(why), tx);
        }
    }

    /// Jobs that are no longer there wait for nothing.
    pub(super) fn drop_revoked(&mut self, gone: impl Fn(&DetachedLease) -> bool, tx: &mut Tx) {
        for runner in self.runners.values_mut() {
            runner.ending.retain(|epoch, ending| {
                let is_gone = gone(&ending.lease);
                if is_gone {
                    tx.changes.detached_ended(*epoch);
                }
                !is_gone
            });
        }
    }

    /// A new run has let go of what some leases were of.
    pub(super) fn drop_forgotten_leases(&mut self, id: WorkflowId, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        let leases = self.runners.values().flat_map(|runner| runner.ending.values().map(|ending| ending.lease));
        let forgotten = |lease: &DetachedLease| lease.workflow == id && !workflow.has_what_waits_for(lease);
        let forgotten: BTreeSet<i64> = leases.filter(forgotten).map(|lease| lease.epoch).collect();
        self.drop_revoked(|lease| forgotten.contains(&lease.epoch), tx);
    }

    /// A lease that was given up turns up again. It counts if nothing newer has started; a newer promise is taken back then.
    /// Its number may be taken, by the record of its loss or by that promise: the job then goes on under the next free one.
    pub(super) fn revive(&mut self, (workflow_id, job): (WorkflowId, u32), epoch: i64, tx: &mut Tx) -> bool {
        let Some(workflow) = self.workflows.get(&workflow_id) else { return false };
        let record = &workflow.jobs[job as usize];
        let is_unstarted = matches!(record.state, JobState::Ready | JobState::Leased);
        if !is_unstarted || !workflow.has_expired_lease(job, epoch) {
            return false;
        }
        let promised = record.state == JobState::Leased;
        if promised {
            self.revoke_lease(workflow_id, job, tx);
        }
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return false };
        if promised {
            workflow.jobs[job as usize].attempt += 1;
            let _ = workflow.transition(job, JobEvent::LeaseEnded, tx);
        }
        workflow.jobs[job as usize].epoch = epoch;
        workflow.forget_expired_leases(job, tx);
        true
    }

    /// A job that has failed because its attempt was lost turns out to have succeeded: it is as if it ran again, with
    /// everything that depends on it, and this is its result. Another failure changes nothing.
    pub(super) fn undo_loss(
        &mut self,
        (workflow_id, job): (WorkflowId, u32),
        finished: &FinishedAttempt,
        tx: &mut Tx,
    ) -> bool {
        let is_canceled = self.workflows.get(&workflow_id).is_none_or(Workflow::is_canceled);
        if is_canceled || cause_of(finished).is_some() {
            return false;
        }
        self.reset(workflow_id, BTreeSet::from([job]), tx);
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return false };
        workflow.jobs[job as usize].epoch = finished.key.epoch;
        workflow.jobs[job as usize].state == JobState::Ready
    }
}

impl Workflow {
    fn present_lease(&self, job: u32, fate: DetachedState) -> Option<DetachedLease> {
        let record = &self.jobs[job as usize];
        Some(DetachedLease {
            epoch: record.epoch,
            workflow: self.row.id,
            job: record.id,
            run: record.run,
            attempt: record.attempt,
            runner: record.runner?,
            started_ms: record.started_ms,
            fate,
            role: LeaseRole::Job,
        })
    }

    /// What would wait for the end of this lease is still there.
    pub(super) fn has_what_waits_for(&self, lease: &DetachedLease) -> bool {
        match lease.role {
            LeaseRole::Action => self.actions.find(lease.job).is_some(),
            LeaseRole::Job | LeaseRole::Recovery => self.ordinal(lease.job).is_some(),
        }
    }

    /// One more lease has to end, before what it is a lease of goes on.
    pub(super) fn await_end_of(&mut self, lease: &DetachedLease) {
        if lease.role == LeaseRole::Action {
            *self.ending_actions.entry(lease.job).or_default() += 1;
        } else if let Some(job) = self.ordinal(lease.job) {
            self.await_end(job);
        }
    }

    fn end_awaited_action(&mut self, action: JobId) {
        if let Some(count) = self.ending_actions.get_mut(&action) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.ending_actions.remove(&action);
            }
        }
    }

    /// One more lease of the job has to end before it is ready.
    pub(super) fn await_end(&mut self, job: u32) {
        let record = &mut self.jobs[job as usize];
        record.ending += 1;
        record.unmet += 1;
        self.ending += 1;
    }

    fn end_awaited(&mut self, job: u32, tx: &mut Tx) {
        let record = &mut self.jobs[job as usize];
        record.ending = record.ending.saturating_sub(1);
        record.unmet = record.unmet.saturating_sub(1);
        self.ending = self.ending.saturating_sub(1);
        if record.state == JobState::Blocked && record.unmet == 0 {
            // The state was checked, so this is always legal.
            let _ = self.transition(job, JobEvent::DependenciesMet, tx);
        }
    }

    /// The job's present lease, before it is given up.
    pub(super) fn lease_to_expire(&self, job: u32) -> Option<DetachedLease> {
        self.present_lease(job, DetachedState::Expired)
    }

    /// Remembers a lease of whose runner nothing is known.
    pub(super) fn remember_expired_lease(&mut self, lease: DetachedLease, tx: &mut Tx) {
        self.expired_leases.entry(lease.job).or_default().push(lease);
        tx.changes.detached(lease);
    }

    pub(super) fn has_expired_lease(&self, job: u32, epoch: i64) -> bool {
        let leases = self.expired_leases.get(&self.jobs[job as usize].id);
        leases.is_some_and(|leases| leases.iter().any(|lease| lease.epoch == epoch))
    }

    /// Whether the number of the job's present attempt may be in use by somebody of whom nothing is known.
    pub(super) fn attempt_is_unconfirmed(&self, job: u32) -> bool {
        let record = &self.jobs[job as usize];
        let leases = self.expired_leases.get(&record.id);
        leases.is_some_and(|leases| leases.iter().any(|lease| lease.attempt == record.attempt))
    }

    /// What was given up does not count any more: something newer has started or ended, or the job is to run anew.
    pub(super) fn forget_expired_leases(&mut self, job: u32, tx: &mut Tx) {
        for lease in self.expired_leases.remove(&self.jobs[job as usize].id).unwrap_or_default() {
            tx.changes.detached_ended(lease.epoch);
        }
    }

    /// A lease that was given up is in its runner's books again.
    pub(super) fn is_back(&mut self, job: u32, epoch: i64, tx: &mut Tx) {
        let id = self.jobs[job as usize].id;
        let Some(leases) = self.expired_leases.get_mut(&id) else { return };
        leases.retain(|lease| lease.epoch != epoch);
        tx.changes.detached_ended(epoch);
        if leases.is_empty() {
            self.expired_leases.remove(&id);
        }
    }
}
