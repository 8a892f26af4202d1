//! `torc delete`: delete workflows and SlurmClusters.

use std::io::{BufRead as _, IsTerminal as _};

use clap::Args;
use torc_api::api::Workflow;

use crate::client::Client;
use crate::connection::{bare_name, explain_missing, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::{ItemList, human};

/// Delete workflows with their jobs, results and events, or SlurmClusters
///
/// Keeps log files. Cancels the Slurm allocations of a workflow first. On a terminal the command asks before it deletes a workflow
/// that has not finished.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Workflows by name or number, e.g. `workflow/NAME`, or SlurmClusters as `slurmcluster/NAME`
    #[arg(value_name = "WORKFLOW", required = true)]
    pub workflows: Vec<String>,
    /// Delete without asking
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Delete a workflow even if its allocations cannot be canceled
    #[arg(long)]
    pub force: bool,
    /// Succeed if a workflow does not exist
    #[arg(long)]
    pub ignore_not_found: bool,
}

pub async fn run(context: &CommandContext, args: &DeleteArgs) -> Result<ExitStatus, CliError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        if let Some((kind, names)) = named_clusters(&args.workflows) {
            return delete_clusters(context, client, kind, &names, args.ignore_not_found).await;
        }
        let mut deleted = Vec::new();
        for name in args.workflows.iter().map(|name| bare_name(name)).filter(|name| !is_kind(name)) {
            let workflow = match client.workflow(name).await {
                Ok(workflow) => workflow,
                Err(error) if error.is_not_found() && args.ignore_not_found => continue,
                Err(error) => return Err(explain_missing(error)),
            };
            if !args.yes && !confirm(context, &workflow)? {
                return Err(CliError::new(ExitStatus::Refused, format!("workflow/{name} was not deleted")));
            }
            client.delete_workflow(&workflow.id.to_string(), args.force).await?;
            deleted.push(workflow.name);
        }
        let text = deleted.iter().map(|name| format!("workflow/{name} deleted\n")).collect();
        context.output.value(&ItemList { items: &deleted }, || text)
    })
    .await?;
    Ok(ExitStatus::Success)
}

/// Returns the kind and the names if the arguments are SlurmClusters: `slurmcluster/a slurmcluster/b` or `slurmcluster a b`.
pub fn named_clusters(words: &[String]) -> Option<(&str, Vec<&str>)> {
    const KINDS: [&str; 3] = ["slurmcluster", "slurmclusters", "slc"];
    let first = words.first()?;
    if let Some(kind) = KINDS.into_iter().find(|kind| first == kind) {
        return Some((kind, words.iter().skip(1).map(String::as_str).collect()));
    }
    let kind = KINDS.into_iter().find(|kind| first.strip_prefix(kind).is_some_and(|rest| rest.starts_with('/')))?;
    let name = |word: &String| word.split_once('/').map_or(word.as_str(), |(_, name)| name).len();
    Some((kind, words.iter().map(|word| &word[word.len() - name(word)..]).collect()))
}

async fn delete_clusters(
    context: &CommandContext,
    client: &Client,
    kind: &str,
    names: &[&str],
    ignore_not_found: bool,
) -> Result<(), CliError> {
    if names.is_empty() {
        return Err(CliError::usage(format!("missing name after `{kind}`")));
    }
    let mut deleted = Vec::new();
    for name in names {
        match client.delete_cluster(name).await {
            Ok(()) => deleted.push((*name).to_owned()),
            Err(error) if error.is_not_found() && ignore_not_found => {}
            Err(error) => return Err(error.into()),
        }
    }
    let text = deleted.iter().map(|name| format!("slurmcluster/{name} deleted\n")).collect();
    context.output.value(&ItemList { items: &deleted }, || text)
}

/// Returns whether an argument is the kind in `delete workflow NAME`, as kubectl spells it.
fn is_kind(word: &str) -> bool {
    matches!(word, "workflow" | "workflows")
}

fn confirm(context: &CommandContext, workflow: &Workflow) -> Result<bool, CliError> {
    let jobs = &workflow.status.jobs;
    if jobs.settled() == jobs.total || !std::io::stdin().is_terminal() {
        return Ok(true);
    }
    let open = jobs.total - jobs.settled();
    context.output.progress(&format!(
        "{} of workflow/{} {} not finished. Delete the workflow? [y/N]",
        human::count(open, "job"),
        workflow.name,
        if open == 1 { "has" } else { "have" },
    ));
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| CliError::unexpected("could not read the answer", error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_named_by_their_kind() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (line, expected) in [
            ("w", None),
            ("workflow/w", None),
            ("slurmclusterx/a", None),
            ("slurmcluster a b", Some(("slurmcluster", vec!["a", "b"]))),
            ("slurmclusters", Some(("slurmclusters", vec![]))),
            ("slc a", Some(("slc", vec!["a"]))),
            ("slurmcluster/a slurmcluster/b c", Some(("slurmcluster", vec!["a", "b", "c"]))),
            ("slc/a/b", Some(("slc", vec!["a/b"]))),
        ] {
            assert_eq!(named_clusters(&words(line)), expected, "{line}");
        }
        assert_eq!(["workflow", "workflows", "wf", "w"].map(is_kind), [true, true, false, false]);
    }
}
