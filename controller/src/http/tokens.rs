//! `/v1/tokens`: restricted tokens; `/v1/audit`: the audit log.

use axum::Json;
use axum::extract::State;
use torc_api::api::{AuditEntry, Page};
use torc_api::document::DEFAULT_NAMESPACE;
use torc_api::filter::AuditFilter;
use torc_api::token::{Claims, Grant, Scope, TokenRequest, TokenResponse};

use super::access::Access;
use super::error::ApiResult;
use super::extract::{Body, Query};
use super::route::Route;
use super::{App, Caller};
use crate::audit::{self, AuditVerb};
use crate::engine::EngineError;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/v1/tokens", create)
            .access(Access::Owner)
            .audit(AuditVerb::CreateToken)
            .summary("Create a token with at most the rights of the request's token"),
        Route::get("/v1/audit", list).access(Access::Owner).summary("List the audit log, oldest first"),
    ]
}

async fn create(State(app): State<App>, caller: Caller, Body(request): Body<TokenRequest>) -> ApiResult<TokenResponse> {
    let issued = crate::clock::now().wall_ms / 1_000;
    let grant = granted(&app, &caller, &request).await?;
    audit::set_object(format!("tokens/{}", described(&grant)));
    let expires = match request.expires_seconds {
        Some(seconds) if seconds <= 0 => {
            return Err(EngineError::bad_request("`expiresSeconds` must be positive").into());
        }
        seconds => seconds.map(|seconds| issued.saturating_add(seconds)),
    };
    let statement = Claims { grant, issuer: caller.name, issued, expires };
    app.engine.audit_only().await?;
    Ok(Json(TokenResponse { token: app.identities.issuer.issue(&statement), statement }))
}

/// Returns the rights of a new token, which never exceed those of the caller.
async fn granted(app: &App, caller: &Caller, request: &TokenRequest) -> Result<Grant, EngineError> {
    let refused = async |what: &str| {
        let error = EngineError::forbidden(format!("only an administrator may create {what}"));
        Err(app.engine.refuse(error).await)
    };
    let is_admin = caller.grant == Grant::Admin;
    let namespace = || request.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    match (request.scope, &request.workflow, &request.user) {
        (Scope::Runner, Some(workflow), None) => {
            let namespace = namespace();
            let Some(id) = app.engine.find_accessible(&namespace, workflow, &caller.grant).await? else {
                let error = EngineError::forbidden(format!("workflow '{workflow}' belongs to another user"));
                return Err(app.engine.refuse(error).await);
            };
            Ok(Grant::Runner { workflow: id.0 })
        }
        (Scope::Owner, None, Some(user)) if is_admin || caller.grant == (Grant::Owner { user: user.clone() }) => {
            Ok(Grant::Owner { user: user.clone() })
        }
        (Scope::Admin, None, None) if is_admin => Ok(Grant::Admin),
        (Scope::Metrics, None, None) if is_admin => Ok(Grant::Metrics),
        (Scope::Pool, None, None) if is_admin => Ok(Grant::Pool),
        (Scope::Viewer, None, None) if is_admin => Ok(Grant::Viewer { namespace: namespace() }),
        (Scope::Editor, None, None) if is_admin => Ok(Grant::Editor { namespace: namespace() }),
        (Scope::Owner, None, Some(_)) => refused("a token for another user").await,
        (Scope::Admin | Scope::Metrics | Scope::Pool | Scope::Viewer | Scope::Editor, None, None) => {
            refused("such a token").await
        }
        (Scope::Runner, ..) => Err(EngineError::bad_request("a `runner` token needs a workflow and no user")),
        (Scope::Owner, ..) => Err(EngineError::bad_request("an `owner` token needs a user and no workflow")),
        (scope, ..) => Err(EngineError::bad_request(format!(
            "a token of scope `{}` takes neither a workflow nor a user",
            scope.name()
        ))),
    }
}

fn described(grant: &Grant) -> String {
    match grant {
        Grant::Admin | Grant::Metrics | Grant::Pool => grant.scope().name().to_owned(),
        Grant::Owner { user } => format!("owner {user}"),
        Grant::Viewer { namespace } => format!("viewer of {namespace}"),
        Grant::Editor { namespace } => format!("editor of {namespace}"),
        Grant::Runner { workflow } => format!("runner of workflow {workflow}"),
    }
}

/// Lists all entries for administrators, and their own for other callers.
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(filter): Query<AuditFilter>,
) -> ApiResult<Page<AuditEntry>> {
    let who = (caller.grant != Grant::Admin).then_some(caller.name);
    Ok(Json(app.engine.audit(&AuditFilter { who, ..filter }).await?))
}
