//! Checks the partitions of `kind: SlurmCluster`.

use super::Findings;
use super::names::once;
use super::resources::quantity;
use crate::cluster::SlurmClusterSpec;
use crate::quantity::parse_walltime;

pub(super) fn check(spec: &SlurmClusterSpec, found: &mut Findings) {
    once("spec.partitions", spec.partitions.iter().map(|partition| Some(partition.name.as_str())), found);
    for (index, partition) in spec.partitions.iter().enumerate() {
        quantity(&partition.max_walltime, parse_walltime, || format!("spec.partitions[{index}].maxWalltime"), found);
    }
}
