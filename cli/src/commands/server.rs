//! `torc server`: serve a store over HTTP.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use torc_api::api::Workflow;
use torc_api::wire::RunnerScope;
use torc_runner::{IdleExit, RunnerExit};

use super::Context;
use super::apply::place_here;
use crate::args::RunnerArgs;
use crate::error::{CommandError, ExitStatus};
use crate::follow::standing;
use crate::logging::Author;
use crate::place::Place;
use crate::run_here::{Interrupts, LocalRunner};
use crate::runner_config::runner_config;
use crate::settings::{Layers, Origin};
use crate::standalone::{Announce, Entry, Owner, enter};

/// Serve a store over HTTP.
///
/// On the first start a token is written to a file beside the database, readable by you alone; its path is printed.
/// Clients and runners need both: `--url` and `--token-file`.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT")]
    pub bind: Option<String>,
    /// The database: a path or a `sqlite:` URL.
    #[arg(long, value_name = "PATH_OR_URL")]
    pub database: Option<String>,
    /// The most jobs that one workflow may come to.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_jobs: Option<u64>,
    /// Run jobs here, too.
    #[arg(long)]
    pub with_runner: bool,
    /// End when the local runner has had nothing to do for so long, e.g. `10m`.
    #[arg(long, value_name = "TIME", requires = "with_runner", value_parser = super::parse_duration)]
    pub idle_exit: Option<Duration>,
    /// Started by `torc apply --detach`: leave its session, and run only what is applied from now on.
    #[arg(long, hide = true, requires = "with_runner")]
    pub background: bool,
    #[command(flatten)]
    pub runner: RunnerArgs,
}

impl ServerArgs {
    /// The flags that are settings.
    pub fn add_flags(&self, layers: &mut Layers) {
        let mut said = |key: &'static str, text: Option<String>| {
            if let Some(text) = text {
                layers.below(key, text, Origin::Flag);
            }
        };
        said("server.bind", self.bind.clone());
        said("server.database", self.database.clone());
        said("server.max_jobs", self.max_jobs.map(|number| number.to_string()));
    }
}

/// Runs the verb.
pub async fn run(context: &Context, args: &ServerArgs) -> Result<ExitStatus, CommandError> {
    if args.background {
        // Fails only for the leader of a group, which is no child of a terminal's job anyway.
        let _ = nix::unistd::setsid();
    }
    let mut interrupts = Interrupts::listen()?;
    let place = match &context.settings.server.database {
        Some(database) => Place::of_database(database, &context.folder)?,
        None => place_here(context)?,
    };
    place.create_folder()?;
    let bind = address(&context.settings.server.bind)?;
    let lock = match enter(&place, None).await? {
        Entry::Ours(lock) => lock,
        Entry::Theirs(info, _) => {
            let message = format!("the store is in use by process {} on {}", info.pid, info.host);
            return Err(CommandError::new(ExitStatus::Refused, message).hint(format!("it answers at {}", info.url)));
        }
    };
    let slurm = Some(if args.background { RunnerScope::Session } else { RunnerScope::All });
    let announce = Announce::Yes { bind, runner: args.with_runner, slurm };
    let owner = Owner::start(&place, lock, &context.settings, announce).await?;
    let result = serve(context, args, &place, &owner, &mut interrupts).await;
    owner.leave().await;
    result
}

fn address(bind: &str) -> Result<SocketAddr, CommandError> {
    let wrong = || CommandError::invalid(format!("'{bind}' is no address to listen on: write HOST:PORT"));
    bind.to_socket_addrs().map_err(|error| wrong().because(error))?.next().ok_or_else(wrong)
}

async fn serve(
    context: &Context,
    args: &ServerArgs,
    place: &Place,
    owner: &Owner,
    interrupts: &mut Interrupts,
) -> Result<ExitStatus, CommandError> {
    let url = owner.address().map_or_else(String::new, |address| format!("http://{address}"));
    let value = json!({ "url": url, "database": place.database, "tokenFile": place.token_file() });
    context.output.value(&value, || {
        format!("serving {} at {url}\ntoken file: {}\n", place.database.display(), place.token_file().display())
    })?;
    if owner.address().is_some_and(|address| !address.ip().is_loopback()) {
        context
            .output
            .warning("requests and the token are not encrypted: use it on a network that you trust, or behind a proxy");
    }
    if !args.with_runner {
        interrupts.next().await;
        return Ok(ExitStatus::Success);
    }
    loop {
        let mut config = runner_config(&context.settings.run, &place.runner_folder(), &context.folder).await?;
        config.scope = if args.background { RunnerScope::Session } else { RunnerScope::All };
        config.api_url = Some(owner.client().url());
        config.token_file = Some(place.token_file());
        config.exit_when_complete = false;
        config.idle_exit = args.idle_exit.map_or(IdleExit::Never, IdleExit::After);
        let mut runner = LocalRunner::start(config, owner.link(), Author::Owner);
        let ended = tokio::select! {
            ended = runner.ended() => ended?,
            () = interrupts.next() => {
                context.output.progress("stopping: running jobs are asked to end");
                runner.stop(interrupts).await?;
                return Ok(ExitStatus::Success);
            }
        };
        let idle = ended == RunnerExit::Idle && !is_busy(owner).await?;
        if idle {
            context.output.progress("nothing left to do: leaving");
            return Ok(ExitStatus::Success);
        }
    }
}

/// Whether somebody else's runner is at work, or something comes back by itself.
async fn is_busy(owner: &Owner) -> Result<bool, CommandError> {
    let runners = owner.client().runners(false).await?;
    let workflows = owner.client().workflows().await?;
    Ok(runners.iter().any(|runner| runner.running + runner.queued > 0)
        || workflows.iter().any(|workflow| workflow.status.jobs.recovering > 0 || is_on_slurm(workflow)))
}

/// Slurm has something to do for it, or will have.
fn is_on_slurm(workflow: &Workflow) -> bool {
    let counts = workflow.status.allocations.unwrap_or_default();
    counts.pending + counts.active > 0 || workflow.slurm_cluster.is_some() && standing(workflow).is_active()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(address("127.0.0.1:80").expect("an address").to_string(), "127.0.0.1:80");
        assert_eq!(address("80").expect_err("no port").kind, ExitStatus::InvalidInput);
    }
}
