//! Logs of the workers: copied to this machine, or deleted on the workers.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::rows::LogsRow;
use super::status::query_workers;
use super::{SshArgs, StoredWorker, WorkerAnswer, WorkerSelection, chosen_workers, partly_failed};
use crate::client::Client;
use crate::connection::with_client;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;
use crate::remote::parallel;
use crate::remote::request::{LOGS, RequestOutcome, WorkerRequest};
use crate::remote::ssh::{Ssh, WorkerError};

/// Copies the logs of every worker into a folder of its own.
pub async fn collect(
    context: &CommandContext,
    ssh_args: &SshArgs,
    chosen: &WorkerSelection,
    output_dir: &Path,
    delete: bool,
) -> Result<ExitStatus, CliError> {
    let into = context.folder.join(output_dir);
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let workers: Vec<StoredWorker> = started(chosen_workers(client, chosen).await?);
        let of = workers.len();
        let work = |worker: StoredWorker| {
            let folder = into.join(worker.address.file_name());
            copy_logs(ssh_args.ssh(context, &worker.kept), worker, folder)
        };
        let answers: Vec<WorkerAnswer<PathBuf>> =
            parallel::for_each(workers, ssh_args.max_parallel_ssh, work, |number, (worker, answer)| {
                let text = match answer {
                    Ok(folder) => format!("in {}", folder.display()),
                    Err(trouble) => trouble.reason.clone(),
                };
                context.output.progress(&format!("[{number}/{of}] {}: {text}", worker.address));
            })
            .await;
        let copied_from: Vec<StoredWorker> =
            answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(worker, _)| worker.clone()).collect();
        let rows: Vec<LogsRow> = answers.iter().map(|(worker, answer)| row(worker, answer)).collect();
        let mut failed = failures(answers);
        if delete {
            failed.extend(failures(delete_on(context, ssh_args, copied_from).await));
        }
        context.output.list(&rows)?;
        conclude(&failed, of, "collect the logs of")
    })
    .await
}

/// Returns the workers that have been started. The others have no logs.
fn started(workers: Vec<StoredWorker>) -> Vec<StoredWorker> {
    workers.into_iter().filter(|worker| worker.kept.folder.is_some()).collect()
}

fn failures<T>(answers: Vec<WorkerAnswer<T>>) -> Vec<(String, WorkerError)> {
    answers.into_iter().filter_map(|(worker, answer)| Some((worker.address.to_string(), answer.err()?))).collect()
}

fn conclude(failed: &[(String, WorkerError)], of: usize, what: &str) -> Result<ExitStatus, CliError> {
    if failed.is_empty() {
        return Ok(ExitStatus::Success);
    }
    Err(partly_failed(failed, of, what, "fix the problem and run the same command again"))
}

fn row(worker: &StoredWorker, answer: &Result<PathBuf, WorkerError>) -> LogsRow {
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

async fn copy_logs(ssh: Ssh, worker: StoredWorker, into: PathBuf) -> WorkerAnswer<PathBuf> {
    let folder = PathBuf::from(worker.kept.folder.clone().unwrap_or_default());
    let answer = fetch(&ssh, &worker, folder, &into).await.map(|()| into);
    (worker, answer)
}

async fn fetch(ssh: &Ssh, worker: &StoredWorker, folder: PathBuf, into: &Path) -> Result<(), WorkerError> {
    let failed = |error: io::Error| WorkerError {
        unreachable: false,
        reason: format!("could not write to {}: {error}", into.display()),
        advice: "free disk space, or set another folder with --output-dir".to_owned(),
    };
    std::fs::create_dir_all(into).map_err(failed)?;
    let archive = tempfile::tempfile_in(into).map_err(failed)?;
    let to = archive.try_clone().map_err(failed)?;
    ssh.fetch(&worker.address, &WorkerRequest::SendLogs { folder }, to).await?;
    let target = into.to_owned();
    let unpacked = tokio::task::spawn_blocking(move || unpack(archive, &target)).await;
    unpacked.map_err(io::Error::other).and_then(|result| result).map_err(failed)
}

/// Unpacks the archive after its marker line. A login shell may print text before it.
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
    if status.success() { copied } else { Err(io::Error::other(format!("tar failed: {status}"))) }
}

/// Deletes the logs on the workers after a confirmation.
pub async fn delete(
    context: &CommandContext,
    ssh: &SshArgs,
    chosen: &WorkerSelection,
    yes: bool,
) -> Result<ExitStatus, CliError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let workers = started(chosen_workers(client, chosen).await?);
        let of = workers.len();
        if !yes && !confirm(context, of)? {
            return Err(CliError::new(ExitStatus::Refused, "nothing was deleted").hint("confirm with --yes"));
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
        conclude(&failures(answers), of, "delete the logs of")
    })
    .await
}

/// Deletes the logs on the workers. Returns the number of deleted files for each.
async fn delete_on(context: &CommandContext, ssh: &SshArgs, workers: Vec<StoredWorker>) -> Vec<WorkerAnswer<u64>> {
    let answers = query_workers(context, ssh, workers, &|folder| WorkerRequest::DeleteLogs { folder }, |_, _| {}).await;
    answers
        .into_iter()
        .map(|(worker, answer)| {
            let files = |outcome| if let RequestOutcome::Deleted { files } = outcome { files } else { 0 };
            (worker, answer.map(|report| report.map_or(0, |report| files(report.outcome))))
        })
        .collect()
}

fn confirm(context: &CommandContext, workers: usize) -> Result<bool, CliError> {
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
