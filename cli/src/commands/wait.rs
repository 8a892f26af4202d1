//! `torc wait`: wait until a workflow has reached a condition.

use std::time::Duration;

use clap::Args;
use tokio::time::Instant;
use torc_api::api::Workflow;
use torc_api::condition::ConditionType;

use crate::client::{Client, ClientError};
use crate::connection::{ServerConnection, bare_name, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::use_cases::statuses::{LOCAL_TIMEOUT, wait_until};
use crate::use_cases::watch_store::{WatchOutcome, watch_store};
use crate::workflow_phase::{WorkflowPhase, has_condition, phase};

/// Wait until a workflow has reached a condition
///
/// Exits with 0 when the condition is met, with 8 after the timeout, and with 3 as soon as `Succeeded` can no longer be met. With
/// `-o json` the command prints the workflow at that time.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Workflow by name or number, e.g. `workflow/NAME` (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Condition to wait for: `condition=Finished`, `condition=Succeeded`, another condition, or `delete`
    #[arg(long = "for", value_name = "CONDITION", default_value = "condition=Finished", value_parser = parse_goal)]
    pub goal: WaitGoal,
    /// Time after which to give up, e.g. `90s`, `1h` or `PT1H` (default: none)
    #[arg(long, value_parser = crate::args::parse_duration)]
    pub timeout: Option<Duration>,
}

/// The condition that ends the wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitGoal {
    /// A condition of the status is true.
    Condition(ConditionType),
    /// The workflow is deleted.
    Delete,
}

fn parse_goal(text: &str) -> Result<WaitGoal, String> {
    if text.eq_ignore_ascii_case("delete") {
        return Ok(WaitGoal::Delete);
    }
    let name = text.strip_prefix("condition=").unwrap_or(text);
    let name = name.strip_suffix("=True").or(name.strip_suffix("=true")).unwrap_or(name);
    let conditions = ConditionType::OF_WORKFLOW;
    let known = conditions.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(name));
    let names = || conditions.map(ConditionType::as_str).join(", ");
    known.map(WaitGoal::Condition).ok_or_else(|| format!("must be `delete` or `condition=` with one of {}", names()))
}

impl WaitGoal {
    /// Returns the text that `--for` accepts.
    pub fn text(&self) -> String {
        match self {
            Self::Condition(name) => format!("condition={name}"),
            Self::Delete => "delete".to_owned(),
        }
    }

    /// Returns the line about a goal that was reached.
    pub fn reached(&self, name: &str) -> String {
        match self {
            Self::Condition(_) => format!("workflow/{name} condition met\n"),
            Self::Delete => format!("workflow/{name} deleted\n"),
        }
    }

    /// Returns the error for a goal that can no longer be reached.
    pub fn unreachable(&self, name: &str) -> CliError {
        let message = format!("workflow/{name} has ended, so `{}` can no longer be met", self.text());
        CliError::new(ExitStatus::WorkflowFailed, message)
            .hint(format!("`torc describe workflow {name}` shows the reasons"))
    }

    /// Returns the error for a goal that was not reached in time.
    pub fn timed_out(&self, name: &str) -> CliError {
        CliError::new(ExitStatus::Timeout, format!("timed out waiting for `{}` of workflow/{name}", self.text()))
    }
}

pub async fn run(context: &CommandContext, args: &WaitArgs) -> Result<ExitStatus, CliError> {
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let found = find(connection.client(), args).await;
    let workflow = match found {
        Ok(Some(workflow)) if evaluate(&workflow, &args.goal).is_none() => workflow,
        found => {
            connection.close().await;
            let (found, named) = (found?, args.workflow.as_deref().map_or("", bare_name));
            let name = found.as_ref().map_or(named, |workflow| &workflow.name).to_owned();
            return finish(context, &args.goal, &name, found);
        }
    };
    let poll = async |connection: &ServerConnection| poll(connection, &args.goal, workflow.id).await;
    match watch_store(context, connection, deadline, poll).await? {
        WatchOutcome::Done(last) => finish(context, &args.goal, &workflow.name, last),
        WatchOutcome::Interrupted => Ok(ExitStatus::Interrupted),
        WatchOutcome::TimedOut => Err(args.goal.timed_out(&workflow.name)),
    }
}

/// Returns the workflow to wait for; `None` if its deletion is waited for and there is none.
async fn find(client: &Client, args: &WaitArgs) -> Result<Option<Workflow>, CliError> {
    let name = match args.workflow.as_deref() {
        Some(named) => bare_name(named).to_owned(),
        None => resolve_workflow(client, None).await?,
    };
    found(client.workflow(&name).await, &args.goal)
}

fn found(answer: Result<Workflow, ClientError>, goal: &WaitGoal) -> Result<Option<Workflow>, CliError> {
    match answer {
        Ok(workflow) => Ok(Some(workflow)),
        Err(error) if error.is_not_found() && *goal == WaitGoal::Delete => Ok(None),
        Err(error) => Err(explain_missing(error)),
    }
}

/// Returns the workflow when the wait is over: inside `None` for a deleted one. Returns `None` to be called again.
async fn poll(connection: &ServerConnection, goal: &WaitGoal, id: i64) -> Result<Option<Option<Workflow>>, CliError> {
    let client = connection.client();
    if connection.is_served() {
        match wait_until(client, &[id], LOCAL_TIMEOUT, |workflow| evaluate(workflow, goal).is_some()).await {
            Ok(Some(_)) => {}
            Ok(None) => return Err(ClientError::Closed.into()),
            Err(error) if error.is_not_found() && *goal == WaitGoal::Delete => {}
            Err(error) => return Err(explain_missing(error)),
        }
    }
    // The statuses of a watch have no documents.
    let found = found(client.workflow(&id.to_string()).await, goal)?;
    let is_over = found.as_ref().is_none_or(|workflow| evaluate(workflow, goal).is_some());
    Ok(is_over.then_some(found))
}

/// Prints the outcome; with `-o json` the workflow, or `null` if it was deleted.
fn finish(
    context: &CommandContext,
    goal: &WaitGoal,
    name: &str,
    workflow: Option<Workflow>,
) -> Result<ExitStatus, CliError> {
    let outcome = workflow.as_ref().and_then(|workflow| evaluate(workflow, goal)).unwrap_or(ExitStatus::Success);
    if outcome == ExitStatus::Success {
        context.output.value(&workflow, || goal.reached(name))?;
        return Ok(outcome);
    }
    context.output.value(&workflow, String::new)?;
    Err(goal.unreachable(name))
}

/// Returns the exit status if a workflow has reached the goal or can no longer reach it.
pub fn evaluate(workflow: &Workflow, goal: &WaitGoal) -> Option<ExitStatus> {
    let WaitGoal::Condition(type_) = *goal else { return None };
    if has_condition(workflow, type_) {
        return Some(ExitStatus::Success);
    }
    let over = matches!(phase(workflow), WorkflowPhase::Failed | WorkflowPhase::Canceled);
    (over && type_ == ConditionType::Succeeded).then_some(ExitStatus::WorkflowFailed)
}

#[cfg(test)]
mod tests {
    use torc_api::status::JobCounts;

    use super::*;
    use crate::workflow_phase::tests::workflow;

    #[test]
    fn conditions_are_parsed_as_kubectl_does() {
        assert_eq!(parse_goal("condition=Finished"), Ok(WaitGoal::Condition(ConditionType::Finished)));
        assert_eq!(parse_goal("condition=succeeded=true"), Ok(WaitGoal::Condition(ConditionType::Succeeded)));
        assert_eq!(parse_goal("delete"), Ok(WaitGoal::Delete));
        assert!(parse_goal("condition=Happy").is_err());
    }

    #[test]
    fn a_goal_out_of_reach_ends_the_wait() {
        let active = workflow(JobCounts::default(), &[]);
        let failed = workflow(JobCounts::default(), &["Finished"]);
        let done = workflow(JobCounts::default(), &["Finished", "Succeeded"]);
        for (workflow, type_, expected) in [
            (&active, ConditionType::Finished, None),
            (&active, ConditionType::Succeeded, None),
            (&failed, ConditionType::Finished, Some(ExitStatus::Success)),
            (&failed, ConditionType::Succeeded, Some(ExitStatus::WorkflowFailed)),
            (&failed, ConditionType::Stalled, None),
            (&done, ConditionType::Succeeded, Some(ExitStatus::Success)),
        ] {
            assert_eq!(evaluate(workflow, &WaitGoal::Condition(type_)), expected);
        }
        assert_eq!(evaluate(&done, &WaitGoal::Delete), None);
    }

    #[test]
    fn every_condition_can_be_waited_for() {
        for type_ in ConditionType::OF_WORKFLOW {
            let (name, goal) = (type_.as_str(), WaitGoal::Condition(type_));
            for text in [format!("condition={name}"), name.to_lowercase(), format!("condition={name}=True")] {
                assert_eq!(parse_goal(&text), Ok(goal.clone()), "{text}");
            }
            assert_eq!(evaluate(&workflow(JobCounts::default(), &[name]), &goal), Some(ExitStatus::Success));
            assert_eq!(goal.text(), format!("condition={name}"));
        }
        assert_eq!((parse_goal("Delete"), WaitGoal::Delete.text()), (Ok(WaitGoal::Delete), "delete".to_owned()));
    }

    #[test]
    fn success_is_out_of_reach_only_when_all_is_over() {
        let succeeded = WaitGoal::Condition(ConditionType::Succeeded);
        let canceled = Workflow { canceled: true, ..workflow(JobCounts::default(), &["Finished"]) };
        let decide = workflow(JobCounts { pending_failed: 1, ..JobCounts::default() }, &[]);
        let held = Workflow { suspended: true, ..workflow(JobCounts::default(), &[]) };
        for (workflow, expected) in [(canceled, Some(ExitStatus::WorkflowFailed)), (decide, None), (held, None)] {
            assert_eq!(evaluate(&workflow, &succeeded), expected, "{workflow:?}");
        }
    }
}
