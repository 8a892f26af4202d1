//! `torc spawn`: add jobs to the workflow of the calling job.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use torc_api::data::{SpawnRequest, SpawnResponse};

use crate::client::Client;
use crate::connection::explain_missing;
use crate::context::CommandContext;
use crate::documents;
use crate::error::{CliError, ExitStatus};
use crate::output::human;
use crate::use_cases::inside_job::{CallerAttempt, with_server};

/// Add jobs to the workflow of the calling job
///
/// The new jobs depend on the calling job. A repeated call adds nothing; an empty list ends the loop.
#[derive(Debug, Args)]
pub struct SpawnArgs {
    /// Loop that the jobs belong to
    #[arg(long, value_name = "NAME")]
    pub lineage: String,
    /// File with `jobs:` as in a workflow, or `-` for standard input
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        required_unless_present = "converged",
        conflicts_with = "converged"
    )]
    pub file: Option<PathBuf>,
    /// End the loop
    #[arg(long)]
    pub converged: bool,
    /// State of the loop as JSON; jobs read it as user data
    #[arg(long, value_name = "JSON", value_parser = parse_state, allow_hyphen_values = true)]
    pub state: Option<Value>,
}

fn parse_state(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("invalid JSON: {error}"))
}

pub async fn run(context: &CommandContext, args: &SpawnArgs) -> Result<ExitStatus, CliError> {
    let own = CallerAttempt::of_this_process().ok_or_else(|| {
        CliError::usage("only a running job can spawn jobs")
            .hint("call it in the command of a job, where Torc sets TORC_JOB_ID and the other variables")
    })?;
    let jobs = match &args.file {
        Some(file) => documents::read_jobs(file)?,
        None => Vec::new(),
    };
    let request = SpawnRequest {
        lineage: args.lineage.clone(),
        jobs,
        state: args.state.clone(),
        run_id: own.run,
        attempt: own.attempt,
    };
    let response = with_server(context, async |client: &Client| {
        client.spawn(&own.workflow, &own.job, &request).await.map_err(explain_missing)
    })
    .await?;
    context.output.value(&response, || describe(&response))?;
    Ok(ExitStatus::Success)
}

fn describe(response: &SpawnResponse) -> String {
    let SpawnResponse { lineage, generation, .. } = response;
    if response.converged {
        format!("loop {lineage} has converged after {}\n", human::count(*generation, "generation"))
    } else if response.replayed {
        format!("loop {lineage}: the jobs already exist\n")
    } else {
        format!("loop {lineage}: {} added as generation {generation}\n", human::count(response.jobs, "job"))
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn what_became_of_a_loop_is_told() {
        let response = |converged, replayed| SpawnResponse {
            lineage: "l".to_owned(),
            generation: 2,
            jobs: 3,
            converged,
            replayed,
        };
        assert_eq!(describe(&response(true, true)), "loop l has converged after 2 generations\n");
        assert_eq!(describe(&response(false, true)), "loop l: the jobs already exist\n");
        assert_eq!(describe(&response(false, false)), "loop l: 3 jobs added as generation 2\n");
        assert_eq!(parse_state("-1"), Ok(serde_json::json!(-1)));
        assert!(parse_state("{").is_err());
    }
}
