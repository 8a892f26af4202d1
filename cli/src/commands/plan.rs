//! `torc plan`: show the jobs of a document.

pub mod allocations;
mod stages;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use torc_api::api::JobResources;
use torc_api::recovery::UnplacedJob;
use torc_core::expand::{ExpansionLimits, warnings};
use torc_core::expanded::{Expanded, ExpandedJob};

use self::allocations::PlannedAllocations;
use crate::context::CommandContext;
use crate::documents::{self, LoadedWorkflow, ProblemReport};
use crate::error::{CliError, ExitStatus};
use crate::output::{ItemList, Printer, SchedulerRow, human};

/// Number of jobs without an allocation that are named before the rest is counted.
const MAX_NAMED_JOBS: usize = 10;

/// Show the jobs and allocations of a document without running them
///
/// Needs no store. Draws the stages; `-o json` lists every job with its explicit and implicit dependencies.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// File, folder, or `-` for standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", num_args = 1.., required_unless_present = "paths")]
    pub files: Vec<PathBuf>,
    /// Like --filename
    #[arg(value_name = "FILE", conflicts_with = "files")]
    pub paths: Vec<PathBuf>,
}

/// A plan in JSON output.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkflowPlan {
    workflow: String,
    jobs: Vec<PlannedJob>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allocations: Vec<SchedulerRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_hours: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unplaced: Vec<UnplacedJob>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlannedJob {
    name: String,
    command: String,
    priority: i64,
    depends_on: Vec<String>,
    ready: bool,
    resources: JobResources,
}

pub fn run(context: &CommandContext, args: &PlanArgs) -> Result<ExitStatus, CliError> {
    let paths = if args.files.is_empty() { &args.paths } else { &args.files };
    let read = documents::read_valid(paths, context.settings.namespace.as_deref(), context.output)?;
    let (workflows, clusters) = (read.workflows, read.clusters);
    let expanded = expand_all(&workflows, context.settings.server.max_jobs)?;
    let mut plans: Vec<WorkflowPlan> = Vec::new();
    let mut text = String::new();
    for (workflow, expanded) in workflows.iter().zip(&expanded) {
        text.push_str(&stages::draw(workflow.name(), expanded));
        let PlannedAllocations { rows, unplaced } = allocations::of(&workflow.document.spec, expanded, &clusters);
        text.push_str(&cost(context, &rows));
        text.push_str(&describe_unschedulable(&unplaced));
        plans.push(WorkflowPlan {
            node_hours: node_hours(&rows),
            allocations: rows,
            unplaced,
            ..plan(workflow, expanded)
        });
    }
    print_warnings(&workflows, &expanded, context.output);
    if let [only] = plans.as_slice() {
        context.output.value(only, || text)?;
    } else {
        context.output.value(&ItemList { items: &plans }, || text)?;
    }
    Ok(ExitStatus::Success)
}

/// Returns the cost of allocations that use their whole walltime; `None` without allocations.
fn node_hours(allocations: &[SchedulerRow]) -> Option<f64> {
    (!allocations.is_empty()).then(|| allocations.iter().map(|one| one.node_hours).sum())
}

fn cost(context: &CommandContext, allocations: &[SchedulerRow]) -> String {
    let Some(hours) = node_hours(allocations) else { return String::new() };
    let total: i64 = allocations.iter().map(|one| one.allocations).sum();
    let count = human::count(total, "allocation");
    format!("\n{}{count}, at most {hours:.1} node-hours\n", context.output.table(allocations))
}

/// Names the first jobs that no allocation can be requested for, with the reason.
fn describe_unschedulable(unplaced: &[UnplacedJob]) -> String {
    let line = |one: &UnplacedJob| format!("no allocation can be requested for job '{}': {}\n", one.job, one.reason);
    let mut text: String = unplaced.iter().take(MAX_NAMED_JOBS).map(line).collect();
    if let Some(more) = unplaced.len().checked_sub(MAX_NAMED_JOBS).filter(|more| *more > 0) {
        text.push_str(&format!("and for {}\n", human::count(more as i64, "more job")));
    }
    text
}

/// Prints warnings about documents that can be expanded.
fn print_warnings(workflows: &[LoadedWorkflow], expanded: &[Expanded], output: Printer) {
    let mut report = ProblemReport::default();
    for (workflow, expanded) in workflows.iter().zip(expanded) {
        report.add(&workflow.file, workflow.locate(warnings(&workflow.document.spec, expanded)));
    }
    report.print_warnings(output);
}

/// Expands every workflow, or returns all problems.
pub fn expand_all(workflows: &[LoadedWorkflow], max_jobs: usize) -> Result<Vec<Expanded>, CliError> {
    let limits = ExpansionLimits { max_jobs, ..ExpansionLimits::default() };
    let mut report = ProblemReport::default();
    let mut all = Vec::new();
    for workflow in workflows {
        match workflow.expand(&limits) {
            Ok(expanded) => all.push(expanded),
            Err(problems) => report.add(&workflow.file, workflow.locate(problems)),
        }
    }
    report.into_result().map(|()| all)
}

fn plan(workflow: &LoadedWorkflow, expanded: &Expanded) -> WorkflowPlan {
    let shown = workflow.document.spec.display_name.as_deref().unwrap_or(workflow.name());
    let jobs = expanded.jobs.iter().map(|job| planned(job, expanded)).collect();
    WorkflowPlan { workflow: shown.to_owned(), jobs, allocations: Vec::new(), node_hours: None, unplaced: Vec::new() }
}

fn planned(job: &ExpandedJob, expanded: &Expanded) -> PlannedJob {
    let mut depends_on: Vec<String> = job.depends_on.iter().filter_map(|index| name_of(expanded, *index)).collect();
    depends_on.sort();
    let needs = usize::try_from(job.requirements).ok().and_then(|index| expanded.requirements.get(index)).cloned();
    let needs = needs.unwrap_or_default();
    PlannedJob {
        name: job.name.clone(),
        command: expanded.filled_command(job).into_owned(),
        priority: job.priority,
        ready: depends_on.is_empty(),
        depends_on,
        resources: JobResources::from(&needs),
    }
}

fn name_of(expanded: &Expanded, index: u32) -> Option<String> {
    expanded.jobs.get(usize::try_from(index).ok()?).map(|job| job.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_for_programs() {
        let job = |name: &str, depends_on: Vec<u32>| ExpandedJob {
            name: name.to_owned(),
            command: "run".to_owned(),
            depends_on,
            ..ExpandedJob::default()
        };
        let expanded = Expanded {
            jobs: vec![job("z", vec![]), job("a", vec![]), job("m", vec![0, 1])],
            requirements: vec![torc_core::expanded::Requirements::default()],
            ..Expanded::default()
        };
        let value = serde_json::to_value(planned(&expanded.jobs[2], &expanded)).expect("JSON");
        let expected = serde_json::json!({
            "name": "m",
            "command": "run",
            "priority": 0,
            "dependsOn": ["a", "z"],
            "ready": false,
            "resources": { "numCpus": 1, "memoryBytes": 1 << 20, "numGpus": 0, "numNodes": 1, "runtimeSeconds": 60 },
        });
        assert_eq!(value, expected);
        assert!(planned(&expanded.jobs[0], &expanded).ready);
    }

    #[test]
    fn node_hours_are_added_up_where_there_are_allocations() {
        let row = |node_hours| SchedulerRow {
            name: "s".to_owned(),
            partition: None,
            jobs: 1,
            allocations: 1,
            nodes: 1,
            walltime_seconds: 60,
            deferred: false,
            node_hours,
        };
        assert_eq!((node_hours(&[]), node_hours(&[row(1.5), row(2.0)])), (None, Some(3.5)));
        let unplaced = vec![UnplacedJob { job: "j".to_owned(), reason: "r".to_owned() }];
        let (workflow, allocations) = ("w".to_owned(), vec![row(1.5)]);
        let plan = WorkflowPlan { workflow, jobs: Vec::new(), allocations, node_hours: Some(1.5), unplaced };
        let value = serde_json::json!(plan);
        assert_eq!(
            (&value["workflow"], &value["nodeHours"], value["allocations"].as_array().map(Vec::len)),
            (&"w".into(), &1.5.into(), Some(1))
        );
        assert_eq!(value["unplaced"], serde_json::json!([{ "job": "j", "reason": "r" }]));
    }
}
