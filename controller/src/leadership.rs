//! Tracks local leadership with a monotonic deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock;

/// Time after its last renewal for which a leader counts as leading: shorter than the lease, because clocks differ.
pub(crate) const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The leadership of this process. Clones share state.
#[derive(Clone)]
pub(crate) struct Leadership {
    /// The deadline, in milliseconds of the clock that advances while the machine sleeps.
    until_ms: Arc<AtomicU64>,
    lost: CancellationToken,
}

impl Leadership {
    /// Returns the leadership of a single server, which never ends.
    pub fn permanent() -> Self {
        Self { until_ms: Arc::new(AtomicU64::new(u64::MAX)), lost: CancellationToken::new() }
    }

    /// Returns the leadership of a process that has acquired the lease; `lost` is canceled when another process acquires it.
    pub fn of_lease(asked_ms: u64, lost: CancellationToken) -> Self {
        let leadership = Self { until_ms: Arc::new(AtomicU64::new(0)), lost };
        leadership.renewed(asked_ms);
        leadership
    }

    /// Extends the deadline after a renewal that was requested at `asked_ms`.
    pub fn renewed(&self, asked_ms: u64) {
        self.until_ms.store(asked_ms.saturating_add(RENEWAL_TIMEOUT.as_millis() as u64), Ordering::SeqCst);
    }

    /// Ends the leadership: another process leads.
    pub fn lose(&self) {
        self.until_ms.store(0, Ordering::SeqCst);
        self.lost.cancel();
    }

    /// Returns whether no other process can lead at this moment. Checked before each action that cannot be undone.
    pub fn is_held(&self) -> bool {
        clock::now().mono_ms < self.until_ms.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leadership_is_held_for_a_while_after_each_renewal() {
        assert!(Leadership::permanent().is_held());
        let now = clock::now().mono_ms;
        let lost = CancellationToken::new();
        let leadership = Leadership::of_lease(now, lost.clone());
        assert!(leadership.is_held());
        let stale = Leadership::of_lease(now.saturating_sub(10_000), CancellationToken::new());
        assert!(!stale.is_held(), "a frozen leader has not renewed it");
        leadership.lose();
        assert!(!leadership.is_held() && lost.is_cancelled());
    }

    #[test]
    fn a_renewal_counts_from_the_moment_at_which_it_was_asked_for() {
        let until = |leadership: &Leadership| leadership.until_ms.load(Ordering::SeqCst);
        let leadership = Leadership::of_lease(1_000, CancellationToken::new());
        assert_eq!(until(&leadership), 11_000, "shorter than the lease, for clocks do not run alike");
        leadership.clone().renewed(5_000);
        assert_eq!(until(&leadership), 15_000, "clones share state");
        assert!(!leadership.is_held(), "that is long ago");
        leadership.renewed(u64::MAX);
        assert!(leadership.is_held());
    }
}
