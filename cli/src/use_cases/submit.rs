//! Submission of documents to a server.

use torc_api::api::{ApplyOutcome, ApplyRequest, ApplyResponse, JobChanges};
use torc_api::document::SlurmClusterDocument;

use crate::client::{Client, ClientError};
use crate::context::CommandContext;
use crate::documents::{Documents, LoadedWorkflow, ProblemReport};
use crate::error::CliError;
use crate::output::human;

/// The purpose of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitPurpose {
    /// To be run by the server.
    Run,
    /// To be stored until another command runs it.
    Store,
    /// To show the changes without making them.
    DryRun,
}

/// Applies clusters and workflows; lines about the clusters are printed as progress.
pub async fn submit(
    context: &CommandContext,
    client: &Client,
    documents: &Documents,
    purpose: SubmitPurpose,
) -> Result<Vec<ApplyResponse>, CliError> {
    // A workflow may name a cluster of the same files.
    for line in submit_clusters(client, &documents.clusters, purpose).await? {
        context.output.progress(&line);
    }
    submit_workflows(context, client, &documents.workflows, purpose).await
}

/// Applies documents in order to run them; the lines about them are printed as progress. Returns the ids of the workflows.
pub async fn submit_to_run(
    context: &CommandContext,
    client: &Client,
    documents: &Documents,
) -> Result<Vec<i64>, CliError> {
    let responses = submit(context, client, documents, SubmitPurpose::Run).await?;
    for response in &responses {
        context.output.progress(&line(response, SubmitPurpose::Run));
    }
    Ok(responses.into_iter().filter_map(|response| response.id).collect())
}

/// Applies Slurm clusters; returns a line for each, as kubectl prints it.
async fn submit_clusters(
    client: &Client,
    clusters: &[SlurmClusterDocument],
    purpose: SubmitPurpose,
) -> Result<Vec<String>, CliError> {
    let mut lines = Vec::new();
    for document in clusters {
        let name = &document.metadata.name;
        let outcome = match purpose {
            SubmitPurpose::Run | SubmitPurpose::Store => client.apply_cluster(document).await?.outcome,
            SubmitPurpose::DryRun => match client.cluster(name).await {
                Ok(known) if known.spec == document.spec => ApplyOutcome::Unchanged,
                Ok(_) => ApplyOutcome::Configured,
                Err(error) if error.is_not_found() => ApplyOutcome::Created,
                Err(error) => return Err(error.into()),
            },
        };
        lines.push(format!("slurmcluster/{name} {}{}", outcome_word(outcome), dry(purpose)));
    }
    Ok(lines)
}

/// Applies workflows one after the other; problems are reported with their positions in the files.
pub async fn submit_workflows(
    context: &CommandContext,
    client: &Client,
    documents: &[LoadedWorkflow],
    purpose: SubmitPurpose,
) -> Result<Vec<ApplyResponse>, CliError> {
    let working_dir = context.folder.to_str().ok_or_else(|| {
        CliError::invalid(format!("the path of the folder {} is not valid UTF-8", context.folder.display()))
    })?;
    let mut responses = Vec::new();
    for workflow in documents {
        let request = ApplyRequest {
            document: workflow.document.clone(),
            working_dir: working_dir.to_owned(),
            dry_run: purpose == SubmitPurpose::DryRun,
            store_only: purpose == SubmitPurpose::Store,
        };
        match client.apply(&request).await {
            Ok(response) => responses.push(response),
            Err(error) => return Err(located(workflow, error)),
        }
    }
    Ok(responses)
}

fn located(workflow: &LoadedWorkflow, error: ClientError) -> CliError {
    match error {
        ClientError::Answer { body, .. } if !body.problems.is_empty() => {
            let message = body.message;
            let mut report = ProblemReport::default();
            report.add(&workflow.file, workflow.locate(body.problems));
            report.into_result().err().unwrap_or_else(|| CliError::invalid(message))
        }
        other => other.into(),
    }
}

/// Returns the line about an applied workflow, as kubectl prints it.
pub fn line(response: &ApplyResponse, purpose: SubmitPurpose) -> String {
    let (outcome, dry) = (outcome_word(response.outcome), dry(purpose));
    format!("workflow/{} {outcome}{dry}{}", response.name, changes(&response.changes))
}

/// Returns the word for the outcome of an apply, as kubectl prints it.
pub const fn outcome_word(outcome: ApplyOutcome) -> &'static str {
    match outcome {
        ApplyOutcome::Created => "created",
        ApplyOutcome::Configured => "configured",
        ApplyOutcome::Unchanged => "unchanged",
    }
}

const fn dry(purpose: SubmitPurpose) -> &'static str {
    if matches!(purpose, SubmitPurpose::DryRun) { " (dry run)" } else { "" }
}

fn changes(changes: &JobChanges) -> String {
    let parts: Vec<String> = [
        (changes.added.count, "added"),
        (changes.removed.count, "removed"),
        (changes.changed.count, "changed"),
        (changes.rerun.count, "in a new run"),
        (changes.downstream.count, "downstream of changes"),
        (changes.adjusted.count, "adjusted"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .enumerate()
    .map(|(index, (count, word))| match index {
        0 => format!("{} {word}", human::count(count, "job")),
        _ => format!("{count} {word}"),
    })
    .collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use torc_api::api::JobNames;

    use super::*;

    #[test]
    fn lines_as_kubectl_prints_them() {
        let added = JobNames { count: 3, names: Vec::new() };
        let mut response = ApplyResponse {
            name: "w".to_owned(),
            namespace: "default".to_owned(),
            id: Some(1),
            outcome: ApplyOutcome::Created,
            changes: JobChanges { added, ..JobChanges::default() },
        };
        assert_eq!(line(&response, SubmitPurpose::Run), "workflow/w created: 3 jobs added");
        response.changes = JobChanges::default();
        response.outcome = ApplyOutcome::Unchanged;
        assert_eq!(line(&response, SubmitPurpose::DryRun), "workflow/w unchanged (dry run)");
    }

    #[test]
    fn every_change_is_told_with_its_count() {
        let names = |count| JobNames { count, names: Vec::new() };
        let all = JobChanges {
            added: names(1),
            removed: names(2),
            changed: names(3),
            rerun: names(4),
            downstream: names(5),
            adjusted: names(6),
            unchanged: 7,
        };
        let expected = ": 1 job added, 2 removed, 3 changed, 4 in a new run, 5 downstream of changes, 6 adjusted";
        assert_eq!(changes(&all), expected);
        assert_eq!(changes(&JobChanges { adjusted: names(2), ..JobChanges::default() }), ": 2 jobs adjusted");
        let words = [ApplyOutcome::Created, ApplyOutcome::Configured, ApplyOutcome::Unchanged].map(outcome_word);
        assert_eq!(words, ["created", "configured", "unchanged"]);
        assert_eq!([SubmitPurpose::Run, SubmitPurpose::Store, SubmitPurpose::DryRun].map(dry), ["", "", " (dry run)"]);
    }
}
