//! Returns 503 until the server is ready.

use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use torc_api::api::ErrorBody;
use torc_api::error_code::ErrorCode;
use tower::ServiceExt as _;

use crate::kubernetes::Readiness;

/// Forwards requests once the server is ready. Clones share state.
#[derive(Clone)]
pub(crate) struct ReadinessGate {
    app: Arc<OnceLock<Router>>,
    readiness: Readiness,
}

impl ReadinessGate {
    /// Returns a closed gate, which answers with the missing parts.
    pub fn new(readiness: Readiness) -> Self {
        Self { app: Arc::default(), readiness }
    }

    /// Forwards all further requests to the application.
    pub fn open(&self, app: Router) {
        // The gate opens once.
        let _ = self.app.set(app);
    }

    /// Returns the router that answers until the gate opens and forwards afterwards.
    pub fn router(&self) -> Router {
        Router::new().fallback(pass).with_state(self.clone())
    }
}

async fn pass(State(gate): State<ReadinessGate>, request: Request) -> Response {
    match gate.app.get() {
        Some(app) => app.clone().oneshot(request).await.into_response(),
        None if request.uri().path() == "/livez" => "ok".into_response(),
        None => closed(&gate.readiness).into_response(),
    }
}

fn closed(readiness: &Readiness) -> impl axum::response::IntoResponse {
    let body = ErrorBody {
        code: ErrorCode::NotReady,
        message: readiness.missing().unwrap_or_else(|| "the server is starting".to_owned()),
        hint: Some("retry in a moment: another server may be the leader, or this one is still starting".to_owned()),
        ..ErrorBody::default()
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(body))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::body::Body;
    use axum::routing::get;

    use super::*;

    #[tokio::test]
    async fn a_closed_gate_is_alive_and_not_ready() {
        let readiness = Readiness::default();
        let gate = ReadinessGate::new(readiness.clone());
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            gate.router().oneshot(request).await.unwrap().status().as_u16()
        };
        readiness.add_missing("leadership", "another server leads");
        assert_eq!((ask("/livez").await, ask("/readyz").await, ask("/v1/workflows").await), (200, 503, 503));
        gate.open(Router::new().route("/readyz", get(|| async { "ok" })));
        assert_eq!((ask("/readyz").await, ask("/v1/workflows").await), (200, 404));
    }
}
