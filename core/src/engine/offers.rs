//! Free capacity that runners offer. Nothing is leased ahead to one runner that another one could start now.

use torc_api::wire::Resources;

use super::Engine;
use super::runner::Runner;
use super::workflow::Workflow;
use crate::class::{Class, fits};
use crate::ids::{Now, RunnerId};

/// Time for which an offer counts after the runner's wait on the server has ended: long enough to ask again over a slow link. A runner
/// that polls less often is not counted on.
const OFFER_MS: u64 = 2_000;

/// Free capacity of a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// Resources that are still free.
    pub free: Resources,
    /// The offer expires then; on the monotonic clock.
    pub until_ms: u64,
}

impl Offer {
    /// Returns the time until which a runner's message counts, if it waits for `wait_ms` on the server.
    pub fn until(wait_ms: u64, now: Now) -> u64 {
        now.mono_ms.saturating_add(wait_ms).saturating_add(OFFER_MS)
    }

    fn is_empty(&self) -> bool {
        self.free.cpus <= 0
    }
}

impl Engine {
    /// Records the free capacity of a runner. If it shrinks, runners whose leases were withheld in its favor are polled again.
    pub(super) fn set_offer(&mut self, id: RunnerId, free: Resources) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        let before = std::mem::replace(&mut runner.offer.free, free);
        if runner.offer.is_empty() {
            self.offering.remove(&id);
        } else {
            self.offering.insert(id);
        }
        if !fits(&free, &before) {
            self.wake_withheld(id);
        }
    }

    /// A runner is gone or silent: it offers nothing.
    pub(super) fn withdraw_offer(&mut self, id: RunnerId) {
        self.withheld.remove(&id);
        self.set_offer(id, Resources::default());
    }

    /// Takes a runner out of the list; the caller sees to what it held.
    pub(super) fn remove_runner(&mut self, id: RunnerId) -> Option<Runner> {
        self.withdraw_offer(id);
        self.donors.remove(&id);
        self.runners.remove(&id)
    }

    /// Withdraws offers of runners that have not been heard of in time.
    pub(super) fn expire_offers(&mut self, now: Now) {
        let is_over = |id: &RunnerId| self.runners.get(id).is_none_or(|runner| runner.offer.until_ms < now.mono_ms);
        let over: Vec<RunnerId> = self.offering.iter().copied().filter(is_over).collect();
        for id in over {
            self.offering.remove(&id);
            self.withdraw_offer(id);
        }
    }

    fn wake_withheld(&mut self, except: RunnerId) {
        if self.withheld.iter().any(|id| *id != except) {
            self.wake_version += 1;
        }
    }

    /// Whether another runner could start a job of this class now.
    pub(super) fn is_wanted_elsewhere(&self, id: RunnerId, workflow: &Workflow, class: &Class, now: Now) -> bool {
        let mut others = self.offering.iter().filter(|other| **other != id).filter_map(|other| self.runners.get(other));
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
