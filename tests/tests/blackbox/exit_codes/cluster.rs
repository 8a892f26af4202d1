//! The same commands with a Kubernetes cluster. The fake API server responds by the name in the request.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use torc_tests::env::{TestEnv, until};

use super::table::Cell;
use super::{Deviations, with_files};

/// Calls with the kubeconfig of the cluster. The name after a slash, or that of the document, selects the response of the API server.
#[rustfmt::skip]
pub const CELLS: &[Cell] = &[
    Cell("apply -f succeeded.yaml --wait", 0),
    Cell("apply -f failed.yaml --wait", 3),
    Cell("apply -f canceled.yaml --wait", 3),
    Cell("apply -f absent.yaml", 0),
    Cell("apply -f bad.yaml", 4),
    Cell("apply -f invalid.yaml", 4),
    Cell("apply -f none.yaml", 5),
    Cell("apply -f forbidden.yaml", 7),
    Cell("apply -f conflict.yaml", 7),
    Cell("apply -f succeeded.yaml --no-run", 2),
    Cell("apply -f succeeded.yaml --detach", 2),
    Cell("diff -f succeeded.yaml", 0),
    Cell("diff -f changed.yaml", 9),
    Cell("diff -f absent.yaml", 9),
    // The reads go to Torc's server, and this cluster has none.
    Cell("get workflows", 5),
    Cell("get workflow/succeeded", 5),
    Cell("delete succeeded", 0),
    Cell("delete absent", 5),
    Cell("delete absent --ignore-not-found", 0),
    Cell("delete forbidden", 7),
    Cell("cancel succeeded", 0),
    Cell("cancel absent", 5),
    Cell("suspend forbidden", 7),
    Cell("resume succeeded", 0),
    Cell("retry failed", 0),
    Cell("retry absent", 5),
    Cell("wait succeeded", 0),
    Cell("wait failed", 0),
    Cell("wait succeeded --for condition=Succeeded", 0),
    Cell("wait failed --for condition=Succeeded", 3),
    Cell("wait active --timeout 0s", 8),
    Cell("wait absent", 5),
    Cell("wait absent --for delete", 0),
    Cell("wait succeeded --for delete --timeout 0s", 8),
    Cell("wait forbidden", 7),
    Cell("run w.yaml", 2),
    Cell("exec -c true", 2),
    Cell("submit w.yaml", 2),
    Cell("remote run w", 2),
    Cell("restore copy.db", 2),
    Cell("validate w.yaml", 0),
    Cell("status w", 5),
    Cell("admin release-finalizers", 0),
    Cell("crd print", 0),
    // No cluster, an unreachable one, one that refuses, and ones with older or complete definitions.
    Cell("crd check", 5),
    Cell("crd check", 6),
    Cell("crd check", 7),
    Cell("crd check", 9),
    Cell("crd check", 0),
    Cell("crd install", 5),
    Cell("crd install", 6),
    Cell("crd install", 7),
    Cell("crd install", 0),
    Cell("admin release-finalizers", 5),
    Cell("admin release-finalizers", 6),
    Cell("admin release-finalizers", 7),
    Cell("apply -f succeeded.yaml --wait", 6),
    Cell("wait succeeded", 6),
    Cell("get workflows", 6),
    Cell("apply -f active.yaml --wait", 130),
    Cell("wait active", 130),
];

/// The responses of an API server.
#[derive(Clone, Default)]
struct Answers {
    /// The API server has these custom resource definitions.
    definitions: Arc<Mutex<HashMap<String, Value>>>,
    /// The API server responds 403 to every request.
    forbids: bool,
}

/// Starts an API server for the duration of the test and returns its URL.
fn api_server(answers: Answers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let answers = answers.clone();
            thread::spawn(move || answer(connection, &answers));
        }
    });
    url
}

fn answer(connection: TcpStream, answers: &Answers) -> Option<()> {
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let path = target.split('?').next()?;
    let (code, value) = answers.to(&method, path, &body);
    let text = value.to_string();
    let head = format!(
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len()
    );
    reader.into_inner().write_all(format!("{head}{text}").as_bytes()).ok()
}

fn status(code: u16, message: &str) -> (u16, Value) {
    let value = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": if code == 404 { "NotFound" } else { "Other" }, "code": code });
    (code, value)
}

/// Returns the answer of an API server that knows the kind of an object, but not its name.
fn absent() -> (u16, Value) {
    let (code, mut value) = status(404, "workflows.torc.dev \"absent\" not found");
    value["details"] = json!({ "name": "absent", "group": "torc.dev", "kind": "workflows" });
    (code, value)
}

impl Answers {
    fn to(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        if self.forbids {
            return status(403, "you may not");
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        if path.contains("customresourcedefinitions") {
            let mut definitions = self.definitions.lock().unwrap();
            if method == "PATCH" {
                definitions.insert(name.to_owned(), serde_json::from_slice(body).unwrap_or_default());
            }
            return match definitions.get(name) {
                None => status(404, &format!("{name} not found")),
                Some(found) => (200, established(found.clone())),
            };
        }
        match (method, name) {
            ("GET", "workflows") => {
                (200, json!({ "kind": "WorkflowList", "apiVersion": "torc.dev/v1alpha1", "metadata": {}, "items": [] }))
            }
            ("GET" | "DELETE", "absent") => absent(),
            ("PATCH", "absent") if self.is_merge(body) => absent(),
            (_, "forbidden") => status(403, "you may not"),
            ("PATCH", "conflict") => status(409, "a field has another manager"),
            ("PATCH", "invalid") => status(422, "spec.jobs: Invalid value"),
            ("DELETE", _) => {
                (200, json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200 }))
            }
            (_, "services") => (200, json!({ "kind": "ServiceList", "apiVersion": "v1", "metadata": {}, "items": [] })),
            (_, name) => (200, workflow(name, method == "PATCH" && name == "changed")),
        }
    }

    /// Returns whether a patch is a merge patch and not a server-side apply.
    fn is_merge(&self, body: &[u8]) -> bool {
        serde_json::from_slice::<Value>(body).is_ok_and(|value| value.get("kind").is_none())
    }
}

fn established(mut definition: Value) -> Value {
    definition["status"] = json!({ "conditions": [{ "type": "Established", "status": "True" }] });
    definition["metadata"]["resourceVersion"] = json!("1");
    definition
}

fn workflow(name: &str, changed: bool) -> Value {
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let conditions: Vec<Value> = match name {
        "succeeded" => vec![condition("Finished"), condition("Succeeded")],
        "failed" | "canceled" => vec![condition("Finished")],
        _ => Vec::new(),
    };
    let mut spec = json!({ "jobs": [{ "name": "a", "command": if changed { "new" } else { "true" } }] });
    if name == "canceled" {
        spec["stopPolicy"] = json!("Cancel");
    }
    json!({
        "apiVersion": "torc.dev/v1alpha1", "kind": "Workflow",
        "metadata": { "name": name, "namespace": "default", "generation": 1, "uid": "u", "resourceVersion": "1" },
        "spec": spec,
        "status": { "observedGeneration": 1, "conditions": conditions, "jobs": { "total": 1, "ready": 1 } },
    })
}

/// Writes a kubeconfig for an API server.
fn kubeconfig(env: &TestEnv, file: &str, url: &str) {
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{ "name": "lab", "cluster": { "server": url } }],
        "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "me" } }],
        "users": [{ "name": "me", "user": {} }],
    });
    env.write(file, text.to_string());
}

#[test]
fn with_a_cluster_each_outcome_has_its_code() {
    let env = TestEnv::new();
    with_files(&env, "");
    for name in ["succeeded", "failed", "canceled", "active", "absent", "changed", "forbidden", "conflict", "invalid"] {
        env.write(&format!("{name}.yaml"), format!("name: {name}\njobs: [{{name: a, command: 'true'}}]\n"));
    }
    let documents = env.torc("crd print -o json").exits(0).stdout;
    let all: Vec<Value> =
        serde_json::Deserializer::from_str(&documents).into_iter().map(|value| value.unwrap()).collect();
    let named = |value: &Value| (value["metadata"]["name"].as_str().unwrap().to_owned(), value.clone());
    let current: HashMap<String, Value> = all.iter().map(named).collect();
    let mut older = current.clone();
    older.values_mut().next().unwrap()["spec"]["names"] = json!({});
    let answers = |known: HashMap<String, Value>| Answers { definitions: Arc::new(Mutex::new(known)), forbids: false };
    kubeconfig(&env, "current", &api_server(answers(current)));
    kubeconfig(&env, "older", &api_server(answers(older)));
    kubeconfig(&env, "empty", &api_server(answers(HashMap::new())));
    kubeconfig(&env, "forbids", &api_server(Answers { forbids: true, ..Answers::default() }));
    kubeconfig(&env, "dead", "http://127.0.0.1:1");

    let mut deviations = Deviations::default();
    let mut check = |file: &str, line: &str, code: i32| {
        let call = env.call(line).arg("--kubeconfig").arg(env.path(file));
        deviations.check(&format!("{file}: {line}"), &call.run(), code);
    };
    let about_definitions = |line: &str| line.starts_with("crd check") || line.starts_with("crd install");
    for Cell(line, code) in CELLS {
        match (*code, *line) {
            (130, _) => {}
            (6, line) => check("dead", line, 6),
            (7, line) if about_definitions(line) || line.starts_with("admin") => check("forbids", line, 7),
            (5, line) if line.starts_with("crd install") || line.starts_with("admin") => check("none", line, 5),
            (5, "crd check") => check("empty", line, 5),
            (9, "crd check") => check("older", line, 9),
            (code, line) => check("current", line, code),
        }
    }
    for file in ["empty", "older"] {
        check(file, "crd install", 0);
        check(file, "crd check", 0);
    }
    for (Cell(line, _), signal) in CELLS.iter().filter(|cell| cell.1 == 130).zip([Signal::SIGINT, Signal::SIGTERM]) {
        let mut running = env.call(line).arg("--kubeconfig").arg(env.path("current")).start();
        super::interrupted::until_it_listens(&mut running);
        until(|| !running.has_ended(), || format!("`{line}` ended by itself"));
        running.signal(signal);
        deviations.check(line, &running.finish(), 130);
    }
    deviations.expect_none();
}
