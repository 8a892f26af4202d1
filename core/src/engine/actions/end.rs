//! The end of an action's commands.

use torc_api::action::ActionState;
use torc_api::event_reason::EventReason;
use torc_api::state::Cause;
use torc_api::wire::FinishedAttempt;

use crate::engine::tx::Tx;
use crate::engine::workflow::{ActionOutcome, LiveWorkflow};
use crate::ids::{JobId, RunnerId};
use crate::rows::TaskLease;

impl LiveWorkflow {
    /// Ends an attempt of an action: it is executed if it succeeded, retried or failed otherwise.
    pub fn end_action(
        &mut self,
        number: JobId,
        finished: &FinishedAttempt,
        runner: Option<RunnerId>,
        host: Option<&str>,
        tx: &mut Tx,
    ) {
        let Some(action) = self.actions.find(number) else { return };
        let trigger = action.trigger();
        let succeeded = finished.cause.is_none() && finished.return_code == 0;
        // The runner was stopped, which is no failure of the action.
        let is_failure = !succeeded && finished.cause != Some(Cause::Stopped);
        let tries = action.row().lease.tries + i32::from(is_failure);
        let (state, reason, message) = if succeeded {
            let on_host = host.map_or_else(String::new, |host| format!(" on {host}"));
            (
                ActionState::Executed,
                EventReason::ActionExecuted,
                format!("action {number} ({trigger}) was executed{on_host}"),
            )
        } else {
            let how = match finished.cause {
                Some(Cause::Lost) => "was lost".to_owned(),
                Some(Cause::Stopped) => "was stopped with its runner".to_owned(),
                _ => format!("failed with exit code {}", finished.return_code),
            };
            match tries < TaskLease::MAX_TRIES {
                true => (
                    ActionState::Pending,
                    EventReason::ActionRetried,
                    format!("action {number} ({trigger}) {how}, try {tries} of {}", TaskLease::MAX_TRIES),
                ),
                false => (
                    ActionState::Failed,
                    EventReason::ActionFailed,
                    format!("action {number} ({trigger}) {how} and is not retried"),
                ),
            }
        };
        tx.event(Some(self.id()), reason, message);
        self.actions.end_attempt(number, finished, ActionOutcome { state, tries, runner }, tx);
    }
}
