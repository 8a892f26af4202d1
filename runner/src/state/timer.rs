//! The moment at which the state needs the next tick.

use crate::clock::BootInstant;

/// The earliest requested moment.
#[derive(Debug, Default)]
pub(super) struct Timer {
    at: Option<BootInstant>,
}

impl Timer {
    pub fn at(&self) -> Option<BootInstant> {
        self.at
    }

    pub fn clear(&mut self) {
        self.at = None;
    }

    /// Requests a tick at this moment at the latest.
    pub fn set(&mut self, at: BootInstant) {
        self.at = Some(self.at.map_or(at, |earlier| earlier.min(at)));
    }
}
