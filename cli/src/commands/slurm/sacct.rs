//! `torc slurm sacct`: list the accounting records of a workflow.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use torc_slurm::accounting::AccountingRecord;

use super::allocations::{fetch_accounting, of_workflow};
use crate::client::Client;
use crate::connection::with_client;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::Listing;

/// List the current accounting records of a workflow's allocations and steps
#[derive(Debug, Args)]
pub struct SacctArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Write the list to `sacct_<workflow>.json` in the output folder, too
    #[arg(long)]
    pub save_json: bool,
    /// Folder for --save-json (default: `torc_output`)
    #[arg(long, value_name = "FOLDER")]
    pub output_dir: Option<PathBuf>,
}

/// An accounting record in tables and JSON output.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SacctRow {
    /// The id of the Slurm job or step, e.g. `12345` or `12345.7`.
    pub slurm_job_id: String,
    /// The name of the allocation or step.
    pub name: String,
    /// The state in the words of Slurm.
    pub state: String,
    /// The exit code and the signal in the format of Slurm.
    pub exit_code: String,
    /// The start in RFC 3339; absent before the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// The end in RFC 3339; absent before the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    /// The elapsed time in seconds.
    pub elapsed_seconds: i64,
    /// The number of nodes.
    pub nodes: i64,
    /// The number of allocated CPUs.
    pub cpus: i64,
    /// The allocated CPU time in seconds.
    pub cpu_seconds: i64,
    /// The used CPU time in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_cpu_seconds: Option<f64>,
    /// The highest memory of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rss_bytes: Option<i64>,
    /// The names of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_list: Option<String>,
}

impl From<AccountingRecord> for SacctRow {
    fn from(record: AccountingRecord) -> Self {
        let time = |seconds: i64| Timestamp::from_second(seconds).ok().map(|time| time.to_string());
        Self {
            slurm_job_id: record.id,
            name: record.name,
            state: record.state_text,
            exit_code: record.exit_code,
            start_time: record.start.and_then(time),
            end_time: record.end.and_then(time),
            elapsed_seconds: record.elapsed_seconds,
            nodes: record.nodes,
            cpus: record.cpus,
            cpu_seconds: record.cpu_seconds,
            used_cpu_seconds: record.used_cpu_seconds,
            max_rss_bytes: record.max_rss_bytes,
            node_list: record.node_list,
        }
    }
}

pub async fn run(context: &CommandContext, args: &SacctArgs) -> Result<ExitStatus, CliError> {
    let jobs = with_client(&context.settings, &context.folder, async |client: &Client| {
        of_workflow(client, args.workflow.as_deref()).await
    })
    .await?;
    let rows: Vec<SacctRow> = fetch_accounting(&jobs).await?.into_iter().map(SacctRow::from).collect();
    if args.save_json {
        let folder = args.output_dir.clone().unwrap_or_else(|| context.settings.run.output_dir.clone());
        let path = context.folder.join(folder).join(format!("sacct_{}.json", jobs.workflow));
        save(&path, &rows)?;
        context.output.progress(&format!("written to {}", path.display()));
    }
    Listing::new(context.output).print(&rows)?;
    Ok(ExitStatus::Success)
}

fn save(path: &Path, rows: &[SacctRow]) -> Result<(), CliError> {
    let failed = |error: std::io::Error| {
        CliError::new(ExitStatus::Unexpected, format!("could not write {}", path.display())).because(error)
    };
    let text = serde_json::to_string_pretty(&serde_json::json!({ "items": rows }))
        .map_err(|error| failed(std::io::Error::other(error)))?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(path, text + "\n").map_err(failed)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_record_of_the_accounting_is_a_row() {
        let text = "77.1|FAILED|2:0|2026-11-16T13:00:00|2026-11-16T14:00:00|3600|2|8|28800|02:00:00|3M|n[1-2]|step\n";
        let record = torc_slurm::accounting::read(text).expect("readable").remove(0);
        let row = SacctRow::from(record.clone());
        let time =
            |seconds: Option<i64>| seconds.and_then(|at| Timestamp::from_second(at).ok()).map(|at| at.to_string());
        let expected = SacctRow {
            slurm_job_id: "77.1".to_owned(),
            name: "step".to_owned(),
            state: "FAILED".to_owned(),
            exit_code: "2:0".to_owned(),
            start_time: time(record.start),
            end_time: time(record.end),
            elapsed_seconds: 3_600,
            nodes: 2,
            cpus: 8,
            cpu_seconds: 28_800,
            used_cpu_seconds: Some(7_200.0),
            max_rss_bytes: Some(3 << 20),
            node_list: Some("n[1-2]".to_owned()),
        };
        assert_eq!(row, expected);
        assert_ne!(row.start_time, row.end_time);
    }
}
