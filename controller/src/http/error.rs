//! Error responses of the API, with a code, a message and often a hint.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use torc_api::api::ErrorBody;
use torc_api::error_code::ErrorCode;
use torc_core::tokens::TokenError;

use super::older_paths::versioned_path;
use crate::engine::EngineError;

/// The error response of a handler.
pub(super) struct ApiError {
    status: StatusCode,
    body: Box<ErrorBody>,
}

pub(super) type ApiResult<T> = Result<Json<T>, ApiError>;

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        // Not being ready is the expected answer to a readiness check, not a failure.
        if self.status.is_server_error() && self.body.code != ErrorCode::NotReady {
            tracing::error!(status = %self.status, code = %self.body.code, message = self.body.message, "request failed");
        }
        (self.status, Json(self.body)).into_response()
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let status = StatusCode::from_u16(error.kind().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, body: error.body }
    }
}

macro_rules! from_rejection {
    ($($rejection:ty),*) => {$(
        impl From<$rejection> for ApiError {
            fn from(rejection: $rejection) -> Self {
                let EngineError { body } = EngineError::bad_request(rejection.body_text());
                Self { status: rejection.status(), body }
            }
        }
    )*};
}

from_rejection!(JsonRejection, PathRejection, QueryRejection);

/// Returns the error of a request without a valid token. `reason` is why the token was refused; `None` if there was no
/// token.
pub(super) fn unauthorized(reason: Option<TokenError>) -> ApiError {
    let (message, hint) = match reason {
        Some(error @ TokenError::Expired) => (format!("the token is not accepted: {error}"), RENEW),
        Some(error) => (format!("the token is not accepted: {error}"), NAME_TOKEN),
        None => ("this request needs a valid token".to_owned(), NAME_TOKEN),
    };
    EngineError::new(ErrorCode::Unauthorized, message).hint(hint).into()
}

const NAME_TOKEN: &str = "pass --token-file or set TORC_TOKEN_FILE to the file that the server printed at its start";
const RENEW: &str = "create a new one with `torc token create`";

pub(super) async fn no_such_route(uri: Uri) -> ApiError {
    let list = "GET /v1/openapi.json lists the routes";
    let hint = match versioned_path(uri.path()) {
        Some(path) => format!("use {path} (docs/reference/http-api.md); {list}"),
        None => list.to_owned(),
    };
    EngineError::new(ErrorCode::NotFound, format!("no route matches {}", uri.path())).hint(hint).into()
}
