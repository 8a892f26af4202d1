//! The early warning of steps. `srun --signal` warns of the end of an allocation and not of a step's own, which comes before it: so
//! the warning is sent from here, through Slurm, which knows where the step is.
//!
//! Whether one is due follows from facts that the shim has: when the step started, how long it may take, how it wants to be warned,
//! and whether it was. So the next agent decides as this one would.

use std::collections::BTreeSet;

use torc_api::termination::StepWarning;
use torc_api::wire::AttemptKey;

use super::jobs::{Job, Stage};
use super::step_state::StepState;
use super::{Effect, State, milliseconds};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::protocol::StepRecord;
use crate::slurm_query::SlurmQuery;

/// When steps have to be warned.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    due: BTreeSet<(BootInstant, AttemptKey)>,
}

#[cfg(test)]
impl Warnings {
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &(BootInstant, AttemptKey)> {
        self.due.iter()
    }
}

/// How a step wants to be warned.
fn warning(job: &Job) -> Option<StepWarning> {
    job.launch.template.warning.as_deref().and_then(StepWarning::parse)
}

impl State {
    /// Remembers when a step that runs has to be warned.
    pub(super) fn watch_warning(&mut self, key: AttemptKey) {
        self.warnings.due.retain(|(_, other)| *other != key);
        let Some(job) = self.jobs.get(&key).filter(|job| !job.step.is_warned) else { return };
        let (Some(warning), Some(limit)) = (warning(job), job.step.limit) else { return };
        self.warnings.due.insert((job.since.plus(limit.saturating_sub(warning.before)), key));
    }

    /// Warns steps whose time is nearly over. One whose number is not known is looked for first.
    pub(super) fn warn_steps(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        for (due, key) in self.warnings.due.clone() {
            if due > now {
                self.wake(due);
                return;
            }
            let Some(job) = self.jobs.get(&key).filter(|job| job.stage == Stage::Running) else {
                self.warnings.due.remove(&(due, key));
                continue;
            };
            match (job.step.number, warning(job)) {
                (Some(step), Some(warning)) => {
                    self.warnings.due.remove(&(due, key));
                    effects.push(Effect::Log(RunnerEvent::Warned { key, signal: warning.signal.clone() }));
                    if let Some(step) = self.jobs.step_mut(&key) {
                        step.is_warned = true;
                        effects.push(step_record(key, step));
                    }
                    effects.push(Effect::QuerySlurm(SlurmQuery::Signal { step, signal: warning.signal }));
                }
                (None, Some(_)) if self.expect_number(key) => {}
                _ => {
                    self.warnings.due.remove(&(due, key));
                }
            }
        }
    }
}

/// What the next agent has to know of a step.
pub(super) fn step_record(key: AttemptKey, step: &StepState) -> Effect {
    let step_limit_ms = step.limit.map(milliseconds);
    Effect::RecordStep(StepRecord { key, step_limit_ms, is_warned: step.is_warned })
}
