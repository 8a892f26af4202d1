use torc_api::failure::Prefetch;
use torc_api::state::Cause;
use torc_api::wire::{Lease, Profile, RunnerDirective};

use super::*;
use crate::protocol::{Outcome, StopReason};
use crate::state::lifecycle::Phase;

mod adoption;
mod claims;
mod deadlines;
mod exits;
mod files;
mod heartbeats;
mod messages;
mod outages;
mod profiles;
mod reports;
mod starts;
mod steps;
mod tasks;
mod usage;
mod waits;

pub(super) const SECOND: u64 = 1_000_000;

pub(super) fn settings(cpus: i64) -> Settings {
    Settings {
        shim_found: false,
        capacity: Resources { cpus, memory_bytes: 1 << 30, gpus: 0, nodes: 1 },
        devices: Vec::new(),
        allocation: None,
        max_parallel_jobs: None,
        working_dir: "/here".to_owned(),
        output_dir: "/out".to_owned(),
        api_url: None,
        server_file: None,
        token_dir: "/state/tokens".to_owned(),
        shell: ShellSetup::default(),
        report_interval: Duration::from_millis(100),
        poll_interval: Duration::from_secs(10),
        backoff_max: Duration::from_secs(300),
        long_poll: true,
        offline: OfflineSettings::default(),
        time: None,
        own_end: None,
        exit_when_complete: true,
        idle_exit: IdleExit::Never,
        persistent: false,
        prefetch: Prefetch::default(),
        shutdown_grace: Duration::from_secs(15),
        oom_kills: 0,
    }
}

pub(super) fn key(job: i64) -> AttemptKey {
    AttemptKey { workflow: 1, job, run: 1, attempt: 1, lease_id: job }
}

pub(super) fn profile(cpus: i64) -> Profile {
    Profile {
        resources: Resources { cpus, memory_bytes: 1 << 20, gpus: 0, nodes: 1 },
        runtime_seconds: 60,
        ..Profile::default()
    }
}

pub(super) fn lease(job: i64) -> Lease {
    Lease { key: key(job), name: format!("job{job}"), command: "true".to_owned(), ..Lease::default() }
}

/// A state with a clock that a test turns.
struct AgentHarness {
    state: State,
    now: BootInstant,
    profile: Profile,
    effects: Vec<Effect>,
    /// How often time was let pass.
    turns: u32,
}

impl AgentHarness {
    /// A runner that the server does not know yet.
    fn unregistered(settings: Settings, now: BootInstant) -> Self {
        Self { state: State::new(settings, now), now, profile: profile(1), effects: Vec::new(), turns: 0 }
    }

    fn with(settings: Settings) -> Self {
        let mut desk = Self::unregistered(settings, BootInstant(1_000 * SECOND));
        desk.handle(Event::Tick);
        assert!(matches!(desk.effects.as_slice(), [Effect::Register]), "{:?}", desk.effects);
        desk.handle(Event::Registered(RegisterResponse { runner: 5, version: String::new(), lease_ms: 120_000 }));
        desk
    }

    fn new(cpus: i64) -> Self {
        Self::with(settings(cpus))
    }

    fn handle(&mut self, event: Event) -> &mut Self {
        self.effects = self.state.handle(event, self.now);
        self
    }

    fn later(&mut self, duration: Duration) -> &mut Self {
        self.now = self.now.plus(duration);
        self.handle(Event::Tick)
    }

    /// Lets time pass up to the next moment the state asked for.
    fn until_due(&mut self) -> &mut Self {
        self.turns += 1;
        assert!(self.turns < 100_000, "what the test waits for never comes: {:?}", self.state);
        self.now = self.state.wake_at().expect("something is due").max(self.now);
        self.handle(Event::Tick)
    }

    fn sync(&self) -> &SyncRequest {
        let find = |effect: &'_ Effect| matches!(effect, Effect::Sync(..));
        match self.effects.iter().find(|effect| find(effect)) {
            Some(Effect::Sync(_, request)) => request,
            _ => panic!("no sync in {:?}", self.effects),
        }
    }

    fn has_sync(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Sync(..)))
    }

    fn answer(&mut self, jobs: impl IntoIterator<Item = i64>) -> &mut Self {
        let leases: Vec<Lease> = jobs.into_iter().map(lease).collect();
        self.respond(SyncResponse { leases, ..SyncResponse::default() })
    }

    fn respond(&mut self, response: SyncResponse) -> &mut Self {
        let sequence = self.state.session.sequence();
        let profiles = vec![self.profile.clone()];
        self.handle(Event::Answered(Box::new(SyncResponse { sequence, profiles, lease_ms: 120_000, ..response })))
    }

    fn fail(&mut self, error: LinkError) -> &mut Self {
        let sequence = self.state.session.sequence();
        self.handle(Event::NotAnswered(sequence, error))
    }

    fn starts(&self) -> Vec<i64> {
        let orders = self.effects.iter().filter_map(|effect| match effect {
            Effect::Start(order, _) => Some(order.key.job),
            _ => None,
        });
        orders.collect()
    }

    fn terminated(&self) -> Vec<(i64, i32, u64)> {
        let orders = self.effects.iter().filter_map(|effect| match effect {
            Effect::Terminate(order) => Some((order.key.job, order.signal, order.lead_ms)),
            _ => None,
        });
        orders.collect()
    }

    fn exit(&self) -> Option<Result<RunnerExit, LinkError>> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Exit(exit) => Some(exit.clone()),
            _ => None,
        })
    }

    fn started(&mut self, job: i64) -> &mut Self {
        self.handle(Event::Started(key(job), self.now, 100))
    }

    fn ended(&mut self, job: i64, code: i32) -> &mut Self {
        self.handle(Event::Ended(Box::new(ended(job, Outcome::Exited(code), self.now))))
    }
}

fn shim_job(job: i64, started: BootInstant) -> ShimJob {
    let order = StartOrder { key: key(job), ..StartOrder::default() };
    ShimJob { order, started, ..ShimJob::default() }
}

/// Returns the order of job 1 as a step with this limit.
fn step_order(step_limit_ms: u64) -> StartOrder {
    StartOrder { key: key(1), step_limit_ms: Some(step_limit_ms), ..StartOrder::default() }
}

fn ended(job: i64, outcome: Outcome, at: BootInstant) -> JobExit {
    JobExit::new(key(job), at.minus(Duration::from_secs(1)), at, outcome)
}

// P01, P02
#[test]
fn asks_for_what_fits_and_starts_it() {
    let mut desk = AgentHarness::new(2);
    let want = desk.sync().want;
    assert_eq!((want.free.cpus, want.ahead, want.limit), (2, 0, 2), "how much it can run at once is not known yet");
    desk.answer([1, 2, 3]);
    assert_eq!(desk.starts(), [1, 2]);
    assert_eq!(desk.state.holds(), (2, 1));
}

// J08
#[test]
fn by_number_every_job_that_waits_takes_a_slot() {
    let mut desk = AgentHarness::with(Settings { max_parallel_jobs: Some(4), ..settings(1) });
    assert_eq!(desk.sync().want.limit, 4, "one CPU, and four at once all the same");
    desk.answer([1]);
    assert_eq!(desk.starts(), [1]);
    assert_eq!(desk.state.want(desk.now).limit, 4, "three that start at once, and one ahead");
}

// P02, P03, J16
#[test]
fn the_next_starts_when_one_ends_without_a_word_with_the_server() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1, 2, 3]);
    desk.started(1).ended(1, 0);
    assert_eq!(desk.starts(), [2]);
    assert!(!desk.has_sync(), "the report waits for company");
    desk.started(2).later(Duration::from_millis(100));
    let sync = desk.sync();
    assert_eq!(sync.finished.iter().map(|finished| finished.key).collect::<Vec<_>>(), [key(1)]);
    assert_eq!(sync.running.iter().map(|running| running.key).collect::<Vec<_>>(), [key(2)]);
}

// P09
#[test]
fn with_nothing_waiting_a_report_goes_at_once() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1]);
    desk.started(1).ended(1, 3);
    let finished = desk.sync().finished.clone();
    assert_eq!((finished[0].return_code, finished[0].cause), (3, Some(Cause::ExitCode)));
    assert_eq!(desk.sync().want.free.cpus, 1, "a report and a request travel together");
}

// P09
#[test]
fn reports_of_several_jobs_travel_together() {
    let mut desk = AgentHarness::new(2);
    desk.answer(1..=6);
    desk.started(1).started(2).ended(1, 0).ended(2, 0);
    desk.later(Duration::from_millis(100));
    assert_eq!(desk.sync().finished.len(), 2);
}

// P09
#[test]
fn results_are_repeated_until_answered_and_then_forgotten() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1]);
    desk.started(1).ended(1, 0);
    desk.fail(LinkError::Unreachable("x".to_owned()));
    assert!(matches!(desk.effects.as_slice(), [Effect::Log(RunnerEvent::Unreachable { .. })]));
    desk.until_due();
    assert_eq!(desk.sync().finished.len(), 1);
    desk.answer([]);
    assert!(desk.effects.iter().any(|effect| matches!(effect, Effect::Acknowledge(keys) if *keys == [key(1)])));
    desk.later(Duration::from_secs(1));
    assert!(desk.sync().finished.is_empty());
}

#[test]
fn a_newer_sync_overtakes_one_that_waits_but_not_one_that_reports() {
    let mut desk = AgentHarness::new(2);
    desk.answer([1]);
    desk.until_due();
    assert!(desk.sync().wait_ms >= 30_000 && desk.sync().finished.is_empty());
    desk.started(1).ended(1, 0);
    assert_eq!(desk.sync().finished.len(), 1, "it does not wait for the parked one");
    desk.handle(Event::Adopted(Box::new(shim_job(9, BootInstant::default()))));
    desk.handle(Event::Ended(Box::new(ended(9, Outcome::Exited(0), desk.now))));
    assert!(!desk.has_sync(), "two are under way");
    let parked = desk.state.session.sequence() - 1;
    desk.handle(Event::Answered(Box::new(SyncResponse { sequence: parked, ..SyncResponse::default() })));
    assert!(!desk.has_sync(), "the report is answered at once anyway");
    desk.answer([]);
    assert_eq!(desk.sync().finished.iter().map(|finished| finished.key).collect::<Vec<_>>(), [key(9)]);
}

#[test]
fn an_answer_that_was_overtaken_is_thrown_away() {
    let mut desk = AgentHarness::new(2);
    let first = desk.state.session.sequence();
    desk.handle(Event::Adopted(Box::new(shim_job(9, BootInstant::default()))));
    desk.handle(Event::Ended(Box::new(ended(9, Outcome::Exited(0), desk.now))));
    assert!(desk.has_sync());
    desk.answer([]);
    let late =
        SyncResponse { sequence: first, leases: vec![lease(1)], profiles: vec![profile(1)], ..SyncResponse::default() };
    desk.handle(Event::Answered(Box::new(late)));
    assert_eq!(desk.starts(), Vec::<i64>::new());
    assert_eq!(desk.state.holds(), (0, 0));
}

// J31
#[test]
fn calls_are_repeated_with_growing_pauses() {
    let mut desk = AgentHarness::new(1);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let before = desk.now;
        desk.fail(LinkError::Unreachable("x".to_owned())).until_due();
        assert!(desk.has_sync());
        pauses.push(desk.now.since(before).as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    desk.answer([1]);
    assert!(desk.effects.iter().any(|effect| matches!(effect, Effect::Log(RunnerEvent::Reconnected))));
    desk.started(1).ended(1, 0);
    let before = desk.now;
    desk.fail(LinkError::Unreachable("x".to_owned())).until_due();
    assert_eq!(desk.now.since(before).as_millis(), 100);
}

#[test]
fn an_empty_answer_is_not_asked_for_in_a_loop() {
    let mut settings = settings(1);
    settings.exit_when_complete = false;
    let mut desk = AgentHarness::with(settings);
    let mut pauses = Vec::new();
    for _ in 0..4 {
        desk.respond(SyncResponse { verdict: RunnerDirective::Complete, ..SyncResponse::default() });
        let before = desk.now;
        desk.until_due();
        while !desk.has_sync() {
            desk.until_due();
        }
        pauses.push(desk.now.since(before).as_millis());
    }
    assert_eq!(pauses, [5, 100, 200, 400], "only the first call does not ask to wait");
}

#[test]
fn a_server_that_forgot_us_is_told_everything_again() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1, 2]);
    desk.started(1).later(Duration::from_millis(100));
    desk.fail(LinkError::Unknown);
    assert!(desk.effects.iter().any(|effect| matches!(effect, Effect::Register)));
    desk.handle(Event::Registered(RegisterResponse { runner: 6, version: String::new(), lease_ms: 120_000 }));
    assert!(matches!(desk.effects.iter().find(|effect| matches!(effect, Effect::Sync(..))), Some(Effect::Sync(6, _))));
    assert_eq!((desk.sync().running.len(), desk.sync().queued.clone()), (1, vec![key(2)]));
}

#[test]
fn queued_leases_run_out() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1, 2]);
    desk.started(1).later(Duration::from_millis(100));
    desk.answer([]);
    while desk.state.holds() != (1, 0) {
        if desk.has_sync() {
            desk.fail(LinkError::Unreachable("x".to_owned()));
        }
        desk.until_due();
    }
    let held = desk.now.since(BootInstant(1_000 * SECOND));
    assert!(held >= Duration::from_secs(120) && held < Duration::from_secs(121), "{held:?}");
    assert!(desk.terminated().is_empty(), "its start was known");
    assert!(desk.state.reports.returned().is_empty(), "they are not ours to give back");
}

#[test]
fn a_start_that_nobody_knows_of_ends_with_its_lease() {
    let mut desk = AgentHarness::new(1);
    desk.profile.runtime_seconds = 100;
    desk.answer([1, 2]);
    desk.started(1).later(Duration::from_millis(100));
    while desk.terminated().is_empty() {
        if desk.has_sync() {
            desk.fail(LinkError::Unreachable("x".to_owned()));
        }
        if desk.terminated().is_empty() {
            desk.until_due();
        }
    }
    assert_eq!(desk.terminated(), [(1, 9, 0)]);
    desk.handle(Event::Ended(Box::new(ended(1, Outcome::Signaled(9), desk.now))));
    let report = desk.state.reports.get(&key(1)).expect("a report");
    assert_eq!((report.finished.return_code, report.finished.cause), (137, Some(Cause::Stopped)));
}

#[test]
fn without_a_server_only_what_fits_the_lease_is_started() {
    for (runtime, expected) in [(60, vec![2]), (200, vec![])] {
        let mut desk = AgentHarness::new(1);
        desk.profile.runtime_seconds = runtime;
        desk.answer([1, 2]);
        desk.started(1).later(Duration::from_millis(100));
        desk.fail(LinkError::Unreachable("x".to_owned()));
        desk.ended(1, 0);
        assert_eq!(desk.starts(), expected, "{runtime}");
    }
}

#[test]
fn cancel_ends_what_runs_and_returns_what_waits() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1, 2]);
    desk.started(1).later(Duration::from_millis(100));
    desk.respond(SyncResponse { cancel: vec![key(1), key(2)], ..SyncResponse::default() });
    assert_eq!(desk.terminated(), [(1, 15, 30_000)]);
    assert_eq!(desk.state.reports.returned().iter().copied().collect::<Vec<_>>(), [key(2)]);
    desk.handle(Event::Ended(Box::new(ended(1, Outcome::Signaled(15), desk.now))));
    let report = &desk.state.reports[&key(1)].finished;
    assert_eq!((report.return_code, report.cause), (143, Some(Cause::Canceled)));
}

#[test]
fn give_back_takes_only_what_has_not_started() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1, 2]);
    desk.started(1).later(Duration::from_millis(100));
    desk.respond(SyncResponse { give_back: vec![key(1), key(2)], ..SyncResponse::default() });
    assert!(desk.terminated().is_empty());
    assert_eq!(desk.state.reports.returned().iter().copied().collect::<Vec<_>>(), [key(2)]);
}

// J23
#[test]
fn stop_ends_in_order_and_leaves_with_a_last_word() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1, 2]);
    desk.started(1);
    desk.handle(Event::Stop);
    assert_eq!(desk.terminated(), [(1, 15, 30_000)]);
    desk.handle(Event::StopNow);
    assert_eq!(desk.terminated(), [(1, 9, 0)]);
    desk.later(Duration::from_millis(100));
    assert_eq!(desk.sync().returned, [key(2)]);
    assert_eq!(desk.sync().want, torc_api::wire::WorkRequest::default());
    desk.answer([]);
    desk.handle(Event::Ended(Box::new(ended(1, Outcome::Signaled(9), desk.now))));
    let sync = desk.sync();
    assert!(sync.leaving);
    assert_eq!((sync.finished[0].return_code, sync.finished[0].cause), (137, Some(Cause::Stopped)));
    desk.answer([]);
    assert_eq!(desk.exit(), Some(Ok(RunnerExit::Stopped)));
}

#[test]
fn a_job_that_had_ended_before_it_was_asked_to_has_ended_by_itself() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1]);
    desk.started(1);
    let before = desk.now;
    desk.now = desk.now.plus(Duration::from_millis(5));
    desk.handle(Event::Stop);
    desk.handle(Event::Ended(Box::new(ended(1, Outcome::Exited(0), before))));
    assert_eq!(desk.state.reports[&key(1)].finished.cause, None);
}

#[test]
fn a_farewell_that_is_not_heard_does_not_take_for_ever() {
    let mut desk = AgentHarness::new(1);
    desk.answer([]);
    desk.handle(Event::Stop);
    let before = desk.now;
    while desk.exit().is_none() {
        if desk.has_sync() {
            desk.fail(LinkError::Unreachable("x".to_owned()));
        } else {
            desk.until_due();
        }
    }
    assert_eq!(desk.now.since(before), Duration::from_secs(15));
}

#[test]
fn a_refusal_ends_the_runner_and_keeps_its_results() {
    let refused = LinkError::Refused { code: "protocol".to_owned(), message: "too old".to_owned() };
    let mut desk = AgentHarness::new(1);
    desk.answer([1]);
    desk.started(1).later(Duration::from_millis(100));
    desk.fail(refused.clone());
    assert_eq!(desk.terminated(), [(1, 15, 30_000)]);
    desk.handle(Event::Ended(Box::new(ended(1, Outcome::Signaled(15), desk.now))));
    assert_eq!(desk.exit(), Some(Err(refused)));
    assert!(!desk.effects.iter().any(|effect| matches!(effect, Effect::Acknowledge(_))));
}

#[test]
fn another_token_is_waited_for_while_one_may_come() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1]);
    desk.started(1).later(Duration::from_secs(3_600));
    // The server was away for long; when it is back, tokens have run out, and it has not written others yet.
    desk.fail(LinkError::Unreachable("x".to_owned())).until_due();
    desk.later(Duration::from_secs(600)).fail(LinkError::Outdated).until_due();
    desk.later(Duration::from_secs(290)).fail(LinkError::Outdated).until_due();
    assert!(desk.terminated().is_empty(), "the job goes on");
    desk.answer([]);
    desk.until_due().later(Duration::from_secs(1)).fail(LinkError::Outdated).until_due();
    assert!(desk.terminated().is_empty(), "the wait begins anew");
    desk.later(Duration::from_secs(301)).fail(LinkError::Outdated);
    assert_eq!(desk.terminated(), [(1, 15, 30_000)], "nobody renews it");
    let mut desk = AgentHarness::new(1);
    desk.fail(LinkError::Outdated);
    assert_eq!(desk.exit(), Some(Err(LinkError::Outdated)), "it was never accepted");
}

// J15
#[test]
fn leaves_when_everything_has_settled() {
    for (verdict, exit) in
        [(RunnerDirective::Complete, RunnerExit::Complete), (RunnerDirective::Canceled, RunnerExit::Canceled)]
    {
        let mut desk = AgentHarness::new(1);
        desk.answer([1]);
        desk.started(1).ended(1, 0);
        desk.respond(SyncResponse { verdict, ..SyncResponse::default() });
        assert!(desk.sync().completing && !desk.sync().leaving);
        desk.answer([]);
        assert!(desk.sync().leaving);
        desk.answer([]);
        assert_eq!(desk.exit(), Some(Ok(exit)));
    }
}

#[test]
fn short_jobs_are_handed_to_the_shim_and_follow_each_other() {
    let mut desk = AgentHarness::new(1);
    desk.state.throughput.job_ended(Duration::from_millis(1));
    desk.answer(1..=20);
    let orders: Vec<(i64, bool)> = desk
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Start(order, _) => Some((order.key.job, order.in_turn)),
            _ => None,
        })
        .collect();
    assert_eq!(orders, [(1, false), (2, true), (3, true), (4, true), (5, true), (6, true)]);
    let mut first = ended(1, Outcome::Exited(0), desk.now);
    first.started = desk.now.minus(Duration::from_millis(1));
    first.successor = Some(key(2));
    desk.started(1).handle(Event::Ended(Box::new(first)));
    assert_eq!(desk.starts(), [7], "one more to follow, nothing beside");
    assert_eq!(desk.state.jobs.ledger().free().cpus, 0);
    desk.started(2);
    // The shim had nothing to follow with: the place is free, and what it was given need not wait.
    desk.ended(2, 0);
    assert!(
        matches!(desk.effects.iter().find(|effect| matches!(effect, Effect::StartNow(_))), Some(Effect::StartNow(next)) if *next == key(3))
    );
    assert_eq!(desk.state.jobs.ledger().free().cpus, 0);
}

#[test]
fn what_was_handed_is_revoked_when_the_runner_stops() {
    let mut desk = AgentHarness::new(1);
    desk.state.throughput.job_ended(Duration::from_millis(4));
    desk.answer(1..=3);
    desk.started(1).handle(Event::Stop);
    assert!(
        desk.effects.iter().any(|effect| matches!(effect, Effect::Revoke(keys) if keys.as_slice() == [key(2), key(3)]))
    );
    desk.handle(Event::Revoked(key(3)));
    // The other had started meanwhile, in the place of the first.
    let mut first = ended(1, Outcome::Signaled(15), desk.now);
    first.successor = Some(key(2));
    desk.handle(Event::Ended(Box::new(first)));
    desk.started(2);
    assert_eq!(desk.terminated(), [(2, 15, 30_000)]);
    desk.handle(Event::Ended(Box::new(ended(2, Outcome::Signaled(15), desk.now))));
    assert_eq!(desk.state.jobs.ledger().free().cpus, 1);
    assert_eq!(desk.state.reports.returned().iter().copied().collect::<Vec<_>>(), [key(3)]);
    assert_eq!(desk.state.holds(), (0, 0));
}

#[test]
fn a_lost_shim_loses_what_ran_and_nothing_else() {
    let mut desk = AgentHarness::new(1);
    desk.answer(1..=3);
    desk.started(1).handle(Event::ShimLost);
    let report = &desk.state.reports[&key(1)].finished;
    assert_eq!((report.return_code, report.cause), (-128, Some(Cause::Lost)));
    assert_eq!(desk.starts().first(), Some(&2), "what waited here was not started by anybody");
}

/// The shim may have started what it was to start in turn, and died before it could say so.
#[test]
fn what_a_lost_shim_may_have_started_is_not_started_again_under_its_number() {
    let mut desk = AgentHarness::new(1);
    desk.state.throughput.job_ended(Duration::from_millis(4));
    desk.answer(1..=3);
    assert_eq!(desk.starts(), [1, 2, 3], "two of them in turn");
    desk.started(1).handle(Event::ShimLost);
    assert_eq!(desk.starts(), [0; 0]);
    assert!(desk.effects.iter().any(|effect| matches!(effect, Effect::Register)), "{:?}", desk.effects);
    desk.handle(Event::Registered(RegisterResponse { runner: 6, version: String::new(), lease_ms: 120_000 }));
    // It says nothing of them, and does not claim to know what was started: the server counts their numbers as used.
    let sync = desk.sync();
    assert_eq!((sync.acknowledged, sync.shim_found), (0, false));
    assert_eq!((sync.finished.len(), sync.running.len(), sync.queued.len(), sync.returned.len()), (1, 0, 0, 0));
    assert_eq!(desk.state.jobs.ledger().free().cpus, 1);
}

/// An agent that ordered an end may be gone before it comes; the shim knows why.
#[test]
fn the_reason_of_an_end_outlives_the_agent_that_ordered_it() {
    let cases = [
        (Some(StopReason::Stopped), Outcome::Signaled(15), (143, Some(Cause::Stopped))),
        (Some(StopReason::Canceled), Outcome::Signaled(9), (137, Some(Cause::Canceled))),
        (Some(StopReason::Timeout), Outcome::Signaled(9), (152, Some(Cause::Timeout))),
        (Some(StopReason::OutOfMemory), Outcome::Signaled(9), (137, Some(Cause::OutOfMemory))),
        (Some(StopReason::Timeout), Outcome::Exited(0), (0, None)),
        (None, Outcome::Signaled(15), (143, Some(Cause::ExitCode))),
    ];
    for (ending, outcome, expected) in cases {
        let mut desk = AgentHarness::new(1);
        desk.handle(Event::Ended(Box::new(JobExit { ending, ..ended(1, outcome.clone(), desk.now) })));
        let finished = &desk.state.reports[&key(1)].finished;
        assert_eq!((finished.return_code, finished.cause), expected, "{ending:?} {outcome:?}");
        let mut desk = AgentHarness::new(1);
        let since = desk.now.minus(Duration::from_secs(5));
        let held = ShimJob { ending: ending.map(|why| (why, since)), ..shim_job(2, BootInstant::default()) };
        desk.handle(Event::Adopted(Box::new(held)));
        desk.handle(Event::Ended(Box::new(ended(2, outcome.clone(), desk.now))));
        let finished = &desk.state.reports[&key(2)].finished;
        assert_eq!((finished.return_code, finished.cause), expected, "adopted: {ending:?} {outcome:?}");
    }
}

#[test]
fn a_result_from_before_the_machine_started_has_its_age() {
    let mut desk = AgentHarness::new(1);
    let day = Duration::from_secs(86_400);
    // Its moments are of another start of the machine: they lie in the future here.
    let (started, over) = (BootInstant(5_000_000 * SECOND), BootInstant(5_000_030 * SECOND));
    let mut result = JobExit::new(key(1), started, over, Outcome::Exited(0));
    result.age_ms = Some(86_400_000);
    desk.handle(Event::Ended(Box::new(result)));
    let report = &desk.state.reports[&key(1)];
    for later in [0, 7] {
        let told = report.told_at(desk.now.plus(Duration::from_secs(later)));
        assert_eq!(told.duration_ms, 30_000);
        assert_eq!(Duration::from_millis(told.ended_ms_ago), day + Duration::from_secs(later));
    }
}

#[test]
fn small_jobs_pass_a_big_one_but_not_for_ever() {
    let mut desk = AgentHarness::new(2);
    desk.answer([1]);
    desk.started(1);
    desk.until_due();
    let sequence = desk.state.session.sequence();
    let leases = vec![Lease { profile: 1, ..lease(2) }, lease(3)];
    desk.handle(Event::Answered(Box::new(SyncResponse {
        sequence,
        leases,
        profiles: vec![profile(1), profile(2)],
        lease_ms: 600_000,
        ..SyncResponse::default()
    })));
    assert_eq!(desk.starts(), [3], "the big one does not fit");
    desk.started(3).later(Duration::from_secs(301));
    if desk.has_sync() {
        desk.answer([4]);
    }
    desk.ended(3, 0);
    assert_eq!(desk.starts(), Vec::<i64>::new(), "now everybody waits for the big one");
    desk.ended(1, 0);
    assert_eq!(desk.starts(), [2]);
}

#[test]
fn prefetch_can_be_switched_off() {
    let mut desk = AgentHarness::new(1);
    let off = Prefetch { enabled: Some(false), ..Prefetch::default() };
    desk.respond(SyncResponse { prefetch: Some(off.clone()), leases: vec![lease(1)], ..SyncResponse::default() });
    desk.started(1).later(Duration::from_millis(300));
    assert_eq!(desk.sync().want, torc_api::wire::WorkRequest::default());
    desk.respond(SyncResponse { prefetch: Some(off), ..SyncResponse::default() });
    desk.ended(1, 0);
    assert_eq!(desk.sync().want.limit, 1);
}

// J21. Torc 1.0 forgot to return the device when a failed job was tried again, and ran out of GPUs after a few retries.
#[test]
fn a_retry_gives_its_gpu_back() {
    let mut desk = AgentHarness::with(Settings { devices: vec!["GPU-7".to_owned()], ..settings(2) });
    desk.profile.resources.gpus = 1;
    for attempt in 1..=20 {
        let lease = Lease { key: AttemptKey { attempt, lease_id: attempt.into(), ..key(1) }, ..lease(1) };
        let tried = lease.key;
        if !desk.has_sync() {
            desk.until_due();
        }
        desk.respond(SyncResponse { leases: vec![lease], ..SyncResponse::default() });
        let Some(Effect::Start(order, _)) = desk.effects.iter().find(|effect| matches!(effect, Effect::Start(..)))
        else {
            panic!("attempt {attempt} has no GPU: {:?}", desk.effects);
        };
        assert_eq!(order.devices, ["GPU-7"]);
        let visible: Vec<&str> =
            order.env.iter().filter(|(_, value)| value == "GPU-7").map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            visible,
            ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "TORC_GPU_VISIBLE_DEVICES"]
        );
        desk.handle(Event::Started(tried, desk.now, 100));
        let failed = JobExit { key: tried, ..ended(1, Outcome::Exited(1), desk.now) };
        desk.handle(Event::Ended(Box::new(failed)));
        assert_eq!(desk.state.jobs.ledger().free().gpus, 1);
    }
}

// P05
#[test]
fn the_command_line_wins_over_the_workflow() {
    let own = Prefetch { enabled: Some(false), lease_seconds: Some(60), ..Prefetch::default() };
    let mut desk = AgentHarness::with(Settings { prefetch: own, ..settings(1) });
    assert_eq!((desk.sync().want.limit, desk.sync().lease_seconds), (1, Some(60)));
    let theirs = Prefetch { enabled: Some(true), max_queued: Some(50), ..Prefetch::default() };
    desk.respond(SyncResponse { prefetch: Some(theirs), leases: vec![lease(1)], ..SyncResponse::default() });
    desk.started(1).later(Duration::from_millis(300));
    assert_eq!(desk.sync().want.limit, 0, "nothing ahead of what is free");
}

// P04, P05
#[test]
fn more_is_asked_for_below_the_threshold_and_before_the_queue_is_empty() {
    let own = Prefetch {
        horizon_seconds: Some(10),
        max_queued: Some(3),
        refill_threshold: Some(2),
        batch_size: Some(1),
        ..Prefetch::default()
    };
    let mut desk = AgentHarness::with(Settings { prefetch: own, ..settings(1) });
    desk.answer([1, 2, 3, 4]);
    desk.started(1).ended(1, 0).started(2);
    assert_eq!((desk.state.holds(), desk.state.want(desk.now).limit), ((1, 2), 0), "two wait, and two are enough");
    desk.ended(2, 0).started(3);
    let want = desk.state.want(desk.now);
    assert_eq!((desk.state.holds(), want.ahead, want.limit), ((1, 1), 2, 1), "two are missing, and come one by one");
}
