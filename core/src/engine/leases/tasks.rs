//! Auxiliary tasks: the commands of actions, and recovery scripts. They take no resources, and are tried a few times when they fail or
//! get lost.

use std::collections::BTreeMap;

use torc_api::action::{ActionState, TriggerType};
use torc_api::wire::{AttemptKey, Lease, LeaseRole, Profile, SyncRequest, SyncResponse};

use crate::engine::Engine;
use crate::engine::action_list::ActionRecord;
use crate::engine::actions::next_attempt;
use crate::engine::held_leases::LeaseTarget;
use crate::engine::tx::Tx;
use crate::engine::workflow::Workflow;
use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::rows::TaskLease;

impl Workflow {
    /// Returns the lease of a task that has not ended.
    pub(super) fn task_lease(&self, target: LeaseTarget) -> Option<&TaskLease> {
        let is_pending = |action: &&ActionRecord| action.row.state == ActionState::Pending;
        match target.role {
            LeaseRole::Job => None,
            LeaseRole::Action => self.actions.find(target.number).filter(is_pending).map(|action| &action.row.lease),
            LeaseRole::Recovery => self.recoveries.get(target.number).map(|row| &row.lease),
        }
    }

    pub(super) fn change_task(&mut self, target: LeaseTarget, tx: &mut Tx, change: impl FnOnce(&mut TaskLease)) {
        match target.role {
            LeaseRole::Job => {}
            LeaseRole::Action => self.actions.change(target.number, tx, |row| change(&mut row.lease)),
            LeaseRole::Recovery => self.recoveries.change(target.number, tx, |row| change(&mut row.lease)),
        }
    }

    pub(super) fn task_key(&self, number: JobId, lease: &TaskLease) -> AttemptKey {
        AttemptKey {
            workflow: self.row.id.0,
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
        let pending = self.actions.open().filter(|action| action.row.state == ActionState::Pending);
        let actions = pending.filter_map(move |action| held(action.row.id, LeaseRole::Action, &action.row.lease));
        actions.chain(self.recoveries.iter().filter_map(move |row| held(row.job, LeaseRole::Recovery, &row.lease)))
    }

    /// A runner has a task, and has started it at `started_ms` if it has.
    pub(super) fn confirm_task(&mut self, target: LeaseTarget, runner: RunnerId, started_ms: Option<i64>, tx: &mut Tx) {
        let Some(known) = self.task_lease(target).copied() else { return };
        let confirmed = TaskLease { runner: Some(runner), started_ms: known.started_ms.or(started_ms), ..known };
        if confirmed != known {
            self.change_task(target, tx, |lease| *lease = confirmed);
        }
    }

    /// Whether a key names the last lease of an action, which has ended.
    pub(super) fn was_last_of_action(&self, target: LeaseTarget, key: &AttemptKey) -> bool {
        let last = self.actions.find(target.number).map(|action| &action.row.lease);
        last.is_some_and(|last| (last.attempt, last.lease_id) == (key.attempt, key.lease_id))
    }

    /// A lease may have started without anything being known of it: the next one of an action has the next number, so that no two
    /// starts share a log.
    pub(super) fn begin_next_attempt(&mut self, target: LeaseTarget, tx: &mut Tx) {
        if target.role == LeaseRole::Action {
            self.change_task(target, tx, next_attempt);
        }
    }

    /// Whether a runner may have an action now. First the workflow starts, then the worker, then comes everything else.
    fn may_run(&self, action: &ActionRecord, runner: RunnerId, completing: bool) -> bool {
        let free = action.row.state == ActionState::Pending
            && action.row.lease.runner.is_none()
            && !self.leases.awaits_end_of(action.row.id);
        let own = action.row.worker.is_none_or(|worker| worker == runner);
        let its_turn = match action.trigger() {
            TriggerType::OnWorkflowStart => !completing,
            TriggerType::OnWorkflowComplete => !completing,
            TriggerType::OnWorkerComplete => completing,
            TriggerType::OnWorkerStart => !completing && !self.is_starting(),
            TriggerType::OnJobsReady | TriggerType::OnJobsComplete => {
                !completing && !self.is_starting() && !self.is_preparing(runner)
            }
        };
        let at_end = matches!(action.trigger(), TriggerType::OnWorkflowComplete | TriggerType::OnWorkerComplete);
        free && own
            && its_turn
            && action.is_for_runners()
            && (at_end || !self.is_suspended())
            && self.is_first_of_its_kind(action)
    }

    fn describe_action(&self, key: AttemptKey, profile: u32) -> Option<Lease> {
        let action = self.actions.find(JobId(key.job))?;
        let mut command = "set -e".to_owned();
        for line in action.definition.commands.iter().flatten() {
            command.push('\n');
            command.push_str(line);
        }
        let env = [("TORC_ACTION_ID", action.row.id.to_string()), ("TORC_TRIGGER_TYPE", action.trigger().to_string())];
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

    /// Returns what a lease without resources has in common with others of its workflow: all but the environment.
    fn task_profile(&self, env: BTreeMap<String, String>) -> Profile {
        Profile {
            unlimited: true,
            workflow_name: self.row.name.clone(),
            working_dir: self.row.working_dir.clone(),
            env,
            execution_config: self.spec.execution_config.clone(),
            ..Profile::default()
        }
    }
}

impl Engine {
    /// Fires the actions that are due, and leases to the runner the tasks that it may carry out now.
    pub(in crate::engine) fn grant_tasks(
        &mut self,
        id: RunnerId,
        request: &SyncRequest,
        response: &mut SyncResponse,
        tx: &mut Tx,
    ) {
        let Some(runner) = self.runners.get(&id) else { return };
        let row = runner.row.clone();
        let wants_work = request.want.limit > 0 && !request.completing;
        // A worker's end concerns workflows that have settled, too.
        let scope = match request.completing {
            true => self.in_scope(&row.scope).map(Workflow::id).collect(),
            false => self.live_in_scope(&row.scope),
        };
        for workflow_id in scope {
            let Some(workflow) = self.workflows.get_mut(&workflow_id) else { continue };
            if !workflow.actions.is_empty() {
                workflow.trigger_actions(tx);
                if wants_work {
                    workflow.enter_worker(id, tx);
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
        let mine = workflow.actions.open().filter(|action| workflow.may_run(action, id, completing));
        let numbers: Vec<JobId> = mine.map(|action| action.row.id).collect();
        if numbers.is_empty() {
            return;
        }
        let profile = response.profiles.len() as u32;
        response.profiles.push(workflow.task_profile(workflow.spec.env.clone()));
        for number in numbers {
            let target = LeaseTarget { workflow: workflow_id, number, role: LeaseRole::Action };
            let key = self.grant_lease(id, target, response.sequence, tx);
            let workflow = self.workflows.get(&workflow_id);
            response.leases.extend(key.and_then(|key| workflow?.describe_action(key, profile)));
        }
    }

    /// Scripts take no resources, so their number is limited by how many jobs the runner runs at once.
    fn grant_recoveries(&mut self, id: RunnerId, workflow_id: WorkflowId, response: &mut SyncResponse, tx: &mut Tx) {
        let (Some(runner), Some(workflow)) = (self.runners.get(&id), self.workflows.get(&workflow_id)) else { return };
        if workflow.recoveries.iter().next().is_none() || workflow.is_starting() || workflow.is_preparing(id) {
            return;
        }
        let slots = runner.row.max_parallel_jobs.map_or(runner.row.capacity.cpus.max(1), i64::from);
        let limit = usize::try_from(slots).unwrap_or(usize::MAX).saturating_sub(runner.leases.recovery_count());
        let is_there = |other: RunnerId| self.runners.get(&other).is_some_and(|other| !other.is_silent());
        let end = workflow.end_margin(runner.is_in_allocation());
        for number in workflow.recoveries_for(id, &runner.place(tx.now), end, is_there, limit) {
            let target = LeaseTarget { workflow: workflow_id, number, role: LeaseRole::Recovery };
            let Some(key) = self.grant_lease(id, target, response.sequence, tx) else { continue };
            let Some(workflow) = self.workflows.get(&workflow_id) else { return };
            let Some(job) = workflow.graph.ordinal(number) else { continue };
            response.leases.extend(workflow.describe_recovery(key, response.profiles.len() as u32));
            response.profiles.push(workflow.task_profile(workflow.graph.profile(job).env.clone()));
        }
    }

    /// A runner has left: what workers alone can do is not done any more.
    pub(in crate::engine) fn forget_worker(&mut self, worker: RunnerId, tx: &mut Tx) {
        for workflow in self.workflows.values_mut() {
            workflow.worker_left(worker, tx);
        }
    }
}
