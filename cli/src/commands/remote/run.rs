//! `torc remote run`: start a runner on every worker.

use std::path::{Path, PathBuf};

use torc_api::api::Workflow;
use torc_api::remote::{RemoteWorker, WorkerAddress, is_loopback_host};
use torc_api::setting::{FlagGroup, Setting};
use torc_api::token::{Credential, Scope, TokenRequest};
use torc_controller::tls::certificates_of;

use super::rows::OrderRow;
use super::{RunRemoteArgs, SshArgs, StoredWorker, WorkerAnswer, partly_failed, workers};
use crate::client::{Client, Trust};
use crate::commands::run as run_command;
use crate::connection::{bare_name, explain_missing, remote};
use crate::context::CommandContext;
use crate::documents;
use crate::embedded::store_dir::StoreDir;
use crate::embedded::{StoreAccess, acquire_or_attach};
use crate::error::{CliError, ExitStatus};
use crate::host::host_name;
use crate::output::human;
use crate::remote::request::{RequestOutcome, StartRequest, WorkerRequest, WorkerResponse};
use crate::remote::ssh::{Ssh, VERSION, WorkerError};
use crate::remote::{folder, parallel};
use crate::settings::{Layers, as_arguments};
use crate::use_cases::submit::{SubmitPurpose, line, submit_workflows};

/// The setting for the log folder.
const OUTPUT_DIR: &str = "client.run.output_dir";
/// Lifetime of the token of a worker. 90 days exceed the duration of any workflow.
const WORKER_TOKEN_SECONDS: i64 = 90 * 24 * 3_600;

pub async fn run(context: &CommandContext, ssh: &SshArgs, args: &RunRemoteArgs) -> Result<ExitStatus, CliError> {
    let (file, target) = match args.targets.as_slice() {
        [file, target] => (Some(Path::new(file)), target.as_str()),
        [target] => (None, target.as_str()),
        _ => return Err(CliError::usage("expected a file with workers and a workflow")),
    };
    let from_file = file.map(|file| workers::read(context, file)).transpose()?;
    let (client, address) = served(context).await?;
    let workflow = find_or_apply(context, &client, target).await?;
    let id = workflow.id.to_string();
    let addresses = match from_file {
        Some(addresses) => addresses,
        None => stored(&client, &workflow).await?,
    };
    let url = reachable_url(args, &address, &addresses)?;
    let known = client.remote_workers(&id).await?;
    // Stored before the first start, so that no runner is unknown to the server.
    let planned: Vec<PlannedWorker> = addresses
        .into_iter()
        .map(|address| {
            let earlier =
                known.iter().find(|worker| worker.address == address.to_string()).cloned().unwrap_or_default();
            let folder = folder_for(args, context, &workflow, &address, earlier.folder.as_deref());
            PlannedWorker { address, folder, earlier }
        })
        .collect();
    let kept = planned.iter().map(|worker| worker.kept(ssh));
    client.add_remote_workers(&id, kept.collect()).await?;
    let token = worker_token(&client, &workflow).await?;
    let certificates = worker_certificates(&client)?;
    let orders = planned.into_iter().map(|worker| {
        let kept = RemoteWorker { remote_torc: worker.earlier.remote_torc.clone(), ..worker.kept(ssh) };
        let order = StartRequest {
            version: (!context.settings.layers.is_typed("client.run.skip_version_check")).then(|| VERSION.to_owned()),
            earlier_folder: worker.earlier.folder.map(PathBuf::from).filter(|earlier| *earlier != worker.folder),
            folder: worker.folder,
            working_dir: PathBuf::from(&workflow.working_dir),
            make_folder: args.make_folder,
            workflow: workflow.id,
            url: url.clone(),
            token: Some(token.clone()),
            certificates: certificates.clone(),
            arguments: arguments(args, &context.settings.layers),
        };
        (StoredWorker { address: worker.address, kept }, order)
    });
    let orders = orders.collect();
    start_all(context, ssh, &workflow, orders).await
}

/// A worker to start.
struct PlannedWorker {
    address: WorkerAddress,
    folder: PathBuf,
    /// The worker as stored before; empty for a new one.
    earlier: RemoteWorker,
}

impl PlannedWorker {
    fn kept(&self, ssh: &SshArgs) -> RemoteWorker {
        workers::kept(&self.address, Some(self.folder.display().to_string()), ssh.remote_torc.clone())
    }
}

/// Creates a token for the runners of the workers. It is valid for this workflow only.
async fn worker_token(client: &Client, workflow: &Workflow) -> Result<String, CliError> {
    let request = TokenRequest {
        scope: Scope::Runner,
        workflow: Some(workflow.id.to_string()),
        namespace: None,
        user: None,
        expires_seconds: Some(WORKER_TOKEN_SECONDS),
    };
    let made = client.create_token(&request).await?;
    let mut credential = Credential { token: Credential::token_of(&made.token).to_owned(), certificate: None };
    // The workers trust the same pinned certificate as this command.
    if let Trust::Certificate(fingerprint) = client.trust() {
        credential.certificate = Some(*fingerprint);
    }
    Ok(credential.to_string())
}

/// Returns the certificates that the workers need to trust the server. None are needed with a pin in the token or a public CA.
fn worker_certificates(client: &Client) -> Result<Option<String>, CliError> {
    let path = match client.trust() {
        Trust::Certificate(_) | Trust::System => return Ok(None),
        Trust::Authority(path)
        | Trust::SameAs(path)
        | Trust::CertificateFile(path)
        | Trust::Named { authority: path, .. } => path,
    };
    certificates_of(path)
        .map(Some)
        .map_err(|error| CliError::invalid("could not read the certificates for the workers").because(error))
}

/// Returns the server and its URL. Does not start one, because the user decides which machines may reach it.
async fn served(context: &CommandContext) -> Result<(Client, String), CliError> {
    if let Some(url) = &context.settings.url {
        return Ok((remote(&context.settings, url, &context.folder)?, url.clone()));
    }
    if let Some(store_dir) = StoreDir::find(&context.folder)
        && let StoreAccess::Attached(info, client) =
            acquire_or_attach(&store_dir, context.settings.namespace.as_deref()).await?
    {
        return Ok((*client, info.url));
    }
    Err(CliError::new(ExitStatus::Unreachable, "no server is running for this folder, but the workers need one")
        .hint("start one in another terminal: `torc server --bind 0.0.0.0:7421` (127.0.0.1 if all workers are on this machine)")
        .hint("then run this command again; set --advertise URL if workers cannot resolve the name of this machine"))
}

/// Returns the workflow: a stored one, or that of a file, which is applied first.
async fn find_or_apply(context: &CommandContext, client: &Client, target: &str) -> Result<Workflow, CliError> {
    if !run_command::is_file(target) {
        return client.workflow(bare_name(target)).await.map_err(explain_missing);
    }
    let files = [PathBuf::from(target)];
    let documents = documents::read_valid(&files, context.settings.namespace.as_deref(), context.output)?.workflows;
    let [_] = documents.as_slice() else {
        return Err(CliError::usage(format!(
            "{target} contains several workflows: apply the file and name one workflow"
        )));
    };
    let responses = submit_workflows(context, client, &documents, SubmitPurpose::Run).await?;
    let Some((response, id)) = responses.first().and_then(|response| Some((response, response.id?))) else {
        return Err(CliError::not_found(format!("{target} contains no workflow")));
    };
    context.output.progress(&line(response, SubmitPurpose::Run));
    Ok(client.workflow(&id.to_string()).await?)
}

async fn stored(client: &Client, workflow: &Workflow) -> Result<Vec<WorkerAddress>, CliError> {
    let known = client.remote_workers(&workflow.id.to_string()).await?;
    if known.is_empty() {
        return Err(CliError::not_found(format!("workflow {} has no workers", workflow.name))
            .hint(format!("name a file with one worker per line: torc remote run FILE {}", workflow.name)));
    }
    known.iter().map(|worker| super::parse_address(&worker.address)).collect()
}

/// Returns the URL of the server for the workers. Other machines cannot reach a loopback address of this one.
fn reachable_url(args: &RunRemoteArgs, address: &str, workers: &[WorkerAddress]) -> Result<String, CliError> {
    let url = args.advertise.as_deref().unwrap_or(address).trim_end_matches('/').to_owned();
    let host = reqwest::Url::parse(&url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let Some(host) = host else {
        return Err(CliError::usage(format!("--advertise: '{url}' is not a URL like https://{}:7421", host_name())));
    };
    let name = host_name();
    match workers.iter().find(|worker| !worker.is_this_machine(&name)) {
        Some(worker) if is_loopback_host(&host) && args.advertise.is_none() => {
            let message = format!("{worker} cannot reach the server: {url} is a loopback address of this machine");
            Err(CliError::new(ExitStatus::Refused, message)
                .hint("let the server listen on all addresses, with TLS: torc server --bind 0.0.0.0:7421")
                .hint(format!("then set the URL for the workers: --advertise https://{name}:7421")))
        }
        _ => Ok(url),
    }
}

/// Returns the folder of a worker. A worker keeps its folder unless the user sets another.
fn folder_for(
    args: &RunRemoteArgs,
    context: &CommandContext,
    workflow: &Workflow,
    worker: &WorkerAddress,
    earlier: Option<&str>,
) -> PathBuf {
    match earlier {
        Some(earlier) if args.remote_dir.is_none() && !context.settings.layers.is_typed(OUTPUT_DIR) => {
            PathBuf::from(earlier)
        }
        _ => {
            let base = args.remote_dir.clone().unwrap_or_else(|| PathBuf::from(&workflow.working_dir));
            folder::path(&base, &context.settings.run.output_dir, &workflow.name, worker)
        }
    }
}

/// Returns the typed flags for `torc runner` on the worker. Other settings of this machine do not apply to other machines.
fn arguments(args: &RunRemoteArgs, layers: &Layers) -> Vec<String> {
    let is_passed_on = |setting: &Setting| {
        // The request has a field of its own for the folder.
        setting.key != OUTPUT_DIR && setting.flag.is_some_and(|flag| flag.group == FlagGroup::Runner)
    };
    let mut words = as_arguments(layers.flags().filter(|(setting, _)| is_passed_on(setting)));
    words.extend(args.idle_exit.map(|time| format!("--idle-exit={}s", time.as_secs())));
    words
}

async fn start_all(
    context: &CommandContext,
    ssh_args: &SshArgs,
    workflow: &Workflow,
    orders: Vec<(StoredWorker, StartRequest)>,
) -> Result<ExitStatus, CliError> {
    let of = orders.len();
    let work =
        |(worker, order): (StoredWorker, StartRequest)| start(ssh_args.ssh(context, &worker.kept), worker, order);
    let answers: Vec<WorkerAnswer<WorkerResponse>> =
        parallel::for_each(orders, ssh_args.max_parallel_ssh, work, |number, (worker, answer)| {
            let word =
                answer.as_ref().map_or_else(|trouble| trouble.reason.clone(), |report| outcome_word(report).to_owned());
            context.output.progress(&format!("[{number}/{of}] {}: {word}", worker.address));
        })
        .await;
    let rows: Vec<OrderRow> = answers.iter().map(|(worker, answer)| row(worker, answer)).collect();
    context.output.list(&rows)?;
    let failed: Vec<(String, WorkerError)> =
        answers.into_iter().filter_map(|(worker, answer)| Some((worker.address.to_string(), answer.err()?))).collect();
    if !failed.is_empty() {
        return Err(partly_failed(
            &failed,
            of,
            "start",
            "fix the problem and run the same command again: it starts only missing runners",
        ));
    }
    let name = &workflow.name;
    context.output.progress(&format!(
        "{} running; show their state with: torc remote status {name}",
        human::count(i64::try_from(of).unwrap_or(i64::MAX), "worker")
    ));
    Ok(ExitStatus::Success)
}

async fn start(ssh: Ssh, worker: StoredWorker, order: StartRequest) -> WorkerAnswer<WorkerResponse> {
    let answer = ssh.send(&worker.address, &WorkerRequest::Start(Box::new(order))).await.and_then(accepted);
    (worker, answer)
}

/// Turns a refusal into an error.
pub fn accepted(report: WorkerResponse) -> Result<WorkerResponse, WorkerError> {
    match report.outcome {
        RequestOutcome::Refused { reason, advice } => Err(WorkerError { unreachable: false, reason, advice }),
        _ => Ok(report),
    }
}

/// Returns the outcome in words.
pub fn outcome_word(report: &WorkerResponse) -> &'static str {
    match report.outcome {
        RequestOutcome::Looked => "checked",
        RequestOutcome::Started => "started",
        RequestOutcome::AlreadyRunning => "already running",
        RequestOutcome::Stopped => "stopped",
        RequestOutcome::NotRunning => "not running",
        RequestOutcome::StillRunning => "still running",
        RequestOutcome::Deleted { .. } => "deleted",
        RequestOutcome::Refused { .. } => "refused",
    }
}

/// Returns the row about the outcome of a request.
pub fn row(worker: &StoredWorker, answer: &Result<WorkerResponse, WorkerError>) -> OrderRow {
    let runner = answer.as_ref().ok().and_then(|report| report.runner.as_ref());
    OrderRow {
        worker: worker.address.to_string(),
        outcome: answer.as_ref().map_or("failed", outcome_word),
        good: answer.is_ok(),
        host: answer.as_ref().ok().map(|report| report.host.clone()),
        pid: runner.map(|runner| runner.process.pid),
        message: answer.as_ref().err().map(|trouble| trouble.reason.clone()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::commands::remote::RemoteCommand;

    fn typed(line: &str) -> Box<RunRemoteArgs> {
        parsed(line).0
    }

    fn parsed(line: &str) -> (Box<RunRemoteArgs>, Layers) {
        let (cli, layers) = crate::cli::parse(line.split_whitespace()).expect("parses");
        let Command::Remote(remote) = cli.command else { panic!("remote") };
        let RemoteCommand::Run(args) = remote.command else { panic!("run") };
        (args, layers)
    }

    #[test]
    fn flags_of_a_runner_are_passed_on_as_it_takes_them() {
        let (args, layers) = parsed(
            "torc remote run w.txt 1 --num-cpus 4 --memory 2g --label a --label b --output-dir out -p 2.5 \
             --persistent --skip-version-check --prefetch off --idle-exit 10m --time-limit 4h -j 3 \
             --offline-drain false --drain-ping-interval-secs 7",
        );
        let words = arguments(&args, &layers);
        let expected = "--num-cpus=4 --memory=2g --max-parallel-jobs=3 --label=a --label=b --time-limit=4h \
            --poll-interval=2.5 --offline-drain=false --drain-ping-interval-secs=7 --persistent --skip-version-check --prefetch=off --idle-exit=600s";
        assert_eq!(words.join(" "), expected);
        let line = ["torc", "runner", "1"].into_iter().map(str::to_owned).chain(words);
        assert!(Cli::try_parse_from(line).is_ok());
    }

    #[test]
    fn another_machine_needs_an_address_that_it_can_reach() {
        let workers = |text: &str| vec![text.parse().expect("an address")];
        let (local, wide) = ("http://127.0.0.1:7421", "https://n0:7421/");
        let plain = typed("torc remote run w.txt 1");
        assert_eq!(reachable_url(&plain, local, &workers("n1")).expect_err("refused").kind, ExitStatus::Refused);
        assert_eq!(reachable_url(&plain, local, &workers("localhost:22")).expect("here"), "http://127.0.0.1:7421");
        assert_eq!(reachable_url(&plain, wide, &workers("n1")).expect("wide"), "https://n0:7421");
        let said = typed("torc remote run w.txt 1 --advertise http://n0:1/");
        assert_eq!(reachable_url(&said, local, &workers("n1")).expect("said"), "http://n0:1");
        let wrong = typed("torc remote run w.txt 1 --advertise n0");
        assert_eq!(reachable_url(&wrong, local, &workers("n1")).expect_err("no URL").kind, ExitStatus::Usage);
    }

    #[test]
    fn every_outcome_has_its_word_and_only_a_refusal_is_an_error() {
        let outcomes = [
            (RequestOutcome::Looked, "checked"),
            (RequestOutcome::Started, "started"),
            (RequestOutcome::AlreadyRunning, "already running"),
            (RequestOutcome::Stopped, "stopped"),
            (RequestOutcome::NotRunning, "not running"),
            (RequestOutcome::StillRunning, "still running"),
            (RequestOutcome::Deleted { files: 3 }, "deleted"),
            (RequestOutcome::Refused { reason: "r".to_owned(), advice: "a".to_owned() }, "refused"),
        ];
        for (outcome, word) in outcomes {
            let report = WorkerResponse { host: "h".to_owned(), outcome: outcome.clone(), runner: None, alive: false };
            assert_eq!(outcome_word(&report), word);
            let answer = accepted(report);
            match &outcome {
                RequestOutcome::Refused { .. } => {
                    let trouble = answer.expect_err("a refusal");
                    assert_eq!(
                        (trouble.unreachable, trouble.reason.as_str(), trouble.advice.as_str()),
                        (false, "r", "a")
                    );
                }
                _ => assert!(answer.is_ok(), "{outcome:?}"),
            }
        }
        let worker =
            StoredWorker::new(workers::kept(&"n1".parse().expect("an address"), None, None)).expect("a worker");
        let process = torc_runner::ProcessId { pid: 9, ..torc_runner::ProcessId::default() };
        let runner = crate::remote::request::RecordedRunner {
            process,
            host: "there".to_owned(),
            start_time: "s".to_owned(),
            end_time: None,
            end_reason: None,
        };
        let report = WorkerResponse {
            host: "h".to_owned(),
            outcome: RequestOutcome::Started,
            runner: Some(runner),
            alive: true,
        };
        let good = row(&worker, &Ok(report));
        assert_eq!(
            (good.outcome, good.good, good.host.as_deref(), good.pid, good.message.as_str()),
            ("started", true, Some("h"), Some(9), "")
        );
        let bad = row(&worker, &Err(WorkerError { unreachable: true, reason: "r".to_owned(), advice: "a".to_owned() }));
        assert_eq!(
            (bad.outcome, bad.good, bad.host, bad.pid, bad.message.as_str()),
            ("failed", false, None, None, "r")
        );
    }

    #[test]
    fn a_worker_stays_in_its_folder_unless_another_is_named() {
        let mut workflow = crate::workflow_phase::tests::workflow(torc_api::status::JobCounts::default(), &[]);
        workflow.working_dir = "/home/ada".to_owned();
        let worker: WorkerAddress = "n1".parse().expect("an address");
        let at = |line: &str, earlier: Option<&str>| {
            let (args, layers) = parsed(&format!("torc remote run w.txt 1 {line}"));
            let mut context = crate::context::tests::context();
            context.settings.layers = layers;
            folder_for(&args, &context, &workflow, &worker, earlier).display().to_string()
        };
        assert_eq!(at("", None), "/home/ada/torc_output/w_n1");
        assert_eq!(at("", Some("/old")), "/old");
        assert_eq!(at("--remote-dir /r", Some("/old")), "/r/torc_output/w_n1");
        assert_eq!(at("--output-dir x", Some("/old")), "/home/ada/torc_output/w_n1");
        assert_eq!(WORKER_TOKEN_SECONDS, 90 * 86_400);
    }
}
