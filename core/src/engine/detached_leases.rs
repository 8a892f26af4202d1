//! The leases that the targets of a workflow no longer go by: which have expired, and how many that were revoked have not ended.

use std::collections::{BTreeMap, HashMap};

use crate::ids::JobId;
use crate::rows::DetachedLease;

/// The detached leases of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DetachedLeases {
    /// Few jobs are in here.
    expired: HashMap<JobId, Vec<DetachedLease>>,
    /// How many leases of its jobs and their scripts were revoked and have not ended.
    revoked: u32,
    /// The same of its actions, by their numbers.
    revoked_actions: BTreeMap<JobId, u32>,
}

impl DetachedLeases {
    /// Takes over the leases of the workflow as it was before an edit that have expired, and those of actions that were revoked.
    pub fn inherit(&mut self, old: &Self, is_there: impl Fn(JobId) -> bool) {
        let expired = old.expired.iter().filter(|(job, _)| is_there(**job));
        self.expired = expired.map(|(job, leases)| (*job, leases.clone())).collect();
        self.revoked_actions.clone_from(&old.revoked_actions);
    }

    /// Remembers an expired lease.
    pub fn remember_expired(&mut self, lease: DetachedLease) {
        self.expired.entry(lease.job).or_default().push(lease);
    }

    /// Returns the expired leases of a job.
    pub fn expired_of(&self, job: JobId) -> &[DetachedLease] {
        self.expired.get(&job).map_or(&[], Vec::as_slice)
    }

    /// Forgets the expired leases of a job and returns them.
    pub fn take_expired(&mut self, job: JobId) -> Vec<DetachedLease> {
        self.expired.remove(&job).unwrap_or_default()
    }

    /// An expired lease of a job is held again. Returns whether the job has any.
    pub fn renew(&mut self, job: JobId, lease_id: i64) -> bool {
        let Some(leases) = self.expired.get_mut(&job) else { return false };
        leases.retain(|lease| lease.lease_id != lease_id);
        if leases.is_empty() {
            self.expired.remove(&job);
        }
        true
    }

    /// One more lease of a job has to end.
    pub fn job_revoked(&mut self) {
        self.revoked += 1;
    }

    /// One lease of a job less has to end.
    pub fn job_ended(&mut self) {
        self.revoked = self.revoked.saturating_sub(1);
    }

    /// Whether a lease of a job was revoked and has not ended.
    pub fn has_revoked_jobs(&self) -> bool {
        self.revoked > 0
    }

    /// One more lease of an action has to end.
    pub fn action_revoked(&mut self, action: JobId) {
        *self.revoked_actions.entry(action).or_default() += 1;
    }

    /// One lease of an action less has to end.
    pub fn action_ended(&mut self, action: JobId) {
        if let Some(count) = self.revoked_actions.get_mut(&action) {
            *count = count.saturating_sub(1);
        }
        self.revoked_actions.retain(|_, count| *count > 0);
    }

    /// Whether an action waits for the end of its earlier commands.
    pub fn awaits_end_of(&self, action: JobId) -> bool {
        self.revoked_actions.contains_key(&action)
    }

    /// Actions that are no longer there wait for nothing.
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
