//! What the server counts about itself, in Prometheus' text format.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use torc_api::api::Workflow;
use torc_api::state::JobState;
use torc_slurm::call::Tool;

/// Counters of one server.
#[derive(Debug, Default)]
pub struct Metrics {
    commands: AtomicU64,
    groups: AtomicU64,
    syncs: AtomicU64,
    reported: AtomicU64,
    results: AtomicU64,
    commit_micros: AtomicU64,
    write_failures: AtomicU64,
    /// Statuses of custom resources.
    statuses: AtomicU64,
    /// Calls of Slurm's programs, in the order of [`Tool::ALL`].
    slurm_calls: [AtomicU64; Tool::ALL.len()],
}

impl Metrics {
    pub(crate) fn commands(&self, count: usize) {
        self.commands.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn sync(&self, reported: usize) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.reported.fetch_add(reported as u64, Ordering::Relaxed);
    }

    pub(crate) fn commit(&self, took: Duration, results: usize) {
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.results.fetch_add(results as u64, Ordering::Relaxed);
        self.commit_micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    pub(crate) fn write_failed(&self) {
        self.write_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn status_written(&self) {
        self.statuses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn slurm_call(&self, tool: Tool) {
        let slot = Tool::ALL.iter().position(|known| *known == tool).and_then(|index| self.slurm_calls.get(index));
        if let Some(count) = slot {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Everything, for a scraper.
    pub(crate) fn render(&self, workflows: &[Workflow], runners: usize) -> String {
        let mut text = String::new();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut counter = |name: &str, help: &str, value: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
        };
        counter("torc_commands_total", "Commands taken from the queue.", count(&self.commands).to_string());
        counter("torc_commits_total", "Groups of changes written.", count(&self.groups).to_string());
        counter("torc_commit_seconds_total", "Time spent writing.", seconds(count(&self.commit_micros)));
        counter(
            "torc_write_failures_total",
            "Groups that could not be written.",
            count(&self.write_failures).to_string(),
        );
        counter("torc_syncs_total", "Messages of runners.", count(&self.syncs).to_string());
        counter("torc_reports_total", "Attempts reported as ended.", count(&self.reported).to_string());
        counter("torc_results_total", "Results written.", count(&self.results).to_string());
        counter(
            "torc_kubernetes_status_writes_total",
            "Statuses of custom resources written.",
            count(&self.statuses).to_string(),
        );
        let _ = writeln!(
            text,
            "# HELP torc_runners Runners that have not left.\n# TYPE torc_runners gauge\ntorc_runners {runners}"
        );
        let help = "Calls of Slurm's programs.";
        let _ = writeln!(text, "# HELP torc_slurm_calls_total {help}\n# TYPE torc_slurm_calls_total counter");
        for (tool, calls) in Tool::ALL.iter().zip(&self.slurm_calls) {
            let _ = writeln!(text, "torc_slurm_calls_total{{command=\"{}\"}} {}", tool.name(), count(calls));
        }
        let _ = writeln!(text, "# HELP torc_jobs Jobs by state.\n# TYPE torc_jobs gauge");
        for state in JobState::ALL.iter().copied() {
            let jobs: i64 = workflows.iter().map(|workflow| workflow.status.jobs.of(state)).sum();
            let _ = writeln!(text, "torc_jobs{{state=\"{state}\"}} {jobs}");
        }
        text
    }
}

fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
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

    /// The lines of a text that are neither help nor types.
    fn values(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn each_number_is_shown_under_its_own_name() {
        let metrics = Metrics::default();
        metrics.commands(11);
        metrics.commands(2);
        metrics.sync(5);
        metrics.sync(2);
        metrics.sync(0);
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
                metrics.slurm_call(tool);
            }
        }
        metrics.slurm_call(Tool::Shell);
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
        let shown = values(&text);
        let expected = [
            "torc_commands_total 13",
            "torc_commits_total 2",
            "torc_commit_seconds_total 3.500007",
            "torc_write_failures_total 17",
            "torc_syncs_total 3",
            "torc_reports_total 7",
            "torc_results_total 41",
            "torc_kubernetes_status_writes_total 19",
            "torc_runners 23",
            "torc_slurm_calls_total{command=\"srun\"} 1",
            "torc_slurm_calls_total{command=\"sacct\"} 2",
            "torc_slurm_calls_total{command=\"sstat\"} 3",
            "torc_slurm_calls_total{command=\"squeue\"} 4",
            "torc_slurm_calls_total{command=\"sbatch\"} 5",
            "torc_slurm_calls_total{command=\"scancel\"} 6",
            "torc_slurm_calls_total{command=\"sinfo\"} 7",
            "torc_slurm_calls_total{command=\"scontrol\"} 8",
        ];
        assert_eq!(shown[..expected.len()], expected);
        let states: Vec<String> = JobState::ALL.iter().map(|state| format!("torc_jobs{{state=\"{state}\"}}")).collect();
        let named: Vec<&str> = shown[expected.len()..].iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(named, states);
        for line in
            ["torc_jobs{state=\"ready\"} 1103", "torc_jobs{state=\"completed\"} 106", "torc_jobs{state=\"failed\"} 107"]
        {
            assert!(shown.contains(&line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn every_name_has_a_type() {
        let text = Metrics::default().render(&[], 0);
        let types: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let expected = [
            "torc_commands_total counter",
            "torc_commits_total counter",
            "torc_commit_seconds_total counter",
            "torc_write_failures_total counter",
            "torc_syncs_total counter",
            "torc_reports_total counter",
            "torc_results_total counter",
            "torc_kubernetes_status_writes_total counter",
            "torc_runners gauge",
            "torc_slurm_calls_total counter",
            "torc_jobs gauge",
        ];
        assert_eq!(types, expected);
    }

    #[test]
    fn seconds_have_six_digits_behind_the_point() {
        for (micros, text) in
            [(0, "0.000000"), (999_999, "0.999999"), (1_000_000, "1.000000"), (61_000_020, "61.000020")]
        {
            assert_eq!(seconds(micros), text);
        }
    }
}
