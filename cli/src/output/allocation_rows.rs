//! Columns of allocations and Slurm clusters.

use torc_api::allocation::{Allocation, AllocationStatus};
use torc_api::api::SlurmCluster;

use super::human;
use super::table::{CellStyle, Column, TableCell, Tabular, ago, text};

impl Tabular for Allocation {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("NAME", |row, _| row.name.as_str().into()),
        Column::always("WORKFLOW", |row, _| row.workflow.as_str().into()),
        Column::always("SLURM", |row, _| text(&row.slurm_job_id)),
        Column::always("STATUS", |row, _| status(row)),
        Column::always("STATE", |row, _| text(&row.slurm_state)),
        Column::always("PARTITION", |row, _| text(&row.partition)),
        Column::always("NODES", |row, _| row.nodes.into()),
        Column::always("TIME", |row, _| human::duration(row.walltime_seconds).into()),
        Column::always("AGE", |row, now| human::age(&row.creation_time, now).into()),
        Column::always("REASON", |row, _| {
            text(if row.slurm_reason.is_some() { &row.slurm_reason } else { &row.message })
        }),
        Column::wide("ORIGIN", |row, _| row.origin.as_str().into()),
        Column::wide("SCHEDULER", |row, _| text(&row.scheduler)),
        Column::wide("CLUSTER", |row, _| row.cluster.as_str().into()),
        Column::wide("ACCOUNT", |row, _| text(&row.account)),
        Column::wide("NODELIST", |row, _| text(&row.node_list)),
        Column::wide("STARTED", |row, now| ago(&row.start_time, now)),
        Column::wide("ENDED", |row, now| ago(&row.end_time, now)),
        Column::wide("EXPECTED", |row, _| {
            text(if row.estimated_start_time.is_some() { &row.estimated_start_time } else { &row.expected_end_time })
        }),
    ];
}

fn status(row: &Allocation) -> TableCell {
    let style = match row.status {
        AllocationStatus::Active => CellStyle::Good,
        AllocationStatus::Pending => CellStyle::Active,
        AllocationStatus::Complete | AllocationStatus::Canceled => CellStyle::Faint,
    };
    TableCell::styled(if row.canceling { "canceling" } else { row.status.as_str() }, style)
}

impl Tabular for SlurmCluster {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("NAME", |row, _| row.name.as_str().into()),
        Column::always("PARTITIONS", |row, _| partitions(row).into()),
        Column::always("CONTACT", |row, now| contact(row).map_or(String::new(), |time| human::age(time, now)).into()),
        Column::always("AGE", |row, now| ago(&row.creation_time, now)),
        Column::wide("ACCOUNT", |row, _| text(&row.spec.default_account)),
        Column::wide("COMMANDS", |row, _| {
            if row.spec.command_prefix.is_empty() { "local".to_owned() } else { row.spec.command_prefix.join(" ") }
                .into()
        }),
    ];
}

fn partitions(row: &SlurmCluster) -> usize {
    let detected = row.status.as_ref().map_or(0, |status| status.partitions.len());
    if row.spec.partitions.is_empty() { detected } else { row.spec.partitions.len() }
}

fn contact(row: &SlurmCluster) -> Option<&str> {
    row.status.as_ref()?.last_contact_time.as_deref()
}
