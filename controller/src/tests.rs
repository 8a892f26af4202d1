//! A server without a socket: a store in a temporary folder, its engine with a clock that tests set, and the router.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use torc_api::token::{Claims, Grant};
use torc_core::expand::ExpansionLimits;
use torc_core::ids::Now;
use torc_core::tokens::TokenKey;
use torc_store::{OpenOptions, Store};
use tower::ServiceExt as _;

use crate::clock::Clock;
use crate::engine::{EngineHandle, ShutdownTokens};
use crate::http::{self, Identities};
use crate::issuer::Issuer;
use crate::kubernetes::Readiness;
use crate::metrics::Metrics;

/// The administrator's token of the servers in tests.
pub(crate) const ADMIN: &str = "the-administrator's-token";
/// The token that reads metrics.
pub(crate) const METRICS: &str = "the-token-for-metrics";
/// The wall clock at the start of a server, in milliseconds since 1970.
pub(crate) const START_MS: i64 = 1_790_000_000_123;
/// The monotonic clock at the start of a server.
const START_MONO_MS: u64 = 77_000_000;

/// The clock of a server in tests.
#[derive(Clone)]
pub(crate) struct VirtualClock {
    start: Now,
    passed: Arc<AtomicU64>,
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self { start: Now { wall_ms: START_MS, mono_ms: START_MONO_MS }, passed: Arc::default() }
    }
}

impl VirtualClock {
    /// Returns a clock that starts at the present time, for code that also reads the real clock.
    pub fn from_now() -> Self {
        Self { start: crate::clock::now(), passed: Arc::default() }
    }

    pub fn advance(&self, ms: u64) {
        self.passed.fetch_add(ms, Ordering::SeqCst);
    }

    pub fn clock(&self) -> Clock {
        let Self { start, passed } = self.clone();
        Arc::new(move || {
            let passed = passed.load(Ordering::SeqCst);
            Now { wall_ms: start.wall_ms + passed.cast_signed(), mono_ms: start.mono_ms + passed }
        })
    }
}

pub(crate) struct TestServer {
    pub engine: EngineHandle,
    pub store: Store,
    pub issuer: Issuer,
    pub app: Router,
    pub metrics: Arc<Metrics>,
    pub readiness: Readiness,
    /// Ends long polls of the HTTP API.
    pub stop_http: CancellationToken,
    pub stop: ShutdownTokens,
    pub clock: VirtualClock,
    pub folder: TempDir,
    pub writer: JoinHandle<()>,
}

pub(crate) fn token_key() -> TokenKey {
    TokenKey::new(&[7; 32]).unwrap()
}

impl TestServer {
    pub async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), VirtualClock::default()).await
    }

    pub async fn start_in(folder: TempDir, clock: VirtualClock) -> Self {
        let options = OpenOptions { path: folder.path().join("torc.db"), create: true, ..OpenOptions::default() };
        let store = Store::open(options).await.unwrap();
        Self::start_on(store, folder, clock).await
    }

    pub async fn start_on(store: Store, folder: TempDir, clock: VirtualClock) -> Self {
        let (metrics, stop, stop_http) =
            (Arc::<Metrics>::default(), ShutdownTokens::default(), CancellationToken::new());
        let issuer = Issuer::new(token_key(), None);
        let limits = ExpansionLimits { max_jobs: 1_000, ..ExpansionLimits::default() };
        let started = EngineHandle::start_with_clock(
            store.clone(),
            limits,
            Arc::clone(&metrics),
            stop.clone(),
            issuer.clone(),
            clock.clock(),
        );
        let (engine, writer) = started.await.unwrap();
        let identities = Identities::new(ADMIN.to_owned(), issuer.clone()).with_metrics(Some(METRICS.to_owned()));
        let readiness = Readiness::default();
        let app = http::app(engine.clone(), None, identities, readiness.clone(), stop_http.clone());
        Self { engine, store, issuer, app, metrics, readiness, stop_http, stop, clock, folder, writer }
    }

    /// Starts another engine with the same store and clock.
    pub async fn restart(self) -> Self {
        let Self { engine, store, app, stop, clock, folder, writer, .. } = self;
        drop((engine, app));
        stop.queue.cancel();
        writer.await.unwrap();
        store.close().await.unwrap();
        Self::start_in(folder, clock).await
    }

    /// Returns a signed token that expires in the year 2100, or at `expires`.
    pub fn token(&self, grant: Grant, expires: Option<i64>) -> String {
        let expires = Some(expires.unwrap_or(4_102_444_800));
        self.issuer.issue(&Claims { grant, issuer: "test".to_owned(), issued: 0, expires })
    }

    pub async fn send(&self, method: &str, path: &str, token: Option<&str>, body: Option<Value>) -> Reply {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}")).header("x-torc-user", "root");
        }
        let body = match body {
            Some(body) => {
                request = request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let response = self.app.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let is_stream = headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let text = match is_stream {
            true => Vec::new(),
            false => to_bytes(response.into_body(), 64 << 20).await.unwrap().to_vec(),
        };
        let text = String::from_utf8(text).unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Reply { status, headers, body, text }
    }

    /// Sends a request as the administrator and checks that it succeeds.
    pub async fn ok(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let reply = self.send(method, path, Some(ADMIN), body).await;
        assert!(reply.status.is_success(), "{method} {path}: {} {}", reply.status, reply.text);
        reply.body
    }

    /// Applies a workflow as `owner` and returns its number.
    pub async fn apply(&self, owner: &str, namespace: &str, name: &str, jobs: Value) -> i64 {
        self.apply_spec(owner, namespace, name, json!({ "jobs": jobs })).await
    }

    pub async fn apply_spec(&self, owner: &str, namespace: &str, name: &str, spec: Value) -> i64 {
        let request =
            serde_json::from_value(json!({ "document": document(namespace, name, spec), "workingDir": "/work" }));
        let grant = Grant::Owner { user: owner.to_owned() };
        self.engine.apply(request.unwrap(), owner, &grant).await.unwrap().id.unwrap()
    }

    /// Registers a runner for all workflows, or for one (`namespace/name`), and returns its number.
    pub async fn register(&self, host: &str, workflow: Option<&str>) -> i64 {
        self.ok("POST", "/v1/runners", Some(registration(host, workflow))).await["runner"].as_i64().unwrap()
    }

    pub async fn sync(&self, runner: i64, request: Value) -> Value {
        self.ok("POST", &format!("/v1/runners/{runner}/sync"), Some(request)).await
    }

    /// Returns the state of a job in the default namespace.
    pub async fn job_state(&self, workflow: &str, job: &str) -> String {
        self.ok("GET", &format!("/v1/workflows/{workflow}/jobs/{job}"), None).await["status"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

pub(crate) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
    pub text: String,
}

pub(crate) fn document(namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "torc.dev/v1alpha1",
        "metadata": { "name": name, "namespace": namespace },
        "spec": spec,
    })
}

pub(crate) fn registration(host: &str, workflow: Option<&str>) -> Value {
    let scope = workflow.map_or_else(|| json!("all"), |workflow| json!({ "workflow": workflow }));
    json!({
        "protocol": 1, "version": "test", "host": host, "pid": 1, "scope": scope,
        "capacity": { "cpus": 4, "memoryBytes": 1_u64 << 30, "gpus": 0, "nodes": 1 },
    })
}

/// Returns a work request for `cpus` CPUs.
pub(crate) fn want(cpus: i64) -> Value {
    json!({ "free": { "cpus": cpus, "memoryBytes": 1_u64 << 30, "gpus": 0, "nodes": 1 }, "ahead": 0, "limit": 10 })
}

/// Returns jobs of these names that run `true`.
pub(crate) fn jobs(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "name": name, "command": "true" })).collect()
}
