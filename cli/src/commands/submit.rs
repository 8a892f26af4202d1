//! `torc submit`: put a workflow on Slurm and leave it to a server.

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

/// Put a workflow on Slurm: its allocations are asked for, and a server is left in the background unless there is one.
///
/// A file is applied first. It must ask for allocations: with actions, which `torc slurm generate` writes, or by naming a
/// `slurmCluster`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// A file, or a stored workflow by name or number.
    #[arg(value_name = "FILE|WORKFLOW")]
    pub target: String,
    /// Follow the workflow to its end.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub listen: ListenArgs,
}

/// Runs the verb.
pub async fn run(context: &CommandContext, args: &SubmitArgs) -> Result<ExitStatus, CliError> {
    if is_file(&args.target) {
        return file(context, args).await;
    }
    let name = bare_name(&args.target);
    if let Some(url) = &context.settings.url {
        let client = remote(&context.settings, url, &context.folder)?;
        return stored(context, &client, name).await;
    }
    // A store that is made now would not hold it.
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
        // What is wrong with it is told when it is applied.
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
        format!("workflow/{} submitted; `torc get allocations {0}` shows what Slurm makes of it\n", workflow.name)
    })?;
    Ok(ExitStatus::Success)
}

fn check(name: &str, spec: &WorkflowSpec, file: &str) -> Result<(), CliError> {
    if spec.needs_slurm() {
        return Ok(());
    }
    Err(CliError::invalid(format!("workflow `{name}` asks for no allocations"))
        .hint(format!("`torc slurm generate {file} --account ACCOUNT` writes schedulers and actions into it"))
        .hint("or name a cluster in it: `slurmCluster: local` is the Slurm of this machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // J03
    #[test]
    fn only_what_asks_for_allocations_is_submitted() {
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
        let error = check("w", &WorkflowSpec::default(), "f.yaml").expect_err("nothing asks");
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ExitStatus::InvalidInput, "workflow `w` asks for no allocations")
        );
        assert!(error.hints[0].contains("torc slurm generate f.yaml"), "{:?}", error.hints);
    }
}
