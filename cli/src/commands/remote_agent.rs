//! `torc remote-agent`: what `torc remote` starts on a worker, never a person.

use std::io::Read as _;

use clap::Args;

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::remote::agent;
use crate::remote::request::{LOGS, REPORT, WorkerRequest};

/// Carries out one order from standard input.
#[derive(Debug, Args)]
pub struct RemoteAgentArgs {}

/// Runs the verb.
pub async fn run(context: &CommandContext) -> Result<ExitStatus, CliError> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| CliError::unexpected("could not read the order", error))?;
    let order: WorkerRequest = serde_json::from_str(&text).map_err(|error| {
        CliError::invalid("this is no order of this version").because(error).hint("`torc remote` starts it by itself")
    })?;
    if let WorkerRequest::SendLogs { folder } = &order {
        context.output.raw(format!("{LOGS}\n").as_bytes())?;
        agent::send_logs(folder).map_err(|error| CliError::unexpected("could not send the logs", error))?;
        return Ok(ExitStatus::Success);
    }
    let report = agent::execute(order).await;
    let line = serde_json::to_string(&report).map_err(|error| CliError::unexpected("could not report", error))?;
    context.output.raw(format!("{REPORT}{line}\n").as_bytes())?;
    Ok(ExitStatus::Success)
}
