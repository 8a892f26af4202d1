//! Running workflows on this machine until they have settled: as the owner of the store where it is free, as a guest of its
//! owner where it is not, and as its successor when the owner leaves.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use torc_api::action::{ActionState, ActionType};
use torc_api::api::{ApplyRequest, Workflow, WorkflowAction};
use torc_api::wire::RunnerScope;
use torc_controller::SlurmHandle;
use torc_core::ids::WorkflowId;
use torc_runner::{LinkError, RunnerConfig, RunnerError, RunnerEvent, RunnerExit, ServerLink};

use crate::client::{Client, ClientError};
use crate::commands::apply::Purpose;
use crate::commands::{Context, apply};
use crate::documents::Documents;
use crate::error::{CommandError, ExitStatus};
use crate::follow::{self, Followed, LOCAL_PATIENCE, follow, look, standing};
use crate::listen_args::resolve;
use crate::listening::{Listening, Reach};
use crate::logging::{Author, open_runner_log};
use crate::output::{Items, human};
use crate::place::{Lock, Place};
use crate::progress::Progress;
use crate::runner_config::runner_config;
use crate::standalone::{Announce, Entry, Owner, bind_to_note, enter};
use crate::starving::{LocalOffer, Starved, starving};
use crate::summary;

/// What is to be run.
pub enum Wanted {
    /// These documents.
    Documents(Documents),
    /// Workflows of the store, by name or number.
    Stored(Vec<String>),
}

/// Where the jobs run of workflows that are for Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// In allocations that are asked for.
    Slurm,
    /// On this machine, like all others.
    Here,
}

/// Runs until everything wanted has settled; says how it went.
pub async fn run(
    context: &Context,
    place: &Place,
    wanted: &Wanted,
    ground: Ground,
) -> Result<ExitStatus, CommandError> {
    let mut interrupts = Interrupts::listen()?;
    let mut reach = match wanted {
        Wanted::Documents(documents) => Some(apply::reach(documents)),
        Wanted::Stored(_) => None,
    };
    loop {
        match enter(place, context.settings.namespace.as_deref()).await? {
            Entry::Ours(lock) => {
                let Some(reach) = reach else {
                    reach = Some(stored_reach(context, place, lock, wanted).await?);
                    continue;
                };
                let listening = Listening::embedded(&context.settings.server, reach, resolve)?;
                if listening.is_exposed() {
                    context.output.warning("requests and tokens are not encrypted: see --insecure-http");
                }
                if let Some(bind) = bind_to_note(&context.settings.server, reach) {
                    place.note_bind(&bind);
                }
                let slurm = (ground == Ground::Slurm).then_some(RunnerScope::Session);
                let announce = Announce::Yes { listening, runner: true, slurm, kubernetes: None };
                let owner = Owner::start(place, Some(lock), &context.settings, announce).await?;
                if let Some(doubt) = owner.doubt() {
                    context.output.warning(doubt);
                }
                let result = lead(context, place, &owner, wanted, &mut interrupts).await;
                owner.leave().await;
                return result;
            }
            Entry::Theirs(info, client) => {
                if !info.runner {
                    return hand_in(context, &client, wanted).await;
                }
                context.output.progress(&format!("the store is in use by process {}: following there", info.pid));
                if let Some(status) = attend(context, &client, wanted, &mut interrupts).await? {
                    return Ok(status);
                }
                context.output.progress("its owner has left: taking over");
            }
        }
    }
}

/// Who has to reach the server of stored workflows. Their documents tell, and to read them the store has to be opened first.
async fn stored_reach(context: &Context, place: &Place, lock: Lock, wanted: &Wanted) -> Result<Reach, CommandError> {
    let Wanted::Stored(names) = wanted else { return Ok(Reach::Here) };
    if context.settings.server.embedded_bind.is_some() {
        // It was said where to listen.
        return Ok(Reach::Here);
    }
    let owner = Owner::start(place, Some(lock), &context.settings, Announce::No).await?;
    let mut specs = Vec::new();
    for name in names {
        // One that does not exist is reported when it is to be run.
        let workflow = owner.client().workflow(name).await.ok();
        specs.extend(workflow.and_then(|workflow| workflow.document).map(|document| document.spec));
    }
    owner.leave().await;
    Ok(Reach::of(&specs))
}

/// Applies to a server that runs nothing itself, and returns at once.
async fn hand_in(context: &Context, client: &Client, wanted: &Wanted) -> Result<ExitStatus, CommandError> {
    let ids = request(context, client, wanted).await?;
    let workflows = look(client, &ids).await?;
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

/// Follows as a guest; nothing when the owner has left before the end.
async fn attend(
    context: &Context,
    client: &Client,
    wanted: &Wanted,
    interrupts: &mut Interrupts,
) -> Result<Option<ExitStatus>, CommandError> {
    let ids = request(context, client, wanted).await?;
    let mut progress = Progress::new(context.output);
    let followed = tokio::select! {
        followed = follow(client, &ids, &mut progress, LOCAL_PATIENCE) => followed,
        () = interrupts.next() => {
            progress.finish();
            context.output.progress("stopped following; the jobs go on in the other process");
            return Ok(Some(ExitStatus::Interrupted));
        }
    };
    progress.finish();
    match followed? {
        Followed::ServerGone => Ok(None),
        Followed::Settled(workflows) => conclude(context, client, &workflows).await.map(Some),
    }
}

/// Applies and runs as the owner of the store.
async fn lead(
    context: &Context,
    place: &Place,
    owner: &Owner,
    wanted: &Wanted,
    interrupts: &mut Interrupts,
) -> Result<ExitStatus, CommandError> {
    let client = owner.client();
    let ids = request(context, client, wanted).await?;
    let workflows = look(client, &ids).await?;
    let settled = workflows.iter().all(|workflow| !standing(workflow).is_active());
    if settled && !owes_commands(client, &workflows).await? {
        return conclude(context, client, &workflows).await;
    }
    let mut config = runner_config(&context.settings.run, &place.runner_folder(), &context.folder).await?;
    config.scope = RunnerScope::Session;
    config.api_url = Some(client.url());
    config.server_file = Some(place.server_file());
    let mut progress = Progress::new(context.output);
    let time = [config.time_limit, config.allocation_time].into_iter().flatten().min();
    let offer = LocalOffer { capacity: config.capacity, end: time.map(|time| Instant::now() + time) };
    let runner = LocalRunner::start(config, owner.link(), Author::Owner);
    let here: Vec<i64> = workflows.iter().filter(|one| !is_elsewhere(one, owner)).map(|one| one.id).collect();
    let starved = starving(client, &here, offer);
    let outcome = match settled {
        true => make_up(client, &ids, runner, &mut progress, interrupts).await,
        false => drive(client, &ids, runner, &mut progress, (interrupts, starved)).await,
    };
    progress.finish();
    let_allocations_go(context, owner, outcome.as_ref().ok(), interrupts).await?;
    match outcome? {
        Driven::Settled(workflows) => conclude(context, client, &workflows).await,
        Driven::Starved(Starved { message, hint }) => {
            conclude(context, client, &look(client, &ids).await?).await?;
            Err(CommandError::new(ExitStatus::WorkflowFailed, message).hint(hint))
        }
        Driven::Drained => Err(Driven::drained()),
        Driven::Interrupted => {
            conclude(context, client, &look(client, &ids).await?).await?;
            context.output.progress("stopped; the same command goes on where it was");
            Ok(ExitStatus::Interrupted)
        }
    }
}

/// Its jobs run in allocations.
fn is_elsewhere(workflow: &Workflow, owner: &Owner) -> bool {
    workflow.slurm_cluster.is_some() && owner.slurm().is_some_and(SlurmHandle::has_loop)
}

/// How long allocations may take to go when everything has ended, and when a person has stopped it.
const FAREWELL: Duration = Duration::from_secs(60);
const STOPPING: Duration = Duration::from_secs(90);

/// Nobody serves allocations once this process has left. Those of workflows that have ended leave by themselves; what a person has
/// stopped is cancelled: its jobs are asked to end, and return to ready.
async fn let_allocations_go(
    context: &Context,
    owner: &Owner,
    outcome: Option<&Driven>,
    interrupts: &mut Interrupts,
) -> Result<(), CommandError> {
    let Some(slurm) = owner.slurm().filter(|slurm| slurm.has_loop()) else { return Ok(()) };
    let live = slurm.live_allocations().await.unwrap_or(0);
    if live == 0 {
        return Ok(());
    }
    let count = human::count(i64::try_from(live).unwrap_or(i64::MAX), "allocation");
    let is_settled = matches!(outcome, Some(Driven::Settled(_)));
    let going = async {
        match outcome {
            Some(Driven::Settled(workflows)) => {
                for workflow in workflows {
                    slurm.await_release(WorkflowId(workflow.id), FAREWELL).await?;
                }
                Ok(())
            }
            _ => slurm.drain(STOPPING).await,
        }
    };
    if !is_settled {
        context.output.progress(&format!("cancelling {count}; Ctrl-C again leaves at once"));
    }
    tokio::select! {
        gone = going => gone.map_err(|error| CommandError::unexpected("allocations were not cancelled", error))?,
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
async fn owes_commands(client: &Client, workflows: &[Workflow]) -> Result<bool, CommandError> {
    for workflow in workflows {
        let actions = client.actions(&workflow.id.to_string()).await?;
        if actions.iter().any(is_owed) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Commands of the workflow, and not of one worker, that were set off and have not ended.
fn is_owed(action: &WorkflowAction) -> bool {
    matches!(action.status, ActionState::Pending | ActionState::Running)
        && action.action_type == ActionType::RunCommands
        && action.worker.is_none()
        && !action.every_worker
}

/// Runs what workflows that have settled still owe: the runner leaves by itself when that is done.
async fn make_up(
    client: &Client,
    ids: &[i64],
    mut runner: LocalRunner,
    progress: &mut Progress,
    interrupts: &mut Interrupts,
) -> Result<Driven, CommandError> {
    tokio::select! {
        ended = runner.ended() => {
            ended?;
            return Ok(Driven::Settled(look(client, ids).await?));
        }
        () = interrupts.next() => {}
    }
    progress.line("stopping: running commands are asked to end; Ctrl-C again ends them at once");
    runner.stop(interrupts).await?;
    Ok(Driven::Interrupted)
}

/// How a run ended.
pub enum Driven {
    /// The workflows have settled, or the runner was sent away.
    Settled(Vec<Workflow>),
    /// Jobs are ready, and nobody will ever take them.
    Starved(Starved),
    /// The server stayed away, and the runner has done what can be done without it.
    Drained,
    /// A person stopped it.
    Interrupted,
}

impl Driven {
    /// What to say when the server stayed away.
    pub fn drained() -> CommandError {
        let message = "the server stayed out of reach: what ran has ended, and the results are in the journal";
        CommandError::new(ExitStatus::Unreachable, message)
            .hint("when the server is back, replay them with `torc workflows reconcile` and run this command again")
    }
}

/// Runs until the workflows have settled, a person stops it, or `starved` says that it never will.
pub async fn drive(
    client: &Client,
    ids: &[i64],
    mut runner: LocalRunner,
    progress: &mut Progress,
    (interrupts, starved): (&mut Interrupts, impl Future<Output = Result<Starved, ClientError>>),
) -> Result<Driven, CommandError> {
    let mut starved = std::pin::pin!(starved);
    let outcome = loop {
        tokio::select! {
            // Whether to wait for a server that is away is the runner's decision.
            followed = follow(client, ids, progress, Duration::MAX) => match followed? {
                Followed::Settled(workflows) => break Driven::Settled(workflows),
                Followed::ServerGone => return Err(ClientError::Closed.into()),
            },
            ended = runner.ended(), if !runner.ended => match ended? {
                RunnerExit::Drained => return Ok(Driven::Drained),
                _ => {
                    let workflows = look(client, ids).await?;
                    // What runs in allocations goes on without this machine's runner.
                    let goes_on = |one: &Workflow| one.slurm_cluster.is_some() && standing(one).is_active();
                    if !workflows.iter().any(goes_on) {
                        break Driven::Settled(workflows);
                    }
                }
            },
            reason = &mut starved => break Driven::Starved(reason?),
            () = interrupts.next() => {
                progress.line("stopping: running jobs are asked to end; Ctrl-C again ends them at once");
                break Driven::Interrupted;
            }
        }
    };
    match outcome {
        Driven::Settled(_) => finish(client, ids, runner, interrupts).await?,
        Driven::Starved(_) | Driven::Interrupted | Driven::Drained => runner.stop(interrupts).await?,
    }
    Ok(outcome)
}

/// Lets the runner go. Jobs of others that follow here are left to the shim, which their process takes over.
async fn finish(
    client: &Client,
    ids: &[i64],
    runner: LocalRunner,
    interrupts: &mut Interrupts,
) -> Result<(), CommandError> {
    let others = client.workflows().await?;
    let busy = |workflow: &Workflow| !ids.contains(&workflow.id) && workflow.status.jobs.running > 0;
    if others.iter().any(busy) {
        runner.abandon();
        return Ok(());
    }
    runner.settle(interrupts).await
}

/// Applies what is wanted; the numbers of the workflows.
async fn request(context: &Context, client: &Client, wanted: &Wanted) -> Result<Vec<i64>, CommandError> {
    match wanted {
        Wanted::Documents(documents) => {
            for line in apply::submit_clusters(client, &documents.clusters, Purpose::Run).await? {
                context.output.progress(&line);
            }
            let responses = apply::submit(context, client, &documents.workflows, Purpose::Run).await?;
            for response in &responses {
                context.output.progress(&apply::line(response, Purpose::Run));
            }
            Ok(responses.into_iter().filter_map(|response| response.id).collect())
        }
        Wanted::Stored(names) => {
            let mut ids = Vec::new();
            for name in names {
                let workflow = client.workflow(name).await.map_err(crate::connection::explain_missing)?;
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

/// Prints the summaries; what the command exits with.
pub async fn conclude(context: &Context, client: &Client, workflows: &[Workflow]) -> Result<ExitStatus, CommandError> {
    let mut text = String::new();
    for workflow in workflows {
        let actions = summary::failed_actions(client, workflow).await?;
        text.push_str(&summary::text(workflow, &summary::failures(client, workflow).await?, &actions));
    }
    context.output.value(&Items { items: workflows }, || text)?;
    write_provenance(context, client, workflows).await?;
    Ok(follow::exit_status(workflows))
}

/// Leaves a record of provenance beside the files of the workflows that ask for it, where their folder is on this machine.
async fn write_provenance(context: &Context, client: &Client, workflows: &[Workflow]) -> Result<(), CommandError> {
    for workflow in workflows.iter().filter(|workflow| workflow.enable_ro_crate) {
        let folder = Path::new(&workflow.working_dir);
        if folder.is_dir() {
            let metadata = client.ro_crate(&workflow.id.to_string()).await?;
            let written = crate::commands::ro_crate::write(folder, &metadata)?;
            context.output.progress(&format!("provenance: {}", written.display()));
        }
    }
    Ok(())
}

/// So long the accounting is waited for when everything else is done: six tries, five seconds apart.
const ACCOUNTING_PATIENCE: Duration = Duration::from_secs(45);

/// A runner in this process.
pub struct LocalRunner {
    task: tokio::task::JoinHandle<Result<RunnerExit, RunnerError>>,
    stop: CancellationToken,
    stop_now: CancellationToken,
    ended: bool,
}

impl LocalRunner {
    /// Starts it.
    pub fn start<L: ServerLink>(config: RunnerConfig, link: L, author: Author) -> Self {
        open_runner_log(&config, author);
        let stop = CancellationToken::new();
        let stop_now = config.stop_now.clone();
        let task = tokio::spawn(torc_runner::run(config, link, stop.clone(), |event: RunnerEvent| event.log()));
        Self { task, stop, stop_now, ended: false }
    }

    /// Waits until it ends by itself.
    pub async fn ended(&mut self) -> Result<RunnerExit, CommandError> {
        let result = (&mut self.task).await;
        self.ended = true;
        match result {
            Ok(Ok(exit)) => Ok(exit),
            Ok(Err(RunnerError::Server(error @ LinkError::Unreachable(_)))) => {
                let message = "the server stayed out of reach: the running jobs were ended";
                Err(CommandError::new(ExitStatus::Unreachable, message)
                    .because(error)
                    .hint("with `[client.offline] enabled = true` they go on, and their results are kept"))
            }
            Ok(Err(RunnerError::Server(error))) => {
                let message = "the server does not accept this runner";
                Err(CommandError::new(ExitStatus::Refused, message).because(error).hint(
                    "`torc token show` says what the token is for; a runner for all workflows needs the administrator's",
                ))
            }
            Ok(Err(error)) => Err(CommandError::unexpected("the local runner failed", error)),
            Err(error) => Err(CommandError::unexpected("the local runner ended early", error)),
        }
    }

    /// Lets it end by itself where something may still come: the accounting of an allocation knows of steps later than we do.
    async fn settle(mut self, interrupts: &mut Interrupts) -> Result<(), CommandError> {
        if !self.ended && torc_runner::detect::surroundings().is_some() {
            tokio::select! {
                ended = self.ended() => drop(ended?),
                () = interrupts.next() => {}
                () = tokio::time::sleep(ACCOUNTING_PATIENCE) => {}
            }
        }
        self.stop(interrupts).await
    }

    /// Ends it in order; at once when a person asks again.
    pub async fn stop(mut self, interrupts: &mut Interrupts) -> Result<(), CommandError> {
        self.stop.cancel();
        while !self.ended {
            let again = tokio::select! {
                ended = self.ended() => {
                    ended?;
                    false
                }
                () = interrupts.next() => true,
            };
            if again {
                self.stop_now.cancel();
            }
        }
        Ok(())
    }

    /// Leaves its jobs to whoever takes the shim over.
    fn abandon(self) {
        self.task.abort();
    }
}

/// Ctrl-C and SIGTERM, one after the other.
pub struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interrupts {
    /// From now on the signals do not end the process by themselves.
    pub fn listen() -> Result<Self, CommandError> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |error| CommandError::unexpected("could not listen for signals", error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
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
                is_owed(&action(status, kind, worker, every_worker)),
                expected,
                "{status} {kind} {worker:?} {every_worker}"
            );
        }
    }

    #[test]
    fn a_server_that_stayed_away_is_unreachable() {
        let error = Driven::drained();
        assert_eq!(error.kind, ExitStatus::Unreachable);
        assert!(error.hints[0].contains("torc workflows reconcile"), "{:?}", error.hints);
        assert_eq!((FAREWELL.as_secs(), STOPPING.as_secs(), ACCOUNTING_PATIENCE.as_secs()), (60, 90, 45));
    }
}
