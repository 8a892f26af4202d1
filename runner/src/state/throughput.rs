//! Estimates the job rate and the server's response time, and derives how much work to keep queued.

use std::time::Duration;

use torc_api::failure::Prefetch;

/// Queued work lasts at least this long, so that a slow answer does not leave the node idle.
const MIN_HORIZON: Duration = Duration::from_millis(200);
/// Queued work lasts at most this long, because other runners may be able to run it.
const MAX_HORIZON: Duration = Duration::from_secs(30);
/// Lower bound of the estimated job duration, so that the queue stays bounded.
const MIN_DURATION: Duration = Duration::from_micros(100);
/// Longer jobs are not handed to the shim in advance, because the agent's latency is short compared to them.
const MAX_HANDED_DURATION: Duration = Duration::from_millis(50);
/// Work that the shim gets in advance: longer than the agent needs for its next turn.
const PREFETCHED_WORK: Duration = Duration::from_millis(5);
/// Limit of jobs that the shim gets in advance for each running job: more would delay a cancellation.
const MAX_HANDED_JOBS: u32 = 16;
/// Limit of queued jobs in one runner, unless the workflow sets one: other runners may join.
const MAX_QUEUED_JOBS: u32 = 4096;

/// Averages of job durations and response times, and the number of jobs that ran at once.
#[derive(Debug, Default)]
pub(super) struct ThroughputEstimator {
    duration: Option<Duration>,
    round_trip: Option<Duration>,
    ended: u32,
    /// Number of jobs that ran at once recently. Only this shows how many jobs fill the node: four jobs with a GPU each may fill a
    /// node of 64 CPUs.
    width: u32,
    /// Settings of the runner and the workflow.
    pub prefetch: Prefetch,
}

/// The amount of work to keep queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueTarget {
    /// Number of queued jobs.
    pub queued: u32,
    /// The runner asks for more when fewer jobs wait.
    pub refill_below: u32,
    /// Limit of jobs in one answer.
    pub batch: u32,
}

impl ThroughputEstimator {
    /// Creates an estimator without observations.
    pub fn new(prefetch: Prefetch) -> Self {
        Self { prefetch, ..Self::default() }
    }

    /// Records the number of running jobs.
    pub fn jobs_running(&mut self, jobs: u32) {
        self.width = self.width.max(jobs);
    }

    /// Records the duration of a job. Longer jobs count more, because work that takes longer than expected is withheld from others.
    pub fn job_ended(&mut self, duration: Duration) {
        let duration = duration.max(MIN_DURATION);
        self.ended = self.ended.saturating_add(1);
        // The count decays, so that a wide stage of the past is forgotten.
        self.width -= self.width / 8;
        self.duration = Some(self.duration.map_or(duration, |average| {
            if duration > average { (average + duration) / 2 } else { (average * 7 + duration) / 8 }
        }));
    }

    /// Records the server's response time.
    pub fn answered(&mut self, round_trip: Duration) {
        self.round_trip = Some(self.round_trip.map_or(round_trip, |average| (average * 7 + round_trip) / 8));
    }

    /// Returns the expected time between the ends of two jobs.
    pub fn interval(&self) -> Option<Duration> {
        self.duration.map(|duration| duration / self.width.max(1))
    }

    /// Returns whether jobs end at least once per `interval`: then the answers to reports bring news as soon as a long
    /// poll would.
    pub fn ends_within(&self, interval: Duration) -> bool {
        self.interval().is_some_and(|between| between <= interval)
    }

    /// Returns how many jobs the shim gets in advance for each running job.
    pub fn prefetch_to_shim(&self) -> u32 {
        match self.duration {
            Some(duration) if duration < MAX_HANDED_DURATION => {
                ratio(PREFETCHED_WORK, duration).clamp(1, MAX_HANDED_JOBS)
            }
            _ => 0,
        }
    }

    /// Returns how much work to keep queued, when the youngest job has run for `youngest`. Before any job has run this is nothing: the
    /// runner asks for what fits its free capacity.
    pub fn target(&self, youngest: Duration) -> QueueTarget {
        let slots = self.width;
        let setting = |value: Option<i32>| value.map(i32::unsigned_abs);
        let horizon = match setting(self.prefetch.horizon_seconds) {
            Some(seconds) => Duration::from_secs(seconds.into()),
            None => (self.round_trip.unwrap_or_default() * 2).clamp(MIN_HORIZON, MAX_HORIZON),
        };
        let automatic = match self.duration.map(|duration| duration.max(youngest)) {
            None => slots,
            Some(duration) if duration > MAX_HORIZON.max(horizon) => 0,
            // A few very short jobs at the start do not prove that all jobs are short.
            Some(duration) => {
                let trusted = self.ended.saturating_mul(2).saturating_add(slots);
                ratio(horizon, duration).max(1).saturating_mul(slots).min(trusted)
            }
        };
        let most = setting(self.prefetch.max_queued);
        let queued = match self.prefetch.enabled {
            Some(false) => 0,
            _ => most.map_or(automatic.min(MAX_QUEUED_JOBS), |most| automatic.min(most)),
        };
        let refill_below = setting(self.prefetch.refill_threshold).unwrap_or(queued.div_ceil(2)).min(queued);
        QueueTarget { queued, refill_below, batch: setting(self.prefetch.batch_size).unwrap_or(u32::MAX).max(1) }
    }

    /// Returns how many queued jobs bridge a round trip: the number that is expected to end before the answer arrives,
    /// plus three standard deviations. The server grants only so many jobs ahead if their resources differ. Where jobs
    /// end in quick succession, the latency is at least the report interval, because a message for each job would be
    /// too many. If the workflow sets a horizon or a refill threshold, this is the whole target.
    pub fn bridge(&self, target: &QueueTarget, report_interval: Duration) -> u32 {
        if self.prefetch.horizon_seconds.is_some() || self.prefetch.refill_threshold.is_some() {
            return target.queued;
        }
        let Some(interval) = self.interval() else { return 0 };
        let round_trips = self.round_trip.unwrap_or_default() * 2;
        let latency = if interval <= report_interval / 2 { round_trips.max(report_interval) } else { round_trips };
        let expected = latency.as_secs_f64() / interval.max(Duration::from_micros(1)).as_secs_f64();
        ((expected + 3.0 * expected.sqrt()).round() as u32).min(target.queued)
    }
}

/// Returns how often `part` fits into `whole`, rounded up.
fn ratio(whole: Duration, part: Duration) -> u32 {
    u32::try_from(whole.as_micros().div_ceil(part.as_micros().max(1))).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(durations_ms: &[u64], round_trip_ms: u64, slots: u32) -> ThroughputEstimator {
        let mut throughput = ThroughputEstimator::default();
        durations_ms.iter().for_each(|ms| throughput.job_ended(Duration::from_millis(*ms)));
        throughput.jobs_running(slots);
        throughput.answered(Duration::from_millis(round_trip_ms));
        throughput
    }

    // P04, P06
    #[test]
    fn enough_work_for_the_horizon() {
        let many = |ms: u64| vec![ms; 2_000];
        let cases: [(&[u64], u64, u32, u32, &str); 9] = [
            (&[], 1, 4, 4, "nothing is known: one for each slot"),
            (&many(1), 1, 2, 400, "200 ms of work for two slots"),
            (&many(1), 500, 2, 2_000, "a slow server needs twice its round trip"),
            (&many(0), 1, 2, 4_000, "no job is shorter than 100 µs"),
            (&many(5_000), 1, 4, 4, "5 s jobs: the next one for each GPU"),
            (&many(5_000), 4_000, 4, 8, "5 s jobs, a very slow server"),
            (&many(60_000), 1, 4, 0, "long jobs do not wait in a runner"),
            (&[1], 1, 2, 4, "one short job is no proof"),
            (&[1, 1, 1, 8_000], 1, 2, 2, "a long one counts at once"),
        ];
        for (durations, round_trip, slots, queued, why) in cases {
            assert_eq!(observed(durations, round_trip, slots).target(Duration::ZERO).queued, queued, "{why}");
        }
        assert_eq!(observed(&many(1), 1, 2).target(Duration::from_secs(40)).queued, 0, "what runs now is long");
    }

    // P06
    #[test]
    fn as_much_as_runs_at_once() {
        let mut throughput = ThroughputEstimator::default();
        assert_eq!(
            throughput.target(Duration::ZERO).queued,
            0,
            "nothing has run: what fits is asked for, and nothing beyond"
        );
        throughput.jobs_running(4);
        assert_eq!(throughput.target(Duration::ZERO).queued, 4, "four GPUs are at work");
        throughput.jobs_running(1);
        assert_eq!(throughput.target(Duration::ZERO).queued, 4, "three have just ended");
        throughput.jobs_running(64);
        for _ in 0..64 {
            throughput.job_ended(Duration::from_secs(5));
            throughput.jobs_running(4);
        }
        assert!(
            throughput.target(Duration::ZERO).queued < 10,
            "a wide stage is over: {:?}",
            throughput.target(Duration::ZERO)
        );
    }

    // P05
    #[test]
    fn settings_come_first() {
        let mut throughput = observed(&[1; 2_000], 1, 2);
        throughput.prefetch =
            Prefetch { max_queued: Some(10), batch_size: Some(3), refill_threshold: Some(4), ..Prefetch::default() };
        assert_eq!(throughput.target(Duration::ZERO), QueueTarget { queued: 10, refill_below: 4, batch: 3 });
        throughput.prefetch = Prefetch { horizon_seconds: Some(1), ..Prefetch::default() };
        assert_eq!(
            throughput.target(Duration::ZERO),
            QueueTarget { queued: 2_000, refill_below: 1_000, batch: u32::MAX }
        );
        throughput.prefetch = Prefetch { enabled: Some(false), ..Prefetch::default() };
        assert_eq!(throughput.target(Duration::ZERO), QueueTarget { queued: 0, refill_below: 0, batch: u32::MAX });
    }

    /// Returns an estimator with enough observations of one duration.
    fn steady(duration: Duration, round_trip: Duration, slots: u32) -> ThroughputEstimator {
        let mut throughput = ThroughputEstimator::default();
        (0..5_000).for_each(|_| throughput.job_ended(duration));
        throughput.jobs_running(slots);
        throughput.answered(round_trip);
        throughput
    }

    // P04. Half of the queue, rounded up: a runner with one queued job asks when it has started.
    #[test]
    fn more_is_asked_for_at_half_of_the_queue_rounded_up() {
        for (slots, refill_below) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (7, 4), (64, 32)] {
            let target = steady(Duration::from_secs(1), Duration::ZERO, slots).target(Duration::ZERO);
            assert_eq!((target.queued, target.refill_below), (slots, refill_below), "{slots} at once");
        }
    }

    // P04, P05. A threshold is never above the queue limit.
    #[test]
    fn a_threshold_that_is_set_counts_up_to_the_queue() {
        for (threshold, expected) in [(0, 0), (1, 1), (9, 9), (10, 10), (11, 10), (500, 10)] {
            let mut throughput = steady(Duration::from_millis(1), Duration::ZERO, 2);
            let prefetch = Prefetch { max_queued: Some(10), refill_threshold: Some(threshold), ..Prefetch::default() };
            throughput.prefetch = prefetch;
            assert_eq!(throughput.target(Duration::ZERO).refill_below, expected, "{threshold}");
        }
    }

    // P06. Twice the round trip, at least 200 ms, at most 30 s.
    #[test]
    fn the_horizon_follows_the_round_trip_within_bounds() {
        let ms = Duration::from_millis;
        let cases = [
            (ms(10), ms(0), 20, "200 ms at least"),
            (ms(10), ms(99), 20, "200 ms at least"),
            (ms(10), ms(100), 20, "twice the round trip"),
            (ms(10), ms(101), 21, "twice the round trip, rounded up to whole jobs"),
            (ms(1_000), ms(15_000), 30, "twice the round trip"),
            (ms(1_000), ms(16_000), 30, "30 s at most"),
            (ms(201), ms(0), 1, "one job at least"),
            (ms(30_000), ms(0), 1, "a job of 30 s waits"),
            (ms(30_001), ms(0), 0, "a longer one does not"),
        ];
        for (duration, round_trip, queued, why) in cases {
            let target = steady(duration, round_trip, 1).target(Duration::ZERO);
            assert_eq!(target.queued, queued, "{duration:?}, {round_trip:?}: {why}");
        }
        let mut long = steady(ms(40_000), ms(0), 1);
        long.prefetch = Prefetch { horizon_seconds: Some(60), ..Prefetch::default() };
        assert_eq!(long.target(Duration::ZERO).queued, 2, "what is set counts beyond 30 s, too");
        assert_eq!(long.target(Duration::from_secs(61)).queued, 0, "but not beyond itself");
    }

    // P05. The queue limit, unless the workflow sets one.
    #[test]
    fn a_queue_has_an_end() {
        let ms = Duration::from_millis;
        for (max_queued, expected) in [(None, 4_096), (Some(4_097), 4_097), (Some(7), 7), (Some(0), 0)] {
            let mut throughput = steady(ms(1), ms(0), 1);
            throughput.prefetch = Prefetch { max_queued, horizon_seconds: Some(5), ..Prefetch::default() };
            assert_eq!(throughput.target(Duration::ZERO).queued, expected, "{max_queued:?}");
        }
    }

    // P06. Each short job at the start is trusted for two more, and each slot for one.
    #[test]
    fn trust_grows_with_the_jobs_that_ended() {
        for (ended, queued) in [(1, 5), (2, 7), (10, 23), (98, 199), (99, 201), (100, 201)] {
            let mut throughput = ThroughputEstimator::default();
            (0..ended).for_each(|_| throughput.job_ended(Duration::from_millis(3)));
            throughput.jobs_running(3);
            assert_eq!(
                throughput.target(Duration::ZERO).queued,
                queued,
                "{ended} have ended, 67 for each slot are enough"
            );
        }
    }

    // A longer job counts for half, a shorter one for an eighth; a round trip counts for an eighth.
    #[test]
    fn averages_follow_longer_jobs_quickly() {
        let ms = Duration::from_millis;
        let mut throughput = ThroughputEstimator::default();
        let mut after = |duration| {
            throughput.job_ended(ms(duration));
            throughput.duration
        };
        assert_eq!(after(800), Some(ms(800)), "the first");
        assert_eq!(after(1_600), Some(ms(1_200)), "longer: half");
        assert_eq!(after(400), Some(ms(1_100)), "shorter: an eighth");
        assert_eq!(after(1_100), Some(ms(1_100)), "the same");
        let mut throughput = ThroughputEstimator::default();
        let mut after = |round_trip| {
            throughput.answered(ms(round_trip));
            throughput.round_trip
        };
        assert_eq!((after(80), after(160), after(10)), (Some(ms(80)), Some(ms(90)), Some(ms(80))));
    }

    // P06. The number of jobs at once decays by an eighth with every job that ends.
    #[test]
    fn the_width_shrinks_by_an_eighth_with_every_end() {
        let mut throughput = ThroughputEstimator::default();
        throughput.jobs_running(64);
        let widths: Vec<u32> = (0..4)
            .map(|_| {
                throughput.job_ended(Duration::from_secs(1));
                throughput.width
            })
            .collect();
        assert_eq!(widths, [56, 49, 43, 38]);
        throughput.jobs_running(40);
        assert_eq!(throughput.width, 40);
    }

    // P04, P06
    #[test]
    fn a_bridge_covers_two_round_trips_or_frequent_reports() {
        let (ms, report_interval) = (Duration::from_millis, Duration::from_millis(100));
        let cases = [
            (ms(2_000), ms(1), 8, 0, "0.008 ends are expected"),
            (ms(2_000), ms(10), 8, 1, "0.08 ends"),
            (ms(2_000), ms(200), 8, 5, "1.6 ends"),
            (ms(408), ms(1), 8, 1, "51 ms between ends: 0.04 ends"),
            (ms(400), ms(1), 8, 6, "50 ms between ends: two of them within 100 ms"),
            (ms(400), ms(100), 8, 10, "a round trip is longer than that"),
            (ms(2_000), ms(30_000), 8, 8, "never more than should wait"),
        ];
        for (duration, round_trip, slots, expected, why) in cases {
            let throughput = steady(duration, round_trip, slots);
            let target =
                QueueTarget { queued: if expected == 8 { 8 } else { 1_000 }, ..throughput.target(Duration::ZERO) };
            assert_eq!(throughput.bridge(&target, report_interval), expected, "{why}");
        }
        assert_eq!(
            ThroughputEstimator::default()
                .bridge(&ThroughputEstimator::default().target(Duration::ZERO), report_interval),
            0
        );
    }

    // P05
    #[test]
    fn a_queue_that_is_set_counts_for_jobs_that_differ() {
        let mut throughput = steady(Duration::from_secs(2), Duration::ZERO, 4);
        let target = throughput.target(Duration::ZERO);
        assert_eq!(throughput.bridge(&target, Duration::from_millis(100)), 0);
        for prefetch in [
            Prefetch { horizon_seconds: Some(1), ..Prefetch::default() },
            Prefetch { refill_threshold: Some(1), ..Prefetch::default() },
        ] {
            throughput.prefetch = prefetch;
            assert_eq!(throughput.bridge(&target, Duration::from_millis(100)), 4);
        }
    }

    // P03. The limit is fifty milliseconds.
    #[test]
    fn how_far_ahead_the_shim_is_given_jobs() {
        let us = Duration::from_micros;
        let cases = [(49_999, 1), (50_000, 0), (5_000, 1), (4_999, 2), (2_500, 2), (1_000, 5), (312, 16), (100, 16)];
        for (duration, depth) in cases {
            assert_eq!(steady(us(duration), us(0), 1).prefetch_to_shim(), depth, "{duration} µs");
        }
    }

    #[test]
    fn only_short_jobs_are_handed_in_advance() {
        let cases = [(0, 16), (1, 5), (5, 1), (40, 1), (60, 0), (5_000, 0)];
        for (ms, depth) in cases {
            assert_eq!(observed(&[ms; 10], 1, 1).prefetch_to_shim(), depth, "{ms} ms");
        }
        assert_eq!(ThroughputEstimator::default().prefetch_to_shim(), 0);
    }
}
