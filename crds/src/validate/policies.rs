//! How a workflow is looked after: orphans, prefetch, dynamic jobs.

use super::Findings;
use super::resources::quantity;
use crate::problem::Problem;
use crate::quantity::parse_duration;
use crate::workflow::WorkflowSpec;

/// What `orphanAfter` says where a started job is waited for without end.
const NEVER: &str = "never";

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    if let Some(after) = spec.orphan_after.as_deref().filter(|after| *after != NEVER) {
        let field = || "spec.orphanAfter".to_owned();
        quantity(after, parse_duration, field, found);
        if parse_duration(after) == Ok(0) {
            found.add(Problem::error(field(), "must be longer than nothing").hint("write a duration or `never`"));
        }
    }
    if let Some(prefetch) = &spec.prefetch
        && let (Some(threshold), Some(most)) = (prefetch.refill_threshold, prefetch.max_queued)
        && threshold > most
    {
        let message = format!("must not be more than the {most} jobs that may wait");
        found.error("spec.prefetch.refillThreshold", message);
    }
    if let Some(cluster) = spec.slurm_cluster.as_deref().filter(|name| name.trim().is_empty()) {
        found.error("spec.slurmCluster", format!("'{cluster}' is not a name"));
    }
}
