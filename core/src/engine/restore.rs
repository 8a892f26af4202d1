//! Start-up: everything that was written becomes the live state again.

use std::collections::{BTreeMap, HashMap};

use torc_api::state::Cause;

use super::Engine;
use super::runner::{HeldLease, LeasedTask, RevokedLease, Runner};
use super::workflow::{Workflow, read_spec};
use crate::ids::{JobId, Now, WorkflowId};
use crate::rows::{
    ActionRow, AllocationRow, DetachedLease, DetachedState, JobRow, ProfileRow, RecoveryRow, ResultRow, Snapshot,
    UserDataRow,
};

/// A stored document cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the stored document of workflow {workflow} cannot be read")]
pub struct UnreadableDocument {
    /// Whose document.
    pub workflow: WorkflowId,
    /// Why.
    #[source]
    pub source: serde_json::Error,
}

impl Engine {
    /// The live state of what was stored. Every runner gets its full lease time again.
    pub fn restore(snapshot: Snapshot, now: Now) -> Result<Self, UnreadableDocument> {
        let mut engine = Self {
            last: snapshot.last,
            identity: snapshot.identity,
            ended_slurm_jobs: snapshot.ended_slurm_jobs.into_iter().collect(),
            clusters: snapshot.clusters.into_iter().map(|row| (row.name.clone(), row)).collect(),
            ..Self::default()
        };
        let mut profiles: HashMap<WorkflowId, Vec<ProfileRow>> = HashMap::new();
        for profile in snapshot.profiles {
            profiles.entry(profile.workflow).or_default().push(profile);
        }
        let mut jobs: HashMap<WorkflowId, Vec<JobRow>> = HashMap::new();
        for job in snapshot.jobs {
            jobs.entry(job.workflow).or_default().push(job);
        }
        let mut data: HashMap<WorkflowId, Vec<UserDataRow>> = HashMap::new();
        for row in snapshot.user_data {
            data.entry(row.workflow).or_default().push(row);
        }
        let mut actions: HashMap<WorkflowId, Vec<ActionRow>> = HashMap::new();
        for action in snapshot.actions {
            actions.entry(action.workflow).or_default().push(action);
        }
        let mut recoveries: HashMap<WorkflowId, Vec<RecoveryRow>> = HashMap::new();
        for recovery in snapshot.recoveries {
            recoveries.entry(recovery.workflow).or_default().push(recovery);
        }
        for runner in snapshot.runners {
            engine.runners.insert(runner.id, Runner::new(runner, now));
        }
        for row in snapshot.workflows {
            let id = row.id;
            let spec = read_spec(&row.document).map_err(|source| UnreadableDocument { workflow: id, source })?;
            let rows = jobs.remove(&id).unwrap_or_default();
            let mut workflow = Workflow::build(row, spec, profiles.remove(&id).unwrap_or_default(), &rows);
            let data = data.remove(&id).unwrap_or_default();
            workflow.data = data.into_iter().map(|row| (row.name.clone(), row)).collect();
            workflow.set_actions(actions.remove(&id).unwrap_or_default());
            for row in recoveries.remove(&id).unwrap_or_default() {
                workflow.recoveries.insert(row);
            }
            engine.adopt_holdings(&workflow);
            engine.names.insert((workflow.row.namespace.clone(), workflow.row.name.clone()), id);
            if !workflow.is_over() {
                engine.live.insert(id);
            }
            engine.workflows.insert(id, workflow);
        }
        for lease in snapshot.detached_leases {
            engine.restore_detached(lease);
        }
        engine.restore_allocations(snapshot.allocations, snapshot.finished_allocations);
        engine.restore_failures(snapshot.failures, &snapshot.latest_failures);
        Ok(engine)
    }

    /// What runners held before the restart they still hold, until they say otherwise.
    fn adopt_holdings(&mut self, workflow: &Workflow) {
        for job in workflow.jobs.iter().filter(|job| job.state.is_held()) {
            if let Some(runner) = job.runner.and_then(|id| self.runners.get_mut(&id)) {
                runner.held.insert(job.id, HeldLease { workflow: workflow.id(), granted_in: 0 });
            }
        }
        for (task, holder, key) in workflow.held_tasks() {
            if let Some(runner) = self.runners.get_mut(&holder) {
                runner.tasks.insert(task, LeasedTask { key, granted_in: 0 });
            }
        }
    }

    fn restore_detached(&mut self, lease: DetachedLease) {
        let Some(workflow) = self.workflows.get_mut(&lease.workflow) else { return };
        if !workflow.has_what_waits_for(&lease) {
            return;
        }
        match (lease.fate, self.runners.get_mut(&lease.runner)) {
            (DetachedState::Expired, _) => workflow.expired_leases.entry(lease.job).or_default().push(lease),
            (DetachedState::Revoked, Some(runner)) => {
                runner.ending.insert(lease.epoch, RevokedLease { lease, granted_in: 0 });
                workflow.await_end_of(&lease);
            }
            // A runner that leaves takes what it was ending along, in the same commit.
            (DetachedState::Revoked, None) => {}
        }
    }

    /// Allocations, and who lives in them.
    fn restore_allocations(&mut self, live: Vec<AllocationRow>, finished: Vec<(WorkflowId, i64)>) {
        for (workflow, count) in finished {
            if let Some(workflow) = self.workflows.get_mut(&workflow) {
                workflow.allocations.finished = count;
            }
        }
        for row in live {
            let lives_here =
                |runner: &&mut Runner| row.slurm_job_id.is_some() && runner.row.slurm_job_id == row.slurm_job_id;
            for runner in self.runners.values_mut().filter(lives_here) {
                runner.allocation = Some((row.workflow, row.id));
            }
            if let Some(workflow) = self.workflows.get_mut(&row.workflow) {
                workflow.allocations.live.insert(row.id, row);
            }
        }
    }

    fn restore_failures(&mut self, counts: Vec<(JobId, Cause, i32)>, latest: &[ResultRow]) {
        // One pass over all jobs: looking for each one's workflow would take as long as there are workflows.
        let mut of_jobs: HashMap<JobId, BTreeMap<Cause, i32>> = HashMap::new();
        for (job, cause, count) in counts {
            of_jobs.entry(job).or_default().insert(cause, count);
        }
        for workflow in self.workflows.values_mut() {
            let failed = workflow.jobs.iter().filter_map(|job| Some((job.id, of_jobs.remove(&job.id)?)));
            workflow.failed_attempts = failed.collect();
            workflow.recount_recoveries();
        }
        for result in latest {
            let Some(workflow) = self.workflows.get_mut(&result.workflow) else { continue };
            workflow.remember_failure(result);
        }
    }
}
