//! A registered runner and what it holds.

use std::collections::HashMap;

use torc_api::wire::Want;

use crate::class::Place;
use crate::ids::{JobId, Now, WorkflowId};
use crate::rows::RunnerRow;

pub(super) struct Runner {
    pub row: RunnerRow,
    /// When it was last heard of.
    pub heard_ms: u64,
    /// When that was, for people.
    pub heard_wall_ms: i64,
    /// The highest sequence number seen.
    pub sequence: u64,
    /// When it has to end, on our clock.
    pub ends_ms: Option<u64>,
    /// What it last said it could use.
    pub want: Want,
    /// It has been silent for longer than its lease.
    pub silent: bool,
    pub held: HashMap<JobId, Holding>,
}

/// A lease of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    pub workflow: WorkflowId,
    /// The message whose answer brought it.
    pub granted_in: u64,
}

impl Runner {
    pub fn new(row: RunnerRow, now: Now) -> Self {
        Self {
            row,
            heard_ms: now.mono_ms,
            heard_wall_ms: now.wall_ms,
            sequence: 0,
            ends_ms: None,
            want: Want::default(),
            silent: false,
            held: HashMap::new(),
        }
    }

    pub fn place(&self, now: Now) -> Place<'_> {
        Place {
            capacity: self.row.capacity,
            labels: &self.row.labels,
            scheduler: self.row.scheduler.as_deref(),
            remaining_seconds: self.ends_ms.map(|end| (end.saturating_sub(now.mono_ms) / 1_000).cast_signed()),
            by_count: self.row.max_parallel_jobs.is_some(),
        }
    }
}
