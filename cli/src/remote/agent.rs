//! The worker's side of a request.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use torc_runner::ProcessId;

use super::folder::WorkerFolder;
use super::request::{RecordedRunner, RequestOutcome, StartRequest, WorkerRequest, WorkerResponse};
use super::ssh::{VERSION, same_version};
use crate::client::{Client, ClientError, Trust};
use crate::env;
use crate::host::host_name;

/// The longest wait for a new runner to write its record.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between SIGTERM and SIGKILL of a forced stop.
const FORCED_STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// The interval between two checks of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Executes a request and returns the response.
pub async fn execute(request: WorkerRequest) -> WorkerResponse {
    let (path, result) = match request {
        WorkerRequest::Start(order) => (order.folder.clone(), start(&order).await),
        WorkerRequest::Look { folder } | WorkerRequest::SendLogs { folder } => (folder, Ok(RequestOutcome::Looked)),
        WorkerRequest::Stop { folder, force, wait_seconds } => {
            let wait = Duration::from_secs(wait_seconds);
            let stopped = stop(&WorkerFolder::new(here(&folder)), force, wait).await;
            (folder, Ok(stopped))
        }
        WorkerRequest::DeleteLogs { folder } => {
            let deleted = delete_logs(&WorkerFolder::new(here(&folder)));
            (folder, deleted)
        }
    };
    let runner = WorkerFolder::new(here(&path)).recorded();
    let alive = runner.as_ref().is_some_and(is_on_this_host);
    let outcome = result.unwrap_or_else(|error| refused(error.to_string(), "fix this on that machine".to_owned()));
    WorkerResponse { host: host_name(), outcome, runner, alive }
}

/// Writes the logs as an archive to standard output. The caller has written the line before it.
pub fn send_logs(folder: &Path) -> io::Result<()> {
    let folder = WorkerFolder::new(here(folder));
    let names = folder.logs()?;
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder.path()).args(["-cf", "-", "--"]).args(names.iter().map(|name| format!("./{name}")));
    if names.is_empty() {
        tar = Command::new("tar");
        tar.args(["-cf", "-", "-T", "/dev/null"]);
    }
    let status = tar.stdin(Stdio::null()).status()?;
    // Exit code 1: a file changed while tar read it, as logs do.
    if matches!(status.code(), Some(0 | 1)) {
        Ok(())
    } else {
        Err(io::Error::other(format!("tar ended with {status}")))
    }
}

/// Resolves a relative path against the current folder, which is the home of the login user.
fn here(path: &Path) -> PathBuf {
    std::env::current_dir().unwrap_or_default().join(path)
}

fn refused(reason: String, advice: String) -> RequestOutcome {
    RequestOutcome::Refused { reason, advice }
}

fn is_on_this_host(runner: &RecordedRunner) -> bool {
    runner.host == host_name() && runner.process.is_alive()
}

async fn start(order: &StartRequest) -> io::Result<RequestOutcome> {
    if order.version.as_deref().is_some_and(|version| version != VERSION) {
        let wanted = order.version.as_deref().unwrap_or_default();
        let reason = format!("torc on {} has version {VERSION}, this torc has version {wanted}", host_name());
        return Ok(refused(reason, same_version().replace(VERSION, wanted)));
    }
    if let Some(refusal) = prepare_working_dir(order)? {
        return Ok(refusal);
    }
    let folder = WorkerFolder::new(here(&order.folder));
    std::fs::create_dir_all(folder.path())?;
    let _lock = folder.lock()?;
    let earlier = order.earlier_folder.as_deref().map(|path| WorkerFolder::new(here(path)));
    for known in [Some(&folder), earlier.as_ref()].into_iter().flatten().filter_map(WorkerFolder::recorded) {
        if is_on_this_host(&known) {
            return Ok(RequestOutcome::AlreadyRunning);
        }
        if known.host != host_name() && known.end_time.is_none() {
            return Ok(on_another_machine(&known, &folder));
        }
    }
    if let Some(certificates) = &order.certificates {
        folder.write_certificates(certificates)?;
    }
    if let Some(refusal) = check_server(order, &folder).await {
        return Ok(refusal);
    }
    if let Some(token) = &order.token {
        folder.write_token(token)?;
    }
    let mut child = spawn(order, &folder)?;
    wait_for_record(&mut child, &folder).await
}

/// Checks or creates the workflow's folder, which every job needs.
fn prepare_working_dir(order: &StartRequest) -> io::Result<Option<RequestOutcome>> {
    let folder = &order.working_dir;
    if folder.is_dir() {
        return Ok(None);
    }
    if order.make_folder {
        return std::fs::create_dir_all(folder).map(|()| None);
    }
    let reason = format!("the workflow's folder {} does not exist on {}", folder.display(), host_name());
    let advice = "share the file system, copy the input to the same path, or create an empty folder with --make-folder";
    Ok(Some(refused(reason, advice.to_owned())))
}

/// Refuses a folder that a runner on another machine uses: a host name may have several machines, and a folder may be shared.
fn on_another_machine(known: &RecordedRunner, folder: &WorkerFolder) -> RequestOutcome {
    let reason = format!("its runner was started on {}, and this is {}", known.host, host_name());
    let advice = format!(
        "name the machines themselves as workers; if that runner no longer exists, remove {}",
        folder.path().join("runner.json").display()
    );
    refused(reason, advice)
}

async fn check_server(order: &StartRequest, folder: &WorkerFolder) -> Option<RequestOutcome> {
    let handed = order.certificates.as_ref().map(|_| Trust::CertificateFile(folder.certificates_file()));
    let answer = match Client::new(&order.url, order.token.clone(), &handed.unwrap_or_default(), None) {
        Ok(client) => client.version().await,
        Err(error) => Err(error),
    };
    let error: ClientError = answer.err()?;
    let reason = format!("{} cannot use the server: {error}", host_name());
    let advice = if error.is_unreachable() {
        format!(
            "start the server on an address that the machine can reach (`torc server --bind 0.0.0.0:7421`), and set --advertise URL instead of {}",
            order.url
        )
    } else {
        "check that --url and --token-file are of the same server".to_owned()
    };
    Some(refused(reason, advice))
}

fn spawn(order: &StartRequest, folder: &WorkerFolder) -> io::Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(folder.log_file())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("runner").arg(order.workflow.to_string()).args(["--url", &order.url]);
    if order.token.is_some() {
        command.arg("--token-file").arg(folder.token_file());
    }
    if order.certificates.is_some() {
        command.env(env::SERVER_CERTIFICATES, folder.certificates_file());
    }
    command.arg("--output-dir").arg(folder.path()).arg("--worker-dir").arg(folder.path()).args(&order.arguments);
    command.current_dir(&order.working_dir).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

async fn wait_for_record(child: &mut Child, folder: &WorkerFolder) -> io::Result<RequestOutcome> {
    let pid = i32::try_from(child.id()).unwrap_or_default();
    let begin = Instant::now();
    loop {
        if folder.recorded().is_some_and(|runner| runner.process.pid == pid) {
            return Ok(RequestOutcome::Started);
        }
        if let Some(status) = child.try_wait()? {
            let reason = format!("the runner exited ({status}): {}", last_line(&folder.log_file()));
            return Ok(refused(reason, format!("see {} on {}", folder.log_file().display(), host_name())));
        }
        if begin.elapsed() > START_TIMEOUT {
            let reason = format!("the runner (process {pid}) did not start within {} s", START_TIMEOUT.as_secs());
            return Ok(refused(reason, format!("see {} on {}", folder.log_file().display(), host_name())));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn last_line(path: &Path) -> String {
    const MAX_BYTES: u64 = 4_096;
    let read = || -> io::Result<String> {
        let mut file = std::fs::File::open(path)?;
        let begin = file.metadata()?.len().saturating_sub(MAX_BYTES);
        file.seek(SeekFrom::Start(begin))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("error:")).or_else(|| text.lines().last());
    line.unwrap_or("its log is empty").to_owned()
}

/// Stops the runner, and the shim of a dead runner, which still holds its jobs.
async fn stop(folder: &WorkerFolder, force: bool, wait: Duration) -> RequestOutcome {
    let runner = folder.recorded().filter(is_on_this_host).map(|runner| runner.process);
    let mut found = runner.is_some();
    if let Some(runner) = &runner
        && !end(runner, force, wait).await
    {
        return RequestOutcome::StillRunning;
    }
    if let Some(shim) = folder.shim() {
        found = true;
        if !end(&shim, force, wait).await {
            return RequestOutcome::StillRunning;
        }
    }
    if found { RequestOutcome::Stopped } else { RequestOutcome::NotRunning }
}

/// Sends SIGTERM and waits. With `force` it repeats SIGTERM, which makes a runner terminate its jobs at once, and finally sends
/// SIGKILL.
async fn end(process: &ProcessId, force: bool, wait: Duration) -> bool {
    let begin = Instant::now();
    let timeout = if force { FORCED_STOP_TIMEOUT } else { wait };
    send(process, Signal::SIGTERM);
    while process.is_alive() && begin.elapsed() < timeout {
        tokio::time::sleep(POLL_INTERVAL).await;
        if force {
            send(process, Signal::SIGTERM);
        }
    }
    if force && process.is_alive() {
        send(process, Signal::SIGKILL);
        while process.is_alive() && begin.elapsed() < timeout * 2 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    !process.is_alive()
}

fn send(process: &ProcessId, signal: Signal) {
    if process.is_alive() {
        let _ = kill(Pid::from_raw(process.pid), signal);
    }
}

fn delete_logs(folder: &WorkerFolder) -> io::Result<RequestOutcome> {
    if folder.recorded().is_none() {
        // No runner has used this folder, so its files are not logs.
        return Ok(RequestOutcome::Deleted { files: 0 });
    }
    if folder.recorded().is_some_and(|runner| is_on_this_host(&runner)) || folder.shim().is_some() {
        return Ok(refused(
            "its runner is running and writes them".to_owned(),
            "stop it first with `torc remote stop`".to_owned(),
        ));
    }
    folder.delete_logs().map(|files| RequestOutcome::Deleted { files })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn recorded(folder: &Path, process: ProcessId, host: &str) {
        let start_time = "2026-11-16T10:00:00Z".to_owned();
        let runner = RecordedRunner { process, host: host.to_owned(), start_time, end_time: None, end_reason: None };
        WorkerFolder::new(folder.to_owned()).record(&runner).unwrap();
    }

    fn order(folder: &Path) -> WorkerRequest {
        let (folder, working_dir) = (folder.to_owned(), folder.to_owned());
        let url = "http://127.0.0.1:1".to_owned();
        WorkerRequest::Start(Box::new(StartRequest { folder, working_dir, url, ..StartRequest::default() }))
    }

    fn reason(report: &WorkerResponse) -> &str {
        match &report.outcome {
            RequestOutcome::Refused { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    // J04
    #[tokio::test]
    async fn a_reused_pid_is_not_the_runner() {
        let root = tempfile::tempdir().unwrap();
        let own = ProcessId::own();
        recorded(root.path(), ProcessId { start_ticks: own.start_ticks + 1, ..own.clone() }, &host_name());
        let look = execute(WorkerRequest::Look { folder: root.path().to_owned() }).await;
        assert!(!look.alive && look.runner.is_some());
        let stop = WorkerRequest::Stop { folder: root.path().to_owned(), force: true, wait_seconds: 1 };
        assert_eq!(execute(stop).await.outcome, RequestOutcome::NotRunning);
        recorded(root.path(), own, &host_name());
        assert_eq!(execute(order(root.path())).await.outcome, RequestOutcome::AlreadyRunning);
    }

    #[tokio::test]
    async fn a_folder_of_a_runner_on_another_machine_is_refused() {
        let root = tempfile::tempdir().unwrap();
        recorded(root.path(), ProcessId::own(), "another");
        let report = execute(order(root.path())).await;
        assert!(reason(&report).contains("was started on another"), "{report:?}");
        assert!(!report.alive);
    }

    #[tokio::test]
    async fn a_runner_needs_its_folder_and_its_server() {
        let root = tempfile::tempdir().unwrap();
        let WorkerRequest::Start(mut start) = order(root.path()) else { panic!("a start") };
        start.working_dir = root.path().join("missing");
        let missing = execute(WorkerRequest::Start(start.clone())).await;
        assert!(reason(&missing).contains("does not exist"), "{missing:?}");
        start.make_folder = true;
        let unreachable = execute(WorkerRequest::Start(start.clone())).await;
        assert!(reason(&unreachable).contains("cannot use the server"), "{unreachable:?}");
        assert!(start.working_dir.is_dir());
        start.version = Some("0.0.1".to_owned());
        let other = execute(WorkerRequest::Start(start)).await;
        assert!(reason(&other).contains("this torc has version 0.0.1"), "{other:?}");
    }

    #[tokio::test]
    async fn logs_of_a_running_runner_are_kept() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("runner.log"), "x").unwrap();
        let delete = || WorkerRequest::DeleteLogs { folder: root.path().to_owned() };
        assert_eq!(execute(delete()).await.outcome, RequestOutcome::Deleted { files: 0 });
        recorded(root.path(), ProcessId::own(), &host_name());
        assert!(reason(&execute(delete()).await).contains("is running"));
        recorded(root.path(), ProcessId::default(), &host_name());
        assert_eq!(execute(delete()).await.outcome, RequestOutcome::Deleted { files: 1 });
    }
}
