//! The runner protocol: what is, compared with what should be.

use std::collections::HashSet;

use torc_api::state::JobState;
use torc_api::wire::{
    AttemptKey, FinishedAttempt, PROTOCOL, RegisterRequest, RegisterResponse, SyncRequest, SyncResponse, Want,
};

use super::attempt::ago;
use super::record::Recorder;
use super::runner::{Holding, Runner};
use super::workflow::Workflow;
use super::{Refusal, State};
use crate::ids::{JobId, Now, RunnerId, WorkflowId};
use crate::job::JobEvent;
use crate::rows::RunnerRow;

/// An answer to a sync.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncAnswer {
    /// What to say.
    pub response: SyncResponse,
    /// There is nothing to say yet: the answer may wait for news.
    pub may_wait: bool,
}

impl State {
    /// A runner introduces itself. In the place of an earlier one it takes over what that one held.
    pub fn register(
        &mut self,
        request: &RegisterRequest,
        recorder: &mut Recorder,
        now: Now,
    ) -> Result<RegisterResponse, Refusal> {
        if request.protocol != PROTOCOL {
            return Err(Refusal::Protocol(request.protocol));
        }
        self.last.runner += 1;
        let id = RunnerId(self.last.runner);
        let row = runner_row(id, request, now);
        recorder.runner(&row);
        recorder.event(now, None, "RunnerRegistered", format!("runner {id} on {} has registered", row.host));
        let mut runner = Runner::new(row, now);
        for predecessor in self.in_place(&request.host, &request.place) {
            self.succeed(predecessor, &mut runner, recorder, now);
        }
        let lease_ms = self.lease_ms(&self.live_in_scope(&request.scope));
        self.runners.insert(id, runner);
        Ok(RegisterResponse { runner: id.0, version: env!("CARGO_PKG_VERSION").to_owned(), lease_ms })
    }

    fn in_place(&self, host: &str, place: &str) -> Vec<RunnerId> {
        let same = |runner: &Runner| !place.is_empty() && runner.row.place == place && runner.row.host == host;
        self.runners.iter().filter(|(_, runner)| same(runner)).map(|(id, _)| *id).collect()
    }

    fn succeed(&mut self, predecessor: RunnerId, successor: &mut Runner, recorder: &mut Recorder, now: Now) {
        let Some(mut earlier) = self.runners.remove(&predecessor) else { return };
        for (job_id, holding) in earlier.held.drain() {
            let Some(workflow) = self.workflows.get_mut(&holding.workflow) else { continue };
            let Some(job) = workflow.ordinal(job_id) else { continue };
            let record = &mut workflow.jobs[job as usize];
            record.runner = Some(successor.row.id);
            record.in_doubt = false;
            recorder.updated(workflow.update(job));
            successor.held.insert(job_id, Holding { granted_in: 0, ..holding });
        }
        earlier.row.ended_ms = Some(now.wall_ms);
        recorder.runner(&earlier.row);
    }

    /// A runner says what is; the answer says what should be.
    pub fn sync(
        &mut self,
        id: RunnerId,
        request: &SyncRequest,
        recorder: &mut Recorder,
        now: Now,
    ) -> Result<SyncAnswer, Refusal> {
        let runner = self.runners.get_mut(&id).ok_or(Refusal::NoRunner(id))?;
        runner.heard_ms = now.mono_ms;
        runner.heard_wall_ms = now.wall_ms;
        runner.silent = false;
        runner.lease_seconds = request.lease_seconds;
        runner.ends_ms = request.remaining_ms.map(|left| now.mono_ms.saturating_add(left));
        // A message that was overtaken by a newer one still reports what ended, but its view of what is held is old.
        let newest = request.sequence > runner.sequence;
        runner.sequence = runner.sequence.max(request.sequence);
        if newest {
            runner.want = request.want;
        }
        let mut response = SyncResponse { sequence: request.sequence, ..SyncResponse::default() };
        for finished in &request.finished {
            if !self.accept_result(id, finished, recorder, now) {
                response.refused.push(finished.key);
            }
        }
        if newest {
            self.take_in(id, request, recorder, now);
        }
        self.answer(id, request, newest, &mut response, (recorder, now));
        let nothing_reported = request.finished.is_empty() && request.returned.is_empty();
        let nothing_to_say = newest && !self.is_worth_saying(id, request, &response);
        let may_wait = nothing_to_say && nothing_reported && !request.leaving;
        Ok(SyncAnswer { response, may_wait })
    }

    /// What a waiting runner should be told now, if anything.
    pub fn poll(
        &mut self,
        id: RunnerId,
        request: &SyncRequest,
        recorder: &mut Recorder,
        now: Now,
    ) -> Option<SyncResponse> {
        let runner = self.runners.get(&id)?;
        if runner.sequence != request.sequence {
            return Some(SyncResponse { sequence: request.sequence, ..self.plain_response(id) });
        }
        let mut response = SyncResponse { sequence: request.sequence, ..SyncResponse::default() };
        self.answer(id, request, true, &mut response, (recorder, now));
        self.is_worth_saying(id, request, &response).then_some(response)
    }

    fn is_worth_saying(&mut self, id: RunnerId, request: &SyncRequest, response: &SyncResponse) -> bool {
        let new_orders = self.runners.get_mut(&id).is_some_and(|runner| runner.hears_new_orders(request, response));
        new_orders
            || !response.leases.is_empty()
            || !response.refused.is_empty()
            || response.verdict != torc_api::wire::Verdict::Continue
    }

    /// A newer message has come from the runner, or it has left: the older one is not waited for any more.
    pub fn is_overtaken(&self, id: RunnerId, sequence: u64) -> bool {
        self.runners.get(&id).is_none_or(|runner| runner.sequence != sequence)
    }

    /// An answer without work: for a runner whose waiting time is over.
    pub fn plain_response(&self, id: RunnerId) -> SyncResponse {
        let Some(runner) = self.runners.get(&id) else { return SyncResponse::default() };
        let scope = &runner.row.scope;
        let live = self.live_in_scope(scope);
        SyncResponse {
            verdict: self.verdict(scope),
            lease_ms: self.lease_of(runner, &live),
            prefetch: self.prefetch(&live),
            terms: self.terms(scope),
            ..SyncResponse::default()
        }
    }

    fn answer(
        &mut self,
        id: RunnerId,
        request: &SyncRequest,
        newest: bool,
        response: &mut SyncResponse,
        context: (&mut Recorder, Now),
    ) {
        if newest {
            self.add_orders(id, request, response);
            if !request.leaving && request.want != Want::default() {
                self.grant(id, request.want, response, context);
            }
        }
        let plain = self.plain_response(id);
        response.verdict = plain.verdict;
        response.lease_ms = plain.lease_ms;
        response.prefetch = plain.prefetch;
        response.terms = plain.terms;
    }

    /// What the runner has and should not have: it ends what is not its own or was cancelled, and gives back what need not
    /// start now.
    fn add_orders(&self, id: RunnerId, request: &SyncRequest, response: &mut SyncResponse) {
        for key in request.running.iter().map(|running| &running.key) {
            let unwanted = |(workflow, job): (&Workflow, u32)| workflow.is_to_be_ended(job);
            if self.held_by(id, key).is_none_or(unwanted) {
                response.cancel.push(*key);
            }
        }
        for key in &request.queued {
            match self.held_by(id, key) {
                None => response.cancel.push(*key),
                Some((workflow, _)) if workflow.is_suspended() => response.give_back.push(*key),
                Some(_) => {}
            }
        }
        response.cancel.sort_unstable();
        response.give_back.sort_unstable();
    }

    /// Takes in what a runner says it holds, gave back or no longer has.
    fn take_in(&mut self, id: RunnerId, request: &SyncRequest, recorder: &mut Recorder, now: Now) {
        for key in &request.returned {
            self.release(id, key, recorder);
        }
        for running in &request.running {
            self.confirm_running(id, &running.key, ago(now.wall_ms, running.elapsed_ms), recorder, now);
        }
        for key in &request.queued {
            self.confirm_queued(id, key, recorder);
        }
        self.reclaim_missing(id, request, recorder, now);
        if request.leaving {
            self.retire(id, recorder, now);
        }
    }

    /// A result counts as long as no newer attempt exists and nobody else has started this one.
    fn accept_result(&mut self, id: RunnerId, finished: &FinishedAttempt, recorder: &mut Recorder, now: Now) -> bool {
        let key = &finished.key;
        let Some((workflow_id, job)) = self.locate(key) else { return false };
        let Some(workflow) = self.workflows.get(&workflow_id) else { return false };
        let record = &workflow.jobs[job as usize];
        let same_attempt = record.run == key.run && record.attempt == key.attempt;
        let holder = record.runner;
        let acceptable = match record.state {
            // The answer to an earlier report was lost: it is already written down.
            state
                if (state.is_complete() || state == JobState::PendingFailed)
                    && same_attempt
                    && record.epoch == key.epoch =>
            {
                return true;
            }
            JobState::Ready | JobState::Leased => same_attempt,
            JobState::Running => same_attempt && (record.epoch == key.epoch || holder == Some(id)),
            _ => false,
        };
        if !acceptable {
            return false;
        }
        if let Some(holder) = holder.and_then(|holder| self.runners.get_mut(&holder)) {
            holder.held.remove(&JobId(key.job));
        }
        self.end_attempt(workflow_id, job, finished, Some(id), (recorder, now));
        true
    }

    fn locate(&self, key: &AttemptKey) -> Option<(WorkflowId, u32)> {
        let workflow = self.workflows.get(&WorkflowId(key.workflow))?;
        Some((workflow.id(), workflow.ordinal(JobId(key.job))?))
    }

    /// Whether the key is the current attempt of a job that a runner may have.
    fn is_current(&self, key: &AttemptKey, states: &[JobState]) -> Option<(WorkflowId, u32)> {
        let (workflow, job) = self.locate(key)?;
        let record = &self.workflows.get(&workflow)?.jobs[job as usize];
        let current = record.run == key.run && record.attempt == key.attempt && states.contains(&record.state);
        current.then_some((workflow, job))
    }

    /// The job whose present lease this is, if the runner has it.
    fn held_by(&self, id: RunnerId, key: &AttemptKey) -> Option<(&Workflow, u32)> {
        let (workflow, job) = self.is_current(key, &[JobState::Leased, JobState::Running])?;
        let workflow = self.workflows.get(&workflow)?;
        let record = &workflow.jobs[job as usize];
        (record.runner == Some(id) && record.epoch == key.epoch).then_some((workflow, job))
    }

    fn release(&mut self, id: RunnerId, key: &AttemptKey, recorder: &mut Recorder) {
        let Some((workflow_id, job)) = self.is_current(key, &[JobState::Leased]) else { return };
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        let record = &workflow.jobs[job as usize];
        if record.runner != Some(id) || record.epoch != key.epoch {
            return;
        }
        let _ = workflow.step(job, JobEvent::LeaseEnded, recorder);
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.held.remove(&JobId(key.job));
        }
        self.news += 1;
    }

    /// The runner runs it. What really runs wins over a promise that nobody has acted upon.
    fn confirm_running(&mut self, id: RunnerId, key: &AttemptKey, started_ms: i64, recorder: &mut Recorder, now: Now) {
        let held = [JobState::Ready, JobState::Leased, JobState::Running];
        let Some((workflow_id, job)) = self.is_current(key, &held) else { return };
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        let record = &mut workflow.jobs[job as usize];
        if record.state == JobState::Running {
            record.in_doubt &= record.runner != Some(id);
            return;
        }
        let previous = record.runner.replace(id);
        record.epoch = key.epoch;
        record.started_ms = Some(started_ms);
        let _ = workflow.step(job, JobEvent::Started, recorder);
        if workflow.row.started_ms.is_none() {
            workflow.row.started_ms = Some(started_ms.min(now.wall_ms));
            recorder.workflow(&workflow.row);
        }
        self.transfer(previous, id, JobId(key.job), workflow_id);
    }

    /// The runner still has it waiting. A lease that ran out and was not given to anybody else is its own again.
    fn confirm_queued(&mut self, id: RunnerId, key: &AttemptKey, recorder: &mut Recorder) {
        let Some((workflow_id, job)) = self.is_current(key, &[JobState::Ready]) else { return };
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        let record = &mut workflow.jobs[job as usize];
        if record.epoch != key.epoch {
            return;
        }
        record.runner = Some(id);
        let _ = workflow.step(job, JobEvent::Granted, recorder);
        self.transfer(None, id, JobId(key.job), workflow_id);
    }

    fn transfer(&mut self, from: Option<RunnerId>, to: RunnerId, job: JobId, workflow: WorkflowId) {
        if let Some(previous) = from.filter(|previous| *previous != to).and_then(|id| self.runners.get_mut(&id)) {
            previous.held.remove(&job);
        }
        if let Some(runner) = self.runners.get_mut(&to) {
            let granted_in = runner.held.get(&job).map_or(0, |holding| holding.granted_in);
            runner.held.insert(job, Holding { workflow, granted_in });
        }
    }

    /// What we think the runner has and it does not name, though it has taken in the answer that brought it, is gone.
    fn reclaim_missing(&mut self, id: RunnerId, request: &SyncRequest, recorder: &mut Recorder, now: Now) {
        let Some(runner) = self.runners.get(&id) else { return };
        let running = request.running.iter().map(|running| &running.key);
        let named: HashSet<&AttemptKey> = request.queued.iter().chain(running).collect();
        let current = |job: JobId, workflow: WorkflowId| {
            let workflow = self.workflows.get(&workflow)?;
            Some(workflow.key(workflow.ordinal(job)?))
        };
        let mut missing: Vec<(JobId, WorkflowId)> = runner
            .held
            .iter()
            .filter(|(_, holding)| holding.granted_in <= request.acknowledged)
            .filter(|(job, holding)| current(**job, holding.workflow).is_none_or(|key| !named.contains(&key)))
            .map(|(job, holding)| (*job, holding.workflow))
            .collect();
        missing.sort_unstable();
        for (job, workflow) in missing {
            self.give_up(id, workflow, job, "its runner no longer has it", (recorder, now));
        }
    }

    /// A runner does not have a job any more: a promise returns to the pool, a started attempt is lost.
    pub(super) fn give_up(
        &mut self,
        id: RunnerId,
        workflow_id: WorkflowId,
        job_id: JobId,
        why: &str,
        context: (&mut Recorder, Now),
    ) {
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.held.remove(&job_id);
        }
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        let Some(job) = workflow.ordinal(job_id) else { return };
        let record = &workflow.jobs[job as usize];
        if record.runner != Some(id) {
            return;
        }
        match record.state {
            JobState::Leased => {
                let _ = workflow.step(job, JobEvent::LeaseEnded, context.0);
                self.news += 1;
            }
            JobState::Running => self.lose_attempt(workflow_id, job, why, context),
            _ => {}
        }
    }

    fn retire(&mut self, id: RunnerId, recorder: &mut Recorder, now: Now) {
        let Some(mut runner) = self.runners.remove(&id) else { return };
        let mut held: Vec<_> = runner.held.drain().collect();
        held.sort_unstable_by_key(|(job, _)| *job);
        runner.row.ended_ms = Some(now.wall_ms);
        recorder.runner(&runner.row);
        recorder.event(now, None, "RunnerLeft", format!("runner {id} on {} has left", runner.row.host));
        for (job, holding) in held {
            self.give_up(id, holding.workflow, job, "its runner left without it", (recorder, now));
        }
    }
}

fn runner_row(id: RunnerId, request: &RegisterRequest, now: Now) -> RunnerRow {
    let mut labels = request.labels.clone();
    labels.sort();
    labels.dedup();
    RunnerRow {
        id,
        host: request.host.clone(),
        pid: i64::from(request.pid),
        kind: request.kind,
        capacity: request.capacity,
        max_parallel_jobs: request.max_parallel_jobs,
        labels,
        scope: request.scope.clone(),
        scheduler: request.scheduler.clone(),
        slurm_job_id: request.slurm_job_id.clone(),
        output_dir: request.output_dir.clone(),
        place: request.place.clone(),
        version: request.version.clone(),
        started_ms: now.wall_ms,
        ended_ms: None,
    }
}
