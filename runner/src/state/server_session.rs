//! The session with the server: when to sync, what to say, and what to make of the answer.
//!
//! Reports wait for company while there is work to do, and go at once when there is none. With nothing to say a sync waits on the
//! server for news; a newer one may overtake it.

use std::time::Duration;

use torc_api::wire::{
    AttemptKey, LEASE_SECONDS, LONG_POLL_SECONDS, RegisterResponse, RunnerDirective, RunnerPolicy, RunningAttempt,
    SyncRequest, SyncResponse,
};
use torc_core::backoff::Backoff;

use super::jobs::Stage;
use super::lifecycle::Phase;
use super::poll_backoff::{PollMode, bounded};
use super::{Effect, State, milliseconds};
use crate::clock::BootInstant;
use crate::config::RunnerExit;
use crate::events::RunnerEvent;
use crate::link::LinkError;

/// First pause after a failed call, and after an answer that brought nothing.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// Pause before asking again after an answer that brought some, but not all, of the work that was asked for.
const SHORT_PAUSE: Duration = Duration::from_millis(5);
/// A runner that reports often listens to the server after this time of silence, for cancellations and leases that move.
const LISTEN_AFTER: Duration = Duration::from_millis(250);

/// How long another token is waited for. A server that was away renews tokens soon after it is back.
const RENEWAL: Duration = Duration::from_secs(300);

/// What is known about the server.
#[derive(Debug, Default)]
pub(super) struct ServerSession {
    runner: Option<i64>,
    /// The number it has, or had before the server forgot it.
    last_runner: Option<i64>,
    /// The shim was there before the runner: what it held is known.
    shim_found: bool,
    registering: bool,
    sequence: u64,
    acknowledged: u64,
    in_flight: Vec<InFlight>,
    lease: Duration,
    /// Until when leases are good without another word.
    lease_until: BootInstant,
    dirty_since: Option<BootInstant>,
    failures: u32,
    /// Since when calls fail, and why the last one did.
    failing_since: Option<BootInstant>,
    last_failure: String,
    /// Since when the token is not accepted any more.
    outdated_since: Option<BootInstant>,
    /// The server has been away for so long that it is not counted on.
    draining: bool,
    retry_at: BootInstant,
    fruitless: u32,
    ask_at: BootInstant,
    sent_at: BootInstant,
    heard_at: BootInstant,
    /// How long to stay.
    policy: RunnerPolicy,
    /// Something could still add work or nodes.
    capacity_expected: bool,
    /// Everything that the runner serves has settled.
    settled: Option<RunnerExit>,
}

/// A sync without an answer so far.
#[derive(Debug)]
struct InFlight {
    sequence: u64,
    sent: BootInstant,
    wait: Duration,
    /// It asks for this many jobs.
    limit: u32,
    reports: Vec<AttemptKey>,
    returned: Vec<AttemptKey>,
    stats: Vec<AttemptKey>,
    started: Vec<AttemptKey>,
    completing: bool,
    leaving: bool,
}

impl InFlight {
    /// The server answers at once, so there is no use in overtaking it.
    fn is_prompt(&self) -> bool {
        let reports = !self.reports.is_empty() || !self.returned.is_empty() || !self.stats.is_empty();
        self.leaving || self.completing || reports
    }
}

impl ServerSession {
    /// A runner that the server does not know. `shim_found` says whether its shim was there before it.
    pub fn new(shim_found: bool) -> Self {
        Self { shim_found, ..Self::default() }
    }

    /// Returns the number that the runner has, or had before the server forgot it.
    pub fn last_runner(&self) -> Option<i64> {
        self.last_runner
    }

    /// Returns until when leases are good without another answer.
    pub fn lease_until(&self) -> BootInstant {
        self.lease_until
    }

    /// Returns why the last call failed.
    pub fn last_failure(&self) -> &str {
        &self.last_failure
    }

    pub fn heard_at(&self) -> BootInstant {
        self.heard_at
    }

    pub fn policy(&self) -> &RunnerPolicy {
        &self.policy
    }

    /// Whether something could still add work or nodes.
    pub fn capacity_expected(&self) -> bool {
        self.capacity_expected
    }

    /// Returns how to leave when everything that the runner serves has settled.
    pub fn settled(&self) -> Option<RunnerExit> {
        self.settled
    }

    pub fn is_registered(&self) -> bool {
        self.runner.is_some()
    }

    /// The last call failed.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// When the first of the calls that fail now failed.
    pub fn failing_since(&self) -> Option<BootInstant> {
        self.failing_since
    }

    /// The server is not counted on any more.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Begins to drain; the server is called again at `ping_at`.
    pub fn drain(&mut self, ping_at: BootInstant) {
        self.draining = true;
        self.retry_at = ping_at;
    }

    /// The server has answered at least once.
    pub fn has_heard(&self) -> bool {
        self.heard_at != BootInstant::default()
    }

    /// Leases were granted or taken over under a lease time that is known.
    pub fn has_leases(&self) -> bool {
        self.lease_until != BootInstant::default()
    }

    /// The runner introduces itself again, in an empty place, and has heard nothing yet.
    pub fn reset(&mut self) {
        self.shim_found = false;
        self.runner = None;
        self.in_flight.clear();
        self.acknowledged = 0;
    }

    /// There is something to report.
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

    fn failed(&mut self, now: BootInstant, pause: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.failing_since.get_or_insert(now);
        self.retry_at = now.plus(pause);
    }
}

/// Returns the pause after this many calls in a row that failed or brought nothing.
fn pause(times: u32, longest: Duration) -> Duration {
    Backoff::new(MIN_PAUSE, longest).after(times).min(longest)
}

impl State {
    pub(super) fn registered(&mut self, response: &RegisterResponse, now: BootInstant, effects: &mut Vec<Effect>) {
        self.session.registering = false;
        self.session.runner = Some(response.runner);
        self.session.last_runner = self.session.runner;
        self.session.lease = Duration::from_millis(response.lease_ms.max(1_000));
        self.session.lease_until = now.plus(self.session.lease);
        self.session.ask_at = now;
        self.reachable(self.reports.len(), now, effects);
        self.session.mark_dirty(now);
        effects.push(Effect::Log(RunnerEvent::Registered { runner: response.runner }));
    }

    pub(super) fn not_registered(&mut self, error: LinkError, now: BootInstant, effects: &mut Vec<Effect>) {
        self.session.registering = false;
        let error = match error {
            LinkError::Unknown => LinkError::Unreachable("there is no such server at its address".to_owned()),
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
            self.session.runner = None;
            self.session.in_flight.clear();
        }
        self.unreachable(error, now, effects);
    }

    fn unreachable(&mut self, error: LinkError, now: BootInstant, effects: &mut Vec<Effect>) {
        match error {
            // It forgot us: there is nothing to wait for.
            LinkError::Unknown => self.session.retry_at = now,
            LinkError::Unreachable(reason) => {
                if self.session.failures == 0 {
                    effects.push(Effect::Log(RunnerEvent::Unreachable { reason: reason.clone() }));
                }
                self.session.last_failure = reason;
                self.session.failed(now, self.pause_after_failure());
            }
            LinkError::Outdated if self.may_be_renewed(now) => {
                self.unreachable(LinkError::Unreachable(error.to_string()), now, effects);
            }
            LinkError::Refused { .. } | LinkError::Unauthorized | LinkError::Outdated => {
                self.refused(error, now, effects);
            }
        }
    }

    /// Whether it is too early to give a token up. One that was never accepted is wrong.
    fn may_be_renewed(&mut self, now: BootInstant) -> bool {
        let since = *self.session.outdated_since.get_or_insert(now);
        self.session.has_heard() && now.since(since) < RENEWAL
    }

    /// While it drains, the server is called now and then; before that more and more rarely.
    fn pause_after_failure(&self) -> Duration {
        match self.session.draining {
            true => self.settings.offline.ping_interval,
            false => pause(self.session.failures.saturating_add(1), self.settings.poll_interval),
        }
    }

    /// The server will never accept this runner: it ends in order, and its results stay with the shim.
    fn refused(&mut self, error: LinkError, now: BootInstant, effects: &mut Vec<Effect>) {
        self.session.runner = None;
        self.session.in_flight.clear();
        self.end_with(Err(error.clone()), now, effects);
        if self.lifecycle.fail(error.clone()) {
            self.exit(Err(error), effects);
        }
    }

    /// The server has answered; so many results are delivered with that.
    fn reachable(&mut self, results: usize, now: BootInstant, effects: &mut Vec<Effect>) {
        self.session.outdated_since = None;
        if std::mem::take(&mut self.session.failures) == 0 {
            return;
        }
        self.session.failing_since = None;
        if std::mem::take(&mut self.session.draining) {
            self.session.ask_at = now;
            effects.push(Effect::Log(RunnerEvent::Resumed { results }));
        } else {
            effects.push(Effect::Log(RunnerEvent::Reconnected));
        }
    }

    /// Takes in what should be.
    pub(super) fn answered(&mut self, response: SyncResponse, now: BootInstant, effects: &mut Vec<Effect>) {
        let Some(at) = self.session.in_flight.iter().position(|sync| sync.sequence == response.sequence) else {
            return;
        };
        let sync = self.session.in_flight.remove(at);
        // Everything older was said again in this one, and answers to it would come too late.
        self.session.in_flight.retain(|other| other.sequence > sync.sequence);
        self.session.heard_at = now;
        if response.lease_ms > 0 {
            self.session.lease = Duration::from_millis(response.lease_ms);
        }
        self.session.lease_until = self.session.lease_until.max(sync.sent.plus(self.session.lease));
        self.settle_reports(&sync, effects);
        self.session.acknowledged = response.sequence;
        self.session.policy = response.terms;
        self.session.capacity_expected = response.capacity_expected;
        self.pause_after(&sync, &response, now);
        self.reachable(sync.reports.len(), now, effects);
        if sync.is_prompt() || !response.leases.is_empty() {
            self.throughput.answered(now.since(sync.sent));
        }
        self.throughput.prefetch = self.settings.prefetch.over(&response.prefetch.unwrap_or_default());
        self.cancel(&response.cancel, now, effects);
        self.let_go(response.give_back, None, now, effects);
        let brought_nothing = response.leases.is_empty();
        self.take_leases(response.leases, &response.profiles, now, effects);
        if let Phase::Completing(exit, _) = *self.lifecycle.phase()
            && sync.completing
            && brought_nothing
        {
            self.lifecycle.leave(exit, now.plus(self.settings.shutdown_grace));
        }
        self.heed(response.verdict, sync.leaving, now, effects);
    }

    fn settle_reports(&mut self, sync: &InFlight, effects: &mut Vec<Effect>) {
        self.forget_journalled(&sync.reports, effects);
        for key in &sync.reports {
            self.reports.settle(key);
        }
        if !sync.reports.is_empty() {
            effects.push(Effect::Acknowledge(sync.reports.clone()));
        }
        sync.returned.iter().for_each(|key| self.reports.forget_returned(key));
        sync.stats.iter().for_each(|key| self.sacct.forget_news(key));
        sync.started.iter().for_each(|key| self.jobs.set_start_known(key));
    }

    /// Decides when the server may be asked for work again. What waits there is answered as soon as there is news, so the
    /// next call may follow at once; otherwise the back-off decides.
    fn pause_after(&mut self, sync: &InFlight, response: &SyncResponse, now: BootInstant) {
        let all = sync.limit > 0 && u32::try_from(response.leases.len()).is_ok_and(|count| count >= sync.limit);
        let can_wait = self.settings.long_poll;
        let waited = now.since(sync.sent) * 2 >= sync.wait;
        let mark_dirty = !response.leases.is_empty() || sync.is_prompt();
        let mode = match mark_dirty {
            true => PollMode::Progress,
            false if self.jobs.active_count() > 0 => PollMode::Waiting,
            false => PollMode::Idle,
        };
        self.session.fruitless =
            if can_wait && (mark_dirty || waited) { 0 } else { self.session.fruitless.saturating_add(1) };
        let pause = match self.session.fruitless {
            _ if all => Duration::ZERO,
            0 => SHORT_PAUSE,
            times if can_wait => pause(times, self.backoff.wait_after(mode)),
            _ => self.backoff.wait_after(mode),
        };
        let time_left = self.deadlines.end().map(|end| end.since(now));
        self.session.ask_at = now.plus(bounded(pause, self.lease_time(), time_left));
    }

    fn heed(&mut self, verdict: RunnerDirective, was_leaving: bool, now: BootInstant, effects: &mut Vec<Effect>) {
        self.session.settled = match verdict {
            RunnerDirective::Complete => Some(RunnerExit::Complete),
            RunnerDirective::Canceled => Some(RunnerExit::Canceled),
            RunnerDirective::Continue | RunnerDirective::Leave => None,
        };
        if verdict == RunnerDirective::Leave {
            self.end_with(Ok(RunnerExit::Dismissed), now, effects);
        }
        if was_leaving && let Phase::Leaving(exit, _) = *self.lifecycle.phase() {
            self.exit(Ok(exit), effects);
        }
    }

    /// Registers or syncs, if it is time for that.
    pub(super) fn keep_in_touch(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let may_talk = match self.lifecycle.phase() {
            Phase::Gone => false,
            Phase::Ending(exit) => exit.is_ok(),
            Phase::Serving | Phase::Completing(..) | Phase::Leaving(..) => true,
        };
        if !may_talk || self.session.registering {
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

    /// When the next sync is due; none while an answer is awaited that is worth waiting for.
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
            true if self.is_starving() => now,
            // Somebody else may wait for it: only a report soon after another one waits for company.
            true => session.sent_at.plus(self.settings.report_interval),
            false => since.plus(self.settings.report_interval),
        });
        let hungry = session.in_flight.iter().all(|sync| sync.limit == 0) && self.want(now).limit > 0;
        let ask = hungry.then(|| session.ask_at.max(now));
        let listens_at_once = self.can_wait(now) && !self.reports_are_frequent();
        let silence = if listens_at_once { Duration::ZERO } else { LISTEN_AFTER };
        let listen = session.in_flight.is_empty().then(|| session.ask_at.max(session.heard_at.plus(silence)));
        let renew = session.sent_at.plus(self.lease_time() / 3);
        [report, ask, listen, Some(renew)].into_iter().flatten().min()
    }

    /// Whether a sync waits on the server for news. The first call brings what the runner has to know, and one that asks whether the
    /// server is back only wants an answer.
    fn can_wait(&self, now: BootInstant) -> bool {
        let has_time = self.deadlines.end().is_none_or(|end| now < end);
        self.settings.long_poll && self.session.has_heard() && !self.session.is_draining() && has_time
    }

    /// Jobs end so often that the answers to reports bring what a waiting sync would.
    fn reports_are_frequent(&self) -> bool {
        self.throughput.interval().is_some_and(|interval| interval <= self.settings.report_interval)
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
            stats: self.sacct.news().keys().copied().collect(),
            started: request.running.iter().map(|running| running.key).collect(),
            completing: request.completing,
            leaving: request.leaving,
        });
        effects.push(Effect::Sync(runner, Box::new(request)));
    }

    /// What is. Every sync says all of it: whether the one before has arrived is not known.
    pub(super) fn request(&mut self, now: BootInstant) -> SyncRequest {
        self.session.sequence += 1;
        let mut request = SyncRequest {
            sequence: self.session.sequence,
            acknowledged: self.session.acknowledged,
            shim_found: self.session.shim_found,
            returned: self.reports.returned().iter().copied().collect(),
            out_of_time: self.reports.out_of_time().iter().copied().collect(),
            slurm_stats: self.sacct.news().values().cloned().collect(),
            want: self.want(now),
            lease_seconds: self.settings.prefetch.lease_seconds.map(i32::unsigned_abs),
            remaining_ms: self.deadlines.end().map(|end| milliseconds(end.since(now))),
            stopping: !self.lifecycle.is_serving(),
            completing: matches!(self.lifecycle.phase(), Phase::Completing(..)) && self.jobs.is_empty(),
            leaving: matches!(self.lifecycle.phase(), Phase::Leaving(..)),
            ..SyncRequest::default()
        };
        for (key, job) in self.jobs.iter() {
            match job.stage {
                Stage::Queued | Stage::Handed | Stage::Recalled => request.queued.push(*key),
                Stage::Starting => request.running.push(RunningAttempt { key: *key, elapsed_ms: 0 }),
                Stage::Running | Stage::Checking => {
                    let elapsed_ms = milliseconds(now.since(job.since));
                    request.running.push(RunningAttempt { key: *key, elapsed_ms });
                }
            }
        }
        let complete = self.reports.iter().filter(|(key, _)| !self.jobs.contains_key(key));
        request.finished = complete.map(|(_, report)| report.told_at(now)).collect();
        if self.can_wait(now) && !request.leaving && !request.completing {
            let third = milliseconds(self.lease_time() / 3);
            request.wait_ms = third.min(LONG_POLL_SECONDS * 1_000).min(request.remaining_ms.unwrap_or(u64::MAX));
        }
        request
    }

    /// Returns the duration of a lease.
    pub(super) fn lease_time(&self) -> Duration {
        if self.session.lease.is_zero() { Duration::from_secs(LEASE_SECONDS) } else { self.session.lease }
    }
}
