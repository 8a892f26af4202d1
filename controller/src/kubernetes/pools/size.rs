//! The size of a pool of runner Pods.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use torc_api::quantity::parse_memory;
use torc_core::class::labels_match;
use torc_core::engine::PoolDemand;

/// Default time without work after which a pool gets smaller.
const COOL_DOWN_SECONDS: u32 = 60;

/// A pool, as the chart describes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pool {
    /// The workload that creates its Pods.
    #[serde(flatten)]
    pub target: PoolTarget,
    /// Minimum number of Pods.
    #[serde(default)]
    pub idle: i32,
    /// Maximum number of Pods.
    pub max: i32,
    /// Seconds without work after which the pool gets smaller.
    #[serde(default = "cool_down_seconds")]
    pub cool_down_seconds: u32,
    /// Resource limits of a Pod, in the notation of Kubernetes.
    #[serde(default)]
    pub limits: BTreeMap<String, Value>,
    /// Labels of the runners.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The only workflow that the runners serve, as `name` or `namespace/name`; empty for all.
    #[serde(default)]
    pub workflow: String,
}

const fn cool_down_seconds() -> u32 {
    COOL_DOWN_SECONDS
}

/// The workload that creates the Pods of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PoolTarget {
    /// A Deployment, which removes any of its Pods.
    Deployment(String),
    /// A StatefulSet, which removes the Pod with the highest number first.
    StatefulSet(String),
}

impl PoolTarget {
    pub fn name(&self) -> &str {
        match self {
            Self::Deployment(name) | Self::StatefulSet(name) => name,
        }
    }
}

/// The runners of a pool that have work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BusyRunners {
    pub count: i32,
    /// One more than the highest number of a Pod with work.
    pub up_to: i32,
}

impl BusyRunners {
    /// Counts the Pods of this pool among `hosts`, the hosts of all runners that have work.
    pub fn of<'a>(target: &PoolTarget, hosts: impl Iterator<Item = &'a str>) -> Self {
        let mut busy = Self::default();
        for rest in hosts.filter_map(|host| host.strip_prefix(target.name())?.strip_prefix('-')) {
            busy.count += 1;
            busy.up_to = busy.up_to.max(rest.parse::<i32>().map_or(i32::MAX, |number| number.saturating_add(1)));
        }
        busy
    }
}

/// The input of [`size`].
pub(super) struct Sizing<'a> {
    pub demands: &'a [PoolDemand],
    pub current: i32,
    pub busy: BusyRunners,
    /// The time since a runner of the pool last had work.
    pub idle_time: Duration,
}

/// Returns the number of Pods. A pool grows at once; it gets smaller only where no job is lost.
pub(super) fn size(pool: &Pool, sizing: &Sizing<'_>) -> i32 {
    let wanted = pods_for(pool, sizing.demands).clamp(pool.idle.min(pool.max), pool.max.max(0));
    if wanted >= sizing.current {
        return wanted;
    }
    let least = match pool.target {
        PoolTarget::StatefulSet(_) => sizing.busy.up_to.min(sizing.current),
        PoolTarget::Deployment(_) if sizing.busy.count > 0 => sizing.current,
        PoolTarget::Deployment(_) => 0,
    };
    let cool_down = Duration::from_secs(pool.cool_down_seconds.into());
    let may_shrink = sizing.idle_time >= cool_down || sizing.busy.count > 0;
    if may_shrink { wanted.max(least) } else { sizing.current }
}

/// Returns the number of Pods that run all jobs at once.
fn pods_for(pool: &Pool, demands: &[PoolDemand]) -> i32 {
    let mut thousandths: i64 = 0;
    for demand in demands.iter().filter(|demand| serves(pool, demand)) {
        let at_once = at_once(pool, demand);
        if at_once > 0 {
            thousandths = thousandths.saturating_add(demand.jobs.saturating_mul(1_000) / at_once);
        }
    }
    i32::try_from((thousandths + 999) / 1_000).unwrap_or(i32::MAX)
}

fn serves(pool: &Pool, demand: &PoolDemand) -> bool {
    let name = demand.workflow.rsplit('/').next().unwrap_or_default();
    let is_its = pool.workflow.is_empty() || pool.workflow == demand.workflow || pool.workflow == name;
    is_its && labels_match(&demand.labels, &pool.labels)
}

/// Returns the number of jobs of a demand that a Pod runs at once; 0 if the Pod is too small. A resource without a
/// limit is unlimited.
fn at_once(pool: &Pool, demand: &PoolDemand) -> i64 {
    let needs = &demand.needs;
    let limit =
        |name: &str, parse: fn(&str) -> Option<i64>| pool.limits.get(name).and_then(|value| parse(&text(value)));
    let gpus = ["nvidia.com/gpu", "amd.com/gpu"].iter().find_map(|name| limit(name, whole)).unwrap_or(0);
    let memory = limit("memory", bytes).unwrap_or(i64::MAX);
    let room = |has: i64, each: i64| if each > 0 { has / each } else { i64::MAX };
    let rooms = [
        room(limit("cpu", cpus).unwrap_or(i64::MAX), needs.num_cpus.max(1)),
        room(memory, needs.memory_bytes),
        room(gpus, needs.num_gpus),
    ];
    let smallest = rooms.into_iter().min().unwrap_or(0);
    if needs.num_nodes > 1 { 0 } else { smallest.min(10_000) }
}

/// Returns a quantity as text: in YAML, `4` is a number and `500m` is not.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn whole(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Returns the whole CPUs of `2` or `1500m`, rounded up like the runner does.
fn cpus(text: &str) -> Option<i64> {
    match text.strip_suffix('m') {
        Some(thousandths) => Some((thousandths.parse::<i64>().ok()?.saturating_add(999) / 1_000).max(1)),
        None => text.parse().ok(),
    }
}

/// Returns the bytes of `2Gi`, `500M` or `1073741824`. Units of 1,000 and 1,024 count alike: the difference is less than a Pod.
fn bytes(text: &str) -> Option<i64> {
    text.parse().ok().or_else(|| parse_memory(text).ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use torc_core::expanded::Requirements;

    use super::*;

    fn pool(target: &str) -> Pool {
        serde_json::from_value(json!({
            target: "torc-cpu", "idle": 1, "max": 5, "limits": {"cpu": 4, "memory": "8Gi"}, "labels": ["fast"],
        }))
        .unwrap()
    }

    fn demand(jobs: i64, cpus: i64, memory_gib: i64) -> PoolDemand {
        let needs = Requirements { num_cpus: cpus, memory_bytes: memory_gib << 30, ..Requirements::default() };
        PoolDemand { workflow: "default/w".to_owned(), needs, labels: vec!["fast".to_owned()], jobs }
    }

    #[test]
    fn a_pool_grows_with_the_work_and_not_beyond_its_limit() {
        for (demands, expected) in [
            (vec![], 1),
            (vec![demand(1, 1, 1)], 1),
            (vec![demand(8, 1, 1)], 2),
            (vec![demand(9, 1, 1)], 3),
            (vec![demand(4, 1, 4)], 2),
            (vec![demand(2, 1, 1), demand(1, 2, 1)], 1),
            (vec![demand(1_000_000, 1, 1)], 5),
            (vec![demand(10, 8, 1)], 1),
            (vec![PoolDemand { labels: vec!["gpu".to_owned()], ..demand(10, 1, 1) }], 1),
            // The labels of its runners do not match.
            (vec![PoolDemand { labels: vec![], ..demand(10, 1, 1) }], 1),
        ] {
            let sizing =
                Sizing { demands: &demands, current: 1, busy: BusyRunners::default(), idle_time: Duration::ZERO };
            assert_eq!(size(&pool("deployment"), &sizing), expected, "{demands:?}");
        }
    }

    #[test]
    fn a_part_of_a_cpu_counts_as_the_runner_counts_it() {
        for (text, whole) in [("2", Some(2)), ("1500m", Some(2)), ("1000m", Some(1)), ("10m", Some(1)), ("x", None)] {
            assert_eq!(cpus(text), whole, "{text}");
        }
    }

    #[test]
    fn a_pool_gets_smaller_only_where_nothing_runs() {
        let minute = Duration::from_secs(60);
        for (target, hosts, idle_time, expected) in [
            ("deployment", vec![], Duration::ZERO, 4),
            ("deployment", vec![], minute, 1),
            ("deployment", vec!["torc-cpu-7d9-x2"], minute, 4),
            ("deployment", vec!["other-0"], minute, 1),
            ("statefulSet", vec![], minute, 1),
            ("statefulSet", vec!["torc-cpu-1"], Duration::ZERO, 2),
            ("statefulSet", vec!["torc-cpu-0", "torc-cpu-3"], Duration::ZERO, 4),
            ("statefulSet", vec!["torc-cpu-3", "torc-cpu-0"], Duration::ZERO, 4),
        ] {
            let pool = pool(target);
            let busy = BusyRunners::of(&pool.target, hosts.iter().copied());
            let sizing = Sizing { demands: &[], current: 4, busy, idle_time };
            assert_eq!(size(&pool, &sizing), expected, "{target} {hosts:?}");
        }
        let hasty = Pool { cool_down_seconds: 5, ..pool("deployment") };
        for (seconds, expected) in [(4, 4), (5, 1)] {
            let idle_time = Duration::from_secs(seconds);
            let sizing = Sizing { demands: &[], current: 4, busy: BusyRunners::default(), idle_time };
            assert_eq!(size(&hasty, &sizing), expected, "after {seconds} s");
        }
    }

    #[test]
    fn a_pool_for_one_workflow_and_one_that_scales_to_zero() {
        let mut only = Pool { idle: 0, workflow: "lab/w".to_owned(), ..pool("deployment") };
        let quiet =
            Sizing { demands: &[], current: 2, busy: BusyRunners::default(), idle_time: Duration::from_secs(60) };
        assert_eq!(size(&only, &quiet), 0);
        let demands = [demand(4, 1, 1)];
        let sizing = Sizing { demands: &demands, current: 0, busy: BusyRunners::default(), idle_time: Duration::ZERO };
        assert_eq!(size(&only, &sizing), 0);
        for name in ["w", "default/w"] {
            only.workflow = name.to_owned();
            assert_eq!(size(&only, &sizing), 1, "{name}");
        }
    }

    #[test]
    fn as_many_jobs_at_once_as_a_pod_has_room_for() {
        for (limits, needs, expected) in [
            (json!({"nvidia.com/gpu": 2}), json!({"numGpus": 1}), 2),
            (json!({"amd.com/gpu": "4"}), json!({"numGpus": 2}), 2),
            (json!({"cpu": 4}), json!({"numGpus": 1}), 0),
            (json!({"cpu": "2500m"}), json!({}), 3),
            (json!({"cpu": "500m"}), json!({}), 1),
            (json!({"cpu": "500m"}), json!({"numCpus": 2}), 0),
            (json!({"memory": "1073741824"}), json!({"memoryBytes": 1 << 29}), 2),
            (json!({"cpu": 64}), json!({"numNodes": 2}), 0),
            (json!({}), json!({}), 10_000),
        ] {
            let pool = Pool { limits: serde_json::from_value(limits.clone()).unwrap(), ..pool("deployment") };
            let count = |name: &str, otherwise: i64| needs[name].as_i64().unwrap_or(otherwise);
            let requirements = Requirements {
                num_cpus: count("numCpus", 1),
                memory_bytes: count("memoryBytes", 0),
                num_gpus: count("numGpus", 0),
                num_nodes: count("numNodes", 1),
                ..Requirements::default()
            };
            let demand = PoolDemand { needs: requirements, ..demand(1, 1, 0) };
            assert_eq!(at_once(&pool, &demand), expected, "{limits} {needs}");
        }
    }

    #[test]
    fn a_pool_is_never_beyond_its_limits() {
        for (idle, max, jobs, expected) in
            [(2, 5, 0, 2), (7, 5, 0, 5), (0, 0, 9, 0), (1, -3, 9, 0), (1, 3, 12, 3), (1, 4, 13, 4)]
        {
            let pool = Pool { idle, max, ..pool("deployment") };
            let demands = [demand(jobs, 1, 1)];
            let sizing =
                Sizing { demands: &demands, current: 0, busy: BusyRunners::default(), idle_time: Duration::ZERO };
            assert_eq!(size(&pool, &sizing), expected, "from {idle} to {max} with {jobs} jobs");
        }
    }

    #[test]
    fn a_pool_cools_down_for_a_minute_unless_it_says_otherwise() {
        assert_eq!(pool("deployment").cool_down_seconds, 60);
        let sizing = |seconds, busy| Sizing { demands: &[], current: 4, busy, idle_time: Duration::from_secs(seconds) };
        let busy = BusyRunners { count: 1, up_to: 3 };
        for (target, busy, seconds, expected) in [
            ("deployment", BusyRunners::default(), 59, 4),
            ("deployment", BusyRunners::default(), 60, 1),
            ("statefulSet", BusyRunners::default(), 59, 4),
            ("statefulSet", BusyRunners::default(), 60, 1),
            ("statefulSet", busy, 0, 3),
            ("statefulSet", BusyRunners { count: 1, up_to: 9 }, 0, 4),
            ("deployment", busy, 99, 4),
        ] {
            assert_eq!(size(&pool(target), &sizing(seconds, busy)), expected, "{target} {busy:?} after {seconds} s");
        }
    }

    #[test]
    fn busy_pods_are_those_of_the_pool() {
        let target = PoolTarget::StatefulSet("torc-cpu".to_owned());
        for (hosts, count, up_to) in [
            (vec![], 0, 0),
            (vec!["torc-cpu-0"], 1, 1),
            (vec!["torc-cpu-2", "torc-cpu-1"], 2, 3),
            (vec!["torc-cpu", "torc-cpus-1", "other-5", "xtorc-cpu-4"], 0, 0),
            (vec!["torc-cpu-7d9-x2"], 1, i32::MAX),
        ] {
            assert_eq!(BusyRunners::of(&target, hosts.iter().copied()), BusyRunners { count, up_to }, "{hosts:?}");
        }
    }

    #[test]
    fn demands_add_up_before_they_are_rounded() {
        let pool = Pool { max: 100, ..pool("deployment") };
        for (demands, expected) in [
            (vec![demand(1, 1, 1), demand(1, 1, 1), demand(1, 1, 1), demand(1, 1, 1)], 1),
            (vec![demand(4, 1, 1), demand(1, 1, 1)], 2),
            (vec![demand(3, 3, 1)], 3),
            (vec![demand(1, 1, 8), demand(1, 4, 1)], 2),
            (vec![demand(5, 1, 9)], 0),
        ] {
            assert_eq!(pods_for(&pool, &demands), expected, "{demands:?}");
        }
    }
}
