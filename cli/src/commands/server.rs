//! `torc server`: serve a store over HTTP.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use torc_api::api::Workflow;
use torc_api::setting::FlagGroup;
use torc_api::wire::RunnerScope;
use torc_runner::IdleExit;

use crate::connection::create_store_dir;
use crate::context::CommandContext;
use crate::embedded::listening::Listening;
use crate::embedded::store_dir::StoreDir;
use crate::embedded::{EmbeddedServer, ServeMode, StoreAccess, acquire_or_attach};
use crate::error::{CliError, ExitStatus};
use crate::listen_args::resolve;
use crate::logging::LogWriters;
use crate::runner_config::runner_config;
use crate::settings::{Flags, RunnerArgs, bit};
use crate::use_cases::interrupts::Interrupts;
use crate::use_cases::local_runner::LocalRunner;
use crate::workflow_phase::phase;

/// The flags of the listener and the server.
type ServerFlags = Flags<{ bit(FlagGroup::Listener) | bit(FlagGroup::Listening) | bit(FlagGroup::Server) }>;

/// Serve a store over HTTP
///
/// The first start writes a token to a file next to the database, which only you can read, and prints its path.
/// Clients and runners need `--url` and `--token-file`.
#[derive(Debug, Args)]
pub struct ServerArgs {
    #[command(flatten)]
    pub settings: ServerFlags,
    /// Reconcile the custom resources of the Kubernetes cluster of KUBECONFIG, or of the cluster of this Pod
    #[arg(long, conflicts_with_all = ["with_runner", "background"])]
    pub kubernetes: bool,
    /// Run jobs on this machine, too
    #[arg(long)]
    pub with_runner: bool,
    /// Idle time of the local runner after which the server exits, e.g. `10m` (default: never)
    #[arg(long, value_name = "TIME", requires = "with_runner", value_parser = crate::args::parse_duration)]
    pub idle_exit: Option<Duration>,
    /// Run in the background for the session of `torc apply --detach`
    #[arg(long, hide = true, requires = "with_runner")]
    pub background: bool,
    #[command(flatten)]
    pub runner: RunnerArgs,
}

pub async fn run(context: &CommandContext, args: &ServerArgs) -> Result<ExitStatus, CliError> {
    if args.background {
        // Fails only for the leader of a process group, which has left the terminal session already.
        let _ = nix::unistd::setsid();
    }
    let mut interrupts = Interrupts::listen()?;
    let store_dir = match &context.settings.server.database {
        Some(database) => StoreDir::of_database(database, &context.folder)?,
        None => create_store_dir(&context.folder)?,
    };
    store_dir.create_folder()?;
    let settings = &context.settings.server;
    let listening = Listening::decide(settings, None, &settings.bind, resolve)?;
    let kubernetes = args.kubernetes.then(|| Box::new(settings.kubernetes.clone()));
    // With leader election there is no lock: a frozen leader would hold it forever.
    let has_lease = kubernetes.as_ref().is_some_and(|config| config.lease.is_some());
    let lock = match has_lease {
        true => None,
        false => Some(acquire_or_attach(&store_dir, None).await?),
    };
    let lock = match lock {
        None => None,
        Some(StoreAccess::Acquired(lock)) => Some(lock),
        Some(StoreAccess::Attached(info, _)) => {
            let message = format!("the store is in use by process {} on {}", info.pid, info.host);
            return Err(CliError::new(ExitStatus::Refused, message).hint(format!("its URL is {}", info.url)));
        }
    };
    let slurm = Some(if args.background { RunnerScope::Session } else { RunnerScope::All });
    if listening.is_exposed() {
        context
            .output
            .warning("requests and tokens are not encrypted: let only a TLS proxy be reachable from other machines");
    }
    // A server in the background takes the address that its starter has recorded.
    if !args.background {
        store_dir.record_bind(&settings.bind);
    }
    let mode = ServeMode::Announced { listening, runner: args.with_runner, slurm, kubernetes };
    let server = tokio::select! {
        started = EmbeddedServer::start(&store_dir, lock, &context.settings, mode) => started?,
        // A standby server can be stopped.
        () = interrupts.next() => return Ok(ExitStatus::Success),
    };
    if let Some(warning) = server.warning() {
        context.output.warning(warning);
    }
    let result = serve(context, args, &store_dir, &server, &mut interrupts).await;
    server.shutdown().await;
    result
}

async fn serve(
    context: &CommandContext,
    args: &ServerArgs,
    store_dir: &StoreDir,
    server: &EmbeddedServer,
    interrupts: &mut Interrupts,
) -> Result<ExitStatus, CliError> {
    let url = server.url();
    let certificate = server.certificate().map(|fingerprint| fingerprint.to_string());
    let token_file = server.token_file();
    let mut value = json!({ "url": url, "database": store_dir.database, "tokenFile": token_file });
    if let Some(certificate) = &certificate {
        value["certificateSha256"] = json!(certificate);
    }
    context.output.value(&value, || {
        let certificate = certificate.map_or_else(String::new, |pin| format!("certificate: sha256 {pin}\n"));
        let database = store_dir.database.display();
        format!("serving {database} at {url}\ntoken file: {}\n{certificate}", token_file.display())
    })?;
    if !args.with_runner {
        return tokio::select! {
            () = interrupts.next() => Ok(ExitStatus::Success),
            () = server.superseded() => {
                let message = "another server has become the leader";
                Err(CliError::new(ExitStatus::Refused, message).hint("start this server again as a standby"))
            }
        };
    }
    let scope = if args.background { RunnerScope::Session } else { RunnerScope::All };
    let idle_exit = args.idle_exit.filter(|_| !context.settings.run.persistent);
    let mut idle = std::pin::pin!(idle(server, &scope, idle_exit));
    loop {
        let mut config = runner_config(&context.settings.run, &store_dir.runner_folder(), &context.folder).await?;
        config.scope = scope.clone();
        config.api_url = Some(server.client().url());
        config.server_file = Some(store_dir.server_file());
        config.exit_when_complete = false;
        // The runner lives as long as the server. Otherwise an idle runner would exit and register again.
        config.idle_exit = IdleExit::Never;
        let mut runner = LocalRunner::start(config, server.link(), LogWriters::One);
        tokio::select! {
            ended = runner.ended() => drop(ended?),
            idle = &mut idle => {
                idle?;
                context.output.progress("idle: exiting");
                runner.stop(interrupts).await?;
                return Ok(ExitStatus::Success);
            }
            () = interrupts.next() => {
                context.output.progress("stopping: terminating running jobs");
                runner.stop(interrupts).await?;
                return Ok(ExitStatus::Success);
            }
        }
    }
}

/// Longest interval between two checks for activity.
const MAX_IDLE_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest interval between two checks for activity.
const MIN_IDLE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until the server has been idle for `limit`; forever without a limit.
async fn idle(server: &EmbeddedServer, scope: &RunnerScope, limit: Option<Duration>) -> Result<(), CliError> {
    let Some(limit) = limit else { return std::future::pending().await };
    let interval = (limit / 10).clamp(MIN_IDLE_POLL_INTERVAL, MAX_IDLE_POLL_INTERVAL);
    let (mut since, mut last_event) = (Instant::now(), None);
    loop {
        let activity = server.activity(scope).await?;
        if last_event.replace(activity.last_event) != Some(activity.last_event) {
            since = Instant::now();
        } else if since.elapsed() >= limit {
            // Workflows are listed only after the limit, because there may be many.
            if !activity.is_busy && !is_busy(server).await? {
                return Ok(());
            }
            since = Instant::now();
        }
        tokio::time::sleep(interval).await;
    }
}

/// Returns whether a job recovers or a workflow has allocations.
async fn is_busy(server: &EmbeddedServer) -> Result<bool, CliError> {
    let workflows = server.client().workflows().await?;
    Ok(workflows.iter().any(|workflow| workflow.status.jobs.recovering > 0 || is_on_slurm(workflow)))
}

/// Returns whether a workflow has allocations or will get some.
fn is_on_slurm(workflow: &Workflow) -> bool {
    let counts = workflow.status.allocations.unwrap_or_default();
    counts.pending + counts.active > 0 || workflow.slurm_cluster.is_some() && phase(workflow).is_active()
}

#[cfg(test)]
mod tests {

    use torc_api::status::{AllocationCounts, JobCounts};

    use super::*;

    #[test]
    fn slurm_keeps_a_server_from_leaving() {
        let workflow = |cluster: Option<&str>, jobs, counts: Option<(i64, i64, i64)>| {
            let mut workflow = crate::workflow_phase::tests::workflow(jobs, &[]);
            workflow.slurm_cluster = cluster.map(str::to_owned);
            workflow.status.allocations =
                counts.map(|(pending, active, finished)| AllocationCounts { desired: 9, pending, active, finished });
            workflow
        };
        let ready = || JobCounts { ready: 1, ..JobCounts::default() };
        let waits = || JobCounts { pending_failed: 1, ..JobCounts::default() };
        for (workflow, expected) in [
            (workflow(None, ready(), None), false),
            (workflow(None, ready(), Some((0, 0, 5))), false),
            (workflow(None, ready(), Some((1, 0, 0))), true),
            (workflow(None, ready(), Some((0, 1, 0))), true),
            (workflow(Some("c"), ready(), None), true),
            (workflow(Some("c"), waits(), None), false),
            (workflow(Some("c"), waits(), Some((0, 1, 0))), true),
        ] {
            assert_eq!(is_on_slurm(&workflow), expected, "{workflow:?}");
        }
    }
}
