//! Activity of the store, for a server that exits when it is idle.

use torc_api::wire::RunnerScope;

use super::Engine;
use super::runners::{LiveRunner, Runners};
use super::workflow::LiveWorkflow;
use super::workflows::Workflows;
use crate::ids::WorkflowId;

/// A summary of the work in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// True if a runner holds leases, or if work becomes available without a command.
    pub is_busy: bool,
    /// Number of the last event, which rises with every change.
    pub last_event: i64,
}

impl Engine {
    /// Returns whether runners are busy or work becomes available to a scope without a command, and the last event.
    pub fn activity(&self, scope: &RunnerScope) -> Activity {
        let is_working = |runner: &LiveRunner| !runner.leases.is_empty();
        let will_continue =
            |workflow: &LiveWorkflow| workflow.graph.counts().recovering > 0 || workflow.may_add_capacity();
        let live = self.workflows.live_in_scope(scope);
        let is_busy = self.runners.values().any(is_working)
            || live.iter().filter_map(|id| self.workflows.get(id)).any(will_continue);
        Activity { is_busy, last_event: self.last.event }
    }

    /// Returns whether no workflow has anything left to do.
    pub fn is_idle(&self) -> bool {
        let awaits_commands = |id| awaits_commands(&self.workflows, &self.runners, id);
        self.workflows.live().all(|workflow| workflow.is_settled() && !awaits_commands(workflow.id()))
    }
}

/// Returns whether a runner that is not silent can still execute commands that the end of the workflow has triggered.
///
/// A runner with session scope may have been started by an earlier process, whose session is unknown. Such a runner
/// may therefore serve any workflow.
pub(super) fn awaits_commands(workflows: &Workflows, runners: &Runners, id: WorkflowId) -> bool {
    let serves = |scope: &RunnerScope| *scope == RunnerScope::Session || workflows.live_in_scope(scope).contains(&id);
    workflows.get(&id).is_some_and(|workflow| workflow.actions.has_open_commands())
        && runners.values().any(|runner| !runner.is_silent() && serves(&runner.row().scope))
}
