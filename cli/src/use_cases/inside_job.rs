//! Commands that jobs call while they run: their attempt, and the connection to the server, which may have changed since the start.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::connection::with_client;
use crate::context::CommandContext;
use crate::embedded::store_dir::ServerInfo;
use crate::env;
use crate::error::{CliError, ExitStatus};
use crate::settings::Settings;

/// Time that a job waits for an unreachable server: another process may take the store over while its jobs run.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);
/// Delay before an unreachable server is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The attempt that this process belongs to, from the variables of its runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerAttempt {
    /// The number of the workflow, as text.
    pub workflow: String,
    /// The number of the job, as text.
    pub job: String,
    /// The number of the run.
    pub run: i32,
    /// The number of the attempt.
    pub attempt: i32,
}

impl CallerAttempt {
    /// Returns the attempt, or `None` outside of a job.
    pub fn current(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.parse().ok();
        Some(Self {
            workflow: variable(env::WORKFLOW_ID)?,
            job: variable(env::JOB_ID)?,
            run: number(env::RUN_ID)?,
            attempt: number(env::ATTEMPT_ID)?,
        })
    }

    /// Returns the attempt of this process.
    pub fn of_this_process() -> Option<Self> {
        Self::current(|name| std::env::var(name).ok())
    }
}

/// Runs requests on the store. Inside a job, waits for an unreachable server and repeats the requests, which must be idempotent.
pub async fn with_server<T>(
    context: &CommandContext,
    requests: impl AsyncFn(&Client) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let inside = CallerAttempt::of_this_process().is_some();
    let start = Instant::now();
    loop {
        let settings = if inside { with_current_url(&context.settings) } else { context.settings.clone() };
        match with_client(&settings, &context.folder, &requests).await {
            Err(error) if error.kind == ExitStatus::Unreachable && inside && start.elapsed() < SERVER_TIMEOUT => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            result => return result,
        }
    }
}

/// Returns the settings with the URL of the current owner of the store, if its files are visible.
fn with_current_url(settings: &Settings) -> Settings {
    let owner = settings.server_file.as_deref().and_then(ServerInfo::read);
    let url = owner.map(|owner| owner.url_from_here().to_owned()).or_else(|| settings.url.clone());
    Settings { url, ..settings.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_has_four_numbers() {
        let all = [("TORC_WORKFLOW_ID", "3"), ("TORC_JOB_ID", "7"), ("TORC_RUN_ID", "1"), ("TORC_ATTEMPT_ID", "2")];
        let get_variable = |known: &[(&str, &str)], name: &str| {
            known.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let attempt = CallerAttempt::current(|name| get_variable(&all, name));
        assert_eq!(attempt, Some(CallerAttempt { workflow: "3".into(), job: "7".into(), run: 1, attempt: 2 }));
        assert_eq!(CallerAttempt::current(|name| get_variable(&all[1..], name)), None);
    }

    #[test]
    fn each_of_the_four_numbers_is_needed() {
        let all = [("TORC_WORKFLOW_ID", "3"), ("TORC_JOB_ID", "7"), ("TORC_RUN_ID", "5"), ("TORC_ATTEMPT_ID", "2")];
        for missing in 0..4 {
            let get_variable = |name: &str| {
                let known = all.iter().enumerate().find(|(at, (key, _))| *key == name && *at != missing);
                known.map(|(_, (_, value))| (*value).to_owned())
            };
            assert_eq!(CallerAttempt::current(get_variable), None, "without {}", all[missing].0);
        }
        let odd = |name: &str| Some(if name == "TORC_RUN_ID" { "x" } else { "1" }.to_owned());
        assert_eq!(CallerAttempt::current(odd), None);
        assert_eq!((SERVER_TIMEOUT.as_secs(), RETRY_INTERVAL.as_millis()), (60, 250));
    }

    #[test]
    fn the_url_of_the_current_owner_is_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let store_dir = crate::embedded::store_dir::StoreDir::in_folder(folder.path().to_owned());
        let settings = crate::context::tests::context().settings;
        let said =
            Settings { url: Some("http://old:1".to_owned()), server_file: Some(store_dir.server_file()), ..settings };
        assert_eq!(with_current_url(&said).url.as_deref(), Some("http://old:1"), "no owner is recorded");
        let info = ServerInfo {
            host: "another".to_owned(),
            pid: 1,
            url: "http://new:1".to_owned(),
            token_file: store_dir.token_file(),
            start_time: "t".to_owned(),
            runner: true,
            local_url: None,
            certificate_sha256: None,
            certificate_file: None,
        };
        store_dir.write_server_info(&info).expect("a file");
        assert_eq!(with_current_url(&said).url.as_deref(), Some("http://new:1"));
    }
}
