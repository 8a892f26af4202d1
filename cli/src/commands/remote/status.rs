//! Shows the state of workers, and stops their runners.

use std::path::PathBuf;
use std::time::Duration;

use super::rows::OrderRow;
use super::run::{accepted, outcome_word, row};
use super::{SshArgs, StoredWorker, WorkerAnswer, WorkerSelection, chosen_workers, partly_failed};
use crate::client::Client;
use crate::connection::with_client;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::remote::parallel;
use crate::remote::request::{RequestOutcome, WorkerRequest, WorkerResponse};
use crate::remote::ssh::WorkerError;
use crate::remote::worker_status::{WorkerStatus, worker_status};

/// Prints the state of the workers.
pub async fn status(context: &CommandContext, ssh: &SshArgs, chosen: &WorkerSelection) -> Result<ExitStatus, CliError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let workers = chosen_workers(client, chosen).await?;
        let answers = query_workers(context, ssh, workers, &|folder| WorkerRequest::Look { folder }, |_, _| {}).await;
        // The server is read after the workers, so that its data is not older than theirs.
        let runners = client.runners(true).await?;
        let statuses: Vec<WorkerStatus> =
            answers.iter().map(|(worker, answer)| worker_status(&worker.kept, answer, &runners)).collect();
        context.output.list(&statuses)
    })
    .await?;
    Ok(ExitStatus::Success)
}

/// Sends a request to every worker that has been started. Calls `done` with each response.
pub async fn query_workers(
    context: &CommandContext,
    ssh_args: &SshArgs,
    workers: Vec<StoredWorker>,
    order: &dyn Fn(PathBuf) -> WorkerRequest,
    done: impl FnMut(usize, &WorkerAnswer<Option<WorkerResponse>>),
) -> Vec<WorkerAnswer<Option<WorkerResponse>>> {
    let work = |worker: StoredWorker| {
        let order = worker.kept.folder.as_ref().map(|folder| order(PathBuf::from(folder)));
        let ssh = ssh_args.ssh(context, &worker.kept);
        async move {
            let answer = match order {
                Some(order) => ssh.send(&worker.address, &order).await.and_then(accepted).map(Some),
                None => Ok(None),
            };
            (worker, answer)
        }
    };
    parallel::for_each(workers, ssh_args.max_parallel_ssh, work, done).await
}

pub async fn stop(
    context: &CommandContext,
    ssh: &SshArgs,
    chosen: &WorkerSelection,
    force: bool,
    timeout: Duration,
) -> Result<ExitStatus, CliError> {
    let wait_seconds = timeout.as_secs();
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let workers = chosen_workers(client, chosen).await?;
        let of = workers.len();
        let order = |folder| WorkerRequest::Stop { folder, force, wait_seconds };
        let answers = query_workers(context, ssh, workers, &order, |number, (worker, answer)| {
            let word = match answer {
                Ok(report) => report.as_ref().map_or("never started", outcome_word),
                Err(trouble) => trouble.reason.as_str(),
            };
            context.output.progress(&format!("[{number}/{of}] {}: {word}", worker.address));
        });
        let answers = answers.await;
        let is_late = |answer: &Result<Option<WorkerResponse>, WorkerError>| {
            matches!(answer, Ok(Some(report)) if report.outcome == RequestOutcome::StillRunning)
        };
        let late = answers.iter().filter(|(_, answer)| is_late(answer)).count();
        let ended: Vec<WorkerAnswer<WorkerResponse>> = answers
            .into_iter()
            .filter_map(|(worker, answer)| Some((worker, answer.transpose()?.and_then(has_ended))))
            .collect();
        let rows: Vec<OrderRow> = ended.iter().map(|(worker, answer)| row(worker, answer)).collect();
        context.output.list(&rows)?;
        let failed: Vec<(String, WorkerError)> = ended
            .into_iter()
            .filter_map(|(worker, answer)| Some((worker.address.to_string(), answer.err()?)))
            .collect();
        if failed.is_empty() {
            return Ok(ExitStatus::Success);
        }
        let error = partly_failed(&failed, of, "stop", "fix the problem and run the same command again");
        Err(CliError { kind: if late == failed.len() { ExitStatus::Timeout } else { error.kind }, ..error })
    })
    .await
}

fn has_ended(report: WorkerResponse) -> Result<WorkerResponse, WorkerError> {
    if report.outcome != RequestOutcome::StillRunning {
        return Ok(report);
    }
    Err(WorkerError {
        unreachable: false,
        reason: "its jobs have not ended before the timeout".to_owned(),
        advice: "wait longer with --timeout, or kill them with --force".to_owned(),
    })
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn only_a_runner_that_goes_on_has_not_ended() {
        let report = |outcome| WorkerResponse { host: "h".to_owned(), outcome, runner: None, alive: true };
        for outcome in [RequestOutcome::Stopped, RequestOutcome::NotRunning] {
            assert!(has_ended(report(outcome)).is_ok());
        }
        let late = has_ended(report(RequestOutcome::StillRunning)).expect_err("it goes on");
        assert!(!late.unreachable && late.advice.contains("--timeout"), "{late:?}");
    }
}
