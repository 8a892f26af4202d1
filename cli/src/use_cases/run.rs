//! Running workflows on this machine until they have settled.
//!
//! The command owns the store where it is free. Where another process owns it, that process runs the workflows and the command
//! follows; when the owner leaves first, the command takes the store over, so that no workflow ends with the command of another.

use std::time::{Duration, Instant};

use torc_api::action::{ActionState, ActionType};
use torc_api::api::{ApplyRequest, Workflow, WorkflowAction};
use torc_api::wire::RunnerScope;
use torc_controller::SlurmHandle;
use torc_core::ids::WorkflowId;
use torc_runner::RunnerExit;

use super::capacity::{LocalOffer, Starved, starving};
use super::follow::{Followed, Following, LOCAL_TIMEOUT, fetch_workflows, follow, follow_to_end};
use super::interrupts::Interrupts;
use super::local_runner::LocalRunner;
use super::progress::Progress;
use super::submit::submit_to_run;
use super::summary::print_summary;
use crate::client::{Client, ClientError};
use crate::connection::explain_missing;
use crate::context::CommandContext;
use crate::documents::Documents;
use crate::embedded::listening::{Exposure, Listening};
use crate::embedded::store_dir::{Lock, StoreDir};
use crate::embedded::{EmbeddedServer, ServeMode, StoreAccess, acquire_or_attach, bind_to_note};
use crate::error::{CliError, ExitStatus};
use crate::listen_args::resolve;
use crate::logging::LogWriters;
use crate::output::human;
use crate::runner_config::runner_config;
use crate::workflow_phase::phase;

/// The workflows to run.
pub enum Target {
    /// These documents.
    Documents(Documents),
    /// Workflows of the store, by name or number.
    Stored(Vec<String>),
}

/// The store_dir where workflows for Slurm run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In allocations.
    Slurm,
    /// On this machine, like all others.
    ThisMachine,
}

/// Runs workflows until they have settled; returns the exit status of their outcome.
pub async fn run_workflows(
    context: &CommandContext,
    store_dir: &StoreDir,
    target: &Target,
    placement: Placement,
) -> Result<ExitStatus, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let mut exposure = match target {
        Target::Documents(documents) => Some(Exposure::of(documents.specs())),
        Target::Stored(_) => None,
    };
    loop {
        match acquire_or_attach(store_dir, context.settings.namespace.as_deref()).await? {
            StoreAccess::Acquired(lock) => {
                let Some(exposure) = exposure else {
                    exposure = Some(stored_exposure(context, store_dir, lock, target).await?);
                    continue;
                };
                let listening = Listening::embedded(&context.settings.server, exposure, resolve)?;
                if listening.is_exposed() {
                    context.output.warning("requests and tokens are not encrypted: see --insecure-http");
                }
                if let Some(bind) = bind_to_note(&context.settings.server, exposure) {
                    store_dir.note_bind(&bind);
                }
                let slurm = (placement == Placement::Slurm).then_some(RunnerScope::Session);
                let mode = ServeMode::Announced { listening, runner: true, slurm, kubernetes: None };
                let server = EmbeddedServer::start(store_dir, Some(lock), &context.settings, mode).await?;
                if let Some(warning) = server.warning() {
                    context.output.warning(warning);
                }
                let result = run_as_owner(context, store_dir, &server, target, &mut interrupts).await;
                server.shutdown().await;
                return result;
            }
            StoreAccess::Attached(info, client) => {
                if !info.runner {
                    return submit_to_server(context, &client, target).await;
                }
                context.output.progress(&format!("the store is in use by process {}: following there", info.pid));
                if let Some(status) = follow_owner(context, &client, target, &mut interrupts).await? {
                    return Ok(status);
                }
                context.output.progress("its owner has left: taking over");
            }
        }
    }
}

/// Who has to reach the server of stored workflows. Their documents tell, and to read them the store has to be opened first.
async fn stored_exposure(
    context: &CommandContext,
    store_dir: &StoreDir,
    lock: Lock,
    target: &Target,
) -> Result<Exposure, CliError> {
    let Target::Stored(names) = target else { return Ok(Exposure::ThisMachine) };
    if context.settings.server.embedded_bind.is_some() {
        // It was said where to listen.
        return Ok(Exposure::ThisMachine);
    }
    let server = EmbeddedServer::start(store_dir, Some(lock), &context.settings, ServeMode::Private).await?;
    let mut specs = Vec::new();
    for name in names {
        // One that does not exist is reported when it is to be run.
        let workflow = server.client().workflow(name).await.ok();
        specs.extend(workflow.and_then(|workflow| workflow.document).map(|document| document.spec));
    }
    server.shutdown().await;
    Ok(Exposure::of(&specs))
}

/// Applies to a server that runs nothing itself, and returns at once.
async fn submit_to_server(context: &CommandContext, client: &Client, target: &Target) -> Result<ExitStatus, CliError> {
    let ids = apply(context, client, target).await?;
    let workflows = fetch_workflows(client, &ids).await?;
    let url = client.url();
    let hint = match workflows.iter().find(|workflow| workflow.slurm_cluster.is_some()) {
        Some(workflow) => {
            format!(
                "the server at {url} has it, and asks Slurm for allocations; follow it with: torc wait {}",
                workflow.name
            )
        }
        None => format!("the server at {url} has it; run it with: torc runner"),
    };
    context.output.progress(&hint);
    Ok(ExitStatus::Success)
}

/// Follows workflows that the owner of the store runs. Returns nothing when the owner has left before the end.
async fn follow_owner(
    context: &CommandContext,
    client: &Client,
    target: &Target,
    interrupts: &mut Interrupts,
) -> Result<Option<ExitStatus>, CliError> {
    let ids = apply(context, client, target).await?;
    let interrupted = "stopped following; the jobs go on in the other process";
    let following = Following { timeout: LOCAL_TIMEOUT, interrupted };
    follow_to_end(context, client, &ids, following, interrupts).await
}

/// Applies and runs as the owner of the store.
async fn run_as_owner(
    context: &CommandContext,
    store_dir: &StoreDir,
    server: &EmbeddedServer,
    target: &Target,
    interrupts: &mut Interrupts,
) -> Result<ExitStatus, CliError> {
    let client = server.client();
    let ids = apply(context, client, target).await?;
    let workflows = fetch_workflows(client, &ids).await?;
    let settled = workflows.iter().all(|workflow| !phase(workflow).is_active());
    if settled && !has_pending_actions(client, &workflows).await? {
        return print_summary(context, client, &workflows).await;
    }
    let mut config = runner_config(&context.settings.run, &store_dir.runner_folder(), &context.folder).await?;
    config.scope = RunnerScope::Session;
    config.api_url = Some(client.url());
    config.server_file = Some(store_dir.server_file());
    let mut progress = Progress::new(context.output);
    let time = [config.time_limit, config.allocation_time].into_iter().flatten().min();
    let offer = LocalOffer { capacity: config.capacity, end: time.map(|time| Instant::now() + time) };
    let runner = LocalRunner::start(config, server.link(), LogWriters::One);
    let here: Vec<i64> = workflows.iter().filter(|one| !runs_in_allocations(one, server)).map(|one| one.id).collect();
    let starved = starving(client, &here, offer);
    let outcome = match settled {
        true => run_pending_actions(client, &ids, runner, &mut progress, interrupts).await,
        false => run_until_settled(client, &ids, runner, &mut progress, (interrupts, starved)).await,
    };
    progress.finish();
    release_allocations(context, server, outcome.as_ref().ok(), interrupts).await?;
    match outcome? {
        RunOutcome::Settled(workflows) => print_summary(context, client, &workflows).await,
        RunOutcome::Starved(Starved { message, hint }) => {
            print_summary(context, client, &fetch_workflows(client, &ids).await?).await?;
            Err(CliError::new(ExitStatus::WorkflowFailed, message).hint(hint))
        }
        RunOutcome::Drained => Err(RunOutcome::drained()),
        RunOutcome::Interrupted => {
            print_summary(context, client, &fetch_workflows(client, &ids).await?).await?;
            context.output.progress("stopped; the same command goes on where it was");
            Ok(ExitStatus::Interrupted)
        }
    }
}

/// Its jobs run in allocations.
fn runs_in_allocations(workflow: &Workflow, server: &EmbeddedServer) -> bool {
    workflow.slurm_cluster.is_some() && server.slurm().is_some_and(SlurmHandle::has_loop)
}

/// How long allocations may take to go when everything has ended, and when a person has stopped it.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(60);
const CANCEL_TIMEOUT: Duration = Duration::from_secs(90);

/// Nobody serves allocations once this process has left. Those of workflows that have ended leave by themselves; what a person has
/// stopped is cancelled: its jobs are asked to end, and return to ready.
async fn release_allocations(
    context: &CommandContext,
    server: &EmbeddedServer,
    outcome: Option<&RunOutcome>,
    interrupts: &mut Interrupts,
) -> Result<(), CliError> {
    let Some(slurm) = server.slurm().filter(|slurm| slurm.has_loop()) else { return Ok(()) };
    let live = slurm.live_allocations().await.unwrap_or(0);
    if live == 0 {
        return Ok(());
    }
    let count = human::count(i64::try_from(live).unwrap_or(i64::MAX), "allocation");
    let is_settled = matches!(outcome, Some(RunOutcome::Settled(_)));
    let going = async {
        match outcome {
            Some(RunOutcome::Settled(workflows)) => {
                for workflow in workflows {
                    slurm.await_release(WorkflowId(workflow.id), SHUTDOWN_GRACE).await?;
                }
                Ok(())
            }
            _ => slurm.drain(CANCEL_TIMEOUT).await,
        }
    };
    if !is_settled {
        context.output.progress(&format!("cancelling {count}; Ctrl-C again leaves at once"));
    }
    tokio::select! {
        gone = going => gone.map_err(|error| CliError::unexpected("allocations were not cancelled", error))?,
        () = interrupts.next() => {}
    }
    let left = slurm.live_allocations().await.unwrap_or(0);
    if left > 0 && !is_settled {
        let count = human::count(i64::try_from(left).unwrap_or(i64::MAX), "allocation");
        context.output.warning(&format!("{count} may still be there; `torc get allocations` and squeue tell"));
    }
    Ok(())
}

/// Whether an end has set off commands that nobody has run to theirs, e.g. because a person stopped it.
async fn has_pending_actions(client: &Client, workflows: &[Workflow]) -> Result<bool, CliError> {
    for workflow in workflows {
        let actions = client.actions(&workflow.id.to_string()).await?;
        if actions.iter().any(is_pending) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Commands of the workflow, and not of one worker, that were set off and have not ended.
fn is_pending(action: &WorkflowAction) -> bool {
    matches!(action.status, ActionState::Pending | ActionState::Running)
        && action.action_type == ActionType::RunCommands
        && action.worker.is_none()
        && !action.every_worker
}

/// Runs what workflows that have settled still owe: the runner leaves by itself when that is done.
async fn run_pending_actions(
    client: &Client,
    ids: &[i64],
    mut runner: LocalRunner,
    progress: &mut Progress,
    interrupts: &mut Interrupts,
) -> Result<RunOutcome, CliError> {
    tokio::select! {
        ended = runner.ended() => {
            ended?;
            return Ok(RunOutcome::Settled(fetch_workflows(client, ids).await?));
        }
        () = interrupts.next() => {}
    }
    progress.line("stopping: running commands are asked to end; Ctrl-C again ends them at once");
    runner.stop(interrupts).await?;
    Ok(RunOutcome::Interrupted)
}

/// How a run ended.
pub enum RunOutcome {
    /// The workflows have settled, or the runner was sent away.
    Settled(Vec<Workflow>),
    /// Jobs are ready, and nobody will ever take them.
    Starved(Starved),
    /// The server stayed away, and the runner has done what can be done without it.
    Drained,
    /// A person stopped it.
    Interrupted,
}

impl RunOutcome {
    /// What to say when the server stayed away.
    pub fn drained() -> CliError {
        let message = "the server stayed out of reach: what ran has ended, and the results are in the journal";
        CliError::new(ExitStatus::Unreachable, message)
            .hint("when the server is back, replay them with `torc workflows reconcile` and run this command again")
    }
}

/// Runs until the workflows have settled, a person stops it, or `starved` says that it never will.
pub async fn run_until_settled(
    client: &Client,
    ids: &[i64],
    mut runner: LocalRunner,
    progress: &mut Progress,
    (interrupts, starved): (&mut Interrupts, impl Future<Output = Result<Starved, ClientError>>),
) -> Result<RunOutcome, CliError> {
    let mut starved = std::pin::pin!(starved);
    let outcome = loop {
        tokio::select! {
            // Whether to wait for a server that is away is the runner's decision.
            followed = follow(client, ids, progress, Duration::MAX) => match followed? {
                Followed::Settled(workflows) => break RunOutcome::Settled(workflows),
                Followed::ServerGone => return Err(ClientError::Closed.into()),
            },
            ended = runner.ended(), if !runner.has_ended() => match ended? {
                RunnerExit::Drained => return Ok(RunOutcome::Drained),
                _ => {
                    let workflows = fetch_workflows(client, ids).await?;
                    // What runs in allocations goes on without this machine's runner.
                    let goes_on = |one: &Workflow| one.slurm_cluster.is_some() && phase(one).is_active();
                    if !workflows.iter().any(goes_on) {
                        break RunOutcome::Settled(workflows);
                    }
                }
            },
            reason = &mut starved => break RunOutcome::Starved(reason?),
            () = interrupts.next() => {
                progress.line("stopping: running jobs are asked to end; Ctrl-C again ends them at once");
                break RunOutcome::Interrupted;
            }
        }
    };
    match outcome {
        RunOutcome::Settled(_) => finish(client, ids, runner, interrupts).await?,
        RunOutcome::Starved(_) | RunOutcome::Interrupted | RunOutcome::Drained => runner.stop(interrupts).await?,
    }
    Ok(outcome)
}

/// Lets the runner go. Jobs of others that follow here are left to the shim, which their process takes over.
async fn finish(
    client: &Client,
    ids: &[i64],
    runner: LocalRunner,
    interrupts: &mut Interrupts,
) -> Result<(), CliError> {
    let others = client.workflows().await?;
    let busy = |workflow: &Workflow| !ids.contains(&workflow.id) && workflow.status.jobs.running > 0;
    if others.iter().any(busy) {
        runner.abandon();
        return Ok(());
    }
    runner.settle(interrupts).await
}

/// Applies what is target; the numbers of the workflows.
async fn apply(context: &CommandContext, client: &Client, target: &Target) -> Result<Vec<i64>, CliError> {
    match target {
        Target::Documents(documents) => submit_to_run(context, client, documents).await,
        Target::Stored(names) => {
            let mut ids = Vec::new();
            for name in names {
                let workflow = client.workflow(name).await.map_err(explain_missing)?;
                ids.push(workflow.id);
                // Applying the stored document again changes nothing, but says that somebody wants it to run now.
                if let Some(document) = workflow.document {
                    let working_dir = workflow.working_dir;
                    let request = ApplyRequest { document, working_dir, dry_run: false, store_only: false };
                    client.apply(&request).await?;
                }
            }
            Ok(ids)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_owed_until_they_have_ended() {
        let action = |status: &str, kind: &str, worker: Option<i64>, every_worker: bool| -> WorkflowAction {
            let mut value = serde_json::json!({ "id": 1, "triggerType": "on_workflow_complete", "actionType": kind,
                "status": status, "everyWorker": every_worker, "runId": 1, "attempt": 1, "tries": 0 });
            if let Some(worker) = worker {
                value["worker"] = worker.into();
            }
            serde_json::from_value(value).expect("an action")
        };
        for (status, kind, worker, every_worker, expected) in [
            ("pending", "run_commands", None, false, true),
            ("running", "run_commands", None, false, true),
            ("executed", "run_commands", None, false, false),
            ("failed", "run_commands", None, false, false),
            ("pending", "schedule_nodes", None, false, false),
            ("pending", "run_commands", Some(3), false, false),
            ("pending", "run_commands", None, true, false),
        ] {
            assert_eq!(
                is_pending(&action(status, kind, worker, every_worker)),
                expected,
                "{status} {kind} {worker:?} {every_worker}"
            );
        }
    }

    #[test]
    fn a_server_that_stayed_away_is_unreachable() {
        let error = RunOutcome::drained();
        assert_eq!(error.kind, ExitStatus::Unreachable);
        assert!(error.hints[0].contains("torc workflows reconcile"), "{:?}", error.hints);
        assert_eq!((SHUTDOWN_GRACE.as_secs(), CANCEL_TIMEOUT.as_secs()), (60, 90));
    }
}
