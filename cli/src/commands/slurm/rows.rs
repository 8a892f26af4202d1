//! Columns of the tables about Slurm accounting and logs.

use super::parse_logs::LogFinding;
use super::sacct::SacctRow;
use super::stats::StatsRow;
use crate::output::table::{CellStyle, Column, TableCell, Tabular, bytes, text};

impl Tabular for StatsRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("JOB", |row, _| row.job_name.as_str().into()),
        Column::always("RUN", |row, _| row.stats.run.into()),
        Column::always("ATTEMPT", |row, _| row.stats.attempt.into()),
        Column::always("SLURM JOB", |row, _| text(&row.stats.slurm_job_id)),
        Column::always("STATE", |row, _| {
            TableCell::styled(row.stats.state.clone().unwrap_or_default(), paint(row.stats.state.as_deref()))
        }),
        Column::always("MAX RSS", |row, _| bytes(row.stats.max_rss_bytes)),
        Column::always("AVE CPU", |row, _| seconds(row.stats.ave_cpu_seconds)),
        Column::always("NODES", |row, _| text(&row.stats.node_list)),
        Column::wide("MAX VM", |row, _| bytes(row.stats.max_vm_size_bytes)),
        Column::wide("READ", |row, _| bytes(row.stats.max_disk_read_bytes)),
        Column::wide("WRITTEN", |row, _| bytes(row.stats.max_disk_write_bytes)),
        Column::wide("STEP", |row, _| text(&row.stats.step)),
    ];
}

impl Tabular for SacctRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("SLURM JOB", |row, _| row.slurm_job_id.as_str().into()),
        Column::always("NAME", |row, _| row.name.as_str().into()),
        Column::always("STATE", |row, _| TableCell::styled(row.state.as_str(), paint(Some(&row.state)))),
        Column::always("EXIT", |row, _| row.exit_code.as_str().into()),
        Column::always("ELAPSED", |row, _| format!("{} s", row.elapsed_seconds).into()),
        Column::always("NODES", |row, _| row.nodes.into()),
        Column::always("CPUS", |row, _| row.cpus.into()),
        Column::always("USED CPU", |row, _| seconds(row.used_cpu_seconds)),
        Column::always("MAX RSS", |row, _| bytes(row.max_rss_bytes)),
        Column::always("NODE LIST", |row, _| text(&row.node_list)),
        Column::wide("START", |row, _| text(&row.start_time)),
        Column::wide("END", |row, _| text(&row.end_time)),
    ];
}

impl Tabular for LogFinding {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("KIND", |row, _| {
            TableCell::styled(row.kind.name(), if row.kind.is_error() { CellStyle::Bad } else { CellStyle::Active })
        }),
        Column::always("JOB", |row, _| text(&row.job)),
        Column::always("TEXT", |row, _| row.text.as_str().into()),
        Column::wide("FILE", |row, _| row.file.as_str().into()),
        Column::wide("LINE", |row, _| row.line.into()),
    ];
}

/// Returns the style for a Slurm state.
fn paint(state: Option<&str>) -> CellStyle {
    match state.map(torc_slurm::state::meaning) {
        None => CellStyle::Plain,
        Some(torc_api::slurm::SlurmState::Completed) => CellStyle::Good,
        Some(state) if state.is_over() => CellStyle::Bad,
        Some(_) => CellStyle::Active,
    }
}

fn seconds(time: Option<f64>) -> TableCell {
    time.map_or(String::new(), |seconds| format!("{seconds:.1} s")).into()
}
