//! Failed attempts of the jobs of a workflow: their number, the latest ones, and the jobs that are retried because of them.

mod recovering;

use std::collections::{BTreeMap, HashMap};

use torc_api::state::{Cause, JobState};
use torc_api::status::FailureSample;

pub(in crate::engine) use recovering::Recovering;

use crate::ids::JobId;

/// Number of failures that a status shows. Enough to recognize a pattern, short enough for a custom resource.
const MAX_FAILURES_SHOWN: usize = 20;

/// Failed attempts of the current run.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Failures {
    /// By end, job and attempt: the order in a status, which a restart does not change.
    latest: BTreeMap<(i64, JobId, i32), FailureSample>,
    /// Number of failed attempts by job and cause.
    counts: HashMap<JobId, BTreeMap<Cause, i32>>,
    /// The jobs that are being retried.
    recovering: Recovering,
}

impl Failures {
    /// Restores the stored counts.
    pub fn restore(
        &mut self,
        counts: HashMap<JobId, BTreeMap<Cause, i32>>,
        state_of: impl Fn(JobId) -> Option<JobState>,
    ) {
        self.counts = counts;
        self.recompute_counts(state_of);
    }

    /// Takes over the failures of the workflow before an edit. The samples of removed jobs are dropped.
    pub fn inherit(
        &mut self,
        old: &Self,
        is_there: impl Fn(&str) -> bool,
        state_of: impl Fn(JobId) -> Option<JobState>,
    ) {
        self.latest = old.latest.clone();
        self.latest.retain(|_, sample| is_there(&sample.job));
        self.counts = old.counts.clone();
        self.recompute_counts(state_of);
    }

    fn recompute_counts(&mut self, state_of: impl Fn(JobId) -> Option<JobState>) {
        self.recovering = Recovering::default();
        for (job, failed) in &self.counts {
            if let Some(state) = state_of(*job) {
                self.recovering.update(*job, state, Some(failed));
            }
        }
    }

    /// Counts a failed attempt. Returns the number of attempts of the job that failed for this cause.
    pub fn count(&mut self, job: JobId, cause: Cause) -> i32 {
        let count = self.counts.entry(job).or_default().entry(cause).or_default();
        *count += 1;
        *count
    }

    /// Keeps a sample of a failed attempt.
    pub fn remember(&mut self, ended_ms: i64, job: JobId, sample: FailureSample) {
        self.latest.insert((ended_ms, job, sample.attempt), sample);
        // A late report may be the oldest one itself.
        if self.latest.len() > MAX_FAILURES_SHOWN {
            self.latest.pop_first();
        }
    }

    /// Drops the samples of the previous run. The counts of a job are dropped when it is reset.
    pub fn begin_run(&mut self) {
        self.latest.clear();
    }

    /// Drops the counts of a job that is reset in a new run.
    pub fn forget(&mut self, job: JobId) {
        self.counts.remove(&job);
    }

    /// Updates the retried jobs after a change of state.
    pub fn job_moved(&mut self, job: JobId, state: JobState) {
        if !self.counts.is_empty() || !self.recovering.is_empty() {
            self.recovering.update(job, state, self.counts.get(&job));
        }
    }

    pub fn latest(&self) -> impl Iterator<Item = &FailureSample> {
        self.latest.values()
    }

    pub fn recovering(&self) -> &Recovering {
        &self.recovering
    }

    /// Returns the number of failed attempts by job and cause.
    #[cfg(test)]
    pub fn counts(&self) -> impl Iterator<Item = (JobId, Cause, i32)> {
        self.counts.iter().flat_map(|(job, causes)| causes.iter().map(|(cause, count)| (*job, *cause, *count)))
    }
}
