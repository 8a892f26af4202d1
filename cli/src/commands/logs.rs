//! `torc logs`: print the output of a job.

mod remote;
mod tail;

pub use remote::serve_logs;
pub use tail::last_lines_of;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use torc_api::api::{Job, JobResult};
use torc_api::filter::ResultFilter;
use torc_api::state::JobState;
use torc_api::wire::AttemptKey;
use torc_runner::packs;

use crate::client::Client;
use crate::connection::{ServerConnection, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::use_cases::interrupts::Interrupts;
use remote::RemoteTail;
use tail::TailPrinter;

/// Print the output of a job
///
/// Prints both streams of the latest attempt by default. A job without output has no log.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Job by name or number; also `job/NAME`
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Workflow by name or number (default: the only one in the store)
    #[arg(short = 'w', long, value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Attempt to print (default: the latest)
    #[arg(long, value_name = "N")]
    pub attempt: Option<i32>,
    /// Run to print (default: the latest)
    #[arg(long, value_name = "N")]
    pub run: Option<i32>,
    /// Print only standard output
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Print only standard error
    #[arg(long)]
    pub stderr: bool,
    /// Print new output until the attempt ends
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// Print only the last lines (default: all)
    #[arg(long, value_name = "LINES")]
    pub tail: Option<usize>,
}

/// Interval at which local log files are read.
const LOCAL_READ_INTERVAL: Duration = Duration::from_millis(200);
/// Interval at which logs are read through the server. It is longer because each read costs a request to the runner.
const REMOTE_READ_INTERVAL: Duration = Duration::from_secs(1);

/// An attempt and the files of its output.
#[derive(Debug, PartialEq, Eq)]
struct LoggedAttempt {
    job: String,
    run: i32,
    attempt: i32,
    files: Vec<PathBuf>,
    ended: bool,
    /// The workflow by name or number.
    workflow: String,
}

pub async fn run(context: &CommandContext, args: &LogsArgs) -> Result<ExitStatus, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let mut tail = TailPrinter::new(args.tail);
    let mut remote_tail = RemoteTail::new(args.tail);
    let mut target: Option<(i32, i32)> = None;
    loop {
        let attempt = tokio::select! {
            attempt = find(context, args, target) => attempt?,
            () = interrupts.next() => return Ok(ExitStatus::Interrupted),
        };
        target = Some((attempt.run, attempt.attempt));
        if context.in_cluster {
            tokio::select! {
                printed = print_remote(context, &mut remote_tail, &attempt) => printed?,
                () = interrupts.next() => return Ok(ExitStatus::Interrupted),
            }
        } else {
            tail.print(&attempt.files, context.output)?;
        }
        if !args.follow || attempt.ended {
            return match tail.has_printed() || remote_tail.has_printed() {
                true => Ok(ExitStatus::Success),
                false => report_no_output(context, &attempt),
            };
        }
        tokio::select! {
            () = tokio::time::sleep(if context.in_cluster { REMOTE_READ_INTERVAL } else { LOCAL_READ_INTERVAL }) => {}
            () = interrupts.next() => return Ok(ExitStatus::Interrupted),
        }
    }
}

/// Prints new output from the disk of a runner on another machine.
async fn print_remote(
    context: &CommandContext,
    remote_tail: &mut RemoteTail,
    attempt: &LoggedAttempt,
) -> Result<(), CliError> {
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let printed = remote_tail.print(connection.client(), attempt, context.output).await;
    connection.close().await;
    printed
}

fn report_no_output(context: &CommandContext, attempt: &LoggedAttempt) -> Result<ExitStatus, CliError> {
    let so_far = if attempt.ended { "" } else { " so far" };
    let message_without_output = format!("attempt {} of {} has no output{so_far}", attempt.attempt, attempt.job);
    if context.in_cluster {
        context.output.progress(&message_without_output);
        return Ok(ExitStatus::Success);
    }
    let is_there = |file: &&PathBuf| match file.to_str().and_then(packs::parse_reference) {
        Some((pack, _)) => pack.exists(),
        None => file.exists(),
    };
    let absent = attempt.files.iter().filter(|file| !is_there(file));
    let missing: Vec<String> = absent.map(|file| file.display().to_string()).collect();
    if attempt.ended && !missing.is_empty() {
        let message = format!("the log does not exist on this machine: {}", missing.join(", "));
        return Err(CliError::not_found(message).hint("it may have been deleted, or be on the disk of another machine"));
    }
    context.output.progress(&message_without_output);
    Ok(ExitStatus::Success)
}

async fn find(
    context: &CommandContext,
    args: &LogsArgs,
    target: Option<(i32, i32)>,
) -> Result<LoggedAttempt, CliError> {
    // The store is opened for each read only, so that other processes can run it.
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let found = find_with(connection.client(), args, target).await;
    connection.close().await;
    found
}

async fn find_with(client: &Client, args: &LogsArgs, target: Option<(i32, i32)>) -> Result<LoggedAttempt, CliError> {
    let workflow = resolve_workflow(client, args.workflow.as_deref()).await?;
    let name = args.job.strip_prefix("job/").unwrap_or(&args.job);
    let job = client.job(&workflow, name).await.map_err(explain_missing)?;
    let filter = ResultFilter { job: Some(job.id.to_string()), ..ResultFilter::default() };
    let results = client.results(&workflow, &filter, None).await?;
    let wanted = target.or_else(|| choose(args, &job, &results)).ok_or_else(|| never_ran(args, &job))?;
    if let Some(result) = results.iter().find(|result| (result.run_id, result.attempt) == wanted) {
        return Ok(of_result(args, workflow, result));
    }
    if (job.run_id, job.attempt) != wanted || job.status != JobState::Running {
        if target.is_some() && (job.run_id, job.attempt) == wanted {
            return Ok(LoggedAttempt {
                workflow,
                job: job.name,
                run: wanted.0,
                attempt: wanted.1,
                files: Vec::new(),
                ended: false,
            });
        }
        return Err(never_ran(args, &job));
    }
    let id = client.workflow(&workflow).await?.id;
    let runners = client.runners(true).await?;
    let folder = runners.iter().find(|runner| Some(runner.id) == job.runner).map(|runner| runner.output_dir.clone());
    let files = folder.map(|folder| live_files(args, &folder, id, &job)).unwrap_or_default();
    Ok(LoggedAttempt { workflow, job: job.name, run: wanted.0, attempt: wanted.1, files, ended: false })
}

/// Returns the selected attempt as (run, attempt).
fn choose(args: &LogsArgs, job: &Job, results: &[JobResult]) -> Option<(i32, i32)> {
    let running = (job.status == JobState::Running).then_some((job.run_id, job.attempt));
    results
        .iter()
        .map(|result| (result.run_id, result.attempt))
        .chain(running)
        .filter(|(run, attempt)| {
            args.run.is_none_or(|wanted| wanted == *run) && args.attempt.is_none_or(|wanted| wanted == *attempt)
        })
        .max()
}

fn never_ran(args: &LogsArgs, job: &Job) -> CliError {
    let message = match args.attempt {
        Some(attempt) => format!("attempt {attempt} of job `{}` has not run", job.name),
        None => format!("job `{}` has not run: it is {}", job.name, job.status),
    };
    CliError::not_found(message)
}

fn of_result(args: &LogsArgs, workflow: String, result: &JobResult) -> LoggedAttempt {
    let out = result.stdout.iter().filter(|_| !args.stderr);
    let err = result.stderr.iter().filter(|_| !args.stdout);
    let mut files: Vec<PathBuf> = out.chain(err).map(PathBuf::from).collect();
    files.dedup();
    LoggedAttempt { workflow, job: result.job.clone(), run: result.run_id, attempt: result.attempt, files, ended: true }
}

/// Returns the names of the log files of a running job.
fn live_files(args: &LogsArgs, output_dir: &str, workflow: i64, job: &Job) -> Vec<PathBuf> {
    let key = AttemptKey { workflow, job: job.id, run: job.run_id, attempt: job.attempt, lease_id: 0 };
    let [out, err, both] = key.log_files(output_dir);
    let wanted = [(!args.stderr, out), (!args.stdout, err), (true, both)];
    wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, file)| PathBuf::from(file)).collect()
}

#[cfg(test)]
mod tests;
