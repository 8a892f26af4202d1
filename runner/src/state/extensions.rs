//! More time for steps. `--time` of a step that runs stays what it was when somebody gives the allocation more: so Slurm is asked to
//! let the step have it, too. What it may have follows from when it started and when the allocation ends, so nothing is remembered.

use std::collections::BTreeSet;
use std::time::Duration;

use torc_api::wire::AttemptKey;
use torc_slurm::srun;

use super::jobs::{Job, Stage};
use super::warnings::step_record;
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::slurm_query::SlurmQuery;

/// Steps that could have more time.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    steps: BTreeSet<AttemptKey>,
}

#[cfg(test)]
impl Extensions {
    pub fn keys(&self) -> Vec<AttemptKey> {
        self.steps.iter().copied().collect()
    }
}

/// How many minutes a step may have in total, if that is more than it has.
fn more_minutes(job: &Job, end: BootInstant) -> Option<u64> {
    let limit = job.step.limit.filter(|_| job.stage == Stage::Running && !job.step.is_fixed)?;
    let minutes = srun::usable_minutes(end.since(job.since), job.launch.template.headroom())?;
    (Duration::from_secs(minutes * 60) > limit).then_some(minutes)
}

impl State {
    fn extension(&self, key: AttemptKey) -> Option<u64> {
        more_minutes(self.jobs.get(&key)?, self.deadlines.end()?)
    }

    /// Remembers a step that could have more time.
    pub(super) fn watch_extension(&mut self, key: AttemptKey) {
        if self.extension(key).is_some() {
            self.extensions.steps.insert(key);
        }
    }

    /// Asks Slurm for more time. A step whose number is not known is looked for first.
    pub(super) fn extend_steps(&mut self, effects: &mut Vec<Effect>) {
        for key in self.extensions.steps.clone() {
            let number = self.jobs.get(&key).and_then(|job| job.step.number);
            match (self.extension(key), number) {
                (Some(minutes), Some(step)) => {
                    self.extensions.steps.remove(&key);
                    effects.push(Effect::QuerySlurm(SlurmQuery::Extend { key, step, minutes }));
                }
                (Some(_), None) if self.expect_number(key) => {}
                _ => {
                    self.extensions.steps.remove(&key);
                }
            }
        }
    }

    /// Slurm has given a step more time, or not. It is warned of its new end, too.
    pub(super) fn extended(
        &mut self,
        key: AttemptKey,
        minutes: u64,
        trouble: Option<String>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(step) = self.jobs.step_mut(&key) else { return };
        if let Some(message) = trouble {
            step.is_fixed = true;
            return effects.push(Effect::Log(RunnerEvent::Problem { message }));
        }
        step.limit = Some(Duration::from_secs(minutes * 60));
        step.is_warned = false;
        let record = step_record(key, step);
        effects.push(Effect::Log(RunnerEvent::Extended { key, minutes }));
        effects.push(record);
        self.watch_warning(key);
    }
}
