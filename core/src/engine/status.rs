//! Views of workflows, jobs and runners for the API, and the conditions of workflows.

use std::collections::BTreeSet;

use torc_api::api;
use torc_api::condition::{Condition, ConditionReason as Reason, ConditionStatus, ConditionType};
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::state::JobState;
use torc_api::status::{PlanSummary, WorkflowStatus};
use torc_api::wire::RunnerScope;

use super::activity::awaits_commands;
use super::allocations::{allocation_counts, allocation_stall, allocations_ready, waits_for_allocation};
use super::deadline::deadline_message;
use super::runners::LiveRunner;
use super::tx::Tx;
use super::workflow::LiveWorkflow;
use super::{CommandError, Engine, JobDetail};
use crate::ids::{JobId, Now, WorkflowId};
use crate::rows::Changes;
use crate::time::rfc3339;

impl Engine {
    /// Begins a transaction at this time.
    pub fn begin(&self, now: Now) -> Tx {
        Tx::new(now, self.last)
    }

    /// Ends a transaction: records completed workflows, updates conditions, and returns everything to write.
    pub fn finish(&mut self, mut tx: Tx) -> Changes {
        let changed = tx.changes.changed_workflows();
        // The events of the jobs come before those of their workflows, so that watchers see the last job before the end.
        tx.changes.announce_moves(tx.now);
        for id in self.to_update(changed) {
            if let Some(workflow) = self.workflows.get_mut(&id) {
                workflow.trigger_actions(&mut tx);
            }
            let awaits_commands = awaits_commands(&self.workflows, &self.runners, id);
            if let Some(workflow) = self.workflows.get_mut(&id) {
                if !awaits_commands {
                    workflow.record_completion(&mut tx);
                }
                workflow.refresh_conditions(&mut tx);
                if workflow.is_over() {
                    self.workflows.settle(id);
                }
            }
        }
        let (changes, last) = tx.finish();
        self.last = last;
        changes
    }

    /// Returns the workflows that have changed, and those that could complete now because their last runner has left.
    fn to_update(&self, mut changed: BTreeSet<WorkflowId>) -> BTreeSet<WorkflowId> {
        let awaits_actions = |workflow: &&LiveWorkflow| {
            !workflow.actions.is_empty() && workflow.row().completed_ms.is_none() && workflow.is_settled()
        };
        changed.extend(self.workflows.live().filter(awaits_actions).map(LiveWorkflow::id));
        changed
    }

    /// Returns a workflow as the API shows it, without its document.
    pub fn workflow_summary(&self, id: WorkflowId) -> Result<api::Workflow, CommandError> {
        Ok(summary(self.workflows.require(id)?))
    }

    /// Returns the stored document of a workflow.
    pub fn document(&self, id: WorkflowId) -> Result<&str, CommandError> {
        Ok(&self.workflows.require(id)?.row().document)
    }

    /// Returns the numbers of all workflows, of one namespace or of all.
    pub fn workflow_ids(&self, namespace: Option<&str>) -> Vec<WorkflowId> {
        let matches =
            |workflow: &&LiveWorkflow| namespace.is_none_or(|namespace| workflow.row().namespace == namespace);
        self.workflows.values().filter(matches).map(LiveWorkflow::id).collect()
    }

    /// Returns a job by name or number.
    pub fn job(&self, id: WorkflowId, reference: &str) -> Result<(JobId, JobDetail<'_>), CommandError> {
        let workflow = self.workflows.require(id)?;
        let job = workflow.require_job(reference)?;
        Ok((workflow.graph.job(job).id(), workflow.graph.detail(job)))
    }

    /// Returns the name of a workflow.
    pub fn workflow_name(&self, id: WorkflowId) -> Option<&str> {
        self.workflows.get(&id).map(|workflow| workflow.row().name.as_str())
    }

    /// Returns the name of a job.
    pub fn job_name(&self, workflow: WorkflowId, id: JobId) -> Option<&str> {
        let graph = &self.workflows.get(&workflow)?.graph;
        graph.ordinal(id).map(|job| graph.name(job))
    }

    /// Returns the registered runners as the API shows them.
    pub fn runners(&self) -> Vec<api::Runner> {
        self.runners.values().map(|runner| self.runner_view(runner)).collect()
    }

    fn runner_view(&self, runner: &LiveRunner) -> api::Runner {
        let row = runner.row();
        let runs = |(workflow, job): &(WorkflowId, JobId)| {
            let state = self.workflows.get(workflow).and_then(|workflow| workflow.graph.state_of(*job));
            state == Some(JobState::Running)
        };
        let running = runner.leases.jobs().filter(runs).count() as i64;
        api::Runner {
            id: row.id.0,
            host: row.host.clone(),
            pid: row.pid,
            kind: row.kind,
            status: if runner.is_silent() { api::RunnerStatus::Silent } else { api::RunnerStatus::Active },
            capacity: row.capacity,
            labels: row.labels.clone(),
            workflow: match &row.scope {
                RunnerScope::Workflow(name) => Some(name.clone()),
                _ => None,
            },
            slurm_job_id: row.slurm_job_id.clone(),
            output_dir: row.output_dir.clone(),
            place: row.place.clone(),
            process: row.process.clone(),
            version: row.version.clone(),
            queued: runner.leases.job_count() as i64 - running,
            running,
            start_time: rfc3339(row.started_ms),
            last_contact_time: Some(rfc3339(runner.last_contact_wall_ms())),
            end_time: None,
        }
    }
}

impl LiveWorkflow {
    fn record_completion(&mut self, tx: &mut Tx) {
        if !self.is_settled() || is_completed(self) {
            return;
        }
        self.record.complete(tx);
        let (reason, message) = match outcome(self) {
            Reason::Succeeded => (EventReason::WorkflowFinished, all_completed(self)),
            outcome => (EventReason::WorkflowFailed, format!("{outcome}: {}", failure_message(self))),
        };
        tx.event(Some(self.id()), reason, message);
    }

    /// Stores the conditions if one of them has changed.
    pub(super) fn refresh_conditions(&mut self, tx: &mut Tx) {
        let before: Vec<Condition> = serde_json::from_str(&self.row().conditions).unwrap_or_default();
        let after = conditions(self, &before, tx.now);
        let begins = |holds: &dyn Fn(&Condition) -> bool| after.iter().any(holds) && !before.iter().any(holds);
        if begins(&|one| one.holds(ConditionType::Recovering))
            && !tx.changes.has_event(self.id(), EventReason::RecoveryStarted)
        {
            tx.event(Some(self.id()), EventReason::RecoveryStarted, self.failures.recovering().sentence());
        }
        let exhausted = [Reason::RecoveryExhausted];
        if begins(&|one| one.status == ConditionStatus::True && one.has_reason(&exhausted)) {
            tx.event(Some(self.id()), EventReason::RecoveryExhausted, stall(self).1);
        }
        if after != before
            && let Ok(text) = serde_json::to_string(&after)
        {
            self.record.set_conditions(text, tx);
        }
    }
}

/// Returns whether everything in the workflow has ended, including the commands that its end has triggered.
fn is_completed(workflow: &LiveWorkflow) -> bool {
    workflow.row().completed_ms.is_some()
}

fn outcome(workflow: &LiveWorkflow) -> Reason {
    let counts = workflow.graph.counts();
    if workflow.row().expired {
        Reason::DeadlineExceeded
    } else if workflow.is_canceled() {
        Reason::Canceled
    } else if counts.failed + counts.terminated + counts.canceled > 0 {
        Reason::Failed
    } else {
        Reason::Succeeded
    }
}

fn all_completed(workflow: &LiveWorkflow) -> String {
    format!("{} completed", count(workflow.graph.counts().total, "job"))
}

fn failure_message(workflow: &LiveWorkflow) -> String {
    let counts = workflow.graph.counts();
    format!("{} failed, {} terminated, {} canceled", counts.failed, counts.terminated, counts.canceled)
}

fn conditions(workflow: &LiveWorkflow, before: &[Condition], now: Now) -> Vec<Condition> {
    let with_times = |condition: Condition| {
        let unchanged = before.iter().find(|old| old.type_ == condition.type_ && old.status == condition.status);
        let since = unchanged.map(|old| old.last_transition_time.clone());
        Condition {
            last_transition_time: since.unwrap_or_else(|| rfc3339(now.wall_ms)),
            observed_generation: Some(workflow.row().generation),
            ..condition
        }
    };
    current_conditions(workflow).into_iter().map(with_times).collect()
}

/// Returns all conditions, always in the same order. Their messages do not change with each job, so that they are
/// seldom written.
fn current_conditions(workflow: &LiveWorkflow) -> Vec<Condition> {
    let is_completed = is_completed(workflow);
    let is_suspended = workflow.is_suspended() && !is_completed;
    let (stall, stall_message) = stall(workflow);
    let is_stalled = stall != Reason::NotStalled;
    let recovering = workflow.failures.recovering();
    // Jobs of a canceled workflow are not retried.
    let recovers = recovering.reason().filter(|_| !workflow.is_canceled());
    let sentence = if recovers.is_some() { recovering.sentence() } else { String::new() };
    let outcome = if is_completed { outcome(workflow) } else { Reason::Running };
    let (succeeded, reason, message) = match outcome {
        Reason::Succeeded => (ConditionStatus::True, Reason::Completed, all_completed(workflow)),
        Reason::Canceled => (ConditionStatus::False, Reason::Canceled, failure_message(workflow)),
        Reason::DeadlineExceeded => (ConditionStatus::False, Reason::DeadlineExceeded, deadline_message(workflow)),
        _ if is_completed => (ConditionStatus::False, Reason::JobsFailed, failure_message(workflow)),
        _ if is_stalled => (ConditionStatus::Unknown, Reason::Stalled, stall_message.clone()),
        _ if is_suspended => (ConditionStatus::Unknown, Reason::Suspended, String::new()),
        _ if recovers.is_some() => (ConditionStatus::Unknown, Reason::Recovering, sentence.clone()),
        _ if waits_for_allocation(workflow) => (ConditionStatus::Unknown, Reason::WaitingForAllocation, String::new()),
        _ if workflow.row().started_ms.is_some() => (ConditionStatus::Unknown, Reason::Running, String::new()),
        _ => (ConditionStatus::Unknown, Reason::Pending, String::new()),
    };
    let suspension = match is_suspended {
        true if workflow.spec().is_managed_by_other() => Reason::ManagedByOther,
        true => Reason::UserRequest,
        false => Reason::NotSuspended,
    };
    let condition = |type_, is_true: bool, reason, message| Condition::new(type_, is_true.into(), reason, message);
    let recovery = recovers.unwrap_or(Reason::NotRecovering);
    vec![
        condition(ConditionType::Accepted, true, Reason::Planned, count(workflow.graph.counts().total, "job")),
        condition(ConditionType::Suspended, is_suspended, suspension, String::new()),
        allocations_ready(workflow),
        condition(ConditionType::Recovering, recovers.is_some(), recovery, sentence),
        condition(ConditionType::Stalled, is_stalled, stall, stall_message),
        condition(ConditionType::Finished, is_completed, outcome, String::new()),
        Condition::new(ConditionType::Succeeded, succeeded, reason, message),
    ]
}

/// Returns the reason why the workflow needs a manual action to continue, with a message.
fn stall(workflow: &LiveWorkflow) -> (Reason, String) {
    let counts = workflow.graph.counts();
    let is_still = counts.leased + counts.running + counts.recovering == 0 && !workflow.leases.has_revoked_jobs();
    if counts.pending_failed > 0 && counts.ready == 0 && is_still {
        return (Reason::PendingFailedJobs, "failed jobs need a manual decision".to_owned());
    }
    let stall = allocation_stall(workflow).filter(|_| is_still && counts.ready > 0 && !workflow.is_canceled());
    stall.unwrap_or((Reason::NotStalled, String::new()))
}

fn summary(workflow: &LiveWorkflow) -> api::Workflow {
    let (row, counts) = (workflow.row(), workflow.graph.counts());
    api::Workflow {
        id: row.id.0,
        name: row.name.clone(),
        namespace: row.namespace.clone(),
        owner: row.owner.clone(),
        generation: row.generation,
        creation_time: rfc3339(row.created_ms),
        working_dir: row.working_dir.clone(),
        suspended: workflow.is_suspended(),
        canceled: workflow.is_canceled(),
        slurm_cluster: workflow.schedulers.cluster().map(str::to_owned),
        enable_ro_crate: workflow.spec().enable_ro_crate == Some(true),
        document: None,
        status: WorkflowStatus {
            observed_generation: Some(row.generation),
            run_id: Some(row.run),
            start_time: row.started_ms.map(rfc3339),
            completion_time: row.completed_ms.map(rfc3339),
            progress: Some(format!("{}/{}", counts.settled(), counts.total)),
            plan: Some(PlanSummary { digest: row.digest.clone(), job_count: counts.total }),
            jobs: *counts,
            allocations: allocation_counts(workflow),
            failures: workflow.failures.latest().cloned().collect(),
            recovery: workflow.failures.recovering().status().filter(|_| !workflow.is_canceled()),
            conditions: serde_json::from_str(&row.conditions).unwrap_or_default(),
            ..WorkflowStatus::default()
        },
    }
}
