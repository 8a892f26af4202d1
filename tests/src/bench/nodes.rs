//! Simulated nodes: the real agent, the real protocol and a real server, but jobs that only take time.
//!
//! Measures what a scientist with short GPU jobs sees: how long a GPU waits between two jobs, how much of its time it works, and
//! Measures short GPU jobs: the gap between two jobs on a GPU, its utilization, and the CPU time of the server. Leasing ahead is
//! compared with leasing one by one.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use torc_api::wire::{AttemptKey, PROTOCOL, RegisterRequest, Resources};
use torc_runner::clock::{self, BootInstant};
use torc_runner::command::ShellSetup;
use torc_runner::protocol::{JobExit, Outcome, StartOrder};
use torc_runner::state::{AgentEvent, AgentSettings, Effect, OutputFindings, State};
use torc_runner::{Bearer, HttpLink, RunnerConfig, ServerLink, resolve};

use crate::report::{Bar, Report};
use crate::server::Server;

/// Number of GPUs of a node.
const GPUS: usize = 4;
/// Duration of a job.
const JOB: Duration = Duration::from_secs(5);
/// Duration of a measurement.
const WATCHED: Duration = Duration::from_secs(31);

/// The figures of a measurement.
struct Seen {
    /// Milliseconds from the end of a job to the next start on the same GPU, sorted.
    gaps_ms: Vec<f64>,
    /// Percentage of the time from the first start on a GPU to the end of the measurement in which it was busy.
    utilization: f64,
    /// Syncs of all nodes for each job.
    calls_a_job: f64,
    /// Microseconds of the server's CPU for each job.
    server_cpu_a_job: f64,
}

/// Measures 1, 10 and 200 nodes, with leasing ahead and without. P10, P11.
pub async fn measure(torc: &Path, report: &mut Report) -> Result<()> {
    for nodes in [1, 10, 200] {
        for ahead in [false, true] {
            let seen = watch(torc, nodes, ahead).await?;
            let name = |what: &str| {
                let way = if ahead { "ahead" } else { "one by one" };
                format!("{nodes} nodes x {GPUS} GPUs, 5 s jobs, {way}: {what}")
            };
            report.record(name("calls a job"), seen.calls_a_job, "");
            report.record(name("server CPU a job"), seen.server_cpu_a_job, "us");
            let middle = seen.gaps_ms.get(seen.gaps_ms.len() / 2).copied().unwrap_or_default();
            if ahead {
                report.record_with_bar(name("median gap"), middle, "ms", Bar::AtMost(5.0));
                report.record_with_bar(name("GPUs busy"), seen.utilization, "%", Bar::AtLeast(99.5));
            } else {
                report.record(name("median gap"), middle, "ms");
                report.record(name("GPUs busy"), seen.utilization, "%");
            }
        }
    }
    Ok(())
}

async fn watch(torc: &Path, nodes: usize, ahead: bool) -> Result<Seen> {
    let folder = tempfile::tempdir()?;
    let server = Server::start(torc, &folder.path().join("torc.db")).await?;
    let rounds = WATCHED.as_secs() / JOB.as_secs() + 4;
    let jobs = nodes as u64 * GPUS as u64 * rounds;
    let document = json!({
        "apiVersion": "torc.dev/v1alpha1",
        "metadata": { "name": "simulations" },
        "spec": {
            "prefetch": { "enabled": ahead },
            "resourceRequirements": [{ "name": "gpu", "numCpus": 1, "numGpus": 1, "memory": "1g", "runtime": "PT1M" }],
            "jobs": [{
                "name": "simulation_{i}",
                "command": "true",
                "resourceRequirements": "gpu",
                "parameters": { "i": format!("1:{jobs}") },
            }],
        },
    });
    server.post("/v1/workflows", &json!({ "document": document, "workingDir": "/" })).await?;
    let cpu = server.cpu_seconds()?;
    let until = Instant::now() + WATCHED;
    let mut running = Vec::new();
    for number in 0..nodes {
        let bearer = Bearer::new(Some(server.token().to_owned()), None);
        let link = HttpLink::new(server.client(), &server.url, bearer);
        running.push(tokio::spawn(Node::new(link, number)?.live(until)));
    }
    let (mut starts, mut calls, mut gaps_ms) = (0, 0, Vec::new());
    let (mut busy, mut watched) = (Duration::ZERO, Duration::ZERO);
    for node in running {
        let log = node.await.context("a simulated node ended early")?;
        calls += log.calls;
        for gpu in log.gpus.values() {
            starts += gpu.starts;
            busy += gpu.busy;
            watched += gpu.end.since(gpu.first_start);
            gaps_ms.extend(gpu.gaps.iter().map(|gap| gap.as_secs_f64() * 1e3));
        }
    }
    gaps_ms.sort_by(f64::total_cmp);
    let jobs = f64::from(starts).max(1.0);
    Ok(Seen {
        gaps_ms,
        utilization: busy.as_secs_f64() / watched.as_secs_f64().max(f64::MIN_POSITIVE) * 100.0,
        calls_a_job: f64::from(calls) / jobs,
        server_cpu_a_job: (server.cpu_seconds()? - cpu) / jobs * 1e6,
    })
}

/// The measurements on a node.
#[derive(Default)]
struct Log {
    calls: u32,
    gpus: HashMap<String, Gpu>,
}

/// The measurements on a GPU.
struct Gpu {
    starts: u32,
    first_start: BootInstant,
    started: BootInstant,
    /// Start of the idle time; `None` while a job runs.
    ended: Option<BootInstant>,
    busy: Duration,
    gaps: Vec<Duration>,
    /// End of the measurement.
    end: BootInstant,
}

impl Log {
    fn started(&mut self, device: &str, now: BootInstant) {
        let gpu = self.gpus.entry(device.to_owned()).or_insert_with(|| Gpu {
            starts: 0,
            first_start: now,
            started: now,
            ended: None,
            busy: Duration::ZERO,
            gaps: Vec::new(),
            end: now,
        });
        gpu.starts += 1;
        gpu.gaps.extend(gpu.ended.take().map(|ended| now.since(ended)));
        gpu.started = now;
    }

    fn ended(&mut self, device: &str, now: BootInstant) {
        if let Some(gpu) = self.gpus.get_mut(device) {
            gpu.busy += now.since(gpu.started);
            gpu.ended = Some(now);
        }
    }

    /// Ends the measurement. Running jobs count up to now.
    fn close(&mut self, now: BootInstant) {
        for gpu in self.gpus.values_mut() {
            if gpu.ended.is_none() {
                gpu.busy += now.since(gpu.started);
            }
            gpu.end = now;
        }
    }
}

struct Node {
    state: State,
    link: Arc<HttpLink>,
    registration: RegisterRequest,
    sender: UnboundedSender<AgentEvent>,
    events: UnboundedReceiver<AgentEvent>,
    devices: HashMap<AttemptKey, String>,
    log: Log,
}

impl Node {
    fn new(link: HttpLink, number: usize) -> Result<Self> {
        let (sender, events) = unbounded_channel();
        let capacity = Resources { cpus: 64, memory_bytes: 1 << 40, gpus: GPUS as i64, nodes: 1 };
        let place = format!("/simulated/{number}");
        let mut config = RunnerConfig::new(place.clone().into(), place.clone().into(), Vec::new());
        config.capacity = capacity;
        config.gpu_devices = (0..GPUS).map(|device| device.to_string()).collect();
        let now = clock::now();
        let settings: AgentSettings = resolve(&config, ShellSetup::default(), now)?;
        let registration = RegisterRequest {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: format!("simulated{number}"),
            capacity,
            place,
            ..RegisterRequest::default()
        };
        let state = State::new(settings, now);
        let devices = HashMap::new();
        Ok(Self { state, link: Arc::new(link), registration, sender, events, devices, log: Log::default() })
    }

    async fn live(mut self, until: Instant) -> Log {
        self.handle(AgentEvent::Tick);
        loop {
            let wake = self.state.wake_at().map_or(WATCHED, |at| at.since(clock::now()));
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => break,
                () = tokio::time::sleep(wake) => self.handle(AgentEvent::Tick),
                event = self.events.recv() => match event {
                    Some(event) => self.handle(event),
                    None => break,
                },
            }
        }
        self.log.close(clock::now());
        self.log
    }

    fn handle(&mut self, event: AgentEvent) {
        if let AgentEvent::Ended(ended) = &event
            && let Some(device) = self.devices.remove(&ended.key)
        {
            self.log.ended(&device, ended.ended);
        }
        for effect in self.state.handle(event, clock::now()) {
            self.execute(effect);
        }
    }

    fn execute(&mut self, effect: Effect) {
        let (link, sender) = (Arc::clone(&self.link), self.sender.clone());
        match effect {
            Effect::Register => {
                let request = self.registration.clone();
                tokio::spawn(async move {
                    let answer = link.register(&request).await;
                    let _ = sender.send(answer.map_or_else(AgentEvent::NotRegistered, AgentEvent::Registered));
                });
            }
            Effect::Sync(runner, request) => {
                self.log.calls += 1;
                tokio::spawn(async move {
                    let _ = sender.send(match link.sync(runner, &request).await {
                        Ok(answer) => AgentEvent::Answered(Box::new(answer)),
                        Err(error) => AgentEvent::NotAnswered(request.sequence, error),
                    });
                });
            }
            Effect::Start(order, _) => self.start(*order),
            Effect::CheckOutputs(key, _) => {
                let _ = sender.send(AgentEvent::OutputsChecked(key, OutputFindings::default()));
            }
            _ => {}
        }
    }

    /// Starts a job at once. It ends after its duration.
    fn start(&mut self, order: StartOrder) {
        let (key, started) = (order.key, clock::now());
        if let Some(device) = order.devices.into_iter().next() {
            self.log.started(&device, started);
            self.devices.insert(key, device);
        }
        let sender = self.sender.clone();
        let _ = sender.send(AgentEvent::Started(key, started, 0));
        tokio::spawn(async move {
            tokio::time::sleep(JOB).await;
            let ended = clock::now();
            let outcome = Outcome::Exited(0);
            let _ = sender.send(AgentEvent::Ended(Box::new(JobExit::new(key, started, ended, outcome))));
        });
    }
}
