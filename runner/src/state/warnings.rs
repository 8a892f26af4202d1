//! The early warning of steps. `srun --signal` warns of the end of an allocation and not of a step's own, which comes before it: so
//! the warning is sent from here, through Slurm, which knows where the step is.

use std::collections::BTreeSet;

use torc_api::wire::AttemptKey;
use torc_slurm::srun;

use super::job::Stage;
use super::{Effect, State};
use crate::clock::Moment;
use crate::events::RunnerEvent;
use crate::inquiry::Inquiry;

/// When steps have to be warned.
pub(super) type Warnings = BTreeSet<(Moment, AttemptKey)>;

impl State {
    /// Remembers when a step that has started has to be warned.
    pub(super) fn mind_warning(&mut self, key: AttemptKey) {
        let Some(job) = self.jobs.get(&key) else { return };
        let signal = job.kind.step.as_ref().and_then(|step| step.signal.as_deref());
        let (Some(warning), Some(limit)) = (signal.and_then(srun::warning), job.step.limit) else { return };
        self.warnings.insert((job.since.plus(limit.saturating_sub(warning.before)), key));
    }

    /// Warns steps whose time is nearly over. One whose number is not known is looked for first.
    pub(super) fn warn_steps(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        for (due, key) in self.warnings.clone() {
            if due > now {
                self.wake(due);
                return;
            }
            let Some(job) = self.jobs.get(&key).filter(|job| job.stage == Stage::Running) else {
                self.warnings.remove(&(due, key));
                continue;
            };
            let signal = job.kind.step.as_ref().and_then(|step| step.signal.as_deref()).and_then(srun::warning);
            match (job.step.number, signal) {
                (Some(step), Some(warning)) => {
                    self.warnings.remove(&(due, key));
                    effects.push(Effect::Tell(RunnerEvent::Warned { key, signal: warning.signal.clone() }));
                    effects.push(Effect::Inquire(Inquiry::Signal { step, signal: warning.signal }));
                }
                (None, Some(_)) if self.expect_number(key) => {}
                _ => {
                    self.warnings.remove(&(due, key));
                }
            }
        }
    }
}
