//! The door of a server that cannot be asked yet: it says so, until it opens.

use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use torc_api::api::ErrorBody;
use torc_api::error_code::ErrorCode;
use tower::ServiceExt as _;

use crate::kubernetes::Readiness;

/// Clones are the same door.
#[derive(Clone)]
pub(crate) struct Door {
    app: Arc<OnceLock<Router>>,
    readiness: Readiness,
}

impl Door {
    /// A closed one; what is lacking is what it says.
    pub fn new(readiness: Readiness) -> Self {
        Self { app: Arc::default(), readiness }
    }

    /// From now on everything goes to the application.
    pub fn open(&self, app: Router) {
        // A door is opened once.
        let _ = self.app.set(app);
    }

    /// What answers at the door.
    pub fn router(&self) -> Router {
        Router::new().fallback(pass).with_state(self.clone())
    }
}

async fn pass(State(door): State<Door>, request: Request) -> Response {
    match door.app.get() {
        Some(app) => app.clone().oneshot(request).await.into_response(),
        None if request.uri().path() == "/livez" => "ok".into_response(),
        None => closed(&door.readiness).into_response(),
    }
}

fn closed(readiness: &Readiness) -> impl axum::response::IntoResponse {
    let body = ErrorBody {
        code: ErrorCode::NotReady,
        message: readiness.complaint().unwrap_or_else(|| "the server is starting".to_owned()),
        hint: Some("try again in a moment: another server answers, or this one soon will".to_owned()),
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
    async fn a_closed_door_is_alive_and_not_ready() {
        let readiness = Readiness::default();
        let door = Door::new(readiness.clone());
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            door.router().oneshot(request).await.unwrap().status().as_u16()
        };
        readiness.lacks("leadership", "another server leads");
        assert_eq!((ask("/livez").await, ask("/readyz").await, ask("/v1/workflows").await), (200, 503, 503));
        door.open(Router::new().route("/readyz", get(|| async { "ok" })));
        assert_eq!((ask("/readyz").await, ask("/v1/workflows").await), (200, 404));
    }
}
