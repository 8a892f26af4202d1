//! The rendered Helm chart, without a cluster.

mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde_json::{Value, json};
use torc_tests::labs::kube::helm;

/// Returns the rendered objects for each set of values. Helm takes long to generate keys, so all tests share them.
fn switches() -> &'static [(&'static [&'static str], Vec<Value>)] {
    static RENDERED: OnceLock<Vec<(&[&str], Vec<Value>)>> = OnceLock::new();
    RENDERED.get_or_init(|| SWITCHES.iter().map(|values| (*values, render(values))).collect())
}

/// Returns the arguments of Helm for some values.
fn arguments<'a>(verb: &'a [&'a str], values: &'a [&'a str]) -> Vec<&'a str> {
    let mut arguments = verb.to_vec();
    for value in values {
        arguments.extend(["--set-json", *value]);
    }
    arguments
}

/// Renders the chart with some values, `key=JSON` each.
fn render(values: &[&str]) -> Vec<Value> {
    let output = helm(&arguments(&["template", "torc", "charts/torc", "--namespace", "torc-system"], values));
    assert!(output.status.success(), "{values:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8_lossy(&output.stdout)).unwrap()
}

/// Returns the error of Helm about invalid values.
fn refused(values: &[&str]) -> String {
    let output = helm(&arguments(&["template", "torc", "charts/torc"], values));
    assert!(!output.status.success(), "{values:?} were accepted");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn all<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn one<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found: Vec<_> = all(objects, kind).into_iter().filter(|object| object["metadata"]["name"] == name).collect();
    assert_eq!(found.len(), 1, "{kind}/{name}");
    found[0]
}

fn names(objects: &[Value], kind: &str) -> Vec<String> {
    all(objects, kind).iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Values that enable every object.
const EVERYTHING: &[&str] = &[
    "podDisruptionBudget.enabled=true",
    "networkPolicy={\"enabled\": true, \"from\": [{\"namespaceSelector\": {}}], \"runnersTo\": [{\"ipBlock\": {\"cidr\": \"10.0.0.0/8\"}}]}",
    "serviceMonitor={\"enabled\": true, \"labels\": {\"release\": \"prometheus\"}}",
    "slurm.sshSecrets=[\"kestrel\"]",
    "client.namespaces=[\"a\", \"b\"]",
    "client.subjects=[{\"kind\": \"Group\", \"name\": \"lab\", \"apiGroup\": \"rbac.authorization.k8s.io\"}]",
    "server.workingDir=\"/shared\"",
    "imagePullSecrets=[{\"name\": \"registry\"}]",
    "service.advertiseUrl=\"https://torc.example.org:7421\"",
    "server.podLabels={\"team\": \"a\"}",
    "server.priorityClassName=\"high\"",
    "server.nodeSelector={\"disk\": \"fast\"}",
    "server.extraEnv=[{\"name\": \"HTTPS_PROXY\", \"value\": \"http://proxy\"}]",
    "runnerPools=[{\"name\": \"cpu\", \"replicas\": 2, \"resources\": {\"limits\": {\"cpu\": 4, \"memory\": \"8Gi\"}}}, \
     {\"name\": \"gpu\", \"autoscale\": {\"max\": 5}, \"image\": \"lab/model:3\", \"labels\": [\"gpu\"], \
      \"resources\": {\"limits\": {\"cpu\": \"500m\", \"nvidia.com/gpu\": 2}}, \"workflow\": \"lab/model\", \
      \"volumes\": [{\"name\": \"data\", \"emptyDir\": {}}], \"volumeMounts\": [{\"name\": \"data\", \"mountPath\": \"/data\"}], \
      \"nodeSelector\": {\"gpu\": \"yes\"}, \"tolerations\": [{\"key\": \"gpu\", \"operator\": \"Exists\"}], \
      \"runtimeClassName\": \"nvidia\", \"env\": [{\"name\": \"A\", \"value\": \"b\"}]}]",
];

/// Sets of values with different objects.
const SWITCHES: &[&[&str]] = &[
    &[],
    EVERYTHING,
    &["watchNamespaces=[\"a\", \"b\"]"],
    &["watchNamespaces=[\"a\"]", "rbac.clusterWide=false", "runnerPools=[{\"name\": \"cpu\"}]"],
    &["rbac.create=false", "serviceAccount={\"create\": false, \"name\": \"mine\"}"],
    &["rbac.aggregate=false"],
    &["sources.enabled=false"],
    &["persistence.enabled=false"],
    &["persistence.existingClaim=\"mine\""],
    &["persistence={\"keep\": false, \"storageClass\": \"fast\", \"annotations\": {\"a\": \"b\"}}"],
    &["tls={\"mode\": \"secret\", \"secretName\": \"mine\"}", "runnerPools=[{\"name\": \"cpu\"}]"],
    &["tls.mode=\"off\"", "runnerPools=[{\"name\": \"cpu\"}]", "serviceMonitor.enabled=true"],
    &["token.secretName=\"mine\"", "tokenReview.enabled=false", "runnerPools=[{\"name\": \"cpu\"}]"],
    &["client.create=false"],
    &["image.digest=\"sha256:0000000000000000000000000000000000000000000000000000000000000000\""],
    &["networkPolicy.enabled=true"],
    &["fullnameOverride=\"other\"", "nameOverride=\"name\""],
];

fn nulls(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Null => found.push(path.to_owned()),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| nulls(value, &format!("{path}.{key}"), found)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| nulls(value, &format!("{path}[{index}]"), found));
        }
        _ => {}
    }
}

/// Returns the Pod template of an object that creates Pods, or the Pod itself.
fn pod(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Deployment" => Some(&object["spec"]["template"]["spec"]),
        "Pod" => Some(&object["spec"]),
        _ => None,
    }
}

#[test]
fn the_charts_pass_helm_lint() {
    let output = helm(&["lint", "--strict", "charts/torc-crds"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    for values in [&[], EVERYTHING] {
        let output = helm(&arguments(&["lint", "--strict", "charts/torc"], values));
        assert!(output.status.success(), "{values:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn no_value_renders_a_null_or_an_object_without_labels() {
    for (values, objects) in switches() {
        for object in objects {
            let mut found = Vec::new();
            nulls(object, object["kind"].as_str().unwrap_or("?"), &mut found);
            assert_eq!(found, Vec::<String>::new(), "{values:?}");
            let labels = &object["metadata"]["labels"];
            for key in ["name", "instance", "version", "managed-by"] {
                let name = format!("app.kubernetes.io/{key}");
                assert!(labels[&name].is_string(), "{values:?}: {} has no label {name}", object["kind"]);
            }
        }
    }
}

#[test]
fn every_container_is_confined() {
    for (_, objects) in switches() {
        let pods: Vec<&Value> = objects.iter().filter_map(pod).collect();
        assert!(pods.len() >= 2, "a server and a test");
        for pod in pods {
            let of_pod = &pod["securityContext"];
            assert_eq!((&of_pod["runAsNonRoot"], &of_pod["runAsUser"]), (&json!(true), &json!(65532)));
            assert_eq!(of_pod["seccompProfile"]["type"], "RuntimeDefault");
            let containers = [&pod["initContainers"], &pod["containers"]];
            for container in containers.into_iter().filter_map(Value::as_array).flatten() {
                let expected = json!({
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                });
                assert_eq!(container["securityContext"], expected, "{}", container["name"]);
            }
            // Only the server calls the API server.
            let is_server = pod["containers"][0]["name"] == "server";
            assert_eq!(pod["automountServiceAccountToken"] == false, !is_server);
        }
    }
}

/// Returns the rights of an account as `where: group/resource[names] verbs`.
fn rights(objects: &[Value], account: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for binding in objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("RoleBinding")) {
        if binding["subjects"][0]["name"] != account {
            continue;
        }
        assert_eq!(binding["subjects"][0]["namespace"], "torc-system");
        let (role, place) = (&binding["roleRef"], &binding["metadata"]["namespace"]);
        let roles = objects.iter().filter(|object| {
            object["kind"] == role["kind"]
                && object["metadata"]["name"] == role["name"]
                && object["metadata"]["namespace"] == *place
        });
        let place = match (binding["kind"].as_str().unwrap(), place.as_str()) {
            ("ClusterRoleBinding", _) => "cluster",
            (_, Some(namespace)) => namespace,
            (_, None) => "own",
        };
        for rule in roles.flat_map(|role| role["rules"].as_array().unwrap()) {
            let words = |key: &str| {
                let words = rule[key].as_array().into_iter().flatten();
                words.map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(",")
            };
            let names =
                if rule["resourceNames"].is_null() { String::new() } else { format!("[{}]", words("resourceNames")) };
            found.insert(format!("{place}: {}/{}{names} {}", words("apiGroups"), words("resources"), words("verbs")));
        }
    }
    found
}

fn lines(expected: &[&str]) -> BTreeSet<String> {
    expected.iter().map(|&line| line.to_owned()).collect()
}

#[test]
fn the_servers_roles_are_exactly_those_it_needs() {
    let of_cluster = [
        "cluster: torc.dev/slurmclusters get,list,watch",
        "cluster: torc.dev/slurmclusters/status get,patch",
        "cluster: authentication.k8s.io/tokenreviews create",
    ];
    let of_lease = ["own: coordination.k8s.io/leases create", "own: coordination.k8s.io/leases[torc] get,update,patch"];
    let of_workflows = |place: &str| {
        [
            format!("{place}: torc.dev/workflows get,list,watch,patch,delete"),
            format!("{place}: torc.dev/workflows/status get,patch"),
            format!("{place}: events.k8s.io/events create,patch"),
            format!("{place}: /configmaps get"),
        ]
    };
    let expect = |values: &[&str], expected: BTreeSet<String>| {
        assert_eq!(rights(&render(values), "torc"), expected, "{values:?}");
    };
    let own = lines(&of_lease);
    let with_cluster: BTreeSet<String> = own.union(&lines(&of_cluster)).cloned().collect();
    let extended =
        |rights: &BTreeSet<String>, more: &[String]| rights.iter().chain(more).cloned().collect::<BTreeSet<_>>();
    let everywhere = extended(&with_cluster, &of_workflows("cluster"));
    expect(&[], everywhere.clone());
    let pool = "own: apps/deployments/scale[torc-gpu] get,patch".to_owned();
    expect(EVERYTHING, extended(&everywhere, &[pool]));
    let without_sources = everywhere.iter().filter(|line| !line.contains("configmaps")).cloned().collect();
    expect(&["sources.enabled=false"], without_sources);
    let without_reviews = everywhere.iter().filter(|line| !line.contains("tokenreviews")).cloned().collect();
    expect(&["tokenReview.enabled=false"], without_reviews);
    let in_two = extended(&extended(&with_cluster, &of_workflows("a")), &of_workflows("b"));
    expect(&["watchNamespaces=[\"a\", \"b\"]"], in_two);
    expect(&["watchNamespaces=[\"a\"]", "rbac.clusterWide=false"], extended(&own, &of_workflows("a")));
    expect(&["rbac.create=false"], BTreeSet::new());
}

#[test]
fn runners_and_clients_have_no_roles_by_default() {
    let objects = render(EVERYTHING);
    for account in ["torc-runner", "torc-admin"] {
        assert_eq!(one(&objects, "ServiceAccount", account)["automountServiceAccountToken"], false);
        assert_eq!(rights(&objects, account), BTreeSet::new());
    }
    let accounts = all(&objects, "ServiceAccount").into_iter();
    let of_people: BTreeSet<(&str, &str)> = accounts
        .filter_map(|account| Some((account["metadata"]["namespace"].as_str()?, account["metadata"]["name"].as_str()?)))
        .collect();
    assert_eq!(
        of_people,
        BTreeSet::from([("a", "torc-viewer"), ("a", "torc-editor"), ("b", "torc-viewer"), ("b", "torc-editor")])
    );
    // Access to the server includes neither cluster-wide rights nor `pods/exec`.
    let rules = |name: &str| -> BTreeSet<String> {
        let words = |rule: &Value, key: &str| {
            let words = rule[key].as_array().into_iter().flatten().map(|word| word.as_str().unwrap());
            words.collect::<Vec<_>>().join(",")
        };
        let line = |rule: &Value| {
            format!("{}[{}] {}", words(rule, "resources"), words(rule, "resourceNames"), words(rule, "verbs"))
        };
        one(&objects, "Role", name)["rules"].as_array().unwrap().iter().map(line).collect()
    };
    let way = ["services[torc] get", "configmaps[torc-client] get", "pods[] get,list", "pods/portforward[] get,create"];
    assert_eq!(rules("torc-client"), lines(&way));
    assert_eq!(rules("torc-admin"), lines(&["serviceaccounts/token[torc-admin] create"]));
    let binding = one(&objects, "RoleBinding", "torc-client");
    assert_eq!((&binding["roleRef"]["name"], &binding["subjects"][0]["name"]), (&json!("torc-client"), &json!("lab")));
    assert_eq!(names(&render(&[]), "RoleBinding"), ["torc"], "an account is bound without a value that names it");
    let certificate = &one(&objects, "ConfigMap", "torc-client")["data"];
    assert_eq!(certificate.as_object().unwrap().keys().collect::<Vec<_>>(), ["ca.crt"]);
}

#[test]
fn the_view_and_edit_roles_aggregate_workflow_rights() {
    let objects = render(&[]);
    let viewer = one(&objects, "ClusterRole", "torc-viewer");
    assert_eq!(viewer["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"], "true");
    assert_eq!(viewer["rules"][0]["verbs"], json!(["get", "list", "watch"]));
    let editor = one(&objects, "ClusterRole", "torc-editor");
    assert_eq!(editor["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"], "true");
    assert_eq!(editor["rules"][0]["resources"], json!(["workflows", "workflows/scale"]));
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    assert_eq!(editor["rules"][0]["verbs"], json!(verbs));
    // Viewers of workflows may also read their jobs, through the server.
    let tokens = |role: &Value| {
        let rules = role["rules"].as_array().unwrap().iter();
        rules.filter(|rule| rule["resources"][0] == "serviceaccounts/token").cloned().collect::<Vec<_>>()
    };
    let rule = |names: Value| json!({ "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": names, "verbs": ["create"] });
    assert_eq!(tokens(viewer), [rule(json!(["torc-viewer"]))]);
    assert_eq!(tokens(editor), [rule(json!(["torc-viewer", "torc-editor"]))]);
    let closed = render(&["client.create=false"]);
    assert_eq!(tokens(one(&closed, "ClusterRole", "torc-editor")), Vec::<Value>::new());
    for values in [["rbac.aggregate=false", "rbac.create=true"], ["watchNamespaces=[\"a\"]", "rbac.clusterWide=false"]]
    {
        assert!(!names(&render(&values), "ClusterRole").iter().any(|name| name.starts_with("torc-v")));
    }
    let little = render(&["watchNamespaces=[\"a\"]", "rbac.clusterWide=false"]);
    assert_eq!(names(&little, "ClusterRole"), Vec::<String>::new());
}

fn environment(container: &Value) -> BTreeMap<String, Value> {
    let variables = container["env"].as_array().unwrap();
    let entry = |variable: &Value| {
        let value = if variable["value"].is_null() { &variable["valueFrom"] } else { &variable["value"] };
        (variable["name"].as_str().unwrap().to_owned(), value.clone())
    };
    variables.iter().map(entry).collect()
}

#[test]
fn one_server_writes_one_store() {
    let objects = render(&[]);
    let server = one(&objects, "Deployment", "torc");
    assert_eq!((&server["spec"]["replicas"], &server["spec"]["strategy"]["type"]), (&json!(1), &json!("Recreate")));
    let pod = &server["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "torc");
    let claim = one(&objects, "PersistentVolumeClaim", "torc");
    assert_eq!(claim["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(pod["containers"][0][probe]["httpGet"]["scheme"], "HTTPS", "{probe}");
    }
    let checksum = &server["spec"]["template"]["metadata"]["annotations"]["torc.dev/secrets"];
    assert_eq!(checksum.as_str().unwrap().len(), 64);
    let elsewhere = render(&["persistence.existingClaim=\"mine\""]);
    assert_eq!(names(&elsewhere, "PersistentVolumeClaim"), Vec::<String>::new());
    let lost = render(&["persistence.enabled=false"]);
    assert_eq!(one(&lost, "Deployment", "torc")["spec"]["template"]["spec"]["volumes"][0]["emptyDir"], json!({}));
}

#[test]
fn without_tls_no_url_uses_https() {
    let objects = render(&["tls.mode=\"off\"", "runnerPools=[{\"name\": \"cpu\"}]"]);
    assert_eq!(names(&objects, "Secret"), ["torc-token"]);
    let pod = &one(&objects, "Deployment", "torc")["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["readinessProbe"]["httpGet"]["scheme"], "HTTP");
    assert!(pod["containers"][0]["args"].as_array().unwrap().contains(&json!("--insecure-http")));
    // Without this value, runners in Slurm allocations also get the CA.
    let names_authority = |objects: &[Value]| {
        let container = &one(objects, "Deployment", "torc")["spec"]["template"]["spec"]["containers"][0];
        container["args"].as_array().unwrap().contains(&json!("--tls-ca=/etc/torc/tls/ca.crt"))
    };
    assert!(names_authority(&render(&[])) && !names_authority(&objects));
    let runner = &one(&objects, "Deployment", "torc-cpu")["spec"]["template"]["spec"]["containers"][0];
    let variables = environment(runner);
    assert_eq!(variables["TORC_API_URL"], "http://torc.torc-system.svc:7421");
    assert!(!variables.contains_key("TORC_CA_CERT"));
}

#[test]
fn a_given_secret_is_used_and_none_created() {
    let objects = render(&[
        "tls={\"mode\": \"secret\", \"secretName\": \"certificate\", \"caKey\": \"authority\"}",
        "token.secretName=\"word\"",
        "runnerPools=[{\"name\": \"cpu\"}]",
        "serviceMonitor.enabled=true",
    ]);
    assert_eq!(names(&objects, "Secret"), Vec::<String>::new());
    let pool = &one(&objects, "Deployment", "torc-cpu")["spec"]["template"]["spec"];
    let of_runner = pool["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "ca").unwrap();
    assert_eq!(of_runner["secret"]["secretName"], "certificate");
    assert_eq!(of_runner["secret"]["items"], json!([{ "key": "authority", "path": "ca.crt" }]));
    let endpoint = &one(&objects, "ServiceMonitor", "torc")["spec"]["endpoints"][0];
    assert_eq!(endpoint["authorization"]["credentials"], json!({ "name": "word", "key": "metrics" }));
    assert_eq!(endpoint["tlsConfig"]["ca"]["secret"], json!({ "name": "certificate", "key": "authority" }));
    // Objects without generated secrets are equal in every rendering, so no Pod restarts.
    let checksum = || {
        let objects = render(&["tls.mode=\"off\"", "token.secretName=\"word\""]);
        one(&objects, "Deployment", "torc")["spec"]["template"]["metadata"]["annotations"].clone()
    };
    assert_eq!(checksum(), checksum());
}

#[test]
fn a_runners_capacity_is_its_resource_limits() {
    let objects = render(EVERYTHING);
    let of = |name: &str| one(&objects, "Deployment", name)["spec"]["template"]["spec"]["containers"][0].clone();
    let limit = |resource: &str| json!({ "resourceFieldRef": { "containerName": "runner", "resource": resource, "divisor": "1" } });
    let cpu = environment(&of("torc-cpu"));
    assert_eq!((&cpu["TORC_RUN_NUM_CPUS"], &cpu["TORC_RUN_MEMORY"]), (&limit("limits.cpu"), &limit("limits.memory")));
    assert_eq!((&cpu["TORC_RUN_NUM_GPUS"], &cpu["TORC_RUNNER_KIND"]), (&json!("0"), &json!("pod")));
    let gpu = environment(&of("torc-gpu"));
    assert_eq!((&gpu["TORC_RUN_NUM_GPUS"], &gpu["A"]), (&json!("2"), &json!("b")));
    assert!(!gpu.contains_key("TORC_RUN_MEMORY"), "no limit was set");
    assert_eq!(of("torc-gpu")["image"], "lab/model:3");
    let arguments = of("torc-gpu")["args"].clone();
    assert_eq!(arguments[0], "runner");
    for word in ["lab/model", "--persistent", "--label=gpu"] {
        assert!(arguments.as_array().unwrap().contains(&json!(word)), "{word}");
    }
}

#[test]
fn pools_have_the_configured_size() {
    let objects = render(&["runnerPools=[{\"name\": \"none\", \"replicas\": 0}, {\"name\": \"one\"}, \
         {\"name\": \"idle\", \"autoscale\": {\"idle\": 2, \"max\": 3, \"coolDownSeconds\": 0}}, {\"name\": \"zero\", \"autoscale\": {\"max\": 1}, \
          \"terminationGracePeriodSeconds\": 0}]"]);
    for (name, replicas) in [("torc-none", Some(0)), ("torc-one", Some(1)), ("torc-idle", None), ("torc-zero", None)] {
        let printed = one(&objects, "Deployment", name)["spec"].get("replicas").cloned();
        assert_eq!(
            printed,
            replicas.map(|count| json!(count)),
            "{name}: the server sets the size of what follows the work"
        );
    }
    let zero = &one(&objects, "Deployment", "torc-zero")["spec"]["template"]["spec"];
    assert_eq!(zero["terminationGracePeriodSeconds"], 0);
    let server = &one(&objects, "Deployment", "torc")["spec"]["template"]["spec"]["containers"][0];
    let pools = environment(server)["TORC_KUBERNETES_POOLS"].clone();
    let pools: Vec<Value> = serde_json::from_str(pools.as_str().unwrap()).unwrap();
    let sizes: Vec<_> = pools
        .iter()
        .map(|pool| ["deployment", "idle", "max", "coolDownSeconds"].map(|key| pool[key].clone()))
        .collect();
    let expected =
        [[json!("torc-idle"), json!(2), json!(3), json!(0)], [json!("torc-zero"), json!(0), json!(1), json!(60)]];
    assert_eq!(sizes, expected);
}

#[test]
fn a_disruption_budget_needs_several_replicas() {
    let objects = render(&[
        "podDisruptionBudget.enabled=true",
        "runnerPools=[{\"name\": \"one\"}, {\"name\": \"two\", \"replicas\": 2}, {\"name\": \"a\", \"autoscale\": {\"max\": 4}}, \
         {\"name\": \"b\", \"autoscale\": {\"max\": 1}}]",
    ]);
    assert_eq!(names(&objects, "PodDisruptionBudget"), ["torc-two", "torc-a"]);
    assert_eq!(names(&render(EVERYTHING), "NetworkPolicy"), ["torc", "torc-runner"]);
    assert_eq!(names(&render(&[]), "PodDisruptionBudget"), Vec::<String>::new());
}

/// Returns whether a selector matches these labels.
fn matches(selector: &Value, labels: &Value) -> bool {
    let wanted = selector["matchLabels"].as_object().unwrap();
    assert!(!wanted.is_empty(), "a selector without labels takes everything");
    wanted.iter().all(|(key, value)| labels[key] == *value)
}

/// Returns the labels of Pods by the name of their controller.
fn pod_labels(objects: &[Value]) -> BTreeMap<String, Value> {
    let makers = objects.iter().filter(|object| pod(object).is_some());
    makers
        .map(|object| {
            let metadata =
                if object["kind"] == "Pod" { &object["metadata"] } else { &object["spec"]["template"]["metadata"] };
            (object["metadata"]["name"].as_str().unwrap().to_owned(), metadata["labels"].clone())
        })
        .collect()
}

#[test]
fn selectors_match_exactly_their_pods() {
    let objects = render(EVERYTHING);
    let labels = pod_labels(&objects);
    let taken = |selector: &Value| -> Vec<&str> {
        labels.iter().filter(|(_, labels)| matches(selector, labels)).map(|(name, _)| name.as_str()).collect()
    };
    let service = one(&objects, "Service", "torc");
    assert_eq!(taken(&json!({ "matchLabels": service["spec"]["selector"] })), ["torc"]);
    for (name, expected) in [("torc-cpu", "torc-cpu"), ("torc-gpu", "torc-gpu"), ("torc", "torc")] {
        assert_eq!(taken(&one(&objects, "Deployment", name)["spec"]["selector"]), [expected]);
    }
    assert_eq!(taken(&one(&objects, "PodDisruptionBudget", "torc-cpu")["spec"]["selector"]), ["torc-cpu"]);

    let server = &one(&objects, "NetworkPolicy", "torc")["spec"];
    assert_eq!(taken(&server["podSelector"]), ["torc"]);
    let rule = &server["ingress"][0];
    // Ingress is allowed for runners, the Helm test and the peers in the values.
    assert_eq!(taken(&rule["from"][0]["podSelector"]), ["torc", "torc-cpu", "torc-gpu", "torc-test"]);
    assert_eq!(rule["from"][1], json!({ "namespaceSelector": {} }));
    let port = &one(&objects, "Deployment", "torc")["spec"]["template"]["spec"]["containers"][0]["ports"][0];
    assert_eq!((&rule["ports"], &port["name"]), (&json!([{ "port": "api" }]), &json!("api")));
    let runners = &one(&objects, "NetworkPolicy", "torc-runner")["spec"];
    assert_eq!(taken(&runners["podSelector"]), ["torc-cpu", "torc-gpu"]);
    assert_eq!((&runners["policyTypes"], runners.get("ingress")), (&json!(["Ingress", "Egress"]), None), "no ingress");
    assert_eq!(taken(&runners["egress"][0]["to"][0]["podSelector"]), ["torc"]);
    assert_eq!(runners["egress"][2]["to"], json!([{ "ipBlock": { "cidr": "10.0.0.0/8" } }]));

    // A policy limits ingress. Egress is open unless the values limit it.
    let plain = render(&["networkPolicy.enabled=true", "runnerPools=[{\"name\": \"cpu\"}]"]);
    assert_eq!(one(&plain, "NetworkPolicy", "torc")["spec"]["ingress"][0]["from"].as_array().unwrap().len(), 1);
    assert_eq!(one(&plain, "NetworkPolicy", "torc-runner")["spec"]["policyTypes"], json!(["Ingress"]));

    let monitor = &one(&objects, "ServiceMonitor", "torc")["spec"];
    assert!(matches(&monitor["selector"], &service["metadata"]["labels"]));
    assert_eq!(monitor["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
}

#[test]
fn pods_are_scheduled_as_the_values_say() {
    let variables = |values: &[&str]| {
        environment(&one(&render(values), "Deployment", "torc")["spec"]["template"]["spec"]["containers"][0])
    };
    assert_eq!(variables(&["server.workingDir=\"/shared\""])["TORC_KUBERNETES_WORKING_DIR"], "/shared");
    assert!(!variables(&[]).contains_key("TORC_KUBERNETES_WORKING_DIR"));
}

/// Collects every key of the values as `a.b`. Maps that users fill have no keys below.
fn keys(values: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (key, value) in values.as_object().unwrap() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value.as_object().filter(|fields| !fields.is_empty() && !path.ends_with("resources")) {
            Some(_) => keys(value, &path, found),
            None => drop(found.insert(path)),
        }
    }
}

#[test]
fn the_schema_and_the_page_list_every_value() {
    let values: Value = serde_saphyr::from_str(include_str!("../../../../charts/torc/values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(include_str!("../../../../charts/torc/values.schema.json")).unwrap();
    let mut written = BTreeSet::new();
    keys(&values, "", &mut written);
    let mut known = BTreeSet::new();
    let mut open = vec![(String::new(), &schema)];
    while let Some((path, schema)) = open.pop() {
        let fields = schema["properties"].as_object().filter(|_| !path.ends_with("resources"));
        match fields {
            Some(fields) => {
                assert_eq!(schema["additionalProperties"], false, "`{path}` accepts unknown keys");
                let below = |key: &String| if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                open.extend(fields.iter().map(|(key, schema)| (below(key), schema)));
            }
            None => drop(known.insert(path)),
        }
    }
    // `global` belongs to Helm.
    known.remove("global");
    assert_eq!(written, known, "values.yaml and values.schema.json");
    let page = include_str!("../../../../docs/reference/chart.md");
    for key in &written {
        assert!(page.contains(&format!("| `{key}` |")), "docs/reference/chart.md does not know `{key}`");
    }
    let pool = &schema["properties"]["runnerPools"]["items"]["properties"];
    for key in pool.as_object().unwrap().keys() {
        assert!(page.contains(&format!("{key}:")), "docs/reference/chart.md does not know `{key}` of a pool");
    }
}

#[test]
fn meaningless_values_are_refused() {
    for (values, words) in [
        (&["sever={}"][..], "sever"),
        (&["server.replicas=2"], "replicas"),
        (&["tls.mode=\"maybe\""], "mode"),
        (&["tls.mode=\"secret\""], "secretName"),
        (&["persistence.size=\"much\""], "size"),
        (&["service.port=0"], "port"),
        (&["watchNamespaces=[\"UPPER\"]"], "watchNamespaces"),
        (&["tokenReview.adminAccounts=[\"name\"]"], "adminAccounts"),
        (&["runnerPools=[{\"replicas\": 1}]"], "name"),
        (&["runnerPools=[{\"name\": \"a\", \"replicas\": 1, \"autoscale\": {\"max\": 2}}]"], "runnerPools"),
        (&["runnerPools=[{\"name\": \"a\", \"autoscale\": {\"idle\": 2}}]"], "max"),
        (&["runnerPools=[{\"name\": \"a\", \"cpus\": 2}]"], "cpus"),
        (&["client.accounts=[]"], "accounts"),
        (&["client.namespaces=\"a\""], "namespaces"),
        (&["client.subjects=[{\"kind\": \"User\"}]"], "name"),
        (&["networkPolicy.to=[]"], "to"),
        (&["networkPolicy.enabled=\"yes\""], "enabled"),
        (&["server.workingDir=\"here\""], "workingDir"),
        (&["server.maxJobs=\"many\""], "maxJobs"),
        (&["server.resources.limit={}"], "limit"),
        (&["imagePullSecrets=[\"registry\"]"], "imagePullSecrets"),
        (&["image.digest=\"sha1:00\""], "digest"),
        (&["serviceMonitor.interval=30"], "interval"),
        (&["runnerPools=[{\"name\": \"a\", \"resources\": {\"cpu\": 1}}]"], "cpu"),
        (&["runnerPools=[{\"name\": \"a\", \"labels\": \"gpu\"}]"], "labels"),
        (&["runnerPools=[{\"name\": \"a\"}, {\"name\": \"a\"}]"], "two are named 'a'"),
        (&["rbac.clusterWide=false"], "set watchNamespaces"),
        (&["serviceAccount.create=false"], "serviceAccount.name is needed"),
    ] {
        let printed = refused(values);
        assert!(printed.contains(words), "{values:?}: {printed}");
    }
}

#[test]
fn the_notes_list_the_next_commands() {
    let notes = |values: &[&str]| {
        let verb = ["install", "torc", "charts/torc", "--dry-run=client", "--namespace", "torc-system"];
        let output = helm(&arguments(&verb, values));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split("NOTES:").nth(1).unwrap().to_owned()
    };
    let usual = notes(&[]);
    for words in ["torc-crds", "runnerPools is empty", "kubectl delete twf --all -A", "release-finalizers"] {
        assert!(usual.contains(words), "{words}: {usual}");
    }
    let lost = notes(&["persistence.enabled=false", "runnerPools=[{\"name\": \"cpu\"}]"]);
    assert!(lost.contains("All results are lost") && lost.contains("in the pools cpu"), "{lost}");
}
