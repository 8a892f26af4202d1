//! Health of the allocation's nodes. Slurm's daemon on a node may be dead while the machine and this runner live: steps that start
//! there fail without fault of the job. The runner quarantines such a node, tries it again, and gives it up if that fails. A
//! runner without a node leaves.

use std::collections::BTreeMap;
use std::time::Duration;

use torc_api::state::Cause;
use torc_api::wire::AttemptKey;

use super::jobs::Jobs;
use super::timer::Timer;
use super::{AgentSettings, Effect, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;

/// The quarantine of a node after each failure in a row. After one more failure the node is given up.
const QUARANTINE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(30)];

/// Nodes on which a step could not start, by their index in the allocation.
#[derive(Debug, Default)]
pub(super) struct NodeHealth {
    unhealthy: BTreeMap<usize, UnhealthyNode>,
}

/// The failures of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnhealthyNode {
    /// Number of failures in a row. Failures of steps that ran at the same time count once.
    failures: usize,
    /// The moment of the last failure. Failures of steps that had started before belong to it.
    noticed_at: BootInstant,
    /// The end of the quarantine; absent for a node that was given up.
    quarantined_until: Option<BootInstant>,
}

/// The reason why Slurm did not start a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepFailure {
    /// The daemon of the node did not start it.
    Node,
    /// Slurm's controller did not answer. This does not count against the node.
    Controller,
}

impl NodeHealth {
    /// Returns whether a node will be tried again.
    fn has_quarantined(&self) -> bool {
        self.unhealthy.values().any(|node| node.quarantined_until.is_some())
    }

    /// Returns whether the only nodes left are in quarantine.
    pub fn awaits_node(&self, jobs: &Jobs) -> bool {
        !jobs.has_node() && self.has_quarantined()
    }

    /// Returns whether no node is left on which Slurm could start a step.
    pub fn has_lost_all_nodes(&self, jobs: &Jobs) -> bool {
        !jobs.has_node() && !self.has_quarantined()
    }

    /// Counts the failure of a step that started at this moment. Nothing starts on its nodes until their quarantine is over.
    fn quarantine(
        &mut self,
        jobs: &mut Jobs,
        nodes: &[usize],
        started: BootInstant,
        failure: StepFailure,
        now: BootInstant,
    ) -> Vec<(usize, Option<Duration>)> {
        let mut quarantined = Vec::new();
        for node in nodes {
            let known = self.unhealthy.get(node).copied();
            if known.is_some_and(|known| started <= known.noticed_at) {
                continue;
            }
            let failures = known.map_or(0, |known| known.failures) + usize::from(failure == StepFailure::Node);
            let duration = QUARANTINE.get(failures.saturating_sub(1)).copied();
            let quarantined_until = duration.map(|duration| now.plus(duration));
            self.unhealthy.insert(*node, UnhealthyNode { failures, noticed_at: now, quarantined_until });
            jobs.set_in_service(*node, false);
            quarantined.push((*node, duration));
        }
        quarantined
    }

    /// Ends the quarantine of nodes on which Slurm has started this step.
    pub fn step_started(&mut self, jobs: &mut Jobs, key: &AttemptKey) {
        let Some(job) = jobs.get(key) else { return };
        let started = job.since;
        for node in job.step.nodes.clone() {
            if self.unhealthy.get(&node).is_some_and(|known| started > known.noticed_at) {
                self.unhealthy.remove(&node);
                jobs.set_in_service(node, true);
            }
        }
    }

    /// Tries nodes again whose quarantine is over.
    pub fn retry_nodes(&self, jobs: &mut Jobs, now: BootInstant, timer: &mut Timer) {
        for (node, known) in &self.unhealthy {
            match known.quarantined_until {
                Some(until) if until <= now => jobs.set_in_service(*node, true),
                Some(until) => timer.set(until),
                None => {}
            }
        }
    }
}

#[cfg(test)]
impl NodeHealth {
    pub fn is_empty(&self) -> bool {
        self.unhealthy.is_empty()
    }

    /// Returns the number of failures in a row of a node.
    pub fn failures(&self, node: usize) -> Option<usize> {
        self.unhealthy.get(&node).map(|known| known.failures)
    }
}

/// Returns the log message about a node on which nothing starts for a while, or ever.
fn quarantine_message(settings: &AgentSettings, node: usize, duration: Option<Duration>) -> String {
    let name = settings.allocation.as_ref().and_then(|allocation| allocation.nodes.get(node));
    let name = name.map_or_else(|| "of this runner".to_owned(), String::clone);
    match duration {
        Some(duration) => {
            format!("Slurm does not start steps on node {name}: starting nothing there for {} s", duration.as_secs())
        }
        None => format!("Slurm does not start steps on node {name}: no longer using the node"),
    }
}

impl State {
    /// Handles the end of a step that Slurm did not start: it is no failure of the job, and its nodes are quarantined.
    pub(super) fn step_not_started(
        &mut self,
        key: AttemptKey,
        failure: StepFailure,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(job) = self.jobs.get(&key) else { return };
        let started = job.since;
        let mut nodes = if failure == StepFailure::Node { job.step.nodes.clone() } else { Vec::new() };
        if nodes.is_empty() {
            nodes = (0..self.jobs.ledger().nodes()).collect();
        }
        if failure == StepFailure::Controller
            && let Some(finished) = self.reports.finished_mut(&key)
        {
            let error = job.step.srun_error.clone().unwrap_or_default();
            finished.cause = Some(Cause::Stopped);
            finished.message = Some(format!("Slurm did not start its step: {error}"));
        }
        for (node, duration) in self.node_health.quarantine(&mut self.jobs, &nodes, started, failure, now) {
            let message = quarantine_message(&self.settings, node, duration);
            effects.push(Effect::Log(RunnerEvent::Problem { message }));
        }
        if !self.jobs.has_node() {
            self.release(self.jobs.unstarted(), None, now, effects);
        }
    }
}
