//! Which Slurm jobs a workflow has had, and how the accounting is asked about them.

use std::collections::BTreeSet;

use torc_slurm::accounting::{self, AccountingRecord};
use torc_slurm::exec::Slurm;

use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow};
use crate::error::{CliError, ExitStatus};
use crate::sites::COMMAND_SCHEDULE;
use torc_api::filter::SlurmStatsFilter;

/// A workflow and the numbers of the Slurm jobs that ran it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmJobs {
    /// The workflow's name.
    pub workflow: String,
    /// The workflow's number.
    pub number: i64,
    /// Slurm's numbers, sorted.
    pub ids: Vec<String>,
    /// Where the logs of their runners are.
    pub output_dirs: Vec<String>,
}

/// The Slurm jobs of a workflow: its allocations, those that its runners live in, and those that its steps ran in.
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

/// Everything that the accounting has about them.
pub async fn ask_accounting(jobs: &SlurmJobs) -> Result<Vec<AccountingRecord>, CliError> {
    if jobs.ids.is_empty() {
        let message = format!("workflow {} has not run in Slurm", jobs.workflow);
        return Err(CliError::new(ExitStatus::NotFound, message).hint("`torc get runners --all` shows who has run it"));
    }
    let slurm = Slurm::default().replaced_by(|name| std::env::var(name).ok());
    let answer = slurm.ask_again(&accounting::ask(jobs.ids.iter().map(String::as_str)), COMMAND_SCHEDULE).await;
    let records = answer.and_then(|answer| accounting::read(&answer.text));
    records.map_err(|trouble| {
        CliError::new(ExitStatus::Unreachable, format!("Slurm's accounting does not answer: {trouble}"))
            .hint("run this where `sacct` works, e.g. on a login node")
    })
}
