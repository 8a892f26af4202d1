//! Requirements that fit the observed usage: more where jobs exceeded them, less where much was never used.

use super::escalation::{NodeCapacity, NodeShape, scale_memory, scale_seconds};
use crate::expanded::Requirements;

/// The new amount in percent of what was observed.
pub const CORRECTION_PERCENT: i64 = 120;
/// Minimum saving of a reduction of memory, in bytes.
const MIN_SAVED_BYTES: i64 = 1 << 30;
/// Minimum saving of a reduction of CPUs, in percent of one CPU.
const MIN_SAVED_CPU_PERCENT: i64 = 5;
/// Minimum saving of a reduction of the runtime, in seconds.
const MIN_SAVED_SECONDS: i64 = 1_800;

/// Measurements of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ObservedJob {
    /// The attempt ended as completed.
    pub succeeded: bool,
    /// Its highest memory use in bytes.
    pub peak_memory_bytes: Option<i64>,
    /// Its highest CPU use, 100 for one core.
    pub peak_cpu_percent: Option<f64>,
    /// Seconds for which it ran.
    pub run_seconds: Option<i64>,
}

/// Returns better requirements for jobs that share these, or none if they fit. Less is asked for only when every job succeeded and
/// was observed. `nodes` are those that the jobs could get; none means that this is not known.
pub fn correct(
    needs: &Requirements,
    observed: &[ObservedJob],
    may_reduce: bool,
    nodes: &[NodeShape],
) -> Option<Requirements> {
    let memory = Peak::of(observed, |one| one.peak_memory_bytes);
    let cpu = Peak::of(observed, |one| one.peak_cpu_percent.map(|percent| percent.ceil() as i64));
    let time = Peak::of(observed, |one| one.run_seconds);
    let all_well = may_reduce && !observed.is_empty() && observed.iter().all(|one| one.succeeded);
    let largest = NodeCapacity(nodes);
    // One after another: more of one resource may leave fewer nodes that the jobs fit on.
    let mut better = needs.clone();
    better.memory_bytes = match memory.if_above(needs.memory_bytes) {
        Some(peak) => {
            let wanted = scale_memory(needs.memory_bytes, Some(peak), CORRECTION_PERCENT);
            capped(needs.memory_bytes, wanted, largest.memory_bytes(&better))
        }
        None => memory.reduced(needs.memory_bytes, MIN_SAVED_BYTES, all_well),
    };
    better.runtime_seconds = match time.if_above(needs.runtime_seconds) {
        Some(peak) => {
            let wanted = scale_seconds(needs.runtime_seconds, Some(peak), CORRECTION_PERCENT);
            capped(needs.runtime_seconds, wanted, largest.seconds(&better))
        }
        None => time.reduced(needs.runtime_seconds, MIN_SAVED_SECONDS, all_well),
    };
    let cpu_percent = needs.num_cpus.saturating_mul(100);
    better.num_cpus = match cpu.if_above(cpu_percent) {
        Some(peak) => capped(needs.num_cpus, cpus(percent_of(peak)), largest.cpus(&better)),
        None => cpus(cpu.reduced(cpu_percent, MIN_SAVED_CPU_PERCENT, all_well)),
    };
    (better != *needs).then_some(better)
}

/// Returns `wanted`, but at least `now` and at most `largest`.
fn capped(now: i64, wanted: i64, largest: Option<i64>) -> i64 {
    wanted.min(largest.unwrap_or(i64::MAX)).max(now)
}

/// Returns a percentage as whole CPUs, at least one.
fn cpus(percent: i64) -> i64 {
    (percent.saturating_add(99) / 100).max(1)
}

fn percent_of(amount: i64) -> i64 {
    i64::try_from(i128::from(amount) * i128::from(CORRECTION_PERCENT) / 100).unwrap_or(i64::MAX)
}

#[derive(Clone, Copy)]
struct Peak {
    most: Option<i64>,
    is_complete: bool,
}

impl Peak {
    fn of(observed: &[ObservedJob], value: impl Fn(&ObservedJob) -> Option<i64>) -> Self {
        // A zero means that nothing was measured.
        let known = || observed.iter().filter_map(&value).filter(|value| *value > 0);
        Self { most: known().max(), is_complete: known().count() == observed.len() }
    }

    /// Returns the peak if it exceeds an amount.
    fn if_above(self, amount: i64) -> Option<i64> {
        self.most.filter(|most| *most > amount)
    }

    /// Returns a smaller amount if all jobs were observed and it saves more than `least_saving`; otherwise `now`.
    fn reduced(self, now: i64, least_saving: i64, may_reduce: bool) -> i64 {
        let wanted = self.most.filter(|_| may_reduce && self.is_complete).map(percent_of);
        wanted.filter(|wanted| now - wanted > least_saving).map_or(now, |wanted| wanted.max(1))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::failure::tests::{GIB, needs};

    fn seen(gib: i64, cpu_percent: f64, seconds: i64) -> ObservedJob {
        ObservedJob {
            succeeded: true,
            peak_memory_bytes: Some(gib * GIB),
            peak_cpu_percent: Some(cpu_percent),
            run_seconds: Some(seconds),
        }
    }

    #[test]
    fn what_came_to_its_limit_gets_a_fifth_more_than_it_used() {
        let needs = needs(2, 10, 0, 1, 1);
        let more = correct(&needs, &[seen(5, 100.0, 60), seen(20, 350.0, 7_200)], true, &[]).unwrap();
        assert_eq!((more.memory_bytes, more.num_cpus, more.runtime_seconds), (24 * GIB, 5, 8_640));
        let failed = ObservedJob { succeeded: false, ..seen(20, 100.0, 60) };
        let only_memory = correct(&needs, &[failed], true, &[]).unwrap();
        assert_eq!((only_memory.memory_bytes, only_memory.num_cpus, only_memory.runtime_seconds), (24 * GIB, 2, 3_600));
    }

    #[test]
    fn less_only_when_it_is_worth_it_and_certain() {
        let needs = needs(8, 10, 0, 1, 4);
        let little = seen(5, 200.0, 3_600);
        let less = correct(&needs, &[little], true, &[]).unwrap();
        assert_eq!((less.memory_bytes, less.num_cpus, less.runtime_seconds), (6 * GIB, 3, 4_320));
        assert_eq!(correct(&needs, &[little], false, &[]), None, "not if it may not");
        let failed = ObservedJob { succeeded: false, ..little };
        assert_eq!(correct(&needs, &[little, failed], true, &[]), None, "not if one failed");
        let unseen = ObservedJob { succeeded: true, ..ObservedJob::default() };
        assert_eq!(correct(&needs, &[little, unseen], true, &[]), None, "not if one was not observed");
        let zero =
            ObservedJob { peak_memory_bytes: Some(0), peak_cpu_percent: Some(0.0), run_seconds: Some(0), ..little };
        assert_eq!(correct(&needs, &[little, zero], true, &[]), None, "a zero is no observation");
        assert_eq!(correct(&needs, &[], true, &[]), None);
    }

    #[test]
    fn small_savings_are_not_worth_a_change() {
        let needs = needs(8, 10, 0, 1, 4);
        // 7.5 GiB × 1.2 = 9 GiB saves 1 GiB exactly; 8 CPUs to 7.96; 4 h to 3.6 h.
        let tight = ObservedJob { peak_memory_bytes: Some(15 * GIB / 2), ..seen(0, 663.0, 10_800) };
        assert_eq!(correct(&needs, &[tight], true, &[]), None);
    }

    #[test]
    fn no_more_is_asked_for_than_there_is() {
        let needs = needs(2, 10, 0, 1, 1);
        let more = |node: NodeShape| {
            let more = correct(&needs, &[seen(20, 350.0, 7_200)], true, &[node]).unwrap();
            (more.memory_bytes / GIB, more.num_cpus, more.runtime_seconds)
        };
        assert_eq!(more(NodeShape { memory_bytes: 22 * GIB, ..NodeShape::UNLIMITED }), (22, 5, 8_640));
        assert_eq!(more(NodeShape { memory_bytes: 10 * GIB, ..NodeShape::UNLIMITED }), (10, 5, 8_640));
        assert_eq!(more(NodeShape { cpus: 4, seconds: 8_000, ..NodeShape::UNLIMITED }), (24, 4, 8_000));
    }

    #[test]
    fn a_peak_at_the_limit_is_not_above_it() {
        let needs = needs(2, 10, 0, 1, 1);
        let exact = seen(10, 200.0, 3_600);
        assert_eq!(correct(&needs, &[exact], true, &[]), None);
        let raised = |observed: ObservedJob| {
            let more = correct(&needs, &[observed], true, &[]).unwrap_or_else(|| needs.clone());
            let is_more = [more.memory_bytes > needs.memory_bytes, more.num_cpus > needs.num_cpus];
            (is_more, more.runtime_seconds > needs.runtime_seconds)
        };
        let memory = ObservedJob { peak_memory_bytes: Some(10 * GIB + 1), ..exact };
        assert_eq!(raised(memory), ([true, false], false));
        assert_eq!(raised(ObservedJob { peak_cpu_percent: Some(200.1), ..exact }), ([false, true], false));
        assert_eq!(raised(ObservedJob { run_seconds: Some(3_601), ..exact }), ([false, false], true));
    }
}
