//! Running jobs again: one routine for edits, retries and new runs.

use std::collections::BTreeSet;

use torc_api::state::JobState;

use super::Engine;
use super::tx::Tx;
use super::workflow::Workflow;
use crate::ids::WorkflowId;
use crate::job::JobEvent;

impl Engine {
    /// These jobs run again, and so does everything that depends on them. Returns the jobs that this concerns.
    pub(super) fn reset(&mut self, id: WorkflowId, jobs: BTreeSet<u32>, tx: &mut Tx) -> BTreeSet<u32> {
        let jobs = self.forget_spawned(id, jobs, tx);
        let Some(workflow) = self.workflows.get(&id) else { return BTreeSet::new() };
        let affected = workflow.graph.with_descendants(&jobs);
        self.live.insert(id);
        for job in &affected {
            self.revoke_leases_of_job(id, *job, tx);
        }
        // Where no job is put back to the start, what recovery has planned stays.
        if !affected.is_empty() {
            self.undo_regeneration(id, tx);
        }
        let Some(workflow) = self.workflows.get_mut(&id) else { return BTreeSet::new() };
        for job in &affected {
            workflow.withdraw(*job, tx);
        }
        workflow.plan(&affected, tx);
        workflow.reset_triggers(&affected, tx);
        if !affected.is_empty() {
            // A workflow that had settled is set going again, and so is the clock that its summary shows.
            if workflow.row.completed_ms.take().is_some() {
                workflow.row.started_ms = None;
            }
            tx.changes.workflow(&workflow.row);
        }
        self.revoke_stale_actions(id, tx);
        self.wake_version += 1;
        affected
    }
}

impl Workflow {
    /// For each job whether it is one of these.
    fn members(&self, jobs: &BTreeSet<u32>) -> Vec<bool> {
        let mut members = vec![false; self.graph.len() as usize];
        for job in jobs {
            members[*job as usize] = true;
        }
        members
    }

    /// Puts jobs where their dependencies say: ready, blocked, or cancelled because one of them has failed for good.
    /// All of them are placed before the first is cancelled: then what waits for it is already counted right.
    pub(super) fn plan(&mut self, jobs: &BTreeSet<u32>, tx: &mut Tx) {
        let mut doomed = Vec::new();
        let planned = self.members(jobs);
        for job in jobs {
            let ended = |parent: &&u32| !planned[**parent as usize] && self.graph.job(**parent).state().is_complete();
            let parents = self.graph.parents(*job);
            let open = parents.len() - parents.iter().filter(ended).count();
            let failed = |parent: &u32| self.graph.job(*parent).state() != JobState::Completed;
            let is_doomed =
                self.graph.profile(*job).cancel_on_blocking_job_failure && parents.iter().filter(ended).any(failed);
            // A doomed job must not look ready, not even for a moment.
            let ending = u32::from(self.graph.job(*job).ending());
            let unmet = (open as u32 + ending).max(u32::from(is_doomed));
            // A reset is legal in every state.
            let _ = self.transition(*job, JobEvent::Reset { unmet }, tx);
            if is_doomed {
                doomed.push(*job);
            }
        }
        for job in doomed {
            // Refused when a parent of it, doomed too, has already taken it along.
            if self.transition(job, JobEvent::DependencyFailed, tx).is_ok() {
                self.settle_dependents(job, tx);
            }
        }
    }

    /// Makes a job's present attempt one of the past.
    fn withdraw(&mut self, job: u32, tx: &mut Tx) {
        self.forget_expired_leases(job, tx);
        let record = self.graph.job(job);
        let id = record.id();
        if record.run() != self.row.run {
            self.graph.begin_run(job, self.row.run);
            self.failures.forget(id);
        } else if record.lease_id() > 0 {
            // Any lease may have been started without a report, even one that has expired.
            self.graph.next_attempt(job);
        }
    }
}
