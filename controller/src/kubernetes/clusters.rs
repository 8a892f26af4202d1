//! SlurmCluster objects: applies them to the engine and reports the state of each Slurm.

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{Api, Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, watcher};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use torc_api::API_VERSION;
use torc_api::cluster::{SlurmCluster, SlurmClusterStatus};
use torc_api::document::{Metadata, SlurmClusterDocument};
use torc_api::error_code::ErrorKind;
use torc_core::time::rfc3339;

use super::FIELD_MANAGER;
use super::context::Context;
use super::log_once::{LogOnce, explained};
use super::watch::PAGE;
use super::watch_backoff::with_backoff;
use crate::clock;
use crate::engine::EngineError;
use report::{is_due, report};

type GuardedCluster = DeserializeGuard<SlurmCluster>;

/// Interval between reconciles of all SlurmCluster objects.
const CLUSTERS_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between queries of a Slurm without allocations.
const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(300);

/// Reconciles the objects, until `stop`.
pub(super) async fn run(context: Arc<Context>, writer: Writer<GuardedCluster>, stop: CancellationToken) {
    let api: Api<GuardedCluster> = Api::all(context.client.clone());
    let seen = with_backoff(watcher(api, watcher::Config::default().page_size(PAGE)), |said| {
        tracing::warn!(error = said, "Slurm clusters cannot be watched");
    });
    let seen = seen.reflect(writer);
    let mut seen = std::pin::pin!(seen);
    let mut states = ClusterStates::default();
    let mut tick = tokio::time::interval(CLUSTERS_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut is_listed = false;
    let mut log_once = LogOnce::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            event = seen.next() => match event {
                Some(Ok(watcher::Event::InitDone)) => is_listed = true,
                Some(_) => {}
                None => return,
            },
            _ = tick.tick(), if is_listed => {
                match poll_clusters(&context, &mut states).await {
                    Ok(()) => log_once.reset(),
                    Err(said) if log_once.should_log(&said) => tracing::warn!(error = said, "Slurm clusters were not reconciled"),
                    Err(_) => {}
                }
            }
        }
    }
}

/// State that the controller keeps of the SlurmCluster objects between reconciles.
#[derive(Default)]
pub(super) struct ClusterStates {
    /// The generation that the engine has, by uid.
    applied: BTreeMap<String, i64>,
    last_probes: BTreeMap<String, Instant>,
    written: BTreeMap<String, (SlurmClusterStatus, Instant)>,
}

pub(super) async fn poll_clusters(context: &Context, states: &mut ClusterStates) -> Result<(), String> {
    if !context.leadership.is_held() {
        return Ok(());
    }
    let objects: Vec<Arc<GuardedCluster>> = context.clusters.state();
    let readable: Vec<&SlurmCluster> = objects.iter().filter_map(|object| object.0.as_ref().ok()).collect();
    for cluster in &readable {
        apply_if_newer(context, cluster, states).await.map_err(|error| error.to_string())?;
    }
    let names: BTreeSet<&str> =
        objects.iter().filter_map(|object| kube::Resource::meta(&**object).name.as_deref()).collect();
    for stored in context.engine.clusters().await.map_err(|error| error.to_string())? {
        if !names.contains(stored.name.as_str()) {
            forget(context, &stored.name).await.map_err(|error| error.to_string())?;
        }
    }
    let mut outcome = Ok(());
    for cluster in readable {
        if let Err(error) = report_status(context, cluster, states).await {
            outcome = Err(format!("a status was not written: {}", explained(&error)));
        }
    }
    outcome
}

async fn apply_if_newer(
    context: &Context,
    cluster: &SlurmCluster,
    states: &mut ClusterStates,
) -> Result<(), EngineError> {
    let (Some(name), Some(uid)) = (cluster.metadata.name.clone(), cluster.metadata.uid.clone()) else { return Ok(()) };
    let generation = cluster.metadata.generation.unwrap_or_default();
    if states.applied.get(&uid) == Some(&generation) {
        return Ok(());
    }
    let document = SlurmClusterDocument {
        api_version: API_VERSION.to_owned(),
        metadata: Metadata { name: name.clone(), ..Metadata::default() },
        spec: cluster.spec.clone(),
    };
    match context.engine.apply_cluster(document).await {
        Ok(_) => {
            states.last_probes.remove(&name);
        }
        Err(error) if error.kind() == ErrorKind::Invalid => {
            tracing::warn!(cluster = name, %error, "Slurm cluster is invalid")
        }
        Err(error) => return Err(error),
    }
    states.applied.insert(uid, generation);
    Ok(())
}

/// Deletes a cluster, unless its allocations have not ended: the cluster is needed to cancel them.
async fn forget(context: &Context, name: &str) -> Result<(), EngineError> {
    match context.engine.delete_cluster(name).await {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            tracing::debug!(%error, "Slurm cluster stays until its allocations have ended");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Reports the state of a Slurm if it has changed.
async fn report_status(context: &Context, cluster: &SlurmCluster, states: &mut ClusterStates) -> kube::Result<()> {
    let (Some(name), Some(uid)) = (cluster.metadata.name.clone(), cluster.metadata.uid.clone()) else { return Ok(()) };
    let Some(slurm) = &context.slurm else { return Ok(()) };
    if states.last_probes.get(&name).is_none_or(|at| at.elapsed() >= IDLE_PROBE_INTERVAL) {
        states.last_probes.insert(name.clone(), Instant::now());
        // The result is in the state of the cluster.
        let _ = slurm.probe(&name).await;
    }
    let found = slurm.clusters().await.unwrap_or_default().into_iter().find(|one| one.name == name);
    let Some(found) = found.and_then(|found| found.status) else { return Ok(()) };
    let before = states.written.get(&uid).map(|(status, _)| status).or(cluster.status.as_ref());
    let now = rfc3339(clock::now().wall_ms);
    let generation = cluster.metadata.generation.unwrap_or_default();
    let said = report(found, before, generation, &now);
    let age = states.written.get(&uid).map(|(_, at)| at.elapsed());
    if !is_due(before, &said, age) || !context.leadership.is_held() {
        return Ok(());
    }
    let api: Api<SlurmCluster> = Api::all(context.client.clone());
    let patch = json!({
        "apiVersion": API_VERSION,
        "kind": "SlurmCluster",
        "metadata": {"name": name, "uid": uid},
        "status": said,
    });
    api.patch_status(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&patch)).await?;
    states.written.insert(uid, (said, Instant::now()));
    Ok(())
}
