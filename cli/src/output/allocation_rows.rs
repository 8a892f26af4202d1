//! Which columns allocations and SlurmClusters have.

use jiff::Timestamp;
use torc_api::allocation::{Allocation, AllocationStatus};
use torc_api::api::SlurmCluster;

use super::human;
use super::table::{Column, Paint, TableCell, Tabular};

impl Tabular for Allocation {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("WORKFLOW"),
        Column::always("SLURM"),
        Column::always("STATUS"),
        Column::always("STATE"),
        Column::always("PARTITION"),
        Column::always("NODES"),
        Column::always("TIME"),
        Column::always("AGE"),
        Column::always("REASON"),
        Column::wide("ORIGIN"),
        Column::wide("SCHEDULER"),
        Column::wide("CLUSTER"),
        Column::wide("ACCOUNT"),
        Column::wide("NODELIST"),
        Column::wide("STARTED"),
        Column::wide("ENDED"),
        Column::wide("EXPECTED"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let text = |value: &Option<String>| TableCell::from(value.clone().unwrap_or_default());
        let age = |time: &Option<String>| time.as_deref().map_or(String::new(), |time| human::age(time, now)).into();
        let paint = match self.status {
            AllocationStatus::Active => Paint::Good,
            AllocationStatus::Pending => Paint::Active,
            AllocationStatus::Complete | AllocationStatus::Canceled => Paint::Faint,
        };
        let status = if self.canceling { "canceling" } else { self.status.as_str() };
        vec![
            self.name.as_str().into(),
            self.workflow.as_str().into(),
            text(&self.slurm_job_id),
            TableCell::painted(status, paint),
            text(&self.slurm_state),
            text(&self.partition),
            self.nodes.into(),
            human::duration(self.walltime_seconds).into(),
            human::age(&self.creation_time, now).into(),
            text(if self.slurm_reason.is_some() { &self.slurm_reason } else { &self.message }),
            self.origin.as_str().into(),
            text(&self.scheduler),
            self.cluster.as_str().into(),
            text(&self.account),
            text(&self.node_list),
            age(&self.start_time),
            age(&self.end_time),
            text(if self.estimated_start_time.is_some() {
                &self.estimated_start_time
            } else {
                &self.expected_end_time
            }),
        ]
    }
}

impl Tabular for SlurmCluster {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("PARTITIONS"),
        Column::always("CONTACT"),
        Column::always("AGE"),
        Column::wide("ACCOUNT"),
        Column::wide("COMMANDS"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let detected = self.status.as_ref().map_or(0, |status| status.partitions.len());
        let partitions = if self.spec.partitions.is_empty() { detected } else { self.spec.partitions.len() };
        let contact = self.status.as_ref().and_then(|status| status.last_contact_time.as_deref());
        vec![
            self.name.as_str().into(),
            i64::try_from(partitions).unwrap_or(i64::MAX).into(),
            contact.map_or(String::new(), |time| human::age(time, now)).into(),
            self.creation_time.as_deref().map_or(String::new(), |time| human::age(time, now)).into(),
            self.spec.default_account.clone().unwrap_or_default().into(),
            if self.spec.command_prefix.is_empty() { "local".to_owned() } else { self.spec.command_prefix.join(" ") }
                .into(),
        ]
    }
}
