//! The agent's decisions: what happened goes in, what is to be done comes out. Pure: time is an argument, nothing is read,
//! written or started here.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use torc_api::failure::Prefetch;
use torc_api::wire::{AttemptKey, FileStat, JournalledResult, RegisterResponse, Resources, SyncRequest, SyncResponse};
use torc_core::ledger::{Ledger, Strategy};

use crate::clock::BootInstant;
use crate::command::ShellSetup;
use crate::config::{IdleExit, OfflineSettings, RunnerExit};
use crate::events::RunnerEvent;
use crate::link::LinkError;
use crate::mode::Allocation;
use crate::monitor::{SampleOrder, Samples};
use crate::protocol::{JobExit, ShimJob, StartOrder, StartTemplate, StepRecord, Termination};
use crate::series::Record;
use crate::slurm_query::{SlurmAnswer, SlurmQuery};

mod allocation;
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
use self::offline::Journal;
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

/// What the state reads of a [`crate::RunnerConfig`]: paths are text, durations are moments, and nothing in it does I/O.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The shim of its place was there before it.
    pub shim_found: bool,
    /// What it may use in total, on all of its nodes together.
    pub capacity: Resources,
    /// How jobs become steps; absent where they cannot.
    pub allocation: Option<Allocation>,
    /// Names of the GPUs it may use on each node.
    pub devices: Vec<String>,
    /// The queue strategy: this many jobs at once.
    pub max_parallel_jobs: Option<u32>,
    /// Where jobs run whose workflow names no folder.
    pub working_dir: String,
    /// Where outputs go: what jobs see, and the folder of logs in it.
    pub output_dir: String,
    /// What jobs see as `TORC_API_URL`.
    pub api_url: Option<String>,
    /// What jobs see as `TORC_SERVER_FILE`.
    pub server_file: Option<String>,
    /// Where the files are that jobs see as `TORC_TOKEN_FILE`, one for each workflow.
    pub token_dir: String,
    /// What bash finds in the environment that jobs inherit.
    pub shell: ShellSetup,
    /// Reports wait at most this long for company while there is work to do.
    pub report_interval: Duration,
    /// The first wait when nothing of ours waits on the server, and the longest between attempts to reach it.
    pub poll_interval: Duration,
    /// The longest wait while jobs run and nothing else happens.
    pub backoff_max: Duration,
    /// Calls may wait on the server for news.
    pub long_poll: bool,
    /// What to do when the server stays away.
    pub offline: OfflineSettings,
    /// When its time began, and when it is over.
    pub time: Option<TimeSpan>,
    /// When it has to be over whatever becomes of its allocation.
    pub own_end: Option<BootInstant>,
    /// It leaves when everything it serves has settled.
    pub exit_when_complete: bool,
    /// When it leaves because it has nothing to do.
    pub idle_exit: IdleExit,
    /// It stays although there is nothing to do, even without a server.
    pub persistent: bool,
    /// How far it leases ahead; what is set here wins over the workflow.
    pub prefetch: Prefetch,
    /// How long a leaving runner tries to deliver its last reports.
    pub shutdown_grace: Duration,
    /// How many processes the kernel had killed for want of memory when the runner started.
    pub oom_kills: u64,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The server knows the runner.
    Registered(RegisterResponse),
    /// It could not be told.
    NotRegistered(LinkError),
    /// The shim has a job that runs since before.
    Adopted(Box<ShimJob>),
    /// The shim has started a job, with this first process.
    Started(AttemptKey, BootInstant, i32),
    /// A job has ended, and nothing of it is left.
    Ended(Box<JobExit>),
    /// The shim has not started a job and will not.
    Revoked(AttemptKey),
    /// The shim was killed; another one has cleared up after it.
    ShimLost,
    /// A sync was answered.
    Answered(Box<SyncResponse>),
    /// A sync had no answer.
    NotAnswered(u64, LinkError),
    /// A job's input files were looked for: as they are, or the one that is missing.
    InputsChecked(AttemptKey, Result<Vec<FileStat>, String>),
    /// A job's output files were looked for.
    OutputsChecked(AttemptKey, Findings),
    /// Samples were taken.
    Sampled(Box<Samples>),
    /// What `srun` wrote about a step that failed, if its controller did not answer.
    SrunSaid(AttemptKey, Option<String>),
    /// Slurm has answered.
    SlurmAnswered(Box<SlurmAnswer>),
    /// Something is wrong that only people can change.
    SlurmError(String),
    /// Results are in the journal, on the disk.
    Journalled(Vec<AttemptKey>),
    /// They could not be written.
    NotJournalled(String),
    /// Results of earlier runners in this place that nobody has fetched, and how long ago each attempt ended.
    Recovered(Vec<(JournalledResult, Duration)>),
    /// Somebody wants the runner to stop.
    Stop,
    /// Somebody does not want to wait for that.
    StopNow,
    /// Time has passed.
    Tick,
}

/// What looking after a job's end brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// A file that should exist and does not.
    pub missing: Option<String>,
    /// Its logs were deleted, as it had asked for.
    pub logs_deleted: bool,
    /// What it read and wrote, when nothing is missing.
    pub files: Vec<FileStat>,
    /// How many processes the kernel has killed for want of memory so far, if that was asked for.
    pub oom_kills: Option<u64>,
}

/// Something that is to be done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Introduce the runner to the server.
    Register,
    /// Tell the server what is.
    Sync(i64, Box<SyncRequest>),
    /// Start a job, now or in turn.
    Start(Box<StartOrder>, Arc<StartTemplate>),
    /// A job need not wait for its turn any longer.
    StartNow(AttemptKey),
    /// Do not start these.
    Revoke(Vec<AttemptKey>),
    /// Tell the shim that the agent counts as alive until this moment.
    Heartbeat { alive_until: BootInstant },
    /// End a job.
    Terminate(Termination),
    /// The shim may forget these results.
    Acknowledge(Vec<AttemptKey>),
    /// Let the shim remember what was done to a step.
    RecordStep(StepRecord),
    /// Look for the files that a job reads.
    CheckInputs(AttemptKey, Box<InputCheck>),
    /// Measure what jobs and the node use.
    Sample(SampleOrder),
    /// Look for what `srun` wrote into this log about a step that failed.
    ReadSrun(AttemptKey, String),
    /// Ask Slurm.
    QuerySlurm(SlurmQuery),
    /// Keep these in a file.
    Record(Vec<Record>),
    /// Write these down, and say when they are safe. Their time of day is not known here, only how long ago they ended.
    Journal(Vec<JournalledResult>),
    /// The server has these: they can leave the journal.
    Unjournal(Vec<AttemptKey>),
    /// Look for what can be known after a job's end; if all its output files are there, delete these logs.
    CheckOutputs(AttemptKey, Box<OutputCheck>),
    /// Tell whoever watches.
    Log(RunnerEvent),
    /// The runner ends.
    Exit(Result<RunnerExit, LinkError>),
}

/// See [`Effect::CheckInputs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputCheck {
    /// What relative paths are relative to.
    pub working_dir: PathBuf,
    /// Files that must exist.
    pub files: Vec<String>,
    /// They are read for their hash however large they are.
    pub hash_large_files: bool,
}

/// See [`Effect::CheckOutputs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputCheck {
    /// What relative paths are relative to.
    pub working_dir: PathBuf,
    /// Files that must exist.
    pub files: Vec<String>,
    /// What it read, as found before its start.
    pub inputs: Vec<FileStat>,
    /// What it read, if nobody remembers how that was: as it is now, provided that it is older than the start.
    pub forgotten_inputs: Vec<String>,
    /// How long ago it started.
    pub elapsed: Duration,
    /// Files are read for their hash however large they are.
    pub hash_large_files: bool,
    /// Logs that go if they do.
    pub delete: Vec<String>,
    /// Ask the kernel how many processes it has killed for want of memory.
    pub oom_kills: bool,
}

/// Everything a runner knows. The fields of each part are written by the part's own module only.
#[derive(Debug)]
pub struct State {
    settings: Settings,
    profiles: ProfileCache,
    jobs: Jobs,
    reports: Reports,
    journal: Journal,
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
    /// A runner that holds nothing and is known to nobody.
    pub fn new(settings: Settings, now: BootInstant) -> Self {
        let strategy = settings.max_parallel_jobs.map_or(Strategy::Resources, Strategy::Slots);
        Self {
            profiles: ProfileCache::default(),
            jobs: Jobs::new(Ledger::new(strategy, settings.capacity, settings.devices.clone())),
            reports: Reports::default(),
            journal: Journal::default(),
            deadlines: Deadlines::new(&settings),
            session: ServerSession::new(settings.shim_found),
            backoff: PollBackoff::new(settings.poll_interval, settings.backoff_max),
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

    /// Takes in what happened and says what is to be done about it.
    pub fn handle(&mut self, event: Event, now: BootInstant) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.lifecycle.is_gone() {
            return effects;
        }
        match event {
            Event::Registered(response) => self.registered(&response, now, &mut effects),
            Event::NotRegistered(error) => self.not_registered(error, now, &mut effects),
            Event::Adopted(held) => self.adopted(*held, now),
            Event::Started(key, at, pid) => self.started(key, at, pid, now, &mut effects),
            Event::Ended(ended) => self.ended(*ended, now, &mut effects),
            Event::Revoked(key) => self.revoked(key, now),
            Event::ShimLost => self.shim_lost(now, &mut effects),
            Event::Answered(response) => self.answered(*response, now, &mut effects),
            Event::NotAnswered(sequence, error) => self.not_answered(sequence, error, now, &mut effects),
            Event::InputsChecked(key, found) => self.looked(key, found, now, &mut effects),
            Event::OutputsChecked(key, findings) => self.checked(key, findings, now, &mut effects),
            Event::Sampled(samples) => self.sampled(&samples, now, &mut effects),
            Event::SrunSaid(key, silence) => self.srun_said(key, silence),
            Event::SlurmAnswered(answer) => self.slurm_answered(*answer, now, &mut effects),
            Event::SlurmError(message) => effects.push(Effect::Log(RunnerEvent::Problem { message })),
            Event::Journalled(keys) => self.journalled(keys, &mut effects),
            Event::NotJournalled(reason) => self.not_journalled(reason, now, &mut effects),
            Event::Recovered(results) => self.recovered(results, now),
            Event::Stop => self.end_with(Ok(RunnerExit::Stopped), now, &mut effects),
            Event::StopNow => self.hurry(now, &mut effects),
            Event::Tick => {}
        }
        self.pulse(now, &mut effects);
        effects
    }

    /// When it wants to be handed a [`Event::Tick`] at the latest.
    pub fn wake_at(&self) -> Option<BootInstant> {
        self.timer.at()
    }

    /// How many jobs run, and how many wait.
    pub fn holds(&self) -> (usize, usize) {
        let waiting = self.jobs.waiting();
        (self.jobs.len().saturating_sub(waiting), waiting)
    }

    fn slurm_answered(&mut self, answer: SlurmAnswer, now: BootInstant, effects: &mut Vec<Effect>) {
        match answer {
            SlurmAnswer::StepNumbers(numbers) => self.steps_numbered(&numbers, now),
            SlurmAnswer::StepUsage(at, samples) => self.steps_measured(at, &samples, effects),
            SlurmAnswer::Accounts(found, took) => self.accounted(found, took, now, effects),
            SlurmAnswer::TimeLeft(left) => self.time_told(left, now, effects),
            SlurmAnswer::Extended(key, minutes, trouble) => self.extended(key, minutes, trouble, effects),
            SlurmAnswer::Preemption(preempted) => self.preemption_told(preempted, now, effects),
            SlurmAnswer::Signal(trouble) => {
                effects.extend(trouble.map(|message| Effect::Log(RunnerEvent::Problem { message })));
            }
        }
    }

    /// What follows from where things stand, whatever happened last.
    fn pulse(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        self.timer.clear();
        self.check_outage(now, effects);
        self.expire_leases(now, effects);
        self.watch_allocation(now, effects);
        self.end_in_time(now, effects);
        self.measure(now, effects);
        self.extend_steps(effects);
        self.warn_steps(now, effects);
        self.query_steps(now, effects);
        self.ask_accounting(now, effects);
        self.retry_nodes(now);
        self.fill(now, effects);
        self.throughput.runs(self.jobs_at_work());
        self.move_on(now, effects);
        self.send_heartbeat(now, effects);
        self.keep_journal(now, effects);
        self.keep_in_touch(now, effects);
    }

    /// Asks for an event at this moment at the latest.
    fn wake(&mut self, at: BootInstant) {
        self.timer.set(at);
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
