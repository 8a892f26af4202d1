//! The phases of a runner. It exits when all workflows have settled, when it is idle, when its time is over, or when it
//! has drained without the server.

use torc_api::wire::RunnerPolicy;

use super::{Effect, State};
use crate::clock::BootInstant;
use crate::config::RunnerExit;
use crate::events::RunnerEvent;
use crate::link::LinkError;

/// The phase of a runner.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    Serving,
    /// The runner takes no new jobs. The next phase begins when it holds no job any more.
    Ending(Result<RunnerExit, LinkError>),
    /// The runner holds no job. It requests the actions that belong to a worker's end and runs them; it waits for the
    /// answer until this moment.
    Completing(RunnerExit, BootInstant),
    /// The runner delivers its last reports until this moment.
    Leaving(RunnerExit, BootInstant),
    Gone,
}

/// The phase of a runner, and the facts that decide about its end.
#[derive(Debug)]
pub(super) struct Lifecycle {
    phase: Phase,
    skip_worker_actions: bool,
    /// The moment at which the runner last held a job.
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

    /// Begins the end: the runner takes no new jobs.
    pub fn end(&mut self, exit: Result<RunnerExit, LinkError>) {
        self.phase = Phase::Ending(exit);
    }

    /// Handles the server's final refusal. Returns whether the runner can exit at once.
    pub fn fail(&mut self, error: LinkError) -> bool {
        match &mut self.phase {
            Phase::Ending(exit) => *exit = Err(error),
            Phase::Completing(..) | Phase::Leaving(..) => return true,
            Phase::Serving | Phase::Gone => {}
        }
        false
    }

    /// Enters the phase that delivers the last reports, until this moment at most.
    pub fn leave(&mut self, exit: RunnerExit, until: BootInstant) {
        self.phase = Phase::Leaving(exit, until);
    }

    /// Skips the actions that belong to a worker's end.
    pub fn skip_worker_actions(&mut self) {
        self.skip_worker_actions = true;
    }

    #[cfg(test)]
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }
}

/// Returns the log message of a runner with too little time for new jobs.
fn too_late_message(policy: &RunnerPolicy) -> String {
    format!(
        "less than {} s of the runner's time are left: it takes no new jobs (compute_node_min_time_for_new_jobs_seconds)",
        policy.min_time_for_new_jobs_seconds
    )
}

impl State {
    /// Enters the next phase when its conditions are met.
    pub(super) fn advance_phase(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if !self.jobs.is_empty() || self.node_health.awaits_node(&self.jobs) {
            self.lifecycle.busy_at = now;
        }
        if self.lifecycle.phase == Phase::Serving {
            self.exit_if_done(now, effects);
        }
        if let Phase::Ending(exit) = &self.lifecycle.phase
            && self.jobs.is_empty()
            && (self.sacct.is_settled() || *exit != Ok(RunnerExit::Deadline) || self.lifecycle.skip_worker_actions)
        {
            let until = now.plus(self.settings.shutdown_grace);
            let has_reports_to_deliver = self.session.is_registered() || !self.reports.is_empty();
            match exit.clone() {
                Ok(exit) if self.session.is_registered() && exit != RunnerExit::Dismissed => {
                    self.lifecycle.phase = Phase::Completing(exit, until);
                }
                Ok(exit) if has_reports_to_deliver => self.lifecycle.phase = Phase::Leaving(exit, until),
                exit => self.exit(exit, effects),
            }
        }
        if let Phase::Completing(exit, until) = self.lifecycle.phase {
            self.complete(exit, until, now);
        }
        if let Phase::Leaving(exit, until) = self.lifecycle.phase {
            if self.is_drained() || until <= now && !self.reports.is_empty() {
                self.exit_with_undelivered(exit, effects);
            } else if until <= now {
                self.exit(Ok(exit), effects);
            } else {
                self.wake(until);
            }
        }
    }

    /// Runs the actions that belong to a worker's end. Without the server, or after a second stop signal, they are left out.
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

    fn exit_if_done(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if self.is_drained() && !self.settings.user.persistent {
            self.exit_with_undelivered(RunnerExit::Drained, effects);
        } else if (self.allocation.is_preempted() || self.node_health.has_lost_all_nodes(&self.jobs))
            && self.jobs.is_empty()
        {
            self.begin_end(Ok(RunnerExit::Stopped), now, effects);
        } else if let Some(exit) = self.exit_reason(now, effects) {
            self.begin_end(Ok(exit), now, effects);
        }
    }

    /// Returns the reason to leave that follows from the server's last answer and the time. Without the server there is none.
    fn exit_reason(&mut self, now: BootInstant, effects: &mut Vec<Effect>) -> Option<RunnerExit> {
        let reported = self.reports.is_empty() && self.reports.returned().is_empty();
        if reported && self.jobs.is_empty() && self.session.settled().is_some() {
            self.complete_ended_accounts(now, effects);
        }
        let accounted = self.sacct.is_settled() && self.sacct.unreported().is_empty();
        let holds_nothing = self.jobs.is_empty() && reported && accounted;
        let too_late = self.deadlines.is_too_late(self.session.policy(), now);
        if too_late && self.session.has_answered() && !std::mem::replace(&mut self.lifecycle.too_late_logged, true) {
            let message = too_late_message(self.session.policy());
            effects.push(Effect::Log(RunnerEvent::Problem { message }));
        }
        if !holds_nothing || self.session.is_failing() || !self.session.has_answered() {
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
        let due = self.lifecycle.busy_at.plus(self.settings.idle_time(self.session.policy())?);
        if self.session.capacity_expected() || self.session.heard_at() < self.lifecycle.busy_at {
            return None;
        }
        if due > now {
            self.wake(due);
            return None;
        }
        Some(RunnerExit::Idle)
    }

    pub(super) fn exit(&mut self, exit: Result<RunnerExit, LinkError>, effects: &mut Vec<Effect>) {
        self.lifecycle.phase = Phase::Gone;
        let summaries = self.usage.node_summaries();
        if !summaries.is_empty() {
            effects.push(Effect::Record(summaries));
        }
        effects.push(Effect::Exit(exit));
    }
}
