//! Following workflows until nothing more happens to them without a person.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use torc_api::api::Workflow;
use torc_api::status::Condition;
use torc_core::backoff::Backoff;

use crate::client::{Client, ClientError};
use crate::error::ExitStatus;
use crate::progress::Progress;

/// How a workflow stands, as far as somebody who waits for it cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Something may still happen by itself.
    Active,
    /// All jobs succeeded.
    Succeeded,
    /// It ended, and not all jobs succeeded.
    Failed,
    /// It was cancelled.
    Canceled,
    /// Nothing moves, and failed jobs wait for a decision.
    NeedsPerson,
    /// It is held back, and nothing of it runs.
    Suspended,
}

impl Standing {
    /// Whether there is something to wait for.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Active)
    }

    /// What a command that followed the workflow exits with.
    pub const fn exit_status(self) -> ExitStatus {
        match self {
            Self::Succeeded => ExitStatus::Success,
            Self::Active | Self::Failed | Self::Canceled | Self::NeedsPerson | Self::Suspended => {
                ExitStatus::WorkflowFailed
            }
        }
    }
}

/// How a workflow stands.
pub fn standing(workflow: &Workflow) -> Standing {
    let jobs = &workflow.status.jobs;
    let moving = jobs.leased + jobs.running + jobs.recovering;
    if has_condition(workflow, "Finished") {
        return if has_condition(workflow, "Succeeded") {
            Standing::Succeeded
        } else if workflow.canceled {
            Standing::Canceled
        } else {
            Standing::Failed
        };
    }
    if moving > 0 {
        return Standing::Active;
    }
    if workflow.suspended {
        return Standing::Suspended;
    }
    if jobs.pending_failed > 0 && jobs.ready == 0 || stuck_on_slurm(workflow).is_some() {
        return Standing::NeedsPerson;
    }
    Standing::Active
}

/// Why no allocation comes by itself: Slurm has no place for its jobs, or what it gave was of no use. One that does not answer may
/// do so any moment.
pub fn stuck_on_slurm(workflow: &Workflow) -> Option<&str> {
    let stalled = |condition: &&Condition| condition.type_ == "Stalled" && condition.status == "True";
    let stalled = workflow.status.conditions.iter().find(stalled)?;
    let is_final = ["NoMatchingPartition", "RecoveryExhausted"].contains(&stalled.reason.as_str());
    is_final.then_some(stalled.message.as_str())
}

/// Whether a condition of a workflow is true.
pub fn has_condition(workflow: &Workflow, name: &str) -> bool {
    workflow.status.conditions.iter().any(|condition| condition.type_ == name && condition.status == "True")
}

/// How following ended.
#[derive(Debug)]
pub enum Followed {
    /// Nothing more happens to any of them.
    Settled(Vec<Workflow>),
    /// The server is gone.
    ServerGone,
}

/// How long the owner of a store on this machine may fail to answer before it counts as gone.
pub const LOCAL_PATIENCE: Duration = Duration::from_millis(500);
/// How long a server elsewhere may: it may be restarted, or the network may be away.
pub const REMOTE_PATIENCE: Duration = Duration::from_secs(120);
/// Looks come quickly at first, so that a short workflow is not waited for longer than it takes.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// Follows workflows by number until none is active.
///
/// Looks again and again instead of listening: a status is small, while the events of a large workflow are not.
pub async fn follow(
    client: &Client,
    ids: &[i64],
    progress: &mut Progress,
    patience: Duration,
) -> Result<Followed, ClientError> {
    let mut last_answer = Instant::now();
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    loop {
        match look(client, ids).await {
            Ok(workflows) => {
                last_answer = Instant::now();
                for workflow in &workflows {
                    progress.update(workflow);
                }
                if workflows.iter().all(|workflow| !standing(workflow).is_active()) {
                    return Ok(Followed::Settled(workflows));
                }
            }
            Err(error) if error.is_unreachable() && last_answer.elapsed() > patience => {
                return Ok(Followed::ServerGone);
            }
            Err(error) if error.is_unreachable() => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// The workflows of these numbers, without their documents.
pub async fn look(client: &Client, ids: &[i64]) -> Result<Vec<Workflow>, ClientError> {
    let mut known: HashMap<i64, Workflow> =
        client.workflows().await?.into_iter().map(|workflow| (workflow.id, workflow)).collect();
    ids.iter().map(|id| known.remove(id).ok_or(ClientError::Deleted { id: *id })).collect()
}

/// What a command that followed several workflows exits with.
pub fn exit_status(workflows: &[Workflow]) -> ExitStatus {
    workflows
        .iter()
        .map(|workflow| standing(workflow).exit_status())
        .find(|status| *status != ExitStatus::Success)
        .unwrap_or(ExitStatus::Success)
}

#[cfg(test)]
pub mod tests {
    use torc_api::status::{JobCounts, WorkflowStatus};

    use super::*;

    pub fn workflow(jobs: JobCounts, conditions: &[&str]) -> Workflow {
        let condition = |name: &&str| Condition {
            type_: (*name).to_owned(),
            status: "True".to_owned(),
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
    fn standings() {
        let counts = JobCounts::default;
        let suspended = |jobs| Workflow { suspended: true, ..workflow(jobs, &[]) };
        for (workflow, expected) in [
            (workflow(JobCounts { ready: 1, ..counts() }, &[]), Standing::Active),
            (workflow(counts(), &["Finished", "Succeeded"]), Standing::Succeeded),
            (workflow(counts(), &["Finished"]), Standing::Failed),
            (Workflow { canceled: true, ..workflow(counts(), &["Finished"]) }, Standing::Canceled),
            (Workflow { canceled: true, ..workflow(counts(), &["Finished", "Succeeded"]) }, Standing::Succeeded),
            (workflow(JobCounts { pending_failed: 1, blocked: 3, ..counts() }, &[]), Standing::NeedsPerson),
            (workflow(JobCounts { pending_failed: 1, ready: 3, ..counts() }, &[]), Standing::Active),
            (workflow(JobCounts { pending_failed: 1, recovering: 1, ..counts() }, &[]), Standing::Active),
            (suspended(JobCounts { ready: 1, ..counts() }), Standing::Suspended),
            (suspended(JobCounts { running: 1, ..counts() }), Standing::Active),
        ] {
            assert_eq!(standing(&workflow), expected, "{workflow:?}");
        }
    }

    #[test]
    fn one_bad_workflow_decides_the_exit_code() {
        let good = workflow(JobCounts::default(), &["Finished", "Succeeded"]);
        let bad = workflow(JobCounts::default(), &["Finished"]);
        assert_eq!(exit_status(std::slice::from_ref(&good)), ExitStatus::Success);
        assert_eq!(exit_status(&[good, bad]), ExitStatus::WorkflowFailed);
        assert_eq!(exit_status(&[]), ExitStatus::Success);
    }

    #[test]
    fn each_standing_has_its_exit_code() {
        for (standing, active, code) in [
            (Standing::Active, true, 3),
            (Standing::Succeeded, false, 0),
            (Standing::Failed, false, 3),
            (Standing::Canceled, false, 3),
            (Standing::NeedsPerson, false, 3),
            (Standing::Suspended, false, 3),
        ] {
            assert_eq!((standing.is_active(), standing.exit_status().code()), (active, code), "{standing:?}");
        }
    }

    #[test]
    fn whatever_moves_keeps_a_workflow_active() {
        let counts = JobCounts::default;
        let waiting = |jobs| workflow(JobCounts { pending_failed: 1, ..jobs }, &[]);
        for (workflow, expected) in [
            (waiting(counts()), Standing::NeedsPerson),
            (waiting(JobCounts { leased: 1, ..counts() }), Standing::Active),
            (waiting(JobCounts { running: 1, ..counts() }), Standing::Active),
            (waiting(JobCounts { recovering: 1, ..counts() }), Standing::Active),
            (waiting(JobCounts { ready: 1, ..counts() }), Standing::Active),
            (waiting(JobCounts { blocked: 1, uninitialized: 1, ..counts() }), Standing::NeedsPerson),
            (Workflow { suspended: true, ..waiting(counts()) }, Standing::Suspended),
            (Workflow { suspended: true, ..waiting(JobCounts { leased: 1, ..counts() }) }, Standing::Active),
            (Workflow { suspended: true, ..waiting(JobCounts { recovering: 1, ..counts() }) }, Standing::Active),
            (Workflow { canceled: true, ..workflow(JobCounts { ready: 1, ..counts() }, &[]) }, Standing::Active),
            (workflow(counts(), &["Succeeded"]), Standing::Active),
        ] {
            assert_eq!(standing(&workflow), expected, "{workflow:?}");
        }
        let mut unsure = workflow(counts(), &["Finished", "Succeeded"]);
        unsure.status.conditions[1].status = "False".to_owned();
        assert_eq!(standing(&unsure), Standing::Failed, "a condition counts when it is true");
        unsure.status.conditions[0].status = "Unknown".to_owned();
        assert_eq!(standing(&unsure), Standing::Active);
    }

    #[test]
    fn only_a_final_stall_ends_the_wait_for_slurm() {
        let stalled = |reason: &str, status: &str| {
            let mut workflow = workflow(JobCounts { ready: 1, ..JobCounts::default() }, &["Stalled"]);
            workflow.status.conditions[0].reason = reason.to_owned();
            workflow.status.conditions[0].status = status.to_owned();
            workflow.status.conditions[0].message = "why".to_owned();
            workflow
        };
        for (reason, status, expected) in [
            ("NoMatchingPartition", "True", Some("why")),
            ("RecoveryExhausted", "True", Some("why")),
            ("SlurmUnreachable", "True", None),
            ("NoMatchingPartition", "False", None),
        ] {
            let workflow = stalled(reason, status);
            assert_eq!(stuck_on_slurm(&workflow), expected, "{reason} {status}");
            let expected = if expected.is_some() { Standing::NeedsPerson } else { Standing::Active };
            assert_eq!(standing(&workflow), expected, "{reason} {status}");
        }
        assert_eq!(stuck_on_slurm(&workflow(JobCounts::default(), &["Finished"])), None);
    }

    /// An owner on this machine is replaced in a moment; a server elsewhere may be restarted.
    #[test]
    fn patience_is_short_here_and_long_elsewhere() {
        assert_eq!((LOCAL_PATIENCE.as_millis(), REMOTE_PATIENCE.as_secs()), (500, 120));
        assert_eq!((PAUSES.0.as_millis(), PAUSES.1.as_millis()), (20, 250));
    }
}
