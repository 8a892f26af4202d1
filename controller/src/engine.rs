//! A handle to the engine: each call is a command on one queue and returns when its changes are durable.

mod changed_workflows;
mod data;
mod error;
mod explain;
mod lists;
mod maintenance;
mod recovery;
mod rights;
mod runners;
mod slurm;
#[cfg(test)]
mod tests;
mod workflows;
mod writer;

use std::sync::Arc;

use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use torc_api::api::{self, Event};
use torc_core::engine::{Engine, Tx};
use torc_core::expand::ExpansionLimits;
use torc_core::ids::WorkflowId;
use torc_store::Store;

use crate::audit::{self, AuditOutcome};
use crate::clock::{self, Clock};
use crate::issuer::Issuer;
use crate::metrics::Metrics;

pub(crate) use changed_workflows::ChangedWorkflows;
pub use error::EngineError;
pub(crate) use writer::ShutdownTokens;
use writer::{ChangeFeeds, EngineCommand, EngineWriter, ReplySender, WriteCommand};

/// Number of committed groups that a watcher may lag behind before it reads from the store again.
const WATCH_BACKLOG: usize = 256;

/// A handle to the engine.
#[derive(Clone)]
pub struct EngineHandle {
    queue: mpsc::Sender<EngineCommand>,
    events: broadcast::Sender<Arc<Vec<Event>>>,
    store: Store,
    limits: ExpansionLimits,
    metrics: Arc<Metrics>,
    /// Notified after every change, for the Slurm loop.
    changed: Arc<Notify>,
    changed_workflows: ChangedWorkflows,
}

impl EngineHandle {
    /// Reads the store and starts the writer, which ends when the last clone of the handle is dropped.
    pub(crate) async fn start(
        store: Store,
        limits: ExpansionLimits,
        metrics: Arc<Metrics>,
        stop: ShutdownTokens,
        issuer: Issuer,
    ) -> Result<(Self, tokio::task::JoinHandle<()>), EngineError> {
        Self::start_with_clock(store, limits, metrics, stop, issuer, Arc::new(clock::now)).await
    }

    /// Starts the writer with the given clock.
    pub(crate) async fn start_with_clock(
        store: Store,
        limits: ExpansionLimits,
        metrics: Arc<Metrics>,
        stop: ShutdownTokens,
        issuer: Issuer,
        clock: Clock,
    ) -> Result<(Self, tokio::task::JoinHandle<()>), EngineError> {
        let engine = writer::load(&store, clock()).await?;
        let (queue, commands) = mpsc::channel(1_024);
        let (events, _) = broadcast::channel(WATCH_BACKLOG);
        let changed = Arc::new(Notify::new());
        let changed_workflows = ChangedWorkflows::default();
        let feeds =
            ChangeFeeds { events: events.clone(), changed: Arc::clone(&changed), workflows: changed_workflows.clone() };
        let writer = EngineWriter::new(engine, store.clone(), feeds, Arc::clone(&metrics), stop, issuer, clock);
        let task = tokio::spawn(writer.run(commands));
        Ok((Self { queue, events, store, limits, metrics, changed, changed_workflows }, task))
    }

    /// Runs a command in the writer and returns when its changes are durable.
    async fn write<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Engine, &mut Tx) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        self.write_then(command, |_, value| Ok(value)).await
    }

    /// Runs a command that changes a workflow, and returns the workflow as the command left it.
    async fn write_and_show<T: Send + 'static>(
        &self,
        id: WorkflowId,
        command: impl FnOnce(&mut Engine, &mut Tx) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<api::Workflow, EngineError> {
        self.write_then(command, move |engine, _| Ok(engine.workflow_summary(id)?)).await
    }

    /// Runs a command in the writer and, once its changes are durable, derives the answer from them.
    async fn write_then<T: Send + 'static, A: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Engine, &mut Tx) -> Result<T, EngineError> + Send + 'static,
        answer: impl FnOnce(&Engine, T) -> Result<A, EngineError> + Send + 'static,
    ) -> Result<A, EngineError> {
        let (sender, receiver) = oneshot::channel();
        let audited = audit::current();
        let run: WriteCommand = Box::new(move |context| {
            let value = context.and_then(|(engine, tx)| {
                let value = command(engine, tx);
                let outcome = value.as_ref().err().map_or(AuditOutcome::Done, EngineError::audit_outcome);
                if let Some(row) = audited.and_then(|audited| audited.row(outcome, tx.now)) {
                    tx.audit(row);
                }
                value
            });
            Box::new(move |committed| {
                // The caller may have disconnected; the command counts all the same.
                let _ = sender.send(committed.and_then(|engine| answer(engine, value?)));
            })
        });
        self.queue.send(EngineCommand::Write(run)).await.map_err(|_| EngineError::stopped())?;
        receiver.await.map_err(|_| EngineError::stopped())?
    }

    /// Reads from the engine's state.
    async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (sender, receiver) = oneshot::channel();
        let answer: ReplySender = Box::new(move |engine| {
            // The caller may have disconnected.
            let _ = sender.send(engine.and_then(question));
        });
        self.queue.send(EngineCommand::Read(answer)).await.map_err(|_| EngineError::stopped())?;
        receiver.await.map_err(|_| EngineError::stopped())?
    }

    /// Returns a receiver of events as they are committed.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Vec<Event>>> {
        self.events.subscribe()
    }

    /// Starts to record changed workflows.
    pub(crate) fn changed_workflows(&self) -> ChangedWorkflows {
        self.changed_workflows.begin();
        self.changed_workflows.clone()
    }

    /// Returns whether no workflow has work left.
    pub async fn is_idle(&self) -> Result<bool, EngineError> {
        self.read(|engine| Ok(engine.is_idle())).await
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

fn unwritable(error: serde_json::Error) -> EngineError {
    EngineError::internal(format!("the document cannot be written: {error}"))
}
