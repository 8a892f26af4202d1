//! One verb a file. Here: from the command line to the verb, and from its outcome to the exit code.

pub mod admin;
pub mod apply;
pub mod backup;
pub mod completions;
pub mod config;
pub mod control;
pub mod copy_program;
pub mod correct_resources;
pub mod crd;
pub mod delete;
pub mod describe;
pub mod diff;
pub mod exec;
pub mod explain;
pub mod gc;
pub mod get;
pub mod hpc;
pub mod jobs;
pub mod keeper;
pub mod logs;
pub mod ping;
pub mod plan;
pub mod plot;
pub mod reconcile;
pub mod recover;
pub mod reference;
pub mod remote;
pub mod remote_agent;
pub mod restart;
pub mod restore;
pub mod retry;
pub mod ro_crate;
pub mod run;
pub mod runner;
pub mod server;
pub mod slurm;
pub mod spawn;
pub mod status;
pub mod submit;
pub mod sync_status;
pub mod token;
pub mod unpack;
pub mod user_data;
pub mod validate;
pub mod wait;
pub mod watch;
pub mod workflows;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::args::{self, Command};
use crate::error::{CommandError, ExitStatus};
use crate::kubernetes::choice::{is_plugin, reach};
use crate::kubernetes::{self, Reach, Way};
use crate::logging;
use crate::output::{Format, Output};
use crate::settings::{self, Handed, Layers, Settings, Surroundings};
use crate::slurm_job_runner;

/// What every verb works with.
pub struct Context {
    /// What was decided.
    pub settings: Settings,
    /// Where results go.
    pub output: Output,
    /// The current folder.
    pub folder: PathBuf,
    /// The server is that of a cluster, and what is on the disks of its runners is not here.
    pub in_cluster: bool,
}

/// Parses, runs, and turns the outcome into an exit code.
pub fn main(mut arguments: Vec<OsString>) -> ExitCode {
    if slurm_job_runner::is_meant(&mut arguments) {
        return slurm_job_runner::main(arguments);
    }
    let (cli, flags) = match args::parse(arguments) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error),
    };
    let command = match cli.command {
        // The keeper has no settings, no runtime and no threads.
        Command::Keeper(args) => return keeper::main(args),
        command => command,
    };
    start(cli.global.verbose, flags, |context| execute(context, command))
}

/// What cannot be parsed, and help and versions, which are no errors: clap knows which stream they belong to.
pub fn refuse(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let status = if error.use_stderr() { ExitStatus::Usage } else { ExitStatus::Success };
    ExitCode::from(status.code())
}

/// Begins to log, settles the settings, does what was asked for, and tells what went wrong.
pub fn start(verbose: u8, flags: Layers, verb: impl FnOnce(&Context) -> Result<ExitStatus, CommandError>) -> ExitCode {
    logging::start(verbose);
    let format = flags.get("client.format").and_then(|value| Format::from_name(&value.text).ok());
    let fallback = Output::new(format.unwrap_or_default());
    let outcome = prepare(flags).map(|context| verb(&context).map_err(|error| (context.output, error)));
    let status = match outcome {
        Ok(Ok(status)) => status,
        Ok(Err((output, error))) => tell(output, &error),
        Err(error) => tell(fallback, &error),
    };
    ExitCode::from(status.code())
}

fn tell(output: Output, error: &CommandError) -> ExitStatus {
    output.error(error);
    if error.silent { ExitStatus::Success } else { error.kind }
}

fn prepare(flags: Layers) -> Result<Context, CommandError> {
    let folder = std::env::current_dir()
        .map_err(|error| CommandError::unexpected("could not find the current folder", error))?;
    let variable = |name: &str| std::env::var(name).ok();
    let surroundings = Surroundings { variable: &variable, folder: &folder, system: Path::new("/etc") };
    let (layers, warnings) = settings::gather(flags, &surroundings)?;
    let program = std::env::args_os().next().map(PathBuf::from);
    let handed = Handed { plugin: is_plugin(program.as_deref()), ..Handed::from(&variable) };
    let settings = settings::resolve(&layers, handed)?;
    let output = Output::new(settings.format);
    for warning in warnings {
        output.warning(&warning);
    }
    Ok(Context { settings, output, folder, in_cluster: false })
}

fn execute(context: &Context, command: Command) -> Result<ExitStatus, CommandError> {
    match command {
        Command::Plan(args) => plan::run(context, &args),
        Command::Validate(args) => validate::run(context, &args),
        Command::Config(args) => config::run(context, &args),
        Command::Completions(args) => completions::run(context, &args),
        Command::CopyProgram(args) => copy_program::run(context, &args),
        Command::Reference(args) => reference::run(context, &args),
        Command::Unpack(args) => unpack::run(context, &args),
        Command::Keeper(_) => Ok(ExitStatus::Success),
        command => block_on(reach_and_execute(context, command)),
    }
}

/// Runs a verb that waits for others.
pub fn block_on(verb: impl Future<Output = Result<ExitStatus, CommandError>>) -> Result<ExitStatus, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::unexpected("could not start", error))?;
    let result = runtime.block_on(verb);
    // Whatever still waits, e.g. for standard input, must not hold the process.
    runtime.shutdown_background();
    result
}

/// In a cluster, verbs on objects go to the API server; for the others there is first a way to Torc's server.
async fn reach_and_execute(context: &Context, command: Command) -> Result<ExitStatus, CommandError> {
    let Way::Cluster(choice) = &context.settings.way else { return execute_async(context, command).await };
    match reach(&command) {
        Reach::Nothing => execute_async(context, command).await,
        Reach::Objects => Box::pin(kubernetes::verbs::run(context, choice, command)).await,
        Reach::Server => {
            let cluster = kubernetes::find(choice, context.settings.namespace.as_deref()).await?;
            let (settings, _held) = kubernetes::reach_server(&cluster, &context.settings).await?;
            let folder = context.folder.clone();
            execute_async(&Context { settings, output: context.output, folder, in_cluster: true }, command).await
        }
        Reach::ThisMachine(verb) => {
            let message = format!("`torc {verb}` is about this machine, and a cluster was named");
            Err(CommandError::usage(message)
                .hint("leave out --context and --kubeconfig (TORC_CONTEXT, TORC_KUBECONFIG)"))
        }
    }
}

async fn execute_async(context: &Context, command: Command) -> Result<ExitStatus, CommandError> {
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
        // Verbs without a runtime have been dealt with.
        Command::Plan(_)
        | Command::Validate(_)
        | Command::Config(_)
        | Command::Completions(_)
        | Command::CopyProgram(_)
        | Command::Reference(_)
        | Command::Unpack(_)
        | Command::Keeper(_) => Ok(ExitStatus::Success),
    }
}

/// A duration on the command line.
fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let seconds = torc_api::quantity::parse_duration(text).map_err(|error| error.to_string())?;
    u64::try_from(seconds).map(std::time::Duration::from_secs).map_err(|_| "must not be negative".to_owned())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A context of a folder, with what is built in.
    pub fn context() -> Context {
        let folder = PathBuf::from("/folder");
        let surroundings = Surroundings { variable: &|_| None, folder: &folder, system: Path::new("/nowhere") };
        let (layers, _) = settings::gather(Layers::default(), &surroundings).expect("settings");
        let settings = settings::resolve(&layers, Handed::default()).expect("settings");
        Context { settings, output: Output::new(Format::Table), folder, in_cluster: false }
    }

    #[test]
    fn an_error_decides_the_exit_code_unless_nobody_reads_it() {
        let output = Output::new(Format::Table);
        for status in ExitStatus::ALL {
            assert_eq!(tell(output, &CommandError::new(status, "m")), status);
            let silent = CommandError { silent: true, ..CommandError::new(status, "m") };
            assert_eq!(tell(output, &silent), ExitStatus::Success);
        }
    }

    #[test]
    fn durations_on_the_command_line_have_a_unit() {
        for (text, seconds) in [
            ("0s", Some(0)),
            ("90s", Some(90)),
            ("1h", Some(3_600)),
            ("30d", Some(30 * 86_400)),
            ("90", None),
            ("-5s", None),
        ] {
            assert_eq!(parse_duration(text).ok().map(|time| time.as_secs()), seconds, "{text}");
        }
    }

    #[test]
    fn verbs_that_run_jobs_take_flags_of_a_runner() {
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
            let layers = args::parse(line.split_whitespace()).map(|(_, layers)| layers).ok();
            let cpus = layers.as_ref().and_then(|layers| layers.get("client.run.num_cpus"));
            assert_eq!(cpus.map(|value| value.text.as_str()), expected.then_some("3"), "{line}");
        }
    }
}
