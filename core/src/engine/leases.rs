//! Leases: work that is granted to runners. One life cycle for jobs, the commands of actions, and recovery scripts.
//!
//! A lease is granted, confirmed by its runner as waiting or started, and ended by a report. It is *released* when
//! the runner returns it unstarted, *abandoned* when the runner no longer has it, *revoked* when a command supersedes
//! it, and *transferred* to the successor of its runner. The roles differ only in what is recorded and in what
//! follows from the end of an attempt.
//!
//! The lease number identifies a lease. The attempt number in the key of a runner is the one at the time of the grant. The job may have
//! a higher one by now, if the lease expired and was revived.

mod detached;
mod end;
mod expire;
mod grant;
mod reconcile;
mod tasks;

pub(super) use end::NotHeldReason;

use torc_api::wire::{AttemptKey, LeaseRole};

use super::runners::{Fleet, LeaseTarget, LiveRunner, Runners};
use super::tx::Tx;
use super::workflow::LiveWorkflow;
use super::workflows::Workflows;
use crate::ids::{JobId, Now, RunnerId, WorkflowId};
use crate::job::JobEvent;
use crate::rows::TaskLease;

/// The life cycle of leases, which changes workflows and runners together.
pub(super) struct Leases<'a> {
    pub workflows: &'a mut Workflows,
    pub runners: &'a mut Runners,
}

/// The latest lease of a target that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentLease {
    pub key: AttemptKey,
    pub runner: Option<RunnerId>,
    pub started_ms: Option<i64>,
}

impl CurrentLease {
    /// Returns whether a key names this lease.
    fn is(&self, key: &AttemptKey) -> bool {
        key.lease_id > 0 && (self.key.lease_id, self.key.run) == (key.lease_id, key.run)
    }
}

impl LiveWorkflow {
    pub(super) fn job_target(&self, job: u32) -> LeaseTarget {
        LeaseTarget { workflow: self.id(), number: self.graph.job(job).id(), role: LeaseRole::Job }
    }

    /// Returns the target that a key names.
    fn target_of(&self, key: &AttemptKey) -> Option<LeaseTarget> {
        let number = JobId(key.job);
        let target = |role| LeaseTarget { workflow: self.id(), number, role };
        if self.actions.find(number).is_some() {
            return Some(target(LeaseRole::Action));
        }
        if self.recoveries.get(number).is_some_and(|row| row.lease.lease_id == key.lease_id) {
            return Some(target(LeaseRole::Recovery));
        }
        self.graph.ordinal(number).map(|_| target(LeaseRole::Job))
    }

    pub(super) fn current_lease(&self, target: LeaseTarget) -> Option<CurrentLease> {
        if target.role.is_job() {
            let job = self.graph.ordinal(target.number)?;
            let record = self.graph.job(job);
            let key = self.graph.key(job);
            return Some(CurrentLease { key, runner: record.runner(), started_ms: record.started_ms() });
        }
        let lease = self.task_lease(target)?;
        let key = self.task_key(target.number, lease);
        Some(CurrentLease { key, runner: lease.runner, started_ms: lease.started_ms })
    }

    /// Returns the leases that runners hold.
    pub(super) fn held_leases(&self) -> Vec<(LeaseTarget, RunnerId, AttemptKey)> {
        let jobs = self.graph.iter().filter(|(_, record)| record.state().is_held());
        let jobs = jobs.filter_map(|(job, record)| Some((self.job_target(job), record.runner()?, self.graph.key(job))));
        jobs.chain(self.held_tasks()).collect()
    }

    /// Assigns a new lease to a runner and returns its key.
    fn grant(&mut self, target: LeaseTarget, runner: RunnerId, tx: &mut Tx) -> Option<AttemptKey> {
        let lease_id = tx.next_lease();
        if target.role.is_job() {
            let job = self.graph.ordinal(target.number)?;
            let is_unconfirmed = self.attempt_is_unconfirmed(job);
            self.graph.assign_lease(job, runner, lease_id, is_unconfirmed);
            // Choices come from the queues, which hold only ready jobs.
            let granted = self.transition(job, JobEvent::Granted, tx);
            debug_assert!(granted.is_ok());
        } else {
            self.change_task(target, tx, |lease| lease.grant(lease_id, runner));
        }
        self.current_lease(target).map(|lease| lease.key)
    }

    /// Takes an unstarted lease back from its runner. Returns whether the lease was unstarted.
    fn release(&mut self, target: LeaseTarget, tx: &mut Tx) -> bool {
        if target.role.is_job() {
            let job = self.graph.ordinal(target.number);
            return job.is_some_and(|job| self.transition(job, JobEvent::LeaseEnded, tx).is_ok());
        }
        self.change_task(target, tx, TaskLease::release);
        true
    }

    /// Names the successor of a runner as the holder of a lease.
    fn set_holder(&mut self, target: LeaseTarget, runner: RunnerId, tx: &mut Tx) {
        if !target.role.is_job() {
            return self.change_task(target, tx, |lease| lease.runner = Some(runner));
        }
        if let Some(job) = self.graph.ordinal(target.number) {
            self.graph.transfer(job, runner, tx);
        }
    }
}

impl Workflows {
    /// Returns the target that a key names.
    pub fn target_of(&self, key: &AttemptKey) -> Option<LeaseTarget> {
        self.get(&WorkflowId(key.workflow))?.target_of(key)
    }

    pub fn current_lease(&self, target: LeaseTarget) -> Option<CurrentLease> {
        self.get(&target.workflow)?.current_lease(target)
    }

    /// Returns the target of a key if the key names the current lease and the runner holds it.
    pub fn held_by(&self, id: RunnerId, key: &AttemptKey) -> Option<LeaseTarget> {
        let target = self.target_of(key)?;
        let lease = self.current_lease(target)?;
        (lease.is(key) && lease.runner == Some(id)).then_some(target)
    }

    /// Returns the job of a key if the key names the current lease and the runner holds it.
    pub fn held_job(&self, id: RunnerId, key: &AttemptKey) -> Option<(&LiveWorkflow, u32)> {
        let target = self.held_by(id, key).filter(|target| target.role.is_job())?;
        let workflow = self.get(&target.workflow)?;
        Some((workflow, workflow.graph.ordinal(target.number)?))
    }
}

impl Leases<'_> {
    fn fleet(&self, now: Now) -> Fleet<'_> {
        Fleet { workflows: self.workflows, runners: self.runners, now }
    }

    /// Grants a lease to a runner and returns its key.
    fn grant_lease(&mut self, id: RunnerId, target: LeaseTarget, granted_in: u64, tx: &mut Tx) -> Option<AttemptKey> {
        let runner = self.runners.get_mut(&id)?;
        let key = self.workflows.get_mut(&target.workflow)?.grant(target, id, tx)?;
        runner.leases.hold(target, key, granted_in);
        Some(key)
    }

    /// Transfers the leases of a runner to its successor.
    pub fn transfer(&mut self, mut earlier: LiveRunner, successor: &mut LiveRunner, tx: &mut Tx) {
        let (from, to) = (earlier.id(), successor.id());
        for (target, _) in earlier.leases.sorted() {
            let Some(workflow) = self.workflows.get_mut(&target.workflow) else { continue };
            if workflow.current_lease(target).is_some_and(|lease| lease.runner == Some(from)) {
                workflow.set_holder(target, to, tx);
            }
        }
        successor.leases.succeed(to, std::mem::take(&mut earlier.leases));
        successor.leases.revoked().for_each(|lease| tx.changes.detached(*lease));
        for workflow in self.workflows.values_mut() {
            workflow.actions.transfer_worker(from, to, tx);
        }
    }

    /// Forgets the leases of targets that no longer exist. The answers to their runners cancel them, because their keys are unknown.
    pub fn forget(&mut self, is_gone: impl Fn(&LeaseTarget) -> bool, tx: &mut Tx) {
        for runner in self.runners.values_mut() {
            for lease_id in runner.leases.forget(&is_gone) {
                tx.changes.detached_ended(lease_id);
            }
        }
    }

    /// Forgets the leases of actions that a new run has removed.
    pub fn forget_without_target(&mut self, id: WorkflowId, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        for runner in self.runners.values_mut() {
            for lease_id in runner.leases.forget(|target| target.workflow == id && !workflow.has_target(target)) {
                tx.changes.detached_ended(lease_id);
            }
        }
    }

    /// Records the jobs that an edit has removed, and forgets their leases.
    pub fn forget_removed(&mut self, old: &LiveWorkflow, new: &LiveWorkflow, tx: &mut Tx) {
        let removed = old.graph.iter().map(|(_, job)| job.id()).filter(|id| new.graph.ordinal(*id).is_none());
        for id in removed {
            tx.changes.rows().removed_jobs.push(id);
            if old.recoveries.get(id).is_some() {
                tx.changes.recovery_ended(id);
            }
            for lease in old.leases.expired_of(id) {
                tx.changes.detached_ended(lease.lease_id);
            }
        }
        self.forget(|target| target.workflow == new.id() && !new.has_target(target), tx);
    }

    /// Restores the leases that runners held before a restart.
    pub fn restore_held(&mut self) {
        for workflow in self.workflows.values() {
            for (target, holder, key) in workflow.held_leases() {
                if let Some(runner) = self.runners.get_mut(&holder) {
                    runner.leases.hold(target, key, 0);
                }
            }
        }
    }
}
