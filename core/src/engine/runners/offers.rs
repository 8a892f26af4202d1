//! Free capacity that runners offer. A job that another runner could start now is not leased ahead.

use torc_api::wire::Resources;

use super::Runners;
use crate::class::fits;
use crate::ids::{Now, RunnerId};

impl Runners {
    /// Records the free capacity of a runner. If it shrinks, runners whose leases were withheld in its favor are polled again.
    pub fn set_offer(&mut self, id: RunnerId, free: Resources) {
        let Some(runner) = self.all.get_mut(&id) else { return };
        let before = std::mem::replace(&mut runner.offer.free, free);
        if runner.offer.is_empty() {
            self.offering.remove(&id);
        } else {
            self.offering.insert(id);
        }
        if !fits(&free, &before) {
            self.wake_withheld_runners(id);
        }
    }

    /// Removes the offer of a runner that is gone or silent.
    pub fn remove_offer(&mut self, id: RunnerId) {
        self.withheld.remove(&id);
        self.set_offer(id, Resources::default());
    }

    /// Withdraws offers that have expired.
    pub fn expire_offers(&mut self, now: Now) {
        let has_expired = |id: &RunnerId| self.all.get(id).is_none_or(|runner| runner.offer.until_ms < now.mono_ms);
        let expired: Vec<RunnerId> = self.offering.iter().copied().filter(has_expired).collect();
        for id in expired {
            self.offering.remove(&id);
            self.remove_offer(id);
        }
    }

    fn wake_withheld_runners(&mut self, except: RunnerId) {
        if self.withheld.iter().any(|id| *id != except) {
            self.wake();
        }
    }
}
