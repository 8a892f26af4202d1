//! A random history: one server, its runners, commands of users, and the network between them, one step at a time.

mod checks;

use std::collections::HashMap;

use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, RunnerScope, SyncRequest, SyncResponse};

use super::fleet::SimRunner;
use super::harness::{EngineHarness, runner};
use super::plan::{Plan, job, needs};
use crate::engine::{CommandError, Retry, Spawn};
use crate::ids::{JobId, RunnerId};

/// One step: its kind, and two numbers that select the target and the variant.
pub type Step = (u8, u32, u32);

pub struct History {
    pub harness: EngineHarness,
    pub plan: Plan,
    pub fleet: Vec<SimRunner>,
    /// Answers that wait for the group to be written.
    outbox: Vec<Answer>,
    /// Requests that have been sent and have not arrived.
    on_the_way: Vec<(usize, RunnerId, SyncRequest)>,
    seen: Seen,
    /// The database that a crash restores.
    durable: (Seen, Plan),
    pub canceled_once: bool,
    /// The number of the lease under which each attempt started.
    started: HashMap<(i64, i32, i32), i64>,
    /// The number of results that were checked.
    results_seen: usize,
    tick: u64,
}

struct Answer {
    runner: usize,
    id: RunnerId,
    request: SyncRequest,
    response: SyncResponse,
    lost: bool,
}

/// The ticks of grants and ends, which order the steps.
#[derive(Clone, Default)]
struct Seen {
    granted: HashMap<AttemptKey, u64>,
    ended: HashMap<JobId, ((i32, i32), u64)>,
}

impl History {
    pub fn new(plan: Plan) -> Self {
        let harness = EngineHarness::with(&plan);
        let durable = (Seen::default(), plan.clone());
        Self {
            harness,
            plan,
            fleet: Vec::new(),
            outbox: Vec::new(),
            on_the_way: Vec::new(),
            seen: Seen::default(),
            durable,
            canceled_once: false,
            started: HashMap::new(),
            results_seen: 0,
            tick: 0,
        }
    }

    pub fn step(&mut self, (kind, a, b): Step) {
        self.tick += 1;
        let choice = b as usize >> 8;
        match kind {
            0..26 => self.exchange(a as usize, b),
            26..42 => self.start(a as usize, choice),
            42..58 => self.with_runner(a, |runner, _| runner.finish(choice, outcome(b))),
            58..61 => self.with_runner(a, |runner, _| runner.give_back(choice)),
            61..63 => self.leave(a as usize),
            63..66 => self.succeed(a as usize, b),
            66..68 => self.with_runner(a, |runner, _| runner.gone = true),
            68..74 => self.silence(u64::from(b % 150) * 1_000),
            74..76 => self.silence(3_700_000),
            76..80 => self.restart(),
            80..85 => self.group(),
            85..86 => self.cancel(),
            86..89 => self.retry(a, b),
            89..93 => self.edit(a, b),
            93..95 => self.suspend(b.is_multiple_of(2)),
            95..98 => self.recruit(b),
            98 => self.spawn(a as usize, b),
            _ => self.arrive_late(a as usize),
        }
        self.note_ends();
        if !self.harness.is_open() {
            self.send();
        }
    }

    fn with_runner(&mut self, choice: u32, change: impl FnOnce(&mut SimRunner, u64)) {
        let now = self.harness.now.mono_ms;
        let count = self.fleet.len().max(1);
        if let Some(runner) = self.fleet.get_mut(choice as usize % count).filter(|runner| !runner.gone) {
            change(runner, now);
        }
    }

    fn start(&mut self, choice: usize, which: usize) {
        let now = self.harness.now.mono_ms;
        let index = choice % self.fleet.len().max(1);
        let Some(runner) = self.fleet.get_mut(index).filter(|runner| !runner.gone) else { return };
        if let Some(key) = runner.start(which, now) {
            self.check_start(index, &key);
        }
    }

    /// Sends a message of a runner. The low bits of `how` select the fault of the network.
    fn exchange(&mut self, choice: usize, how: u32) {
        let index = choice % self.fleet.len().max(1);
        let Some(runner) = self.fleet.get_mut(index).filter(|runner| !runner.gone) else { return };
        let Some(id) = runner.id else {
            self.register(index);
            return;
        };
        let request = runner.message((how >> 8) % 4, 1 + (how >> 10) % 8, self.harness.now.mono_ms);
        match how % 16 {
            0 => {}
            1 => self.on_the_way.push((index, id, request)),
            2 => self.deliver(index, id, request, true),
            3 => {
                self.deliver(index, id, request.clone(), how & 16 == 0);
                self.deliver(index, id, request, false);
            }
            _ => self.deliver(index, id, request, false),
        }
    }

    /// Delivers a delayed message, whose sender no longer waits for the answer.
    fn arrive_late(&mut self, choice: usize) {
        if !self.on_the_way.is_empty() {
            let index = choice % self.on_the_way.len();
            let (runner, id, request) = self.on_the_way.remove(index);
            self.deliver(runner, id, request, true);
        }
    }

    fn register(&mut self, index: usize) {
        let id = self.harness.register(&self.fleet[index].introduction.clone());
        self.fleet[index].forgotten();
        self.fleet[index].id = Some(id);
        // A server does not answer a registration that was not written, so the test writes it at once.
        self.commit();
    }

    fn deliver(&mut self, runner: usize, id: RunnerId, request: SyncRequest, lost: bool) {
        let awaited: Vec<_> = request.finished.iter().map(|finished| self.is_awaited(&finished.key)).collect();
        let elsewhere: Vec<_> =
            request.finished.iter().map(|finished| self.runs_elsewhere(&finished.key, id)).collect();
        let answer = match self.harness.try_sync(id, &request) {
            Ok(answer) => answer,
            Err(refusal) => {
                assert_eq!(refusal, CommandError::NoRunner(id));
                if self.fleet[runner].id == Some(id) {
                    self.fleet[runner].forgotten();
                }
                return;
            }
        };
        self.check_packing(runner, &request, &answer.response);
        for (finished, (awaited, elsewhere)) in request.finished.iter().zip(awaited.into_iter().zip(elsewhere)) {
            let refused = answer.response.refused.contains(&finished.key);
            assert!(refused || !elsewhere, "a report was accepted, but another runner has started the job");
            if awaited && !refused {
                self.check_came_after_parents(&finished.key);
            }
        }
        for lease in &answer.response.leases {
            let known = self.seen.granted.insert(lease.key, self.tick);
            assert_eq!(known, None, "a lease is given out once");
        }
        self.outbox.push(Answer { runner, id, request, response: answer.response, lost });
        if !self.harness.is_open() {
            self.send();
        }
    }

    fn send(&mut self) {
        for answer in std::mem::take(&mut self.outbox) {
            for lease in &answer.response.leases {
                self.check_parents_durable(&lease.key);
            }
            if !answer.lost && self.fleet[answer.runner].id == Some(answer.id) {
                self.fleet[answer.runner].take(&answer.request, &answer.response, self.harness.now.mono_ms);
            }
        }
        self.check_nothing_lost_in_contact();
        self.durable = (self.seen.clone(), self.plan.clone());
    }

    pub fn commit(&mut self) {
        self.harness.commit();
        self.note_ends();
        self.send();
    }

    fn group(&mut self) {
        if self.harness.is_open() { self.commit() } else { self.harness.open() }
    }

    fn restart(&mut self) {
        self.harness.restart();
        self.outbox.clear();
        self.on_the_way.clear();
        (self.seen, self.plan) = self.durable.clone();
    }

    fn silence(&mut self, ms: u64) {
        self.harness.silence(ms);
    }

    fn recruit(&mut self, how: u32) {
        if self.fleet.len() >= 6 || self.fleet.iter().filter(|runner| !runner.gone).count() >= 4 {
            return;
        }
        let mut introduction = runner(&format!("host{}", self.fleet.len()));
        introduction.capacity.cpus = i64::from([1, 2, 4, 8][how as usize % 4]);
        introduction.capacity.gpus = i64::from(how >> 2 & 1) * 2;
        introduction.labels = labels(how >> 3);
        introduction.max_parallel_jobs = (how >> 5 & 7 == 0).then_some(4);
        if how >> 8 & 1 == 1 {
            introduction.scope = RunnerScope::Workflow("w".to_owned());
        }
        self.fleet.push(SimRunner::new(introduction));
        self.register(self.fleet.len() - 1);
    }

    fn leave(&mut self, choice: usize) {
        let index = choice % self.fleet.len().max(1);
        let Some(runner) = self.fleet.get_mut(index).filter(|runner| !runner.gone) else { return };
        let Some(id) = runner.id else { return };
        while !runner.running.is_empty() {
            runner.finish(0, Some((143, Cause::Stopped)));
        }
        while !runner.queued.is_empty() {
            runner.give_back(0);
        }
        let mut request = runner.message(0, 0, self.harness.now.mono_ms);
        request.leaving = true;
        runner.gone = true;
        self.deliver(index, id, request, false);
    }

    /// Replaces the agent of a runner. The next one finds the shim with all jobs, or without any.
    fn succeed(&mut self, choice: usize, how: u32) {
        let index = choice % self.fleet.len().max(1);
        let Some(runner) = self.fleet.get_mut(index) else { return };
        runner.gone = false;
        runner.queued.clear();
        if how & 1 == 0 {
            runner.running.clear();
            runner.finished.clear();
        }
        runner.returned.clear();
        self.register(index);
    }

    fn cancel(&mut self) {
        let id = self.harness.workflow();
        self.canceled_once = true;
        self.harness.run(|engine, tx| engine.cancel(id, tx)).unwrap();
    }

    fn retry(&mut self, a: u32, b: u32) {
        let id = self.harness.workflow();
        let name = &self.plan.jobs[a as usize % self.plan.jobs.len()].name;
        let which = match b % 4 {
            0 => Retry::All,
            1 => Retry::Jobs(vec![name.clone()]),
            _ => Retry::Failed,
        };
        self.harness.run(|engine, tx| engine.retry(id, &which, tx)).unwrap();
    }

    /// A running job spawns jobs, or repeats an earlier call.
    fn spawn(&mut self, choice: usize, how: u32) {
        let index = choice % self.fleet.len().max(1);
        let Some(promise) = self.fleet.get(index).and_then(|runner| runner.running.first()) else { return };
        let AttemptKey { job: caller, run, attempt, .. } = promise.key;
        let beside = self.plan.jobs[how as usize % self.plan.jobs.len()].name.clone();
        let name = |number: u32| format!("s{caller}_{}_{number}", how >> 8 & 1);
        let jobs = (0..1 + how % 3).map(|number| match number {
            0 => job(&name(number)).after(&[&beside]),
            _ => job(&name(number)).after(&[&name(number - 1)]),
        });
        let expanded = Plan::new(jobs.chain([job(&beside)])).expanded();
        let caller = caller.to_string();
        let spawn = Spawn {
            caller: &caller,
            run,
            attempt,
            lineage: "loop",
            expanded: &expanded,
            known: 1,
            state: Some(serde_json::json!(how)),
            max_jobs: 200,
        };
        let id = self.harness.workflow();
        match self.harness.run(|engine, tx| engine.spawn(id, &spawn, tx)) {
            Ok(_) | Err(CommandError::Conflict(_) | CommandError::NoJob { .. } | CommandError::Invalid(_)) => {}
            Err(refusal) => panic!("{refusal}"),
        }
    }

    pub fn suspend(&mut self, suspended: bool) {
        let id = self.harness.workflow();
        self.harness
            .run(|engine, tx| match suspended {
                true => engine.suspend(id, tx),
                false => engine.resume(id, tx),
            })
            .unwrap();
    }

    fn edit(&mut self, a: u32, b: u32) {
        let index = a as usize % self.plan.jobs.len();
        let name = self.plan.jobs[index].name.clone();
        let plan = self.plan.clone();
        self.plan = match b % 8 {
            0 => plan.edit(&name, |job| job.version += 1),
            1 => plan.edit(&name, |job| job.priority += 1),
            2 => plan.edit(&name, |job| job.needs = needs(1 + i64::from(b >> 8) % 2, 0, 2)),
            3 | 4 if plan.jobs.len() > 1 => plan.without(&name),
            5 => {
                let run = self.harness.database.workflows[&self.harness.workflow()].run;
                plan.with(|spec| spec.run_id = Some(run + 1)).with(|spec| spec.rerun_policy = policy(b >> 8))
            }
            _ => {
                let fresh = job(&format!("new{}", self.tick)).after(&[name.as_str()]);
                let mut jobs = plan.jobs;
                // Before its parent, so that the order of numbers differs from that of the dependencies.
                jobs.insert(0, fresh);
                Plan { jobs, ..plan }
            }
        };
        self.harness.apply(&self.plan.clone());
    }

    /// Removes all obstacles: writes the group, and gives dead runners successors without jobs.
    pub fn clear_the_way(&mut self) {
        self.commit();
        self.on_the_way.clear();
        for index in 0..self.fleet.len() {
            self.fleet[index] = SimRunner::new(self.fleet[index].introduction.clone());
            self.register(index);
            self.exchange(index, 15);
            self.leave(index);
        }
        self.suspend(false);
    }

    /// Runs fault-free runners that can run every job, until no work is left. `outcomes` selects the end of each job.
    pub fn work_off(&mut self, mut outcomes: impl FnMut() -> u32) {
        let first = self.fleet.len();
        for (index, labels) in [vec![], vec!["a".to_owned(), "b".to_owned()]].into_iter().enumerate() {
            let mut introduction = runner(&format!("last{index}"));
            introduction.labels = labels;
            introduction.capacity.memory_bytes <<= 10;
            self.fleet.push(SimRunner::new(introduction));
        }
        let mut idle_rounds = 0;
        for _ in 0..2_000 {
            self.tick += 1;
            for index in first..self.fleet.len() {
                self.exchange(index, 15 | 7 << 10);
                self.start(index, 0);
                self.fleet[index].finish(0, outcome(outcomes()));
                self.note_ends();
            }
            let has_nothing = |runner: &SimRunner| {
                runner.queued.is_empty() && runner.running.is_empty() && runner.finished.is_empty()
            };
            idle_rounds = if self.fleet[first..].iter().all(has_nothing) { idle_rounds + 1 } else { 0 };
            // One round registers the runners, and the end of a job may be work for another runner.
            if idle_rounds > 3 {
                return;
            }
        }
        panic!("the work does not end");
    }
}

pub fn labels(how: u32) -> Vec<String> {
    match how % 4 {
        0 | 1 => Vec::new(),
        2 => vec!["a".to_owned()],
        _ => vec!["a".to_owned(), "b".to_owned()],
    }
}

fn policy(how: u32) -> Option<torc_api::workflow::RerunPolicy> {
    use torc_api::workflow::RerunPolicy::{All, Failed, Incomplete};
    [None, Some(Failed), Some(Incomplete), Some(All)][how as usize % 4]
}

/// Returns how an attempt ends; none for the 11 of 16 that succeed.
fn outcome(how: u32) -> Option<(i32, Cause)> {
    match how % 16 {
        0 => Some((1, Cause::ExitCode)),
        1 => Some((137, Cause::OutOfMemory)),
        2 => Some((152, Cause::Timeout)),
        3 => Some((143, Cause::Stopped)),
        4 => Some((-128, Cause::NodeFailure)),
        _ => None,
    }
}
