//! The registered runners: free capacity, waiting leases and sent directives of each.

mod fleet;
mod held_leases;
mod offers;
mod rebalance;
mod runner;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use fleet::Fleet;
pub(super) use held_leases::LeaseTarget;
pub(super) use rebalance::SpareLease;
pub(super) use runner::{LiveRunner, ReturnRequest};

use crate::ids::RunnerId;

/// The registered runners by number.
#[derive(Default)]
pub(super) struct Runners {
    all: BTreeMap<RunnerId, LiveRunner>,
    /// Runners with free capacity.
    offering: BTreeSet<RunnerId>,
    /// Runners that were leased nothing ahead because others could start it now.
    withheld: BTreeSet<RunnerId>,
    /// Runners in which leases wait.
    donors: BTreeSet<RunnerId>,
    /// Rises whenever there may be work or a directive for a waiting runner.
    wake_version: u64,
}

impl Runners {
    pub fn insert(&mut self, runner: LiveRunner) {
        self.all.insert(runner.id(), runner);
    }

    pub fn get(&self, id: &RunnerId) -> Option<&LiveRunner> {
        self.all.get(id)
    }

    pub fn get_mut(&mut self, id: &RunnerId) -> Option<&mut LiveRunner> {
        self.all.get_mut(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&RunnerId, &LiveRunner)> {
        self.all.iter()
    }

    pub fn values(&self) -> impl Iterator<Item = &LiveRunner> {
        self.all.values()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut LiveRunner> {
        self.all.values_mut()
    }

    /// Removes a runner and its offer. The caller takes care of its leases.
    pub fn remove(&mut self, id: RunnerId) -> Option<LiveRunner> {
        self.remove_offer(id);
        self.donors.remove(&id);
        self.all.remove(&id)
    }

    /// Returns a number that rises whenever there may be work or a directive for a waiting runner.
    pub fn wake_version(&self) -> u64 {
        self.wake_version
    }

    /// Causes the waiting syncs of all runners to be polled again.
    pub fn wake(&mut self) {
        self.wake_version += 1;
    }

    /// Records whether a runner was leased nothing ahead because others could start it now.
    pub fn set_withheld(&mut self, id: RunnerId, is_withheld: bool) {
        if is_withheld {
            self.withheld.insert(id);
        } else {
            self.withheld.remove(&id);
        }
    }

    /// Returns whether leases wait in a runner.
    pub fn has_donors(&self) -> bool {
        !self.donors.is_empty()
    }

    /// Forgets a runner, as if it had never registered.
    #[cfg(test)]
    pub fn forget(&mut self, id: &RunnerId) -> Option<LiveRunner> {
        self.all.remove(id)
    }

    /// Forgets what is not stored, as a restart at this time does.
    #[cfg(test)]
    pub fn forget_unstored(&mut self, now: crate::ids::Now) {
        self.offering.clear();
        self.withheld.clear();
        self.donors.clear();
        for runner in self.all.values_mut() {
            runner.forget_unstored(now);
        }
    }
}
