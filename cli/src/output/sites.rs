//! Columns of Slurm sites and their partitions.

use serde::Serialize;
use torc_api::cluster::Partition;

use super::human;
use super::table::{CellStyle, Column, TableCell, Tabular, text};

/// A row of a known site.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SiteRow {
    /// The name for `--profile`.
    pub name: String,
    /// The full name of the site.
    pub title: String,
    pub partitions: usize,
    /// True if this machine belongs to the site.
    pub here: bool,
    pub origin: String,
}

impl Tabular for SiteRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("NAME", |row, _| row.name.as_str().into()),
        Column::always("TITLE", |row, _| row.title.as_str().into()),
        Column::always("PARTITIONS", |row, _| row.partitions.into()),
        Column::always("HERE", |row, _| if row.here { TableCell::styled("yes", CellStyle::Good) } else { "".into() }),
        Column::always("FROM", |row, _| row.origin.as_str().into()),
    ];
}

/// A row of a partition.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct PartitionRow(pub Partition);

impl Tabular for PartitionRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("PARTITION", |row, _| row.0.name.as_str().into()),
        Column::always("CPUS", |row, _| row.0.cpus_per_node.into()),
        Column::always("MEMORY", |row, _| human::bytes(row.0.memory_mb.saturating_mul(1 << 20)).into()),
        Column::always("GPUS", |row, _| gpus(&row.0).into()),
        Column::always("WALLTIME", |row, _| row.0.max_walltime.as_str().into()),
        Column::always("NODES", |row, _| text(&row.0.nodes)),
        Column::always("SHARED", |row, _| if row.0.shared == Some(true) { "yes" } else { "" }.into()),
        Column::always("REMARK", |row, _| {
            if row.0.requires_explicit_request == Some(true) { "only when named" } else { "" }.into()
        }),
    ];
}

fn gpus(partition: &Partition) -> String {
    match (partition.gpus_per_node.unwrap_or(0), &partition.gpu_type) {
        (0, _) => String::new(),
        (count, None) => count.to_string(),
        (count, Some(kind)) => format!("{count} {kind}"),
    }
}

/// A row that shows whether a job fits in a partition.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MatchRow {
    pub partition: String,
    pub fits: bool,
    /// True if the planner would choose this partition.
    pub chosen: bool,
    /// The reason why the job does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Tabular for MatchRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("PARTITION", |row, _| row.partition.as_str().into()),
        Column::always("FITS", |row, _| {
            if row.fits { TableCell::styled("yes", CellStyle::Good) } else { TableCell::styled("no", CellStyle::Faint) }
        }),
        Column::always(
            "CHOSEN",
            |row, _| if row.chosen { TableCell::styled("yes", CellStyle::Active) } else { "".into() },
        ),
        Column::always("WHY NOT", |row, _| text(&row.reason)),
    ];
}
