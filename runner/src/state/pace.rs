//! How fast jobs end and how long the server takes to answer, and how much work to keep waiting because of that.

use std::time::Duration;

use torc_api::failure::Prefetch;

/// Waiting work lasts at least this long, so that a slow answer does not leave the node idle.
const HORIZON_MIN: Duration = Duration::from_millis(200);
/// Waiting work lasts at most this long: other runners may want it.
const HORIZON_MAX: Duration = Duration::from_secs(30);
/// No estimate goes below this.
const SHORTEST: Duration = Duration::from_micros(100);
/// Jobs that last longer than this are not handed to the keeper in advance: a word with the brain costs nothing beside them.
const HANDED_BELOW: Duration = Duration::from_millis(50);
/// How much work the keeper is given in advance.
const HANDED_WORK: Duration = Duration::from_millis(5);
/// The most jobs that the keeper is given in advance for each that runs.
const HANDED_MAX: u32 = 16;
/// The most that wait in one runner, unless the workflow says otherwise.
const QUEUED_MAX: u32 = 4096;

/// What was observed so far.
#[derive(Debug, Default)]
pub(super) struct Pace {
    duration: Option<Duration>,
    round_trip: Option<Duration>,
    ended: u32,
    /// How many jobs ran at once lately. What a node can run at once is known only from what it does run: four jobs with
    /// a GPU each fill a node of 64 CPUs.
    width: u32,
    /// What the workflow says about it.
    pub prefetch: Prefetch,
}

/// How much work to keep waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// So many jobs.
    pub queued: u32,
    /// More are asked for when fewer than these wait.
    pub refill_below: u32,
    /// The most in one answer.
    pub batch: u32,
}

impl Pace {
    /// Nothing was observed so far.
    pub fn new(prefetch: Prefetch) -> Self {
        Self { prefetch, ..Self::default() }
    }

    /// So many jobs run now.
    pub fn runs(&mut self, jobs: u32) {
        self.width = self.width.max(jobs);
    }

    /// A job has ended after this time. A longer job counts more: work that takes longer than expected is hoarded work.
    pub fn job_ended(&mut self, duration: Duration) {
        let duration = duration.max(SHORTEST);
        self.ended = self.ended.saturating_add(1);
        // A wide stage of the past does not count for ever.
        self.width -= self.width / 8;
        self.duration = Some(self.duration.map_or(duration, |average| {
            if duration > average { (average + duration) / 2 } else { (average * 7 + duration) / 8 }
        }));
    }

    /// The server has answered after this time.
    pub fn answered(&mut self, round_trip: Duration) {
        self.round_trip = Some(self.round_trip.map_or(round_trip, |average| (average * 7 + round_trip) / 8));
    }

    /// How many jobs the keeper gets in advance for each that runs.
    pub fn hand_ahead(&self) -> u32 {
        match self.duration {
            Some(duration) if duration < HANDED_BELOW => ratio(HANDED_WORK, duration).clamp(1, HANDED_MAX),
            _ => 0,
        }
    }

    /// How much work to keep waiting, when the youngest job has run for `youngest`. Before anything has run that is nothing:
    /// what the node can take is asked for as such.
    pub fn target(&self, youngest: Duration) -> Target {
        let slots = self.width;
        let say = |value: Option<i32>| value.map(i32::unsigned_abs);
        let horizon = match say(self.prefetch.horizon_seconds) {
            Some(seconds) => Duration::from_secs(seconds.into()),
            None => (self.round_trip.unwrap_or_default() * 2).clamp(HORIZON_MIN, HORIZON_MAX),
        };
        let automatic = match self.duration.map(|duration| duration.max(youngest)) {
            None => slots,
            Some(duration) if duration > HORIZON_MAX.max(horizon) => 0,
            // A few surprisingly short jobs at the start are no reason to take everything.
            Some(duration) => {
                let trusted = self.ended.saturating_mul(2).saturating_add(slots);
                ratio(horizon, duration).max(1).saturating_mul(slots).min(trusted)
            }
        };
        let most = say(self.prefetch.max_queued);
        let queued = match self.prefetch.enabled {
            Some(false) => 0,
            _ => most.map_or(automatic.min(QUEUED_MAX), |most| automatic.min(most)),
        };
        let refill_below = say(self.prefetch.refill_threshold).unwrap_or(queued.div_ceil(2)).min(queued);
        Target { queued, refill_below, batch: say(self.prefetch.batch_size).unwrap_or(u32::MAX).max(1) }
    }
}

/// How often `part` fits into `whole`, rounded up.
fn ratio(whole: Duration, part: Duration) -> u32 {
    u32::try_from(whole.as_micros().div_ceil(part.as_micros().max(1))).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(durations_ms: &[u64], round_trip_ms: u64, slots: u32) -> Pace {
        let mut pace = Pace::default();
        durations_ms.iter().for_each(|ms| pace.job_ended(Duration::from_millis(*ms)));
        pace.runs(slots);
        pace.answered(Duration::from_millis(round_trip_ms));
        pace
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
        let mut pace = Pace::default();
        assert_eq!(
            pace.target(Duration::ZERO).queued,
            0,
            "nothing has run: what fits is asked for, and nothing beyond"
        );
        pace.runs(4);
        assert_eq!(pace.target(Duration::ZERO).queued, 4, "four GPUs are at work");
        pace.runs(1);
        assert_eq!(pace.target(Duration::ZERO).queued, 4, "three have just ended");
        pace.runs(64);
        for _ in 0..64 {
            pace.job_ended(Duration::from_secs(5));
            pace.runs(4);
        }
        assert!(pace.target(Duration::ZERO).queued < 10, "a wide stage is over: {:?}", pace.target(Duration::ZERO));
    }

    // P05
    #[test]
    fn settings_come_first() {
        let mut pace = observed(&[1; 2_000], 1, 2);
        pace.prefetch =
            Prefetch { max_queued: Some(10), batch_size: Some(3), refill_threshold: Some(4), ..Prefetch::default() };
        assert_eq!(pace.target(Duration::ZERO), Target { queued: 10, refill_below: 4, batch: 3 });
        pace.prefetch = Prefetch { horizon_seconds: Some(1), ..Prefetch::default() };
        assert_eq!(pace.target(Duration::ZERO), Target { queued: 2_000, refill_below: 1_000, batch: u32::MAX });
        pace.prefetch = Prefetch { enabled: Some(false), ..Prefetch::default() };
        assert_eq!(pace.target(Duration::ZERO), Target { queued: 0, refill_below: 0, batch: u32::MAX });
    }

    #[test]
    fn only_short_jobs_are_handed_in_advance() {
        let cases = [(0, 16), (1, 5), (5, 1), (40, 1), (60, 0), (5_000, 0)];
        for (ms, depth) in cases {
            assert_eq!(observed(&[ms; 10], 1, 1).hand_ahead(), depth, "{ms} ms");
        }
        assert_eq!(Pace::default().hand_ahead(), 0);
    }
}
