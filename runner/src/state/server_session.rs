//! The session with the server: when to sync, what to send, and how to react to the answer.
//!
//! Reports are batched while there is work to do, and go at once when there is none. A sync without reports waits on the server for
//! news (a long poll); a newer one may overtake it.

use std::time::Duration;

use torc_api::wire::{
    AttemptKey, LEASE_SECONDS, LONG_POLL_SECONDS, RegisterResponse, RunnerDirective, RunnerPolicy, RunningAttempt,
    SyncRequest, SyncResponse,
};
use torc_core::backoff::Backoff;

use super::jobs::JobStage;
use super::lifecycle::Phase;
use super::poll_backoff::{PollMode, bounded};
use super::{AgentSettings, Effect, State, milliseconds};
use crate::clock::BootInstant;
use crate::config::RunnerExit;
use crate::events::RunnerEvent;
use crate::link::LinkError;

/// First delay after a failed call, and after an answer without news.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Delay of the next request after an answer with some, but not all, of the requested work.
const PARTIAL_ANSWER_DELAY: Duration = Duration::from_millis(5);
/// Silence after which a runner with frequent reports starts a long poll, for cancellations and leases that move.
const LONG_POLL_DELAY: Duration = Duration::from_millis(250);

/// Time for which a runner with an expired token waits for a new one. A server renews tokens soon after its return.
const TOKEN_RENEWAL_TIMEOUT: Duration = Duration::from_secs(300);

/// The state of the session.
#[derive(Debug, Default)]
pub(super) struct ServerSession {
    runner: Option<i64>,
    /// The runner ID, or the last one before the server forgot the runner.
    last_runner: Option<i64>,
    /// True if the shim ran before this agent, so that its jobs are known.
    shim_found: bool,
    registering: bool,
    sequence: u64,
    acknowledged: u64,
    in_flight: Vec<InFlight>,
    lease: Duration,
    /// The moment at which leases expire without another answer.
    lease_until: BootInstant,
    dirty_since: Option<BootInstant>,
    failures: u32,
    /// The moment of the first failed call of the current outage.
    failing_since: Option<BootInstant>,
    /// The error of the last failed call.
    last_failure: String,
    /// The moment at which the server first rejected the token as expired.
    outdated_since: Option<BootInstant>,
    /// True if the runner works without the server, because the outage is long.
    draining: bool,
    retry_at: BootInstant,
    /// Number of answers in a row without news.
    empty_answers: u32,
    ask_at: BootInstant,
    sent_at: BootInstant,
    heard_at: BootInstant,
    /// The policy that the workflows set for runners.
    policy: RunnerPolicy,
    /// True if work or nodes may still be added.
    capacity_expected: bool,
    /// The exit of a runner whose workflows have all settled; none before.
    settled: Option<RunnerExit>,
}

/// A sync that waits for its answer.
#[derive(Debug)]
struct InFlight {
    sequence: u64,
    sent: BootInstant,
    wait: Duration,
    /// The number of requested jobs.
    limit: u32,
    reports: Vec<AttemptKey>,
    returned: Vec<AttemptKey>,
    stats: Vec<AttemptKey>,
    started: Vec<AttemptKey>,
    completing: bool,
    leaving: bool,
}

impl InFlight {
    /// Returns whether the server answers at once: then another sync need not overtake this one.
    fn is_prompt(&self) -> bool {
        let reports = !self.reports.is_empty() || !self.returned.is_empty() || !self.stats.is_empty();
        self.leaving || self.completing || reports
    }
}

impl ServerSession {
    /// Creates the session of an unregistered runner. `shim_found` is true if the shim ran before this agent.
    pub fn new(shim_found: bool) -> Self {
        Self { shim_found, ..Self::default() }
    }

    /// Returns the runner ID, or the last one before the server forgot the runner.
    pub fn last_runner(&self) -> Option<i64> {
        self.last_runner
    }

    /// Returns when leases expire without another answer.
    pub fn lease_until(&self) -> BootInstant {
        self.lease_until
    }

    /// Returns the error of the last failed call.
    pub fn last_failure(&self) -> &str {
        &self.last_failure
    }

    pub fn heard_at(&self) -> BootInstant {
        self.heard_at
    }

    pub fn policy(&self) -> &RunnerPolicy {
        &self.policy
    }

    /// Returns whether work or nodes may still be added.
    pub fn capacity_expected(&self) -> bool {
        self.capacity_expected
    }

    /// Returns the exit reason, once all workflows of the runner have settled.
    pub fn settled(&self) -> Option<RunnerExit> {
        self.settled
    }

    pub fn is_registered(&self) -> bool {
        self.runner.is_some()
    }

    /// Returns whether the last call failed.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns when the current outage began.
    pub fn failing_since(&self) -> Option<BootInstant> {
        self.failing_since
    }

    /// Returns whether the runner works without the server.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Begins to work without the server, and pings it at `ping_at`.
    pub fn drain(&mut self, ping_at: BootInstant) {
        self.draining = true;
        self.retry_at = ping_at;
    }

    /// Returns whether the server has answered a sync.
    pub fn has_answered(&self) -> bool {
        self.heard_at != BootInstant::default()
    }

    /// Returns whether the runner has registered, so that its leases have an end.
    pub fn has_leases(&self) -> bool {
        self.lease_until != BootInstant::default()
    }

    /// Starts again like a runner with a new shim: it registers again and acknowledges nothing.
    pub fn reset(&mut self) {
        self.shim_found = false;
        self.deregister();
        self.acknowledged = 0;
    }

    pub fn mark_dirty(&mut self, now: BootInstant) {
        self.dirty_since.get_or_insert(now);
    }

    #[cfg(test)]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    #[cfg(test)]
    pub fn set_settled(&mut self, exit: RunnerExit, heard_at: BootInstant) {
        self.settled = Some(exit);
        self.heard_at = heard_at;
    }

    /// Forgets the runner ID, because the server no longer knows or accepts the runner.
    fn deregister(&mut self) {
        self.runner = None;
        self.in_flight.clear();
    }

    fn register(&mut self, response: &RegisterResponse, now: BootInstant) {
        self.registering = false;
        self.runner = Some(response.runner);
        self.last_runner = self.runner;
        self.lease = Duration::from_millis(response.lease_ms.max(1_000));
        self.lease_until = now.plus(self.lease);
        self.ask_at = now;
    }

    /// Handles a failed call. Returns whether it is the first one.
    fn failed(&mut self, reason: String, settings: &AgentSettings, now: BootInstant) -> bool {
        let is_first = self.failures == 0;
        self.failures = self.failures.saturating_add(1);
        self.failing_since.get_or_insert(now);
        self.last_failure = reason;
        let delay = match self.draining {
            true => settings.user.drain_ping_interval,
            false => retry_delay(self.failures, settings.user.poll_interval),
        };
        self.retry_at = now.plus(delay);
        is_first
    }

    /// Handles an answered call, which delivered `results` results. Returns an event after an outage.
    fn answered(&mut self, results: usize, now: BootInstant) -> Option<RunnerEvent> {
        self.outdated_since = None;
        if std::mem::take(&mut self.failures) == 0 {
            return None;
        }
        self.failing_since = None;
        if std::mem::take(&mut self.draining) {
            self.ask_at = now;
            return Some(RunnerEvent::Resumed { results });
        }
        Some(RunnerEvent::Reconnected)
    }

    /// Returns whether an expired token may still be renewed. A token that was never accepted is wrong.
    fn may_be_renewed(&mut self, now: BootInstant) -> bool {
        let since = *self.outdated_since.get_or_insert(now);
        self.has_answered() && now.since(since) < TOKEN_RENEWAL_TIMEOUT
    }

    /// Returns the duration of a lease.
    pub fn lease_time(&self) -> Duration {
        if self.lease.is_zero() { Duration::from_secs(LEASE_SECONDS) } else { self.lease }
    }
}

/// Returns the delay after this many calls in a row that failed or brought no news.
fn retry_delay(times: u32, longest: Duration) -> Duration {
    Backoff::new(MIN_RETRY_DELAY, longest).after(times).min(longest)
}

impl State {
    pub(super) fn registered(&mut self, response: &RegisterResponse, now: BootInstant, effects: &mut Vec<Effect>) {
        self.session.register(response, now);
        effects.extend(self.session.answered(self.reports.len(), now).map(Effect::Log));
        self.session.mark_dirty(now);
        effects.push(Effect::Log(RunnerEvent::Registered { runner: response.runner }));
    }

    pub(super) fn not_registered(&mut self, error: LinkError, now: BootInstant, effects: &mut Vec<Effect>) {
        self.session.registering = false;
        let error = match error {
            LinkError::Unknown => LinkError::Unreachable("no Torc server answers at this address".to_owned()),
            error => error,
        };
        self.unreachable(error, now, effects);
    }

    pub(super) fn not_answered(
        &mut self,
        sequence: u64,
        error: LinkError,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(at) = self.session.in_flight.iter().position(|sync| sync.sequence == sequence) else { return };
        let lost = self.session.in_flight.remove(at);
        if lost.is_prompt() || !lost.started.is_empty() {
            self.session.mark_dirty(now);
        }
        if error == LinkError::Unknown {
            self.session.deregister();
        }
        self.unreachable(error, now, effects);
    }

    fn unreachable(&mut self, error: LinkError, now: BootInstant, effects: &mut Vec<Effect>) {
        match error {
            // The server forgot the runner, so the runner registers again at once.
            LinkError::Unknown => self.session.retry_at = now,
            LinkError::Unreachable(reason) => {
                if self.session.failed(reason.clone(), &self.settings, now) {
                    effects.push(Effect::Log(RunnerEvent::Unreachable { reason }));
                }
            }
            LinkError::Outdated if self.session.may_be_renewed(now) => {
                self.unreachable(LinkError::Unreachable(error.to_string()), now, effects);
            }
            LinkError::Refused { .. } | LinkError::Unauthorized | LinkError::Outdated => {
                self.refused(error, now, effects);
            }
        }
    }

    /// Handles a final refusal: the runner ends its jobs, and the results stay with the shim.
    fn refused(&mut self, error: LinkError, now: BootInstant, effects: &mut Vec<Effect>) {
        self.session.deregister();
        self.begin_end(Err(error.clone()), now, effects);
        if self.lifecycle.fail(error.clone()) {
            self.exit(Err(error), effects);
        }
    }

    /// Handles the answer to a sync.
    pub(super) fn answered(&mut self, response: SyncResponse, now: BootInstant, effects: &mut Vec<Effect>) {
        let Some(at) = self.session.in_flight.iter().position(|sync| sync.sequence == response.sequence) else {
            return;
        };
        let sync = self.session.in_flight.remove(at);
        // This sync repeated the content of older ones, so their answers no longer matter.
        self.session.in_flight.retain(|other| other.sequence > sync.sequence);
        self.session.heard_at = now;
        if response.lease_ms > 0 {
            self.session.lease = Duration::from_millis(response.lease_ms);
        }
        self.session.lease_until = self.session.lease_until.max(sync.sent.plus(self.session.lease));
        self.remove_confirmed_reports(&sync, effects);
        self.session.acknowledged = response.sequence;
        self.session.policy = response.terms;
        self.session.capacity_expected = response.capacity_expected;
        self.schedule_request(&sync, &response, now);
        effects.extend(self.session.answered(sync.reports.len(), now).map(Effect::Log));
        if sync.is_prompt() || !response.leases.is_empty() {
            self.throughput.answered(now.since(sync.sent));
        }
        self.throughput.prefetch = self.settings.prefetch.over(&response.prefetch.unwrap_or_default());
        self.cancel(&response.cancel, now, effects);
        self.release(response.give_back, None, now, effects);
        let brought_nothing = response.leases.is_empty();
        self.take_leases(response.leases, &response.profiles, now, effects);
        if let Phase::Completing(exit, _) = *self.lifecycle.phase()
            && sync.completing
            && brought_nothing
        {
            self.lifecycle.leave(exit, now.plus(self.settings.shutdown_grace));
        }
        self.follow_directive(response.directive, sync.leaving, now, effects);
    }

    fn remove_confirmed_reports(&mut self, sync: &InFlight, effects: &mut Vec<Effect>) {
        let journaled = self.reports.journaled_among(&sync.reports);
        if !journaled.is_empty() {
            effects.push(Effect::Unjournal(journaled));
        }
        for key in &sync.reports {
            self.reports.settle(key);
        }
        if !sync.reports.is_empty() {
            effects.push(Effect::Acknowledge(sync.reports.clone()));
        }
        sync.returned.iter().for_each(|key| self.reports.forget_returned(key));
        sync.stats.iter().for_each(|key| self.sacct.remove_reported(key));
        sync.started.iter().for_each(|key| self.jobs.set_start_known(key));
    }

    /// Decides when the runner may ask for work again. A long poll returns as soon as there is news, so the next one may follow at
    /// once; otherwise the back-off decides.
    fn schedule_request(&mut self, sync: &InFlight, response: &SyncResponse, now: BootInstant) {
        let all = sync.limit > 0 && u32::try_from(response.leases.len()).is_ok_and(|count| count >= sync.limit);
        let can_wait = self.settings.user.long_poll;
        let waited = now.since(sync.sent) * 2 >= sync.wait;
        let has_changes = !response.leases.is_empty() || sync.is_prompt();
        let mode = match has_changes {
            true => PollMode::Progress,
            false if self.jobs.active_count() > 0 => PollMode::Waiting,
            false => PollMode::Idle,
        };
        self.session.empty_answers =
            if can_wait && (has_changes || waited) { 0 } else { self.session.empty_answers.saturating_add(1) };
        let delay = match self.session.empty_answers {
            _ if all => Duration::ZERO,
            0 => PARTIAL_ANSWER_DELAY,
            times if can_wait => retry_delay(times, self.backoff.wait_after(mode)),
            _ => self.backoff.wait_after(mode),
        };
        let time_left = self.deadlines.remaining(now);
        self.session.ask_at = now.plus(bounded(delay, self.session.lease_time(), time_left));
    }

    fn follow_directive(
        &mut self,
        directive: RunnerDirective,
        was_leaving: bool,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        self.session.settled = match directive {
            RunnerDirective::Complete => Some(RunnerExit::Complete),
            RunnerDirective::Canceled => Some(RunnerExit::Canceled),
            RunnerDirective::Continue | RunnerDirective::Leave => None,
        };
        if directive == RunnerDirective::Leave {
            self.begin_end(Ok(RunnerExit::Dismissed), now, effects);
        }
        if was_leaving && let Phase::Leaving(exit, _) = *self.lifecycle.phase() {
            self.exit(Ok(exit), effects);
        }
    }

    /// Registers or syncs, if a call is due.
    pub(super) fn contact_server(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let may_call = match self.lifecycle.phase() {
            Phase::Gone => false,
            Phase::Ending(exit) => exit.is_ok(),
            Phase::Serving | Phase::Completing(..) | Phase::Leaving(..) => true,
        };
        if !may_call || self.session.registering {
            return;
        }
        if self.session.is_failing() && now < self.session.retry_at {
            self.wake(self.session.retry_at);
            return;
        }
        let Some(runner) = self.session.runner else {
            self.session.registering = true;
            effects.push(Effect::Register);
            return;
        };
        match self.next_sync(now) {
            Some(due) if due <= now => self.sync(runner, now, effects),
            Some(due) => self.wake(due),
            None => {}
        }
    }

    /// Returns when the next sync is due; none while a prompt answer is awaited.
    fn next_sync(&self, now: BootInstant) -> Option<BootInstant> {
        let session = &self.session;
        if session.in_flight.len() >= 2 || session.in_flight.iter().any(InFlight::is_prompt) {
            return None;
        }
        let is_completing = matches!(self.lifecycle.phase(), Phase::Completing(..)) && self.jobs.is_empty();
        if is_completing || matches!(self.lifecycle.phase(), Phase::Leaving(..)) {
            return Some(now);
        }
        let has_reports =
            self.reports.iter().any(|(key, _)| !self.jobs.contains_key(key)) || !self.reports.returned().is_empty();
        let report = session.dirty_since.map(|since| match has_reports {
            true if self.jobs.is_starving() => now,
            // Dependents of the job may wait for the report, so only a report soon after another one is batched.
            true => session.sent_at.plus(self.settings.report_interval),
            false => since.plus(self.settings.report_interval),
        });
        let hungry = session.in_flight.iter().all(|sync| sync.limit == 0) && self.work_request(now).limit > 0;
        let ask = hungry.then(|| session.ask_at.max(now));
        let listens_at_once = self.can_wait(now) && !self.throughput.ends_within(self.settings.report_interval);
        let silence = if listens_at_once { Duration::ZERO } else { LONG_POLL_DELAY };
        let listen = session.in_flight.is_empty().then(|| session.ask_at.max(session.heard_at.plus(silence)));
        let renew = session.sent_at.plus(self.session.lease_time() / 3);
        [report, ask, listen, Some(renew)].into_iter().flatten().min()
    }

    /// Returns whether a sync may wait on the server for news. The first call fetches what the runner has to know, and a ping of an
    /// unreachable server needs only an answer.
    fn can_wait(&self, now: BootInstant) -> bool {
        let has_time = self.deadlines.end().is_none_or(|end| now < end);
        self.settings.user.long_poll && self.session.has_answered() && !self.session.is_draining() && has_time
    }

    fn sync(&mut self, runner: i64, now: BootInstant, effects: &mut Vec<Effect>) {
        let request = self.request(now);
        self.session.dirty_since = None;
        self.session.sent_at = now;
        self.session.in_flight.push(InFlight {
            sequence: request.sequence,
            sent: now,
            wait: Duration::from_millis(request.wait_ms),
            limit: request.want.limit,
            reports: request.finished.iter().map(|finished| finished.key).collect(),
            returned: request.returned.clone(),
            stats: self.sacct.unreported().keys().copied().collect(),
            started: request.running.iter().map(|running| running.key).collect(),
            completing: request.completing,
            leaving: request.leaving,
        });
        effects.push(Effect::Sync(runner, Box::new(request)));
    }

    /// Returns the complete state of the runner. Every sync has all of it, because the one before may not have arrived.
    pub(super) fn request(&mut self, now: BootInstant) -> SyncRequest {
        self.session.sequence += 1;
        let mut request = SyncRequest {
            sequence: self.session.sequence,
            acknowledged: self.session.acknowledged,
            shim_found: self.session.shim_found,
            returned: self.reports.returned().iter().copied().collect(),
            out_of_time: self.reports.out_of_time().iter().copied().collect(),
            slurm_stats: self.sacct.unreported().values().cloned().collect(),
            want: self.work_request(now),
            lease_seconds: self.settings.prefetch.lease_seconds.map(i32::unsigned_abs),
            remaining_ms: self.deadlines.remaining(now).map(milliseconds),
            stopping: !self.lifecycle.is_serving(),
            completing: matches!(self.lifecycle.phase(), Phase::Completing(..)) && self.jobs.is_empty(),
            leaving: matches!(self.lifecycle.phase(), Phase::Leaving(..)),
            ..SyncRequest::default()
        };
        for (key, job) in self.jobs.iter() {
            match job.stage {
                JobStage::Queued | JobStage::ShimQueued | JobStage::Recalled => request.queued.push(*key),
                JobStage::Starting => request.running.push(RunningAttempt { key: *key, elapsed_ms: 0 }),
                JobStage::Running | JobStage::Checking => {
                    let elapsed_ms = milliseconds(now.since(job.since));
                    request.running.push(RunningAttempt { key: *key, elapsed_ms });
                }
            }
        }
        let complete = self.reports.iter().filter(|(key, _)| !self.jobs.contains_key(key));
        request.finished = complete.map(|(_, report)| report.with_age(now)).collect();
        if self.can_wait(now) && !request.leaving && !request.completing {
            let third = milliseconds(self.session.lease_time() / 3);
            request.wait_ms = third.min(LONG_POLL_SECONDS * 1_000).min(request.remaining_ms.unwrap_or(u64::MAX));
        }
        request
    }
}
