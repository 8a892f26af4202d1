//! The controller of custom resources: `kubectl apply` instead of `torc apply`.
//!
//! An object is a document in another place. One pass (`reconcile`) gives the engine what the object says, through the same `apply` as
//! without a cluster, and the object what the engine says. Jobs and their states stay in the store: an object holds the plan, and
//! a status of a few kilobytes.

mod backoff;
mod cleanup;
mod clusters;
mod context;
mod definitions;
mod events;
mod leader;
mod log_once;
mod orphans;
mod pools;
mod readiness;
mod reconcile;
mod rejection;
mod sources;
mod status;
mod status_throttle;
mod status_writer;
#[cfg(test)]
mod tests;
mod token_review;
mod ttl;
mod watch;
mod watch_backoff;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Config};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use torc_api::setting::{parse_path, parse_seconds, parse_switch, parse_trimmed, parse_word, parse_words};

pub(crate) use self::events::kubernetes_reason;
use crate::engine::EngineHandle;
use crate::leadership::Leadership;
use crate::slurm::SlurmHandle;
use context::Context;

pub(crate) use leader::Candidate;
pub use pools::Pool;
pub(crate) use readiness::Readiness;
pub(crate) use token_review::{Lists as ReviewLists, Reviews};

/// The field manager of what this controller writes.
const FIELD_MANAGER: &str = "torc-controller";
/// Keeps an object until its allocations are gone.
const FINALIZER: &str = "torc.dev/cleanup";
/// The annotation of a stored document that says which object it is of.
const UID: &str = "torc.dev/uid";
/// The annotation of an object that says in which folder its jobs run.
const WORKING_DIR: &str = "torc.dev/working-dir";

torc_api::settings! {
    /// How custom resources are looked after.
    pub struct KubernetesConfig {
        /// Who `torc server --kubernetes` is: unlike any other server that lives (this machine's name and the process when absent).
        "server.kubernetes.pod_name" (variable: Some("POD_NAME"))
        identity: String = parse_trimmed;
        /// The namespace of the lease and of the runner pools.
        "server.kubernetes.pod_namespace" (default: Some("default"), variable: Some("POD_NAMESPACE"))
        namespace: String = parse_trimmed;
        /// The Lease that decides which of several servers leads (this is the only one when absent).
        "server.kubernetes.lease" ()
        lease: Option<String> = parse_word;
        /// The namespaces whose workflows are looked after, with commas between them (all when absent).
        "server.kubernetes.namespaces" ()
        namespaces: Vec<String> = parse_words;
        /// Workflows may take tables from ConfigMaps (`sources`).
        "server.kubernetes.sources" (default: Some("false"))
        sources: bool = parse_switch;
        /// The folder with a folder for each Secret that a SlurmCluster names (`secretName`): `id_ed25519` and `known_hosts`.
        "server.kubernetes.ssh_secrets" ()
        ssh_secrets: Option<PathBuf> = parse_path;
        /// What tokens of service accounts must be meant for (none are accepted when absent).
        "server.kubernetes.audience" ()
        audience: Option<String> = parse_word;
        /// Service accounts of runners, as `namespace/name`, with commas between them.
        "server.kubernetes.runner_accounts" ()
        runner_accounts: Vec<String> = parse_words;
        /// Service accounts of administrators, as `namespace/name`, with commas between them.
        "server.kubernetes.admin_accounts" ()
        admin_accounts: Vec<String> = parse_words;
        /// The name of service accounts that may read the workflows of the namespace that they are in.
        "server.kubernetes.viewer_account" ()
        viewer_account: String = parse_trimmed;
        /// The name of service accounts that may also change the workflows of the namespace that they are in.
        "server.kubernetes.editor_account" ()
        editor_account: String = parse_trimmed;
        /// Runner pools whose size follows the work, as JSON.
        "server.kubernetes.pools" ()
        pools: Vec<Pool> = parse_pools;
        /// The folder that jobs run in, unless a workflow's annotation `torc.dev/working-dir` says otherwise (the runner's when absent).
        "server.kubernetes.working_dir" ()
        working_dir: String = parse_trimmed;
        /// How long the allocations of a deleted workflow are waited for.
        "server.kubernetes.cleanup_seconds" (default: Some("600"))
        cleanup_patience: Duration = parse_seconds;
    }
}

fn parse_pools(text: &str) -> Result<Vec<Pool>, String> {
    serde_json::from_str(text).map_err(|error| format!("is no list of runner pools: {error}"))
}

/// Why Kubernetes cannot be reached at all.
#[derive(Debug, thiserror::Error)]
#[error("there is no way to a Kubernetes cluster")]
pub struct NoCluster(#[source] Box<dyn std::error::Error + Send + Sync>);

/// A client for everything, and one that never repeats a call, for the lease.
pub(crate) async fn clients() -> Result<(Client, Client), NoCluster> {
    let config = Config::infer().await.map_err(|error| NoCluster(error.into()))?;
    let mut impatient = config.clone();
    impatient.default_retry = false;
    impatient.connect_timeout = Some(Duration::from_secs(3));
    impatient.read_timeout = Some(Duration::from_secs(4));
    impatient.write_timeout = Some(Duration::from_secs(4));
    let client = Client::try_from(config).map_err(|error| NoCluster(error.into()))?;
    Ok((client, Client::try_from(impatient).map_err(|error| NoCluster(error.into()))?))
}

/// What the controller needs of the server that it is part of.
pub(crate) struct Parts {
    pub engine: EngineHandle,
    pub slurm: Option<SlurmHandle>,
    pub client: Client,
    pub leadership: Leadership,
    pub readiness: Readiness,
    pub api_url: String,
}

/// Starts looking after objects, until `stop`.
pub(crate) fn start(parts: Parts, config: KubernetesConfig, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
    let Parts { engine, slurm, client, leadership, readiness, api_url } = parts;
    readiness.lists();
    let watches = watch::Watches::new(&config.namespaces);
    let stores = watches.stores();
    let (clusters, cluster_writer) = kube::runtime::reflector::store();
    let context =
        Arc::new(Context::new(engine, slurm, client, leadership, config, readiness, api_url, stores, clusters));
    let mut tasks = watches.run(&context, stop);
    tasks.push(tokio::spawn(clusters::run(Arc::clone(&context), cluster_writer, stop.clone())));
    tasks.push(tokio::spawn(definitions::run(Arc::clone(&context), stop.clone())));
    tasks.push(tokio::spawn(events::run(Arc::clone(&context), stop.clone())));
    tasks.push(tokio::spawn(orphans::run(Arc::clone(&context), stop.clone())));
    if !context.config.pools.is_empty() {
        tasks.push(tokio::spawn(pools::run(context, stop.clone())));
    }
    tasks
}
