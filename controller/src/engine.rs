//! A handle to the engine: each call is a command on one queue and returns when its changes are durable.

mod changed_workflows;
mod data;
mod error;
mod explain;
mod recovery;
mod rights;
mod slurm;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use torc_api::api::{self, AffectedJobs, ApplyOutcome, ApplyRequest, ApplyResponse, Event, Page};
use torc_api::document::WorkflowDocument;
use torc_api::error_code::ErrorKind;
use torc_api::filter::{EventFilter, JobFilter, ResultFilter, RunnerFilter, SlurmStatsFilter};
use torc_api::remote::{RemoteWorker, WorkerAddress};
use torc_api::slurm_stats::SlurmStats;
use torc_api::token::Grant;
use torc_api::wire::{
    FinishedAttempt, JournalledResult, RegisterRequest, RegisterResponse, ReplayOutcome, Replayed, SyncRequest,
    SyncResponse,
};
use torc_core::engine::{Apply, Engine, Retry, Tx};
use torc_core::expand::{ExpansionLimits, expand};
use torc_core::expanded::Expanded;
use torc_core::ids::{JobId, RunnerId, WorkflowId};
use torc_core::rows::ResultRow;
use torc_store::Store;

use crate::audit::{self, AuditOutcome};
use crate::clock::{self, Clock};
use crate::issuer::Issuer;
use crate::metrics::Metrics;
use crate::views;

pub(crate) use changed_workflows::ChangedWorkflows;
pub use error::EngineError;
pub(crate) use writer::Stop;
use writer::{ChangeFeeds, EngineCommand, EngineWriter, ReplySender, WriteCommand};

/// Committed groups that a watcher may lag behind before it reads from the store again.
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
    /// Reads the store and starts the writer. The handle's last clone ends it.
    pub(crate) async fn start(
        store: Store,
        limits: ExpansionLimits,
        metrics: Arc<Metrics>,
        stop: Stop,
        issuer: Issuer,
    ) -> Result<(Self, tokio::task::JoinHandle<()>), EngineError> {
        Self::start_with_clock(store, limits, metrics, stop, issuer, Arc::new(clock::now)).await
    }

    /// Starts the writer with the given clock.
    pub(crate) async fn start_with_clock(
        store: Store,
        limits: ExpansionLimits,
        metrics: Arc<Metrics>,
        stop: Stop,
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

    /// Creates or updates a workflow from its document. A dry run only returns the changes.
    pub async fn apply(&self, request: ApplyRequest, owner: &str, grant: &Grant) -> Result<ApplyResponse, EngineError> {
        let (request, expanded) = self.expand(request).await?;
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
            refuse(forbidden_changes(engine, &request.document))?;
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

    /// Expands a document. This can take a second, so it runs on a blocking thread and not in the writer.
    async fn expand(&self, request: ApplyRequest) -> Result<(ApplyRequest, Expanded), EngineError> {
        let limits = self.limits;
        let task = tokio::task::spawn_blocking(move || {
            let document = torc_api::document::Document::Workflow(request.document.clone());
            let mut problems = torc_api::validate::validate(&document);
            problems.retain(torc_api::problem::Problem::is_error);
            if !problems.is_empty() {
                return Err(problems);
            }
            let expanded = expand(&request.document.spec, &limits)?;
            Ok((request, expanded))
        });
        let result = task.await.map_err(|error| EngineError::internal(format!("expansion ended early: {error}")))?;
        result.map_err(EngineError::invalid)
    }

    async fn preview(&self, request: ApplyRequest, expanded: Expanded) -> Result<ApplyResponse, EngineError> {
        let document = serde_json::to_string(&request.document).map_err(unwritable)?;
        self.read(move |engine| {
            refuse(forbidden_changes(engine, &request.document))?;
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

    pub async fn register(&self, request: RegisterRequest, grant: Grant) -> Result<RegisterResponse, EngineError> {
        audit::set_object(format!("runners on {}", request.host));
        self.write(move |engine, tx| {
            if !engine.rights().may_serve(&grant, &request.scope) {
                let message = "the token allows no runner for that: name the workflow that it is for";
                return Err(EngineError::forbidden(message.to_owned()));
            }
            Ok(engine.register(&request, tx)?)
        })
        .await
    }

    /// Handles a sync of a runner. A long poll is answered when there is something to tell the runner.
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

    /// Returns the runners; with `all`, also those that have left.
    pub async fn runners(&self, all: bool) -> Result<Vec<api::Runner>, EngineError> {
        let mut runners = self.read(|engine| Ok(engine.runners())).await?;
        if all {
            let live: HashSet<i64> = runners.iter().map(|runner| runner.id).collect();
            let stored = self.store.runners(RunnerFilter { all }).await?;
            let gone = stored.into_iter().filter(|runner| !live.contains(&runner.id.0));
            runners.extend(gone.map(|runner| views::gone_runner(&runner)));
            runners.sort_by_key(|runner| runner.id);
        }
        Ok(runners)
    }

    /// Returns one job with its dependencies.
    pub async fn job(&self, id: WorkflowId, job: &str) -> Result<api::Job, EngineError> {
        let job = job.to_owned();
        let live = self.read(move |engine| Ok(views::LiveJob::from(engine.job(id, &job)?.1))).await?;
        let name = Some(live.name.clone());
        let mut jobs = self.jobs(&JobFilter { workflow: Some(id.0), name, ..JobFilter::default() }).await?;
        let mut job =
            jobs.items.pop().ok_or_else(|| EngineError::internal("the job is not in the store".to_owned()))?;
        live.add_to(&mut job);
        Ok(job)
    }

    /// Returns a page of jobs.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Page<api::Job>, EngineError> {
        let mut page = self.store.jobs(filter).await?;
        let (names, hosts) = self.names().await?;
        self.fill_commands(&mut page.items).await?;
        let items = page.items.into_iter().map(|view| views::job(view, &names, &hosts)).collect();
        Ok(Page { items, next: page.next })
    }

    /// Returns a page of results.
    pub async fn results(&self, filter: &ResultFilter<i64>) -> Result<Page<api::JobResult>, EngineError> {
        let page = self.store.results(filter).await?;
        let items = page.items.into_iter().map(views::result).collect();
        Ok(Page { items, next: page.next })
    }

    /// Returns a page of Slurm's accounting of steps.
    pub async fn slurm_stats(&self, filter: &SlurmStatsFilter<i64>) -> Result<Page<SlurmStats>, EngineError> {
        Ok(self.store.slurm_stats(filter).await?)
    }

    /// Records Slurm's accounting of steps and replaces what was recorded before.
    pub async fn record_slurm_stats(&self, stats: Vec<SlurmStats>) -> Result<(), EngineError> {
        self.write(move |engine, tx| Ok(engine.record_slurm_stats(&stats, tx)?)).await
    }

    /// Returns the names of workflows and the hosts of runners, by number.
    async fn names(&self) -> Result<(HashMap<i64, String>, HashMap<i64, String>), EngineError> {
        let workflows = self.workflows(None).await?;
        let runners = self.runners(false).await?;
        let names = workflows.into_iter().map(|workflow| (workflow.id, workflow.name)).collect();
        Ok((names, runners.into_iter().map(|runner| (runner.id, runner.host)).collect()))
    }

    /// Returns a page of events.
    pub async fn events(&self, filter: &EventFilter<i64>) -> Result<Page<Event>, EngineError> {
        let page = self.store.events(filter).await?;
        Ok(Page { items: page.items.into_iter().map(views::event).collect(), next: page.next })
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

    /// Returns the last event that was published to Kubernetes.
    pub(crate) async fn event_cursor(&self) -> Result<i64, EngineError> {
        Ok(self.store.event_cursor().await?)
    }

    /// Records that all events up to `sequence` were published to Kubernetes.
    pub(crate) async fn set_event_cursor(&self, sequence: i64) -> Result<(), EngineError> {
        Ok(self.store.set_event_cursor(sequence).await?)
    }

    /// Returns whether no workflow has work left.
    pub async fn is_idle(&self) -> Result<bool, EngineError> {
        self.read(|engine| Ok(engine.is_idle())).await
    }

    /// Returns the number of a job that is given by name or number.
    pub async fn job_id(&self, workflow: WorkflowId, reference: &str) -> Result<JobId, EngineError> {
        let reference = reference.to_owned();
        self.read(move |engine| Ok(engine.job(workflow, &reference)?.0)).await
    }

    /// Deletes superseded results and old events.
    pub async fn gc(&self, request: &api::GcRequest) -> Result<api::GcResponse, EngineError> {
        let before_ms = clock::now().wall_ms - request.older_than_seconds.saturating_mul(1_000);
        let report = self.store.gc(before_ms, request.dry_run).await?;
        if !request.dry_run {
            let forgotten = report.allocations.clone();
            self.write(move |engine, _| {
                engine.forget_allocations(&forgotten);
                Ok(())
            })
            .await?;
        }
        Ok(views::gc(report))
    }

    /// Returns the remote workers of a workflow.
    pub async fn remote_workers(&self, id: WorkflowId) -> Result<Vec<RemoteWorker>, EngineError> {
        Ok(self.store.remote_workers(id).await?)
    }

    /// Adds remote workers to a workflow and returns all of them.
    pub async fn add_remote_workers(
        &self,
        id: WorkflowId,
        workers: &[RemoteWorker],
    ) -> Result<Vec<RemoteWorker>, EngineError> {
        for worker in workers {
            let parsed: Result<WorkerAddress, _> = worker.address.parse();
            parsed.map_err(|error| EngineError::bad_request(format!("worker '{}': {error}", worker.address)))?;
        }
        self.store.add_remote_workers(id, workers, clock::now().wall_ms).await?;
        self.audit_only().await?;
        Ok(self.store.remote_workers(id).await?)
    }

    /// Removes a remote worker from a workflow.
    pub async fn remove_remote_worker(&self, id: WorkflowId, address: &str) -> Result<(), EngineError> {
        let was_there = self.store.remove_remote_worker(id, address).await?;
        self.audit_only().await?;
        if was_there { Ok(()) } else { Err(EngineError::no_worker(address)) }
    }

    /// Writes a copy of the store to `to`.
    pub async fn backup(&self, to: &std::path::Path) -> Result<(), EngineError> {
        self.audit_only().await?;
        Ok(self.store.backup(to).await?)
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

/// Returns the problems that forbid a document to replace the stored one.
fn forbidden_changes(engine: &Engine, document: &WorkflowDocument) -> Vec<torc_api::problem::Problem> {
    engine.stored_spec(document).map(|stored| torc_api::rules::updated(stored, &document.spec)).unwrap_or_default()
}

/// Returns an error if there are problems.
fn refuse(problems: Vec<torc_api::problem::Problem>) -> Result<(), EngineError> {
    if problems.is_empty() { Ok(()) } else { Err(EngineError::invalid(problems)) }
}

fn unwritable(error: serde_json::Error) -> EngineError {
    EngineError::internal(format!("the document cannot be written: {error}"))
}
