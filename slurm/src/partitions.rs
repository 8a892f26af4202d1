//! Detection of a cluster's partitions from the output of `scontrol` and `sinfo`.

use torc_api::cluster::Partition;
use torc_api::quantity::format_duration;

use crate::parse::fields::Limit;
use crate::scontrol::PartitionRules;
use crate::sinfo::Nodes;

/// Slurm's time limit for a job in a partition without one.
const UNLIMITED_SECONDS: i64 = 365 * 86_400;

/// Returns the partitions that have nodes, in Slurm's order. Where nodes of a partition differ, the most frequent kind counts, and
/// the larger one in a tie: a document that needs the others describes the partition itself.
pub fn detect(rules: &[PartitionRules], nodes: &[Nodes]) -> Vec<Partition> {
    rules.iter().filter_map(|rules| describe(rules, nodes)).collect()
}

fn describe(rules: &PartitionRules, nodes: &[Nodes]) -> Option<Partition> {
    let most_common_node = most_common_node(nodes.iter().filter(|nodes| nodes.partition == rules.name))?;
    let walltime = match rules.max_time {
        Some(Limit::Seconds(seconds)) => seconds,
        Some(Limit::Unlimited) | None => UNLIMITED_SECONDS,
    };
    let most = [rules.max_nodes, rules.nodes].into_iter().flatten().min();
    Some(Partition {
        name: rules.name.clone(),
        cpus_per_node: most_common_node.cpus,
        memory_mb: rules.max_memory_mb.map_or(most_common_node.memory_mb, |most| most.min(most_common_node.memory_mb)),
        max_walltime: format_duration(walltime),
        gpus_per_node: (most_common_node.gpus > 0).then_some(most_common_node.gpus),
        gpu_type: most_common_node.gpu_type,
        nodes: most,
        shared: Some(!rules.is_exclusive),
        requires_explicit_request: (!rules.is_up || rules.is_special).then_some(true),
    })
}

/// Returns the most frequent kind of node, whatever its state.
fn most_common_node<'a>(nodes: impl Iterator<Item = &'a Nodes>) -> Option<Nodes> {
    let mut kinds: Vec<Nodes> = Vec::new();
    for nodes in nodes {
        let alike =
            |kind: &&mut Nodes| (kind.cpus, kind.memory_mb, kind.gpus) == (nodes.cpus, nodes.memory_mb, nodes.gpus);
        match kinds.iter_mut().find(alike) {
            Some(kind) => kind.count += nodes.count,
            None => kinds.push(nodes.clone()),
        }
    }
    kinds.into_iter().max_by_key(|kind| (kind.count, kind.gpus, kind.cpus, kind.memory_mb))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{scontrol, sinfo};

    const RULES: &str = "\
PartitionName=standard MaxNodes=UNLIMITED MaxTime=2-00:00:00 OverSubscribe=EXCLUSIVE State=UP TotalNodes=100 RootOnly=NO Hidden=NO
PartitionName=shared MaxNodes=1 MaxTime=UNLIMITED OverSubscribe=NO State=UP TotalNodes=10 MaxMemPerNode=100000
PartitionName=broken MaxTime=1:00:00 State=DOWN TotalNodes=1
PartitionName=empty MaxTime=1:00:00 State=UP TotalNodes=0
";
    const NODES: &str = "\
standard|60|104|246064|(null)|allocated
standard|10|104|246064|(null)|idle
standard|65|128|2000000|gpu:h100:4|idle
shared|10|104|246064|(null)|mixed
broken|1|4|4000|(null)|down*
";

    #[test]
    fn what_slurm_says_becomes_what_a_document_would_say() {
        let found = detect(&scontrol::read_partitions(RULES), &sinfo::read_nodes(NODES).unwrap());
        let names: Vec<&str> = found.iter().map(|partition| partition.name.as_str()).collect();
        assert_eq!(names, ["standard", "shared", "broken"], "a partition without nodes is none");
        let standard = Partition {
            name: "standard".to_owned(),
            cpus_per_node: 104,
            memory_mb: 246_064,
            max_walltime: "2d".to_owned(),
            gpus_per_node: None,
            gpu_type: None,
            nodes: Some(100),
            shared: Some(false),
            requires_explicit_request: None,
        };
        assert_eq!(found[0], standard);
        assert_eq!((found[1].nodes, found[1].memory_mb, found[1].shared), (Some(1), 100_000, Some(true)));
        assert_eq!(found[1].max_walltime, "365d");
        assert_eq!(found[2].requires_explicit_request, Some(true));
    }

    fn one(rules: &str, nodes: &str) -> Partition {
        let rules = scontrol::read_partitions(&format!("PartitionName=p {rules}\n"));
        detect(&rules, &sinfo::read_nodes(nodes).unwrap()).remove(0)
    }

    #[test]
    fn every_property_of_a_partition() {
        let found = one(
            "MaxTime=1:00:00 MaxNodes=7 TotalNodes=9 State=UP OverSubscribe=NO",
            "p|3|4|5000|gpu:a100:6|idle\nq|90|8|9000|(null)|idle\n",
        );
        let expected = Partition {
            name: "p".to_owned(),
            cpus_per_node: 4,
            memory_mb: 5_000,
            max_walltime: "1h".to_owned(),
            gpus_per_node: Some(6),
            gpu_type: Some("a100".to_owned()),
            nodes: Some(7),
            shared: Some(true),
            requires_explicit_request: None,
        };
        assert_eq!(found, expected);
        let nodes = "p|3|4|5000|(null)|idle\n";
        assert_eq!(one("MaxNodes=9 TotalNodes=7", nodes).nodes, Some(7), "the smaller of the two");
        assert_eq!(one("MaxNodes=9", nodes).nodes, Some(9));
        assert_eq!(one("State=UP", nodes).nodes, None);
        assert_eq!(one("MaxMemPerNode=6000", nodes).memory_mb, 5_000, "a limit gives no memory");
        assert_eq!(one("MaxMemPerNode=4000", nodes).memory_mb, 4_000);
        assert_eq!(one("State=UP", nodes).max_walltime, "365d");
        assert_eq!(one("RootOnly=YES", nodes).requires_explicit_request, Some(true));
        assert_eq!(one("State=DRAIN", nodes).requires_explicit_request, Some(true));
    }

    #[test]
    fn most_nodes_decide_and_then_the_larger_ones() {
        let cpus = |nodes: &str| one("State=UP", nodes).cpus_per_node;
        assert_eq!(cpus("p|5|8|1000|(null)|idle\np|4|9|2000|gpu:2|idle\n"), 8, "the number of nodes");
        assert_eq!(
            cpus("p|2|8|1000|(null)|idle\np|4|9|1000|(null)|idle\np|3|8|1000|(null)|mixed\n"),
            8,
            "alike nodes add up"
        );
        assert_eq!(cpus("p|5|9|2000|(null)|idle\np|5|8|1000|gpu:1|idle\n"), 8, "GPUs before CPUs");
        assert_eq!(cpus("p|5|8|2000|(null)|idle\np|5|9|1000|(null)|idle\n"), 9, "CPUs before memory");
        assert_eq!(one("State=UP", "p|5|8|2000|(null)|idle\np|5|8|1000|(null)|idle\n").memory_mb, 2_000);
    }

    #[test]
    fn a_tie_is_decided_by_size() {
        let nodes = sinfo::read_nodes("p|5|8|1000|(null)|idle\np|5|64|2000|gpu:2|idle\n").unwrap();
        let found = detect(&scontrol::read_partitions("PartitionName=p MaxTime=10:00 State=UP\n"), &nodes);
        assert_eq!((found[0].cpus_per_node, found[0].gpus_per_node), (64, Some(2)));
    }
}
