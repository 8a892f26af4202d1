//! Columns of what Slurm's accounting says.

use jiff::Timestamp;

use super::parse_logs::LogFinding;
use super::sacct::SacctRow;
use super::stats::StatsRow;
use crate::output::human;
use crate::output::table::{Column, Paint, TableCell, Tabular};

impl Tabular for StatsRow {
    const COLUMNS: &'static [Column] = &[
        Column::always("JOB"),
        Column::always("RUN"),
        Column::always("ATTEMPT"),
        Column::always("SLURM JOB"),
        Column::always("STATE"),
        Column::always("MAX RSS"),
        Column::always("AVE CPU"),
        Column::always("NODES"),
        Column::wide("MAX VM"),
        Column::wide("READ"),
        Column::wide("WRITTEN"),
        Column::wide("STEP"),
    ];

    fn cells(&self, _now: Timestamp) -> Vec<TableCell> {
        let stats = &self.stats;
        let bytes = |amount: Option<i64>| TableCell::from(amount.map_or(String::new(), human::bytes));
        let text = |text: &Option<String>| TableCell::from(text.clone().unwrap_or_default());
        vec![
            self.job_name.as_str().into(),
            stats.run.into(),
            stats.attempt.into(),
            text(&stats.slurm_job_id),
            TableCell::painted(stats.state.clone().unwrap_or_default(), paint(stats.state.as_deref())),
            bytes(stats.max_rss_bytes),
            stats.ave_cpu_seconds.map_or(String::new(), |seconds| format!("{seconds:.1} s")).into(),
            text(&stats.node_list),
            bytes(stats.max_vm_size_bytes),
            bytes(stats.max_disk_read_bytes),
            bytes(stats.max_disk_write_bytes),
            text(&stats.step),
        ]
    }
}

impl Tabular for SacctRow {
    const COLUMNS: &'static [Column] = &[
        Column::always("SLURM JOB"),
        Column::always("NAME"),
        Column::always("STATE"),
        Column::always("EXIT"),
        Column::always("ELAPSED"),
        Column::always("NODES"),
        Column::always("CPUS"),
        Column::always("USED CPU"),
        Column::always("MAX RSS"),
        Column::always("NODE LIST"),
        Column::wide("START"),
        Column::wide("END"),
    ];

    fn cells(&self, _now: Timestamp) -> Vec<TableCell> {
        let text = |text: &Option<String>| TableCell::from(text.clone().unwrap_or_default());
        vec![
            self.slurm_job_id.as_str().into(),
            self.name.as_str().into(),
            TableCell::painted(self.state.as_str(), paint(Some(&self.state))),
            self.exit_code.as_str().into(),
            format!("{} s", self.elapsed_seconds).into(),
            self.nodes.into(),
            self.cpus.into(),
            self.used_cpu_seconds.map_or(String::new(), |seconds| format!("{seconds:.1} s")).into(),
            self.max_rss_bytes.map_or(String::new(), human::bytes).into(),
            text(&self.node_list),
            text(&self.start_time),
            text(&self.end_time),
        ]
    }
}

impl Tabular for LogFinding {
    const COLUMNS: &'static [Column] = &[
        Column::always("KIND"),
        Column::always("JOB"),
        Column::always("TEXT"),
        Column::wide("FILE"),
        Column::wide("LINE"),
    ];

    fn cells(&self, _now: Timestamp) -> Vec<TableCell> {
        let colour = if self.kind.is_error() { Paint::Bad } else { Paint::Active };
        vec![
            TableCell::painted(self.kind.name(), colour),
            self.job.clone().unwrap_or_default().into(),
            self.text.as_str().into(),
            self.file.as_str().into(),
            self.line.into(),
        ]
    }
}

/// The colour of a state as Slurm names it.
fn paint(state: Option<&str>) -> Paint {
    match state.map(torc_slurm::state::meaning) {
        None => Paint::Plain,
        Some(torc_api::slurm::SlurmState::Completed) => Paint::Good,
        Some(state) if state.is_over() => Paint::Bad,
        Some(_) => Paint::Active,
    }
}
