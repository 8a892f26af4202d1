//! What agent and shim say to each other: JSON lines over a Unix socket, self-describing so that the versions of the two
//! may differ by one.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use torc_api::execution::{MonitorPlan, SIGKILL_HEADROOM_SECONDS, StdioMode};
use torc_api::state::Cause;
use torc_api::termination::{EndMargin, StepWarning};
use torc_api::wire::{AttemptKey, LeaseRole, Resources};

use crate::clock::BootInstant;

/// The version of these messages.
pub const VERSION: u32 = 3;
/// The first version whose shim understands [`ToShim::Heartbeat`].
pub const HEARTBEAT_VERSION: u32 = 3;

/// From the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToShim {
    /// The first message: proves who it is, and brings the environment that jobs inherit.
    Hello(Hello),
    /// What later starts have in common.
    Template(Template),
    /// Start a job, now or in turn.
    Start(StartOrder),
    /// A job that waits for its turn need not wait any longer.
    StartNow(AttemptKey),
    /// Do not start these, if they still wait for their turn.
    Revoke(Vec<AttemptKey>),
    /// The agent counts as alive until this moment: until then the shim starts jobs in turn by itself.
    Heartbeat {
        /// By the clock of the machine.
        #[serde(rename = "aliveUntil")]
        alive_until: BootInstant,
    },
    /// End a job: signal, lead, SIGKILL. Repeated, it can only become faster.
    Terminate(Termination),
    /// What was done to a step, for the next agent.
    RecordStep(StepRecord),
    /// Their results are durable elsewhere.
    Acknowledge(Vec<AttemptKey>),
    /// The agent leaves. With nothing running the shim leaves too.
    Goodbye,
}

/// See [`ToShim::RecordStep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepRecord {
    /// Which attempt.
    pub key: AttemptKey,
    /// Slurm ends it after this time.
    pub step_limit_ms: Option<u64>,
    /// It was warned of that end.
    pub is_warned: bool,
}

/// See [`ToShim::Hello`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// The token of the shim's file.
    pub token: String,
    /// The agent's process.
    pub pid: u32,
    /// What jobs inherit.
    pub environment: Vec<(OsString, OsString)>,
}

/// What starts have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Template {
    /// What starts refer to; valid for one connection.
    pub id: u32,
    /// The folder the command runs in.
    pub working_dir: String,
    /// Variables over the inherited ones.
    pub env: Vec<(String, String)>,
    /// Inherited variables that it must not see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
    /// The folder of log files.
    pub log_dir: String,
    /// Which streams are kept.
    pub stdio: StdioMode,
    /// What else is to be known about the job while it runs.
    pub terms: Terms,
}

/// What is to be known about a job besides how to start it. The shim stores it for the next agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terms {
    /// What it takes from the node.
    pub resources: Resources,
    /// How long it is expected to run.
    pub runtime_seconds: i64,
    /// It ends when it has run for so long.
    pub enforce_runtime: bool,
    /// Files that must exist before the start, absolute or relative to the working folder.
    pub input_files: Vec<String>,
    /// Files that must exist after success, absolute or relative to the working folder.
    pub output_files: Vec<String>,
    /// Files are read for their hash however large they are.
    pub hash_large_files: bool,
    /// Its logs go when it succeeds.
    pub delete_on_success: bool,
    /// The signal that asks it to end.
    pub signal: i32,
    /// From that signal to SIGKILL.
    pub lead_ms: u64,
    /// From SIGKILL to the end of the runner's time.
    pub headroom_ms: u64,
    /// Return code when it ran out of time.
    pub timeout_exit_code: i32,
    /// Its process is `srun`: Slurm limits it, and ends it in time.
    pub in_step: bool,
    /// How a step is warned of its end, e.g. `TERM@120`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// How its use of the machine is measured.
    pub monitor: MonitorPlan,
    /// It is killed when a sample shows more memory than this.
    pub memory_limit_bytes: Option<i64>,
    /// Return code when it was.
    pub oom_exit_code: i32,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
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

impl Terms {
    /// It reads or writes files that somebody wants to know about.
    pub fn has_files(&self) -> bool {
        !self.input_files.is_empty() || !self.output_files.is_empty()
    }

    /// From the signal to SIGKILL.
    pub fn lead(&self) -> Duration {
        Duration::from_millis(self.lead_ms)
    }

    /// From SIGKILL to the end of the runner's time.
    pub fn headroom(&self) -> Duration {
        Duration::from_millis(self.headroom_ms)
    }

    /// Returns the end of a runner's time as the job sees it, in whole seconds.
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

/// Start a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartOrder {
    /// Which attempt.
    pub key: AttemptKey,
    /// A job, or one of the things that take no resources; log files are named after it.
    #[serde(skip_serializing_if = "LeaseRole::is_job")]
    pub role: LeaseRole,
    /// The job's name.
    pub name: String,
    /// A [`Template`].
    pub template: u32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables over those of the template.
    pub env: Vec<(String, String)>,
    /// GPUs it may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Nodes it owns a part of, by name; none where there is only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Slurm ends it after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_limit_ms: Option<u64>,
    /// Jobs of one class take the same from the node, so one can follow another.
    pub class: u32,
    /// Not now, but when a job of its class has ended, in that one's place, while the agent is alive.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_turn: bool,
    /// Not after this moment.
    pub until: BootInstant,
}

/// End a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Termination {
    /// Which attempt.
    pub key: AttemptKey,
    /// Why; the first reason is kept with its result.
    pub why: Ending,
    /// The signal that asks it to end.
    pub signal: i32,
    /// From that signal to SIGKILL; 0 is SIGKILL at once.
    pub lead_ms: u64,
}

/// Why a job is being ended, or why a lease is not wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    /// The runner stops, or nobody is there to decide about its jobs.
    Stopped,
    /// The server says so.
    Canceled,
    /// Time is over.
    Timeout,
    /// The allocation goes to somebody more important.
    Preempted,
    /// The lease ran out before the server knew of the start.
    LeaseLost,
    /// It had more memory than it may have.
    OutOfMemory,
}

impl Ending {
    /// What the attempt is reported with when it did not end well by itself.
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

/// From the shim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FromShim {
    /// The agent is accepted; everything that is held follows, then [`FromShim::Ready`].
    Welcome {
        /// [`VERSION`].
        version: u32,
    },
    /// The agent is not accepted.
    Refused {
        /// Why.
        reason: String,
        /// The shim will be gone soon, and another one can be started.
        #[serde(default)]
        leaving: bool,
    },
    /// A job that runs since before this agent came.
    Running(RunningJob),
    /// Everything that was held has been told.
    Ready,
    /// A job runs.
    Started {
        /// Which attempt.
        key: AttemptKey,
        /// Since when.
        at: BootInstant,
        /// Its first process.
        #[serde(default)]
        pid: i32,
    },
    /// A job has ended and nothing of it is left. A short one may end without having been told to run.
    Ended(Ended),
    /// A job that waited for its turn was not started and will not be.
    Revoked(AttemptKey),
    /// A job did not end in the time that it was given, and was killed.
    Killed(AttemptKey),
    /// Something that a person should know.
    Problem(String),
}

/// A job that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunningJob {
    /// Which attempt.
    pub key: AttemptKey,
    /// A job, or one of the things that take no resources.
    #[serde(skip_serializing_if = "LeaseRole::is_job")]
    pub role: LeaseRole,
    /// The job's name.
    pub name: String,
    /// Since when.
    pub started: BootInstant,
    /// Its first process.
    pub pid: i32,
    /// GPUs it uses.
    pub devices: Vec<String>,
    /// Nodes it owns a part of.
    pub nodes: Vec<String>,
    /// Slurm ends it after this time.
    pub step_limit_ms: Option<u64>,
    /// It was warned of that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_warned: bool,
    /// What else is to be known.
    pub terms: Terms,
    /// Where its output files are looked for.
    pub working_dir: String,
    /// Why and since when it is being ended, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<(Ending, BootInstant)>,
}

/// A job that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// Which attempt.
    pub key: AttemptKey,
    /// The job's name.
    #[serde(default)]
    pub name: String,
    /// Start.
    pub started: BootInstant,
    /// End.
    pub ended: BootInstant,
    /// How.
    pub outcome: Outcome,
    /// What the operating system counted for its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rusage: Option<Rusage>,
    /// Why it had been asked to end, if it had been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// How long ago it ended, if that was before the machine started: its moments only tell how long it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Where its output is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Where its error output is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Slurm would have ended it after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_limit_ms: Option<u64>,
    /// The job that was started in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<AttemptKey>,
    /// What the next agent has to know; only told to an agent that did not start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Box<Terms>>,
    /// Where its output files are looked for; told with `terms`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
}

impl Ended {
    /// The end of a job of which nothing else is known.
    pub fn of(key: AttemptKey, name: &str, (started, ended): (BootInstant, BootInstant), outcome: Outcome) -> Self {
        Self {
            key,
            name: name.to_owned(),
            started,
            ended,
            outcome,
            rusage: None,
            ending: None,
            age_ms: None,
            stdout: None,
            stderr: None,
            step_limit_ms: None,
            successor: None,
            terms: None,
            working_dir: String::new(),
        }
    }
}

/// What the operating system counted for the processes of a job that were collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rusage {
    /// CPU time of all of them, in microseconds.
    pub cpu_us: u64,
    /// The most memory that one of them had at once, where that can be told from the shim's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

impl Rusage {
    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            cpu_us: self.cpu_us.saturating_add(other.cpu_us),
            peak_memory_bytes: self.peak_memory_bytes.max(other.peak_memory_bytes),
        }
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// By itself.
    Exited(i32),
    /// By a signal.
    Signaled(i32),
    /// It never ran.
    NotStarted {
        /// 126 or 127, as a shell says it.
        code: i32,
        /// Why.
        message: String,
    },
}

impl Outcome {
    /// As a shell says it.
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
        use Ending::{Canceled, LeaseLost, OutOfMemory, Preempted, Stopped, Timeout};
        let causes = [Stopped, LeaseLost, Canceled, Timeout, Preempted, OutOfMemory].map(Ending::cause);
        let expected =
            [Cause::Stopped, Cause::Stopped, Cause::Canceled, Cause::Timeout, Cause::Preempted, Cause::OutOfMemory];
        assert_eq!(causes, expected);
    }

    #[test]
    fn what_processes_consumed_is_added_and_peaks_are_not() {
        let of = |cpu_us, peak_memory_bytes| Rusage { cpu_us, peak_memory_bytes };
        assert_eq!(of(3, Some(10)).and(of(4, Some(7))), of(7, Some(10)));
        assert_eq!(of(3, Some(10)).and(of(4, Some(17))), of(7, Some(17)));
        assert_eq!(of(3, None).and(of(4, Some(7))), of(7, Some(7)));
        assert_eq!(of(3, None).and(of(4, None)), of(7, None));
    }

    /// The other side may be of the version before or after, so these names are for ever.
    #[test]
    fn messages_have_these_names() {
        let termination = Termination { key: KEY, why: Ending::LeaseLost, signal: 12, lead_ms: 34 };
        let key = json!({"workflow": 1, "job": 2, "run": 3, "attempt": 4, "lease_id": 5});
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

    /// Nothing of a job is lost on its way to the next agent.
    #[test]
    fn a_held_job_and_its_end_survive_the_way() {
        let terms = Terms {
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
            ..Terms::default()
        };
        let held = RunningJob {
            key: KEY,
            role: LeaseRole::Recovery,
            name: "n".to_owned(),
            started: BootInstant(12),
            pid: 13,
            devices: vec!["d".to_owned()],
            nodes: vec!["m".to_owned()],
            step_limit_ms: Some(14),
            is_warned: true,
            terms: terms.clone(),
            working_dir: "/w".to_owned(),
            ending: Some((Ending::Preempted, BootInstant(15))),
        };
        let text = serde_json::to_string(&held).expect("JSON");
        assert_eq!(serde_json::from_str::<RunningJob>(&text).expect("JSON"), held);
        let ended = Ended {
            rusage: Some(Rusage { cpu_us: 16, peak_memory_bytes: Some(17) }),
            ending: Some(Ending::Timeout),
            age_ms: Some(18),
            stdout: Some("o".to_owned()),
            stderr: Some("e".to_owned()),
            step_limit_ms: Some(19),
            successor: Some(AttemptKey { job: 20, ..KEY }),
            terms: Some(Box::new(terms)),
            working_dir: "/w".to_owned(),
            ..Ended::of(KEY, "n", (BootInstant(21), BootInstant(22)), Outcome::Signaled(23))
        };
        let text = serde_json::to_string(&ended).expect("JSON");
        assert_eq!(serde_json::from_str::<Ended>(&text).expect("JSON"), ended);
    }
}
