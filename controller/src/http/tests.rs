#![allow(clippy::unwrap_used)]

mod audit;
mod callers;
mod errors;
mod lists;
mod logs;
mod routes;

use serde_json::json;
use torc_api::token::Grant;

use crate::tests::{ADMIN, METRICS, TestServer, jobs, token_key};

/// Starts a server with two workflows of the same name: number 1 of ada in `default`, and number 2 of bob in `lab`. Each has a job
/// and a runner.
async fn two_workflows() -> TestServer {
    let server = TestServer::start().await;
    server.stop_http.cancel();
    assert_eq!(server.apply("ada", "default", "sweep", jobs(&["one"])).await, 1);
    assert_eq!(server.apply("bob", "lab", "sweep", jobs(&["two"])).await, 2);
    assert_eq!(server.register("node-1", Some("default/sweep")).await, 1);
    assert_eq!(server.register("node-2", Some("lab/sweep")).await, 2);
    let worker = json!({ "workers": [{ "address": "host-9" }] });
    for namespace in ["default", "lab"] {
        let path = format!("/v1/workflows/sweep/remote-workers?namespace={namespace}");
        server.ok("POST", &path, Some(worker.clone())).await;
    }
    server
}

/// Returns the name and the token of each kind of caller.
fn callers(server: &TestServer) -> Vec<(&'static str, Option<String>)> {
    let owner = |user: &str| Grant::Owner { user: user.to_owned() };
    let viewer = |namespace: &str| Grant::Viewer { namespace: namespace.to_owned() };
    let editor = |namespace: &str| Grant::Editor { namespace: namespace.to_owned() };
    let signed = |grant| Some(server.token(grant, None));
    let forged = crate::issuer::Issuer::new(torc_core::tokens::TokenKey::new(&[8; 32]).unwrap(), None);
    let statement = torc_api::token::Claims { grant: Grant::Admin, issuer: "i".to_owned(), issued: 0, expires: None };
    assert!(token_key().verify(&forged.issue(&statement), 0).is_err());
    vec![
        ("administrator", Some(ADMIN.to_owned())),
        ("owner ada", signed(owner("ada"))),
        ("owner bob", signed(owner("bob"))),
        ("viewer of default", signed(viewer("default"))),
        ("editor of default", signed(editor("default"))),
        ("viewer of lab", signed(viewer("lab"))),
        ("editor of lab", signed(editor("lab"))),
        ("runner of workflow 1", signed(Grant::Runner { workflow: 1 })),
        ("runner of workflow 2", signed(Grant::Runner { workflow: 2 })),
        ("job of workflow 1", Some(server.issuer.for_jobs(torc_core::ids::WorkflowId(1)))),
        ("pool", signed(Grant::Pool)),
        ("metrics", Some(METRICS.to_owned())),
        ("expired token of ada", Some(server.token(owner("ada"), Some(1)))),
        ("forged token of an administrator", Some(forged.issue(&statement))),
        ("no token", None),
    ]
}
