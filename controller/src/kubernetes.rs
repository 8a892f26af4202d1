//! The controller of custom resources: `kubectl apply` instead of `torc apply`.
//!
//! An object is a document in another place. One pass (`reconcile`) gives the engine what the object says, through the same `apply` as
//! without a cluster, and the object what the engine says. Jobs and their states stay in the store: an object holds the plan, and
//! a status of a few kilobytes.

mod backoff;
mod cleanup;
mod clusters;
mod complaint;
mod definitions;
mod desk;
mod events;
mod leader;
mod lifetime;
mod patience;
mod pools;
mod readiness;
mod reconcile;
mod rejection;
mod reviews;
mod sources;
mod status;
mod strays;
#[cfg(test)]
mod tests;
mod watch;
mod writes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Config};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::engine::EngineHandle;
use crate::slurm::SlurmHandle;
use desk::Desk;

pub(crate) use leader::{Candidate, Office};
pub use pools::Pool;
pub(crate) use readiness::Readiness;
pub(crate) use reviews::{Lists as ReviewLists, Reviews};

/// The field manager of what this controller writes.
const FIELD_MANAGER: &str = "torc-controller";
/// Keeps an object until its allocations are gone.
const FINALIZER: &str = "torc.dev/cleanup";
/// The annotation of a stored document that says which object it is of.
const UID: &str = "torc.dev/uid";
/// The annotation of an object that says in which folder its jobs run.
const WORKING_DIR: &str = "torc.dev/working-dir";

/// How custom resources are looked after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// Who this is: the name of the Pod. No two that live have the same.
    pub identity: String,
    /// The namespace of the lease and of the runner pools.
    pub namespace: String,
    /// The lease that decides who leads; none for a server that is the only one.
    pub lease: Option<String>,
    /// The namespaces whose objects are looked after; all when empty.
    pub namespaces: Vec<String>,
    /// Tables may come from ConfigMaps.
    pub sources: bool,
    /// The folder with a folder for each Secret that has keys for ssh.
    pub ssh_secrets: Option<PathBuf>,
    /// What tokens of service accounts must be meant for; none if they are not accepted.
    pub audience: Option<String>,
    /// Service accounts (`namespace/name`) of runners.
    pub runner_accounts: Vec<String>,
    /// Service accounts (`namespace/name`) of administrators.
    pub admin_accounts: Vec<String>,
    /// The name of the accounts that may read the workflows of their own namespace; none if empty.
    pub viewer_account: String,
    /// The name of the accounts that may also change them.
    pub editor_account: String,
    /// Runner pools whose size follows the work.
    pub pools: Vec<Pool>,
    /// The folder that jobs run in, unless the object says otherwise; where the runner is, when empty.
    pub working_dir: String,
    /// How long allocations of a deleted object are waited for.
    pub cleanup_patience: Duration,
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
    pub office: Office,
    pub readiness: Readiness,
    pub api_url: String,
}

/// Starts looking after objects, until `stop`.
pub(crate) fn start(parts: Parts, config: KubernetesConfig, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
    let Parts { engine, slurm, client, office, readiness, api_url } = parts;
    readiness.lists();
    let watches = watch::Watches::new(&config.namespaces);
    let stores = watches.stores();
    let (clusters, cluster_writer) = kube::runtime::reflector::store();
    let desk = Arc::new(Desk::new(engine, slurm, client, office, config, readiness, api_url, stores, clusters));
    let mut tasks = watches.run(&desk, stop);
    tasks.push(tokio::spawn(clusters::run(Arc::clone(&desk), cluster_writer, stop.clone())));
    tasks.push(tokio::spawn(definitions::run(Arc::clone(&desk), stop.clone())));
    tasks.push(tokio::spawn(events::run(Arc::clone(&desk), stop.clone())));
    tasks.push(tokio::spawn(strays::run(Arc::clone(&desk), stop.clone())));
    if !desk.config.pools.is_empty() {
        tasks.push(tokio::spawn(pools::run(desk, stop.clone())));
    }
    tasks
}
