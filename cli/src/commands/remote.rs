//! `torc remote`: run jobs on machines that are reached over SSH.

mod logs;
mod look;
pub mod rows;
mod run;
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

/// Run jobs on machines that are reached over SSH.
///
/// Workers are written `[user@]host[:port]`. The server keeps them with their workflow, so only `run` needs a file, and only
/// once. `torc` has to be installed on every machine, and ssh has to log in without asking.
#[derive(Debug, Args)]
pub struct RemoteArgs {
    #[command(flatten)]
    pub ssh: SshArgs,
    #[command(subcommand)]
    pub command: RemoteCommand,
}

/// What can be done with workers.
#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Add workers to a workflow, without starting anything.
    AddWorkers {
        /// The workflow, by name or number.
        workflow: String,
        /// Workers, e.g. `alice@node1` or `node2:2222`.
        #[arg(required = true, value_name = "WORKER")]
        workers: Vec<String>,
    },
    /// Add the workers of a file to a workflow, without starting anything.
    AddWorkersFromFile {
        /// The workflow, by name or number.
        workflow: String,
        /// A file with a worker a line; `#` begins a comment. `-` is standard input.
        file: PathBuf,
    },
    /// Forget a worker of a workflow.
    RemoveWorker {
        /// The workflow, by name or number.
        workflow: String,
        /// The worker.
        worker: String,
        /// Even if its runner is at work; it goes on until the workflow has settled.
        #[arg(long)]
        force: bool,
    },
    /// List the workers of a workflow.
    ListWorkers {
        /// The workflow, by name or number.
        workflow: String,
    },
    /// Start a runner on every worker that has none, and return.
    ///
    /// The runners go on by themselves and leave when the workflow has settled. Run it again at any time: it starts only
    /// what is not running.
    Run(Box<RunRemoteArgs>),
    /// Say how the workers of a workflow stand.
    Status(ChosenArgs),
    /// End the runners of a workflow and wait until they have.
    ///
    /// Their jobs are asked to end and get the time that the workflow gives them; they can be run again.
    Stop {
        #[command(flatten)]
        chosen: ChosenArgs,
        /// End jobs and runners at once.
        #[arg(long)]
        force: bool,
        /// How long to wait for a runner's end.
        #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::args::parse_duration)]
        timeout: Duration,
    },
    /// Bring the logs of runners and jobs here, into one folder for each worker.
    CollectLogs {
        #[command(flatten)]
        chosen: ChosenArgs,
        /// Where to (-o). Here -o is not the format; that is --output.
        #[arg(long, value_name = "DIR", default_value = "remote_logs")]
        output_dir: PathBuf,
        /// Delete what was brought from the workers.
        #[arg(long)]
        delete: bool,
    },
    /// Delete the logs of runners and jobs on the workers.
    DeleteLogs {
        #[command(flatten)]
        chosen: ChosenArgs,
        /// Do not ask.
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// Which workers, and how to reach them.
#[derive(Debug, Args)]
pub struct ChosenArgs {
    /// The workflow, by name or number.
    pub workflow: String,
    /// Only these workers; all of the workflow's when absent.
    #[arg(value_name = "WORKER")]
    pub workers: Vec<String>,
}

/// What `run` is told.
#[derive(Debug, Args)]
pub struct RunRemoteArgs {
    /// A file with a worker a line, and a workflow: its name, its number or its file. Without the first, the workers that
    /// the workflow has.
    #[arg(required = true, num_args = 1..=2, value_name = "[WORKERS_FILE] WORKFLOW")]
    pub targets: Vec<String>,
    /// The server's address as the workers reach it, where that is not the one used here.
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// The folder on the workers below which logs go (the workflow's when absent).
    #[arg(long, value_name = "DIR")]
    pub remote_dir: Option<PathBuf>,
    /// Make the workflow's folder on workers that do not have it.
    #[arg(long)]
    pub make_folder: bool,
    /// Runners leave when there has been nothing to do for so long, e.g. `10m`.
    #[arg(long, value_name = "TIME", value_parser = crate::args::parse_duration)]
    pub idle_exit: Option<Duration>,
    #[command(flatten)]
    pub runner: RunnerArgs,
}

/// How to reach workers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "SSH")]
pub struct SshArgs {
    /// Talk to so many workers at once.
    #[arg(long, global = true, value_name = "N", default_value_t = 10, value_parser = parse_at_once)]
    pub max_parallel_ssh: usize,
    /// An option for ssh as in its configuration, e.g. `ProxyJump=login1`; may be given several times.
    #[arg(long = "ssh-option", global = true, value_name = "OPTION")]
    pub options: Vec<String>,
    /// The program `torc` on the workers [default: the one named last for the worker, else `torc`].
    #[arg(long, global = true, value_name = "PATH")]
    pub remote_torc: Option<String>,
}

fn parse_at_once(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "must be a number of at least 1".to_owned())
}

impl SshArgs {
    /// Returns the call for one worker: with the program that was typed now, else with the one that the server keeps.
    fn ssh(&self, context: &CommandContext, worker: &RemoteWorker) -> Ssh {
        let program = context.settings.ssh.split_whitespace().map(str::to_owned).collect();
        Ssh { program, options: self.options.clone(), torc: program_of(self.remote_torc.as_deref(), worker) }
    }
}

/// Returns the program `torc` on a worker.
fn program_of(typed: Option<&str>, worker: &RemoteWorker) -> String {
    typed.or(worker.remote_torc.as_deref()).unwrap_or("torc").to_owned()
}

/// Runs the verb.
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
        RemoteCommand::Status(chosen) => look::status(context, ssh, &chosen).await,
        RemoteCommand::Stop { chosen, force, timeout } => look::stop(context, ssh, &chosen, (force, timeout)).await,
        RemoteCommand::CollectLogs { chosen, output_dir, delete } => {
            logs::collect(context, ssh, &chosen, (&output_dir, delete)).await
        }
        RemoteCommand::DeleteLogs { chosen, yes } => logs::delete(context, ssh, &chosen, yes).await,
    }
}

/// A worker that the server keeps, with its address.
#[derive(Clone, Debug)]
struct Worker {
    address: WorkerAddress,
    kept: RemoteWorker,
}

impl Worker {
    fn new(kept: RemoteWorker) -> Result<Self, CliError> {
        Ok(Self { address: parse_address(&kept.address)?, kept })
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn parse_address(text: &str) -> Result<WorkerAddress, CliError> {
    text.parse().map_err(|error| CliError::invalid(format!("'{text}' is no worker: {error}")))
}

/// The workers that are meant: all of the workflow's, or those that were named.
async fn chosen_workers(client: &Client, chosen: &ChosenArgs) -> Result<Vec<Worker>, CliError> {
    let workflow = bare_name(&chosen.workflow);
    let all = client.remote_workers(workflow).await.map_err(explain_missing)?;
    if all.is_empty() {
        return Err(CliError::not_found(format!("workflow {workflow} has no workers"))
            .hint(format!("`torc remote run FILE {workflow}` starts runners on those of a file")));
    }
    let workers: Vec<Worker> = all.into_iter().map(Worker::new).collect::<Result<_, _>>()?;
    if chosen.workers.is_empty() {
        return Ok(workers);
    }
    let mut named = Vec::new();
    for text in &chosen.workers {
        let address = parse_address(text)?;
        let found = workers.iter().find(|worker| worker.address == address).cloned();
        named.push(found.ok_or_else(|| {
            CliError::not_found(format!("workflow {workflow} has no worker {text}"))
                .hint(format!("`torc remote list-workers {workflow}` lists those that it has"))
        })?);
    }
    Ok(named)
}

/// What came of an order to one worker.
type Answer<T> = (Worker, Result<T, WorkerError>);

/// The error of a command that did not do everything: some workers failed, and their advice is what to do next.
fn partly_failed(failed: &[(String, WorkerError)], of: usize, what: &str, again: &str) -> CliError {
    let unreachable = failed.iter().any(|(_, trouble)| trouble.unreachable);
    let kind = if unreachable { ExitStatus::Unreachable } else { ExitStatus::Refused };
    let message = format!("{} of {} could not be {what}", failed.len(), human::count(count(of), "worker"));
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
            let error = partly_failed(&failed(all), 5, "started", "again");
            assert_eq!(error.kind.code(), code, "{all:?}");
            assert_eq!(error.message, format!("{} of 5 workers could not be started", all.len()));
            assert_eq!(error.lines.len(), all.len());
            assert_eq!(error.hints, ["a", "again"], "the same advice is given once");
        }
        for (text, accepted) in [("0", false), ("1", true), ("x", false)] {
            assert_eq!(parse_at_once(text).is_ok(), accepted, "{text}");
        }
        assert_eq!(parse_address("@").expect_err("no worker").kind, ExitStatus::InvalidInput);
    }
}
