//! What a store should hold after changes, worked out with maps and nothing else.

use std::collections::BTreeMap;

use torc_api::state::Cause;
use torc_core::ids::{AllocationId, JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{
    ActionRow, AllocationRow, Changes, ClusterRow, JobRow, LastIds, ProfileRow, RecoveryRow, ResultRow, RunnerRow,
    Snapshot, StrayLease, UserDataRow, WorkflowRow,
};
use torc_store::FAILED_STATES;

type ResultKey = (WorkflowId, JobId, i32, i32);

/// Everything a store keeps that a load gives back.
#[derive(Default)]
pub struct Model {
    workflows: BTreeMap<WorkflowId, WorkflowRow>,
    profiles: BTreeMap<ProfileId, ProfileRow>,
    jobs: BTreeMap<JobId, JobRow>,
    results: BTreeMap<ResultKey, ResultRow>,
    user_data: BTreeMap<(WorkflowId, String), UserDataRow>,
    runners: BTreeMap<RunnerId, RunnerRow>,
    strays: BTreeMap<i64, StrayLease>,
    actions: BTreeMap<JobId, ActionRow>,
    recoveries: BTreeMap<JobId, RecoveryRow>,
    allocations: BTreeMap<AllocationId, AllocationRow>,
    clusters: BTreeMap<String, ClusterRow>,
    last: LastIds,
}

impl Model {
    /// Takes changes in.
    pub fn apply(&mut self, changes: &Changes) {
        self.raise(changes);
        self.workflows.extend(changes.workflows.iter().map(|row| (row.id, row.clone())));
        self.profiles.extend(changes.profiles.iter().map(|row| (row.id, row.clone())));
        self.jobs.extend(changes.jobs.iter().map(|row| (row.id, row.clone())));
        self.runners.extend(changes.runners.iter().map(|row| (row.id, row.clone())));
        for epoch in &changes.ended_strays {
            self.strays.remove(epoch);
        }
        self.strays.extend(changes.strays.iter().map(|row| (row.epoch, *row)));
        for update in &changes.job_updates {
            if let Some(job) = self.jobs.get_mut(&update.id) {
                (job.state, job.run, job.attempt) = (update.state, update.run, update.attempt);
                (job.epoch, job.runner, job.started_ms) = (update.epoch, update.runner, update.started_ms);
            }
        }
        for row in &changes.results {
            self.results.entry((row.workflow, row.job, row.run, row.attempt)).or_insert_with(|| row.clone());
        }
        for key in &changes.removed_user_data {
            self.user_data.remove(key);
        }
        for row in &changes.user_data {
            let loaded = row.written.clone().filter(|_| !row.name.starts_with("__torc_lineage__"));
            let row = UserDataRow { written: loaded, ..row.clone() };
            self.user_data.insert((row.workflow, row.name.clone()), row);
        }
        self.actions.extend(changes.actions.iter().map(|row| (row.id, row.clone())));
        self.actions.retain(|id, _| !changes.removed_actions.contains(id));
        self.recoveries.extend(changes.recoveries.iter().map(|row| (row.job, row.clone())));
        self.recoveries.retain(|job, _| !changes.ended_recoveries.contains(job));
        self.allocations.extend(changes.allocations.iter().map(|row| (row.id, row.clone())));
        self.clusters.extend(changes.clusters.iter().map(|row| (row.name.clone(), row.clone())));
        self.clusters.retain(|name, _| !changes.removed_clusters.contains(name));
        for id in &changes.removed_jobs {
            self.jobs.remove(id);
        }
        for id in &changes.deleted_workflows {
            self.workflows.remove(id);
            self.profiles.retain(|_, row| row.workflow != *id);
            self.jobs.retain(|_, row| row.workflow != *id);
            self.results.retain(|_, row| row.workflow != *id);
            self.user_data.retain(|(workflow, _), _| workflow != id);
            self.strays.retain(|_, row| row.workflow != *id);
            self.actions.retain(|_, row| row.workflow != *id);
            self.recoveries.retain(|_, row| row.workflow != *id);
            self.allocations.retain(|_, row| row.workflow != *id);
        }
    }

    fn raise(&mut self, changes: &Changes) {
        let last = &mut self.last;
        changes.workflows.iter().for_each(|row| last.workflow = last.workflow.max(row.id.0));
        changes.deleted_workflows.iter().for_each(|id| last.workflow = last.workflow.max(id.0));
        changes.profiles.iter().for_each(|row| last.profile = last.profile.max(row.id.0));
        changes.jobs.iter().for_each(|row| last.job = last.job.max(row.id.0));
        changes.jobs.iter().for_each(|row| last.epoch = last.epoch.max(row.epoch));
        changes.job_updates.iter().for_each(|row| last.epoch = last.epoch.max(row.epoch));
        changes.user_data.iter().for_each(|row| last.epoch = last.epoch.max(row.epoch));
        changes.strays.iter().for_each(|row| last.epoch = last.epoch.max(row.epoch));
        changes.actions.iter().for_each(|row| last.job = last.job.max(row.id.0));
        changes.removed_actions.iter().for_each(|id| last.job = last.job.max(id.0));
        changes.actions.iter().for_each(|row| last.epoch = last.epoch.max(row.errand.epoch));
        changes.recoveries.iter().for_each(|row| last.epoch = last.epoch.max(row.errand.epoch));
        changes.runners.iter().for_each(|row| last.runner = last.runner.max(row.id.0));
        changes.allocations.iter().for_each(|row| last.allocation = last.allocation.max(row.id.0));
        changes.events.iter().for_each(|row| last.event = last.event.max(row.sequence));
    }

    /// What a load should give.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            workflows: self.workflows.values().cloned().collect(),
            profiles: self.profiles.values().cloned().collect(),
            jobs: self.jobs.values().cloned().collect(),
            user_data: self.user_data.values().cloned().collect(),
            runners: self.runners.values().filter(|row| row.ended_ms.is_none()).cloned().collect(),
            strays: self.strays.values().copied().collect(),
            actions: self.actions.values().cloned().collect(),
            recoveries: self.recoveries.values().cloned().collect(),
            failures: self.failures(),
            latest_failures: self.latest_failures(),
            allocations: self.allocations.values().filter(|row| row.ended_ms.is_none()).cloned().collect(),
            finished_allocations: self.finished_allocations(),
            ended_slurm_jobs: self.ended_allocations().filter_map(|row| row.slurm_job_id.clone()).collect(),
            clusters: self.clusters.values().cloned().collect(),
            identity: String::new(),
            last: self.last,
        }
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

    fn failures(&self) -> Vec<(JobId, Cause, i32)> {
        let mut counts: BTreeMap<(JobId, &str), (Cause, i32)> = BTreeMap::new();
        for row in self.results.values() {
            let is_current = self.jobs.get(&row.job).is_some_and(|job| job.run == row.run);
            if let (true, Some(cause)) = (is_current, row.cause) {
                counts.entry((row.job, cause.as_str())).or_insert((cause, 0)).1 += 1;
            }
        }
        counts.into_iter().map(|((job, _), (cause, count))| (job, cause, count)).collect()
    }

    fn latest_failures(&self) -> Vec<ResultRow> {
        let of_workflow = |workflow: &WorkflowRow| {
            let mut rows: Vec<ResultRow> = self
                .results
                .values()
                .filter(|row| row.workflow == workflow.id && row.run == workflow.run && row.cause.is_some())
                .filter(|row| FAILED_STATES.contains(&row.state) && self.jobs.contains_key(&row.job))
                .cloned()
                .collect();
            rows.sort_by_key(|row| (row.ended_ms, row.job, row.attempt));
            rows.split_off(rows.len().saturating_sub(20))
        };
        self.workflows.values().flat_map(of_workflow).collect()
    }
}
