//! Resets and cancels jobs: one routine for edits, retries and new runs, one for cancellations and deadlines.

use std::collections::BTreeSet;

use torc_api::state::JobState;

use super::leases::Leases;
use super::tx::Tx;
use super::workflow::LiveWorkflow;
use crate::ids::{JobId, WorkflowId};
use crate::job::JobEvent;

impl Leases<'_> {
    /// Resets jobs and everything that depends on them, so that they run again. Returns the affected jobs.
    pub fn reset(&mut self, id: WorkflowId, jobs: BTreeSet<u32>, tx: &mut Tx) -> BTreeSet<u32> {
        let jobs = self.remove_spawned(id, jobs, tx);
        let Some(workflow) = self.workflows.get(&id) else { return BTreeSet::new() };
        let affected = workflow.graph.with_descendants(&jobs);
        self.workflows.reopen(id);
        for job in &affected {
            self.revoke_leases_of_job(id, *job, tx);
        }
        let Some(workflow) = self.workflows.get_mut(&id) else { return BTreeSet::new() };
        // If no job is reset, the schedulers that recovery has planned stay.
        if !affected.is_empty() {
            workflow.forget_regenerated(tx);
        }
        for job in &affected {
            workflow.end_current_attempt(*job, tx);
        }
        workflow.plan(&affected, tx);
        workflow.reset_triggers(&affected, tx);
        if !affected.is_empty() {
            workflow.record.reopen(tx);
        }
        self.revoke_stale_actions(id, tx);
        self.runners.wake();
        affected
    }

    /// Removes the jobs that `jobs` or their descendants have spawned. Returns the ordinals of the remaining `jobs`, which may have changed.
    fn remove_spawned(&mut self, id: WorkflowId, jobs: BTreeSet<u32>, tx: &mut Tx) -> BTreeSet<u32> {
        let Some(workflow) = self.workflows.get(&id) else { return jobs };
        let graph = &workflow.graph;
        if !graph.has_spawned() {
            return jobs;
        }
        let reset = graph.with_descendants(&jobs);
        let removed = graph.spawned_by(&reset);
        let ids: Vec<JobId> = jobs.difference(&removed).map(|job| graph.job(*job).id()).collect();
        let callers: BTreeSet<JobId> = reset.iter().map(|job| graph.job(*job).id()).collect();
        let Some(old) = self.workflows.take(id) else { return jobs };
        let mut new = old.without(&removed);
        new.data.forget_states_of(|job| callers.contains(&job), tx);
        self.forget_removed(&old, &new, tx);
        let jobs = ids.into_iter().filter_map(|job| new.graph.ordinal(job)).collect();
        self.workflows.put_back(new);
        jobs
    }

    /// Cancels all jobs that have not ended; runners terminate the running ones. Returns the number of affected jobs.
    pub fn cancel_jobs(&mut self, id: WorkflowId, tx: &mut Tx) -> i64 {
        let Some(workflow) = self.workflows.get_mut(&id) else { return 0 };
        workflow.actions.cancel(tx);
        let mut affected = 0;
        for job in workflow.graph.ordinals() {
            let Some(state) = self.workflows.get(&id).map(|workflow| workflow.graph.job(job).state()) else { continue };
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
        self.runners.wake();
        affected
    }
}

impl LiveWorkflow {
    /// Puts jobs into the states that their dependencies imply: ready, blocked, or canceled because a dependency has failed for good.
    ///
    /// All jobs are placed before the first one is canceled, so that the counts of its dependents are right.
    pub fn plan(&mut self, jobs: &BTreeSet<u32>, tx: &mut Tx) {
        let mut planned = vec![false; self.graph.len() as usize];
        for job in jobs {
            planned[*job as usize] = true;
        }
        let mut doomed = Vec::new();
        for job in jobs {
            let graph = &self.graph;
            let state = |parent: &u32| graph.job(*parent).state();
            let ended = |parent: &&u32| !planned[**parent as usize] && state(parent).is_complete();
            let parents = graph.parents(*job);
            let open = parents.len() - parents.iter().filter(ended).count();
            let has_failed_parent = parents.iter().filter(ended).any(|parent| state(parent) != JobState::Completed);
            let is_doomed = graph.profile(*job).cancel_on_blocking_job_failure && has_failed_parent;
            // A doomed job must never be ready, so it counts as blocked until it is canceled.
            let unmet = (open as u32 + u32::from(graph.job(*job).ending())).max(u32::from(is_doomed));
            // A reset is legal in every state.
            let _ = self.transition(*job, JobEvent::Reset { unmet }, tx);
            if is_doomed {
                doomed.push(*job);
            }
        }
        for job in doomed {
            // Refused if a doomed dependency has already canceled it.
            if self.transition(job, JobEvent::DependencyFailed, tx).is_ok() {
                self.settle_dependents(job, tx);
            }
        }
    }

    /// Ends the current attempt of a job that is reset, and moves the job to the current run.
    fn end_current_attempt(&mut self, job: u32, tx: &mut Tx) {
        self.forget_expired_leases(job, tx);
        let run = self.row().run;
        let record = self.graph.job(job);
        let id = record.id();
        if record.run() != run {
            self.graph.begin_run(job, run);
            self.failures.forget(id);
        } else if record.lease_id() > 0 {
            // Any lease may have been started without a report, even one that has expired.
            self.graph.next_attempt(job);
        }
    }
}
