//! The end of the Slurm allocation, which can move: an administrator may extend the allocation, and preemption may shorten it.

use std::time::Duration;

use super::timer::Timer;
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::protocol::StopReason;
use crate::slurm_query::SlurmQuery;

/// Number of queries for the end within the remaining time, so that queries become more frequent near the end.
const QUERIES_PER_REMAINING_TIME: u32 = 20;
/// Upper bound of the query interval: an extension is noticed within ten minutes.
const MAX_QUERY_INTERVAL: Duration = Duration::from_secs(600);
/// Minimum interval between two queries about preemption, to spare Slurm's controller.
const MIN_QUERY_INTERVAL: Duration = Duration::from_secs(5);
/// Differences below this do not move the end: Slurm counts whole seconds.
const END_TOLERANCE: Duration = Duration::from_secs(2);
/// An end that becomes earlier by more than this may be due to preemption.
const PREEMPTION_ADVANCE: Duration = Duration::from_secs(60);

/// The preemption of the allocation, and the schedule of queries about its end.
#[derive(Debug, Default)]
pub(super) struct AllocationWatch {
    /// True if a query is in flight.
    is_query_sent: bool,
    queried_at: BootInstant,
    ask_at: Option<BootInstant>,
    /// The moment of the next query about preemption, if there is a sign of it.
    suspected_at: Option<BootInstant>,
    preempted: bool,
}

impl AllocationWatch {
    /// Returns whether a query is in flight.
    pub fn is_query_in_flight(&self) -> bool {
        self.is_query_sent
    }

    /// Returns whether Slurm has preempted the allocation.
    pub fn is_preempted(&self) -> bool {
        self.preempted
    }

    /// Returns the reason for ending jobs when the runner stops.
    pub fn stop_reason(&self) -> StopReason {
        if self.preempted { StopReason::Preempted } else { StopReason::Stopped }
    }

    /// Returns the reason for ending jobs when the runner's time is over.
    pub fn timeout_reason(&self) -> StopReason {
        if self.preempted { StopReason::Preempted } else { StopReason::Timeout }
    }

    /// Schedules a query about preemption, because Slurm ended a step. Slurm signals the steps of a preempted allocation, but not
    /// the runner.
    pub fn suspect_preemption(&mut self, now: BootInstant) {
        if !self.preempted {
            self.suspected_at = Some(now.max(self.queried_at.plus(MIN_QUERY_INTERVAL)));
        }
    }

    /// Returns the query that is due, if none is in flight.
    pub fn next_query(
        &mut self,
        end: Option<BootInstant>,
        poll_interval: Duration,
        now: BootInstant,
        timer: &mut Timer,
    ) -> Option<SlurmQuery> {
        if self.is_query_sent {
            return None;
        }
        let due = self.suspected_at.unwrap_or_else(|| {
            let interval = end.map_or(MAX_QUERY_INTERVAL, |end| {
                let least = poll_interval.min(MAX_QUERY_INTERVAL);
                (end.since(now) / QUERIES_PER_REMAINING_TIME).clamp(least, MAX_QUERY_INTERVAL)
            });
            *self.ask_at.get_or_insert_with(|| now.plus(interval))
        });
        if now < due {
            timer.set(due);
            return None;
        }
        self.is_query_sent = true;
        self.queried_at = now;
        if self.suspected_at.take().is_some() {
            return Some(SlurmQuery::Preemption);
        }
        self.ask_at = None;
        Some(SlurmQuery::TimeLeft)
    }
}

impl State {
    /// Moves the end of the runner's time to the end of the allocation that Slurm reports.
    pub(super) fn time_left_answered(&mut self, left: Option<Duration>, now: BootInstant, effects: &mut Vec<Effect>) {
        self.allocation.is_query_sent = false;
        let Some(left) = left else { return };
        let end = self.settings.own_end.map_or(now.plus(left), |own| own.min(now.plus(left)));
        let before = self.deadlines.end();
        let known = before.unwrap_or(end);
        if before.is_some() && known.since(end) <= END_TOLERANCE && end.since(known) <= END_TOLERANCE {
            return;
        }
        let is_later = end > known;
        if known.since(end) > PREEMPTION_ADVANCE && !self.allocation.preempted {
            self.allocation.is_query_sent = true;
            effects.push(Effect::QuerySlurm(SlurmQuery::Preemption));
        }
        self.deadlines.reschedule_end(end, now);
        for (key, job) in self.jobs.active() {
            self.deadlines.watch_end(key, job);
            if is_later {
                self.extensions.watch(key, job, Some(end));
            }
        }
    }

    /// Handles Slurm's answer about preemption. A preempted runner starts nothing, leaves running jobs the remaining time, and exits
    /// when they have ended.
    pub(super) fn preemption_answered(&mut self, preempted: Option<bool>, now: BootInstant, effects: &mut Vec<Effect>) {
        self.allocation.is_query_sent = false;
        if preempted != Some(true) || std::mem::replace(&mut self.allocation.preempted, true) {
            return;
        }
        effects.push(Effect::Log(RunnerEvent::Preempted));
        self.release(self.jobs.unstarted(), None, now, effects);
    }
}
