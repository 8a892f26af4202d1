//! Views of allocations for the API.

use std::collections::BTreeSet;

use torc_api::allocation::Allocation;
use torc_api::condition::{Condition, ConditionReason as Reason, ConditionType};
use torc_api::status::AllocationCounts;

use crate::engine::workflow::LiveWorkflow;
use crate::rows::AllocationRow;
use crate::time::rfc3339;

/// Returns the name of an allocation in Slurm. It contains the identity of the store, because every store numbers its
/// workflows from 1.
pub fn slurm_name(row: &AllocationRow, store: &str) -> String {
    format!("{}-{store}", row.name())
}

/// Returns an allocation as the API shows it.
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

/// Returns the `AllocationsReady` condition: whether ready jobs have capacity, as far as that depends on Slurm.
pub fn allocations_ready(workflow: &LiveWorkflow) -> Condition {
    let (pending, active) = workflow.allocations.counts();
    let summary = workflow.allocations.summary();
    let is_needed = workflow.schedulers.is_for_slurm() && workflow.has_ready_jobs() && !workflow.is_canceled();
    let (is_ready, reason, message) = if !is_needed {
        (true, if active > 0 { Reason::Active } else { Reason::NotNeeded }, String::new())
    } else if workflow.is_suspended() {
        (false, Reason::Suspended, String::new())
    } else if let Some(message) = &summary.refused {
        (false, Reason::SubmitFailed, message.clone())
    } else {
        match (active, pending) {
            (0, 0) => (false, Reason::WaitingForSlurm, summary.unreachable.clone().unwrap_or_default()),
            (0, _) => (false, Reason::WaitingForSlurm, slurm_reasons(workflow)),
            (_, 0) if summary.held_back > 0 => {
                let message = "the limit of concurrent allocations is reached (`maxAllocations`)".to_owned();
                (false, Reason::LimitReached, message)
            }
            _ => (true, Reason::Active, String::new()),
        }
    };
    Condition::new(ConditionType::AllocationsReady, is_ready.into(), reason, message)
}

/// Returns the reasons that Slurm gives for pending allocations, each once.
fn slurm_reasons(workflow: &LiveWorkflow) -> String {
    let reasons = workflow.allocations.iter().filter_map(|row| row.slurm_reason.as_deref());
    let reasons: BTreeSet<&str> = reasons.collect();
    reasons.into_iter().collect::<Vec<&str>>().join(", ")
}

/// Returns whether jobs could start but wait for Slurm.
pub fn waits_for_allocation(workflow: &LiveWorkflow) -> bool {
    let (_, active) = workflow.allocations.counts();
    let counts = workflow.graph.counts();
    workflow.schedulers.is_for_slurm() && active == 0 && counts.ready > 0 && counts.leased + counts.running == 0
}

/// Returns the reason why no allocation will be submitted without a manual action, with a message.
pub fn allocation_stall(workflow: &LiveWorkflow) -> Option<(Reason, String)> {
    let (pending, active) = workflow.allocations.counts();
    if !workflow.schedulers.is_for_slurm() || pending + active > 0 {
        return None;
    }
    let summary = workflow.allocations.summary();
    if let Some(reason) = &summary.unplaced {
        return Some((Reason::NoMatchingPartition, reason.clone()));
    }
    if workflow.allocations.is_exhausted() {
        let message = "several allocations in a row ended without a finished job; see `torc get allocations` and the logs of \
                       their runners, then `torc retry` or `torc resume`";
        return Some((Reason::RecoveryExhausted, message.to_owned()));
    }
    summary.unreachable.as_ref().map(|message| (Reason::SlurmUnreachable, message.clone()))
}

/// Returns the numbers of desired and existing allocations; none for a workflow that does not use Slurm.
pub fn allocation_counts(workflow: &LiveWorkflow) -> Option<AllocationCounts> {
    let (pending, active) = workflow.allocations.counts();
    let finished = workflow.allocations.finished();
    (workflow.schedulers.is_for_slurm() || pending + active + finished > 0).then_some(AllocationCounts {
        desired: workflow.allocations.summary().desired,
        pending,
        active,
        finished,
    })
}
