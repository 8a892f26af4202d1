//! Collects the changes of a transaction until they are written.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use torc_api::event_reason::EventReason;
use torc_api::state::JobState;

use crate::ids::{AllocationId, JobId, Now, WorkflowId};
use crate::rows::{
    ActionRow, AllocationRow, AuditRow, Changes, ClusterRow, DetachedLease, EventRow, JobRow, JobUpdate, RecoveryRow,
    ResultRow, RunnerRow, UserDataRow, WorkflowRow,
};

/// The changes of a transaction.
#[derive(Debug, Default)]
pub(super) struct ChangeSet {
    changes: Changes,
    updates: HashMap<JobId, usize>,
    moves: HashMap<WorkflowId, Vec<(JobId, i32, JobState)>>,
    workflows: HashMap<WorkflowId, usize>,
    /// By lease number; none for leases that have ended.
    detached_leases: BTreeMap<i64, Option<DetachedLease>>,
    /// None for actions that were removed.
    actions: BTreeMap<JobId, Option<ActionRow>>,
    /// None for scripts that have ended.
    recoveries: BTreeMap<JobId, Option<RecoveryRow>>,
    allocations: BTreeMap<AllocationId, AllocationRow>,
}

impl ChangeSet {
    /// Returns the workflows that have changed.
    pub(super) fn changed_workflows(&self) -> BTreeSet<WorkflowId> {
        let actions = self.actions.values().flatten().map(|row| &row.workflow);
        let allocations = self.allocations.values().map(|row| &row.workflow);
        self.moves.keys().chain(self.workflows.keys()).chain(actions).chain(allocations).copied().collect()
    }

    /// Adds one event for each workflow, with the jobs whose state changed.
    pub(super) fn announce_moves(&mut self, now: Now) {
        let mut moves: Vec<_> = std::mem::take(&mut self.moves).into_iter().collect();
        moves.sort_by_key(|(workflow, _)| *workflow);
        for (workflow, jobs) in moves {
            self.changes.events.push(EventRow {
                time_ms: now.wall_ms,
                workflow: Some(workflow),
                reason: EventReason::JobsChanged.to_string(),
                jobs,
                ..EventRow::default()
            });
        }
    }

    /// Returns what has to be written, with numbered events.
    pub(super) fn finish(mut self, last_event: &mut i64) -> Changes {
        for (lease_id, detached) in self.detached_leases {
            match detached {
                Some(lease) => self.changes.detached_leases.push(lease),
                None => self.changes.ended_leases.push(lease_id),
            }
        }
        for (id, row) in self.actions {
            match row {
                Some(row) => self.changes.actions.push(row),
                None => self.changes.removed_actions.push(id),
            }
        }
        for (job, row) in self.recoveries {
            match row {
                Some(row) => self.changes.recoveries.push(row),
                None => self.changes.ended_recoveries.push(job),
            }
        }
        self.changes.allocations.extend(self.allocations.into_values());
        for event in &mut self.changes.events {
            *last_event += 1;
            event.sequence = *last_event;
        }
        self.changes
    }

    /// Records a change of the state of a job.
    pub(super) fn moved(&mut self, workflow: WorkflowId, update: JobUpdate) {
        self.moves.entry(workflow).or_default().push((update.id, update.attempt, update.state));
        self.updated(update);
    }

    /// Records a change of a job that is no change of state, e.g. of its runner.
    pub(super) fn updated(&mut self, update: JobUpdate) {
        match self.updates.get(&update.id) {
            Some(index) => self.changes.job_updates[*index] = update,
            None => {
                self.updates.insert(update.id, self.changes.job_updates.len());
                self.changes.job_updates.push(update);
            }
        }
    }

    /// Records a change of the definition of a job. It replaces an earlier update of the same transaction.
    pub(super) fn job(&mut self, row: JobRow) {
        if let Some(index) = self.updates.get(&row.id) {
            self.changes.job_updates[*index] = JobUpdate {
                id: row.id,
                state: row.state,
                run: row.run,
                attempt: row.attempt,
                lease_id: row.lease_id,
                runner: row.runner,
                started_ms: row.started_ms,
            };
        }
        self.changes.jobs.push(row);
    }

    pub(super) fn workflow(&mut self, row: &WorkflowRow) {
        match self.workflows.get(&row.id) {
            Some(index) => self.changes.workflows[*index] = row.clone(),
            None => {
                self.workflows.insert(row.id, self.changes.workflows.len());
                self.changes.workflows.push(row.clone());
            }
        }
    }

    pub(super) fn runner(&mut self, row: &RunnerRow) {
        self.changes.runners.retain(|known| known.id != row.id);
        self.changes.runners.push(row.clone());
    }

    pub(super) fn action(&mut self, row: &ActionRow) {
        self.actions.insert(row.id, Some(row.clone()));
    }

    pub(super) fn action_removed(&mut self, id: JobId) {
        self.actions.insert(id, None);
    }

    pub(super) fn recovery(&mut self, row: &RecoveryRow) {
        self.recoveries.insert(row.job, Some(row.clone()));
    }

    pub(super) fn recovery_ended(&mut self, job: JobId) {
        self.recoveries.insert(job, None);
    }

    pub(super) fn allocation(&mut self, row: &AllocationRow) {
        self.allocations.insert(row.id, row.clone());
    }

    pub(super) fn cluster(&mut self, row: &ClusterRow) {
        self.changes.removed_clusters.retain(|name| *name != row.name);
        self.changes.clusters.retain(|known| known.name != row.name);
        self.changes.clusters.push(row.clone());
    }

    pub(super) fn cluster_removed(&mut self, name: &str) {
        self.changes.clusters.retain(|known| known.name != name);
        self.changes.removed_clusters.push(name.to_owned());
    }

    pub(super) fn result(&mut self, row: ResultRow) {
        self.changes.results.push(row);
    }

    pub(super) fn detached(&mut self, lease: DetachedLease) {
        self.detached_leases.insert(lease.lease_id, Some(lease));
    }

    pub(super) fn detached_ended(&mut self, lease_id: i64) {
        self.detached_leases.insert(lease_id, None);
    }

    /// Records new or changed user data.
    pub(super) fn data(&mut self, row: UserDataRow) {
        self.changes.removed_user_data.retain(|(workflow, name)| (*workflow, name) != (row.workflow, &row.name));
        self.changes.user_data.push(row);
    }

    /// Records removed user data.
    pub(super) fn data_removed(&mut self, workflow: WorkflowId, name: String) {
        self.changes.user_data.retain(|row| (row.workflow, &row.name) != (workflow, &name));
        self.changes.removed_user_data.push((workflow, name));
    }

    pub(super) fn event(&mut self, row: EventRow) {
        self.changes.events.push(row);
    }

    /// Returns whether the transaction already has an event with this reason.
    pub(super) fn has_event(&self, workflow: WorkflowId, reason: EventReason) -> bool {
        self.changes.events.iter().any(|event| event.workflow == Some(workflow) && event.reason == reason.as_str())
    }

    pub(super) fn audit(&mut self, row: AuditRow) {
        self.changes.audit.push(row);
    }

    /// Returns the lists of rows that need no deduplication.
    pub(super) fn rows(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// Records that a workflow is deleted, and drops all of its other changes.
    pub(super) fn deleted(&mut self, workflow: WorkflowId, jobs: impl Fn(JobId) -> bool) {
        self.moves.remove(&workflow);
        self.detached_leases.retain(|_, detached| detached.is_none_or(|lease| lease.workflow != workflow));
        self.changes.job_updates.retain(|update| !jobs(update.id));
        self.updates = self.changes.job_updates.iter().enumerate().map(|(index, update)| (update.id, index)).collect();
        self.changes.workflows.retain(|row| row.id != workflow);
        self.workflows = self.changes.workflows.iter().enumerate().map(|(index, row)| (row.id, index)).collect();
        self.changes.jobs.retain(|row| row.workflow != workflow);
        self.changes.profiles.retain(|row| row.workflow != workflow);
        self.changes.results.retain(|row| row.workflow != workflow);
        self.changes.slurm_stats.retain(|row| row.workflow != workflow.0);
        self.changes.files.retain(|row| row.workflow != workflow);
        self.changes.user_data.retain(|row| row.workflow != workflow);
        self.changes.removed_user_data.retain(|(id, _)| *id != workflow);
        self.actions.retain(|_, row| row.as_ref().is_none_or(|row| row.workflow != workflow));
        self.recoveries.retain(|job, _| !jobs(*job));
        self.allocations.retain(|_, row| row.workflow != workflow);
        self.changes.deleted_workflows.push(workflow);
    }
}
