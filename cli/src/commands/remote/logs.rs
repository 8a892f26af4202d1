//! Logs of the workers: brought here, or deleted there.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::look::ask_all;
use super::rows::LogsRow;
use super::{Answer, ChosenArgs, SshArgs, Worker, chosen_workers, partly_failed};
use crate::client::Client;
use crate::connection::with_client;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;
use crate::remote::parallel;
use crate::remote::request::{LOGS, RequestOutcome, WorkerRequest};
use crate::remote::ssh::{Ssh, WorkerError};

/// Brings the logs of every worker into a folder of its own.
pub async fn collect(
    context: &CommandContext,
    ssh_args: &SshArgs,
    chosen: &ChosenArgs,
    (output_dir, delete): (&Path, bool),
) -> Result<ExitStatus, CliError> {
    let into = context.folder.join(output_dir);
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let workers: Vec<Worker> = started(chosen_workers(client, chosen).await?);
        let of = workers.len();
        let work = |worker: Worker| {
            let folder = into.join(worker.address.file_name());
            bring(ssh_args.ssh(context, &worker.kept), worker, folder)
        };
        let answers: Vec<Answer<PathBuf>> =
            parallel::for_each(workers, ssh_args.max_parallel_ssh, work, |number, (worker, answer)| {
                let text = match answer {
                    Ok(folder) => format!("in {}", folder.display()),
                    Err(trouble) => trouble.reason.clone(),
                };
                context.output.progress(&format!("[{number}/{of}] {}: {text}", worker.address));
            })
            .await;
        let brought: Vec<Worker> =
            answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(worker, _)| worker.clone()).collect();
        let rows: Vec<LogsRow> = answers.iter().map(|(worker, answer)| row(worker, answer)).collect();
        let mut failed = troubles(answers);
        if delete {
            failed.extend(troubles(delete_on(context, ssh_args, brought).await));
        }
        context.output.list(&rows)?;
        conclude(&failed, of, "collected from")
    })
    .await
}

/// Workers that were ever started; the others have no logs.
fn started(workers: Vec<Worker>) -> Vec<Worker> {
    workers.into_iter().filter(|worker| worker.kept.folder.is_some()).collect()
}

fn troubles<T>(answers: Vec<Answer<T>>) -> Vec<(String, WorkerError)> {
    answers.into_iter().filter_map(|(worker, answer)| Some((worker.address.to_string(), answer.err()?))).collect()
}

fn conclude(failed: &[(String, WorkerError)], of: usize, what: &str) -> Result<ExitStatus, CliError> {
    if failed.is_empty() {
        return Ok(ExitStatus::Success);
    }
    Err(partly_failed(failed, of, what, "then run the same command again"))
}

fn row(worker: &Worker, answer: &Result<PathBuf, WorkerError>) -> LogsRow {
    LogsRow {
        worker: worker.address.to_string(),
        files: answer.as_ref().ok().and_then(|folder| count_files(folder).ok()),
        folder: answer.as_ref().ok().map(|folder| folder.display().to_string()),
        message: answer.as_ref().err().map(|trouble| trouble.reason.clone()).unwrap_or_default(),
    }
}

fn count_files(folder: &Path) -> io::Result<u64> {
    let mut files = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        files += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(files)
}

async fn bring(ssh: Ssh, worker: Worker, into: PathBuf) -> Answer<PathBuf> {
    let folder = PathBuf::from(worker.kept.folder.clone().unwrap_or_default());
    let answer = fetch(&ssh, &worker, folder, &into).await.map(|()| into);
    (worker, answer)
}

async fn fetch(ssh: &Ssh, worker: &Worker, folder: PathBuf, into: &Path) -> Result<(), WorkerError> {
    let failed = |error: io::Error| WorkerError {
        unreachable: false,
        reason: format!("could not write to {}: {error}", into.display()),
        advice: "make room, or name another folder with --output-dir".to_owned(),
    };
    std::fs::create_dir_all(into).map_err(failed)?;
    let archive = tempfile::tempfile_in(into).map_err(failed)?;
    let to = archive.try_clone().map_err(failed)?;
    ssh.fetch(&worker.address, &WorkerRequest::SendLogs { folder }, to).await?;
    let target = into.to_owned();
    let unpacked = tokio::task::spawn_blocking(move || unpack(archive, &target)).await;
    unpacked.map_err(io::Error::other).and_then(|result| result).map_err(failed)
}

/// Unpacks what comes after the line that announces it: a login shell may have said something before.
fn unpack(mut archive: File, into: &Path) -> io::Result<()> {
    archive.rewind()?;
    let mut reader = BufReader::new(archive);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the worker sent no logs"));
        }
        if line.trim_ascii_end() == LOGS.as_bytes() {
            break;
        }
    }
    let mut tar =
        Command::new("tar").arg("-C").arg(into).args(["--no-same-owner", "-xf", "-"]).stdin(Stdio::piped()).spawn()?;
    let copied = match tar.stdin.take() {
        Some(mut stdin) => io::copy(&mut reader.by_ref(), &mut stdin).map(drop),
        None => Ok(()),
    };
    let status = tar.wait()?;
    if status.success() { copied } else { Err(io::Error::other(format!("tar ended with {status}"))) }
}

/// Deletes the logs on the workers, after a question.
pub async fn delete(
    context: &CommandContext,
    ssh: &SshArgs,
    chosen: &ChosenArgs,
    yes: bool,
) -> Result<ExitStatus, CliError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let workers = started(chosen_workers(client, chosen).await?);
        let of = workers.len();
        if !yes && !agreed(context, of)? {
            return Err(CliError::new(ExitStatus::Refused, "nothing was deleted").hint("pass --yes to agree"));
        }
        let answers = delete_on(context, ssh, workers).await;
        let rows: Vec<LogsRow> = answers
            .iter()
            .map(|(worker, answer)| LogsRow {
                worker: worker.address.to_string(),
                files: answer.as_ref().ok().copied(),
                folder: worker.kept.folder.clone(),
                message: answer.as_ref().err().map(|trouble| trouble.reason.clone()).unwrap_or_default(),
            })
            .collect();
        context.output.list(&rows)?;
        conclude(&troubles(answers), of, "rid of their logs")
    })
    .await
}

/// How many files were deleted on each.
async fn delete_on(context: &CommandContext, ssh: &SshArgs, workers: Vec<Worker>) -> Vec<Answer<u64>> {
    let answers = ask_all(context, ssh, workers, &|folder| WorkerRequest::DeleteLogs { folder }, |_, _| {}).await;
    answers
        .into_iter()
        .map(|(worker, answer)| {
            let files = |outcome| if let RequestOutcome::Deleted { files } = outcome { files } else { 0 };
            (worker, answer.map(|report| report.map_or(0, |report| files(report.outcome))))
        })
        .collect()
}

fn agreed(context: &CommandContext, workers: usize) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    context.output.progress(&format!(
        "Delete the logs of runners and jobs on {}? [y/N]",
        human::count(super::count(workers), "machine")
    ));
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| CliError::unexpected("could not read the answer", error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
