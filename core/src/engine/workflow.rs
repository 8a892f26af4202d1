//! A workflow in memory: its row, its document and its parts.

mod actions;
mod allocations;
mod detached_leases;
mod failures;
mod graph;
mod record;
mod recoveries;
mod schedulers;
mod user_data;

use std::collections::BTreeSet;
use std::sync::Arc;

use torc_api::document::WorkflowDocument;
use torc_api::state::{Cause, JobState};
use torc_api::status::FailureSample;
use torc_api::termination::EndMargin;
use torc_api::workflow::{StopPolicy, WorkflowSpec};

pub(super) use actions::{ActionOutcome, ActionRecord, Actions, is_at_end};
pub(super) use allocations::Allocations;
pub use allocations::{Observation, UNPRODUCTIVE_LIMIT};
pub(super) use graph::Graph;
pub use graph::JobDetail;
#[cfg(test)]
pub(super) use graph::JobRecord;
pub(super) use user_data::{Data, undeclared};

use detached_leases::DetachedLeases;
use failures::Failures;
use graph::StateChange;
use record::WorkflowRecord;
use recoveries::Recoveries;
use schedulers::Schedulers;

use super::CommandError;
use super::tx::Tx;
use crate::ids::WorkflowId;
use crate::job::{InvalidTransition, JobEvent};
use crate::rows::{ResultRow, WorkflowRow};

/// A workflow in memory.
pub(super) struct LiveWorkflow {
    pub record: WorkflowRecord,
    spec: Arc<WorkflowSpec>,
    pub graph: Graph,
    pub schedulers: Schedulers,
    pub failures: Failures,
    pub data: Data,
    pub leases: DetachedLeases,
    pub actions: Actions,
    pub recoveries: Recoveries,
    pub allocations: Allocations,
}

impl LiveWorkflow {
    /// Builds the workflow of a row with its jobs. The other parts are empty.
    pub fn new(row: WorkflowRow, spec: Arc<WorkflowSpec>, graph: Graph) -> Self {
        Self {
            graph,
            schedulers: Schedulers::load(spec.clone(), &row.recovery_schedulers),
            record: WorkflowRecord::new(row),
            spec,
            failures: Failures::default(),
            data: Data::default(),
            leases: DetachedLeases::default(),
            actions: Actions::default(),
            recoveries: Recoveries::default(),
            allocations: Allocations::default(),
        }
    }

    /// Returns the same workflow without some of its jobs.
    pub fn without(&self, removed: &BTreeSet<u32>) -> Self {
        let mut new = Self::new(self.row().clone(), self.spec.clone(), self.graph.without(removed));
        new.inherit(self);
        new.set_actions(self.actions.rows());
        new
    }

    /// Returns a copy, to preview a command.
    pub fn copy(&self) -> Self {
        self.without(&BTreeSet::new())
    }

    /// Takes over the state of the workflow before an edit that is neither in its row nor in its jobs.
    pub fn inherit(&mut self, old: &Self) {
        let graph = &self.graph;
        let names = graph.by_name();
        self.failures.inherit(&old.failures, |name| names.contains_key(name), |job| graph.state_of(job));
        self.data = old.data.clone();
        self.allocations = old.allocations.after_edit();
        for row in old.recoveries.iter().filter(|row| graph.ordinal(row.job).is_some()) {
            self.recoveries.insert(row.clone());
        }
        self.inherit_leases(old);
    }

    pub fn id(&self) -> WorkflowId {
        self.row().id
    }

    pub fn row(&self) -> &WorkflowRow {
        self.record.row()
    }

    pub fn spec(&self) -> &WorkflowSpec {
        &self.spec
    }

    /// Returns the margin before the end of a runner at which its jobs get their first signal.
    pub fn end_margin(&self, in_allocation: bool) -> EndMargin {
        EndMargin::of(self.spec.execution_config.as_ref(), in_allocation)
    }

    pub fn is_suspended(&self) -> bool {
        self.row().suspended
            || self.spec.suspend == Some(true)
            || self.spec.stop_policy == Some(StopPolicy::Drain)
            || self.spec.is_managed_by_other()
    }

    pub fn is_canceled(&self) -> bool {
        self.row().canceled || self.spec.stop_policy == Some(StopPolicy::Cancel)
    }

    /// Returns whether no job is left to run.
    pub fn is_settled(&self) -> bool {
        self.graph.is_settled()
    }

    /// Returns whether jobs are left to run and may start.
    pub fn is_active(&self) -> bool {
        !self.is_settled() && !self.is_suspended() && !self.is_canceled()
    }

    pub fn has_ready_jobs(&self) -> bool {
        self.graph.counts().of(JobState::Ready) > 0
    }

    /// Returns whether a job runs although its workflow is canceled.
    pub fn should_terminate(&self, job: u32) -> bool {
        self.is_canceled() && self.graph.job(job).state() == JobState::Running
    }

    /// Returns a job by name or number, or the error that it does not exist.
    pub fn require_job(&self, reference: &str) -> Result<u32, CommandError> {
        self.graph.find(reference).ok_or_else(|| self.no_job(reference))
    }

    /// Returns jobs by name or number, or the error that the first unknown one does not exist.
    pub fn require_jobs(&self, references: &[String]) -> Result<BTreeSet<u32>, CommandError> {
        self.graph.find_all(references).map_err(|reference| self.no_job(reference))
    }

    fn no_job(&self, reference: &str) -> CommandError {
        CommandError::NoJob { workflow: self.row().name.clone(), job: reference.to_owned() }
    }

    /// Applies an event to a job, and updates the parts of the workflow that depend on its state.
    pub fn transition(&mut self, job: u32, event: JobEvent, tx: &mut Tx) -> Result<JobState, InvalidTransition> {
        let StateChange { before, after } = self.graph.transition(job, event, tx)?;
        let id = self.graph.job(job).id();
        self.actions.job_moved(job, before, after);
        self.failures.job_moved(id, after);
        if before == JobState::Recovering && self.recoveries.remove(id).is_some() {
            tx.changes.recovery_ended(id);
        }
        Ok(after)
    }

    /// Begins a run. The failures of the previous one are no longer shown.
    pub fn begin_run(&mut self, run: i32, tx: &mut Tx) {
        self.record.begin_run(run, tx);
        self.failures.begin_run();
        self.begin_run_of_actions(tx);
        self.data.forget_ephemeral(tx);
    }

    /// Keeps a sample of an attempt that failed in this run, unless it ended because its runner was stopped or the job was canceled.
    pub fn remember_failure(&mut self, result: &ResultRow) {
        let (Some(job), Some(cause)) = (self.graph.ordinal(result.job), result.cause) else { return };
        if result.run != self.row().run || matches!(cause, Cause::Stopped | Cause::Canceled) {
            return;
        }
        let sample = FailureSample {
            job: self.graph.name(job).to_owned(),
            attempt: result.attempt,
            return_code: Some(result.return_code),
            cause,
            time: crate::time::rfc3339(result.ended_ms),
        };
        self.failures.remember(result.ended_ms, result.job, sample);
    }
}

/// Reads a stored document.
pub(super) fn read_spec(document: &str) -> Result<Arc<WorkflowSpec>, serde_json::Error> {
    let document: WorkflowDocument = serde_json::from_str(document)?;
    Ok(Arc::new(document.spec))
}
