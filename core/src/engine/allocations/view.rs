//! Allocations as people see them.

use torc_api::allocation::Allocation;
use torc_api::condition::{Condition, ConditionReason as Reason, ConditionType};
use torc_api::status::AllocationCounts;

use super::Engine;
use crate::engine::workflow::Workflow;
use crate::rows::AllocationRow;
use crate::time::rfc3339;

/// The name that an allocation has in Slurm. Other stores have workflows of the same number, so it says whose it is.
pub fn slurm_name(row: &AllocationRow, store: &str) -> String {
    format!("{}-{store}", row.name())
}

/// An allocation as the API shows it.
pub fn allocation(row: &AllocationRow, workflow: &str) -> Allocation {
    Allocation {
        name: row.name(),
        id: row.id.0,
        workflow: workflow.to_owned(),
        workflow_id: row.workflow.0,
        scheduler: row.scheduler.clone(),
        cluster: row.cluster.clone(),
        slurm_job_id: row.slurm_job_id.clone(),
        status: row.status,
        slurm_state: row.slurm_state.clone(),
        slurm_reason: row.slurm_reason.clone(),
        nodes: row.nodes,
        node_list: row.node_list.clone(),
        partition: row.partition.clone(),
        account: row.account.clone(),
        origin: row.origin,
        walltime_seconds: row.seconds,
        creation_time: rfc3339(row.created_ms),
        submit_time: row.submitted_ms.map(rfc3339),
        start_time: row.started_ms.map(rfc3339),
        end_time: row.ended_ms.map(rfc3339),
        estimated_start_time: row.estimated_start_ms.map(rfc3339),
        expected_end_time: row.expected_end_ms.map(rfc3339),
        canceling: row.canceled_ms.is_some() && row.ended_ms.is_none(),
        message: row.message.clone(),
    }
}

impl Engine {
    /// What tells this store from others.
    pub fn identity(&self) -> &str {
        &self.identity
    }
}

impl Workflow {
    /// Whether there is capacity for the jobs that are ready, as far as that is a matter of Slurm.
    pub fn allocations_ready(&self) -> Condition {
        let (pending, active) = self.allocations.counts();
        let summary = self.allocations.summary();
        let is_needed = self.is_for_slurm() && self.graph.counts().ready > 0 && !self.is_canceled();
        let (is_ready, reason, message) = if !is_needed {
            let reason = if active > 0 { Reason::Active } else { Reason::NotNeeded };
            (true, reason, String::new())
        } else if self.is_suspended() {
            (false, Reason::Suspended, String::new())
        } else if let Some(sentence) = &summary.refused {
            (false, Reason::SubmitFailed, sentence.clone())
        } else {
            match (active, pending) {
                (0, 0) => (false, Reason::WaitingForSlurm, summary.unreachable.clone().unwrap_or_default()),
                (0, _) => (false, Reason::WaitingForSlurm, self.slurm_reasons()),
                (_, 0) if summary.held_back > 0 => {
                    let message = "there may be no more allocations at once (`maxAllocations`)".to_owned();
                    (false, Reason::LimitReached, message)
                }
                _ => (true, Reason::Active, String::new()),
            }
        };
        Condition::new(ConditionType::AllocationsReady, is_ready.into(), reason, message)
    }

    /// Why its allocations wait, as Slurm says, each reason once.
    fn slurm_reasons(&self) -> String {
        let reasons = self.allocations.iter().filter_map(|row| row.slurm_reason.as_deref());
        let reasons: std::collections::BTreeSet<&str> = reasons.collect();
        reasons.into_iter().collect::<Vec<&str>>().join(", ")
    }

    /// Jobs could start, and wait for Slurm.
    pub fn waits_for_allocation(&self) -> bool {
        let (_, active) = self.allocations.counts();
        let counts = self.graph.counts();
        self.is_for_slurm() && active == 0 && counts.ready > 0 && counts.leased + counts.running == 0
    }

    /// Why no allocation will come by itself, and a sentence about it.
    pub fn allocation_stall(&self) -> Option<(Reason, String)> {
        let (pending, active) = self.allocations.counts();
        if !self.is_for_slurm() || pending + active > 0 {
            return None;
        }
        let summary = self.allocations.summary();
        if let Some(reason) = &summary.unplaced {
            return Some((Reason::NoMatchingPartition, reason.clone()));
        }
        if self.allocations.is_exhausted() {
            let message = "allocations end one after another without a job having ended in them; see `torc get allocations` \
                           and the logs of their runners, then `torc retry` or `torc resume`";
            return Some((Reason::RecoveryExhausted, message.to_owned()));
        }
        summary.unreachable.as_ref().map(|sentence| (Reason::SlurmUnreachable, sentence.clone()))
    }

    /// How many allocations there should be and are; none for a workflow that has nothing to do with Slurm.
    pub fn allocation_counts(&self) -> Option<AllocationCounts> {
        let (pending, active) = self.allocations.counts();
        let finished = self.allocations.finished();
        (self.is_for_slurm() || pending + active + finished > 0).then_some(AllocationCounts {
            desired: self.allocations.summary().desired,
            pending,
            active,
            finished,
        })
    }
}
