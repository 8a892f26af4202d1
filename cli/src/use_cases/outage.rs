//! Waiting for the process that serves a store next: a server that is restarted, or the next owner of a folder.

use std::time::{Duration, Instant, SystemTime};

use super::status_watch::REMOTE_TIMEOUT;
use crate::context::Context;
use crate::embedded::store_dir::StoreDir;

/// The interval between two looks at a store that no process serves.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The time without a process that serves the store.
pub struct Outage {
    since: Option<Instant>,
    store_dir: Option<StoreDir>,
}

impl Outage {
    /// Starts without an outage.
    pub fn new(context: &Context) -> Self {
        Self { since: None, store_dir: StoreDir::find(&context.folder).filter(|_| context.settings.url.is_none()) }
    }

    /// Notes that no process answers, and says so once.
    pub fn begin(&mut self, context: &Context) {
        if self.since.is_some() {
            return;
        }
        self.since = Some(Instant::now());
        context.output.progress(&match &context.settings.url {
            Some(url) => format!("waiting for the server at {url}"),
            None => "nobody runs the workflows of this folder: waiting for the next one who does".to_owned(),
        });
    }

    /// Notes that a process serves the store again.
    pub fn end(&mut self, context: &Context) {
        if self.since.take().is_some() {
            context.output.progress("going on");
        }
    }

    /// Returns whether to give up. A server is restarted in minutes; the next owner of a folder may come tomorrow.
    pub fn is_too_long(&self, context: &Context) -> bool {
        context.settings.url.is_some() && self.since.is_some_and(|since| since.elapsed() > REMOTE_TIMEOUT)
    }

    /// Waits until it is worth while to open the store again: a process has it or had it. Opening a large one takes a while.
    pub async fn wait_for_change(&self) {
        let before = self.store_dir.as_ref().map(modifications);
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let Some(store_dir) = &self.store_dir else { return };
            if store_dir.server_info().is_some() || Some(modifications(store_dir)) != before {
                return;
            }
        }
    }
}

/// Returns the times and sizes that every writer of a store changes.
fn modifications(store_dir: &StoreDir) -> Vec<Option<(SystemTime, u64)>> {
    let log = format!("{}-wal", store_dir.database.display());
    [store_dir.database.clone(), log.into()]
        .iter()
        .map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
        .collect()
}
