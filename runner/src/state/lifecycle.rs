//! When a runner leaves: because everything has settled, there is nothing to do, its time is over, or all that could be done
//! without the server is done.

use std::time::Duration;

use super::{Effect, IdleExit, State};
use crate::clock::BootInstant;
use crate::config::RunnerExit;
use crate::events::RunnerEvent;
use crate::link::LinkError;

/// Where a runner stands in its life.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    Serving,
    /// No new work; it leaves when nothing is held any more.
    Ending(Result<RunnerExit, LinkError>),
    /// Nothing is held any more. What belongs to a worker's end is asked for and carried out; an answer is waited for until
    /// this moment at most.
    Completing(RunnerExit, BootInstant),
    /// The last reports are on their way, until this moment at most.
    Leaving(RunnerExit, BootInstant),
    Gone,
}

/// The phase of a runner, and what its end depends on.
#[derive(Debug)]
pub(super) struct Lifecycle {
    phase: Phase,
    skip_worker_actions: bool,
    /// When it last held a job.
    busy_at: BootInstant,
    too_late_logged: bool,
}

impl Lifecycle {
    pub fn new(now: BootInstant) -> Self {
        Self { phase: Phase::Serving, skip_worker_actions: false, busy_at: now, too_late_logged: false }
    }

    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    pub fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
    }

    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    /// Begins the end: no new work.
    pub fn end(&mut self, exit: Result<RunnerExit, LinkError>) {
        self.phase = Phase::Ending(exit);
    }

    /// The server will never accept this runner. Returns whether nothing is left to wait for.
    pub fn fail(&mut self, error: LinkError) -> bool {
        match &mut self.phase {
            Phase::Ending(exit) => *exit = Err(error),
            Phase::Completing(..) | Phase::Leaving(..) => return true,
            Phase::Serving | Phase::Gone => {}
        }
        false
    }

    /// Nothing belongs to the worker's end any more: the last reports go, until this moment at most.
    pub fn leave(&mut self, exit: RunnerExit, until: BootInstant) {
        self.phase = Phase::Leaving(exit, until);
    }

    /// Leaves out what belongs to a worker's end.
    pub fn skip_worker_actions(&mut self) {
        self.skip_worker_actions = true;
    }

    #[cfg(test)]
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }
}

impl State {
    /// Goes to the next phase of life when its conditions are met.
    pub(super) fn move_on(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if !self.jobs.is_empty() || self.awaits_node() {
            self.lifecycle.busy_at = now;
        }
        if self.lifecycle.phase == Phase::Serving {
            self.consider_leaving(now, effects);
        }
        if let Phase::Ending(exit) = &self.lifecycle.phase
            && self.jobs.is_empty()
            && (self.sacct.are_settled() || *exit != Ok(RunnerExit::Deadline) || self.lifecycle.skip_worker_actions)
        {
            let until = now.plus(self.settings.shutdown_grace);
            let has_last_words = self.session.is_registered() || !self.reports.is_empty();
            match exit.clone() {
                Ok(exit) if self.session.is_registered() && exit != RunnerExit::Dismissed => {
                    self.lifecycle.phase = Phase::Completing(exit, until);
                }
                Ok(exit) if has_last_words => self.lifecycle.phase = Phase::Leaving(exit, until),
                exit => self.exit(exit, effects),
            }
        }
        if let Phase::Completing(exit, until) = self.lifecycle.phase {
            self.complete(exit, until, now);
        }
        if let Phase::Leaving(exit, until) = self.lifecycle.phase {
            if self.is_drained() || until <= now && !self.reports.is_empty() {
                self.leave_results(exit, effects);
            } else if until <= now {
                self.exit(Ok(exit), effects);
            } else {
                self.wake(until);
            }
        }
    }

    /// What belongs to a worker's end is under way. Without the server, or in a hurry, it is left out.
    fn complete(&mut self, exit: RunnerExit, until: BootInstant, now: BootInstant) {
        let shutdown_grace = now.plus(self.settings.shutdown_grace);
        if !self.jobs.is_empty() {
            self.lifecycle.phase = Phase::Completing(exit, shutdown_grace);
        } else if until <= now {
            self.lifecycle.phase = Phase::Leaving(exit, until);
        } else if self.session.is_failing() || self.lifecycle.skip_worker_actions {
            self.lifecycle.phase = Phase::Leaving(exit, shutdown_grace);
        } else {
            self.wake(until);
        }
    }

    fn consider_leaving(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if self.is_drained() && !self.settings.persistent {
            self.leave_results(RunnerExit::Drained, effects);
        } else if (self.is_preempted() || self.has_lost_its_nodes()) && self.jobs.is_empty() {
            self.end_with(Ok(RunnerExit::Stopped), now, effects);
        } else if let Some(exit) = self.reason_to_leave(now, effects) {
            self.end_with(Ok(exit), now, effects);
        }
    }

    /// What the server's last answer and the time give reason for. Without the server there is no such reason.
    fn reason_to_leave(&mut self, now: BootInstant, effects: &mut Vec<Effect>) -> Option<RunnerExit> {
        let reported = self.reports.is_empty() && self.reports.returned().is_empty();
        if reported && self.jobs.is_empty() && self.session.settled().is_some() {
            self.settle_told_accounts(now, effects);
        }
        let accounted = self.sacct.are_settled() && self.sacct.news().is_empty();
        let holds_nothing = self.jobs.is_empty() && reported && accounted;
        let too_late = self.is_too_late(now);
        if too_late && self.session.has_heard() && !std::mem::replace(&mut self.lifecycle.too_late_logged, true) {
            effects.push(Effect::Log(RunnerEvent::Problem { message: self.too_late() }));
        }
        if !holds_nothing || self.session.is_failing() || !self.session.has_heard() {
            return None;
        }
        let stays = self.session.policy().ignore_workflow_completion;
        match self.session.settled() {
            Some(RunnerExit::Complete) if stays => {}
            Some(exit) if self.settings.exit_when_complete => return Some(exit),
            _ => {}
        }
        if too_late {
            return Some(RunnerExit::Deadline);
        }
        let due = self.lifecycle.busy_at.plus(self.idle_time()?);
        if self.session.capacity_expected() || self.session.heard_at() < self.lifecycle.busy_at {
            return None;
        }
        if due > now {
            self.wake(due);
            return None;
        }
        Some(RunnerExit::Idle)
    }

    /// How long it stays without anything to do; none for ever.
    fn idle_time(&self) -> Option<Duration> {
        match self.settings.idle_exit {
            _ if self.settings.persistent => None,
            IdleExit::Never => None,
            IdleExit::AsTold => Some(Duration::from_secs(self.session.policy().wait_for_new_jobs_seconds)),
            IdleExit::After(time) => Some(time),
        }
    }

    fn too_late(&self) -> String {
        format!(
            "less than {} s of its time are left: it takes no new jobs (compute_node_min_time_for_new_jobs_seconds)",
            self.session.policy().min_time_for_new_jobs_seconds
        )
    }

    pub(super) fn exit(&mut self, exit: Result<RunnerExit, LinkError>, effects: &mut Vec<Effect>) {
        self.lifecycle.phase = Phase::Gone;
        self.sum_up_node(effects);
        effects.push(Effect::Exit(exit));
    }
}
