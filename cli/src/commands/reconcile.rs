//! `torc workflows reconcile`: replay the journals that runners wrote while the server was unreachable.

use std::path::PathBuf;

use clap::Args;

use crate::client::Client;
use crate::connection::{bare_name, explain_missing, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::use_cases::replay::{ReplayReport, amount, search};

/// Replay the journals that runners wrote while the server was unreachable
///
/// Finds every journal of a run below a folder and sends its results to the server. The server applies each result once, so the
/// command can be repeated. It rejects results of a superseded run or attempt; the command reports these and succeeds. Journals are
/// not deleted.
#[derive(Debug, Args)]
pub struct ReconcileArgs {
    /// Workflow by name or number
    #[arg(value_name = "WORKFLOW")]
    pub workflow: String,
    /// Run, as shown by `torc workflows status` and in the names of journals
    #[arg(value_name = "RUN", value_parser = clap::value_parser!(i32).range(1..))]
    pub run: i32,
    /// Folder to search, with all folders below it
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub base_dir: PathBuf,
}

pub async fn run(context: &CommandContext, args: &ReconcileArgs) -> Result<ExitStatus, CliError> {
    let base = context.folder.join(&args.base_dir);
    let base = base.canonicalize().map_err(|error| {
        let what = CliError::not_found(format!("could not read the folder {}", base.display())).because(error);
        what.hint("set --base-dir to the output folder of the runners")
    })?;
    let report = with_client(&context.settings, &context.folder, async |client: &Client| {
        let workflow = client.workflow(bare_name(&args.workflow)).await.map_err(explain_missing)?;
        let found = search(context.output, base.clone(), workflow.id, args.run).await?;
        let mut report = ReplayReport::new(&workflow.name, workflow.id, args.run, found);
        let results = report.read().await;
        report.replay(context.output, client, results).await?;
        Ok(report)
    })
    .await?;
    context.output.value(&report.json(&base), || report.text(&base))?;
    if report.damaged.is_empty() {
        return Ok(ExitStatus::Success);
    }
    let message = format!("{} could not be read; their results are missing", amount(report.damaged.len(), "journal"));
    Err(CliError::new(ExitStatus::Unexpected, message)
        .hint("repair them, e.g. with `sqlite3 FILE .recover`, and run this command again"))
}
