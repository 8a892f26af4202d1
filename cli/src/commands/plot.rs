//! `torc plot`: write pages about the resource usage of jobs and nodes.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use torc_api::filter::ResultFilter;
use torc_runner::plots::PlotPage;
use torc_runner::series::{self, SeriesError};

use crate::client::Client;
use crate::connection::{bare_name, explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};

/// Write pages about the resource usage of jobs and nodes
///
/// The pages open in any browser: a summary with a table, a time line of slots and GPUs, and CPU and memory of jobs and nodes.
/// Curves need samples (`granularity: time_series`); the rest comes from results.
#[derive(Debug, Args)]
pub struct PlotArgs {
    /// Measurement files, folders with such files, or a workflow by name or number (default: the only workflow in the store)
    #[arg(value_name = "WHAT")]
    pub what: Vec<String>,
    /// Folder for the pages
    #[arg(short = 'd', long, value_name = "DIR", default_value = "plots")]
    pub dir: PathBuf,
    /// Run of the workflow (default: the latest)
    #[arg(long, value_name = "RUN")]
    pub run: Option<i32>,
}

pub async fn run(context: &CommandContext, args: &PlotArgs) -> Result<ExitStatus, CliError> {
    let paths: Vec<PathBuf> = args.what.iter().map(|what| context.folder.join(what)).collect();
    let are_paths = !paths.is_empty() && paths.iter().all(|path| path.exists());
    let picture = match args.what.as_slice() {
        _ if are_paths => of_files(&paths).await?,
        [] => of_workflow(context, None, args.run).await?,
        [what] if what.contains('/') => {
            return Err(CliError::not_found(format!("no such file or folder: {what}"))
                .hint("measurements are in `resource_utilization` of the output folder"));
        }
        [workflow] => of_workflow(context, Some(workflow), args.run).await?,
        _ => return Err(CliError::usage("expected existing files and folders, or one workflow")),
    };
    if picture.jobs.is_empty() && picture.nodes.is_empty() {
        return Err(CliError::not_found("nothing to plot: no results and no measurements").hint(
            "measurements are in `resource_utilization` of the output folder, with `granularity: time_series` in the document",
        ));
    }
    let dir = context.folder.join(&args.dir);
    let pages = picture.write(&dir).map_err(|error| CliError::unexpected("could not write the pages", error))?;
    context.output.value(&json!({ "pages": pages }), || {
        let first = pages.first().map_or(dir.as_path(), PathBuf::as_path);
        format!("{} pages written to {}; open {}\n", pages.len(), dir.display(), first.display())
    })?;
    Ok(ExitStatus::Success)
}

async fn of_files(paths: &[PathBuf]) -> Result<PlotPage, CliError> {
    let mut picture = PlotPage { title: title_of(paths), ..PlotPage::default() };
    for path in series::files_in(paths).map_err(unreadable)? {
        picture.add(series::read(&path).await.map_err(unreadable)?);
    }
    Ok(picture)
}

fn title_of(paths: &[PathBuf]) -> String {
    match paths {
        [one] => one.file_name().map_or("Measurements".into(), |name| name.to_string_lossy().into_owned()),
        several => format!("{} sources", several.len()),
    }
}

/// Returns the results of a run, with the samples of runners whose files are visible on this machine.
async fn of_workflow(context: &CommandContext, name: Option<&str>, run: Option<i32>) -> Result<PlotPage, CliError> {
    let gathered = with_client(&context.settings, &context.folder, async |client: &Client| {
        let name = resolve_workflow(client, name.map(bare_name)).await?;
        let workflow = client.workflow(&name).await.map_err(explain_missing)?;
        let run = run.or(workflow.status.run_id).unwrap_or(1);
        let filter = ResultFilter { run: Some(run), ..ResultFilter::default() };
        let results = client.results(&name, &filter, None).await.map_err(explain_missing)?;
        let folders: Vec<String> = client.runners(true).await?.into_iter().map(|runner| runner.output_dir).collect();
        Ok((workflow, run, results, folders))
    });
    let (workflow, run, results, mut folders) = gathered.await?;
    folders.sort();
    folders.dedup();
    let mut picture = PlotPage { title: format!("{}, run {run}", workflow.name), ..PlotPage::default() };
    let folders: Vec<PathBuf> = folders.iter().map(|folder| Path::new(folder).join(series::FOLDER)).collect();
    let seen: Vec<PathBuf> = folders.into_iter().filter(|folder| folder.is_dir()).collect();
    for path in series::files_in(&seen).map_err(unreadable)? {
        match series::read(&path).await {
            Ok(series) if (series.workflow, series.run) == (workflow.id, run) => picture.add(series),
            Ok(_) => {}
            Err(error) => context.output.warning(&format!("{error}: the plots do not contain its samples")),
        }
    }
    picture.add_results(&results);
    Ok(picture)
}

fn unreadable(error: SeriesError) -> CliError {
    CliError::unexpected("could not read measurements", error)
}
