//! Workflows whose object is gone without a cleanup: its finalizer was removed while no server ran, or an older backup
//! was restored. Finished workflows stay as an archive; the others are canceled.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use torc_api::api::Workflow;
use torc_core::ids::WorkflowId;

use super::UID;
use super::context::{Context, object};
use crate::engine::EngineError;

/// Interval between checks until all objects are listed.
const LISTING_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between checks, once all objects are listed.
const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Checks for orphaned workflows, until `stop`.
pub(super) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let mut interval = LISTING_INTERVAL;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
        // Absence is only certain once all objects are listed.
        if !context.has_listed_all() || !context.leadership.is_held() {
            continue;
        }
        if let Err(error) = list_orphans(&context).await {
            tracing::warn!(%error, "orphaned workflows were not checked");
        }
        interval = ORPHAN_CHECK_INTERVAL;
    }
}

pub(super) async fn list_orphans(context: &Context) -> Result<(), EngineError> {
    let objects: HashSet<String> = context
        .workflows
        .iter()
        .flat_map(|store| store.state())
        .filter_map(|found| Some(object(&found)?.uid))
        .collect();
    context.forget_all_but(&objects);
    let workflows = context.engine.workflows(None).await?;
    for workflow in workflows.iter().filter(|workflow| may_be_orphaned(workflow, &context.config.namespaces)) {
        let id = WorkflowId(workflow.id);
        let document = context.engine.workflow(id).await?.document;
        let uid = document.and_then(|document| document.metadata.annotations.get(UID).cloned());
        if uid.is_some_and(|uid| !objects.contains(&uid)) {
            tracing::warn!(
                namespace = workflow.namespace,
                workflow = workflow.name,
                "object is gone: canceling its workflow"
            );
            context.engine.cancel(id).await?;
            if let Some(slurm) = &context.slurm {
                slurm.reconcile_now().await?;
            }
        }
    }
    Ok(())
}

/// Returns whether a workflow has not ended and its object would be in the lists.
fn may_be_orphaned(workflow: &Workflow, namespaces: &[String]) -> bool {
    let is_watched = namespaces.is_empty() || namespaces.contains(&workflow.namespace);
    is_watched && workflow.status.completion_time.is_none() && !workflow.canceled
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn only_unfinished_workflows_of_watched_namespaces_are_orphans() {
        let workflow = |namespace: &str, canceled: bool, ended: bool| -> Workflow {
            let completed = ended.then_some("2026-01-01T00:00:00Z");
            let mut workflow: Workflow = serde_json::from_value(json!({
                "id": 1, "name": "w", "namespace": namespace, "owner": "", "generation": 1, "creationTime": "",
                "workingDir": "", "suspended": false, "canceled": canceled, "status": {},
            }))
            .unwrap();
            workflow.status.completion_time = completed.map(str::to_owned);
            workflow
        };
        let watched = ["lab".to_owned()];
        for (found, namespaces, expected) in [
            (workflow("lab", false, false), &watched[..], true),
            (workflow("lab", false, false), &[][..], true),
            (workflow("elsewhere", false, false), &watched[..], false),
            (workflow("lab", true, false), &watched[..], false),
            (workflow("lab", false, true), &watched[..], false),
        ] {
            assert_eq!(may_be_orphaned(&found, namespaces), expected, "{found:?}");
        }
    }
}
