//! Runners with the token of their service account, and pools of them that scale with the work.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use torc_tests::env::until;
use torc_tests::labs::kube::{Controller, Namespace, expect_status, free_address};

use super::{Cluster, jobs};

/// Starts a controller that accepts the service account `runner` of its namespace.
fn reviewing(cluster: &Cluster) -> Controller {
    let address = free_address();
    let namespace = &cluster.namespace;
    let call = Controller::call(&cluster.env, namespace, "alone", &address)
        .env("TORC_KUBERNETES_AUDIENCE", "torc")
        .env("TORC_KUBERNETES_RUNNER_ACCOUNTS", format!("{}/runner", namespace.name))
        .env("TORC_KUBERNETES_ADMIN_ACCOUNTS", format!("{}/boss", namespace.name))
        .env("TORC_KUBERNETES_VIEWER_ACCOUNT", "viewer")
        .env("TORC_KUBERNETES_EDITOR_ACCOUNT", "editor");
    let controller = Controller::with(call, &address);
    controller.expect_ready();
    controller
}

#[test]
fn service_accounts_act_as_runners_and_administrators() {
    let cluster = Cluster::new("accounts");
    let (controller, namespace) = (reviewing(&cluster), &cluster.namespace);
    let token = |account: &str, audience: &str| {
        let file = cluster.env.path(&format!("{account}.{}.token", audience.len()));
        let token = namespace.kubectl(&format!("create token {account} --audience {audience}"));
        fs::write(&file, token).unwrap();
        file
    };
    for account in ["runner", "boss", "guest"] {
        namespace.kubectl(&format!("create serviceaccount {account}"));
    }
    let torc = |line: &str, token: &std::path::Path| {
        let call = cluster.env.call(line).arg("-n").arg(&namespace.name).env("TORC_TOKEN_FILE", token);
        call.env("TORC_API_URL", format!("http://{}", controller.address)).run()
    };
    namespace.apply("w", &jobs(&[("a", "true")]));
    namespace.expect("w", "Accepted", "True/Planned");

    let runner = token("runner", "torc");
    let folder = cluster.env.path("runner");
    fs::create_dir_all(&folder).unwrap();
    let call = cluster.env.call("runner --persistent --num-cpus 2").folder(&folder);
    let call = call.env("TORC_API_URL", format!("http://{}", controller.address)).env("TORC_TOKEN_FILE", &runner);
    let running = call.start();
    namespace.expect("w", "Finished", "True/Succeeded");
    running.kill();

    // The account of a runner may only run jobs.
    torc("get jobs w", &runner).exits(0);
    torc("cancel w", &runner).exits(7);
    torc("get workflows", &token("boss", "torc")).exits(0);
    torc("cancel w", &token("boss", "torc")).exits(0);
    // An account that is on no list, and a token for another audience.
    torc("get workflows", &token("guest", "torc")).exits(7);
    torc("get workflows", &token("runner", "https://kubernetes.default.svc")).exits(7);
    // A valid signature, but expired.
    let uid = namespace.kubectl("get serviceaccount boss -o jsonpath={.metadata.uid}");
    let signed = |lifetime: i64| {
        let file = cluster.env.path(&format!("boss.{lifetime}.token"));
        fs::write(&file, signed_token(namespace, "boss", &uid, lifetime)).unwrap();
        file
    };
    torc("get workflows", &signed(600)).exits(0);
    torc("get workflows", &signed(-600)).exits(7);
    // Tokens of a deleted account are refused. (A token that was seen before is cached for a minute.)
    let late = signed(601);
    namespace.kubectl("delete serviceaccount boss");
    torc("get workflows", &late).exits(7);
}

/// Signs a token like the API server, with any lifetime.
fn signed_token(namespace: &Namespace, account: &str, uid: &str, lifetime: i64) -> String {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let claims = json!({
        "iss": "https://kubernetes.default.svc", "aud": ["torc"], "iat": now - 1_000, "nbf": now - 1_000, "exp": now + lifetime,
        "sub": format!("system:serviceaccount:{}:{account}", namespace.name),
        "kubernetes.io": {"namespace": namespace.name, "serviceaccount": {"name": account, "uid": uid}},
    });
    let script = r#"encode() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
        head=$(printf '{"alg":"RS256","typ":"JWT"}' | encode) body=$(printf %s "$2" | encode)
        printf '%s.%s.%s' "$head" "$body" "$(printf %s "$head.$body" | openssl dgst -sha256 -sign "$1" -binary | encode)""#;
    let key = namespace.lab.account_key();
    let printed = Command::new("bash").args(["-c", script, "sign"]).arg(key).arg(claims.to_string()).output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    String::from_utf8(printed.stdout).unwrap()
}

#[test]
fn accounts_see_only_their_namespace() {
    let (cluster, other) = (Cluster::new("seen"), Cluster::new("unseen"));
    let controller = reviewing(&cluster);
    let token = |cluster: &Cluster, account: &str| {
        cluster.namespace.kubectl(&format!("create serviceaccount {account}"));
        let token = cluster.namespace.kubectl(&format!("create token {account} --audience torc"));
        let file = cluster.env.path(&format!("{account}.token"));
        fs::write(&file, token).unwrap();
        file
    };
    let torc = |line: &str, token: &std::path::Path| {
        let call = cluster.env.call(line).env("TORC_TOKEN_FILE", token);
        call.env("TORC_API_URL", format!("http://{}", controller.address)).run()
    };
    let (mine, theirs) = (&cluster.namespace.name, &other.namespace.name);
    let admin = cluster.env.path("data/lab.db.token");
    cluster.namespace.apply("w", &jobs(&[("a", "true")]));
    cluster.namespace.expect("w", "Accepted", "True/Planned");
    let document = json!({"apiVersion": "torc.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "x"},
                          "spec": {"user": "editor", "jobs": [{"name": "b", "command": "true"}]}});
    cluster.env.write("x.json", document.to_string());
    torc(&format!("apply -f x.json -n {theirs}"), &admin).exits(0);
    let id = torc(&format!("describe workflow x -n {theirs} -o json"), &admin).exits(0).json()["id"].clone();

    let (viewer, editor) = (token(&cluster, "viewer"), token(&cluster, "editor"));
    for token in [&viewer, &editor] {
        assert_eq!(torc(&format!("get jobs w -n {mine} -o json"), token).exits(0).json()["items"][0]["name"], "a");
        torc(&format!("get jobs x -n {theirs}"), token).exits(7);
        torc(&format!("get jobs {id} -n {mine}"), token).exits(7);
        torc(&format!("get results {id} -n {mine}"), token).exits(7);
        let everywhere = torc("get workflows -A -o json", token).exits(0).json();
        let names: Vec<&str> =
            everywhere["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["w"]);
        let events = torc("get events -o json", token).exits(0).json();
        assert!(events["items"].as_array().unwrap().iter().all(|event| event["workflowId"] != id), "{events}");
        torc(&format!("apply -f x.json -n {mine}"), token).exits(7);
        torc(&format!("token create --scope viewer -n {theirs}"), token).exits(7);
        torc("gc --older-than 30d", token).exits(7);
    }
    // Only editors change workflows, and only in their namespace.
    torc(&format!("suspend w -n {mine}"), &viewer).exits(7);
    torc(&format!("suspend w -n {mine}"), &editor).exits(0);
    torc(&format!("cancel x -n {theirs}"), &editor).exits(7);
    // An account of the same name in another namespace is another account.
    torc(&format!("get jobs w -n {mine}"), &token(&other, "editor")).exits(7);
    torc(&format!("get jobs x -n {theirs}"), &other.env.path("editor.token")).exits(0);
}

#[test]
fn a_pool_grows_and_shrinks_with_the_work() {
    let cluster = Cluster::new("pools");
    let namespace = &cluster.namespace;
    let replicas =
        || -> Option<i64> { namespace.lab.object("deployment", "torc", "torc-cpu")?["spec"]["replicas"].as_i64() };
    namespace.lab.kubectl(&["create", "deployment", "torc-cpu", "--image=none", "--replicas=0", "--namespace=torc"]);
    let pools = json!([{
        "deployment": "torc-cpu", "idle": 0, "max": 3, "coolDownSeconds": 1, "limits": {"cpu": "2", "memory": "4Gi"},
    }]);
    let address = free_address();
    let call = Controller::call(&cluster.env, namespace, "alone", &address);
    let controller = Controller::with(call.env("TORC_KUBERNETES_POOLS", pools.to_string()), &address);
    controller.expect_ready();
    let spec = |count: i64| -> Value {
        json!({"jobs": [
            {"name": "long", "command": "sleep 8"},
            {"name": "j{i}", "command": "true", "parameters": {"i": format!("1:{count}")}},
        ]})
    };
    let expect = |size: i64| {
        until(|| replicas() == Some(size), || format!("{:?}: {}", replicas(), controller.process().stderr()))
    };
    namespace.apply("w", &spec(3));
    expect(2);
    namespace.apply("w", &spec(100));
    expect(3);
    // A runner with a name of the pool. While it has work, Kubernetes could remove its Pod, so the pool does not shrink.
    let folder = cluster.env.path("pod");
    fs::create_dir_all(&folder).unwrap();
    let pod = ["unshare", "--uts", "sh", "-c", "hostname torc-cpu-7d9f-x2; exec \"$@\"", "sh"];
    let call = cluster.env.call("runner --persistent --num-cpus 2 --poll-interval 1").under(&pod).folder(&folder);
    let call = call.env("TORC_API_URL", format!("http://{address}"));
    let _runner = call.env("TORC_TOKEN_FILE", cluster.env.path("data/lab.db.token")).start();
    expect_status(namespace, "w", "only the long one is left", |status| {
        (status["progress"] == "100/101").then_some(())
    });
    assert_eq!((replicas(), controller.log_lines("current=3")), (Some(3), 0), "{}", controller.process().stderr());
    namespace.expect("w", "Finished", "True/Succeeded");
    expect(0);
    assert!(cluster.attempts(&controller, "w").iter().all(|attempt| attempt.ends_with("1 1 completed")));
}
