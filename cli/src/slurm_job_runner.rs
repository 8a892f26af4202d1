//! `torc-slurm-job-runner URL WORKFLOW OUTPUT`: the program that a batch script starts in its allocation. It is `torc` under another
//! name: `torc runner` for one workflow, with the resources of the Slurm allocation.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use torc_runner::detect::AllocationShare;

use crate::client::{Client, ClientError};
use crate::commands::runner::{RunnerOptions, serve};
use crate::commands::shim;
use crate::connection::remote;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::logging::Log;
use crate::program::{block_on, refuse, start};
use crate::settings::{self, RunnerArgs, SettingOrigin};

/// Run the jobs of a workflow in this Slurm allocation
///
/// Slurm sets CPUs, memory, GPUs, nodes and the time limit. The token comes from TORC_TOKEN or the file in TORC_TOKEN_FILE, not from
/// the command line, which all users of the machine can read.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, max_term_width = 120)]
struct SlurmJobRunner {
    /// URL of the server, e.g. `http://login1:7421`
    #[arg(value_name = "URL")]
    url: String,
    /// Workflow by name or number
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// Folder for job logs
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,
    /// Use this node only, as one of several runners of the allocation
    #[arg(long)]
    is_subtask: bool,
    /// Delay before the first request, to spread the start of many runners
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    startup_delay_seconds: u64,
    /// Number of runners that start together; adds a delay that differs for each
    #[arg(long, value_name = "N", default_value_t = 1)]
    stagger_among: u64,
    /// Longest wait for an unreachable server at the start
    #[arg(long, value_name = "MINUTES", default_value_t = 20)]
    wait_for_healthy_database_minutes: u64,
    /// File with the token of the server
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Namespace of the workflow (default: `default`)
    #[arg(short = 'n', long)]
    namespace: Option<String>,
    /// Log more to standard error
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(flatten)]
    runner: RunnerArgs,
}

/// Delay before an unreachable server is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Time that the server has to write a new token or certificate after it rejected the old one.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(120);

/// The name of the program: a link to `torc`.
const PROGRAM: &str = "torc-slurm-job-runner";

/// Returns whether the name of the program or the command selects this program. Removes the command from the arguments.
pub fn is_selected(arguments: &mut Vec<OsString>) -> bool {
    let is_named = arguments.first().map(Path::new).and_then(Path::file_name).is_some_and(|name| name == PROGRAM);
    let is_command = arguments.get(1).is_some_and(|word| word == crate::SLURM_JOB_RUNNER);
    if is_command {
        arguments.remove(1);
    }
    is_command || is_named
}

/// Parses the command line, runs the runner and returns its exit code.
pub fn main(mut arguments: Vec<OsString>) -> ExitCode {
    // A runner starts the shim with its own program file.
    if arguments.get(1).is_some_and(|word| word == "shim") {
        return shim::main(shim::ShimCommandArgs { arguments: arguments.split_off(2) });
    }
    let matches = match SlurmJobRunner::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return refuse(&error),
    };
    let args = match SlurmJobRunner::from_arg_matches(&matches) {
        Ok(args) => args,
        Err(error) => return refuse(&error),
    };
    let mut flags = settings::layer(&matches);
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    for (key, text) in [
        ("client.url", Some(args.url.clone())),
        ("client.token_file", args.token_file.as_ref().map(path)),
        ("client.namespace", args.namespace.clone()),
        ("client.run.output_dir", Some(path(&args.output))),
    ] {
        if let Some(text) = text {
            flags.set(key, text, SettingOrigin::Flag);
        }
    }
    let log = Log { verbose: args.verbose, ..Log::default() };
    start(log, flags, |context| block_on(Box::pin(run(context, &args))))
}

async fn run(context: &CommandContext, args: &SlurmJobRunner) -> Result<ExitStatus, CliError> {
    tokio::time::sleep(Duration::from_secs(args.startup_delay_seconds)).await;
    tokio::time::sleep(torc_slurm::jitter::delay(args.stagger_among, &own_name())).await;
    let url = context.settings.url.clone().unwrap_or_default();
    let timeouts = Duration::from_secs(args.wait_for_healthy_database_minutes.saturating_mul(60));
    // A newer token can only come from a file.
    let unauthorized =
        if context.settings.token_file.is_some() { RENEWAL_TIMEOUT.min(timeouts) } else { Duration::ZERO };
    let timeouts = StartTimeouts { unreachable: timeouts, unauthorized };
    let client = wait_for(timeouts, || remote(&context.settings, &url, &context.folder)).await?;
    let share = if args.is_subtask { AllocationShare::OwnNode } else { AllocationShare::AllNodes };
    serve(context, &client, Some(&args.workflow), RunnerOptions { share: Some(share), ..RunnerOptions::default() })
        .await
}

/// Returns a name that differs for each runner that starts at the same time.
fn own_name() -> String {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (host, process) = (crate::host::host_name(), std::process::id());
    format!("{host}/{}/{}/{process}", variable("SLURM_JOB_ID"), variable("SLURM_NODEID"))
}

/// Timeouts for errors that may be temporary.
#[derive(Clone, Copy)]
struct StartTimeouts {
    unreachable: Duration,
    unauthorized: Duration,
}

/// Waits until the server answers and accepts the token and certificate, which are read again for each try.
async fn wait_for(timeouts: StartTimeouts, reach: impl Fn() -> Result<Client, CliError>) -> Result<Client, CliError> {
    let start = Instant::now();
    let mut is_logged = false;
    loop {
        let client = reach()?;
        match client.version().await {
            Err(error) if start.elapsed() < timeouts.of(&error) => {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::warn!("waiting for the server: {error}");
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(client),
        }
    }
}

impl StartTimeouts {
    /// Returns the timeout for an error. An unreachable server may come back, and the server may replace a rejected token or
    /// certificate. All other errors are permanent.
    fn of(self, error: &ClientError) -> Duration {
        match error {
            ClientError::Unreachable { .. } | ClientError::CutOff { .. } => self.unreachable,
            ClientError::Answer { status: 502..=504, .. } => self.unreachable,
            ClientError::Untrusted { .. } => RENEWAL_TIMEOUT.min(self.unreachable),
            ClientError::Answer { status: 401, .. } => self.unauthorized,
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_a_command_selects_the_runner() {
        for (line, expected, rest) in [
            ("/opt/torc-slurm-job-runner u w o", true, "/opt/torc-slurm-job-runner u w o"),
            ("torc-slurm-job-runner shim", true, "torc-slurm-job-runner shim"),
            ("/opt/torc slurm-job-runner u w o", true, "/opt/torc u w o"),
            ("/opt/torc run w", false, "/opt/torc run w"),
            ("torc", false, "torc"),
        ] {
            let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(is_selected(&mut words), expected, "{line}");
            assert_eq!(words, rest.split(' ').map(OsString::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn temporary_errors_are_retried() {
        let timeouts = StartTimeouts { unreachable: Duration::from_secs(1_200), unauthorized: RENEWAL_TIMEOUT };
        let with = |status| timeouts.of(&ClientError::answer(status, ""));
        assert_eq!(with(503), Duration::from_secs(1_200), "a server that does not lead yet");
        assert_eq!(with(401), RENEWAL_TIMEOUT);
        assert_eq!(with(404), Duration::ZERO);
    }

    // J31
    #[test]
    fn each_error_has_its_timeout() {
        torc_controller::tls::install_cryptography();
        let absence = Duration::from_secs(1_200);
        let timeouts = StartTimeouts { unreachable: absence, unauthorized: Duration::from_secs(30) };
        for (status, expected) in
            [(400, 0), (401, 30), (403, 0), (409, 0), (500, 0), (501, 0), (502, 1_200), (504, 1_200), (505, 0)]
        {
            assert_eq!(timeouts.of(&ClientError::answer(status, "")).as_secs(), expected, "{status}");
        }
        assert_eq!(timeouts.of(&ClientError::Closed), Duration::ZERO);
        let source = || reqwest::Client::new().get("http://").build().expect_err("no host");
        assert_eq!(timeouts.of(&ClientError::Unreachable { url: String::new(), source: source() }), absence);
        assert_eq!(timeouts.of(&ClientError::CutOff { source: source() }), absence);
        assert_eq!((RENEWAL_TIMEOUT.as_secs(), RETRY_INTERVAL.as_secs()), (120, 5));
        let args = SlurmJobRunner::try_parse_from(["x", "u", "w", "o"]).expect("a command line");
        assert_eq!(
            (args.wait_for_healthy_database_minutes, args.startup_delay_seconds, args.stagger_among),
            (20, 0, 1)
        );
        assert!(!args.is_subtask);
    }
}
