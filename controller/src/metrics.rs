//! Counters and durations of one server, in the OpenMetrics text format.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use torc_api::api::Workflow;
use torc_api::state::JobState;
use torc_slurm::call::Tool;

/// The media type of [`Metrics::render`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the buckets of durations, in seconds: a commit takes milliseconds, a long poll up to a minute.
const SECONDS: [f64; 14] = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0];

/// A reconcile loop whose passes are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Reconciler {
    /// The controller of `Workflow` objects, one object at a time.
    Workflow,
    /// The Slurm loop, one tick for all allocations.
    Allocation,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcilerLabel {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommandLabel {
    command: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

fn histograms<L: Clone + Eq + std::hash::Hash>() -> Histograms<L> {
    Family::new_with_constructor(histogram)
}

/// Metrics of one server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    commands: Counter,
    commits: Counter,
    commit_duration: Histogram,
    write_failures: Counter,
    syncs: Counter,
    sync_duration: Histogram,
    reports: Counter,
    results: Counter,
    status_writes: Counter,
    request_duration: Histograms<RequestLabels>,
    reconcile_duration: Histograms<ReconcilerLabel>,
    slurm_calls: Family<CommandLabel, Counter>,
    slurm_call_duration: Histograms<CommandLabel>,
    runners: Gauge,
    jobs: Family<StateLabel, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let mut list = Register(&mut registry);
        let metrics = Self {
            commands: list.add("torc_commands", "Commands taken from the queue", Counter::default()),
            commits: list.add("torc_commits", "Groups of changes written", Counter::default()),
            commit_duration: list.add(
                "torc_commit_duration_seconds",
                "Time to write one group of changes",
                histogram(),
            ),
            write_failures: list.add("torc_write_failures", "Groups that could not be written", Counter::default()),
            syncs: list.add("torc_syncs", "Messages of runners", Counter::default()),
            sync_duration: list.add(
                "torc_sync_duration_seconds",
                "Time that the writer spends on one message of a runner",
                histogram(),
            ),
            reports: list.add("torc_reports", "Attempts reported as ended", Counter::default()),
            results: list.add("torc_results", "Results written", Counter::default()),
            status_writes: list.add(
                "torc_kubernetes_status_writes",
                "Statuses of custom resources written",
                Counter::default(),
            ),
            request_duration: list.add(
                "torc_http_request_duration_seconds",
                "Time to answer a request; long polls include the time that they wait",
                histograms(),
            ),
            reconcile_duration: list.add(
                "torc_reconcile_duration_seconds",
                "Time of one pass of a reconcile loop",
                histograms(),
            ),
            slurm_calls: list.add("torc_slurm_calls", "Calls of Slurm's programs", Family::default()),
            slurm_call_duration: list.add(
                "torc_slurm_call_duration_seconds",
                "Time of one call of a Slurm program",
                histograms(),
            ),
            runners: list.add("torc_runners", "Runners that have not left", Gauge::default()),
            jobs: list.add("torc_jobs", "Jobs by state", Family::default()),
            registry,
        };
        for tool in Tool::ALL {
            let _ = metrics.slurm_calls.get_or_create(&CommandLabel { command: tool.name() });
        }
        metrics
    }
}

struct Register<'a>(&'a mut Registry);

impl Register<'_> {
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }
}

impl Metrics {
    pub(crate) fn commands(&self, count: usize) {
        self.commands.inc_by(count as u64);
    }

    pub(crate) fn sync(&self, took: Duration, reported: usize) {
        self.syncs.inc();
        self.sync_duration.observe(took.as_secs_f64());
        self.reports.inc_by(reported as u64);
    }

    pub(crate) fn commit(&self, took: Duration, results: usize) {
        self.commits.inc();
        self.commit_duration.observe(took.as_secs_f64());
        self.results.inc_by(results as u64);
    }

    pub(crate) fn write_failed(&self) {
        self.write_failures.inc();
    }

    pub(crate) fn status_written(&self) {
        self.status_writes.inc();
    }

    pub(crate) fn request(&self, method: &'static str, route: &'static str, code: u16, took: Duration) {
        self.request_duration.get_or_create(&RequestLabels { method, route, code }).observe(took.as_secs_f64());
    }

    pub(crate) fn reconciled(&self, reconciler: Reconciler, took: Duration) {
        let label = ReconcilerLabel { controller: reconciler.into() };
        self.reconcile_duration.get_or_create(&label).observe(took.as_secs_f64());
    }

    pub(crate) fn slurm_call(&self, tool: Tool, took: Duration) {
        // Only programs of Slurm are counted.
        if Tool::ALL.contains(&tool) {
            let label = CommandLabel { command: tool.name() };
            self.slurm_calls.get_or_create(&label).inc();
            self.slurm_call_duration.get_or_create(&label).observe(took.as_secs_f64());
        }
    }

    /// Returns all metrics as text.
    pub(crate) fn render(&self, workflows: &[Workflow], runners: usize) -> String {
        self.runners.set(i64::try_from(runners).unwrap_or(i64::MAX));
        for state in JobState::ALL.iter().copied() {
            let jobs = workflows.iter().map(|workflow| workflow.status.jobs.of(state)).sum();
            self.jobs.get_or_create(&StateLabel { state: state.as_str() }).set(jobs);
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn workflow(jobs: &[(&str, i64)]) -> Workflow {
        let mut workflow: Workflow = serde_json::from_value(json!({
            "id": 1, "name": "w", "namespace": "default", "owner": "", "generation": 1, "creationTime": "",
            "workingDir": "", "suspended": false, "canceled": false, "status": {},
        }))
        .unwrap();
        let jobs: serde_json::Map<String, serde_json::Value> =
            jobs.iter().map(|(state, count)| ((*state).to_owned(), json!(count))).collect();
        workflow.status.jobs = serde_json::from_value(jobs.into()).unwrap();
        workflow
    }

    #[test]
    fn each_number_is_shown_under_its_own_name() {
        let metrics = Metrics::default();
        metrics.commands(11);
        metrics.commands(2);
        for reported in [5, 2, 0] {
            metrics.sync(Duration::from_millis(2), reported);
        }
        metrics.commit(Duration::from_micros(1_500_007), 21);
        metrics.commit(Duration::from_micros(2_000_000), 20);
        for _ in 0..17 {
            metrics.write_failed();
        }
        for _ in 0..19 {
            metrics.status_written();
        }
        for (index, tool) in Tool::ALL.into_iter().enumerate() {
            for _ in 0..=index {
                metrics.slurm_call(tool, Duration::from_secs(3));
            }
        }
        metrics.slurm_call(Tool::Shell, Duration::from_secs(3));
        for (code, millis) in [(200, 4), (200, 40), (404, 400)] {
            metrics.request("GET", "/v1/workflows/{workflow}", code, Duration::from_millis(millis));
        }
        metrics.reconciled(Reconciler::Workflow, Duration::from_millis(20));
        metrics.reconciled(Reconciler::Allocation, Duration::from_millis(30));
        let jobs = [
            ("uninitialized", 101),
            ("blocked", 102),
            ("ready", 103),
            ("leased", 104),
            ("running", 105),
            ("completed", 106),
            ("failed", 107),
            ("canceled", 108),
            ("terminated", 109),
            ("disabled", 110),
            ("pendingFailed", 111),
        ];
        let text = metrics.render(&[workflow(&jobs), workflow(&[("ready", 1_000)])], 23);
        for line in [
            "torc_commands_total 13",
            "torc_commits_total 2",
            "torc_commit_duration_seconds_sum 3.500007",
            "torc_commit_duration_seconds_count 2",
            "torc_commit_duration_seconds_bucket{le=\"1.0\"} 0",
            "torc_commit_duration_seconds_bucket{le=\"2.5\"} 2",
            "torc_write_failures_total 17",
            "torc_syncs_total 3",
            "torc_sync_duration_seconds_count 3",
            "torc_reports_total 7",
            "torc_results_total 41",
            "torc_kubernetes_status_writes_total 19",
            "torc_http_request_duration_seconds_count{method=\"GET\",route=\"/v1/workflows/{workflow}\",code=\"200\"} 2",
            "torc_http_request_duration_seconds_count{method=\"GET\",route=\"/v1/workflows/{workflow}\",code=\"404\"} 1",
            "torc_reconcile_duration_seconds_sum{controller=\"workflow\"} 0.02",
            "torc_reconcile_duration_seconds_sum{controller=\"allocation\"} 0.03",
            "torc_runners 23",
            "torc_slurm_calls_total{command=\"srun\"} 1",
            "torc_slurm_calls_total{command=\"sacct\"} 2",
            "torc_slurm_calls_total{command=\"sstat\"} 3",
            "torc_slurm_calls_total{command=\"squeue\"} 4",
            "torc_slurm_calls_total{command=\"sbatch\"} 5",
            "torc_slurm_calls_total{command=\"scancel\"} 6",
            "torc_slurm_calls_total{command=\"sinfo\"} 7",
            "torc_slurm_calls_total{command=\"scontrol\"} 8",
            "torc_slurm_call_duration_seconds_count{command=\"squeue\"} 4",
            "torc_jobs{state=\"ready\"} 1103",
            "torc_jobs{state=\"completed\"} 106",
            "torc_jobs{state=\"failed\"} 107",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!((count("torc_slurm_calls_total{"), count("torc_jobs{")), (Tool::ALL.len(), JobState::ALL.len()));
    }

    /// Returns metrics with at least one value under each name.
    fn with_values() -> Metrics {
        let metrics = Metrics::default();
        metrics.request("GET", "/v1/workflows", 200, Duration::from_millis(1));
        metrics.reconciled(Reconciler::Workflow, Duration::from_millis(1));
        metrics.slurm_call(Tool::Squeue, Duration::from_millis(1));
        metrics
    }

    #[test]
    fn every_name_has_a_type_and_a_description() {
        let text = with_values().render(&[], 0);
        let types: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let expected = [
            "torc_commands counter",
            "torc_commits counter",
            "torc_commit_duration_seconds histogram",
            "torc_write_failures counter",
            "torc_syncs counter",
            "torc_sync_duration_seconds histogram",
            "torc_reports counter",
            "torc_results counter",
            "torc_kubernetes_status_writes counter",
            "torc_http_request_duration_seconds histogram",
            "torc_reconcile_duration_seconds histogram",
            "torc_slurm_calls counter",
            "torc_slurm_call_duration_seconds histogram",
            "torc_runners gauge",
            "torc_jobs gauge",
        ];
        assert_eq!(types, expected);
        assert_eq!(text.lines().filter(|line| line.starts_with("# HELP ")).count(), expected.len());
    }

    #[test]
    fn every_metric_is_in_the_reference() {
        let page = include_str!("../../docs/reference/metrics.md");
        let text = with_values().render(&[], 0);
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            let suffix = if kind == "counter" { "_total" } else { "" };
            let row = format!("| `{name}{suffix}` | {kind} |");
            assert!(page.contains(&row), "{row} is not in docs/reference/metrics.md");
        }
    }
}
