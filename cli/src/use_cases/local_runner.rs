//! The runner of the current process.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use torc_runner::{LinkError, RunnerConfig, RunnerError, RunnerEvent, RunnerExit, ServerLink};

use super::interrupts::Interrupts;
use crate::error::{CliError, ExitStatus};
use crate::logging::{LogWriters, open_runner_log};

/// Longest wait for Slurm accounting at the end: six queries, 5 s apart, with a margin.
const ACCOUNTING_TIMEOUT: Duration = Duration::from_secs(45);

/// A runner in this process.
pub struct LocalRunner {
    task: tokio::task::JoinHandle<Result<RunnerExit, RunnerError>>,
    stop: CancellationToken,
    stop_now: CancellationToken,
    ended: bool,
}

impl LocalRunner {
    /// Starts a runner and opens its log file.
    pub fn start<L: ServerLink>(config: RunnerConfig, link: L, author: LogWriters) -> Self {
        open_runner_log(&config, author);
        let stop = CancellationToken::new();
        let stop_now = config.stop_now.clone();
        let task = tokio::spawn(torc_runner::run(config, link, stop.clone(), |event: RunnerEvent| event.log()));
        Self { task, stop, stop_now, ended: false }
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Waits until the runner ends.
    pub async fn ended(&mut self) -> Result<RunnerExit, CliError> {
        let result = (&mut self.task).await;
        self.ended = true;
        match result {
            Ok(Ok(exit)) => Ok(exit),
            Ok(Err(RunnerError::Server(error @ LinkError::Unreachable(_)))) => {
                let message = "the server stayed unreachable: the running jobs were terminated";
                Err(CliError::new(ExitStatus::Unreachable, message)
                    .because(error)
                    .hint("set `enabled = true` in `[client.offline]` to keep jobs running and store their results"))
            }
            Ok(Err(RunnerError::Server(error))) => {
                let message = "the server rejected this runner";
                Err(CliError::new(ExitStatus::Refused, message).because(error).hint(
                    "show the rights of the token with `torc token show`; a runner for all workflows needs an admin token",
                ))
            }
            Ok(Err(error)) => Err(CliError::unexpected("the local runner failed", error)),
            Err(error) => Err(CliError::unexpected("the local runner crashed", error)),
        }
    }

    /// Ends the runner. In an allocation it first waits for the runner to exit by itself, because accounting records of steps arrive late.
    pub async fn settle(mut self, interrupts: &mut Interrupts) -> Result<(), CliError> {
        if !self.ended && torc_runner::detect::current_allocation().is_some() {
            tokio::select! {
                ended = self.ended() => drop(ended?),
                () = interrupts.next() => {}
                () = tokio::time::sleep(ACCOUNTING_TIMEOUT) => {}
            }
        }
        self.stop(interrupts).await
    }

    /// Stops the runner gracefully; at once after another signal.
    pub async fn stop(mut self, interrupts: &mut Interrupts) -> Result<(), CliError> {
        self.stop.cancel();
        while !self.ended {
            let again = tokio::select! {
                ended = self.ended() => {
                    ended?;
                    false
                }
                () = interrupts.next() => true,
            };
            if again {
                self.stop_now.cancel();
            }
        }
        Ok(())
    }

    /// Leaves the jobs to the shim, for the process that takes it over.
    pub fn abandon(self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounting_is_waited_for_45_seconds() {
        assert_eq!(ACCOUNTING_TIMEOUT.as_secs(), 45);
    }
}
