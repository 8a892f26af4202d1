//! `sinfo`: the nodes of partitions.

use crate::call::{CommandSpec, Tool};
use crate::error::SlurmError;
use crate::parse::fields::gpus;

/// Equal nodes of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    pub partition: String,
    /// The number of nodes.
    pub count: i64,
    pub cpus: i64,
    /// Memory of each in MiB.
    pub memory_mb: i64,
    pub gpus: i64,
    /// The type of its GPUs.
    pub gpu_type: Option<String>,
    /// `true` if they are idle and usable.
    pub are_idle: bool,
}

/// Returns the query for the nodes of all partitions.
pub fn nodes() -> CommandSpec {
    CommandSpec::new(Tool::Sinfo, ["-h", "-e", "-a", "-o", "%R|%D|%c|%m|%G|%T"])
}

/// Parses the nodes. A line that cannot be parsed makes the whole output invalid.
pub fn read_nodes(text: &str) -> Result<Vec<Nodes>, SlurmError> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| read_line(line).ok_or_else(|| SlurmError::unreadable(Tool::Sinfo, line))).collect()
}

fn read_line(line: &str) -> Option<Nodes> {
    let fields: Vec<&str> = line.trim().split('|').collect();
    let [partition, count, cpus, memory, gres, state] = fields.as_slice() else { return None };
    // Older versions print nodes that differ on one line, with the minimum and a plus sign.
    let least = |text: &str| text.trim_end_matches('+').parse::<i64>().ok();
    let (gpus, gpu_type) = gpus(gres);
    Some(Nodes {
        partition: (*partition).to_owned(),
        count: count.parse().ok()?,
        cpus: least(cpus)?,
        memory_mb: least(memory)?,
        gpus,
        gpu_type,
        are_idle: *state == "idle",
    })
}

/// Returns the number of idle nodes of a partition.
pub fn idle(nodes: &[Nodes], partition: &str) -> i64 {
    nodes.iter().filter(|nodes| nodes.partition == partition && nodes.are_idle).map(|nodes| nodes.count).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_column_has_its_field() {
        let expected = Nodes {
            partition: "p".to_owned(),
            count: 3,
            cpus: 4,
            memory_mb: 5,
            gpus: 6,
            gpu_type: Some("a100".to_owned()),
            are_idle: true,
        };
        for line in ["p|3|4|5|gpu:a100:6|idle\n", " p|3|4|5|gpu:a100:6|idle \n"] {
            assert_eq!(read_nodes(line), Ok(vec![expected.clone()]), "{line:?}");
        }
        for line in [
            "p|x|4|5|(null)|idle",
            "p|3|x|5|(null)|idle",
            "p|3|4|x|(null)|idle",
            "p|3|4|5|(null)",
            "p|3|4|5|(null)|idle|7",
        ] {
            assert!(read_nodes(line).is_err(), "{line}");
        }
        let mixed = read_nodes("p|3|4|5|(null)|idle\np|9|4|5|(null)|idle*\nq|2|4|5|(null)|idle\np|1|4|5|(null)|idle\n")
            .unwrap();
        assert_eq!((idle(&mixed, "p"), idle(&mixed, "q")), (4, 2), "idle* does not respond");
    }

    #[test]
    fn nodes_that_are_alike() {
        let text = "debug|1|4|4000|gpu:2|mixed\ndebug|3|4|4000|gpu:2|idle\nbig|12|128+|500000+|(null)|down*\n\
                    gpu|2|64|1000000|gpu:a100:4(S:0-1)|idle~\n";
        let nodes = read_nodes(text).unwrap();
        assert_eq!((nodes[0].count, nodes[0].cpus, nodes[0].memory_mb, nodes[0].gpus), (1, 4, 4_000, 2));
        assert_eq!((nodes[2].cpus, nodes[2].gpus, nodes[2].are_idle), (128, 0, false));
        assert_eq!((nodes[3].gpus, nodes[3].gpu_type.as_deref()), (4, Some("a100")));
        // A node that is switched off to save power is not usable yet.
        assert_eq!((idle(&nodes, "debug"), idle(&nodes, "gpu"), idle(&nodes, "nowhere")), (3, 0, 0));
        assert!(matches!(read_nodes("what?\n"), Err(SlurmError::NoAnswer { .. })));
    }
}
