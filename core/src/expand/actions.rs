//! Resolves the jobs and the scheduler that an action names.

use torc_api::action::{Action, ActionType};
use torc_api::nearest::nearest;
use torc_api::problem::Problem;
use torc_api::workflow::WorkflowSpec;

use super::names::Names;
use super::report::ProblemCollector;

/// Returns the numbers of the jobs that trigger an action, in order; empty if the action selects no jobs.
pub fn chosen_jobs(action: &Action, jobs: &mut Names<'_>) -> Vec<u32> {
    let mut chosen: Vec<u32> = action.jobs.iter().flatten().filter_map(|name| jobs.find(name)).collect();
    for pattern in action.job_name_regexes.iter().flatten() {
        chosen.extend(jobs.matching(pattern).iter().flat_map(|found| found.iter()));
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Reports jobs and schedulers that do not exist, and actions whose selection of jobs is empty.
pub fn check(spec: &WorkflowSpec, jobs: &mut Names<'_>, report: &mut ProblemCollector) {
    for (at, action) in spec.actions.iter().enumerate() {
        let field = format!("spec.actions[{at}]");
        check_names(action, &field, jobs, report);
        let chooses = action.jobs.is_some() || action.job_name_regexes.is_some();
        if chooses && chosen_jobs(action, jobs).is_empty() {
            report.add(Problem::error(&field, "the action selects no existing job"));
        }
        check_scheduler(action, &field, spec, report);
    }
}

fn check_names(action: &Action, field: &str, jobs: &mut Names<'_>, report: &mut ProblemCollector) {
    for (at, name) in action.jobs.iter().flatten().enumerate() {
        if jobs.find(name).is_none() {
            let problem = Problem::error(format!("{field}.jobs[{at}]"), format!("there is no job `{name}`"));
            report.add(with_suggestion(problem, jobs.nearest(name)));
        }
    }
    for (at, pattern) in action.job_name_regexes.iter().flatten().enumerate() {
        if let Err(error) = jobs.matching(pattern) {
            report.add(Problem::error(format!("{field}.jobNameRegexes[{at}]"), error));
        }
    }
}

fn check_scheduler(action: &Action, field: &str, spec: &WorkflowSpec, report: &mut ProblemCollector) {
    let is_slurm = action.scheduler_type.as_deref() == Some("slurm");
    let (ActionType::ScheduleNodes, true, Some(name)) = (action.action_type, is_slurm, &action.scheduler) else {
        return;
    };
    let known = || spec.slurm_schedulers.iter().filter_map(|scheduler| scheduler.name.as_deref());
    if !known().any(|scheduler| scheduler == name) {
        let problem = Problem::error(format!("{field}.scheduler"), format!("there is no Slurm scheduler `{name}`"));
        report.add(with_suggestion(problem, nearest(name, known())));
    }
}

/// Adds a hint with the name that was probably meant.
pub fn with_suggestion(problem: Problem, near: Option<&str>) -> Problem {
    match near {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem,
    }
}
