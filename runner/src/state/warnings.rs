//! The early warning of steps. `srun --signal` warns of the end of an allocation and not of a step's own, which comes before it: so
//! the warning is sent from here, through Slurm, which knows where the step is.
//!
//! Whether one is due follows from facts that the shim has: when the step started, how long it may take, how it wants to be warned,
//! and whether it was. So the next agent decides as this one would.

use std::collections::BTreeSet;

use torc_api::termination::StepWarning;
use torc_api::wire::AttemptKey;

use super::ends::milliseconds;
use super::job::{Job, Stage};
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::protocol::StepRecord;
use crate::slurm_query::SlurmQuery;

/// When steps have to be warned.
pub(super) type Warnings = BTreeSet<(BootInstant, AttemptKey)>;

/// How a step wants to be warned.
fn warning(job: &Job) -> Option<StepWarning> {
    job.launch.terms().warning.as_deref().and_then(StepWarning::parse)
}

impl State {
    /// Remembers when a step that runs has to be warned.
    pub(super) fn mind_warning(&mut self, key: AttemptKey) {
        self.warnings.retain(|(_, other)| *other != key);
        let Some(job) = self.jobs.get(&key).filter(|job| !job.step.is_warned) else { return };
        let (Some(warning), Some(limit)) = (warning(job), job.step.limit) else { return };
        self.warnings.insert((job.since.plus(limit.saturating_sub(warning.before)), key));
    }

    /// Warns steps whose time is nearly over. One whose number is not known is looked for first.
    pub(super) fn warn_steps(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        for (due, key) in self.warnings.clone() {
            if due > now {
                self.wake(due);
                return;
            }
            let Some(job) = self.jobs.get_mut(&key).filter(|job| job.stage == Stage::Running) else {
                self.warnings.remove(&(due, key));
                continue;
            };
            match (job.step.number, warning(job)) {
                (Some(step), Some(warning)) => {
                    self.warnings.remove(&(due, key));
                    job.step.is_warned = true;
                    effects.push(Effect::Log(RunnerEvent::Warned { key, signal: warning.signal.clone() }));
                    effects.push(note(key, job));
                    effects.push(Effect::QuerySlurm(SlurmQuery::Signal { step, signal: warning.signal }));
                }
                (None, Some(_)) if self.expect_number(key) => {}
                _ => {
                    self.warnings.remove(&(due, key));
                }
            }
        }
    }
}

/// What the next agent has to know of a step.
pub(super) fn note(key: AttemptKey, job: &Job) -> Effect {
    let step_limit_ms = job.step.limit.map(milliseconds);
    Effect::RecordStep(StepRecord { key, step_limit_ms, is_warned: job.step.is_warned })
}
