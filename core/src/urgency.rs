//! The order of jobs that wait: one rule for ready jobs in the engine and for leases that wait in a runner.

use std::collections::VecDeque;

use torc_api::wire::Resources;

/// Position of a job among those that could start. The greater one starts first: by priority, GPUs, remaining path, memory and CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Urgency {
    priority: i64,
    gpus: i64,
    /// Declared runtimes along the longest chain of jobs that begins with this one.
    path_seconds: i64,
    memory_bytes: i64,
    cpus: i64,
}

impl Urgency {
    /// Returns the position of a job by its priority, its requirements, and the path that follows it.
    pub fn new(priority: i64, needs: &Resources, runtime_seconds: i64, downstream_seconds: u32) -> Self {
        Self {
            priority,
            gpus: needs.gpus,
            path_seconds: runtime_seconds.saturating_add(downstream_seconds.into()),
            memory_bytes: needs.memory_bytes,
            cpus: needs.cpus,
        }
    }

    /// Returns the position on a runner that counts jobs. It ignores requirements, also for the order.
    pub fn by_count(priority: i64, downstream_seconds: u32) -> Self {
        Self::new(priority, &Resources::default(), 0, downstream_seconds)
    }

    /// Returns the job's priority, by which urgencies are compared first.
    pub fn priority(&self) -> i64 {
        self.priority
    }
}

/// Returns for each job the declared runtimes, in seconds, along the longest chain of jobs that waits for it. `parents` and `children`
/// return the neighbors of a job.
pub fn downstream_seconds<'a>(
    jobs: u32,
    parents: impl Fn(u32) -> &'a [u32],
    children: impl Fn(u32) -> &'a [u32],
    runtime_seconds: impl Fn(u32) -> i64,
) -> Vec<u32> {
    let mut downstream = vec![0_u32; jobs as usize];
    let mut open: Vec<u32> = (0..jobs).map(|job| children(job).len() as u32).collect();
    let mut last: VecDeque<u32> = (0..jobs).filter(|job| open[*job as usize] == 0).collect();
    while let Some(job) = last.pop_front() {
        let runtime = u32::try_from(runtime_seconds(job).max(0)).unwrap_or(u32::MAX);
        let path = downstream[job as usize].saturating_add(runtime);
        for parent in parents(job) {
            let parent = *parent as usize;
            downstream[parent] = downstream[parent].max(path);
            open[parent] -= 1;
            if open[parent] == 0 {
                last.push_back(parent as u32);
            }
        }
    }
    downstream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_counts_only_where_those_before_are_equal() {
        let needs = |gpus, memory_bytes, cpus| Resources { cpus, memory_bytes, gpus, nodes: 1 };
        let falling = [
            Urgency::new(1, &needs(0, 1, 1), 1, 0),
            Urgency::new(0, &needs(2, 1, 1), 1, 0),
            Urgency::new(0, &needs(1, 1, 1), 1, 9),
            Urgency::new(0, &needs(1, 1, 1), 9, 0),
            Urgency::new(0, &needs(1, 3, 1), 1, 0),
            Urgency::new(0, &needs(1, 2, 5), 1, 0),
            Urgency::new(0, &needs(1, 2, 4), 1, 0),
            Urgency::new(-1, &needs(9, 9, 9), 9, 9),
        ];
        assert!(falling.is_sorted_by(|one, next| one > next), "{falling:?}");
        assert!(Urgency::by_count(0, 2) > Urgency::by_count(0, 1) && Urgency::by_count(1, 0) > Urgency::by_count(0, 2));
    }

    #[test]
    fn a_path_is_the_longest_of_its_branches() {
        // 0 -> 1 -> 3 and 0 -> 2 -> 3; 4 waits for 5, which comes later in the document.
        let parents: [&[u32]; 6] = [&[], &[0], &[0], &[1, 2], &[5], &[]];
        let children: [&[u32]; 6] = [&[1, 2], &[3], &[3], &[], &[], &[4]];
        let runtimes = [10, 5, 2, 1, i64::MAX, 7];
        let of = |lists: [&'static [u32]; 6]| move |job: u32| lists[job as usize];
        let found = downstream_seconds(6, of(parents), of(children), |job| runtimes[job as usize]);
        assert_eq!(found, [6, 1, 1, 0, 0, u32::MAX]);
    }
}
