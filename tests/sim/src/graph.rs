//! Longest paths through the jobs of a workflow.

use std::time::Duration;

use crate::workload::{JobPlan, WorkflowPlan};

/// Returns for each job the longest path from its start to the end of the workflow.
pub fn remaining_paths(plan: &WorkflowPlan, duration: fn(&JobPlan) -> Duration) -> Vec<Duration> {
    let mut longest_child = vec![Duration::ZERO; plan.jobs.len()];
    let mut paths = vec![Duration::ZERO; plan.jobs.len()];
    // A job comes after all jobs that it waits for.
    for (job, entry) in plan.jobs.iter().enumerate().rev() {
        paths[job] = longest_child[job] + duration(entry);
        for parent in &entry.after {
            longest_child[*parent] = longest_child[*parent].max(paths[job]);
        }
    }
    paths
}

/// Returns for each job the jobs that wait for it.
pub fn children(plan: &WorkflowPlan) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); plan.jobs.len()];
    for (job, entry) in plan.jobs.iter().enumerate() {
        for parent in &entry.after {
            children[*parent].push(job);
        }
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_longest_of_its_branches() {
        let job = |name: &str, seconds| JobPlan::new(name, Duration::from_secs(seconds));
        let jobs = vec![job("a", 1), job("b", 5).after([0]), job("c", 2).after([0]), job("d", 1).after([1, 2])];
        let plan = WorkflowPlan::new("w", jobs);
        assert_eq!(remaining_paths(&plan, |job| job.duration), [7, 6, 3, 1].map(Duration::from_secs));
        assert_eq!(children(&plan), [vec![1, 2], vec![3], vec![3], vec![]]);
    }
}
