//! The runner protocol: what is, compared with what should be.

use torc_api::wire::{PROTOCOL, RegisterRequest, RegisterResponse, SyncRequest, SyncResponse, Want};

use super::offers::Offer;
use super::runner::{HeldLease, LeasedTask, RevokedLease, Runner};
use super::tx::Tx;
use super::workflow::Workflow;
use super::{CommandError, Engine};
use crate::ids::{Now, RunnerId};
use crate::rows::{DetachedLease, RunnerRow};

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
            let home = self.workflows.get(&workflow).and_then(|home| home.allocations.live.get(&allocation));
            row.scheduler = row.scheduler.or_else(|| home.and_then(|home| home.scheduler.clone()));
        }
        tx.changes.runner(&row);
        tx.event(None, "RunnerRegistered", format!("runner {id} on {} has registered", row.host));
        let mut runner = Runner::new(row, tx.now);
        runner.allocation = allocation;
        for predecessor in self.in_place(request) {
            self.succeed(predecessor, &mut runner, tx);
        }
        let lease_ms = self.lease_ms(&self.live_in_scope(&request.scope));
        self.runners.insert(id, runner);
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
        for (job_id, holding) in earlier.held.drain() {
            let Some(workflow) = self.workflows.get_mut(&holding.workflow) else { continue };
            let Some(job) = workflow.ordinal(job_id) else { continue };
            let record = &mut workflow.jobs[job as usize];
            record.runner = Some(successor.row.id);
            record.unconfirmed = false;
            tx.changes.updated(workflow.update(job));
            successor.held.insert(job_id, HeldLease { granted_in: 0, ..holding });
        }
        for (epoch, ending) in std::mem::take(&mut earlier.ending) {
            let lease = DetachedLease { runner: successor.row.id, ..ending.lease };
            successor.ending.insert(epoch, RevokedLease { lease, granted_in: 0 });
            tx.changes.detached(lease);
        }
        for (task, held) in &earlier.tasks {
            successor.tasks.insert(*task, LeasedTask { granted_in: 0, ..*held });
        }
        let tasks = earlier.tasks.drain().map(|(task, _)| task).collect();
        self.transfer_tasks(predecessor, tasks, successor.row.id, tx);
        earlier.row.ended_ms = Some(tx.now.wall_ms);
        tx.changes.runner(&earlier.row);
    }

    /// A runner says what is; the answer says what should be.
    pub fn sync(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) -> Result<SyncAnswer, CommandError> {
        let runner = self.runners.get_mut(&id).ok_or(CommandError::NoRunner(id))?;
        runner.heard_ms = tx.now.mono_ms;
        runner.heard_wall_ms = tx.now.wall_ms;
        runner.silent = false;
        runner.lease_seconds = request.lease_seconds;
        runner.ends_ms = request.remaining_ms.map(|left| tx.now.mono_ms.saturating_add(left));
        // A message that was overtaken by a newer one still reports what ended, but its view of what is held is old.
        let newest = request.sequence > runner.sequence;
        runner.sequence = runner.sequence.max(request.sequence);
        if newest {
            runner.offer.until_ms = Offer::until(request.wait_ms, tx.now);
        }
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
        if runner.sequence != request.sequence {
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
            if request.leaving || request.want == Want::default() {
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
            if let Some(own) = self.is_task_of(id, key) {
                response.cancel.extend((!own).then_some(*key));
                continue;
            }
            let unwanted = |(workflow, job): (&Workflow, u32)| workflow.should_terminate(job);
            if self.held_by(id, key).is_none_or(unwanted) {
                response.cancel.push(*key);
            }
        }
        for key in &request.queued {
            if let Some(own) = self.is_task_of(id, key) {
                response.cancel.extend((!own).then_some(*key));
                continue;
            }
            match self.held_by(id, key) {
                None => response.cancel.push(*key),
                Some((workflow, _)) if workflow.is_suspended() || self.is_asked_back(id, key) => {
                    response.give_back.push(*key);
                }
                Some(_) => {}
            }
        }
        response.cancel.sort_unstable();
        response.give_back.sort_unstable();
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
