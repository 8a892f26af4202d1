//! `torc slurm stats`: what Slurm's accounting said of a workflow's steps.

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

/// What Slurm's accounting said of a workflow's steps, one line an attempt.
///
/// `torc get results` shows the same merged with what was measured while they ran.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Only of this job, by name or number.
    #[arg(short = 'j', long, value_name = "JOB", visible_alias = "job-id")]
    pub job: Option<String>,
    /// Only of this run.
    #[arg(long, value_name = "N", visible_alias = "run-id")]
    pub run: Option<i32>,
    /// Only of this attempt.
    #[arg(long, value_name = "N", visible_alias = "attempt-id")]
    pub attempt: Option<i32>,
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatsRow {
    /// The job's name.
    pub job_name: String,
    /// What the accounting said.
    #[serde(flatten)]
    pub stats: SlurmStats,
}

/// Runs the verb.
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
