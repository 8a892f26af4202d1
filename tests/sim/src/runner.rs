//! A simulated runner: the real agent state, a simulated shim, and a link to the server.

use torc_api::wire::{AttemptKey, PROTOCOL, RegisterRequest, Resources, RunnerKind, SyncRequest};
use torc_runner::command::ShellSetup;
use torc_runner::mode::StepAllocation;
use torc_runner::protocol::StartOrder;
use torc_runner::state::{AgentEvent, Effect, OutputFindings, State};
use torc_runner::{RunnerConfig, RunnerError, RunnerSettings, resolve};

use crate::shim::{PlannedStart, Shim, ShimOutput};
use crate::time::Time;
use crate::workload::{RunnerPlan, Timing};

/// A running agent with its shim and its link.
pub struct RunnerHost {
    agent: State,
    shim: Shim,
    registration: RegisterRequest,
    /// The time of the wake-up that counts; earlier ones are out of date.
    wake_at: Option<Time>,
    is_gone: bool,
}

/// Output of a runner host.
#[derive(Debug)]
pub enum HostOutput {
    /// A message to the server.
    Send(Message),
    /// Output of its shim.
    Shim(ShimOutput),
    /// An event for its agent, at once.
    Event(AgentEvent),
    /// [`RunnerHost::wake`] is to be called at this time.
    Wake(Time),
}

/// A message to the server.
#[derive(Clone, Debug)]
pub enum Message {
    Register(Box<RegisterRequest>),
    Sync(i64, Box<SyncRequest>),
}

/// Returns how long the process of an order runs.
pub type Durations<'a> = &'a dyn Fn(&StartOrder) -> std::time::Duration;

impl RunnerHost {
    /// Returns a runner that has not registered yet.
    pub fn new(plan: &RunnerPlan, timing: Timing, now: Time) -> Result<Self, RunnerError> {
        let config = config(plan);
        let mut settings = resolve(&config, ShellSetup::default(), now.moment())?;
        // The only setting that is read from this machine.
        settings.oom_kills = 0;
        Ok(Self {
            agent: State::new(settings, now.moment()),
            shim: Shim::new(timing.start_overhead),
            registration: registration(plan, &config),
            wake_at: None,
            is_gone: false,
        })
    }

    /// Returns whether the runner has left or crashed.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Crashes with all of its processes.
    pub fn crash(&mut self) {
        self.is_gone = true;
    }

    /// Wakes the agent, if this is the wake-up that counts.
    pub fn wake(&mut self, now: Time, durations: Durations<'_>) -> Vec<HostOutput> {
        if self.wake_at != Some(now) {
            return Vec::new();
        }
        self.wake_at = None;
        self.handle(AgentEvent::Tick, now, durations)
    }

    /// Lets the agent handle an event and carries out what it decides.
    pub fn handle(&mut self, event: AgentEvent, now: Time, durations: Durations<'_>) -> Vec<HostOutput> {
        let mut out = Vec::new();
        if self.is_gone {
            return out;
        }
        for effect in self.agent.handle(event, now.moment()) {
            self.execute(effect, now, durations, &mut out);
        }
        // An agent that wants to be woken at once is woken when the clock has moved on.
        let wake_at = self.agent.wake_at().map(|at| Time::of_moment(at).max(Time(now.0 + 1)));
        if wake_at != self.wake_at {
            out.extend(wake_at.map(HostOutput::Wake));
            self.wake_at = wake_at;
        }
        out
    }

    /// Looks after a process whose start or end may be due.
    pub fn check_process(&mut self, key: AttemptKey, now: Time) -> Vec<HostOutput> {
        let mut out = Vec::new();
        if !self.is_gone {
            self.shim.check_process(key, now, &mut out);
        }
        out.into_iter().map(HostOutput::Shim).collect()
    }

    fn execute(&mut self, effect: Effect, now: Time, durations: Durations<'_>, out: &mut Vec<HostOutput>) {
        let mut shim = Vec::new();
        match effect {
            Effect::Register => out.push(HostOutput::Send(Message::Register(Box::new(self.registration.clone())))),
            Effect::Sync(runner, request) => out.push(HostOutput::Send(Message::Sync(runner, request))),
            Effect::Start(order, _) => {
                let duration = durations(&order);
                self.shim.order(PlannedStart { order: *order, duration }, now, &mut shim);
            }
            Effect::StartNow(key) => self.shim.start_waiting(&key, now, &mut shim),
            Effect::Revoke(keys) => self.shim.revoke(&keys, &mut shim),
            Effect::Terminate(termination) => self.shim.terminate(&termination, now, &mut shim),
            Effect::CheckInputs(key, _) => out.push(HostOutput::Event(AgentEvent::InputsChecked(key, Ok(Vec::new())))),
            Effect::CheckOutputs(key, _) => {
                out.push(HostOutput::Event(AgentEvent::OutputsChecked(key, OutputFindings::default())))
            }
            Effect::Journal(results) => {
                let keys = results.iter().map(|result| result.finished.key).collect();
                out.push(HostOutput::Event(AgentEvent::Journalled(keys)));
            }
            Effect::Exit(_) => self.is_gone = true,
            Effect::Acknowledge(_)
            | Effect::RecordStep(_)
            | Effect::Sample(_)
            | Effect::ReadSrunLog(..)
            | Effect::QuerySlurm(_)
            | Effect::Record(_)
            | Effect::Unjournal(_)
            | Effect::Log(_)
            | Effect::Heartbeat { .. } => {}
        }
        out.extend(shim.into_iter().map(HostOutput::Shim));
    }
}

fn config(plan: &RunnerPlan) -> RunnerConfig {
    let folder = format!("/simulated/{}", plan.host);
    let mut config = RunnerConfig::new(folder.clone().into(), folder.into(), Vec::new());
    let Resources { gpus, nodes, .. } = plan.capacity;
    config.capacity = plan.capacity;
    config.gpu_devices = (0..gpus / nodes.max(1)).map(|device| device.to_string()).collect();
    config.settings = RunnerSettings {
        max_parallel_jobs: plan.max_parallel_jobs,
        labels: plan.labels.clone(),
        persistent: true,
        prefetch_enabled: plan.prefetch.enabled,
        prefetch_batch_size: plan.prefetch.batch_size,
        prefetch_max_queued: plan.prefetch.max_queued,
        prefetch_refill_threshold: plan.prefetch.refill_threshold,
        lease_seconds: plan.prefetch.lease_seconds,
        ..RunnerSettings::default()
    };
    config.scope = plan.scope.clone();
    config.time_limit = plan.walltime;
    config.exit_when_complete = false;
    if plan.is_in_allocation() {
        let names = (0..nodes).map(|node| format!("{}-{node}", plan.host)).collect();
        config.kind = RunnerKind::Slurm;
        config.allocation = Some(StepAllocation { job_id: plan.host.clone(), srun: "srun".to_owned(), nodes: names });
    }
    config
}

fn registration(plan: &RunnerPlan, config: &RunnerConfig) -> RegisterRequest {
    RegisterRequest {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: plan.host.clone(),
        kind: config.kind,
        capacity: plan.capacity,
        max_parallel_jobs: plan.max_parallel_jobs,
        labels: plan.labels.clone(),
        scope: plan.scope.clone(),
        place: format!("{}:/simulated", plan.host),
        ..RegisterRequest::default()
    }
}
