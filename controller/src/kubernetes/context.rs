//! Context shared by the reconcilers, and per-object state.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use torc_api::api;
use torc_api::cluster::SlurmCluster;
use torc_api::error_code::ErrorKind;
use torc_api::status::WorkflowStatus;
use torc_api::workflow::Workflow;
use torc_core::ids::WorkflowId;

use super::log_once::LogOnce;
use super::readiness::Readiness;
use super::rejection::Rejection;
use super::{KubernetesConfig, UID};
use crate::engine::{EngineError, EngineHandle};
use crate::leadership::Leadership;
use crate::slurm::SlurmHandle;

/// An object as the API server returns it. The guard keeps an unreadable object from hiding the others.
pub(super) type GuardedWorkflow = DeserializeGuard<Workflow>;

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Object {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// Context shared by the reconcilers.
pub(super) struct Context {
    pub engine: EngineHandle,
    pub slurm: Option<SlurmHandle>,
    pub client: Client,
    pub leadership: Leadership,
    pub config: KubernetesConfig,
    pub readiness: Readiness,
    /// The address of the server.
    pub api_url: String,
    /// Caches of objects, one for each watched namespace.
    pub workflows: Vec<Store<GuardedWorkflow>>,
    /// The cache of Slurm clusters.
    pub clusters: Store<DeserializeGuard<SlurmCluster>>,
    states: Mutex<HashMap<String, ObjectState>>,
}

/// State that the controller keeps of an object between reconciles.
#[derive(Clone, Debug)]
pub(super) struct ObjectState {
    /// The engine's workflow, once it is known.
    pub workflow: Option<WorkflowId>,
    /// The last accepted generation.
    pub accepted: Option<AcceptedGeneration>,
    /// The reason why a generation was rejected.
    pub rejected: Option<(i64, Rejection)>,
    /// The last written status.
    pub written: Option<WorkflowStatus>,
    /// The time of that write; initially when the object was first seen, because another server may have just written.
    pub written_at: Instant,
    pub failures: u32,
    pub log_once: LogOnce,
}

/// A generation that the engine has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcceptedGeneration {
    pub generation: i64,
    /// Versions of the ConfigMaps that its tables come from.
    pub sources: Vec<String>,
}

impl ObjectState {
    fn new(written: Option<WorkflowStatus>) -> Self {
        let (log_once, written_at) = (LogOnce::default(), Instant::now());
        Self { workflow: None, accepted: None, rejected: None, written, written_at, failures: 0, log_once }
    }

    /// Counts a failure. Returns the number of consecutive failures, and whether to log this one.
    pub fn failed(&mut self, said: &str) -> (u32, bool) {
        self.failures = self.failures.saturating_add(1);
        (self.failures, self.log_once.should_log(said))
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.log_once.reset();
    }

    pub fn since_written(&self) -> Duration {
        self.written_at.elapsed()
    }
}

impl Context {
    #[allow(clippy::too_many_arguments, reason = "each argument is a separate dependency")]
    pub fn new(
        engine: EngineHandle,
        slurm: Option<SlurmHandle>,
        client: Client,
        leadership: Leadership,
        config: KubernetesConfig,
        readiness: Readiness,
        api_url: String,
        workflows: Vec<Store<GuardedWorkflow>>,
        clusters: Store<DeserializeGuard<SlurmCluster>>,
    ) -> Self {
        let states = Mutex::default();
        Self { engine, slurm, client, leadership, config, readiness, api_url, workflows, clusters, states }
    }

    /// Returns the state of an object. The state of an unknown object starts with `status`, the status in the object.
    pub fn recall(&self, object: &Object, status: Option<&WorkflowStatus>) -> ObjectState {
        self.lock().entry(object.uid.clone()).or_insert_with(|| ObjectState::new(status.cloned())).clone()
    }

    /// Changes the state of an object.
    pub fn remember(&self, object: &Object, change: impl FnOnce(&mut ObjectState)) {
        change(self.lock().entry(object.uid.clone()).or_insert_with(|| ObjectState::new(None)));
    }

    /// Removes the state of a deleted object.
    pub fn forget(&self, object: &Object) {
        self.lock().remove(&object.uid);
    }

    /// Removes the state of all objects but these.
    pub fn forget_all_but(&self, uids: &HashSet<String>) {
        self.lock().retain(|uid, _| uids.contains(uid));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ObjectState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether all objects have been listed.
    pub fn has_listed_all(&self) -> bool {
        self.readiness.has_listed()
    }

    /// Returns the object of this name.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Object> {
        let key = ObjectRef::<GuardedWorkflow>::new(name).within(namespace);
        let found = self.workflows.iter().find_map(|store| store.get(&key))?;
        object(&found)
    }

    /// Returns the engine's workflow of an object, without its document. Ignores an earlier object of the same name.
    pub async fn summary(&self, object: &Object) -> Result<Option<api::Workflow>, EngineError> {
        if let Some(id) = self.recall(object, None).workflow {
            return found(self.engine.summary(id).await);
        }
        let Some(stored) = self.stored(object).await? else { return Ok(None) };
        let uid = stored.document.as_ref().and_then(|document| document.metadata.annotations.get(UID));
        if uid != Some(&object.uid) {
            return Ok(None);
        }
        self.remember(object, |memory| memory.workflow = Some(WorkflowId(stored.id)));
        Ok(Some(stored))
    }

    /// Returns the engine's workflow with the object's name, whether of this object or of an earlier one.
    pub async fn stored(&self, object: &Object) -> Result<Option<api::Workflow>, EngineError> {
        let Some(id) = found(self.engine.find(&object.namespace, &object.name).await)? else { return Ok(None) };
        found(self.engine.workflow(id).await)
    }

    /// Returns the object of a workflow.
    pub async fn object_of(&self, workflow: i64) -> Option<Object> {
        let summary = self.engine.summary(WorkflowId(workflow)).await.ok()?;
        self.find(&summary.namespace, &summary.name)
    }
}

fn found<T>(answer: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the identity of an object, which every stored object has.
pub(super) fn object(found: &GuardedWorkflow) -> Option<Object> {
    let metadata = kube::Resource::meta(found);
    let (namespace, name) = (metadata.namespace.clone()?, metadata.name.clone()?);
    Some(Object { namespace, name, uid: metadata.uid.clone()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_counted_and_told_once() {
        let mut memory = ObjectState::new(None);
        assert_eq!(memory.failed("no"), (1, true));
        assert_eq!(memory.failed("no"), (2, false));
        assert_eq!(memory.failed("other"), (3, true));
        memory.succeeded();
        assert_eq!(memory.failed("other"), (1, true));
    }
}
