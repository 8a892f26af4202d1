//! Documents for tests: the short form of a test, and the expanded document.

use std::collections::BTreeMap;

use torc_api::document::{Metadata, WorkflowDocument};
use torc_api::workflow::WorkflowSpec;

use crate::expanded::{Expanded, ExpandedJob, Requirements};

/// A workflow as a test writes it. The order of the jobs is the order of their numbers.
#[derive(Clone)]
pub struct Plan {
    pub name: String,
    pub namespace: Option<String>,
    pub jobs: Vec<PlannedJob>,
    pub spec: WorkflowSpec,
}

/// A job as a test writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedJob {
    pub name: String,
    /// The number in its command; another number gives another command.
    pub version: u32,
    /// Names of the jobs it depends on.
    pub after: Vec<String>,
    pub needs: Requirements,
    pub labels: Vec<String>,
    pub scheduler: Option<String>,
    pub priority: i64,
    pub cancel_on_failure: bool,
    pub handler: Option<String>,
}

pub fn job(name: &str) -> PlannedJob {
    PlannedJob {
        name: name.to_owned(),
        version: 0,
        after: Vec::new(),
        needs: needs(1, 0, 1),
        labels: Vec::new(),
        scheduler: None,
        priority: 0,
        cancel_on_failure: true,
        handler: None,
    }
}

/// Returns requirements: CPUs, GPUs and GiB of memory, for a minute on one node.
pub fn needs(cpus: i64, gpus: i64, gib: i64) -> Requirements {
    Requirements {
        name: format!("{cpus}c{gpus}g{gib}m"),
        num_cpus: cpus,
        num_gpus: gpus,
        memory_bytes: gib << 30,
        num_nodes: 1,
        runtime_seconds: 60,
    }
}

impl PlannedJob {
    pub fn after(mut self, parents: &[&str]) -> Self {
        self.after = parents.iter().map(|parent| (*parent).to_owned()).collect();
        self
    }

    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    pub fn needs(mut self, needs: Requirements) -> Self {
        self.needs = needs;
        self
    }

    pub fn runs_after_failures(mut self) -> Self {
        self.cancel_on_failure = false;
        self
    }
}

/// Prints only the parts in which generated plans differ.
impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { spec, .. } = self;
        writeln!(f, "{:?} {:?} {:?}", spec.recovery, spec.use_pending_failed, spec.orphan_after)?;
        for job in &self.jobs {
            let (flag, needs) = (job.cancel_on_failure, &job.needs.name);
            writeln!(f, "{} after {:?}, {flag} {needs} {:?} {}", job.name, job.after, job.labels, job.priority)?;
        }
        Ok(())
    }
}

impl Plan {
    pub fn new(jobs: impl IntoIterator<Item = PlannedJob>) -> Self {
        Self { name: "w".to_owned(), namespace: None, jobs: jobs.into_iter().collect(), spec: WorkflowSpec::default() }
    }

    pub fn with(mut self, change: impl FnOnce(&mut WorkflowSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    /// Returns the same plan with one job changed.
    pub fn edit(mut self, name: &str, change: impl FnOnce(&mut PlannedJob)) -> Self {
        change(self.jobs.iter_mut().find(|job| job.name == name).unwrap());
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.jobs.retain(|job| job.name != name);
        for job in &mut self.jobs {
            job.after.retain(|parent| parent != name);
        }
        self
    }

    pub fn plus(mut self, job: PlannedJob) -> Self {
        self.jobs.push(job);
        self
    }

    pub fn job(&self, name: &str) -> Option<&PlannedJob> {
        self.jobs.iter().find(|job| job.name == name)
    }

    /// Returns the document. It contains no jobs, so a text that describes them stands in for them.
    pub fn document(&self) -> WorkflowDocument {
        let metadata = Metadata { name: self.name.clone(), namespace: self.namespace.clone(), ..Metadata::default() };
        let spec = WorkflowSpec { description: Some(format!("{:?}", self.jobs)), ..self.spec.clone() };
        WorkflowDocument { api_version: torc_api::API_VERSION.to_owned(), metadata, spec }
    }

    pub fn expanded(&self) -> Expanded {
        let number: BTreeMap<&str, u32> =
            self.jobs.iter().zip(0..).map(|(job, index)| (job.name.as_str(), index)).collect();
        let mut requirements: Vec<Requirements> = vec![Requirements::default()];
        let mut jobs = Vec::new();
        for job in &self.jobs {
            let known = requirements.iter().position(|known| *known == job.needs).unwrap_or_else(|| {
                requirements.push(job.needs.clone());
                requirements.len() - 1
            });
            let mut depends_on: Vec<u32> = job.after.iter().map(|parent| number[parent.as_str()]).collect();
            depends_on.sort_unstable();
            jobs.push(ExpandedJob {
                name: job.name.clone(),
                command: format!("run {}", job.version),
                requirements: known as u32,
                depends_on,
                labels: job.labels.clone(),
                scheduler: job.scheduler.clone(),
                priority: job.priority,
                cancel_on_blocking_job_failure: job.cancel_on_failure,
                failure_handler: job.handler.clone(),
                ..ExpandedJob::default()
            });
        }
        Expanded { jobs, requirements, ..Expanded::default() }
    }
}
