//! How a workflow is looked after: orphans.

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
}
