//! Torc on a Kubernetes with a node: installed by its charts, used with kubectl and `torc`, upgraded, removed and installed again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;
use torc_tests::env::{TestEnv, project_root, rendezvous, results_by_runner};
use torc_tests::labs::node::{NAMESPACE, Node};

/// Returns the example that most tests run.
fn diamond() -> String {
    project_root().join("docs/examples/diamond.yaml").to_string_lossy().into_owned()
}

/// Creates a namespace for a test.
fn namespace(node: &Node, name: &str) {
    node.kubectl(&["create", "namespace", name]);
}

/// Returns a workflow of `jobs` jobs that write to a file and take `seconds` each.
fn noting(node: &Node, name: &str, jobs: usize, seconds: u32) -> String {
    let file = format!("{name}.yaml");
    let command = format!("echo {{i}} >> /shared/{name}; sleep {seconds}");
    node.write(
        &file,
        &format!(
            "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: {name}}}\nspec:\n  jobs:\n  - name: 'j{{i}}'\n    \
             command: '{command}'\n    parameters: {{i: '1:{jobs}'}}\n"
        ),
    );
    node.text_path(&file)
}

/// Returns the lines that these jobs have written, sorted.
fn noted(node: &Node, name: &str) -> Vec<String> {
    let text = fs::read_to_string(node.path("shared").join(name)).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn status(node: &Node, namespace: &str, name: &str) -> Value {
    node.object(&["-n", namespace, "twf", name])["status"].clone()
}

fn finish(node: &Node, namespace: &str, name: &str) {
    let name = format!("twf/{name}");
    node.kubectl(&["-n", namespace, "wait", "--for=condition=Finished", &name, "--timeout=120s"]);
}

/// Returns the latest attempt of each job.
fn attempts(node: &Node, namespace: &str, workflow: &str) -> BTreeMap<String, i64> {
    let jobs = node.items(&format!("get jobs {workflow} -n {namespace}"));
    jobs.iter().map(|job| (job["name"].as_str().unwrap().to_owned(), job["attempt"].as_i64().unwrap())).collect()
}

#[test]
fn kubectl_alone_runs_a_workflow_to_its_end() {
    let node = &Node::alone();
    namespace(node, "by-kubectl");
    let kubectl = |words: &[&str]| node.kubectl(&[&["-n", "by-kubectl"], words].concat());
    // The same file also runs without a cluster.
    let here = TestEnv::new();
    here.call("apply -f").arg(diamond()).run().exits(0);
    kubectl(&["apply", "-f", &diamond()]);
    finish(node, "by-kubectl", "diamond");
    let jobs = attempts(node, "by-kubectl", "diamond");
    assert_eq!(jobs.keys().collect::<Vec<_>>(), here.states("diamond").keys().collect::<Vec<_>>());

    let table = kubectl(&["get", "twf"]);
    for word in ["NAME", "STATUS", "PROGRESS", "RUNNING", "FAILED", "ALLOCS", "AGE", "Completed", "4/4"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let about = kubectl(&["describe", "twf", "diamond"]);
    for word in ["PlanAccepted", "4 jobs completed", "Observed Generation"] {
        assert!(about.contains(word), "{word}: {about}");
    }
    assert!(kubectl(&["explain", "twf.spec.jobs.command"]).contains("DESCRIPTION"));

    // An edit reruns the changed jobs and their dependents.
    let patch = r#"[{"op": "replace", "path": "/spec/jobs/2/command", "value": "echo other"}]"#;
    kubectl(&["patch", "twf", "diamond", "--type=json", "-p", patch]);
    finish(node, "by-kubectl", "diamond");
    let again = attempts(node, "by-kubectl", "diamond");
    let ran: Vec<&str> = again.iter().filter(|(_, attempt)| **attempt == 2).map(|(name, _)| name.as_str()).collect();
    assert_eq!(ran, ["join", "work-right"]);

    kubectl(&["scale", "twf/diamond", "--replicas=8"]);
    assert_eq!(node.object(&["-n", "by-kubectl", "twf", "diamond"])["spec"]["maxAllocations"], 8);
    kubectl(&["delete", "twf", "diamond", "--wait", "--timeout=60s"]);
}

#[test]
fn a_suspended_workflow_waits() {
    let node = &Node::alone();
    namespace(node, "held");
    let file = noting(node, "held", 2, 0);
    let text = fs::read_to_string(&file).unwrap().replace("spec:\n", "spec:\n  suspend: true\n");
    fs::write(&file, text).unwrap();
    node.kubectl(&["-n", "held", "apply", "-f", &file]);
    node.kubectl(&["-n", "held", "wait", "--for=condition=Suspended", "twf/held", "--timeout=60s"]);
    assert_eq!(noted(node, "held"), Vec::<String>::new());
    node.kubectl(&["-n", "held", "patch", "twf", "held", "--type=merge", "-p", r#"{"spec": {"suspend": false}}"#]);
    finish(node, "held", "held");
    assert_eq!(noted(node, "held"), ["1", "2"]);
}

#[test]
fn torc_uses_a_cluster_only_if_it_is_named() {
    let node = &Node::alone();
    namespace(node, "by-torc");
    // An existing kubeconfig alone selects no cluster.
    let lone = node.attempt("torc", &["get", "workflows"]);
    assert!(String::from_utf8_lossy(&lone.stderr).contains("no store found"), "{lone:?}");
    let there = |line: &str| node.torc(&format!("{line} -n by-torc"));
    assert!(there(&format!("apply -f {} --dry-run", diamond())).contains("workflow/diamond created (dry run)"));
    assert!(there(&format!("apply -f {}", diamond())).contains("workflow/diamond created"));
    assert!(there(&format!("apply -f {} --wait", diamond())).contains("workflow/diamond unchanged"));
    assert!(there("get workflows").contains("4/4"));
    assert!(there("wait diamond").contains("workflow/diamond condition met"));
    assert!(there("describe workflow diamond").contains("Succeeded"));
    assert_eq!(there("logs join -w diamond"), "joining both halves\n");
    assert!(there("explain job/join -w diamond").contains("it has succeeded"));
    assert_eq!(node.items("get results diamond -n by-torc").len(), 4);
    assert!(node.plugin("get twf -n by-torc").contains("diamond"));
    assert!(node.plugin("get jobs diamond -n by-torc").contains("work-left"));
    let managers =
        node.object(&["-n", "by-torc", "twf", "diamond", "--show-managed-fields"])["metadata"]["managedFields"].clone();
    let managers: BTreeSet<&str> =
        managers.as_array().unwrap().iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert_eq!(managers, BTreeSet::from(["torc-cli", "torc-controller"]));

    // Fields of another field manager are not overwritten silently.
    node.kubectl(&["-n", "by-torc", "apply", "--server-side", "--force-conflicts", "-f", &diamond()]);
    let changed = fs::read_to_string(diamond()).unwrap().replace("left half", "half");
    node.write("changed.yaml", &changed);
    let file = node.text_path("changed.yaml");
    let (code, difference) = node.try_torc(&format!("diff -n by-torc -f {file}"));
    assert!(code == Some(9) && difference.contains("+  - command: echo \"half\""), "{difference}");
    let (code, printed) = node.try_torc(&format!("apply -n by-torc -f {file}"));
    assert!(code == Some(7) && printed.contains("kubectl") && printed.contains("--force-conflicts"), "{printed}");
    there(&format!("apply -f {file} --force-conflicts --wait"));
    assert_eq!(attempts(node, "by-torc", "diamond")["work-left"], 2);
    assert!(there("retry diamond --all").contains("run 2"));
    there("wait diamond");
    assert_eq!(status(node, "by-torc", "diamond")["runId"], 2);
    let (code, printed) = node.try_torc("run diamond");
    assert!(code == Some(2) && printed.contains("runs on this machine"), "{printed}");
    assert!(there("delete diamond").contains("workflow/diamond deleted"));
    there("wait diamond --for delete --timeout 60s");
}

#[test]
fn users_see_only_workflows_of_their_namespaces() {
    let node = &Node::alone();
    for (user, place) in [("ada", "adas"), ("bob", "bobs")] {
        namespace(node, place);
        let (code, printed) = node.torc_as(user, &format!("get workflows -n {place}"));
        assert!(code == Some(7) && printed.contains("cannot list resource"), "{printed}");
        node.kubectl(&["create", "rolebinding", user, "--clusterrole=edit", &format!("--user={user}"), "-n", place]);
        let apply = format!("apply -n {place} --wait -f {}", diamond());
        node.until("the users may apply", || (node.torc_as(user, &apply).0 == Some(0)).then_some(()));
        // Access to the server needs a separate role.
        let (code, printed) = node.torc_as(user, &format!("get jobs diamond -n {place}"));
        assert!(code == Some(7) && printed.contains("Role RELEASE-client"), "{printed}");
        node.kubectl(&[
            "create",
            "rolebinding",
            user,
            "--role=torc-client",
            &format!("--user={user}"),
            "-n",
            NAMESPACE,
        ]);
        let account = format!("create serviceaccount torc-editor -n {place}");
        node.until("the missing account is reported", || {
            let (code, printed) = node.torc_as(user, &format!("get jobs diamond -n {place}"));
            (code == Some(7) && printed.contains("create serviceaccount torc-viewer")).then_some(())
        });
        node.kubectl(&account.split_whitespace().collect::<Vec<_>>());
        node.until("the users may read", || {
            (node.torc_as(user, &format!("get jobs diamond -n {place}")).0 == Some(0)).then_some(())
        });
        let (_, printed) = node.torc_as(user, &format!("logs join -w diamond -n {place}"));
        assert_eq!(printed, "joining both halves\n");
    }
    let number = |place: &str| node.items(&format!("get results diamond -n {place}")).len();
    assert_eq!((number("adas"), number("bobs")), (4, 4), "an administrator sees both");

    // Ada sees no workflow of Bob, neither by its namespace nor by its number from her namespace.
    let theirs: Value = serde_json::from_str(&node.torc("describe workflow diamond -n bobs -o json")).unwrap();
    let id = theirs["id"].as_i64().unwrap();
    for line in [
        "get jobs diamond -n bobs".to_owned(),
        "get results diamond -n bobs".to_owned(),
        "logs join -w diamond -n bobs".to_owned(),
        "describe workflow diamond -n bobs".to_owned(),
        format!("get jobs {id} -n adas"),
        format!("get results {id} -n adas"),
        format!("logs join -w {id} -n adas"),
        format!("get events {id} -n adas"),
        "get audit -n adas".to_owned(),
        "backup /var/lib/torc/stolen.db -n adas".to_owned(),
        "token create --scope admin -n adas".to_owned(),
    ] {
        let (code, printed) = node.torc_as("ada", &line);
        assert_eq!(code, Some(7), "{line}: {printed}");
    }
    let (code, events) = node.torc_as("ada", "get events -n adas -o json");
    assert!(code == Some(0) && !events.contains(&format!("\"workflowId\": {id},")), "{events}");

    // A viewer changes nothing, not even through the server.
    node.kubectl(&["create", "rolebinding", "eve", "--clusterrole=view", "--user=eve", "-n", "adas"]);
    node.kubectl(&["create", "rolebinding", "eve", "--role=torc-client", "--user=eve", "-n", NAMESPACE]);
    node.kubectl(&["create", "serviceaccount", "torc-viewer", "-n", "adas"]);
    node.until("Eve may read", || (node.torc_as("eve", "get jobs diamond -n adas").0 == Some(0)).then_some(()));
    assert_eq!(node.torc_as("eve", "logs join -w diamond -n adas").1, "joining both halves\n");
    for line in ["retry diamond --all -n adas", "retry diamond --job join -n adas", "delete diamond -n adas"] {
        let (code, printed) = node.torc_as("eve", line);
        assert_eq!(code, Some(7), "{line}: {printed}");
    }
}

#[test]
fn logs_come_from_the_pods_disk_while_it_exists() {
    let node = &Node::alone();
    namespace(node, "logged");
    let file = noting(node, "logged", 1, 0);
    let text = fs::read_to_string(&file).unwrap();
    let command = "for i in 1 2 3; do echo line $i; done; until [ -e /shared/go-on ]; do sleep 0.2; done; echo end";
    fs::write(&file, text.replace("echo {i} >> /shared/logged; sleep 0", command)).unwrap();
    node.kubectl(&["-n", "logged", "apply", "-f", &file]);
    node.until("the log has three lines", || {
        (node.try_torc("logs j1 -w logged -n logged") == (Some(0), "line 1\nline 2\nline 3\n".to_owned())).then_some(())
    });
    assert_eq!(node.torc("logs j1 -w logged -n logged --tail 1"), "line 3\n");
    std::thread::scope(|scope| {
        let followed = scope.spawn(|| node.torc("logs j1 -w logged -n logged --follow"));
        fs::write(node.path("shared").join("go-on"), "").unwrap();
        assert_eq!(followed.join().unwrap(), "line 1\nline 2\nline 3\nend\n");
    });
    finish(node, "logged", "logged");
    node.kubectl(&["-n", NAMESPACE, "delete", "pod", "-l", "torc.dev/pool=cpu", "--wait", "--timeout=60s"]);
    node.until("the message says that the Pod is gone", || {
        let (code, printed) = node.try_torc("logs j1 -w logged -n logged");
        (code == Some(5) && printed.contains("was deleted together with the logs") && printed.contains("/torc/output"))
            .then_some(())
    });
}

#[test]
fn a_pool_scales_with_the_work() {
    let node = &Node::alone();
    namespace(node, "burst");
    let file = noting(node, "burst", 3, 1);
    let text = fs::read_to_string(&file).unwrap().replace("    command:", "    labels: [burst]\n    command:");
    fs::write(&file, text).unwrap();
    node.kubectl(&["-n", NAMESPACE, "scale", "deployment/torc-burst", "--replicas=0"]);
    // A runner that shuts down could lease a job and release it.
    node.until("no runner is left", || {
        let pods = node.object(&["-n", NAMESPACE, "pods", "-l", "torc.dev/pool=burst"]);
        pods["items"].as_array().is_some_and(Vec::is_empty).then_some(())
    });
    node.kubectl(&["-n", "burst", "apply", "-f", &file]);
    finish(node, "burst", "burst");
    assert_eq!(noted(node, "burst"), ["1", "2", "3"]);
}

/// Scales the pool with the label `pair` and waits until it has that many Pods.
fn scale_pair(node: &Node, replicas: usize) {
    node.kubectl(&["-n", NAMESPACE, "scale", "deployment/torc-pair", &format!("--replicas={replicas}")]);
    node.until("the pool has its size", || {
        let pods = node.object(&["-n", NAMESPACE, "pods", "-l", "torc.dev/pool=pair"]);
        (pods["items"].as_array()?.len() == replicas).then_some(())
    });
}

// P01, P06. Both runners learn durations in the first workflow and lease ahead in the second.
#[test]
fn two_idle_pods_share_eight_jobs() {
    let node = &Node::alone();
    namespace(node, "pair");
    scale_pair(node, 2);
    let runners: BTreeSet<i64> = node.until("both runners are active", || {
        let is_of_pool = |runner: &Value| runner["host"].as_str().is_some_and(|host| host.starts_with("torc-pair-"));
        let mut runners = node.items("get runners");
        runners.retain(|runner| is_of_pool(runner) && runner["status"] == "active");
        (runners.len() == 2).then(|| runners.iter().map(|runner| runner["id"].as_i64().unwrap()).collect())
    });
    for name in ["first", "second"] {
        let file = format!("{name}.yaml");
        node.write(&file, &rendezvous(name, 8, "/shared"));
        node.kubectl(&["-n", "pair", "apply", "-f", &node.text_path(&file)]);
        finish(node, "pair", name);
        assert_eq!(status(node, "pair", name)["jobs"]["completed"], 8, "the jobs of {name} ran at the same time");
        let shares = results_by_runner(&node.items(&format!("get results {name} -n pair")));
        assert_eq!(shares, runners.iter().map(|runner| (*runner, 4)).collect(), "{name}");
    }
    scale_pair(node, 0);
}

#[test]
fn a_removed_server_loses_no_result() {
    let node = &Node::alone();
    namespace(node, "taken");
    let file = noting(node, "taken", 8, 2);
    node.kubectl(&["-n", "taken", "apply", "-f", &file]);
    node.until("a job runs", || (!noted(node, "taken").is_empty()).then_some(()));
    node.kubectl(&[
        "-n",
        NAMESPACE,
        "delete",
        "pod",
        "-l",
        "app.kubernetes.io/component=server",
        "--grace-period=0",
        "--force",
    ]);
    finish(node, "taken", "taken");
    assert_eq!(noted(node, "taken"), ["1", "2", "3", "4", "5", "6", "7", "8"], "each once");
    assert!(attempts(node, "taken", "taken").values().all(|attempt| *attempt == 1));
    assert_eq!(status(node, "taken", "taken")["jobs"]["completed"], 8);
}

#[test]
fn a_runner_uses_its_pods_limits_and_releases_unfinished_jobs() {
    let node = &Node::alone();
    namespace(node, "drained");
    // Other tests leave runners and Pods of the other pool behind.
    let runner = node.until("the runner of the pool is active", || {
        let is_of_pool = |runner: &Value| runner["host"].as_str().is_some_and(|host| host.starts_with("torc-cpu-"));
        let runners = node.items("get runners");
        runners.into_iter().find(|runner| is_of_pool(runner) && runner["status"] == "active")
    });
    assert_eq!(
        (&runner["capacity"]["cpus"], &runner["capacity"]["memoryBytes"]),
        (&2.into(), &(512 << 20).into()),
        "{runner}"
    );
    let file = noting(node, "drained", 1, 20);
    let text = fs::read_to_string(&file).unwrap();
    // The second attempt is short, to save time.
    let text = text.replace("sleep 20", "[ $TORC_ATTEMPT_ID -gt 1 ] || sleep 300");
    fs::write(&file, text).unwrap();
    node.kubectl(&["-n", "drained", "apply", "-f", &file]);
    node.until("the job runs", || (noted(node, "drained").len() == 1).then_some(()));
    node.kubectl(&["-n", NAMESPACE, "delete", "pod", "-l", "torc.dev/pool=cpu", "--wait", "--timeout=60s"]);
    finish(node, "drained", "drained");
    assert_eq!(noted(node, "drained"), ["1", "1"], "once in each Pod");
    assert_eq!(attempts(node, "drained", "drained")["j1"], 2);
    assert_eq!(status(node, "drained", "drained")["jobs"]["completed"], 1);
}

#[test]
fn the_servers_roles_are_those_of_the_reference() {
    let node = &Node::alone();
    let account = format!("system:serviceaccount:{NAMESPACE}:torc");
    let rights = |namespace: &str| -> BTreeSet<String> {
        let listed = node.kubectl(&["auth", "can-i", "--list", "--as", &account, "-n", namespace]);
        let rows = listed.lines().skip(1).filter(|row| !row.trim_start().starts_with('['));
        // Every account may review its own access.
        let own = rows.filter(|row| !row.starts_with("self"));
        own.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let everywhere = [
        "workflows.torc.dev [] [] [get list watch patch delete]",
        "workflows.torc.dev/status [] [] [get patch]",
        "slurmclusters.torc.dev [] [] [get list watch]",
        "slurmclusters.torc.dev/status [] [] [get patch]",
        "events.events.k8s.io [] [] [create patch]",
        "configmaps [] [] [get]",
        "tokenreviews.authentication.k8s.io [] [] [create]",
    ];
    let everywhere: BTreeSet<String> = everywhere.iter().map(|row| (*row).to_owned()).collect();
    assert_eq!(rights("default"), everywhere);
    let mut at_home = everywhere;
    at_home.insert("leases.coordination.k8s.io [] [] [create]".to_owned());
    at_home.insert("deployments.apps/scale [] [torc-burst] [get patch]".to_owned());
    at_home.insert("leases.coordination.k8s.io [] [torc] [get update patch]".to_owned());
    assert_eq!(rights(NAMESPACE), at_home);
    for account in ["torc-runner", "torc-admin"] {
        let account = format!("system:serviceaccount:{NAMESPACE}:{account}");
        for right in [["get", "secrets"], ["list", "workflows.torc.dev"], ["create", "pods"]] {
            let words = [&["auth", "can-i"], right.as_slice(), &["--as", &account, "-n", NAMESPACE]].concat();
            assert_eq!(String::from_utf8_lossy(&node.attempt("kubectl", &words).stdout).trim(), "no", "{words:?}");
        }
    }
    // Viewers of a namespace may view its workflows, editors may edit them.
    node.kubectl(&["create", "rolebinding", "eve", "--clusterrole=view", "--user=eve", "-n", "default"]);
    node.kubectl(&["create", "rolebinding", "ada", "--clusterrole=edit", "--user=ada", "-n", "default"]);
    node.until("the roles are aggregated", || {
        let can = |user: &str, verb: &str| {
            let words = ["auth", "can-i", verb, "workflows.torc.dev", "--as", user, "-n", "default"];
            node.attempt("kubectl", &words).status.success()
        };
        (can("eve", "list") && can("ada", "create") && !can("eve", "create")).then_some(())
    });
}

#[test]
fn a_reinstalled_release_has_its_results() {
    let node = &Node::alone();
    namespace(node, "kept");
    let file = noting(node, "kept", 3, 0);
    node.kubectl(&["-n", "kept", "apply", "-f", &file]);
    finish(node, "kept", "kept");
    let results = || node.items("get results kept -n kept").len();
    let secret = |name: &str| node.object(&["-n", NAMESPACE, "secret", name])["data"].clone();
    let (token, certificate) = (secret("torc-token"), secret("torc-tls"));
    let values = node.text_path("values.json");
    let pods = || {
        let pods = node.object(&["-n", NAMESPACE, "pods"]);
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
        let names = pods["items"].as_array().unwrap().iter().map(name);
        // One pool is scaled by its work, independently of the upgrade.
        names.filter(|name| !name.starts_with("torc-burst")).collect::<BTreeSet<_>>()
    };
    let before = pods();
    let upgrade = |more: &[&str]| {
        let words = ["upgrade", "torc", "charts/torc", "-n", NAMESPACE, "-f", &values, "--wait", "--timeout", "2m"];
        node.helm(&[&words, more].concat());
    };
    upgrade(&[]);
    assert_eq!(pods(), before, "no Pod restarts without a change");
    upgrade(&["--set", "server.logLevel=debug"]);
    assert_eq!((secret("torc-token"), secret("torc-tls")), (token, certificate), "they are kept");
    assert_eq!(results(), 3);
    node.helm(&["rollback", "torc", "1", "-n", NAMESPACE, "--wait", "--timeout", "2m"]);
    assert_eq!(results(), 3);
    let tested = node.helm(&["test", "torc", "-n", NAMESPACE, "--timeout", "2m"]);
    assert!(tested.contains("Succeeded"), "{tested}");

    node.helm(&["uninstall", "torc", "-n", NAMESPACE, "--wait", "--timeout", "2m"]);
    assert_eq!(node.object(&["-n", NAMESPACE, "pvc", "torc"])["status"]["phase"], "Bound", "the store stays");
    // Helm does not wait for Pods. A server that still stops could clean up after the object.
    let server = ["-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/component=server"];
    node.until("the server's Pod is gone", || node.object(&server)["items"].as_array()?.is_empty().then_some(()));
    // Without a server, the finalizer stays.
    node.kubectl(&["-n", "kept", "delete", "twf", "kept", "--wait=false"]);
    assert!(!node.object(&["-n", "kept", "twf", "kept"])["metadata"]["deletionTimestamp"].is_null());
    assert!(node.torc("admin release-finalizers -n kept --dry-run").contains("would be released"));
    assert!(node.torc("admin release-finalizers -A").contains("workflow/kept in kept released"));
    node.kubectl(&["-n", "kept", "wait", "--for=delete", "twf/kept", "--timeout=30s"]);

    node.install();
    node.until("the store's results are there again", || {
        let (code, printed) = node.try_torc("get results kept -n kept -o json");
        (code == Some(0) && printed.contains("j3")).then_some(())
    });
}
