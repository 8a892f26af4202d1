//! Free capacity that runners offer. Nothing is leased ahead to one runner that another one could start now.

use torc_api::wire::Resources;

use super::Runner;
use crate::class::{JobClass, fits};
use crate::engine::Engine;
use crate::engine::workflow::Workflow;
use crate::ids::{Now, RunnerId};

impl Engine {
    /// Records the free capacity of a runner. If it shrinks, runners whose leases were withheld in its favor are polled again.
    pub(in crate::engine) fn set_offer(&mut self, id: RunnerId, free: Resources) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        let before = std::mem::replace(&mut runner.offer.free, free);
        if runner.offer.is_empty() {
            self.runners.offering.remove(&id);
        } else {
            self.runners.offering.insert(id);
        }
        if !fits(&free, &before) {
            self.wake_withheld(id);
        }
    }

    /// A runner is gone or silent: it offers nothing.
    pub(in crate::engine) fn withdraw_offer(&mut self, id: RunnerId) {
        self.runners.withheld.remove(&id);
        self.set_offer(id, Resources::default());
    }

    /// Takes a runner out of the list; the caller sees to what it held.
    pub(in crate::engine) fn remove_runner(&mut self, id: RunnerId) -> Option<Runner> {
        self.withdraw_offer(id);
        self.runners.donors.remove(&id);
        self.runners.all.remove(&id)
    }

    /// Withdraws offers of runners that have not been heard of in time.
    pub(in crate::engine) fn expire_offers(&mut self, now: Now) {
        let is_over = |id: &RunnerId| self.runners.get(id).is_none_or(|runner| runner.offer.until_ms < now.mono_ms);
        let over: Vec<RunnerId> = self.runners.offering.iter().copied().filter(is_over).collect();
        for id in over {
            self.runners.offering.remove(&id);
            self.withdraw_offer(id);
        }
    }

    fn wake_withheld(&mut self, except: RunnerId) {
        if self.runners.withheld.iter().any(|id| *id != except) {
            self.wake_version += 1;
        }
    }

    /// Whether another runner could start a job of this class now.
    pub(in crate::engine) fn is_wanted_elsewhere(
        &self,
        id: RunnerId,
        workflow: &Workflow,
        class: &JobClass,
        now: Now,
    ) -> bool {
        let mut others =
            self.runners.offering.iter().filter(|other| **other != id).filter_map(|other| self.runners.get(other));
        others.any(|other| {
            let (offer, place) = (&other.offer, other.place(now));
            offer.until_ms >= now.mono_ms
                && fits(&offer.free, &class.demand_on(&place))
                && class.suits(&place, workflow.end_margin(other.is_in_allocation()))
                && self.is_served_by(workflow.id(), &other.row.scope)
                && workflow.may_lease_to(other.row.id)
        })
    }
}
