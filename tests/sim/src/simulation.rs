//! The simulation: takes the next event, lets the server or a runner handle it, and queues what follows.

use std::collections::BTreeMap;
use std::time::Duration;

use torc_api::wire::AttemptKey;
use torc_runner::RunnerError;
use torc_runner::protocol::StartOrder;
use torc_runner::state::AgentEvent;

use crate::events::EventQueue;
use crate::jobs::JobIndex;
use crate::random::Random;
use crate::runner::{HostOutput, Message, RunnerHost};
use crate::server::{Answer, ApplyError, Server, TICK_INTERVAL};
use crate::shim::ShimOutput;
use crate::time::Time;
use crate::trace::{Attempt, Trace};
use crate::workload::Scenario;

/// A scenario that cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("runner '{host}' cannot be set up")]
    Runner { host: String, source: RunnerError },
}

/// Something that happens. Runners and workflows are named by their index in the scenario.
enum SimEvent {
    Apply(usize),
    Arrive(usize),
    Stop(usize),
    Crash(usize),
    Wake(usize),
    CheckProcess(usize, AttemptKey),
    /// A message arrives at the server.
    Deliver(usize, Message),
    /// An answer or an event of its own machine arrives at an agent.
    Agent(usize, Box<AgentEvent>),
    Tick,
    PollTimeout,
}

/// Runs a scenario until all workflows have settled.
pub fn simulate(scenario: &Scenario) -> Result<Trace, SimulationError> {
    let mut simulation = Simulation::new(scenario);
    while let Some((now, event)) = simulation.queue.pop() {
        simulation.now = now;
        if now > scenario.limit || simulation.step(event)? {
            break;
        }
    }
    Ok(simulation.into_trace())
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    now: Time,
    queue: EventQueue<SimEvent>,
    random: Random,
    server: Server,
    runners: Vec<Option<RunnerHost>>,
    jobs: JobIndex,
    unapplied: usize,
    /// The timeout that is in the queue.
    poll_timeout: Option<Time>,
    trace: Trace,
    /// Positions in the trace.
    running: BTreeMap<(usize, AttemptKey), usize>,
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let mut queue = EventQueue::new();
        for (index, runner) in scenario.runners.iter().enumerate() {
            queue.push(runner.arrives, SimEvent::Arrive(index));
            runner.stops.into_iter().for_each(|at| queue.push(at, SimEvent::Stop(index)));
            runner.crashes.into_iter().for_each(|at| queue.push(at, SimEvent::Crash(index)));
        }
        for (index, workflow) in scenario.workflows.iter().enumerate() {
            queue.push(workflow.applied, SimEvent::Apply(index));
        }
        queue.push(Time::after_start(TICK_INTERVAL), SimEvent::Tick);
        Self {
            scenario,
            now: Time::ZERO,
            queue,
            random: Random::new(scenario.seed, 0),
            server: Server::new(scenario.timing.commit),
            runners: scenario.runners.iter().map(|_| None).collect(),
            jobs: JobIndex::new(scenario),
            unapplied: scenario.workflows.len(),
            poll_timeout: None,
            trace: Trace::default(),
            running: BTreeMap::new(),
        }
    }

    /// Handles an event. Returns whether the simulation is over.
    fn step(&mut self, event: SimEvent) -> Result<bool, SimulationError> {
        match event {
            SimEvent::Apply(index) => self.apply(index)?,
            SimEvent::Arrive(index) => self.arrive(index)?,
            SimEvent::Stop(index) => self.agent(index, AgentEvent::Stop),
            SimEvent::Crash(index) => self.crash(index),
            SimEvent::Wake(index) => self.with_runner(index, |host, now, durations| host.wake(now, durations)),
            SimEvent::CheckProcess(index, key) => {
                self.with_runner(index, |host, now, _| host.check_process(key, now));
            }
            SimEvent::Deliver(index, message) => {
                let answers = self.server.receive(index, message, self.now);
                self.send(answers);
                return Ok(self.is_over());
            }
            SimEvent::Agent(index, event) => self.agent(index, *event),
            SimEvent::Tick => {
                let answers = self.server.tick(self.now);
                self.send(answers);
                self.queue.push(self.now.plus(TICK_INTERVAL), SimEvent::Tick);
                return Ok(self.is_over());
            }
            SimEvent::PollTimeout => {
                self.poll_timeout = None;
                let answers = self.server.answer_timeouts(self.now);
                self.send(answers);
            }
        }
        Ok(false)
    }

    fn is_over(&self) -> bool {
        self.unapplied == 0 && self.server.is_idle()
    }

    fn apply(&mut self, index: usize) -> Result<(), SimulationError> {
        let (number, answers) = self.server.apply(&self.scenario.workflows[index], self.now)?;
        self.jobs.applied(index, number);
        self.unapplied -= 1;
        self.send(answers);
        Ok(())
    }

    fn arrive(&mut self, index: usize) -> Result<(), SimulationError> {
        let plan = &self.scenario.runners[index];
        let host = RunnerHost::new(plan, self.scenario.timing, self.now)
            .map_err(|source| SimulationError::Runner { host: plan.host.clone(), source })?;
        self.runners[index] = Some(host);
        self.agent(index, AgentEvent::Tick);
        Ok(())
    }

    fn crash(&mut self, index: usize) {
        if let Some(host) = &mut self.runners[index] {
            host.crash();
        }
        let gone: Vec<(usize, AttemptKey)> =
            self.running.keys().filter(|(runner, _)| *runner == index).copied().collect();
        for key in gone {
            self.end_attempt(key, false);
        }
    }

    fn agent(&mut self, index: usize, event: AgentEvent) {
        self.with_runner(index, |host, now, durations| host.handle(event, now, durations));
    }

    /// Lets a runner do something and queues what follows.
    fn with_runner(
        &mut self,
        index: usize,
        handle: impl FnOnce(&mut RunnerHost, Time, &dyn Fn(&StartOrder) -> Duration) -> Vec<HostOutput>,
    ) {
        let Some(host) = &mut self.runners[index] else { return };
        let (jobs, scenario) = (&self.jobs, self.scenario);
        let durations = |order: &StartOrder| {
            let job = jobs.find(&order.key, &order.name);
            job.map(|job| scenario.job(job).duration).unwrap_or_default()
        };
        for output in handle(host, self.now, &durations) {
            self.execute(index, output);
        }
    }

    fn execute(&mut self, index: usize, output: HostOutput) {
        match output {
            HostOutput::Send(message) => {
                let delay = self.scenario.runners[index].link.delay(&mut self.random);
                self.queue.push(self.now.plus(delay), SimEvent::Deliver(index, message));
            }
            HostOutput::Event(event) | HostOutput::Shim(ShimOutput::Event(event)) => {
                self.queue.push(self.now, SimEvent::Agent(index, Box::new(event)));
            }
            HostOutput::Wake(at) => self.queue.push(at, SimEvent::Wake(index)),
            HostOutput::Shim(ShimOutput::Check { key, at }) => {
                self.queue.push(at, SimEvent::CheckProcess(index, key));
            }
            HostOutput::Shim(ShimOutput::Starts { key, name, at }) => self.begin_attempt(index, key, &name, at),
            HostOutput::Shim(ShimOutput::Exited { key, succeeded }) => self.end_attempt((index, key), succeeded),
        }
    }

    fn begin_attempt(&mut self, runner: usize, key: AttemptKey, name: &str, started: Time) {
        let Some(job) = self.jobs.find(&key, name) else { return };
        self.running.insert((runner, key), self.trace.attempts.len());
        let number = key.attempt;
        let attempt = Attempt { job, runner, number, ordered: self.now, started, ended: None, succeeded: false };
        self.trace.attempts.push(attempt);
    }

    fn end_attempt(&mut self, key: (usize, AttemptKey), succeeded: bool) {
        let Some(attempt) = self.running.remove(&key).and_then(|at| self.trace.attempts.get_mut(at)) else { return };
        attempt.ended = Some(self.now);
        attempt.succeeded = succeeded;
    }

    /// Sends answers on their way, and sees to it that the next long poll ends in time.
    fn send(&mut self, answers: Vec<Answer>) {
        for Answer { runner, leaves, event } in answers {
            let delay = self.scenario.runners[runner].link.delay(&mut self.random);
            self.queue.push(leaves.plus(delay), SimEvent::Agent(runner, Box::new(event)));
        }
        if let Some(timeout) = self.server.next_timeout()
            && self.poll_timeout.is_none_or(|queued| timeout < queued)
        {
            self.poll_timeout = Some(timeout);
            self.queue.push(timeout, SimEvent::PollTimeout);
        }
    }

    fn into_trace(mut self) -> Trace {
        self.trace.lease_moves = self.server.lease_moves;
        self.trace.syncs = self.server.syncs;
        self.trace.ended = self.now;
        self.trace
    }
}
