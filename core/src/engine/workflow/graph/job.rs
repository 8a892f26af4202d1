//! A job in memory.

use torc_api::state::JobState;

use crate::ids::{JobId, RunnerId};
use crate::matching::ReadyJob;
use crate::rows::JobUpdate;

/// A job in memory. A workflow may have a million of them, so every byte of this type counts.
#[derive(Clone, Debug)]
pub(in crate::engine) struct JobRecord {
    pub(super) id: JobId,
    pub(super) priority: i64,
    pub(super) lease_id: i64,
    pub(super) runner: Option<RunnerId>,
    pub(super) started_ms: Option<i64>,
    pub(super) hash: [u8; 32],
    pub(super) run: i32,
    pub(super) attempt: i32,
    /// Number of parents that have not ended, plus `ending`.
    pub(super) unmet: u32,
    /// Index into the profiles of the workflow.
    pub(super) profile: u32,
    /// Declared runtimes along the longest chain of dependents, in seconds.
    pub(super) downstream_seconds: u32,
    pub(super) state: JobState,
    /// Number of revoked leases of the job that have not ended.
    pub(super) ending: u8,
    /// The runner of the started attempt is silent.
    pub(super) unconfirmed: bool,
    /// Number of times that the lease of the current attempt was requested back for another runner.
    pub(super) moves: u8,
    pub(super) name: TextRange,
    pub(super) command: TextRange,
}

/// A part of the text of all jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextRange {
    pub start: u32,
    pub length: u32,
}

impl JobRecord {
    pub fn id(&self) -> JobId {
        self.id
    }

    pub fn state(&self) -> JobState {
        self.state
    }

    pub fn run(&self) -> i32 {
        self.run
    }

    pub fn attempt(&self) -> i32 {
        self.attempt
    }

    /// Returns the number of the latest lease of the current attempt; 0 before the first.
    pub fn lease_id(&self) -> i64 {
        self.lease_id
    }

    pub fn runner(&self) -> Option<RunnerId> {
        self.runner
    }

    pub fn started_ms(&self) -> Option<i64> {
        self.started_ms
    }

    pub fn priority(&self) -> i64 {
        self.priority
    }

    /// Returns the hash of the definition.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Returns the index of the profile in its workflow.
    pub fn profile(&self) -> u32 {
        self.profile
    }

    /// Returns the declared runtimes along the longest chain of dependents, in seconds.
    pub fn downstream_seconds(&self) -> u32 {
        self.downstream_seconds
    }

    /// Returns the number of parents and of revoked leases that have not ended.
    #[cfg(test)]
    pub fn unmet(&self) -> u32 {
        self.unmet
    }

    /// Returns the number of revoked leases that have not ended.
    pub fn ending(&self) -> u8 {
        self.ending
    }

    /// Returns whether the runner of the started attempt is silent.
    pub fn is_unconfirmed(&self) -> bool {
        self.unconfirmed
    }

    /// Returns the number of times that the lease of the current attempt was requested back for another runner.
    pub fn moves(&self) -> u8 {
        self.moves
    }

    /// Returns the entry of the job, which is the `ordinal`-th, in the ready queue of its class.
    pub(super) fn ready_job(&self, ordinal: u32) -> ReadyJob {
        ReadyJob::new(self.priority, self.downstream_seconds, ordinal)
    }

    /// Returns the columns that change while a job runs.
    pub(super) fn update(&self) -> JobUpdate {
        JobUpdate {
            id: self.id,
            state: self.state,
            run: self.run,
            attempt: self.attempt,
            lease_id: self.lease_id,
            runner: self.runner,
            started_ms: self.started_ms,
        }
    }
}
