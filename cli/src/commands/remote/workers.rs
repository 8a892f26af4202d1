//! The workers of a workflow.

use std::io::Read as _;
use std::path::Path;

use torc_api::api::RunnerStatus;
use torc_api::remote::{RemoteWorker, WorkerAddress, WorkerList, parse_workers};

use super::{SshArgs, count, parse_address};
use crate::client::Client;
use crate::connection::{bare_name, explain_missing, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;
use crate::remote::worker_status::runner_of;

/// Adds workers from the command line.
pub async fn add(
    context: &CommandContext,
    ssh: &SshArgs,
    workflow: &str,
    workers: &[String],
) -> Result<ExitStatus, CliError> {
    let mut list = WorkerList::default();
    for text in workers {
        let address = parse_address(text)?;
        if list.workers.contains(&address) {
            context.output.warning(&format!("{address} is listed more than once"));
        } else {
            list.workers.push(address);
        }
    }
    add_all(context, ssh, workflow, &list.workers).await
}

/// Adds the workers in a file.
pub async fn add_file(
    context: &CommandContext,
    ssh: &SshArgs,
    workflow: &str,
    file: &Path,
) -> Result<ExitStatus, CliError> {
    let workers = read(context, file)?;
    add_all(context, ssh, workflow, &workers).await
}

async fn add_all(
    context: &CommandContext,
    ssh: &SshArgs,
    workflow: &str,
    workers: &[WorkerAddress],
) -> Result<ExitStatus, CliError> {
    let workflow = bare_name(workflow);
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let known = client.remote_workers(workflow).await.map_err(explain_missing)?;
        for worker in workers.iter().map(WorkerAddress::to_string) {
            if known.iter().any(|known| known.address == worker) {
                context.output.warning(&format!("the workflow already has {worker}"));
            }
        }
        let added = workers.iter().map(|worker| kept(worker, None, ssh.remote_torc.clone()));
        let all = client.add_remote_workers(workflow, added.collect()).await?;
        let added = all.len() - known.len();
        let text = format!("{} added, {} in total", human::count(count(added), "worker"), all.len());
        context.output.progress(&text);
        context.output.list(&all)
    })
    .await?;
    Ok(ExitStatus::Success)
}

/// Returns a worker in the form that the server stores.
pub fn kept(worker: &WorkerAddress, folder: Option<String>, remote_torc: Option<String>) -> RemoteWorker {
    RemoteWorker { address: worker.to_string(), folder, remote_torc, creation_time: None }
}

/// Reads the workers in a file. The error lists all invalid lines.
pub fn read(context: &CommandContext, file: &Path) -> Result<Vec<WorkerAddress>, CliError> {
    let (text, name) = if file == Path::new("-") {
        let mut text = String::new();
        (std::io::stdin().read_to_string(&mut text).map(|_| text), "standard input".to_owned())
    } else {
        (std::fs::read_to_string(file), file.display().to_string())
    };
    let text = text.map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let kind = if missing { ExitStatus::NotFound } else { ExitStatus::InvalidInput };
        CliError::new(kind, format!("could not read the workers in {name}"))
            .because(error)
            .hint("write one worker per line: [user@]host[:port]")
    })?;
    let list = parse_workers(&text);
    for (line, worker) in &list.repeated {
        context.output.warning(&format!("{name}:{line}: {worker} is listed more than once"));
    }
    if !list.wrong.is_empty() {
        let lines = list.wrong.iter().map(|(line, text, error)| format!("{name}:{line}: '{text}': {error}"));
        return Err(CliError::invalid(format!("{name} contains invalid workers")).lines(lines));
    }
    if list.workers.is_empty() {
        return Err(CliError::invalid(format!("{name} contains no worker"))
            .hint("write one worker per line: [user@]host[:port]"));
    }
    Ok(list.workers)
}

pub async fn remove(
    context: &CommandContext,
    workflow: &str,
    worker: &str,
    force: bool,
) -> Result<ExitStatus, CliError> {
    let (workflow, address) = (bare_name(workflow), parse_address(worker)?.to_string());
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let known = client.remote_workers(workflow).await.map_err(explain_missing)?;
        let runners = client.runners(false).await?;
        let is_active = known
            .iter()
            .filter(|known| known.address == address)
            .filter_map(|known| runner_of(known, &runners))
            .any(|runner| runner.status == RunnerStatus::Active);
        if is_active && !force {
            return Err(CliError::new(ExitStatus::Refused, format!("the runner of {address} is active"))
                .hint(format!("stop it first: torc remote stop {workflow} {address}"))
                .hint("or pass --force; the runner then continues until the workflow has settled"));
        }
        client.remove_remote_worker(workflow, &address).await?;
        context.output.note(&format!("{address} removed"))
    })
    .await?;
    Ok(ExitStatus::Success)
}

/// Lists the workers of a workflow.
pub async fn list(context: &CommandContext, workflow: &str) -> Result<ExitStatus, CliError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let workers = client.remote_workers(bare_name(workflow)).await.map_err(explain_missing)?;
        context.output.list(&workers)
    })
    .await?;
    Ok(ExitStatus::Success)
}
