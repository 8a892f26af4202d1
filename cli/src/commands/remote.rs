//! `torc remote`: run jobs on machines over SSH.

mod logs;
pub mod rows;
mod run;
mod status;
mod workers;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use torc_api::remote::{RemoteWorker, WorkerAddress};

use crate::client::Client;
use crate::connection::{bare_name, explain_missing};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;
use crate::remote::ssh::{Ssh, WorkerError};
use crate::settings::RunnerArgs;

/// Run jobs on machines over SSH
///
/// The address of a worker is `[user@]host[:port]`. The server stores the workers of each workflow, so only the first `run` needs a
/// file. Every worker needs an installed `torc` and an SSH login without a password prompt.
#[derive(Debug, Args)]
pub struct RemoteArgs {
    #[command(flatten)]
    pub ssh: SshArgs,
    #[command(subcommand)]
    pub command: RemoteCommand,
}

#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Add workers to a workflow without starting them
    AddWorkers {
        /// Workflow by name or number
        workflow: String,
        /// Workers, e.g. `alice@node1` or `node2:2222`
        #[arg(required = true, value_name = "WORKER")]
        workers: Vec<String>,
    },
    /// Add the workers in a file to a workflow without starting them
    AddWorkersFromFile {
        /// Workflow by name or number
        workflow: String,
        /// File with one worker per line, or `-` for standard input; `#` starts a comment
        file: PathBuf,
    },
    /// Remove a worker from a workflow
    RemoveWorker {
        /// Workflow by name or number
        workflow: String,
        /// Worker to remove
        worker: String,
        /// Remove the worker even if its runner is active; the runner continues until the workflow has settled
        #[arg(long)]
        force: bool,
    },
    /// List the workers of a workflow
    ListWorkers {
        /// Workflow by name or number
        workflow: String,
    },
    /// Start a runner on every worker that has none
    ///
    /// The command returns at once. The runners exit when the workflow has settled. The command can be repeated: it starts only
    /// missing runners.
    Run(Box<RunRemoteArgs>),
    /// Show the state of the workers of a workflow
    Status(WorkerSelection),
    /// Stop the runners of a workflow and wait for their end
    ///
    /// Terminates their jobs with the grace period of the workflow. The jobs return to ready.
    Stop {
        #[command(flatten)]
        chosen: WorkerSelection,
        /// Kill jobs and runners at once
        #[arg(long)]
        force: bool,
        /// Longest time to wait for the end of a runner
        #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::args::parse_duration)]
        timeout: Duration,
    },
    /// Copy the logs of runners and jobs to this machine, into one folder per worker
    CollectLogs {
        #[command(flatten)]
        chosen: WorkerSelection,
        /// Folder for the logs (-o); here -o is not short for --output
        #[arg(long, value_name = "DIR", default_value = "remote_logs")]
        output_dir: PathBuf,
        /// Delete the copied logs on the workers
        #[arg(long)]
        delete: bool,
    },
    /// Delete the logs of runners and jobs on the workers
    DeleteLogs {
        #[command(flatten)]
        chosen: WorkerSelection,
        /// Delete without asking
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// A workflow and a selection of its workers.
#[derive(Debug, Args)]
pub struct WorkerSelection {
    /// Workflow by name or number
    pub workflow: String,
    /// Workers (default: all of the workflow)
    #[arg(value_name = "WORKER")]
    pub workers: Vec<String>,
}

/// The arguments of `run`.
#[derive(Debug, Args)]
pub struct RunRemoteArgs {
    /// File with one worker per line (default: the stored workers), and the workflow: name, number or file
    #[arg(required = true, num_args = 1..=2, value_name = "[WORKERS_FILE] WORKFLOW")]
    pub targets: Vec<String>,
    /// URL at which the workers reach the server (default: the URL that this machine uses)
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// Folder on the workers for logs (default: the folder of the workflow)
    #[arg(long, value_name = "DIR")]
    pub remote_dir: Option<PathBuf>,
    /// Create the folder of the workflow on workers that do not have it
    #[arg(long)]
    pub make_folder: bool,
    /// Idle time after which runners exit, e.g. `10m`
    #[arg(long, value_name = "TIME", value_parser = crate::args::parse_duration)]
    pub idle_exit: Option<Duration>,
    #[command(flatten)]
    pub runner: RunnerArgs,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "SSH")]
pub struct SshArgs {
    /// Maximum number of parallel SSH connections
    #[arg(long, global = true, value_name = "N", default_value_t = 10, value_parser = parse_positive)]
    pub max_parallel_ssh: usize,
    /// Option for ssh as in its configuration, e.g. `ProxyJump=login1`; may be repeated
    #[arg(long = "ssh-option", global = true, value_name = "OPTION")]
    pub options: Vec<String>,
    /// Path of `torc` on the workers (default: the last one set for the worker, otherwise `torc`)
    #[arg(long, global = true, value_name = "PATH")]
    pub remote_torc: Option<String>,
}

fn parse_positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "must be a number of at least 1".to_owned())
}

impl SshArgs {
    /// Returns the SSH call for a worker, with the program from the command line or the stored one.
    fn ssh(&self, context: &CommandContext, worker: &RemoteWorker) -> Ssh {
        let program = context.settings.ssh.split_whitespace().map(str::to_owned).collect();
        Ssh { program, options: self.options.clone(), torc: program_of(self.remote_torc.as_deref(), worker) }
    }
}

/// Returns the program `torc` on a worker.
fn program_of(typed: Option<&str>, worker: &RemoteWorker) -> String {
    typed.or(worker.remote_torc.as_deref()).unwrap_or("torc").to_owned()
}

pub async fn run(context: &CommandContext, args: RemoteArgs) -> Result<ExitStatus, CliError> {
    let ssh = &args.ssh;
    match args.command {
        RemoteCommand::AddWorkers { workflow, workers } => workers::add(context, ssh, &workflow, &workers).await,
        RemoteCommand::AddWorkersFromFile { workflow, file } => workers::add_file(context, ssh, &workflow, &file).await,
        RemoteCommand::RemoveWorker { workflow, worker, force } => {
            workers::remove(context, &workflow, &worker, force).await
        }
        RemoteCommand::ListWorkers { workflow } => workers::list(context, &workflow).await,
        RemoteCommand::Run(args) => run::run(context, ssh, &args).await,
        RemoteCommand::Status(chosen) => status::status(context, ssh, &chosen).await,
        RemoteCommand::Stop { chosen, force, timeout } => status::stop(context, ssh, &chosen, force, timeout).await,
        RemoteCommand::CollectLogs { chosen, output_dir, delete } => {
            logs::collect(context, ssh, &chosen, &output_dir, delete).await
        }
        RemoteCommand::DeleteLogs { chosen, yes } => logs::delete(context, ssh, &chosen, yes).await,
    }
}

/// A stored worker with its parsed address.
#[derive(Clone, Debug)]
struct StoredWorker {
    address: WorkerAddress,
    kept: RemoteWorker,
}

impl StoredWorker {
    fn new(kept: RemoteWorker) -> Result<Self, CliError> {
        Ok(Self { address: parse_address(&kept.address)?, kept })
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn parse_address(text: &str) -> Result<WorkerAddress, CliError> {
    text.parse().map_err(|error| CliError::invalid(format!("invalid worker '{text}': {error}")))
}

/// Returns the selected workers of a workflow.
async fn chosen_workers(client: &Client, chosen: &WorkerSelection) -> Result<Vec<StoredWorker>, CliError> {
    let workflow = bare_name(&chosen.workflow);
    let all = client.remote_workers(workflow).await.map_err(explain_missing)?;
    if all.is_empty() {
        return Err(CliError::not_found(format!("workflow {workflow} has no workers"))
            .hint(format!("start runners on the workers in a file with `torc remote run FILE {workflow}`")));
    }
    let workers: Vec<StoredWorker> = all.into_iter().map(StoredWorker::new).collect::<Result<_, _>>()?;
    if chosen.workers.is_empty() {
        return Ok(workers);
    }
    let mut named = Vec::new();
    for text in &chosen.workers {
        let address = parse_address(text)?;
        let found = workers.iter().find(|worker| worker.address == address).cloned();
        named.push(found.ok_or_else(|| {
            CliError::not_found(format!("workflow {workflow} has no worker {text}"))
                .hint(format!("`torc remote list-workers {workflow}` lists the workers"))
        })?);
    }
    Ok(named)
}

/// The response of one worker, or the reason why there is none.
type WorkerAnswer<T> = (StoredWorker, Result<T, WorkerError>);

/// Returns the error for workers that failed, with their advice as hints.
fn partly_failed(failed: &[(String, WorkerError)], of: usize, what: &str, again: &str) -> CliError {
    let unreachable = failed.iter().any(|(_, trouble)| trouble.unreachable);
    let kind = if unreachable { ExitStatus::Unreachable } else { ExitStatus::Refused };
    let message = format!("could not {what} {} of {}", failed.len(), human::count(count(of), "worker"));
    let lines = failed.iter().map(|(worker, trouble)| format!("  {worker}: {}", trouble.reason));
    let mut error = CliError::new(kind, message).lines(lines);
    let mut advice: Vec<&str> = failed.iter().map(|(_, trouble)| trouble.advice.as_str()).collect();
    advice.sort_unstable();
    advice.dedup();
    for line in advice {
        error = error.hint(line);
    }
    error.hint(again)
}

#[cfg(test)]
mod tests {

    use super::*;

    // J04
    #[test]
    fn the_program_typed_now_wins_over_the_one_that_is_kept() {
        let kept =
            |program: Option<&str>| RemoteWorker { remote_torc: program.map(str::to_owned), ..RemoteWorker::default() };
        for (typed, stored, expected) in [
            (None, None, "torc"),
            (None, Some("/opt/torc"), "/opt/torc"),
            (Some("~/torc"), None, "~/torc"),
            (Some("~/torc"), Some("/opt/torc"), "~/torc"),
        ] {
            assert_eq!(program_of(typed, &kept(stored)), expected, "{typed:?}, {stored:?}");
        }
    }

    #[test]
    fn workers_that_failed_decide_the_exit_code() {
        let trouble = |unreachable| WorkerError { unreachable, reason: "r".to_owned(), advice: "a".to_owned() };
        let failed = |all: &[bool]| -> Vec<(String, WorkerError)> {
            all.iter().map(|one| ("n".to_owned(), trouble(*one))).collect()
        };
        for (all, code) in
            [(&[true][..], 6), (&[false], 7), (&[false, true], 6), (&[true, false], 6), (&[false, false], 7)]
        {
            let error = partly_failed(&failed(all), 5, "start", "again");
            assert_eq!(error.kind.code(), code, "{all:?}");
            assert_eq!(error.message, format!("could not start {} of 5 workers", all.len()));
            assert_eq!(error.lines.len(), all.len());
            assert_eq!(error.hints, ["a", "again"], "the same advice is given once");
        }
        for (text, accepted) in [("0", false), ("1", true), ("x", false)] {
            assert_eq!(parse_positive(text).is_ok(), accepted, "{text}");
        }
        assert_eq!(parse_address("@").expect_err("no worker").kind, ExitStatus::InvalidInput);
    }
}
