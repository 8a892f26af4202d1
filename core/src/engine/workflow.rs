//! A workflow in memory: its row, its document and its parts.

use std::sync::Arc;

use torc_api::document::WorkflowDocument;
use torc_api::state::{Cause, JobState};
use torc_api::status::FailureSample;
use torc_api::termination::EndMargin;
use torc_api::workflow::{StopPolicy, WorkflowSpec};

use super::action_list::Actions;
use super::allocation_list::Allocations;
use super::detached_leases::DetachedLeases;
use super::failures::Failures;
use super::graph::{Graph, StateChange};
use super::recovery_scripts::Recoveries;
use super::tx::Tx;
use super::user_data::Data;
use crate::ids::WorkflowId;
use crate::job::{InvalidTransition, JobEvent};
use crate::rows::{JobRow, ProfileRow, Regenerated, ResultRow, WorkflowRow};

pub(super) struct Workflow {
    pub row: WorkflowRow,
    pub spec: Arc<WorkflowSpec>,
    pub graph: Graph,
    pub failures: Failures,
    /// Values that jobs exchange.
    pub data: Data,
    pub leases: DetachedLeases,
    pub actions: Actions,
    /// Schedulers that recovery has made.
    pub regenerated: Vec<Regenerated>,
    /// The document with them, as far as Slurm is concerned.
    pub spec_with_regenerated: Option<Arc<WorkflowSpec>>,
    pub recoveries: Recoveries,
    pub allocations: Allocations,
}

impl Workflow {
    /// Builds the live form of stored rows. `jobs` must be sorted by number; unknown dependencies are left out.
    pub fn build(
        row: WorkflowRow,
        spec: Arc<WorkflowSpec>,
        profiles: impl IntoIterator<Item = ProfileRow>,
        jobs: &[JobRow],
    ) -> Self {
        let graph = Graph::new(row.id, profiles, jobs);
        Self::with_graph(row, spec, graph)
    }

    /// Builds the live form of a row and its jobs.
    pub fn with_graph(row: WorkflowRow, spec: Arc<WorkflowSpec>, graph: Graph) -> Self {
        let mut workflow = Self {
            graph,
            row,
            spec,
            failures: Failures::default(),
            data: Data::default(),
            leases: DetachedLeases::default(),
            actions: Actions::default(),
            regenerated: Vec::new(),
            spec_with_regenerated: None,
            recoveries: Recoveries::default(),
            allocations: Allocations::default(),
        };
        workflow.load_regenerated();
        workflow
    }

    /// Returns the margin before the end of a runner's time in which its jobs get their first signal.
    pub fn end_margin(&self, in_allocation: bool) -> EndMargin {
        EndMargin::of(self.spec.execution_config.as_ref(), in_allocation)
    }

    pub fn id(&self) -> WorkflowId {
        self.row.id
    }

    pub fn is_suspended(&self) -> bool {
        self.row.suspended
            || self.spec.suspend == Some(true)
            || self.spec.stop_policy == Some(StopPolicy::Drain)
            || self.is_managed_by_other()
    }

    /// Another controller looks after it.
    pub fn is_managed_by_other(&self) -> bool {
        self.spec.is_managed_by_other()
    }

    pub fn is_canceled(&self) -> bool {
        self.row.canceled || self.spec.stop_policy == Some(StopPolicy::Cancel)
    }

    /// The job runs, and a person wants it ended.
    pub fn should_terminate(&self, job: u32) -> bool {
        self.is_canceled() && self.graph.job(job).state() == JobState::Running
    }

    /// Applies an event to a job, and lets the parts of the workflow that depend on the states of jobs follow.
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

    /// Begins a new run; what was remembered of the one before is history.
    pub fn begin_run(&mut self, run: i32, tx: &mut Tx) {
        self.row.run = run;
        self.row.started_ms = None;
        self.row.completed_ms = None;
        // Whoever asks for a new run wants it to run.
        self.row.canceled = false;
        self.row.expired = false;
        self.failures.begin_run();
        self.begin_run_of_actions(tx);
    }

    /// Keeps a sample of an attempt that failed in this run. That a runner was stopped says nothing about the job.
    pub fn remember_failure(&mut self, result: &ResultRow) {
        let (Some(job), Some(cause)) = (self.graph.ordinal(result.job), result.cause) else { return };
        if result.run != self.row.run || matches!(cause, Cause::Stopped | Cause::Canceled) {
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
