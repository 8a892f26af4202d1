//! Logging: to standard error with the verbosity of `-v`, and for a runner also to its own file.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use torc_api::wire::RunnerScope;
use torc_runner::RunnerConfig;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry};

use crate::env;
use crate::host::host_name;

/// The log file of the runner in this process, once it is open.
static RUNNER_LOG: RunnerLog = RunnerLog(Mutex::new(None));

struct RunnerLog(Mutex<Option<File>>);

impl RunnerLog {
    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A writer to the runner's file. It discards lines while there is no file.
struct RunnerLogWriter;

impl Write for RunnerLogWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match RUNNER_LOG.file().as_mut() {
            Some(file) => file.write(buffer),
            None => Ok(buffer.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for &'static RunnerLog {
    type Writer = RunnerLogWriter;

    fn make_writer(&'a self) -> RunnerLogWriter {
        RunnerLogWriter
    }
}

/// The format of log lines on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text for each event
    #[default]
    Text,
    /// One JSON object for each event, with the fields of its spans
    Json,
}

/// The verbosity and the format of log lines on standard error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log {
    /// The number of `-v` flags.
    pub verbose: u8,
    pub format: LogFormat,
}

/// Starts logging to standard error, and to the file of a runner once it is open.
pub fn start(Log { verbose, format }: Log) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = std::env::var(env::LOG).ok();
    let shown =
        EnvFilter::try_new(filters(filter.as_deref(), level)).unwrap_or_else(|_| EnvFilter::new(filters(None, level)));
    let kept = if verbose > 1 { level } else { "info" };
    let kept = EnvFilter::new(format!("warn,torc_runner={kept}"));
    let stderr = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let stderr = match format {
        LogFormat::Text => stderr.boxed(),
        LogFormat::Json => stderr.json().boxed(),
    };
    let stderr = stderr.with_filter(shown);
    let file = fmt::layer().with_writer(&RUNNER_LOG).with_ansi(false).with_target(false).with_filter(kept);
    let _ = registry().with(stderr).with(file).try_init();
}

/// Returns the filter of standard error. The Kubernetes libraries repeat errors that Torc logs once, so they log only if the user
/// names them.
fn filters(filter: Option<&str>, level: &str) -> String {
    match filter {
        Some(filter) if filter.contains("kube_") => filter.to_owned(),
        filter => format!("{},kube_runtime=error,kube_client=off", filter.unwrap_or(level)),
    }
}

/// The writers of a runner's log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogWriters {
    /// The store has one runner at a time, which appends to the file of its predecessor.
    One,
    /// Several runners share the folder, so the file name contains the PID.
    Many,
}

/// Opens the log file of a runner in its output folder. Later log lines of the runner are appended to it.
pub fn open_runner_log(config: &RunnerConfig, author: LogWriters) {
    let process = (author == LogWriters::Many).then(std::process::id);
    let path = config.output_dir.join(file_name(&config.scope, config.slurm_job_id.as_deref(), &host_name(), process));
    match open(&path) {
        Ok(file) => *RUNNER_LOG.file() = Some(file),
        Err(error) => tracing::warn!(file = %path.display(), "cannot write the runner's log: {error}"),
    }
}

fn open(path: &Path) -> io::Result<File> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    OpenOptions::new().append(true).create(true).open(path)
}

/// Returns `job_runner_wf1_hHOST_p123.log`, or `job_runner_wf1_sl77_nNODE_p123.log` in a Slurm allocation.
fn file_name(scope: &RunnerScope, slurm_job: Option<&str>, host: &str, process: Option<u32>) -> String {
    let workflow = match scope {
        RunnerScope::Workflow(name) => format!("wf{name}_"),
        RunnerScope::All | RunnerScope::Session => String::new(),
    };
    let place = slurm_job.map_or_else(|| format!("h{host}"), |job| format!("sl{job}_n{host}"));
    let process = process.map_or_else(String::new, |id| format!("_p{id}"));
    format!("job_runner_{workflow}{place}{process}.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_libraries_log_only_if_named() {
        for (filter, expected) in [
            (None, "warn,kube_runtime=error,kube_client=off"),
            (Some("debug"), "debug,kube_runtime=error,kube_client=off"),
            (Some("info,kube_runtime=debug"), "info,kube_runtime=debug"),
        ] {
            assert_eq!(filters(filter, "warn"), expected);
        }
    }

    #[test]
    fn the_file_name_contains_workflow_host_and_process() {
        let one = RunnerScope::Workflow("7".to_owned());
        assert_eq!(file_name(&one, None, "lap", Some(5)), "job_runner_wf7_hlap_p5.log");
        assert_eq!(file_name(&one, Some("77"), "n1", Some(5)), "job_runner_wf7_sl77_nn1_p5.log");
        assert_eq!(file_name(&RunnerScope::Session, None, "lap", None), "job_runner_hlap.log");
    }
}
