//! A whole document: the envelope around a specification.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::cluster::SlurmClusterSpec;
use crate::workflow::WorkflowSpec;

/// The namespace of documents that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// One document of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind")]
#[allow(clippy::large_enum_variant, reason = "a file holds a handful of documents, nearly all of them workflows")]
pub enum Document {
    /// A workflow with its jobs.
    Workflow(WorkflowDocument),
    /// A Slurm cluster and how to reach it.
    SlurmCluster(SlurmClusterDocument),
}

/// A document of `kind: Workflow`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowDocument {
    /// The API version: `torc.dev/v1alpha1`.
    pub api_version: String,
    /// The name and namespace, with labels and annotations.
    pub metadata: Metadata,
    /// The workflow: its jobs, their dependencies and resources.
    pub spec: WorkflowSpec,
}

/// A document of `kind: SlurmCluster`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlurmClusterDocument {
    /// The API version: `torc.dev/v1alpha1`.
    pub api_version: String,
    /// The name of the cluster, with labels and annotations.
    pub metadata: Metadata,
    /// The cluster: its commands, account and partitions.
    pub spec: SlurmClusterSpec,
}

/// The part of Kubernetes' object metadata that Torc uses without Kubernetes, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The name, unique in its namespace: lower-case letters, digits, `-` and `.`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The namespace (`default` when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels of the object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// The schema of annotations. `validate` limits their total size.
fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": { "type": "string", "maxLength": 1_048_576 } })
}

impl Metadata {
    /// Returns the namespace, or the default one.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_without_a_namespace_is_in_the_default_one() {
        assert_eq!(Metadata::default().namespace(), "default");
        let metadata = Metadata { namespace: Some("lab".to_owned()), ..Metadata::default() };
        assert_eq!(metadata.namespace(), "lab");
    }
}
