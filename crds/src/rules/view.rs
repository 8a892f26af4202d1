//! Converts the part of a document that the rules read to JSON.
//!
//! For the entries of long lists, it takes only the fields that rules name. Most entries have none of them and become
//! null.

use serde::Serialize;
use serde_json::{Value, json};

use crate::action::Action;
use crate::document::{Document, SlurmClusterDocument, WorkflowDocument};
use crate::execution::ExecutionConfig;
use crate::failure::{FailureHandler, Prefetch};
use crate::job::JobSpec;
use crate::parameters::Parameterization;
use crate::resources::ResourceRequirements;
use crate::workflow::WorkflowSpec;

/// The default that an API server sets for `runId`.
const FIRST_RUN: i32 = 1;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpecView<'d> {
    jobs: Vec<Option<EntryView<'d>>>,
    files: Vec<Option<EntryView<'d>>>,
    user_data: Vec<Option<EntryView<'d>>>,
    resource_requirements: &'d [ResourceRequirements],
    failure_handlers: &'d [FailureHandler],
    actions: &'d [Action],
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_config: Option<&'d ExecutionConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefetch: Option<&'d Prefetch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slurm_cluster: Option<&'d str>,
}

/// The relevant fields of a job, a file or user data.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryView<'d> {
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler: Option<&'d str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    labels: &'d [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_file: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    use_parameters_file: Option<bool>,
}

/// Returns the part of a document that the rules evaluate.
pub(super) fn of(document: &Document) -> Value {
    let (name, spec) = match document {
        Document::Workflow(WorkflowDocument { metadata, spec, .. }) => {
            (&metadata.name, serde_json::to_value(workflow(spec)))
        }
        Document::SlurmCluster(SlurmClusterDocument { metadata, spec, .. }) => {
            (&metadata.name, serde_json::to_value(spec))
        }
    };
    // All keys of these types are texts, so the conversion to JSON never fails.
    json!({ "metadata": { "name": name }, "spec": spec.unwrap_or_default() })
}

/// Returns the part of a workflow that the rules for changes evaluate.
pub(super) fn of_settings(spec: &WorkflowSpec) -> Value {
    let WorkflowSpec { run_id, stop_policy, managed_by, .. } = spec;
    let settings = WorkflowSpec {
        run_id: Some(run_id.unwrap_or(FIRST_RUN)),
        stop_policy: *stop_policy,
        managed_by: managed_by.clone(),
        ..WorkflowSpec::default()
    };
    serde_json::to_value(settings).unwrap_or_default()
}

fn workflow(spec: &WorkflowSpec) -> SpecView<'_> {
    SpecView {
        jobs: spec.jobs.iter().map(job).collect(),
        files: spec.files.iter().map(|file| entry(&file.parameterization)).collect(),
        user_data: spec.user_data.iter().map(|data| entry(&data.parameterization)).collect(),
        resource_requirements: &spec.resource_requirements,
        failure_handlers: &spec.failure_handlers,
        actions: &spec.actions,
        execution_config: spec.execution_config.as_ref(),
        prefetch: spec.prefetch.as_ref(),
        slurm_cluster: spec.slurm_cluster.as_deref(),
    }
}

fn job(job: &JobSpec) -> Option<EntryView<'_>> {
    match (job.scheduler.as_deref(), job.labels.as_slice()) {
        (None, []) => entry(&job.parameterization),
        (scheduler, labels) => {
            let Parameterization { parameters_file, use_parameters_file, .. } = &job.parameterization;
            let parameters_file = parameters_file.as_deref();
            Some(EntryView { scheduler, labels, parameters_file, use_parameters_file: *use_parameters_file })
        }
    }
}

fn entry(parameterization: &Parameterization) -> Option<EntryView<'_>> {
    let Parameterization { parameters_file, use_parameters_file, .. } = parameterization;
    let parameters_file = Some(parameters_file.as_deref()?);
    Some(EntryView { scheduler: None, labels: &[], parameters_file, use_parameters_file: *use_parameters_file })
}
