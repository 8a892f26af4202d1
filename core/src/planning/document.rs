//! Writes a plan into a document: schedulers, the actions that submit their allocations, and the jobs that name them.

use torc_api::action::{Action, ActionType};
use torc_api::workflow::WorkflowSpec;

use super::generate::{PlannedScheduler, SchedulerPlan};
use crate::expanded::Expanded;

/// Number of job names above which an action uses a regular expression, if one selects exactly the same jobs.
const MAX_LISTED_NAMES: usize = 20;

/// Returns whether an action requests allocations.
pub fn requests_nodes(action: &Action) -> bool {
    action.action_type == ActionType::ScheduleNodes
}

/// Returns the document with the schedulers of a plan instead of its own. `entries` maps each job to its entry of the
/// document. An entry names a scheduler only if all of its jobs have the same one.
pub fn write(
    spec: &WorkflowSpec,
    expanded: &Expanded,
    entries: &[u32],
    plan: &SchedulerPlan,
    with_actions: bool,
) -> WorkflowSpec {
    let mut written = spec.clone();
    written.slurm_schedulers = plan.planned.iter().map(|planned| planned.scheduler.clone()).collect();
    written.actions.retain(|action| !requests_nodes(action));
    if with_actions {
        let actions = plan.planned.iter().map(|planned| action(planned, spec, expanded, entries));
        written.actions.extend(actions);
    }
    for (entry, scheduler) in (0_u32..).zip(schedulers(spec.jobs.len(), entries, plan)) {
        if let Some(job) = written.jobs.get_mut(entry as usize) {
            job.scheduler = scheduler.map(str::to_owned);
        }
    }
    written
}

/// Returns for each entry the scheduler that all of its jobs have, if there is one.
fn schedulers<'a>(count: usize, entries: &[u32], plan: &'a SchedulerPlan) -> Vec<Option<&'a str>> {
    let mut of_jobs: Vec<Option<&str>> = vec![None; entries.len()];
    for planned in &plan.planned {
        for job in &planned.jobs {
            if let Some(place) = of_jobs.get_mut(*job as usize) {
                *place = Some(&planned.name);
            }
        }
    }
    let mut found: Vec<Option<Option<&str>>> = vec![None; count];
    for (entry, scheduler) in entries.iter().zip(of_jobs) {
        if let Some(place) = found.get_mut(*entry as usize) {
            let same = place.is_none_or(|known| known == scheduler);
            *place = Some(scheduler.filter(|_| same));
        }
    }
    found.into_iter().map(Option::flatten).collect()
}

/// Returns the action of a scheduler. A large family of jobs is chosen by a regular expression, unless it would match
/// other jobs.
fn action(planned: &PlannedScheduler, spec: &WorkflowSpec, expanded: &Expanded, entries: &[u32]) -> Action {
    let name_of = |job: u32| expanded.jobs.get(job as usize).map_or("", |job| job.name.as_str());
    let mut action = planned.action(name_of);
    if planned.waits
        && planned.jobs.len() > MAX_LISTED_NAMES
        && let Some(expressions) = expressions(planned, spec, expanded, entries)
    {
        action.jobs = None;
        action.job_name_regexes = Some(expressions);
    }
    action
}

fn expressions(
    planned: &PlannedScheduler,
    spec: &WorkflowSpec,
    expanded: &Expanded,
    entries: &[u32],
) -> Option<Vec<String>> {
    let entry_of = |job: &u32| entries.get(*job as usize).copied();
    let mut chosen: Vec<u32> = planned.jobs.iter().filter_map(entry_of).collect();
    chosen.dedup();
    let mut expressions = Vec::new();
    for entry in chosen {
        expressions.push(expression(&spec.jobs.get(entry as usize)?.name));
    }
    let compiled: Vec<regex::Regex> =
        expressions.iter().map(|text| regex::Regex::new(text)).collect::<Result<_, _>>().ok()?;
    let matching = (0_u32..).zip(&expanded.jobs).filter(|(_, job)| compiled.iter().any(|one| one.is_match(&job.name)));
    let mut wanted = planned.jobs.clone();
    wanted.sort_unstable();
    matching.map(|(index, _)| index).eq(wanted).then_some(expressions)
}

/// Returns a regular expression for the names of a template: `^work_.+$` for `work_{i:03d}`.
fn expression(template: &str) -> String {
    let mut text = String::from("^");
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        text.push_str(&regex::escape(before));
        let Some((_, after)) = behind.split_once('}') else { break };
        text.push_str(".+");
        rest = after;
    }
    text.push_str(&regex::escape(rest));
    text.push('$');
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use torc_api::action::TriggerType;
    use torc_api::document::Document;
    use torc_api::load::{Format, LoadOptions, load};

    use super::super::generate::{PlanSettings, plan};
    use super::super::groups::pending;
    use super::super::partition::tests::partition;
    use super::*;
    use crate::expand::{ExpansionLimits, entries_of_jobs, expand};

    const TEXT: &str = "\
name: w
resource_requirements:
- {name: small, num_cpus: 4, memory: 1g, runtime: 1h}
jobs:
- {name: first, command: a, resource_requirements: small}
- {name: \"work_{i}\", command: b, depends_on: [first], parameters: {i: \"1:30\"}, resource_requirements: small}
- {name: worker, command: c, depends_on: [\"work_1\"], resource_requirements: small, labels: [mine]}
actions:
- {trigger_type: on_workflow_start, action_type: run_commands, commands: [date]}
";

    fn written(text: &str, with_actions: bool) -> WorkflowSpec {
        let loaded = load(text.as_bytes(), Some(Format::Yaml), &LoadOptions::default());
        let Some(Document::Workflow(document)) = loaded.documents.into_iter().map(|found| found.document).next() else {
            panic!("{:?}", loaded.problems);
        };
        let limits = ExpansionLimits::default();
        let expanded = expand(&document.spec, &limits).unwrap();
        let partitions = [partition("p", 4, 8, 0, 10)];
        let settings = PlanSettings { account: "a", ..PlanSettings::default() };
        let plan = plan(&pending(&expanded, |_| true), &partitions, settings);
        write(&document.spec, &expanded, &entries_of_jobs(&document.spec, &limits).unwrap(), &plan, with_actions)
    }

    // J03
    #[test]
    fn schedulers_actions_and_jobs_that_point_to_theirs() {
        let spec = written(TEXT, true);
        let names: Vec<&str> = spec.slurm_schedulers.iter().filter_map(|one| one.name.as_deref()).collect();
        assert_eq!(names, ["p_scheduler", "p_scheduler_deferred"]);
        let of_jobs: Vec<Option<&str>> = spec.jobs.iter().map(|job| job.scheduler.as_deref()).collect();
        assert_eq!(of_jobs, [Some("p_scheduler"), Some("p_scheduler_deferred"), None], "labels are for others");
        assert_eq!(spec.actions.len(), 3, "other actions stay");
        assert_eq!(spec.actions[1].trigger_type, TriggerType::OnWorkflowStart);
        let late = &spec.actions[2];
        assert_eq!((late.trigger_type, late.jobs.as_ref()), (TriggerType::OnJobsReady, None));
        assert_eq!(late.job_name_regexes.as_deref(), Some(&["^work_.+$".to_owned()][..]));
        expand(&spec, &ExpansionLimits::default()).unwrap();
    }

    #[test]
    fn an_expression_that_would_choose_others_is_not_taken() {
        let spec = written(&TEXT.replace("name: worker", "name: work_x"), true);
        let late = &spec.actions[2];
        assert_eq!((late.jobs.as_ref().map(Vec::len), late.job_name_regexes.as_ref()), (Some(30), None));
    }

    #[test]
    fn actions_only_if_they_are_wanted() {
        let spec = written(TEXT, false);
        assert_eq!((spec.slurm_schedulers.len(), spec.actions.len()), (2, 1));
        assert_eq!(expression("a.{x:03d}_{y}"), r"^a\..+_.+$");
    }
}
