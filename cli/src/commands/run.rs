//! `torc run`: run workflows or files on this machine.

use std::path::{Path, PathBuf};

use clap::Args;
use torc_api::load::Format;
use torc_api::wire::RunnerScope;

use super::runner::{claim_folder, state_folder};
use crate::client::Client;
use crate::connection::{bare_name, create_store_dir, explain_missing, no_store, remote, server_file};
use crate::context::CommandContext;
use crate::documents::{self, Documents};
use crate::embedded::store_dir::StoreDir;
use crate::error::{CliError, ExitStatus};
use crate::listen_args::ListenArgs;
use crate::logging::LogWriters;
use crate::runner_config::runner_config;
use crate::settings::RunnerArgs;
use crate::use_cases::interrupts::Interrupts;
use crate::use_cases::local_runner::LocalRunner;
use crate::use_cases::progress::Progress;
use crate::use_cases::run::{Placement, RunOutcome, Target, run_until_settled, run_workflows};
use crate::use_cases::submit::submit_to_run;
use crate::use_cases::summary::print_summary;
use crate::versions;

/// Run stored workflows or files on this machine until they have settled
///
/// With --url a local runner runs the jobs of that server. Without, the command uses the store of this folder.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Workflows by name or number, or files
    #[arg(required = true, value_name = "WORKFLOW|FILE")]
    pub targets: Vec<String>,
    /// Print no warnings about files
    #[arg(long)]
    pub skip_checks: bool,
    #[command(flatten)]
    pub listen: ListenArgs,
    #[command(flatten)]
    pub runner: RunnerArgs,
}

pub async fn run(context: &CommandContext, args: &RunArgs) -> Result<ExitStatus, CliError> {
    run_target(context, target(context, args)?).await
}

/// Runs workflows of the selected server, or of the store of this folder, until they have settled.
pub async fn run_target(context: &CommandContext, target: Target) -> Result<ExitStatus, CliError> {
    match &context.settings.url {
        Some(url) => run_for(context, &remote(&context.settings, url, &context.folder)?, target).await,
        None => {
            let store_dir = match target {
                Target::Documents(_) => create_store_dir(&context.folder)?,
                Target::Stored(_) => StoreDir::find(&context.folder).ok_or_else(no_store)?,
            };
            run_workflows(context, &store_dir, &target, Placement::ThisMachine).await
        }
    }
}

fn target(context: &CommandContext, args: &RunArgs) -> Result<Target, CliError> {
    let targets = &args.targets;
    let files: Vec<PathBuf> = targets.iter().filter(|target| is_file(target)).map(PathBuf::from).collect();
    if files.is_empty() {
        return Ok(Target::Stored(targets.iter().map(|name| bare_name(name).to_owned()).collect()));
    }
    if files.len() < targets.len() {
        return Err(CliError::usage("expected files or workflows, not both"));
    }
    let namespace = context.settings.namespace.as_deref();
    if args.skip_checks {
        let (workflows, mut report) = documents::read(&files, namespace)?;
        let clusters = report.take_clusters();
        return report.into_result().map(|()| Target::Documents(Documents { workflows, clusters }));
    }
    documents::read_valid(&files, namespace, context.output).map(Target::Documents)
}

/// Returns whether a target is a file and not the name of a workflow.
pub fn is_file(target: &str) -> bool {
    target == "-" || Path::new(target).exists() || Format::from_path(target).is_some()
}

/// Runs workflows of a server one after the other, with a runner in this process.
async fn run_for(context: &CommandContext, client: &Client, target: Target) -> Result<ExitStatus, CliError> {
    versions::check(client, context.settings.run.skip_version_check).await?;
    let ids = match target {
        Target::Documents(documents) => submit_to_run(context, client, &documents).await?,
        Target::Stored(names) => {
            let mut ids = Vec::new();
            for name in names {
                ids.push(client.workflow(&name).await.map_err(explain_missing)?.id);
            }
            ids
        }
    };
    let mut interrupts = Interrupts::listen()?;
    let mut outcome = ExitStatus::Success;
    for id in ids {
        let folder = state_folder(&context.settings.run, &client.url(), Some(&id.to_string()));
        // Another runner of this workflow may be active on this machine.
        let (folder, _claim) = claim_folder(&folder)?;
        let mut config = runner_config(&context.settings.run, &folder, &context.folder).await?;
        config.scope = RunnerScope::Workflow(id.to_string());
        config.api_url = Some(client.url());
        config.server_file = server_file(&client.url(), &context.folder);
        let mut progress = Progress::new(context.output);
        let runner = LocalRunner::start(config, client.runner_link(), LogWriters::Many);
        // Other runners of the server may run jobs that do not fit here, so no detector is used.
        let outcome_of_run = run_until_settled(client, &[id], runner, &mut progress, &mut interrupts, None).await;
        progress.finish();
        let workflows = match outcome_of_run? {
            RunOutcome::Settled(workflows) => workflows,
            RunOutcome::Drained => return Err(RunOutcome::drained()),
            RunOutcome::Starved(_) | RunOutcome::Interrupted => return Ok(ExitStatus::Interrupted),
        };
        let status = print_summary(context, client, &workflows).await?;
        if outcome == ExitStatus::Success {
            outcome = status;
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_distinguished_from_names() {
        for (target, file) in [("-", true), ("none.yaml", true), ("x.kdl", true), ("diamond", false), ("7", false)] {
            assert_eq!(is_file(target), file, "{target}");
        }
    }
}
