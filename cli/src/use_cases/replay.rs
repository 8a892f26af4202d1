//! Replay of the journals that runners wrote while the server was unreachable.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use torc_api::api::Workflow;
use torc_api::causes::error_chain;
use torc_api::wire::{AttemptKey, JournalledResult, ReplayOutcome, ReplayRequest, Replayed};
use torc_runner::journal::{self, FoundJournals};

use crate::client::Client;
use crate::error::CliError;
use crate::output::{Printer, human};

/// Number of results in one request.
const MAX_RESULTS_PER_REQUEST: usize = 500;
/// Shortest interval between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Replays the journals of a workflow's current run in these folders. Returns the number of results that were new to the server.
pub async fn replay_below(
    output: Printer,
    client: &Client,
    workflow: &Workflow,
    folders: Vec<PathBuf>,
) -> Result<usize, CliError> {
    let run = workflow.status.run_id.unwrap_or(1);
    let mut accepted = 0;
    for folder in folders {
        let found = search(output, folder, workflow.id, run).await?;
        let mut report = ReplayReport::new(&workflow.name, workflow.id, run, found);
        let results = report.read().await;
        report.replay(output, client, results).await?;
        for (path, reason) in &report.damaged {
            output.warning(&format!("the journal {} cannot be read: {reason}", path.display()));
        }
        accepted += report.count(ReplayOutcome::Accepted);
    }
    Ok(accepted)
}

/// Finds journals on a blocking thread, because a shared folder may contain a million files.
pub async fn search(output: Printer, base: PathBuf, workflow: i64, run: i32) -> Result<FoundJournals, CliError> {
    let ticker = Ticker::default();
    let find_journals = move || {
        journal::find(&base, workflow, run, |folders| {
            ticker.tick(|| output.progress(&format!("searching for journals: {folders} folders so far")));
        })
    };
    tokio::task::spawn_blocking(find_journals)
        .await
        .map_err(|error| CliError::unexpected("the search for journals failed", error))
}

/// The journals that were found and the outcome of their results.
pub struct ReplayReport {
    name: String,
    workflow: i64,
    run: i32,
    journals: Vec<PathBuf>,
    /// Journals that cannot be read, with the reason.
    pub damaged: Vec<(PathBuf, String)>,
    /// Folders that cannot be read, with the reason.
    closed: Vec<(PathBuf, String)>,
    names: HashMap<AttemptKey, String>,
    replayed: Vec<Replayed>,
}

impl ReplayReport {
    pub fn new(name: &str, workflow: i64, run: i32, found: FoundJournals) -> Self {
        Self {
            name: name.to_owned(),
            workflow,
            run,
            journals: found.journals,
            damaged: Vec::new(),
            closed: found.unreadable.into_iter().map(|(path, error)| (path, error.to_string())).collect(),
            names: HashMap::new(),
            replayed: Vec::new(),
        }
    }

    /// Returns the results of every readable journal.
    pub async fn read(&mut self) -> Vec<JournalledResult> {
        let mut results = Vec::new();
        for path in &self.journals {
            match journal::read(path).await {
                Ok(found) => results.extend(found),
                Err(error) => self.damaged.push((path.clone(), error_chain(&error))),
            }
        }
        self.names = results.iter().map(|result| (result.finished.key, result.name.clone())).collect();
        results
    }

    pub async fn replay(
        &mut self,
        output: Printer,
        client: &Client,
        results: Vec<JournalledResult>,
    ) -> Result<(), CliError> {
        let (ticker, total) = (Ticker::default(), results.len());
        let workflow = self.workflow.to_string();
        for chunk in results.chunks(MAX_RESULTS_PER_REQUEST) {
            let request = ReplayRequest { results: chunk.to_vec() };
            let replayed = client.replay(&workflow, self.run, &request).await.map_err(|error| {
                CliError::from(error)
                    .hint("the server keeps the results so far; run this command again to replay the rest")
            })?;
            self.replayed.extend(replayed);
            ticker.tick(|| output.progress(&format!("{} of {total} results replayed", self.replayed.len())));
        }
        Ok(())
    }

    fn count(&self, outcome: ReplayOutcome) -> usize {
        self.replayed.iter().filter(|replayed| replayed.outcome == outcome).count()
    }

    fn rejected(&self) -> impl Iterator<Item = &Replayed> {
        self.replayed.iter().filter(|replayed| replayed.outcome == ReplayOutcome::Rejected)
    }

    fn name_of(&self, key: &AttemptKey) -> &str {
        self.names.get(key).map_or("", String::as_str)
    }

    pub fn json(&self, base: &Path) -> Value {
        let rejected = self.rejected().map(|replayed| {
            json!({
                "job": replayed.key.job,
                "name": self.name_of(&replayed.key),
                "run": replayed.key.run,
                "attempt": replayed.key.attempt,
                "reason": replayed.reason,
            })
        });
        let paths = |list: &[(PathBuf, String)]| -> Vec<Value> {
            list.iter().map(|(path, reason)| json!({ "path": path, "reason": reason })).collect()
        };
        json!({
            "workflow": self.workflow,
            "name": self.name,
            "run": self.run,
            "baseDir": base,
            "journals": self.journals,
            "results": self.replayed.len(),
            "accepted": self.count(ReplayOutcome::Accepted),
            "alreadyKnown": self.count(ReplayOutcome::AlreadyKnown),
            "rejected": rejected.collect::<Vec<_>>(),
            "damaged": paths(&self.damaged),
            "closedFolders": paths(&self.closed),
        })
    }

    pub fn text(&self, base: &Path) -> String {
        let what = format!("workflow {} ({}), run {}", self.name, self.workflow, self.run);
        let mut text = match self.journals.len() {
            0 => format!("{what}: no journals below {}\n", base.display()),
            journals => format!(
                "{what}: {} in {}: {} accepted, {} already known, {} rejected\n",
                amount(self.replayed.len(), "result"),
                amount(journals, "journal"),
                self.count(ReplayOutcome::Accepted),
                self.count(ReplayOutcome::AlreadyKnown),
                self.count(ReplayOutcome::Rejected),
            ),
        };
        for Replayed { key, reason, .. } in self.rejected() {
            let reason = reason.as_deref().unwrap_or("unknown reason");
            text.push_str(&format!("  rejected: {} (attempt {}): {reason}\n", self.name_of(key), key.attempt));
        }
        for (path, reason) in &self.damaged {
            text.push_str(&format!("  damaged: {}: {reason}\n", path.display()));
        }
        for (path, reason) in &self.closed {
            text.push_str(&format!("  unreadable folder: {}: {reason}\n", path.display()));
        }
        text
    }
}

pub fn amount(count: usize, noun: &str) -> String {
    human::count(i64::try_from(count).unwrap_or(i64::MAX), noun)
}

/// Limits the rate of progress lines.
struct Ticker(Mutex<Instant>);

impl Default for Ticker {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Ticker {
    fn tick(&self, report: impl FnOnce()) {
        let Ok(mut last) = self.0.lock() else { return };
        if last.elapsed() >= PROGRESS_INTERVAL {
            *last = Instant::now();
            report();
        }
    }
}
