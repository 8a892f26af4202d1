//! Start parameters, exit reasons and errors of a runner.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tokio_util::sync::CancellationToken;
use torc_api::wire::{Resources, RunnerKind, RunnerScope};

use crate::link::LinkError;
use crate::mode::StepAllocation;
use crate::settings::RunnerSettings;

/// Start parameters of a runner: the user's settings, and what its starter found out about the machine and the server.
#[derive(Clone, Debug)]
pub struct RunnerConfig {
    pub settings: RunnerSettings,
    /// Resources of all nodes of the runner together.
    pub capacity: Resources,
    /// Names of the GPUs on each node.
    pub gpu_devices: Vec<String>,
    /// The workflows that the runner serves.
    pub scope: RunnerScope,
    /// The platform of the runner.
    pub kind: RunnerKind,
    /// The Slurm scheduler of its allocation.
    pub scheduler: Option<String>,
    /// The Slurm job of its allocation.
    pub slurm_job_id: Option<String>,
    /// The name of its allocation, if Torc submitted it.
    pub allocation_name: Option<String>,
    /// The allocation in which jobs become steps; absent if the runner starts all jobs itself.
    pub allocation: Option<StepAllocation>,
    /// The working folder of jobs whose workflow names none, e.g. of a custom resource.
    pub working_dir: PathBuf,
    /// The folder of outputs; job logs are in its folder `job_stdio`.
    pub output_dir: PathBuf,
    /// The runner's own folder on this machine. The runner takes over a shim that it finds there.
    pub state_dir: PathBuf,
    /// The command that starts a shim. The runner adds `--dir`, the folder and the other arguments of [`crate::shim::ShimArgs`].
    pub shim_command: Vec<OsString>,
    /// Time after which a shim without an agent ends its jobs.
    pub orphan_grace: Duration,
    /// The server's URL for jobs, which they get as `TORC_API_URL`.
    pub api_url: Option<String>,
    /// The file with the current address of the store's owner, which may change while jobs run. Jobs get it as
    /// `TORC_SERVER_FILE`.
    pub server_file: Option<PathBuf>,
    /// Longest time for which reports are batched while there is work to do.
    pub report_interval: Duration,
    /// The time after which the runner exits, counted from its start.
    pub time_limit: Option<Duration>,
    /// The remaining time of its allocation. Slurm may move this end.
    pub allocation_time: Option<Duration>,
    /// True if the runner leaves when all its workflows have settled.
    pub exit_when_complete: bool,
    /// The rule for leaving without work.
    pub idle_exit: IdleExit,
    /// Time for which a leaving runner tries to deliver its last reports.
    pub shutdown_grace: Duration,
    /// Stops the runner at once: its jobs are killed without their lead.
    pub stop_now: CancellationToken,
}

impl RunnerConfig {
    /// Returns the parameters of a local runner for all workflows. It has no resources until `capacity` is set.
    pub fn new(output_dir: PathBuf, state_dir: PathBuf, shim_command: Vec<OsString>) -> Self {
        Self {
            settings: RunnerSettings::default(),
            capacity: Resources { nodes: 1, ..Resources::default() },
            gpu_devices: Vec::new(),
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
            time_limit: None,
            allocation_time: None,
            exit_when_complete: true,
            idle_exit: IdleExit::Never,
            shutdown_grace: Duration::from_secs(15),
            stop_now: CancellationToken::new(),
        }
    }
}

/// The rule by which a runner without work leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleExit {
    Never,
    /// After the time that its workflows set.
    ByPolicy,
    After(Duration),
}

/// The reason why a runner ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerExit {
    /// All its workflows have settled.
    Complete,
    /// Its workflow was canceled.
    Canceled,
    Stopped,
    /// Its time limit or its allocation came to an end.
    Deadline,
    /// It had no work for too long.
    Idle,
    /// The server stayed unreachable, all jobs have ended, and their results are in the journal.
    Drained,
    /// The server dismissed it.
    Dismissed,
}

/// The error that ended a runner.
#[derive(Debug, Error)]
pub enum RunnerError {
    /// A path cannot be sent to the server.
    #[error("the path of the folder {} is not valid UTF-8", .0.display())]
    NotUtf8(PathBuf),
    /// The folder of the shim or of the logs cannot be used.
    #[error("cannot prepare the folder {}", path.display())]
    PrepareFolder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The operating system refused another thread.
    #[error("cannot start the thread that measures jobs")]
    StartSampler(#[source] std::io::Error),
    /// No shim could be started.
    #[error("cannot start the shim: {0}")]
    StartShim(String),
    /// Another runner uses the shim.
    #[error("the shim does not accept this runner: {0}")]
    ShimRefused(String),
    /// The connection to the shim broke.
    #[error("cannot talk to the shim")]
    TalkToShim(#[source] std::io::Error),
    /// The server will never accept this runner.
    #[error("the server does not accept this runner")]
    Server(#[source] LinkError),
}
