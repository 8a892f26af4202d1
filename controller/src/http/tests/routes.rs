//! Every route with its access rule and its word in the audit log, compared with the router itself.

use std::collections::BTreeSet;

use super::super::access::RULES;
use crate::tests::{ADMIN, TestServer};

/// Method, path, access rule, audit verb. Routes without a rule need no token.
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
    ("GET", "/v1/events", "Part", "read"),
    ("GET", "/v1/watch", "Part", "read"),
    ("GET", "/v1/runners", "Part", "read"),
    ("POST", "/v1/runners", "Part", "register"),
    ("POST", "/v1/runners/{runner}/sync", "Part", "sync"),
    ("POST", "/v1/logs", "Pool", "exchange logs"),
    ("GET", "/v1/allocations", "Part", "read"),
    ("GET", "/v1/slurmclusters", "Part", "read"),
    ("POST", "/v1/slurmclusters", "Admin", "apply cluster"),
    ("GET", "/v1/slurmclusters/{cluster}", "Part", "read"),
    ("DELETE", "/v1/slurmclusters/{cluster}", "Admin", "delete cluster"),
    ("GET", "/v1/slurm_stats", "Part", "read"),
    ("POST", "/v1/slurm_stats", "Part", "record slurm stats"),
    ("GET", "/v1/workflows", "Part", "read"),
    ("POST", "/v1/workflows", "Owner", "apply"),
    ("GET", "/v1/workflows/{workflow}", "Workflow", "read"),
    ("DELETE", "/v1/workflows/{workflow}", "Owned", "delete"),
    ("GET", "/v1/workflows/{workflow}/actions", "Workflow", "read"),
    ("POST", "/v1/workflows/{workflow}/cancel", "Owned", "cancel"),
    ("POST", "/v1/workflows/{workflow}/classify", "Owned", "classify"),
    ("POST", "/v1/workflows/{workflow}/correct-resources", "Owned", "correct resources"),
    ("GET", "/v1/workflows/{workflow}/explain", "Workflow", "read"),
    ("GET", "/v1/workflows/{workflow}/file-uses", "Workflow", "read"),
    ("GET", "/v1/workflows/{workflow}/files", "Workflow", "read"),
    ("GET", "/v1/workflows/{workflow}/jobs", "Workflow", "read"),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}", "Workflow", "read"),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}/explain", "Workflow", "read"),
    ("GET", "/v1/workflows/{workflow}/jobs/{job}/log", "Workflow", "read"),
    ("POST", "/v1/workflows/{workflow}/jobs/{job}/spawn", "Workflow", "spawn"),
    ("POST", "/v1/workflows/{workflow}/recover", "Owned", "recover"),
    ("POST", "/v1/workflows/{workflow}/regenerate", "Owned", "regenerate"),
    ("GET", "/v1/workflows/{workflow}/remote-workers", "Owned", "read"),
    ("POST", "/v1/workflows/{workflow}/remote-workers", "Owned", "add workers"),
    ("DELETE", "/v1/workflows/{workflow}/remote-workers/{worker}", "Owned", "remove worker"),
    ("GET", "/v1/workflows/{workflow}/results", "Workflow", "read"),
    ("POST", "/v1/workflows/{workflow}/resume", "Owned", "resume"),
    ("POST", "/v1/workflows/{workflow}/retry", "Owned", "retry"),
    ("GET", "/v1/workflows/{workflow}/ro-crate", "Workflow", "read"),
    ("POST", "/v1/workflows/{workflow}/runs/{run}/results", "Workflow", "replay"),
    ("POST", "/v1/workflows/{workflow}/schedule-nodes", "Owned", "schedule nodes"),
    ("GET", "/v1/workflows/{workflow}/staleness", "Workflow", "read"),
    ("POST", "/v1/workflows/{workflow}/submit", "Owned", "submit"),
    ("POST", "/v1/workflows/{workflow}/suspend", "Owned", "suspend"),
    ("POST", "/v1/workflows/{workflow}/sync-status", "Owned", "sync status"),
    ("GET", "/v1/workflows/{workflow}/user-data", "Workflow", "read"),
    ("GET", "/v1/workflows/{workflow}/user-data/{name}", "Workflow", "read"),
    ("PUT", "/v1/workflows/{workflow}/user-data/{name}", "Workflow", "write data"),
    ("DELETE", "/v1/workflows/{workflow}/user-data/{name}", "Workflow", "take back data"),
];

type Routes = BTreeSet<(String, String)>;

/// The method and path of every row of the table.
pub(super) fn table() -> Routes {
    let routes: Routes = ROUTES.iter().map(|(method, path, ..)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(routes.len(), ROUTES.len(), "each route is in the table once");
    routes
}

/// The paths of the router, as it lists them itself.
fn paths(server: &TestServer) -> BTreeSet<String> {
    let text = format!("{:?}", server.app);
    let quoted = text.split('"').skip(1).step_by(2);
    quoted
        .filter(|path| path.starts_with('/') && path.len() > 1 && !path.contains("__private__"))
        .map(str::to_owned)
        .collect()
}

/// The methods and paths of the router: the answer to a method that no route has says which ones a path has.
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
        .filter(|(_, _, needs, _)| !needs.is_empty())
        .map(|(method, path, needs, verb)| format!("{method} {path}: {needs}, {verb}"))
        .collect();
    let ours: BTreeSet<_> =
        RULES.iter().map(|(method, path, needs, verb)| format!("{method} {path}: {needs:?}, {verb}")).collect();
    assert_eq!(ours, pinned);
    assert_eq!(RULES.len(), pinned.len(), "no route has two rules, of which the second would never count");
}

#[test]
fn the_description_has_every_route_but_those_about_itself() {
    let document = crate::openapi::document();
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
