//! Superseded leases of a workflow: the expired ones, and the number of revoked ones that have not ended.

use std::collections::{BTreeMap, HashMap};

use crate::ids::JobId;
use crate::rows::DetachedLease;

/// The detached leases of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct DetachedLeases {
    /// Expired leases by job. Few jobs have any.
    expired: HashMap<JobId, Vec<DetachedLease>>,
    /// Number of revoked leases of jobs and recovery scripts that have not ended.
    revoked: u32,
    /// Number of revoked leases that have not ended, by action.
    revoked_actions: BTreeMap<JobId, u32>,
}

impl DetachedLeases {
    /// Takes over from the workflow before an edit the expired leases and the revoked leases of actions.
    pub fn inherit(&mut self, old: &Self, is_there: impl Fn(JobId) -> bool) {
        let expired = old.expired.iter().filter(|(job, _)| is_there(**job));
        self.expired = expired.map(|(job, leases)| (*job, leases.clone())).collect();
        self.revoked_actions.clone_from(&old.revoked_actions);
    }

    pub fn remember_expired(&mut self, lease: DetachedLease) {
        self.expired.entry(lease.job).or_default().push(lease);
    }

    pub fn expired_of(&self, job: JobId) -> &[DetachedLease] {
        self.expired.get(&job).map_or(&[], Vec::as_slice)
    }

    /// Forgets the expired leases of a job and returns them.
    pub fn remove_expired(&mut self, job: JobId) -> Vec<DetachedLease> {
        self.expired.remove(&job).unwrap_or_default()
    }

    /// Removes an expired lease that is held again. Returns whether the job had any.
    pub fn renew(&mut self, job: JobId, lease_id: i64) -> bool {
        let Some(leases) = self.expired.get_mut(&job) else { return false };
        leases.retain(|lease| lease.lease_id != lease_id);
        if leases.is_empty() {
            self.expired.remove(&job);
        }
        true
    }

    /// Counts a revoked lease of a job.
    pub fn job_revoked(&mut self) {
        self.revoked += 1;
    }

    /// Counts the end of a revoked lease of a job.
    pub fn job_ended(&mut self) {
        self.revoked = self.revoked.saturating_sub(1);
    }

    /// Returns whether a revoked lease of a job has not ended.
    pub fn has_revoked_jobs(&self) -> bool {
        self.revoked > 0
    }

    /// Counts a revoked lease of an action.
    pub fn action_revoked(&mut self, action: JobId) {
        *self.revoked_actions.entry(action).or_default() += 1;
    }

    /// Counts the end of a revoked lease of an action.
    pub fn action_ended(&mut self, action: JobId) {
        if let Some(count) = self.revoked_actions.get_mut(&action) {
            *count = count.saturating_sub(1);
        }
        self.revoked_actions.retain(|_, count| *count > 0);
    }

    /// Returns whether an action waits for the end of its earlier commands.
    pub fn awaits_end_of(&self, action: JobId) -> bool {
        self.revoked_actions.contains_key(&action)
    }

    /// Forgets the revoked leases of actions that no longer exist.
    pub fn retain_actions(&mut self, is_there: impl Fn(JobId) -> bool) {
        self.revoked_actions.retain(|id, _| is_there(*id));
    }

    #[cfg(test)]
    pub fn expired(&self) -> impl Iterator<Item = (&JobId, &Vec<DetachedLease>)> {
        self.expired.iter()
    }

    #[cfg(test)]
    pub fn revoked(&self) -> (u32, &BTreeMap<JobId, u32>) {
        (self.revoked, &self.revoked_actions)
    }
}
