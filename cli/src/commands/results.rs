//! `torc results`: the attempts that ended, grouped as Torc 1.0 grouped them; a spelling of `torc get results`.

use clap::{Args, Subcommand};
use torc_api::state::JobState;

use super::get;
use super::get::{GetArgs, parse_state};
use crate::context::Context;
use crate::error::{CommandError, ExitStatus};

/// Results: list them, as in Torc 1.0.
#[derive(Debug, Args)]
pub struct ResultsArgs {
    #[command(subcommand)]
    pub command: ResultsCommand,
}

/// What can be done with results; each is described where its arguments are.
#[derive(Debug, Subcommand)]
pub enum ResultsCommand {
    List(ResultListArgs),
}

/// List the latest result of each job.
///
/// `torc get results` lists every attempt, as --all-runs does here.
#[derive(Debug, Args)]
pub struct ResultListArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Only those that did not succeed.
    #[arg(long)]
    pub failed: bool,
    /// Only with this exit code, e.g. 137.
    #[arg(long, value_name = "CODE", allow_negative_numbers = true)]
    pub return_code: Option<i32>,
    /// Only in these states, e.g. `failed,terminated`.
    #[arg(short = 's', long, value_delimiter = ',', value_name = "STATES", value_parser = parse_state)]
    pub status: Vec<JobState>,
    /// Only of this job, by name or number.
    #[arg(short = 'j', long, value_name = "JOB")]
    pub job: Option<String>,
    /// Every attempt of every run.
    #[arg(long)]
    pub all_runs: bool,
    /// At most so many.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// Runs the group.
pub async fn run(context: &Context, args: ResultsArgs) -> Result<ExitStatus, CommandError> {
    let ResultsCommand::List(args) = args.command;
    get::run(context, &list(args)).await
}

fn list(args: ResultListArgs) -> GetArgs {
    GetArgs {
        resource: "results".to_owned(),
        workflow: args.workflow,
        failed: args.failed,
        return_code: args.return_code,
        status: args.status,
        job: args.job,
        latest: !args.all_runs,
        limit: args.limit,
        ..GetArgs::default()
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_list_of_results_asks_for_what_was_typed() {
        let args = |all_runs| ResultListArgs {
            workflow: Some("w".to_owned()),
            failed: true,
            return_code: Some(-1),
            status: vec![JobState::Failed],
            job: Some("j".to_owned()),
            all_runs,
            limit: Some(3),
        };
        let found = list(args(false));
        assert_eq!(
            (found.resource.as_str(), found.workflow.as_deref(), found.job.as_deref()),
            ("results", Some("w"), Some("j"))
        );
        assert_eq!(
            (found.failed, found.return_code, found.status, found.limit),
            (true, Some(-1), vec![JobState::Failed], Some(3))
        );
        assert_eq!((found.latest, list(args(true)).latest), (true, false));
    }
}
