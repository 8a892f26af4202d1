//! What is, for people: counts, conditions with closed sets of reasons, runners.

use std::collections::BTreeSet;

use torc_api::api;
use torc_api::condition::{Condition, ConditionReason as Reason, ConditionStatus, ConditionType};
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::status::{PlanSummary, WorkflowStatus};
use torc_api::wire::RunnerScope;

use super::tx::Tx;
use super::workflow::Workflow;
use super::{CommandError, Engine, JobDetail};
use crate::ids::{JobId, Now, RunnerId, WorkflowId};
use crate::rows::Changes;
use crate::time::rfc3339;

impl Engine {
    /// Begins a group of commands.
    pub fn begin(&self, now: Now) -> Tx {
        Tx::new(now, self.last)
    }

    /// Ends a group of commands: completions are noted, conditions brought up to date, and everything to write is returned.
    pub fn finish(&mut self, mut tx: Tx) -> Changes {
        let touched = tx.changes.touched();
        // Before what follows from them: who waits for the end of a workflow has then heard of its last job.
        tx.changes.announce_moves(tx.now);
        for id in self.to_look_at(touched) {
            if let Some(workflow) = self.workflows.get_mut(&id) {
                workflow.trigger_actions(&mut tx);
            }
            let is_held_back = self.is_held_back(id);
            if let Some(workflow) = self.workflows.get_mut(&id) {
                if !is_held_back {
                    workflow.note_completion(&mut tx);
                }
                workflow.refresh_conditions(&mut tx);
                if workflow.is_over() {
                    self.live.remove(&id);
                }
            }
        }
        let (changes, last) = tx.finish();
        self.last = last;
        changes
    }

    /// What was touched, and what could have ended meanwhile because its last runner has left.
    fn to_look_at(&self, mut touched: BTreeSet<WorkflowId>) -> BTreeSet<WorkflowId> {
        let waits_for_actions = |workflow: &&Workflow| {
            !workflow.actions.is_empty() && workflow.row.completed_ms.is_none() && workflow.graph.is_settled()
        };
        let live = self.live.iter().filter_map(|id| self.workflows.get(id));
        touched.extend(live.filter(waits_for_actions).map(Workflow::id));
        touched
    }

    /// Its end is not noted yet, because it has set off commands that a runner can still run. Which session a runner of an earlier
    /// process served is not known, so it may be this workflow's.
    pub(super) fn is_held_back(&self, id: WorkflowId) -> bool {
        let serves = |scope: &RunnerScope| *scope == RunnerScope::Session || self.live_in_scope(scope).contains(&id);
        self.workflows.get(&id).is_some_and(Workflow::has_open_commands)
            && self.runners.values().any(|runner| !runner.is_silent() && serves(&runner.row.scope))
    }

    /// A workflow as the API shows it, without its document.
    pub fn workflow_summary(&self, id: WorkflowId) -> Result<api::Workflow, CommandError> {
        Ok(self.workflow(id)?.summary())
    }

    /// The stored document of a workflow.
    pub fn document(&self, id: WorkflowId) -> Result<&str, CommandError> {
        Ok(&self.workflow(id)?.row.document)
    }

    /// The numbers of all workflows, of one namespace or all.
    pub fn workflow_ids(&self, namespace: Option<&str>) -> Vec<WorkflowId> {
        let wanted = |workflow: &&Workflow| namespace.is_none_or(|namespace| workflow.row.namespace == namespace);
        self.workflows.values().filter(wanted).map(Workflow::id).collect()
    }

    /// A job by name or number, with what only the live state knows.
    pub fn job(&self, id: WorkflowId, reference: &str) -> Result<(JobId, JobDetail<'_>), CommandError> {
        let workflow = self.workflow(id)?;
        let job = workflow.require_job(reference)?;
        Ok((workflow.graph.job(job).id(), workflow.graph.detail(job)))
    }

    /// A workflow's name.
    pub fn workflow_name(&self, id: WorkflowId) -> Option<&str> {
        self.workflows.get(&id).map(|workflow| workflow.row.name.as_str())
    }

    /// A job's name.
    pub fn job_name(&self, workflow: WorkflowId, id: JobId) -> Option<&str> {
        let workflow = self.workflows.get(&workflow)?;
        workflow.graph.ordinal(id).map(|job| workflow.graph.name(job))
    }

    /// Runners that have not left.
    pub fn runners(&self) -> Vec<api::Runner> {
        self.runners.keys().filter_map(|id| self.runner_view(*id)).collect()
    }

    fn runner_view(&self, id: RunnerId) -> Option<api::Runner> {
        let runner = self.runners.get(&id)?;
        let running = runner.leases.jobs().filter(|(workflow, job)| self.runs(*workflow, *job)).count() as i64;
        Some(api::Runner {
            id: id.0,
            host: runner.row.host.clone(),
            pid: runner.row.pid,
            kind: runner.row.kind,
            status: if runner.is_silent() { api::RunnerStatus::Silent } else { api::RunnerStatus::Active },
            capacity: runner.row.capacity,
            labels: runner.row.labels.clone(),
            workflow: match &runner.row.scope {
                RunnerScope::Workflow(name) => Some(name.clone()),
                _ => None,
            },
            slurm_job_id: runner.row.slurm_job_id.clone(),
            output_dir: runner.row.output_dir.clone(),
            place: runner.row.place.clone(),
            process: runner.row.process.clone(),
            version: runner.row.version.clone(),
            queued: runner.leases.job_count() as i64 - running,
            running,
            start_time: rfc3339(runner.row.started_ms),
            last_contact_time: Some(rfc3339(runner.heard_wall_ms())),
            end_time: None,
        })
    }

    fn runs(&self, workflow: WorkflowId, job: JobId) -> bool {
        let Some(workflow) = self.workflows.get(&workflow) else { return false };
        let Some(job) = workflow.graph.ordinal(job) else { return false };
        workflow.graph.job(job).state() == torc_api::state::JobState::Running
    }

    /// Nothing is left to do in any workflow of this session, or in any at all.
    pub fn is_idle(&self) -> bool {
        self.live.iter().all(|id| {
            self.workflows.get(id).is_none_or(|workflow| workflow.graph.is_settled() && !self.is_held_back(*id))
        })
    }
}

/// So many jobs, in words.
pub(super) fn counted(jobs: i64) -> String {
    count(jobs, "job")
}

impl Workflow {
    pub(super) fn note_completion(&mut self, tx: &mut Tx) {
        if !self.graph.is_settled() || self.row.completed_ms.is_some() {
            return;
        }
        self.row.completed_ms = Some(tx.now.wall_ms);
        tx.changes.workflow(&self.row);
        let (reason, message) = match self.outcome() {
            Reason::Succeeded => {
                (EventReason::WorkflowFinished, format!("{} completed", counted(self.graph.counts().total)))
            }
            outcome => (EventReason::WorkflowFailed, format!("{outcome}: {}", self.failure_message())),
        };
        tx.event(Some(self.row.id), reason, message);
    }

    /// Its end was noted: everything has ended, and so has what that set off.
    fn is_finished(&self) -> bool {
        self.row.completed_ms.is_some()
    }

    fn outcome(&self) -> Reason {
        let counts = self.graph.counts();
        if self.row.expired {
            Reason::DeadlineExceeded
        } else if self.is_canceled() {
            Reason::Canceled
        } else if counts.failed + counts.terminated + counts.canceled > 0 {
            Reason::Failed
        } else {
            Reason::Succeeded
        }
    }

    fn failure_message(&self) -> String {
        let counts = self.graph.counts();
        format!("{} failed, {} terminated, {} canceled", counts.failed, counts.terminated, counts.canceled)
    }

    /// Writes the conditions down when one of them says something new.
    pub(super) fn refresh_conditions(&mut self, tx: &mut Tx) {
        let before: Vec<Condition> = serde_json::from_str(&self.row.conditions).unwrap_or_default();
        let after = self.conditions(&before, tx.now);
        if begins(&before, &after, |one| one.holds(ConditionType::Recovering))
            && !tx.changes.has_event(self.row.id, EventReason::RecoveryStarted)
        {
            tx.event(Some(self.row.id), EventReason::RecoveryStarted, self.failures.recovering().sentence());
        }
        if begins(&before, &after, is_exhausted) {
            tx.event(Some(self.row.id), EventReason::RecoveryExhausted, self.stall().1);
        }
        if after != before
            && let Ok(text) = serde_json::to_string(&after)
        {
            self.row.conditions = text;
            tx.changes.workflow(&self.row);
        }
    }

    fn conditions(&self, before: &[Condition], now: Now) -> Vec<Condition> {
        self.current_conditions()
            .into_iter()
            .map(|condition| {
                let known = before.iter().find(|known| known.type_ == condition.type_);
                let since = known.filter(|known| known.status == condition.status);
                Condition {
                    last_transition_time: since
                        .map_or_else(|| rfc3339(now.wall_ms), |known| known.last_transition_time.clone()),
                    observed_generation: Some(self.row.generation),
                    ..condition
                }
            })
            .collect()
    }

    /// Returns every condition, always in the same order. Messages contain nothing that changes with each job.
    fn current_conditions(&self) -> Vec<Condition> {
        let settled = self.is_finished();
        let suspended = self.is_suspended() && !settled;
        let (stall, stall_message) = self.stall();
        // Jobs of a canceled workflow are not retried.
        let recovers = self.failures.recovering().reason().filter(|_| !self.is_canceled());
        let sentence = if recovers.is_some() { self.failures.recovering().sentence() } else { String::new() };
        let outcome = if settled { self.outcome() } else { Reason::Running };
        let (succeeded, why, message) = match outcome {
            Reason::Succeeded => {
                (ConditionStatus::True, Reason::Completed, format!("{} completed", counted(self.graph.counts().total)))
            }
            Reason::Canceled => (ConditionStatus::False, Reason::Canceled, self.failure_message()),
            Reason::DeadlineExceeded => (ConditionStatus::False, Reason::DeadlineExceeded, self.deadline_message()),
            _ if settled => (ConditionStatus::False, Reason::JobsFailed, self.failure_message()),
            _ if stall != Reason::NotStalled => (ConditionStatus::Unknown, Reason::Stalled, stall_message.clone()),
            _ if suspended => (ConditionStatus::Unknown, Reason::Suspended, String::new()),
            _ if recovers.is_some() => (ConditionStatus::Unknown, Reason::Recovering, sentence.clone()),
            _ if self.waits_for_allocation() => (ConditionStatus::Unknown, Reason::WaitingForAllocation, String::new()),
            _ if self.row.started_ms.is_some() => (ConditionStatus::Unknown, Reason::Running, String::new()),
            _ => (ConditionStatus::Unknown, Reason::Pending, String::new()),
        };
        let suspension = match suspended {
            true if self.is_managed_by_other() => Reason::ManagedByOther,
            true => Reason::UserRequest,
            false => Reason::NotSuspended,
        };
        let is = |type_, holds: bool, reason, message| Condition::new(type_, holds.into(), reason, message);
        vec![
            is(ConditionType::Accepted, true, Reason::Planned, counted(self.graph.counts().total)),
            is(ConditionType::Suspended, suspended, suspension, String::new()),
            self.allocations_ready(),
            is(ConditionType::Recovering, recovers.is_some(), recovers.unwrap_or(Reason::NotRecovering), sentence),
            is(ConditionType::Stalled, stall != Reason::NotStalled, stall, stall_message),
            is(ConditionType::Finished, settled, outcome, String::new()),
            Condition::new(ConditionType::Succeeded, succeeded, why, message),
        ]
    }

    /// Returns why the workflow needs manual action, and a sentence about it.
    fn stall(&self) -> (Reason, String) {
        let counts = self.graph.counts();
        let is_still = counts.leased + counts.running + counts.recovering == 0 && !self.leases.has_revoked_jobs();
        if counts.pending_failed > 0 && counts.ready == 0 && is_still {
            return (Reason::PendingFailedJobs, "failed jobs wait for a decision".to_owned());
        }
        let stuck = self.allocation_stall().filter(|_| is_still && counts.ready > 0 && !self.is_canceled());
        stuck.unwrap_or((Reason::NotStalled, String::new()))
    }

    fn summary(&self) -> api::Workflow {
        api::Workflow {
            id: self.row.id.0,
            name: self.row.name.clone(),
            namespace: self.row.namespace.clone(),
            owner: self.row.owner.clone(),
            generation: self.row.generation,
            creation_time: rfc3339(self.row.created_ms),
            working_dir: self.row.working_dir.clone(),
            suspended: self.is_suspended(),
            canceled: self.is_canceled(),
            slurm_cluster: self.cluster().map(str::to_owned),
            enable_ro_crate: self.spec.enable_ro_crate == Some(true),
            document: None,
            status: WorkflowStatus {
                observed_generation: Some(self.row.generation),
                run_id: Some(self.row.run),
                start_time: self.row.started_ms.map(rfc3339),
                completion_time: self.row.completed_ms.map(rfc3339),
                progress: Some(format!("{}/{}", self.graph.counts().settled(), self.graph.counts().total)),
                plan: Some(PlanSummary { digest: self.row.digest.clone(), job_count: self.graph.counts().total }),
                jobs: *self.graph.counts(),
                allocations: self.allocation_counts(),
                failures: self.failures.latest().cloned().collect(),
                recovery: self.failures.recovering().status().filter(|_| !self.is_canceled()),
                conditions: serde_json::from_str(&self.row.conditions).unwrap_or_default(),
                ..WorkflowStatus::default()
            },
        }
    }
}

/// Returns whether a condition `is` so that was not before.
fn begins(before: &[Condition], after: &[Condition], is: impl Fn(&Condition) -> bool) -> bool {
    after.iter().any(&is) && !before.iter().any(&is)
}

fn is_exhausted(condition: &Condition) -> bool {
    condition.status == ConditionStatus::True && condition.has_reason(&[Reason::RecoveryExhausted])
}
