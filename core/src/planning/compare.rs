//! Compares one allocation of N nodes with N allocations of one node by the time at which they are done.

/// Slurm's estimates for one large and for several small allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEstimate {
    /// The number of nodes needed.
    pub nodes: i64,
    /// The walltime of an allocation, in seconds.
    pub seconds: i64,
    /// The number of idle nodes.
    pub idle_nodes: i64,
    /// Slurm's estimate of the wait for one allocation with all nodes, in seconds; none if it would never start.
    pub wait_for_all: Option<i64>,
    /// Slurm's estimate of the wait for an allocation with one node, in seconds; none if it would never start.
    pub wait_for_one: Option<i64>,
}

/// A way to request the nodes, with its expected times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmissionOption {
    /// The number of allocations.
    pub allocations: i64,
    /// The number of nodes of each allocation.
    pub nodes: i64,
    /// Seconds until the first job can start.
    pub first_start: i64,
    /// Seconds until the last allocation has ended.
    pub done: i64,
}

/// Both ways to request the nodes, and the preferred one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueComparison {
    /// One allocation with all nodes; none if it would never start.
    pub together: Option<SubmissionOption>,
    /// An allocation for each node; none if they would never start.
    pub apart: Option<SubmissionOption>,
    /// Allocations of one node are done earlier, or as early and start no later.
    pub prefer_apart: bool,
}

/// Maximum number of waits that the estimate adds up. Further allocations count as waiting no longer than the one
/// before.
const MAX_WAITS: i64 = 10;

/// Compares both ways. Allocations of one node start as soon as a node is idle. The last of them waits a multiple of
/// the wait for the first, but never longer than one allocation with all nodes.
pub fn compare(estimate: QueueEstimate) -> QueueComparison {
    let nodes = estimate.nodes.max(1);
    let together = estimate.wait_for_all.map(|wait| SubmissionOption {
        allocations: 1,
        nodes,
        first_start: wait.max(0),
        done: wait.max(0).saturating_add(estimate.seconds),
    });
    let apart = estimate.wait_for_one.map(|wait| {
        let wait = wait.max(0);
        let waiting = (nodes - estimate.idle_nodes.max(0)).clamp(0, MAX_WAITS);
        let last = wait.saturating_mul(waiting).min(estimate.wait_for_all.map_or(i64::MAX, |wait| wait.max(0)));
        let first_start = if estimate.idle_nodes > 0 { 0 } else { wait };
        SubmissionOption {
            allocations: nodes,
            nodes: 1,
            first_start,
            done: last.max(first_start).saturating_add(estimate.seconds),
        }
    });
    let prefer_apart = match (together, apart) {
        (Some(together), Some(apart)) => (apart.done, apart.first_start) <= (together.done, together.first_start),
        (None, _) => true,
        (Some(_), None) => false,
    };
    QueueComparison { together, apart, prefer_apart }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ESTIMATE: QueueEstimate =
        QueueEstimate { nodes: 8, seconds: 3_600, idle_nodes: 0, wait_for_all: Some(7_200), wait_for_one: Some(600) };

    #[test]
    fn nodes_one_by_one_start_earlier() {
        let both = compare(ESTIMATE);
        let (together, apart) = (both.together.unwrap(), both.apart.unwrap());
        assert_eq!((together.first_start, together.done), (7_200, 10_800));
        assert_eq!((apart.allocations, apart.first_start, apart.done), (8, 600, 600 * 8 + 3_600));
        assert!(both.prefer_apart);
        let many = compare(QueueEstimate { nodes: 100, wait_for_all: Some(90_000), ..ESTIMATE });
        assert_eq!(many.apart.unwrap().done, 600 * 10 + 3_600);
    }

    #[test]
    fn one_by_one_never_waits_longer_than_for_all() {
        let both = compare(QueueEstimate { wait_for_all: Some(1_000), wait_for_one: Some(900), ..ESTIMATE });
        assert_eq!(both.apart.unwrap().done, 1_000 + 3_600);
        assert!(both.prefer_apart, "its first node is there earlier");
    }

    #[test]
    fn idle_nodes_are_there_at_once() {
        let both = compare(QueueEstimate { idle_nodes: 6, ..ESTIMATE });
        assert_eq!((both.apart.unwrap().first_start, both.apart.unwrap().done), (0, 1_200 + 3_600));
        let enough = compare(QueueEstimate { idle_nodes: 9, wait_for_all: Some(0), wait_for_one: Some(0), ..ESTIMATE });
        assert_eq!(enough.together.unwrap().done, enough.apart.unwrap().done);
    }

    #[test]
    fn what_never_starts_is_not_taken() {
        let wide = compare(QueueEstimate { wait_for_all: None, ..ESTIMATE });
        assert!(wide.together.is_none() && wide.prefer_apart);
        let only = compare(QueueEstimate { wait_for_one: None, ..ESTIMATE });
        assert!(only.apart.is_none() && !only.prefer_apart);
    }
}
