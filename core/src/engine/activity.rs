//! Whether anything goes on, for a process that leaves when nothing does.

use torc_api::wire::RunnerScope;

use super::Engine;
use super::runners::Runner;
use super::workflow::Workflow;

/// A summary of the work in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// A runner holds something, or something comes back by itself.
    pub is_busy: bool,
    /// The number of the last event: it rises with everything that happens.
    pub last_event: i64,
}

impl Engine {
    /// Whether runners are at work or something comes by itself to runners of a scope, and the last event.
    pub fn activity(&self, scope: &RunnerScope) -> Activity {
        let is_at_work = |runner: &Runner| !runner.leases.is_empty();
        let returns = |workflow: &Workflow| workflow.graph.counts().recovering > 0 || workflow.expects_capacity();
        let is_busy = self.runners.values().any(is_at_work)
            || self.live_in_scope(scope).iter().filter_map(|id| self.workflows.get(id)).any(returns);
        Activity { is_busy, last_event: self.last.event }
    }
}
