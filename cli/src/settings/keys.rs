//! Every setting once: its key in files, its variable, what is built in, and what it means.

/// A setting.
pub struct Key {
    /// Section and key in configuration files.
    pub name: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// What is built in.
    pub default: Option<&'static str>,
    /// What it means.
    pub doc: &'static str,
}

impl Key {
    /// The variable that Torc 1.0 would have had for it: `TORC_CLIENT__RUN__NUM_CPUS`.
    pub fn variable_by_section(&self) -> String {
        format!("TORC_{}", self.name.replace('.', "__").to_uppercase())
    }
}

/// Names that Torc 1.0's documentation has for settings, and the settings of today: section by section.
pub const OLDER_NAMES: &[(&str, &str)] = &[
    ("client.job_completion_poll_interval", "client.run.poll_interval"),
    ("client.run.job_completion_poll_interval", "client.run.poll_interval"),
    ("client.slurm.job_completion_poll_interval", "client.slurm.poll_interval"),
];

const fn key(name: &'static str, variable: &'static str, default: Option<&'static str>, doc: &'static str) -> Key {
    Key { name, variable, default, doc }
}

/// Every setting.
pub const KEYS: &[Key] = &[
    key(
        "client.url",
        crate::env::API_URL,
        None,
        "The server to talk to, e.g. `http://127.0.0.1:7421`; without it the store of the `.torc` folder here or above.",
    ),
    key(
        "client.context",
        "TORC_CONTEXT",
        None,
        "The context of the kubeconfig whose Kubernetes cluster to talk to; without this and the next one no cluster is meant, whatever kubeconfig there is.",
    ),
    key(
        "client.kubeconfig",
        "TORC_KUBECONFIG",
        None,
        "The kubeconfig (`KUBECONFIG` or `~/.kube/config` when absent and a context is named).",
    ),
    key(
        "client.service",
        "TORC_SERVICE",
        None,
        "The Service of Torc's server in a cluster, as `namespace/name` (looked for when absent).",
    ),
    key("client.token_file", crate::env::TOKEN_FILE, None, "The file that holds the server's token."),
    key(
        "client.ca_cert",
        "TORC_CA_CERT",
        None,
        "A file with certificates in PEM: servers that they vouch for are trusted, and no others (the machine's own when absent).",
    ),
    key(
        "client.certificate_sha256",
        "TORC_CERTIFICATE_SHA256",
        None,
        "The fingerprint of the only certificate that the server may have; a token file of a server with its own certificate holds it, too.",
    ),
    key("client.format", "TORC_FORMAT", Some("table"), "How results are printed: `table`, `wide`, `json` or `yaml`."),
    key(
        "client.namespace",
        "TORC_NAMESPACE",
        None,
        "The namespace of the workflows (that of the kubeconfig's context, else `default`, when absent).",
    ),
    key(
        "client.ssh",
        "TORC_SSH",
        Some("ssh"),
        "The program that `torc remote` reaches workers with, and its first words.",
    ),
    key("client.run.num_cpus", "TORC_RUN_NUM_CPUS", None, "CPUs of the local runner (detected when absent)."),
    key(
        "client.run.memory",
        "TORC_RUN_MEMORY",
        None,
        "Memory of the local runner, e.g. `200g` (detected when absent).",
    ),
    key("client.run.num_gpus", "TORC_RUN_NUM_GPUS", None, "GPUs of the local runner (detected when absent)."),
    key(
        "client.run.max_parallel_jobs",
        "TORC_RUN_MAX_PARALLEL_JOBS",
        None,
        "Run so many jobs at once, whatever they need.",
    ),
    key("client.run.output_dir", "TORC_RUN_OUTPUT_DIR", Some("torc_output"), "Where job logs go."),
    key(
        "client.run.poll_interval",
        "TORC_RUN_POLL_INTERVAL",
        Some("5"),
        "Seconds between two calls of the runner when nothing of it waits on the server, and at most between two attempts to reach it.",
    ),
    key(
        "client.slurm.poll_interval",
        "TORC_SLURM_POLL_INTERVAL",
        Some("30"),
        "The same for a runner in a Slurm allocation.",
    ),
    key(
        "client.run.claim_backoff_max_secs",
        "TORC_RUN_CLAIM_BACKOFF_MAX_SECS",
        Some("300"),
        "While jobs run and nothing else happens the wait between two calls doubles up to so many seconds (and never exceeds a third of the lease).",
    ),
    key(
        "client.run.long_poll",
        "TORC_RUN_LONG_POLL",
        Some("true"),
        "Calls of the runner wait on the server for news; `false` for proxies that cut long requests.",
    ),
    key(
        "client.run.labels",
        "TORC_RUN_LABELS",
        None,
        "Labels of this machine, with commas between them: jobs with labels only run where all of them are.",
    ),
    key("client.run.time_limit", "TORC_RUN_TIME_LIMIT", None, "The local runner leaves after this time, e.g. `4h`."),
    key(
        "client.run.end_time",
        "TORC_RUN_END_TIME",
        None,
        "The local runner leaves at this time, e.g. `2026-11-16T12:00:00Z`; a time limit wins.",
    ),
    key(
        "client.run.persistent",
        "TORC_RUN_PERSISTENT",
        Some("false"),
        "The local runner stays while there may be work to come, however long there is none.",
    ),
    key(
        "client.run.skip_version_check",
        "TORC_RUN_SKIP_VERSION_CHECK",
        Some("false"),
        "A runner works with a server of another version.",
    ),
    key(
        "client.run.prefetch",
        "TORC_RUN_PREFETCH",
        Some("auto"),
        "Lease jobs ahead of free resources: `auto` (as the workflow says), `on` or `off`.",
    ),
    key(
        "client.run.prefetch_batch_size",
        "TORC_RUN_PREFETCH_BATCH_SIZE",
        None,
        "The most jobs leased in one message (the workflow's when absent).",
    ),
    key(
        "client.run.prefetch_max_queued",
        "TORC_RUN_PREFETCH_MAX_QUEUED",
        None,
        "The most jobs that wait in the runner (the workflow's when absent).",
    ),
    key(
        "client.run.prefetch_refill_threshold",
        "TORC_RUN_PREFETCH_REFILL_THRESHOLD",
        None,
        "More jobs are asked for when fewer than these wait (the workflow's when absent).",
    ),
    key(
        "client.run.lease_seconds",
        "TORC_RUN_LEASE_SECONDS",
        None,
        "How long this runner may be silent before its leases go to others (the workflow's when absent).",
    ),
    key(
        "client.offline.enabled",
        "TORC_CLIENT__OFFLINE__ENABLED",
        Some("true"),
        "When the server stays away, running jobs end and their results are kept in a journal; `false`: jobs are ended and the runner leaves.",
    ),
    key(
        "client.offline.drain_ping_interval_secs",
        "TORC_CLIENT__OFFLINE__DRAIN_PING_INTERVAL_SECS",
        Some("120"),
        "Seconds between two looks whether the server is back.",
    ),
    key(
        "client.offline.wait_for_healthy_database_minutes",
        "TORC_CLIENT__OFFLINE__WAIT_FOR_HEALTHY_DATABASE_MINUTES",
        None,
        "Minutes, fractions too, that calls are repeated before that; wins over `compute_node_wait_for_healthy_database_minutes` of the workflows (20 when nobody says).",
    ),
    key(
        "server.bind",
        "TORC_SERVER_BIND",
        Some("127.0.0.1:7421"),
        "Where `torc server` listens; port 0 takes a free one.",
    ),
    key(
        "client.run.bind",
        "TORC_RUN_BIND",
        None,
        "Where the server inside `torc apply` and `torc run` listens (`127.0.0.1:0`; `0.0.0.0:0` for documents that need Slurm).",
    ),
    key(
        "server.advertise",
        "TORC_SERVER_ADVERTISE",
        None,
        "How others reach a server: a URL, a host, or a host with a port (when absent a name of this machine that leads to it, else one of its addresses).",
    ),
    key(
        "server.tls",
        "TORC_SERVER_TLS",
        Some("false"),
        "TLS also where only this machine listens; beyond it TLS is always on.",
    ),
    key(
        "server.tls_cert",
        "TORC_SERVER_TLS_CERT",
        None,
        "The server's certificate in PEM (one of its own when absent).",
    ),
    key("server.tls_key", "TORC_SERVER_TLS_KEY", None, "Its private key in PEM."),
    key(
        "server.tls_ca",
        "TORC_SERVER_TLS_CA",
        None,
        "Certificates in PEM of those who vouch for the server's certificate, or for that of a proxy in front: handed to runners in allocations (which always get the server's own, and those in its file).",
    ),
    key(
        "server.runner_token_lifetime",
        "TORC_SERVER_RUNNER_TOKEN_LIFETIME",
        Some("30d"),
        "How long a token for the runners in allocations is good; after half of it they are handed another one.",
    ),
    key(
        "server.insecure_http",
        "TORC_SERVER_INSECURE_HTTP",
        Some("false"),
        "Plain HTTP beyond this machine, for a proxy in front that speaks TLS.",
    ),
    key(
        "server.admin_token_file",
        "TORC_SERVER_ADMIN_TOKEN_FILE",
        None,
        "A file with the administrators' token (one that the server makes beside the database when absent).",
    ),
    key(
        "server.metrics_token_file",
        "TORC_SERVER_METRICS_TOKEN_FILE",
        None,
        "A file with a token that reads metrics and nothing else.",
    ),
    key(
        "server.token_key_file",
        "TORC_SERVER_TOKEN_KEY_FILE",
        None,
        "The key that signs tokens, at least 32 bytes (one of its own beside the database when absent).",
    ),
    key("server.max_connections", "TORC_SERVER_MAX_CONNECTIONS", Some("4096"), "The most connections at once."),
    key(
        "server.database",
        "TORC_SERVER_DATABASE",
        None,
        "The database of `torc server`: a path or a `sqlite:` URL (`.torc/torc.db` when absent).",
    ),
    key(
        "server.slurm_poll_interval",
        "TORC_SERVER_SLURM_POLL_INTERVAL",
        Some("15"),
        "Seconds between two looks at Slurm while allocations wait or run.",
    ),
    key(
        "server.kubernetes.pod_name",
        "POD_NAME",
        None,
        "Who `torc server --kubernetes` is: unlike any other server that lives (this machine's name and the process when absent).",
    ),
    key(
        "server.kubernetes.pod_namespace",
        "POD_NAMESPACE",
        Some("default"),
        "The namespace of the lease and of the runner pools.",
    ),
    key(
        "server.kubernetes.lease",
        "TORC_KUBERNETES_LEASE",
        None,
        "The Lease that decides which of several servers leads (this is the only one when absent).",
    ),
    key(
        "server.kubernetes.namespaces",
        "TORC_KUBERNETES_NAMESPACES",
        None,
        "The namespaces whose workflows are looked after, with commas between them (all when absent).",
    ),
    key(
        "server.kubernetes.sources",
        "TORC_KUBERNETES_SOURCES",
        Some("false"),
        "Workflows may take tables from ConfigMaps (`sources`).",
    ),
    key(
        "server.kubernetes.ssh_secrets",
        "TORC_KUBERNETES_SSH_SECRETS",
        None,
        "The folder with a folder for each Secret that a SlurmCluster names (`secretName`): `id_ed25519` and `known_hosts`.",
    ),
    key(
        "server.kubernetes.audience",
        "TORC_KUBERNETES_AUDIENCE",
        None,
        "What tokens of service accounts must be meant for (none are accepted when absent).",
    ),
    key(
        "server.kubernetes.runner_accounts",
        "TORC_KUBERNETES_RUNNER_ACCOUNTS",
        None,
        "Service accounts of runners, as `namespace/name`, with commas between them.",
    ),
    key(
        "server.kubernetes.admin_accounts",
        "TORC_KUBERNETES_ADMIN_ACCOUNTS",
        None,
        "Service accounts of administrators, as `namespace/name`, with commas between them.",
    ),
    key(
        "server.kubernetes.viewer_account",
        "TORC_KUBERNETES_VIEWER_ACCOUNT",
        None,
        "The name of service accounts that may read the workflows of the namespace that they are in.",
    ),
    key(
        "server.kubernetes.editor_account",
        "TORC_KUBERNETES_EDITOR_ACCOUNT",
        None,
        "The name of service accounts that may also change the workflows of the namespace that they are in.",
    ),
    key("server.kubernetes.pools", "TORC_KUBERNETES_POOLS", None, "Runner pools whose size follows the work, as JSON."),
    key(
        "server.kubernetes.working_dir",
        "TORC_KUBERNETES_WORKING_DIR",
        None,
        "The folder that jobs run in, unless a workflow's annotation `torc.dev/working-dir` says otherwise (the runner's when absent).",
    ),
    key(
        "server.kubernetes.cleanup_seconds",
        "TORC_KUBERNETES_CLEANUP_SECONDS",
        Some("600"),
        "How long the allocations of a deleted workflow are waited for.",
    ),
    key("server.max_jobs", "TORC_SERVER_MAX_JOBS", Some("1000000"), "The most jobs that one workflow may come to."),
];
