//! The Slurm allocations of a workflow.

use std::collections::BTreeMap;

use torc_api::allocation::AllocationStatus;

use crate::ids::AllocationId;
use crate::planning::course::AllocationSummary;
use crate::rows::AllocationRow;

/// The allocations of a workflow.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    /// Those that are not over.
    live: BTreeMap<AllocationId, AllocationRow>,
    /// How many are over.
    finished: i64,
    /// How many in a row have ended without a job having ended in them, through nobody else's need for their nodes.
    unproductive: u32,
    /// How often in a row Slurm has said that one runs while the runners that it had were gone. Not kept: it is seen again.
    idle_polls: BTreeMap<AllocationId, u32>,
    /// What the controller last made of the workflow's needs.
    summary: AllocationSummary,
}

/// So many allocations may end in a row without a single job having ended in them.
pub const UNPRODUCTIVE_LIMIT: u32 = 5;

impl Allocations {
    /// Takes over what a store knows: allocations that are not over, and the number of those that are.
    pub fn restore(&mut self, live: Vec<AllocationRow>, finished: i64) {
        self.live = live.into_iter().map(|row| (row.id, row)).collect();
        self.finished = finished;
    }

    /// Returns those that are not over.
    pub fn iter(&self) -> impl Iterator<Item = &AllocationRow> {
        self.live.values()
    }

    pub fn get(&self, id: AllocationId) -> Option<&AllocationRow> {
        self.live.get(&id)
    }

    pub fn summary(&self) -> &AllocationSummary {
        &self.summary
    }

    pub fn get_mut(&mut self, id: AllocationId) -> Option<&mut AllocationRow> {
        self.live.get_mut(&id)
    }

    pub fn add(&mut self, row: AllocationRow) {
        self.live.insert(row.id, row);
    }

    /// One is over.
    pub fn end(&mut self, id: AllocationId) -> Option<AllocationRow> {
        self.idle_polls.remove(&id);
        let row = self.live.remove(&id)?;
        self.finished += 1;
        Some(row)
    }

    /// The records of so many that were over are gone.
    pub fn forget_finished(&mut self, count: i64) {
        self.finished = (self.finished - count).max(0);
    }

    /// One has ended in vain.
    pub fn count_unproductive(&mut self) {
        self.unproductive += 1;
    }

    /// Returns how often in a row Slurm has said that one runs while the runners that it had were gone.
    pub fn idle_polls(&self, id: AllocationId) -> u32 {
        self.idle_polls.get(&id).copied().unwrap_or_default()
    }

    /// Slurm has said something of one.
    pub fn count_poll(&mut self, id: AllocationId, is_idle: bool) {
        if is_idle {
            *self.idle_polls.entry(id).or_default() += 1;
        } else {
            self.idle_polls.remove(&id);
        }
    }

    /// Records what the controller makes of the needs. Returns whether it is new.
    pub fn set_summary(&mut self, summary: AllocationSummary) -> bool {
        let before = std::mem::replace(&mut self.summary, summary);
        before != self.summary
    }

    /// Records what Slurm said when it refused the latest submission.
    pub fn set_refused(&mut self, refused: Option<String>) {
        self.summary.refused = refused;
    }

    /// Returns how many are over.
    pub fn finished(&self) -> i64 {
        self.finished
    }

    /// Ends in vain no longer count. Returns whether there were any.
    pub fn forget_unproductive(&mut self) -> bool {
        std::mem::take(&mut self.unproductive) > 0
    }

    /// Those that wait, and those that have nodes.
    pub fn counts(&self) -> (i64, i64) {
        let of = |status| self.live.values().filter(|row| row.status == status).count() as i64;
        (of(AllocationStatus::Pending), of(AllocationStatus::Active))
    }

    /// The same under an edited document: it may have been edited because they ended in vain.
    pub fn after_an_edit(&self) -> Self {
        let summary = AllocationSummary { desired: self.summary.desired, ..AllocationSummary::default() };
        let (live, idle_polls) = (self.live.clone(), self.idle_polls.clone());
        Self { live, finished: self.finished, unproductive: 0, idle_polls, summary }
    }

    /// Ended in vain so often that another one is left to a person.
    pub fn is_exhausted(&self) -> bool {
        self.unproductive >= UNPRODUCTIVE_LIMIT
    }
}
