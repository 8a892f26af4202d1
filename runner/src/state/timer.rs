//! The moment at which the state wants to be handed a tick.

use crate::clock::BootInstant;

/// The earliest of the moments that were asked for.
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

    /// Asks for a tick at this moment at the latest.
    pub fn set(&mut self, at: BootInstant) {
        self.at = Some(self.at.map_or(at, |earlier| earlier.min(at)));
    }
}
