//! The end of an action's commands.

use torc_api::action::ActionState;
use torc_api::event_reason::EventReason;
use torc_api::state::Cause;
use torc_api::wire::FinishedAttempt;

use super::next_attempt;
use crate::engine::reports::ago;
use crate::engine::tx::Tx;
use crate::engine::workflow::Workflow;
use crate::ids::{JobId, RunnerId};
use crate::rows::TaskLease;

impl Workflow {
    /// An attempt of an action has ended. It counts as executed when it has succeeded, and not before.
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
        // The runner was asked to stop; that says nothing about the action.
        let counts = !succeeded && finished.cause != Some(Cause::Stopped);
        let tries = action.row.lease.tries + i32::from(counts);
        let (state, reason, message) = if succeeded {
            let place = host.map_or_else(String::new, |host| format!(" on {host}"));
            (
                ActionState::Executed,
                EventReason::ActionExecuted,
                format!("action {number} ({trigger}) was executed{place}"),
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
                    format!("action {number} ({trigger}) {how} and is not tried again"),
                ),
            }
        };
        tx.event(Some(self.row.id), reason, message);
        let ended_ms = ago(tx.now.wall_ms, finished.ended_ms_ago);
        self.actions.change(number, tx, |row| {
            row.state = state;
            row.ended_ms = Some(ended_ms);
            row.return_code = Some(finished.return_code);
            row.message.clone_from(&finished.message);
            row.stdout.clone_from(&finished.stdout);
            row.stderr.clone_from(&finished.stderr);
            row.lease.tries = tries;
            if state == ActionState::Pending {
                next_attempt(&mut row.lease);
            } else {
                row.lease.runner = runner;
                row.lease.started_ms = Some(ago(ended_ms, finished.duration_ms));
            }
        });
    }
}
