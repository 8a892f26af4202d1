//! Writes the plan of a workflow as a document.

use std::collections::BTreeMap;

use torc_api::API_VERSION;
use torc_api::document::{Metadata, WorkflowDocument};
use torc_api::job::JobSpec;
use torc_api::quantity::{format_duration, format_memory};
use torc_api::resources::ResourceRequirements;
use torc_api::wire::Resources;
use torc_api::workflow::WorkflowSpec;

use crate::workload::{JobPlan, WorkflowPlan, whole_seconds};

/// Requirements of jobs; jobs with equal requirements share one entry of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Needs {
    resources: Resources,
    runtime_seconds: i64,
}

impl Needs {
    fn of(job: &JobPlan) -> Self {
        Self { resources: job.needs, runtime_seconds: job.runtime_seconds }
    }

    fn name(&self) -> String {
        let Resources { cpus, memory_bytes, gpus, nodes } = self.resources;
        format!("c{cpus}-m{memory_bytes}-g{gpus}-n{nodes}-t{}", self.runtime_seconds)
    }

    fn entry(&self) -> ResourceRequirements {
        ResourceRequirements {
            name: self.name(),
            num_cpus: self.resources.cpus,
            memory: format_memory(self.resources.memory_bytes),
            num_gpus: Some(self.resources.gpus),
            num_nodes: Some(self.resources.nodes.max(1)),
            runtime: Some(format_duration(self.runtime_seconds)),
        }
    }
}

/// Returns the document of a workflow. Its jobs are in the order of the plan.
pub fn document(plan: &WorkflowPlan) -> WorkflowDocument {
    let needs: BTreeMap<Needs, ()> = plan.jobs.iter().map(|job| (Needs::of(job), ())).collect();
    let spec = WorkflowSpec {
        jobs: plan.jobs.iter().map(|job| document_job(plan, job)).collect(),
        resource_requirements: needs.keys().map(Needs::entry).collect(),
        prefetch: plan.prefetch.clone(),
        orphan_after: plan.orphan_after.map(|wait| format_duration(whole_seconds(wait))),
        ..WorkflowSpec::default()
    };
    let metadata = Metadata { name: plan.name.clone(), ..Metadata::default() };
    WorkflowDocument { api_version: API_VERSION.to_owned(), metadata, spec }
}

fn document_job(plan: &WorkflowPlan, job: &JobPlan) -> JobSpec {
    JobSpec {
        name: job.name.clone(),
        command: "true".to_owned(),
        resource_requirements: Some(Needs::of(job).name()),
        depends_on: job.after.iter().map(|parent| plan.jobs[*parent].name.clone()).collect(),
        priority: Some(job.priority),
        labels: job.labels.clone(),
        ..JobSpec::default()
    }
}
