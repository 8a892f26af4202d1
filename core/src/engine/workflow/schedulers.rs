//! The Slurm schedulers of a workflow: those of its document, and those that recovery has planned.

use std::sync::Arc;

use torc_api::cluster::LOCAL;
use torc_api::resources::SlurmScheduler;
use torc_api::workflow::WorkflowSpec;

use crate::rows::RegeneratedScheduler;

/// The Slurm schedulers of a workflow.
#[derive(Debug, PartialEq)]
pub(in crate::engine) struct Schedulers {
    document: Arc<WorkflowSpec>,
    /// Schedulers that recovery has planned.
    planned: Vec<RegeneratedScheduler>,
    /// The document without its jobs, but with the planned schedulers. None if there are no such schedulers.
    extended: Option<Arc<WorkflowSpec>>,
}

impl Schedulers {
    /// Reads the schedulers of a document, and those that `planned` lists as JSON.
    pub fn load(document: Arc<WorkflowSpec>, planned: &str) -> Self {
        Self::new(document, serde_json::from_str(planned).unwrap_or_default())
    }

    fn new(document: Arc<WorkflowSpec>, planned: Vec<RegeneratedScheduler>) -> Self {
        let extended = (!planned.is_empty()).then(|| {
            let mut spec = WorkflowSpec { jobs: Vec::new(), ..(*document).clone() };
            spec.slurm_schedulers.extend(planned.iter().map(|one| one.scheduler.clone()));
            Arc::new(spec)
        });
        Self { document, planned, extended }
    }

    /// Replaces the planned schedulers, and returns them as JSON; empty if there are none.
    pub fn replan(&mut self, planned: Vec<RegeneratedScheduler>) -> String {
        *self = Self::new(self.document.clone(), planned);
        if self.planned.is_empty() { String::new() } else { serde_json::to_string(&self.planned).unwrap_or_default() }
    }

    /// Returns the schedulers that recovery has planned.
    pub fn planned(&self) -> &[RegeneratedScheduler] {
        &self.planned
    }

    /// Returns all schedulers, those that recovery has planned first.
    pub fn iter(&self) -> impl Iterator<Item = &SlurmScheduler> {
        self.planned.iter().map(|one| &one.scheduler).chain(&self.document.slurm_schedulers)
    }

    pub fn get(&self, name: &str) -> Option<&SlurmScheduler> {
        self.iter().find(|scheduler| scheduler.name.as_deref() == Some(name))
    }

    /// Returns the document with the planned schedulers.
    pub fn spec(&self) -> Arc<WorkflowSpec> {
        Arc::clone(self.extended.as_ref().unwrap_or(&self.document))
    }

    /// Returns whether the workflow runs in Slurm allocations.
    pub fn is_for_slurm(&self) -> bool {
        self.document.slurm_cluster.is_some() || self.are_submitted_by_actions()
    }

    /// Returns whether actions submit the allocations, and not the controller by the requirements of the jobs.
    pub fn are_submitted_by_actions(&self) -> bool {
        !self.planned.is_empty() || self.document.requests_slurm_nodes()
    }

    /// Returns whether the controller submits allocations by the requirements of the jobs.
    pub fn are_sized_by_jobs(&self) -> bool {
        self.is_for_slurm() && !self.are_submitted_by_actions()
    }

    /// Returns the cluster that the workflow runs on, if it runs on Slurm.
    pub fn cluster(&self) -> Option<&str> {
        self.is_for_slurm().then(|| self.cluster_or_local())
    }

    /// Returns the cluster that the document names, or the Slurm of this machine.
    pub fn cluster_or_local(&self) -> &str {
        self.document.slurm_cluster.as_deref().unwrap_or(LOCAL)
    }
}
