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
    key("client.token_file", crate::env::TOKEN_FILE, None, "The file that holds the server's token."),
    key("client.format", "TORC_FORMAT", Some("table"), "How results are printed: `table`, `wide`, `json` or `yaml`."),
    key("client.namespace", "TORC_NAMESPACE", None, "The namespace of the workflows (`default` when absent)."),
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
        "Seconds between two looks of the local runner when nothing is waited for.",
    ),
    key(
        "server.bind",
        "TORC_SERVER_BIND",
        Some("127.0.0.1:7421"),
        "Where `torc server` listens; port 0 takes a free one.",
    ),
    key(
        "server.database",
        "TORC_SERVER_DATABASE",
        None,
        "The database of `torc server`: a path or a `sqlite:` URL (`.torc/torc.db` when absent).",
    ),
    key("server.max_jobs", "TORC_SERVER_MAX_JOBS", Some("1000000"), "The most jobs that one workflow may come to."),
];
