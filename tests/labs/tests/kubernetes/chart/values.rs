//! Each value of the chart reaches the right field.

use serde_json::{Value, json};

use super::{environment, one, render};

/// A value for every key, each different from the default.
const VALUES: &[&str] = &[
    "image={\"repository\": \"lab/torc\", \"digest\": \"sha256:0000000000000000000000000000000000000000000000000000000000000000\"}",
    "imagePullSecrets=[{\"name\": \"registry\"}]",
    "server={\"logLevel\": \"debug\", \"maxJobs\": 7, \"extraArgs\": [\"--more\"], \"extraEnv\": [{\"name\": \"A\", \"value\": \"b\"}], \
     \"podAnnotations\": {\"note\": \"n\"}, \"podLabels\": {\"team\": \"t\"}, \"nodeSelector\": {\"disk\": \"fast\"}, \
     \"tolerations\": [{\"key\": \"k\"}], \"affinity\": {\"nodeAffinity\": {}}, \
     \"topologySpreadConstraints\": [{\"maxSkew\": 1}], \"priorityClassName\": \"high\", \"terminationGracePeriodSeconds\": 77, \
     \"extraVolumes\": [{\"name\": \"v\"}], \"extraVolumeMounts\": [{\"name\": \"v\", \"mountPath\": \"/v\"}], \
     \"resources\": {\"limits\": {\"memory\": \"3Gi\"}}}",
    "watchNamespaces=[\"a\", \"b\"]",
    "sources.enabled=false",
    "persistence={\"size\": \"3Gi\", \"storageClass\": \"fast\", \"accessModes\": [\"ReadWriteMany\"], \"annotations\": {\"a\": \"b\"}}",
    "tls={\"mode\": \"secret\", \"secretName\": \"certificate\", \"caKey\": \"authority\"}",
    "token.secretName=\"word\"",
    "tokenReview={\"audience\": \"us\", \"runnerAccounts\": [\"x/r\"], \"adminAccounts\": [\"x/a\"]}",
    "service={\"type\": \"LoadBalancer\", \"port\": 8443, \"annotations\": {\"c\": \"d\"}, \"advertiseUrl\": \"https://out:1\"}",
    "slurm.sshSecrets=[\"kestrel\"]",
    "serviceAccount.annotations={\"role\": \"r\"}",
    "podDisruptionBudget.enabled=true",
    "networkPolicy={\"enabled\": true, \"from\": [{\"namespaceSelector\": {}}]}",
    "serviceMonitor={\"enabled\": true, \"interval\": \"9s\", \"labels\": {\"release\": \"p\"}}",
    "runnerPools=[{\"name\": \"gpu\", \"replicas\": 2, \"image\": \"lab/model:3\", \"extraArgs\": [\"--more\"], \
     \"resources\": {\"limits\": {\"nvidia.com/gpu\": 2, \"amd.com/gpu\": 1}}, \"env\": [{\"name\": \"A\", \"value\": \"b\"}], \
     \"volumes\": [{\"name\": \"data\"}], \"volumeMounts\": [{\"name\": \"data\", \"mountPath\": \"/data\"}], \
     \"nodeSelector\": {\"gpu\": \"yes\"}, \"tolerations\": [{\"key\": \"g\"}], \"affinity\": {\"podAffinity\": {}}, \
     \"runtimeClassName\": \"nvidia\", \"priorityClassName\": \"low\", \"podAnnotations\": {\"p\": \"q\"}, \"podLabels\": {\"l\": \"m\"}, \
     \"podSecurityContext\": {\"runAsUser\": 1000}, \"securityContext\": {\"privileged\": false}}]",
];

fn has_words(list: &Value, words: &[&str]) {
    for word in words {
        assert!(list.as_array().unwrap().contains(&json!(word)), "{word} is not in {list}");
    }
}

/// Returns the entry of a list with this name.
fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[test]
fn every_server_value_reaches_the_servers_pod() {
    let objects = render(VALUES);
    let server = &one(&objects, "Deployment", "torc")["spec"]["template"];
    assert_eq!(
        (&server["metadata"]["annotations"]["note"], &server["metadata"]["labels"]["team"]),
        (&json!("n"), &json!("t"))
    );
    let pod = &server["spec"];
    for (field, expected) in [
        ("terminationGracePeriodSeconds", json!(77)),
        ("imagePullSecrets", json!([{"name": "registry"}])),
        ("nodeSelector", json!({"disk": "fast"})),
        ("tolerations", json!([{"key": "k"}])),
        ("affinity", json!({"nodeAffinity": {}})),
        ("topologySpreadConstraints", json!([{"maxSkew": 1}])),
        ("priorityClassName", json!("high")),
        ("serviceAccountName", json!("torc")),
    ] {
        assert_eq!(pod[field], expected, "{field}");
    }
    let container = &pod["containers"][0];
    assert_eq!(container["image"], format!("lab/torc@sha256:{}", "0".repeat(64)));
    assert_eq!(container["resources"]["limits"], json!({"memory": "3Gi"}));
    for (probe, path) in [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"]["path"], path, "{probe}");
    }
    has_words(
        &container["args"],
        &[
            "--kubernetes",
            "--database=/var/lib/torc/torc.db",
            "--admin-token-file=/etc/torc/token/token",
            "--metrics-token-file=/etc/torc/token/metrics",
            "--advertise=https://out:1",
            "--max-jobs=7",
            "--tls-cert=/etc/torc/tls/tls.crt",
            "--tls-key=/etc/torc/tls/tls.key",
            "--more",
        ],
    );
    let variables = environment(container);
    for (name, expected) in [
        ("TORC_LOG", "debug"),
        ("TORC_KUBERNETES_LEASE", "torc"),
        ("TORC_KUBERNETES_NAMESPACES", "a,b"),
        ("TORC_KUBERNETES_SOURCES", "false"),
        ("TORC_KUBERNETES_SSH_SECRETS", "/etc/torc/ssh"),
        ("TORC_KUBERNETES_AUDIENCE", "us"),
        ("TORC_KUBERNETES_RUNNER_ACCOUNTS", "x/r,torc-system/torc-runner"),
        ("TORC_KUBERNETES_ADMIN_ACCOUNTS", "x/a,torc-system/torc-admin"),
        ("A", "b"),
    ] {
        assert_eq!(variables[name], expected, "{name}");
    }
    assert_eq!(variables["POD_NAME"], json!({"fieldRef": {"fieldPath": "metadata.name"}}));
    let mounts = &container["volumeMounts"];
    for (name, path) in [
        ("store", "/var/lib/torc"),
        ("token", "/etc/torc/token"),
        ("tls", "/etc/torc/tls"),
        ("ssh-kestrel", "/etc/torc/ssh/kestrel"),
        ("v", "/v"),
    ] {
        assert_eq!(named(mounts, name)["mountPath"], path, "{name}");
    }
    let volumes = &pod["volumes"];
    let token = &named(volumes, "token")["secret"];
    assert_eq!((&token["secretName"], token["items"].as_array().unwrap().len()), (&json!("word"), 2));
    assert_eq!(named(volumes, "tls")["secret"]["secretName"], "certificate");
    assert_eq!(named(volumes, "ssh-kestrel")["secret"]["secretName"], "kestrel");
    named(volumes, "v");
}

#[test]
fn every_pool_value_reaches_a_runners_pod() {
    let objects = render(VALUES);
    let template = &one(&objects, "Deployment", "torc-gpu")["spec"]["template"];
    assert_eq!(
        (&template["metadata"]["annotations"]["p"], &template["metadata"]["labels"]["l"]),
        (&json!("q"), &json!("m"))
    );
    let pod = &template["spec"];
    for (field, expected) in [
        ("terminationGracePeriodSeconds", json!(120)),
        ("imagePullSecrets", json!([{"name": "registry"}])),
        ("nodeSelector", json!({"gpu": "yes"})),
        ("tolerations", json!([{"key": "g"}])),
        ("affinity", json!({"podAffinity": {}})),
        ("runtimeClassName", json!("nvidia")),
        ("priorityClassName", json!("low")),
        ("securityContext", json!({"runAsUser": 1000})),
        ("serviceAccountName", json!("torc-runner")),
    ] {
        assert_eq!(pod[field], expected, "{field}");
    }
    assert_eq!(pod["initContainers"][0]["args"], json!(["install", "--to", "/torc/bin"]));
    let container = &pod["containers"][0];
    for (field, expected) in [
        ("image", json!("lab/model:3")),
        ("command", json!(["/torc/bin/torc"])),
        ("workingDir", json!("/work")),
        ("resources", json!({"limits": {"nvidia.com/gpu": 2, "amd.com/gpu": 1}})),
        ("securityContext", json!({"privileged": false})),
    ] {
        assert_eq!(container[field], expected, "{field}");
    }
    has_words(&container["args"], &["--persistent", "--output-dir=/torc/output", "--more"]);
    let variables = environment(container);
    for (name, expected) in [
        ("TORC_API_URL", "https://torc.torc-system.svc:8443"),
        ("TORC_TOKEN_FILE", "/etc/torc/account/token"),
        ("TORC_CA_CERT", "/etc/torc/ca/ca.crt"),
        ("TORC_RUN_NUM_GPUS", "3"),
        ("A", "b"),
    ] {
        assert_eq!(variables[name], expected, "{name}");
    }
    for (name, path) in [
        ("account", "/etc/torc/account"),
        ("ca", "/etc/torc/ca"),
        ("work", "/work"),
        ("torc", "/torc"),
        ("data", "/data"),
    ] {
        assert_eq!(named(&container["volumeMounts"], name)["mountPath"], path, "{name}");
        named(&pod["volumes"], name);
    }
    let token = &named(&pod["volumes"], "account")["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!((&token["audience"], &token["path"]), (&json!("us"), &json!("token")));
    // Without token reviews, runners use the token of the Secret.
    let plain = render(&[
        "tokenReview.enabled=false",
        "tls.mode=\"off\"",
        "token.secretName=\"word\"",
        "runnerPools=[{\"name\": \"cpu\"}]",
    ]);
    let pod = &one(&plain, "Deployment", "torc-cpu")["spec"]["template"]["spec"];
    assert_eq!(environment(&pod["containers"][0])["TORC_TOKEN_FILE"], "/etc/torc/token/token");
    assert_eq!(named(&pod["volumes"], "token")["secret"]["secretName"], "word");
}

#[test]
fn every_other_value_reaches_its_object() {
    let objects = render(VALUES);
    let service = one(&objects, "Service", "torc");
    for (note, expected) in [
        ("torc.dev/admin", "torc-admin"),
        ("torc.dev/editor", "torc-editor"),
        ("torc.dev/viewer", "torc-viewer"),
        ("torc.dev/authority", "torc-client"),
        ("torc.dev/audience", "us"),
        ("torc.dev/scheme", "https"),
        ("c", "d"),
    ] {
        assert_eq!(service["metadata"]["annotations"][note], expected, "{note}");
    }
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    assert_eq!(service["spec"]["ports"], json!([{"name": "https", "port": 8443, "targetPort": "api"}]));
    assert_eq!(service["spec"]["selector"]["app.kubernetes.io/component"], "server");
    let claim = one(&objects, "PersistentVolumeClaim", "torc");
    assert_eq!(claim["metadata"]["annotations"]["a"], "b");
    let expected = json!({
        "accessModes": ["ReadWriteMany"], "storageClassName": "fast", "resources": {"requests": {"storage": "3Gi"}},
    });
    assert_eq!(claim["spec"], expected);
    assert_eq!(one(&objects, "ServiceAccount", "torc")["metadata"]["annotations"], json!({"role": "r"}));
    assert_eq!(one(&objects, "PodDisruptionBudget", "torc-gpu")["spec"]["maxUnavailable"], 1);
    let monitor = one(&objects, "ServiceMonitor", "torc");
    assert_eq!(monitor["metadata"]["labels"]["release"], "p");
    let endpoint = &monitor["spec"]["endpoints"][0];
    let words = ["port", "path", "interval", "scheme"].map(|field| endpoint[field].as_str().unwrap());
    assert_eq!(words, ["https", "/metrics", "9s", "https"]);
    assert_eq!(endpoint["tlsConfig"]["serverName"], "torc.torc-system.svc");
    // Runners and the named peers may call the server. Runners accept no connections.
    let callers = &one(&objects, "NetworkPolicy", "torc")["spec"]["ingress"];
    assert_eq!(callers[0]["ports"], json!([{"port": "api"}]));
    assert_eq!(callers[0]["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/instance"], "torc");
    assert_eq!(callers[0]["from"][1], json!({"namespaceSelector": {}}));
    let of_runner = &one(&objects, "NetworkPolicy", "torc-runner")["spec"];
    assert_eq!((&of_runner["policyTypes"], of_runner.get("ingress")), (&json!(["Ingress"]), None));
    let rights = |role: &str| -> Vec<String> {
        let rules = one(&objects, "Role", role)["rules"].as_array().unwrap().clone();
        rules.iter().map(|rule| format!("{} {}", rule["resources"][0], rule["verbs"])).collect()
    };
    let way = [
        r#""services" ["get"]"#,
        r#""configmaps" ["get"]"#,
        r#""pods" ["get","list"]"#,
        r#""pods/portforward" ["get","create"]"#,
    ];
    assert_eq!(rights("torc-client"), way, "the way to the server, and nothing else");
    assert_eq!(rights("torc-admin"), [r#""serviceaccounts/token" ["create"]"#]);
}

#[test]
fn generated_secrets_differ_and_cover_all_names_of_the_service() {
    let values = ["service.advertiseUrl=\"https://torc.example.org:7421\"", "runnerPools=[{\"name\": \"cpu\"}]"];
    let (first, second) = (render(&values), render(&values));
    let note = |objects: &[Value], name: &str, key: &str| {
        one(objects, "Deployment", name)["spec"]["template"]["metadata"]["annotations"][key].clone()
    };
    for (name, key) in [("torc", "torc.dev/secrets"), ("torc-cpu", "torc.dev/authority")] {
        assert_ne!(note(&first, name, key), note(&second, name, key), "another Secret restarts {name}");
    }
    let words = &one(&first, "Secret", "torc-token")["data"];
    assert_ne!(words["token"], words["metrics"], "the metrics token equals the administrator's");
    let certificate = one(&first, "Secret", "torc-tls")["data"]["tls.crt"].as_str().unwrap().to_owned();
    let script = "printf %s \"$1\" | base64 -d | openssl x509 -noout -ext subjectAltName";
    let printed = std::process::Command::new("bash").args(["-c", script, "names", &certificate]).output().unwrap();
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    for name in [
        "torc",
        "torc.torc-system",
        "torc.torc-system.svc",
        "torc.torc-system.svc.cluster.local",
        "localhost",
        "torc.example.org",
    ] {
        assert!(printed.split([',', '\n']).any(|one| one.trim() == format!("DNS:{name}")), "{name}: {printed}");
    }
}
