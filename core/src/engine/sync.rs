//! The runner protocol: what is, compared with what should be.

use torc_api::event_reason::EventReason;
use torc_api::wire::{PROTOCOL, RegisterRequest, RegisterResponse, SyncRequest, SyncResponse, WorkRequest};

use super::held_leases::LeaseTarget;
use super::runners::Runner;
use super::tx::Tx;
use super::workflow::Workflow;
use super::{CommandError, Engine};
use crate::ids::{Now, RunnerId};
use crate::rows::RunnerRow;

/// An answer to a sync.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncAnswer {
    /// What to say.
    pub response: SyncResponse,
    /// There is nothing to say yet: the answer may wait for a change.
    pub may_wait: bool,
}

impl Engine {
    /// A runner introduces itself. In the place of an earlier one it takes over what that one held.
    pub fn register(&mut self, request: &RegisterRequest, tx: &mut Tx) -> Result<RegisterResponse, CommandError> {
        if request.protocol != PROTOCOL {
            return Err(CommandError::Protocol(request.protocol));
        }
        let allocation = self.enter_allocation(request, tx)?;
        let id = tx.next_runner();
        let mut row = runner_row(id, request, tx.now);
        if let Some((workflow, allocation)) = allocation {
            let home = self.workflows.get(&workflow).and_then(|home| home.allocations.get(allocation));
            row.scheduler = row.scheduler.or_else(|| home.and_then(|home| home.scheduler.clone()));
        }
        tx.changes.runner(&row);
        tx.event(None, EventReason::RunnerRegistered, format!("runner {id} on {} has registered", row.host));
        let mut runner = Runner::new(row, tx.now);
        runner.allocation = allocation;
        for predecessor in self.in_place(request) {
            self.succeed(predecessor, &mut runner, tx);
        }
        let lease_ms = self.lease_ms(&self.live_in_scope(&request.scope));
        self.runners.insert(runner);
        Ok(RegisterResponse { runner: id.0, version: env!("CARGO_PKG_VERSION").to_owned(), lease_ms })
    }

    fn in_place(&self, request: &RegisterRequest) -> Vec<RunnerId> {
        let RegisterRequest { host, place, scope, .. } = request;
        let same = |runner: &Runner| {
            let row = &runner.row;
            !place.is_empty() && row.place == *place && row.host == *host && self.may_succeed(scope, &row.scope)
        };
        self.runners.iter().filter(|(_, runner)| same(runner)).map(|(id, _)| *id).collect()
    }

    fn succeed(&mut self, predecessor: RunnerId, successor: &mut Runner, tx: &mut Tx) {
        let Some(mut earlier) = self.remove_runner(predecessor) else { return };
        earlier.row.ended_ms = Some(tx.now.wall_ms);
        tx.changes.runner(&earlier.row);
        self.transfer_leases(earlier, successor, tx);
    }

    /// A runner says what is; the answer says what should be.
    pub fn sync(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) -> Result<SyncAnswer, CommandError> {
        let runner = self.runners.get_mut(&id).ok_or(CommandError::NoRunner(id))?;
        let newest = runner.hear(request, tx.now);
        let mut response = SyncResponse { sequence: request.sequence, ..SyncResponse::default() };
        for finished in &request.finished {
            if self.is_from_another_store(finished, tx.now) || !self.accept_result(id, finished, tx) {
                response.refused.push(finished.key);
            }
        }
        self.take_slurm_stats(&request.slurm_stats, tx);
        if newest {
            self.ingest(id, request, tx);
        }
        self.answer(id, request, newest, &mut response, tx);
        let nothing_reported =
            request.finished.is_empty() && request.returned.is_empty() && request.slurm_stats.is_empty();
        let nothing_to_say = newest && !self.should_respond(id, request, &response);
        let may_wait = nothing_to_say && nothing_reported && !request.leaving;
        Ok(SyncAnswer { response, may_wait })
    }

    /// What a waiting runner should be told now, if anything.
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
            let has_new_orders = runner.has_new_directives(request, response);
            runner.has_new_directive_for_all(request, response) || has_new_orders
        });
        is_new || !response.leases.is_empty() || !response.refused.is_empty()
    }

    /// A newer message has come from the runner, or it has left: the older one is not waited for any more.
    pub fn is_overtaken(&self, id: RunnerId, sequence: u64) -> bool {
        self.runners.get(&id).is_none_or(|runner| runner.sequence() != sequence)
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
            capacity_expected: self.expects_capacity(&live),
            ..SyncResponse::default()
        }
    }

    fn answer(&mut self, id: RunnerId, request: &SyncRequest, newest: bool, response: &mut SyncResponse, tx: &mut Tx) {
        if newest {
            self.add_directives(id, request, response);
            if !request.leaving && (!request.stopping || request.completing) {
                self.grant_tasks(id, request, response, tx);
            }
            if request.leaving || request.want == WorkRequest::default() {
                self.withdraw_offer(id);
            } else {
                self.grant(id, request.want, response, tx);
            }
        }
        let plain = self.plain_response(id);
        response.verdict = plain.verdict;
        response.lease_ms = plain.lease_ms;
        response.prefetch = plain.prefetch;
        response.terms = plain.terms;
        response.capacity_expected = plain.capacity_expected;
    }

    /// What the runner has and should not have: it ends what is not its own or was cancelled, and gives back what need not
    /// start now.
    fn add_directives(&self, id: RunnerId, request: &SyncRequest, response: &mut SyncResponse) {
        for key in request.running.iter().map(|running| &running.key) {
            if self.held_by(id, key).is_none_or(|target| self.should_terminate(target)) {
                response.cancel.push(*key);
            }
        }
        for key in &request.queued {
            match self.held_by(id, key) {
                None => response.cancel.push(*key),
                Some(target) if self.is_wanted_back(id, target) => response.give_back.push(*key),
                Some(_) => {}
            }
        }
        response.cancel.sort_unstable();
        response.give_back.sort_unstable();
    }

    /// A job runs that is to be ended.
    fn should_terminate(&self, target: LeaseTarget) -> bool {
        let workflow = self.workflows.get(&target.workflow).filter(|_| target.role.is_job());
        let should_terminate =
            |workflow: &Workflow| Some(workflow.should_terminate(workflow.graph.ordinal(target.number)?));
        workflow.and_then(should_terminate).unwrap_or(false)
    }

    /// A job need not start now, or could start elsewhere.
    fn is_wanted_back(&self, id: RunnerId, target: LeaseTarget) -> bool {
        let is_suspended = || self.workflows.get(&target.workflow).is_some_and(Workflow::is_suspended);
        target.role.is_job() && (is_suspended() || self.is_asked_back(id, target.number))
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
