//! The HTTP API: a router for each resource, one error type, one check of who may call what.

mod access;
mod data;
mod door;
mod error;
mod events;
mod identity;
mod jobs;
mod logs;
mod older_paths;
mod recovery;
mod remote;
mod replay;
mod runners;
mod slurm;
mod slurm_stats;
mod system;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;
mod workflows;

use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use torc_api::document::DEFAULT_NAMESPACE;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::engine::EngineHandle;
use crate::kubernetes::Readiness;
use crate::pieces::Pieces;
use crate::slurm::SlurmHandle;

pub(crate) use door::Door;
pub(crate) use identity::{Caller, Identities};

/// The largest document or report.
const BODY_LIMIT: usize = 256 << 20;
/// How long a client may pause within a document or report.
const BODY_PAUSE: Duration = Duration::from_secs(30);

/// What every handler may use.
#[derive(Clone)]
struct App {
    engine: EngineHandle,
    slurm: Option<SlurmHandle>,
    identities: Identities,
    readiness: Readiness,
    pieces: Pieces,
    stop: CancellationToken,
}

/// The whole API.
pub(crate) fn app(
    engine: EngineHandle,
    slurm: Option<SlurmHandle>,
    identities: Identities,
    readiness: Readiness,
    stop: CancellationToken,
) -> Router {
    let app = App { engine, slurm, identities, readiness, pieces: Pieces::default(), stop };
    let guarded = Router::new()
        .merge(workflows::router())
        .merge(jobs::router())
        .merge(logs::router())
        .merge(data::router())
        .merge(replay::router())
        .merge(events::router())
        .merge(remote::router())
        .merge(runners::router())
        .merge(slurm_stats::router())
        .merge(slurm::router())
        .merge(recovery::router())
        .merge(system::router())
        .merge(tokens::router())
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(RequestBodyTimeoutLayer::new(BODY_PAUSE))
        .layer(middleware::from_fn_with_state(app.clone(), access::guard));
    Router::new().merge(guarded).merge(system::health()).fallback(error::no_such_route).with_state(app)
}

/// The namespace a request speaks of.
#[derive(Debug, Default, Deserialize)]
struct Namespace {
    namespace: Option<String>,
}

impl Namespace {
    fn name(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }
}
