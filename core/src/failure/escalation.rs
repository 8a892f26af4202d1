//! Computes more memory or time for the next attempt: more than the last one had and used, but no more than nodes
//! offer.

use torc_api::quantity::{format_bytes, format_duration};
use torc_api::state::Cause;

use super::diagnosis::{Evidence, diagnose};
use crate::expanded::Requirements;
use crate::planning::partition::PartitionLimits;

/// The new amount in percent of the old, unless the document says otherwise.
pub const ESCALATION_PERCENT: i32 = 150;

const MIB: i64 = 1 << 20;

/// The next amount in percent of the larger of the request and what was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multipliers {
    /// Percentage for the next memory request.
    pub memory_percent: i64,
    /// Percentage for the next runtime request.
    pub runtime_percent: i64,
}

impl Default for Multipliers {
    fn default() -> Self {
        Self { memory_percent: i64::from(ESCALATION_PERCENT), runtime_percent: i64::from(ESCALATION_PERCENT) }
    }
}

/// A node that a job could get, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeShape {
    /// CPUs of the node.
    pub cpus: i64,
    /// Bytes of memory of the node.
    pub memory_bytes: i64,
    /// GPUs of the node.
    pub gpus: i64,
    /// Maximum number of nodes of this shape for one job.
    pub max_nodes: i64,
    /// The longest walltime on such a node, in seconds.
    pub seconds: i64,
}

impl NodeShape {
    /// A node without known limits.
    pub const UNLIMITED: Self =
        Self { cpus: i64::MAX, memory_bytes: i64::MAX, gpus: i64::MAX, max_nodes: i64::MAX, seconds: i64::MAX };

    /// Returns the nodes of a cluster's partitions: of the one that is named, or of all that need not be named.
    pub fn of_partitions(partitions: &[PartitionLimits], named: Option<&str>) -> Vec<Self> {
        let is_usable = |partition: &&PartitionLimits| match named {
            Some(name) => partition.name == name,
            None => !partition.on_request,
        };
        let shape = |partition: &PartitionLimits| Self {
            cpus: partition.cpus,
            memory_bytes: partition.memory_bytes,
            gpus: partition.gpus,
            max_nodes: partition.nodes.unwrap_or(i64::MAX),
            seconds: partition.seconds,
        };
        partitions.iter().filter(is_usable).map(shape).collect()
    }

    fn fits(&self, needs: &Requirements) -> bool {
        needs.num_cpus <= self.cpus
            && needs.memory_bytes <= self.memory_bytes
            && needs.num_gpus <= self.gpus
            && needs.num_nodes <= self.max_nodes
            && needs.runtime_seconds <= self.seconds
    }
}

/// The most that nodes offer of one resource to a job that keeps its other requirements. `None` means that this is not known: no
/// node is known, or the job runs on another kind of node than those that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeCapacity<'a>(pub &'a [NodeShape]);

impl NodeCapacity<'_> {
    pub fn memory_bytes(self, needs: &Requirements) -> Option<i64> {
        self.of(&Requirements { memory_bytes: 0, ..needs.clone() }, |shape| shape.memory_bytes)
    }

    pub fn seconds(self, needs: &Requirements) -> Option<i64> {
        self.of(&Requirements { runtime_seconds: 0, ..needs.clone() }, |shape| shape.seconds)
    }

    pub fn cpus(self, needs: &Requirements) -> Option<i64> {
        self.of(&Requirements { num_cpus: 0, ..needs.clone() }, |shape| shape.cpus)
    }

    fn of(self, rest: &Requirements, amount: impl Fn(&NodeShape) -> i64) -> Option<i64> {
        self.0.iter().filter(|shape| shape.fits(rest)).map(amount).max()
    }
}

/// The limit that prevents more memory or time: the attempt had as much as there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitReached {
    /// The largest node has no more memory.
    #[error(
        "it ran out of memory with {}, and the largest node that it can use has {}",
        format_bytes(*had),
        format_bytes(*largest)
    )]
    Memory {
        /// Bytes that the attempt could use.
        had: i64,
        /// Bytes of the largest node.
        largest: i64,
    },
    /// No walltime is longer than the time that the attempt had.
    #[error(
        "it ran out of time with {}, and the longest time that it can get is {}",
        format_duration(*had),
        format_duration(*longest)
    )]
    Time {
        /// Seconds that the attempt had.
        had: i64,
        /// Seconds of the longest time limit.
        longest: i64,
    },
}

/// The requirements of the next attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Escalated {
    /// The next attempt gets these requirements.
    To(Requirements),
    /// It would need more than there is.
    Not(LimitReached),
    /// The attempt ran out of neither memory nor time.
    Unneeded,
}

/// Returns the requirements of the next attempt of this job, and of no other: more memory after `OutOfMemory`, more time after
/// `Timeout`, and as many CPUs as the attempt used. `nodes` are those that the job could get; none means that this is not known.
pub fn escalate(evidence: &Evidence<'_>, multipliers: Multipliers, nodes: &[NodeShape]) -> Escalated {
    let grown = match diagnose(evidence) {
        Cause::OutOfMemory => more_memory(evidence, multipliers.memory_percent, NodeCapacity(nodes)),
        Cause::Timeout => more_time(evidence, multipliers.runtime_percent, NodeCapacity(nodes)),
        _ => return Escalated::Unneeded,
    };
    match grown {
        Ok(next) => Escalated::To(with_used_cpus(next, evidence, NodeCapacity(nodes))),
        Err(limit) => Escalated::Not(limit),
    }
}

fn more_memory(evidence: &Evidence<'_>, percent: i64, largest: NodeCapacity<'_>) -> Result<Requirements, LimitReached> {
    let needs = evidence.needs;
    // The limit was enforced, so a peak above it is no memory that the attempt had.
    let had = needs.memory_bytes;
    let memory_bytes = match largest.memory_bytes(needs) {
        Some(largest) if largest <= had => return Err(LimitReached::Memory { had, largest }),
        largest => scale_memory(had, evidence.peak_memory_bytes, percent).min(largest.unwrap_or(i64::MAX)),
    };
    Ok(Requirements { memory_bytes, ..needs.clone() })
}

fn more_time(evidence: &Evidence<'_>, percent: i64, largest: NodeCapacity<'_>) -> Result<Requirements, LimitReached> {
    let needs = evidence.needs;
    // A declared runtime is an estimate: the attempt may have had more.
    let had = needs.runtime_seconds.max(evidence.run_seconds);
    let runtime_seconds = match largest.seconds(needs) {
        Some(longest) if longest <= had => return Err(LimitReached::Time { had, longest }),
        longest => {
            scale_seconds(needs.runtime_seconds, Some(evidence.run_seconds), percent).min(longest.unwrap_or(i64::MAX))
        }
    };
    Ok(Requirements { runtime_seconds, ..needs.clone() })
}

/// Raises the CPUs to the number that the attempt used, because excess use slows down the job and its neighbors.
fn with_used_cpus(mut next: Requirements, evidence: &Evidence<'_>, largest: NodeCapacity<'_>) -> Requirements {
    if let Some(percent) = evidence.peak_cpu_percent.filter(|percent| *percent > next.num_cpus as f64 * 100.0) {
        let used = (percent / 100.0).ceil() as i64;
        next.num_cpus = used.min(largest.cpus(&next).unwrap_or(i64::MAX)).max(next.num_cpus);
    }
    next
}

/// Scales the larger of a request and what was observed, in bytes.
pub(super) fn scale_memory(request: i64, observed: Option<i64>, percent: i64) -> i64 {
    // 32 steps for each doubling: an amount is at most 3 % too large, and jobs with similar peaks share a resource class.
    scale(request, observed, percent, |bytes| (1_i64 << bytes.max(1).ilog2().saturating_sub(5)).max(MIB))
}

/// Scales the larger of a request and what was observed, in seconds.
pub(super) fn scale_seconds(request: i64, observed: Option<i64>, percent: i64) -> i64 {
    scale(request, observed, percent, |seconds| match seconds {
        ..60 => 1,
        60..3_600 => 10,
        _ => 60,
    })
}

/// Scales the larger of two amounts and rounds up. What follows from an observation is rounded to a step, because observations of
/// similar jobs differ a little: otherwise each of them would be a resource class of its own.
fn scale(request: i64, observed: Option<i64>, percent: i64, step: impl Fn(i64) -> i64) -> i64 {
    let observed = observed.unwrap_or(0);
    let scaled = (i128::from(request.max(observed)) * i128::from(percent) + 99) / 100;
    let scaled = i64::try_from(scaled).unwrap_or(i64::MAX);
    if observed <= request {
        return scaled;
    }
    let step = step(scaled);
    scaled.checked_add(step - 1).map_or(i64::MAX, |amount| amount / step * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::tests::{GIB, needs};

    const HOUR: i64 = 3_600;

    fn evidence(needs: &Requirements, return_code: i32, peak: Option<i64>, run_seconds: i64) -> Evidence<'_> {
        let (peak_memory_bytes, peak_cpu_percent) = (peak, None);
        Evidence { needs, cause: None, return_code, peak_memory_bytes, peak_cpu_percent, run_seconds }
    }

    fn next(evidence: Evidence<'_>, nodes: &[NodeShape]) -> Requirements {
        match escalate(&evidence, Multipliers::default(), nodes) {
            Escalated::To(next) => next,
            other => panic!("{other:?}"),
        }
    }

    fn node(cpus: i64, gib: i64, hours: i64) -> NodeShape {
        NodeShape { cpus, memory_bytes: gib * GIB, gpus: 0, max_nodes: 4, seconds: hours * HOUR }
    }

    // S20
    #[test]
    fn more_of_what_ran_out_for_this_job_alone() {
        let needs = needs(4, 8, 0, 1, 1);
        let memory = next(evidence(&needs, 137, None, 60), &[]);
        assert_eq!((memory.memory_bytes, memory.runtime_seconds, memory.num_cpus), (12 * GIB, HOUR, 4));
        assert_eq!(next(evidence(&needs, 1, Some(10 * GIB), 60), &[]).memory_bytes, 15 * GIB, "of what it used");
        assert_eq!(
            next(evidence(&needs, 137, Some(2 * GIB), 60), &[]).memory_bytes,
            12 * GIB,
            "never less than it had"
        );
        let time = next(evidence(&needs, 152, None, HOUR), &[]);
        assert_eq!((time.memory_bytes, time.runtime_seconds), (8 * GIB, HOUR * 3 / 2));
        let busy = Evidence { peak_cpu_percent: Some(730.0), ..evidence(&needs, 152, None, HOUR) };
        assert_eq!(next(busy, &[]).num_cpus, 8);
        let failed = escalate(&evidence(&needs, 1, None, 60), Multipliers::default(), &[]);
        assert_eq!(failed, Escalated::Unneeded, "nothing that could be given would help");
        let multipliers = Multipliers { memory_percent: 200, runtime_percent: 300 };
        let more = |code| match escalate(&evidence(&needs, code, None, 60), multipliers, &[]) {
            Escalated::To(more) => (more.runtime_seconds, more.memory_bytes),
            other => panic!("{other:?}"),
        };
        assert_eq!((more(152), more(137)), ((3 * HOUR, 8 * GIB), (HOUR, 16 * GIB)));
    }

    // S20
    #[test]
    fn more_time_is_more_than_the_attempt_had() {
        // Declared, observed, next.
        let cases = [
            (60, 432, 650),
            (5, 22, 33),
            (5, 4, 8),
            (60, 60, 90),
            (1, 1, 2),
            (3_600, 3_599, 5_400),
            (3_600, 5_000, 7_500),
        ];
        for (declared, ran, expected) in cases {
            let needs = Requirements { runtime_seconds: declared, ..needs(1, 1, 0, 1, 1) };
            let given = next(evidence(&needs, 152, None, ran), &[]).runtime_seconds;
            assert_eq!(given, expected, "{declared} s declared, {ran} s observed");
            assert!(given * 100 >= declared.max(ran) * 150);
        }
    }

    // S20
    #[test]
    fn more_memory_is_more_than_the_measured_peak() {
        let needs = Requirements { memory_bytes: 100 * MIB, ..needs(1, 1, 0, 1, 1) };
        let peak = 413_000_000;
        let given = next(evidence(&needs, 137, Some(peak), 60), &[]).memory_bytes;
        assert_eq!(given, 592 * MIB, "619.5 MB, rounded up");
        let similar = next(evidence(&needs, 137, Some(peak - 100_000), 60), &[]).memory_bytes;
        assert_eq!(similar, given, "jobs with similar peaks share a class");
        for peak in (1..60).map(|power| (1_i64 << power) + 12_345) {
            let given = next(evidence(&needs, 137, Some(peak), 60), &[]).memory_bytes;
            let exact = i128::from(peak.max(100 * MIB)) * 3 / 2;
            assert!(i128::from(given) >= exact && i128::from(given) <= exact * 104 / 100 + i128::from(MIB), "{peak}");
        }
    }

    #[test]
    fn no_more_is_given_than_there_is() {
        let needs = needs(4, 8, 0, 1, 1);
        let oom = |gib: i64, nodes: &[NodeShape]| {
            escalate(&evidence(&needs, 137, Some(gib * GIB), 60), Multipliers::default(), nodes)
        };
        let memory = |gib: i64| Escalated::To(Requirements { memory_bytes: gib * GIB, ..needs.clone() });
        assert_eq!(oom(8, &[node(4, 64, 1)]), memory(12), "there is enough");
        assert_eq!(oom(8, &[node(4, 10, 1), node(4, 9, 1)]), memory(10), "the largest node");
        assert_eq!(oom(30, &[node(4, 10, 1)]), memory(10), "above what the attempt had, so it is worth a try");
        let reached = |largest: i64| Escalated::Not(LimitReached::Memory { had: 8 * GIB, largest: largest * GIB });
        assert_eq!(oom(8, &[node(4, 8, 1)]), reached(8));
        assert_eq!(oom(8, &[node(4, 7, 1)]), reached(7));
        assert_eq!(oom(8, &[node(4, 8, 1), node(2, 64, 1)]), reached(8), "the large node has too few CPUs");
        assert_eq!(oom(8, &[node(2, 8, 1)]), memory(12), "it runs elsewhere, so nothing is known");
        let late =
            |ran: i64, nodes: &[NodeShape]| escalate(&evidence(&needs, 152, None, ran), Multipliers::default(), nodes);
        let time = |seconds: i64| Escalated::To(Requirements { runtime_seconds: seconds, ..needs.clone() });
        assert_eq!(late(HOUR, &[node(4, 8, 2)]), time(5_400));
        assert_eq!(late(2 * HOUR - 1, &[node(4, 8, 2)]), time(2 * HOUR));
        let reached = |had: i64, hours: i64| Escalated::Not(LimitReached::Time { had, longest: hours * HOUR });
        assert_eq!(late(2 * HOUR, &[node(4, 8, 2)]), reached(2 * HOUR, 2), "observed");
        assert_eq!(late(60, &[node(4, 8, 1), node(4, 4, 9)]), reached(HOUR, 1), "declared");
    }

    #[test]
    fn cpus_are_raised_only_where_a_node_has_them() {
        let needs = needs(4, 8, 0, 1, 1);
        let busy = Evidence { peak_cpu_percent: Some(730.0), ..evidence(&needs, 137, None, 60) };
        assert_eq!(next(busy, &[node(16, 64, 1)]).num_cpus, 8);
        assert_eq!(next(busy, &[node(6, 64, 1)]).num_cpus, 6);
        assert_eq!(next(busy, &[node(4, 64, 1), node(16, 8, 1)]).num_cpus, 4, "the node with the memory counts");
    }

    #[test]
    fn partitions_that_must_be_named_count_only_then() {
        let partition = |name: &str, seconds: i64, on_request: bool| PartitionLimits {
            name: name.to_owned(),
            cpus: 2,
            memory_bytes: 3,
            gpus: 4,
            seconds,
            nodes: Some(5),
            on_request,
            ..PartitionLimits::default()
        };
        let partitions = [partition("a", 6, false), partition("b", 7, true), partition("c", 8, false)];
        let seconds = |named: Option<&str>| -> Vec<i64> {
            NodeShape::of_partitions(&partitions, named).iter().map(|shape| shape.seconds).collect()
        };
        assert_eq!((seconds(None), seconds(Some("b")), seconds(Some("d"))), (vec![6, 8], vec![7], vec![]));
        let expected = NodeShape { cpus: 2, memory_bytes: 3, gpus: 4, max_nodes: 5, seconds: 6 };
        assert_eq!(NodeShape::of_partitions(&partitions, Some("a")), [expected]);
    }

    #[test]
    fn a_reached_limit_names_the_numbers() {
        let memory = LimitReached::Memory { had: 8 * GIB, largest: 15 * GIB / 2 };
        let expected = "it ran out of memory with 8 GiB, and the largest node that it can use has 7.5 GiB";
        assert_eq!(memory.to_string(), expected);
        let time = LimitReached::Time { had: 7_205, longest: 7_200 };
        assert_eq!(time.to_string(), "it ran out of time with 2h5s, and the longest time that it can get is 2h");
    }
}
