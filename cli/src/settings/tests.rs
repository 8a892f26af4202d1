#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;

fn typed(line: &str) -> Layers {
    crate::cli::parse(line.split_whitespace()).unwrap().1
}

struct TestEnv {
    root: tempfile::TempDir,
    variables: BTreeMap<String, String>,
}

impl TestEnv {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("project/inner")).unwrap();
        let home = root.path().join("home");
        let variables = BTreeMap::from([("HOME".to_owned(), home.to_str().unwrap().to_owned())]);
        Self { root, variables }
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn gather(&self, flags: Layers) -> Result<(Layers, Vec<String>), CliError> {
        let folder = self.root.path().join("project/inner");
        let system = self.root.path().join("etc");
        let variable = |name: &str| self.variables.get(name).cloned();
        gather(flags, &Environment { variable: &variable, folder: &folder, system: &system })
    }
}

#[test]
fn nearer_sources_take_precedence() {
    let mut test_env = TestEnv::new();
    let cpus = |test_env: &TestEnv, flags: Layers| {
        let layers = test_env.gather(flags).unwrap().0;
        layers.get("client.run.num_cpus").map(|value| value.text.clone())
    };
    assert_eq!(cpus(&test_env, Layers::default()), None);
    test_env.file("etc/torc/config.toml", "[client.run]\nnum_cpus = 1\n");
    assert_eq!(cpus(&test_env, Layers::default()).as_deref(), Some("1"));
    test_env.file("home/.config/torc/config.toml", "[client.run]\nnum_cpus = 2\n");
    assert_eq!(cpus(&test_env, Layers::default()).as_deref(), Some("2"));
    test_env.file("project/torc.toml", "[client.run]\nnum_cpus = 3\n");
    assert_eq!(cpus(&test_env, Layers::default()).as_deref(), Some("3"));
    test_env.variables.insert("TORC_RUN_NUM_CPUS".to_owned(), "4".to_owned());
    assert_eq!(cpus(&test_env, Layers::default()).as_deref(), Some("4"));
    assert_eq!(cpus(&test_env, typed("torc server --num-cpus 5")).as_deref(), Some("5"));
}

#[test]
fn keys_of_different_files_are_merged_with_their_origin() {
    let test_env = TestEnv::new();
    let user = test_env.file("home/.config/torc/config.toml", "[client]\nurl = \"http://a:1/\"\nformat = \"json\"\n");
    let project = test_env.file("project/torc.toml", "[client]\nformat = \"yaml\"\n");
    let (layers, warnings) = test_env.gather(Layers::default()).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(layers.get("client.url").unwrap().origin, SettingOrigin::File(user));
    assert_eq!(layers.get("client.format").unwrap().origin, SettingOrigin::File(project));
    let settings = resolve(&layers, EnvCredentials::default()).unwrap();
    assert_eq!(settings.url.as_deref(), Some("http://a:1"));
    assert_eq!(settings.format, OutputFormat::Yaml);
    assert_eq!(settings.run.poll_interval, Duration::from_secs(5));
    assert_eq!(settings.run.slurm_poll_interval, Duration::from_secs(30), "in an allocation");
    assert_eq!(settings.server.bind, "127.0.0.1:7421");
}

#[test]
fn the_users_folder_follows_xdg() {
    let mut test_env = TestEnv::new();
    test_env.file("xdg/torc/config.toml", "[server]\nmax_jobs = 7\n");
    let folder = test_env.root.path().join("xdg");
    test_env.variables.insert("XDG_CONFIG_HOME".to_owned(), folder.to_str().unwrap().to_owned());
    let (layers, _) = test_env.gather(Layers::default()).unwrap();
    assert_eq!(resolve(&layers, EnvCredentials::default()).unwrap().server.max_jobs, 7);
}

#[test]
fn a_file_that_does_not_parse_is_an_error_with_its_line() {
    let test_env = TestEnv::new();
    let path = test_env.file("project/torc.toml", "[client]\nformat = json\n");
    let error = test_env.gather(Layers::default()).unwrap_err();
    assert_eq!(error.kind, crate::error::ExitStatus::InvalidInput);
    assert!(error.message.starts_with(&format!("{}:2:", path.display())), "{}", error.message);
}

#[test]
fn unknown_keys_are_warnings_with_the_nearest_key() {
    let test_env = TestEnv::new();
    let path = test_env.file("project/torc.toml", "[client]\nformt = \"json\"\n[else]\nx = 1\n");
    let (_, warnings) = test_env.gather(Layers::default()).unwrap();
    let path = path.display();
    assert_eq!(
        warnings,
        [
            format!("{path}: unknown setting `client.formt`; did you mean `client.format`?"),
            format!("{path}: unknown setting `else.x`"),
        ]
    );
}

// J26
#[test]
fn keys_of_torc_1_are_accepted_with_a_warning() {
    let test_env = TestEnv::new();
    let text = "[client.run]\njob_completion_poll_interval = 7\n[client.slurm]\njob_completion_poll_interval = 8\n";
    let path = test_env.file("project/torc.toml", text);
    let (layers, warnings) = test_env.gather(Layers::default()).unwrap();
    let settings = resolve(&layers, EnvCredentials::default()).unwrap();
    assert_eq!(settings.run.poll_interval, Duration::from_secs(7));
    assert_eq!(settings.run.slurm_poll_interval, Duration::from_secs(8));
    let expected = ["client.run", "client.slurm"].map(|section| {
        let (path, key) = (path.display(), format!("{section}.job_completion_poll_interval"));
        format!("{path}: the setting `{key}` is now called `{section}.poll_interval` (docs/reference/configuration.md)")
    });
    assert_eq!(warnings, expected);
    assert!(files::OLDER_NAMES.iter().all(|(_, newer)| all().any(|setting| setting.key == *newer)));
}

#[test]
fn wrong_values_name_their_source() {
    let test_env = TestEnv::new();
    let path = test_env.file("project/torc.toml", "[client.run]\nnum_cpus = \"many\"\n");
    let (layers, _) = test_env.gather(Layers::default()).unwrap();
    let error = resolve(&layers, EnvCredentials::default()).unwrap_err();
    let expected = format!(
        "setting `client.run.num_cpus` is invalid: 'many' must be a whole number of at least 1 (from {})",
        path.display()
    );
    assert_eq!(error.message, expected);
    for (key, text) in [
        ("client.url", "ftp://x"),
        ("client.url", "not a url"),
        ("client.format", "xml"),
        ("client.run.memory", "lots"),
        ("client.run.poll_interval", "0"),
        ("client.run.max_parallel_jobs", "0"),
        ("client.run.claim_backoff_max_secs", "-5"),
        ("client.run.long_poll", "maybe"),
        ("client.offline.enabled", "2"),
        ("client.offline.drain_ping_interval_secs", "0"),
        ("client.offline.wait_for_healthy_database_minutes", "-1"),
        ("server.max_jobs", "-1"),
    ] {
        let mut layers = Layers::default();
        layers.below(key, text.to_owned(), SettingOrigin::Flag);
        assert!(resolve(&layers, EnvCredentials::default()).is_err(), "{key} = {text}");
    }
}

// J27, J31, J34, J35
#[test]
fn the_behavior_while_the_server_is_unreachable_is_configurable() {
    let mut test_env = TestEnv::new();
    let settings = |test_env: &TestEnv, flags: Layers| {
        resolve(&test_env.gather(flags).unwrap().0, EnvCredentials::default()).unwrap().run
    };
    let usual = settings(&test_env, Layers::default());
    assert_eq!((usual.offline_drain, usual.drain_ping_interval.as_secs()), (true, 120));
    assert_eq!((usual.claim_backoff_max.as_secs(), usual.long_poll), (300, true));

    let text = "[client.offline]\nenabled = false\ndrain_ping_interval_secs = 7\n\
                wait_for_healthy_database_minutes = 0.5\n[client.run]\nclaim_backoff_max_secs = 60\nlong_poll = false\n";
    test_env.file("project/torc.toml", text);
    let run = settings(&test_env, Layers::default());
    assert_eq!((run.offline_drain, run.drain_ping_interval.as_secs()), (false, 7));
    assert_eq!(run.server_retry_window, Some(Duration::from_secs(30)));
    assert_eq!((run.claim_backoff_max.as_secs(), run.long_poll), (60, false));

    test_env.variables.insert("TORC_CLIENT__OFFLINE__ENABLED".to_owned(), "true".to_owned());
    test_env.variables.insert("TORC_CLIENT__OFFLINE__DRAIN_PING_INTERVAL_SECS".to_owned(), "8".to_owned());
    let run = settings(&test_env, Layers::default());
    assert_eq!((run.offline_drain, run.drain_ping_interval.as_secs()), (true, 8), "the environment wins over files");

    let flags =
        "torc runner --offline-drain false --drain-ping-interval-secs 9 --claim-backoff-max-secs 11 --long-poll true";
    let run = settings(&test_env, typed(flags));
    assert_eq!((run.offline_drain, run.drain_ping_interval.as_secs()), (false, 9), "flags win over all");
    assert_eq!((run.claim_backoff_max.as_secs(), run.long_poll), (11, true));
}

/// Checks the spelling of Torc 1.0.
#[test]
fn every_setting_has_a_variable_by_its_sections() {
    let mut test_env = TestEnv::new();
    test_env.variables.insert("TORC_CLIENT__RUN__NUM_CPUS".to_owned(), "3".to_owned());
    let (layers, _) = test_env.gather(Layers::default()).unwrap();
    let value = layers.get("client.run.num_cpus").unwrap();
    assert_eq!((value.text.as_str(), value.origin.to_string().as_str()), ("3", "TORC_CLIENT__RUN__NUM_CPUS"));
    test_env.variables.insert("TORC_RUN_NUM_CPUS".to_owned(), "4".to_owned());
    let (layers, _) = test_env.gather(Layers::default()).unwrap();
    assert_eq!(layers.get("client.run.num_cpus").unwrap().text, "4", "the short one wins");
}

/// Sets every setting in every source to a unique value.
#[test]
fn the_nearer_source_takes_precedence_for_every_setting() {
    let sources = ["system", "user", "project", "section", "variable", "flag"];
    for (count, nearest) in sources.iter().enumerate() {
        let mut test_env = TestEnv::new();
        let mut flags = Layers::default();
        let text = |source: &str| {
            let mut lines = String::new();
            for (number, key) in all().enumerate() {
                lines.push_str(&format!("{} = \"{source}-{number}\"\n", key.key));
            }
            lines
        };
        for source in &sources[..=count] {
            match *source {
                "system" => drop(test_env.file("etc/torc/config.toml", &text(source))),
                "user" => drop(test_env.file("home/.config/torc/config.toml", &text(source))),
                "project" => drop(test_env.file("project/torc.toml", &text(source))),
                _ => {}
            }
            for (number, key) in all().enumerate() {
                let value = format!("{source}-{number}");
                match *source {
                    "section" if key.variable_by_section() != key.variable() => {
                        test_env.variables.insert(key.variable_by_section(), value);
                    }
                    "variable" => drop(test_env.variables.insert(key.variable(), value)),
                    "flag" => flags.below(key.key, value, SettingOrigin::Flag),
                    _ => {}
                }
            }
        }
        let (layers, warnings) = test_env.gather(flags).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        for (number, key) in all().enumerate() {
            let has_one_name = *nearest == "section" && key.variable_by_section() == key.variable();
            let expected = if has_one_name { "project" } else { nearest };
            let value = layers.get(key.key).unwrap();
            assert_eq!(value.text, format!("{expected}-{number}"), "{}", key.key);
            let origin_is_right = match expected {
                "flag" => value.origin == SettingOrigin::Flag,
                "variable" => value.origin == SettingOrigin::Environment(key.variable()),
                "section" => value.origin == SettingOrigin::Environment(key.variable_by_section()),
                _ => matches!(value.origin, SettingOrigin::File(_)),
            };
            assert!(origin_is_right, "{}: {:?}", key.key, value.origin);
        }
    }
}

#[test]
fn an_empty_variable_is_ignored() {
    let mut test_env = TestEnv::new();
    test_env.file("project/torc.toml", "[client]\nformat = \"yaml\"\n");
    test_env.variables.insert("TORC_FORMAT".to_owned(), String::new());
    let (layers, _) = test_env.gather(Layers::default()).unwrap();
    assert_eq!(layers.get("client.format").unwrap().text, "yaml");
    let none = EnvCredentials::from(&|_| Some(String::new()));
    assert_eq!((none.token, none.server_file, none.server_certificates), (None, None, None));
}

#[test]
fn defaults_are_stable() {
    let (layers, _) = TestEnv::new().gather(Layers::default()).unwrap();
    let built_in: Vec<(&str, &str)> =
        all().filter_map(|key| Some((key.key, layers.get(key.key)?.text.as_str()))).collect();
    let expected = [
        ("client.format", "table"),
        ("client.ssh", "ssh"),
        ("client.run.output_dir", "torc_output"),
        ("client.run.poll_interval", "5"),
        ("client.slurm.poll_interval", "30"),
        ("client.run.claim_backoff_max_secs", "300"),
        ("client.run.long_poll", "true"),
        ("client.offline.enabled", "true"),
        ("client.offline.drain_ping_interval_secs", "120"),
        ("client.run.persistent", "false"),
        ("client.run.skip_version_check", "false"),
        ("client.run.prefetch", "auto"),
        ("server.bind", "127.0.0.1:7421"),
        ("server.tls", "false"),
        ("server.insecure_http", "false"),
        ("server.runner_token_lifetime", "30d"),
        ("server.max_connections", "4096"),
        ("server.max_jobs", "1000000"),
        ("server.slurm_poll_interval", "15"),
        ("server.kubernetes.pod_namespace", "default"),
        ("server.kubernetes.sources", "false"),
        ("server.kubernetes.cleanup_seconds", "600"),
    ];
    assert_eq!(built_in, expected);
    assert!(built_in.iter().all(|(name, _)| layers.get(name).unwrap().origin == SettingOrigin::BuiltIn));
    let settings = resolve(&layers, EnvCredentials::default()).unwrap();
    assert_eq!((settings.url, settings.backend, settings.namespace), (None, Backend::Store, None));
    assert_eq!(settings.server.runner_token_lifetime, Duration::from_secs(30 * 86_400));
    assert_eq!(settings.server.kubernetes.cleanup_timeout, Duration::from_secs(600));
    assert_eq!(settings.server.slurm_poll_interval, Duration::from_secs(15));
}

/// A unique value for every setting except those of a Kubernetes cluster.
pub const EXAMPLES: [(&str, &str); 60] = [
    ("client.url", "http://h:1/x/"),
    ("client.service", "ns/svc"),
    ("client.token_file", "/token"),
    ("client.ca_cert", "/ca"),
    ("client.certificate_sha256", "abababababababababababababababababababababababababababababababab"),
    ("client.format", "wide"),
    ("client.namespace", "lab"),
    ("client.ssh", "ssh -4"),
    ("client.run.num_cpus", "1"),
    ("client.run.memory", "2m"),
    ("client.run.num_gpus", "3"),
    ("client.run.max_parallel_jobs", "4"),
    ("client.run.output_dir", "/out"),
    ("client.run.poll_interval", "5.5"),
    ("client.slurm.poll_interval", "6"),
    ("client.run.claim_backoff_max_secs", "7"),
    ("client.run.long_poll", "false"),
    ("client.run.labels", "b,a"),
    ("client.run.time_limit", "8s"),
    ("client.run.end_time", "2026-01-01T00:00:09Z"),
    ("client.run.persistent", "true"),
    ("client.run.skip_version_check", "1"),
    ("client.run.prefetch", "on"),
    ("client.run.prefetch_batch_size", "10"),
    ("client.run.prefetch_max_queued", "11"),
    ("client.run.prefetch_refill_threshold", "12"),
    ("client.run.lease_seconds", "13"),
    ("client.offline.enabled", "0"),
    ("client.offline.drain_ping_interval_secs", "14"),
    ("client.offline.wait_for_healthy_database_minutes", "15"),
    ("server.bind", "1.1.1.1:1"),
    ("client.run.bind", "2.2.2.2:2"),
    ("server.advertise", "there"),
    ("server.tls", "true"),
    ("server.tls_cert", "/crt"),
    ("server.tls_key", "/key"),
    ("server.tls_ca", "/tlsca"),
    ("server.runner_token_lifetime", "16s"),
    ("server.insecure_http", "true"),
    ("server.admin_token_file", "/admin"),
    ("server.metrics_token_file", "/metrics"),
    ("server.token_key_file", "/tokenkey"),
    ("server.max_connections", "17"),
    ("server.database", "/db"),
    ("server.slurm_poll_interval", "18"),
    ("server.kubernetes.pod_name", "pod"),
    ("server.kubernetes.pod_namespace", "podns"),
    ("server.kubernetes.lease", "lease"),
    ("server.kubernetes.namespaces", "n1,n2"),
    ("server.kubernetes.sources", "true"),
    ("server.kubernetes.ssh_secrets", "/secrets"),
    ("server.kubernetes.audience", "aud"),
    ("server.kubernetes.runner_accounts", "r/r"),
    ("server.kubernetes.admin_accounts", "a/a"),
    ("server.kubernetes.viewer_account", "view"),
    ("server.kubernetes.editor_account", "edit"),
    ("server.kubernetes.pools", "[]"),
    ("server.kubernetes.working_dir", "/wd"),
    ("server.kubernetes.cleanup_seconds", "19"),
    ("server.max_jobs", "20"),
];

#[test]
fn every_setting_is_read_into_its_field() {
    let mut layers = Layers::default();
    for (key, text) in EXAMPLES {
        let name = all().find(|known| known.key == key).unwrap().key;
        layers.below(name, text.to_owned(), SettingOrigin::Flag);
    }
    let unsaid: Vec<&str> = all().map(|key| key.key).filter(|name| layers.get(name).is_none()).collect();
    assert_eq!(unsaid, ["client.context", "client.kubeconfig"], "a cluster and a server are not named together");
    let path = |text: &str| Some(PathBuf::from(text));
    let seconds = Duration::from_secs;
    let handed = EnvCredentials {
        token: Some("secret".to_owned()),
        server_file: path("/server"),
        server_certificates: path("/certificates"),
        plugin: false,
    };
    let found = resolve(&layers, handed).unwrap();
    let expected = Settings {
        url: Some("http://h:1/x".to_owned()),
        context: None,
        kubeconfig: None,
        layers: layers.clone(),
        token: Some("secret".to_owned()),
        token_file: path("/token"),
        server_file: path("/server"),
        server_certificates: path("/certificates"),
        backend: Backend::Server,
        service: Some("ns/svc".to_owned()),
        server_name: None,
        certificate_sha256: Some(Fingerprint([0xab; 32])),
        ca_cert: path("/ca"),
        format: OutputFormat::Wide,
        namespace: Some("lab".to_owned()),
        ssh: "ssh -4".to_owned(),
        run: RunnerSettings {
            num_cpus: Some(1),
            memory_bytes: Some(2 << 20),
            num_gpus: Some(3),
            max_parallel_jobs: Some(4),
            labels: vec!["a".to_owned(), "b".to_owned()],
            output_dir: "/out".into(),
            time_limit: Some(seconds(8)),
            end_time: Some("2026-01-01T00:00:09Z".parse().unwrap()),
            poll_interval: Duration::from_millis(5_500),
            slurm_poll_interval: seconds(6),
            claim_backoff_max: seconds(7),
            long_poll: false,
            offline_drain: false,
            drain_ping_interval: seconds(14),
            server_retry_window: Some(seconds(900)),
            persistent: true,
            skip_version_check: true,
            prefetch_enabled: Some(true),
            prefetch_batch_size: Some(10),
            prefetch_max_queued: Some(11),
            prefetch_refill_threshold: Some(12),
            lease_seconds: Some(13),
        },
        server: ServerSettings {
            bind: "1.1.1.1:1".to_owned(),
            embedded_bind: Some("2.2.2.2:2".to_owned()),
            advertise: Some("there".to_owned()),
            tls_cert: path("/crt"),
            tls_key: path("/key"),
            tls_ca: path("/tlsca"),
            runner_token_lifetime: seconds(16),
            tls: true,
            insecure_http: true,
            admin_token_file: path("/admin"),
            metrics_token_file: path("/metrics"),
            token_key_file: path("/tokenkey"),
            max_connections: 17,
            database: Some("/db".to_owned()),
            max_jobs: 20,
            slurm_poll_interval: seconds(18),
            kubernetes: found.server.kubernetes.clone(),
        },
    };
    assert_eq!(found, expected);
    let cluster = found.server.kubernetes;
    assert_eq!((cluster.identity.as_str(), cluster.namespace.as_str()), ("pod", "podns"));
    assert_eq!((cluster.lease.as_deref(), cluster.audience.as_deref()), (Some("lease"), Some("aud")));
    assert_eq!((cluster.namespaces, cluster.sources), (vec!["n1".to_owned(), "n2".to_owned()], true));
    assert_eq!((cluster.ssh_secrets, cluster.working_dir.as_str()), (path("/secrets"), "/wd"));
    assert_eq!((cluster.runner_accounts, cluster.admin_accounts), (vec!["r/r".to_owned()], vec!["a/a".to_owned()]));
    assert_eq!((cluster.viewer_account.as_str(), cluster.editor_account.as_str()), ("view", "edit"));
    assert_eq!((cluster.pools.len(), cluster.cleanup_timeout), (0, seconds(19)));
}

#[test]
fn every_flag_sets_its_setting() {
    let pin = "ab".repeat(32);
    let line = format!(
        "torc server --url http://u --token-file t --ca-cert c --certificate-sha256 {pin} --context x --kubeconfig k -o yaml -n ns \
        --num-cpus 1 --memory 2g --num-gpus 3 -j 4 --label b --label a --output-dir o --time-limit 5h --skip-version-check \
        --poll-interval 6.5 --claim-backoff-max-secs 7 --long-poll false --offline-drain true --drain-ping-interval-secs 8 \
        --persistent --prefetch on --prefetch-batch-size 9 --prefetch-max-queued 10 --prefetch-refill-threshold 11 \
        --lease-seconds 12 --bind b --advertise d --tls --tls-cert e --tls-key g --tls-ca h --admin-token-file i \
        --metrics-token-file j --token-key-file l --database m --max-jobs 13"
    );
    let layers = typed(&line);
    let found: Vec<(&str, &str)> = layers.values.iter().map(|(key, value)| (*key, value.text.as_str())).collect();
    let expected = [
        ("client.ca_cert", "c"),
        ("client.certificate_sha256", pin.as_str()),
        ("client.context", "x"),
        ("client.format", "yaml"),
        ("client.kubeconfig", "k"),
        ("client.namespace", "ns"),
        ("client.offline.drain_ping_interval_secs", "8"),
        ("client.offline.enabled", "true"),
        ("client.run.claim_backoff_max_secs", "7"),
        ("client.run.labels", "b,a"),
        ("client.run.lease_seconds", "12"),
        ("client.run.long_poll", "false"),
        ("client.run.max_parallel_jobs", "4"),
        ("client.run.memory", "2g"),
        ("client.run.num_cpus", "1"),
        ("client.run.num_gpus", "3"),
        ("client.run.output_dir", "o"),
        ("client.run.persistent", "true"),
        ("client.run.poll_interval", "6.5"),
        ("client.run.prefetch", "on"),
        ("client.run.prefetch_batch_size", "9"),
        ("client.run.prefetch_max_queued", "10"),
        ("client.run.prefetch_refill_threshold", "11"),
        ("client.run.skip_version_check", "true"),
        ("client.run.time_limit", "5h"),
        ("client.slurm.poll_interval", "6.5"),
        ("client.token_file", "t"),
        ("client.url", "http://u"),
        ("server.admin_token_file", "i"),
        ("server.advertise", "d"),
        ("server.bind", "b"),
        ("server.database", "m"),
        ("server.max_jobs", "13"),
        ("server.metrics_token_file", "j"),
        ("server.tls", "true"),
        ("server.tls_ca", "h"),
        ("server.tls_cert", "e"),
        ("server.tls_key", "g"),
        ("server.token_key_file", "l"),
    ];
    assert_eq!(found, expected);
    let layers = typed("torc apply -f a --bind b --insecure-http --end-time 2026-01-01T00:00:09Z --memory-gb 1.5");
    let found: Vec<(&str, &str)> = layers.values.iter().map(|(key, value)| (*key, value.text.as_str())).collect();
    let expected = [
        ("client.run.bind", "b"),
        ("client.run.end_time", "2026-01-01T00:00:09Z"),
        ("client.run.memory", "1610612736"),
        ("server.insecure_http", "true"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn settings_have_a_minimum() {
    for (key, least) in [
        ("client.run.num_cpus", 1),
        ("client.run.num_gpus", 0),
        ("client.run.max_parallel_jobs", 1),
        ("client.run.prefetch_batch_size", 1),
        ("client.run.prefetch_max_queued", 0),
        ("client.run.prefetch_refill_threshold", 0),
        ("client.run.lease_seconds", 5),
        ("server.max_connections", 1),
        ("server.max_jobs", 1),
    ] {
        let with = |number: i64| {
            let mut layers = Layers::default();
            layers.below(key, number.to_string(), SettingOrigin::Flag);
            resolve(&layers, EnvCredentials::default())
        };
        assert!(with(least).is_ok(), "{key} = {least}");
        let error = with(least - 1).unwrap_err();
        assert!(error.message.contains(&format!("at least {least}")), "{key}: {}", error.message);
    }
}

#[test]
fn a_certificate_needs_its_key() {
    for (key, words) in [("server.tls_cert", "--tls-key"), ("server.tls_key", "--tls-cert")] {
        let mut layers = Layers::default();
        layers.below(key, "/f".to_owned(), SettingOrigin::Flag);
        let error = resolve(&layers, EnvCredentials::default()).unwrap_err();
        assert_eq!(error.kind, crate::error::ExitStatus::Usage);
        assert!(error.message.contains(words), "{}", error.message);
    }
}

#[test]
fn project_files_precede_user_and_system_files() {
    let mut test_env = TestEnv::new();
    let system = test_env.file("etc/torc/config.toml", "");
    let user = test_env.file("home/.config/torc/config.toml", "");
    let above = test_env.file("torc.toml", "");
    let project = test_env.file("project/torc.toml", "");
    let folder = test_env.root.path().join("project/inner");
    let found = |test_env: &TestEnv| {
        let variable = |name: &str| test_env.variables.get(name).cloned();
        let system = test_env.root.path().join("etc");
        config_files(&Environment { variable: &variable, folder: &folder, system: &system })
    };
    assert_eq!(found(&test_env), [project.clone(), user.clone(), system.clone()]);
    std::fs::remove_file(&project).unwrap();
    assert_eq!(found(&test_env), [above, user, system.clone()]);
    test_env.variables.insert("XDG_CONFIG_HOME".to_owned(), String::new());
    assert_eq!(found(&test_env).len(), 3, "an empty variable says nothing");
    test_env.variables.insert("XDG_CONFIG_HOME".to_owned(), test_env.root.path().to_str().unwrap().to_owned());
    assert_eq!(found(&test_env).len(), 2, "there is no file in that folder");
    let table = test_env.file("project/torc.toml", "[client]\nformat = [\"json\"]\n");
    let error = test_env.gather(Layers::default()).unwrap_err();
    assert_eq!(error.message, format!("{}: `client.format` must be one value", table.display()));
    test_env.file("project/torc.toml", "[client.run]\nnum_cpus = 3\nlong_poll = false\npoll_interval = 1.5\n");
    let (layers, _) = test_env.gather(Layers::default()).unwrap();
    let text = |key: &str| layers.get(key).unwrap().text.clone();
    assert_eq!(
        [text("client.run.num_cpus"), text("client.run.long_poll"), text("client.run.poll_interval")],
        ["3", "false", "1.5"]
    );
}

#[test]
fn a_syntax_error_has_line_and_column() {
    for (text, place) in [("x = \n", ":1:"), ("\n\n  x = [\n", ":3:"), ("a = 1\nä = ö\n", ":2:")] {
        let test_env = TestEnv::new();
        let path = test_env.file("project/torc.toml", text);
        let error = test_env.gather(Layers::default()).unwrap_err();
        assert!(error.message.starts_with(&format!("{}{place}", path.display())), "{}", error.message);
    }
}
