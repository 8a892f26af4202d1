//! The agent's event loop: it converts input into events, passes them to the state, and executes the effects that the
//! state returns.
//!
//! This module makes no decisions. Server calls and file checks run in tasks of their own, so that they never delay the
//! start or the collection of jobs.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use torc_api::wire::{AttemptKey, PROTOCOL, RegisterRequest};
use torc_slurm::step_failure;
use tracing::{Instrument as _, Span, debug, debug_span, info_span};

use self::journal_writer::JournalWriter;
use self::recorder::Recorder;
use self::shim_link::{AdoptedState, ShimLink};
use self::slurm_client::SlurmClient;
use crate::clock::{self, BootInstant};
use crate::command::{self, ShellSetup};
use crate::config::{RunnerConfig, RunnerError, RunnerExit};
use crate::events::RunnerEvent;
use crate::files::Hashes;
use crate::journal::{self, Journal};
use crate::link::ServerLink;
use crate::monitor::{self, Sampler};
use crate::process::ProcessId;
use crate::protocol::{FromShim, ToShim};
use crate::state::{AgentEvent, AgentSettings, Effect, State, TimeSpan};
use crate::tokens::{self, Tokens};

mod file_checks;
mod journal_writer;
mod recorder;
mod shim_link;
mod slurm_client;

/// Runs jobs until the runner has a reason to exit (see [`RunnerExit`]). `stop` asks running jobs to end and waits for
/// them, up to their lead.
pub async fn run<L: ServerLink>(
    mut config: RunnerConfig,
    link: L,
    stop: CancellationToken,
    observer: impl Fn(RunnerEvent) + Send + Sync,
) -> Result<RunnerExit, RunnerError> {
    config.output_dir = prepare(&config.output_dir, 0o777)?;
    // The folder is private because its content is trusted: results, and the PIDs of processes that the runner may
    // kill.
    config.state_dir = prepare(&config.state_dir, 0o700)?;
    let environment: Vec<_> = std::env::vars_os().collect();
    let began = clock::now();
    let mut settings = resolve(&config, ShellSetup::of(command::pairs(&environment)), began)?;
    let (shim, adopted) = ShimLink::open(&config, &environment, &observer).await?;
    settings.shim_found = adopted.found;
    let (sender, events) = unbounded_channel();
    let samples = sender.clone();
    let sampler = Sampler::start(move |taken| {
        let _ = samples.send(AgentEvent::Sampled(Box::new(taken)));
    })
    .map_err(RunnerError::StartSampler)?;
    let troubles = sender.clone();
    let recorder = Recorder::start(&config.output_dir, &host_name(), move |message| {
        let _ = troubles.send(AgentEvent::Problem(message));
    });
    let registration = registration(&config, &settings.output_dir);
    let label = journal::label(&registration.host, config.slurm_job_id.as_deref(), &config.state_dir);
    let journal = Journal::new(&config.output_dir, label);
    let (journal_writer, recovered, problems) = JournalWriter::start(journal, sender.clone()).await;
    let mut agent = Agent {
        sampler,
        recorder,
        slurm_client: config.slurm_job_id.as_deref().map(SlurmClient::new),
        registration,
        state: State::new(settings, began),
        shim,
        hashes: Arc::new(Hashes::default()),
        tokens: Arc::new(Tokens::new(&config.state_dir)),
        journal_writer,
        link: Arc::new(link),
        sender,
        observer,
        exit: None,
    };
    problems.into_iter().for_each(|message| agent.log(RunnerEvent::Problem { message }));
    recovered.into_iter().for_each(|event| agent.handle(event));
    agent.take_over(adopted);
    agent.handle(AgentEvent::Tick);
    let exit = agent.run_loop(&config, events, stop, &environment).await?;
    agent.journal_writer.finish().await;
    agent.shim.leave().await;
    for message in agent.recorder.close().await {
        (agent.observer)(RunnerEvent::Problem { message });
    }
    exit.map_err(RunnerError::Server)
}

struct Agent<L, O> {
    state: State,
    shim: ShimLink,
    hashes: Arc<Hashes>,
    tokens: Arc<Tokens>,
    sampler: Sampler,
    recorder: Recorder,
    slurm_client: Option<SlurmClient>,
    journal_writer: JournalWriter,
    link: Arc<L>,
    registration: RegisterRequest,
    sender: UnboundedSender<AgentEvent>,
    observer: O,
    exit: Option<Result<RunnerExit, crate::link::LinkError>>,
}

/// The source that woke the loop.
enum WakeReason {
    Shim(std::io::Result<Vec<FromShim>>),
    Event(AgentEvent),
}

impl<L: ServerLink, O: Fn(RunnerEvent) + Send + Sync> Agent<L, O> {
    async fn run_loop(
        &mut self,
        config: &RunnerConfig,
        mut events: UnboundedReceiver<AgentEvent>,
        stop: CancellationToken,
        environment: &[(std::ffi::OsString, std::ffi::OsString)],
    ) -> Result<Result<RunnerExit, crate::link::LinkError>, RunnerError> {
        let (mut stopping, mut killing) = (false, false);
        loop {
            // A lost shim is detected by the next read.
            let _ = self.shim.flush().await;
            if let Some(exit) = self.exit.take() {
                return Ok(exit);
            }
            let woken = tokio::select! {
                messages = self.shim.receive() => WakeReason::Shim(messages),
                Some(event) = events.recv() => WakeReason::Event(event),
                () = stop.cancelled(), if !stopping => { stopping = true; WakeReason::Event(AgentEvent::Stop) }
                () = config.stop_now.cancelled(), if !killing => { killing = true; WakeReason::Event(AgentEvent::StopNow) }
                () = sleep_until(self.state.wake_at()) => WakeReason::Event(AgentEvent::Tick),
            };
            match woken {
                WakeReason::Shim(Ok(messages)) => messages.into_iter().for_each(|message| self.handle_message(message)),
                WakeReason::Shim(Err(error)) => {
                    self.log(RunnerEvent::Problem { message: format!("lost the connection to the shim: {error}") });
                    let (shim, adopted) = ShimLink::open(config, environment, &self.observer).await?;
                    self.shim = shim;
                    self.handle(AgentEvent::ShimLost);
                    self.take_over(adopted);
                }
                WakeReason::Event(event) => self.handle(event),
            }
            while let Ok(event) = events.try_recv() {
                self.handle(event);
            }
        }
    }

    fn take_over(&mut self, adopted: AdoptedState) {
        let AdoptedState { running, ended, .. } = adopted;
        if !running.is_empty() || !ended.is_empty() {
            self.log(RunnerEvent::TookOver { running: running.len(), finished: ended.len() });
        }
        for held in running {
            self.handle(AgentEvent::Adopted(Box::new(held)));
        }
        for result in ended {
            self.handle(AgentEvent::Ended(Box::new(result)));
        }
    }

    fn handle_message(&mut self, message: FromShim) {
        match message {
            FromShim::Started { key, at, pid } => self.handle(AgentEvent::Started(key, at, pid)),
            FromShim::Ended(ended) => self.handle(AgentEvent::Ended(Box::new(ended))),
            FromShim::Revoked(key) => self.handle(AgentEvent::Revoked(key)),
            FromShim::Killed(key) => self.log(RunnerEvent::Killed { key }),
            FromShim::Problem(message) => self.log(RunnerEvent::Problem { message }),
            FromShim::Running(job) => self.handle(AgentEvent::Adopted(job)),
            FromShim::Welcome { .. } | FromShim::Refused { .. } | FromShim::Ready => {}
        }
    }

    fn handle(&mut self, event: AgentEvent) {
        for effect in self.state.handle(event, clock::now()) {
            self.execute(effect);
        }
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Register => self.register(),
            Effect::Sync(runner, request) => {
                let (link, sender) = (Arc::clone(&self.link), self.sender.clone());
                let tokens = Arc::clone(&self.tokens);
                let span = info_span!("sync", runner, allocation = self.allocation(), sequence = request.sequence);
                let call = async move {
                    let event = match link.sync(runner, &request).await {
                        Ok(mut response) => {
                            response.sequence = request.sequence;
                            // The files must exist before the jobs of the leases start.
                            if let Err(error) = tokens.keep(std::mem::take(&mut response.job_tokens)) {
                                let message = format!("cannot write a token for jobs: {error}");
                                let _ = sender.send(AgentEvent::Problem(message));
                            }
                            AgentEvent::Answered(Box::new(response))
                        }
                        Err(error) => AgentEvent::NotAnswered(request.sequence, error),
                    };
                    let _ = sender.send(event);
                };
                tokio::spawn(call.instrument(span));
            }
            Effect::Start(order, template) => self.shim.start(*order, &template),
            Effect::StartNow(key) => self.shim.push(&ToShim::StartNow(key)),
            Effect::Revoke(keys) => self.shim.push(&ToShim::Revoke(keys)),
            Effect::Heartbeat { alive_until } => self.shim.push(&ToShim::Heartbeat { alive_until }),
            Effect::Terminate(termination) => self.shim.push(&ToShim::Terminate(termination)),
            Effect::RecordStep(note) => self.shim.push(&ToShim::RecordStep(note)),
            Effect::Acknowledge(keys) => self.shim.push(&ToShim::Acknowledge(keys)),
            Effect::CheckInputs(key, stat_file) => {
                let check = file_checks::stat_inputs(key, *stat_file, Arc::clone(&self.hashes), self.sender.clone());
                tokio::spawn(check.instrument(self.attempt_span(&key)));
            }
            Effect::Sample(order) => self.sampler.order(order),
            Effect::QuerySlurm(query) => {
                if let Some(slurm_client) = &self.slurm_client {
                    slurm_client.ask(query, self.sender.clone());
                }
            }
            Effect::Record(records) => self.recorder.record(records),
            Effect::Journal(results) => self.journal_writer.write(results),
            Effect::Unjournal(keys) => self.journal_writer.remove(keys),
            Effect::CheckOutputs(key, check) => {
                let (sender, hashes) = (self.sender.clone(), Arc::clone(&self.hashes));
                let span = self.attempt_span(&key);
                tokio::task::spawn_blocking(move || {
                    let _entered = span.entered();
                    let checked = file_checks::check(&check, &hashes);
                    debug!("output files checked");
                    let _ = sender.send(AgentEvent::OutputsChecked(key, checked));
                });
            }
            Effect::ReadSrunLog(key, log) => {
                let sender = self.sender.clone();
                let span = self.attempt_span(&key);
                tokio::task::spawn_blocking(move || {
                    let _entered = span.entered();
                    let said = file_checks::end_of(Path::new(&log)).unwrap_or_default();
                    let _ = sender.send(AgentEvent::SrunLogRead(key, step_failure::was_never_requested(&said)));
                });
            }
            Effect::Log(event) => self.log(event),
            Effect::Exit(exit) => self.exit = Some(exit),
        }
    }

    fn register(&self) {
        let (link, sender, request) = (Arc::clone(&self.link), self.sender.clone(), self.registration.clone());
        let span = info_span!("register", allocation = self.allocation());
        let call = async move {
            let event = match link.register(&request).await {
                Ok(response) => AgentEvent::Registered(response),
                Err(error) => AgentEvent::NotRegistered(error),
            };
            let _ = sender.send(event);
        };
        tokio::spawn(call.instrument(span));
    }

    fn allocation(&self) -> Option<&str> {
        self.registration.allocation.as_deref()
    }

    /// Returns a span for the work on one attempt. It has level debug, because there may be a hundred thousand
    /// attempts.
    fn attempt_span(&self, key: &AttemptKey) -> Span {
        let AttemptKey { workflow, job, run, attempt, .. } = key;
        debug_span!("attempt", workflow, job, run, attempt, allocation = self.allocation())
    }

    fn log(&self, event: RunnerEvent) {
        (self.observer)(event);
    }
}

async fn sleep_until(moment: Option<BootInstant>) {
    match moment {
        Some(moment) => tokio::time::sleep(moment.since(clock::now())).await,
        None => std::future::pending().await,
    }
}

/// Creates the folder and returns its absolute path; `mode` is for new folders.
fn prepare(path: &Path, mode: u32) -> Result<PathBuf, RunnerError> {
    let failed = |source| RunnerError::PrepareFolder { path: path.to_path_buf(), source };
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed)?;
    path.canonicalize().map_err(failed)
}

/// Resolves the settings on which the agent's state bases its decisions.
pub fn resolve(config: &RunnerConfig, shell: ShellSetup, began: BootInstant) -> Result<AgentSettings, RunnerError> {
    let utf8 = |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| RunnerError::NotUtf8(path.to_path_buf()));
    let (output_dir, token_dir) = (utf8(&config.output_dir)?, utf8(&config.state_dir.join(tokens::FOLDER))?);
    Ok(AgentSettings {
        user: config.settings.clone(),
        shim_found: false,
        capacity: config.capacity,
        allocation: config.allocation.clone(),
        devices: config.gpu_devices.clone(),
        working_dir: utf8(&config.working_dir)?,
        output_dir,
        api_url: config.api_url.clone(),
        server_file: config.server_file.as_ref().and_then(|path| path.to_str()).map(str::to_owned),
        token_dir,
        shell,
        report_interval: config.report_interval,
        time: [config.time_limit, config.allocation_time]
            .into_iter()
            .flatten()
            .min()
            .map(|limit| TimeSpan { began, end: began.plus(limit) }),
        own_end: config.time_limit.map(|limit| began.plus(limit)),
        exit_when_complete: config.exit_when_complete,
        idle_exit: config.idle_exit,
        prefetch: config.settings.prefetch(),
        shutdown_grace: config.shutdown_grace,
        oom_kills: monitor::oom_kills(),
    })
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn registration(config: &RunnerConfig, output_dir: &str) -> RegisterRequest {
    let host = host_name();
    let nodes = config.capacity.nodes.max(1);
    let gpus = i64::try_from(config.gpu_devices.len()).unwrap_or(i64::MAX).saturating_mul(nodes);
    RegisterRequest {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        place: format!("{host}:{}", config.state_dir.display()),
        host,
        pid: std::process::id(),
        kind: config.kind,
        capacity: torc_api::wire::Resources { gpus, nodes, ..config.capacity },
        max_parallel_jobs: config.settings.max_parallel_jobs,
        labels: config.settings.labels.clone(),
        scope: config.scope.clone(),
        scheduler: config.scheduler.clone(),
        slurm_job_id: config.slurm_job_id.clone(),
        allocation: config.allocation_name.clone(),
        output_dir: output_dir.to_owned(),
        process: Some(ProcessId::own().identity()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use torc_api::failure::Prefetch;
    use torc_api::wire::{Resources, RunnerKind, RunnerScope};

    use super::*;
    use crate::config::IdleExit;
    use crate::mode::StepAllocation;
    use crate::settings::RunnerSettings;

    /// Returns a configuration in which no two fields have the same value.
    fn full() -> RunnerConfig {
        let mut config = RunnerConfig::new("/out".into(), "/state".into(), vec!["shim".into()]);
        config.capacity = Resources { cpus: 1, memory_bytes: 2, gpus: 99, nodes: 3 };
        config.gpu_devices = vec!["4".to_owned(), "5".to_owned()];
        config.settings = RunnerSettings {
            max_parallel_jobs: Some(6),
            labels: vec!["label".to_owned()],
            prefetch_batch_size: Some(14),
            ..RunnerSettings::default()
        };
        config.scope = RunnerScope::Workflow("w".to_owned());
        config.kind = RunnerKind::Slurm;
        config.scheduler = Some("scheduler".to_owned());
        config.slurm_job_id = Some("7".to_owned());
        config.allocation_name = Some("allocation".to_owned());
        config.allocation = Some(StepAllocation { job_id: "7".to_owned(), srun: "srun".to_owned(), nodes: Vec::new() });
        config.working_dir = "/work".into();
        config.api_url = Some("http://server".to_owned());
        config.server_file = Some("/server.json".into());
        config.report_interval = Duration::from_secs(8);
        config.exit_when_complete = false;
        config.idle_exit = IdleExit::After(Duration::from_secs(13));
        config.shutdown_grace = Duration::from_secs(15);
        config
    }

    // J35, P05
    #[test]
    fn every_setting_arrives_where_it_belongs() {
        let config = full();
        let settings = resolve(&config, ShellSetup::default(), BootInstant(1)).expect("settings");
        assert_eq!((settings.shim_found, settings.capacity), (false, config.capacity));
        assert_eq!((&settings.allocation, &settings.devices), (&config.allocation, &config.gpu_devices));
        assert_eq!((&settings.user, settings.working_dir.as_str()), (&config.settings, "/work"));
        assert_eq!((settings.output_dir.as_str(), settings.token_dir.as_str()), ("/out", "/state/tokens"));
        assert_eq!(settings.api_url.as_deref(), Some("http://server"));
        assert_eq!(settings.server_file.as_deref(), Some("/server.json"));
        let seconds = [settings.report_interval, settings.shutdown_grace];
        assert_eq!(seconds.map(|duration| duration.as_secs()), [8, 15]);
        assert_eq!((settings.exit_when_complete, settings.idle_exit), (false, config.idle_exit));
        assert_eq!(settings.prefetch, Prefetch { batch_size: Some(14), ..Prefetch::default() });
        assert_eq!((settings.time, settings.own_end), (None, None));
    }

    // X05, J24. The earlier of the two ends counts. Only the runner's own stays when Slurm moves the allocation's.
    #[test]
    fn the_time_is_the_shorter_of_its_limits() {
        let began = BootInstant(1_000);
        let after = |seconds| began.plus(Duration::from_secs(seconds));
        for (own, allocation, end) in [
            (None, None, None),
            (Some(5), None, Some(5)),
            (None, Some(6), Some(6)),
            (Some(5), Some(6), Some(5)),
            (Some(7), Some(6), Some(6)),
        ] {
            let mut config = full();
            config.time_limit = own.map(Duration::from_secs);
            config.allocation_time = allocation.map(Duration::from_secs);
            let settings = resolve(&config, ShellSetup::default(), began).expect("settings");
            assert_eq!(settings.time, end.map(|end| TimeSpan { began, end: after(end) }), "{own:?} {allocation:?}");
            assert_eq!(settings.own_end, own.map(after), "{own:?} {allocation:?}");
        }
    }

    // J06, J10
    #[test]
    fn a_runner_introduces_itself_with_all_it_has() {
        let config = full();
        let request = registration(&config, "/out");
        let expected = RegisterRequest {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: request.host.clone(),
            pid: std::process::id(),
            kind: RunnerKind::Slurm,
            capacity: Resources { cpus: 1, memory_bytes: 2, gpus: 6, nodes: 3 },
            max_parallel_jobs: Some(6),
            labels: vec!["label".to_owned()],
            scope: RunnerScope::Workflow("w".to_owned()),
            scheduler: Some("scheduler".to_owned()),
            slurm_job_id: Some("7".to_owned()),
            allocation: Some("allocation".to_owned()),
            output_dir: "/out".to_owned(),
            place: format!("{}:/state", request.host),
            process: Some(ProcessId::own().identity()),
        };
        assert_eq!(request, expected, "two devices on each of three nodes");
        let mut config = full();
        config.capacity.nodes = 0;
        let capacity = registration(&config, "/out").capacity;
        assert_eq!((capacity.nodes, capacity.gpus), (1, 2), "every runner has a node");
    }

    // J26, J27, J31, J34, P09
    #[test]
    fn the_defaults_of_a_runner() {
        let config = RunnerConfig::new("/o".into(), "/s".into(), Vec::new());
        let user = &config.settings;
        let seconds = [user.poll_interval, user.claim_backoff_max, config.orphan_grace, config.shutdown_grace];
        assert_eq!(seconds.map(|duration| duration.as_secs()), [5, 300, 60, 15]);
        assert_eq!(config.report_interval, Duration::from_millis(100));
        let offline = (user.offline_drain, user.drain_ping_interval.as_secs(), user.server_retry_window);
        assert_eq!(offline, (true, 120, None));
        assert_eq!((user.long_poll, config.exit_when_complete, user.persistent), (true, true, false));
        assert_eq!((config.idle_exit, user.max_parallel_jobs), (IdleExit::Never, None));
    }
}
