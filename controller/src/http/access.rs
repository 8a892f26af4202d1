//! Who may call what: one table for all routes, and the check in front of every handler.

use axum::extract::{MatchedPath, Query, RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use torc_api::token::Grant;
use torc_core::ids::WorkflowId;

use super::error::{ApiError, unauthorized};
use super::identity::Caller;
use super::{App, Namespace};
use crate::audit::{self, Deed};
use crate::engine::EngineError;

/// What a route needs. An administrator may call all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// Any token.
    Token,
    /// Somebody who deals with workflows. The handler leaves out, or refuses, what is not theirs.
    Part,
    /// The workflow of the path is one that they deal with, as its owner or as one of its runners and jobs.
    Workflow,
    /// They own the workflow of the path.
    Owned,
    /// Somebody who may own workflows.
    Owner,
    /// A runner that serves everybody.
    Pool,
    /// Somebody who measures.
    Metrics,
    /// An administrator.
    Admin,
}

use Needs::{Admin, Metrics, Owned, Owner, Part, Pool, Token, Workflow};

/// What changes nothing is called.
const READ: &str = "read";

/// Method, path, what it needs, and what it is called in the audit. A route that is not here is the administrator's.
pub(super) const RULES: &[(&str, &str, Needs, &str)] = &[
    ("GET", "/metrics", Metrics, READ),
    ("GET", "/v1/version", Token, READ),
    ("GET", "/v1/openapi.json", Token, READ),
    ("POST", "/v1/gc", Admin, "gc"),
    ("POST", "/v1/backup", Admin, "backup"),
    ("GET", "/v1/audit", Owner, READ),
    ("POST", "/v1/tokens", Owner, "create token"),
    ("GET", "/v1/events", Part, READ),
    ("GET", "/v1/watch", Part, READ),
    ("GET", "/v1/runners", Part, READ),
    ("POST", "/v1/runners", Part, "register"),
    ("POST", "/v1/runners/{runner}/sync", Part, "sync"),
    ("POST", "/v1/logs", Pool, "exchange logs"),
    ("GET", "/v1/allocations", Part, READ),
    // What a cluster's document puts before Slurm's commands is run by the server.
    ("POST", "/v1/slurmclusters", Admin, "apply cluster"),
    ("GET", "/v1/slurmclusters", Part, READ),
    ("GET", "/v1/slurmclusters/{cluster}", Part, READ),
    ("DELETE", "/v1/slurmclusters/{cluster}", Admin, "delete cluster"),
    ("GET", "/v1/slurm_stats", Part, READ),
    ("POST", "/v1/slurm_stats", Part, "record slurm stats"),
    ("GET", "/v1/workflows", Part, READ),
    ("POST", "/v1/workflows", Owner, "apply"),
    ("GET", "/v1/workflows/{workflow}", Workflow, READ),
    ("DELETE", "/v1/workflows/{workflow}", Owned, "delete"),
    ("GET", "/v1/workflows/{workflow}/actions", Workflow, READ),
    ("POST", "/v1/workflows/{workflow}/cancel", Owned, "cancel"),
    ("POST", "/v1/workflows/{workflow}/suspend", Owned, "suspend"),
    ("POST", "/v1/workflows/{workflow}/resume", Owned, "resume"),
    ("POST", "/v1/workflows/{workflow}/retry", Owned, "retry"),
    ("POST", "/v1/workflows/{workflow}/sync-status", Owned, "sync status"),
    ("POST", "/v1/workflows/{workflow}/recover", Owned, "recover"),
    ("POST", "/v1/workflows/{workflow}/regenerate", Owned, "regenerate"),
    ("POST", "/v1/workflows/{workflow}/correct-resources", Owned, "correct resources"),
    ("POST", "/v1/workflows/{workflow}/classify", Owned, "classify"),
    ("POST", "/v1/workflows/{workflow}/schedule-nodes", Owned, "schedule nodes"),
    ("POST", "/v1/workflows/{workflow}/submit", Owned, "submit"),
    ("GET", "/v1/workflows/{workflow}/explain", Workflow, READ),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}/explain", Workflow, READ),
    ("GET", "/v1/workflows/{workflow}/files", Workflow, READ),
    ("GET", "/v1/workflows/{workflow}/file-uses", Workflow, READ),
    ("GET", "/v1/workflows/{workflow}/jobs", Workflow, READ),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}", Workflow, READ),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}/log", Workflow, READ),
    ("POST", "/v1/workflows/{workflow}/jobs/{job}/spawn", Workflow, "spawn"),
    ("GET", "/v1/workflows/{workflow}/results", Workflow, READ),
    ("POST", "/v1/workflows/{workflow}/runs/{run}/results", Workflow, "replay"),
    ("GET", "/v1/workflows/{workflow}/ro-crate", Workflow, READ),
    ("GET", "/v1/workflows/{workflow}/staleness", Workflow, READ),
    ("GET", "/v1/workflows/{workflow}/user-data", Workflow, READ),
    ("GET", "/v1/workflows/{workflow}/user-data/{name}", Workflow, READ),
    ("PUT", "/v1/workflows/{workflow}/user-data/{name}", Workflow, "write data"),
    ("DELETE", "/v1/workflows/{workflow}/user-data/{name}", Workflow, "take back data"),
    ("GET", "/v1/workflows/{workflow}/remote-workers", Owned, READ),
    ("POST", "/v1/workflows/{workflow}/remote-workers", Owned, "add workers"),
    ("DELETE", "/v1/workflows/{workflow}/remote-workers/{worker}", Owned, "remove worker"),
];

/// What a route needs, and what it is called.
fn rule(method: &Method, path: &str) -> (Needs, &'static str) {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let found = RULES.iter().find(|(of, at, ..)| *of == method && *at == path);
    found.map_or((Admin, "unknown"), |(_, _, needs, verb)| (*needs, verb))
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It goes on.
    Allowed,
    /// It goes on if the workflow of the path is theirs.
    IfTheirs,
    /// It ends here.
    Refused,
}

fn judge((needs, verb): (Needs, &str), grant: &Grant) -> Verdict {
    let allowed = |is: bool| if is { Verdict::Allowed } else { Verdict::Refused };
    let owner = matches!(grant, Grant::Owner { .. });
    let runner = matches!(grant, Grant::Runner { .. } | Grant::Pool);
    let member = match grant {
        Grant::Viewer { .. } => verb == READ,
        Grant::Editor { .. } => true,
        _ => false,
    };
    match needs {
        _ if *grant == Grant::Admin => Verdict::Allowed,
        Token => Verdict::Allowed,
        Part => allowed(owner || runner || member),
        Workflow if owner || runner || member => Verdict::IfTheirs,
        Owned if owner || member => Verdict::IfTheirs,
        Owner => allowed(owner),
        Pool => allowed(*grant == Grant::Pool),
        Metrics => allowed(*grant == Grant::Metrics),
        Workflow | Owned | Admin => Verdict::Refused,
    }
}

/// Stands in front of every handler that needs a token.
pub(super) async fn guard(
    State(app): State<App>,
    path: MatchedPath,
    params: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let now_seconds = crate::clock::now().wall_ms / 1_000;
    let caller = match app.identities.identify(request.headers(), now_seconds).await {
        Ok(caller) => caller,
        Err(reason) => return unauthorized(reason).into_response(),
    };
    // A query that cannot be read is refused by the handler, which reads the same.
    let namespace = Query::<Namespace>::try_from_uri(request.uri()).map(|query| query.0).unwrap_or_default();
    let rule @ (_, verb) = rule(request.method(), path.as_str());
    let deed = Deed::new(&caller, verb, object(request.uri().path()));
    let workflow = params.iter().find(|(name, _)| *name == "workflow").map(|(_, value)| value.to_owned());
    audit::during(deed, async {
        if let Err(refusal) = admit(&app, &caller, rule, namespace.name(), workflow).await {
            return refusal.into_response();
        }
        request.extensions_mut().insert(caller);
        next.run(request).await
    })
    .await
}

async fn admit(
    app: &App,
    caller: &Caller,
    rule: (Needs, &str),
    namespace: &str,
    workflow: Option<String>,
) -> Result<(), ApiError> {
    let reference = workflow.unwrap_or_default();
    let theirs = match judge(rule, &caller.grant) {
        Verdict::Allowed => return Ok(()),
        Verdict::Refused => false,
        Verdict::IfTheirs => app.engine.is_theirs((namespace, &reference), &caller.grant).await?,
    };
    if theirs {
        return Ok(());
    }
    Err(app.engine.refuse(EngineError::forbidden(refusal(&caller.grant))).await.into())
}

/// The number of a workflow that is named outside of the path, which must be one that the caller deals with.
pub(super) async fn one_of_theirs(
    app: &App,
    caller: &Caller,
    (namespace, workflow): (&str, &str),
) -> Result<WorkflowId, EngineError> {
    let id = app.engine.find((namespace, workflow)).await?;
    require_theirs(app, caller, &[id]).await?;
    Ok(id)
}

/// Refuses a caller who does not deal with all of these workflows.
pub(super) async fn require_theirs(app: &App, caller: &Caller, workflows: &[WorkflowId]) -> Result<(), EngineError> {
    let theirs = app.engine.theirs(&caller.grant).await?;
    if theirs.is_none_or(|theirs| workflows.iter().all(|id| theirs.contains(id))) {
        return Ok(());
    }
    Err(app.engine.refuse(EngineError::forbidden(refusal(&caller.grant))).await)
}

/// Says what a token is good for.
fn refusal(grant: &Grant) -> String {
    match grant {
        Grant::Admin => "this cannot be done".to_owned(),
        Grant::Owner { user } => format!("the token is for the workflows of {user}, and for nothing else"),
        Grant::Viewer { namespace } => {
            format!("the token is for reading the workflows of {namespace}, and for nothing else")
        }
        Grant::Editor { namespace } => {
            format!("the token is for the workflows that there are in {namespace}, and for nothing else")
        }
        Grant::Runner { workflow } => {
            format!("the token is for the runners and jobs of workflow {workflow}, and for nothing else")
        }
        Grant::Pool => "the token is for runners and jobs, and for nothing else".to_owned(),
        Grant::Metrics => "the token is for metrics, and for nothing else".to_owned(),
    }
}

/// What a path speaks of, for the audit.
fn object(path: &str) -> String {
    path.strip_prefix("/v1/").unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_description_has_a_rule() {
        let document = crate::openapi::document();
        let paths = document["paths"].as_object().expect("paths");
        let mut missing = Vec::new();
        for (path, methods) in paths {
            for method in methods.as_object().expect("methods").keys() {
                let method = method.to_uppercase();
                if !RULES.iter().any(|(of, at, ..)| *of == method && at == path) {
                    missing.push(format!("{method} {path}"));
                }
            }
        }
        assert_eq!(missing, Vec::<String>::new(), "say in RULES what they need");
    }

    #[test]
    fn what_each_scope_may_call() {
        let owner = Grant::Owner { user: "ada".to_owned() };
        let runner = Grant::Runner { workflow: 1 };
        use Verdict::{Allowed, IfTheirs, Refused};
        let viewer = Grant::Viewer { namespace: "lab".to_owned() };
        let editor = Grant::Editor { namespace: "lab".to_owned() };
        for (needs, as_owner, as_editor, as_runner, as_metrics) in [
            (Token, Allowed, Allowed, Allowed, Allowed),
            (Part, Allowed, Allowed, Allowed, Refused),
            (Workflow, IfTheirs, IfTheirs, IfTheirs, Refused),
            (Owned, IfTheirs, IfTheirs, Refused, Refused),
            (Owner, Allowed, Refused, Refused, Refused),
            (Metrics, Refused, Refused, Refused, Allowed),
            (Admin, Refused, Refused, Refused, Refused),
        ] {
            for verb in [READ, "cancel"] {
                let rule = (needs, verb);
                assert_eq!(judge(rule, &Grant::Admin), Allowed, "{rule:?}");
                assert_eq!(judge(rule, &owner), as_owner, "{rule:?}");
                assert_eq!(judge(rule, &editor), as_editor, "{rule:?}");
                assert_eq!(judge(rule, &runner), as_runner, "{rule:?}");
                assert_eq!(judge(rule, &Grant::Pool), as_runner, "{rule:?}");
                assert_eq!(judge(rule, &Grant::Metrics), as_metrics, "{rule:?}");
                // Who looks changes nothing.
                let as_viewer = if verb == READ || needs == Token { as_editor } else { Refused };
                assert_eq!(judge(rule, &viewer), as_viewer, "{rule:?}");
            }
        }
        // What is on the disks of runners for everybody is brought by them and by nobody else.
        for (grant, expected) in [(Grant::Admin, Allowed), (Grant::Pool, Allowed), (runner, Refused), (editor, Refused)]
        {
            assert_eq!(judge((Pool, "exchange logs"), &grant), expected, "{grant:?}");
        }
    }

    #[test]
    fn a_route_that_nobody_wrote_down_is_the_administrators() {
        assert_eq!(rule(&Method::PATCH, "/v1/workflows"), (Admin, "unknown"));
        assert_eq!(rule(&Method::HEAD, "/v1/version"), (Token, "read"));
    }

    #[test]
    fn what_is_called_reading_changes_nothing() {
        for (method, path, _, verb) in RULES {
            assert_eq!(*verb == READ, *method == "GET", "{method} {path}");
        }
    }

    #[test]
    fn a_workflow_is_in_the_path_of_what_needs_one() {
        for (method, path, needs, _) in RULES {
            let names_one = path.contains("{workflow}");
            assert_eq!(names_one, matches!(needs, Workflow | Owned), "{method} {path}");
        }
    }
}
