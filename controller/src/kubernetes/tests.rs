//! A fake API server, and a controller that uses it.
#![allow(clippy::unwrap_used)]

mod cleanup;
mod clusters;
mod events;
mod leader;
mod loops;
mod orphans;
mod pools;
mod reconcile;
mod token_review;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Request, Response};
use kube::client::Body;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{self, store::Writer};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use torc_api::cluster::SlurmCluster;

use super::KubernetesConfig;
use super::context::{Context, GuardedWorkflow, Object, object};
use super::readiness::Readiness;
use crate::leadership::Leadership;
use crate::tests::{TestServer, VirtualClock};

/// A request: method, path with query, body.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub method: String,
    pub path: String,
    pub body: Value,
}

type Answer = Box<dyn FnMut(&Call) -> Option<(u16, Value)> + Send>;

/// Records requests. A request without a configured answer is answered with its own body.
#[derive(Clone, Default)]
pub(super) struct FakeApi {
    calls: Arc<Mutex<Vec<Call>>>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl FakeApi {
    pub fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (status, answer) = api.answer(Call { method: head.method.to_string(), path, body });
                let response = Response::builder().status(status).header("content-type", "application/json");
                Ok::<_, kube::Error>(response.body(Body::from(answer.to_string().into_bytes())).unwrap())
            }
        });
        kube::Client::new(service, "torc")
    }

    fn answer(&self, call: Call) -> (u16, Value) {
        self.calls.lock().unwrap().push(call.clone());
        let special = self.answers.lock().unwrap().iter_mut().find_map(|answer| answer(&call));
        special.unwrap_or_else(|| match (call.method.as_str(), &call.body) {
            ("DELETE", _) => (200, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success", "code": 200 })),
            (_, Value::Object(_)) => (200, call.body),
            ("PATCH", _) => (200, json!({ "metadata": { "name": "w" } })),
            _ => failure(404, "NotFound", "it is not there"),
        })
    }

    /// Configures the answer to requests that begin like this.
    pub fn answers(&self, method: &'static str, path: &'static str, status: u16, body: Value) {
        self.does(move |call| (call.method == method && call.path.starts_with(path)).then(|| (status, body.clone())));
    }

    pub fn does(&self, answer: impl FnMut(&Call) -> Option<(u16, Value)> + Send + 'static) {
        self.answers.lock().unwrap().insert(0, Box::new(answer));
    }

    /// Returns the requests since the last call.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// Returns these requests as `METHOD path` without queries.
    pub fn lines(&self) -> Vec<String> {
        let line = |call: &Call| format!("{} {}", call.method, call.path.split('?').next().unwrap());
        self.calls().iter().map(line).collect()
    }
}

pub(super) fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message }),
    )
}

pub(super) struct Fixture {
    pub api: FakeApi,
    pub server: TestServer,
    pub context: Arc<Context>,
    pub workflows: Writer<GuardedWorkflow>,
    pub clusters: Writer<DeserializeGuard<SlurmCluster>>,
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with(|_| {}, Leadership::permanent()).await
    }

    pub async fn with(change: impl FnOnce(&mut KubernetesConfig), leadership: Leadership) -> Self {
        let server = TestServer::start_in(tempfile::tempdir().unwrap(), VirtualClock::from_now()).await;
        let (store, workflows) = reflector::store();
        let (cluster_store, clusters) = reflector::store();
        let mut config = KubernetesConfig {
            identity: "torc-0".to_owned(),
            namespace: "torc".to_owned(),
            working_dir: "/default-dir".to_owned(),
            cleanup_timeout: Duration::from_secs(600),
            ..KubernetesConfig::default()
        };
        change(&mut config);
        let (api, readiness) = (FakeApi::default(), Readiness::default());
        let (engine, url) = (server.engine.clone(), "https://api".to_owned());
        let context =
            Context::new(engine, None, api.client(), leadership, config, readiness, url, vec![store], cluster_store);
        Self { api, server, context: Arc::new(context), workflows, clusters }
    }

    /// Adds an object to the controller's cache.
    pub fn list_object(&mut self, value: Value) -> Arc<GuardedWorkflow> {
        let guarded: GuardedWorkflow = serde_json::from_value(value).unwrap();
        self.workflows.apply_watcher_event(&Event::Apply(guarded.clone()));
        Arc::new(guarded)
    }

    /// Returns the conditions of a status as `Type=Status/Reason`.
    pub fn conditions(status: &Value) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let one = |one: &Value| format!("{}={}/{}", text(&one["type"]), text(&one["status"]), text(&one["reason"]));
        status["conditions"].as_array().unwrap().iter().map(one).collect()
    }
}

/// Returns a workflow object `lab/name` with the uid `1a2b-name`.
pub(super) fn workflow(name: &str, generation: i64, spec: Value) -> Value {
    json!({
        "apiVersion": "torc.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "name": name, "namespace": "lab", "uid": format!("1a2b-{name}"), "generation": generation,
            "finalizers": ["torc.dev/cleanup"], "labels": { "team": "blue" },
        },
        "spec": spec,
    })
}

pub(super) fn jobs(names: &[&str]) -> Value {
    json!({ "jobs": crate::tests::jobs(names) })
}

pub(super) fn object_of(found: &GuardedWorkflow) -> Object {
    object(found).unwrap()
}
