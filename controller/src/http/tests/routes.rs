//! Every route with its access rule and audit verb, compared with the router.

use std::collections::BTreeSet;

use super::super::rules;
use crate::tests::{ADMIN, TestServer};

/// Method, path, access rule, audit verb. Routes without an access rule need no token.
const ROUTES: &[(&str, &str, &str, &str)] = &[
    ("GET", "/livez", "", ""),
    ("GET", "/readyz", "", ""),
    ("GET", "/metrics", "Metrics", "read"),
    ("GET", "/v1/version", "Token", "read"),
    ("GET", "/v1/openapi.json", "Token", "read"),
    ("POST", "/v1/gc", "Admin", "gc"),
    ("POST", "/v1/backup", "Admin", "backup"),
    ("GET", "/v1/audit", "Owner", "read"),
    ("POST", "/v1/tokens", "Owner", "create token"),
    ("GET", "/v1/events", "Member(Read)", "read"),
    ("GET", "/v1/watch", "Member(Read)", "read"),
    ("GET", "/v1/runners", "Member(Read)", "read"),
    ("POST", "/v1/runners", "Member(Write)", "register"),
    ("POST", "/v1/runners/{runner}/sync", "Member(Write)", "sync"),
    ("POST", "/v1/logs", "Pool", "exchange logs"),
    ("GET", "/v1/allocations", "Member(Read)", "read"),
    ("GET", "/v1/slurmclusters", "Member(Read)", "read"),
    ("POST", "/v1/slurmclusters", "Admin", "apply cluster"),
    ("GET", "/v1/slurmclusters/{cluster}", "Member(Read)", "read"),
    ("DELETE", "/v1/slurmclusters/{cluster}", "Admin", "delete cluster"),
    ("GET", "/v1/slurm_stats", "Member(Read)", "read"),
    ("POST", "/v1/slurm_stats", "Member(Write)", "record slurm stats"),
    ("GET", "/v1/workflows", "Member(Read)", "read"),
    ("POST", "/v1/workflows", "Owner", "apply"),
    ("GET", "/v1/workflows/{workflow}", "Workflow(Read)", "read"),
    ("DELETE", "/v1/workflows/{workflow}", "Owned(Write)", "delete"),
    ("GET", "/v1/workflows/{workflow}/actions", "Workflow(Read)", "read"),
    ("POST", "/v1/workflows/{workflow}/cancel", "Owned(Write)", "cancel"),
    ("POST", "/v1/workflows/{workflow}/classify", "Owned(Write)", "classify"),
    ("POST", "/v1/workflows/{workflow}/correct-resources", "Owned(Write)", "correct resources"),
    ("GET", "/v1/workflows/{workflow}/explain", "Workflow(Read)", "read"),
    ("GET", "/v1/workflows/{workflow}/file-uses", "Workflow(Read)", "read"),
    ("GET", "/v1/workflows/{workflow}/files", "Workflow(Read)", "read"),
    ("GET", "/v1/workflows/{workflow}/jobs", "Workflow(Read)", "read"),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}", "Workflow(Read)", "read"),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}/explain", "Workflow(Read)", "read"),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}/log", "Workflow(Read)", "read"),
    ("POST", "/v1/workflows/{workflow}/jobs/{job}/spawn", "Workflow(Write)", "spawn"),
    ("POST", "/v1/workflows/{workflow}/recover", "Owned(Write)", "recover"),
    ("POST", "/v1/workflows/{workflow}/regenerate", "Owned(Write)", "regenerate"),
    ("GET", "/v1/workflows/{workflow}/remote-workers", "Owned(Read)", "read"),
    ("POST", "/v1/workflows/{workflow}/remote-workers", "Owned(Write)", "add workers"),
    ("DELETE", "/v1/workflows/{workflow}/remote-workers/{worker}", "Owned(Write)", "remove worker"),
    ("GET", "/v1/workflows/{workflow}/results", "Workflow(Read)", "read"),
    ("POST", "/v1/workflows/{workflow}/resume", "Owned(Write)", "resume"),
    ("POST", "/v1/workflows/{workflow}/retry", "Owned(Write)", "retry"),
    ("GET", "/v1/workflows/{workflow}/ro-crate", "Workflow(Read)", "read"),
    ("POST", "/v1/workflows/{workflow}/runs/{run}/results", "Workflow(Write)", "replay"),
    ("POST", "/v1/workflows/{workflow}/schedule-nodes", "Owned(Write)", "schedule nodes"),
    ("GET", "/v1/workflows/{workflow}/staleness", "Workflow(Read)", "read"),
    ("POST", "/v1/workflows/{workflow}/submit", "Owned(Write)", "submit"),
    ("POST", "/v1/workflows/{workflow}/suspend", "Owned(Write)", "suspend"),
    ("POST", "/v1/workflows/{workflow}/sync-status", "Owned(Write)", "sync status"),
    ("GET", "/v1/workflows/{workflow}/user-data", "Workflow(Read)", "read"),
    ("GET", "/v1/workflows/{workflow}/user-data/{name}", "Workflow(Read)", "read"),
    ("PUT", "/v1/workflows/{workflow}/user-data/{name}", "Workflow(Write)", "write data"),
    ("DELETE", "/v1/workflows/{workflow}/user-data/{name}", "Workflow(Write)", "delete data"),
];

type Routes = BTreeSet<(String, String)>;

/// Returns the methods and paths of the table.
pub(super) fn table() -> Routes {
    let routes: Routes = ROUTES.iter().map(|(method, path, ..)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(routes.len(), ROUTES.len(), "each route is in the table once");
    routes
}

/// Returns the paths of the router.
fn paths(server: &TestServer) -> BTreeSet<String> {
    let text = format!("{:?}", server.app);
    let quoted = text.split('"').skip(1).step_by(2);
    quoted
        .filter(|path| path.starts_with('/') && path.len() > 1 && !path.contains("__private__"))
        .map(str::to_owned)
        .collect()
}

/// Returns the methods and paths of the router: the answer to an unknown method lists the methods of a path.
pub(super) async fn routes(server: &TestServer) -> Routes {
    let mut routes = Routes::new();
    for path in paths(server) {
        let filled = path.replace(['{', '}'], "");
        let reply = server.send("TRACE", &filled, Some(ADMIN), None).await;
        let allowed = reply.headers.get("allow").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        assert_eq!(reply.status.as_u16(), 405, "TRACE {path}");
        let methods = allowed.split(',').map(str::trim).filter(|method| *method != "HEAD" && !method.is_empty());
        routes.extend(methods.map(|method| (method.to_owned(), path.clone())));
    }
    routes
}

#[tokio::test]
async fn the_router_has_exactly_the_routes_of_the_table() {
    let server = TestServer::start().await;
    assert_eq!(routes(&server).await, table());
}

#[test]
fn every_route_has_the_rule_and_verb_of_the_table() {
    let pinned: BTreeSet<_> = ROUTES
        .iter()
        .filter(|(_, _, access, _)| !access.is_empty())
        .map(|(method, path, access, verb)| format!("{method} {path}: {access}, {verb}"))
        .collect();
    let ours: BTreeSet<_> =
        rules().iter().map(|rule| format!("{} {}: {:?}, {}", rule.method, rule.path, rule.access, rule.verb)).collect();
    assert_eq!(ours, pinned);
    assert_eq!(rules().len(), pinned.len(), "no route has two rules, of which the second would never count");
}

#[test]
fn the_description_has_every_route_but_those_about_itself() {
    let document = crate::openapi_document();
    let described: Routes = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| (method.to_uppercase(), path.clone()))
        })
        .collect();
    let besides = ["/livez", "/readyz", "/metrics", "/v1/openapi.json"];
    let expected: Routes = table().into_iter().filter(|(_, path)| !besides.contains(&path.as_str())).collect();
    assert_eq!(described, expected);
}
