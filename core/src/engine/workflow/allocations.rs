//! The Slurm allocations of a workflow. Only this module writes their rows.

use std::collections::BTreeMap;

use torc_api::allocation::AllocationStatus;
use torc_api::slurm::SlurmState;

use crate::engine::tx::Tx;
use crate::ids::{AllocationId, AllocationKey, WorkflowId};
use crate::planning::allocation_plan::AllocationSummary;
use crate::planning::orphans::SlurmObservation;
use crate::rows::AllocationRow;

/// The answer of Slurm about an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The allocation that the answer is about.
    pub key: AllocationKey,
    /// Meaning of the answer of Slurm.
    pub observation: SlurmObservation,
    /// Time for which Slurm has not known the allocation, in milliseconds.
    pub unseen_ms: i64,
    /// Name of the state in Slurm.
    pub state_text: Option<String>,
    /// Reason why it is pending.
    pub reason: Option<String>,
    /// Actual or estimated start.
    pub start_ms: Option<i64>,
    /// Actual or latest possible end.
    pub end_ms: Option<i64>,
    /// Its nodes, as Slurm lists them.
    pub node_list: Option<String>,
    /// Its partition, as Slurm reports it.
    pub partition: Option<String>,
    /// End of its earlier start, if it was requeued.
    pub former_end: Option<SlurmState>,
}

impl Observation {
    /// Returns the observation for a query without an answer.
    pub fn unanswered(key: AllocationKey) -> Self {
        Self {
            key,
            observation: SlurmObservation::NoAnswer,
            unseen_ms: 0,
            state_text: None,
            reason: None,
            start_ms: None,
            end_ms: None,
            node_list: None,
            partition: None,
            former_end: None,
        }
    }
}

/// The allocations of a workflow.
#[derive(Debug, Default)]
pub(in crate::engine) struct Allocations {
    /// Allocations that have not ended.
    live: BTreeMap<AllocationId, AllocationRow>,
    /// Number of ended allocations.
    finished: i64,
    /// Number of consecutive allocations that ended without a finished job, except for preempted ones and failed nodes.
    unproductive: u32,
    /// Number of consecutive polls in which an allocation ran without the runners that it had. Not stored: polls count it again.
    idle_polls: BTreeMap<AllocationId, u32>,
    /// The summary of the last plan of the controller.
    summary: AllocationSummary,
}

/// Number of consecutive unproductive allocations after which no more are submitted. Enough to outlast a short outage of a cluster.
pub const UNPRODUCTIVE_LIMIT: u32 = 5;

impl Allocations {
    /// Restores the allocations that have not ended, and the number of those that have.
    pub fn restore(&mut self, live: Vec<AllocationRow>, finished: i64) {
        self.live = live.into_iter().map(|row| (row.id, row)).collect();
        self.finished = finished;
    }

    /// Returns the allocations that have not ended.
    pub fn iter(&self) -> impl Iterator<Item = &AllocationRow> {
        self.live.values()
    }

    pub fn get(&self, id: AllocationId) -> Option<&AllocationRow> {
        self.live.get(&id)
    }

    pub fn summary(&self) -> &AllocationSummary {
        &self.summary
    }

    /// Adds allocations to be submitted. `called_ms`: time at which `sbatch` is about to be called for them, if it is.
    pub fn add(
        &mut self,
        workflow: WorkflowId,
        templates: Vec<AllocationRow>,
        called_ms: Option<i64>,
        tx: &mut Tx,
    ) -> Vec<AllocationRow> {
        let mut added = Vec::new();
        for template in templates {
            let row = AllocationRow {
                id: tx.next_allocation(),
                workflow,
                status: AllocationStatus::Pending,
                created_ms: tx.now.wall_ms,
                called_ms,
                ..template
            };
            tx.changes.allocation(&row);
            self.live.insert(row.id, row.clone());
            added.push(row);
        }
        added
    }

    /// Records that `sbatch` is about to be called again for an allocation. Returns none if it is submitted or canceled.
    pub fn call(&mut self, id: AllocationId, tx: &mut Tx) -> Option<AllocationRow> {
        let row = self.live.get_mut(&id)?;
        if row.slurm_job_id.is_some() || row.canceled_ms.is_some() {
            return None;
        }
        row.called_ms = Some(tx.now.wall_ms);
        tx.changes.allocation(row);
        Some(row.clone())
    }

    /// Records the Slurm job of an allocation that has none yet.
    pub fn submit(&mut self, id: AllocationId, slurm_job_id: &str, tx: &mut Tx) {
        if let Some(row) = self.live.get_mut(&id) {
            row.slurm_job_id = Some(slurm_job_id.to_owned());
            row.submitted_ms = Some(tx.now.wall_ms);
            row.message = None;
            tx.changes.allocation(row);
        }
        self.summary.refused = None;
    }

    /// Records a failed submission. `maybe_delivered`: Slurm may have received it. Returns whether the message is new.
    pub fn refuse(&mut self, id: AllocationId, message: &str, maybe_delivered: bool, tx: &mut Tx) -> bool {
        let Some(row) = self.live.get_mut(&id) else { return false };
        if !maybe_delivered {
            row.called_ms = None;
        }
        let is_new = row.message.as_deref() != Some(message);
        row.message = Some(message.to_owned());
        tx.changes.allocation(row);
        self.summary.refused = Some(message.to_owned());
        is_new
    }

    /// Records that an allocation is to be canceled.
    pub fn cancel(&mut self, id: AllocationId, tx: &mut Tx) -> Option<&AllocationRow> {
        let row = self.live.get_mut(&id)?;
        row.canceled_ms = Some(tx.now.wall_ms);
        tx.changes.allocation(row);
        Some(row)
    }

    /// Records that a pending allocation has nodes. Returns none if it is not pending.
    pub fn start(&mut self, id: AllocationId, started_ms: i64, tx: &mut Tx) -> Option<&AllocationRow> {
        let row = self.live.get_mut(&id).filter(|row| row.status == AllocationStatus::Pending)?;
        row.status = AllocationStatus::Active;
        // Slurm reports whole seconds of another clock. No allocation starts before it is submitted.
        let started_ms = started_ms.max(row.submitted_ms.unwrap_or(started_ms));
        row.started_ms = Some(started_ms);
        row.expected_end_ms.get_or_insert(started_ms.saturating_add(row.seconds.saturating_mul(1_000)));
        row.estimated_start_ms = None;
        row.slurm_reason = None;
        tx.changes.allocation(row);
        Some(row)
    }

    /// Records what Slurm says about an allocation. Returns its state if it is in the queue.
    pub fn observe(&mut self, observation: &Observation, tx: &mut Tx) -> Option<SlurmState> {
        let row = self.live.get_mut(&observation.key.1)?;
        let before = row.clone();
        if let Some(text) = &observation.state_text {
            row.slurm_state = Some(text.clone());
        }
        row.unseen_since_ms = match observation.observation {
            SlurmObservation::NoAnswer => row.unseen_since_ms,
            SlurmObservation::Queued(_) => None,
            SlurmObservation::Recorded(state) if state.is_over() => None,
            SlurmObservation::Recorded(_) | SlurmObservation::Unseen => row.unseen_since_ms.or(Some(tx.now.wall_ms)),
        };
        let queued = match observation.observation {
            SlurmObservation::Queued(state) => Some(state),
            _ => None,
        };
        if let Some(state) = queued {
            row.node_list = observation.node_list.clone().or_else(|| row.node_list.take());
            row.partition = observation.partition.clone().or_else(|| row.partition.take());
            let is_pending = matches!(state, SlurmState::Pending | SlurmState::ComingBack);
            row.slurm_reason = observation.reason.clone().filter(|_| is_pending);
            row.estimated_start_ms = observation.start_ms.filter(|_| is_pending);
            if state.has_nodes() {
                row.expected_end_ms = observation.end_ms;
            }
        }
        if *row != before {
            tx.changes.allocation(row);
        }
        queued
    }

    /// Records that Slurm has requeued an allocation.
    pub fn requeue(&mut self, observation: &Observation, tx: &mut Tx) -> Option<&AllocationRow> {
        let row = self.live.get_mut(&observation.key.1)?;
        let has_nodes = matches!(observation.observation, SlurmObservation::Queued(state) if state.has_nodes());
        row.status = if has_nodes { AllocationStatus::Active } else { AllocationStatus::Pending };
        row.started_ms = observation.start_ms.filter(|_| has_nodes);
        row.expected_end_ms = observation.end_ms.filter(|_| has_nodes);
        tx.changes.allocation(row);
        Some(row)
    }

    /// Records that a runner of the allocation has reported the end of a job.
    pub fn record_report(&mut self, id: AllocationId, tx: &mut Tx) {
        if let Some(row) = self.live.get_mut(&id).filter(|row| !row.has_reported) {
            row.has_reported = true;
            tx.changes.allocation(row);
        }
    }

    /// Ends an allocation. `state`: what Slurm says about its end; none if Slurm has never received it.
    pub fn end(
        &mut self,
        id: AllocationId,
        state: Option<SlurmState>,
        ended_ms: i64,
        tx: &mut Tx,
    ) -> Option<AllocationRow> {
        self.idle_polls.remove(&id);
        let mut row = self.live.remove(&id)?;
        self.finished += 1;
        let is_requested = row.canceled_ms.is_some();
        let is_canceled = is_requested && state.is_none_or(|state| state == SlurmState::Cancelled);
        row.status = if is_canceled { AllocationStatus::Canceled } else { AllocationStatus::Complete };
        row.ended_ms = Some(ended_ms.max(row.started_ms.unwrap_or(ended_ms)));
        row.estimated_start_ms = None;
        row.expected_end_ms = None;
        if row.has_reported {
            self.forget_unproductive();
        } else if !is_requested && state.is_none_or(is_unproductive) {
            self.unproductive += 1;
        }
        tx.changes.allocation(&row);
        Some(row)
    }

    /// Subtracts ended allocations whose records were deleted.
    pub fn forget_finished(&mut self, count: i64) {
        self.finished = (self.finished - count).max(0);
    }

    /// Returns the number of consecutive polls in which an allocation ran without the runners that it had.
    pub fn idle_polls(&self, id: AllocationId) -> u32 {
        self.idle_polls.get(&id).copied().unwrap_or_default()
    }

    /// Counts a poll of an allocation. `is_occupied`: a runner lives in it.
    pub fn count_poll(&mut self, id: AllocationId, state: SlurmState, is_occupied: bool) {
        let had_runners = self.get(id).is_some_and(|row| row.has_reported);
        if state == SlurmState::Running && had_runners && !is_occupied {
            *self.idle_polls.entry(id).or_default() += 1;
        } else {
            self.idle_polls.remove(&id);
        }
    }

    /// Records the summary of a plan. Returns whether it has changed.
    pub fn set_summary(&mut self, summary: AllocationSummary) -> bool {
        let before = std::mem::replace(&mut self.summary, summary);
        before != self.summary
    }

    /// Returns the number of ended allocations.
    pub fn finished(&self) -> i64 {
        self.finished
    }

    /// Resets the count of unproductive allocations. Returns whether there were any.
    pub fn forget_unproductive(&mut self) -> bool {
        std::mem::take(&mut self.unproductive) > 0
    }

    /// Returns the numbers of pending and of active allocations.
    pub fn counts(&self) -> (i64, i64) {
        let of = |status| self.live.values().filter(|row| row.status == status).count() as i64;
        (of(AllocationStatus::Pending), of(AllocationStatus::Active))
    }

    /// Returns the same allocations after an edit, which may have removed the cause of unproductive ones.
    pub fn after_edit(&self) -> Self {
        let summary = AllocationSummary { desired: self.summary.desired, ..AllocationSummary::default() };
        let (live, idle_polls) = (self.live.clone(), self.idle_polls.clone());
        Self { live, finished: self.finished, unproductive: 0, idle_polls, summary }
    }

    /// Returns whether too many consecutive allocations were unproductive to submit another one.
    pub fn is_exhausted(&self) -> bool {
        self.unproductive >= UNPRODUCTIVE_LIMIT
    }
}

/// Returns whether an end without a finished job suggests that the next allocation would be unproductive, too.
fn is_unproductive(state: SlurmState) -> bool {
    !matches!(state, SlurmState::Preempted | SlurmState::NodeFailure | SlurmState::BootFailure)
}
