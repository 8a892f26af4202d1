//! Rows of jobs in a plot: each job gets the first free row, so that the number of rows is the number of jobs at once.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use super::PlottedJob;

/// The rows of one node.
#[derive(Default)]
struct LaneRows {
    free: BTreeSet<usize>,
    /// Rows in use, by the end of their job.
    busy: BinaryHeap<Reverse<(i64, usize)>>,
    count: usize,
}

/// Assigns a row to every job. Jobs are ordered by their start.
pub fn assign(jobs: &mut [PlottedJob]) {
    let mut nodes: HashMap<String, LaneRows> = HashMap::new();
    for job in jobs {
        let rows = nodes.entry(job.node.clone()).or_default();
        while let Some(Reverse((end, row))) = rows.busy.peek().copied() {
            if end > job.start {
                break;
            }
            rows.busy.pop();
            rows.free.insert(row);
        }
        job.lane = rows.free.pop_first().unwrap_or_else(|| {
            rows.count += 1;
            rows.count - 1
        });
        rows.busy.push(Reverse((job.end, job.lane)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_used_again_when_its_job_has_ended() {
        let job = |node: &str, start, end| PlottedJob { node: node.to_owned(), start, end, ..PlottedJob::default() };
        let mut jobs =
            [job("a", 0, 10), job("a", 1, 5), job("b", 2, 9), job("a", 5, 7), job("a", 6, 8), job("a", 10, 11)];
        assign(&mut jobs);
        assert_eq!(jobs.map(|job| job.lane), [0, 1, 0, 1, 2, 0]);
    }
}
