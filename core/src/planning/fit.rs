//! How many jobs an allocation takes, and how many allocations jobs need.

use super::partition::Partition;
use crate::expanded::Requirements;

/// Time of an allocation in which no job runs: the runner starts, and at the end it leaves some for killing and accounting.
pub const MARGIN_SECONDS: i64 = 300;

/// How long an allocation is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walltime {
    /// One and a half times the longest job: enough for it, and short enough to start soon.
    #[default]
    FromJobs,
    /// As long as the partition allows: fewer allocations.
    FromPartition,
}

/// How long an allocation for jobs of this length is asked for, in whole minutes.
pub fn walltime(longest_job: i64, partition: &Partition, strategy: Walltime) -> i64 {
    let most = partition.seconds.max(60);
    let wanted = match strategy {
        Walltime::FromPartition => most,
        // Of a short job's time and a half, too little would be left for the job.
        Walltime::FromJobs => (longest_job.saturating_mul(3) / 2).max(longest_job.saturating_add(MARGIN_SECONDS)),
    };
    let minutes = wanted.saturating_add(59) / 60;
    minutes.saturating_mul(60).min(most / 60 * 60).max(60)
}

/// How many jobs run side by side on a node, or on the nodes of a job that needs several. At least one: whoever asks has seen that
/// it fits.
pub fn side_by_side(needs: &Requirements, partition: &Partition) -> i64 {
    if needs.num_nodes > 1 {
        return 1;
    }
    let fit = |have: i64, need: i64| if need > 0 { have / need } else { i64::MAX };
    fit(partition.cpus, needs.num_cpus)
        .min(fit(partition.memory_bytes, needs.memory_bytes))
        .min(fit(partition.gpus, needs.num_gpus))
        .max(1)
}

/// How many jobs of a length run one after another. At least one: the last minutes of an allocation are the job's if it needs them.
pub fn one_after_another(seconds: i64, runtime: i64) -> i64 {
    ((seconds - MARGIN_SECONDS) / runtime.max(1)).max(1)
}

/// Jobs that need the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load<'a> {
    /// What each needs.
    pub needs: &'a Requirements,
    /// How many there are.
    pub jobs: i64,
}

/// How many allocations of so many seconds these jobs need, if all could start at once. An allocation has as many nodes as one job
/// of it; jobs of different kinds are not put side by side, but one after another.
pub fn allocations(loads: &[Load<'_>], partition: &Partition, seconds: i64) -> i64 {
    let usable = seconds - MARGIN_SECONDS;
    let mut rounds: Vec<(i64, i64)> = loads
        .iter()
        .filter(|load| load.jobs > 0)
        .map(|load| (load.needs.runtime_seconds.max(1), divide_up(load.jobs, side_by_side(load.needs, partition))))
        .collect();
    // The longest first: what is left of their allocations may do for the shorter ones.
    rounds.sort_unstable_by(|left, right| right.cmp(left));
    let mut open: Vec<(i64, i64)> = Vec::new();
    let mut total = 0_i64;
    for (runtime, mut count) in rounds {
        count = fill(&mut open, runtime, count);
        let each = one_after_another(seconds, runtime);
        let new = divide_up(count, each);
        let full = count / each;
        total = total.saturating_add(new);
        open.push((usable - each * runtime, full));
        open.push((usable - (count - full * each) * runtime, new - full));
        open.retain(|(left, count)| *left > 0 && *count > 0);
    }
    total
}

/// Puts rounds of a length into what is left of open allocations (seconds left, how many such); says how many rounds remain.
fn fill(open: &mut Vec<(i64, i64)>, runtime: i64, mut rounds: i64) -> i64 {
    let mut filled = Vec::new();
    for (left, count) in open.iter_mut() {
        let each = *left / runtime;
        if each == 0 || rounds == 0 {
            continue;
        }
        let full = (rounds / each).min(*count);
        rounds -= full * each;
        *count -= full;
        filled.push((*left - each * runtime, full));
        if *count > 0 && rounds > 0 {
            filled.push((*left - rounds * runtime, 1));
            *count -= 1;
            rounds = 0;
        }
    }
    open.extend(filled);
    rounds
}

pub(super) fn divide_up(amount: i64, by: i64) -> i64 {
    amount / by + i64::from(amount % by > 0)
}

/// What allocations cost if they last as long as they may.
pub fn node_hours(allocations: i64, nodes: i64, seconds: i64) -> f64 {
    allocations.saturating_mul(nodes) as f64 * seconds as f64 / 3_600.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::partition::tests::{needs, partition};
    use super::*;

    fn of(jobs: i64, cpus: i64, hours: i64, walltime_hours: i64) -> i64 {
        let needs = needs(cpus, 1, 0, 1, hours);
        allocations(
            &[Load { needs: &needs, jobs }],
            &partition("p", 100, 1_000, 0, 100),
            walltime_hours * 3_600 + MARGIN_SECONDS,
        )
    }

    // R13
    #[test]
    fn the_number_follows_from_jobs_and_what_fits_a_node() {
        let cases = [
            (of(0, 1, 1, 1), 0),
            (of(1, 1, 1, 1), 1),
            (of(100, 1, 1, 1), 1),
            (of(101, 1, 1, 1), 2),
            (of(100, 60, 1, 1), 100),
            (of(100, 50, 1, 1), 50),
            (of(100, 50, 1, 5), 10),
            (of(101, 50, 1, 5), 11),
            (of(10, 1, 7, 5), 1),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }

    // R13
    #[test]
    fn gpus_and_memory_count_and_several_nodes_are_owned_whole() {
        let node = partition("p", 128, 350, 4, 48);
        assert_eq!(side_by_side(&needs(1, 1, 1, 1, 1), &node), 4);
        assert_eq!(side_by_side(&needs(1, 1, 3, 1, 1), &node), 1);
        assert_eq!(side_by_side(&needs(1, 100, 0, 1, 1), &node), 3);
        assert_eq!(side_by_side(&needs(2, 1, 0, 4, 1), &node), 1);
        let wide = needs(2, 1, 0, 4, 1);
        assert_eq!(allocations(&[Load { needs: &wide, jobs: 6 }], &node, 2 * 3_600 + MARGIN_SECONDS), 3);
    }

    // R13
    #[test]
    fn short_jobs_use_what_long_ones_leave() {
        let (long, short) = (needs(100, 1, 0, 1, 4), needs(100, 1, 0, 1, 1));
        let node = partition("p", 100, 1_000, 0, 100);
        let count = |long_jobs: i64, short_jobs: i64| {
            let loads = [Load { needs: &short, jobs: short_jobs }, Load { needs: &long, jobs: long_jobs }];
            allocations(&loads, &node, 6 * 3_600 + MARGIN_SECONDS)
        };
        assert_eq!(count(3, 0), 3);
        assert_eq!(count(3, 6), 3, "two hours are left of each");
        assert_eq!(count(3, 7), 4);
        assert_eq!(count(3, 12), 4);
        assert_eq!(count(3, 13), 5);
    }

    // R13
    #[test]
    fn time_limits() {
        let four_hours = partition("p", 1, 1, 0, 4);
        let cases = [
            (3_600, Walltime::FromJobs, 5_400),
            (60, Walltime::FromJobs, 360),
            (3_601, Walltime::FromJobs, 5_460),
            (14_400, Walltime::FromJobs, 14_400),
            (60, Walltime::FromPartition, 14_400),
        ];
        for (longest, strategy, expected) in cases {
            assert_eq!(walltime(longest, &four_hours, strategy), expected, "{longest}");
        }
        assert_eq!(one_after_another(5_400, 3_600), 1);
        assert_eq!(one_after_another(7_200, 3_600), 1, "no job runs in the margin");
        assert_eq!(one_after_another(7_200 + MARGIN_SECONDS, 3_600), 2);
        assert_eq!(one_after_another(60, 3_600), 1);
        assert!((node_hours(3, 2, 5_400) - 9.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn there_is_enough_room_and_not_much_more(
            kinds in proptest::collection::vec((1_i64..5_000, 1_i64..40, 1_i64..20), 1..5),
            hours in 20_i64..200,
        ) {
            let node = partition("p", 40, 1_000, 0, 200);
            let kinds: Vec<(Requirements, i64)> =
                kinds.into_iter().map(|(jobs, cpus, hours)| (needs(cpus, 1, 0, 1, hours), jobs)).collect();
            let loads: Vec<Load<'_>> = kinds.iter().map(|(needs, jobs)| Load { needs, jobs: *jobs }).collect();
            let seconds = hours * 3_600 + MARGIN_SECONDS;
            let count = allocations(&loads, &node, seconds);
            let rounds = |load: &Load<'_>| divide_up(load.jobs, side_by_side(load.needs, &node));
            let needed: i64 = loads.iter().map(|load| rounds(load) * load.needs.runtime_seconds).sum();
            prop_assert!(count * hours * 3_600 >= needed, "too few: {count}");
            // Apart from the last of each kind, more than half of every allocation is used.
            prop_assert!(count <= 2 * needed / (hours * 3_600) + loads.len() as i64 + 1, "too many: {count}");
        }

        #[test]
        fn more_jobs_never_need_fewer(jobs in 1_i64..10_000, more in 0_i64..1_000, cpus in 1_i64..100, hours in 1_i64..10) {
            prop_assert!(of(jobs, cpus, hours, 12) <= of(jobs + more, cpus, hours, 12));
        }
    }
}
