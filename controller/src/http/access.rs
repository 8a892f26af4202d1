//! Access rules of routes, and the check before every handler.

use std::time::Instant;

use axum::extract::{MatchedPath, Query, RawPathParams, Request, State};
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use torc_api::document::DEFAULT_NAMESPACE;
use torc_api::token::Grant;
use torc_core::ids::WorkflowId;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::error::{ApiError, unauthorized};
use super::extract::TargetWorkflow;
use super::{App, Namespace, RouteRule};
use crate::audit::{self, AuditContext};
use crate::caller::Caller;
use crate::engine::EngineError;

/// The right that a route requires. An administrator may call all routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Token,
    /// A token for workflows. The handler omits or refuses workflows to which the caller has no access.
    Member(AccessMode),
    /// Access to the workflow of the path: as its owner or member, or as one of its runners and jobs.
    Workflow(AccessMode),
    /// Control of the workflow of the path: as its owner or member.
    Owned(AccessMode),
    /// A token that may own workflows.
    Owner,
    /// A runner that serves all workflows.
    Pool,
    /// A token that reads metrics.
    Metrics,
    Admin,
}

/// The kind of access. Viewers may only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessMode {
    Read,
    Write,
}

/// The result of an access check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessDecision {
    Allowed,
    /// Allowed if the caller has access to the workflow of the path.
    IfTheirs,
    Refused,
}

impl Access {
    /// Returns whether the path names the workflow of the call.
    pub fn names_workflow(self) -> bool {
        matches!(self, Self::Workflow(_) | Self::Owned(_))
    }

    fn decide(self, grant: &Grant) -> AccessDecision {
        let allowed = |is: bool| if is { AccessDecision::Allowed } else { AccessDecision::Refused };
        let owner = matches!(grant, Grant::Owner { .. });
        let runner = matches!(grant, Grant::Runner { .. } | Grant::Pool);
        let member = |mode: AccessMode| match grant {
            Grant::Viewer { .. } => mode == AccessMode::Read,
            Grant::Editor { .. } => true,
            _ => false,
        };
        match self {
            _ if *grant == Grant::Admin => AccessDecision::Allowed,
            Self::Token => AccessDecision::Allowed,
            Self::Member(mode) => allowed(owner || runner || member(mode)),
            Self::Workflow(mode) if owner || runner || member(mode) => AccessDecision::IfTheirs,
            Self::Owned(mode) if owner || member(mode) => AccessDecision::IfTheirs,
            Self::Owner => allowed(owner),
            Self::Pool => allowed(*grant == Grant::Pool),
            Self::Metrics => allowed(*grant == Grant::Metrics),
            Self::Workflow(_) | Self::Owned(_) | Self::Admin => AccessDecision::Refused,
        }
    }
}

/// Checks every request that needs a token before its handler runs.
pub(super) async fn guard(
    State(app): State<App>,
    path: MatchedPath,
    params: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let start = Instant::now();
    let rule = RouteRule::of(request.method(), path.as_str());
    let method = rule.method.as_str();
    let span = tracing::info_span!(
        "request",
        method,
        route = rule.path,
        workflow = Empty,
        job = Empty,
        run = Empty,
        runner = Empty,
    );
    for (name, value) in &params {
        span.record(name, value);
    }
    let response = check(&app, rule, &params, request, next).instrument(span.clone()).await;
    let (status, duration) = (response.status().as_u16(), start.elapsed());
    span.in_scope(|| tracing::debug!(status, ?duration, "request served"));
    app.engine.metrics().request(method, rule.path, status, duration);
    response
}

/// Passes a request on to its handler if the caller may make it.
async fn check(app: &App, rule: &RouteRule, params: &RawPathParams, mut request: Request, next: Next) -> Response {
    let now_seconds = crate::clock::now().wall_ms / 1_000;
    let caller = match app.identities.identify(request.headers(), now_seconds).await {
        Ok(caller) => caller,
        Err(reason) => return unauthorized(reason).into_response(),
    };
    let object = object(request.uri().path());
    let context = AuditContext::new(caller.name.clone(), caller.grant.scope(), rule.verb, object);
    audit::scope(context, async {
        match admit(app, &caller, rule.access, params, request.uri()).await {
            Ok(Some(workflow)) => drop(request.extensions_mut().insert(TargetWorkflow(workflow))),
            Ok(None) => {}
            Err(refusal) => return refusal.into_response(),
        }
        request.extensions_mut().insert(caller);
        next.run(request).await
    })
    .await
}

/// Returns the workflow of the path, for a route that has one, if the caller may make the call.
async fn admit(
    app: &App,
    caller: &Caller,
    access: Access,
    params: &RawPathParams,
    uri: &Uri,
) -> Result<Option<WorkflowId>, ApiError> {
    let decision = access.decide(&caller.grant);
    if decision == AccessDecision::Refused {
        return Err(refused(app, caller).await.into());
    }
    let Some((_, workflow)) = params.iter().find(|(name, _)| *name == "workflow" && access.names_workflow()) else {
        return Ok(None);
    };
    let Query(namespace) = Query::<Namespace>::try_from_uri(uri)?;
    Ok(Some(find_accessible(app, caller, namespace.name(), workflow).await?))
}

/// Returns the number of the workflow that a filter names, if it names one. The caller must have access to it.
pub(super) async fn find_filtered(
    app: &App,
    caller: &Caller,
    namespace: Option<&str>,
    workflow: Option<&str>,
) -> Result<Option<WorkflowId>, EngineError> {
    match workflow {
        Some(workflow) => {
            find_accessible(app, caller, namespace.unwrap_or(DEFAULT_NAMESPACE), workflow).await.map(Some)
        }
        None => Ok(None),
    }
}

/// Returns the number of a workflow to which the caller has access.
async fn find_accessible(
    app: &App,
    caller: &Caller,
    namespace: &str,
    workflow: &str,
) -> Result<WorkflowId, EngineError> {
    match app.engine.find_accessible(namespace, workflow, &caller.grant).await? {
        Some(id) => Ok(id),
        None => Err(refused(app, caller).await),
    }
}

/// Refuses a caller without access to all of `workflows`.
pub(super) async fn require_access(app: &App, caller: &Caller, workflows: &[WorkflowId]) -> Result<(), EngineError> {
    let theirs = app.engine.theirs(&caller.grant).await?;
    if theirs.is_none_or(|theirs| workflows.iter().all(|id| theirs.contains(id))) {
        return Ok(());
    }
    Err(refused(app, caller).await)
}

async fn refused(app: &App, caller: &Caller) -> EngineError {
    app.engine.refuse(EngineError::forbidden(refusal(&caller.grant))).await
}

/// Returns the message of a refusal, which names the rights of the token.
fn refusal(grant: &Grant) -> String {
    match grant {
        Grant::Admin => "the token does not allow this request".to_owned(),
        Grant::Owner { user } => format!("the token only allows access to workflows of {user}"),
        Grant::Viewer { namespace } => {
            format!("the token only allows reading workflows of namespace {namespace}")
        }
        Grant::Editor { namespace } => {
            format!("the token only allows access to existing workflows of namespace {namespace}")
        }
        Grant::Runner { workflow } => {
            format!("the token only allows access for runners and jobs of workflow {workflow}")
        }
        Grant::Pool => "the token only allows access for runners and jobs".to_owned(),
        Grant::Metrics => "the token only allows reading metrics".to_owned(),
    }
}

/// Returns the object that a path names, for the audit log.
fn object(path: &str) -> String {
    path.strip_prefix("/v1/").unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::AccessMode::{Read, Write};
    use super::*;
    use crate::audit::AuditVerb;
    use crate::http::rules;

    #[test]
    fn each_scope_may_call_what_its_access_says() {
        use Access::{Admin, Member, Metrics, Owned, Owner, Pool, Token, Workflow};
        use AccessDecision::{Allowed, IfTheirs, Refused};
        let owner = Grant::Owner { user: "ada".to_owned() };
        let runner = Grant::Runner { workflow: 1 };
        let viewer = Grant::Viewer { namespace: "lab".to_owned() };
        let editor = Grant::Editor { namespace: "lab".to_owned() };
        for (access, as_owner, as_editor, as_viewer, as_runner, as_metrics) in [
            (Token, Allowed, Allowed, Allowed, Allowed, Allowed),
            (Member(Read), Allowed, Allowed, Allowed, Allowed, Refused),
            (Member(Write), Allowed, Allowed, Refused, Allowed, Refused),
            (Workflow(Read), IfTheirs, IfTheirs, IfTheirs, IfTheirs, Refused),
            (Workflow(Write), IfTheirs, IfTheirs, Refused, IfTheirs, Refused),
            (Owned(Read), IfTheirs, IfTheirs, IfTheirs, Refused, Refused),
            (Owned(Write), IfTheirs, IfTheirs, Refused, Refused, Refused),
            (Owner, Allowed, Refused, Refused, Refused, Refused),
            (Metrics, Refused, Refused, Refused, Refused, Allowed),
            (Admin, Refused, Refused, Refused, Refused, Refused),
        ] {
            assert_eq!(access.decide(&Grant::Admin), Allowed, "{access:?}");
            assert_eq!(access.decide(&owner), as_owner, "{access:?}");
            assert_eq!(access.decide(&editor), as_editor, "{access:?}");
            assert_eq!(access.decide(&viewer), as_viewer, "{access:?}");
            assert_eq!(access.decide(&runner), as_runner, "{access:?}");
            assert_eq!(access.decide(&Grant::Pool), as_runner, "{access:?}");
            assert_eq!(access.decide(&Grant::Metrics), as_metrics, "{access:?}");
        }
        // Only pool runners send logs of their disks.
        for (grant, expected) in [(Grant::Admin, Allowed), (Grant::Pool, Allowed), (runner, Refused), (editor, Refused)]
        {
            assert_eq!(Pool.decide(&grant), expected, "{grant:?}");
        }
    }

    #[test]
    fn a_route_without_a_rule_is_for_administrators() {
        let rule = RouteRule::of(&Method::PATCH, "/v1/workflows");
        assert_eq!((rule.access, rule.verb), (Access::Admin, AuditVerb::Unknown));
        let head = RouteRule::of(&Method::HEAD, "/v1/version");
        assert_eq!((head.access, head.verb), (Access::Token, AuditVerb::Read));
    }

    #[test]
    fn only_get_reads() {
        for RouteRule { method, path, access, verb } in rules() {
            let is_get = method == Method::GET;
            assert_eq!(*verb == AuditVerb::Read, is_get, "{method} {path}");
            assert_ne!(*verb, AuditVerb::Unknown, "{method} {path}");
            if let Access::Member(mode) | Access::Workflow(mode) | Access::Owned(mode) = access {
                assert_eq!(*mode == Read, is_get, "{method} {path}");
            }
        }
    }

    #[test]
    fn a_workflow_is_in_the_path_of_what_needs_one() {
        for RouteRule { method, path, access, .. } in rules() {
            assert_eq!(path.contains("{workflow}"), access.names_workflow(), "{method} {path}");
        }
    }
}
