//! `torc admin`: administration of an installation.

use clap::{Args, Subcommand};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::kubernetes::objects::{FIELD_MANAGER, FINALIZER, ObjectKind, list_all};
use crate::kubernetes::{api_error, find};
use crate::output::ItemList;

/// Administer an installation
#[derive(Debug, Args)]
pub struct AdminArgs {
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// Remove the finalizer from deleted workflows whose server is gone
    ///
    /// Without their server, deleted workflows and their namespaces stay in the state Terminating. The command does not cancel their
    /// Slurm allocations: `squeue` lists them with names that begin with `torc-wf`.
    ReleaseFinalizers(ReleaseArgs),
}

#[derive(Debug, Args)]
struct ReleaseArgs {
    /// Workflows by name (default: all that are being deleted)
    #[arg(value_name = "WORKFLOW")]
    names: Vec<String>,
    /// Search all namespaces, not only the selected one
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Show the workflows without changing them
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(context: &CommandContext, args: &AdminArgs) -> Result<ExitStatus, CliError> {
    let AdminCommand::ReleaseFinalizers(args) = &args.command;
    release(context, args).await
}

async fn release(context: &CommandContext, args: &ReleaseArgs) -> Result<ExitStatus, CliError> {
    let cluster = find(&context.settings.backend.choice(), context.settings.namespace.as_deref()).await?;
    let namespace = (!args.all_namespaces).then_some(cluster.namespace.as_str());
    let all = list_all(&ObjectKind::Workflow.api(cluster.client.clone(), namespace)).await;
    let all = all.map_err(|error| api_error("list workflows", error))?;
    let mut items = Vec::new();
    for object in all.iter().filter(|object| is_stuck(object) && is_selected(object, &args.names)) {
        let (name, namespace) =
            (object.metadata.name.clone().unwrap_or_default(), object.metadata.namespace.as_deref());
        if !args.dry_run {
            let api = ObjectKind::Workflow.api(cluster.client.clone(), namespace);
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let patched = api.patch(&name, &params, &Patch::Merge(without_finalizer(object))).await;
            patched.map_err(|error| api_error(&format!("release workflow/{name}"), error))?;
        }
        items.push(json!({ "name": name, "namespace": namespace }));
    }
    let word = if args.dry_run { "would be released" } else { "released" };
    let line = |item: &Value| {
        let part = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
        format!("workflow/{} in {} {word}\n", part("name"), part("namespace"))
    };
    context.output.value(&ItemList { items: &items }, || match items.is_empty() {
        true => "no deleted workflow has the finalizer\n".to_owned(),
        false => items.iter().map(line).collect(),
    })?;
    Ok(ExitStatus::Success)
}

/// Returns whether an object is being deleted and still has the controller's finalizer.
fn is_stuck(object: &DynamicObject) -> bool {
    let finalizers = object.metadata.finalizers.iter().flatten();
    object.metadata.deletion_timestamp.is_some() && finalizers.into_iter().any(|name| name == FINALIZER)
}

fn is_selected(object: &DynamicObject, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| object.metadata.name.as_ref() == Some(name))
}

/// Returns the patch that removes the finalizer. Its resource version makes the API server reject it after a concurrent change.
fn without_finalizer(object: &DynamicObject) -> Value {
    let others: Vec<&String> = object.metadata.finalizers.iter().flatten().filter(|name| *name != FINALIZER).collect();
    json!({ "metadata": { "finalizers": others, "resourceVersion": object.metadata.resource_version } })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn object(finalizers: &[&str], deleted: bool) -> DynamicObject {
        let mut value = json!({
            "apiVersion": "torc.dev/v1alpha1", "kind": "Workflow",
            "metadata": { "name": "w", "finalizers": finalizers, "resourceVersion": "7" },
        });
        if deleted {
            value["metadata"]["deletionTimestamp"] = json!("2026-11-16T12:00:00Z");
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_deleted_objects_with_our_finalizer_are_released() {
        for (finalizers, deleted, expected) in [
            (&[FINALIZER][..], true, true),
            (&[FINALIZER], false, false),
            (&["example.org/other"], true, false),
            (&[], true, false),
        ] {
            assert_eq!(is_stuck(&object(finalizers, deleted)), expected, "{finalizers:?} {deleted}");
        }
        let patch = without_finalizer(&object(&["example.org/other", FINALIZER], true));
        assert_eq!(patch["metadata"], json!({ "finalizers": ["example.org/other"], "resourceVersion": "7" }));
        assert!(
            is_selected(&object(&[], true), &["w".to_owned()]) && !is_selected(&object(&[], true), &["v".to_owned()])
        );
    }
}
