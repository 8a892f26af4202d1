//! The Slurm jobs of a workflow and their accounting records.

use std::collections::BTreeSet;

use torc_slurm::accounting::{self, AccountingRecord};
use torc_slurm::exec::Slurm;

use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow};
use crate::error::{CliError, ExitStatus};
use crate::sites::COMMAND_SCHEDULE;
use torc_api::filter::SlurmStatsFilter;

/// A workflow and the Slurm jobs that ran it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmJobs {
    /// The name of the workflow.
    pub workflow: String,
    /// The id of the workflow.
    pub number: i64,
    /// The Slurm job ids, sorted.
    pub ids: Vec<String>,
    /// The output folders of their runners.
    pub output_dirs: Vec<String>,
}

/// Returns the Slurm jobs of the allocations, runners and steps of a workflow.
pub async fn of_workflow(client: &Client, reference: Option<&str>) -> Result<SlurmJobs, CliError> {
    let name = resolve_workflow(client, reference).await?;
    let workflow = client.workflow(&name).await.map_err(explain_missing)?;
    let serves = |served: &Option<String>| {
        served.as_ref().is_some_and(|served| *served == workflow.name || *served == workflow.id.to_string())
    };
    let runners = client.runners(true).await?.into_iter().filter(|runner| serves(&runner.workflow));
    let (mut ids, mut output_dirs) = (BTreeSet::new(), BTreeSet::new());
    for runner in runners {
        output_dirs.extend(Some(runner.output_dir).filter(|folder| !folder.is_empty()));
        ids.extend(runner.slurm_job_id);
    }
    let allocations = client.allocations(Some(&name), None).await?;
    ids.extend(allocations.into_iter().filter_map(|allocation| allocation.slurm_job_id));
    let stats = client.slurm_stats(&name, &SlurmStatsFilter::default()).await?;
    ids.extend(stats.into_iter().filter_map(|stats| stats.slurm_job_id));
    Ok(SlurmJobs {
        workflow: workflow.name,
        number: workflow.id,
        ids: ids.into_iter().collect(),
        output_dirs: output_dirs.into_iter().collect(),
    })
}

/// Returns the accounting records of Slurm jobs.
pub async fn fetch_accounting(jobs: &SlurmJobs) -> Result<Vec<AccountingRecord>, CliError> {
    if jobs.ids.is_empty() {
        let message = format!("workflow {} has not run in Slurm", jobs.workflow);
        return Err(CliError::new(ExitStatus::NotFound, message)
            .hint("`torc get runners --all` lists the runners that have run it"));
    }
    let slurm = Slurm::default().replaced_by(|name| std::env::var(name).ok());
    let answer =
        slurm.query_with_retries(&accounting::ask(jobs.ids.iter().map(String::as_str)), COMMAND_SCHEDULE).await;
    let records = answer.and_then(|answer| accounting::read(&answer.text));
    records.map_err(|trouble| {
        CliError::new(ExitStatus::Unreachable, format!("could not query Slurm accounting: {trouble}"))
            .hint("run this command on a machine with `sacct`, e.g. a login node")
    })
}
