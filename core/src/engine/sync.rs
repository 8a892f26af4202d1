//! The runner protocol: a runner reports its actual state, and the answer is the desired state.

use torc_api::event_reason::EventReason;
use torc_api::wire::{PROTOCOL, RegisterRequest, RegisterResponse, SyncRequest, SyncResponse, WorkRequest};

use super::accounting::ingest_slurm_stats;
use super::runners::LeaseTarget;
use super::runners::LiveRunner;
use super::tx::Tx;
use super::workflow::LiveWorkflow;
use super::{CommandError, Engine};
use crate::ids::{Now, RunnerId};
use crate::rows::RunnerRow;

/// The answer to a sync request, which may be sent later.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncAnswer {
    /// The answer if it is sent now.
    pub response: SyncResponse,
    /// The answer has nothing new and may wait for a change.
    pub may_wait: bool,
}

impl Engine {
    /// Registers a runner. It succeeds earlier runners in the same place, and takes over their leases.
    pub fn register(&mut self, request: &RegisterRequest, tx: &mut Tx) -> Result<RegisterResponse, CommandError> {
        if request.protocol != PROTOCOL {
            return Err(CommandError::Protocol(request.protocol));
        }
        let allocation = self.find_allocation_of_runner(request, tx)?;
        let id = tx.next_runner();
        let mut row = runner_row(id, request, tx.now);
        if let Some((workflow, allocation)) = allocation {
            let known = self.workflows.get(&workflow).and_then(|workflow| workflow.allocations.get(allocation));
            row.scheduler = row.scheduler.or_else(|| known.and_then(|known| known.scheduler.clone()));
        }
        tx.changes.runner(&row);
        tx.event(None, EventReason::RunnerRegistered, format!("runner {id} on {} has registered", row.host));
        let mut runner = LiveRunner::new(row, tx.now);
        if let Some(allocation) = allocation {
            runner.enter(allocation);
        }
        for predecessor in self.predecessors(request) {
            if let Some(mut earlier) = self.runners.remove(predecessor) {
                earlier.end(tx);
                self.leases().transfer(earlier, &mut runner, tx);
            }
        }
        let lease_ms = self.workflows.lease_ms(&self.workflows.live_in_scope(&request.scope));
        self.runners.insert(runner);
        Ok(RegisterResponse { runner: id.0, version: env!("CARGO_PKG_VERSION").to_owned(), lease_ms })
    }

    /// Returns the registered runners in the place of a new one.
    fn predecessors(&self, request: &RegisterRequest) -> Vec<RunnerId> {
        let RegisterRequest { host, place, scope, .. } = request;
        let is_same = |row: &RunnerRow| {
            !place.is_empty()
                && row.place == *place
                && row.host == *host
                && self.workflows.may_succeed(scope, &row.scope)
        };
        self.runners.values().map(LiveRunner::row).filter(|row| is_same(row)).map(|row| row.id).collect()
    }

    /// Records the actual state of a runner, and answers with the desired state.
    pub fn sync(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) -> Result<SyncAnswer, CommandError> {
        let runner = self.runners.get_mut(&id).ok_or(CommandError::NoRunner(id))?;
        let is_newest = runner.record_message(request, tx.now);
        let mut response = SyncResponse { sequence: request.sequence, ..SyncResponse::default() };
        for finished in &request.finished {
            if self.workflows.is_from_another_store(finished, tx.now) || !self.leases().accept_result(id, finished, tx)
            {
                response.refused.push(finished.key);
            }
        }
        ingest_slurm_stats(&self.workflows, &request.slurm_stats, tx);
        if is_newest {
            self.leases().ingest(id, request, tx);
        }
        self.answer(id, request, is_newest, &mut response, tx);
        let has_reports =
            !request.finished.is_empty() || !request.returned.is_empty() || !request.slurm_stats.is_empty();
        let is_unchanged = is_newest && !self.should_respond(id, request, &response);
        let may_wait = is_unchanged && !has_reports && !request.leaving;
        Ok(SyncAnswer { response, may_wait })
    }

    /// Returns the answer to a waiting sync if it has anything new.
    pub fn poll(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) -> Option<SyncResponse> {
        let runner = self.runners.get(&id)?;
        if runner.sequence() != request.sequence {
            return Some(SyncResponse { sequence: request.sequence, ..self.plain_response(id) });
        }
        let mut response = SyncResponse { sequence: request.sequence, ..SyncResponse::default() };
        self.answer(id, request, true, &mut response, tx);
        self.should_respond(id, request, &response).then_some(response)
    }

    fn should_respond(&mut self, id: RunnerId, request: &SyncRequest, response: &SyncResponse) -> bool {
        let is_new = self.runners.get_mut(&id).is_some_and(|runner| {
            // Both have to run: each records what the answer says.
            let has_new_keys = runner.has_new_keys(request, response);
            runner.has_new_directive(request, response) || has_new_keys
        });
        is_new || !response.leases.is_empty() || !response.refused.is_empty()
    }

    /// Returns whether a newer message has arrived from the runner, or the runner has left.
    pub(super) fn is_overtaken(&self, id: RunnerId, sequence: u64) -> bool {
        self.runners.get(&id).is_none_or(|runner| runner.sequence() != sequence)
    }

    /// Returns an answer without work, for a runner whose long poll has ended.
    pub(super) fn plain_response(&self, id: RunnerId) -> SyncResponse {
        let Some(runner) = self.runners.get(&id) else { return SyncResponse::default() };
        let scope = &runner.row().scope;
        let live = self.workflows.live_in_scope(scope);
        SyncResponse {
            directive: self.workflows.directive(scope),
            lease_ms: self.workflows.lease_of(runner, &live),
            prefetch: self.workflows.prefetch(&live),
            terms: self.workflows.runner_policy(scope),
            capacity_expected: self.workflows.may_add_capacity(&live),
            ..SyncResponse::default()
        }
    }

    fn answer(
        &mut self,
        id: RunnerId,
        request: &SyncRequest,
        is_newest: bool,
        response: &mut SyncResponse,
        tx: &mut Tx,
    ) {
        if is_newest {
            self.add_directives(id, request, response);
            if !request.leaving && (!request.stopping || request.completing) {
                self.leases().grant_tasks(id, request, response, tx);
            }
            if request.leaving || request.want == WorkRequest::default() {
                self.runners.remove_offer(id);
            } else {
                self.leases().grant_jobs(id, request.want, response, tx);
            }
        }
        let plain = self.plain_response(id);
        response.directive = plain.directive;
        response.lease_ms = plain.lease_ms;
        response.prefetch = plain.prefetch;
        response.terms = plain.terms;
        response.capacity_expected = plain.capacity_expected;
    }

    /// Adds to an answer the leases that the runner has and should not have. The runner cancels those that it does not
    /// hold or whose workflow is canceled. It gives back those that must not start now or could start elsewhere.
    fn add_directives(&self, id: RunnerId, request: &SyncRequest, response: &mut SyncResponse) {
        let held_by = |key| self.workflows.held_by(id, key);
        for key in request.running.iter().map(|running| &running.key) {
            if held_by(key).is_none_or(|target| self.should_terminate(target)) {
                response.cancel.push(*key);
            }
        }
        for key in &request.queued {
            match held_by(key) {
                None => response.cancel.push(*key),
                Some(target) if self.is_requested_back(id, target) => response.give_back.push(*key),
                Some(_) => {}
            }
        }
        response.cancel.sort_unstable();
        response.give_back.sort_unstable();
    }

    /// Returns whether a target is a running job of a canceled workflow.
    fn should_terminate(&self, target: LeaseTarget) -> bool {
        let workflow = self.workflows.get(&target.workflow).filter(|_| target.role.is_job());
        let should_terminate =
            |workflow: &LiveWorkflow| Some(workflow.should_terminate(workflow.graph.ordinal(target.number)?));
        workflow.and_then(should_terminate).unwrap_or(false)
    }

    /// Returns whether a target is a waiting job that must not start now, or could start elsewhere.
    fn is_requested_back(&self, id: RunnerId, target: LeaseTarget) -> bool {
        let is_suspended = || self.workflows.get(&target.workflow).is_some_and(LiveWorkflow::is_suspended);
        let is_for_other = || self.runners.get(&id).is_some_and(|runner| runner.is_requested_back(target.number));
        target.role.is_job() && (is_suspended() || is_for_other())
    }

    /// Applies all time limits that have passed: deadlines, offers, return requests and the silence of runners. Cheap
    /// if none has.
    pub fn expire(&mut self, tx: &mut Tx) {
        self.leases().expire(tx);
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
        process: request.process.clone(),
        version: request.version.clone(),
        started_ms: now.wall_ms,
        ended_ms: None,
    }
}
