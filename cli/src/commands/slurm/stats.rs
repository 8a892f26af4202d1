//! `torc slurm stats`: list the recorded accounting data of attempts.

use std::collections::HashMap;

use clap::Args;
use serde::Serialize;
use torc_api::filter::{JobFilter, SlurmStatsFilter};
use torc_api::slurm_stats::SlurmStats;

use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::Listing;

/// List the recorded Slurm accounting data of each attempt
///
/// `torc get results` shows the same data merged with the measurements of the runner.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// List only this job, by name or number
    #[arg(short = 'j', long, value_name = "JOB", visible_alias = "job-id")]
    pub job: Option<String>,
    /// List only this run
    #[arg(long, value_name = "N", visible_alias = "run-id")]
    pub run: Option<i32>,
    /// List only this attempt
    #[arg(long, value_name = "N", visible_alias = "attempt-id")]
    pub attempt: Option<i32>,
}

/// The accounting data of one attempt in tables and JSON output.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatsRow {
    /// The name of the job.
    pub job_name: String,
    /// The accounting data of the attempt's step.
    #[serde(flatten)]
    pub stats: SlurmStats,
}

pub async fn run(context: &CommandContext, args: &StatsArgs) -> Result<ExitStatus, CliError> {
    let rows = with_client(&context.settings, &context.folder, async |client: &Client| {
        let workflow = resolve_workflow(client, args.workflow.as_deref()).await?;
        let filter = SlurmStatsFilter {
            job_id: args.job.clone(),
            run_id: args.run,
            attempt_id: args.attempt,
            ..SlurmStatsFilter::default()
        };
        let stats = client.slurm_stats(&workflow, &filter).await.map_err(explain_missing)?;
        let jobs = client.jobs(&workflow, &JobFilter::default(), None).await.map_err(explain_missing)?;
        let names: HashMap<i64, String> = jobs.into_iter().map(|job| (job.id, job.name)).collect();
        let name = |stats: &SlurmStats| names.get(&stats.job).cloned().unwrap_or_else(|| stats.job.to_string());
        Ok(stats.into_iter().map(|stats| StatsRow { job_name: name(&stats), stats }).collect::<Vec<_>>())
    })
    .await?;
    Listing::new(context.output).print(&rows)?;
    Ok(ExitStatus::Success)
}
