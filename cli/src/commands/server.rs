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

/// Where the server listens, and its own settings.
type ServerFlags = Flags<{ bit(FlagGroup::Listener) | bit(FlagGroup::Listening) | bit(FlagGroup::Server) }>;

/// Serve a store over HTTP.
///
/// On the first start a token is written to a file beside the database, readable by you alone; its path is printed.
/// Clients and runners need both: `--url` and `--token-file`.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Flags that are settings.
    #[command(flatten)]
    pub settings: ServerFlags,
    /// Look after the custom resources of a Kubernetes cluster: that of KUBECONFIG, or the one that this runs in.
    #[arg(long, conflicts_with_all = ["with_runner", "background"])]
    pub kubernetes: bool,
    /// Run jobs here, too.
    #[arg(long)]
    pub with_runner: bool,
    /// End when the local runner has had nothing to do for so long, e.g. `10m`.
    #[arg(long, value_name = "TIME", requires = "with_runner", value_parser = crate::args::parse_duration)]
    pub idle_exit: Option<Duration>,
    /// Started by `torc apply --detach`: leave its session, and run only what is applied from now on.
    #[arg(long, hide = true, requires = "with_runner")]
    pub background: bool,
    #[command(flatten)]
    pub runner: RunnerArgs,
}

/// Runs the verb.
pub async fn run(context: &CommandContext, args: &ServerArgs) -> Result<ExitStatus, CliError> {
    if args.background {
        // Fails only for the leader of a group, which is no child of a terminal's job anyway.
        let _ = nix::unistd::setsid();
    }
    let mut interrupts = Interrupts::listen()?;
    let store_dir = match &context.settings.server.database {
        Some(database) => StoreDir::of_database(database, &context.folder)?,
        None => create_store_dir(&context.folder)?,
    };
    store_dir.create_folder()?;
    let said = &context.settings.server;
    let listening = Listening::decide(said, None, &said.bind, resolve)?;
    let kubernetes = args.kubernetes.then(|| Box::new(said.kubernetes.clone()));
    // Where a lease decides who writes, no lock does: a frozen leader would hold it for ever.
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
            return Err(CliError::new(ExitStatus::Refused, message).hint(format!("it answers at {}", info.url)));
        }
    };
    let slurm = Some(if args.background { RunnerScope::Session } else { RunnerScope::All });
    if listening.is_exposed() {
        context.output.warning(
            "requests and tokens are not encrypted: only a proxy that speaks TLS may be reachable from other machines",
        );
    }
    // A server in the background takes the address that its starter has recorded.
    if !args.background {
        store_dir.record_bind(&said.bind);
    }
    let mode = ServeMode::Announced { listening, runner: args.with_runner, slurm, kubernetes };
    let server = tokio::select! {
        started = EmbeddedServer::start(&store_dir, lock, &context.settings, mode) => started?,
        // Whoever stands by can be told to leave.
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
                let message = "another server leads by now, and has the store";
                Err(CliError::new(ExitStatus::Refused, message).hint("start it again: it stands by until it is needed"))
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
        // It stays as long as the server: one that left for lack of work would register again while others are at work.
        config.idle_exit = IdleExit::Never;
        let mut runner = LocalRunner::start(config, server.link(), LogWriters::One);
        tokio::select! {
            ended = runner.ended() => drop(ended?),
            idle = &mut idle => {
                idle?;
                context.output.progress("nothing left to do: leaving");
                runner.stop(interrupts).await?;
                return Ok(ExitStatus::Success);
            }
            () = interrupts.next() => {
                context.output.progress("stopping: running jobs are asked to end");
                runner.stop(interrupts).await?;
                return Ok(ExitStatus::Success);
            }
        }
    }
}

/// The longest time between two looks at whether there is something to do.
const MAX_IDLE_POLL_INTERVAL: Duration = Duration::from_secs(2);
const MIN_IDLE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Ends when nothing has happened for so long and nothing comes by itself; never without a limit.
async fn idle(server: &EmbeddedServer, scope: &RunnerScope, limit: Option<Duration>) -> Result<(), CliError> {
    let Some(limit) = limit else { return std::future::pending().await };
    let interval = (limit / 10).clamp(MIN_IDLE_POLL_INTERVAL, MAX_IDLE_POLL_INTERVAL);
    let (mut since, mut last_event) = (Instant::now(), None);
    loop {
        let activity = server.activity(scope).await?;
        if last_event.replace(activity.last_event) != Some(activity.last_event) {
            since = Instant::now();
        } else if since.elapsed() >= limit {
            // Workflows are listed only when it matters: there may be many.
            if !activity.is_busy && !is_busy(server).await? {
                return Ok(());
            }
            since = Instant::now();
        }
        tokio::time::sleep(interval).await;
    }
}

/// Whether something comes back by itself, or Slurm has something to do.
async fn is_busy(server: &EmbeddedServer) -> Result<bool, CliError> {
    let workflows = server.client().workflows().await?;
    Ok(workflows.iter().any(|workflow| workflow.status.jobs.recovering > 0 || is_on_slurm(workflow)))
}

/// Slurm has something to do for it, or will have.
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
