//! Whose is what: which workflows and runners somebody with a token may deal with.

use std::collections::BTreeSet;

use torc_api::token::Grant;
use torc_api::wire::{RunnerScope, SyncRequest};

use super::runners::Runner;
use super::{CommandError, Engine};
use crate::ids::{RunnerId, WorkflowId};

impl Engine {
    /// Whose a workflow is.
    pub fn owner(&self, id: WorkflowId) -> Option<&str> {
        self.workflows.get(&id).map(|workflow| workflow.row.owner.as_str())
    }

    /// Where a workflow is.
    fn namespace(&self, id: WorkflowId) -> Option<&str> {
        self.workflows.get(&id).map(|workflow| workflow.row.namespace.as_str())
    }

    /// Whether a workflow is one that the bearer deals with.
    pub fn is_theirs(&self, grant: &Grant, id: WorkflowId) -> bool {
        match grant {
            Grant::Admin | Grant::Pool => true,
            Grant::Owner { user } => self.owner(id) == Some(user),
            // Where it is counts, not whose name its document gives.
            Grant::Viewer { namespace } | Grant::Editor { namespace } => self.namespace(id) == Some(namespace),
            Grant::Runner { workflow } => *workflow == id.0,
            Grant::Metrics => false,
        }
    }

    /// The workflows that the bearer deals with; nothing when it is all of them.
    pub fn theirs(&self, grant: &Grant) -> Option<BTreeSet<WorkflowId>> {
        let all = || self.workflows.keys().copied();
        (!is_for_all(grant)).then(|| all().filter(|id| self.is_theirs(grant, *id)).collect())
    }

    /// Whether the bearer may apply a document of this name: a new one, or their own.
    pub fn may_apply(&self, grant: &Grant, namespace: &str, name: &str) -> Result<(), CommandError> {
        match self.names.get(&(namespace.to_owned(), name.to_owned())) {
            Some(id) if !self.is_theirs(grant, *id) => {
                let owner = self.owner(*id).unwrap_or_default();
                Err(CommandError::Forbidden(format!("workflow '{name}' belongs to {owner}")))
            }
            _ => Ok(()),
        }
    }

    /// Whether the bearer may bring a runner with this scope. Only an administrator's and a pool's serve what others own.
    pub fn may_serve(&self, grant: &Grant, scope: &RunnerScope) -> bool {
        is_for_all(grant) || self.only_served(scope).is_some_and(|id| self.is_theirs(grant, id))
    }

    /// Whether the bearer may speak for a runner, and about everything that it speaks of. A runner that is not there is another
    /// matter.
    pub fn may_sync(&self, grant: &Grant, runner: RunnerId, request: &SyncRequest) -> bool {
        let serves = |runner: &Runner| self.may_serve(grant, &runner.row.scope);
        is_for_all(grant)
            || (self.runners.get(&runner).is_none_or(serves)
                && workflows(request).all(|id| self.is_theirs(grant, WorkflowId(id))))
    }

    /// Whether a runner with one scope may succeed one with another: what serves one workflow takes over nothing of others.
    pub(super) fn may_succeed(&self, scope: &RunnerScope, earlier: &RunnerScope) -> bool {
        match scope {
            RunnerScope::Workflow(_) => self.only_served(scope) == self.only_served(earlier),
            RunnerScope::All | RunnerScope::Session => true,
        }
    }

    fn only_served(&self, scope: &RunnerScope) -> Option<WorkflowId> {
        match scope {
            RunnerScope::Workflow(reference) => self.find_served(reference),
            RunnerScope::All | RunnerScope::Session => None,
        }
    }
}

/// It concerns every workflow.
fn is_for_all(grant: &Grant) -> bool {
    matches!(grant, Grant::Admin | Grant::Pool)
}

/// The workflow of everything that a message speaks of.
fn workflows(request: &SyncRequest) -> impl Iterator<Item = i64> {
    let running = request.running.iter().map(|running| &running.key);
    let finished = request.finished.iter().map(|finished| &finished.key);
    let attempts = request.queued.iter().chain(&request.returned).chain(running).chain(finished);
    let of_ends = request.finished.iter().filter_map(|finished| finished.slurm_stats.as_deref());
    attempts.map(|key| key.workflow).chain(request.slurm_stats.iter().chain(of_ends).map(|stats| stats.workflow))
}
