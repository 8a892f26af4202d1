//! Access rights and the audit log.

use std::collections::BTreeSet;

use torc_api::api::{AuditEntry, Page, Runner};
use torc_api::filter::AuditFilter;
use torc_api::token::Grant;
use torc_api::wire::RunnerScope;
use torc_core::ids::WorkflowId;

use super::{EngineError, EngineHandle};
use crate::views;

impl EngineHandle {
    /// Returns the number of a workflow if the bearer has access to it.
    pub(crate) async fn find_accessible(
        &self,
        namespace: &str,
        workflow: &str,
        grant: &Grant,
    ) -> Result<Option<WorkflowId>, EngineError> {
        let (namespace, workflow, grant) = (namespace.to_owned(), workflow.to_owned(), grant.clone());
        self.read(move |engine| {
            let id = engine.find(&namespace, &workflow)?;
            Ok(engine.rights().includes(&grant, id).then_some(id))
        })
        .await
    }

    /// Returns the workflows to which the bearer has access, or `None` for all.
    pub(crate) async fn theirs(&self, grant: &Grant) -> Result<Option<BTreeSet<WorkflowId>>, EngineError> {
        if *grant == Grant::Admin {
            return Ok(None);
        }
        let grant = grant.clone();
        self.read(move |engine| Ok(engine.rights().included(&grant))).await
    }

    /// Returns the runners that the bearer may see: those that only serve workflows to which the bearer has access. Members of a
    /// namespace also see pool runners, because these run their jobs.
    pub(crate) async fn runners_of(&self, grant: &Grant, all: bool) -> Result<Vec<Runner>, EngineError> {
        let runners = self.runners(all).await?;
        if *grant == Grant::Admin {
            return Ok(runners);
        }
        let grant = grant.clone();
        self.read(move |engine| {
            let scope = |runner: &Runner| runner.workflow.clone().map(RunnerScope::Workflow);
            let sees_pools = matches!(grant, Grant::Viewer { .. } | Grant::Editor { .. });
            let theirs =
                |runner: &Runner| scope(runner).map_or(sees_pools, |scope| engine.rights().may_serve(&grant, &scope));
            Ok(runners.into_iter().filter(theirs).collect())
        })
        .await
    }

    /// Records that the current request was refused and returns the error to answer with.
    pub(crate) async fn refuse(&self, error: EngineError) -> EngineError {
        let refusal = error.clone();
        match self.write(move |_, _| Err::<(), _>(refusal)).await {
            Ok(()) => error,
            Err(error) => error,
        }
    }

    /// Records the current request, which does not change the engine's state.
    pub(crate) async fn audit_only(&self) -> Result<(), EngineError> {
        // Each command of an audited request is recorded; this one does nothing else.
        self.write(|_, _| Ok(())).await
    }

    /// Returns a page of the audit log, oldest first.
    pub(crate) async fn audit(&self, filter: &AuditFilter) -> Result<Page<AuditEntry>, EngineError> {
        let page = self.store.audit(filter).await?;
        let items = page.items.into_iter().map(|(sequence, row)| views::audit_entry(sequence, row)).collect();
        Ok(Page { items, next: page.next })
    }
}
