//! `torc diff`: show the changes that an apply would make.

use clap::Args;
use serde_json::{Value, json};
use similar::TextDiff;
use torc_api::api::{ApplyOutcome, ApplyResponse, JobChanges, JobNames};
use torc_core::expanded::Expanded;

use super::plan::expand_all;
use crate::args::FileArgs;
use crate::client::Client;
use crate::connection::with_client;
use crate::context::CommandContext;
use crate::documents::{self, LoadedWorkflow};
use crate::embedded::store_dir::StoreDir;
use crate::error::{CliError, ExitStatus};
use crate::output::{ItemList, document_text};
use crate::use_cases::submit::{SubmitPurpose, line, submit_workflows};

/// Show the changes that an apply would make
///
/// Prints the differences between the documents and the jobs that they affect. Exits with 0 without differences and with 9 otherwise.
#[derive(Debug, Args)]
pub struct DiffArgs {
    #[command(flatten)]
    pub files: FileArgs,
}

/// Number of jobs that are named for each kind of change.
const MAX_NAMED_JOBS: usize = 20;

pub async fn run(context: &CommandContext, args: &DiffArgs) -> Result<ExitStatus, CliError> {
    let documents = documents::read_valid(&args.files.files, context.settings.namespace.as_deref(), context.output)?;
    let documents = documents.workflows;
    if context.settings.url.is_none() && StoreDir::find(&context.folder).is_none() {
        return all_new(context, &documents).map(|_| ExitStatus::Different);
    }
    with_client(&context.settings, &context.folder, async |client: &Client| compare(context, client, &documents).await)
        .await
}

/// Prints the changes for a folder without a store, where every workflow is new.
pub fn all_new(context: &CommandContext, documents: &[LoadedWorkflow]) -> Result<ExitStatus, CliError> {
    let expanded = expand_all(documents, context.settings.server.max_jobs)?;
    let mut items: Vec<Value> = Vec::new();
    let mut text = String::new();
    for (workflow, expanded) in documents.iter().zip(&expanded) {
        let response = new_workflow(workflow, expanded);
        text.push_str(&line(&response, SubmitPurpose::DryRun));
        text.push('\n');
        items.push(json!(response));
    }
    context.output.value(&ItemList { items: &items }, || text)?;
    Ok(ExitStatus::Success)
}

/// Returns the response of a store that does not contain the workflow.
fn new_workflow(workflow: &LoadedWorkflow, expanded: &Expanded) -> ApplyResponse {
    let mut changes = JobChanges::default();
    expanded.jobs.iter().for_each(|job| changes.added.push(&job.name));
    let metadata = &workflow.document.metadata;
    ApplyResponse {
        name: metadata.name.clone(),
        namespace: metadata.namespace().to_owned(),
        id: None,
        outcome: ApplyOutcome::Created,
        changes,
    }
}

async fn compare(
    context: &CommandContext,
    client: &Client,
    documents: &[LoadedWorkflow],
) -> Result<ExitStatus, CliError> {
    let responses = submit_workflows(context, client, documents, SubmitPurpose::DryRun).await?;
    let mut items: Vec<Value> = Vec::new();
    let mut text = String::new();
    for (workflow, response) in documents.iter().zip(&responses) {
        let before = match response.id {
            Some(id) => {
                client.workflow(&id.to_string()).await?.document.map_or(Value::Null, |document| json!(document))
            }
            None => Value::Null,
        };
        let difference = unified(workflow.name(), &before, &json!(workflow.document));
        text.push_str(&describe(response, &difference));
        let mut item = json!(response);
        item["diff"] = json!(difference);
        items.push(item);
    }
    context.output.value(&ItemList { items: &items }, || text)?;
    let same = responses.iter().all(|response| response.outcome == ApplyOutcome::Unchanged);
    Ok(if same { ExitStatus::Success } else { ExitStatus::Different })
}

/// Returns the differences of two documents as a unified diff.
pub fn unified(name: &str, before: &Value, after: &Value) -> String {
    let text = |value: &Value| if value.is_null() { String::new() } else { document_text(value) };
    let (before, after) = (text(before), text(after));
    if before == after {
        return String::new();
    }
    TextDiff::from_lines(&before, &after)
        .unified_diff()
        .context_radius(3)
        .header(&format!("stored/{name}"), &format!("wanted/{name}"))
        .to_string()
}

fn describe(response: &ApplyResponse, difference: &str) -> String {
    let mut text = paint(difference);
    text.push_str(&line(response, SubmitPurpose::DryRun));
    text.push('\n');
    let changes = &response.changes;
    for (names, sign, word) in [
        (&changes.added, '+', "added"),
        (&changes.removed, '-', "removed"),
        (&changes.changed, '~', "runs again: changed"),
        (&changes.rerun, '~', "runs again: new run of the document"),
        (&changes.downstream, '~', "runs again: a dependency runs again"),
        (&changes.adjusted, '.', "adjusted: resources, priority or labels"),
    ] {
        text.push_str(&list(names, sign, word));
    }
    text
}

fn list(names: &JobNames, sign: char, word: &str) -> String {
    let mut text: String =
        names.names.iter().take(MAX_NAMED_JOBS).map(|name| format!("  {sign} {name} {word}\n")).collect();
    let listed = i64::try_from(names.names.len().min(MAX_NAMED_JOBS)).unwrap_or(0);
    if names.count > listed {
        text.push_str(&format!("  {sign} and {} more\n", names.count - listed));
    }
    text
}

/// Colors the lines of a diff.
pub fn paint(difference: &str) -> String {
    let mut text = String::new();
    for line in difference.lines() {
        let color = match line.as_bytes().first() {
            Some(b'+') => Some(anstyle::AnsiColor::Green),
            Some(b'-') => Some(anstyle::AnsiColor::Red),
            Some(b'@') => Some(anstyle::AnsiColor::Cyan),
            _ => None,
        };
        match color {
            Some(color) => {
                let style = color.on_default();
                text.push_str(&format!("{style}{line}{style:#}\n"));
            }
            None => text.push_str(&format!("{line}\n")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_documents() {
        let before = json!({ "spec": { "jobs": [{ "command": "old", "name": "a" }] } });
        let after = json!({ "spec": { "jobs": [{ "command": "new", "name": "a" }] } });
        assert_eq!(unified("w", &before, &before), "");
        let text = unified("w", &before, &after);
        assert!(text.starts_with("--- stored/w\n+++ wanted/w\n"), "{text}");
        assert!(text.contains("-  - command: old\n+  - command: new\n"), "{text}");
    }

    #[test]
    fn long_lists_are_cut() {
        let names = JobNames { count: 30, names: (0..30).map(|n| format!("j{n}")).collect() };
        let text = list(&names, '+', "added");
        assert!(text.contains("j19 added") && !text.contains("j20") && text.ends_with("  + and 10 more\n"), "{text}");
        assert_eq!(list(&JobNames::default(), '+', "added"), "");
    }

    #[test]
    fn every_kind_of_change_has_its_sign_and_sentence() {
        let names = |name: &str| JobNames { count: 1, names: vec![name.to_owned()] };
        let changes = JobChanges {
            added: names("a"),
            removed: names("b"),
            changed: names("c"),
            rerun: names("d"),
            downstream: names("e"),
            adjusted: names("f"),
            unchanged: 7,
        };
        let response = ApplyResponse {
            name: "w".to_owned(),
            namespace: "n".to_owned(),
            id: Some(1),
            outcome: ApplyOutcome::Configured,
            changes,
        };
        let plain = anstream::adapter::strip_str(&describe(&response, "+x\n-y\n@z\n w\n")).to_string();
        let rest = plain.split_once("adjusted\n").expect("a line").1;
        let expected = "  + a added\n  - b removed\n  ~ c runs again: changed\n  ~ d runs again: new run of the document\n  \
            ~ e runs again: a dependency runs again\n  . f adjusted: resources, priority or labels\n";
        assert_eq!(rest, expected);
        assert!(plain.starts_with("+x\n-y\n@z\n w\nworkflow/w configured (dry run): "), "{plain}");
        let twenty = JobNames { count: 20, names: (0..20).map(|n| format!("j{n}")).collect() };
        assert!(!list(&twenty, '+', "added").contains("more"));
        let unlisted = JobNames { count: 5, names: vec!["a".to_owned()] };
        assert!(list(&unlisted, '+', "added").ends_with("  + and 4 more\n"));
    }
}
