//! Slurm allocations of workflows: what was asked for, what Slurm made of it, and when it is over.
//!
//! An allocation is written down before Slurm is asked for it. Its name is carried by what is submitted, so whoever finds one
//! without a number in Slurm can find out what became of it. Talking with Slurm is the controller's business.

mod clusters;
mod needs;
mod observe;
mod view;

use std::collections::{BTreeMap, HashSet};

use torc_api::allocation::AllocationStatus;
use torc_api::event_reason::EventReason;
use torc_api::quantity::format_duration;
use torc_api::slurm::SlurmState;
use torc_api::wire::RegisterRequest;

use super::runners::Runner;
use super::tx::Tx;
use super::workflow::Workflow;
use super::{CommandError, Engine};
use crate::ids::{AllocationKey, JobId, RunnerId, WorkflowId};
use crate::planning::course::AllocationSummary;
use crate::rows::{AllocationRow, ClusterRow};

pub use observe::{Observation, Orphans};
pub use view::{allocation as allocation_view, slurm_name};

/// What is known of Slurm itself: clusters, and what is over in them.
#[derive(Debug, Default)]
pub(super) struct SlurmRecords {
    /// Clusters that documents describe.
    clusters: BTreeMap<String, ClusterRow>,
    /// Slurm's numbers of allocations that are over: their runners are refused.
    ended_jobs: HashSet<String>,
    /// Runners that went with a start of their allocation, which has another one: Slurm's number, host and process. Not kept: one that
    /// comes back to the next owner of the store is dismissed again.
    dismissed: HashSet<(String, String, i64)>,
}

impl SlurmRecords {
    /// Takes over what a store knows.
    pub fn restore(clusters: Vec<ClusterRow>, ended_jobs: Vec<String>) -> Self {
        let clusters = clusters.into_iter().map(|row| (row.name.clone(), row)).collect();
        Self { clusters, ended_jobs: ended_jobs.into_iter().collect(), dismissed: HashSet::new() }
    }

    /// Forgets what is not kept, as a restart does.
    #[cfg(test)]
    pub fn forget_dismissed(&mut self) {
        self.dismissed.clear();
    }

    /// Returns what is kept.
    #[cfg(test)]
    pub fn kept(&self) -> (&BTreeMap<String, ClusterRow>, &HashSet<String>) {
        (&self.clusters, &self.ended_jobs)
    }
}

impl Engine {
    /// Writes down allocations that are about to be submitted. Slurm may only be called once this is durable.
    pub fn intend_allocations(
        &mut self,
        workflow: WorkflowId,
        wanted: Vec<AllocationRow>,
        tx: &mut Tx,
    ) -> Result<Vec<AllocationRow>, CommandError> {
        let called_ms = Some(tx.now.wall_ms);
        self.add_allocations(workflow, wanted, called_ms, tx)
    }

    /// Writes down allocations that the next look at the workflow submits.
    pub(super) fn request_allocations(
        &mut self,
        workflow: WorkflowId,
        wanted: Vec<AllocationRow>,
        tx: &mut Tx,
    ) -> Result<Vec<AllocationRow>, CommandError> {
        self.add_allocations(workflow, wanted, None, tx)
    }

    fn add_allocations(
        &mut self,
        workflow: WorkflowId,
        wanted: Vec<AllocationRow>,
        called_ms: Option<i64>,
        tx: &mut Tx,
    ) -> Result<Vec<AllocationRow>, CommandError> {
        let home = self.workflow_mut(workflow)?;
        let mut added = Vec::new();
        for template in wanted {
            let row = AllocationRow {
                id: tx.next_allocation(),
                workflow,
                status: AllocationStatus::Pending,
                created_ms: tx.now.wall_ms,
                called_ms,
                ..template
            };
            tx.changes.allocation(&row);
            home.allocations.add(row.clone());
            added.push(row);
        }
        Ok(added)
    }

    /// Slurm is about to be asked again for one that it has not got. Nothing when it is not wanted any more.
    pub fn call_allocation(&mut self, key: AllocationKey, tx: &mut Tx) -> Option<AllocationRow> {
        let row = self.live_allocation_mut(key)?;
        if row.slurm_job_id.is_some() || row.canceled_ms.is_some() {
            return None;
        }
        row.called_ms = Some(tx.now.wall_ms);
        tx.changes.allocation(row);
        Some(row.clone())
    }

    /// Slurm has accepted an allocation, or it was found there. Says whether it is known here: one that is not is nobody's.
    pub fn allocation_submitted(&mut self, key: AllocationKey, slurm_job_id: &str, tx: &mut Tx) -> bool {
        let Some(row) = self.live_allocation_mut(key) else { return false };
        if let Some(known) = &row.slurm_job_id {
            return known == slurm_job_id;
        }
        row.slurm_job_id = Some(slurm_job_id.to_owned());
        row.submitted_ms = Some(tx.now.wall_ms);
        row.message = None;
        tx.changes.allocation(row);
        let message = format!("{} is Slurm job {slurm_job_id}{}", row.name(), described(row));
        tx.event(Some(key.0), EventReason::AllocationSubmitted, message);
        let is_here = |runner: &&Runner| runner.row.slurm_job_id.as_deref() == Some(slurm_job_id);
        let runners: Vec<RunnerId> = self.runners.values().filter(is_here).map(|runner| runner.row.id).collect();
        for runner in &runners {
            if let Some(runner) = self.runners.get_mut(runner) {
                runner.allocation = Some(key);
            }
        }
        if !runners.is_empty() {
            self.allocation_started(key, tx.now.wall_ms, tx);
        }
        if let Some(workflow) = self.workflows.get_mut(&key.0) {
            workflow.allocations.set_refused(None);
            workflow.note_submissions(tx);
        }
        true
    }

    /// Slurm said no, or nobody can tell whether it heard.
    pub fn allocation_not_submitted(
        &mut self,
        key: AllocationKey,
        sentence: &str,
        perhaps_received: bool,
        tx: &mut Tx,
    ) {
        let Some(row) = self.live_allocation_mut(key) else { return };
        if !perhaps_received {
            row.called_ms = None;
        }
        let is_news = row.message.as_deref() != Some(sentence);
        row.message = Some(sentence.to_owned());
        tx.changes.allocation(row);
        let message = format!("{} was not submitted: {sentence}", row.name());
        if is_news {
            tx.event(Some(key.0), EventReason::AllocationRefused, message);
        }
        if let Some(workflow) = self.workflows.get_mut(&key.0) {
            workflow.allocations.set_refused(Some(sentence.to_owned()));
        }
    }

    /// Nobody needs these any more. Those that Slurm never heard of are over at once; the others are when Slurm says so.
    /// Returns those that Slurm has to be asked to cancel.
    pub fn cancel_allocations(&mut self, keys: &[AllocationKey], tx: &mut Tx) -> Vec<AllocationRow> {
        let mut at_slurm = Vec::new();
        for key in keys {
            let Some(row) = self.live_allocation_mut(*key) else { continue };
            row.canceled_ms = Some(tx.now.wall_ms);
            tx.changes.allocation(row);
            let row = row.clone();
            if row.slurm_job_id.is_some() {
                at_slurm.push(row);
            } else if row.called_ms.is_none() {
                self.end_allocation(*key, None, tx.now.wall_ms, tx);
            }
        }
        at_slurm
    }

    /// An allocation has nodes.
    pub(super) fn allocation_started(&mut self, key: AllocationKey, started_ms: i64, tx: &mut Tx) {
        let Some(row) = self.live_allocation_mut(key).filter(|row| row.status == AllocationStatus::Pending) else {
            return;
        };
        row.status = AllocationStatus::Active;
        // Slurm's times are whole seconds, and its clock is not ours: nothing starts before it is submitted.
        let started_ms = started_ms.max(row.submitted_ms.unwrap_or(started_ms));
        row.started_ms = Some(started_ms);
        row.expected_end_ms.get_or_insert(started_ms.saturating_add(row.seconds.saturating_mul(1_000)));
        row.estimated_start_ms = None;
        row.slurm_reason = None;
        tx.changes.allocation(row);
        let message = format!("{} has started", row.name());
        tx.event(Some(key.0), EventReason::AllocationStarted, message);
        self.wake_version += 1;
    }

    /// An allocation is over.
    pub(super) fn end_allocation(&mut self, key: AllocationKey, state: Option<SlurmState>, ended_ms: i64, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get_mut(&key.0) else { return };
        let Some(mut row) = workflow.allocations.end(key.1) else { return };
        let was_asked_to = row.canceled_ms.is_some();
        let is_canceled = was_asked_to && state.is_none_or(|state| state == SlurmState::Cancelled);
        row.status = if is_canceled { AllocationStatus::Canceled } else { AllocationStatus::Complete };
        row.ended_ms = Some(ended_ms.max(row.started_ms.unwrap_or(ended_ms)));
        row.estimated_start_ms = None;
        row.expected_end_ms = None;
        if row.has_reported {
            workflow.allocations.forget_unproductive();
        } else if !was_asked_to && state.is_none_or(is_unproductive) {
            workflow.allocations.count_unproductive();
        }
        let how = row.slurm_state.clone().or_else(|| state.map(|state| state.to_string()));
        let message = match (how, row.slurm_job_id.as_deref()) {
            (Some(how), Some(number)) => format!("{} (Slurm job {number}) is over: {how}", row.name()),
            _ => format!("{} was not submitted and is not needed any more", row.name()),
        };
        tx.changes.allocation(&row);
        tx.event(Some(key.0), EventReason::AllocationEnded, message);
        workflow.note_submissions(tx);
        self.slurm.dismissed.retain(|(number, ..)| row.slurm_job_id.as_ref() != Some(number));
        self.slurm.ended_jobs.extend(row.slurm_job_id);
        self.wake_version += 1;
    }

    /// The records of so many allocations that were over are gone.
    pub fn forget_allocations(&mut self, forgotten: &BTreeMap<WorkflowId, i64>) {
        for (id, count) in forgotten {
            if let Some(workflow) = self.workflows.get_mut(id) {
                workflow.allocations.forget_finished(*count);
            }
        }
    }

    /// A runner has reported the end of a job: its allocation was not in vain.
    pub(super) fn note_report(&mut self, id: RunnerId, tx: &mut Tx) {
        let Some(key) = self.runners.get(&id).and_then(|runner| runner.allocation) else { return };
        let Some(row) = self.live_allocation_mut(key).filter(|row| !row.has_reported) else { return };
        row.has_reported = true;
        tx.changes.allocation(row);
    }

    /// A runner introduces itself from within an allocation, by its name and Slurm's number. The one it lives in, if it is
    /// one of ours; refused if that one is over.
    pub(super) fn enter_allocation(
        &mut self,
        request: &RegisterRequest,
        tx: &mut Tx,
    ) -> Result<Option<AllocationKey>, CommandError> {
        let name = request.allocation.as_deref();
        let Some(number) = request.slurm_job_id.as_deref() else { return Ok(None) };
        let itself = (number.to_owned(), request.host.clone(), i64::from(request.pid));
        if self.slurm.dismissed.contains(&itself) {
            return Err(CommandError::AllocationEnded(number.to_owned()));
        }
        let live = || self.workflows.values().flat_map(|workflow| workflow.allocations.iter());
        let same_number = |row: &&AllocationRow| row.slurm_job_id.as_deref() == Some(number);
        let same_name = |row: &&AllocationRow| row.slurm_job_id.is_none() && name == Some(row.name().as_str());
        let found = live().find(same_number).or_else(|| live().find(same_name)).map(|row| (row.workflow, row.id));
        let Some(key) = found else {
            return match self.slurm.ended_jobs.contains(number) {
                true => Err(CommandError::AllocationEnded(number.to_owned())),
                false => Ok(None),
            };
        };
        // It was submitted, and whoever did so died before it could write that down.
        self.allocation_submitted(key, number, tx);
        self.allocation_started(key, tx.now.wall_ms, tx);
        Ok(Some(key))
    }

    /// What the controller makes of a workflow's needs.
    pub fn set_allocation_summary(&mut self, workflow: WorkflowId, summary: AllocationSummary, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get_mut(&workflow) else { return };
        if workflow.allocations.set_summary(summary) {
            workflow.refresh_conditions(tx);
        }
    }

    fn live_allocation_mut(&mut self, key: AllocationKey) -> Option<&mut AllocationRow> {
        self.workflows.get_mut(&key.0)?.allocations.get_mut(key.1)
    }
}

/// Such an end, without a job having ended before it, says that the next one may be as useless.
fn is_unproductive(state: SlurmState) -> bool {
    !matches!(state, SlurmState::Preempted | SlurmState::NodeFailure | SlurmState::BootFailure)
}

fn described(row: &AllocationRow) -> String {
    let nodes = if row.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", row.nodes) };
    let partition = row.partition.as_deref().map_or(String::new(), |name| format!("partition {name}, "));
    format!(" ({partition}{nodes}, {})", format_duration(row.seconds))
}

impl Workflow {
    /// Actions count as executed once Slurm has everything that they asked for.
    fn note_submissions(&mut self, tx: &mut Tx) {
        let open: Vec<JobId> = self
            .actions
            .open()
            .filter(|action| !action.is_for_runners() && action.row.lease.started_ms.is_some())
            .map(|action| action.row.id)
            .collect();
        for id in open {
            let is_missing =
                |row: &AllocationRow| row.action == Some(id) && row.slurm_job_id.is_none() && row.ended_ms.is_none();
            if !self.allocations.iter().any(is_missing) {
                let now_ms = tx.now.wall_ms;
                self.actions.change(id, tx, |row| {
                    row.state = torc_api::action::ActionState::Executed;
                    row.ended_ms = Some(now_ms);
                    row.return_code = Some(0);
                });
            }
        }
    }

    /// It runs in Slurm allocations: in those that an action asks for, or in those that its jobs need.
    pub fn is_for_slurm(&self) -> bool {
        self.spec.slurm_cluster.is_some() || self.has_schedule_nodes()
    }

    /// Its allocations are asked for by actions; then none is asked for by what its jobs need.
    pub fn has_schedule_nodes(&self) -> bool {
        !self.regenerated.is_empty() || self.spec.asks_slurm_for_nodes()
    }

    /// Its allocations are sized by what its jobs need.
    pub fn sizes_itself(&self) -> bool {
        self.is_for_slurm() && !self.has_schedule_nodes()
    }

    /// The Slurm that it runs on, if it does.
    pub fn cluster(&self) -> Option<&str> {
        self.is_for_slurm().then(|| self.spec.slurm_cluster.as_deref().unwrap_or(torc_api::cluster::LOCAL))
    }
}
