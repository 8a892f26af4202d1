//! The single writer: takes every waiting command, applies them to memory, writes all changes in one transaction, and only
//! then sends the answers.
//!
//! If the write fails, nothing is acknowledged and the state is read again from the store. While the store cannot be written,
//! every command is refused with the reason, and the writer probes the store every few seconds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use torc_api::api::Event;
use torc_api::causes::error_chain;
use torc_api::token::Grant;
use torc_api::wire::{JobToken, SyncRequest, SyncResponse};
use torc_core::engine::{Engine, LongPoll, LongPolls, Session, Tx};
use torc_core::ids::{Now, RunnerId, WorkflowId};
use torc_core::rows::Changes;
use torc_store::Store;
use tracing::{Instrument as _, debug, error, info, info_span, warn};

use super::changed_workflows::ChangedWorkflows;
use super::error::EngineError;
use crate::clock::Clock;
use crate::issuer::Issuer;
use crate::metrics::Metrics;
use crate::{memory, views};

/// Maximum number of commands in one transaction: enough to share one sync of the disk, few enough for short pauses.
const GROUP_LIMIT: usize = 1_024;
/// Interval between checks for silent runners.
pub(super) const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between probes of a store that failed.
pub(super) const PROBE: Duration = Duration::from_secs(5);

/// Sends an answer once the group's changes are durable: from the new state, or the reason why they could not be written.
pub(super) type ReplySender = Box<dyn FnOnce(Result<&Engine, EngineError>) + Send>;
/// Runs a command on the state, or passes on the reason why it cannot run.
pub(super) type WriteCommand = Box<dyn FnOnce(Result<(&mut Engine, &mut Tx), EngineError>) -> ReplySender + Send>;
type SyncReply = oneshot::Sender<Result<SyncResponse, EngineError>>;

pub(super) enum EngineCommand {
    Read(ReplySender),
    Write(WriteCommand),
    Sync { runner: RunnerId, request: Box<SyncRequest>, grant: Grant, reply: SyncReply },
}

/// Receivers of committed changes: watchers, the Slurm loop and the controller of custom resources.
pub(super) struct ChangeFeeds {
    pub events: broadcast::Sender<Arc<Vec<Event>>>,
    pub changed: Arc<Notify>,
    pub workflows: ChangedWorkflows,
}

/// The task that owns the engine's state.
pub(super) struct EngineWriter {
    /// The state. `None` while the store cannot be read.
    engine: Option<Engine>,
    /// The settings of this process that are not in the store: they survive a reload.
    session: Session,
    /// The reason why nothing can be written now; `None` if the store can be written.
    unavailable: Option<EngineError>,
    store: Store,
    feeds: ChangeFeeds,
    metrics: Arc<Metrics>,
    waiting: LongPolls<Instant, SyncReply>,
    stop: ShutdownTokens,
    issuer: Issuer,
    clock: Clock,
}

/// The cancellation tokens that end the server. A shutdown cancels `waiting` before `queue`.
#[derive(Clone, Default)]
pub(crate) struct ShutdownTokens {
    pub waiting: CancellationToken,
    /// Ends the writer after the queue is empty.
    pub queue: CancellationToken,
    /// Ends the process because another one owns the store.
    pub superseded: CancellationToken,
}

/// Reads the engine's state from the store.
pub(super) async fn load(store: &Store, now: Now) -> Result<Engine, EngineError> {
    let snapshot = store.load().await?;
    let many = snapshot.jobs.len() > memory::MANY_JOBS;
    let engine = Engine::restore(snapshot, now);
    if many {
        memory::release_unused();
    }
    engine.map_err(|error| EngineError::unavailable(error_chain(&error)))
}

impl EngineWriter {
    pub fn new(
        engine: Engine,
        store: Store,
        feeds: ChangeFeeds,
        metrics: Arc<Metrics>,
        stop: ShutdownTokens,
        issuer: Issuer,
        clock: Clock,
    ) -> Self {
        let waiting = LongPolls::new(&engine);
        Self {
            engine: Some(engine),
            session: Session::default(),
            unavailable: None,
            store,
            feeds,
            metrics,
            waiting,
            stop,
            issuer,
            clock,
        }
    }

    pub async fn run(mut self, mut commands: mpsc::Receiver<EngineCommand>) {
        let mut tick = tokio::time::interval(TICK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut probe = tokio::time::interval(PROBE);
        probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut group = Vec::new();
        let stop = self.stop.clone();
        loop {
            let next_timeout = self.waiting.next_timeout();
            let mut ticked = false;
            tokio::select! {
                received = commands.recv_many(&mut group, GROUP_LIMIT) => if received == 0 { break },
                _ = tick.tick() => ticked = true,
                _ = probe.tick(), if self.unavailable.is_some() => self.recover().await,
                () = sleep_until(next_timeout), if next_timeout.is_some() => {}
                () = stop.waiting.cancelled(), if !self.waiting.is_empty() => {}
                () = stop.queue.cancelled(), if !commands.is_closed() => commands.close(),
            }
            let span = info_span!("command_group", commands = group.len());
            self.process(std::mem::take(&mut group), ticked).instrument(span).await;
        }
    }

    async fn process(&mut self, group: Vec<EngineCommand>, ticked: bool) {
        if let Some(reason) = &self.unavailable {
            return answer_read_only(group, self.engine.as_ref(), reason);
        }
        let Some(mut engine) = self.engine.take() else { return };
        let now = (self.clock)();
        let mut tx = engine.begin(now);
        let mut answers = Vec::with_capacity(group.len());
        self.metrics.commands(group.len());
        for command in group {
            answers.extend(self.execute_command(command, &mut engine, &mut tx));
        }
        if ticked {
            engine.expire(&mut tx);
        }
        let everyone = self.stop.waiting.is_cancelled();
        for (reply, response) in self.waiting.answer(&mut engine, &mut tx, Instant::now(), everyone) {
            answers.push(reply_with(reply, Ok(self.with_tokens(response))));
        }
        let changes = engine.finish(tx);
        match self.write(&changes).await {
            Ok(()) => {
                self.publish(&changes, &engine);
                if !changes.is_empty() {
                    self.feeds.changed.notify_one();
                    self.feeds.workflows.note(&changes);
                }
                for answer in answers {
                    answer(Ok(&engine));
                }
                self.engine = Some(engine);
                if changes.jobs.len() > memory::MANY_JOBS {
                    drop(changes);
                    memory::release_unused();
                }
            }
            Err(error) => self.fail(error, &engine, answers).await,
        }
    }

    fn execute_command(&mut self, command: EngineCommand, engine: &mut Engine, tx: &mut Tx) -> Option<ReplySender> {
        match command {
            EngineCommand::Read(read) => Some(read),
            EngineCommand::Write(write) => Some(write(Ok((engine, tx)))),
            EngineCommand::Sync { runner, request, grant, reply } => {
                if !engine.rights().may_sync(&grant, runner, &request) {
                    return Some(reply_with(reply, Err(EngineError::foreign_runner())));
                }
                let _span = info_span!("sync", runner = runner.0).entered();
                let (start, reported) = (std::time::Instant::now(), request.finished.len());
                let synced = engine.sync(runner, &request, tx);
                self.metrics.sync(start.elapsed(), reported);
                match synced {
                    Ok(answer) => match answer.wait(&request) {
                        Some(wait) => {
                            debug!(reported, ?wait, "sync parked");
                            self.waiting.park(LongPoll { runner, request, until: Instant::now() + wait, reply });
                            None
                        }
                        None => {
                            debug!(reported, leased = answer.response.leases.len(), "sync answered");
                            Some(reply_with(reply, Ok(self.with_tokens(answer.response))))
                        }
                    },
                    Err(refusal) => Some(reply_with(reply, Err(refusal.into()))),
                }
            }
        }
    }

    /// Adds the tokens with which the jobs of new leases authenticate.
    fn with_tokens(&self, mut response: SyncResponse) -> SyncResponse {
        let workflows: BTreeSet<i64> = response.leases.iter().map(|lease| lease.key.workflow).collect();
        let token = |workflow| JobToken { workflow, token: self.issuer.for_jobs(WorkflowId(workflow)) };
        response.job_tokens = workflows.into_iter().map(token).collect();
        response
    }

    async fn write(&self, changes: &Changes) -> Result<(), torc_store::StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let started = std::time::Instant::now();
        let written = self.store.commit(changes).await;
        let duration = started.elapsed();
        debug!(
            jobs = changes.jobs.len(),
            events = changes.events.len(),
            success = written.is_ok(),
            ?duration,
            "committed"
        );
        self.metrics.commit(duration, changes.results.len());
        written
    }

    fn publish(&self, changes: &Changes, engine: &Engine) {
        if self.feeds.events.receiver_count() > 0 && !changes.events.is_empty() {
            // There is no receiver if the last watcher has just disconnected.
            let _ = self.feeds.events.send(Arc::new(views::committed_events(&changes.events, engine)));
        }
    }

    /// Discards a group that could not be written: answers its commands and reads the durable state again.
    async fn fail(&mut self, error: torc_store::StoreError, failed: &Engine, answers: Vec<ReplySender>) {
        let reason = EngineError::unavailable(error_chain(&error));
        error!(error = %reason, "a group of changes could not be written");
        for answer in answers {
            answer(Err(reason.clone()));
        }
        for reply in self.waiting.take_all() {
            let _ = reply.send(Err(reason.clone()));
        }
        self.metrics.write_failed();
        if matches!(error, torc_store::StoreError::Superseded { .. }) {
            // The state of this process is outdated: it must not even answer reads.
            self.unavailable = Some(reason);
            return self.stop.superseded.cancel();
        }
        // The durable state may still be readable. Writing waits until a probe succeeds.
        self.session = failed.session().clone();
        self.engine = self.reload().await.ok();
        self.unavailable = Some(reason);
    }

    /// Reads the state again like a restart, but keeps the session of this process.
    async fn reload(&self) -> Result<Engine, EngineError> {
        let mut engine = load(&self.store, (self.clock)()).await?;
        engine.continue_session(&self.session);
        Ok(engine)
    }

    async fn recover(&mut self) {
        if let Err(error) = self.store.probe().await {
            warn!(error = %error_chain(&error), "the store still cannot be written to");
            return;
        }
        match self.reload().await {
            Ok(engine) => {
                info!("the store can be written to again");
                self.waiting.restart(&engine);
                self.engine = Some(engine);
                self.unavailable = None;
            }
            Err(error) => self.unavailable = Some(error),
        }
    }
}

/// Answers reads and refuses everything else while nothing can be written.
fn answer_read_only(group: Vec<EngineCommand>, engine: Option<&Engine>, reason: &EngineError) {
    for command in group {
        match command {
            EngineCommand::Read(read) => read(engine.ok_or_else(|| reason.clone())),
            EngineCommand::Write(write) => write(Err(reason.clone()))(Err(reason.clone())),
            EngineCommand::Sync { reply, .. } => {
                let _ = reply.send(Err(reason.clone()));
            }
        }
    }
}

fn reply_with(reply: SyncReply, result: Result<SyncResponse, EngineError>) -> ReplySender {
    Box::new(move |outcome| {
        let _ = reply.send(outcome.and(result));
    })
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
