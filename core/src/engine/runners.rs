//! The registered runners: what each offers, what waits in it, and what it was told.

mod offers;
mod rebalance;
mod runner;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use runner::Runner;

use crate::ids::RunnerId;

/// The registered runners.
#[derive(Default)]
pub(super) struct Runners {
    all: BTreeMap<RunnerId, Runner>,
    /// Runners that could start more at once.
    offering: BTreeSet<RunnerId>,
    /// Runners that got nothing ahead because others could start it at once.
    withheld: BTreeSet<RunnerId>,
    /// Runners in which leases wait.
    donors: BTreeSet<RunnerId>,
}

impl Runners {
    pub fn insert(&mut self, runner: Runner) {
        self.all.insert(runner.row.id, runner);
    }

    pub fn get(&self, id: &RunnerId) -> Option<&Runner> {
        self.all.get(id)
    }

    pub fn get_mut(&mut self, id: &RunnerId) -> Option<&mut Runner> {
        self.all.get_mut(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&RunnerId, &Runner)> {
        self.all.iter()
    }

    pub fn keys(&self) -> impl Iterator<Item = &RunnerId> {
        self.all.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &Runner> {
        self.all.values()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Runner> {
        self.all.values_mut()
    }

    /// Records whether a runner got nothing ahead because others could start it at once.
    pub fn set_withheld(&mut self, id: RunnerId, is_withheld: bool) {
        if is_withheld {
            self.withheld.insert(id);
        } else {
            self.withheld.remove(&id);
        }
    }

    /// Whether leases wait in a runner.
    pub fn has_donors(&self) -> bool {
        !self.donors.is_empty()
    }

    /// Takes a runner out of the list, as if it had never registered.
    #[cfg(test)]
    pub fn remove(&mut self, id: &RunnerId) -> Option<Runner> {
        self.all.remove(id)
    }

    /// Forgets what is not kept, as a restart at this time does.
    #[cfg(test)]
    pub fn forget_what_is_not_kept(&mut self, now: crate::ids::Now) {
        self.offering.clear();
        self.withheld.clear();
        self.donors.clear();
        for runner in self.all.values_mut() {
            runner.forget_what_is_not_kept(now);
        }
    }
}
