//! The state of everything that is live, and every command that changes it.
//!
//! A command takes a [`Tx`], changes memory and records in it what has to be written; the caller writes it in one transaction and
//! only then gives out the answers. If the write fails, the whole state is dropped and read again: memory is a projection.
//! Deliberately absent: I/O, SQL, the clock, waiting.
//!
//! What is kept is in modules of its own that know nothing of workflows: `runners` and `held_leases`, and the parts of a workflow
//! (`action_list`, `allocation_list`, `detached_leases`, `failures`, `recovery_scripts`, `user_data`). Only they write their fields. The
//! other modules are commands and questions; `leases` holds the life cycle that jobs, actions and recovery scripts share.

mod accounting;
mod action_list;
mod actions;
mod activity;
mod allocation_list;
mod allocations;
mod apply;
mod attempt;
mod change_set;
mod data;
mod deadline;
mod detached_leases;
mod explain;
mod failures;
mod files;
mod graph;
mod held_leases;
mod leases;
mod long_polls;
mod lost_runners;
mod nodes;
mod pool;
mod recover;
mod recovery;
mod recovery_scripts;
mod regenerate;
mod replay;
mod reports;
mod reset;
mod restore;
mod rights;
mod runner_policy;
mod runners;
mod spawn;
mod status;
mod sync;
mod tx;
mod user_data;
mod verbs;
mod workflow;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use torc_api::document::DEFAULT_NAMESPACE;
use torc_api::wire::RunnerScope;

use crate::ids::{RunnerId, WorkflowId};
use crate::rows::LastIds;

pub use actions::PendingAllocation;
pub use activity::Activity;
pub use allocation_list::UNPRODUCTIVE_LIMIT;
pub use allocations::{Observation, Orphans, allocation_view, slurm_name};
pub use apply::{Apply, apply_changes};
pub use data::{DataWritten, LARGEST_VALUE};
pub use graph::JobDetail;
pub use long_polls::{LongPoll, LongPolls};
pub use lost_runners::LostRunners;
pub use pool::Demand;
pub use recover::{LatestResults, Recover};
pub use regenerate::Regenerate;
pub use restore::UnreadableDocument;
pub use spawn::{LINEAGE_VARIABLE, MAX_ITERATIONS, Spawn};
pub use sync::SyncAnswer;
pub use tx::Tx;
pub use verbs::Retry;

pub use crate::ids::AllocationKey;
pub use crate::planning::course::AllocationSummary;

use allocations::SlurmRecords;
use runners::Runners;
use workflow::Workflow;

/// Everything that is live.
#[derive(Default)]
pub struct Engine {
    workflows: BTreeMap<WorkflowId, Workflow>,
    /// Every workflow that has not settled. Those that have are not looked at when runners speak, however many there are.
    live: BTreeSet<WorkflowId>,
    names: HashMap<(String, String), WorkflowId>,
    runners: Runners,
    /// What a foreground `torc apply` runs.
    session: Session,
    /// What is known of Slurm itself.
    slurm: SlurmRecords,
    /// What tells this store from others.
    identity: String,
    last: LastIds,
    /// Rises whenever there may be something new for a waiting runner.
    wake_version: u64,
}

/// Workflows that the owner of the store was asked to run, and facts that it has learned. Not stored: the next owner starts afresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The workflows that were applied since.
    workflows: BTreeSet<WorkflowId>,
    /// It submits allocations: then the jobs of workflows that are for Slurm run there, and only where somebody asks for them by
    /// their workflow's name.
    serves_slurm: bool,
    /// Partitions of the clusters that it has looked at.
    partitions: nodes::KnownPartitions,
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No such workflow.
    #[error("workflow '{0}' does not exist")]
    NoWorkflow(String),
    /// No such job.
    #[error("job '{job}' does not exist in workflow '{workflow}'")]
    NoJob {
        /// The workflow's name.
        workflow: String,
        /// What was asked for.
        job: String,
    },
    /// No such data.
    #[error("user data '{name}' does not exist in workflow '{workflow}'")]
    NoData {
        /// The workflow's name.
        workflow: String,
        /// What was asked for.
        name: String,
    },
    /// A request that cannot be carried out as it is.
    #[error("{0}")]
    Invalid(String),
    /// A loop goes round too often.
    #[error("loop '{lineage}' has had {most} iterations, which is the limit")]
    TooManyIterations {
        /// The loop.
        lineage: String,
        /// The limit.
        most: i64,
    },
    /// No such runner, or it has left.
    #[error("runner {0} is not registered")]
    NoRunner(RunnerId),
    /// No such cluster.
    #[error("SlurmCluster '{0}' does not exist")]
    NoCluster(String),
    /// The runner's allocation is over.
    #[error("the allocation of the runner, Slurm job {0}, is over")]
    AllocationEnded(String),
    /// The runner speaks another protocol.
    #[error("the runner speaks protocol {0}, this server speaks {wanted}", wanted = torc_api::wire::PROTOCOL)]
    Protocol(u32),
    /// A command that does not fit the workflow's state.
    #[error("{0}")]
    Conflict(String),
    /// The token does not allow it.
    #[error("{0}")]
    Forbidden(String),
}

impl Engine {
    /// A workflow by name or number. Numbers are tried when no workflow has that name.
    pub fn find(&self, namespace: &str, reference: &str) -> Result<WorkflowId, CommandError> {
        if let Some(id) = self.names.get(&(namespace.to_owned(), reference.to_owned())) {
            return Ok(*id);
        }
        let by_number = reference.parse().ok().map(WorkflowId).filter(|id| self.workflows.contains_key(id));
        by_number.ok_or_else(|| CommandError::NoWorkflow(reference.to_owned()))
    }

    /// Rises whenever there may be something new for a waiting runner.
    pub fn wake_version(&self) -> u64 {
        self.wake_version
    }

    fn workflow(&self, id: WorkflowId) -> Result<&Workflow, CommandError> {
        self.workflows.get(&id).ok_or_else(|| CommandError::NoWorkflow(id.to_string()))
    }

    fn workflow_mut(&mut self, id: WorkflowId) -> Result<&mut Workflow, CommandError> {
        self.workflows.get_mut(&id).ok_or_else(|| CommandError::NoWorkflow(id.to_string()))
    }

    /// What has been applied so far.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// This state was read again in place of one that was dropped: what had been applied is still what this process runs.
    pub fn continue_session(&mut self, before: &Session) {
        self.session.workflows.extend(before.workflows.iter().filter(|id| self.workflows.contains_key(id)));
        self.session.serves_slurm = before.serves_slurm;
        self.session.partitions.clone_from(&before.partitions);
    }

    /// This process submits allocations from now on.
    pub fn serve_slurm(&mut self) {
        self.session.serves_slurm = true;
    }

    /// Its jobs are left to Slurm.
    fn is_left_to_slurm(&self, id: WorkflowId) -> bool {
        self.session.serves_slurm && self.workflows.get(&id).is_some_and(Workflow::is_for_slurm)
    }

    /// The workflows that a runner with this scope serves and that have not settled.
    fn live_in_scope(&self, scope: &RunnerScope) -> Vec<WorkflowId> {
        match scope {
            RunnerScope::All => self.live.iter().copied().filter(|id| !self.is_left_to_slurm(*id)).collect(),
            RunnerScope::Session => {
                let ours = self.live.intersection(&self.session.workflows).copied();
                ours.filter(|id| !self.is_left_to_slurm(*id)).collect()
            }
            RunnerScope::Workflow(reference) => {
                self.find_served(reference).filter(|id| self.live.contains(id)).into_iter().collect()
            }
        }
    }

    /// Every workflow that a runner with this scope serves.
    fn in_scope<'a>(&'a self, scope: &RunnerScope) -> Box<dyn Iterator<Item = &'a Workflow> + 'a> {
        match scope {
            RunnerScope::All => {
                Box::new(self.workflows.values().filter(|workflow| !self.is_left_to_slurm(workflow.id())))
            }
            RunnerScope::Session => {
                let ours = self.session.workflows.iter().filter(|id| !self.is_left_to_slurm(**id));
                Box::new(ours.filter_map(|id| self.workflows.get(id)))
            }
            RunnerScope::Workflow(reference) => {
                Box::new(self.find_served(reference).and_then(|id| self.workflows.get(&id)).into_iter())
            }
        }
    }

    /// `name`, `namespace/name` or a number.
    fn find_served(&self, reference: &str) -> Option<WorkflowId> {
        let (namespace, name) = reference.split_once('/').unwrap_or((DEFAULT_NAMESPACE, reference));
        self.find(namespace, name).ok()
    }
}
