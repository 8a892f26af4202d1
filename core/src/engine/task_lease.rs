//! The lease of an auxiliary task: the same steps for actions and recovery scripts.

use crate::ids::RunnerId;
use crate::rows::TaskLease;

impl TaskLease {
    /// Assigns a new lease to a runner.
    pub(super) fn grant(&mut self, lease_id: i64, runner: RunnerId) {
        self.release();
        self.lease_id = lease_id;
        self.runner = Some(runner);
    }

    /// Takes the lease from its runner. The attempt counts as not started.
    pub(super) fn release(&mut self) {
        self.runner = None;
        self.started_ms = None;
    }

    /// Begins the next attempt, unless the current one never had a lease.
    pub(super) fn next_attempt(&mut self) {
        if self.lease_id > 0 {
            self.attempt += 1;
            self.lease_id = 0;
        }
        self.release();
    }
}
