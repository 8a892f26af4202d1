//! The agent's decisions as a pure state machine, which takes events and returns effects. Time is an argument, and this
//! module does no I/O.
//!
//! Each subsystem is a type with private fields in a module of its own; only that module changes them. `State` holds the subsystems,
//! and its methods are the steps that need several of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use torc_api::failure::Prefetch;
use torc_api::wire::{
    AttemptKey, FileStat, JournalledResult, RegisterResponse, Resources, RunnerPolicy, SyncRequest, SyncResponse,
};
use torc_core::ledger::{Ledger, Strategy};

use crate::clock::BootInstant;
use crate::command::ShellSetup;
use crate::config::{IdleExit, RunnerExit};
use crate::events::RunnerEvent;
use crate::link::LinkError;
use crate::mode::StepAllocation;
use crate::monitor::{SampleOrder, Samples};
use crate::protocol::{JobExit, ShimJob, StartOrder, StartTemplate, StepRecord, Termination};
use crate::series::MeasurementRecord;
use crate::settings::RunnerSettings;
use crate::slurm_query::{SlurmAnswer, SlurmQuery};

mod allocation;
mod classes;
mod deadlines;
mod ends;
mod extensions;
mod heartbeat;
mod jobs;
mod leases;
mod lifecycle;
mod node_health;
mod offline;
mod poll_backoff;
mod profiles;
mod reports;
mod sacct_queue;
mod server_session;
mod start;
mod step_state;
mod steps;
mod throughput;
mod timer;
mod usage;
mod usage_stats;
mod warnings;
mod work_request;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use self::allocation::AllocationWatch;
use self::deadlines::Deadlines;
pub use self::deadlines::TimeSpan;
use self::extensions::Extensions;
use self::heartbeat::Heartbeat;
use self::jobs::Jobs;
use self::lifecycle::Lifecycle;
use self::node_health::NodeHealth;
use self::offline::JournalState;
use self::poll_backoff::PollBackoff;
use self::profiles::ProfileCache;
use self::reports::Reports;
use self::sacct_queue::SacctQueue;
use self::server_session::ServerSession;
use self::steps::StepTracker;
use self::throughput::ThroughputEstimator;
use self::timer::Timer;
use self::usage::UsageMonitor;
use self::warnings::Warnings;

/// The settings on which the state bases its decisions, resolved from a [`crate::RunnerConfig`] at the start: paths are
/// strings, and time limits are moments. The user's settings are unchanged.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    pub user: RunnerSettings,
    /// True if the shim was already running when the agent started.
    pub shim_found: bool,
    /// Resources of all nodes of the runner together.
    pub capacity: Resources,
    /// The Slurm allocation in which jobs become steps; absent if the runner starts all jobs itself.
    pub allocation: Option<StepAllocation>,
    /// Names of the GPUs on each node.
    pub devices: Vec<String>,
    /// The working folder of jobs whose workflow names none.
    pub working_dir: String,
    /// The folder of outputs; logs are in its folder `job_stdio`.
    pub output_dir: String,
    /// The server's URL for jobs, which they get as `TORC_API_URL`.
    pub api_url: Option<String>,
    pub server_file: Option<String>,
    /// The folder of the files that jobs get as `TORC_TOKEN_FILE`, one for each workflow.
    pub token_dir: String,
    /// The part of the inherited environment that changes how bash reads commands.
    pub shell: ShellSetup,
    /// Longest time for which reports are batched while there is work to do.
    pub report_interval: Duration,
    pub time: Option<TimeSpan>,
    /// The end that follows from the runner's own time limit; it stays when the allocation's end moves.
    pub own_end: Option<BootInstant>,
    /// True if the runner leaves when all its workflows have settled.
    pub exit_when_complete: bool,
    /// The rule for leaving without work.
    pub idle_exit: IdleExit,
    /// Limits of leasing ahead; they override those of the workflow.
    pub prefetch: Prefetch,
    /// Time for which a leaving runner tries to deliver its last reports.
    pub shutdown_grace: Duration,
    /// Number of processes that the kernel had killed for lack of memory when the runner started.
    pub oom_kills: u64,
}

impl AgentSettings {
    /// Returns the idle time after which the runner exits; none if it never exits for this reason.
    fn idle_time(&self, policy: &RunnerPolicy) -> Option<Duration> {
        match self.idle_exit {
            _ if self.user.persistent => None,
            IdleExit::Never => None,
            IdleExit::ByPolicy => Some(Duration::from_secs(policy.wait_for_new_jobs_seconds)),
            IdleExit::After(time) => Some(time),
        }
    }

    /// Returns the names of nodes by their index in the allocation; empty where there is only one node.
    fn node_names(&self, indexes: &[usize]) -> Vec<String> {
        let known = self.allocation.as_ref().map_or(&[][..], |allocation| &allocation.nodes);
        indexes.iter().filter_map(|at| known.get(*at).cloned()).collect()
    }

    /// Returns the indexes of nodes in the allocation; the first node if none of the names is known.
    fn node_indexes(&self, names: &[String]) -> Vec<usize> {
        let known = self.allocation.as_ref().map_or(&[][..], |allocation| &allocation.nodes);
        let found: Vec<usize> = names.iter().filter_map(|name| known.iter().position(|known| known == name)).collect();
        if found.is_empty() { vec![0] } else { found }
    }
}

/// An event that the agent's state handles.
#[derive(Clone, Debug)]
pub enum AgentEvent {
    /// The server has registered the runner.
    Registered(RegisterResponse),
    NotRegistered(LinkError),
    /// The shim has a job that an earlier agent started.
    Adopted(Box<ShimJob>),
    /// The shim has started a job with this first process.
    Started(AttemptKey, BootInstant, i32),
    /// A job has ended and left no process.
    Ended(Box<JobExit>),
    /// The shim has not started a job and will not.
    Revoked(AttemptKey),
    /// The shim was killed; a new one has killed its jobs.
    ShimLost,
    /// The server has answered a sync.
    Answered(Box<SyncResponse>),
    /// The sync of this sequence number failed.
    NotAnswered(u64, LinkError),
    /// The input files of a job were checked: their state, or the one that is missing.
    InputsChecked(AttemptKey, Result<Vec<FileStat>, String>),
    /// The output files of a job were checked.
    OutputsChecked(AttemptKey, OutputFindings),
    Sampled(Box<Samples>),
    /// The log of a failed step was read: the message of `srun`, if Slurm's controller did not answer it.
    SrunLogRead(AttemptKey, Option<String>),
    /// Slurm has answered a query.
    SlurmAnswered(Box<SlurmAnswer>),
    /// A problem for the runner's log.
    Problem(String),
    /// Results are in the journal, on disk.
    Journalled(Vec<AttemptKey>),
    /// Results could not be written into the journal.
    NotJournalled(String),
    /// The journal has undelivered results of earlier runners with this state folder. The duration is the time since
    /// the end.
    Recovered(Vec<(JournalledResult, Duration)>),
    /// The runner has to stop.
    Stop,
    /// The runner has to stop at once, without the lead of its jobs.
    StopNow,
    Tick,
}

/// The result of [`Effect::CheckOutputs`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputFindings {
    /// The first output file that does not exist.
    pub missing: Option<String>,
    /// True if the logs were deleted.
    pub logs_deleted: bool,
    /// State of the files that the job read and wrote, if no file is missing.
    pub files: Vec<FileStat>,
    /// Number of processes that the kernel has killed for lack of memory, if requested.
    pub oom_kills: Option<u64>,
}

/// An effect that the agent executes for its state.
#[derive(Clone, Debug)]
pub enum Effect {
    Register,
    /// Send the state of the runner with this ID to the server.
    Sync(i64, Box<SyncRequest>),
    /// Start a job, now or in turn.
    Start(Box<StartOrder>, Arc<StartTemplate>),
    /// Start a waiting job now, before its turn.
    StartNow(AttemptKey),
    /// Withdraw jobs that have not started.
    Revoke(Vec<AttemptKey>),
    /// Let the shim start jobs in turn until this moment.
    Heartbeat {
        alive_until: BootInstant,
    },
    Terminate(Termination),
    /// Let the shim drop these results.
    Acknowledge(Vec<AttemptKey>),
    /// Let the shim record the time limit and the warning of a step for the next agent.
    RecordStep(StepRecord),
    /// Check the input files of a job.
    CheckInputs(AttemptKey, Box<InputCheck>),
    /// Measure the usage of jobs and of the node.
    Sample(SampleOrder),
    /// Read the end of this log for the message of `srun`.
    ReadSrunLog(AttemptKey, String),
    /// Send a query to Slurm.
    QuerySlurm(SlurmQuery),
    /// Write these measurements into files.
    Record(Vec<MeasurementRecord>),
    /// Write these results into the journal. They have their age; the journal needs the time of day.
    Journal(Vec<JournalledResult>),
    /// Remove delivered results from the journal.
    Unjournal(Vec<AttemptKey>),
    /// Check the output files of a job that has ended.
    CheckOutputs(AttemptKey, Box<OutputCheck>),
    Log(RunnerEvent),
    /// End the agent, with the reason or the error.
    Exit(Result<RunnerExit, LinkError>),
}

/// The content of [`Effect::CheckInputs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputCheck {
    /// The folder of relative paths.
    pub working_dir: PathBuf,
    /// Files that must exist.
    pub files: Vec<String>,
    /// True if files above the size limit are hashed completely.
    pub hash_large_files: bool,
}

/// The content of [`Effect::CheckOutputs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputCheck {
    /// The folder of relative paths.
    pub working_dir: PathBuf,
    /// Files that must exist.
    pub files: Vec<String>,
    /// State of the input files before the start.
    pub inputs: Vec<FileStat>,
    /// Input files whose state before the start is unknown. One that is older than the start counts as it is now.
    pub forgotten_inputs: Vec<String>,
    /// Time since the start.
    pub elapsed: Duration,
    /// True if files above the size limit are hashed completely.
    pub hash_large_files: bool,
    /// Logs to delete if all files exist.
    pub delete: Vec<String>,
    /// True if only the processes are counted that the kernel has killed for lack of memory.
    pub oom_kills: bool,
}

/// The state of an agent. Only the module of a subsystem writes the subsystem's fields.
#[derive(Debug)]
pub struct State {
    settings: AgentSettings,
    profiles: ProfileCache,
    jobs: Jobs,
    reports: Reports,
    journal: JournalState,
    deadlines: Deadlines,
    session: ServerSession,
    backoff: PollBackoff,
    throughput: ThroughputEstimator,
    usage: UsageMonitor,
    steps: StepTracker,
    warnings: Warnings,
    extensions: Extensions,
    sacct: SacctQueue,
    allocation: AllocationWatch,
    node_health: NodeHealth,
    heartbeat: Heartbeat,
    lifecycle: Lifecycle,
    timer: Timer,
}

impl State {
    /// Creates the state of an unregistered runner without jobs.
    pub fn new(settings: AgentSettings, now: BootInstant) -> Self {
        let strategy = settings.user.max_parallel_jobs.map_or(Strategy::Resources, Strategy::Slots);
        Self {
            profiles: ProfileCache::default(),
            jobs: Jobs::new(Ledger::new(strategy, settings.capacity, settings.devices.clone())),
            reports: Reports::default(),
            journal: JournalState::default(),
            deadlines: Deadlines::new(&settings),
            session: ServerSession::new(settings.shim_found),
            backoff: PollBackoff::new(settings.user.poll_interval, settings.user.claim_backoff_max),
            throughput: ThroughputEstimator::new(settings.prefetch.clone()),
            usage: UsageMonitor::new(settings.oom_kills),
            steps: StepTracker::default(),
            warnings: Warnings::default(),
            extensions: Extensions::default(),
            sacct: SacctQueue::default(),
            allocation: AllocationWatch::default(),
            node_health: NodeHealth::default(),
            heartbeat: Heartbeat::default(),
            lifecycle: Lifecycle::new(now),
            timer: Timer::default(),
            settings,
        }
    }

    /// Handles an event and returns the effects to execute.
    pub fn handle(&mut self, event: AgentEvent, now: BootInstant) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.lifecycle.is_gone() {
            return effects;
        }
        match event {
            AgentEvent::Registered(response) => self.registered(&response, now, &mut effects),
            AgentEvent::NotRegistered(error) => self.not_registered(error, now, &mut effects),
            AgentEvent::Adopted(job) => self.adopted(*job, now),
            AgentEvent::Started(key, at, pid) => self.started(key, at, pid, now, &mut effects),
            AgentEvent::Ended(exit) => self.ended(*exit, now, &mut effects),
            AgentEvent::Revoked(key) => self.revoked(key, now),
            AgentEvent::ShimLost => self.shim_lost(now, &mut effects),
            AgentEvent::Answered(response) => self.answered(*response, now, &mut effects),
            AgentEvent::NotAnswered(sequence, error) => self.not_answered(sequence, error, now, &mut effects),
            AgentEvent::InputsChecked(key, found) => self.inputs_checked(key, found, now, &mut effects),
            AgentEvent::OutputsChecked(key, findings) => self.outputs_checked(key, findings, now, &mut effects),
            AgentEvent::Sampled(samples) => self.sampled(&samples, now, &mut effects),
            AgentEvent::SrunLogRead(key, error) => {
                self.jobs.step_mut(&key).into_iter().for_each(|step| step.srun_error.clone_from(&error));
            }
            AgentEvent::SlurmAnswered(answer) => self.slurm_answered(*answer, now, &mut effects),
            AgentEvent::Problem(message) => effects.push(Effect::Log(RunnerEvent::Problem { message })),
            AgentEvent::Journalled(keys) => self.journal.written(&mut self.reports, keys, &mut effects),
            AgentEvent::NotJournalled(reason) => self.journal.failed(reason, now, &mut effects),
            AgentEvent::Recovered(results) => self.recovered(results, now),
            AgentEvent::Stop => self.begin_end(Ok(RunnerExit::Stopped), now, &mut effects),
            AgentEvent::StopNow => self.stop_now(now, &mut effects),
            AgentEvent::Tick => {}
        }
        self.run_due(now, &mut effects);
        effects
    }

    /// Returns when the state needs an [`AgentEvent::Tick`] at the latest.
    pub fn wake_at(&self) -> Option<BootInstant> {
        self.timer.at()
    }

    /// Returns the numbers of started and of waiting jobs.
    pub fn job_counts(&self) -> (usize, usize) {
        let waiting = self.jobs.waiting();
        (self.jobs.len().saturating_sub(waiting), waiting)
    }

    fn slurm_answered(&mut self, answer: SlurmAnswer, now: BootInstant, effects: &mut Vec<Effect>) {
        match answer {
            SlurmAnswer::StepNumbers(numbers) => self.steps.numbered(&mut self.jobs, &numbers, now),
            SlurmAnswer::StepUsage(at, samples) => {
                let records = self.steps.measured(&mut self.jobs, at, &samples);
                effects.extend((!records.is_empty()).then_some(Effect::Record(records)));
            }
            SlurmAnswer::Accounts(found, took) => self.accounts_answered(found, took, now, effects),
            SlurmAnswer::TimeLeft(left) => self.time_left_answered(left, now, effects),
            SlurmAnswer::Extended(key, answer) => {
                extensions::extended(&mut self.jobs, &mut self.warnings, key, answer, effects);
            }
            SlurmAnswer::Preemption(preempted) => self.preemption_answered(preempted, now, effects),
            SlurmAnswer::Signal(error) => {
                effects.extend(error.map(|message| Effect::Log(RunnerEvent::Problem { message })));
            }
        }
    }

    /// Adds undelivered results of earlier runners from the journal.
    fn recovered(&mut self, results: Vec<(JournalledResult, Duration)>, now: BootInstant) {
        for (result, age) in results {
            let key = result.finished.key;
            if self.jobs.contains_key(&key) {
                self.reports.set_journaled(&key);
            } else if self.reports.add_journaled(result, age, now) {
                self.session.mark_dirty(now);
            }
        }
    }

    /// Does everything that is due after any event. The order matters: what ends or expires frees resources first, then
    /// jobs start, and the server learns of all of it.
    fn run_due(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        self.timer.clear();
        self.check_outage(now, effects);
        self.expire_leases(now, effects);
        if self.settings.allocation.is_some() {
            let (end, interval) = (self.deadlines.end(), self.settings.user.poll_interval);
            let query = self.allocation.next_query(end, interval, now, &mut self.timer);
            effects.extend(query.map(Effect::QuerySlurm));
        }
        self.end_expired_jobs(now, effects);
        let has_gpus = !self.settings.devices.is_empty();
        let samples = self.usage.next_order(&self.jobs, &mut self.steps, has_gpus, now, &mut self.timer);
        effects.extend(samples.map(Effect::Sample));
        self.extensions.request(&self.jobs, &mut self.steps, self.deadlines.end(), effects);
        self.warnings.send_due(&mut self.jobs, &mut self.steps, now, &mut self.timer, effects);
        let query = self.steps.next_query(&self.jobs, now, &mut self.timer);
        effects.extend(query.map(Effect::QuerySlurm));
        self.query_accounting(now, effects);
        self.node_health.retry_nodes(&mut self.jobs, now, &mut self.timer);
        self.start_jobs(now, effects);
        self.throughput.jobs_running(u32::try_from(self.jobs.active_jobs().count()).unwrap_or(u32::MAX));
        self.advance_phase(now, effects);
        if self.jobs.handed() > 0 {
            effects.extend(self.heartbeat.next(self.session.lease_time(), now, &mut self.timer));
        }
        self.write_journal(now, effects);
        self.contact_server(now, effects);
    }

    /// Requests a tick at this moment at the latest.
    fn wake(&mut self, at: BootInstant) {
        self.timer.set(at);
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
