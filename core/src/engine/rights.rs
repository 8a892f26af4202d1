//! Rights of tokens to workflows and runners.

use std::collections::BTreeSet;

use torc_api::token::Grant;
use torc_api::wire::{RunnerScope, SyncRequest};

use super::CommandError;
use super::runners::{LiveRunner, Runners};
use super::workflows::Workflows;
use crate::ids::{RunnerId, WorkflowId};

/// The rights of tokens to workflows and runners.
#[derive(Clone, Copy)]
pub struct Rights<'a> {
    workflows: &'a Workflows,
    runners: &'a Runners,
}

impl<'a> Rights<'a> {
    pub(super) fn new(workflows: &'a Workflows, runners: &'a Runners) -> Self {
        Self { workflows, runners }
    }

    /// Returns the owner of a workflow.
    pub fn owner(self, id: WorkflowId) -> Option<&'a str> {
        self.workflows.get(&id).map(|workflow| workflow.row().owner.as_str())
    }

    /// Returns whether a grant includes a workflow.
    pub fn includes(self, grant: &Grant, id: WorkflowId) -> bool {
        let row = self.workflows.get(&id).map(|workflow| workflow.row());
        match grant {
            Grant::Admin | Grant::Pool => true,
            Grant::Owner { user } => row.is_some_and(|row| row.owner == *user),
            // The namespace counts, not the owner that the document names.
            Grant::Viewer { namespace } | Grant::Editor { namespace } => {
                row.is_some_and(|row| row.namespace == *namespace)
            }
            Grant::Runner { workflow } => *workflow == id.0,
            Grant::Metrics => false,
        }
    }

    /// Returns the workflows that a grant includes; none if it includes all.
    pub fn included(self, grant: &Grant) -> Option<BTreeSet<WorkflowId>> {
        let all = || self.workflows.keys().copied();
        (!includes_all(grant)).then(|| all().filter(|id| self.includes(grant, *id)).collect())
    }

    /// Returns an error if a grant does not permit to apply a document of this name.
    pub fn may_apply(self, grant: &Grant, namespace: &str, name: &str) -> Result<(), CommandError> {
        match self.workflows.id_of(namespace, name) {
            Some(id) if !self.includes(grant, id) => {
                let owner = self.owner(id).unwrap_or_default();
                Err(CommandError::Forbidden(format!("workflow '{name}' belongs to {owner}")))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a grant permits to register a runner with this scope. Only grants that include all workflows permit a runner for
    /// several workflows.
    pub fn may_serve(self, grant: &Grant, scope: &RunnerScope) -> bool {
        includes_all(grant) || self.workflows.only_served(scope).is_some_and(|id| self.includes(grant, id))
    }

    /// Returns whether a grant includes a runner and everything in its message. The runner need not exist.
    pub fn may_sync(self, grant: &Grant, runner: RunnerId, request: &SyncRequest) -> bool {
        let serves = |runner: &LiveRunner| self.may_serve(grant, &runner.row().scope);
        includes_all(grant)
            || (self.runners.get(&runner).is_none_or(serves)
                && workflows_of(request).all(|id| self.includes(grant, WorkflowId(id))))
    }
}

fn includes_all(grant: &Grant) -> bool {
    matches!(grant, Grant::Admin | Grant::Pool)
}

/// Returns the workflows that the attempts and statistics in a message belong to.
fn workflows_of(request: &SyncRequest) -> impl Iterator<Item = i64> {
    let running = request.running.iter().map(|running| &running.key);
    let finished = request.finished.iter().map(|finished| &finished.key);
    let attempts = request.queued.iter().chain(&request.returned).chain(running).chain(finished);
    let of_results = request.finished.iter().filter_map(|finished| finished.slurm_stats.as_deref());
    attempts.map(|key| key.workflow).chain(request.slurm_stats.iter().chain(of_results).map(|stats| stats.workflow))
}
