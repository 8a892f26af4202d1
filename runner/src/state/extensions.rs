//! Extensions of running steps. When an administrator extends the allocation, `--time` of a running step does not change: the
//! runner asks Slurm to extend the step, too. The new limit follows from the start of the step and the end of the allocation.

use std::collections::BTreeSet;
use std::time::Duration;

use torc_api::wire::AttemptKey;
use torc_slurm::srun;

use super::Effect;
use super::jobs::{JobStage, Jobs, LeasedJob};
use super::steps::StepTracker;
use super::warnings::{Warnings, step_record};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::slurm_query::SlurmQuery;

/// Steps that can have more time.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    steps: BTreeSet<AttemptKey>,
}

impl Extensions {
    #[cfg(test)]
    pub fn keys(&self) -> Vec<AttemptKey> {
        self.steps.iter().copied().collect()
    }

    /// Remembers a step that can have more time.
    pub fn watch(&mut self, key: AttemptKey, job: &LeasedJob, end: Option<BootInstant>) {
        if end.and_then(|end| longer_limit(job, end)).is_some() {
            self.steps.insert(key);
        }
    }

    /// Asks Slurm for more time, step by step. The number of a step is looked up first.
    pub fn request(
        &mut self,
        jobs: &Jobs,
        tracker: &mut StepTracker,
        end: Option<BootInstant>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(end) = end else { return };
        self.steps.retain(|key| {
            let Some(job) = jobs.get(key) else { return false };
            match (longer_limit(job, end), job.step.number) {
                (Some(minutes), Some(step)) => {
                    effects.push(Effect::QuerySlurm(SlurmQuery::Extend { key: *key, step, minutes }));
                    false
                }
                (Some(_), None) => tracker.expect_number(*key, job),
                (None, _) => false,
            }
        });
    }
}

/// Returns the limit of a step in minutes, if it can be longer than it is.
fn longer_limit(job: &LeasedJob, end: BootInstant) -> Option<u64> {
    let limit = job.step.limit.filter(|_| job.stage == JobStage::Running && !job.step.is_fixed)?;
    let minutes = srun::usable_minutes(end.since(job.since), job.launch.template.headroom())?;
    (Duration::from_secs(minutes * 60) > limit).then_some(minutes)
}

/// Applies Slurm's answer: a step that was extended is warned of its new end.
pub(super) fn extended(
    jobs: &mut Jobs,
    warnings: &mut Warnings,
    key: AttemptKey,
    answer: Result<u64, String>,
    effects: &mut Vec<Effect>,
) {
    let Some(step) = jobs.step_mut(&key) else { return };
    match answer {
        Ok(minutes) => {
            step.limit = Some(Duration::from_secs(minutes * 60));
            step.is_warned = false;
            effects.push(Effect::Log(RunnerEvent::Extended { key, minutes }));
            effects.push(step_record(key, step));
            jobs.get(&key).into_iter().for_each(|job| warnings.watch(key, job));
        }
        Err(message) => {
            step.is_fixed = true;
            effects.push(Effect::Log(RunnerEvent::Problem { message }));
        }
    }
}
