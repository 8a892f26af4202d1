//! The same rules with and without a cluster: `torc validate` and a real API server accept and refuse the same files of
//! `tests/conformance`, with the same message where the rule is one of Torc.
//!
//! `accepted` and `refused` have a file for each rule. Files of `planned` break rules that only the planner knows: an API server
//! accepts them, and the condition `Accepted` has the message of `torc validate`. Other differences are in
//! EXCEPTIONS below and in docs/reference/standalone-and-cluster.md.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use torc_tests::conformance::Case;
use torc_tests::env::{Outcome, TestEnv, project_root, until};
use torc_tests::labs::kube::{Controller, KubeLab};

/// Documents that only one of the two accepts: whether standalone Torc and the API server do, and the reason.
const EXCEPTIONS: [(&str, &str, bool, bool, &str); 3] = [
    (
        "yaml-1.1",
        "jobs: [{name: yes, command: echo}]",
        true,
        false,
        "kubectl reads YAML 1.1, in which `yes` is a boolean; `torc validate` warns",
    ),
    (
        "parameters-file",
        "jobs: [{name: 'a{i}', command: echo, parametersFile: there-is-no.csv}]",
        false,
        true,
        "an API server sees no files; the controller looks for a source of that name",
    ),
    (
        "parameter-value",
        "jobs: [{name: 'a{i}', command: echo, parameters: {i: '@there-is-no.txt'}}]",
        false,
        true,
        "an API server sees no files",
    ),
];

/// A Kubernetes, used through `kubectl` and `torc`.
#[derive(Clone)]
struct Cluster(KubeLab);

/// Returns the Kubernetes of this suite, with the definitions of the binary under test.
fn cluster() -> Cluster {
    Cluster(KubeLab::shared("conformance"))
}

impl Cluster {
    fn kubectl(&self, line: &str) -> Outcome {
        self.kubectl_with(line, "")
    }

    fn kubectl_with(&self, line: &str, input: &str) -> Outcome {
        let words: Vec<&str> = line.split_whitespace().collect();
        let printed = self.0.attempt_with(&words, input.as_bytes());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Outcome { code: printed.status.code(), stdout: text(&printed.stdout), stderr: text(&printed.stderr) }
    }

    fn json(&self, line: &str) -> Value {
        self.kubectl(&format!("{line} -o json")).exits(0).json()
    }

    fn torc(&self, line: &str) -> Outcome {
        TestEnv::new().call(line).env("KUBECONFIG", self.0.administrator()).run()
    }
}

/// Returns the outcomes of `torc validate` and of a server-side dry run.
fn outcomes(kube: &Cluster, path: &Path) -> (Outcome, Outcome) {
    let ours = TestEnv::new().call("validate -f").arg(path).run();
    (ours, kube.kubectl(&format!("apply --dry-run=server -f {}", path.display())))
}

/// Checks the cases in several threads, because kubectl takes long to start.
fn each(cases: &[Case], look: impl Fn(&Case) + Sync) {
    std::thread::scope(|scope| {
        for part in cases.chunks(cases.len().div_ceil(4)) {
            scope.spawn(|| part.iter().for_each(&look));
        }
    });
}

#[test]
fn accepted_documents_are_accepted_by_the_api_server() {
    let kube = cluster();
    each(&Case::all("accepted"), |case| {
        let (ours, theirs) = outcomes(&kube, &case.path);
        ours.exits(0).prints("is valid");
        theirs.exits(0).prints("(server dry run)");
    });
}

#[test]
fn refused_documents_get_the_same_message_from_the_api_server() {
    let kube = cluster();
    each(&Case::all("refused"), |case| {
        let (ours, theirs) = outcomes(&kube, &case.path);
        ours.exits(4).prints(case.message("torc")).prints(case.field());
        let theirs = theirs.exits(1).prints(case.message("kubectl"));
        // Messages about the whole document contain the field.
        if case.field() != "apiVersion" {
            theirs.prints(case.field());
        }
    });
}

#[test]
fn the_api_server_accepts_documents_with_planning_errors() {
    let kube = cluster();
    each(&Case::all("planned"), |case| {
        let (ours, theirs) = outcomes(&kube, &case.path);
        ours.exits(4).prints(case.message("torc")).prints(case.field());
        theirs.exits(0);
    });
}

/// The controller reports planning errors with the message of `torc validate`.
#[test]
fn the_controller_reports_planning_errors_like_validate() {
    let here = TestEnv::new();
    let namespace = KubeLab::shared("conformance").namespace("planned");
    let _controller = Controller::start(&here, &namespace);
    let cases = Case::all("planned");
    let all = project_root().join("tests/conformance/planned");
    namespace.kubectl(&format!("apply -f {}", all.display()));
    for case in &cases {
        let name = case.name();
        until(
            || namespace.condition(&name, "Accepted").starts_with("False/"),
            || format!("{name}: {:#}", namespace.status(&name)),
        );
        let printed = namespace.message(&name, "Accepted");
        assert!(printed.contains(case.message("torc")) && printed.contains(case.field()), "{name}: {printed}");
        assert_eq!(namespace.condition(&name, "Succeeded"), "False/InvalidSpec", "{name}");
    }
    namespace.kubectl("delete twf --all --timeout=60s");
}

#[test]
fn the_exceptions_are_those_that_the_book_lists() {
    let kube = cluster();
    let env = TestEnv::new();
    let page = fs::read_to_string(project_root().join("docs/reference/standalone-and-cluster.md")).unwrap();
    for (name, spec, here, there, why) in EXCEPTIONS {
        let text =
            format!("apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: {name}}}\nspec:\n  {spec}\n");
        env.write("w.yaml", &text);
        let (ours, theirs) = outcomes(&kube, &env.path("w.yaml"));
        assert_eq!((ours.code == Some(0), theirs.code == Some(0)), (here, there), "{name}\n{ours:?}\n{theirs:?}");
        assert!(page.contains(why), "the page does not say: {why}");
    }
}

/// The API server accepts every example of the book with an envelope.
#[test]
fn the_examples_are_accepted() {
    let kube = cluster();
    let mut seen = 0;
    for entry in fs::read_dir(project_root().join("docs/examples")).unwrap() {
        let path = entry.unwrap().path();
        if fs::read_to_string(&path).unwrap().contains("apiVersion: torc.dev/v1alpha1") {
            let (ours, theirs) = outcomes(&kube, &path);
            ours.exits(0);
            theirs.exits(0);
            seen += 1;
        }
    }
    assert!(seen > 3, "{seen} examples have an envelope");
}

/// Returns a pseudo-random specification. The same seed gives the same document.
fn random_spec(mut seed: u64) -> Value {
    let mut next = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut pick = |choices: &[Value]| choices[usize::try_from(next(choices.len() as u64)).unwrap()].clone();
    let absent = Value::Null;
    json!({
        "jobs": [{
            "name": pick(&[json!("a"), json!("é b"), json!(""), json!(1)]),
            "command": pick(&[json!("echo"), json!("echo"), json!("")]),
            "priority": pick(&[absent.clone(), json!(0), json!(-1), json!(1_000_000_001)]),
            "labels": pick(&[absent.clone(), json!([]), json!(["x"])]),
            "tasksPerNode": pick(&[absent.clone(), json!(1), json!(0), json!("2")]),
            "stdio": pick(&[absent.clone(), json!({"mode": "none"}), json!({"mode": "nothing"})]),
        }],
        "runId": pick(&[absent.clone(), json!(1), json!(0), json!(2.0), json!(1.5)]),
        "stopPolicy": pick(&[absent.clone(), json!("Drain"), json!("drain")]),
        "executionConfig": pick(&[
            absent.clone(),
            json!({"mode": "direct", "srunMpi": "pmix"}),
            json!({"mode": "slurm", "srunMpi": "pmix"}),
            json!({"terminationSignal": "SIGINT"}),
            json!({"terminationSignal": "9"}),
        ]),
        "resourceRequirements": pick(&[
            absent.clone(),
            json!([{"name": "r", "numCpus": 1, "memory": "1g", "runtime": "P1DT2H"}]),
            json!([{"name": "r", "numCpus": 1, "memory": "1 GiB", "runtime": "PT"}]),
            json!([{"name": "r", "numCpus": 0, "memory": "1g"}]),
        ]),
    })
}

#[test]
fn random_documents_are_accepted_or_refused_by_both() {
    let kube = cluster();
    let env = TestEnv::new();
    for seed in 0..40 {
        let name = format!("random-{seed}");
        env.write(
            &format!("{name}.json"),
            json!({"apiVersion": "torc.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": random_spec(seed)})
                .to_string(),
        );
    }
    let cases: Vec<Case> = (0..40).map(|seed| Case::read(env.path(&format!("random-{seed}.json")))).collect();
    let counts = [std::sync::atomic::AtomicU32::new(0), std::sync::atomic::AtomicU32::new(0)];
    each(&cases, |case| {
        let (ours, theirs) = outcomes(&kube, &case.path);
        let accepted = ours.code == Some(0);
        assert_eq!(accepted, theirs.code == Some(0), "{}\n{}\n{}", case.text, ours.stderr, theirs.stderr);
        counts[usize::from(accepted)].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(counts.iter().all(|count| count.load(std::sync::atomic::Ordering::Relaxed) > 0), "{counts:?}");
}

fn document(name: &str, spec: &str) -> String {
    let jobs = "  jobs: [{name: a, command: echo}]";
    format!("apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: {name}}}\nspec:\n{jobs}\n{spec}\n")
}

/// The API server and a local store refuse changes of immutable fields with the same message.
#[test]
fn immutable_fields_are_refused_with_the_same_message() {
    let kube = cluster();
    let cases = [
        ("run", "  runId: 2", "  runId: 1", "must not decrease", "  runId: 3"),
        ("gone", "  runId: 2", "", "must not decrease", "  runId: 2"),
        (
            "stopped",
            "  stopPolicy: Cancel",
            "  stopPolicy: None",
            "a canceled workflow continues only with a higher `runId`",
            "  runId: 2",
        ),
        (
            "managed",
            "  managedBy: example.org/x",
            "  managedBy: example.org/y",
            "must not change",
            "  managedBy: example.org/x",
        ),
    ];
    let env = TestEnv::new();
    for (name, first, refused, words, accepted) in cases {
        kube.kubectl_with("apply -f -", &document(name, first)).exits(0);
        kube.kubectl_with("apply -f -", &document(name, refused)).exits(1).prints(words);
        kube.kubectl_with("apply -f -", &document(name, accepted)).exits(0);
        let apply = |spec: &str| env.call("apply --no-run -f -").stdin(document(name, spec)).run();
        apply(first).exits(0);
        apply(refused).exits(4).prints(words);
        env.call("apply --dry-run -f -").stdin(document(name, refused)).run().exits(4).prints(words);
        apply(accepted).exits(0);
    }
}

#[test]
fn a_stored_object_is_complete_and_can_be_scaled() {
    let kube = cluster();
    kube.kubectl_with("apply -f -", &document("whole", "  project: tide")).exits(0);
    let spec = kube.json("get twf whole")["spec"].clone();
    let filled = ["suspend", "runId", "rerunPolicy", "maxAllocations"].map(|field| spec[field].clone());
    assert_eq!(filled, [json!(false), json!(1), json!("Incomplete"), json!(4)]);
    let scale =
        kube.kubectl("get --raw /apis/torc.dev/v1alpha1/namespaces/default/workflows/whole/scale").exits(0).json();
    assert_eq!(scale["spec"]["replicas"], 4);
    kube.kubectl("scale twf/whole --replicas=8").exits(0);
    assert_eq!(kube.json("get wf whole")["spec"]["maxAllocations"], 8);
    let chosen = kube.json("get workflows --field-selector spec.project=tide");
    assert_eq!(chosen["items"].as_array().unwrap().len(), 1);
    assert_eq!(kube.json("get workflows --field-selector spec.project=solar")["items"], json!([]));
}

#[test]
fn kubectl_shows_columns_and_explains_fields() {
    let kube = cluster();
    kube.kubectl_with("apply -f -", &document("shown", "  project: wind\n  slurmCluster: hpc")).exits(0);
    let status = json!({"status": {
        "progress": "3/9", "runId": 2, "jobs": {"total": 9, "running": 5, "failed": 1, "ready": 6, "blocked": 7},
        "allocations": {"active": 4},
        "conditions": [{"type": "Succeeded", "status": "Unknown", "reason": "Running", "message": "five-of-nine",
                        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}],
    }});
    kube.kubectl(&format!("patch twf shown --subresource=status --type=merge -p {status}")).exits(0);
    let words = |line: &str| -> Vec<Vec<String>> {
        let shown = kube.kubectl(line).exits(0).stdout;
        shown.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let rows = words("get twf shown");
    assert_eq!(rows[0], ["NAME", "STATUS", "PROGRESS", "RUNNING", "FAILED", "ALLOCS", "AGE"]);
    assert_eq!(rows[1][..6], ["shown", "Running", "3/9", "5", "1", "4"]);
    let rows = words("get twf shown -o wide");
    assert_eq!(rows[0][7..], ["PROJECT", "CLUSTER", "RUN", "READY", "BLOCKED", "MESSAGE"]);
    assert_eq!(rows[1][7..], ["wind", "hpc", "2", "6", "7", "five-of-nine"]);
    assert!(kube.kubectl("get torc").exits(0).stdout.contains("workflow.torc.dev/shown"), "the category");
    kube.kubectl("explain twf.spec.jobs.parameters").exits(0).prints("Values of each parameter");
    kube.kubectl("explain slc.spec.commandPrefix").exits(0).prints("Words before every Slurm command");
    kube.kubectl("explain twf").exits(0).prints("A workflow of shell commands");
}

/// The API server estimates the cost of the rules for a definition, and measures it for an object. Both need a margin: with a
/// higher estimate, the next version of Kubernetes would refuse the definitions.
#[test]
fn the_cost_of_the_rules_is_below_the_api_servers_limit() {
    let kube = cluster();
    let mut definition = kube.json("get crd workflows.torc.dev");
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    // The largest lists may grow by a fifth, the others to twice their size.
    for (list, limit, more) in [("resourceRequirements", 4_000, 4_800), ("slurmSchedulers", 1_000, 2_000)] {
        let most = definition.pointer_mut(&format!("{spec}/{list}/maxItems")).unwrap();
        assert_eq!(*most, json!(limit), "{list}");
        *most = json!(more);
    }
    kube.kubectl_with("replace --dry-run=server -f -", &definition.to_string()).exits(0);
    // The largest allowed lists, with the longest texts.
    let digits = |most: usize, unit: &str| format!("{}{unit}", "0".repeat(most - unit.len()));
    let one = |i: usize| json!({"name": format!("r{i}"), "numCpus": 1, "memory": digits(64, "1g"), "runtime": digits(64, "1h")});
    let document = json!({
        "apiVersion": "torc.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "costly"},
        "spec": {"jobs": [{"name": "a", "command": "echo"}], "resourceRequirements": (0..4_000).map(one).collect::<Vec<_>>()},
    });
    kube.kubectl_with("apply --server-side --dry-run=server -f -", &document.to_string()).exits(0);
}

/// Needs a separate cluster: it has no definitions at first, then older ones, then the current ones. Objects stay.
#[test]
fn definitions_are_installed_compared_and_upgraded() {
    let kube = Cluster(KubeLab::empty());
    kube.torc("crd check")
        .exits(5)
        .prints("customresourcedefinition/workflows.torc.dev is missing")
        .prints("torc crd install");
    kube.torc("crd install --context lab").exits(0).prints("customresourcedefinition/slurmclusters.torc.dev created");
    kube.torc("crd install").exits(0).prints("customresourcedefinition/workflows.torc.dev unchanged");
    kube.torc("crd check --context lab").exits(0).prints("customresourcedefinition/workflows.torc.dev is up to date");
    kube.torc("crd check --context nowhere").exits(5).prints("no usable context 'nowhere'");
    let checked = kube.torc("crd check -o json").exits(0).json();
    assert_eq!(checked["items"][1], json!({"name": "workflows.torc.dev", "status": "Current"}));

    // An older definition without one field and one rule, with another field manager.
    kube.kubectl_with("apply -f -", &document("kept", "  runId: 3")).exits(0);
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let patch = json!([
        {"op": "remove", "path": format!("{schema}/properties/project")},
        {"op": "remove", "path": "/spec/versions/0/selectableFields/0"},
        {"op": "remove", "path": format!("{schema}/x-kubernetes-validations")},
    ]);
    kube.kubectl(&format!("patch crd workflows.torc.dev --type=json -p {patch}")).exits(0);
    // An older definition refuses an unknown field instead of dropping it.
    let here = TestEnv::new();
    here.write("w.yaml", document("newer", "  project: tide"));
    let refused = here.call("apply -f w.yaml --context lab").env("KUBECONFIG", kube.0.administrator());
    let refused = refused.run().exits(4).prints(".spec.project: field not declared in schema");
    refused.prints("the definitions are older than this program: update them with `torc crd install`");
    kube.torc("crd check").exits(9).prints("customresourcedefinition/workflows.torc.dev is older than this program");
    kube.torc("crd install --force-conflicts")
        .exits(0)
        .prints("customresourcedefinition/workflows.torc.dev configured");
    kube.torc("crd check").exits(0);
    assert_eq!(kube.json("get twf kept")["spec"]["runId"], 3);
    // The API server serves an accepted definition after a moment.
    until(
        || kube.kubectl_with("apply -f -", &document("kept", "  runId: 2")).stderr.contains("must not decrease"),
        || "the rule does not come back".to_owned(),
    );
    kube.0.run("kill", &["kube-apiserver"]);
    kube.torc("crd check").exits(6).prints("the API server does not answer");
}
