//! Waiting on a store whose owner may change: the process that serves it may exit, and another one may start later.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::interrupts::Interrupts;
use super::statuses::REMOTE_TIMEOUT;
use crate::connection::ServerConnection;
use crate::context::CommandContext;
use crate::embedded::store_dir::StoreDir;
use crate::error::{CliError, ExitStatus};

/// Interval at which the files of a store without an owner are checked. Only an owner can send a watch.
const STORE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The outcome of watching a store.
pub enum WatchOutcome<T> {
    /// `poll` has returned a value.
    Done(T),
    /// The user interrupted the command.
    Interrupted,
    /// The deadline has passed.
    TimedOut,
}

/// Calls `poll` with each connection to the store until it returns a value.
///
/// `poll` follows the watch of a process that serves the store. A store without an owner cannot change: `poll` reads it once,
/// and is called again when a process has written to the store or serves it.
pub async fn watch_store<T>(
    context: &CommandContext,
    first: ServerConnection,
    deadline: Option<Instant>,
    mut poll: impl AsyncFnMut(&ServerConnection) -> Result<Option<T>, CliError>,
) -> Result<WatchOutcome<T>, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let mut wait = OwnerWait::new(context);
    let mut next = Some(first);
    loop {
        let opened = match next.take() {
            Some(connection) => Ok(connection),
            None => reconnect(context).await,
        };
        let polled = match opened {
            Ok(connection) => {
                if connection.is_served() {
                    wait.finish(context);
                }
                let polled = tokio::select! {
                    polled = poll(&connection) => polled.map(|found| found.map(WatchOutcome::Done)),
                    () = interrupts.next() => Ok(Some(WatchOutcome::Interrupted)),
                    () = sleep_until(deadline) => Ok(Some(WatchOutcome::TimedOut)),
                };
                // An open store keeps other processes from running it.
                connection.close().await;
                polled
            }
            Err(error) => Err(error),
        };
        match polled {
            Ok(Some(watched)) => return Ok(watched),
            Err(error) if error.kind != ExitStatus::Unreachable || wait.is_over(context) => return Err(error),
            Ok(None) | Err(_) => {}
        }
        wait.begin(context);
        tokio::select! {
            () = wait.for_change() => {}
            () = interrupts.next() => return Ok(WatchOutcome::Interrupted),
            () = sleep_until(deadline) => return Ok(WatchOutcome::TimedOut),
        }
    }
}

/// Opens a connection again. A server that is named by its URL must answer, because opening alone does not contact it.
async fn reconnect(context: &CommandContext) -> Result<ServerConnection, CliError> {
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    if connection.is_served()
        && let Err(error) = connection.client().version().await
    {
        connection.close().await;
        return Err(error.into());
    }
    Ok(connection)
}

/// Sleeps until the deadline; forever if there is none.
pub async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The wait for the next process that serves the store.
struct OwnerWait {
    since: Option<Instant>,
    store_dir: Option<StoreDir>,
}

impl OwnerWait {
    fn new(context: &CommandContext) -> Self {
        Self { since: None, store_dir: StoreDir::find(&context.folder).filter(|_| context.settings.url.is_none()) }
    }

    fn begin(&mut self, context: &CommandContext) {
        if self.since.is_some() {
            return;
        }
        self.since = Some(Instant::now());
        context.output.progress(&match &context.settings.url {
            Some(url) => format!("waiting for the server at {url}"),
            None => "no torc process serves this store; waiting for one (start it with `torc run WORKFLOW`)".to_owned(),
        });
    }

    fn finish(&mut self, context: &CommandContext) {
        if self.since.take().is_some() {
            context.output.progress("connected");
        }
    }

    /// Returns whether the wait for a server has exceeded its timeout. A server restarts within minutes, but a folder
    /// may have no owner for days.
    fn is_over(&self, context: &CommandContext) -> bool {
        context.settings.url.is_some() && self.since.is_some_and(|since| since.elapsed() > REMOTE_TIMEOUT)
    }

    /// Waits until a process serves the store or has written to it. Opening a large store to look takes seconds.
    async fn for_change(&self) {
        let before = self.store_dir.as_ref().map(file_versions);
        loop {
            tokio::time::sleep(STORE_CHECK_INTERVAL).await;
            let Some(store_dir) = &self.store_dir else { return };
            if store_dir.server_info().is_some() || Some(file_versions(store_dir)) != before {
                return;
            }
        }
    }
}

/// Returns time and size of the files that every write to a store changes.
fn file_versions(store_dir: &StoreDir) -> Vec<Option<(SystemTime, u64)>> {
    let log = format!("{}-wal", store_dir.database.display());
    [store_dir.database.clone(), log.into()]
        .iter()
        .map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
        .collect()
}
