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

pub(super) fn user() -> RunnerSettings {
    RunnerSettings { poll_interval: Duration::from_secs(10), ..RunnerSettings::default() }
}

pub(super) fn settings(cpus: i64) -> AgentSettings {
    AgentSettings {
        user: user(),
        shim_found: false,
        capacity: Resources { cpus, memory_bytes: 1 << 30, gpus: 0, nodes: 1 },
        devices: Vec::new(),
        allocation: None,
        working_dir: "/here".to_owned(),
        output_dir: "/out".to_owned(),
        api_url: None,
        server_file: None,
        token_dir: "/state/tokens".to_owned(),
        shell: ShellSetup::default(),
        report_interval: Duration::from_millis(100),
        time: None,
        own_end: None,
        exit_when_complete: true,
        idle_exit: IdleExit::Never,
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

/// An agent's state with a clock that the test sets.
struct AgentHarness {
    state: State,
    now: BootInstant,
    profile: Profile,
    effects: Vec<Effect>,
    /// Number of ticks, to detect a test that waits forever.
    turns: u32,
}

impl AgentHarness {
    /// Creates a runner that is not registered.
    fn unregistered(settings: AgentSettings, now: BootInstant) -> Self {
        Self { state: State::new(settings, now), now, profile: profile(1), effects: Vec::new(), turns: 0 }
    }

    fn with(settings: AgentSettings) -> Self {
        let mut agent = Self::unregistered(settings, BootInstant(1_000 * SECOND));
        agent.handle(AgentEvent::Tick);
        assert!(matches!(agent.effects.as_slice(), [Effect::Register]), "{:?}", agent.effects);
        agent.handle(AgentEvent::Registered(RegisterResponse { runner: 5, version: String::new(), lease_ms: 120_000 }));
        agent
    }

    fn new(cpus: i64) -> Self {
        Self::with(settings(cpus))
    }

    fn handle(&mut self, event: AgentEvent) -> &mut Self {
        self.effects = self.state.handle(event, self.now);
        self
    }

    fn later(&mut self, duration: Duration) -> &mut Self {
        self.now = self.now.plus(duration);
        self.handle(AgentEvent::Tick)
    }

    /// Advances the clock to the next requested tick.
    fn until_due(&mut self) -> &mut Self {
        self.turns += 1;
        assert!(self.turns < 100_000, "what the test waits for never comes: {:?}", self.state);
        self.now = self.state.wake_at().expect("something is due").max(self.now);
        self.handle(AgentEvent::Tick)
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
        self.handle(AgentEvent::Answered(Box::new(SyncResponse { sequence, profiles, lease_ms: 120_000, ..response })))
    }

    fn fail(&mut self, error: LinkError) -> &mut Self {
        let sequence = self.state.session.sequence();
        self.handle(AgentEvent::NotAnswered(sequence, error))
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
        self.handle(AgentEvent::Started(key(job), self.now, 100))
    }

    fn ended(&mut self, job: i64, code: i32) -> &mut Self {
        self.handle(AgentEvent::Ended(Box::new(ended(job, Outcome::Exited(code), self.now))))
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
    let mut agent = AgentHarness::new(2);
    let want = agent.sync().want;
    assert_eq!((want.free.cpus, want.ahead, want.limit), (2, 0, 2), "how much it can run at once is not known yet");
    agent.answer([1, 2, 3]);
    assert_eq!(agent.starts(), [1, 2]);
    assert_eq!(agent.state.job_counts(), (2, 1));
}

// J08
#[test]
fn by_number_every_job_that_waits_takes_a_slot() {
    let mut agent = AgentHarness::with(AgentSettings {
        user: RunnerSettings { max_parallel_jobs: Some(4), ..user() },
        ..settings(1)
    });
    assert_eq!(agent.sync().want.limit, 4, "one CPU, and four at once all the same");
    agent.answer([1]);
    assert_eq!(agent.starts(), [1]);
    assert_eq!(agent.state.work_request(agent.now).limit, 4, "three that start at once, and one ahead");
}

// P02, P03, J16
#[test]
fn the_next_starts_when_one_ends_without_a_word_with_the_server() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1, 2, 3]);
    agent.started(1).ended(1, 0);
    assert_eq!(agent.starts(), [2]);
    assert!(!agent.has_sync(), "the report waits for company");
    agent.started(2).later(Duration::from_millis(100));
    let sync = agent.sync();
    assert_eq!(sync.finished.iter().map(|finished| finished.key).collect::<Vec<_>>(), [key(1)]);
    assert_eq!(sync.running.iter().map(|running| running.key).collect::<Vec<_>>(), [key(2)]);
}

// P09
#[test]
fn with_nothing_waiting_a_report_goes_at_once() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    agent.started(1).ended(1, 3);
    let finished = agent.sync().finished.clone();
    assert_eq!((finished[0].return_code, finished[0].cause), (3, Some(Cause::ExitCode)));
    assert_eq!(agent.sync().want.free.cpus, 1, "a report and a request travel together");
}

// P09
#[test]
fn reports_of_several_jobs_travel_together() {
    let mut agent = AgentHarness::new(2);
    agent.answer(1..=6);
    agent.started(1).started(2).ended(1, 0).ended(2, 0);
    agent.later(Duration::from_millis(100));
    assert_eq!(agent.sync().finished.len(), 2);
}

// P09
#[test]
fn results_are_repeated_until_answered_and_then_forgotten() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    agent.started(1).ended(1, 0);
    agent.fail(LinkError::Unreachable("x".to_owned()));
    assert!(matches!(agent.effects.as_slice(), [Effect::Log(RunnerEvent::Unreachable { .. })]));
    agent.until_due();
    assert_eq!(agent.sync().finished.len(), 1);
    agent.answer([]);
    assert!(agent.effects.iter().any(|effect| matches!(effect, Effect::Acknowledge(keys) if *keys == [key(1)])));
    agent.later(Duration::from_secs(1));
    assert!(agent.sync().finished.is_empty());
}

#[test]
fn a_newer_sync_overtakes_a_long_poll_but_no_report() {
    let mut agent = AgentHarness::new(2);
    agent.answer([1]);
    agent.until_due();
    assert!(agent.sync().wait_ms >= 30_000 && agent.sync().finished.is_empty());
    agent.started(1).ended(1, 0);
    assert_eq!(agent.sync().finished.len(), 1, "it does not wait for the parked one");
    agent.handle(AgentEvent::Adopted(Box::new(shim_job(9, BootInstant::default()))));
    agent.handle(AgentEvent::Ended(Box::new(ended(9, Outcome::Exited(0), agent.now))));
    assert!(!agent.has_sync(), "two are under way");
    let parked = agent.state.session.sequence() - 1;
    agent.handle(AgentEvent::Answered(Box::new(SyncResponse { sequence: parked, ..SyncResponse::default() })));
    assert!(!agent.has_sync(), "the report is answered at once anyway");
    agent.answer([]);
    assert_eq!(agent.sync().finished.iter().map(|finished| finished.key).collect::<Vec<_>>(), [key(9)]);
}

#[test]
fn an_answer_that_was_overtaken_is_thrown_away() {
    let mut agent = AgentHarness::new(2);
    let first = agent.state.session.sequence();
    agent.handle(AgentEvent::Adopted(Box::new(shim_job(9, BootInstant::default()))));
    agent.handle(AgentEvent::Ended(Box::new(ended(9, Outcome::Exited(0), agent.now))));
    assert!(agent.has_sync());
    agent.answer([]);
    let late =
        SyncResponse { sequence: first, leases: vec![lease(1)], profiles: vec![profile(1)], ..SyncResponse::default() };
    agent.handle(AgentEvent::Answered(Box::new(late)));
    assert_eq!(agent.starts(), Vec::<i64>::new());
    assert_eq!(agent.state.job_counts(), (0, 0));
}

// J31
#[test]
fn calls_are_repeated_with_growing_delays() {
    let mut agent = AgentHarness::new(1);
    let mut delays = Vec::new();
    for _ in 0..9 {
        let before = agent.now;
        agent.fail(LinkError::Unreachable("x".to_owned())).until_due();
        assert!(agent.has_sync());
        delays.push(agent.now.since(before).as_millis());
    }
    assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    agent.answer([1]);
    assert!(agent.effects.iter().any(|effect| matches!(effect, Effect::Log(RunnerEvent::Reconnected))));
    agent.started(1).ended(1, 0);
    let before = agent.now;
    agent.fail(LinkError::Unreachable("x".to_owned())).until_due();
    assert_eq!(agent.now.since(before).as_millis(), 100);
}

#[test]
fn an_empty_answer_is_not_asked_for_in_a_loop() {
    let mut settings = settings(1);
    settings.exit_when_complete = false;
    let mut agent = AgentHarness::with(settings);
    let mut delays = Vec::new();
    for _ in 0..4 {
        agent.respond(SyncResponse { directive: RunnerDirective::Complete, ..SyncResponse::default() });
        let before = agent.now;
        agent.until_due();
        while !agent.has_sync() {
            agent.until_due();
        }
        delays.push(agent.now.since(before).as_millis());
    }
    assert_eq!(delays, [5, 100, 200, 400], "only the first call does not ask to wait");
}

#[test]
fn a_server_that_forgot_us_is_told_everything_again() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1, 2]);
    agent.started(1).later(Duration::from_millis(100));
    agent.fail(LinkError::Unknown);
    assert!(agent.effects.iter().any(|effect| matches!(effect, Effect::Register)));
    agent.handle(AgentEvent::Registered(RegisterResponse { runner: 6, version: String::new(), lease_ms: 120_000 }));
    assert!(matches!(agent.effects.iter().find(|effect| matches!(effect, Effect::Sync(..))), Some(Effect::Sync(6, _))));
    assert_eq!((agent.sync().running.len(), agent.sync().queued.clone()), (1, vec![key(2)]));
}

#[test]
fn queued_leases_run_out() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1, 2]);
    agent.started(1).later(Duration::from_millis(100));
    agent.answer([]);
    while agent.state.job_counts() != (1, 0) {
        if agent.has_sync() {
            agent.fail(LinkError::Unreachable("x".to_owned()));
        }
        agent.until_due();
    }
    let held = agent.now.since(BootInstant(1_000 * SECOND));
    assert!(held >= Duration::from_secs(120) && held < Duration::from_secs(121), "{held:?}");
    assert!(agent.terminated().is_empty(), "its start was known");
    assert!(agent.state.reports.returned().is_empty(), "they are not ours to give back");
}

#[test]
fn an_unreported_start_ends_with_its_lease() {
    let mut agent = AgentHarness::new(1);
    agent.profile.runtime_seconds = 100;
    agent.answer([1, 2]);
    agent.started(1).later(Duration::from_millis(100));
    while agent.terminated().is_empty() {
        if agent.has_sync() {
            agent.fail(LinkError::Unreachable("x".to_owned()));
        }
        if agent.terminated().is_empty() {
            agent.until_due();
        }
    }
    assert_eq!(agent.terminated(), [(1, 9, 0)]);
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(9), agent.now))));
    let report = agent.state.reports.get(&key(1)).expect("a report");
    assert_eq!((report.finished.return_code, report.finished.cause), (137, Some(Cause::Stopped)));
}

#[test]
fn without_a_server_only_what_fits_the_lease_is_started() {
    for (runtime, expected) in [(60, vec![2]), (200, vec![])] {
        let mut agent = AgentHarness::new(1);
        agent.profile.runtime_seconds = runtime;
        agent.answer([1, 2]);
        agent.started(1).later(Duration::from_millis(100));
        agent.fail(LinkError::Unreachable("x".to_owned()));
        agent.ended(1, 0);
        assert_eq!(agent.starts(), expected, "{runtime}");
    }
}

#[test]
fn cancel_ends_what_runs_and_returns_what_waits() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1, 2]);
    agent.started(1).later(Duration::from_millis(100));
    agent.respond(SyncResponse { cancel: vec![key(1), key(2)], ..SyncResponse::default() });
    assert_eq!(agent.terminated(), [(1, 15, 30_000)]);
    assert_eq!(agent.state.reports.returned().iter().copied().collect::<Vec<_>>(), [key(2)]);
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(15), agent.now))));
    let report = &agent.state.reports[&key(1)].finished;
    assert_eq!((report.return_code, report.cause), (143, Some(Cause::Canceled)));
}

#[test]
fn give_back_takes_only_what_has_not_started() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1, 2]);
    agent.started(1).later(Duration::from_millis(100));
    agent.respond(SyncResponse { give_back: vec![key(1), key(2)], ..SyncResponse::default() });
    assert!(agent.terminated().is_empty());
    assert_eq!(agent.state.reports.returned().iter().copied().collect::<Vec<_>>(), [key(2)]);
}

// J23
#[test]
fn stop_ends_in_order_and_leaves_with_a_last_word() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1, 2]);
    agent.started(1);
    agent.handle(AgentEvent::Stop);
    assert_eq!(agent.terminated(), [(1, 15, 30_000)]);
    agent.handle(AgentEvent::StopNow);
    assert_eq!(agent.terminated(), [(1, 9, 0)]);
    agent.later(Duration::from_millis(100));
    assert_eq!(agent.sync().returned, [key(2)]);
    assert_eq!(agent.sync().want, torc_api::wire::WorkRequest::default());
    agent.answer([]);
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(9), agent.now))));
    let sync = agent.sync();
    assert!(sync.leaving);
    assert_eq!((sync.finished[0].return_code, sync.finished[0].cause), (137, Some(Cause::Stopped)));
    agent.answer([]);
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Stopped)));
}

#[test]
fn a_job_that_ended_before_the_signal_ended_by_itself() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    agent.started(1);
    let before = agent.now;
    agent.now = agent.now.plus(Duration::from_millis(5));
    agent.handle(AgentEvent::Stop);
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Exited(0), before))));
    assert_eq!(agent.state.reports[&key(1)].finished.cause, None);
}

#[test]
fn an_unanswered_goodbye_ends_in_time() {
    let mut agent = AgentHarness::new(1);
    agent.answer([]);
    agent.handle(AgentEvent::Stop);
    let before = agent.now;
    while agent.exit().is_none() {
        if agent.has_sync() {
            agent.fail(LinkError::Unreachable("x".to_owned()));
        } else {
            agent.until_due();
        }
    }
    assert_eq!(agent.now.since(before), Duration::from_secs(15));
}

#[test]
fn a_refusal_ends_the_runner_and_keeps_its_results() {
    let refused = LinkError::Refused { code: "protocol".to_owned(), message: "too old".to_owned() };
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    agent.started(1).later(Duration::from_millis(100));
    agent.fail(refused.clone());
    assert_eq!(agent.terminated(), [(1, 15, 30_000)]);
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(15), agent.now))));
    assert_eq!(agent.exit(), Some(Err(refused)));
    assert!(!agent.effects.iter().any(|effect| matches!(effect, Effect::Acknowledge(_))));
}

#[test]
fn another_token_is_waited_for_while_one_may_come() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    agent.started(1).later(Duration::from_secs(3_600));
    // After a long outage tokens have expired, and the server has not written new ones yet.
    agent.fail(LinkError::Unreachable("x".to_owned())).until_due();
    agent.later(Duration::from_secs(600)).fail(LinkError::Outdated).until_due();
    agent.later(Duration::from_secs(290)).fail(LinkError::Outdated).until_due();
    assert!(agent.terminated().is_empty(), "the job goes on");
    agent.answer([]);
    agent.until_due().later(Duration::from_secs(1)).fail(LinkError::Outdated).until_due();
    assert!(agent.terminated().is_empty(), "the wait starts again");
    agent.later(Duration::from_secs(301)).fail(LinkError::Outdated);
    assert_eq!(agent.terminated(), [(1, 15, 30_000)], "no token was renewed");
    let mut agent = AgentHarness::new(1);
    agent.fail(LinkError::Outdated);
    assert_eq!(agent.exit(), Some(Err(LinkError::Outdated)), "it was never accepted");
}

// J15
#[test]
fn leaves_when_everything_has_settled() {
    for (directive, exit) in
        [(RunnerDirective::Complete, RunnerExit::Complete), (RunnerDirective::Canceled, RunnerExit::Canceled)]
    {
        let mut agent = AgentHarness::new(1);
        agent.answer([1]);
        agent.started(1).ended(1, 0);
        agent.respond(SyncResponse { directive, ..SyncResponse::default() });
        assert!(agent.sync().completing && !agent.sync().leaving);
        agent.answer([]);
        assert!(agent.sync().leaving);
        agent.answer([]);
        assert_eq!(agent.exit(), Some(Ok(exit)));
    }
}

#[test]
fn short_jobs_are_handed_to_the_shim_and_follow_each_other() {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(1));
    agent.answer(1..=20);
    let orders: Vec<(i64, bool)> = agent
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Start(order, _) => Some((order.key.job, order.in_turn)),
            _ => None,
        })
        .collect();
    assert_eq!(orders, [(1, false), (2, true), (3, true), (4, true), (5, true), (6, true)]);
    let mut first = ended(1, Outcome::Exited(0), agent.now);
    first.started = agent.now.minus(Duration::from_millis(1));
    first.successor = Some(key(2));
    agent.started(1).handle(AgentEvent::Ended(Box::new(first)));
    assert_eq!(agent.starts(), [7], "one more to follow, nothing beside");
    assert_eq!(agent.state.jobs.ledger().free().cpus, 0);
    agent.started(2);
    // The shim had no job to follow the first one, so the handed job starts at once.
    agent.ended(2, 0);
    assert!(
        matches!(agent.effects.iter().find(|effect| matches!(effect, Effect::StartNow(_))), Some(Effect::StartNow(next)) if *next == key(3))
    );
    assert_eq!(agent.state.jobs.ledger().free().cpus, 0);
}

#[test]
fn what_was_handed_is_revoked_when_the_runner_stops() {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer(1..=3);
    agent.started(1).handle(AgentEvent::Stop);
    assert!(
        agent
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Revoke(keys) if keys.as_slice() == [key(2), key(3)]))
    );
    agent.handle(AgentEvent::Revoked(key(3)));
    // The other job had started in the meantime, in the place of the first.
    let mut first = ended(1, Outcome::Signaled(15), agent.now);
    first.successor = Some(key(2));
    agent.handle(AgentEvent::Ended(Box::new(first)));
    agent.started(2);
    assert_eq!(agent.terminated(), [(2, 15, 30_000)]);
    agent.handle(AgentEvent::Ended(Box::new(ended(2, Outcome::Signaled(15), agent.now))));
    assert_eq!(agent.state.jobs.ledger().free().cpus, 1);
    assert_eq!(agent.state.reports.returned().iter().copied().collect::<Vec<_>>(), [key(3)]);
    assert_eq!(agent.state.job_counts(), (0, 0));
}

#[test]
fn a_lost_shim_loses_what_ran_and_nothing_else() {
    let mut agent = AgentHarness::new(1);
    agent.answer(1..=3);
    agent.started(1).handle(AgentEvent::ShimLost);
    let report = &agent.state.reports[&key(1)].finished;
    assert_eq!((report.return_code, report.cause), (-128, Some(Cause::Lost)));
    assert_eq!(agent.starts().first(), Some(&2), "the jobs that waited here had not started");
}

/// The shim may have started a handed job, and died before it could report the start.
#[test]
fn jobs_handed_to_a_lost_shim_are_not_started_again() {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer(1..=3);
    assert_eq!(agent.starts(), [1, 2, 3], "two of them in turn");
    agent.started(1).handle(AgentEvent::ShimLost);
    assert_eq!(agent.starts(), [0; 0]);
    assert!(agent.effects.iter().any(|effect| matches!(effect, Effect::Register)), "{:?}", agent.effects);
    agent.handle(AgentEvent::Registered(RegisterResponse { runner: 6, version: String::new(), lease_ms: 120_000 }));
    // The request does not name them: the server counts their attempt numbers as used.
    let sync = agent.sync();
    assert_eq!((sync.acknowledged, sync.shim_found), (0, false));
    assert_eq!((sync.finished.len(), sync.running.len(), sync.queued.len(), sync.returned.len()), (1, 0, 0, 0));
    assert_eq!(agent.state.jobs.ledger().free().cpus, 1);
}

/// The agent that ordered an end may be gone before the job ends. The shim keeps the reason.
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
        let mut agent = AgentHarness::new(1);
        agent.handle(AgentEvent::Ended(Box::new(JobExit { ending, ..ended(1, outcome.clone(), agent.now) })));
        let finished = &agent.state.reports[&key(1)].finished;
        assert_eq!((finished.return_code, finished.cause), expected, "{ending:?} {outcome:?}");
        let mut agent = AgentHarness::new(1);
        let since = agent.now.minus(Duration::from_secs(5));
        let held = ShimJob { ending: ending.map(|why| (why, since)), ..shim_job(2, BootInstant::default()) };
        agent.handle(AgentEvent::Adopted(Box::new(held)));
        agent.handle(AgentEvent::Ended(Box::new(ended(2, outcome.clone(), agent.now))));
        let finished = &agent.state.reports[&key(2)].finished;
        assert_eq!((finished.return_code, finished.cause), expected, "adopted: {ending:?} {outcome:?}");
    }
}

#[test]
fn a_result_from_before_the_machine_started_has_its_age() {
    let mut agent = AgentHarness::new(1);
    let day = Duration::from_secs(86_400);
    // These moments are of another boot: here they lie in the future.
    let (started, over) = (BootInstant(5_000_000 * SECOND), BootInstant(5_000_030 * SECOND));
    let mut result = JobExit::new(key(1), started, over, Outcome::Exited(0));
    result.age_ms = Some(86_400_000);
    agent.handle(AgentEvent::Ended(Box::new(result)));
    let report = &agent.state.reports[&key(1)];
    for later in [0, 7] {
        let observed = report.with_age(agent.now.plus(Duration::from_secs(later)));
        assert_eq!(observed.duration_ms, 30_000);
        assert_eq!(Duration::from_millis(observed.ended_ms_ago), day + Duration::from_secs(later));
    }
}

#[test]
fn small_jobs_pass_a_big_one_but_not_for_ever() {
    let mut agent = AgentHarness::new(2);
    agent.answer([1]);
    agent.started(1);
    agent.until_due();
    let sequence = agent.state.session.sequence();
    let leases = vec![Lease { profile: 1, ..lease(2) }, lease(3)];
    agent.handle(AgentEvent::Answered(Box::new(SyncResponse {
        sequence,
        leases,
        profiles: vec![profile(1), profile(2)],
        lease_ms: 600_000,
        ..SyncResponse::default()
    })));
    assert_eq!(agent.starts(), [3], "the big one does not fit");
    agent.started(3).later(Duration::from_secs(301));
    if agent.has_sync() {
        agent.answer([4]);
    }
    agent.ended(3, 0);
    assert_eq!(agent.starts(), Vec::<i64>::new(), "now all jobs wait for the big one");
    agent.ended(1, 0);
    assert_eq!(agent.starts(), [2]);
}

#[test]
fn prefetch_can_be_switched_off() {
    let mut agent = AgentHarness::new(1);
    let off = Prefetch { enabled: Some(false), ..Prefetch::default() };
    agent.respond(SyncResponse { prefetch: Some(off.clone()), leases: vec![lease(1)], ..SyncResponse::default() });
    agent.started(1).later(Duration::from_millis(300));
    assert_eq!(agent.sync().want, torc_api::wire::WorkRequest::default());
    agent.respond(SyncResponse { prefetch: Some(off), ..SyncResponse::default() });
    agent.ended(1, 0);
    assert_eq!(agent.sync().want.limit, 1);
}

// J21. Torc 1.0 forgot to return the device when a failed job was tried again, and ran out of GPUs after a few retries.
#[test]
fn a_retry_gives_its_gpu_back() {
    let mut agent = AgentHarness::with(AgentSettings { devices: vec!["GPU-7".to_owned()], ..settings(2) });
    agent.profile.resources.gpus = 1;
    for attempt in 1..=20 {
        let lease = Lease { key: AttemptKey { attempt, lease_id: attempt.into(), ..key(1) }, ..lease(1) };
        let tried = lease.key;
        if !agent.has_sync() {
            agent.until_due();
        }
        agent.respond(SyncResponse { leases: vec![lease], ..SyncResponse::default() });
        let Some(Effect::Start(order, _)) = agent.effects.iter().find(|effect| matches!(effect, Effect::Start(..)))
        else {
            panic!("attempt {attempt} has no GPU: {:?}", agent.effects);
        };
        assert_eq!(order.devices, ["GPU-7"]);
        let visible: Vec<&str> =
            order.env.iter().filter(|(_, value)| value == "GPU-7").map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            visible,
            ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "TORC_GPU_VISIBLE_DEVICES"]
        );
        agent.handle(AgentEvent::Started(tried, agent.now, 100));
        let failed = JobExit { key: tried, ..ended(1, Outcome::Exited(1), agent.now) };
        agent.handle(AgentEvent::Ended(Box::new(failed)));
        assert_eq!(agent.state.jobs.ledger().free().gpus, 1);
    }
}

// P05
#[test]
fn the_command_line_wins_over_the_workflow() {
    let own = Prefetch { enabled: Some(false), lease_seconds: Some(60), ..Prefetch::default() };
    let mut agent = AgentHarness::with(AgentSettings { prefetch: own, ..settings(1) });
    assert_eq!((agent.sync().want.limit, agent.sync().lease_seconds), (1, Some(60)));
    let theirs = Prefetch { enabled: Some(true), max_queued: Some(50), ..Prefetch::default() };
    agent.respond(SyncResponse { prefetch: Some(theirs), leases: vec![lease(1)], ..SyncResponse::default() });
    agent.started(1).later(Duration::from_millis(300));
    assert_eq!(agent.sync().want.limit, 0, "nothing ahead of what is free");
}

// P04, P05
#[test]
fn more_work_is_requested_below_the_threshold() {
    let own = Prefetch {
        horizon_seconds: Some(10),
        max_queued: Some(3),
        refill_threshold: Some(2),
        batch_size: Some(1),
        ..Prefetch::default()
    };
    let mut agent = AgentHarness::with(AgentSettings { prefetch: own, ..settings(1) });
    agent.answer([1, 2, 3, 4]);
    agent.started(1).ended(1, 0).started(2);
    assert_eq!(
        (agent.state.job_counts(), agent.state.work_request(agent.now).limit),
        ((1, 2), 0),
        "two wait, and two are enough"
    );
    agent.ended(2, 0).started(3);
    let want = agent.state.work_request(agent.now);
    assert_eq!(
        (agent.state.job_counts(), want.ahead, want.limit),
        ((1, 1), 2, 1),
        "two are missing, and come one by one"
    );
}
