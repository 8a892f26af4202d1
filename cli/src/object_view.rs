//! Converts Kubernetes objects into the workflows of the HTTP API.

use kube::api::DynamicObject;
use torc_api::api::Workflow;
use torc_api::status::WorkflowStatus;

/// Converts an object into a workflow. Its id is 0, because only the store knows it.
pub fn view(object: &DynamicObject) -> Workflow {
    let metadata = &object.metadata;
    let status: WorkflowStatus = serde_json::from_value(object.data["status"].clone()).unwrap_or_default();
    let generation = metadata.generation.unwrap_or_default();
    // A status of an older generation does not describe this specification.
    let current = status.observed_generation >= Some(generation);
    let status = if current { status } else { WorkflowStatus::default() };
    let spec = &object.data["spec"];
    Workflow {
        id: 0,
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        owner: spec["user"].as_str().unwrap_or_default().to_owned(),
        generation,
        creation_time: metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
        working_dir: String::new(),
        suspended: spec["suspend"].as_bool().unwrap_or_default(),
        canceled: spec["stopPolicy"] == "Cancel",
        slurm_cluster: spec["slurmCluster"].as_str().map(str::to_owned),
        enable_ro_crate: false,
        document: None,
        status,
    }
}
