//! What the workflows that a runner serves say to it: how long its leases last, how far to lease ahead, how long to stay.

use torc_api::failure::Prefetch;
use torc_api::wire::{LEASE_SECONDS, RunnerDirective, RunnerPolicy, RunnerScope};
use torc_api::workflow::WorkflowSpec;

use super::Engine;
use super::runners::Runner;
use super::workflow::Workflow;
use crate::ids::WorkflowId;
use crate::prefetch::together;

/// No lease is shorter: the next sync would come too late.
const MIN_LEASE_SECONDS: u32 = 5;

impl Engine {
    /// How long a silent runner keeps its leases: the shortest that any of its workflows asks for.
    pub(super) fn lease_ms(&self, scope: &[WorkflowId]) -> u64 {
        let asked = self.prefetch_settings(scope).filter_map(|prefetch| prefetch.lease_seconds).min();
        asked.map_or(LEASE_SECONDS, |seconds| u64::from(seconds.unsigned_abs())) * 1_000
    }

    /// How long this runner keeps its leases in silence: as it said itself, or as its workflows say.
    pub(super) fn lease_of(&self, runner: &Runner, scope: &[WorkflowId]) -> u64 {
        let own = runner.lease_seconds().map(|seconds| u64::from(seconds.max(MIN_LEASE_SECONDS)) * 1_000);
        own.unwrap_or_else(|| self.lease_ms(scope))
    }

    /// How far to lease ahead, as the workflows say together; see [`together`].
    pub(super) fn prefetch(&self, scope: &[WorkflowId]) -> Option<Prefetch> {
        let live = scope.iter().filter_map(|id| self.workflows.get(id));
        together(live.map(|workflow| workflow.spec.prefetch.as_ref()))
    }

    /// How long a runner stays: of what its unsettled workflows say, or all of them once all have settled, the most patient.
    pub(super) fn terms(&self, scope: &RunnerScope) -> RunnerPolicy {
        let live = self.live_in_scope(scope);
        let mut counting: Vec<&Workflow> = live.iter().filter_map(|id| self.workflows.get(id)).collect();
        counting.retain(|workflow| !workflow.graph.is_settled());
        if counting.is_empty() {
            counting.extend(self.in_scope(scope));
        }
        let counting = || counting.iter().map(|workflow| workflow.spec.as_ref());
        let longest = |field: fn(&WorkflowSpec) -> Option<i64>, usual: u64| {
            let says = |spec: &WorkflowSpec| field(spec).map_or(usual, |value| u64::try_from(value).unwrap_or(0));
            counting().map(says).max().unwrap_or(usual)
        };
        let usual = RunnerPolicy::default();
        RunnerPolicy {
            wait_for_new_jobs_seconds: longest(
                |spec| spec.compute_node_wait_for_new_jobs_seconds,
                usual.wait_for_new_jobs_seconds,
            ),
            ignore_workflow_completion: counting()
                .any(|spec| spec.compute_node_ignore_workflow_completion == Some(true)),
            min_time_for_new_jobs_seconds: longest(
                |spec| spec.compute_node_min_time_for_new_jobs_seconds,
                usual.min_time_for_new_jobs_seconds,
            ),
            wait_for_healthy_database_minutes: longest(
                |spec| spec.compute_node_wait_for_healthy_database_minutes,
                usual.wait_for_healthy_database_minutes,
            ),
        }
    }

    fn prefetch_settings<'a>(&'a self, scope: &'a [WorkflowId]) -> impl Iterator<Item = &'a Prefetch> {
        scope.iter().filter_map(|id| self.workflows.get(id)?.spec.prefetch.as_ref())
    }

    /// Something may still come: see [`Workflow::expects_capacity`].
    pub(super) fn expects_capacity(&self, scope: &[WorkflowId]) -> bool {
        scope.iter().filter_map(|id| self.workflows.get(id)).any(Workflow::expects_capacity)
    }

    /// What a runner should do next.
    pub(super) fn verdict(&self, scope: &RunnerScope) -> RunnerDirective {
        let is_open = |id: &WorkflowId| self.workflows.get(id).is_some_and(|workflow| !workflow.is_over());
        if self.in_scope(scope).next().is_none() || self.live_in_scope(scope).iter().any(is_open) {
            RunnerDirective::Continue
        } else if self.in_scope(scope).all(Workflow::is_canceled) {
            RunnerDirective::Canceled
        } else {
            RunnerDirective::Complete
        }
    }
}
