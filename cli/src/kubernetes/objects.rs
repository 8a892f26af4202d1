//! Torc's objects in a cluster, written by server-side apply so that each field has one manager.

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::params::ValidationDirective;
use serde_json::{Value, json};
use torc_api::api::ApplyOutcome;

use super::{KubernetesCluster, api_error, names_an_object};
use crate::error::CliError;

/// The field manager of this program.
pub const FIELD_MANAGER: &str = "torc-cli";
/// The finalizer of the controller.
pub const FINALIZER: &str = "torc.dev/cleanup";
/// The page size of lists.
const PAGE_SIZE: u32 = 200;

/// The kinds of Torc's custom resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Workflow,
    /// A resource without a namespace (cluster-scoped).
    SlurmCluster,
}

impl ObjectKind {
    /// Returns the prefix of names in messages, as kubectl prints it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::SlurmCluster => "slurmcluster",
        }
    }

    /// Returns the API of the objects of this kind.
    pub fn api(self, client: Client, namespace: Option<&str>) -> Api<DynamicObject> {
        let (kind, plural) = match self {
            Self::Workflow => ("Workflow", "workflows"),
            Self::SlurmCluster => ("SlurmCluster", "slurmclusters"),
        };
        let resource = ApiResource {
            group: "torc.dev".to_owned(),
            version: "v1alpha1".to_owned(),
            api_version: "torc.dev/v1alpha1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        match namespace.filter(|_| self == Self::Workflow) {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }
}

/// Options of an apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyOptions {
    /// True if the API server only validates and returns the result.
    pub dry_run: bool,
    /// True if fields of other managers are taken over.
    pub force: bool,
}

/// An object before and after an apply.
pub struct AppliedObject {
    pub before: Option<DynamicObject>,
    /// The object after the apply; with a dry run, the object that it would create.
    pub after: DynamicObject,
}

impl AppliedObject {
    /// Returns whether the object was created, changed or left unchanged.
    pub fn outcome(&self) -> ApplyOutcome {
        match &self.before {
            None => ApplyOutcome::Created,
            Some(before) if *content(before) == *content(&self.after) => ApplyOutcome::Unchanged,
            Some(_) => ApplyOutcome::Configured,
        }
    }
}

/// Returns the part of an object that users write.
pub fn content(object: &DynamicObject) -> Box<Value> {
    let (labels, annotations) = (&object.metadata.labels, &object.metadata.annotations);
    Box::new(json!({ "labels": labels, "annotations": annotations, "spec": object.data["spec"] }))
}

impl KubernetesCluster {
    /// Returns the API of a kind in the namespace of the command.
    pub fn api(&self, kind: ObjectKind) -> Api<DynamicObject> {
        kind.api(self.client.clone(), Some(&self.namespace))
    }

    /// Creates or updates an object from a document.
    pub async fn apply(
        &self,
        kind: ObjectKind,
        document: &Value,
        options: ApplyOptions,
    ) -> Result<AppliedObject, CliError> {
        let name = document["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = document["metadata"]["namespace"].as_str().unwrap_or(&self.namespace);
        let api = kind.api(self.client.clone(), Some(namespace));
        let what = format!("apply {}/{name}", kind.word());
        let before = api.get_opt(name).await.map_err(|error| api_error(&what, error))?;
        let params = PatchParams {
            dry_run: options.dry_run,
            force: options.force,
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply(FIELD_MANAGER)
        };
        let after = api.patch(name, &params, &Patch::Apply(document)).await;
        Ok(AppliedObject { before, after: after.map_err(|error| explain(&what, error))? })
    }

    /// Changes fields of a workflow's specification, also those of other managers.
    pub async fn patch_spec(&self, name: &str, spec: &Value) -> Result<DynamicObject, CliError> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patched = self.api(ObjectKind::Workflow).patch(name, &params, &Patch::Merge(json!({ "spec": spec }))).await;
        patched.map_err(|error| api_error(&format!("change workflow/{name}"), error))
    }

    /// Returns the object with this name.
    pub async fn get(&self, kind: ObjectKind, name: &str) -> Result<DynamicObject, CliError> {
        let found = self.api(kind).get(name).await;
        found.map_err(|error| api_error(&format!("get {}/{name}", kind.word()), error))
    }

    /// Returns the objects of the namespace.
    pub async fn list(&self, kind: ObjectKind) -> Result<Vec<DynamicObject>, CliError> {
        list_all(&self.api(kind)).await.map_err(|error| api_error(&format!("list {}s", kind.word()), error))
    }

    /// Requests the deletion of an object; returns whether it existed.
    pub async fn delete(&self, kind: ObjectKind, name: &str) -> Result<bool, CliError> {
        match self.api(kind).delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 && names_an_object(&status) => Ok(false),
            Err(error) => Err(api_error(&format!("delete {}/{name}", kind.word()), error)),
        }
    }
}

/// Lists all objects, page by page.
pub async fn list_all(api: &Api<DynamicObject>) -> kube::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    let mut params = ListParams::default().limit(PAGE_SIZE);
    loop {
        let page = api.list(&params).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(objects),
        }
    }
}

/// Converts an error of an apply. Each invalid or conflicting field becomes a line of the error.
fn explain(what: &str, error: kube::Error) -> CliError {
    let lines = match &error {
        kube::Error::Api(status) => {
            let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
            causes.iter().map(|cause| format!("  {}: {}", cause.field, cause.message)).collect()
        }
        _ => Vec::new(),
    };
    let conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
    let refused = api_error(what, error);
    match conflict {
        true => refused.lines(lines).hint("take over these fields with --force-conflicts"),
        false => refused,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::object_view::view;
    use crate::workflow_phase::{WorkflowPhase, phase};

    fn object(generation: i64, observed: i64) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "torc.dev/v1alpha1", "kind": "Workflow",
            "metadata": { "name": "w", "namespace": "n", "generation": generation, "uid": "u" },
            "spec": { "suspend": false, "jobs": [{ "name": "a", "command": "true" }] },
            "status": {
                "observedGeneration": observed,
                "conditions": [{ "type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
                                 "lastTransitionTime": "2026-11-16T12:00:00Z" },
                               { "type": "Succeeded", "status": "True", "reason": "Completed", "message": "",
                                 "lastTransitionTime": "2026-11-16T12:00:00Z" }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_status_of_an_older_generation_is_ignored() {
        assert_eq!(phase(&view(&object(2, 2))), WorkflowPhase::Succeeded);
        assert_eq!(phase(&view(&object(2, 1))), WorkflowPhase::Active);
    }

    #[test]
    fn the_outcome_of_an_apply_ignores_status_and_version() {
        let mut changed = object(1, 1);
        changed.data["spec"]["suspend"] = json!(true);
        let mut touched = object(1, 0);
        touched.metadata.resource_version = Some("9".to_owned());
        for (before, after, outcome) in [
            (None, object(1, 0), ApplyOutcome::Created),
            (Some(object(1, 1)), touched, ApplyOutcome::Unchanged),
            (Some(object(1, 1)), changed, ApplyOutcome::Configured),
        ] {
            assert_eq!(AppliedObject { before, after }.outcome(), outcome);
        }
    }

    #[test]
    fn an_object_is_converted_into_a_workflow() {
        let value = json!({
            "apiVersion": "torc.dev/v1alpha1", "kind": "Workflow",
            "metadata": { "name": "w", "namespace": "n", "generation": 4, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "user": "ada", "suspend": true, "stopPolicy": "Cancel", "slurmCluster": "c" },
            "status": { "observedGeneration": 5, "runId": 6 },
        });
        let found = view(&serde_json::from_value(value.clone()).unwrap());
        assert_eq!((found.name.as_str(), found.namespace.as_str(), found.owner.as_str()), ("w", "n", "ada"));
        assert_eq!((found.generation, found.status.run_id), (4, Some(6)), "a later observation counts, too");
        assert_eq!((found.suspended, found.canceled, found.slurm_cluster.as_deref()), (true, true, Some("c")));
        assert_eq!(found.creation_time, "2026-01-01T00:00:00Z");
        let mut other = value;
        other["spec"] = json!({ "stopPolicy": "None" });
        let found = view(&serde_json::from_value(other).unwrap());
        assert_eq!((found.suspended, found.canceled, found.slurm_cluster), (false, false, None));
    }

    #[test]
    fn labels_and_annotations_count_as_changes() {
        for field in ["labels", "annotations"] {
            let mut value = json!(object(1, 1));
            value["metadata"][field] = json!({ "a": "b" });
            let after: DynamicObject = serde_json::from_value(value).unwrap();
            assert_eq!(
                AppliedObject { before: Some(object(1, 1)), after }.outcome(),
                ApplyOutcome::Configured,
                "{field}"
            );
        }
        assert_eq!((ObjectKind::Workflow.word(), ObjectKind::SlurmCluster.word()), ("workflow", "slurmcluster"));
    }

    #[test]
    fn a_conflict_lists_the_fields_and_has_a_hint() {
        let status = |code: u16| {
            let causes = json!([{ "field": ".spec.jobs", "message": "conflict with x", "reason": "r" }]);
            let value = json!({ "status": "Failure", "message": "m", "reason": "r", "code": code, "details": { "causes": causes } });
            kube::Error::Api(serde_json::from_value(value).unwrap())
        };
        let conflict = explain("apply w", status(409));
        assert_eq!(conflict.lines, ["  .spec.jobs: conflict with x"]);
        assert!(conflict.hints[0].contains("--force-conflicts"), "{:?}", conflict.hints);
        assert!(!explain("apply w", status(422)).hints.iter().any(|hint| hint.contains("--force-conflicts")));
    }
}
