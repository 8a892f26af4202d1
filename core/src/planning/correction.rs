//! Requirements that fit what was observed: more where jobs came to their limits, less where much was never used.

use crate::expanded::Requirements;

/// What was observed gets a fifth more.
const PERCENT: i64 = 120;
/// Less memory is asked for only if that saves so much.
const LEAST_MEMORY: i64 = 1 << 30;
/// Fewer CPUs are asked for only if that saves so many percent of one.
const LEAST_CPU_PERCENT: i64 = 5;
/// Less time is asked for only if that saves so much.
const LEAST_SECONDS: i64 = 1_800;

/// What was observed of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// It succeeded.
    pub succeeded: bool,
    /// The most memory at once.
    pub peak_memory_bytes: Option<i64>,
    /// The most CPU at once, 100 for one core.
    pub peak_cpu_percent: Option<f64>,
    /// How long it ran.
    pub run_seconds: Option<i64>,
}

/// Better requirements for jobs that share these, or none if they are good as they are. Less is asked for only when every job
/// succeeded and was observed.
pub fn correct(needs: &Requirements, observed: &[Observation], may_reduce: bool) -> Option<Requirements> {
    let memory = Peak::of(observed, |one| one.peak_memory_bytes);
    let cpu = Peak::of(observed, |one| one.peak_cpu_percent.map(|percent| percent.ceil() as i64));
    let time = Peak::of(observed, |one| one.run_seconds);
    let all_well = may_reduce && !observed.is_empty() && observed.iter().all(|one| one.succeeded);
    let cpu_percent = amount(needs.num_cpus.saturating_mul(100), cpu, LEAST_CPU_PERCENT, all_well);
    let better = Requirements {
        memory_bytes: amount(needs.memory_bytes, memory, LEAST_MEMORY, all_well).max(1),
        num_cpus: super::fit::divide_up(cpu_percent, 100).max(1),
        runtime_seconds: amount(needs.runtime_seconds, time, LEAST_SECONDS, all_well).max(1),
        ..needs.clone()
    };
    (better != *needs).then_some(better)
}

#[derive(Clone, Copy)]
struct Peak {
    most: Option<i64>,
    is_complete: bool,
}

impl Peak {
    fn of(observed: &[Observation], value: impl Fn(&Observation) -> Option<i64>) -> Self {
        // A zero means that nobody looked.
        let known = || observed.iter().filter_map(&value).filter(|value| *value > 0);
        Self { most: known().max(), is_complete: known().count() == observed.len() }
    }
}

fn amount(now: i64, peak: Peak, least_saving: i64, may_reduce: bool) -> i64 {
    let Some(most) = peak.most else { return now };
    let wanted = i64::try_from(i128::from(most) * i128::from(PERCENT) / 100).unwrap_or(i64::MAX);
    if most > now {
        return wanted;
    }
    let saves = now - wanted > least_saving;
    if may_reduce && peak.is_complete && saves { wanted } else { now }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::partition::tests::{GIB, needs};
    use super::*;

    fn seen(gib: i64, cpu_percent: f64, seconds: i64) -> Observation {
        Observation {
            succeeded: true,
            peak_memory_bytes: Some(gib * GIB),
            peak_cpu_percent: Some(cpu_percent),
            run_seconds: Some(seconds),
        }
    }

    #[test]
    fn what_came_to_its_limit_gets_a_fifth_more_than_it_used() {
        let needs = needs(2, 10, 0, 1, 1);
        let more = correct(&needs, &[seen(5, 100.0, 60), seen(20, 350.0, 7_200)], true).unwrap();
        assert_eq!((more.memory_bytes, more.num_cpus, more.runtime_seconds), (24 * GIB, 5, 8_640));
        let failed = Observation { succeeded: false, ..seen(20, 100.0, 60) };
        let only_memory = correct(&needs, &[failed], true).unwrap();
        assert_eq!((only_memory.memory_bytes, only_memory.num_cpus, only_memory.runtime_seconds), (24 * GIB, 2, 3_600));
    }

    #[test]
    fn less_only_when_it_is_worth_it_and_certain() {
        let needs = needs(8, 10, 0, 1, 4);
        let little = seen(5, 200.0, 3_600);
        let less = correct(&needs, &[little], true).unwrap();
        assert_eq!((less.memory_bytes, less.num_cpus, less.runtime_seconds), (6 * GIB, 3, 4_320));
        assert_eq!(correct(&needs, &[little], false), None, "not if it may not");
        let failed = Observation { succeeded: false, ..little };
        assert_eq!(correct(&needs, &[little, failed], true), None, "not if one failed");
        let unseen = Observation { succeeded: true, ..Observation::default() };
        assert_eq!(correct(&needs, &[little, unseen], true), None, "not if one was not observed");
        let zero =
            Observation { peak_memory_bytes: Some(0), peak_cpu_percent: Some(0.0), run_seconds: Some(0), ..little };
        assert_eq!(correct(&needs, &[little, zero], true), None, "a zero is no observation");
        assert_eq!(correct(&needs, &[], true), None);
    }

    #[test]
    fn small_savings_are_not_worth_a_change() {
        let needs = needs(8, 10, 0, 1, 4);
        // 7.5 GiB × 1.2 = 9 GiB saves 1 GiB exactly; 8 CPUs to 7.96; 4 h to 3.6 h.
        let tight = Observation { peak_memory_bytes: Some(15 * GIB / 2), ..seen(0, 663.0, 10_800) };
        assert_eq!(correct(&needs, &[tight], true), None);
    }
}
