//! Running workflows on this machine until they have settled.
//!
//! The command acquires the store if no process owns it. Otherwise the owner runs the workflows and the command follows. If the
//! owner exits first, the command takes the store over, so that a workflow does not stop with the command of another user.

use std::time::{Duration, Instant};

use torc_api::action::{ActionState, ActionType};
use torc_api::api::{ApplyRequest, Workflow, WorkflowAction};
use torc_api::wire::RunnerScope;
use torc_controller::SlurmHandle;
use torc_core::ids::WorkflowId;
use torc_runner::RunnerExit;

use super::capacity::{LocalOffer, StarvationDetector, Starved};
use super::follow::{FollowedRun, follow_to_end};
use super::interrupts::Interrupts;
use super::local_runner::LocalRunner;
use super::progress::Progress;
use super::statuses::{LOCAL_TIMEOUT, fetch_workflows, wait_until};
use super::submit::submit_to_run;
use super::summary::print_summary;
use crate::client::{Client, ClientError};
use crate::connection::explain_missing;
use crate::context::CommandContext;
use crate::documents::Documents;
use crate::embedded::listening::{Exposure, Listening};
use crate::embedded::store_dir::{Lock, StoreDir};
use crate::embedded::{EmbeddedServer, ServeMode, StoreAccess, acquire_or_attach, bind_to_record};
use crate::error::{CliError, ExitStatus};
use crate::listen_args::resolve;
use crate::logging::LogWriters;
use crate::output::human;
use crate::runner_config::runner_config;
use crate::workflow_phase::phase;

/// The workflows to run.
pub enum Target {
    /// Documents to apply first.
    Documents(Documents),
    /// Workflows of the store, by name or number.
    Stored(Vec<String>),
}

/// The place where workflows for Slurm run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In Slurm allocations, if the workflow requests them.
    Slurm,
    /// On this machine, like workflows without Slurm.
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
                if let Some(bind) = bind_to_record(&context.settings.server, exposure) {
                    store_dir.record_bind(&bind);
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
                context.output.progress(&format!("process {} already runs this store: following it", info.pid));
                match follow_owner(context, &client, target, &mut interrupts).await {
                    Ok(Some(status)) => return Ok(status),
                    Ok(None) => {}
                    // The owner may exit between two requests, for example while the summary is fetched.
                    Err(error) if error.kind == ExitStatus::Unreachable => {}
                    Err(error) => return Err(error),
                }
                context.output.progress("the process that ran this store has exited: taking over");
            }
        }
    }
}

/// Returns the exposure that stored workflows need. Opens the store for a moment, because their documents decide.
async fn stored_exposure(
    context: &CommandContext,
    store_dir: &StoreDir,
    lock: Lock,
    target: &Target,
) -> Result<Exposure, CliError> {
    let Target::Stored(names) = target else { return Ok(Exposure::ThisMachine) };
    if context.settings.server.embedded_bind.is_some() {
        // The user has set the address.
        return Ok(Exposure::ThisMachine);
    }
    let server = EmbeddedServer::start(store_dir, Some(lock), &context.settings, ServeMode::Private).await?;
    let mut specs = Vec::new();
    for name in names {
        // A missing workflow is reported later, when it is run.
        let workflow = server.client().workflow(name).await.ok();
        specs.extend(workflow.and_then(|workflow| workflow.document).map(|document| document.spec));
    }
    server.shutdown().await;
    Ok(Exposure::of(&specs))
}

/// Applies to a server without a runner and returns at once.
async fn submit_to_server(context: &CommandContext, client: &Client, target: &Target) -> Result<ExitStatus, CliError> {
    let ids = apply(context, client, target).await?;
    let workflows = fetch_workflows(client, &ids).await?;
    let url = client.url();
    let hint = match workflows.iter().find(|workflow| workflow.slurm_cluster.is_some()) {
        Some(workflow) => {
            format!("the server at {url} submits allocations for it; follow it with: torc wait {}", workflow.name)
        }
        None => format!("stored on the server at {url}; run it with: torc runner"),
    };
    context.output.progress(&hint);
    Ok(ExitStatus::Success)
}

/// Follows workflows that the owner of the store runs. Returns `None` if the owner exits before the end.
async fn follow_owner(
    context: &CommandContext,
    client: &Client,
    target: &Target,
    interrupts: &mut Interrupts,
) -> Result<Option<ExitStatus>, CliError> {
    let ids = apply(context, client, target).await?;
    let interrupted = "stopped following; the other process still runs the jobs";
    let following = FollowedRun { timeout: LOCAL_TIMEOUT, interrupted };
    follow_to_end(context, client, &ids, following, interrupts).await
}

/// Applies workflows and runs them as the owner of the store.
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
    let outcome = match settled {
        true => run_pending_actions(client, &ids, runner, &mut progress, interrupts).await,
        false => {
            let detector = StarvationDetector::new(here, offer);
            run_until_settled(client, &ids, runner, &mut progress, interrupts, Some(&detector)).await
        }
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
            context.output.progress("stopped; run the same command again to continue");
            Ok(ExitStatus::Interrupted)
        }
    }
}

fn runs_in_allocations(workflow: &Workflow, server: &EmbeddedServer) -> bool {
    workflow.slurm_cluster.is_some() && server.slurm().is_some_and(SlurmHandle::has_loop)
}

/// Time that allocations of settled workflows have to end by themselves: their runners exit as soon as no job is left.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(60);
/// Time that canceled allocations have to end. Slurm kills what ignores SIGTERM after its `KillWait`, which is 30 s by default.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(90);

/// Waits until the allocations that this process serves have ended. Those of settled workflows end by themselves. The
/// others are canceled; their jobs are terminated and return to ready.
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
    let released = async {
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
        context.output.progress(&format!("canceling {count}; press Ctrl-C again to exit at once"));
    }
    tokio::select! {
        gone = released => gone.map_err(|error| CliError::unexpected("could not cancel the allocations", error))?,
        () = interrupts.next() => {}
    }
    let left = slurm.live_allocations().await.unwrap_or(0);
    if left > 0 && !is_settled {
        let count = human::count(i64::try_from(left).unwrap_or(i64::MAX), "allocation");
        context.output.warning(&format!("{count} may still be in Slurm: check with `torc get allocations` and squeue"));
    }
    Ok(())
}

/// Returns whether actions of settled workflows have not run yet, e.g. because the user interrupted the command.
async fn has_pending_actions(client: &Client, workflows: &[Workflow]) -> Result<bool, CliError> {
    for workflow in workflows {
        let actions = client.actions(&workflow.id.to_string()).await?;
        if actions.iter().any(is_pending) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether an action is triggered, runs commands for the whole workflow and has not ended.
fn is_pending(action: &WorkflowAction) -> bool {
    matches!(action.status, ActionState::Pending | ActionState::Running)
        && action.action_type == ActionType::RunCommands
        && action.worker.is_none()
        && !action.every_worker
}

/// Runs the pending actions of settled workflows. The runner exits by itself when no action is left.
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
    progress.line("stopping: terminating running commands; press Ctrl-C again to kill them");
    runner.stop(interrupts).await?;
    Ok(RunOutcome::Interrupted)
}

/// The outcome of a run.
pub enum RunOutcome {
    /// The workflows have settled, or the runner has exited.
    Settled(Vec<Workflow>),
    /// Jobs are ready, and no runner can run them.
    Starved(Starved),
    /// The server stayed unreachable, and the runner has finished the jobs that it had.
    Drained,
    /// The user interrupted the command.
    Interrupted,
}

impl RunOutcome {
    /// Returns the error for an unreachable server.
    pub fn drained() -> CliError {
        let message =
            "the server stayed unreachable: the running jobs have ended, and their results are in the journal";
        CliError::new(ExitStatus::Unreachable, message).hint(
            "when the server is back, replay the results with `torc workflows reconcile` and run this command again",
        )
    }
}

/// Runs until the workflows have settled, the user interrupts the command, or the detector finds that no job can start.
pub async fn run_until_settled(
    client: &Client,
    ids: &[i64],
    mut runner: LocalRunner,
    progress: &mut Progress,
    interrupts: &mut Interrupts,
    detector: Option<&StarvationDetector>,
) -> Result<RunOutcome, CliError> {
    let starved = async {
        match detector {
            Some(detector) => detector.wait(client).await,
            None => std::future::pending().await,
        }
    };
    let mut starved = std::pin::pin!(starved);
    let outcome = loop {
        let is_settled = |workflow: &Workflow| {
            progress.update(workflow);
            detector.iter().for_each(|detector| detector.update(workflow));
            !phase(workflow).is_active()
        };
        tokio::select! {
            // The runner decides how long it waits for an unreachable server.
            settled = wait_until(client, ids, Duration::MAX, is_settled) => match settled? {
                Some(workflows) => break RunOutcome::Settled(workflows),
                None => return Err(ClientError::Closed.into()),
            },
            ended = runner.ended(), if !runner.has_ended() => match ended? {
                RunnerExit::Drained => return Ok(RunOutcome::Drained),
                _ => {
                    let workflows = fetch_workflows(client, ids).await?;
                    // Jobs in allocations have runners of their own.
                    let runs_on = |one: &Workflow| one.slurm_cluster.is_some() && phase(one).is_active();
                    if !workflows.iter().any(runs_on) {
                        break RunOutcome::Settled(workflows);
                    }
                }
            },
            reason = &mut starved => break RunOutcome::Starved(reason?),
            () = interrupts.next() => {
                progress.line("stopping: terminating running jobs; press Ctrl-C again to kill them");
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

/// Ends the runner. If it runs jobs of other workflows, the shim keeps them for the process that takes the store over.
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

/// Applies the target and returns the ids of its workflows.
async fn apply(context: &CommandContext, client: &Client, target: &Target) -> Result<Vec<i64>, CliError> {
    match target {
        Target::Documents(documents) => submit_to_run(context, client, documents).await,
        Target::Stored(names) => {
            let mut ids = Vec::new();
            for name in names {
                let workflow = client.workflow(name).await.map_err(explain_missing)?;
                ids.push(workflow.id);
                // Applying the stored document again changes nothing, but marks the workflow to be run in this session.
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
    fn actions_are_pending_until_they_have_ended() {
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
    fn a_drained_runner_reports_an_unreachable_server() {
        let error = RunOutcome::drained();
        assert_eq!(error.kind, ExitStatus::Unreachable);
        assert!(error.hints[0].contains("torc workflows reconcile"), "{:?}", error.hints);
        assert_eq!((SHUTDOWN_GRACE.as_secs(), CANCEL_TIMEOUT.as_secs()), (60, 90));
    }
}
