//! Settings of workflows for the runners that serve them: lease duration, prefetch, waiting times, directive.

use torc_api::failure::Prefetch;
use torc_api::wire::{LEASE_SECONDS, RunnerDirective, RunnerPolicy, RunnerScope};
use torc_api::workflow::WorkflowSpec;

use super::runners::LiveRunner;
use super::workflow::LiveWorkflow;
use super::workflows::Workflows;
use crate::ids::WorkflowId;
use crate::prefetch::together;

/// Shortest lease duration. A shorter lease could expire before the next sync over a slow link.
const MIN_LEASE_SECONDS: u32 = 5;

impl Workflows {
    /// Returns the shortest lease duration that one of these workflows sets.
    pub fn lease_ms(&self, scope: &[WorkflowId]) -> u64 {
        let prefetch = scope.iter().filter_map(|id| self.get(id)?.spec().prefetch.as_ref());
        let seconds = prefetch.filter_map(|prefetch| prefetch.lease_seconds).min();
        seconds.map_or(LEASE_SECONDS, |seconds| u64::from(seconds.unsigned_abs())) * 1_000
    }

    /// Returns the lease duration of a runner: the one that it has requested, or that of its workflows.
    pub fn lease_of(&self, runner: &LiveRunner, scope: &[WorkflowId]) -> u64 {
        let own = runner.lease_seconds().map(|seconds| u64::from(seconds.max(MIN_LEASE_SECONDS)) * 1_000);
        own.unwrap_or_else(|| self.lease_ms(scope))
    }

    /// Returns the prefetch settings of these workflows together; see [`together`].
    pub fn prefetch(&self, scope: &[WorkflowId]) -> Option<Prefetch> {
        let live = scope.iter().filter_map(|id| self.get(id));
        together(live.map(|workflow| workflow.spec().prefetch.as_ref()))
    }

    /// Returns the waiting times of a runner: the longest of its unsettled workflows, or of all if all have settled.
    pub fn runner_policy(&self, scope: &RunnerScope) -> RunnerPolicy {
        let live = self.live_in_scope(scope);
        let mut relevant: Vec<&LiveWorkflow> = live.iter().filter_map(|id| self.get(id)).collect();
        relevant.retain(|workflow| !workflow.is_settled());
        if relevant.is_empty() {
            relevant.extend(self.in_scope(scope));
        }
        let specs = || relevant.iter().map(|workflow| workflow.spec());
        let longest = |field: fn(&WorkflowSpec) -> Option<i64>, default: u64| {
            let value = |spec: &WorkflowSpec| field(spec).map_or(default, |value| u64::try_from(value).unwrap_or(0));
            specs().map(value).max().unwrap_or(default)
        };
        let default = RunnerPolicy::default();
        RunnerPolicy {
            wait_for_new_jobs_seconds: longest(
                |spec| spec.compute_node_wait_for_new_jobs_seconds,
                default.wait_for_new_jobs_seconds,
            ),
            ignore_workflow_completion: specs().any(|spec| spec.compute_node_ignore_workflow_completion == Some(true)),
            min_time_for_new_jobs_seconds: longest(
                |spec| spec.compute_node_min_time_for_new_jobs_seconds,
                default.min_time_for_new_jobs_seconds,
            ),
            wait_for_healthy_database_minutes: longest(
                |spec| spec.compute_node_wait_for_healthy_database_minutes,
                default.wait_for_healthy_database_minutes,
            ),
        }
    }

    /// Returns whether an action of these workflows may still provide work or capacity.
    pub fn may_add_capacity(&self, scope: &[WorkflowId]) -> bool {
        scope.iter().filter_map(|id| self.get(id)).any(LiveWorkflow::may_add_capacity)
    }

    /// Returns the directive for runners with a scope.
    pub fn directive(&self, scope: &RunnerScope) -> RunnerDirective {
        let is_open = |id: &WorkflowId| self.get(id).is_some_and(|workflow| !workflow.is_over());
        if self.in_scope(scope).next().is_none() || self.live_in_scope(scope).iter().any(is_open) {
            RunnerDirective::Continue
        } else if self.in_scope(scope).all(LiveWorkflow::is_canceled) {
            RunnerDirective::Canceled
        } else {
            RunnerDirective::Complete
        }
    }
}
