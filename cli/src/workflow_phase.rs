//! The phase of a workflow. It decides whether a command continues to wait, and its exit code.

use torc_api::api::Workflow;
use torc_api::condition::{Condition, ConditionReason, ConditionType};

use crate::error::ExitStatus;

/// The phase of a workflow for a waiting command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkflowPhase {
    /// The workflow may progress without a decision of the user.
    Active,
    /// It ended, and all jobs succeeded.
    Succeeded,
    /// It ended with unsuccessful jobs.
    Failed,
    /// It ended because it was canceled.
    Canceled,
    /// It makes no progress, and failed jobs need a manual decision.
    NeedsDecision,
    /// It is suspended, and none of its jobs run.
    Suspended,
}

impl WorkflowPhase {
    /// Returns whether a command should continue to wait.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Active)
    }

    /// Returns the exit status of a command that followed the workflow.
    pub const fn exit_status(self) -> ExitStatus {
        match self {
            Self::Succeeded => ExitStatus::Success,
            Self::Active | Self::Failed | Self::Canceled | Self::NeedsDecision | Self::Suspended => {
                ExitStatus::WorkflowFailed
            }
        }
    }
}

/// Returns the phase of a workflow.
pub fn phase(workflow: &Workflow) -> WorkflowPhase {
    let jobs = &workflow.status.jobs;
    let moving = jobs.leased + jobs.running + jobs.recovering;
    if has_condition(workflow, ConditionType::Finished) {
        return if has_condition(workflow, ConditionType::Succeeded) {
            WorkflowPhase::Succeeded
        } else if workflow.canceled {
            WorkflowPhase::Canceled
        } else {
            WorkflowPhase::Failed
        };
    }
    if moving > 0 {
        return WorkflowPhase::Active;
    }
    if workflow.suspended {
        return WorkflowPhase::Suspended;
    }
    if jobs.pending_failed > 0 && jobs.ready == 0 || stuck_on_slurm(workflow).is_some() {
        return WorkflowPhase::NeedsDecision;
    }
    WorkflowPhase::Active
}

/// Returns the reason why Slurm will start no further allocation: no partition fits the jobs, or recovery is exhausted. A Slurm
/// that does not answer is no such reason: it may recover.
pub fn stuck_on_slurm(workflow: &Workflow) -> Option<&str> {
    let is_stalled = |condition: &&Condition| condition.holds(ConditionType::Stalled);
    let stalled = workflow.status.conditions.iter().find(is_stalled)?;
    let is_final = stalled.has_reason(&[ConditionReason::NoMatchingPartition, ConditionReason::RecoveryExhausted]);
    is_final.then_some(stalled.message.as_str())
}

/// Returns whether a condition of a workflow is true.
pub fn has_condition(workflow: &Workflow, type_: ConditionType) -> bool {
    workflow.status.conditions.iter().any(|condition| condition.holds(type_))
}

/// Returns the exit status of a command that followed several workflows: the first one that is not a success.
pub fn exit_status(workflows: &[Workflow]) -> ExitStatus {
    workflows
        .iter()
        .map(|workflow| phase(workflow).exit_status())
        .find(|status| *status != ExitStatus::Success)
        .unwrap_or(ExitStatus::Success)
}

#[cfg(test)]
pub mod tests {
    use torc_api::condition::ConditionStatus;
    use torc_api::status::{JobCounts, WorkflowStatus};

    use super::*;

    pub fn workflow(jobs: JobCounts, conditions: &[&str]) -> Workflow {
        let condition = |name: &&str| Condition {
            type_: (*name).to_owned(),
            status: ConditionStatus::True,
            reason: "Because".to_owned(),
            message: String::new(),
            last_transition_time: "2026-01-01T00:00:00Z".to_owned(),
            observed_generation: None,
        };
        Workflow {
            id: 1,
            name: "w".to_owned(),
            namespace: "default".to_owned(),
            owner: "me".to_owned(),
            generation: 1,
            creation_time: "2026-01-01T00:00:00Z".to_owned(),
            working_dir: "/w".to_owned(),
            suspended: false,
            canceled: false,
            slurm_cluster: None,
            enable_ro_crate: false,
            document: None,
            status: WorkflowStatus {
                jobs,
                conditions: conditions.iter().map(condition).collect(),
                ..WorkflowStatus::default()
            },
        }
    }

    #[test]
    fn counts_and_conditions_decide_the_phase() {
        let counts = JobCounts::default;
        let suspended = |jobs| Workflow { suspended: true, ..workflow(jobs, &[]) };
        for (workflow, expected) in [
            (workflow(JobCounts { ready: 1, ..counts() }, &[]), WorkflowPhase::Active),
            (workflow(counts(), &["Finished", "Succeeded"]), WorkflowPhase::Succeeded),
            (workflow(counts(), &["Finished"]), WorkflowPhase::Failed),
            (Workflow { canceled: true, ..workflow(counts(), &["Finished"]) }, WorkflowPhase::Canceled),
            (Workflow { canceled: true, ..workflow(counts(), &["Finished", "Succeeded"]) }, WorkflowPhase::Succeeded),
            (workflow(JobCounts { pending_failed: 1, blocked: 3, ..counts() }, &[]), WorkflowPhase::NeedsDecision),
            (workflow(JobCounts { pending_failed: 1, ready: 3, ..counts() }, &[]), WorkflowPhase::Active),
            (workflow(JobCounts { pending_failed: 1, recovering: 1, ..counts() }, &[]), WorkflowPhase::Active),
            (suspended(JobCounts { ready: 1, ..counts() }), WorkflowPhase::Suspended),
            (suspended(JobCounts { running: 1, ..counts() }), WorkflowPhase::Active),
        ] {
            assert_eq!(phase(&workflow), expected, "{workflow:?}");
        }
    }

    #[test]
    fn one_failed_workflow_decides_the_exit_code() {
        let good = workflow(JobCounts::default(), &["Finished", "Succeeded"]);
        let bad = workflow(JobCounts::default(), &["Finished"]);
        assert_eq!(exit_status(std::slice::from_ref(&good)), ExitStatus::Success);
        assert_eq!(exit_status(&[good, bad]), ExitStatus::WorkflowFailed);
        assert_eq!(exit_status(&[]), ExitStatus::Success);
    }

    #[test]
    fn each_phase_has_its_exit_code() {
        for (phase, active, code) in [
            (WorkflowPhase::Active, true, 3),
            (WorkflowPhase::Succeeded, false, 0),
            (WorkflowPhase::Failed, false, 3),
            (WorkflowPhase::Canceled, false, 3),
            (WorkflowPhase::NeedsDecision, false, 3),
            (WorkflowPhase::Suspended, false, 3),
        ] {
            assert_eq!((phase.is_active(), phase.exit_status().code()), (active, code), "{phase:?}");
        }
    }

    #[test]
    fn a_leased_running_or_recovering_job_keeps_a_workflow_active() {
        let counts = JobCounts::default;
        let waiting = |jobs| workflow(JobCounts { pending_failed: 1, ..jobs }, &[]);
        for (workflow, expected) in [
            (waiting(counts()), WorkflowPhase::NeedsDecision),
            (waiting(JobCounts { leased: 1, ..counts() }), WorkflowPhase::Active),
            (waiting(JobCounts { running: 1, ..counts() }), WorkflowPhase::Active),
            (waiting(JobCounts { recovering: 1, ..counts() }), WorkflowPhase::Active),
            (waiting(JobCounts { ready: 1, ..counts() }), WorkflowPhase::Active),
            (waiting(JobCounts { blocked: 1, uninitialized: 1, ..counts() }), WorkflowPhase::NeedsDecision),
            (Workflow { suspended: true, ..waiting(counts()) }, WorkflowPhase::Suspended),
            (Workflow { suspended: true, ..waiting(JobCounts { leased: 1, ..counts() }) }, WorkflowPhase::Active),
            (Workflow { suspended: true, ..waiting(JobCounts { recovering: 1, ..counts() }) }, WorkflowPhase::Active),
            (Workflow { canceled: true, ..workflow(JobCounts { ready: 1, ..counts() }, &[]) }, WorkflowPhase::Active),
            (workflow(counts(), &["Succeeded"]), WorkflowPhase::Active),
        ] {
            assert_eq!(phase(&workflow), expected, "{workflow:?}");
        }
        let mut unsure = workflow(counts(), &["Finished", "Succeeded"]);
        unsure.status.conditions[1].status = ConditionStatus::False;
        assert_eq!(phase(&unsure), WorkflowPhase::Failed, "a condition counts when it is true");
        unsure.status.conditions[0].status = ConditionStatus::Unknown;
        assert_eq!(phase(&unsure), WorkflowPhase::Active);
    }

    #[test]
    fn only_a_final_stall_ends_the_wait_for_slurm() {
        let stalled = |reason: &str, status: ConditionStatus| {
            let mut workflow = workflow(JobCounts { ready: 1, ..JobCounts::default() }, &["Stalled"]);
            workflow.status.conditions[0].reason = reason.to_owned();
            workflow.status.conditions[0].status = status;
            workflow.status.conditions[0].message = "why".to_owned();
            workflow
        };
        for (reason, status, expected) in [
            ("NoMatchingPartition", ConditionStatus::True, Some("why")),
            ("RecoveryExhausted", ConditionStatus::True, Some("why")),
            ("SlurmUnreachable", ConditionStatus::True, None),
            ("NoMatchingPartition", ConditionStatus::False, None),
        ] {
            let workflow = stalled(reason, status);
            assert_eq!(stuck_on_slurm(&workflow), expected, "{reason} {status}");
            let expected = if expected.is_some() { WorkflowPhase::NeedsDecision } else { WorkflowPhase::Active };
            assert_eq!(phase(&workflow), expected, "{reason} {status}");
        }
        assert_eq!(stuck_on_slurm(&workflow(JobCounts::default(), &["Finished"])), None);
    }
}
