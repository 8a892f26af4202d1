//! Columns of clusters and their partitions.

use jiff::Timestamp;
use serde::Serialize;
use torc_api::cluster::Partition;

use super::human;
use super::table::{Column, Paint, TableCell, Tabular};

/// A cluster that is known.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileRow {
    /// What it is asked for by.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// How many partitions it has.
    pub partitions: usize,
    /// This is it.
    pub here: bool,
    /// Who says so.
    pub origin: String,
}

impl Tabular for ProfileRow {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("TITLE"),
        Column::always("PARTITIONS"),
        Column::always("HERE"),
        Column::always("FROM"),
    ];

    fn cells(&self, _: Timestamp) -> Vec<TableCell> {
        vec![
            self.name.as_str().into(),
            self.title.as_str().into(),
            self.partitions.into(),
            if self.here { TableCell::painted("yes", Paint::Good) } else { "".into() },
            self.origin.as_str().into(),
        ]
    }
}

/// A partition.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct PartitionRow(pub Partition);

impl Tabular for PartitionRow {
    const COLUMNS: &'static [Column] = &[
        Column::always("PARTITION"),
        Column::always("CPUS"),
        Column::always("MEMORY"),
        Column::always("GPUS"),
        Column::always("WALLTIME"),
        Column::always("NODES"),
        Column::always("SHARED"),
        Column::always("REMARK"),
    ];

    fn cells(&self, _: Timestamp) -> Vec<TableCell> {
        let partition = &self.0;
        let gpus = match (partition.gpus_per_node.unwrap_or(0), &partition.gpu_type) {
            (0, _) => String::new(),
            (count, None) => count.to_string(),
            (count, Some(kind)) => format!("{count} {kind}"),
        };
        let remark = if partition.requires_explicit_request == Some(true) { "only when named" } else { "" };
        vec![
            partition.name.as_str().into(),
            partition.cpus_per_node.into(),
            human::bytes(partition.memory_mb.saturating_mul(1 << 20)).into(),
            gpus.into(),
            partition.max_walltime.as_str().into(),
            partition.nodes.map_or(String::new(), |nodes| nodes.to_string()).into(),
            if partition.shared == Some(true) { "yes" } else { "" }.into(),
            remark.into(),
        ]
    }
}

/// A partition, and whether a job fits there.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MatchRow {
    /// The partition.
    pub partition: String,
    /// It has what the job needs.
    pub fits: bool,
    /// The job would be given this one.
    pub chosen: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Tabular for MatchRow {
    const COLUMNS: &'static [Column] =
        &[Column::always("PARTITION"), Column::always("FITS"), Column::always("CHOSEN"), Column::always("WHY NOT")];

    fn cells(&self, _: Timestamp) -> Vec<TableCell> {
        vec![
            self.partition.as_str().into(),
            if self.fits { TableCell::painted("yes", Paint::Good) } else { TableCell::painted("no", Paint::Faint) },
            if self.chosen { TableCell::painted("yes", Paint::Active) } else { "".into() },
            self.reason.clone().unwrap_or_default().into(),
        ]
    }
}
