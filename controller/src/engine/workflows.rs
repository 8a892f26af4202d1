//! Workflows: documents, reads and control.

use torc_api::api::{self, AffectedJobs, ApplyOutcome, ApplyRequest, ApplyResponse};
use torc_api::document::{Document, WorkflowDocument};
use torc_api::token::Grant;
use torc_core::engine::{Apply, Engine, Retry};
use torc_core::expand::{ExpansionLimits, expand};
use torc_core::expanded::Expanded;
use torc_core::ids::WorkflowId;

use super::{EngineError, EngineHandle, unwritable};
use crate::audit;

impl EngineHandle {
    /// Creates or updates a workflow from its document. A dry run only returns the changes.
    pub async fn apply(&self, request: ApplyRequest, owner: &str, grant: &Grant) -> Result<ApplyResponse, EngineError> {
        let expanded = self.expand_document(request.document.clone()).await?;
        let metadata = &request.document.metadata;
        audit::set_object(format!("workflows/{}", metadata.name));
        let key = (metadata.namespace().to_owned(), metadata.name.clone());
        let (owner, grant) = (owner.to_owned(), grant.clone());
        if request.dry_run {
            self.read(move |engine| Ok(engine.rights().may_apply(&grant, &key.0, &key.1)?)).await?;
            return self.preview(request, expanded).await;
        }
        self.write(move |engine, tx| {
            engine.rights().may_apply(&grant, &key.0, &key.1)?;
            reject_problems(forbidden_changes(engine, &request.document))?;
            let apply = Apply {
                document: &request.document,
                expanded: &expanded,
                owner: &owner,
                working_dir: &request.working_dir,
                store_only: request.store_only,
            };
            engine.apply(&apply, tx).map_err(unwritable)
        })
        .await
    }

    /// Validates and expands a document. This can take a second, so it runs on a blocking thread and not in the writer.
    pub(super) async fn expand_document(&self, document: WorkflowDocument) -> Result<Expanded, EngineError> {
        let limits: ExpansionLimits = self.limits;
        let task = tokio::task::spawn_blocking(move || {
            let document = Document::Workflow(document);
            let mut problems = torc_api::validate::validate(&document);
            problems.retain(torc_api::problem::Problem::is_error);
            match document {
                Document::Workflow(document) if problems.is_empty() => expand(&document.spec, &limits),
                _ => Err(problems),
            }
        });
        let result = task.await.map_err(|error| EngineError::internal(format!("expansion ended early: {error}")))?;
        result.map_err(EngineError::invalid)
    }

    async fn preview(&self, request: ApplyRequest, expanded: Expanded) -> Result<ApplyResponse, EngineError> {
        let document = serde_json::to_string(&request.document).map_err(unwritable)?;
        self.read(move |engine| {
            reject_problems(forbidden_changes(engine, &request.document))?;
            let metadata = &request.document.metadata;
            let (name, namespace) = (metadata.name.clone(), metadata.namespace().to_owned());
            let stored = engine.stored_document(&namespace, &metadata.name);
            let outcome = match stored {
                None => ApplyOutcome::Created,
                Some(stored) if stored == document => ApplyOutcome::Unchanged,
                Some(_) => ApplyOutcome::Configured,
            };
            let id = engine.find(&namespace, &metadata.name).ok().filter(|_| stored.is_some()).map(|id| id.0);
            let changes = engine.preview(&request.document, &expanded);
            Ok(ApplyResponse { name, namespace, id, outcome, changes })
        })
        .await
    }

    /// Returns the number of a workflow that is given by name or number.
    pub async fn find(&self, namespace: &str, workflow: &str) -> Result<WorkflowId, EngineError> {
        let (namespace, workflow) = (namespace.to_owned(), workflow.to_owned());
        self.read(move |engine| Ok(engine.find(&namespace, &workflow)?)).await
    }

    /// Returns a workflow without its document.
    pub async fn summary(&self, id: WorkflowId) -> Result<api::Workflow, EngineError> {
        self.read(move |engine| Ok(engine.workflow_summary(id)?)).await
    }

    /// Returns a workflow with its document.
    pub async fn workflow(&self, id: WorkflowId) -> Result<api::Workflow, EngineError> {
        let both = move |engine: &Engine| Ok((engine.workflow_summary(id)?, engine.document(id)?.to_string()));
        let (mut workflow, document) = self.read(both).await?;
        workflow.document = serde_json::from_str(&document).ok();
        Ok(workflow)
    }

    /// Returns the workflows of a namespace, or of all namespaces.
    pub async fn workflows(&self, namespace: Option<&str>) -> Result<Vec<api::Workflow>, EngineError> {
        let namespace = namespace.map(str::to_owned);
        self.read(move |engine| {
            let ids = engine.workflow_ids(namespace.as_deref());
            ids.into_iter().map(|id| Ok(engine.workflow_summary(id)?)).collect()
        })
        .await
    }

    /// Returns the actions of a workflow.
    pub async fn actions(&self, id: WorkflowId) -> Result<Vec<api::WorkflowAction>, EngineError> {
        self.read(move |engine| Ok(engine.actions(id)?)).await
    }

    /// Cancels a workflow: starts no more jobs and terminates those that run.
    pub async fn cancel(&self, id: WorkflowId) -> Result<api::Workflow, EngineError> {
        self.write_and_show(id, move |engine, tx| Ok(engine.cancel(id, tx)?)).await
    }

    /// Suspends a workflow: grants no new leases.
    pub async fn suspend(&self, id: WorkflowId) -> Result<api::Workflow, EngineError> {
        self.write_and_show(id, move |engine, tx| Ok(engine.suspend(id, tx)?)).await
    }

    /// Resumes a suspended or canceled workflow.
    pub async fn resume(&self, id: WorkflowId) -> Result<api::Workflow, EngineError> {
        self.write_and_show(id, move |engine, tx| Ok(engine.resume(id, tx)?)).await
    }

    /// Resets jobs so that they run again.
    pub async fn retry(&self, id: WorkflowId, request: api::RetryRequest) -> Result<AffectedJobs, EngineError> {
        let dry_run = request.dry_run;
        let which = match request {
            api::RetryRequest { all: true, .. } => Retry::All,
            api::RetryRequest { changed: true, jobs, .. } => Retry::Changed(jobs),
            api::RetryRequest { jobs, .. } if jobs.is_empty() => Retry::Failed,
            api::RetryRequest { jobs, .. } => Retry::Jobs(jobs),
        };
        if dry_run {
            let names = self.read(move |engine| Ok(engine.retry_preview(id, &which)?)).await?;
            return Ok(AffectedJobs { jobs: names.count, names: names.names });
        }
        let jobs = self.write(move |engine, tx| Ok(engine.retry(id, &which, tx)?)).await?;
        Ok(AffectedJobs { jobs, names: Vec::new() })
    }

    pub async fn delete(&self, id: WorkflowId) -> Result<(), EngineError> {
        self.write(move |engine, tx| Ok(engine.delete(id, tx)?)).await
    }
}

/// Returns the problems that forbid a document to replace the stored one.
fn forbidden_changes(engine: &Engine, document: &WorkflowDocument) -> Vec<torc_api::problem::Problem> {
    engine.stored_spec(document).map(|stored| torc_api::rules::updated(stored, &document.spec)).unwrap_or_default()
}

/// Returns an error if there are problems.
fn reject_problems(problems: Vec<torc_api::problem::Problem>) -> Result<(), EngineError> {
    if problems.is_empty() { Ok(()) } else { Err(EngineError::invalid(problems)) }
}
