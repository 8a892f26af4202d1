//! What a runner is told at its start, and what it says at its end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tokio_util::sync::CancellationToken;
use torc_api::failure::Prefetch;
use torc_api::wire::{Resources, RunnerKind, RunnerScope};

use crate::link::LinkError;
use crate::mode::StepAllocation;

/// Everything a runner is told at its start.
#[derive(Clone, Debug)]
pub struct RunnerConfig {
    /// What it may use in total, on all of its nodes together.
    pub capacity: Resources,
    /// Names of the GPUs it may use on each node.
    pub gpu_devices: Vec<String>,
    /// The queue strategy: this many jobs at once, whatever they need.
    pub max_parallel_jobs: Option<u32>,
    /// Which labelled jobs it may run.
    pub labels: Vec<String>,
    /// Which workflows it serves.
    pub scope: RunnerScope,
    /// What kind of place it lives in.
    pub kind: RunnerKind,
    /// The Slurm scheduler whose allocation it lives in.
    pub scheduler: Option<String>,
    /// The Slurm job it lives in.
    pub slurm_job_id: Option<String>,
    /// The name of the allocation it lives in, if whoever asked for it has said so.
    pub allocation_name: Option<String>,
    /// How jobs become steps; absent where they cannot.
    pub allocation: Option<StepAllocation>,
    /// Where jobs run whose workflow names no folder, as one that came as a custom resource.
    pub working_dir: PathBuf,
    /// Job logs are in its folder `job_stdio`.
    pub output_dir: PathBuf,
    /// The place: a folder of this machine's runner alone. A shim that is found there is taken over.
    pub state_dir: PathBuf,
    /// How to start a shim; `--dir`, the place and the other arguments of [`crate::shim::ShimArgs`] are added.
    pub shim_command: Vec<OsString>,
    /// How long a shim without an agent waits before it ends its jobs.
    pub orphan_grace: Duration,
    /// What jobs see as `TORC_API_URL`.
    pub api_url: Option<String>,
    /// What jobs see as `TORC_SERVER_FILE`: it says where the owner of the store answers at present, which may change while they
    /// run.
    pub server_file: Option<PathBuf>,
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
    /// Its time is over after this much.
    pub time_limit: Option<Duration>,
    /// So much is left of the allocation that it lives in; its end may move.
    pub allocation_time: Option<Duration>,
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
    /// Do not wait for jobs to end in order.
    pub stop_now: CancellationToken,
}

impl RunnerConfig {
    /// A local runner for every workflow, with nothing to run jobs on until `capacity` is set.
    pub fn new(output_dir: PathBuf, state_dir: PathBuf, shim_command: Vec<OsString>) -> Self {
        Self {
            capacity: Resources { nodes: 1, ..Resources::default() },
            gpu_devices: Vec::new(),
            max_parallel_jobs: None,
            labels: Vec::new(),
            scope: RunnerScope::default(),
            kind: RunnerKind::default(),
            scheduler: None,
            slurm_job_id: None,
            allocation_name: None,
            allocation: None,
            working_dir: PathBuf::from("/"),
            output_dir,
            state_dir,
            shim_command,
            orphan_grace: Duration::from_secs(60),
            api_url: None,
            server_file: None,
            report_interval: Duration::from_millis(100),
            poll_interval: Duration::from_secs(5),
            backoff_max: Duration::from_secs(300),
            long_poll: true,
            offline: OfflineSettings::default(),
            time_limit: None,
            allocation_time: None,
            exit_when_complete: true,
            idle_exit: IdleExit::Never,
            persistent: false,
            prefetch: Prefetch::default(),
            shutdown_grace: Duration::from_secs(15),
            stop_now: CancellationToken::new(),
        }
    }
}

/// What a runner does when the server stays away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfflineSettings {
    /// It drains; otherwise it ends its jobs and leaves.
    pub enabled: bool,
    /// While it drains, the server is called so often.
    pub ping_interval: Duration,
    /// How long calls are repeated before that, whatever the workflows say.
    pub retry_window: Option<Duration>,
}

impl Default for OfflineSettings {
    fn default() -> Self {
        Self { enabled: true, ping_interval: Duration::from_secs(120), retry_window: None }
    }
}

/// When a runner leaves because it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleExit {
    /// Never.
    Never,
    /// After the time that the workflows it serves say.
    ByPolicy,
    /// After this time.
    After(Duration),
}

/// Why a runner ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerExit {
    /// Everything it serves has settled.
    Complete,
    /// What it serves was cancelled.
    Canceled,
    /// It was asked to stop.
    Stopped,
    /// Its time was over.
    Deadline,
    /// There was nothing to do for too long.
    Idle,
    /// The server stayed away, and all that could be done without it is done.
    Drained,
    /// The server sent it away.
    Dismissed,
}

/// Why a runner could not go on.
#[derive(Debug, Error)]
pub enum RunnerError {
    /// A path cannot be told to the server.
    #[error("the folder {} is not named in UTF-8", .0.display())]
    NotUtf8(PathBuf),
    /// The folder of the shim or of the logs is no use.
    #[error("cannot prepare the folder {}", path.display())]
    PrepareFolder {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The machine has no room for another thread.
    #[error("cannot start the thread that measures jobs")]
    StartSampler(#[source] std::io::Error),
    /// No shim could be started.
    #[error("cannot start the shim: {0}")]
    StartShim(String),
    /// Another runner has the place.
    #[error("the shim does not accept this runner: {0}")]
    ShimRefused(String),
    /// The connection to the shim broke.
    #[error("cannot talk to the shim")]
    TalkToShim(#[source] std::io::Error),
    /// The server will never accept this runner.
    #[error("the server does not accept this runner")]
    Server(#[source] LinkError),
}
