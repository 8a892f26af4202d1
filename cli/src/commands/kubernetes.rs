//! Commands that write objects of a cluster through the API server, with the rights of the user.
//!
//! All other commands read from Torc's server. `wait` reads the object: the server may not know the latest generation yet.

use std::time::Duration;

use kube::api::DynamicObject;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::time::Instant;
use torc_api::size::too_large;

use super::apply::ApplyArgs;
use super::control;
use super::delete::{DeleteArgs, named_clusters};
use super::diff::{paint, unified};
use super::retry::RetryArgs;
use super::wait::{WaitArgs, WaitGoal, evaluate};
use crate::client::WorkflowControl;
use crate::connection::bare_name;
use crate::context::CommandContext;
use crate::documents::{self, ProblemReport};
use crate::error::{CliError, ExitStatus};
use crate::kubernetes::KubernetesCluster;
use crate::kubernetes::objects::{ApplyOptions, ObjectKind, content};
use crate::object_view::view;
use crate::output::ItemList;
use crate::use_cases::interrupts::Interrupts;
use crate::use_cases::submit::outcome_word;
use crate::use_cases::watch_store::sleep_until;
use crate::workflow_phase::phase;

/// Delay before a broken watch is opened again.
const WATCH_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the documents of files as objects. Clusters come first, because a workflow may name one of them.
fn objects(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    files: &[std::path::PathBuf],
) -> Result<Vec<(ObjectKind, Value)>, CliError> {
    let documents = documents::read_valid(files, Some(&cluster.namespace), context.output)?;
    let mut report = ProblemReport::default();
    for workflow in &documents.workflows {
        report.add(&workflow.file, too_large(&workflow.document).into_iter().collect());
    }
    report.into_result()?;
    let named = |kind: &str, mut value: Value| {
        value["kind"] = json!(kind);
        value
    };
    let clusters =
        documents.clusters.iter().map(|document| (ObjectKind::SlurmCluster, named("SlurmCluster", json!(document))));
    let workflows = documents.workflows.iter().map(|workflow| {
        let mut value = named("Workflow", json!(workflow.document));
        if value["metadata"]["namespace"].is_null() {
            value["metadata"]["namespace"] = json!(cluster.namespace);
        }
        (ObjectKind::Workflow, value)
    });
    Ok(clusters.chain(workflows).collect())
}

fn name(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

/// Applies documents as objects of the cluster.
pub async fn apply(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    args: &ApplyArgs,
) -> Result<ExitStatus, CliError> {
    if args.no_run || args.detach {
        let message = "--no-run and --detach apply to this machine, but the workflow runs in the cluster";
        return Err(CliError::usage(message).hint("set `suspend: true` in the document to start the workflow later"));
    }
    let options = ApplyOptions { dry_run: args.dry_run, force: args.force_conflicts };
    let (mut items, mut text, mut workflows) = (Vec::new(), String::new(), Vec::new());
    for (kind, document) in objects(context, cluster, &args.files.files)? {
        let applied = cluster.apply(kind, &document, options).await?;
        let (name, outcome) = (name(&applied.after).to_owned(), applied.outcome());
        let dry = if args.dry_run { " (dry run)" } else { "" };
        text.push_str(&format!("{}/{name} {}{dry}\n", kind.word(), outcome_word(outcome)));
        items.push(json!({ "kind": kind.word(), "name": name, "namespace": applied.after.metadata.namespace, "outcome": outcome }));
        if kind == ObjectKind::Workflow {
            workflows.push((applied.after.metadata.namespace.clone(), name));
        }
    }
    context.output.value(&ItemList { items: &items }, || text)?;
    if !args.wait {
        return Ok(ExitStatus::Success);
    }
    let mut outcome = ExitStatus::Success;
    for (namespace, name) in workflows {
        let there = KubernetesCluster {
            client: cluster.client.clone(),
            namespace: namespace.unwrap_or_else(|| cluster.namespace.clone()),
        };
        let Some(object) = settled(&there, &name).await? else { return Ok(ExitStatus::Interrupted) };
        let ended = phase(&view(&object)).exit_status();
        context.output.progress(&format!(
            "workflow/{name}: {}",
            if ended == ExitStatus::Success { "succeeded" } else { "did not succeed" }
        ));
        outcome = if ended == ExitStatus::Success { outcome } else { ended };
    }
    Ok(outcome)
}

/// Returns the object of a workflow once it has settled; `None` after an interrupt.
async fn settled(cluster: &KubernetesCluster, name: &str) -> Result<Option<DynamicObject>, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let has_settled = |object: Option<&DynamicObject>| object.is_none_or(|object| !phase(&view(object)).is_active());
    tokio::select! {
        object = await_object(cluster, name, has_settled) => match object? {
            Some(object) => Ok(Some(object)),
            None => Err(CliError::not_found(format!("workflow/{name} was deleted before it had settled"))),
        },
        () = interrupts.next() => Ok(None),
    }
}

/// Watches the object of a workflow until `is_reached` holds. `None` stands for a deleted object.
async fn await_object(
    cluster: &KubernetesCluster,
    name: &str,
    is_reached: impl Fn(Option<&DynamicObject>) -> bool,
) -> Result<Option<DynamicObject>, CliError> {
    loop {
        if let Ok(object) = await_condition(cluster.api(ObjectKind::Workflow), name, &is_reached).await {
            return Ok(object);
        }
        // A broken watch is opened again, unless the API server refuses to answer at all.
        match cluster.get(ObjectKind::Workflow, name).await {
            Ok(object) if is_reached(Some(&object)) => return Ok(Some(object)),
            Ok(_) => tokio::time::sleep(WATCH_RETRY_INTERVAL).await,
            Err(error) if error.kind == ExitStatus::NotFound && is_reached(None) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Prints the changes that an apply would make. The API server computes them, because it fills in defaults and knows other managers.
pub async fn diff(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    files: &[std::path::PathBuf],
) -> Result<ExitStatus, CliError> {
    let (mut items, mut text) = (Vec::new(), String::new());
    for (kind, document) in objects(context, cluster, files)? {
        let applied = cluster.apply(kind, &document, ApplyOptions { dry_run: true, force: true }).await?;
        let before = applied.before.as_ref().map_or(Value::Null, |object| *content(object));
        let name = name(&applied.after);
        let difference = unified(name, &before, &content(&applied.after));
        let outcome = applied.outcome();
        text.push_str(&paint(&difference));
        text.push_str(&format!("{}/{name} {} (dry run)\n", kind.word(), outcome_word(outcome)));
        items.push(json!({ "kind": kind.word(), "name": name, "outcome": outcome, "diff": difference }));
    }
    context.output.value(&ItemList { items: &items }, || text)?;
    let same = items.iter().all(|item| item["outcome"] == "unchanged");
    Ok(if same { ExitStatus::Success } else { ExitStatus::Different })
}

/// Deletes objects of the cluster.
pub async fn delete(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    args: &DeleteArgs,
) -> Result<ExitStatus, CliError> {
    let (kind, names) = match named_clusters(&args.workflows) {
        Some((_, names)) => (ObjectKind::SlurmCluster, names),
        None => {
            let words = args.workflows.iter().map(|word| bare_name(word));
            (ObjectKind::Workflow, words.filter(|word| !matches!(*word, "workflow" | "workflows")).collect())
        }
    };
    let mut deleted = Vec::new();
    for name in names {
        if cluster.delete(kind, name).await? {
            deleted.push(name.to_owned());
        } else if !args.ignore_not_found {
            let message = format!("there is no {}/{name} in {}", kind.word(), cluster.namespace);
            return Err(CliError::not_found(message).hint("`torc get workflows` lists the workflows"));
        }
    }
    let text = deleted.iter().map(|name| format!("{}/{name} deleted\n", kind.word())).collect();
    context.output.value(&ItemList { items: &deleted }, || text)?;
    Ok(ExitStatus::Success)
}

/// Returns the named workflow, or the only one of the namespace.
async fn resolve(cluster: &KubernetesCluster, named: Option<&str>) -> Result<DynamicObject, CliError> {
    if let Some(named) = named {
        return cluster.get(ObjectKind::Workflow, bare_name(named)).await;
    }
    let mut all = cluster.list(ObjectKind::Workflow).await?;
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(CliError::not_found(format!("there is no workflow in {}", cluster.namespace))),
        (Some(_), false) => {
            Err(CliError::usage(format!("there are several workflows in {}: name one", cluster.namespace)))
        }
    }
}

/// Returns the fields of the specification that a command sets, and the word for the result.
fn control_fields(control: WorkflowControl) -> (Value, &'static str) {
    match control {
        WorkflowControl::Cancel => (json!({ "stopPolicy": "Cancel" }), "canceled"),
        WorkflowControl::Suspend => (json!({ "suspend": true }), "suspended"),
        WorkflowControl::Resume => (json!({ "suspend": false }), "resumed"),
    }
}

/// Cancels, suspends or resumes workflows.
pub async fn control(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    names: &[String],
    control: WorkflowControl,
) -> Result<ExitStatus, CliError> {
    let (spec, word) = control_fields(control);
    let mut items = Vec::new();
    for named in control::named(names) {
        let object = resolve(cluster, named).await?;
        items.push(view(&cluster.patch_spec(name(&object), &spec).await?));
    }
    let text = items.iter().map(|workflow| format!("workflow/{} {word}\n", workflow.name)).collect();
    context.output.value(&ItemList { items: &items }, || text)?;
    Ok(ExitStatus::Success)
}

/// Returns the fields of the specification that start the next run of a workflow.
fn next_run(object: &DynamicObject, all: bool) -> Value {
    let spec = &object.data["spec"];
    let run = spec["runId"].as_i64().unwrap_or(1).saturating_add(1);
    let mut next = json!({ "runId": run, "rerunPolicy": if all { "All" } else { "Failed" } });
    // A canceled workflow continues only with a new run, which clears the cancellation.
    if spec["stopPolicy"] == "Cancel" {
        next["stopPolicy"] = json!("None");
        next["rerunPolicy"] = json!(if all { "All" } else { "Incomplete" });
    }
    next
}

/// Starts the next run of a workflow.
pub async fn retry(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    args: &RetryArgs,
) -> Result<ExitStatus, CliError> {
    let object = resolve(cluster, args.workflow.as_deref()).await?;
    let next = next_run(&object, args.all);
    let patched = cluster.patch_spec(name(&object), &next).await?;
    let text = format!("workflow/{} restarted as run {}\n", name(&patched), next["runId"]);
    context.output.value(&view(&patched), || text)?;
    Ok(ExitStatus::Success)
}

/// Waits until the object of a workflow has reached a goal.
pub async fn wait(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    args: &WaitArgs,
) -> Result<ExitStatus, CliError> {
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut interrupts = Interrupts::listen()?;
    let goal = &args.goal;
    let is_reached = |object: Option<&DynamicObject>| match object {
        Some(object) => evaluate(&view(object), goal).is_some(),
        None => *goal == WaitGoal::Delete,
    };
    let (name, found) = match resolve(cluster, args.workflow.as_deref()).await {
        Ok(object) => (name(&object).to_owned(), Some(object)),
        Err(error) if error.kind == ExitStatus::NotFound && *goal == WaitGoal::Delete => {
            (args.workflow.as_deref().map_or("", bare_name).to_owned(), None)
        }
        Err(error) => return Err(error),
    };
    let object = if is_reached(found.as_ref()) {
        found
    } else {
        tokio::select! {
            object = await_object(cluster, &name, is_reached) => object?,
            () = interrupts.next() => return Ok(ExitStatus::Interrupted),
            () = sleep_until(deadline) => return Err(goal.timed_out(&name)),
        }
    };
    let workflow = object.as_ref().map(view);
    match workflow.as_ref().and_then(|workflow| evaluate(workflow, goal)) {
        None | Some(ExitStatus::Success) => context.output.value(&workflow, || goal.reached(&name))?,
        Some(_) => return Err(goal.unreachable(&name)),
    }
    Ok(ExitStatus::Success)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn commands_set_fields_of_the_specification() {
        assert_eq!(control_fields(WorkflowControl::Suspend), (json!({ "suspend": true }), "suspended"));
        assert_eq!(control_fields(WorkflowControl::Resume), (json!({ "suspend": false }), "resumed"));
        assert_eq!(control_fields(WorkflowControl::Cancel), (json!({ "stopPolicy": "Cancel" }), "canceled"));
    }

    #[test]
    fn a_new_run_has_a_higher_number_and_clears_a_cancellation() {
        let object = |spec: Value| -> DynamicObject {
            serde_json::from_value(json!({ "apiVersion": "a", "kind": "b", "metadata": {}, "spec": spec })).unwrap()
        };
        for (spec, all, expected) in [
            (json!({}), false, json!({ "runId": 2, "rerunPolicy": "Failed" })),
            (json!({ "runId": 4 }), true, json!({ "runId": 5, "rerunPolicy": "All" })),
            (
                json!({ "runId": 1, "stopPolicy": "Cancel" }),
                false,
                json!({ "runId": 2, "rerunPolicy": "Incomplete", "stopPolicy": "None" }),
            ),
        ] {
            assert_eq!(next_run(&object(spec), all), expected);
        }
    }
}
