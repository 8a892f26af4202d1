//! Random histories against a small model of shim and server. No job starts twice or beside what fits, no GPU is lost
//! or given out twice, and every lease ends in exactly one report or return, or stays with the shim while the server
//! cannot learn of it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::Config;
use torc_api::wire::{
    AttemptKey, FileStat, Lease, Profile, RegisterResponse, Resources, RunnerDirective, SyncRequest, SyncResponse,
};

use super::tests::{SECOND, key, profile, settings};
use super::{AgentEvent, AgentSettings, BootInstant, Effect, LinkError, OutputFindings, State, jobs};
use crate::protocol::{JobExit, Outcome, ShimJob, StartOrder, StartTemplate};

/// A step of a history; numbers choose among the possibilities.
#[derive(Clone, Debug)]
enum HistoryStep {
    Answer { grant: u8, cancel: Option<u8>, give_back: Option<u8> },
    Fail { forget: bool },
    JobEnds(u8),
    Wait(u16),
    Freeze(Freeze),
    ShimDies,
    AgentDies,
    Stop,
}

/// A time for which the agent is frozen.
#[derive(Clone, Debug)]
struct Freeze {
    milliseconds: u32,
    /// Jobs that end during the freeze, at equal intervals.
    ends: Vec<u8>,
    /// True if the agent gets a tick before the shim's messages.
    by_time: bool,
}

fn steps() -> impl Strategy<Value = Vec<HistoryStep>> {
    let pick = || prop::option::weighted(0.1, any::<u8>());
    let step = prop_oneof![
        8 => (0_u8..12, pick(), pick()).prop_map(|(grant, cancel, give_back)| HistoryStep::Answer { grant, cancel, give_back }),
        2 => any::<bool>().prop_map(|forget| HistoryStep::Fail { forget }),
        12 => any::<u8>().prop_map(HistoryStep::JobEnds),
        4 => (0_u16..20_000).prop_map(HistoryStep::Wait),
        1 => freezes().prop_map(HistoryStep::Freeze),
        1 => Just(HistoryStep::ShimDies),
        1 => Just(HistoryStep::AgentDies),
        1 => Just(HistoryStep::Stop),
    ];
    prop::collection::vec(step, 1..120)
}

/// Generates freezes shorter than a third of a lease up to longer than a lease.
fn freezes() -> impl Strategy<Value = Freeze> {
    let parts = (0_u32..150_000, prop::collection::vec(any::<u8>(), 0..5), any::<bool>());
    parts.prop_map(|(milliseconds, ends, by_time)| Freeze { milliseconds, ends, by_time })
}

/// The kind of jobs that the server has.
#[derive(Clone, Copy, Debug)]
enum JobKind {
    /// Jobs with one or two CPUs and up to two GPUs. Few of them can follow each other in turn.
    Various,
    /// Jobs with one CPU each, so that many are handed to the shim.
    Alike,
}

impl JobKind {
    fn resources(self, job: i64) -> Resources {
        match self {
            Self::Various => Resources { gpus: (job / 2) % 3, ..profile(1 + job % 2).resources },
            Self::Alike => profile(1).resources,
        }
    }
}

/// A simple model of shim and server.
struct HostModel {
    state: State,
    now: BootInstant,
    cpus: i64,
    jobs: JobKind,
    next_job: i64,
    needs: HashMap<AttemptKey, Resources>,
    running: Vec<Running>,
    /// Results that the shim holds until they are acknowledged.
    kept: Vec<JobExit>,
    /// Attempts whose outcome is lost.
    unknown: HashSet<AttemptKey>,
    waiting: Vec<StartOrder>,
    /// The moment until which the agent counts as alive for the shim.
    alive_until: Option<BootInstant>,
    /// Messages of the shim that have not reached the agent.
    news: Vec<AgentEvent>,
    revoking: Vec<AttemptKey>,
    pending_checks: Vec<(AttemptKey, Vec<String>)>,
    checking: Vec<AttemptKey>,
    pending: Vec<SyncRequest>,
    registering: bool,
    started: HashMap<AttemptKey, u32>,
    reported: HashMap<AttemptKey, u32>,
    returned: HashMap<AttemptKey, u32>,
    acknowledged: Vec<AttemptKey>,
    /// True if a lease may expire unstarted without a report or return.
    lapsed_allowed: bool,
    exited: bool,
}

/// A job that the shim runs.
#[derive(Clone, Debug)]
struct Running {
    key: AttemptKey,
    class: u32,
    devices: Vec<String>,
}

const LEASE_MS: u64 = 120_000;
const LEASE: Duration = Duration::from_millis(LEASE_MS);
const GPUS: [&str; 3] = ["0", "2", "5"];

fn with_gpus(cpus: i64) -> AgentSettings {
    AgentSettings { devices: GPUS.map(str::to_owned).into(), ..settings(cpus) }
}

impl HostModel {
    fn new(cpus: i64, jobs: JobKind) -> Self {
        let now = BootInstant(1_000 * SECOND);
        let mut model = Self {
            kept: Vec::new(),
            unknown: HashSet::new(),
            state: State::new(with_gpus(cpus), now),
            now,
            cpus,
            jobs,
            next_job: 1,
            needs: HashMap::new(),
            running: Vec::new(),
            waiting: Vec::new(),
            alive_until: None,
            news: Vec::new(),
            revoking: Vec::new(),
            pending_checks: Vec::new(),
            checking: Vec::new(),
            pending: Vec::new(),
            registering: false,
            started: HashMap::new(),
            reported: HashMap::new(),
            returned: HashMap::new(),
            acknowledged: Vec::new(),
            lapsed_allowed: false,
            exited: false,
        };
        model.handle(AgentEvent::Tick);
        model
    }

    fn handle(&mut self, event: AgentEvent) {
        let effects = self.state.handle(event, self.now);
        for effect in effects {
            self.execute_effect(effect);
        }
        self.check();
    }

    fn execute_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Register => self.registering = true,
            Effect::Sync(_, request) => self.pending.push(*request),
            Effect::Start(order, _) if order.in_turn => self.waiting.push(*order),
            Effect::Start(order, _) => self.start(&order),
            Effect::StartNow(go) => {
                if let Some(at) = self.waiting.iter().position(|order| order.key == go) {
                    let order = self.waiting.remove(at);
                    self.start_in_time(&order);
                }
            }
            Effect::Heartbeat { alive_until } => self.alive_until = Some(alive_until),
            Effect::Revoke(keys) => self.revoking.extend(keys),
            Effect::Exit(_) => self.exited = true,
            Effect::Acknowledge(keys) => {
                self.kept.retain(|ended| !keys.contains(&ended.key));
                self.acknowledged.extend(keys);
            }
            Effect::CheckInputs(key, look) => self.pending_checks.push((key, look.files)),
            Effect::CheckOutputs(key, _) => self.checking.push(key),
            Effect::Terminate(_)
            | Effect::RecordStep(_)
            | Effect::Sample(_)
            | Effect::QuerySlurm(_)
            | Effect::ReadSrunLog(..)
            | Effect::Record(_)
            | Effect::Journal(_)
            | Effect::Unjournal(_)
            | Effect::Log(_) => {}
        }
    }

    /// Answers the pending file checks. The files of every tenth job are missing.
    fn files_are_found(&mut self) {
        for (key, files) in std::mem::take(&mut self.pending_checks) {
            let found = files.into_iter().map(|path| FileStat { path, ..FileStat::default() }).collect();
            let missing = key.job % 10 == 0;
            self.handle(AgentEvent::InputsChecked(key, if missing { Err("f".to_owned()) } else { Ok(found) }));
        }
        for key in std::mem::take(&mut self.checking) {
            self.handle(AgentEvent::OutputsChecked(key, OutputFindings::default()));
        }
    }

    fn start(&mut self, order: &StartOrder) {
        assert_ne!(order.key.job % 10, 0, "{:?} has no input", order.key);
        *self.started.entry(order.key).or_default() += 1;
        assert_eq!(self.started[&order.key], 1, "{:?} was started twice", order.key);
        let devices = order.devices.clone();
        assert_eq!(i64::try_from(devices.len()), Ok(self.needs[&order.key].gpus), "as many GPUs as it asked for");
        for running in &self.running {
            assert!(running.devices.iter().all(|device| !devices.contains(device)), "a GPU was given out twice");
        }
        self.running.push(Running { key: order.key, class: order.class, devices });
        assert!(self.used() <= self.cpus, "over-committed: {} of {}", self.used(), self.cpus);
    }

    /// Starts a job unless its lease has ended, like the shim.
    fn start_in_time(&mut self, order: &StartOrder) {
        if self.now <= order.until {
            self.start(order);
        } else {
            self.news.push(AgentEvent::Revoked(order.key));
        }
    }

    fn used(&self) -> i64 {
        self.running.iter().map(|running| self.needs[&running.key].cpus).sum()
    }

    fn check(&self) {
        let free = self.state.jobs.ledger().free();
        assert!(free.cpus >= 0 && free.gpus >= 0);
        assert!(free.cpus <= self.cpus - self.used(), "a running job has no reservation");
        let devices: usize = self.running.iter().map(|running| running.devices.len()).sum();
        assert!(free.gpus <= (GPUS.len() - devices) as i64, "a GPU in use counts as free");
        self.check_heartbeat();
    }

    /// Asserts that a punctual agent counts as alive while the shim has handed jobs.
    fn check_heartbeat(&self) {
        if self.state.jobs.handed() > 0 {
            let alive_until = self.alive_until.expect("the shim has had a heartbeat");
            // The last heartbeat is at most a ninth of the lease old.
            assert!(self.now.plus(LEASE * 2 / 9) <= alive_until, "it is due and was not sent");
            let next = self.now.max(alive_until.minus(LEASE * 2 / 9));
            assert!(self.state.wake_at().is_some_and(|at| at <= next), "it would wake up too late");
        }
    }

    /// Replaces the agent. Leases that had not started return to the server.
    fn agent_dies(&mut self) {
        // Only the old agent knew which jobs a killed shim had lost. The server learns it because the next agent does
        // not name them.
        let told_again = |key: &&AttemptKey| self.kept.iter().any(|ended| ended.key == **key);
        self.unknown.extend(self.state.reports.iter().map(|(key, _)| key).filter(|key| !told_again(key)));
        self.shim_forgets_what_waits();
        self.pending.clear();
        self.registering = false;
        self.lapsed_allowed = true;
        self.state = State::new(with_gpus(self.cpus), self.now);
        for Running { key, devices, .. } in self.running.clone() {
            let job = self.shim_job(key, devices);
            self.handle_unchecked(AgentEvent::Adopted(Box::new(job)));
        }
        for ended in self.kept.clone() {
            let job = Some(Box::new(self.shim_job(ended.key, Vec::new())));
            self.handle_unchecked(AgentEvent::Ended(Box::new(JobExit { job, successor: None, ..ended })));
        }
        // Classes of the old agent are not valid for the new one.
        self.running.iter_mut().for_each(|running| running.class = u32::MAX);
        self.handle(AgentEvent::Tick);
    }

    fn shim_job(&self, key: AttemptKey, devices: Vec<String>) -> ShimJob {
        let order = StartOrder { key, devices, ..StartOrder::default() };
        let template = StartTemplate { resources: self.needs[&key], ..StartTemplate::default() };
        ShimJob { order, template, ..ShimJob::default() }
    }

    fn shim_forgets_what_waits(&mut self) {
        self.waiting.clear();
        self.revoking.clear();
        self.news.clear();
        self.alive_until = None;
    }

    /// Handles an event without checks, because the agent does not have the complete state yet.
    fn handle_unchecked(&mut self, event: AgentEvent) {
        for effect in self.state.handle(event, self.now) {
            self.execute_effect(effect);
        }
    }

    /// Delivers the shim's messages about starts and revocations, which precede all others.
    fn shim_speaks(&mut self) {
        while !self.news.is_empty() {
            let event = self.news.remove(0);
            self.handle(event);
        }
        for key in std::mem::take(&mut self.revoking) {
            if let Some(at) = self.waiting.iter().position(|order| order.key == key) {
                self.waiting.remove(at);
                self.handle(AgentEvent::Revoked(key));
            }
        }
        let fresh: Vec<AttemptKey> = self.running.iter().map(|running| running.key).collect();
        for key in fresh {
            let starting = self.state.jobs.get(&key).is_some_and(|job| job.stage != jobs::JobStage::Running);
            if starting {
                self.handle(AgentEvent::Started(key, self.now, 100));
            }
        }
    }

    fn job_ends(&mut self, pick: u8) {
        self.shim_collects(pick);
        self.shim_speaks();
    }

    /// Returns the next job of a class that the shim starts by itself.
    fn next_in_turn(&mut self, class: u32) -> Option<StartOrder> {
        let is_alive = self.alive_until.is_some_and(|until| self.now <= until);
        while let Some(at) = self.waiting.iter().position(|order| order.class == class).filter(|_| is_alive) {
            let order = self.waiting.remove(at);
            if self.now <= order.until {
                return Some(order);
            }
            self.news.push(AgentEvent::Revoked(order.key));
        }
        None
    }

    /// Ends a job. The shim starts the next one if it may.
    fn shim_collects(&mut self, pick: u8) {
        if self.running.is_empty() {
            return;
        }
        let Running { key, class, .. } = self.running.remove(usize::from(pick) % self.running.len());
        let next = self.next_in_turn(class);
        let started = self.now.minus(Duration::from_micros(u64::from(pick) * 100));
        let ended = JobExit {
            key,
            started,
            ended: self.now,
            outcome: match pick % 7 {
                0 => Outcome::NotStarted { code: 127, message: String::new() },
                1 => Outcome::Signaled(9),
                other => Outcome::Exited(i32::from(other) % 3),
            },
            rusage: None,
            ending: None,
            age_ms: None,
            stdout: None,
            stderr: None,
            successor: next.as_ref().map(|order| order.key),
            job: None,
        };
        if let Some(order) = next {
            self.start(&order);
        }
        self.kept.push(ended.clone());
        self.news.push(AgentEvent::Ended(Box::new(ended)));
    }

    /// Freezes the agent. Nothing is done about the shim's messages until the agent goes on.
    fn freeze(&mut self, freeze: &Freeze) {
        self.lapsed_allowed = true;
        let parts = u32::try_from(freeze.ends.len() + 1).expect("few");
        let between = Duration::from_millis(freeze.milliseconds.into()) / parts;
        for pick in &freeze.ends {
            self.now = self.now.plus(between);
            self.shim_collects(*pick);
        }
        self.now = self.now.plus(between);
        if freeze.by_time {
            self.handle(AgentEvent::Tick);
        }
        self.shim_speaks();
    }

    fn answer(&mut self, grant: u8, cancel: Option<u8>, give_back: Option<u8>) {
        self.register();
        if self.pending.is_empty() {
            return;
        }
        let request = self.pending.remove(0);
        for finished in &request.finished {
            *self.reported.entry(finished.key).or_default() += u32::from(!self.reported.contains_key(&finished.key));
        }
        for key in &request.returned {
            *self.returned.entry(*key).or_default() += u32::from(!self.returned.contains_key(key));
        }
        let newest = self.pending.is_empty();
        let count = if newest { u32::from(grant).min(request.want.limit) } else { 0 };
        let mut response = SyncResponse { sequence: request.sequence, lease_ms: LEASE_MS, ..SyncResponse::default() };
        for _ in 0..count {
            let input_files = if self.next_job % 5 == 0 { vec!["f".to_owned()] } else { Vec::new() };
            let resources = self.jobs.resources(self.next_job);
            let profile = Profile { input_files, resources, ..profile(1) };
            self.needs.insert(key(self.next_job), profile.resources);
            response.profiles.push(profile);
            let index = u32::try_from(response.profiles.len() - 1).expect("few");
            response.leases.push(Lease { key: key(self.next_job), profile: index, ..Lease::default() });
            self.next_job += 1;
        }
        let held: Vec<AttemptKey> = self.state.jobs.iter().map(|(key, _)| *key).collect();
        let choose =
            |pick: Option<u8>| pick.filter(|_| !held.is_empty()).map(|pick| held[usize::from(pick) % held.len()]);
        response.cancel.extend(choose(cancel));
        response.give_back.extend(choose(give_back));
        response.directive = RunnerDirective::Continue;
        self.handle(AgentEvent::Answered(Box::new(response)));
        self.shim_speaks();
    }

    fn register(&mut self) {
        if std::mem::take(&mut self.registering) {
            self.pending.clear();
            self.handle(AgentEvent::Registered(RegisterResponse {
                runner: 1,
                version: String::new(),
                lease_ms: LEASE_MS,
            }));
        }
    }

    fn take(&mut self, step: HistoryStep) {
        match step {
            HistoryStep::Answer { grant, cancel, give_back } => self.answer(grant, cancel, give_back),
            HistoryStep::Fail { forget } => {
                self.register();
                if !self.pending.is_empty() {
                    let request = self.pending.remove(0);
                    let error = if forget { LinkError::Unknown } else { LinkError::Unreachable(String::new()) };
                    self.handle(AgentEvent::NotAnswered(request.sequence, error));
                }
            }
            HistoryStep::JobEnds(pick) => {
                self.files_are_found();
                self.job_ends(pick);
            }
            HistoryStep::Wait(milliseconds) => {
                self.now = self.now.plus(Duration::from_millis(milliseconds.into()));
                // A long wait may cost leases that have not started.
                self.lapsed_allowed = true;
                self.handle(AgentEvent::Tick);
                self.shim_speaks();
            }
            HistoryStep::Freeze(freeze) => self.freeze(&freeze),
            HistoryStep::ShimDies => {
                self.running.clear();
                // A handed job may have started, so the server gets no report about it.
                self.lapsed_allowed |= !self.waiting.is_empty();
                self.shim_forgets_what_waits();
                self.handle(AgentEvent::ShimLost);
                self.shim_speaks();
            }
            HistoryStep::AgentDies => {
                self.agent_dies();
                self.shim_speaks();
            }
            HistoryStep::Stop => {
                self.handle(AgentEvent::Stop);
                self.shim_speaks();
            }
        }
    }

    /// Stops the runner, and lets every job end and be reported.
    fn finish(&mut self) {
        self.take(HistoryStep::Stop);
        for _ in 0..10_000 {
            if self.exited {
                return;
            }
            self.files_are_found();
            self.shim_speaks();
            self.job_ends(0);
            self.register();
            while !self.pending.is_empty() {
                self.answer(0, None, None);
            }
            self.now = self.state.wake_at().unwrap_or(self.now).max(self.now.plus(Duration::from_millis(1)));
            self.handle(AgentEvent::Tick);
        }
        panic!("never left: {:?}", self.state);
    }
}

proptest! {
    #![proptest_config(Config::with_cases(400))]

    // J21, J39
    #[test]
    fn every_lease_ends_once_and_nothing_is_over_committed(
        cpus in 2_i64..5,
        jobs in prop_oneof![Just(JobKind::Various), Just(JobKind::Alike)],
        steps in steps(),
    ) {
        let mut model = HostModel::new(cpus, jobs);
        for step in steps {
            if model.exited {
                break;
            }
            model.take(step);
        }
        model.finish();
        prop_assert_eq!(model.state.jobs.ledger().free(), model.state.jobs.ledger().capacity());
        prop_assert!(model.state.jobs.is_empty());
        for job in 1..model.next_job {
            let count = |ends: &HashMap<AttemptKey, u32>| ends.get(&key(job)).copied().unwrap_or(0);
            let (started, reported, returned) = (count(&model.started), count(&model.reported), count(&model.returned));
            prop_assert!(reported + returned <= 1, "job {} ended {} times", job, reported + returned);
            let kept = model.state.reports.contains_key(&key(job)) && !model.acknowledged.contains(&key(job))
                || model.unknown.contains(&key(job));
            prop_assert!(started <= reported + u32::from(kept), "job {} was started and never reported", job);
            prop_assert!(reported + returned == 1 || model.lapsed_allowed, "job {} ended in no way", job);
        }
    }
}
