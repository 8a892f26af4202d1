//! Sessions of runners: registration, syncs and replays of journals.

use tokio::sync::oneshot;
use torc_api::error_code::ErrorKind;
use torc_api::filter::ResultFilter;
use torc_api::token::Grant;
use torc_api::wire::{
    FinishedAttempt, JournalledResult, RegisterRequest, RegisterResponse, ReplayOutcome, Replayed, SyncRequest,
    SyncResponse,
};
use torc_core::ids::{RunnerId, WorkflowId};
use torc_core::rows::ResultRow;

use super::writer::EngineCommand;
use super::{EngineError, EngineHandle};
use crate::audit;

impl EngineHandle {
    pub async fn register(&self, request: RegisterRequest, grant: Grant) -> Result<RegisterResponse, EngineError> {
        audit::set_object(format!("runners on {}", request.host));
        self.write(move |engine, tx| {
            if !engine.rights().may_serve(&grant, &request.scope) {
                let message = "the token does not allow this runner: name the workflow of the token";
                return Err(EngineError::forbidden(message.to_owned()));
            }
            Ok(engine.register(&request, tx)?)
        })
        .await
    }

    /// Handles a sync of a runner. A long poll is answered when there is news for the runner.
    pub async fn sync(&self, runner: i64, request: SyncRequest, grant: Grant) -> Result<SyncResponse, EngineError> {
        let (sender, receiver) = oneshot::channel();
        let command =
            EngineCommand::Sync { runner: RunnerId(runner), request: Box::new(request), grant, reply: sender };
        self.queue.send(command).await.map_err(|_| EngineError::stopped())?;
        match receiver.await.map_err(|_| EngineError::stopped())? {
            Err(error) if error.kind() == ErrorKind::Forbidden => Err(self.refuse(error).await),
            answer => answer,
        }
    }

    /// Replays results from a runner's journal and returns the outcome of each, in their order.
    pub async fn replay(
        &self,
        id: WorkflowId,
        run: i32,
        results: Vec<JournalledResult>,
    ) -> Result<Vec<Replayed>, EngineError> {
        let mut replayed = Vec::with_capacity(results.len());
        let mut fresh = Vec::new();
        for result in results {
            let known = self.is_written_down(id, &result).await?;
            let key = result.finished.key;
            replayed.push(known.then_some(Replayed { key, outcome: ReplayOutcome::AlreadyKnown, reason: None }));
            fresh.extend((!known).then_some(result));
        }
        let answers = self.write(move |engine, tx| Ok(engine.replay(id, run, &fresh, tx)?)).await?;
        let mut answers = answers.into_iter();
        Ok(replayed.into_iter().filter_map(|known| known.or_else(|| answers.next())).collect())
    }

    /// Returns whether the store holds this result. The engine's state only has the current attempt of a job.
    async fn is_written_down(&self, workflow: WorkflowId, result: &JournalledResult) -> Result<bool, EngineError> {
        let FinishedAttempt { key, return_code, .. } = &result.finished;
        if key.workflow != workflow.0 {
            return Ok(false);
        }
        let (job, run) = (Some(key.job), Some(key.run));
        let filter = ResultFilter { workflow: Some(workflow.0), job, run, ..ResultFilter::default() };
        let same = |row: &ResultRow| row.attempt == key.attempt && row.return_code == *return_code;
        Ok(self.store.results(&filter).await?.items.iter().any(|view| same(&view.result)))
    }
}
