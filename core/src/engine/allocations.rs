//! Slurm allocations of workflows: requested, submitted, running, ended.
//!
//! An allocation is stored before `sbatch` is called for it. The submission carries its name, so that an allocation without a Slurm job
//! can be looked up in Slurm after a crash. The controller talks with Slurm.

mod clusters;
mod demand;
mod observe;
mod view;

use std::collections::{BTreeMap, HashSet};

use torc_api::event_reason::EventReason;
use torc_api::quantity::{count, format_duration};
use torc_api::slurm::SlurmState;
use torc_api::wire::RegisterRequest;

use super::tx::Tx;
use super::workflow::LiveWorkflow;
use super::{CommandError, Engine};
use crate::ids::{AllocationKey, WorkflowId};
use crate::planning::allocation_plan::AllocationSummary;
use crate::rows::{AllocationRow, ClusterRow};

pub use observe::Orphans;
pub use view::{allocation as allocation_view, slurm_name};
pub(super) use view::{allocation_counts, allocation_stall, allocations_ready, waits_for_allocation};

/// Clusters, and the Slurm jobs and runners that have ended in them.
#[derive(Debug, Default)]
pub(super) struct SlurmRecords {
    /// Clusters by name, as their documents describe them.
    clusters: BTreeMap<String, ClusterRow>,
    /// Slurm jobs of ended allocations, whose runners are refused.
    ended_jobs: HashSet<String>,
    /// Runners of an earlier start of a requeued allocation, which must not register again: Slurm job, host and PID.
    /// Not stored: after a restart of the server they are dismissed again.
    dismissed: HashSet<(String, String, i64)>,
}

impl SlurmRecords {
    /// Restores the stored records.
    pub fn restore(clusters: Vec<ClusterRow>, ended_jobs: Vec<String>) -> Self {
        let clusters = clusters.into_iter().map(|row| (row.name.clone(), row)).collect();
        Self { clusters, ended_jobs: ended_jobs.into_iter().collect(), dismissed: HashSet::new() }
    }

    /// Forgets what is not stored, as a restart does.
    #[cfg(test)]
    pub fn forget_dismissed(&mut self) {
        self.dismissed.clear();
    }

    /// Returns what is stored.
    #[cfg(test)]
    pub fn stored(&self) -> (&BTreeMap<String, ClusterRow>, &HashSet<String>) {
        (&self.clusters, &self.ended_jobs)
    }
}

impl Engine {
    /// Records allocations that are about to be submitted. The caller calls `sbatch` only after the record is durable.
    pub fn record_submissions(
        &mut self,
        workflow: WorkflowId,
        templates: Vec<AllocationRow>,
        tx: &mut Tx,
    ) -> Result<Vec<AllocationRow>, CommandError> {
        let called_ms = Some(tx.now.wall_ms);
        Ok(self.workflows.require_mut(workflow)?.allocations.add(workflow, templates, called_ms, tx))
    }

    /// Records that `sbatch` is about to be called again for an allocation. Returns none if it is submitted or canceled.
    pub fn record_sbatch_call(&mut self, key: AllocationKey, tx: &mut Tx) -> Option<AllocationRow> {
        self.workflows.get_mut(&key.0)?.allocations.call(key.1, tx)
    }

    /// Records the Slurm job of an allocation. Returns false if the allocation is unknown or has another Slurm job.
    pub fn allocation_submitted(&mut self, key: AllocationKey, slurm_job_id: &str, tx: &mut Tx) -> bool {
        let Some(workflow) = self.workflows.get_mut(&key.0) else { return false };
        let Some(row) = workflow.allocations.get(key.1) else { return false };
        if let Some(known) = &row.slurm_job_id {
            return known == slurm_job_id;
        }
        let message = format!("{} was submitted as Slurm job {slurm_job_id}{}", row.name(), size(row));
        workflow.allocations.submit(key.1, slurm_job_id, tx);
        tx.event(Some(key.0), EventReason::AllocationSubmitted, message);
        workflow.finish_submissions(tx);
        let mut has_runners = false;
        for runner in self.runners.values_mut() {
            if runner.row().slurm_job_id.as_deref() == Some(slurm_job_id) {
                runner.enter(key);
                has_runners = true;
            }
        }
        if has_runners {
            self.allocation_started(key, tx.now.wall_ms, tx);
        }
        true
    }

    /// Records a failed submission. `maybe_delivered`: Slurm may have received it.
    pub fn allocation_not_submitted(&mut self, key: AllocationKey, message: &str, maybe_delivered: bool, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get_mut(&key.0) else { return };
        let Some(name) = workflow.allocations.get(key.1).map(AllocationRow::name) else { return };
        if workflow.allocations.refuse(key.1, message, maybe_delivered, tx) {
            tx.event(Some(key.0), EventReason::AllocationRefused, format!("{name} was not submitted: {message}"));
        }
    }

    /// Cancels allocations. Those that Slurm has never received end now, the others when Slurm says so. Returns the ones that the caller
    /// has to cancel in Slurm.
    pub fn cancel_allocations(&mut self, keys: &[AllocationKey], tx: &mut Tx) -> Vec<AllocationRow> {
        let mut submitted = Vec::new();
        for key in keys {
            let Some(workflow) = self.workflows.get_mut(&key.0) else { continue };
            let Some(row) = workflow.allocations.cancel(key.1, tx) else { continue };
            if row.slurm_job_id.is_some() {
                submitted.push(row.clone());
            } else if row.called_ms.is_none() {
                self.end_allocation(*key, None, tx.now.wall_ms, tx);
            }
        }
        submitted
    }

    /// Records that Slurm has given an allocation its nodes.
    pub(super) fn allocation_started(&mut self, key: AllocationKey, started_ms: i64, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get_mut(&key.0) else { return };
        let Some(row) = workflow.allocations.start(key.1, started_ms, tx) else { return };
        tx.event(Some(key.0), EventReason::AllocationStarted, format!("{} has started", row.name()));
        self.runners.wake();
    }

    /// Ends an allocation. `state`: what Slurm says about its end; none if Slurm has never received it.
    pub(super) fn end_allocation(&mut self, key: AllocationKey, state: Option<SlurmState>, ended_ms: i64, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get_mut(&key.0) else { return };
        let Some(row) = workflow.allocations.end(key.1, state, ended_ms, tx) else { return };
        let reported = row.slurm_state.clone().or_else(|| state.map(|state| state.to_string()));
        let message = match (reported, row.slurm_job_id.as_deref()) {
            (Some(state), Some(number)) => format!("{} (Slurm job {number}) has ended: {state}", row.name()),
            _ => format!("{} was not submitted and is no longer needed", row.name()),
        };
        tx.event(Some(key.0), EventReason::AllocationEnded, message);
        workflow.finish_submissions(tx);
        self.slurm.dismissed.retain(|(number, ..)| row.slurm_job_id.as_ref() != Some(number));
        self.slurm.ended_jobs.extend(row.slurm_job_id);
        self.runners.wake();
    }

    /// Subtracts ended allocations whose records were deleted.
    pub fn forget_allocations(&mut self, forgotten: &BTreeMap<WorkflowId, i64>) {
        for (id, count) in forgotten {
            if let Some(workflow) = self.workflows.get_mut(id) {
                workflow.allocations.forget_finished(*count);
            }
        }
    }

    /// Finds the allocation that a registering runner lives in, by its name and Slurm job. None if it is not one of this store; an error
    /// if it has ended.
    pub(super) fn find_allocation_of_runner(
        &mut self,
        request: &RegisterRequest,
        tx: &mut Tx,
    ) -> Result<Option<AllocationKey>, CommandError> {
        let name = request.allocation.as_deref();
        let Some(number) = request.slurm_job_id.as_deref() else { return Ok(None) };
        let process = (number.to_owned(), request.host.clone(), i64::from(request.pid));
        if self.slurm.dismissed.contains(&process) {
            return Err(CommandError::AllocationEnded(number.to_owned()));
        }
        let live = || self.workflows.values().flat_map(|workflow| workflow.allocations.iter());
        let same_number = |row: &&AllocationRow| row.slurm_job_id.as_deref() == Some(number);
        let same_name = |row: &&AllocationRow| row.slurm_job_id.is_none() && name == Some(row.name().as_str());
        let found = live().find(same_number).or_else(|| live().find(same_name)).map(|row| (row.workflow, row.id));
        let Some(key) = found else {
            return match self.slurm.ended_jobs.contains(number) {
                true => Err(CommandError::AllocationEnded(number.to_owned())),
                false => Ok(None),
            };
        };
        // The controller may have crashed after `sbatch` and before it recorded the Slurm job.
        self.allocation_submitted(key, number, tx);
        self.allocation_started(key, tx.now.wall_ms, tx);
        Ok(Some(key))
    }

    /// Records the summary of the plan for a workflow.
    pub fn set_allocation_summary(&mut self, workflow: WorkflowId, summary: AllocationSummary, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get_mut(&workflow) else { return };
        if workflow.allocations.set_summary(summary) {
            workflow.refresh_conditions(tx);
        }
    }
}

/// Describes the size of an allocation.
fn size(row: &AllocationRow) -> String {
    let partition = row.partition.as_deref().map_or(String::new(), |name| format!("partition {name}, "));
    format!(" ({partition}{}, {})", count(row.nodes, "node"), format_duration(row.seconds))
}

impl LiveWorkflow {
    /// Marks an action as executed once Slurm has received all of its allocations.
    fn finish_submissions(&mut self, tx: &mut Tx) {
        for id in self.actions.begun_submissions() {
            let is_missing =
                |row: &AllocationRow| row.action == Some(id) && row.slurm_job_id.is_none() && row.ended_ms.is_none();
            if !self.allocations.iter().any(is_missing) {
                self.actions.execute(id, None, tx);
            }
        }
    }
}
