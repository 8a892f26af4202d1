//! How what was seen while a step ran and what the accounting says afterwards become one.

use torc_api::slurm::SlurmState;
use torc_api::state::Cause;
use torc_api::wire::Usage;

use crate::sacct::StepAccount;

/// The usage of a step that ran for so long: the samples of `sstat`, completed by `sacct`. A zero of `sacct` means that the
/// accounting was never told, not that nothing was used.
pub fn merge(seen: Usage, account: &StepAccount, run_seconds: f64) -> Usage {
    let peak = account.max_rss_bytes.filter(|bytes| *bytes > 0);
    let average = account
        .ave_cpu_seconds
        .filter(|seconds| *seconds > 0.0 && run_seconds > 0.0)
        .map(|seconds| seconds / run_seconds * 100.0);
    Usage {
        // Either may have missed a spike.
        peak_memory_bytes: seen.peak_memory_bytes.max(peak),
        // sacct has no average of it.
        average_memory_bytes: seen.average_memory_bytes,
        // sacct has no peak, but its average is better than nothing.
        peak_cpu_percent: seen.peak_cpu_percent.filter(|percent| *percent > 0.0).or(average).or(seen.peak_cpu_percent),
        average_cpu_percent: average.or(seen.average_cpu_percent),
    }
}

/// Why a step failed, where its state says more than its exit code: out of memory whatever the code, out of time unless it
/// ended well all the same.
pub fn cause(state: SlurmState, return_code: i32) -> Option<Cause> {
    match state {
        SlurmState::OutOfMemory => Some(Cause::OutOfMemory),
        SlurmState::Timeout | SlurmState::Deadline if return_code != 0 => Some(Cause::Timeout),
        SlurmState::NodeFailure | SlurmState::BootFailure if return_code != 0 => Some(Cause::NodeFailure),
        SlurmState::Preempted if return_code != 0 => Some(Cause::Preempted),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(max_rss_bytes: Option<i64>, ave_cpu_seconds: Option<f64>) -> StepAccount {
        StepAccount {
            name: String::new(),
            max_rss_bytes,
            max_vm_size_bytes: None,
            max_disk_read_bytes: None,
            max_disk_write_bytes: None,
            ave_cpu_seconds,
            node_list: None,
            state: SlurmState::Completed,
        }
    }

    fn usage(memory: Option<i64>, average_memory: Option<i64>, cpu: Option<f64>, average_cpu: Option<f64>) -> Usage {
        Usage {
            peak_memory_bytes: memory,
            average_memory_bytes: average_memory,
            peak_cpu_percent: cpu,
            average_cpu_percent: average_cpu,
        }
    }

    // S12
    #[test]
    fn the_larger_peak_of_memory_wins() {
        let seen = |bytes| usage(bytes, None, None, None);
        let peak = |bytes, rss| merge(seen(bytes), &account(rss, None), 10.0).peak_memory_bytes;
        assert_eq!(peak(Some(10), Some(20)), Some(20));
        assert_eq!(peak(Some(20), Some(10)), Some(20));
        assert_eq!(peak(None, Some(10)), Some(10));
        assert_eq!(peak(Some(10), None), Some(10));
    }

    // S13, S14
    #[test]
    fn cpu_on_average_is_the_accountings_and_its_peak_only_for_want_of_another() {
        let merged = merge(usage(None, None, Some(180.0), Some(20.0)), &account(None, Some(90.0)), 60.0);
        assert_eq!((merged.peak_cpu_percent, merged.average_cpu_percent), (Some(180.0), Some(150.0)));
        for none in [None, Some(0.0)] {
            let merged = merge(usage(None, None, none, None), &account(None, Some(90.0)), 60.0);
            assert_eq!((merged.peak_cpu_percent, merged.average_cpu_percent), (Some(150.0), Some(150.0)));
        }
    }

    // S15
    #[test]
    fn memory_on_average_is_never_the_accountings() {
        let full = account(Some(50), Some(1.0));
        assert_eq!(merge(usage(None, Some(7), None, None), &full, 10.0).average_memory_bytes, Some(7));
        assert_eq!(merge(Usage::default(), &full, 10.0).average_memory_bytes, None);
    }

    // S16
    #[test]
    fn zeros_of_the_accounting_do_not_count() {
        let seen = usage(Some(10), Some(5), Some(30.0), Some(20.0));
        assert_eq!(merge(seen, &account(Some(0), Some(0.0)), 10.0), seen);
        assert_eq!(merge(seen, &account(None, None), 10.0), seen);
        assert_eq!(merge(Usage::default(), &account(Some(0), Some(0.0)), 10.0), Usage::default());
        assert_eq!(merge(seen, &account(None, Some(90.0)), 0.0), seen, "nothing ran for no time");
    }

    #[test]
    fn the_state_tells_the_cause() {
        let cases = [
            (SlurmState::OutOfMemory, 137, Some(Cause::OutOfMemory)),
            (SlurmState::OutOfMemory, 1, Some(Cause::OutOfMemory)),
            (SlurmState::OutOfMemory, 0, Some(Cause::OutOfMemory)),
            (SlurmState::Timeout, 143, Some(Cause::Timeout)),
            (SlurmState::Timeout, 0, None),
            (SlurmState::NodeFailure, 143, Some(Cause::NodeFailure)),
            (SlurmState::Preempted, 143, Some(Cause::Preempted)),
            (SlurmState::Failed, 3, None),
            (SlurmState::Cancelled, 143, None),
            (SlurmState::Completed, 0, None),
            (SlurmState::Unknown, 1, None),
        ];
        for (state, code, expected) in cases {
            assert_eq!(cause(state, code), expected, "{state} {code}");
        }
    }
}
