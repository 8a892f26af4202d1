//! Whose is what, and who did what.

use std::collections::BTreeSet;

use torc_api::api::{AuditEntry, Page, Runner};
use torc_api::filter::AuditFilter;
use torc_api::token::Grant;
use torc_api::wire::RunnerScope;
use torc_core::ids::WorkflowId;

use super::{EngineError, EngineHandle, WorkflowRef};
use crate::views;

impl EngineHandle {
    /// Returns the number of a workflow if it is one that the bearer deals with.
    pub(crate) async fn find_theirs(
        &self,
        (namespace, reference): WorkflowRef<'_>,
        grant: &Grant,
    ) -> Result<Option<WorkflowId>, EngineError> {
        let (namespace, reference, grant) = (namespace.to_owned(), reference.to_owned(), grant.clone());
        self.read(move |engine| {
            let id = engine.find(&namespace, &reference)?;
            Ok(engine.rights().includes(&grant, id).then_some(id))
        })
        .await
    }

    /// The workflows that the bearer deals with; nothing when it is all of them.
    pub(crate) async fn theirs(&self, grant: &Grant) -> Result<Option<BTreeSet<WorkflowId>>, EngineError> {
        if *grant == Grant::Admin {
            return Ok(None);
        }
        let grant = grant.clone();
        self.read(move |engine| Ok(engine.rights().included(&grant))).await
    }

    /// The runners that the bearer may see: those that serve one of their workflows and nothing else. Whoever belongs to a namespace
    /// of a cluster sees its pools, too, for they are what runs their jobs.
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

    /// Records that the current request is refused, and returns the error to answer with.
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

    /// Who did what, newest last; of one person, or of all.
    pub(crate) async fn audit(&self, filter: &AuditFilter) -> Result<Page<AuditEntry>, EngineError> {
        let page = self.store.audit(filter).await?;
        Ok(Page { items: page.items.into_iter().map(views::audit_entry).collect(), next: page.next })
    }
}
