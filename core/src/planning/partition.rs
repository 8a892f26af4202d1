//! Partitions, and the choice of one for a job.

use thiserror::Error;
use torc_api::cluster;
use torc_api::quantity::{QuantityError, count, format_bytes, format_duration, parse_walltime};

use super::margin::WalltimeMargin;
use crate::expanded::Requirements;

const MIB: i64 = 1 << 20;

/// A partition with parsed limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionLimits {
    /// Name of the partition in Slurm.
    pub name: String,
    /// CPUs of a node.
    pub cpus: i64,
    /// Bytes of memory of a node.
    pub memory_bytes: i64,
    /// GPUs of a node.
    pub gpus: i64,
    /// The longest walltime in seconds.
    pub seconds: i64,
    /// The maximum number of nodes of a Slurm job; none for no limit.
    pub nodes: Option<i64>,
    /// Jobs of several users share a node, so a request covers only what is used.
    pub is_shared: bool,
    /// Used only when a document names it.
    pub on_request: bool,
}

impl TryFrom<&cluster::Partition> for PartitionLimits {
    type Error = QuantityError;

    fn try_from(partition: &cluster::Partition) -> Result<Self, Self::Error> {
        Ok(Self {
            name: partition.name.clone(),
            cpus: partition.cpus_per_node,
            memory_bytes: partition.memory_mb.saturating_mul(MIB),
            gpus: partition.gpus_per_node.unwrap_or(0),
            seconds: parse_walltime(&partition.max_walltime)?,
            nodes: partition.nodes,
            is_shared: partition.shared == Some(true),
            on_request: partition.requires_explicit_request == Some(true),
        })
    }
}

/// The reason why no partition can run a job.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoMatchingPartition {
    /// The cluster has no partition at all.
    #[error("the cluster has no partitions")]
    NoPartitions,
    /// The named partition does not exist.
    #[error("there is no partition '{name}'")]
    Unknown {
        /// The name of the partition.
        name: String,
    },
    /// No node has so many CPUs.
    #[error("{} on a node {} more than any partition has ({most})", count(*needed, "CPU"), is_or_are(*needed))]
    Cpus {
        /// The amount that the job needs.
        needed: i64,
        /// The largest amount that a partition has.
        most: i64,
    },
    /// No node has so much memory.
    #[error("{} of memory on a node is more than any partition has ({})", format_bytes(*needed), format_bytes(*most))]
    Memory {
        /// The amount that the job needs.
        needed: i64,
        /// The largest amount that a partition has.
        most: i64,
    },
    /// No node has so many GPUs.
    #[error("{} on a node {} more than any partition has ({most})", count(*needed, "GPU"), is_or_are(*needed))]
    Gpus {
        /// The amount that the job needs.
        needed: i64,
        /// The largest amount that a partition has.
        most: i64,
    },
    /// No partition lets a job have so many nodes.
    #[error("{} {} more than any partition allows for a job ({most})", count(*needed, "node"), is_or_are(*needed))]
    Nodes {
        /// The amount that the job needs.
        needed: i64,
        /// The largest amount that a partition has.
        most: i64,
    },
    /// No partition allows a walltime that is long enough.
    #[error(
        "a runtime of {} needs a walltime of {} (start-up, warning and headroom included), but the longest available is {}",
        format_duration(*runtime),
        format_duration(*needed),
        format_duration(*most)
    )]
    Time {
        /// The declared runtime in seconds.
        runtime: i64,
        /// The walltime in seconds that the runtime needs.
        needed: i64,
        /// The longest walltime of any partition, in seconds.
        most: i64,
    },
    /// Each need is met by some partition, but no partition meets all needs.
    #[error("no partition meets all of its requirements at once")]
    Together,
    /// It fits only into a partition that a document must name.
    #[error("it fits only in partition '{name}', which must be named explicitly")]
    OnRequest {
        /// Name of the partition.
        name: String,
    },
    /// It has labels, so only runners that were started with them can run it.
    #[error("it has labels ({labels}), so only runners that were started with them can run it")]
    Labels {
        /// The labels, separated by commas.
        labels: String,
    },
}

/// Returns the partition for a job: the named one, or the smallest that fits. Partitions for debugging are the last
/// resort, those with GPUs are for jobs that need GPUs, and small jobs share nodes if possible.
pub fn choose<'a>(
    needs: &Requirements,
    partitions: &'a [PartitionLimits],
    named: Option<&str>,
    margin: WalltimeMargin,
) -> Result<&'a PartitionLimits, NoMatchingPartition> {
    let fits = |needs: &Requirements, partition: &PartitionLimits| fits(needs, partition, margin);
    let no_match_reason =
        |needs: &Requirements, partitions: &[PartitionLimits]| no_match_reason(needs, partitions, margin);
    if let Some(name) = named {
        let partition = partitions.iter().find(|partition| partition.name == name);
        let partition = partition.ok_or_else(|| NoMatchingPartition::Unknown { name: name.to_owned() })?;
        return if fits(needs, partition) {
            Ok(partition)
        } else {
            Err(no_match_reason(needs, std::slice::from_ref(partition)))
        };
    }
    let fitting = || partitions.iter().filter(|partition| fits(needs, partition));
    let open = fitting().filter(|partition| !partition.on_request).min_by_key(|partition| rank(needs, partition));
    open.ok_or_else(|| match fitting().next() {
        Some(partition) => NoMatchingPartition::OnRequest { name: partition.name.clone() },
        None => no_match_reason(needs, partitions),
    })
}

fn fits(needs: &Requirements, partition: &PartitionLimits, margin: WalltimeMargin) -> bool {
    needs.num_cpus <= partition.cpus
        && needs.memory_bytes <= partition.memory_bytes
        && needs.num_gpus <= partition.gpus
        && margin.walltime_for(needs.runtime_seconds) <= partition.seconds
        && partition.nodes.is_none_or(|most| needs.num_nodes <= most)
}

/// Returns the rank of a partition for a job; lower is better.
fn rank(needs: &Requirements, partition: &PartitionLimits) -> impl Ord + use<> {
    let is_for_debugging = partition.name.to_ascii_lowercase().contains("debug");
    let wastes_gpus = partition.gpus > 0 && needs.num_gpus == 0;
    let other_kind = is_small(needs, partition) != partition.is_shared;
    (
        is_for_debugging,
        wastes_gpus,
        other_kind,
        partition.memory_bytes,
        partition.seconds,
        partition.gpus,
        partition.cpus,
    )
}

/// Returns whether a job needs at most a quarter of a node.
fn is_small(needs: &Requirements, partition: &PartitionLimits) -> bool {
    needs.num_nodes <= 1
        && needs.num_cpus.saturating_mul(4) <= partition.cpus
        && needs.memory_bytes.saturating_mul(4) <= partition.memory_bytes
        && needs.num_gpus.saturating_mul(4) <= partition.gpus
}

fn no_match_reason(
    needs: &Requirements,
    partitions: &[PartitionLimits],
    margin: WalltimeMargin,
) -> NoMatchingPartition {
    let most = |amount: fn(&PartitionLimits) -> i64| partitions.iter().map(amount).max();
    let Some(cpus) = most(|partition| partition.cpus) else { return NoMatchingPartition::NoPartitions };
    let memory = most(|partition| partition.memory_bytes).unwrap_or(0);
    let gpus = most(|partition| partition.gpus).unwrap_or(0);
    let nodes = most(|partition| partition.nodes.unwrap_or(i64::MAX)).unwrap_or(0);
    let seconds = most(|partition| partition.seconds).unwrap_or(0);
    if needs.num_cpus > cpus {
        NoMatchingPartition::Cpus { needed: needs.num_cpus, most: cpus }
    } else if needs.memory_bytes > memory {
        NoMatchingPartition::Memory { needed: needs.memory_bytes, most: memory }
    } else if needs.num_gpus > gpus {
        NoMatchingPartition::Gpus { needed: needs.num_gpus, most: gpus }
    } else if needs.num_nodes > nodes {
        NoMatchingPartition::Nodes { needed: needs.num_nodes, most: nodes }
    } else if margin.walltime_for(needs.runtime_seconds) > seconds {
        let runtime = needs.runtime_seconds;
        NoMatchingPartition::Time { runtime, needed: margin.walltime_for(runtime), most: seconds }
    } else {
        NoMatchingPartition::Together
    }
}

fn is_or_are(number: i64) -> &'static str {
    if number == 1 { "is" } else { "are" }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub const GIB: i64 = 1 << 30;
    const HOUR: i64 = 3_600;

    pub fn needs(cpus: i64, gib: i64, gpus: i64, nodes: i64, hours: i64) -> Requirements {
        Requirements {
            name: format!("{cpus}c{gib}g{gpus}u{nodes}n{hours}h"),
            num_cpus: cpus,
            memory_bytes: gib * GIB,
            num_gpus: gpus,
            num_nodes: nodes,
            runtime_seconds: hours * HOUR,
        }
    }

    pub fn partition(name: &str, cpus: i64, gib: i64, gpus: i64, hours: i64) -> PartitionLimits {
        PartitionLimits {
            name: name.to_owned(),
            cpus,
            memory_bytes: gib * GIB,
            gpus,
            seconds: hours * HOUR,
            ..PartitionLimits::default()
        }
    }

    /// Returns a site with the usual kinds.
    pub fn site() -> Vec<PartitionLimits> {
        vec![
            partition("debug", 104, 240, 0, 1),
            partition("short", 104, 240, 0, 4),
            partition("standard", 104, 240, 0, 48),
            partition("bigmem", 104, 2_000, 0, 48),
            PartitionLimits { is_shared: true, nodes: Some(1), ..partition("shared", 104, 240, 0, 48) },
            partition("gpu", 128, 350, 4, 48),
            PartitionLimits { on_request: true, ..partition("vip", 256, 4_000, 8, 240) },
        ]
    }

    fn chosen(needs: &Requirements) -> String {
        choose(needs, &site(), None, WalltimeMargin::default())
            .map_or_else(|reason| reason.to_string(), |partition| partition.name.clone())
    }

    #[test]
    fn the_tightest_partition_that_fits() {
        let cases = [
            (needs(100, 200, 0, 1, 3), "short"),
            (needs(100, 200, 0, 1, 20), "standard"),
            (needs(100, 500, 0, 1, 1), "bigmem"),
            (needs(26, 60, 0, 1, 1), "shared"),
            (needs(27, 60, 0, 1, 1), "short"),
            (needs(26, 61, 0, 1, 1), "short"),
            (needs(1, 1, 0, 2, 1), "short"),
            (needs(1, 1, 1, 1, 1), "gpu"),
            (needs(120, 300, 0, 1, 1), "gpu"),
        ];
        for (needs, expected) in cases {
            assert_eq!(chosen(&needs), expected, "{}", needs.name);
        }
    }

    /// Small jobs share nodes: at most a quarter of one in every respect, and of one node only.
    #[test]
    fn a_quarter_of_a_node_is_small() {
        let node = partition("p", 8, 8, 8, 1);
        let cases = [
            (needs(2, 2, 2, 1, 1), true),
            (needs(3, 2, 2, 1, 1), false),
            (needs(2, 3, 2, 1, 1), false),
            (needs(2, 2, 3, 1, 1), false),
            (needs(1, 1, 0, 2, 1), false),
        ];
        for (needs, expected) in cases {
            assert_eq!(is_small(&needs, &node), expected, "{}", needs.name);
        }
    }

    #[test]
    fn gpus_are_left_to_jobs_that_need_them() {
        let partitions = [partition("gpu", 64, 100, 4, 8), partition("cpu", 64, 500, 0, 8)];
        assert_eq!(choose(&needs(32, 50, 0, 1, 1), &partitions, None, WalltimeMargin::default()).unwrap().name, "cpu");
        assert_eq!(choose(&needs(32, 50, 1, 1, 1), &partitions, None, WalltimeMargin::default()).unwrap().name, "gpu");
    }

    #[test]
    fn a_partition_fits_up_to_its_limits() {
        let none = WalltimeMargin::default();
        let most = PartitionLimits { nodes: Some(2), ..partition("p", 8, 16, 4, 3) };
        assert!(fits(&needs(8, 16, 4, 2, 3), &most, none));
        for beyond in [
            needs(9, 16, 4, 2, 3),
            needs(8, 17, 4, 2, 3),
            needs(8, 16, 5, 2, 3),
            needs(8, 16, 4, 3, 3),
            needs(8, 16, 4, 2, 4),
        ] {
            assert!(!fits(&beyond, &most, none), "{}", beyond.name);
        }
        let margin = WalltimeMargin { startup_seconds: 60, ..none };
        assert!(!fits(&needs(8, 16, 4, 2, 3), &most, margin), "the margin is part of the walltime");
        assert!(fits(&needs(8, 16, 4, 99, 3), &PartitionLimits { nodes: None, ..most }, none));
    }

    #[test]
    fn a_partition_for_debugging_is_the_last_resort() {
        let partitions = [partition("debug", 8, 8, 0, 4), partition("long", 64, 500, 0, 400)];
        assert_eq!(choose(&needs(1, 1, 0, 1, 1), &partitions, None, WalltimeMargin::default()).unwrap().name, "long");
        assert_eq!(
            choose(&needs(1, 1, 0, 1, 1), &partitions[..1], None, WalltimeMargin::default()).unwrap().name,
            "debug"
        );
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_reason() {
        let cases = [
            (needs(300, 1, 0, 1, 1), "300 CPUs on a node are more than any partition has (256)"),
            (needs(1, 5_000, 0, 1, 1), "4.9 TiB of memory on a node is more than any partition has (3.9 TiB)"),
            (needs(1, 1, 9, 1, 1), "9 GPUs on a node are more than any partition has (8)"),
            (
                needs(1, 1, 0, 1, 241),
                "a runtime of 10d1h needs a walltime of 10d1h (start-up, warning and headroom included), but the longest available is 10d",
            ),
            (needs(200, 1, 0, 1, 1), "it fits only in partition 'vip', which must be named explicitly"),
        ];
        for (needs, expected) in cases {
            assert_eq!(chosen(&needs), expected);
        }
        let two = [partition("cpu", 64, 100, 0, 1), partition("gpu", 8, 100, 4, 1)];
        assert_eq!(
            choose(&needs(64, 1, 4, 1, 1), &two, None, WalltimeMargin::default()),
            Err(NoMatchingPartition::Together)
        );
        let narrow = [PartitionLimits { nodes: Some(2), ..partition("p", 8, 8, 0, 8) }];
        assert_eq!(
            choose(&needs(1, 1, 0, 3, 1), &narrow, None, WalltimeMargin::default()),
            Err(NoMatchingPartition::Nodes { needed: 3, most: 2 })
        );
        assert_eq!(
            choose(&needs(1, 1, 0, 1, 1), &[], None, WalltimeMargin::default()),
            Err(NoMatchingPartition::NoPartitions)
        );
    }

    #[test]
    fn a_named_partition_is_taken_if_it_fits() {
        assert_eq!(choose(&needs(1, 1, 0, 1, 1), &site(), Some("vip"), WalltimeMargin::default()).unwrap().name, "vip");
        assert_eq!(
            choose(&needs(1, 1, 0, 1, 1), &site(), Some("x"), WalltimeMargin::default()),
            Err(NoMatchingPartition::Unknown { name: "x".to_owned() })
        );
        let partitions = site();
        let too_long = choose(&needs(1, 1, 0, 1, 5), &partitions, Some("short"), WalltimeMargin::default());
        assert_eq!(too_long, Err(NoMatchingPartition::Time { runtime: 5 * HOUR, needed: 5 * HOUR, most: 4 * HOUR }));
    }

    #[test]
    fn texts_of_the_document_are_read() {
        let written = cluster::Partition {
            name: "p".to_owned(),
            cpus_per_node: 4,
            memory_mb: 4_000,
            max_walltime: "30".to_owned(),
            gpus_per_node: Some(2),
            ..cluster::Partition::default()
        };
        let read = PartitionLimits::try_from(&written).unwrap();
        assert_eq!((read.memory_bytes, read.seconds, read.gpus), (4_000 * MIB, 1_800, 2));
        assert!(PartitionLimits::try_from(&cluster::Partition { max_walltime: "soon".to_owned(), ..written }).is_err());
    }
}
