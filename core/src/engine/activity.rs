//! Activity of the store, for a server that exits when it is idle.

use torc_api::wire::RunnerScope;

use super::Engine;
use super::runners::Runner;
use super::workflow::Workflow;

/// A summary of the work in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Whether a runner holds leases, or work becomes available without a command.
    pub is_busy: bool,
    /// Number of the last event, which rises with every change.
    pub last_event: i64,
}

impl Engine {
    /// Returns whether runners are busy or work becomes available to a scope without a command, and the last event.
    pub fn activity(&self, scope: &RunnerScope) -> Activity {
        let is_working = |runner: &Runner| !runner.leases.is_empty();
        let will_continue = |workflow: &Workflow| workflow.graph.counts().recovering > 0 || workflow.expects_capacity();
        let live = self.workflows.live_in_scope(scope);
        let is_busy = self.runners.values().any(is_working)
            || live.iter().filter_map(|id| self.workflows.get(id)).any(will_continue);
        Activity { is_busy, last_event: self.last.event }
    }
}
