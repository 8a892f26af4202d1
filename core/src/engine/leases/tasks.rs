//! Auxiliary tasks: the commands of actions, and recovery scripts. They need no resources, and are retried a few times when they fail or
//! are lost.

use std::collections::BTreeMap;

use torc_api::action::{ActionState, TriggerType};
use torc_api::wire::{AttemptKey, Lease, LeaseRole, Profile, SyncRequest, SyncResponse};

use super::Leases;
use crate::engine::runners::LeaseTarget;
use crate::engine::tx::Tx;
use crate::engine::workflow::LiveWorkflow;
use crate::engine::workflow::{ActionRecord, is_at_end};
use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::rows::TaskLease;

impl LiveWorkflow {
    /// Returns the lease of a task that has not ended.
    pub(super) fn task_lease(&self, target: LeaseTarget) -> Option<&TaskLease> {
        let is_pending = |action: &&ActionRecord| action.row().state == ActionState::Pending;
        match target.role {
            LeaseRole::Job => None,
            LeaseRole::Action => self.actions.find(target.number).filter(is_pending).map(|action| &action.row().lease),
            LeaseRole::Recovery => self.recoveries.get(target.number).map(|row| &row.lease),
        }
    }

    pub(super) fn change_task(&mut self, target: LeaseTarget, tx: &mut Tx, change: impl FnOnce(&mut TaskLease)) {
        match target.role {
            LeaseRole::Job => {}
            LeaseRole::Action => self.actions.change_lease(target.number, tx, change),
            LeaseRole::Recovery => self.recoveries.change_lease(target.number, tx, change),
        }
    }

    pub(super) fn task_key(&self, number: JobId, lease: &TaskLease) -> AttemptKey {
        AttemptKey {
            workflow: self.row().id.0,
            job: number.0,
            run: lease.run,
            attempt: lease.attempt,
            lease_id: lease.lease_id,
        }
    }

    /// Returns the tasks that runners hold.
    pub(super) fn held_tasks(&self) -> impl Iterator<Item = (LeaseTarget, RunnerId, AttemptKey)> {
        let held = |number, role, lease: &TaskLease| {
            let target = LeaseTarget { workflow: self.id(), number, role };
            Some((target, lease.runner?, self.task_key(number, lease)))
        };
        let pending = self.actions.open().filter(|action| action.row().state == ActionState::Pending);
        let actions = pending.filter_map(move |action| held(action.row().id, LeaseRole::Action, &action.row().lease));
        actions.chain(self.recoveries.iter().filter_map(move |row| held(row.job, LeaseRole::Recovery, &row.lease)))
    }

    /// Confirms that a runner has a task, and the time at which the task started.
    pub(super) fn confirm_task(&mut self, target: LeaseTarget, runner: RunnerId, started_ms: Option<i64>, tx: &mut Tx) {
        let Some(known) = self.task_lease(target).copied() else { return };
        let confirmed = TaskLease { runner: Some(runner), started_ms: known.started_ms.or(started_ms), ..known };
        if confirmed != known {
            self.change_task(target, tx, |lease| *lease = confirmed);
        }
    }

    /// Returns whether a key names the last lease of an action that has ended.
    pub(super) fn was_last_of_action(&self, target: LeaseTarget, key: &AttemptKey) -> bool {
        let last = self.actions.find(target.number).map(|action| &action.row().lease);
        last.is_some_and(|last| (last.attempt, last.lease_id) == (key.attempt, key.lease_id))
    }

    /// Ends an attempt whose start is unknown. The next attempt of an action has the next number, so that no two starts share a log.
    pub(super) fn begin_next_attempt(&mut self, target: LeaseTarget, tx: &mut Tx) {
        if target.role == LeaseRole::Action {
            self.actions.next_attempt(target.number, tx);
        }
    }

    /// Returns whether an action may be leased to a runner now. The start commands of the workflow come first, then those of the worker.
    fn may_run(&self, action: &ActionRecord, runner: RunnerId, completing: bool) -> bool {
        let is_free = action.row().state == ActionState::Pending
            && action.row().lease.runner.is_none()
            && !self.leases.awaits_end_of(action.row().id);
        let is_own = action.row().worker.is_none_or(|worker| worker == runner);
        let is_its_turn = match action.trigger() {
            TriggerType::OnWorkflowStart => !completing,
            TriggerType::OnWorkflowComplete => !completing,
            TriggerType::OnWorkerComplete => completing,
            TriggerType::OnWorkerStart => !completing && !self.is_starting(),
            TriggerType::OnJobsReady | TriggerType::OnJobsComplete => {
                !completing && !self.is_starting() && !self.actions.is_preparing(runner)
            }
        };
        is_free
            && is_own
            && is_its_turn
            && action.is_for_runners()
            && (is_at_end(action.trigger()) || !self.is_suspended())
            && self.actions.is_next_of_trigger(action)
    }

    fn describe_action(&self, key: AttemptKey, profile: u32) -> Option<Lease> {
        let action = self.actions.find(JobId(key.job))?;
        let mut command = "set -e".to_owned();
        for line in action.definition.commands.iter().flatten() {
            command.push('\n');
            command.push_str(line);
        }
        let env =
            [("TORC_ACTION_ID", action.row().id.to_string()), ("TORC_TRIGGER_TYPE", action.trigger().to_string())];
        Some(Lease {
            key,
            name: action.trigger().to_string(),
            command,
            profile,
            role: LeaseRole::Action,
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Lease::default()
        })
    }

    fn describe_recovery(&self, key: AttemptKey, profile: u32) -> Option<Lease> {
        let job = JobId(key.job);
        let row = self.recoveries.get(job)?;
        let env = [("TORC_RETURN_CODE", row.return_code.to_string()), ("TORC_CAUSE", row.cause.to_string())];
        Some(Lease {
            key,
            name: self.graph.name(self.graph.ordinal(job)?).to_owned(),
            command: row.script.clone(),
            profile,
            role: LeaseRole::Recovery,
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Lease::default()
        })
    }

    /// Returns the profile of a task: the same for all of a workflow, apart from the environment.
    fn task_profile(&self, env: BTreeMap<String, String>) -> Profile {
        Profile {
            unlimited: true,
            workflow_name: self.row().name.clone(),
            working_dir: self.row().working_dir.clone(),
            env,
            execution_config: self.spec().execution_config.clone(),
            ..Profile::default()
        }
    }
}

impl Leases<'_> {
    /// Triggers the actions that are due, and leases to the runner the tasks that it may execute now.
    pub fn grant_tasks(&mut self, id: RunnerId, request: &SyncRequest, response: &mut SyncResponse, tx: &mut Tx) {
        let Some(runner) = self.runners.get(&id) else { return };
        let row = runner.row().clone();
        let wants_work = request.want.limit > 0 && !request.completing;
        // The end of a worker triggers actions of settled workflows, too.
        let scope = match request.completing {
            true => self.workflows.in_scope(&row.scope).map(LiveWorkflow::id).collect(),
            false => self.workflows.live_in_scope(&row.scope),
        };
        for workflow_id in scope {
            let Some(workflow) = self.workflows.get_mut(&workflow_id) else { continue };
            if !workflow.actions.is_empty() {
                workflow.trigger_actions(tx);
                if wants_work {
                    workflow.trigger_worker_start(id, tx);
                }
                if request.completing {
                    workflow.complete_worker(&row, tx);
                }
                self.grant_actions(id, workflow_id, request.completing, response, tx);
            }
            if !request.completing {
                self.grant_recoveries(id, workflow_id, response, tx);
            }
        }
    }

    fn grant_actions(
        &mut self,
        id: RunnerId,
        workflow_id: WorkflowId,
        completing: bool,
        response: &mut SyncResponse,
        tx: &mut Tx,
    ) {
        let Some(workflow) = self.workflows.get(&workflow_id) else { return };
        let due = workflow.actions.open().filter(|action| workflow.may_run(action, id, completing));
        let numbers: Vec<JobId> = due.map(|action| action.row().id).collect();
        if numbers.is_empty() {
            return;
        }
        let profile = response.profiles.len() as u32;
        response.profiles.push(workflow.task_profile(workflow.spec().env.clone()));
        for number in numbers {
            let target = LeaseTarget { workflow: workflow_id, number, role: LeaseRole::Action };
            let key = self.grant_lease(id, target, response.sequence, tx);
            let workflow = self.workflows.get(&workflow_id);
            response.leases.extend(key.and_then(|key| workflow?.describe_action(key, profile)));
        }
    }

    /// Leases recovery scripts. They need no resources, so the number of jobs that the runner can run at once limits them.
    fn grant_recoveries(&mut self, id: RunnerId, workflow_id: WorkflowId, response: &mut SyncResponse, tx: &mut Tx) {
        let (Some(runner), Some(workflow)) = (self.runners.get(&id), self.workflows.get(&workflow_id)) else { return };
        if workflow.recoveries.iter().next().is_none() || workflow.is_starting() || workflow.actions.is_preparing(id) {
            return;
        }
        let slots = runner.row().max_parallel_jobs.map_or(runner.row().capacity.cpus.max(1), i64::from);
        let limit = usize::try_from(slots).unwrap_or(usize::MAX).saturating_sub(runner.leases.recovery_count());
        let is_there = |other: RunnerId| self.runners.get(&other).is_some_and(|other| !other.is_silent());
        let end = workflow.end_margin(runner.is_in_allocation());
        for number in workflow.recoveries_for(id, &runner.view(tx.now), end, is_there).into_iter().take(limit) {
            let target = LeaseTarget { workflow: workflow_id, number, role: LeaseRole::Recovery };
            let Some(key) = self.grant_lease(id, target, response.sequence, tx) else { continue };
            let Some(workflow) = self.workflows.get(&workflow_id) else { return };
            let Some(job) = workflow.graph.ordinal(number) else { continue };
            response.leases.extend(workflow.describe_recovery(key, response.profiles.len() as u32));
            response.profiles.push(workflow.task_profile(workflow.graph.profile(job).env.clone()));
        }
    }

    /// Skips the actions that only a runner that has left could execute.
    pub fn forget_worker(&mut self, worker: RunnerId, tx: &mut Tx) {
        for workflow in self.workflows.values_mut() {
            workflow.actions.worker_left(worker, tx);
        }
    }
}
