//! The command line with all commands and arguments. The doc comments are the help texts.

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::args::GlobalArgs;
use crate::commands;
use crate::settings::{Layers, layer};
use crate::spellings;

/// Run workflows of shell commands on a laptop, a Slurm cluster or Kubernetes
///
/// Describe the jobs in a YAML file; `torc apply -f workflow.yaml` runs the jobs that have not run yet. Without a server, the state is
/// stored in the folder `.torc`, in this folder or above.
#[derive(Debug, Parser)]
#[command(name = "torc", bin_name = "torc", version, propagate_version = true, max_term_width = 120)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// Returns the command line with the spellings of Torc 1.0.
pub fn command() -> clap::Command {
    spellings::add_to(Cli::command())
}

/// Parses a command line. Returns it with the settings from its flags.
pub fn parse(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Result<(Cli, Layers), clap::Error> {
    let arguments = spellings::rewrite(arguments.into_iter().map(Into::into).collect());
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok((cli, layer(&matches)))
}

/// The commands. Their modules contain the help texts.
#[derive(Debug, Subcommand)]
pub enum Command {
    Apply(commands::apply::ApplyArgs),
    Run(commands::run::RunArgs),
    Exec(commands::exec::ExecArgs),
    Plan(commands::plan::PlanArgs),
    Diff(commands::diff::DiffArgs),
    Validate(commands::validate::ValidateArgs),
    Get(commands::get::GetArgs),
    Describe(commands::describe::DescribeArgs),
    Explain(commands::explain::ExplainArgs),
    Status(commands::status::StatusArgs),
    Logs(commands::logs::LogsArgs),
    Unpack(commands::unpack::UnpackArgs),
    Plot(commands::plot::PlotArgs),
    Wait(commands::wait::WaitArgs),
    Submit(commands::submit::SubmitArgs),
    Recover(commands::recover::RecoverArgs),
    Watch(commands::watch::WatchArgs),
    Cancel(commands::control::CancelArgs),
    Suspend(commands::control::SuspendArgs),
    Resume(commands::control::ResumeArgs),
    Retry(commands::retry::RetryArgs),
    Delete(commands::delete::DeleteArgs),
    Workflows(commands::workflows::WorkflowsArgs),
    Jobs(commands::jobs::JobsArgs),
    UserData(commands::user_data::UserDataArgs),
    Slurm(commands::slurm::SlurmArgs),
    Spawn(commands::spawn::SpawnArgs),
    RoCrate(commands::ro_crate::RoCrateArgs),
    Server(commands::server::ServerArgs),
    Runner(commands::runner::RunnerCommandArgs),
    Remote(commands::remote::RemoteArgs),
    Hpc(commands::hpc::HpcArgs),
    Token(commands::token::TokenArgs),
    Ping(commands::ping::PingArgs),
    Gc(commands::gc::GcArgs),
    Backup(commands::backup::BackupArgs),
    Restore(commands::restore::RestoreArgs),
    Crd(commands::crd::CrdArgs),
    Admin(commands::admin::AdminArgs),
    Config(commands::config::ConfigArgs),
    Completions(commands::completions::CompletionsArgs),
    Install(commands::install::InstallProgramArgs),
    #[command(hide = true)]
    Shim(commands::shim::ShimCommandArgs),
    #[command(hide = true)]
    RemoteAgent(commands::remote_agent::RemoteAgentArgs),
    #[command(hide = true)]
    Reference(commands::reference::ReferenceArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_tree_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_plugin_of_kubectl_parses_the_same() {
        let (cli, layers) = parse(["/usr/local/bin/kubectl-torc", "get", "jobs", "-o", "json"]).expect("parses");
        assert!(matches!(cli.command, Command::Get(_)));
        assert_eq!(layers.get("client.format").map(|value| value.text.as_str()), Some("json"));
    }

    #[test]
    fn common_command_lines_parse() {
        for line in [
            "torc apply -f a.yaml -f b.yaml --num-cpus 2 --memory 4g --num-gpus 0 --max-parallel-jobs 3 --output-dir out",
            "torc apply -f a.yaml b.yaml",
            "torc apply -f - --detach",
            "torc apply -f a.yaml --no-run",
            "torc apply -f a.yaml --url http://h:1 --wait",
            "torc plan -f a.yaml -o json",
            "torc plan a.yaml",
            "torc get workflows -w",
            "torc get results diamond -o yaml",
            "torc get workflow/diamond",
            "torc describe workflow diamond",
            "torc describe job prepare --workflow diamond",
            "torc logs prepare -w diamond --attempt 2 --stderr -f --tail 10",
            "torc wait workflow/diamond --for condition=Finished --timeout 1h",
            "torc wait diamond --for=condition=Succeeded",
            "torc delete workflow/diamond --yes",
            "torc cancel diamond",
            "torc status diamond -o json",
            "torc ping",
            "torc workflows list",
            "torc workflows status diamond",
            "torc workflows reset-status diamond --failed-only",
            "torc workflows export diamond",
            "torc jobs list diamond --status failed",
            "torc jobs get prepare -w diamond",
            "torc results list diamond --failed --return-code -128 --all-runs",
            "torc retry diamond --all",
            "torc retry diamond --changed --dry-run",
            "torc workflows init diamond --force",
            "torc workflows reinit diamond --dry-run",
            "torc user-data set NAME -1",
            "torc user-data set diamond NAME {}",
            "torc spawn --lineage tune -f jobs.yaml --state -1",
            "torc spawn --lineage tune --converged",
            "torc ro-crate export diamond --to out",
            "torc run diamond",
            "torc exec -c true -C list --param i=1:3 --link zip -j 2 --dry-run",
            "torc exec -- echo -n a",
            "torc server --bind 127.0.0.1:0 --database sqlite:x.db",
            "torc server --bind 0.0.0.0:7421 --tls-cert c.pem --tls-key k.pem --advertise login1 --token-key-file k",
            "torc server --bind 0.0.0.0:7421 --insecure-http",
            "torc apply -f a.yaml --bind 0.0.0.0:0 --advertise https://login1:7421 --detach",
            "torc run a.yaml --bind 0.0.0.0:0 --advertise login1",
            "torc get audit -o json",
            "torc token create --scope runner --workflow diamond --expires 24h",
            "torc token create --scope owner --user ada",
            "torc token show file",
            "torc runner diamond --num-cpus 4",
            "torc run 1 --max-parallel-jobs 10 --num-cpus 4 --memory-gb 16 --num-gpus 0 -p 5.0 --time-limit 4h --label gpu",
            "torc run 1 --end-time 2026-11-16T12:00:00Z --output-dir results --persistent --skip-checks",
            "torc runner 1 --prefetch off --prefetch-batch-size 4 --prefetch-max-queued 8 --lease-seconds 60",
            "torc remote add-workers diamond alice@node1 node2:2222",
            "torc remote add-workers-from-file diamond workers.txt",
            "torc remote remove-worker diamond node1",
            "torc remote list-workers diamond -o json",
            "torc remote run workers.txt diamond --max-parallel-jobs 3 --max-parallel-ssh 4 --ssh-option ProxyJump=l",
            "torc remote run diamond",
            "torc remote status diamond",
            "torc remote stop diamond --force --max-parallel-ssh 2",
            "torc remote collect-logs diamond --output-dir logs --delete",
            "torc remote delete-logs diamond --yes",
            "torc slurm sacct diamond --save-json --output-dir out",
            "torc slurm usage diamond",
            "torc slurm parse-logs diamond --output-dir out --errors-only",
            "torc slurm stats diamond --job prepare --run-id 1 --attempt 2",
            "torc explain job/prepare -w diamond --lines 3",
            "torc explain workflow/diamond",
            "torc submit a.yaml --wait",
            "torc submit diamond",
            "torc recover diamond --dry-run --memory-multiplier 2 --runtime-multiplier 1.2 --retry-unknown --recovery-hook x",
            "torc watch diamond -r -m 3 --auto-schedule -p 30 --account a --partition p --walltime 4h",
            "torc workflows sync-status diamond --dry-run --assume-lost 3 --assume-lost 4",
            "torc workflows correct-resources diamond --dry-run --no-downsize --job-ids 1,2",
            "torc slurm regenerate 1 --account a --submit --profile kestrel --dry-run --include-job-ids 1,2",
            "torc slurm schedule-nodes diamond --scheduler s --num-allocations 2 --start-one-worker-per-node",
            "torc jobs retry a b -w diamond",
            "torc jobs fail -w diamond",
            "torc hpc list -o json",
            "torc hpc detect --command-prefix ssh",
            "torc hpc show kestrel",
            "torc hpc partitions kestrel --gpu --shared",
            "torc hpc match --cpus 4 --memory 10g --walltime 4h --gpus 1 --nodes 2 --profile kestrel",
            "torc hpc generate --name mine --account a --to cluster.yaml",
            "torc slurm generate a.yaml --account a --profile kestrel --walltime-strategy max-partition-time --dry-run",
            "torc slurm generate a.yaml --group-by resource-requirements --single-allocation --no-actions --overwrite",
            "torc slurm plan-allocations a.yaml --account a --partition short",
            "torc gc --older-than 30d --dry-run",
            "torc crd print",
            "torc get workflows --context lab --kubeconfig k.yaml -n science",
            "torc apply -f a.yaml --context lab --force-conflicts --wait",
            "torc admin release-finalizers -A --dry-run",
            "torc install --to /torc/bin",
            "torc config show",
            "torc completions bash",
        ] {
            if let Err(error) = parse(line.split_whitespace()) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn names_of_torc_1_parse() {
        for line in [
            "torc workflows create-slurm a.yaml --account a --profile kestrel --overwrite",
            "torc run 1 --job-completion-poll-interval 5",
        ] {
            assert!(parse(line.split_whitespace()).is_ok(), "{line}");
        }
    }

    #[test]
    fn contradictory_flags_are_refused() {
        for line in ["torc apply", "torc apply -f a.yaml --num-cpus 0", "torc apply -f a --detach --no-run", "torc get"]
        {
            assert!(parse(line.split_whitespace()).is_err(), "{line}");
        }
    }
}
