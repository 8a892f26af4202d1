//! `torc remote-agent`: the program that `torc remote` starts on a worker.

use std::io::Read as _;

use clap::Args;

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::remote::agent;
use crate::remote::request::{LOGS, REPORT, WorkerRequest};

/// Execute one request from standard input; started by `torc remote`
#[derive(Debug, Args)]
pub struct RemoteAgentArgs {}

pub async fn run(context: &CommandContext) -> Result<ExitStatus, CliError> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| CliError::unexpected("could not read the request", error))?;
    let request: WorkerRequest = serde_json::from_str(&text).map_err(|error| {
        CliError::invalid("the request has an unknown format")
            .because(error)
            .hint("use `torc remote` of the same version instead")
    })?;
    if let WorkerRequest::SendLogs { folder } = &request {
        context.output.raw(format!("{LOGS}\n").as_bytes())?;
        agent::send_logs(folder).map_err(|error| CliError::unexpected("could not send the logs", error))?;
        return Ok(ExitStatus::Success);
    }
    let report = agent::execute(request).await;
    let line =
        serde_json::to_string(&report).map_err(|error| CliError::unexpected("could not encode the response", error))?;
    context.output.raw(format!("{REPORT}{line}\n").as_bytes())?;
    Ok(ExitStatus::Success)
}
