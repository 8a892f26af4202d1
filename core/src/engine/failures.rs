//! Failed attempts of a workflow's jobs: how many there were, the latest ones, and which jobs are tried again because of them.

mod recovering;

use std::collections::{BTreeMap, HashMap};

use torc_api::state::{Cause, JobState};
use torc_api::status::FailureSample;

pub(super) use recovering::Recovering;

use crate::ids::JobId;

/// Number of failures that a status shows.
const FAILURES_SHOWN: usize = 20;

/// Failed attempts of the present run.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    /// By end, job and attempt: the order in which they are shown, also after a restart.
    latest: BTreeMap<(i64, JobId, i32), FailureSample>,
    /// How many attempts of a job ended with a cause; only jobs that failed are in here.
    counts: HashMap<JobId, BTreeMap<Cause, i32>>,
    /// Those of them that are being tried again.
    recovering: Recovering,
}

impl Failures {
    /// Takes over the counts that a store knows.
    pub fn restore(
        &mut self,
        counts: HashMap<JobId, BTreeMap<Cause, i32>>,
        state_of: impl Fn(JobId) -> Option<JobState>,
    ) {
        self.counts = counts;
        self.recount(state_of);
    }

    /// Takes over the failures of the workflow as it was before an edit; those of jobs that are gone are not shown any more.
    pub fn inherit(
        &mut self,
        old: &Self,
        is_there: impl Fn(&str) -> bool,
        state_of: impl Fn(JobId) -> Option<JobState>,
    ) {
        self.latest = old.latest.clone();
        self.latest.retain(|_, sample| is_there(&sample.job));
        self.counts = old.counts.clone();
        self.recount(state_of);
    }

    fn recount(&mut self, state_of: impl Fn(JobId) -> Option<JobState>) {
        self.recovering = Recovering::default();
        for (job, failed) in &self.counts {
            if let Some(state) = state_of(*job) {
                self.recovering.update(*job, state, Some(failed));
            }
        }
    }

    /// Counts a failed attempt and returns how many of its cause there are of the job.
    pub fn count(&mut self, job: JobId, cause: Cause) -> i32 {
        let count = self.counts.entry(job).or_default().entry(cause).or_default();
        *count += 1;
        *count
    }

    /// Keeps a sample of a failed attempt that ended at a time.
    pub fn remember(&mut self, ended_ms: i64, job: JobId, sample: FailureSample) {
        self.latest.insert((ended_ms, job, sample.attempt), sample);
        // A late report may be older than everything that is shown.
        if self.latest.len() > FAILURES_SHOWN {
            self.latest.pop_first();
        }
    }

    /// A new run begins: the samples are history. The counts of a job go when it runs again.
    pub fn begin_run(&mut self) {
        self.latest.clear();
    }

    /// A job runs in a new run.
    pub fn forget(&mut self, job: JobId) {
        self.counts.remove(&job);
    }

    /// A job has moved, or is known to have failed: it may be tried again now.
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

    /// Returns the counts by job and cause.
    #[cfg(test)]
    pub fn counts(&self) -> impl Iterator<Item = (JobId, Cause, i32)> {
        self.counts.iter().flat_map(|(job, causes)| causes.iter().map(|(cause, count)| (*job, *cause, *count)))
    }
}
