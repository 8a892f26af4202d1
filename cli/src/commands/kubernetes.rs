//! Commands that write objects of a cluster: through the API server, with the rights of the user.

use std::time::{Duration, Instant};

use kube::api::DynamicObject;
use serde_json::{Value, json};
use torc_api::size::too_large;

use super::apply::ApplyArgs;
use super::control;
use super::delete::{DeleteArgs, named_clusters};
use super::diff::{paint, unified};
use super::get::GetArgs;
use super::retry::RetryArgs;
use super::wait::{Goal, WaitArgs, goal_text, judge};
use crate::client::Control;
use crate::connection::bare_name;
use crate::context::CommandContext;
use crate::documents::{self, ProblemReport};
use crate::error::{CliError, ExitStatus};
use crate::kubernetes::KubernetesCluster;
use crate::kubernetes::objects::{How, ObjectKind, content};
use crate::object_view::view;
use crate::output::{ClusterObjectRow, ItemList, WithNamespace, WorkflowObjectRow};
use crate::use_cases::interrupts::Interrupts;
use crate::use_cases::submit::outcome_word;
use crate::workflow_phase::phase;

/// Between two looks at an object.
const PAUSE: Duration = Duration::from_millis(500);

/// The documents of files as objects, clusters first: a workflow may name one of the same files.
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

/// Applies documents as objects.
pub async fn apply(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    args: &ApplyArgs,
) -> Result<ExitStatus, CliError> {
    if args.no_run || args.detach {
        let message = "--no-run and --detach are about this machine, and the workflow runs in the cluster";
        return Err(CliError::usage(message).hint("`suspend: true` in the document holds a workflow back"));
    }
    let how = How { dry_run: args.dry_run, force: args.force_conflicts };
    let (mut items, mut text, mut workflows) = (Vec::new(), String::new(), Vec::new());
    for (kind, document) in objects(context, cluster, &args.files.files)? {
        let applied = cluster.apply(kind, &document, how).await?;
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

/// The workflow once nothing more happens to it by itself; nothing when somebody does not want to wait any longer.
async fn settled(cluster: &KubernetesCluster, name: &str) -> Result<Option<DynamicObject>, CliError> {
    let mut interrupts = Interrupts::listen()?;
    loop {
        let object = cluster.get(ObjectKind::Workflow, name).await?;
        if !phase(&view(&object)).is_active() {
            return Ok(Some(object));
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = interrupts.next() => return Ok(None),
        }
    }
}

/// The API server says what an object would be; it fills in defaults and knows what others have set.
pub async fn diff(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    files: &[std::path::PathBuf],
) -> Result<ExitStatus, CliError> {
    let (mut items, mut text) = (Vec::new(), String::new());
    for (kind, document) in objects(context, cluster, files)? {
        let applied = cluster.apply(kind, &document, How { dry_run: true, force: true }).await?;
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

/// Lists objects.
pub async fn get(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    args: &GetArgs,
) -> Result<ExitStatus, CliError> {
    let (kind, wanted) = args.object()?;
    if args.all_namespaces {
        if kind != ObjectKind::Workflow || wanted.is_some() {
            return Err(CliError::usage("--all-namespaces is for lists of workflows"));
        }
        let mut found = cluster.list_everywhere().await?;
        found.truncate(args.limit.unwrap_or(usize::MAX));
        let rows: Vec<_> = found.into_iter().map(|object| WithNamespace(WorkflowObjectRow(object))).collect();
        context.output.list(&rows)?;
        return Ok(ExitStatus::Success);
    }
    let mut found = match wanted {
        Some(name) => vec![cluster.get(kind, name).await?],
        None => cluster.list(kind).await?,
    };
    found.truncate(args.limit.unwrap_or(usize::MAX));
    match kind {
        ObjectKind::Workflow => context.output.list(&found.into_iter().map(WorkflowObjectRow).collect::<Vec<_>>())?,
        ObjectKind::SlurmCluster => {
            context.output.list(&found.into_iter().map(ClusterObjectRow).collect::<Vec<_>>())?
        }
    }
    Ok(ExitStatus::Success)
}

/// Deletes objects.
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
            return Err(CliError::not_found(message).hint("`torc get workflows` lists what there is"));
        }
    }
    let text = deleted.iter().map(|name| format!("{}/{name} deleted\n", kind.word())).collect();
    context.output.value(&ItemList { items: &deleted }, || text)?;
    Ok(ExitStatus::Success)
}

/// The workflow that is meant: the one that was named, or the only one of the namespace.
async fn meant(cluster: &KubernetesCluster, named: Option<&str>) -> Result<DynamicObject, CliError> {
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

/// What a verb sets in the specification.
fn steering(control: Control) -> (Value, &'static str) {
    match control {
        Control::Cancel => (json!({ "stopPolicy": "Cancel" }), "canceled"),
        Control::Suspend => (json!({ "suspend": true }), "suspended"),
        Control::Resume => (json!({ "suspend": false }), "resumed"),
    }
}

/// Cancels, suspends or resumes workflows.
pub async fn control(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    names: &[String],
    control: Control,
) -> Result<ExitStatus, CliError> {
    let (spec, word) = steering(control);
    let mut items = Vec::new();
    for named in control::named(names) {
        let object = meant(cluster, named).await?;
        items.push(WorkflowObjectRow(cluster.patch_spec(name(&object), &spec).await?));
    }
    let text = items.iter().map(|row| format!("workflow/{} {word}\n", name(&row.0))).collect();
    context.output.value(&ItemList { items: &items }, || text)?;
    Ok(ExitStatus::Success)
}

/// The next run of a workflow, in the words of its specification.
fn next_run(object: &DynamicObject, all: bool) -> Value {
    let spec = &object.data["spec"];
    let run = spec["runId"].as_i64().unwrap_or(1).saturating_add(1);
    let mut next = json!({ "runId": run, "rerunPolicy": if all { "All" } else { "Failed" } });
    // A cancelled workflow goes on only with a new run, and then it is not cancelled any more.
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
    let object = meant(cluster, args.workflow.as_deref()).await?;
    let next = next_run(&object, args.all);
    let patched = cluster.patch_spec(name(&object), &next).await?;
    let text = format!("workflow/{} runs again: run {}\n", name(&patched), next["runId"]);
    context.output.value(&WorkflowObjectRow(patched), || text)?;
    Ok(ExitStatus::Success)
}

/// Waits until a workflow has reached a goal.
pub async fn wait(
    context: &CommandContext,
    cluster: &KubernetesCluster,
    args: &WaitArgs,
) -> Result<ExitStatus, CliError> {
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut interrupts = Interrupts::listen()?;
    let named = match &args.workflow {
        Some(named) => bare_name(named).to_owned(),
        None => name(&meant(cluster, None).await?).to_owned(),
    };
    let reached = || format!("workflow/{named} is {}\n", goal_text(&args.goal));
    loop {
        match cluster.get(ObjectKind::Workflow, &named).await {
            Ok(object) => match judge(&view(&object), &args.goal) {
                Some(ExitStatus::Success) => {
                    context.output.value(&WorkflowObjectRow(object), reached)?;
                    return Ok(ExitStatus::Success);
                }
                Some(status) => {
                    let message = format!("workflow/{named} cannot become {} by itself", goal_text(&args.goal));
                    return Err(CliError::new(status, message).hint(format!("see `torc describe workflow {named}`")));
                }
                None => {}
            },
            Err(error) if error.kind == ExitStatus::NotFound && args.goal == Goal::Delete => {
                context.output.value(&Value::Null, reached)?;
                return Ok(ExitStatus::Success);
            }
            Err(error) => return Err(error),
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let message = format!("the time is over, and workflow/{named} is not {}", goal_text(&args.goal));
            return Err(CliError::new(ExitStatus::Timeout, message));
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = interrupts.next() => return Ok(ExitStatus::Interrupted),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn verbs_are_fields_of_the_specification() {
        assert_eq!(steering(Control::Suspend), (json!({ "suspend": true }), "suspended"));
        assert_eq!(steering(Control::Resume), (json!({ "suspend": false }), "resumed"));
        assert_eq!(steering(Control::Cancel), (json!({ "stopPolicy": "Cancel" }), "canceled"));
    }

    #[test]
    fn a_new_run_rises_and_ends_a_stop() {
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
