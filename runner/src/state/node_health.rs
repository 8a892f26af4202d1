//! Whether Slurm starts steps on a node. Its daemon there may be dead while the machine and this runner live: what is started then
//! comes to nothing, and that says nothing about the job. So the node rests, is tried again, and is given up when that does not
//! help; a runner without a node leaves.

use std::collections::BTreeMap;
use std::time::Duration;

use torc_api::state::Cause;
use torc_api::wire::AttemptKey;

use super::{Effect, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;

/// How long a node rests after each failure in a row. One more, and it is given up.
const QUARANTINE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(30)];

/// Nodes on which a step could not be started, by their place in the allocation.
#[derive(Debug, Default)]
pub(super) struct NodeHealth {
    unhealthy: BTreeMap<usize, UnhealthyNode>,
}

impl NodeHealth {
    /// Returns the nodes that rest, and until when.
    fn resting(&self) -> Vec<(usize, BootInstant)> {
        self.unhealthy.iter().filter_map(|(node, trouble)| Some((*node, trouble.rests_until?))).collect()
    }

    /// Whether a node will be tried again.
    fn has_resting(&self) -> bool {
        self.unhealthy.values().any(|trouble| trouble.rests_until.is_some())
    }
}

#[cfg(test)]
impl NodeHealth {
    pub fn is_empty(&self) -> bool {
        self.unhealthy.is_empty()
    }

    /// Returns the number of failures in a row of a node.
    pub fn failures(&self, node: usize) -> Option<usize> {
        self.unhealthy.get(&node).map(|trouble| trouble.failures)
    }
}

/// What is wrong with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnhealthyNode {
    /// Failures in a row, those of one blow counted once.
    failures: usize,
    /// When the last of them was noticed: what had been started before is part of it.
    noticed: BootInstant,
    /// Nothing is started there before; for ever if absent.
    rests_until: Option<BootInstant>,
}

/// Why a step was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepFailure {
    /// Its node did not take it.
    Node,
    /// Slurm's controller did not answer. It will: that is no reason to give a node up.
    Controller,
}

impl State {
    /// What `srun` wrote about a step that failed.
    pub(super) fn srun_said(&mut self, key: AttemptKey, silence: Option<String>) {
        if let Some(step) = self.jobs.step_mut(&key) {
            step.never_asked_for = silence;
        }
    }

    /// `srun` could not ask for the step, and nobody has seen it.
    pub(super) fn was_never_asked_for(&self, key: AttemptKey) -> bool {
        let step = self.jobs.get(&key).map(|job| &job.step);
        step.is_some_and(|step| step.never_asked_for.is_some() && step.number.is_none())
    }

    /// Slurm's controller did not hear of a step: that is no failure of the job.
    pub(super) fn controller_is_away(&mut self, key: AttemptKey, now: BootInstant, effects: &mut Vec<Effect>) {
        let why = self.jobs.get(&key).and_then(|job| job.step.never_asked_for.clone()).unwrap_or_default();
        if let Some(finished) = self.reports.finished_mut(&key) {
            finished.cause = Some(Cause::Stopped);
            finished.message = Some(format!("Slurm did not start its step: {why}"));
        }
        let nodes = (0..self.jobs.ledger().nodes()).collect();
        self.rest(key, nodes, StepFailure::Controller, now, effects);
    }

    /// Slurm's daemon on a node did not start a step.
    pub(super) fn node_fails(&mut self, key: AttemptKey, now: BootInstant, effects: &mut Vec<Effect>) {
        let nodes = self.jobs.get(&key).map(|job| job.step.nodes.clone()).unwrap_or_default();
        let nodes = if nodes.is_empty() { (0..self.jobs.ledger().nodes()).collect() } else { nodes };
        self.rest(key, nodes, StepFailure::Node, now, effects);
    }

    /// Nothing is started on these nodes for a while, or ever again.
    fn rest(
        &mut self,
        key: AttemptKey,
        nodes: Vec<usize>,
        failure: StepFailure,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(started) = self.jobs.get(&key).map(|job| job.since) else { return };
        for node in nodes {
            let known = self.node_health.unhealthy.get(&node).copied();
            if known.is_some_and(|trouble| started <= trouble.noticed) {
                continue;
            }
            let before = known.map_or(0, |trouble| trouble.failures);
            let failures = if failure == StepFailure::Node { before + 1 } else { before };
            let rest = QUARANTINE.get(failures.saturating_sub(1)).copied();
            self.node_health
                .unhealthy
                .insert(node, UnhealthyNode { failures, noticed: now, rests_until: rest.map(|rest| now.plus(rest)) });
            self.jobs.set_in_service(node, false);
            let name = self.settings.allocation.as_ref().and_then(|allocation| allocation.nodes.get(node));
            let name = name.map_or("its node", String::as_str);
            let follows = rest.map_or("no more".to_owned(), |rest| format!("none for {} s", rest.as_secs()));
            let message = format!("Slurm does not start steps on {name}: it gets {follows}");
            effects.push(Effect::Log(RunnerEvent::Problem { message }));
        }
        if !self.jobs.has_node() {
            self.let_go(self.jobs.unstarted(), None, now, effects);
        }
    }

    /// Slurm has started a step: its nodes are well.
    pub(super) fn step_begun(&mut self, key: AttemptKey) {
        let Some(job) = self.jobs.get(&key) else { return };
        let started = job.since;
        for node in job.step.nodes.clone() {
            let is_newer = |trouble: &UnhealthyNode| started > trouble.noticed;
            if self.node_health.unhealthy.get(&node).is_some_and(is_newer) {
                self.node_health.unhealthy.remove(&node);
                self.jobs.set_in_service(node, true);
            }
        }
    }

    /// Nodes that have rested are tried again.
    pub(super) fn retry_nodes(&mut self, now: BootInstant) {
        for (node, until) in self.node_health.resting() {
            if until <= now {
                self.jobs.set_in_service(node, true);
            } else {
                self.wake(until);
            }
        }
    }

    /// A node rests, and will be tried again.
    pub(super) fn awaits_node(&self) -> bool {
        !self.jobs.has_node() && self.node_health.has_resting()
    }

    /// There is no node that Slurm could start anything on.
    pub(super) fn has_lost_its_nodes(&self) -> bool {
        !self.jobs.has_node() && !self.node_health.has_resting()
    }
}
