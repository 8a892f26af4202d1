//! Work for runners that is no job: the commands of actions, and recovery scripts. They are leased as jobs are, take no
//! resources, and are tried a few times when they fail or get lost.

use std::collections::{BTreeMap, HashSet};

use torc_api::action::{ActionState, TriggerType};
use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, FinishedAttempt, Lease, LeaseRole, Profile, SyncRequest, SyncResponse};

use super::Engine;
use super::actions::{ActionRecord, next_attempt};
use super::attempt::ago;
use super::runner::LeasedTask;
use super::tx::Tx;
use super::workflow::Workflow;
use crate::failure::exit_codes;
use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::rows::TaskLease;

/// How often a task may fail or get lost.
pub(super) const TRIES: i32 = 3;

/// Names a task: an action by its own number, a recovery script by its job's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TaskId {
    pub workflow: WorkflowId,
    pub number: JobId,
    pub role: LeaseRole,
}

impl Workflow {
    /// A task that has not ended.
    fn task(&self, number: JobId, role: LeaseRole) -> Option<&TaskLease> {
        match role {
            LeaseRole::Job => None,
            LeaseRole::Action => self
                .actions
                .find(number)
                .filter(|action| action.row.state == ActionState::Pending)
                .map(|action| &action.row.lease),
            LeaseRole::Recovery => self.recoveries.get(number).map(|row| &row.lease),
        }
    }

    fn change_task(&mut self, id: TaskId, tx: &mut Tx, change: impl FnOnce(&mut TaskLease)) {
        match id.role {
            LeaseRole::Job => {}
            LeaseRole::Action => self.actions.change(id.number, tx, |row| change(&mut row.lease)),
            LeaseRole::Recovery => self.recoveries.change(id.number, tx, |row| change(&mut row.lease)),
        }
    }

    /// Tasks that runners have.
    pub fn held_tasks(&self) -> Vec<(TaskId, RunnerId, AttemptKey)> {
        let held = |number, role, task: &TaskLease| {
            let id = TaskId { workflow: self.id(), number, role };
            Some((id, task.runner?, self.task_key(number, task)))
        };
        let pending = self.actions.open().filter(|action| action.row.state == ActionState::Pending);
        let actions = pending.filter_map(|action| held(action.row.id, LeaseRole::Action, &action.row.lease));
        let recoveries = self.recoveries.iter().filter_map(|row| held(row.job, LeaseRole::Recovery, &row.lease));
        actions.chain(recoveries).collect()
    }

    /// Whether a runner's lease of a task is still the one that counts.
    pub(super) fn is_present_task(&self, id: TaskId, key: &AttemptKey) -> bool {
        self.task(id.number, id.role).is_some_and(|task| self.task_key(id.number, task) == *key)
    }

    /// Whether a runner may have an action now. First the workflow starts, then the worker, then comes everything else.
    fn may_run(&self, action: &ActionRecord, runner: RunnerId, completing: bool) -> bool {
        let free = action.row.state == ActionState::Pending
            && action.row.lease.runner.is_none()
            && !self.ending_actions.contains_key(&action.row.id);
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

    fn action_lease(&self, action: &ActionRecord, epoch: i64, profile: u32) -> Lease {
        let mut command = "set -e".to_owned();
        for line in action.definition.commands.iter().flatten() {
            command.push('\n');
            command.push_str(line);
        }
        let env = [("TORC_ACTION_ID", action.row.id.to_string()), ("TORC_TRIGGER_TYPE", action.trigger().to_string())];
        Lease {
            key: self.task_key(action.row.id, &TaskLease { epoch, ..action.row.lease }),
            name: action.trigger().to_string(),
            command,
            profile,
            role: LeaseRole::Action,
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Lease::default()
        }
    }

    fn recovery_lease(&self, job: JobId, epoch: i64, profile: u32) -> Option<Lease> {
        let row = self.recoveries.get(job)?;
        let env = [("TORC_RETURN_CODE", row.return_code.to_string()), ("TORC_CAUSE", row.cause.to_string())];
        Some(Lease {
            key: self.task_key(job, &TaskLease { epoch, ..row.lease }),
            name: self.name(self.ordinal(job)?).to_owned(),
            command: row.script.clone(),
            profile,
            role: LeaseRole::Recovery,
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Lease::default()
        })
    }

    fn task_key(&self, number: JobId, task: &TaskLease) -> AttemptKey {
        AttemptKey { workflow: self.row.id.0, job: number.0, run: task.run, attempt: task.attempt, epoch: task.epoch }
    }

    /// What a lease without resources has in common with others of its workflow: all but the environment.
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
    /// Sets off what is due, and promises the runner what it may carry out now.
    pub(super) fn grant_tasks(
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
            let epoch = tx.next_lease();
            let Some(workflow) = self.workflows.get(&workflow_id) else { return };
            let Some(action) = workflow.actions.find(number) else { continue };
            let lease = workflow.action_lease(action, epoch, profile);
            let held = LeasedTask { key: lease.key, granted_in: response.sequence };
            response.leases.push(lease);
            let task = TaskId { workflow: workflow_id, number, role: LeaseRole::Action };
            self.promise_task(id, task, held, tx);
        }
    }

    /// Scripts take no resources, so their number is limited by how many jobs the runner runs at once.
    fn grant_recoveries(&mut self, id: RunnerId, workflow_id: WorkflowId, response: &mut SyncResponse, tx: &mut Tx) {
        let (Some(runner), Some(workflow)) = (self.runners.get(&id), self.workflows.get(&workflow_id)) else { return };
        if workflow.recoveries.iter().next().is_none() || workflow.is_starting() || workflow.is_preparing(id) {
            return;
        }
        let slots = runner.row.max_parallel_jobs.map_or(runner.row.capacity.cpus.max(1), i64::from);
        let held = runner.tasks.keys().filter(|task| task.role == LeaseRole::Recovery).count();
        let limit = usize::try_from(slots).unwrap_or(usize::MAX).saturating_sub(held);
        let is_there = |other: RunnerId| self.runners.get(&other).is_some_and(|other| !other.silent);
        let end = workflow.end_margin(runner.is_in_allocation());
        for job in workflow.recoveries_for(id, (&runner.place(tx.now), end), is_there, limit) {
            let epoch = tx.next_lease();
            let Some(workflow) = self.workflows.get(&workflow_id) else { return };
            let Some(ordinal) = workflow.ordinal(job) else { continue };
            let profile = response.profiles.len() as u32;
            let Some(lease) = workflow.recovery_lease(job, epoch, profile) else { continue };
            response.profiles.push(workflow.task_profile(workflow.profile(ordinal).env.clone()));
            let held = LeasedTask { key: lease.key, granted_in: response.sequence };
            response.leases.push(lease);
            let task = TaskId { workflow: workflow_id, number: job, role: LeaseRole::Recovery };
            self.promise_task(id, task, held, tx);
        }
    }

    fn promise_task(&mut self, id: RunnerId, task: TaskId, held: LeasedTask, tx: &mut Tx) {
        if let Some(workflow) = self.workflows.get_mut(&task.workflow) {
            workflow.change_task(task, tx, |promised| {
                promised.epoch = held.key.epoch;
                promised.runner = Some(id);
                promised.started_ms = None;
            });
        }
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.tasks.insert(task, held);
        }
    }

    /// Whether a key names a task, and which.
    fn task_of(&self, key: &AttemptKey) -> Option<TaskId> {
        let workflow = self.workflows.get(&WorkflowId(key.workflow))?;
        let number = JobId(key.job);
        let id = |role| TaskId { workflow: workflow.id(), number, role };
        if workflow.actions.find(number).is_some() {
            return Some(id(LeaseRole::Action));
        }
        let row = workflow.recoveries.get(number)?;
        (row.lease.epoch == key.epoch).then(|| id(LeaseRole::Recovery))
    }

    /// The task, if this is its present lease and it has not ended.
    fn current_task(&self, key: &AttemptKey) -> Option<(TaskId, TaskLease)> {
        let id = self.task_of(key)?;
        let task = self.workflows.get(&id.workflow)?.task(id.number, id.role)?;
        let current = (task.run, task.attempt, task.epoch) == (key.run, key.attempt, key.epoch);
        current.then_some((id, *task))
    }

    /// A task that the runner has, or had and that nobody else got since.
    fn task_for(&self, runner: RunnerId, key: &AttemptKey) -> Option<TaskId> {
        let (id, task) = self.current_task(key)?;
        task.runner.is_none_or(|holder| holder == runner).then_some(id)
    }

    /// The answer to a report, if it is one of a task.
    pub(super) fn accept_task(&mut self, runner: RunnerId, finished: &FinishedAttempt, tx: &mut Tx) -> Option<bool> {
        let id = self.task_of(&finished.key)?;
        let Some((_, task)) = self.current_task(&finished.key) else {
            // Known already, or of an attempt that nobody is interested in any more.
            return Some(self.is_last_lease(id, &finished.key));
        };
        for holder in task.runner.into_iter().chain([runner]) {
            if let Some(holder) = self.runners.get_mut(&holder) {
                holder.tasks.remove(&id);
            }
        }
        self.end_task(id, finished, Some(runner), tx);
        Some(true)
    }

    fn is_last_lease(&self, id: TaskId, key: &AttemptKey) -> bool {
        let action = self.workflows.get(&id.workflow).and_then(|workflow| workflow.actions.find(id.number));
        action.is_some_and(|action| (action.row.lease.attempt, action.row.lease.epoch) == (key.attempt, key.epoch))
    }

    fn end_task(&mut self, id: TaskId, finished: &FinishedAttempt, runner: Option<RunnerId>, tx: &mut Tx) {
        match id.role {
            LeaseRole::Job => {}
            LeaseRole::Action => {
                let host = runner.and_then(|id| self.runners.get(&id)).map(|runner| runner.row.host.clone());
                if let Some(workflow) = self.workflows.get_mut(&id.workflow) {
                    workflow.end_action(id.number, finished, (runner, host), tx);
                }
            }
            LeaseRole::Recovery => self.end_recovery(id.workflow, id.number, finished, tx),
        }
        self.wake_version += 1;
    }

    /// A runner says that it has this, and since when it runs. Whether it is a task; its own or not.
    pub(super) fn confirm_task(
        &mut self,
        runner: RunnerId,
        key: &AttemptKey,
        started_ms: Option<i64>,
        tx: &mut Tx,
    ) -> bool {
        if self.task_of(key).is_none() {
            return false;
        }
        let Some(id) = self.task_for(runner, key) else { return true };
        let Some(workflow) = self.workflows.get_mut(&id.workflow) else { return true };
        let known = workflow.task(id.number, id.role).copied().unwrap_or_default();
        let now_known = TaskLease { runner: Some(runner), started_ms: known.started_ms.or(started_ms), ..known };
        if now_known != known {
            workflow.change_task(id, tx, |task| *task = now_known);
        }
        if let Some(runner) = self.runners.get_mut(&runner) {
            runner.tasks.entry(id).or_insert(LeasedTask { key: *key, granted_in: 0 });
        }
        true
    }

    /// Whether a runner holds this task; nothing if it is none.
    pub(super) fn is_task_of(&self, runner: RunnerId, key: &AttemptKey) -> Option<bool> {
        self.task_of(key)?;
        Some(self.current_task(key).is_some_and(|(_, task)| task.runner == Some(runner)))
    }

    /// A runner gives a task back unstarted. Whether it was one.
    pub(super) fn release_task(&mut self, runner: RunnerId, key: &AttemptKey, tx: &mut Tx) -> bool {
        if self.task_of(key).is_none() {
            return false;
        }
        if let Some(id) = self.task_for(runner, key) {
            self.free_task(runner, id, tx);
        }
        true
    }

    fn free_task(&mut self, runner: RunnerId, id: TaskId, tx: &mut Tx) {
        if let Some(runner) = self.runners.get_mut(&runner) {
            runner.tasks.remove(&id);
        }
        if let Some(workflow) = self.workflows.get_mut(&id.workflow) {
            workflow.change_task(id, tx, |task| {
                task.runner = None;
                task.started_ms = None;
            });
        }
        self.wake_version += 1;
    }

    /// Tasks that the runner should have and does not name, though it has taken in the answer that brought them.
    pub(super) fn reclaim_tasks(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) {
        let Some(runner) = self.runners.get(&id).filter(|runner| !runner.tasks.is_empty()) else { return };
        let running = request.running.iter().map(|running| &running.key);
        let named: HashSet<TaskId> =
            request.queued.iter().chain(running).filter_map(|key| Some(self.current_task(key)?.0)).collect();
        let is_gone =
            |task: &TaskId, held: &LeasedTask| held.granted_in <= request.acknowledged && !named.contains(task);
        let gone = runner.tasks.iter().filter(|(task, held)| is_gone(task, held));
        let mut gone: Vec<TaskId> = gone.map(|(task, _)| *task).collect();
        gone.sort_unstable();
        for task in gone {
            self.give_up_task(id, task, "its runner no longer has it", tx);
        }
    }

    /// A runner has left without these tasks.
    pub(super) fn lose_tasks(&mut self, id: RunnerId, tasks: impl IntoIterator<Item = TaskId>, why: &str, tx: &mut Tx) {
        let mut tasks: Vec<TaskId> = tasks.into_iter().collect();
        tasks.sort_unstable();
        for task in tasks {
            self.give_up_task(id, task, why, tx);
        }
    }

    /// A runner does not have a task any more: a promise is free again, a started one has failed once more.
    fn give_up_task(&mut self, id: RunnerId, task: TaskId, why: &str, tx: &mut Tx) {
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.tasks.remove(&task);
        }
        let Some(workflow) = self.workflows.get(&task.workflow) else { return };
        let Some(held) = workflow.task(task.number, task.role).filter(|held| held.runner == Some(id)) else {
            return;
        };
        let Some(started_ms) = held.started_ms else { return self.release_unstarted(id, task, tx) };
        let lost = FinishedAttempt {
            key: workflow.task_key(task.number, held),
            return_code: exit_codes::LOST,
            cause: Some(Cause::Lost),
            duration_ms: (tx.now.wall_ms - started_ms).max(0).unsigned_abs(),
            message: Some(why.to_owned()),
            ..FinishedAttempt::default()
        };
        self.end_task(task, &lost, Some(id), tx);
    }

    /// Nobody has said that it was started, nor that it was not: the next lease of an action has the next number, so that no two
    /// starts share a log.
    fn release_unstarted(&mut self, id: RunnerId, task: TaskId, tx: &mut Tx) {
        self.free_task(id, task, tx);
        if let (LeaseRole::Action, Some(workflow)) = (task.role, self.workflows.get_mut(&task.workflow)) {
            workflow.change_task(task, tx, next_attempt);
        }
    }

    /// The tasks of a silent runner: what it had not started is free again, what it had is given up with patience.
    pub(super) fn expire_tasks(&mut self, id: RunnerId, silence_ms: u64, tx: &mut Tx) {
        let Some(runner) = self.runners.get(&id) else { return };
        let is_over = |task: &TaskId| {
            let Some(workflow) = self.workflows.get(&task.workflow) else { return true };
            let started = workflow.task(task.number, task.role).is_some_and(|held| held.started_ms.is_some());
            !started || workflow.orphan_after_ms().is_some_and(|patience| silence_ms > patience)
        };
        let over: Vec<TaskId> = runner.tasks.keys().filter(|task| is_over(task)).copied().collect();
        self.lose_tasks(id, over, "its runner has been silent for too long", tx);
    }

    /// Another runner goes on in the place of this one, with its tasks.
    pub(super) fn transfer_tasks(&mut self, earlier: RunnerId, tasks: Vec<TaskId>, successor: RunnerId, tx: &mut Tx) {
        for task in tasks {
            let Some(workflow) = self.workflows.get_mut(&task.workflow) else { continue };
            let held = workflow.task(task.number, task.role);
            if held.is_some_and(|held| held.runner == Some(earlier)) {
                workflow.change_task(task, tx, |held| held.runner = Some(successor));
            }
        }
        for workflow in self.workflows.values_mut() {
            workflow.worker_succeeded(earlier, successor, tx);
        }
    }

    /// A runner has left: what workers alone can do is not done any more.
    pub(super) fn forget_worker(&mut self, worker: RunnerId, tx: &mut Tx) {
        for workflow in self.workflows.values_mut() {
            workflow.worker_left(worker, tx);
        }
    }
}

impl Workflow {
    /// An attempt of an action has ended. It counts as executed when it has succeeded, and not before.
    fn end_action(
        &mut self,
        number: JobId,
        finished: &FinishedAttempt,
        (runner, host): (Option<RunnerId>, Option<String>),
        tx: &mut Tx,
    ) {
        let Some(action) = self.actions.find(number) else { return };
        let trigger = action.trigger();
        let succeeded = finished.cause.is_none() && finished.return_code == 0;
        // The runner was asked to stop; that says nothing about the action.
        let counts = !succeeded && finished.cause != Some(Cause::Stopped);
        let tries = action.row.lease.tries + i32::from(counts);
        let (state, reason, message) = if succeeded {
            let place = host.map_or_else(String::new, |host| format!(" on {host}"));
            (ActionState::Executed, "ActionExecuted", format!("action {number} ({trigger}) was executed{place}"))
        } else {
            let how = match finished.cause {
                Some(Cause::Lost) => "was lost".to_owned(),
                Some(Cause::Stopped) => "was stopped with its runner".to_owned(),
                _ => format!("failed with exit code {}", finished.return_code),
            };
            match tries < TRIES {
                true => (
                    ActionState::Pending,
                    "ActionRetried",
                    format!("action {number} ({trigger}) {how}, try {tries} of {TRIES}"),
                ),
                false => (
                    ActionState::Failed,
                    "ActionFailed",
                    format!("action {number} ({trigger}) {how} and is not tried again"),
                ),
            }
        };
        tx.event(Some(self.row.id), reason, message);
        let ended_ms = ago(tx.now.wall_ms, finished.ended_ms_ago);
        self.actions.change(number, tx, |row| {
            row.state = state;
            row.ended_ms = Some(ended_ms);
            row.return_code = Some(finished.return_code);
            row.message.clone_from(&finished.message);
            row.stdout.clone_from(&finished.stdout);
            row.stderr.clone_from(&finished.stderr);
            row.lease.tries = tries;
            if state == ActionState::Pending {
                next_attempt(&mut row.lease);
            } else {
                row.lease.runner = runner;
                row.lease.started_ms = Some(ago(ended_ms, finished.duration_ms));
            }
        });
    }
}
