//! Running jobs again: one routine for edits, retries and new runs.

use std::collections::BTreeSet;

use torc_api::state::JobState;

use super::State;
use super::record::Recorder;
use super::workflow::Workflow;
use crate::ids::{RunnerId, WorkflowId};
use crate::job::JobEvent;

impl State {
    /// These jobs run again, and so does everything that depends on them. Returns the jobs that this concerns.
    pub(super) fn reset(&mut self, id: WorkflowId, jobs: BTreeSet<u32>, recorder: &mut Recorder) -> BTreeSet<u32> {
        let Some(workflow) = self.workflows.get_mut(&id) else { return BTreeSet::new() };
        let affected = workflow.with_descendants(jobs);
        let mut taken_back = Vec::new();
        // First all of them leave the states that count as ended, so that what waits for them is counted right.
        for job in &affected {
            if let Some(runner) = workflow.withdraw(*job, recorder) {
                taken_back.push((runner, workflow.jobs[*job as usize].id));
            }
        }
        for job in &affected {
            workflow.plan(*job, recorder);
        }
        if !affected.is_empty() {
            workflow.row.completed_ms = None;
            recorder.workflow(&workflow.row);
        }
        for (runner, job) in taken_back {
            if let Some(runner) = self.runners.get_mut(&runner) {
                runner.held.remove(&job);
            }
        }
        self.news += 1;
        affected
    }
}

impl Workflow {
    /// The jobs and everything that depends on them, directly or not.
    pub(super) fn with_descendants(&self, jobs: BTreeSet<u32>) -> BTreeSet<u32> {
        let mut seen = jobs.clone();
        let mut open: Vec<u32> = jobs.into_iter().collect();
        while let Some(job) = open.pop() {
            for child in self.children(job) {
                if seen.insert(*child) {
                    open.push(*child);
                }
            }
        }
        seen
    }

    /// Puts a job where its dependencies say: ready, blocked, or cancelled because one of them has failed for good.
    pub(super) fn plan(&mut self, job: u32, recorder: &mut Recorder) {
        let doomed = self.profile(job).cancel_on_blocking_job_failure
            && self.parents(job).iter().any(|parent| {
                let state = self.jobs[*parent as usize].state;
                state.is_complete() && state != JobState::Completed
            });
        let unmet = self.count_unmet(job).max(u32::from(doomed));
        let _ = self.step(job, JobEvent::Reset { unmet }, recorder);
        if doomed && self.step(job, JobEvent::DependencyFailed, recorder).is_ok() {
            self.settle_dependents(job, recorder);
        }
    }

    /// Makes a job's present attempt one of the past. Its runner, if any, will end it: the key is no longer current.
    fn withdraw(&mut self, job: u32, recorder: &mut Recorder) -> Option<RunnerId> {
        let run = self.row.run;
        let record = &mut self.jobs[job as usize];
        let runner = record.runner;
        // A promise may have been acted upon without our knowledge, so its attempt counts as used. A job that was
        // cancelled before anybody had it keeps its attempt.
        let used = !matches!(record.state, JobState::Uninitialized | JobState::Blocked | JobState::Ready | JobState::Disabled)
            && record.epoch > 0;
        if record.run != run {
            record.run = run;
            record.attempt = 1;
            let id = record.id;
            self.failed_attempts.remove(&id);
        } else if used {
            record.attempt += 1;
        }
        let _ = self.step(job, JobEvent::Reset { unmet: 1 }, recorder);
        runner
    }
}
