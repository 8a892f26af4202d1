//! Rules of `kind: SlurmCluster`.

use super::Rule;
use super::quantities::{WALLTIME, WALLTIME_WORDS};
use super::workflows::NAME;

/// All rules, in the order of the document.
pub const CLUSTER: &[Rule] = &[
    NAME,
    Rule::new("spec.commandPrefix[]", "self.trim() != ''", "must not be empty"),
    Rule::with_message_expression("spec.partitions[].maxWalltime", WALLTIME, WALLTIME_WORDS).parsed(),
];
