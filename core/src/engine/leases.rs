//! Leases: promises of work to runners. One life cycle for jobs, the commands of actions and recovery scripts.
//!
//! A lease is granted, confirmed by its runner (it waits, it has started), and ends by a report. It is released when the runner gives it
//! back unstarted, abandoned when the runner no longer has it, revoked when it is no longer wanted, and moves when another runner goes
//! on in the place of its holder. The roles differ only in what is written down and in what follows from the end of an attempt.
//!
//! A lease is known by its number. The attempt's number in a runner's key is the one that the lease was granted with; the job may have
//! gone on to a higher one meanwhile, when the lease expired and turned up again.

mod detached;
mod end;
mod expire;
mod grant;
mod reconcile;
mod tasks;

pub(super) use end::NotHeldReason;

use torc_api::wire::{AttemptKey, LeaseRole};

use super::Engine;
use super::held_leases::LeaseTarget;
use super::runners::Runner;
use super::tx::Tx;
use super::workflow::Workflow;
use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::job::JobEvent;

/// The latest lease of a target that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentLease {
    pub key: AttemptKey,
    pub runner: Option<RunnerId>,
    pub started_ms: Option<i64>,
}

impl CurrentLease {
    /// Whether a key names this lease.
    fn is(&self, key: &AttemptKey) -> bool {
        key.lease_id > 0 && (self.key.lease_id, self.key.run) == (key.lease_id, key.run)
    }
}

impl Workflow {
    pub(super) fn job_target(&self, job: u32) -> LeaseTarget {
        LeaseTarget { workflow: self.id(), number: self.graph.job(job).id(), role: LeaseRole::Job }
    }

    /// Returns what a key names.
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
            return Some(CurrentLease {
                key: self.graph.key(job),
                runner: record.runner(),
                started_ms: record.started_ms(),
            });
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

    /// Gives a new lease to a runner and returns its key.
    fn grant(&mut self, target: LeaseTarget, runner: RunnerId, tx: &mut Tx) -> Option<AttemptKey> {
        let lease_id = tx.next_lease();
        if target.role.is_job() {
            let job = self.graph.ordinal(target.number)?;
            let is_unconfirmed = self.attempt_is_unconfirmed(job);
            self.graph.assign_lease(job, runner, lease_id, is_unconfirmed);
            // Only ready jobs are in the queues that choices come from.
            let granted = self.transition(job, JobEvent::Granted, tx);
            debug_assert!(granted.is_ok());
        } else {
            self.change_task(target, tx, |lease| {
                lease.lease_id = lease_id;
                lease.runner = Some(runner);
                lease.started_ms = None;
            });
        }
        self.current_lease(target).map(|lease| lease.key)
    }

    /// Takes a lease that has not started back from its runner. Returns whether it could be.
    fn release(&mut self, target: LeaseTarget, tx: &mut Tx) -> bool {
        if target.role.is_job() {
            let job = self.graph.ordinal(target.number);
            return job.is_some_and(|job| self.transition(job, JobEvent::LeaseEnded, tx).is_ok());
        }
        self.change_task(target, tx, |lease| {
            lease.runner = None;
            lease.started_ms = None;
        });
        true
    }

    /// Names another runner as the holder of a lease.
    fn set_holder(&mut self, target: LeaseTarget, runner: RunnerId, tx: &mut Tx) {
        if !target.role.is_job() {
            return self.change_task(target, tx, |lease| lease.runner = Some(runner));
        }
        let Some(job) = self.graph.ordinal(target.number) else { return };
        self.graph.transfer(job, runner, tx);
    }
}

impl Engine {
    /// Returns what a key names.
    fn target_of(&self, key: &AttemptKey) -> Option<LeaseTarget> {
        self.workflows.get(&WorkflowId(key.workflow))?.target_of(key)
    }

    fn current_lease(&self, target: LeaseTarget) -> Option<CurrentLease> {
        self.workflows.get(&target.workflow)?.current_lease(target)
    }

    /// Returns what a key names, if it is the current lease and the runner holds it.
    pub(super) fn held_by(&self, id: RunnerId, key: &AttemptKey) -> Option<LeaseTarget> {
        let target = self.target_of(key)?;
        let lease = self.current_lease(target)?;
        (lease.is(key) && lease.runner == Some(id)).then_some(target)
    }

    /// Returns the job whose current lease this is, if the runner holds it.
    pub(super) fn held_job(&self, id: RunnerId, key: &AttemptKey) -> Option<(&Workflow, u32)> {
        let target = self.held_by(id, key).filter(|target| target.role.is_job())?;
        let workflow = self.workflows.get(&target.workflow)?;
        Some((workflow, workflow.graph.ordinal(target.number)?))
    }

    /// Grants a lease to a runner and returns its key.
    fn grant_lease(&mut self, id: RunnerId, target: LeaseTarget, granted_in: u64, tx: &mut Tx) -> Option<AttemptKey> {
        let runner = self.runners.get_mut(&id)?;
        let key = self.workflows.get_mut(&target.workflow)?.grant(target, id, tx)?;
        runner.leases.hold(target, key, granted_in);
        Some(key)
    }

    /// Another runner goes on in the place of an earlier one, with its leases.
    pub(super) fn transfer_leases(&mut self, earlier: Runner, successor: &mut Runner, tx: &mut Tx) {
        let (from, to) = (earlier.row.id, successor.row.id);
        for (target, _) in earlier.leases.sorted() {
            let Some(workflow) = self.workflows.get_mut(&target.workflow) else { continue };
            if workflow.current_lease(target).is_some_and(|lease| lease.runner == Some(from)) {
                workflow.set_holder(target, to, tx);
            }
        }
        successor.leases.succeed(to, earlier.leases);
        successor.leases.revoked().for_each(|lease| tx.changes.detached(*lease));
        for workflow in self.workflows.values_mut() {
            workflow.worker_succeeded(from, to, tx);
        }
    }

    /// Forgets the leases of targets that are no longer there. Their runners are told to end them, for their keys are no longer known.
    pub(super) fn forget_leases(&mut self, is_gone: impl Fn(&LeaseTarget) -> bool, tx: &mut Tx) {
        for runner in self.runners.values_mut() {
            for lease_id in runner.leases.forget(&is_gone) {
                tx.changes.detached_ended(lease_id);
            }
        }
    }

    /// A new run has let go of what some leases were of.
    pub(super) fn forget_leases_without_target(&mut self, id: WorkflowId, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        for runner in self.runners.values_mut() {
            for lease_id in runner.leases.forget(|target| target.workflow == id && !workflow.has_target(target)) {
                tx.changes.detached_ended(lease_id);
            }
        }
    }

    /// What runners held before a restart they still hold, until they say otherwise.
    pub(super) fn restore_held_leases(&mut self, workflow: &Workflow) {
        for (target, holder, key) in workflow.held_leases() {
            if let Some(runner) = self.runners.get_mut(&holder) {
                runner.leases.hold(target, key, 0);
            }
        }
    }
}
