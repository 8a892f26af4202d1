//! Messages between agent and shim: JSON lines over a Unix socket. The versions of the two may differ by one.
//!
//! A start has two parts: the [`StartTemplate`] holds what all jobs of a profile share and is sent once; the
//! [`StartOrder`] holds the rest. The shim keeps both, and gives them to the next agent as a [`ShimJob`].

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use torc_api::execution::{MonitorPlan, SIGKILL_HEADROOM_SECONDS, StdioMode};
use torc_api::state::Cause;
use torc_api::termination::{EndMargin, StepWarning};
use torc_api::wire::{AttemptKey, LeaseRole, Resources};

use crate::clock::BootInstant;

/// The version of these messages.
pub const VERSION: u32 = 1;

/// A message from the agent to the shim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToShim {
    /// The first message: authenticates the agent and carries the environment that jobs inherit.
    Hello(Hello),
    /// Defines a template for later starts.
    Template(StartTemplate),
    /// Starts a job, now or in turn.
    Start(StartOrder),
    /// Starts a waiting job now, before its turn.
    StartNow(AttemptKey),
    /// Withdraws jobs that still wait for their turn.
    Revoke(Vec<AttemptKey>),
    /// Lets the shim start waiting jobs by itself until this moment.
    Heartbeat {
        /// A moment of the machine's boot clock.
        #[serde(rename = "aliveUntil")]
        alive_until: BootInstant,
    },
    /// Ends a job: the signal, the lead, then SIGKILL. A repetition can only shorten the lead.
    Terminate(Termination),
    /// Records the time limit and the warning of a step for the next agent.
    RecordStep(StepRecord),
    /// Drops results that are durable elsewhere.
    Acknowledge(Vec<AttemptKey>),
    /// Ends the connection. An idle shim exits.
    Goodbye,
}

/// The time limit and the warning of a running step, for [`ToShim::RecordStep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepRecord {
    pub key: AttemptKey,
    /// The time limit of the step.
    pub step_limit_ms: Option<u64>,
    /// True if the step was warned of this limit.
    pub is_warned: bool,
}

/// The content of [`ToShim::Hello`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    pub version: u32,
    /// The token from the shim's file.
    pub token: String,
    /// The agent's process ID.
    pub pid: u32,
    /// Variables that jobs inherit.
    pub environment: Vec<(OsString, OsString)>,
}

/// The settings that all jobs of one profile share: how they start, run and end. A field that reaches a job's process
/// is declared here, filled from the profile in `state/profiles.rs`, and used in `shim/spawn.rs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartTemplate {
    /// The number that orders refer to; valid for one connection.
    pub id: u32,
    /// The folder in which commands run.
    pub working_dir: String,
    /// Variables that replace inherited ones.
    pub env: Vec<(String, String)>,
    /// Inherited variables that jobs do not get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
    /// The folder of log files.
    pub log_dir: String,
    /// The streams that are kept.
    pub stdio: StdioMode,
    /// Resources that a job takes from the node.
    pub resources: Resources,
    pub runtime_seconds: i64,
    /// True if a job ends when the declared runtime is over.
    pub enforce_runtime: bool,
    /// Files that must exist before the start, absolute or relative to the working folder.
    pub input_files: Vec<String>,
    /// Files that must exist after success, absolute or relative to the working folder.
    pub output_files: Vec<String>,
    /// True if files above the size limit are hashed completely.
    pub hash_large_files: bool,
    /// True if the logs of a successful job are deleted.
    pub delete_on_success: bool,
    /// The signal that asks a job to end.
    pub signal: i32,
    /// The time from that signal to SIGKILL.
    pub lead_ms: u64,
    /// The time from SIGKILL to the end of the runner's time.
    pub headroom_ms: u64,
    /// The return code of a job that ran out of time.
    pub timeout_exit_code: i32,
    /// True if the process is `srun`: Slurm then limits the job and ends it in time.
    pub in_step: bool,
    /// The early warning of a step, e.g. `TERM@120`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The measured resources, and the sample interval.
    pub monitor: MonitorPlan,
    /// The memory above which the runner kills a job.
    pub memory_limit_bytes: Option<i64>,
    /// The return code of a job that ran out of memory.
    pub oom_exit_code: i32,
}

impl Default for StartTemplate {
    fn default() -> Self {
        Self {
            id: 0,
            working_dir: String::new(),
            env: Vec::new(),
            unset: Vec::new(),
            log_dir: String::new(),
            stdio: StdioMode::default(),
            resources: Resources::default(),
            runtime_seconds: 0,
            enforce_runtime: false,
            input_files: Vec::new(),
            output_files: Vec::new(),
            hash_large_files: false,
            delete_on_success: false,
            signal: 15,
            lead_ms: 30_000,
            headroom_ms: SIGKILL_HEADROOM_SECONDS.unsigned_abs() * 1_000,
            timeout_exit_code: 152,
            in_step: false,
            warning: None,
            monitor: MonitorPlan::default(),
            memory_limit_bytes: None,
            oom_exit_code: 137,
        }
    }
}

impl StartTemplate {
    /// Returns whether jobs declare input or output files.
    pub fn has_files(&self) -> bool {
        !self.input_files.is_empty() || !self.output_files.is_empty()
    }

    /// Returns the time from the first signal to SIGKILL.
    pub fn lead(&self) -> Duration {
        Duration::from_millis(self.lead_ms)
    }

    /// Returns the time from SIGKILL to the end of the runner's time.
    pub fn headroom(&self) -> Duration {
        Duration::from_millis(self.headroom_ms)
    }

    /// Returns when a job gets its signal so that it has ended at `end`.
    pub fn signal_time(&self, end: BootInstant) -> BootInstant {
        if self.in_step { end.minus(self.headroom().min(self.lead())) } else { self.kill_time(end).minus(self.lead()) }
    }

    /// Returns when a job gets SIGKILL so that it has ended at `end`.
    pub fn kill_time(&self, end: BootInstant) -> BootInstant {
        if self.in_step { end.minus(self.headroom().min(self.lead()) / 2) } else { end.minus(self.headroom()) }
    }

    /// Returns the declared runtime.
    pub fn runtime(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.runtime_seconds).unwrap_or(0))
    }

    /// Returns how long before the runner's end a job has to stop, in whole seconds.
    pub fn end_margin(&self) -> EndMargin {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let warning = self.warning.as_deref().and_then(StepWarning::parse).map_or(Duration::ZERO, |it| it.before);
        EndMargin {
            headroom_seconds: seconds(self.headroom()),
            notice_seconds: seconds(if self.in_step { warning } else { self.lead() }),
            in_step: self.in_step,
        }
    }
}

/// The data of a single start, in addition to its template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartOrder {
    pub key: AttemptKey,
    /// The role: a job, or a task that takes no resources. The names of log files depend on it.
    #[serde(skip_serializing_if = "LeaseRole::is_job")]
    pub role: LeaseRole,
    pub name: String,
    /// The [`StartTemplate::id`] of the template on this connection.
    pub template: u32,
    /// The program and its arguments, which are not parsed again.
    pub argv: Vec<String>,
    /// Variables that replace those of the template.
    pub env: Vec<(String, String)>,
    /// GPUs that the job may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Nodes on which the job runs; empty if the runner has only one node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The time limit that the step gets from Slurm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_limit_ms: Option<u64>,
    /// The resource class. Jobs of one class take the same from the node, so one can replace another.
    pub class: u32,
    /// True if the job starts when another of its class has ended, instead of now. The shim does this only while the
    /// agent is alive.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_turn: bool,
    /// The moment after which the job must not start.
    pub until: BootInstant,
}

/// The content of [`ToShim::Terminate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Termination {
    pub key: AttemptKey,
    /// The reason; the result carries the first one.
    pub why: StopReason,
    /// The signal that asks the job to end.
    pub signal: i32,
    /// The time from that signal to SIGKILL; 0 means SIGKILL at once.
    pub lead_ms: u64,
}

/// The reason for ending a job, or for dropping a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The runner stops, or the shim has been without an agent for too long.
    Stopped,
    /// The server canceled the job.
    Canceled,
    /// The time of the job or of the runner is over.
    Timeout,
    /// Slurm preempted the allocation.
    Preempted,
    /// The lease expired before the server learned of the start.
    LeaseLost,
    /// The job exceeded its memory limit.
    OutOfMemory,
}

impl StopReason {
    /// Returns the cause of an attempt that was ended for this reason and did not succeed.
    pub fn cause(self) -> Cause {
        match self {
            Self::Stopped | Self::LeaseLost => Cause::Stopped,
            Self::Canceled => Cause::Canceled,
            Self::Timeout => Cause::Timeout,
            Self::Preempted => Cause::Preempted,
            Self::OutOfMemory => Cause::OutOfMemory,
        }
    }
}

/// A message from the shim to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FromShim {
    /// Accepts the agent. Everything that the shim holds follows, then [`FromShim::Ready`].
    Welcome { version: u32 },
    /// Rejects the agent; the shim then closes the connection.
    Refused {
        reason: String,
        /// True if the shim is about to exit, so that another one can be started.
        #[serde(default)]
        leaving: bool,
    },
    /// A job that another agent started still runs.
    Running(Box<ShimJob>),
    /// Everything that the shim holds has been sent.
    Ready,
    /// A job has started.
    Started {
        key: AttemptKey,
        /// The moment of the start.
        at: BootInstant,
        #[serde(default)]
        pid: i32,
    },
    /// A job has ended and left no process. A short job may end without [`FromShim::Started`].
    Ended(JobExit),
    /// A job that waited for its turn did not start and will not.
    Revoked(AttemptKey),
    /// A job did not end within its lead and was killed.
    Killed(AttemptKey),
    /// A problem for the runner's log.
    Problem(String),
}

/// A job that the shim started, for an agent that did not order the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShimJob {
    /// The order that started it, with the step limit as last recorded.
    pub order: StartOrder,
    /// The template of that order.
    pub template: StartTemplate,
    /// The moment of the start.
    pub started: BootInstant,
    pub pid: i32,
    /// True if its step was warned of its limit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_warned: bool,
    /// The reason for ending it and the moment of the first signal, once it is being ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<(StopReason, BootInstant)>,
}

/// A job that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobExit {
    pub key: AttemptKey,
    /// The moment of the start.
    pub started: BootInstant,
    /// The moment of the end.
    pub ended: BootInstant,
    /// The outcome of the first process.
    pub outcome: Outcome,
    /// Resources that the kernel counted for its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rusage: Option<Rusage>,
    /// The reason for which the job was ended; absent if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<StopReason>,
    /// The time since the end, if the machine has restarted since: then the two moments only give the duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// The file or pack reference of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// The file or pack reference of its error output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// The job that the shim started in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<AttemptKey>,
    /// The job itself; only for an agent that did not start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<ShimJob>>,
}

impl JobExit {
    /// Creates a result without the optional parts.
    pub fn new(key: AttemptKey, started: BootInstant, ended: BootInstant, outcome: Outcome) -> Self {
        Self {
            key,
            started,
            ended,
            outcome,
            rusage: None,
            ending: None,
            age_ms: None,
            stdout: None,
            stderr: None,
            successor: None,
            job: None,
        }
    }
}

/// Resources that the kernel counted for the collected processes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rusage {
    /// CPU time of all processes, in microseconds.
    pub cpu_us: u64,
    /// The peak of the largest process; absent where it cannot be distinguished from the shim's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

impl Rusage {
    /// Returns the sum of CPU times and the larger peak.
    pub fn and(self, other: Self) -> Self {
        Self {
            cpu_us: self.cpu_us.saturating_add(other.cpu_us),
            peak_memory_bytes: self.peak_memory_bytes.max(other.peak_memory_bytes),
        }
    }
}

/// The outcome of the first process of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// The shim could not start it, for the reason in `message`.
    NotStarted {
        /// 126 or 127, as in a shell.
        code: i32,
        message: String,
    },
}

impl Outcome {
    /// Returns the code as a shell reports it.
    pub fn return_code(&self) -> i32 {
        match self {
            Self::Exited(code) | Self::NotStarted { code, .. } => *code,
            Self::Signaled(signal) => 128 + signal,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: AttemptKey = AttemptKey { workflow: 1, job: 2, run: 3, attempt: 4, lease_id: 5 };

    // J16
    #[test]
    fn codes_of_outcomes() {
        let not_started = Outcome::NotStarted { code: 126, message: String::new() };
        let codes = [Outcome::Exited(7), Outcome::Signaled(15), not_started].map(|outcome| outcome.return_code());
        assert_eq!(codes, [7, 143, 126]);
    }

    // J17, J23, X02, X16
    #[test]
    fn causes_of_ends() {
        use StopReason::{Canceled, LeaseLost, OutOfMemory, Preempted, Stopped, Timeout};
        let causes = [Stopped, LeaseLost, Canceled, Timeout, Preempted, OutOfMemory].map(StopReason::cause);
        let expected =
            [Cause::Stopped, Cause::Stopped, Cause::Canceled, Cause::Timeout, Cause::Preempted, Cause::OutOfMemory];
        assert_eq!(causes, expected);
    }

    #[test]
    fn cpu_times_are_added_and_peaks_are_not() {
        let of = |cpu_us, peak_memory_bytes| Rusage { cpu_us, peak_memory_bytes };
        assert_eq!(of(3, Some(10)).and(of(4, Some(7))), of(7, Some(10)));
        assert_eq!(of(3, Some(10)).and(of(4, Some(17))), of(7, Some(17)));
        assert_eq!(of(3, None).and(of(4, Some(7))), of(7, Some(7)));
        assert_eq!(of(3, None).and(of(4, None)), of(7, None));
    }

    /// The other side may be of the version before or after, so these names are frozen.
    #[test]
    fn messages_have_these_names() {
        let termination = Termination { key: KEY, why: StopReason::LeaseLost, signal: 12, lead_ms: 34 };
        let key = json!({"workflow": 1, "job": 2, "run": 3, "attempt": 4, "leaseId": 5});
        let said = [
            (json!(ToShim::StartNow(KEY)), json!({"startNow": key})),
            (json!(ToShim::Revoke(vec![KEY])), json!({"revoke": [key]})),
            (json!(ToShim::Acknowledge(vec![KEY])), json!({"acknowledge": [key]})),
            (json!(ToShim::Heartbeat { alive_until: BootInstant(7) }), json!({"heartbeat": {"aliveUntil": 7}})),
            (json!(ToShim::Goodbye), json!("goodbye")),
            (
                json!(ToShim::Terminate(termination)),
                json!({"terminate": {"key": key, "why": "leaseLost", "signal": 12, "leadMs": 34}}),
            ),
            (
                json!(ToShim::RecordStep(StepRecord { key: KEY, step_limit_ms: Some(6), is_warned: true })),
                json!({"recordStep": {"key": key, "stepLimitMs": 6, "isWarned": true}}),
            ),
            (json!(FromShim::Ready), json!("ready")),
            (json!(FromShim::Revoked(KEY)), json!({"revoked": key})),
            (json!(FromShim::Killed(KEY)), json!({"killed": key})),
            (
                json!(FromShim::Started { key: KEY, at: BootInstant(8), pid: 9 }),
                json!({"started": {"key": key, "at": 8, "pid": 9}}),
            ),
        ];
        for (message, expected) in said {
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn a_running_job_and_its_exit_survive_serialization() {
        let template = StartTemplate {
            id: 1,
            working_dir: "/w".to_owned(),
            env: vec![("A".to_owned(), "1".to_owned())],
            unset: vec!["B".to_owned()],
            log_dir: "/l".to_owned(),
            resources: Resources { cpus: 1, memory_bytes: 2, gpus: 3, nodes: 4 },
            runtime_seconds: 5,
            enforce_runtime: true,
            input_files: vec!["in".to_owned()],
            output_files: vec!["out".to_owned()],
            hash_large_files: true,
            delete_on_success: true,
            signal: 6,
            lead_ms: 7,
            headroom_ms: 8,
            timeout_exit_code: 9,
            in_step: true,
            warning: Some("w".to_owned()),
            memory_limit_bytes: Some(10),
            oom_exit_code: 11,
            ..StartTemplate::default()
        };
        let order = StartOrder {
            key: KEY,
            role: LeaseRole::Recovery,
            name: "n".to_owned(),
            devices: vec!["d".to_owned()],
            nodes: vec!["m".to_owned()],
            step_limit_ms: Some(14),
            ..StartOrder::default()
        };
        let job = ShimJob {
            order,
            template,
            started: BootInstant(12),
            pid: 13,
            is_warned: true,
            ending: Some((StopReason::Preempted, BootInstant(15))),
        };
        let text = serde_json::to_string(&job).expect("JSON");
        assert_eq!(serde_json::from_str::<ShimJob>(&text).expect("JSON"), job);
        let exit = JobExit {
            rusage: Some(Rusage { cpu_us: 16, peak_memory_bytes: Some(17) }),
            ending: Some(StopReason::Timeout),
            age_ms: Some(18),
            stdout: Some("o".to_owned()),
            stderr: Some("e".to_owned()),
            successor: Some(AttemptKey { job: 20, ..KEY }),
            job: Some(Box::new(job)),
            ..JobExit::new(KEY, BootInstant(21), BootInstant(22), Outcome::Signaled(23))
        };
        let text = serde_json::to_string(&exit).expect("JSON");
        assert_eq!(serde_json::from_str::<JobExit>(&text).expect("JSON"), exit);
    }
}
