//! The office of a leader: whether it is held, by one's own clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use super::term::RENEW_WITHIN;
use crate::clock;

/// Whether this process leads. Clones are the same office.
#[derive(Clone)]
pub(crate) struct Office {
    /// Until when it is held, in milliseconds of the clock that goes on while the machine sleeps.
    until_ms: Arc<AtomicU64>,
    lost: CancellationToken,
}

impl Office {
    /// The office of a server that is the only one.
    pub fn permanent() -> Self {
        Self { until_ms: Arc::new(AtomicU64::new(u64::MAX)), lost: CancellationToken::new() }
    }

    /// The office of somebody who has just got the lease; `lost` is told when somebody else has it.
    pub fn of_lease(asked_ms: u64, lost: CancellationToken) -> Self {
        let office = Self { until_ms: Arc::new(AtomicU64::new(0)), lost };
        office.renewed(asked_ms);
        office
    }

    /// The lease was renewed; the call was begun then.
    pub(super) fn renewed(&self, asked_ms: u64) {
        self.until_ms.store(asked_ms.saturating_add(RENEW_WITHIN.as_millis() as u64), Ordering::SeqCst);
    }

    /// Somebody else has it.
    pub(super) fn lose(&self) {
        self.until_ms.store(0, Ordering::SeqCst);
        self.lost.cancel();
    }

    /// Nobody else can lead at this moment. To be asked before anything that cannot be taken back.
    pub fn is_held(&self) -> bool {
        clock::now().mono_ms < self.until_ms.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_office_is_held_for_a_while_after_each_renewal() {
        assert!(Office::permanent().is_held());
        let now = clock::now().mono_ms;
        let lost = CancellationToken::new();
        let office = Office::of_lease(now, lost.clone());
        assert!(office.is_held());
        let stale = Office::of_lease(now.saturating_sub(10_000), CancellationToken::new());
        assert!(!stale.is_held(), "a frozen leader has not renewed it");
        office.lose();
        assert!(!office.is_held() && lost.is_cancelled());
    }

    #[test]
    fn a_renewal_counts_from_the_moment_at_which_it_was_asked_for() {
        let until = |office: &Office| office.until_ms.load(Ordering::SeqCst);
        let office = Office::of_lease(1_000, CancellationToken::new());
        assert_eq!(until(&office), 11_000, "shorter than the lease, for clocks do not run alike");
        office.clone().renewed(5_000);
        assert_eq!(until(&office), 15_000, "clones are the same office");
        assert!(!office.is_held(), "that is long ago");
        office.renewed(u64::MAX);
        assert!(office.is_held());
    }
}
