//! Selection of the command from the command line.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli::{self, Command};
use crate::client::WorkflowControl;
use crate::commands::{
    admin, apply, backup, completions, config, control, crd, delete, describe, diff, exec, explain, gc, get, hpc,
    install, jobs, kubernetes as on_cluster, logs, ping, plan, plot, recover, reference, remote, remote_agent, restore,
    retry, ro_crate, run, runner, server, shim, slurm, spawn, status, submit, token, unpack, user_data, validate, wait,
    watch, workflows,
};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::kubernetes;
use crate::logging::Log;
use crate::program::{block_on, refuse, start};
use crate::settings::backend::{Backend, ClusterChoice};
use crate::slurm_job_runner;

/// Parses the command line, runs the command and returns its exit code.
pub fn main(mut arguments: Vec<OsString>) -> ExitCode {
    if slurm_job_runner::is_selected(&mut arguments) {
        return slurm_job_runner::main(arguments);
    }
    let (cli, flags) = match cli::parse(arguments) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error),
    };
    let command = match cli.command {
        // The shim has no settings, no runtime and no threads.
        Command::Shim(args) => return shim::main(args),
        command => command,
    };
    let log = Log { verbose: cli.global.verbose, format: cli.global.log_format };
    start(log, flags, |context| execute(context, command))
}

fn execute(context: &CommandContext, command: Command) -> Result<ExitStatus, CliError> {
    match command {
        Command::Plan(args) => plan::run(context, &args),
        Command::Validate(args) => validate::run(context, &args),
        Command::Config(args) => config::run(context, &args),
        Command::Completions(args) => completions::run(context, &args, cli::command()),
        Command::Install(args) => install::run(context, &args),
        Command::Reference(args) => reference::run(context, &args, cli::command()),
        Command::Unpack(args) => unpack::run(context, &args),
        Command::Shim(_) => Ok(ExitStatus::Success),
        command => block_on(reach_and_execute(context, command)),
    }
}

/// Runs a command. In a cluster, commands that write objects use the API server; the others use Torc's server.
async fn reach_and_execute(context: &CommandContext, command: Command) -> Result<ExitStatus, CliError> {
    let Backend::Cluster(choice) = &context.settings.backend else { return execute_async(context, command).await };
    match requirement(&command) {
        ClusterRequirement::Nothing => execute_async(context, command).await,
        ClusterRequirement::Objects => Box::pin(execute_on_objects(context, choice, command)).await,
        ClusterRequirement::Server => {
            let cluster = kubernetes::find(choice, context.settings.namespace.as_deref()).await?;
            let (settings, _held) = kubernetes::reach_server(&cluster, &context.settings).await?;
            let folder = context.folder.clone();
            execute_async(&CommandContext { settings, output: context.output, folder, in_cluster: true }, command).await
        }
        ClusterRequirement::ThisMachine(name) => {
            let message = format!("`torc {name}` runs on this machine, but a cluster is selected");
            Err(CliError::usage(message)
                .hint("leave out --context and --kubeconfig, and unset TORC_CONTEXT and TORC_KUBECONFIG"))
        }
    }
}

/// Runs a command that writes objects of a cluster.
async fn execute_on_objects(
    context: &CommandContext,
    choice: &ClusterChoice,
    command: Command,
) -> Result<ExitStatus, CliError> {
    let cluster = kubernetes::find(choice, context.settings.namespace.as_deref()).await?;
    match command {
        Command::Apply(args) => on_cluster::apply(context, &cluster, &args).await,
        Command::Diff(args) => on_cluster::diff(context, &cluster, &args.files.files).await,
        Command::Delete(args) => on_cluster::delete(context, &cluster, &args).await,
        Command::Cancel(args) => on_cluster::control(context, &cluster, &args.workflows, WorkflowControl::Cancel).await,
        Command::Suspend(args) => {
            on_cluster::control(context, &cluster, &args.workflows, WorkflowControl::Suspend).await
        }
        Command::Resume(args) => on_cluster::control(context, &cluster, &args.workflows, WorkflowControl::Resume).await,
        Command::Retry(args) => on_cluster::retry(context, &cluster, &args).await,
        Command::Wait(args) => on_cluster::wait(context, &cluster, &args).await,
        _ => Err(CliError::usage("this command does not write objects of a cluster")),
    }
}

async fn execute_async(context: &CommandContext, command: Command) -> Result<ExitStatus, CliError> {
    match command {
        Command::Apply(args) => Box::pin(apply::run(context, &args)).await,
        Command::Run(args) => Box::pin(run::run(context, &args)).await,
        Command::Exec(args) => Box::pin(exec::run(context, &args)).await,
        Command::Diff(args) => diff::run(context, &args).await,
        Command::Get(args) => get::run(context, &args).await,
        Command::Describe(args) => describe::run(context, &args).await,
        Command::Explain(args) => explain::run(context, &args).await,
        Command::Logs(args) => logs::run(context, &args).await,
        Command::Plot(args) => plot::run(context, &args).await,
        Command::Wait(args) => wait::run(context, &args).await,
        Command::Submit(args) => submit::run(context, &args).await,
        Command::Recover(args) => recover::run(context, &args).await,
        Command::Watch(args) => watch::run(context, &args).await,
        Command::Cancel(args) => control::cancel(context, &args).await,
        Command::Suspend(args) => control::suspend(context, &args).await,
        Command::Resume(args) => control::resume(context, &args).await,
        Command::Retry(args) => retry::run(context, &args).await,
        Command::Delete(args) => delete::run(context, &args).await,
        Command::Status(args) => status::run(context, &args).await,
        Command::Token(args) => token::run(context, &args).await,
        Command::Ping(args) => ping::run(context, &args).await,
        Command::Workflows(args) => workflows::run(context, args).await,
        Command::Jobs(args) => jobs::run(context, args).await,
        Command::UserData(args) => user_data::run(context, args).await,
        Command::Slurm(args) => slurm::run(context, args).await,
        Command::Spawn(args) => spawn::run(context, &args).await,
        Command::RoCrate(args) => ro_crate::run(context, args).await,
        Command::Server(args) => Box::pin(server::run(context, &args)).await,
        Command::Runner(args) => Box::pin(runner::run(context, &args)).await,
        Command::Remote(args) => Box::pin(remote::run(context, args)).await,
        Command::RemoteAgent(_) => remote_agent::run(context).await,
        Command::Crd(args) => crd::run(context, &args).await,
        Command::Admin(args) => admin::run(context, &args).await,
        Command::Hpc(args) => hpc::run(context, args).await,
        Command::Gc(args) => gc::run(context, &args).await,
        Command::Backup(args) => backup::run(context, &args).await,
        Command::Restore(args) => restore::run(context, &args).await,
        // `execute` has handled the commands without a runtime.
        Command::Plan(_)
        | Command::Validate(_)
        | Command::Config(_)
        | Command::Completions(_)
        | Command::Install(_)
        | Command::Reference(_)
        | Command::Unpack(_)
        | Command::Shim(_) => Ok(ExitStatus::Success),
    }
}

/// The part of a cluster that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClusterRequirement {
    /// Nothing: the command contacts no server, or finds the cluster itself.
    Nothing,
    /// The API server only.
    Objects,
    /// Torc's server in the cluster, through a port-forward.
    Server,
    /// No cluster: the command runs on this machine.
    ThisMachine(&'static str),
}

/// Returns the part of a cluster that a command needs.
fn requirement(command: &Command) -> ClusterRequirement {
    match command {
        Command::Apply(_)
        | Command::Diff(_)
        | Command::Delete(_)
        | Command::Cancel(_)
        | Command::Suspend(_)
        | Command::Resume(_)
        | Command::Wait(_) => ClusterRequirement::Objects,
        Command::Retry(args) if args.jobs.is_empty() && !args.changed && !args.dry_run => ClusterRequirement::Objects,
        Command::Run(_) => ClusterRequirement::ThisMachine("run"),
        Command::Exec(_) => ClusterRequirement::ThisMachine("exec"),
        Command::Submit(_) => ClusterRequirement::ThisMachine("submit"),
        Command::Remote(_) => ClusterRequirement::ThisMachine("remote"),
        Command::Restore(_) => ClusterRequirement::ThisMachine("restore"),
        Command::Plan(_)
        | Command::Validate(_)
        | Command::Admin(_)
        | Command::Crd(_)
        | Command::Config(_)
        | Command::Completions(_)
        | Command::Install(_)
        | Command::Reference(_)
        | Command::Unpack(_)
        | Command::Hpc(_)
        | Command::Server(_)
        | Command::RemoteAgent(_)
        | Command::Shim(_) => ClusterRequirement::Nothing,
        _ => ClusterRequirement::Server,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn commands_that_run_jobs_take_flags_of_a_runner() {
        for (line, expected) in [
            ("apply -f a", true),
            ("run a", true),
            ("exec -c a", true),
            ("runner", true),
            ("remote run a", true),
            ("server", true),
            ("remote status a", false),
            ("submit a", false),
            ("get jobs", false),
        ] {
            let line = format!("torc {line} --num-cpus 3");
            let layers = cli::parse(line.split_whitespace()).map(|(_, layers)| layers).ok();
            let cpus = layers.as_ref().and_then(|layers| layers.get("client.run.num_cpus"));
            assert_eq!(cpus.map(|value| value.text.as_str()), expected.then_some("3"), "{line}");
        }
    }

    #[test]
    fn flags_decide_what_a_command_needs() {
        for (line, expected) in [
            ("torc apply -f a.yaml", ClusterRequirement::Objects),
            ("torc get workflows", ClusterRequirement::Server),
            ("torc get slc", ClusterRequirement::Server),
            ("torc get twf/a", ClusterRequirement::Server),
            ("torc get workflows -w", ClusterRequirement::Server),
            ("torc get jobs", ClusterRequirement::Server),
            ("torc retry a", ClusterRequirement::Objects),
            ("torc retry a --job b", ClusterRequirement::Server),
            ("torc retry a --changed", ClusterRequirement::Server),
            ("torc retry a --dry-run", ClusterRequirement::Server),
            ("torc logs a", ClusterRequirement::Server),
            ("torc validate a.yaml", ClusterRequirement::Nothing),
            ("torc run a.yaml", ClusterRequirement::ThisMachine("run")),
        ] {
            let (cli, _) = cli::parse(line.split_whitespace()).unwrap();
            assert_eq!(requirement(&cli.command), expected, "{line}");
        }
    }

    #[test]
    fn every_command_has_a_requirement() {
        let (nothing, objects, server) =
            (ClusterRequirement::Nothing, ClusterRequirement::Objects, ClusterRequirement::Server);
        let table = [
            ("apply -f a", objects),
            ("run a", ClusterRequirement::ThisMachine("run")),
            ("exec -c a", ClusterRequirement::ThisMachine("exec")),
            ("plan a", nothing),
            ("diff -f a", objects),
            ("validate a", nothing),
            ("get jobs", server),
            ("get slurmclusters", server),
            ("describe workflow", server),
            ("explain a", server),
            ("status", server),
            ("logs a", server),
            ("unpack", nothing),
            ("plot", server),
            ("wait", objects),
            ("submit a", ClusterRequirement::ThisMachine("submit")),
            ("recover", server),
            ("watch", server),
            ("cancel", objects),
            ("suspend", objects),
            ("resume", objects),
            ("retry", objects),
            ("retry --all", objects),
            ("delete a", objects),
            ("workflows list", server),
            ("jobs list", server),
            ("results list", server),
            ("user-data list", server),
            ("slurm stats", server),
            ("spawn --lineage l --converged", server),
            ("ro-crate export", server),
            ("server", nothing),
            ("runner", server),
            ("remote run a", ClusterRequirement::ThisMachine("remote")),
            ("hpc list", nothing),
            ("token show", server),
            ("ping", server),
            ("gc --older-than 1d", server),
            ("backup a", server),
            ("restore a", ClusterRequirement::ThisMachine("restore")),
            ("crd print", nothing),
            ("admin release-finalizers", nothing),
            ("config show", nothing),
            ("completions bash", nothing),
            ("install --to a", nothing),
            ("shim", nothing),
            ("remote-agent", nothing),
            ("reference cli", nothing),
        ];
        for (line, expected) in table {
            let (cli, _) = cli::parse(format!("torc {line}").split_whitespace()).unwrap();
            assert_eq!(requirement(&cli.command), expected, "{line}");
        }
        let command = cli::command();
        let names = command.get_subcommands().map(|command| command.get_name()).filter(|name| *name != "help");
        for name in names {
            assert!(table.iter().any(|(line, _)| line.split(' ').next() == Some(name)), "no row for {name}");
        }
    }
}
