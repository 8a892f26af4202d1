//! The end of the allocation, which is Slurm's to move: an administrator may put it off, and a more important job may bring it
//! nearer.

use std::time::Duration;

use super::{Effect, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::protocol::StopReason;
use crate::slurm_query::SlurmQuery;

/// The end is asked for so often in the time that is left.
const QUERIES_PER_REMAINING_TIME: u32 = 20;
/// It is not asked for more rarely.
const MAX_QUERY_INTERVAL: Duration = Duration::from_secs(600);
/// It is not asked for more often, whatever happens.
const MIN_QUERY_INTERVAL: Duration = Duration::from_secs(5);
/// Slurm counts whole seconds: a smaller difference is none.
const END_TOLERANCE: Duration = Duration::from_secs(2);
/// An end that comes nearer by more than this has a reason.
const PREEMPTION_ADVANCE: Duration = Duration::from_secs(60);

/// What is known of the allocation's end.
#[derive(Debug, Default)]
pub(super) struct AllocationWatch {
    asked: bool,
    asked_at: BootInstant,
    ask_at: Option<BootInstant>,
    /// It looks as if the nodes went to somebody else; that is asked at this moment.
    suspected_at: Option<BootInstant>,
    /// Somebody else is given the nodes.
    preempted: bool,
}

impl AllocationWatch {
    /// Slurm was asked and has not answered.
    pub fn is_asked(&self) -> bool {
        self.asked
    }
}

impl State {
    /// The allocation is being taken away.
    pub(super) fn is_preempted(&self) -> bool {
        self.allocation.preempted
    }

    /// Why jobs are ended when the runner is told to stop.
    pub(super) fn end_by_order(&self) -> StopReason {
        if self.allocation.preempted { StopReason::Preempted } else { StopReason::Stopped }
    }

    /// Why jobs are ended when time is over.
    pub(super) fn end_of_time(&self) -> StopReason {
        if self.allocation.preempted { StopReason::Preempted } else { StopReason::Timeout }
    }

    /// Asks for the end now and then, more often when it is near.
    pub(super) fn watch_allocation(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if self.settings.allocation.is_none() || self.allocation.asked {
            return;
        }
        if let Some(at) = self.allocation.suspected_at {
            if now < at {
                self.wake(at);
                return;
            }
            self.allocation.asked = true;
            self.allocation.asked_at = now;
            self.allocation.suspected_at = None;
            effects.push(Effect::QuerySlurm(SlurmQuery::Preemption));
            return;
        }
        let left = self.deadlines.end().map(|end| end.since(now));
        let pause = left.map_or(MAX_QUERY_INTERVAL, |left| {
            (left / QUERIES_PER_REMAINING_TIME)
                .clamp(self.settings.poll_interval.min(MAX_QUERY_INTERVAL), MAX_QUERY_INTERVAL)
        });
        let ask_at = *self.allocation.ask_at.get_or_insert_with(|| now.plus(pause));
        if now < ask_at {
            self.wake(ask_at);
            return;
        }
        self.allocation.asked = true;
        self.allocation.asked_at = now;
        self.allocation.ask_at = None;
        effects.push(Effect::QuerySlurm(SlurmQuery::TimeLeft));
    }

    /// A step was asked to end by somebody else. A preempted allocation's steps are told so, and its runner is not.
    pub(super) fn suspect_preemption(&mut self, now: BootInstant) {
        if !self.allocation.preempted {
            self.allocation.suspected_at = Some(now.max(self.allocation.asked_at.plus(MIN_QUERY_INTERVAL)));
        }
    }

    /// Slurm has said how much time is left.
    pub(super) fn time_told(&mut self, left: Option<Duration>, now: BootInstant, effects: &mut Vec<Effect>) {
        self.allocation.asked = false;
        let Some(left) = left else { return };
        let end = self.settings.own_end.map_or(now.plus(left), |own| own.min(now.plus(left)));
        let before = self.deadlines.end();
        let known = before.unwrap_or(end);
        if before.is_some() && known.since(end) <= END_TOLERANCE && end.since(known) <= END_TOLERANCE {
            return;
        }
        let is_later = end > known;
        if known.since(end) > PREEMPTION_ADVANCE && !self.allocation.preempted {
            self.allocation.asked = true;
            effects.push(Effect::QuerySlurm(SlurmQuery::Preemption));
        }
        self.deadlines.move_end(end, now);
        for key in self.jobs.active_keys() {
            self.watch_end_of(key);
            if is_later {
                self.watch_extension(key);
            }
        }
    }

    /// Slurm has said whether the nodes are for somebody else. Then nothing new is begun, what runs has the time that is left, and
    /// the runner leaves when it has ended.
    pub(super) fn preemption_told(&mut self, preempted: Option<bool>, now: BootInstant, effects: &mut Vec<Effect>) {
        self.allocation.asked = false;
        if preempted != Some(true) || std::mem::replace(&mut self.allocation.preempted, true) {
            return;
        }
        effects.push(Effect::Log(RunnerEvent::Preempted));
        self.let_go(self.jobs.unstarted(), None, now, effects);
    }
}
