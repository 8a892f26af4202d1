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
        for state in JobState::ALL {
            let jobs: i64 = workflows.iter().map(|workflow| workflow.status.jobs.of(state)).sum();
            let _ = writeln!(text, "torc_jobs{{state=\"{state}\"}} {jobs}");
        }
        text
    }
}

fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
