//! Signals that interrupt a command.

use crate::error::CliError;

/// A stream of SIGINT and SIGTERM.
pub struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interrupts {
    /// Catches the signals: from now on they do not end the process.
    pub fn listen() -> Result<Self, CliError> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |error| CliError::unexpected("could not listen for signals", error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
