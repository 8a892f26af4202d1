//! The early warning of steps. `srun --signal` warns of the end of an allocation, but the limit of a step may be earlier. So the
//! runner sends the warning through Slurm, which knows the nodes of the step.
//!
//! The shim keeps all data that decides about a warning: the start, the limit, the signal, and whether it was sent. So
//! the next agent comes to the same decision.

use std::collections::BTreeSet;

use torc_api::termination::StepWarning;
use torc_api::wire::AttemptKey;

use super::jobs::{JobStage, Jobs, LeasedJob};
use super::step_state::StepState;
use super::steps::StepTracker;
use super::timer::Timer;
use super::{Effect, milliseconds};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::protocol::StepRecord;
use crate::slurm_query::SlurmQuery;

/// Steps by the moment of their warning.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    due: BTreeSet<(BootInstant, AttemptKey)>,
}

impl Warnings {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &(BootInstant, AttemptKey)> {
        self.due.iter()
    }

    /// Schedules the warning of a running step.
    pub fn watch(&mut self, key: AttemptKey, job: &LeasedJob) {
        self.due.retain(|(_, other)| *other != key);
        if job.step.is_warned {
            return;
        }
        let (Some(warning), Some(limit)) = (warning(job), job.step.limit) else { return };
        self.due.insert((job.since.plus(limit.saturating_sub(warning.before)), key));
    }

    /// Warns steps whose limit is near. The number of a step is looked up first.
    pub fn send_due(
        &mut self,
        jobs: &mut Jobs,
        tracker: &mut StepTracker,
        now: BootInstant,
        timer: &mut Timer,
        effects: &mut Vec<Effect>,
    ) {
        for (due, key) in self.due.clone() {
            if due > now {
                timer.set(due);
                return;
            }
            let Some(job) = jobs.get(&key).filter(|job| job.stage == JobStage::Running) else {
                self.due.remove(&(due, key));
                continue;
            };
            match (job.step.number, warning(job)) {
                (Some(step), Some(warning)) => {
                    self.due.remove(&(due, key));
                    effects.push(Effect::Log(RunnerEvent::Warned { key, signal: warning.signal.clone() }));
                    if let Some(step) = jobs.step_mut(&key) {
                        step.is_warned = true;
                        effects.push(step_record(key, step));
                    }
                    effects.push(Effect::QuerySlurm(SlurmQuery::Signal { step, signal: warning.signal }));
                }
                (None, Some(_)) if tracker.expect_number(key, job) => {}
                _ => {
                    self.due.remove(&(due, key));
                }
            }
        }
    }
}

/// Returns the signal of the warning, and how long before the limit it is sent.
fn warning(job: &LeasedJob) -> Option<StepWarning> {
    job.launch.template.warning.as_deref().and_then(StepWarning::parse)
}

/// Returns the effect that keeps the state of a step for the next agent.
pub(super) fn step_record(key: AttemptKey, step: &StepState) -> Effect {
    let step_limit_ms = step.limit.map(milliseconds);
    Effect::RecordStep(StepRecord { key, step_limit_ms, is_warned: step.is_warned })
}
