//! Torc's objects in a cluster: written by server-side apply, so that each field has one who answers for it.

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::params::ValidationDirective;
use serde_json::{Value, json};
use torc_api::api::ApplyOutcome;

use super::{KubernetesCluster, names_an_object, refusal};
use crate::error::CliError;

/// Who writes what this program writes.
pub const MANAGER: &str = "torc-cli";
/// The controller's promise to clean up before an object is gone.
pub const FINALIZER: &str = "torc.dev/cleanup";
/// What an API server gives at once.
const PAGE: u32 = 200;

/// The kinds there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// In a namespace.
    Workflow,
    /// In none.
    SlurmCluster,
}

impl ObjectKind {
    /// As kubectl prints it before a name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::SlurmCluster => "slurmcluster",
        }
    }

    /// The API of its objects.
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

/// What an apply does beyond applying.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Only ask what would come of it.
    pub dry_run: bool,
    /// Take over fields that others answer for.
    pub force: bool,
}

/// An object before and after an apply.
pub struct Applied {
    /// What there was.
    pub before: Option<DynamicObject>,
    /// What there is, or would be.
    pub after: DynamicObject,
}

impl Applied {
    /// What happened to it.
    pub fn outcome(&self) -> ApplyOutcome {
        match &self.before {
            None => ApplyOutcome::Created,
            Some(before) if *content(before) == *content(&self.after) => ApplyOutcome::Unchanged,
            Some(_) => ApplyOutcome::Configured,
        }
    }
}

/// What a person writes of an object.
pub fn content(object: &DynamicObject) -> Box<Value> {
    let (labels, annotations) = (&object.metadata.labels, &object.metadata.annotations);
    Box::new(json!({ "labels": labels, "annotations": annotations, "spec": object.data["spec"] }))
}

impl KubernetesCluster {
    /// The API of a kind in the namespace that is meant.
    pub fn api(&self, kind: ObjectKind) -> Api<DynamicObject> {
        kind.api(self.client.clone(), Some(&self.namespace))
    }

    /// Makes an object match a document.
    pub async fn apply(&self, kind: ObjectKind, document: &Value, how: How) -> Result<Applied, CliError> {
        let name = document["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = document["metadata"]["namespace"].as_str().unwrap_or(&self.namespace);
        let api = kind.api(self.client.clone(), Some(namespace));
        let what = format!("apply {}/{name}", kind.word());
        let before = api.get_opt(name).await.map_err(|error| refusal(&what, error))?;
        let params = PatchParams {
            dry_run: how.dry_run,
            force: how.force,
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply(MANAGER)
        };
        let after = api.patch(name, &params, &Patch::Apply(document)).await;
        Ok(Applied { before, after: after.map_err(|error| explain(&what, error))? })
    }

    /// Changes some fields of a workflow's specification, whoever applied the rest.
    pub async fn patch_spec(&self, name: &str, spec: &Value) -> Result<DynamicObject, CliError> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = self.api(ObjectKind::Workflow).patch(name, &params, &Patch::Merge(json!({ "spec": spec }))).await;
        patched.map_err(|error| refusal(&format!("change workflow/{name}"), error))
    }

    /// One object.
    pub async fn get(&self, kind: ObjectKind, name: &str) -> Result<DynamicObject, CliError> {
        let found = self.api(kind).get(name).await;
        found.map_err(|error| refusal(&format!("get {}/{name}", kind.word()), error))
    }

    /// All objects of the namespace.
    pub async fn list(&self, kind: ObjectKind) -> Result<Vec<DynamicObject>, CliError> {
        every(&self.api(kind)).await.map_err(|error| refusal(&format!("list {}s", kind.word()), error))
    }

    /// Asks for the end of an object; whether there was one.
    pub async fn delete(&self, kind: ObjectKind, name: &str) -> Result<bool, CliError> {
        match self.api(kind).delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 && names_an_object(&status) => Ok(false),
            Err(error) => Err(refusal(&format!("delete {}/{name}", kind.word()), error)),
        }
    }
}

/// All objects, page by page.
pub async fn every(api: &Api<DynamicObject>) -> kube::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(objects),
        }
    }
}

/// A conflict says who else answers for the fields; what is wrong with a document is told line by line.
fn explain(what: &str, error: kube::Error) -> CliError {
    let lines = match &error {
        kube::Error::Api(status) => {
            let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
            causes.iter().map(|cause| format!("  {}: {}", cause.field, cause.message)).collect()
        }
        _ => Vec::new(),
    };
    let conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
    let refused = refusal(what, error);
    match conflict {
        true => refused.lines(lines).hint("--force-conflicts takes the fields over"),
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
    fn a_status_of_an_older_specification_does_not_count() {
        assert_eq!(phase(&view(&object(2, 2))), WorkflowPhase::Succeeded);
        assert_eq!(phase(&view(&object(2, 1))), WorkflowPhase::Active);
    }

    #[test]
    fn an_apply_is_judged_by_what_people_write() {
        let mut changed = object(1, 1);
        changed.data["spec"]["suspend"] = json!(true);
        let mut touched = object(1, 0);
        touched.metadata.resource_version = Some("9".to_owned());
        for (before, after, outcome) in [
            (None, object(1, 0), ApplyOutcome::Created),
            (Some(object(1, 1)), touched, ApplyOutcome::Unchanged),
            (Some(object(1, 1)), changed, ApplyOutcome::Configured),
        ] {
            assert_eq!(Applied { before, after }.outcome(), outcome);
        }
    }

    #[test]
    fn an_object_is_seen_as_a_workflow() {
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
    fn labels_and_annotations_are_written_by_people_too() {
        for field in ["labels", "annotations"] {
            let mut value = json!(object(1, 1));
            value["metadata"][field] = json!({ "a": "b" });
            let after: DynamicObject = serde_json::from_value(value).unwrap();
            assert_eq!(Applied { before: Some(object(1, 1)), after }.outcome(), ApplyOutcome::Configured, "{field}");
        }
        assert_eq!((ObjectKind::Workflow.word(), ObjectKind::SlurmCluster.word()), ("workflow", "slurmcluster"));
    }

    #[test]
    fn a_conflict_names_the_fields_and_the_way_on() {
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
