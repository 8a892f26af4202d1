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

/// An object as it comes from the API server. One that cannot be read must not hide the others.
pub(super) type Guarded = DeserializeGuard<Workflow>;

/// Which object.
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
    /// Where the server answers.
    pub api_url: String,
    /// Objects as they were last seen, a list for each watched namespace.
    pub workflows: Vec<Store<Guarded>>,
    /// Slurm clusters as they were last seen.
    pub clusters: Store<DeserializeGuard<SlurmCluster>>,
    states: Mutex<HashMap<String, ObjectState>>,
}

/// State of an object, by its uid.
#[derive(Clone, Debug)]
pub(super) struct ObjectState {
    /// The engine's workflow, once it is known.
    pub workflow: Option<WorkflowId>,
    /// What was accepted last.
    pub accepted: Option<Accepted>,
    /// Why a generation was refused.
    pub rejected: Option<(i64, Rejection)>,
    /// The status that was written last.
    pub written: Option<WorkflowStatus>,
    /// When that was; at first when the object was first seen, for another server may have written just before.
    pub written_at: Instant,
    /// How often something has gone wrong in a row.
    pub failures: u32,
    /// What that was.
    pub log_once: LogOnce,
}

/// A generation that the engine has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    pub generation: i64,
    /// Versions of the ConfigMaps that its tables come from.
    pub sources: Vec<String>,
}

impl ObjectState {
    fn new(written: Option<WorkflowStatus>) -> Self {
        let (log_once, written_at) = (LogOnce::default(), Instant::now());
        Self { workflow: None, accepted: None, rejected: None, written, written_at, failures: 0, log_once }
    }

    /// Something has gone wrong: for the how manieth time in a row, and whether that is news.
    pub fn failed(&mut self, said: &str) -> (u32, bool) {
        self.failures = self.failures.saturating_add(1);
        (self.failures, self.log_once.should_log(said))
    }

    /// All went well.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.log_once.reset();
    }

    pub fn since_written(&self) -> Duration {
        self.written_at.elapsed()
    }
}

impl Context {
    #[allow(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub fn new(
        engine: EngineHandle,
        slurm: Option<SlurmHandle>,
        client: Client,
        leadership: Leadership,
        config: KubernetesConfig,
        readiness: Readiness,
        api_url: String,
        workflows: Vec<Store<Guarded>>,
        clusters: Store<DeserializeGuard<SlurmCluster>>,
    ) -> Self {
        let states = Mutex::default();
        Self { engine, slurm, client, leadership, config, readiness, api_url, workflows, clusters, states }
    }

    /// What is remembered of an object; `status` is what it says itself, for one that was not seen before.
    pub fn recall(&self, object: &Object, status: Option<&WorkflowStatus>) -> ObjectState {
        self.lock().entry(object.uid.clone()).or_insert_with(|| ObjectState::new(status.cloned())).clone()
    }

    /// Changes what is remembered.
    pub fn remember(&self, object: &Object, change: impl FnOnce(&mut ObjectState)) {
        change(self.lock().entry(object.uid.clone()).or_insert_with(|| ObjectState::new(None)));
    }

    /// The object is gone.
    pub fn forget(&self, object: &Object) {
        self.lock().remove(&object.uid);
    }

    /// Only these objects are left.
    pub fn forget_all_but(&self, uids: &HashSet<String>) {
        self.lock().retain(|uid, _| uids.contains(uid));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ObjectState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All objects have been listed.
    pub fn knows_all(&self) -> bool {
        self.readiness.has_listed()
    }

    /// The object of a name, if there is one.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Object> {
        let key = ObjectRef::<Guarded>::new(name).within(namespace);
        let found = self.workflows.iter().find_map(|store| store.get(&key))?;
        object(&found)
    }

    /// The engine's workflow of an object, without its document; none of an earlier object of the same name.
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

    /// The engine's workflow with an object's name, of this object or of an earlier one.
    pub async fn stored(&self, object: &Object) -> Result<Option<api::Workflow>, EngineError> {
        let Some(id) = found(self.engine.find((&object.namespace, &object.name)).await)? else { return Ok(None) };
        found(self.engine.workflow(id).await)
    }

    /// The object of one of the engine's workflows.
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

/// Which one it is. Whatever an API server keeps has all three.
pub(super) fn object(found: &Guarded) -> Option<Object> {
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
