//! `torc slurm generate`: write schedulers and actions into a document.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use torc_api::document::Document;
use torc_api::load::{Format, LoadedDocument, load};
use torc_api::recovery::UnplacedJob;
use torc_api::workflow::WorkflowSpec;
use torc_core::planning::document::{requests_nodes, write};

use super::plan::{PlannedWorkflow, SchedulerPlanArgs, plan};
use crate::context::CommandContext;
use crate::documents::{load_options, read_text};
use crate::error::{CliError, ExitStatus};
use crate::output::{SchedulerRow, human};
use crate::rewrite::rewrite;

/// Write Slurm schedulers and actions into a document
///
/// Groups jobs by their requirements and by whether they have dependencies. Each group gets a partition, a time limit and a number of
/// allocations. The file keeps its format, layout and comments. A document with a `slurmCluster` needs no schedulers: the controller
/// plans its allocations while it runs.
#[derive(Debug, Args)]
pub struct GenerateSchedulersArgs {
    /// Document with one workflow
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub plan: SchedulerPlanArgs,
    /// Write schedulers but no actions
    #[arg(long)]
    pub no_actions: bool,
    /// Replace existing schedulers and scheduling actions
    #[arg(long)]
    pub overwrite: bool,
    /// Show the schedulers without writing them
    #[arg(long)]
    pub dry_run: bool,
    /// File to write instead of the document
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

/// The outcome in JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeneratedSchedulers<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a Path>,
    workflow: &'a str,
    profile: &'a str,
    schedulers: Vec<SchedulerRow>,
    actions: usize,
    allocations: i64,
    node_hours: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unplaced: Vec<UnplacedJob>,
}

pub(super) async fn run(context: &CommandContext, args: &GenerateSchedulersArgs) -> Result<ExitStatus, CliError> {
    let planned = plan(context, &args.file, &args.plan).await?;
    refuse_known(&args.file, &planned, args.overwrite)?;
    if planned.plan.planned.is_empty() {
        return Err(no_schedulable_job(&planned));
    }
    let target = args.to.as_deref().unwrap_or(&args.file);
    if !args.dry_run {
        let text = written(&args.file, &planned, !args.no_actions)?;
        replace(target, text.as_bytes())
            .map_err(|error| CliError::unexpected(format!("could not write {}", target.display()), error))?;
    }
    let done = GeneratedSchedulers {
        file: (!args.dry_run).then_some(target),
        workflow: planned.workflow.name(),
        profile: &planned.site.profile.name,
        schedulers: planned.plan.planned.iter().map(SchedulerRow::of).collect(),
        actions: if args.no_actions { 0 } else { planned.plan.planned.len() },
        allocations: planned.plan.planned.iter().map(|one| one.allocations).sum(),
        node_hours: planned.plan.node_hours(),
        unplaced: unplaced(&planned),
    };
    context.output.value(&done, || describe(context, &done))?;
    Ok(ExitStatus::Success)
}

/// Returns an error if the document already has schedulers or scheduling actions, unless `overwrite` is set.
pub(super) fn refuse_known(file: &Path, planned: &PlannedWorkflow, overwrite: bool) -> Result<(), CliError> {
    let spec = &planned.workflow.document.spec;
    let has_some = !spec.slurm_schedulers.is_empty() || spec.actions.iter().any(requests_nodes);
    if has_some && !overwrite {
        return Err(CliError::usage(format!("{} already has Slurm schedulers or scheduling actions", file.display()))
            .hint("replace them with --overwrite"));
    }
    Ok(())
}

/// Replaces a file atomically.
fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    // A symbolic link is kept; its target is replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".torc-").tempfile_in(folder)?;
    file.write_all(content)?;
    let permissions = std::fs::metadata(&path).map(|known| known.permissions());
    let permissions = permissions.unwrap_or_else(|_| std::os::unix::fs::PermissionsExt::from_mode(0o644));
    file.as_file().set_permissions(permissions)?;
    file.persist(&path)?;
    Ok(())
}

fn unplaced(planned: &PlannedWorkflow) -> Vec<UnplacedJob> {
    let name = |job: u32| planned.expanded.jobs.get(job as usize).map_or_else(String::new, |job| job.name.clone());
    let describe = |one: &torc_core::planning::generate::Unschedulable| UnplacedJob {
        job: name(one.job),
        reason: one.reason.to_string(),
    };
    planned.plan.unplaced.iter().map(describe).collect()
}

pub(super) fn no_schedulable_job(planned: &PlannedWorkflow) -> CliError {
    const MAX_SHOWN_JOBS: usize = 5;
    let jobs = unplaced(planned);
    let lines = jobs.iter().take(MAX_SHOWN_JOBS).map(|one| format!("  {}: {}", one.job, one.reason));
    CliError::invalid(format!("no job fits a partition of {}", planned.site.profile.name))
        .lines(lines)
        .hint("change the requirements of the jobs, or select another cluster with --profile")
}

/// Returns the text of the file with the new schedulers and actions.
fn written(path: &Path, planned: &PlannedWorkflow, with_actions: bool) -> Result<String, CliError> {
    let bytes = read_text(path)?;
    let format = Format::from_path(&path.to_string_lossy()).unwrap_or(Format::Yaml);
    let text = String::from_utf8_lossy(&bytes);
    let options = load_options(path);
    let loaded = load(&bytes, Some(format), &options);
    let found = loaded.documents.iter().find(|found| is_named(found, planned.workflow.name()));
    // Tables that were embedded while loading are not written into the file.
    let Some((found, Document::Workflow(raw))) = found.map(|found| (found, &found.document)) else {
        return Err(CliError::invalid(format!("{} was changed while torc read it", path.display())));
    };
    let wanted: WorkflowSpec = write(&raw.spec, &planned.expanded, &planned.entries, &planned.plan, with_actions);
    rewrite(&text, format, found, &wanted, &options).map_err(|obstacle| {
        let place = obstacle.position.map_or_else(String::new, |at| format!(":{}:{}", at.line, at.column));
        CliError::invalid(format!("{}{place}: {}", path.display(), obstacle.reason)).hint(obstacle.hint)
    })
}

fn is_named(found: &LoadedDocument, name: &str) -> bool {
    matches!(&found.document, Document::Workflow(document) if document.metadata.name == name)
}

fn describe(context: &CommandContext, done: &GeneratedSchedulers<'_>) -> String {
    const MAX_SHOWN_JOBS: usize = 5;
    let mut text = context.output.table(&done.schedulers);
    let allocations = human::count(done.allocations, "allocation");
    text.push_str(&format!("\n{allocations} on {}, at most {:.1} node-hours\n", done.profile, done.node_hours));
    for one in done.unplaced.iter().take(MAX_SHOWN_JOBS) {
        text.push_str(&format!("no scheduler for {}: {}\n", one.job, one.reason));
    }
    if done.unplaced.len() > MAX_SHOWN_JOBS {
        let others = i64::try_from(done.unplaced.len() - MAX_SHOWN_JOBS).unwrap_or(i64::MAX);
        text.push_str(&format!("and for {}\n", human::count(others, "more job")));
    }
    match done.file {
        Some(file) => {
            let what = if done.actions == 0 { "schedulers" } else { "schedulers and actions" };
            text.push_str(&format!(
                "{}: {what} written; start the workflow with: torc submit {}\n",
                file.display(),
                file.display()
            ));
        }
        None => text.push_str("dry run: nothing was written\n"),
    }
    text
}
