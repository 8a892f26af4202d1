//! Checks that `orphanAfter` is a duration above 0, or `never`.

use super::Findings;
use super::resources::quantity;
use crate::problem::Problem;
use crate::quantity::parse_duration;
use crate::workflow::WorkflowSpec;

/// The value of `orphanAfter` with which a started job never counts as lost.
const NEVER: &str = "never";

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    if let Some(after) = spec.orphan_after.as_deref().filter(|after| *after != NEVER) {
        let field = || "spec.orphanAfter".to_owned();
        quantity(after, parse_duration, field, found);
        if parse_duration(after) == Ok(0) {
            found.add(Problem::error(field(), "must be longer than 0 seconds").hint("write a duration or `never`"));
        }
    }
}
