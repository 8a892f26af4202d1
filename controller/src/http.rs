//! The HTTP API: the routes of each resource, one error type, one access check.

mod access;
mod data;
mod error;
mod events;
mod extract;
mod identity;
mod jobs;
mod logs;
mod older_paths;
mod openapi;
mod operation;
mod readiness_gate;
mod recovery;
mod reference;
mod remote;
mod replay;
mod route;
mod runners;
mod slurm;
mod slurm_stats;
mod system;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;
mod workflows;

use std::sync::LazyLock;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::middleware;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use torc_api::document::DEFAULT_NAMESPACE;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::audit::AuditVerb;
use crate::caller::Caller;
use crate::engine::EngineHandle;
use crate::kubernetes::Readiness;
use crate::log_relay::LogRelay;
use crate::slurm::SlurmHandle;

use access::Access;
use route::Route;

pub(crate) use identity::Identities;
pub use openapi::document as openapi_document;
pub(crate) use readiness_gate::ReadinessGate;
pub use reference::page as reference_page;
pub(crate) use reference::{documentation, row};

/// Maximum size of a body: 256 MiB hold the largest document or report.
const BODY_LIMIT: usize = 256 << 20;
/// Maximum pause of a client within a body.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Context shared by all handlers.
#[derive(Clone)]
struct App {
    engine: EngineHandle,
    slurm: Option<SlurmHandle>,
    identities: Identities,
    readiness: Readiness,
    log_relay: LogRelay,
    stop: CancellationToken,
}

/// Returns the router of the API.
pub(crate) fn app(
    engine: EngineHandle,
    slurm: Option<SlurmHandle>,
    identities: Identities,
    readiness: Readiness,
    stop: CancellationToken,
) -> Router {
    let app = App { engine, slurm, identities, readiness, log_relay: LogRelay::default(), stop };
    let guarded = route::router(routes())
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(RequestBodyTimeoutLayer::new(BODY_READ_TIMEOUT))
        .layer(middleware::from_fn_with_state(app.clone(), access::guard));
    Router::new().merge(guarded).merge(system::health()).fallback(error::no_such_route).with_state(app)
}

/// Returns all routes that need a token.
fn routes() -> Vec<Route> {
    [
        workflows::routes(),
        jobs::routes(),
        logs::routes(),
        data::routes(),
        replay::routes(),
        events::routes(),
        remote::routes(),
        runners::routes(),
        slurm_stats::routes(),
        slurm::routes(),
        recovery::routes(),
        system::routes(),
        tokens::routes(),
        watch::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The access and the audit verb of a route.
#[derive(Clone, Debug)]
struct RouteRule {
    method: Method,
    path: &'static str,
    access: Access,
    verb: AuditVerb,
}

static RULES: LazyLock<Vec<RouteRule>> = LazyLock::new(|| routes().iter().map(|route| route.rule().clone()).collect());
static UNKNOWN: LazyLock<RouteRule> = LazyLock::new(RouteRule::unknown);

/// Returns the rules of all routes that need a token.
fn rules() -> &'static [RouteRule] {
    &RULES
}

impl RouteRule {
    /// Returns the rule of a route that does not exist.
    fn unknown() -> Self {
        Self { method: Method::TRACE, path: "unknown", access: Access::Admin, verb: AuditVerb::Unknown }
    }

    fn of(method: &Method, path: &str) -> &'static Self {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        rules().iter().find(|rule| rule.path == path && rule.method == *method).unwrap_or(&UNKNOWN)
    }
}

/// The namespace of a request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Namespace {
    /// `default` when absent.
    namespace: Option<String>,
}

impl Namespace {
    fn name(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }
}
