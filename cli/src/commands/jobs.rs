//! `torc jobs`: the verbs on jobs, grouped as Torc 1.0 grouped them. Each is a spelling of a verb that has its own file.

mod decide;

use clap::{Args, Subcommand};
use torc_api::recovery::FailureClass;
use torc_api::state::JobState;

use super::describe::DescribeArgs;
use super::get::{GetArgs, parse_state};
use super::{describe, get};
use crate::context::Context;
use crate::error::{CommandError, ExitStatus};

/// Jobs: list and show them, and decide about those that wait for that.
#[derive(Debug, Args)]
pub struct JobsArgs {
    #[command(subcommand)]
    pub command: JobsCommand,
}

/// What can be done with jobs; each is described where its arguments are.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    List(JobListArgs),
    Get(JobArgs),
    Retry(decide::RetryArgs),
    Fail(decide::FailArgs),
}

/// List jobs, as `torc get jobs`.
#[derive(Debug, Args)]
pub struct JobListArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Only in these states, e.g. `failed,terminated`.
    #[arg(short = 's', long, value_delimiter = ',', value_name = "STATES", value_parser = parse_state)]
    pub status: Vec<JobState>,
    /// Only names that contain this.
    #[arg(long, value_name = "TEXT")]
    pub contains: Option<String>,
    /// Go on printing what changes.
    #[arg(short = 'w', long)]
    pub watch: bool,
    /// At most so many.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// Show one job in detail, as `torc describe job`.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// The job, by name or number.
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Its workflow, by name or number; may be left out where the store holds one.
    #[arg(short = 'w', long, value_name = "WORKFLOW")]
    pub workflow: Option<String>,
}

/// Runs the group.
pub async fn run(context: &Context, args: JobsArgs) -> Result<ExitStatus, CommandError> {
    match args.command {
        JobsCommand::List(args) => get::run(context, &list(args)).await,
        JobsCommand::Get(args) => describe::run(context, &one(args)).await,
        JobsCommand::Retry(args) => decide::run(context, &args.jobs, FailureClass::Retry).await,
        JobsCommand::Fail(args) => decide::run(context, &args.jobs, FailureClass::Fail).await,
    }
}

fn list(args: JobListArgs) -> GetArgs {
    GetArgs {
        resource: "jobs".to_owned(),
        workflow: args.workflow,
        status: args.status,
        contains: args.contains,
        watch: args.watch,
        limit: args.limit,
        ..GetArgs::default()
    }
}

fn one(args: JobArgs) -> DescribeArgs {
    DescribeArgs { resource: "job".to_owned(), name: Some(args.job), workflow: args.workflow }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_list_of_jobs_asks_for_what_was_typed() {
        let args = JobListArgs {
            workflow: Some("w".to_owned()),
            status: vec![JobState::Failed],
            contains: Some("c".to_owned()),
            watch: true,
            limit: Some(3),
        };
        let found = list(args);
        assert_eq!(
            (found.resource.as_str(), found.workflow.as_deref(), found.contains.as_deref()),
            ("jobs", Some("w"), Some("c"))
        );
        assert_eq!((found.status, found.watch, found.limit, found.job), (vec![JobState::Failed], true, Some(3), None));
        let shown = one(JobArgs { job: "j".to_owned(), workflow: Some("w".to_owned()) });
        assert_eq!(
            (shown.resource.as_str(), shown.name.as_deref(), shown.workflow.as_deref()),
            ("job", Some("j"), Some("w"))
        );
    }
}
