//! What is durable: changes are written into plain maps, and a snapshot is read from them again.

use std::collections::BTreeMap;

use torc_api::state::{Cause, JobState};

use crate::ids::{AllocationId, JobId, ProfileId, RunnerId, WorkflowId};
use crate::rows::{
    ActionRow, AllocationRow, Changes, ClusterRow, EventRow, FileRow, JobRow, JobUpdate, LastIds, ProfileRow,
    RecoveryRow, ResultRow, RunnerRow, Snapshot, StrayLease, UserDataRow, WorkflowRow,
};

/// (job, run, attempt).
pub type ResultKey = (JobId, i32, i32);

/// The oracle of durability.
#[derive(Clone, Debug, Default)]
pub struct Database {
    pub workflows: BTreeMap<WorkflowId, WorkflowRow>,
    pub profiles: BTreeMap<ProfileId, ProfileRow>,
    pub jobs: BTreeMap<JobId, JobRow>,
    pub runners: BTreeMap<RunnerId, RunnerRow>,
    pub strays: BTreeMap<i64, StrayLease>,
    pub actions: BTreeMap<JobId, ActionRow>,
    pub recoveries: BTreeMap<JobId, RecoveryRow>,
    pub allocations: BTreeMap<AllocationId, AllocationRow>,
    pub clusters: BTreeMap<String, ClusterRow>,
    /// In the order in which they were written.
    pub results: Vec<ResultRow>,
    by_attempt: BTreeMap<ResultKey, usize>,
    pub files: BTreeMap<(JobId, String), FileRow>,
    pub user_data: BTreeMap<(WorkflowId, String), UserDataRow>,
    pub events: Vec<EventRow>,
    last: LastIds,
}

impl Database {
    /// Writes one group, in the order that the contract of [`Changes`] promises.
    pub fn write(&mut self, changes: &Changes) {
        self.raise_last_ids(changes);
        for id in &changes.deleted_workflows {
            self.workflows.remove(id);
            self.profiles.retain(|_, row| row.workflow != *id);
            self.jobs.retain(|_, row| row.workflow != *id);
            self.files.retain(|_, row| row.workflow != *id);
            self.user_data.retain(|(workflow, _), _| workflow != id);
            self.strays.retain(|_, lease| lease.workflow != *id);
            self.actions.retain(|_, row| row.workflow != *id);
            self.recoveries.retain(|_, row| row.workflow != *id);
            self.allocations.retain(|_, row| row.workflow != *id);
        }
        for row in &changes.workflows {
            self.workflows.insert(row.id, row.clone());
        }
        for row in &changes.profiles {
            assert!(self.profiles.insert(row.id, row.clone()).is_none(), "profile {} is written twice", row.id);
        }
        for row in &changes.jobs {
            assert!(self.profiles.contains_key(&row.profile), "job {} has an unknown profile", row.name);
            self.jobs.insert(row.id, row.clone());
        }
        for update in &changes.job_updates {
            if let Some(row) = self.jobs.get_mut(&update.id) {
                move_row(row, update);
            }
        }
        for id in &changes.removed_jobs {
            self.jobs.remove(id);
        }
        self.actions.extend(changes.actions.iter().map(|row| (row.id, row.clone())));
        self.actions.retain(|id, _| !changes.removed_actions.contains(id));
        self.recoveries.extend(changes.recoveries.iter().map(|row| (row.job, row.clone())));
        self.recoveries.retain(|job, _| !changes.ended_recoveries.contains(job));
        self.allocations.extend(changes.allocations.iter().map(|row| (row.id, row.clone())));
        self.clusters.extend(changes.clusters.iter().map(|row| (row.name.clone(), row.clone())));
        self.clusters.retain(|name, _| !changes.removed_clusters.contains(name));
        for row in &changes.results {
            let known = self.by_attempt.insert((row.job, row.run, row.attempt), self.results.len());
            assert_eq!(known, None, "attempt {}/{}/{} has two results", row.job, row.run, row.attempt);
            self.results.push(row.clone());
        }
        for key in &changes.removed_user_data {
            self.user_data.remove(key);
        }
        for row in &changes.user_data {
            self.user_data.insert((row.workflow, row.name.clone()), row.clone());
        }
        for row in &changes.files {
            self.files.insert((row.job, row.path.clone()), row.clone());
        }
        for epoch in &changes.ended_strays {
            self.strays.remove(epoch);
        }
        for lease in &changes.strays {
            self.strays.insert(lease.epoch, *lease);
        }
        for row in &changes.runners {
            self.runners.insert(row.id, row.clone());
        }
        for event in &changes.events {
            let previous = self.events.last().map_or(0, |event| event.sequence);
            assert!(event.sequence > previous, "events are numbered in order");
            self.events.push(event.clone());
        }
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
        raise(&mut last.epoch, &mut changes.jobs.iter().map(|row| row.epoch));
        raise(&mut last.epoch, &mut changes.actions.iter().map(|row| row.errand.epoch));
        raise(&mut last.epoch, &mut changes.recoveries.iter().map(|row| row.errand.epoch));
        raise(&mut last.epoch, &mut changes.job_updates.iter().map(|update| update.epoch));
        raise(&mut last.epoch, &mut changes.user_data.iter().map(|row| row.epoch));
        raise(&mut last.epoch, &mut changes.strays.iter().map(|lease| lease.epoch));
        raise(&mut last.runner, &mut changes.runners.iter().map(|row| row.id.0));
        raise(&mut last.allocation, &mut changes.allocations.iter().map(|row| row.id.0));
        raise(&mut last.event, &mut changes.events.iter().map(|event| event.sequence));
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            workflows: self.workflows.values().cloned().collect(),
            profiles: self.profiles.values().cloned().collect(),
            jobs: self.jobs.values().cloned().collect(),
            user_data: self.user_data.values().map(without_states_of_loops).collect(),
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

    pub fn last(&self) -> LastIds {
        self.last
    }

    /// The result of an attempt.
    pub fn result(&self, key: ResultKey) -> Option<&ResultRow> {
        self.by_attempt.get(&key).map(|index| &self.results[*index])
    }

    /// The results of a job, oldest first.
    pub fn results_of(&self, job: JobId) -> Vec<&ResultRow> {
        self.results.iter().filter(|row| row.job == job).collect()
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
        let mut counts = BTreeMap::new();
        for row in &self.results {
            if let (Some(cause), Some(job)) = (row.cause, self.jobs.get(&row.job))
                && job.run == row.run
            {
                *counts.entry((row.job, cause)).or_insert(0) += 1;
            }
        }
        counts.into_iter().map(|((job, cause), count)| (job, cause, count)).collect()
    }

    fn latest_failures(&self) -> Vec<ResultRow> {
        let failed =
            |row: &&ResultRow| matches!(row.state, JobState::Failed | JobState::Terminated) && row.cause.is_some();
        let current = |row: &&ResultRow| {
            self.jobs.contains_key(&row.job) && self.workflows.get(&row.workflow).is_some_and(|w| w.run == row.run)
        };
        let mut latest = Vec::new();
        for id in self.workflows.keys() {
            let of_workflow = self.results.iter().filter(|row| row.workflow == *id).filter(failed).filter(current);
            let rows: Vec<_> = of_workflow.cloned().collect();
            latest.extend(rows[rows.len().saturating_sub(20)..].iter().cloned());
        }
        latest
    }
}

fn move_row(row: &mut JobRow, update: &JobUpdate) {
    row.state = update.state;
    row.run = update.run;
    row.attempt = update.attempt;
    row.epoch = update.epoch;
    row.runner = update.runner;
    row.started_ms = update.started_ms;
}

/// Nobody reads these through the live state, so they are not loaded.
fn without_states_of_loops(row: &UserDataRow) -> UserDataRow {
    let loaded = row.written.clone().filter(|_| crate::lineage::parse(&row.name).is_none());
    UserDataRow { written: loaded, ..row.clone() }
}
