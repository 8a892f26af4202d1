//! `torc wait`: wait until a workflow is as far as you need it.

use std::time::{Duration, Instant};

use clap::Args;
use torc_api::api::Workflow;

use crate::client::Client;
use crate::connection::{ServerConnection, bare_name, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::use_cases::interrupts::Interrupts;
use crate::workflow_phase::{WorkflowPhase, has_condition, phase};

/// Wait until a workflow is as far as you need it.
///
/// Exits with 0 when the condition is true, with 8 when the time is over, and with 3 as soon as `Succeeded` can no longer come
/// true by itself. `-o json` prints the workflow as it stands then.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The workflow, e.g. `workflow/NAME`; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// `condition=Finished`, `condition=Succeeded`, another condition, or `delete`.
    #[arg(long = "for", value_name = "CONDITION", default_value = "condition=Finished", value_parser = parse_goal)]
    pub goal: Goal,
    /// How long, e.g. `90s`, `1h` or `PT1H` (for ever when absent).
    #[arg(long, value_parser = crate::args::parse_duration)]
    pub timeout: Option<Duration>,
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// A condition is true.
    Condition(String),
    /// The workflow is gone.
    Delete,
}

const CONDITIONS: [&str; 7] =
    ["Accepted", "AllocationsReady", "Recovering", "Stalled", "Suspended", "Finished", "Succeeded"];

fn parse_goal(text: &str) -> Result<Goal, String> {
    if text.eq_ignore_ascii_case("delete") {
        return Ok(Goal::Delete);
    }
    let name = text.strip_prefix("condition=").unwrap_or(text);
    let name = name.strip_suffix("=True").or(name.strip_suffix("=true")).unwrap_or(name);
    CONDITIONS
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(name))
        .map(|known| Goal::Condition(known.to_owned()))
        .ok_or_else(|| format!("must be `delete` or `condition=` with one of {}", CONDITIONS.join(", ")))
}

/// How often is looked.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs the verb.
pub async fn run(context: &CommandContext, args: &WaitArgs) -> Result<ExitStatus, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut target = args.workflow.as_deref().map(|name| bare_name(name).to_owned());
    loop {
        let connection = ServerConnection::open(&context.settings, &context.folder).await?;
        let looked = tokio::select! {
            looked = look(connection.client(), &mut target, &args.goal, connection.is_served(), deadline) => looked,
            () = interrupts.next() => Ok(Some((ExitStatus::Interrupted, None))),
        };
        connection.close().await;
        match looked {
            Ok(Some((status, last))) => return done(context, (target.as_deref(), last), &args.goal, status),
            // Who served the store has left; the next one may go on with it.
            Err(error) if error.kind == ExitStatus::Unreachable && context.settings.url.is_none() => {}
            Err(error) => return Err(error),
            Ok(None) => {}
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let name = target.unwrap_or_else(|| "the workflow".to_owned());
            let message = format!("the time is over, and {name} is not {}", goal_text(&args.goal));
            return Err(CliError::new(ExitStatus::Timeout, message));
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = interrupts.next() => return Ok(ExitStatus::Interrupted),
        }
    }
}

/// The last words: for programs the workflow as it stands now, `null` when it was deleted.
fn done(
    context: &CommandContext,
    (target, last): (Option<&str>, Option<Box<Workflow>>),
    goal: &Goal,
    status: ExitStatus,
) -> Result<ExitStatus, CliError> {
    let name = target.unwrap_or("?");
    match status {
        ExitStatus::Success => {
            context.output.value(&last, || format!("workflow/{name} is {}\n", goal_text(goal)))?;
        }
        ExitStatus::WorkflowFailed => {
            context.output.value(&last, String::new)?;
            let message = format!("workflow/{name} cannot become {} by itself", goal_text(goal));
            let hint = format!("see `torc describe workflow {name}`");
            return Err(CliError::new(ExitStatus::WorkflowFailed, message).hint(hint));
        }
        _ => {}
    }
    Ok(status)
}

/// What is waited for, in a word.
pub fn goal_text(goal: &Goal) -> String {
    match goal {
        Goal::Condition(name) => name.to_lowercase(),
        Goal::Delete => "deleted".to_owned(),
    }
}

/// Looks, again and again where somebody serves the store: how it ended and the workflow, or nothing when the store has to
/// be opened again.
async fn look(
    client: &Client,
    target: &mut Option<String>,
    goal: &Goal,
    served: bool,
    deadline: Option<Instant>,
) -> Result<Option<(ExitStatus, Option<Box<Workflow>>)>, CliError> {
    loop {
        let name = match target {
            Some(name) => name.clone(),
            None => resolve_workflow(client, None).await?,
        };
        match client.workflow(&name).await {
            Ok(workflow) => {
                *target = Some(workflow.name.clone());
                if let Some(status) = judge(&workflow, goal) {
                    return Ok(Some((status, Some(Box::new(workflow)))));
                }
            }
            Err(error) if error.is_not_found() && *goal == Goal::Delete => {
                return Ok(Some((ExitStatus::Success, None)));
            }
            Err(error) => return Err(explain_missing(error)),
        }
        if !served || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(None);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether the goal is reached, or out of reach.
pub fn judge(workflow: &Workflow, goal: &Goal) -> Option<ExitStatus> {
    let Goal::Condition(name) = goal else { return None };
    if has_condition(workflow, name) {
        return Some(ExitStatus::Success);
    }
    let over = matches!(phase(workflow), WorkflowPhase::Failed | WorkflowPhase::Canceled);
    (over && name == "Succeeded").then_some(ExitStatus::WorkflowFailed)
}

#[cfg(test)]
mod tests {
    use torc_api::status::JobCounts;

    use super::*;
    use crate::workflow_phase::tests::workflow;

    #[test]
    fn goals() {
        let condition = |name: &str| Ok(Goal::Condition(name.to_owned()));
        assert_eq!(parse_goal("condition=Finished"), condition("Finished"));
        assert_eq!(parse_goal("condition=succeeded=true"), condition("Succeeded"));
        assert_eq!(parse_goal("delete"), Ok(Goal::Delete));
        assert!(parse_goal("condition=Happy").is_err());
    }

    #[test]
    fn a_goal_out_of_reach_ends_the_wait() {
        let goal = |name: &str| Goal::Condition(name.to_owned());
        let active = workflow(JobCounts::default(), &[]);
        let failed = workflow(JobCounts::default(), &["Finished"]);
        let done = workflow(JobCounts::default(), &["Finished", "Succeeded"]);
        for (workflow, name, expected) in [
            (&active, "Finished", None),
            (&active, "Succeeded", None),
            (&failed, "Finished", Some(ExitStatus::Success)),
            (&failed, "Succeeded", Some(ExitStatus::WorkflowFailed)),
            (&failed, "Stalled", None),
            (&done, "Succeeded", Some(ExitStatus::Success)),
        ] {
            assert_eq!(judge(workflow, &goal(name)), expected);
        }
        assert_eq!(judge(&done, &Goal::Delete), None);
    }

    #[test]
    fn every_condition_can_be_waited_for() {
        for name in ["Accepted", "AllocationsReady", "Recovering", "Stalled", "Suspended", "Finished", "Succeeded"] {
            let goal = Goal::Condition(name.to_owned());
            for text in [format!("condition={name}"), name.to_lowercase(), format!("condition={name}=True")] {
                assert_eq!(parse_goal(&text), Ok(goal.clone()), "{text}");
            }
            assert_eq!(judge(&workflow(JobCounts::default(), &[name]), &goal), Some(ExitStatus::Success));
            assert_eq!(goal_text(&goal), name.to_lowercase());
        }
        assert_eq!((parse_goal("Delete"), goal_text(&Goal::Delete)), (Ok(Goal::Delete), "deleted".to_owned()));
    }

    #[test]
    fn success_is_out_of_reach_only_when_all_is_over() {
        let succeeded = Goal::Condition("Succeeded".to_owned());
        let canceled = Workflow { canceled: true, ..workflow(JobCounts::default(), &["Finished"]) };
        let decide = workflow(JobCounts { pending_failed: 1, ..JobCounts::default() }, &[]);
        let held = Workflow { suspended: true, ..workflow(JobCounts::default(), &[]) };
        for (workflow, expected) in [(canceled, Some(ExitStatus::WorkflowFailed)), (decide, None), (held, None)] {
            assert_eq!(judge(&workflow, &succeeded), expected, "{workflow:?}");
        }
    }
}
