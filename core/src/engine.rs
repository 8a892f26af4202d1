//! The in-memory state of all live workflows, runners and allocations, and the commands that change it.
//!
//! A command takes a [`Tx`], changes memory, and records in the transaction the rows that the caller has to write.
//! The caller writes them in one database transaction and only then sends the answers. If the write fails, the caller
//! drops the state and loads it again from the database. This module does no I/O, has no SQL, and never reads the
//! clock.
//!
//! Each part has private state that only its module writes:
//!
//! | part | module | state |
//! |---|---|---|
//! | `Workflows`, `Session` | `workflows`, `session` | workflows by number and name, those that have not settled, those of this process |
//! | `Runners` | `runners` | registered runners with their leases, offers and requests; the wake version |
//! | `SlurmRecords` | `allocations` | clusters, ended Slurm jobs, dismissed runners |
//! | `WorkflowRecord` | `workflow::record` | the row of a workflow |
//! | `Graph` | `workflow::graph` | jobs, dependencies, profiles, ready queues, counts |
//! | `Schedulers` | `workflow::schedulers` | Slurm schedulers of the document and of recovery |
//! | `Allocations` | `workflow::allocations` | Slurm allocations of a workflow |
//! | `Actions` | `workflow::actions` | actions of a workflow and the jobs that they wait for |
//! | `Recoveries` | `workflow::recoveries` | jobs that wait for a recovery script |
//! | `DetachedLeases` | `workflow::detached_leases` | superseded leases of a workflow |
//! | `Failures` | `workflow::failures` | failed attempts, and the jobs that are retried because of them |
//! | `Data` | `workflow::user_data` | user data of a workflow |
//!
//! `Leases` is the life cycle that jobs, actions and recovery scripts share. It changes workflows and runners together. The other modules
//! are commands, and views for the API.

mod accounting;
mod actions;
mod activity;
mod allocations;
mod apply;
mod attempt;
mod change_set;
mod commands;
mod data;
mod deadline;
mod explain;
mod files;
mod leases;
mod long_polls;
mod lost_runners;
mod nodes;
mod pool;
mod recover;
mod recovery;
mod regenerate;
mod replay;
mod reports;
mod reset;
mod restore;
mod rights;
mod runner_policy;
mod runners;
mod session;
mod spawn;
mod status;
mod sync;
mod task_lease;
mod tx;
mod workflow;
mod workflows;

#[cfg(test)]
mod tests;

use torc_api::wire::PROTOCOL;

use crate::ids::{Now, RunnerId, WorkflowId};
use crate::planning::partition::PartitionLimits;
use crate::rows::LastIds;

pub use activity::Activity;
pub use allocations::{Orphans, allocation_view, slurm_name};
pub use apply::Apply;
pub use commands::Retry;
pub use data::{DataWritten, MAX_VALUE_BYTES};
pub use long_polls::{LongPoll, LongPolls};
pub use lost_runners::LostRunners;
pub use pool::PoolDemand;
pub use recover::{CorrectResources, LatestResults, Recover};
pub use regenerate::Regenerate;
pub use restore::UnreadableDocument;
pub use rights::Rights;
pub use session::Session;
pub use spawn::{LINEAGE_VARIABLE, MAX_ITERATIONS, Spawn};
pub use sync::SyncAnswer;
pub use tx::Tx;
pub use workflow::{JobDetail, Observation, UNPRODUCTIVE_LIMIT};

pub use crate::ids::AllocationKey;
pub use crate::planning::allocation_plan::AllocationSummary;

use allocations::SlurmRecords;
use leases::Leases;
use runners::{Fleet, Runners};
use workflows::Workflows;

/// The in-memory state of all live workflows, runners and allocations.
#[derive(Default)]
pub struct Engine {
    workflows: Workflows,
    runners: Runners,
    slurm: SlurmRecords,
    /// Part of the names of allocations in Slurm, to distinguish the allocations of several stores.
    identity: String,
    /// The highest numbers that were assigned.
    last: LastIds,
}

/// Reasons to refuse a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The workflow does not exist.
    #[error("workflow '{0}' does not exist")]
    NoWorkflow(String),
    /// The job does not exist in the workflow.
    #[error("job '{job}' does not exist in workflow '{workflow}'")]
    NoJob {
        /// Name of the workflow.
        workflow: String,
        /// Name or number in the request.
        job: String,
    },
    /// The user data does not exist in the workflow.
    #[error("user data '{name}' does not exist in workflow '{workflow}'")]
    NoData {
        /// Name of the workflow.
        workflow: String,
        /// Name in the request.
        name: String,
    },
    /// The request contradicts itself or a limit.
    #[error("{0}")]
    Invalid(String),
    /// A loop has reached its limit of iterations.
    #[error("loop '{lineage}' has reached its limit of {most} iterations")]
    TooManyIterations {
        /// Name of the loop.
        lineage: String,
        /// Maximum number of iterations.
        most: i64,
    },
    /// The runner does not exist or has left.
    #[error("runner {0} is not registered")]
    NoRunner(RunnerId),
    /// The cluster does not exist.
    #[error("SlurmCluster '{0}' does not exist")]
    NoCluster(String),
    /// The allocation of the runner has ended.
    #[error("the allocation of the runner, Slurm job {0}, has ended")]
    AllocationEnded(String),
    /// The runner speaks another version of the protocol.
    #[error("the runner uses protocol version {0}, this server uses version {PROTOCOL}")]
    Protocol(u32),
    /// The command does not fit the state of the workflow.
    #[error("{0}")]
    Conflict(String),
    /// The token does not permit the command.
    #[error("{0}")]
    Forbidden(String),
}

impl Engine {
    /// Returns a workflow by name or number. Numbers are tried if no workflow has that name.
    pub fn find(&self, namespace: &str, reference: &str) -> Result<WorkflowId, CommandError> {
        self.workflows.find(namespace, reference)
    }

    /// Returns a number that rises whenever there may be work or a directive for a waiting runner.
    fn wake_version(&self) -> u64 {
        self.runners.wake_version()
    }

    /// Returns the rights of tokens to workflows and runners.
    pub fn rights(&self) -> Rights<'_> {
        Rights::new(&self.workflows, &self.runners)
    }

    /// Returns the identity of the store, which is part of the names of its allocations in Slurm.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the workflows that this process runs, and the facts that it has learned.
    pub fn session(&self) -> &Session {
        &self.workflows.session
    }

    /// Takes over the session of an earlier state that was dropped and loaded again.
    pub fn continue_session(&mut self, before: &Session) {
        self.workflows.continue_session(before);
    }

    /// Records that this process submits allocations from now on.
    pub fn serve_slurm(&mut self) {
        self.workflows.session.serve_slurm();
    }

    /// Records the partitions of a cluster. Not stored: the next owner of the store queries them again.
    pub fn set_partitions(&mut self, cluster: String, partitions: Vec<PartitionLimits>) {
        self.workflows.session.set_partitions(cluster, partitions);
    }

    /// Runs a workflow in this process from now on.
    pub fn serve(&mut self, id: WorkflowId) -> Result<(), CommandError> {
        self.workflows.require(id)?;
        self.workflows.session.add(id);
        self.runners.wake();
        Ok(())
    }

    fn leases(&mut self) -> Leases<'_> {
        Leases { workflows: &mut self.workflows, runners: &mut self.runners }
    }

    fn fleet(&self, now: Now) -> Fleet<'_> {
        Fleet { workflows: &self.workflows, runners: &self.runners, now }
    }
}
