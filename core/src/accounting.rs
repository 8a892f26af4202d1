//! Combines the samples of a running step with Slurm's accounting of it.

use torc_api::slurm_stats::SlurmStats;
use torc_api::wire::Usage;

/// Returns the usage of an attempt that ran for `run_ms`: its samples, completed by the accounting. A zero in the
/// accounting means that the value was not recorded.
pub fn complete(seen: Usage, stats: &SlurmStats, run_ms: i64) -> Usage {
    let peak = stats.max_rss_bytes.filter(|bytes| *bytes > 0);
    let average = stats
        .ave_cpu_seconds
        .filter(|seconds| *seconds > 0.0 && run_ms > 0)
        .map(|seconds| seconds * 100_000.0 / run_ms as f64);
    Usage {
        // Either may have missed a spike.
        peak_memory_bytes: seen.peak_memory_bytes.max(peak),
        // The accounting has no average of it.
        average_memory_bytes: seen.average_memory_bytes,
        // The accounting has no peak, but its average is better than nothing.
        peak_cpu_percent: seen.peak_cpu_percent.filter(|percent| *percent > 0.0).or(average).or(seen.peak_cpu_percent),
        average_cpu_percent: average.or(seen.average_cpu_percent),
        ..seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(max_rss_bytes: Option<i64>, ave_cpu_seconds: Option<f64>) -> SlurmStats {
        SlurmStats { max_rss_bytes, ave_cpu_seconds, ..SlurmStats::default() }
    }

    fn usage(memory: Option<i64>, average_memory: Option<i64>, cpu: Option<f64>, average_cpu: Option<f64>) -> Usage {
        Usage {
            peak_memory_bytes: memory,
            average_memory_bytes: average_memory,
            peak_cpu_percent: cpu,
            average_cpu_percent: average_cpu,
            ..Usage::default()
        }
    }

    // S12
    #[test]
    fn the_larger_peak_of_memory_wins() {
        let seen = |bytes| usage(bytes, None, None, None);
        let peak = |bytes, rss| complete(seen(bytes), &stats(rss, None), 10_000).peak_memory_bytes;
        assert_eq!(peak(Some(10), Some(20)), Some(20));
        assert_eq!(peak(Some(20), Some(10)), Some(20));
        assert_eq!(peak(None, Some(10)), Some(10));
        assert_eq!(peak(Some(10), None), Some(10));
    }

    // S13, S14
    #[test]
    fn average_cpu_is_slurms_and_peak_only_without_samples() {
        let merged = complete(usage(None, None, Some(180.0), Some(20.0)), &stats(None, Some(90.0)), 60_000);
        assert_eq!((merged.peak_cpu_percent, merged.average_cpu_percent), (Some(180.0), Some(150.0)));
        let unknown = complete(usage(None, None, Some(180.0), Some(20.0)), &stats(None, None), 60_000);
        assert_eq!((unknown.peak_cpu_percent, unknown.average_cpu_percent), (Some(180.0), Some(20.0)));
        for none in [None, Some(0.0)] {
            let merged = complete(usage(None, None, none, None), &stats(None, Some(90.0)), 60_000);
            assert_eq!((merged.peak_cpu_percent, merged.average_cpu_percent), (Some(150.0), Some(150.0)));
        }
    }

    // S15
    #[test]
    fn memory_on_average_is_never_the_accountings() {
        let full = stats(Some(50), Some(1.0));
        assert_eq!(complete(usage(None, Some(7), None, None), &full, 10_000).average_memory_bytes, Some(7));
        assert_eq!(complete(Usage::default(), &full, 10_000).average_memory_bytes, None);
    }

    // S16
    #[test]
    fn zeros_of_the_accounting_do_not_count() {
        let seen = usage(Some(10), Some(5), Some(30.0), Some(20.0));
        assert_eq!(complete(seen, &stats(Some(0), Some(0.0)), 10_000), seen);
        assert_eq!(complete(seen, &stats(None, None), 10_000), seen);
        assert_eq!(complete(Usage::default(), &stats(Some(0), Some(0.0)), 10_000), Usage::default());
        assert_eq!(complete(seen, &stats(None, Some(90.0)), 0), seen, "nothing ran for no time");
    }
}
