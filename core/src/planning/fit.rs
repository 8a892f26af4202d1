//! Computes how many jobs an allocation takes, and how many allocations jobs need.

use torc_api::termination::up_to_minute;

pub use super::margin::{STARTUP_SECONDS, WalltimeMargin};
use super::partition::PartitionLimits;
use crate::expanded::Requirements;

/// The rule for the walltime of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walltime {
    /// One and a half times the longest job: enough for it, and short enough to start soon.
    #[default]
    FromJobs,
    /// As long as the partition allows: fewer allocations.
    FromPartition,
}

/// The jobs that an allocation is sized for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Seconds of the longest of them.
    pub longest_seconds: i64,
    /// Seconds of those that have to run one after another because they depend on each other; at least the longest.
    pub chain_seconds: i64,
}

impl Sequence {
    /// Returns the sequence for jobs that do not depend on each other, the longest of which takes `longest_seconds`.
    pub fn of_one(longest_seconds: i64) -> Self {
        Self { longest_seconds, chain_seconds: longest_seconds }
    }
}

/// Returns the walltime to request for these jobs, in whole minutes, at most what the partition allows.
pub fn walltime(sequence: Sequence, partition: &PartitionLimits, strategy: Walltime, margin: WalltimeMargin) -> i64 {
    let most = partition.seconds.max(60);
    let wanted = match strategy {
        Walltime::FromPartition => most,
        // The extra half covers runtimes that were estimated too low. Short jobs need more than that for the margin.
        Walltime::FromJobs => up_to_minute(sequence.longest_seconds.saturating_mul(3) / 2)
            .max(margin.walltime_for(sequence.chain_seconds.max(sequence.longest_seconds))),
    };
    wanted.min(most / 60 * 60).max(60)
}

/// Returns the number of jobs that run side by side on a node, or on the nodes of one multi-node job. At least one:
/// the caller has checked that it fits.
pub fn jobs_per_allocation(needs: &Requirements, partition: &PartitionLimits) -> i64 {
    if needs.num_nodes > 1 {
        return 1;
    }
    let fit = |have: i64, need: i64| if need > 0 { have / need } else { i64::MAX };
    fit(partition.cpus, needs.num_cpus)
        .min(fit(partition.memory_bytes, needs.memory_bytes))
        .min(fit(partition.gpus, needs.num_gpus))
        .max(1)
}

/// Returns the number of jobs of a length that run one after another in a walltime. At least one: only the user can
/// have set a walltime that is too short for one job, and more allocations would not help.
pub fn jobs_per_walltime(walltime: i64, runtime: i64, margin: WalltimeMargin) -> i64 {
    (margin.usable_seconds(walltime) / runtime.max(1)).max(1)
}

/// Jobs with equal requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load<'a> {
    /// The requirements of each job.
    pub needs: &'a Requirements,
    /// The number of jobs.
    pub jobs: i64,
}

/// Returns the number of allocations of this walltime that the jobs need if all of them can start at once. An
/// allocation has as many nodes as one of its jobs. Jobs with different requirements run one after another, not side
/// by side.
pub fn allocations(loads: &[Load<'_>], partition: &PartitionLimits, walltime: i64, margin: WalltimeMargin) -> i64 {
    let usable = margin.usable_seconds(walltime);
    let mut sequential_runs: Vec<(i64, i64)> = loads
        .iter()
        .filter(|load| load.jobs > 0)
        .map(|load| {
            (load.needs.runtime_seconds.max(1), div_ceil(load.jobs, jobs_per_allocation(load.needs, partition)))
        })
        .collect();
    // Longest first: shorter jobs may fit into the rest of their allocations.
    sequential_runs.sort_unstable_by(|left, right| right.cmp(left));
    let mut open: Vec<(i64, i64)> = Vec::new();
    let mut total = 0_i64;
    for (runtime, mut count) in sequential_runs {
        count = fill(&mut open, runtime, count);
        let each = jobs_per_walltime(walltime, runtime, margin);
        let new = div_ceil(count, each);
        let full = count / each;
        total = total.saturating_add(new);
        open.push((usable - each * runtime, full));
        open.push((usable - (count - full * each) * runtime, new - full));
        open.retain(|(left, count)| *left > 0 && *count > 0);
    }
    total
}

/// Puts rounds of a length into open allocations, given as (seconds left, number of such allocations). Returns the
/// number of rounds that remain.
fn fill(open: &mut Vec<(i64, i64)>, runtime: i64, mut sequential_runs: i64) -> i64 {
    let mut filled = Vec::new();
    for (left, count) in open.iter_mut() {
        let each = *left / runtime;
        if each == 0 || sequential_runs == 0 {
            continue;
        }
        let full = (sequential_runs / each).min(*count);
        sequential_runs -= full * each;
        *count -= full;
        filled.push((*left - each * runtime, full));
        if *count > 0 && sequential_runs > 0 {
            filled.push((*left - sequential_runs * runtime, 1));
            *count -= 1;
            sequential_runs = 0;
        }
    }
    open.extend(filled);
    sequential_runs
}

pub(super) fn div_ceil(amount: i64, by: i64) -> i64 {
    amount / by + i64::from(amount % by > 0)
}

/// Returns the node hours of allocations that use their whole walltime.
pub fn node_hours(allocations: i64, nodes: i64, seconds: i64) -> f64 {
    allocations.saturating_mul(nodes) as f64 * seconds as f64 / 3_600.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use torc_api::execution::{ExecutionConfig, ExecutionMode};
    use torc_api::termination::EndMargin;

    use super::super::partition::tests::{needs, partition};
    use super::*;

    /// Five minutes in all.
    const MARGIN: WalltimeMargin = WalltimeMargin {
        startup_seconds: 200,
        end: EndMargin { headroom_seconds: 70, notice_seconds: 30, in_step: false },
    };
    const MARGIN_SECONDS: i64 = 300;

    fn of(jobs: i64, cpus: i64, hours: i64, walltime_hours: i64) -> i64 {
        let needs = needs(cpus, 1, 0, 1, hours);
        allocations(
            &[Load { needs: &needs, jobs }],
            &partition("p", 100, 1_000, 0, 100),
            walltime_hours * 3_600 + MARGIN_SECONDS,
            MARGIN,
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
        assert_eq!(jobs_per_allocation(&needs(1, 1, 1, 1, 1), &node), 4);
        assert_eq!(jobs_per_allocation(&needs(1, 1, 3, 1, 1), &node), 1);
        assert_eq!(jobs_per_allocation(&needs(1, 100, 0, 1, 1), &node), 3);
        assert_eq!(jobs_per_allocation(&needs(2, 1, 0, 4, 1), &node), 1);
        let wide = needs(2, 1, 0, 4, 1);
        assert_eq!(allocations(&[Load { needs: &wide, jobs: 6 }], &node, 2 * 3_600 + MARGIN_SECONDS, MARGIN), 3);
    }

    // R13
    #[test]
    fn short_jobs_use_what_long_ones_leave() {
        let (long, short) = (needs(100, 1, 0, 1, 4), needs(100, 1, 0, 1, 1));
        let node = partition("p", 100, 1_000, 0, 100);
        let count = |long_jobs: i64, short_jobs: i64| {
            let loads = [Load { needs: &short, jobs: short_jobs }, Load { needs: &long, jobs: long_jobs }];
            allocations(&loads, &node, 6 * 3_600 + MARGIN_SECONDS, MARGIN)
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
            (61, Walltime::FromJobs, 420),
            (600, Walltime::FromJobs, 900),
            (601, Walltime::FromJobs, 960),
            (3_601, Walltime::FromJobs, 5_460),
            (14_400, Walltime::FromJobs, 14_400),
            (60, Walltime::FromPartition, 14_400),
        ];
        for (longest, strategy, expected) in cases {
            assert_eq!(walltime(Sequence::of_one(longest), &four_hours, strategy, MARGIN), expected, "{longest}");
        }
        assert_eq!(jobs_per_walltime(5_400, 3_600, MARGIN), 1);
        assert_eq!(jobs_per_walltime(7_200, 3_600, MARGIN), 1, "no job runs in the margin");
        assert_eq!(jobs_per_walltime(7_200 + MARGIN_SECONDS, 3_600, MARGIN), 2);
        assert_eq!(jobs_per_walltime(60, 3_600, MARGIN), 1);
        assert!((node_hours(3, 2, 5_400) - 9.0).abs() < 1e-9);
    }

    fn config(mode: ExecutionMode, headroom: i64, lead: i64, warning: Option<u32>) -> ExecutionConfig {
        ExecutionConfig {
            mode: Some(mode),
            sigkill_headroom_seconds: Some(headroom),
            sigterm_lead_seconds: Some(lead),
            srun_termination_signal: warning.map(|seconds| format!("TERM@{seconds}")),
            ..ExecutionConfig::default()
        }
    }

    // X10, X11
    #[test]
    fn walltimes_include_headroom_warning_and_start_up() {
        use ExecutionMode::{Auto, Direct, Slurm};
        let day = partition("p", 1, 1, 0, 24);
        let cases = [
            ("headroom 180, warning 120", config(Slurm, 180, 30, Some(120)), 60, 10),
            ("headroom 300, warning 120", config(Auto, 300, 30, Some(120)), 60, 12),
            ("headroom 300, warning 120, 10m", config(Auto, 300, 30, Some(120)), 600, 21),
            ("direct, its own lead", config(Direct, 90, 60, Some(120)), 60, 7),
            ("the defaults of steps", ExecutionConfig::default(), 60, 6),
            ("the defaults of direct mode", config(Direct, 60, 30, None), 60, 6),
            ("a long job", ExecutionConfig::default(), 36_000, 900),
        ];
        for (why, config, runtime, minutes) in cases {
            let margin = WalltimeMargin::of(Some(&config));
            let found = walltime(Sequence::of_one(runtime), &day, Walltime::FromJobs, margin);
            assert_eq!(found, minutes * 60, "{why}");
        }
        let chain = Sequence { longest_seconds: 3_600, chain_seconds: 7_200 };
        let margin = WalltimeMargin::of(None);
        assert_eq!(walltime(chain, &day, Walltime::FromJobs, margin), margin.walltime_for(7_200));
    }

    /// Jobs one after another in an allocation that was sized for them, each as late as the one before it allows: the seconds
    /// between a job's start and its first signal, as runner and Slurm reckon them.
    fn seconds_before_signal(runtimes: &[i64], walltime: i64, config: &ExecutionConfig) -> Vec<i64> {
        let is_step = config.mode != Some(ExecutionMode::Direct);
        let headroom = config.sigkill_headroom_seconds.unwrap_or(60);
        let lead = config.sigterm_lead_seconds.unwrap_or(30);
        let warning = config.srun_termination_signal.as_deref().map_or(0, |text| text[5..].parse().expect("seconds"));
        let mut started = STARTUP_SECONDS;
        let mut found = Vec::new();
        for runtime in runtimes {
            let before_kill = walltime - started - headroom;
            found.push(if is_step { before_kill / 60 * 60 - warning } else { before_kill - lead });
            started += runtime;
        }
        found
    }

    proptest! {
        // X05, X10, X11
        #[test]
        fn jobs_have_their_declared_runtime_before_the_signal(
            mode in prop::sample::select(vec![ExecutionMode::Direct, ExecutionMode::Slurm, ExecutionMode::Auto]),
            (headroom, lead, warning) in (0_i64..1_000, 0_i64..1_000, proptest::option::of(0_u32..1_000)),
            runtimes in proptest::collection::vec(1_i64..20_000, 1..5),
        ) {
            let config = config(mode, headroom, lead, warning);
            let margin = WalltimeMargin::of(Some(&config));
            let day = partition("p", 1, 1, 0, 48);
            let longest_seconds = runtimes.iter().copied().max().unwrap_or(0);
            let chain = Sequence { longest_seconds, chain_seconds: runtimes.iter().sum() };
            let chained = walltime(chain, &day, Walltime::FromJobs, margin);
            for (seconds, runtime) in seconds_before_signal(&runtimes, chained, &config).iter().zip(&runtimes) {
                prop_assert!(seconds >= runtime, "{seconds} of {runtime} in {chained}");
            }
            // Jobs that do not depend on each other: as many as are thought to run one after another.
            let single = walltime(Sequence::of_one(longest_seconds), &day, Walltime::FromJobs, margin);
            let count = jobs_per_walltime(single, longest_seconds, margin);
            let sequential_runs = vec![longest_seconds; usize::try_from(count).unwrap_or(0)];
            for seconds in seconds_before_signal(&sequential_runs, single, &config) {
                prop_assert!(seconds >= longest_seconds, "{seconds} of {longest_seconds} in {single}");
            }
        }

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
            let count = allocations(&loads, &node, seconds, MARGIN);
            let sequential_runs = |load: &Load<'_>| div_ceil(load.jobs, jobs_per_allocation(load.needs, &node));
            let needed: i64 = loads.iter().map(|load| sequential_runs(load) * load.needs.runtime_seconds).sum();
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
