//! Work for runners that is no job: the commands of actions, and recovery scripts. They are leased as jobs are, take no
//! resources, and are tried a few times when they fail or get lost.

use std::collections::{BTreeMap, HashSet};

use torc_api::action::{ActionState, TriggerType};
use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, FinishedAttempt, Lease, LeaseRole, Profile, SyncRequest, SyncResponse};

use super::State;
use super::actions::{ActionRecord, next_attempt};
use super::attempt::ago;
use super::record::Recorder;
use super::runner::HeldErrand;
use super::workflow::Workflow;
use crate::failure::exit_codes;
use crate::ids::{JobId, Now, RunnerId, WorkflowId};
use crate::rows::Errand;

/// How often an errand may fail or get lost.
pub(super) const TRIES: i32 = 3;

/// Names an errand: an action by its own number, a recovery script by its job's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ErrandId {
    pub workflow: WorkflowId,
    pub number: JobId,
    pub role: LeaseRole,
}

impl Workflow {
    /// An errand that has not ended.
    fn errand(&self, number: JobId, role: LeaseRole) -> Option<&Errand> {
        match role {
            LeaseRole::Job => None,
            LeaseRole::Action => self
                .actions
                .find(number)
                .filter(|action| action.row.state == ActionState::Pending)
                .map(|action| &action.row.errand),
            LeaseRole::Recovery => self.recoveries.get(number).map(|row| &row.errand),
        }
    }

    fn change_errand(&mut self, id: ErrandId, recorder: &mut Recorder, change: impl FnOnce(&mut Errand)) {
        match id.role {
            LeaseRole::Job => {}
            LeaseRole::Action => self.actions.change(id.number, recorder, |row| change(&mut row.errand)),
            LeaseRole::Recovery => self.recoveries.change(id.number, recorder, |row| change(&mut row.errand)),
        }
    }

    /// Errands that runners have.
    pub fn held_errands(&self) -> Vec<(ErrandId, RunnerId, AttemptKey)> {
        let held = |number, role, errand: &Errand| {
            let id = ErrandId { workflow: self.id(), number, role };
            Some((id, errand.runner?, self.errand_key(number, errand)))
        };
        let pending = self.actions.open().filter(|action| action.row.state == ActionState::Pending);
        let actions = pending.filter_map(|action| held(action.row.id, LeaseRole::Action, &action.row.errand));
        let recoveries = self.recoveries.iter().filter_map(|row| held(row.job, LeaseRole::Recovery, &row.errand));
        actions.chain(recoveries).collect()
    }

    /// Whether a runner's lease of an errand is still the one that counts.
    pub(super) fn is_present_errand(&self, id: ErrandId, key: &AttemptKey) -> bool {
        self.errand(id.number, id.role).is_some_and(|errand| self.errand_key(id.number, errand) == *key)
    }

    /// Whether a runner may have an action now. First the workflow starts, then the worker, then comes everything else.
    fn may_run(&self, action: &ActionRecord, runner: RunnerId, completing: bool) -> bool {
        let free = action.row.state == ActionState::Pending
            && action.row.errand.runner.is_none()
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
            key: self.errand_key(action.row.id, &Errand { epoch, ..action.row.errand }),
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
            key: self.errand_key(job, &Errand { epoch, ..row.errand }),
            name: self.name(self.ordinal(job)?).to_owned(),
            command: row.script.clone(),
            profile,
            role: LeaseRole::Recovery,
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Lease::default()
        })
    }

    fn errand_key(&self, number: JobId, errand: &Errand) -> AttemptKey {
        AttemptKey {
            workflow: self.row.id.0,
            job: number.0,
            run: errand.run,
            attempt: errand.attempt,
            epoch: errand.epoch,
        }
    }

    /// What a lease without resources has in common with others of its workflow: all but the environment.
    fn errand_profile(&self, env: BTreeMap<String, String>) -> Profile {
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

impl State {
    /// Sets off what is due, and promises the runner what it may carry out now.
    pub(super) fn grant_errands(
        &mut self,
        id: RunnerId,
        request: &SyncRequest,
        response: &mut SyncResponse,
        recorder: &mut Recorder,
        now: Now,
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
                workflow.trigger_actions(recorder);
                if wants_work {
                    workflow.enter_worker(id, &mut self.last.job, recorder);
                }
                if request.completing {
                    workflow.complete_worker(&row, recorder);
                }
                self.grant_actions(id, workflow_id, request.completing, response, recorder);
            }
            if !request.completing {
                self.grant_recoveries(id, workflow_id, response, recorder, now);
            }
        }
    }

    fn grant_actions(
        &mut self,
        id: RunnerId,
        workflow_id: WorkflowId,
        completing: bool,
        response: &mut SyncResponse,
        recorder: &mut Recorder,
    ) {
        let Some(workflow) = self.workflows.get(&workflow_id) else { return };
        let mine = workflow.actions.open().filter(|action| workflow.may_run(action, id, completing));
        let numbers: Vec<JobId> = mine.map(|action| action.row.id).collect();
        if numbers.is_empty() {
            return;
        }
        let profile = response.profiles.len() as u32;
        response.profiles.push(workflow.errand_profile(workflow.spec.env.clone()));
        for number in numbers {
            self.last.epoch += 1;
            let epoch = self.last.epoch;
            let Some(workflow) = self.workflows.get(&workflow_id) else { return };
            let Some(action) = workflow.actions.find(number) else { continue };
            let lease = workflow.action_lease(action, epoch, profile);
            let held = HeldErrand { key: lease.key, granted_in: response.sequence };
            response.leases.push(lease);
            let errand = ErrandId { workflow: workflow_id, number, role: LeaseRole::Action };
            self.promise_errand(id, errand, held, recorder);
        }
    }

    /// Scripts take no resources, so their number is limited by how many jobs the runner runs at once.
    fn grant_recoveries(
        &mut self,
        id: RunnerId,
        workflow_id: WorkflowId,
        response: &mut SyncResponse,
        recorder: &mut Recorder,
        now: Now,
    ) {
        let (Some(runner), Some(workflow)) = (self.runners.get(&id), self.workflows.get(&workflow_id)) else { return };
        if workflow.recoveries.iter().next().is_none() || workflow.is_starting() || workflow.is_preparing(id) {
            return;
        }
        let slots = runner.row.max_parallel_jobs.map_or(runner.row.capacity.cpus.max(1), i64::from);
        let held = runner.errands.keys().filter(|errand| errand.role == LeaseRole::Recovery).count();
        let limit = usize::try_from(slots).unwrap_or(usize::MAX).saturating_sub(held);
        let is_there = |other: RunnerId| self.runners.get(&other).is_some_and(|other| !other.silent);
        let end = workflow.end_margin(runner.is_in_allocation());
        for job in workflow.recoveries_for(id, (&runner.place(now), end), is_there, limit) {
            self.last.epoch += 1;
            let epoch = self.last.epoch;
            let Some(workflow) = self.workflows.get(&workflow_id) else { return };
            let Some(ordinal) = workflow.ordinal(job) else { continue };
            let profile = response.profiles.len() as u32;
            let Some(lease) = workflow.recovery_lease(job, epoch, profile) else { continue };
            response.profiles.push(workflow.errand_profile(workflow.profile(ordinal).env.clone()));
            let held = HeldErrand { key: lease.key, granted_in: response.sequence };
            response.leases.push(lease);
            let errand = ErrandId { workflow: workflow_id, number: job, role: LeaseRole::Recovery };
            self.promise_errand(id, errand, held, recorder);
        }
    }

    fn promise_errand(&mut self, id: RunnerId, errand: ErrandId, held: HeldErrand, recorder: &mut Recorder) {
        if let Some(workflow) = self.workflows.get_mut(&errand.workflow) {
            workflow.change_errand(errand, recorder, |promised| {
                promised.epoch = held.key.epoch;
                promised.runner = Some(id);
                promised.started_ms = None;
            });
        }
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.errands.insert(errand, held);
        }
    }

    /// Whether a key names an errand, and which.
    fn errand_of(&self, key: &AttemptKey) -> Option<ErrandId> {
        let workflow = self.workflows.get(&WorkflowId(key.workflow))?;
        let number = JobId(key.job);
        let id = |role| ErrandId { workflow: workflow.id(), number, role };
        if workflow.actions.find(number).is_some() {
            return Some(id(LeaseRole::Action));
        }
        let row = workflow.recoveries.get(number)?;
        (row.errand.epoch == key.epoch).then(|| id(LeaseRole::Recovery))
    }

    /// The errand, if this is its present lease and it has not ended.
    fn current_errand(&self, key: &AttemptKey) -> Option<(ErrandId, Errand)> {
        let id = self.errand_of(key)?;
        let errand = self.workflows.get(&id.workflow)?.errand(id.number, id.role)?;
        let current = (errand.run, errand.attempt, errand.epoch) == (key.run, key.attempt, key.epoch);
        current.then_some((id, *errand))
    }

    /// An errand that the runner has, or had and that nobody else got since.
    fn errand_for(&self, runner: RunnerId, key: &AttemptKey) -> Option<ErrandId> {
        let (id, errand) = self.current_errand(key)?;
        errand.runner.is_none_or(|holder| holder == runner).then_some(id)
    }

    /// The answer to a report, if it is one of an errand.
    pub(super) fn accept_errand(
        &mut self,
        runner: RunnerId,
        finished: &FinishedAttempt,
        context: (&mut Recorder, Now),
    ) -> Option<bool> {
        let id = self.errand_of(&finished.key)?;
        let Some((_, errand)) = self.current_errand(&finished.key) else {
            // Known already, or of an attempt that nobody is interested in any more.
            return Some(self.is_last_lease(id, &finished.key));
        };
        for holder in errand.runner.into_iter().chain([runner]) {
            if let Some(holder) = self.runners.get_mut(&holder) {
                holder.errands.remove(&id);
            }
        }
        self.end_errand(id, finished, Some(runner), context);
        Some(true)
    }

    fn is_last_lease(&self, id: ErrandId, key: &AttemptKey) -> bool {
        let action = self.workflows.get(&id.workflow).and_then(|workflow| workflow.actions.find(id.number));
        action.is_some_and(|action| (action.row.errand.attempt, action.row.errand.epoch) == (key.attempt, key.epoch))
    }

    fn end_errand(
        &mut self,
        id: ErrandId,
        finished: &FinishedAttempt,
        runner: Option<RunnerId>,
        (recorder, now): (&mut Recorder, Now),
    ) {
        match id.role {
            LeaseRole::Job => {}
            LeaseRole::Action => {
                let host = runner.and_then(|id| self.runners.get(&id)).map(|runner| runner.row.host.clone());
                if let Some(workflow) = self.workflows.get_mut(&id.workflow) {
                    workflow.end_action(id.number, finished, (runner, host), recorder, now);
                }
            }
            LeaseRole::Recovery => self.end_recovery(id.workflow, id.number, finished, (recorder, now)),
        }
        self.news += 1;
    }

    /// A runner says that it has this, and since when it runs. Whether it is an errand; its own or not.
    pub(super) fn confirm_errand(
        &mut self,
        runner: RunnerId,
        key: &AttemptKey,
        started_ms: Option<i64>,
        recorder: &mut Recorder,
    ) -> bool {
        if self.errand_of(key).is_none() {
            return false;
        }
        let Some(id) = self.errand_for(runner, key) else { return true };
        let Some(workflow) = self.workflows.get_mut(&id.workflow) else { return true };
        let known = workflow.errand(id.number, id.role).copied().unwrap_or_default();
        let now_known = Errand { runner: Some(runner), started_ms: known.started_ms.or(started_ms), ..known };
        if now_known != known {
            workflow.change_errand(id, recorder, |errand| *errand = now_known);
        }
        if let Some(runner) = self.runners.get_mut(&runner) {
            runner.errands.entry(id).or_insert(HeldErrand { key: *key, granted_in: 0 });
        }
        true
    }

    /// Whether a runner holds this errand; nothing if it is none.
    pub(super) fn is_errand_of(&self, runner: RunnerId, key: &AttemptKey) -> Option<bool> {
        self.errand_of(key)?;
        Some(self.current_errand(key).is_some_and(|(_, errand)| errand.runner == Some(runner)))
    }

    /// A runner gives an errand back unstarted. Whether it was one.
    pub(super) fn release_errand(&mut self, runner: RunnerId, key: &AttemptKey, recorder: &mut Recorder) -> bool {
        if self.errand_of(key).is_none() {
            return false;
        }
        if let Some(id) = self.errand_for(runner, key) {
            self.free_errand(runner, id, recorder);
        }
        true
    }

    fn free_errand(&mut self, runner: RunnerId, id: ErrandId, recorder: &mut Recorder) {
        if let Some(runner) = self.runners.get_mut(&runner) {
            runner.errands.remove(&id);
        }
        if let Some(workflow) = self.workflows.get_mut(&id.workflow) {
            workflow.change_errand(id, recorder, |errand| {
                errand.runner = None;
                errand.started_ms = None;
            });
        }
        self.news += 1;
    }

    /// Errands that the runner should have and does not name, though it has taken in the answer that brought them.
    pub(super) fn reclaim_errands(&mut self, id: RunnerId, request: &SyncRequest, recorder: &mut Recorder, now: Now) {
        let Some(runner) = self.runners.get(&id).filter(|runner| !runner.errands.is_empty()) else { return };
        let running = request.running.iter().map(|running| &running.key);
        let named: HashSet<ErrandId> =
            request.queued.iter().chain(running).filter_map(|key| Some(self.current_errand(key)?.0)).collect();
        let is_gone =
            |errand: &ErrandId, held: &HeldErrand| held.granted_in <= request.acknowledged && !named.contains(errand);
        let gone = runner.errands.iter().filter(|(errand, held)| is_gone(errand, held));
        let mut gone: Vec<ErrandId> = gone.map(|(errand, _)| *errand).collect();
        gone.sort_unstable();
        for errand in gone {
            self.give_up_errand(id, errand, "its runner no longer has it", recorder, now);
        }
    }

    /// A runner has left without these errands.
    pub(super) fn lose_errands(
        &mut self,
        id: RunnerId,
        errands: impl IntoIterator<Item = ErrandId>,
        why: &str,
        recorder: &mut Recorder,
        now: Now,
    ) {
        let mut errands: Vec<ErrandId> = errands.into_iter().collect();
        errands.sort_unstable();
        for errand in errands {
            self.give_up_errand(id, errand, why, recorder, now);
        }
    }

    /// A runner does not have an errand any more: a promise is free again, a started one has failed once more.
    fn give_up_errand(&mut self, id: RunnerId, errand: ErrandId, why: &str, recorder: &mut Recorder, now: Now) {
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.errands.remove(&errand);
        }
        let Some(workflow) = self.workflows.get(&errand.workflow) else { return };
        let Some(held) = workflow.errand(errand.number, errand.role).filter(|held| held.runner == Some(id)) else {
            return;
        };
        let Some(started_ms) = held.started_ms else { return self.forget_promise(id, errand, recorder) };
        let lost = FinishedAttempt {
            key: workflow.errand_key(errand.number, held),
            return_code: exit_codes::LOST,
            cause: Some(Cause::Lost),
            duration_ms: (now.wall_ms - started_ms).max(0).unsigned_abs(),
            message: Some(why.to_owned()),
            ..FinishedAttempt::default()
        };
        self.end_errand(errand, &lost, Some(id), (recorder, now));
    }

    /// Nobody has said that it was started, nor that it was not: the next lease of an action has the next number, so that no two
    /// starts share a log.
    fn forget_promise(&mut self, id: RunnerId, errand: ErrandId, recorder: &mut Recorder) {
        self.free_errand(id, errand, recorder);
        if let (LeaseRole::Action, Some(workflow)) = (errand.role, self.workflows.get_mut(&errand.workflow)) {
            workflow.change_errand(errand, recorder, next_attempt);
        }
    }

    /// The errands of a silent runner: what it had not started is free again, what it had is given up with patience.
    pub(super) fn expire_errands(&mut self, id: RunnerId, silence_ms: u64, recorder: &mut Recorder, now: Now) {
        let Some(runner) = self.runners.get(&id) else { return };
        let is_over = |errand: &ErrandId| {
            let Some(workflow) = self.workflows.get(&errand.workflow) else { return true };
            let started = workflow.errand(errand.number, errand.role).is_some_and(|held| held.started_ms.is_some());
            !started || workflow.orphan_after_ms().is_some_and(|patience| silence_ms > patience)
        };
        let over: Vec<ErrandId> = runner.errands.keys().filter(|errand| is_over(errand)).copied().collect();
        self.lose_errands(id, over, "its runner has been silent for too long", recorder, now);
    }

    /// Another runner goes on in the place of this one, with its errands.
    pub(super) fn hand_over_errands(
        &mut self,
        earlier: RunnerId,
        errands: Vec<ErrandId>,
        successor: RunnerId,
        recorder: &mut Recorder,
    ) {
        for errand in errands {
            let Some(workflow) = self.workflows.get_mut(&errand.workflow) else { continue };
            let held = workflow.errand(errand.number, errand.role);
            if held.is_some_and(|held| held.runner == Some(earlier)) {
                workflow.change_errand(errand, recorder, |held| held.runner = Some(successor));
            }
        }
        for workflow in self.workflows.values_mut() {
            workflow.worker_succeeded(earlier, successor, recorder);
        }
    }

    /// A runner has left: what workers alone can do is not done any more.
    pub(super) fn forget_worker(&mut self, worker: RunnerId, recorder: &mut Recorder) {
        for workflow in self.workflows.values_mut() {
            workflow.worker_left(worker, recorder);
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
        recorder: &mut Recorder,
        now: Now,
    ) {
        let Some(action) = self.actions.find(number) else { return };
        let trigger = action.trigger();
        let succeeded = finished.cause.is_none() && finished.return_code == 0;
        // The runner was asked to stop; that says nothing about the action.
        let counts = !succeeded && finished.cause != Some(Cause::Stopped);
        let tries = action.row.errand.tries + i32::from(counts);
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
        recorder.event(now, Some(self.row.id), reason, message);
        let ended_ms = ago(now.wall_ms, finished.ended_ms_ago);
        self.actions.change(number, recorder, |row| {
            row.state = state;
            row.ended_ms = Some(ended_ms);
            row.return_code = Some(finished.return_code);
            row.message.clone_from(&finished.message);
            row.stdout.clone_from(&finished.stdout);
            row.stderr.clone_from(&finished.stderr);
            row.errand.tries = tries;
            if state == ActionState::Pending {
                next_attempt(&mut row.errand);
            } else {
                row.errand.runner = runner;
                row.errand.started_ms = Some(ago(ended_ms, finished.duration_ms));
            }
        });
    }
}
