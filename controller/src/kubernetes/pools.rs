//! Autoscaling of pools of runner Pods.

mod size;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use torc_api::api::Runner;

use super::context::Context;
use super::log_once::{LogOnce, explained};
use size::{BusyRunners, Sizing, size};
pub use size::{Pool, PoolTarget};

/// Interval between adjustments of the sizes of all pools.
const POOL_SIZE_INTERVAL: Duration = Duration::from_secs(5);

/// Adjusts the pools, until `stop`.
pub(super) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let mut quiet = HashMap::new();
    let mut log_once_by_pool: HashMap<&str, LogOnce> = HashMap::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POOL_SIZE_INTERVAL) => {}
        }
        if !context.leadership.is_held() {
            continue;
        }
        for pool in &context.config.pools {
            let name = pool.target.name();
            let log_once = log_once_by_pool.entry(name).or_default();
            match adjust(&context, pool, &mut quiet).await {
                Ok(()) => log_once.reset(),
                Err(said) if log_once.should_log(&said) => {
                    tracing::warn!(pool = name, error = said, "runner pool was not scaled");
                }
                Err(_) => {}
            }
        }
    }
}

/// Scales a pool to the work that it could do.
pub(super) async fn adjust(context: &Context, pool: &Pool, quiet: &mut HashMap<String, Instant>) -> Result<(), String> {
    let demands = context.engine.demands().await.map_err(|error| error.to_string())?;
    let runners = context.engine.runners(false).await.map_err(|error| error.to_string())?;
    let busy = BusyRunners::of(&pool.target, runners.iter().filter(|one| holds(one)).map(|one| one.host.as_str()));
    let name = pool.target.name();
    let now = Instant::now();
    let idle_time = match busy.count {
        0 => now.duration_since(*quiet.entry(name.to_owned()).or_insert(now)),
        _ => {
            quiet.remove(name);
            Duration::ZERO
        }
    };
    let current = current(context, pool).await.map_err(|error| explained(&error))?;
    let wanted = size(pool, &Sizing { demands: &demands, current, busy, idle_time });
    if wanted != current {
        tracing::info!(pool = name, current, wanted, "runner pool scaled");
        set(context, pool, wanted).await.map_err(|error| explained(&error))?;
    }
    Ok(())
}

fn holds(runner: &Runner) -> bool {
    runner.running + runner.queued > 0
}

async fn current(context: &Context, pool: &Pool) -> kube::Result<i32> {
    let (client, namespace) = (context.client.clone(), &context.config.namespace);
    let scale = match &pool.target {
        PoolTarget::Deployment(name) => Api::<Deployment>::namespaced(client, namespace).get_scale(name).await?,
        PoolTarget::StatefulSet(name) => Api::<StatefulSet>::namespaced(client, namespace).get_scale(name).await?,
    };
    Ok(scale.spec.and_then(|spec| spec.replicas).unwrap_or_default())
}

async fn set(context: &Context, pool: &Pool, replicas: i32) -> kube::Result<()> {
    let (client, namespace) = (context.client.clone(), &context.config.namespace);
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let parameters = PatchParams::default();
    match &pool.target {
        PoolTarget::Deployment(name) => {
            Api::<Deployment>::namespaced(client, namespace).patch_scale(name, &parameters, &patch).await?
        }
        PoolTarget::StatefulSet(name) => {
            Api::<StatefulSet>::namespaced(client, namespace).patch_scale(name, &parameters, &patch).await?
        }
    };
    Ok(())
}
