//! The controller of custom resources: `kubectl apply` instead of `torc apply`.
//!
//! A custom resource holds the same document as a file for `torc apply`. A reconcile passes the document to the engine
//! through the same `apply`, and writes the engine's status to the object. Jobs and their states stay in the store: an
//! object holds the document and a status of a few kilobytes.

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
/// The finalizer that keeps an object until its allocations are gone.
const FINALIZER: &str = "torc.dev/cleanup";
/// The annotation of a stored document with the uid of its object.
const UID: &str = "torc.dev/uid";
/// The annotation of an object with the folder in which its jobs run.
const WORKING_DIR: &str = "torc.dev/working-dir";

torc_api::settings! {
    /// Settings of the controller of custom resources.
    pub struct KubernetesConfig {
        /// The identity of this server in the Lease; must be unique (default: the host name and the process ID).
        "server.kubernetes.pod_name" (variable: Some("POD_NAME"))
        identity: String = parse_trimmed;
        /// The namespace of the lease and of the runner pools.
        "server.kubernetes.pod_namespace" (default: Some("default"), variable: Some("POD_NAMESPACE"))
        namespace: String = parse_trimmed;
        /// The Lease for leader election among several servers (default: none, for a single server).
        "server.kubernetes.lease" ()
        lease: Option<String> = parse_word;
        /// The watched namespaces, separated by commas (default: all).
        "server.kubernetes.namespaces" ()
        namespaces: Vec<String> = parse_words;
        /// Allow workflows to take tables from ConfigMaps (`sources`).
        "server.kubernetes.sources" (default: Some("false"))
        sources: bool = parse_switch;
        /// The folder with a subfolder for each Secret that a SlurmCluster names (`secretName`), with `id_ed25519` and `known_hosts`.
        "server.kubernetes.ssh_secrets" ()
        ssh_secrets: Option<PathBuf> = parse_path;
        /// The required audience of tokens of service accounts (default: no service account is accepted).
        "server.kubernetes.audience" ()
        audience: Option<String> = parse_word;
        /// Service accounts of runners, as `namespace/name`, separated by commas.
        "server.kubernetes.runner_accounts" ()
        runner_accounts: Vec<String> = parse_words;
        /// Service accounts of administrators, as `namespace/name`, separated by commas.
        "server.kubernetes.admin_accounts" ()
        admin_accounts: Vec<String> = parse_words;
        /// The name of service accounts that may read the workflows of their namespace.
        "server.kubernetes.viewer_account" ()
        viewer_account: String = parse_trimmed;
        /// The name of service accounts that may read and change the workflows of their namespace.
        "server.kubernetes.editor_account" ()
        editor_account: String = parse_trimmed;
        /// Autoscaled runner pools, as JSON.
        "server.kubernetes.pools" ()
        pools: Vec<Pool> = parse_pools;
        /// The folder in which jobs run, unless the annotation `torc.dev/working-dir` names another (default: the runner's folder).
        "server.kubernetes.working_dir" ()
        working_dir: String = parse_trimmed;
        /// Seconds to wait for the allocations of a deleted workflow to end.
        "server.kubernetes.cleanup_seconds" (default: Some("600"))
        cleanup_timeout: Duration = parse_seconds;
    }
}

fn parse_pools(text: &str) -> Result<Vec<Pool>, String> {
    serde_json::from_str(text).map_err(|error| format!("is not a list of runner pools: {error}"))
}

/// The error of a process that has no usable configuration of a Kubernetes API.
#[derive(Debug, thiserror::Error)]
#[error("no Kubernetes cluster is configured")]
pub struct NoCluster(#[source] Box<dyn std::error::Error + Send + Sync>);

/// Returns a client for general use, and one for the Lease, which has short timeouts and does not retry.
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

/// The parts of the server that the controller uses.
pub(crate) struct ServerParts {
    pub engine: EngineHandle,
    pub slurm: Option<SlurmHandle>,
    pub client: Client,
    pub leadership: Leadership,
    pub readiness: Readiness,
    pub api_url: String,
}

/// Starts the tasks of the controller, which end at `stop`.
pub(crate) fn start(parts: ServerParts, config: KubernetesConfig, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
    let ServerParts { engine, slurm, client, leadership, readiness, api_url } = parts;
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
