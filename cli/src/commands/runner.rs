//! `torc runner`: run jobs of a server on this machine.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use torc_api::api::Workflow;
use torc_api::wire::{RunnerKind, RunnerScope};
use torc_api::workflow::WorkflowSpec;
use torc_runner::detect::{self, AllocationShare};
use torc_runner::mode::{LaunchMode, effective};
use torc_runner::{IdleExit, RunnerConfig, RunnerExit};

use super::logs;
use crate::client::Client;
use crate::connection::{bare_name, explain_missing, remote, server_file};
use crate::context::CommandContext;
use crate::embedded::store_dir::StoreDir;
use crate::embedded::{StoreAccess, acquire_or_attach};
use crate::error::{CliError, ExitStatus};
use crate::host::host_name;
use crate::logging::LogWriters;
use crate::remote::folder::{WorkerFolder, WorkerRecord};
use crate::runner_config::{runner_config, share_allocation};
use crate::settings::RunnerArgs;
use crate::settings::RunnerSettings;
use crate::use_cases::interrupts::Interrupts;
use crate::use_cases::local_runner::LocalRunner;
use crate::versions;

/// Run jobs of a server on this machine
///
/// With WORKFLOW the runner exits when that workflow has settled. Without, it serves all workflows until it is stopped.
#[derive(Debug, Args)]
pub struct RunnerCommandArgs {
    /// Workflow to serve, by name or number (default: all)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Idle time after which the runner exits, e.g. `10m`
    ///
    /// Default with a WORKFLOW: `compute_node_wait_for_new_jobs_seconds` of its document (90). Default without: the runner does not exit.
    #[arg(long, value_name = "TIME", value_parser = crate::args::parse_duration)]
    pub idle_exit: Option<Duration>,
    /// Folder of a worker; set by `torc remote run`
    #[arg(long, hide = true, value_name = "FOLDER", requires = "workflow")]
    pub worker_dir: Option<PathBuf>,
    #[command(flatten)]
    pub runner: RunnerArgs,
}

pub async fn run(context: &CommandContext, args: &RunnerCommandArgs) -> Result<ExitStatus, CliError> {
    if args.worker_dir.is_some() {
        // Fails only for the leader of a process group, which has left the login session already.
        let _ = nix::unistd::setsid();
    }
    let client = match &context.settings.url {
        Some(url) => remote(&context.settings, url, &context.folder)?,
        None => {
            let store_dir = StoreDir::find(&context.folder).ok_or_else(no_server)?;
            match acquire_or_attach(&store_dir, context.settings.namespace.as_deref()).await? {
                StoreAccess::Attached(_, client) => *client,
                StoreAccess::Acquired(_) => return Err(no_server()),
            }
        }
    };
    let worker = args.worker_dir.clone().map(WorkerFolder::new);
    let serving = RunnerOptions { idle_exit: args.idle_exit, worker, share: None };
    serve(context, &client, args.workflow.as_deref(), serving).await
}

/// Delay before an unreachable server is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// The kind of runner to start.
#[derive(Clone, Debug, Default)]
pub struct RunnerOptions {
    /// Idle time after which the runner exits.
    pub idle_exit: Option<Duration>,
    /// The part of a Slurm allocation that the runner uses.
    pub share: Option<AllocationShare>,
    /// The folder of a worker that is reached over SSH.
    pub worker: Option<WorkerFolder>,
}

/// Runs jobs of a server until the runner exits.
pub async fn serve(
    context: &CommandContext,
    client: &Client,
    workflow: Option<&str>,
    serving: RunnerOptions,
) -> Result<ExitStatus, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let (found, away) = loop {
        match find(context, client, workflow).await {
            Ok(found) => break (found, None),
            // A persistent runner waits for a server that starts later.
            Err(error) if error.kind == ExitStatus::Unreachable && context.settings.run.persistent => {
                context.output.progress(&format!("{}; retrying", error.message));
                tokio::select! {
                    () = tokio::time::sleep(RETRY_INTERVAL) => {}
                    () = interrupts.next() => return Ok(ExitStatus::Interrupted),
                }
            }
            Err(error) if error.kind == ExitStatus::Unreachable => break (None, Some(error)),
            Err(error) => return Err(error),
        }
    };
    let id = match &away {
        None => found.as_ref().map(|workflow| workflow.id.to_string()),
        Some(_) => workflow.map(str::to_owned),
    };
    let (folder, _claim) = match &serving.worker {
        Some(worker) => claim_worker_folder(&worker.runner_folder())?,
        None => claim_folder(&state_folder(&context.settings.run, &client.url(), id.as_deref()))?,
    };
    if let Some(error) = away {
        // A runner died here while the server was unreachable. Its jobs and results need a new runner even without a server.
        if !torc_runner::shim::has_left(&context.folder.join(&folder)) {
            return Err(error);
        }
        context.output.progress("the server is unreachable: continuing the jobs of an earlier runner");
    }
    let mut config = runner_config(&context.settings.run, &folder, &context.folder).await?;
    config.exit_when_complete = id.is_some();
    config.idle_exit = idle_exit(serving.idle_exit, workflow);
    config.scope = id.map_or(RunnerScope::All, RunnerScope::Workflow);
    if let (Some(share), Some(around)) = (serving.share, detect::current_allocation()) {
        let share = if starts_directly(found.as_ref(), &config) { AllocationShare::OwnNode } else { share };
        share_allocation(&mut config, &context.settings.run, &around, share);
    }
    config.api_url = Some(client.url());
    config.server_file = server_file(&client.url(), &context.folder);
    let Some(worker) = serving.worker else {
        let kind = config.kind;
        let ended = drive(context, config, client, &mut interrupts).await?;
        return Ok(conclude(context, kind, ended));
    };
    config.kind = RunnerKind::Remote;
    let record = WorkerRecord::begin(worker).map_err(|error| unusable(&folder, error))?;
    let ended = drive(context, config, client, &mut interrupts).await;
    let reason = match &ended {
        Ok(exit) => exit.map_or("stopped", describe),
        Err(error) => error.message.as_str(),
    };
    record.end(reason).map_err(|error| unusable(&folder, error))?;
    ended.map(|ended| conclude(context, RunnerKind::Remote, ended))
}

/// Runs jobs until the runner exits. Returns `None` after a signal.
async fn drive(
    context: &CommandContext,
    config: RunnerConfig,
    client: &Client,
    interrupts: &mut Interrupts,
) -> Result<Option<RunnerExit>, CliError> {
    // Only the runner can read the disk of its Pod.
    let shows_logs = config.kind == RunnerKind::Pod;
    let logs = async {
        match shows_logs {
            true => logs::serve_logs(client.runner_link(), host_name()).await,
            false => std::future::pending().await,
        }
    };
    let mut runner = LocalRunner::start(config, client.runner_link(), LogWriters::Many);
    tokio::select! {
        ended = runner.ended() => return ended.map(Some),
        () = interrupts.next() => {}
        () = logs => {}
    }
    context.output.progress("stopping: terminating running jobs; press Ctrl-C again to kill them");
    runner.stop(interrupts).await.map(|()| None)
}

fn conclude(context: &CommandContext, kind: RunnerKind, ended: Option<RunnerExit>) -> ExitStatus {
    if let Some(exit) = ended {
        context.output.progress(&format!("runner: {}", describe(exit)));
    }
    exit_status(kind, ended)
}

/// Returns the exit status of a runner. `ended` is `None` after a signal.
fn exit_status(kind: RunnerKind, ended: Option<RunnerExit>) -> ExitStatus {
    match (kind, ended) {
        // A Pod that ends after a signal has not failed.
        (RunnerKind::Pod, None) => ExitStatus::Success,
        (_, None) => ExitStatus::Interrupted,
        (_, Some(RunnerExit::Dismissed)) => ExitStatus::Refused,
        (_, Some(_)) => ExitStatus::Success,
    }
}

/// Returns whether the runner starts jobs directly, not with `srun`, and so uses its own node only. Jobs with several nodes start
/// their other processes themselves, so their runner advertises all nodes.
fn starts_directly(workflow: Option<&Workflow>, config: &RunnerConfig) -> bool {
    let spec = workflow.and_then(|workflow| workflow.document.as_ref()).map(|document| &document.spec);
    let execution = spec.and_then(|spec| spec.execution_config.clone()).unwrap_or_default();
    let spreads = |spec: &WorkflowSpec| {
        let wide = spec.resource_requirements.iter().filter(|needs| needs.num_nodes.unwrap_or(1) > 1);
        let mut wide = wide.map(|needs| needs.name.as_str());
        wide.any(|name| spec.jobs.iter().any(|job| job.resource_requirements.as_deref() == Some(name)))
    };
    effective(&execution, config.allocation.is_some()) == LaunchMode::Direct && !spec.is_some_and(spreads)
}

/// Returns the workflow to serve, after a check of the server version.
async fn find(context: &CommandContext, client: &Client, workflow: Option<&str>) -> Result<Option<Workflow>, CliError> {
    versions::check(client, context.settings.run.skip_version_check).await?;
    match workflow {
        Some(name) => client.workflow(bare_name(name)).await.map(Some).map_err(explain_missing),
        None => Ok(None),
    }
}

/// Returns the idle time. The document of a workflow sets its default; a runner for all workflows does not exit.
fn idle_exit(flag: Option<Duration>, workflow: Option<&str>) -> IdleExit {
    match (flag, workflow) {
        (Some(time), _) => IdleExit::After(time),
        (None, Some(_)) => IdleExit::ByPolicy,
        (None, None) => IdleExit::Never,
    }
}

fn describe(exit: RunnerExit) -> &'static str {
    match exit {
        RunnerExit::Complete => "all workflows have settled",
        RunnerExit::Canceled => "the workflow was canceled",
        RunnerExit::Stopped => "stopped",
        RunnerExit::Deadline => "time limit reached",
        RunnerExit::Idle => "idle",
        RunnerExit::Drained => "the server stayed unreachable, and the running jobs have ended",
        RunnerExit::Dismissed => "dismissed by the server",
    }
}

fn no_server() -> CliError {
    CliError::new(ExitStatus::Unreachable, "no server is running for this folder")
        .hint("start one with `torc server`, select one with --url, or run a workflow on this machine with `torc run`")
}

/// Maximum number of runners of one host, server and workflow that share an output folder.
const MAX_RUNNERS_PER_FOLDER: u32 = 256;

/// Locks the first folder that no running runner uses. The new runner takes over the shim and the jobs of a dead runner there.
pub fn claim_folder(name: &Path) -> Result<(PathBuf, Flock<File>), CliError> {
    for number in 1..=MAX_RUNNERS_PER_FOLDER {
        let folder =
            if number == 1 { name.to_owned() } else { name.with_file_name(format!("{}-{number}", file_name(name))) };
        if let Some(claim) = try_claim(&folder)? {
            return Ok((folder, claim));
        }
    }
    let message = format!("{MAX_RUNNERS_PER_FOLDER} runners already use this output folder");
    Err(CliError::new(ExitStatus::Refused, message).hint("set another folder with --output-dir"))
}

fn claim_worker_folder(folder: &Path) -> Result<(PathBuf, Flock<File>), CliError> {
    let claim = try_claim(folder)?
        .ok_or_else(|| CliError::new(ExitStatus::Refused, format!("another runner uses {}", folder.display())))?;
    Ok((folder.to_owned(), claim))
}

fn try_claim(folder: &Path) -> Result<Option<Flock<File>>, CliError> {
    std::fs::create_dir_all(folder).map_err(|error| unusable(folder, error))?;
    let file = File::create(folder.join("claim")).map_err(|error| unusable(folder, error))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(claim) => Ok(Some(claim)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(unusable(folder, error.into())),
    }
}

fn unusable(folder: &Path, error: std::io::Error) -> CliError {
    CliError::new(ExitStatus::Unexpected, format!("cannot use the folder {}", folder.display()))
        .because(error)
        .hint("set another folder with --output-dir")
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns the folder of a runner: one per host, server and workflow, so that the next runner finds the shim.
pub fn state_folder(run: &RunnerSettings, url: &str, workflow: Option<&str>) -> PathBuf {
    let name: String = format!("{}_{url}_{}", host_name(), workflow.unwrap_or("all"))
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '_' { c } else { '-' })
        .collect();
    run.output_dir.join(".torc-runners").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_runner_has_a_place_of_its_own_and_a_successor_gets_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("here_http---server_all");
        let (first, first_claim) = claim_folder(&name).expect("a first place");
        let (second, _second_claim) = claim_folder(&name).expect("a second place");
        assert_eq!((first.as_path(), file_name(&second).as_str()), (name.as_path(), "here_http---server_all-2"));
        drop(first_claim);
        let (again, _claim) = claim_folder(&name).expect("the first place again");
        assert_eq!(again, first);
    }

    #[test]
    fn each_end_of_a_runner_has_its_exit_code() {
        let ends = [
            (Some(RunnerExit::Complete), 0),
            (Some(RunnerExit::Canceled), 0),
            (Some(RunnerExit::Stopped), 0),
            (Some(RunnerExit::Deadline), 0),
            (Some(RunnerExit::Idle), 0),
            (Some(RunnerExit::Drained), 0),
            (Some(RunnerExit::Dismissed), 7),
            (None, 130),
        ];
        for kind in [RunnerKind::Local, RunnerKind::Slurm, RunnerKind::Remote] {
            for (end, code) in ends {
                assert_eq!(exit_status(kind, end).code(), code, "{kind:?} {end:?}");
            }
        }
        assert_eq!(exit_status(RunnerKind::Pod, None).code(), 0, "a Pod that was told to end has not failed");
        assert_eq!(exit_status(RunnerKind::Pod, Some(RunnerExit::Dismissed)).code(), 7);
        let words: std::collections::HashSet<&str> = ends.iter().filter_map(|(end, _)| end.map(describe)).collect();
        assert_eq!(words.len(), 7, "each end has words of its own");
    }

    // J25
    #[test]
    fn a_runner_stays_as_long_as_it_was_told() {
        let time = Duration::from_secs(7);
        for (asked, workflow, expected) in [
            (Some(time), Some("w"), IdleExit::After(time)),
            (Some(time), None, IdleExit::After(time)),
            (None, Some("w"), IdleExit::ByPolicy),
            (None, None, IdleExit::Never),
        ] {
            assert_eq!(idle_exit(asked, workflow), expected, "{asked:?} {workflow:?}");
        }
    }

    #[test]
    fn a_place_is_named_by_host_server_and_workflow() {
        let run = RunnerSettings { output_dir: "out".into(), ..RunnerSettings::default() };
        let name = |url: &str, workflow: Option<&str>| file_name(&state_folder(&run, url, workflow));
        let host: String =
            host_name().chars().map(|c| if c.is_ascii_alphanumeric() || ".".contains(c) { c } else { '-' }).collect();
        assert_eq!(name("http://h:1", Some("7")).replace('_', "-"), format!("{host}-http---h-1-7").replace('_', "-"));
        assert!(name("http://h:1", None).ends_with("_all"));
        assert_ne!(name("http://h:1", Some("7")), name("http://h:2", Some("7")));
        assert_eq!(state_folder(&run, "u", None).parent(), Some(Path::new("out/.torc-runners")));
    }

    // X01, J02
    #[test]
    fn jobs_that_start_directly_are_counted_on_one_node() {
        let workflow = |spec: serde_json::Value| -> Workflow {
            let document =
                serde_json::json!({ "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": "w" }, "spec": spec });
            let mut workflow = crate::workflow_phase::tests::workflow(torc_api::status::JobCounts::default(), &[]);
            workflow.document = Some(serde_json::from_value(document).expect("a document"));
            workflow
        };
        let needs = |nodes: i64| serde_json::json!([{ "name": "n", "numNodes": nodes, "numCpus": 1, "memory": "1m", "runtime": "1m" }]);
        let job = serde_json::json!([{ "name": "a", "command": "x", "resourceRequirements": "n" }]);
        let direct = serde_json::json!({ "mode": "direct" });
        let config = RunnerConfig::new("o".into(), "s".into(), Vec::new());
        for (spec, expected) in [
            (serde_json::json!({ "jobs": job, "resourceRequirements": needs(1), "executionConfig": direct }), true),
            (serde_json::json!({ "jobs": job, "resourceRequirements": needs(2), "executionConfig": direct }), false),
            (
                serde_json::json!({ "jobs": [{ "name": "a", "command": "x" }], "resourceRequirements": needs(2), "executionConfig": direct }),
                true,
            ),
            (
                serde_json::json!({ "jobs": job, "resourceRequirements": needs(1), "executionConfig": { "mode": "auto" } }),
                true,
            ),
        ] {
            assert_eq!(starts_directly(Some(&workflow(spec.clone())), &config), expected, "{spec}");
        }
    }
}
