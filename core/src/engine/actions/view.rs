//! Views of actions for the API.

use torc_api::action::ActionState;
use torc_api::api;

use crate::engine::workflow::ActionRecord;
use crate::engine::{CommandError, Engine};
use crate::ids::WorkflowId;
use crate::time::rfc3339;

impl Engine {
    /// Returns the actions of a workflow and the parts of its workers, in the order of their numbers.
    pub fn actions(&self, id: WorkflowId) -> Result<Vec<api::WorkflowAction>, CommandError> {
        Ok(self.workflows.require(id)?.actions.iter().map(|action| self.action_view(action)).collect())
    }

    fn action_view(&self, action: &ActionRecord) -> api::WorkflowAction {
        let (row, definition) = (action.row(), &action.definition);
        let runner = row.lease.runner.and_then(|runner| self.runners.get(&runner));
        api::WorkflowAction {
            id: row.id.0,
            trigger_type: definition.trigger_type,
            action_type: definition.action_type,
            status: action.state(),
            every_worker: action.is_template(),
            is_recovery: action.is_recovery(),
            scheduler: definition.scheduler.clone(),
            num_allocations: definition.num_allocations,
            worker: row.worker.map(|worker| worker.0),
            run_id: row.lease.run,
            attempt: row.lease.attempt,
            // The row counts only failures. The successful attempt was a try, too.
            tries: row.lease.tries + i32::from(row.state == ActionState::Executed),
            runner: row.lease.runner.map(|runner| runner.0),
            node: runner.map(|runner| runner.row().host.clone()),
            start_time: row.lease.started_ms.map(rfc3339),
            end_time: row.ended_ms.map(rfc3339),
            return_code: row.return_code,
            message: row.message.clone(),
            stdout: row.stdout.clone(),
            stderr: row.stderr.clone(),
            commands: definition.commands.clone().unwrap_or_default(),
        }
    }
}
