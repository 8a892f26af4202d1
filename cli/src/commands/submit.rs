//! `torc submit`: run a workflow on Slurm through a server.

use std::path::PathBuf;

use clap::Args;
use torc_api::api::Workflow;
use torc_api::workflow::WorkflowSpec;

use super::apply;
use super::apply::ApplyArgs;
use super::run::is_file;
use crate::args::FileArgs;
use crate::client::Client;
use crate::connection::{bare_name, explain_missing, no_store, remote};
use crate::context::CommandContext;
use crate::documents;
use crate::embedded::listening::Exposure;
use crate::embedded::store_dir::StoreDir;
use crate::embedded::{StoreAccess, acquire_or_attach, start_background};
use crate::error::{CliError, ExitStatus};
use crate::listen_args::ListenArgs;
use crate::settings::RunnerArgs;

/// Run a workflow on Slurm, with a server in the background
///
/// Submits the allocations of the workflow and starts a server unless one is running. Applies a file first. The workflow must have
/// scheduling actions, which `torc slurm generate` writes, or a `slurmCluster`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// File, or stored workflow by name or number
    #[arg(value_name = "FILE|WORKFLOW")]
    pub target: String,
    /// Follow the workflow to its end
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub listen: ListenArgs,
}

pub async fn run(context: &CommandContext, args: &SubmitArgs) -> Result<ExitStatus, CliError> {
    if is_file(&args.target) {
        return file(context, args).await;
    }
    let name = bare_name(&args.target);
    if let Some(url) = &context.settings.url {
        let client = remote(&context.settings, url, &context.folder)?;
        return stored(context, &client, name).await;
    }
    // A new store would not contain the workflow.
    let store_dir = StoreDir::find(&context.folder).ok_or_else(no_store)?;
    let client = match acquire_or_attach(&store_dir, context.settings.namespace.as_deref()).await? {
        StoreAccess::Attached(_, client) => *client,
        StoreAccess::Acquired(lock) => {
            drop(lock);
            start_background(&store_dir, &context.settings, Exposure::OtherMachines).await?.1
        }
    };
    stored(context, &client, name).await
}

async fn file(context: &CommandContext, args: &SubmitArgs) -> Result<ExitStatus, CliError> {
    let files = vec![PathBuf::from(&args.target)];
    if args.target != "-" {
        // Apply reports invalid documents.
        let (workflows, report) = documents::read(&files, context.settings.namespace.as_deref())?;
        for workflow in workflows.iter().filter(|_| !report.has_errors()) {
            check(workflow.name(), &workflow.document.spec, &args.target)?;
        }
    }
    let apply = ApplyArgs {
        force_conflicts: false,
        files: FileArgs { files },
        detach: context.settings.url.is_none(),
        no_run: false,
        wait: args.wait,
        dry_run: false,
        listen: args.listen,
        runner: RunnerArgs::default(),
    };
    Box::pin(apply::run(context, &apply)).await
}

async fn stored(context: &CommandContext, client: &Client, name: &str) -> Result<ExitStatus, CliError> {
    let workflow = client.workflow(name).await.map_err(explain_missing)?;
    if let Some(document) = &workflow.document
        && workflow.slurm_cluster.is_none()
    {
        check(&workflow.name, &document.spec, "FILE")?;
    }
    let workflow: Workflow = client.submit(&workflow.id.to_string()).await?;
    context.output.value(&workflow, || {
        format!("workflow/{} submitted; show its allocations with: torc get allocations {0}\n", workflow.name)
    })?;
    Ok(ExitStatus::Success)
}

fn check(name: &str, spec: &WorkflowSpec, file: &str) -> Result<(), CliError> {
    if spec.needs_slurm() {
        return Ok(());
    }
    Err(CliError::invalid(format!("workflow `{name}` requests no allocations"))
        .hint(format!("add schedulers and actions with `torc slurm generate {file} --account ACCOUNT`"))
        .hint("or set a cluster in the document: `slurmCluster: local` is the Slurm of this machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // J03
    #[test]
    fn only_workflows_that_request_allocations_are_submitted() {
        let action = |kind: &str| {
            let text = format!(r#"{{"triggerType": "on_workflow_start", "actionType": "{kind}"}}"#);
            WorkflowSpec { actions: vec![serde_json::from_str(&text).expect("an action")], ..WorkflowSpec::default() }
        };
        let cluster = WorkflowSpec { slurm_cluster: Some("c".to_owned()), ..WorkflowSpec::default() };
        for (spec, accepted) in [
            (WorkflowSpec::default(), false),
            (action("run_commands"), false),
            (action("schedule_nodes"), true),
            (cluster, true),
        ] {
            assert_eq!(check("w", &spec, "f.yaml").is_ok(), accepted, "{spec:?}");
        }
        let error = check("w", &WorkflowSpec::default(), "f.yaml").expect_err("no request");
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ExitStatus::InvalidInput, "workflow `w` requests no allocations")
        );
        assert!(error.hints[0].contains("torc slurm generate f.yaml"), "{:?}", error.hints);
    }
}
