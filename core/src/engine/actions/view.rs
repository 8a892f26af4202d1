//! Actions as people and the controller see them.

use torc_api::action::{Action, ActionState, ActionType};
use torc_api::api;

use super::ActionRecord;
use crate::engine::{CommandError, Engine};
use crate::ids::{JobId, WorkflowId};
use crate::time::rfc3339;

/// Nodes that an action asks for and nobody has submitted yet.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingAllocation<'a> {
    /// Whose action.
    pub workflow: WorkflowId,
    /// Its number.
    pub action: JobId,
    /// What it says.
    pub definition: &'a Action,
}

impl Engine {
    /// The actions of a workflow, with the parts of workers, in order of their numbers.
    pub fn actions(&self, id: WorkflowId) -> Result<Vec<api::WorkflowAction>, CommandError> {
        Ok(self.workflow(id)?.actions.iter().map(|action| self.action_view(action)).collect())
    }

    /// Actions that were set off and ask for nodes.
    pub fn pending_allocations(&self) -> Vec<PendingAllocation<'_>> {
        let of_workflow = self.workflows.values().flat_map(|workflow| {
            let pending = |action: &&ActionRecord| {
                action.row.state == ActionState::Pending && action.definition.action_type == ActionType::ScheduleNodes
            };
            workflow.actions.open().filter(pending).map(|action| PendingAllocation {
                workflow: workflow.id(),
                action: action.row.id,
                definition: &action.definition,
            })
        });
        of_workflow.collect()
    }

    fn action_view(&self, action: &ActionRecord) -> api::WorkflowAction {
        let (row, definition) = (&action.row, &action.definition);
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
            // Only failures are counted against it; the one that succeeded was a try too.
            tries: row.lease.tries + i32::from(row.state == ActionState::Executed),
            runner: row.lease.runner.map(|runner| runner.0),
            node: runner.map(|runner| runner.row.host.clone()),
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
