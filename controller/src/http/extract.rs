//! Extractors of requests. All of them fail with an [`ApiError`].

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query as AxumQuery, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use torc_core::ids::WorkflowId;

use super::App;
use super::error::ApiError;
use crate::caller::Caller;
use crate::engine::EngineError;

/// Extracts the JSON body of a request.
pub(super) struct Body<T>(pub T);

/// Extracts the query parameters of a request.
pub(super) struct Query<T>(pub T);

/// Extracts the path parameters of a request.
pub(super) struct Param<T>(pub T);

/// The workflow of the path, which the guard has resolved and to which the caller has access.
#[derive(Clone, Copy)]
pub(super) struct TargetWorkflow(pub WorkflowId);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let Json(body) = Json::from_request(request, app).await?;
        Ok(Self(body))
    }
}

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let AxumQuery(query) = AxumQuery::from_request_parts(parts, app).await?;
        Ok(Self(query))
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Param<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Path(parameters) = Path::from_request_parts(parts, app).await?;
        Ok(Self(parameters))
    }
}

impl FromRequestParts<App> for TargetWorkflow {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        Ok(*extension::<Self>(parts)?)
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        Ok(extension::<Self>(parts)?.clone())
    }
}

/// Returns a value that the guard has attached to the request.
fn extension<T: Send + Sync + 'static>(parts: &Parts) -> Result<&T, ApiError> {
    let found = parts.extensions.get::<T>();
    found.ok_or_else(|| {
        EngineError::internal(
            "the handler of a route takes an argument that its access check does not provide".to_owned(),
        )
        .into()
    })
}
