//! `torc user-data`: read and write the values that jobs exchange.

use std::io::Read as _;

use clap::{Args, Subcommand};
use serde_json::Value;
use torc_api::data::{UserDataWritten, WriteUserData};

use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::{Listing, human};
use crate::use_cases::inside_job::{CallerAttempt, with_server};

/// Read and write the values that jobs exchange
///
/// Inside a job the workflow is not needed: `torc user-data set NAME '{"x": 1}'`.
#[derive(Debug, Args)]
pub struct UserDataArgs {
    #[command(subcommand)]
    pub command: UserDataCommand,
}

#[derive(Debug, Subcommand)]
pub enum UserDataCommand {
    /// List all values, as `torc get user-data`
    List {
        /// Workflow by name or number (default: that of the calling job, or the only one in the store)
        #[arg(value_name = "WORKFLOW")]
        workflow: Option<String>,
    },
    /// Print one value as JSON
    Get {
        /// Workflow (optional) and name of the value
        #[arg(value_names = ["WORKFLOW", "NAME"], num_args = 1..=2, required = true)]
        words: Vec<String>,
    },
    /// Write a value: any JSON, or `-` to read it from standard input
    Set {
        /// Workflow (optional), name and value
        #[arg(value_names = ["WORKFLOW", "NAME", "VALUE"], num_args = 2..=3, required = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Delete a written value, so that the value of the document applies again
    Delete {
        /// Workflow (optional) and name of the value
        #[arg(value_names = ["WORKFLOW", "NAME"], num_args = 1..=2, required = true)]
        words: Vec<String>,
    },
}

pub async fn run(context: &CommandContext, args: UserDataArgs) -> Result<ExitStatus, CliError> {
    match args.command {
        UserDataCommand::List { workflow } => {
            with_server(context, async |client: &Client| {
                let workflow = workflow_of(client, workflow.as_deref()).await?;
                let data = client.user_data(&workflow).await.map_err(explain_missing)?;
                Listing::new(context.output).print(&data)
            })
            .await?;
        }
        UserDataCommand::Get { words } => {
            let (workflow, [name]) = split(words)?;
            with_server(context, async |client: &Client| get(context, client, workflow.as_deref(), &name).await)
                .await?;
        }
        UserDataCommand::Set { words } => {
            let (workflow, [name, text]) = split(words)?;
            let value =
                WriteUserData { data: parse(&read(&text)?)?, job: CallerAttempt::of_this_process().map(|own| own.job) };
            with_server(context, async |client: &Client| {
                write(context, client, workflow.as_deref(), &name, Some(&value)).await
            })
            .await?;
        }
        UserDataCommand::Delete { words } => {
            let (workflow, [name]) = split(words)?;
            with_server(context, async |client: &Client| {
                write(context, client, workflow.as_deref(), &name, None).await
            })
            .await?;
        }
    }
    Ok(ExitStatus::Success)
}

/// Returns the named workflow, that of the calling job, or the only one in the store.
async fn workflow_of(client: &Client, named: Option<&str>) -> Result<String, CliError> {
    match (named, CallerAttempt::of_this_process()) {
        (None, Some(own)) => Ok(own.workflow),
        (named, _) => resolve_workflow(client, named).await,
    }
}

/// Splits the arguments: the first is the workflow if there is one more than needed.
fn split<const N: usize>(mut words: Vec<String>) -> Result<(Option<String>, [String; N]), CliError> {
    let workflow = (words.len() > N).then(|| words.remove(0));
    let words = words.try_into().map_err(|_| CliError::usage("expected [WORKFLOW] NAME [VALUE]"))?;
    Ok((workflow, words))
}

fn read(text: &str) -> Result<String, CliError> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|error| CliError::unexpected("could not read standard input", error))?;
    Ok(text)
}

fn parse(text: &str) -> Result<Value, CliError> {
    serde_json::from_str(text).map_err(|error| {
        CliError::invalid("the value is not valid JSON")
            .because(error)
            .hint("quote a text for JSON and for the shell: '\"text\"'")
    })
}

async fn get(context: &CommandContext, client: &Client, workflow: Option<&str>, name: &str) -> Result<(), CliError> {
    let workflow = workflow_of(client, workflow).await?;
    let found = client.one_user_data(&workflow, name).await.map_err(explain_missing)?;
    let Some(value) = &found.data else {
        let message = format!("user data '{name}' has no value yet");
        return Err(
            CliError::not_found(message).hint(format!("set one with: torc user-data set {workflow} {name} VALUE"))
        );
    };
    context.output.value(value, || format!("{value}\n"))
}

async fn write(
    context: &CommandContext,
    client: &Client,
    workflow: Option<&str>,
    name: &str,
    value: Option<&WriteUserData>,
) -> Result<(), CliError> {
    let workflow = workflow_of(client, workflow).await?;
    let written = client.write_user_data(&workflow, name, value).await.map_err(explain_missing)?;
    let verb = if value.is_some() { "set" } else { "deleted" };
    context.output.value(&written, || describe(&workflow, name, verb, &written))
}

fn describe(workflow: &str, name: &str, verb: &str, written: &UserDataWritten) -> String {
    if !written.changed {
        return format!("user-data/{name} unchanged\n");
    }
    let mut text = format!("user-data/{name} {verb}\n");
    if written.stale_jobs > 0 {
        let jobs = human::count(written.stale_jobs, "job");
        text.push_str(&format!(
            "{jobs} completed with the previous value; retry with: torc retry {workflow} --changed\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workflow_is_the_word_before_those_that_are_needed() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(split(words("w n v")).expect("three"), (Some("w".to_owned()), ["n".to_owned(), "v".to_owned()]));
        assert_eq!(split(words("n v")).expect("two"), (None, ["n".to_owned(), "v".to_owned()]));
        assert!(split::<2>(words("n")).is_err());
    }

    #[test]
    fn a_value_is_json() {
        assert_eq!(parse("-1").expect("a number"), serde_json::json!(-1));
        assert_eq!(parse("text").expect_err("no quotes").kind, ExitStatus::InvalidInput);
    }

    #[test]
    fn what_a_value_changes_is_told() {
        let told = |changed, stale_jobs| describe("w", "d", "set", &UserDataWritten { changed, stale_jobs });
        assert_eq!(told(false, 3), "user-data/d unchanged\n");
        assert_eq!(told(true, 0), "user-data/d set\n");
        let expected =
            "user-data/d set\n2 jobs completed with the previous value; retry with: torc retry w --changed\n";
        assert_eq!(told(true, 2), expected);
    }
}
