//! A database in memory for tests: [`Changes`] go into plain maps, and a [`Snapshot`] is read from them.
//!
//! It is the model of the store. Tests of the engine use it in place of SQLite, and tests of the store compare SQLite with it, so the
//! two cannot disagree about what a row means.

use std::collections::{BTreeMap, BTreeSet};

use torc_api::slurm_stats::SlurmStats;
use torc_api::state::{Cause, JobState};

use crate::ids::{AllocationId, JobId, ProfileId, RunnerId, WorkflowId};
use crate::lineage;
use crate::rows::{
    ActionRow, AllocationRow, AuditRow, Changes, ClusterRow, DetachedLease, EventRow, FileRow, JobRow, JobUpdate,
    LastIds, ProfileRow, RecoveryRow, ResultRow, RunnerRow, Snapshot, UserDataRow, WorkflowRow,
};

/// The key of a result: (job, run, attempt).
pub type ResultKey = (JobId, i32, i32);

/// The key of accounting data: (workflow, job, run, attempt).
pub type StatsKey = (i64, i64, i32, i32);

/// Number of failed results that a snapshot has of each workflow.
const LATEST_FAILURES: usize = 20;

/// Everything that a store keeps of changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Database {
    /// Workflows that were not deleted.
    pub workflows: BTreeMap<WorkflowId, WorkflowRow>,
    /// Profiles that jobs of these workflows share.
    pub profiles: BTreeMap<ProfileId, ProfileRow>,
    /// Jobs that are part of their workflow.
    pub jobs: BTreeMap<JobId, JobRow>,
    /// Jobs that are no longer part of their workflow.
    pub removed_jobs: BTreeMap<JobId, JobRow>,
    /// Runners, including those that left.
    pub runners: BTreeMap<RunnerId, RunnerRow>,
    /// Detached leases by their numbers.
    pub detached_leases: BTreeMap<i64, DetachedLease>,
    /// Actions, and their parts for each worker.
    pub actions: BTreeMap<JobId, ActionRow>,
    /// Jobs that wait for a recovery script.
    pub recoveries: BTreeMap<JobId, RecoveryRow>,
    /// Slurm allocations, including those that are over.
    pub allocations: BTreeMap<AllocationId, AllocationRow>,
    /// Slurm clusters that were not deleted.
    pub clusters: BTreeMap<String, ClusterRow>,
    /// Results in the order in which they were written.
    pub results: Vec<ResultRow>,
    /// Indexes into `results`, for lookups and overwrites.
    by_attempt: BTreeMap<(ResultKey, WorkflowId), usize>,
    /// Slurm's accounting of steps.
    pub slurm_stats: BTreeMap<StatsKey, SlurmStats>,
    /// Files as jobs saw them.
    pub files: BTreeMap<(WorkflowId, JobId, String), FileRow>,
    /// User data, including the values of loops.
    pub user_data: BTreeMap<(WorkflowId, String), UserDataRow>,
    /// Events in the order in which they were written.
    pub events: Vec<EventRow>,
    /// The audit in the order in which it was written.
    pub audit: Vec<AuditRow>,
    /// The identity of the store.
    pub identity: String,
    last: LastIds,
}

impl Database {
    /// Creates an empty database with this identity.
    pub fn with_identity(identity: String) -> Self {
        Self { identity, ..Self::default() }
    }

    /// Panics if changes break a promise of the engine. A store does not depend on these promises, so its tests do not check them.
    pub fn check(&self, changes: &Changes) {
        let mut profiles: BTreeSet<ProfileId> = self.profiles.keys().copied().collect();
        for row in &changes.profiles {
            assert!(profiles.insert(row.id), "profile {} is written twice", row.id);
        }
        for row in &changes.jobs {
            assert!(profiles.contains(&row.profile), "job {} has an unknown profile", row.name);
        }
        let mut attempts = BTreeSet::new();
        for row in &changes.results {
            let key = (row.job, row.run, row.attempt);
            let is_new = self.result(key).is_none() && attempts.insert(key);
            assert!(is_new, "attempt {}/{}/{} has two results", row.job, row.run, row.attempt);
        }
        let mut last = self.last.event;
        for event in &changes.events {
            assert!(event.sequence > last, "event {} comes after event {last}", event.sequence);
            last = event.sequence;
        }
        for row in &changes.workflows {
            let same = self.workflows.get(&row.id).filter(|before| before.generation == row.generation);
            let is_same = same.is_none_or(|before| before.document == row.document);
            assert!(is_same, "generation {} of workflow {} has two documents", row.generation, row.id);
        }
        for row in &changes.detached_leases {
            assert!(
                !changes.ended_leases.contains(&row.lease_id),
                "detached lease {} is written and ended",
                row.lease_id
            );
        }
        for row in &changes.user_data {
            let key = (row.workflow, row.name.clone());
            assert!(!changes.removed_user_data.contains(&key), "user data {key:?} is written and removed");
        }
    }

    /// Writes one group, in the order that the contract of [`Changes`] promises.
    pub fn write(&mut self, changes: &Changes) {
        self.raise_last_ids(changes);
        let removed: BTreeSet<JobId> = changes.removed_jobs.iter().copied().collect();
        for id in &removed {
            self.removed_jobs.extend(self.jobs.remove(id).map(|row| (*id, row)));
        }
        for id in &changes.deleted_workflows {
            self.delete_workflow(*id);
        }
        // Rows of a workflow that the same group deletes are not kept, except events.
        let is_kept = |workflow: WorkflowId| !changes.deleted_workflows.contains(&workflow);
        for row in changes.workflows.iter().filter(|row| is_kept(row.id)) {
            self.write_workflow(row);
        }
        let profiles = changes.profiles.iter().filter(|row| is_kept(row.workflow));
        self.profiles.extend(profiles.map(|row| (row.id, row.clone())));
        for row in changes.jobs.iter().filter(|row| is_kept(row.workflow)) {
            self.jobs.remove(&row.id);
            self.removed_jobs.remove(&row.id);
            let rows = if removed.contains(&row.id) { &mut self.removed_jobs } else { &mut self.jobs };
            rows.insert(row.id, row.clone());
        }
        for update in &changes.job_updates {
            for rows in [&mut self.jobs, &mut self.removed_jobs] {
                rows.entry(update.id).and_modify(|row| move_row(row, update));
            }
        }
        for row in changes.results.iter().filter(|row| is_kept(row.workflow)) {
            self.write_result(row);
        }
        self.write_data(changes, is_kept);
        self.write_leases(changes, is_kept);
        self.write_slurm(changes, is_kept);
        self.runners.extend(changes.runners.iter().map(|row| (row.id, row.clone())));
        self.events.extend(changes.events.iter().cloned());
        self.audit.extend(changes.audit.iter().cloned());
    }

    fn delete_workflow(&mut self, id: WorkflowId) {
        self.workflows.remove(&id);
        self.profiles.retain(|_, row| row.workflow != id);
        self.jobs.retain(|_, row| row.workflow != id);
        self.removed_jobs.retain(|_, row| row.workflow != id);
        self.retain_results(|row| row.workflow != id);
        self.slurm_stats.retain(|_, row| row.workflow != id.0);
        self.files.retain(|_, row| row.workflow != id);
        self.user_data.retain(|_, row| row.workflow != id);
        self.detached_leases.retain(|_, row| row.workflow != id);
        self.actions.retain(|_, row| row.workflow != id);
        self.recoveries.retain(|_, row| row.workflow != id);
        self.allocations.retain(|_, row| row.workflow != id);
        self.events.retain(|row| row.workflow != Some(id));
    }

    /// Writes a row. A row of the same generation does not change the document.
    fn write_workflow(&mut self, row: &WorkflowRow) {
        let mut row = row.clone();
        if let Some(before) = self.workflows.get(&row.id).filter(|before| before.generation == row.generation) {
            row.document = before.document.clone();
        }
        self.workflows.insert(row.id, row);
    }

    /// Writes a result, unless the attempt has one.
    fn write_result(&mut self, row: &ResultRow) {
        let key = ((row.job, row.run, row.attempt), row.workflow);
        if let std::collections::btree_map::Entry::Vacant(free) = self.by_attempt.entry(key) {
            free.insert(self.results.len());
            self.results.push(row.clone());
        }
    }

    fn write_data(&mut self, changes: &Changes, is_kept: impl Fn(WorkflowId) -> bool) {
        for row in changes.slurm_stats.iter().filter(|row| is_kept(WorkflowId(row.workflow))) {
            self.slurm_stats.insert((row.workflow, row.job, row.run, row.attempt), row.clone());
        }
        for row in changes.files.iter().filter(|row| is_kept(row.workflow)) {
            self.files.insert((row.workflow, row.job, row.path.clone()), row.clone());
        }
        self.user_data.retain(|key, _| !changes.removed_user_data.contains(key));
        for row in changes.user_data.iter().filter(|row| is_kept(row.workflow)) {
            self.user_data.insert((row.workflow, row.name.clone()), row.clone());
        }
    }

    fn write_leases(&mut self, changes: &Changes, is_kept: impl Fn(WorkflowId) -> bool) {
        self.detached_leases.retain(|lease_id, _| !changes.ended_leases.contains(lease_id));
        let detached_leases = changes.detached_leases.iter().filter(|row| is_kept(row.workflow));
        self.detached_leases.extend(detached_leases.map(|row| (row.lease_id, *row)));
        let actions = changes.actions.iter().filter(|row| is_kept(row.workflow));
        self.actions.extend(actions.map(|row| (row.id, row.clone())));
        self.actions.retain(|id, _| !changes.removed_actions.contains(id));
        let recoveries = changes.recoveries.iter().filter(|row| is_kept(row.workflow));
        self.recoveries.extend(recoveries.map(|row| (row.job, row.clone())));
        self.recoveries.retain(|job, _| !changes.ended_recoveries.contains(job));
    }

    fn write_slurm(&mut self, changes: &Changes, is_kept: impl Fn(WorkflowId) -> bool) {
        let allocations = changes.allocations.iter().filter(|row| is_kept(row.workflow));
        self.allocations.extend(allocations.map(|row| (row.id, row.clone())));
        self.clusters.extend(changes.clusters.iter().map(|row| (row.name.clone(), row.clone())));
        self.clusters.retain(|name, _| !changes.removed_clusters.contains(name));
    }

    fn raise_last_ids(&mut self, changes: &Changes) {
        let last = &mut self.last;
        let raise = |slot: &mut i64, ids: &mut dyn Iterator<Item = i64>| *slot = ids.fold(*slot, i64::max);
        raise(&mut last.workflow, &mut changes.workflows.iter().map(|row| row.id.0));
        raise(&mut last.workflow, &mut changes.deleted_workflows.iter().map(|id| id.0));
        raise(&mut last.profile, &mut changes.profiles.iter().map(|row| row.id.0));
        raise(&mut last.job, &mut changes.jobs.iter().map(|row| row.id.0));
        raise(&mut last.job, &mut changes.actions.iter().map(|row| row.id.0));
        raise(&mut last.job, &mut changes.removed_actions.iter().map(|id| id.0));
        raise(&mut last.lease_id, &mut changes.jobs.iter().map(|row| row.lease_id));
        raise(&mut last.lease_id, &mut changes.actions.iter().map(|row| row.lease.lease_id));
        raise(&mut last.lease_id, &mut changes.recoveries.iter().map(|row| row.lease.lease_id));
        raise(&mut last.lease_id, &mut changes.job_updates.iter().map(|update| update.lease_id));
        raise(&mut last.lease_id, &mut changes.user_data.iter().map(|row| row.lease_id));
        raise(&mut last.lease_id, &mut changes.detached_leases.iter().map(|lease| lease.lease_id));
        raise(&mut last.runner, &mut changes.runners.iter().map(|row| row.id.0));
        raise(&mut last.allocation, &mut changes.allocations.iter().map(|row| row.id.0));
        raise(&mut last.event, &mut changes.events.iter().map(|event| event.sequence));
    }

    /// Returns what a load of the store returns.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            workflows: self.workflows.values().cloned().collect(),
            profiles: self.profiles.values().cloned().collect(),
            jobs: self.jobs.values().cloned().collect(),
            user_data: self.user_data.values().map(without_values_of_loops).collect(),
            runners: self.runners.values().filter(|row| row.ended_ms.is_none()).cloned().collect(),
            detached_leases: self.detached_leases.values().copied().collect(),
            actions: self.actions.values().cloned().collect(),
            recoveries: self.recoveries.values().cloned().collect(),
            failures: self.failures(),
            latest_failures: self.latest_failures(),
            allocations: self.allocations.values().filter(|row| !row.status.is_over()).cloned().collect(),
            finished_allocations: self.finished_allocations(),
            ended_slurm_jobs: self.ended_allocations().filter_map(|row| row.slurm_job_id.clone()).collect(),
            clusters: self.clusters.values().cloned().collect(),
            identity: self.identity.clone(),
            last: self.last,
        }
    }

    /// Returns the highest numbers assigned so far.
    pub fn last(&self) -> LastIds {
        self.last
    }

    /// Returns the result of an attempt.
    pub fn result(&self, key: ResultKey) -> Option<&ResultRow> {
        let first = (key, WorkflowId(i64::MIN));
        let ((found, _), index) = self.by_attempt.range(first..).next()?;
        self.results.get(*index).filter(|_| *found == key)
    }

    /// Returns the results of a job in the order in which they were written.
    pub fn results_of(&self, job: JobId) -> Vec<&ResultRow> {
        self.results.iter().filter(|row| row.job == job).collect()
    }

    /// Removes the results for which `is_kept` returns false.
    pub fn retain_results(&mut self, is_kept: impl FnMut(&ResultRow) -> bool) {
        self.results.retain(is_kept);
        let keys = self.results.iter().map(|row| ((row.job, row.run, row.attempt), row.workflow));
        self.by_attempt = keys.zip(0..).collect();
    }

    fn ended_allocations(&self) -> impl Iterator<Item = &AllocationRow> {
        self.allocations.values().filter(|row| row.ended_ms.is_some())
    }

    fn finished_allocations(&self) -> Vec<(WorkflowId, i64)> {
        let mut counts = BTreeMap::new();
        for row in self.ended_allocations() {
            *counts.entry(row.workflow).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// Returns the number of failures by job and cause, sorted by both.
    fn failures(&self) -> Vec<(JobId, Cause, i32)> {
        let mut counts: BTreeMap<(JobId, &str), (Cause, i32)> = BTreeMap::new();
        for row in &self.results {
            if let (Some(cause), Some(job)) = (row.cause, self.jobs.get(&row.job))
                && job.run == row.run
            {
                counts.entry((row.job, cause.as_str())).or_insert((cause, 0)).1 += 1;
            }
        }
        counts.into_iter().map(|((job, _), (cause, count))| (job, cause, count)).collect()
    }

    fn latest_failures(&self) -> Vec<ResultRow> {
        let is_failure =
            |row: &ResultRow| matches!(row.state, JobState::Failed | JobState::Terminated) && row.cause.is_some();
        let of_workflow = |workflow: &WorkflowRow| {
            let current = self.results.iter().filter(|row| row.workflow == workflow.id && row.run == workflow.run);
            let known = current.filter(|row| is_failure(row) && self.jobs.contains_key(&row.job));
            let mut rows: Vec<ResultRow> = known.cloned().collect();
            rows.sort_by_key(|row| (row.ended_ms, row.job, row.attempt));
            rows.split_off(rows.len().saturating_sub(LATEST_FAILURES))
        };
        self.workflows.values().flat_map(of_workflow).collect()
    }
}

fn move_row(row: &mut JobRow, update: &JobUpdate) {
    let JobUpdate { id: _, state, run, attempt, lease_id, runner, started_ms } = *update;
    (row.state, row.run, row.attempt) = (state, run, attempt);
    (row.lease_id, row.runner, row.started_ms) = (lease_id, runner, started_ms);
}

/// Returns the row without the value of a loop, which the engine never reads from its state.
fn without_values_of_loops(row: &UserDataRow) -> UserDataRow {
    let loaded = row.written.clone().filter(|_| !row.name.starts_with(lineage::PREFIX));
    UserDataRow { written: loaded, ..row.clone() }
}
