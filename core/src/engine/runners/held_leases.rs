//! The leases of one runner.

use std::collections::{BTreeMap, HashMap, HashSet};

use torc_api::wire::{AttemptKey, LeaseRole};

use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::rows::DetachedLease;

/// The work that a lease grants. The number is that of the job or action; a recovery script has the number of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::engine) struct LeaseTarget {
    pub workflow: WorkflowId,
    pub number: JobId,
    pub role: LeaseRole,
}

impl LeaseTarget {
    pub fn of(lease: &DetachedLease) -> Self {
        Self { workflow: lease.workflow, number: lease.job, role: lease.role }
    }
}

/// A lease of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct HeldLease {
    /// The key that the runner knows it by.
    pub key: AttemptKey,
    /// Sequence number of the message whose answer granted it; 0 if unknown, e.g. after a restart.
    granted_in: u64,
}

/// A lease that the runner has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RevokedLease {
    lease: DetachedLease,
    granted_in: u64,
}

/// Leases that a runner no longer has although it has received the answers that granted them.
#[derive(Debug, Default)]
pub(in crate::engine) struct MissingLeases {
    pub revoked: Vec<DetachedLease>,
    pub held: Vec<LeaseTarget>,
}

/// The leases that a runner holds, and the revoked ones that it has to end.
#[derive(Debug, Default)]
pub(in crate::engine) struct RunnerLeases {
    held: HashMap<LeaseTarget, HeldLease>,
    /// Number of held leases of jobs.
    jobs: usize,
    /// Revoked leases by number.
    revoked: BTreeMap<i64, RevokedLease>,
}

impl RunnerLeases {
    /// Adds a lease that the answer to the message `granted_in` grants.
    pub fn hold(&mut self, target: LeaseTarget, key: AttemptKey, granted_in: u64) {
        let before = self.held.insert(target, HeldLease { key, granted_in });
        self.jobs += usize::from(target.role.is_job() && before.is_none());
    }

    /// Adds a lease that the runner reports.
    pub fn confirm(&mut self, target: LeaseTarget, key: AttemptKey) {
        let granted_in = self.held.get(&target).map_or(0, |held| held.granted_in);
        self.hold(target, key, granted_in);
    }

    pub fn remove(&mut self, target: &LeaseTarget) -> Option<HeldLease> {
        let held = self.held.remove(target)?;
        self.jobs -= usize::from(target.role.is_job());
        Some(held)
    }

    /// Adds a revoked lease. `before`: the lease as the runner held it.
    pub fn revoke(&mut self, lease: DetachedLease, before: Option<HeldLease>) {
        let granted_in = before.map_or(0, |held| held.granted_in);
        self.revoked.insert(lease.lease_id, RevokedLease { lease, granted_in });
    }

    /// Removes the revoked lease with this key.
    pub fn remove_revoked(&mut self, key: &AttemptKey) -> Option<DetachedLease> {
        let same = |revoked: &&RevokedLease| revoked.lease.job.0 == key.job && revoked.lease.run == key.run;
        self.revoked.get(&key.lease_id).filter(same)?;
        self.revoked.remove(&key.lease_id).map(|revoked| revoked.lease)
    }

    /// Removes the revoked leases that match.
    pub fn take_all_revoked(&mut self, which: impl Fn(&DetachedLease) -> bool) -> Vec<DetachedLease> {
        let taken = self.revoked.extract_if(.., |_, revoked| which(&revoked.lease));
        taken.map(|(_, revoked)| revoked.lease).collect()
    }

    /// Removes the leases of targets that no longer exist. Returns the numbers of the revoked ones.
    pub fn forget(&mut self, is_gone: impl Fn(&LeaseTarget) -> bool) -> Vec<i64> {
        self.held.retain(|target, _| !is_gone(target));
        self.jobs = self.held.keys().filter(|target| target.role.is_job()).count();
        self.take_all_revoked(|lease| is_gone(&LeaseTarget::of(lease))).iter().map(|lease| lease.lease_id).collect()
    }

    /// Removes the missing revoked leases, and returns all missing ones. `named`: numbers of jobs and leases in the message.
    pub fn remove_missing(&mut self, acknowledged: u64, named: &HashSet<(i64, i64)>) -> MissingLeases {
        let is_named = |number: JobId, lease_id: i64| named.contains(&(number.0, lease_id));
        let ended = self.revoked.extract_if(.., |lease_id, revoked| {
            revoked.granted_in <= acknowledged && !is_named(revoked.lease.job, *lease_id)
        });
        let revoked = ended.map(|(_, revoked)| revoked.lease).collect();
        let is_missing = |(target, held): &(&LeaseTarget, &HeldLease)| {
            held.granted_in <= acknowledged && !is_named(target.number, held.key.lease_id)
        };
        let mut held: Vec<LeaseTarget> = self.held.iter().filter(is_missing).map(|(target, _)| *target).collect();
        held.sort_unstable();
        MissingLeases { revoked, held }
    }

    /// Takes over the leases of an earlier runner.
    pub fn succeed(&mut self, successor: RunnerId, earlier: Self) {
        let held = earlier.held.into_iter().map(|(target, held)| (target, HeldLease { granted_in: 0, ..held }));
        self.held.extend(held);
        self.jobs = self.held.keys().filter(|target| target.role.is_job()).count();
        for (lease_id, revoked) in earlier.revoked {
            let lease = DetachedLease { runner: successor, ..revoked.lease };
            self.revoked.insert(lease_id, RevokedLease { lease, granted_in: 0 });
        }
    }

    /// Returns whether the runner has neither held nor revoked leases.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.revoked.is_empty()
    }

    pub fn get(&self, target: &LeaseTarget) -> Option<&HeldLease> {
        self.held.get(target)
    }

    /// Returns the number of held leases of jobs.
    pub fn job_count(&self) -> usize {
        self.jobs
    }

    pub fn iter(&self) -> impl Iterator<Item = (&LeaseTarget, &HeldLease)> {
        self.held.iter()
    }

    /// Returns the leased jobs in any order.
    pub fn jobs(&self) -> impl Iterator<Item = (WorkflowId, JobId)> {
        self.held.keys().filter(|target| target.role.is_job()).map(|target| (target.workflow, target.number))
    }

    /// Returns the number of held recovery scripts.
    pub fn recovery_count(&self) -> usize {
        self.held.keys().filter(|target| target.role == LeaseRole::Recovery).count()
    }

    /// Returns the held leases, sorted.
    pub fn sorted(&self) -> Vec<(LeaseTarget, HeldLease)> {
        let mut leases: Vec<(LeaseTarget, HeldLease)> =
            self.held.iter().map(|(target, held)| (*target, *held)).collect();
        leases.sort_unstable_by_key(|(target, _)| *target);
        leases
    }

    /// Returns the revoked leases.
    pub fn revoked(&self) -> impl Iterator<Item = &DetachedLease> {
        self.revoked.values().map(|revoked| &revoked.lease)
    }

    /// Returns whether a held or revoked lease belongs to a workflow.
    pub fn concerns(&self, workflow: WorkflowId) -> bool {
        self.held.keys().any(|target| target.workflow == workflow)
            || self.revoked.values().any(|revoked| revoked.lease.workflow == workflow)
    }

    /// Forgets which answers granted the leases, as a restart does.
    #[cfg(test)]
    pub fn forget_answers(&mut self) {
        self.held.values_mut().for_each(|held| held.granted_in = 0);
        self.revoked.values_mut().for_each(|revoked| revoked.granted_in = 0);
    }
}
