//! `torc validate`: check documents without a store.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use torc_api::document::SlurmClusterDocument;
use torc_api::problem::Problem;
use torc_api::recovery::UnplacedJob;
use torc_api::size::too_large;
use torc_core::expand::{ExpansionLimits, warnings};

use super::plan::allocations;
use crate::context::CommandContext;
use crate::documents;
use crate::error::{CliError, ExitStatus};
use crate::output::human;

/// Check documents without a store
///
/// Reports all problems at once, with file, line, column and field.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// File, folder, or `-` for standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", num_args = 1.., required_unless_present = "paths")]
    pub files: Vec<PathBuf>,
    /// Like --filename
    #[arg(value_name = "FILE", conflicts_with = "files")]
    pub paths: Vec<PathBuf>,
    /// Apply the limits of a Kubernetes API server, too: at most 900 KiB per workflow
    #[arg(long)]
    pub kubernetes: bool,
}

pub fn run(context: &CommandContext, args: &ValidateArgs) -> Result<ExitStatus, CliError> {
    let paths = if args.files.is_empty() { &args.paths } else { &args.files };
    let (workflows, mut report) = documents::read(paths, context.settings.namespace.as_deref())?;
    if args.kubernetes {
        for workflow in &workflows {
            report.add(&workflow.file, workflow.locate(too_large(&workflow.document).into_iter().collect()));
        }
    }
    let mut valid = Vec::new();
    if !report.has_errors() {
        let limits = ExpansionLimits { max_jobs: context.settings.server.max_jobs, ..ExpansionLimits::default() };
        for workflow in &workflows {
            match workflow.expand(&limits) {
                Ok(expanded) => {
                    let spec = &workflow.document.spec;
                    let mut found = warnings(spec, &expanded);
                    let allocations = allocations::of(spec, &expanded, report.clusters());
                    found.extend(allocations.unplaced.iter().map(unplaced));
                    report.add(&workflow.file, workflow.locate(found));
                    valid.push((workflow.name(), expanded.jobs.len()));
                }
                Err(problems) => report.add(&workflow.file, workflow.locate(problems)),
            }
        }
    }
    report.print_warnings(context.output);
    let problems = report.to_json();
    let clusters = report.take_clusters();
    report.into_result()?;
    let items: Vec<_> = valid.iter().map(|(name, jobs)| json!({ "workflow": name, "jobs": jobs })).collect();
    context.output.value(&json!({ "valid": true, "items": items, "problems": problems }), || {
        let line = |(name, jobs): &(&str, usize)| {
            format!("workflow/{name} is valid: {}\n", human::count(i64::try_from(*jobs).unwrap_or(i64::MAX), "job"))
        };
        let cluster = |cluster: &SlurmClusterDocument| format!("slurmcluster/{} is valid\n", cluster.metadata.name);
        valid.iter().map(line).chain(clusters.iter().map(cluster)).collect()
    })?;
    Ok(ExitStatus::Success)
}

/// Returns the warning about a job that would wait forever on the cluster in the same files.
fn unplaced(one: &UnplacedJob) -> Problem {
    Problem::warning(
        "spec.slurmCluster",
        format!("no allocation can be requested for job '{}': {}", one.job, one.reason),
    )
}
