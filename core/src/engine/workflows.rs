//! All workflows in memory, by number and by name, and the runner scopes that cover them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use torc_api::document::DEFAULT_NAMESPACE;
use torc_api::wire::RunnerScope;

use super::CommandError;
use super::session::Session;
use super::workflow::LiveWorkflow;
use crate::ids::WorkflowId;

/// All workflows in memory.
#[derive(Default)]
pub(super) struct Workflows {
    all: BTreeMap<WorkflowId, LiveWorkflow>,
    /// The workflows that have not settled. Syncs and deadlines examine only these, however many have settled.
    live: BTreeSet<WorkflowId>,
    /// Numbers by namespace and name.
    names: HashMap<(String, String), WorkflowId>,
    pub session: Session,
}

impl Workflows {
    pub fn get(&self, id: &WorkflowId) -> Option<&LiveWorkflow> {
        self.all.get(id)
    }

    pub fn get_mut(&mut self, id: &WorkflowId) -> Option<&mut LiveWorkflow> {
        self.all.get_mut(id)
    }

    /// Returns a workflow, or the error that it does not exist.
    pub fn require(&self, id: WorkflowId) -> Result<&LiveWorkflow, CommandError> {
        self.all.get(&id).ok_or_else(|| CommandError::NoWorkflow(id.to_string()))
    }

    /// Returns a workflow, or the error that it does not exist.
    pub fn require_mut(&mut self, id: WorkflowId) -> Result<&mut LiveWorkflow, CommandError> {
        self.all.get_mut(&id).ok_or_else(|| CommandError::NoWorkflow(id.to_string()))
    }

    pub fn keys(&self) -> impl Iterator<Item = &WorkflowId> {
        self.all.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &LiveWorkflow> {
        self.all.values()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut LiveWorkflow> {
        self.all.values_mut()
    }

    /// Returns a copy of one workflow with the same session, to preview a command.
    pub fn copy_of(&self, id: WorkflowId) -> Result<Self, CommandError> {
        let workflow = self.require(id)?.copy();
        let live = self.live.iter().copied().filter(|live| *live == id).collect();
        Ok(Self { all: [(id, workflow)].into(), live, names: HashMap::new(), session: self.session.clone() })
    }

    /// Returns the workflows that have not settled.
    pub fn live(&self) -> impl Iterator<Item = &LiveWorkflow> {
        self.live.iter().filter_map(|id| self.all.get(id))
    }

    pub fn is_live(&self, id: WorkflowId) -> bool {
        self.live.contains(&id)
    }

    /// Adds a workflow that has not settled, under its name.
    pub fn insert(&mut self, workflow: LiveWorkflow) {
        let row = workflow.row();
        self.names.insert((row.namespace.clone(), row.name.clone()), row.id);
        self.live.insert(row.id);
        self.all.insert(row.id, workflow);
    }

    /// Takes a workflow out to be edited. The caller puts it back.
    pub fn take(&mut self, id: WorkflowId) -> Option<LiveWorkflow> {
        self.all.remove(&id)
    }

    /// Puts an edited workflow back.
    pub fn put_back(&mut self, workflow: LiveWorkflow) {
        self.all.insert(workflow.id(), workflow);
    }

    /// Removes a deleted workflow.
    pub fn remove(&mut self, id: WorkflowId) -> Option<LiveWorkflow> {
        let workflow = self.all.remove(&id)?;
        let row = workflow.row();
        self.names.remove(&(row.namespace.clone(), row.name.clone()));
        self.session.remove(id);
        self.live.remove(&id);
        Some(workflow)
    }

    /// Takes over the session of an earlier state that was dropped and loaded again.
    pub fn continue_session(&mut self, before: &Session) {
        let all = &self.all;
        self.session.resume(before, |id| all.contains_key(&id));
    }

    /// Marks a workflow as not settled.
    pub fn reopen(&mut self, id: WorkflowId) {
        self.live.insert(id);
    }

    /// Marks a workflow as settled.
    pub fn settle(&mut self, id: WorkflowId) {
        self.live.remove(&id);
    }

    /// Returns the workflow with a name.
    pub fn named(&self, namespace: &str, name: &str) -> Option<&LiveWorkflow> {
        self.id_of(namespace, name).and_then(|id| self.all.get(&id))
    }

    pub fn id_of(&self, namespace: &str, name: &str) -> Option<WorkflowId> {
        self.names.get(&(namespace.to_owned(), name.to_owned())).copied()
    }

    /// Returns a workflow by name or number. Numbers are tried if no workflow has that name.
    pub fn find(&self, namespace: &str, reference: &str) -> Result<WorkflowId, CommandError> {
        let by_number = || reference.parse().ok().map(WorkflowId).filter(|id| self.all.contains_key(id));
        let found = self.id_of(namespace, reference).or_else(by_number);
        found.ok_or_else(|| CommandError::NoWorkflow(reference.to_owned()))
    }

    /// Returns the workflow that a scope names as `name`, `namespace/name` or a number.
    pub fn find_served(&self, reference: &str) -> Option<WorkflowId> {
        let (namespace, name) = reference.split_once('/').unwrap_or((DEFAULT_NAMESPACE, reference));
        self.find(namespace, name).ok()
    }

    /// Returns the only workflow that a scope covers; none for scopes that cover several.
    pub fn only_served(&self, scope: &RunnerScope) -> Option<WorkflowId> {
        match scope {
            RunnerScope::Workflow(reference) => self.find_served(reference),
            RunnerScope::All | RunnerScope::Session => None,
        }
    }

    /// Returns whether the jobs of a workflow run only in Slurm allocations, because this process submits
    /// allocations.
    pub fn is_left_to_slurm(&self, id: WorkflowId) -> bool {
        self.session.serves_slurm() && self.all.get(&id).is_some_and(|workflow| workflow.schedulers.is_for_slurm())
    }

    /// Returns whether a scope covers a workflow.
    pub fn is_served_by(&self, id: WorkflowId, scope: &RunnerScope) -> bool {
        match scope {
            RunnerScope::All => !self.is_left_to_slurm(id),
            RunnerScope::Session => self.session.contains(id) && !self.is_left_to_slurm(id),
            RunnerScope::Workflow(reference) => self.find_served(reference) == Some(id),
        }
    }

    /// Returns the workflows in a scope that have not settled.
    pub fn live_in_scope(&self, scope: &RunnerScope) -> Vec<WorkflowId> {
        match scope {
            RunnerScope::All => self.live.iter().copied().filter(|id| !self.is_left_to_slurm(*id)).collect(),
            RunnerScope::Session => {
                let of_session = self.live.intersection(self.session.workflows()).copied();
                of_session.filter(|id| !self.is_left_to_slurm(*id)).collect()
            }
            RunnerScope::Workflow(reference) => {
                self.find_served(reference).filter(|id| self.live.contains(id)).into_iter().collect()
            }
        }
    }

    /// Returns all workflows in a scope.
    pub fn in_scope<'a>(&'a self, scope: &RunnerScope) -> Box<dyn Iterator<Item = &'a LiveWorkflow> + 'a> {
        match scope {
            RunnerScope::All => Box::new(self.all.values().filter(|workflow| !self.is_left_to_slurm(workflow.id()))),
            RunnerScope::Session => {
                let ids = self.session.workflows().iter().filter(|id| !self.is_left_to_slurm(**id));
                Box::new(ids.filter_map(|id| self.all.get(id)))
            }
            RunnerScope::Workflow(reference) => {
                Box::new(self.find_served(reference).and_then(|id| self.all.get(&id)).into_iter())
            }
        }
    }

    /// Returns whether the successor of a runner may take over its leases: a runner for one workflow succeeds only one for the same.
    pub fn may_succeed(&self, scope: &RunnerScope, earlier: &RunnerScope) -> bool {
        match scope {
            RunnerScope::Workflow(_) => self.only_served(scope) == self.only_served(earlier),
            RunnerScope::All | RunnerScope::Session => true,
        }
    }

    /// Returns the numbers by name and the workflows that have not settled.
    #[cfg(test)]
    pub fn index(&self) -> (&HashMap<(String, String), WorkflowId>, &BTreeSet<WorkflowId>) {
        (&self.names, &self.live)
    }
}
