//! Actions: each kind needs its own fields.

use super::Findings;
use crate::action::{Action, ActionType, TriggerType};
use crate::problem::Problem;
use crate::workflow::WorkflowSpec;

/// The only kind of scheduler there is; `local` is what old files say where nothing is to be scheduled.
const SCHEDULER_TYPES: [&str; 2] = ["slurm", "local"];

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    for (index, action) in spec.actions.iter().enumerate() {
        let field = |name: &str| format!("spec.actions[{index}].{name}");
        match action.action_type {
            ActionType::RunCommands => commands(action, &field, found),
            ActionType::ScheduleNodes => nodes(action, &field, found),
        }
        let by_jobs = matches!(action.trigger_type, TriggerType::OnJobsReady | TriggerType::OnJobsComplete);
        if by_jobs && is_empty(&action.jobs) && is_empty(&action.job_name_regexes) {
            found.tolerated(
                Problem::error(field("jobs"), "the trigger needs jobs")
                    .hint("list jobs or regular expressions for them"),
            );
        }
    }
}

fn is_empty(list: &Option<Vec<String>>) -> bool {
    list.as_ref().is_none_or(Vec::is_empty)
}

fn commands(action: &Action, field: &impl Fn(&str) -> String, found: &mut Findings) {
    if is_empty(&action.commands) {
        found.error(field("commands"), "`run_commands` needs commands");
    }
    for (at, command) in action.commands.iter().flatten().enumerate() {
        if command.trim().is_empty() {
            found.error(field(&format!("commands[{at}]")), "must not be empty");
        }
    }
}

fn nodes(action: &Action, field: &impl Fn(&str) -> String, found: &mut Findings) {
    if action.scheduler.as_ref().is_none_or(String::is_empty) {
        found.error(field("scheduler"), "`schedule_nodes` needs a scheduler");
    }
    if let Some(kind) = action.scheduler_type.as_deref().filter(|kind| !SCHEDULER_TYPES.contains(kind)) {
        found.tolerated(Problem::error(field("schedulerType"), format!("'{kind}' is not one of slurm, local")));
    }
}
