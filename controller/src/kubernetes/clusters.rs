//! Slurm clusters as objects: the engine has those that there are, and each says how its Slurm is.

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
use torc_api::error_code::ErrorKind;
use torc_api::API_VERSION;
use torc_api::cluster::{SlurmCluster, SlurmClusterStatus};
use torc_api::document::{Metadata, SlurmClusterDocument};
use torc_core::time::rfc3339;

use super::FIELD_MANAGER;
use super::complaint::{Complaint, explained};
use super::desk::Desk;
use super::patience::patiently;
use super::watch::PAGE;
use crate::clock;
use crate::engine::EngineError;
use report::{is_due, report};

type Guarded = DeserializeGuard<SlurmCluster>;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(2);
/// A Slurm that nothing is asked of otherwise is asked what it has so often.
const GREETING: Duration = Duration::from_secs(300);

/// Looks after them, until `stop`.
pub(super) async fn run(desk: Arc<Desk>, writer: Writer<Guarded>, stop: CancellationToken) {
    let api: Api<Guarded> = Api::all(desk.client.clone());
    let seen = patiently(watcher(api, watcher::Config::default().page_size(PAGE)), |said| {
        tracing::warn!("Slurm clusters are not being watched, so workflows cannot name any: {said}");
    });
    let seen = seen.reflect(writer);
    let mut seen = std::pin::pin!(seen);
    let mut known = Known::default();
    let mut tick = tokio::time::interval(PAUSE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut is_listed = false;
    let mut complaint = Complaint::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            event = seen.next() => match event {
                Some(Ok(watcher::Event::InitDone)) => is_listed = true,
                Some(_) => {}
                None => return,
            },
            _ = tick.tick(), if is_listed => {
                match look(&desk, &mut known).await {
                    Ok(()) => complaint.over(),
                    Err(said) if complaint.is_news(&said) => tracing::warn!("Slurm clusters: {said}"),
                    Err(_) => {}
                }
            }
        }
    }
}

/// What is remembered of each.
#[derive(Default)]
pub(super) struct Known {
    /// The generation that the engine has, by uid.
    applied: BTreeMap<String, i64>,
    greeted: BTreeMap<String, Instant>,
    written: BTreeMap<String, (SlurmClusterStatus, Instant)>,
}

pub(super) async fn look(desk: &Desk, known: &mut Known) -> Result<(), String> {
    if !desk.leadership.is_held() {
        return Ok(());
    }
    let objects: Vec<Arc<Guarded>> = desk.clusters.state();
    let readable: Vec<&SlurmCluster> = objects.iter().filter_map(|object| object.0.as_ref().ok()).collect();
    for cluster in &readable {
        bring_up_to_date(desk, cluster, known).await.map_err(|error| error.to_string())?;
    }
    let names: BTreeSet<&str> =
        objects.iter().filter_map(|object| kube::Resource::meta(&**object).name.as_deref()).collect();
    for stored in desk.engine.clusters().await.map_err(|error| error.to_string())? {
        if !names.contains(stored.name.as_str()) {
            forget(desk, &stored.name).await.map_err(|error| error.to_string())?;
        }
    }
    let mut outcome = Ok(());
    for cluster in readable {
        if let Err(error) = tell(desk, cluster, known).await {
            outcome = Err(format!("a status was not written: {}", explained(&error)));
        }
    }
    outcome
}

async fn bring_up_to_date(desk: &Desk, cluster: &SlurmCluster, known: &mut Known) -> Result<(), EngineError> {
    let (Some(name), Some(uid)) = (cluster.metadata.name.clone(), cluster.metadata.uid.clone()) else { return Ok(()) };
    let generation = cluster.metadata.generation.unwrap_or_default();
    if known.applied.get(&uid) == Some(&generation) {
        return Ok(());
    }
    let document = SlurmClusterDocument {
        api_version: API_VERSION.to_owned(),
        metadata: Metadata { name: name.clone(), ..Metadata::default() },
        spec: cluster.spec.clone(),
    };
    match desk.engine.apply_cluster(document).await {
        Ok(_) => {
            known.greeted.remove(&name);
        }
        Err(error) if error.kind() == ErrorKind::Invalid => tracing::warn!("SlurmCluster '{name}': {error}"),
        Err(error) => return Err(error),
    }
    known.applied.insert(uid, generation);
    Ok(())
}

/// One whose allocations still live is needed to end them.
async fn forget(desk: &Desk, name: &str) -> Result<(), EngineError> {
    match desk.engine.delete_cluster(name).await {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            tracing::debug!("{error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Says how its Slurm is, if that is news.
async fn tell(desk: &Desk, cluster: &SlurmCluster, known: &mut Known) -> kube::Result<()> {
    let (Some(name), Some(uid)) = (cluster.metadata.name.clone(), cluster.metadata.uid.clone()) else { return Ok(()) };
    let Some(slurm) = &desk.slurm else { return Ok(()) };
    if known.greeted.get(&name).is_none_or(|at| at.elapsed() >= GREETING) {
        known.greeted.insert(name.clone(), Instant::now());
        // What comes of it is in what is known of the cluster.
        let _ = slurm.greet(&name).await;
    }
    let found = slurm.clusters().await.unwrap_or_default().into_iter().find(|one| one.name == name);
    let Some(found) = found.and_then(|found| found.status) else { return Ok(()) };
    let before = known.written.get(&uid).map(|(status, _)| status).or(cluster.status.as_ref());
    let now = rfc3339(clock::now().wall_ms);
    let generation = cluster.metadata.generation.unwrap_or_default();
    let said = report(found, before, generation, &now);
    let age = known.written.get(&uid).map(|(_, at)| at.elapsed());
    if !is_due(before, &said, age) || !desk.leadership.is_held() {
        return Ok(());
    }
    let api: Api<SlurmCluster> = Api::all(desk.client.clone());
    let patch = json!({
        "apiVersion": API_VERSION,
        "kind": "SlurmCluster",
        "metadata": {"name": name, "uid": uid},
        "status": said,
    });
    api.patch_status(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&patch)).await?;
    known.written.insert(uid, (said, Instant::now()));
    Ok(())
}
