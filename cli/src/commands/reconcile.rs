//! `torc workflows reconcile`: bring the server what runners wrote down while it was away.

use std::path::PathBuf;

use clap::Args;

use crate::client::Client;
use crate::connection::{bare_name, explain_missing, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::use_cases::replay::{Report, amount, search};

/// Replay what runners wrote down while the server was away.
///
/// Finds every journal of a run below a folder and brings its results to the server, which counts each of them once: the
/// command can be repeated. Results of a superseded run, or of a job that has been started again, are rejected and reported; that
/// is no error. Journals stay where they are.
#[derive(Debug, Args)]
pub struct ReconcileArgs {
    /// The workflow, by name or number.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: String,
    /// The run, as `torc workflows status` shows it and the journals' names say.
    #[arg(value_name = "RUN", value_parser = clap::value_parser!(i32).range(1..))]
    pub run: i32,
    /// Where to look: this folder and everything below it.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub base_dir: PathBuf,
}

/// Runs the verb.
pub async fn run(context: &CommandContext, args: &ReconcileArgs) -> Result<ExitStatus, CliError> {
    let base = context.folder.join(&args.base_dir);
    let base = base.canonicalize().map_err(|error| {
        let what = CliError::not_found(format!("could not look into {}", base.display())).because(error);
        what.hint("--base-dir names the folder below which the runners wrote their output")
    })?;
    let report = with_client(&context.settings, &context.folder, async |client: &Client| {
        let workflow = client.workflow(bare_name(&args.workflow)).await.map_err(explain_missing)?;
        let found = search(context.output, base.clone(), workflow.id, args.run).await?;
        let mut report = Report::new(&workflow.name, workflow.id, args.run, found);
        let results = report.read().await;
        report.replay(context.output, client, results).await?;
        Ok(report)
    })
    .await?;
    context.output.value(&report.json(&base), || report.text(&base))?;
    if report.damaged.is_empty() {
        return Ok(ExitStatus::Success);
    }
    let message =
        format!("{} could not be read, and what they hold is missing", amount(report.damaged.len(), "journal"));
    Err(CliError::new(ExitStatus::Unexpected, message)
        .hint("mend them, e.g. with `sqlite3 FILE .recover`, and run this again"))
}
