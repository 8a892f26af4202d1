//! `torc-slurm-job-runner URL WORKFLOW OUTPUT`: what a batch script starts in its allocation. It is `torc` under another name: `torc
//! runner` for one workflow, with everything that it may use read from Slurm's environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use torc_runner::detect::Share;

use crate::client::{Client, ClientError};
use crate::commands::runner::{Serving, serve};
use crate::commands::shim;
use crate::connection::remote;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::logging::Log;
use crate::program::{block_on, refuse, start};
use crate::settings::{self, Origin, RunnerArgs};

/// Run a workflow's jobs in this Slurm allocation.
///
/// CPUs, memory, GPUs, nodes and the end come from Slurm. The token is read from TORC_TOKEN or the file that TORC_TOKEN_FILE names,
/// never from the command line, which everybody on the machine can see.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, max_term_width = 120)]
struct SlurmJobRunner {
    /// The server, e.g. `http://login1:7421`.
    #[arg(value_name = "URL")]
    url: String,
    /// The workflow, by name or number.
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// Where job logs go.
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,
    /// One runner of several in the allocation: it uses its own node only.
    #[arg(long)]
    is_subtask: bool,
    /// Wait so long before the first call, so that many runners do not come at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    startup_delay_seconds: u64,
    /// One of so many runners that start together: wait a moment of its own before the first call.
    #[arg(long, value_name = "N", default_value_t = 1)]
    stagger_among: u64,
    /// How long a server that does not answer is waited for at the start.
    #[arg(long, value_name = "MINUTES", default_value_t = 20)]
    wait_for_healthy_database_minutes: u64,
    /// The file with the server's token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The namespace of the workflow (`default` when absent).
    #[arg(short = 'n', long)]
    namespace: Option<String>,
    /// Log more to standard error.
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(flatten)]
    runner: RunnerArgs,
}

/// Between two looks for a server that does not answer.
const PAUSE: Duration = Duration::from_secs(5);

/// How long a server that does not accept what was handed over is given to hand over something newer.
const RENEWAL: Duration = Duration::from_secs(120);

/// The name of the program: a link to `torc`.
const PROGRAM: &str = "torc-slurm-job-runner";

/// Whether this program is meant, by the name of the program or by the command, which is taken away.
pub fn is_meant(arguments: &mut Vec<OsString>) -> bool {
    let is_named = arguments.first().map(Path::new).and_then(Path::file_name).is_some_and(|name| name == PROGRAM);
    let is_command = arguments.get(1).is_some_and(|word| word == crate::SLURM_JOB_RUNNER);
    if is_command {
        arguments.remove(1);
    }
    is_command || is_named
}

/// Parses, runs, and turns the outcome into an exit code.
pub fn main(mut arguments: Vec<OsString>) -> ExitCode {
    // A runner starts its shim from the program that it is.
    if arguments.get(1).is_some_and(|word| word == "shim") {
        return shim::main(shim::ShimVerbArgs { arguments: arguments.split_off(2) });
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
            flags.set(key, text, Origin::Flag);
        }
    }
    let log = Log { verbose: args.verbose, ..Log::default() };
    start(log, flags, |context| block_on(Box::pin(run(context, &args))))
}

async fn run(context: &CommandContext, args: &SlurmJobRunner) -> Result<ExitStatus, CliError> {
    tokio::time::sleep(Duration::from_secs(args.startup_delay_seconds)).await;
    tokio::time::sleep(torc_slurm::jitter::delay(args.stagger_among, &own_name())).await;
    let url = context.settings.url.clone().unwrap_or_default();
    let patience = Duration::from_secs(args.wait_for_healthy_database_minutes.saturating_mul(60));
    // Without a file nobody could bring a newer token.
    let with_token = if context.settings.token_file.is_some() { RENEWAL.min(patience) } else { Duration::ZERO };
    let patience = Patience { with_absence: patience, with_token };
    let client = wait_for(patience, || remote(&context.settings, &url, &context.folder)).await?;
    let share = if args.is_subtask { Share::OwnNode } else { Share::AllNodes };
    serve(context, &client, Some(&args.workflow), Serving { share: Some(share), ..Serving::default() }).await
}

/// What tells this runner from others that start at the same moment.
fn own_name() -> String {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (host, process) = (crate::host::host_name(), std::process::id());
    format!("{host}/{}/{}/{process}", variable("SLURM_JOB_ID"), variable("SLURM_NODEID"))
}

/// How long is waited for what may pass.
#[derive(Clone, Copy)]
struct Patience {
    with_absence: Duration,
    with_token: Duration,
}

/// Waits until the server answers and accepts what was handed over, which is read anew each time.
async fn wait_for(patience: Patience, reach: impl Fn() -> Result<Client, CliError>) -> Result<Client, CliError> {
    let start = Instant::now();
    let mut told = false;
    loop {
        let client = reach()?;
        match client.version().await {
            Err(error) if start.elapsed() < patience.with(&error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!("waiting for the server: {error}");
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(client),
        }
    }
}

impl Patience {
    /// How long is waited for this to pass. Whoever is away comes back; a certificate or a token may have been replaced a moment ago,
    /// and the server hands the new one over soon. What else it says stays so.
    fn with(self, error: &ClientError) -> Duration {
        match error {
            ClientError::Unreachable { .. } | ClientError::CutOff { .. } => self.with_absence,
            ClientError::Answer { status: 502..=504, .. } => self.with_absence,
            ClientError::Untrusted { .. } => RENEWAL.min(self.with_absence),
            ClientError::Answer { status: 401, .. } => self.with_token,
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_a_name_and_a_command() {
        for (line, expected, rest) in [
            ("/opt/torc-slurm-job-runner u w o", true, "/opt/torc-slurm-job-runner u w o"),
            ("torc-slurm-job-runner shim", true, "torc-slurm-job-runner shim"),
            ("/opt/torc slurm-job-runner u w o", true, "/opt/torc u w o"),
            ("/opt/torc run w", false, "/opt/torc run w"),
            ("torc", false, "torc"),
        ] {
            let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(is_meant(&mut words), expected, "{line}");
            assert_eq!(words, rest.split(' ').map(OsString::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_may_pass_is_waited_for() {
        let patience = Patience { with_absence: Duration::from_secs(1_200), with_token: RENEWAL };
        let with = |status| patience.with(&ClientError::answer(status, ""));
        assert_eq!(with(503), Duration::from_secs(1_200), "a server that does not lead yet");
        assert_eq!(with(401), RENEWAL);
        assert_eq!(with(404), Duration::ZERO);
    }

    // J31
    #[test]
    fn each_error_has_its_patience() {
        torc_controller::tls::install_cryptography();
        let absence = Duration::from_secs(1_200);
        let patience = Patience { with_absence: absence, with_token: Duration::from_secs(30) };
        for (status, expected) in
            [(400, 0), (401, 30), (403, 0), (409, 0), (500, 0), (501, 0), (502, 1_200), (504, 1_200), (505, 0)]
        {
            assert_eq!(patience.with(&ClientError::answer(status, "")).as_secs(), expected, "{status}");
        }
        assert_eq!(patience.with(&ClientError::Closed), Duration::ZERO);
        let source = || reqwest::Client::new().get("http://").build().expect_err("no host");
        assert_eq!(patience.with(&ClientError::Unreachable { url: String::new(), source: source() }), absence);
        assert_eq!(patience.with(&ClientError::CutOff { source: source() }), absence);
        assert_eq!((RENEWAL.as_secs(), PAUSE.as_secs()), (120, 5));
        let args = SlurmJobRunner::try_parse_from(["x", "u", "w", "o"]).expect("a command line");
        assert_eq!(
            (args.wait_for_healthy_database_minutes, args.startup_delay_seconds, args.stagger_among),
            (20, 0, 1)
        );
        assert!(!args.is_subtask);
    }
}
