//! A runner in this process.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use torc_runner::{LinkError, RunnerConfig, RunnerError, RunnerEvent, RunnerExit, ServerLink};

use super::interrupts::Interrupts;
use crate::error::{CliError, ExitStatus};
use crate::logging::{LogWriters, open_runner_log};

/// The longest wait for the accounting when everything else is done: six tries, five seconds apart.
const ACCOUNTING_TIMEOUT: Duration = Duration::from_secs(45);

/// A runner in this process.
pub struct LocalRunner {
    task: tokio::task::JoinHandle<Result<RunnerExit, RunnerError>>,
    stop: CancellationToken,
    stop_now: CancellationToken,
    ended: bool,
}

impl LocalRunner {
    /// Starts a runner.
    pub fn start<L: ServerLink>(config: RunnerConfig, link: L, author: LogWriters) -> Self {
        open_runner_log(&config, author);
        let stop = CancellationToken::new();
        let stop_now = config.stop_now.clone();
        let task = tokio::spawn(torc_runner::run(config, link, stop.clone(), |event: RunnerEvent| event.log()));
        Self { task, stop, stop_now, ended: false }
    }

    /// Returns whether the runner has ended.
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
                let message = "the server stayed out of reach: the running jobs were ended";
                Err(CliError::new(ExitStatus::Unreachable, message)
                    .because(error)
                    .hint("with `[client.offline] enabled = true` they go on, and their results are kept"))
            }
            Ok(Err(RunnerError::Server(error))) => {
                let message = "the server does not accept this runner";
                Err(CliError::new(ExitStatus::Refused, message).because(error).hint(
                    "`torc token show` says what the token is for; a runner for all workflows needs the administrator's",
                ))
            }
            Ok(Err(error)) => Err(CliError::unexpected("the local runner failed", error)),
            Err(error) => Err(CliError::unexpected("the local runner ended early", error)),
        }
    }

    /// Ends the runner, after its end by itself where something may still come: the accounting of an allocation learns of steps late.
    pub async fn settle(mut self, interrupts: &mut Interrupts) -> Result<(), CliError> {
        if !self.ended && torc_runner::detect::surroundings().is_some() {
            tokio::select! {
                ended = self.ended() => drop(ended?),
                () = interrupts.next() => {}
                () = tokio::time::sleep(ACCOUNTING_TIMEOUT) => {}
            }
        }
        self.stop(interrupts).await
    }

    /// Ends the runner in order; at once after another signal.
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

    /// Leaves the jobs to the process that takes the shim over.
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
