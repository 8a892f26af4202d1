//! What people ask for when jobs have failed: to recover, to decide about those that wait for them, to correct requirements.

use std::collections::{BTreeSet, HashMap};

use torc_api::recovery::{
    CorrectResourcesReport, Correction, FailureClass, RecoverReport, RecoveredJob, RecoveryDecision,
};
use torc_api::state::{Cause, JobState};

use super::record::Recorder;
use super::workflow::Workflow;
use super::{Refusal, State};
use crate::expanded::Requirements;
use crate::explain::raised;
use crate::ids::{JobId, Now, ProfileId, WorkflowId};
use crate::job::{Ending, JobEvent};
use crate::planning::correction::{Observation, correct};
use crate::planning::diagnosis::Evidence;
use crate::planning::recovery::{Decision, Options, decide};
use crate::rows::{ProfileRow, ResultRow};

/// The latest result of each job that has one.
pub type LatestResults = HashMap<JobId, ResultRow>;

/// A failed job and what is done about it.
struct Judged {
    job: u32,
    report: RecoveredJob,
    requirements: Option<Requirements>,
}

impl State {
    /// What a recovery would do. Changes nothing.
    pub fn recover_preview(
        &self,
        id: WorkflowId,
        latest: &LatestResults,
        options: Options,
    ) -> Result<RecoverReport, Refusal> {
        let workflow = self.workflow(id)?;
        workflow.check_that_nothing_runs()?;
        let judged = workflow.judge_failed(latest, options);
        let again = workflow.with_descendants(retried(&judged));
        let jobs = judged.into_iter().map(|one| one.report).collect();
        Ok(RecoverReport { dry_run: true, jobs, again: again.len() as i64 })
    }

    /// Tries failed jobs again, each with more of what it lacked; no other job's requirements change.
    pub fn recover(
        &mut self,
        id: WorkflowId,
        latest: &LatestResults,
        options: Options,
        recorder: &mut Recorder,
        now: Now,
    ) -> Result<RecoverReport, Refusal> {
        let mut last_profile = self.last.profile;
        let workflow = self.workflow_mut(id)?;
        workflow.check_that_nothing_runs()?;
        let judged = workflow.judge_failed(latest, options);
        let again = retried(&judged);
        let mut made = HashMap::new();
        for one in &judged {
            if let Some(requirements) = &one.requirements {
                workflow.require(one.job, requirements, (&mut made, &mut last_profile), recorder);
            }
        }
        self.last.profile = last_profile;
        let count = again.len();
        let affected = if again.is_empty() { 0 } else { self.reset(id, again, recorder).len() };
        if affected > 0 {
            self.session.workflows.insert(id);
            let message = format!("{count} failed jobs are tried again, {affected} jobs in all");
            recorder.event(now, Some(id), super::status::RECOVERY_STARTED, message);
        }
        let jobs = judged.into_iter().map(|one| one.report).collect();
        Ok(RecoverReport { dry_run: false, jobs, again: affected as i64 })
    }

    /// A person decides about failed jobs that wait for that. Returns how many jobs that concerns.
    pub fn classify(
        &mut self,
        id: WorkflowId,
        references: &[String],
        class: FailureClass,
        recorder: &mut Recorder,
        now: Now,
    ) -> Result<i64, Refusal> {
        let workflow = self.workflow_mut(id)?;
        let jobs = workflow.waiting_for_decision(references)?;
        let count = jobs.len() as i64;
        match class {
            FailureClass::Retry => {
                self.reset(id, jobs, recorder);
                self.session.workflows.insert(id);
            }
            FailureClass::Fail => {
                for job in jobs {
                    // The state was checked, so this is always legal.
                    if workflow.step(job, JobEvent::Ended(Ending::Failed), recorder).is_ok() {
                        workflow.settle_dependents(job, recorder);
                    }
                }
                self.news += 1;
            }
        }
        let word = if class == FailureClass::Retry { "tried again" } else { "failed" };
        recorder.event(now, Some(id), "FailuresDecided", format!("{count} jobs are {word}: a person said so"));
        Ok(count)
    }

    /// Requirements that do not fit what was observed of the jobs that have them. Changes nothing.
    pub fn correction_preview(
        &self,
        id: WorkflowId,
        references: &[String],
        (latest, may_reduce): (&LatestResults, bool),
    ) -> Result<CorrectResourcesReport, Refusal> {
        let found = self.workflow(id)?.misfits(references, latest, may_reduce)?;
        Ok(CorrectResourcesReport { dry_run: true, corrections: found.iter().map(Misfit::report).collect() })
    }

    /// Corrects them, for the next attempt of each of these jobs.
    pub fn correct_resources(
        &mut self,
        id: WorkflowId,
        references: &[String],
        (latest, may_reduce): (&LatestResults, bool),
        recorder: &mut Recorder,
        now: Now,
    ) -> Result<CorrectResourcesReport, Refusal> {
        let mut last_profile = self.last.profile;
        let workflow = self.workflow_mut(id)?;
        let found = workflow.misfits(references, latest, may_reduce)?;
        let mut made = HashMap::new();
        for misfit in &found {
            for job in &misfit.jobs {
                workflow.require(*job, &misfit.better, (&mut made, &mut last_profile), recorder);
            }
        }
        self.last.profile = last_profile;
        if !found.is_empty() {
            let message = format!("{} sets of requirements were corrected", found.len());
            recorder.event(now, Some(id), "RequirementsCorrected", message);
        }
        Ok(CorrectResourcesReport { dry_run: false, corrections: found.iter().map(Misfit::report).collect() })
    }
}

/// Requirements that do not fit what was observed.
struct Misfit {
    needs: Requirements,
    better: Requirements,
    jobs: Vec<u32>,
    observed: usize,
}

impl Misfit {
    fn report(&self) -> Correction {
        Correction {
            requirements: self.needs.name.clone(),
            jobs: self.jobs.len() as i64,
            observed: self.observed as i64,
            changes: raised(&self.needs, &self.better),
        }
    }
}

fn retried(judged: &[Judged]) -> BTreeSet<u32> {
    judged.iter().filter(|one| one.report.decision == RecoveryDecision::Retry).map(|one| one.job).collect()
}

fn observation(row: &ResultRow) -> Observation {
    Observation {
        succeeded: row.state == JobState::Completed,
        peak_memory_bytes: row.usage.peak_memory_bytes,
        peak_cpu_percent: row.usage.peak_cpu_percent,
        run_seconds: Some((row.ended_ms - row.started_ms).max(0) / 1_000).filter(|seconds| *seconds > 0),
    }
}

impl Workflow {
    fn check_that_nothing_runs(&self) -> Result<(), Refusal> {
        let live = self.counts.leased + self.counts.running;
        if live > 0 {
            let jobs = if live == 1 { "1 job".to_owned() } else { format!("{live} jobs") };
            let message =
                format!("recovery of workflow '{}' waits until all have ended: {jobs} still running", self.row.name);
            return Err(Refusal::Conflict(message));
        }
        if self.is_canceled() {
            let message = format!("workflow '{}' was cancelled; `torc resume` takes that back", self.row.name);
            return Err(Refusal::Conflict(message));
        }
        Ok(())
    }

    fn misfits(&self, references: &[String], latest: &LatestResults, may_reduce: bool) -> Result<Vec<Misfit>, Refusal> {
        let chosen = if references.is_empty() { None } else { Some(self.find_all(references)?) };
        let mut by_needs: HashMap<&Requirements, Vec<u32>> = HashMap::new();
        for job in (0..self.jobs.len() as u32).filter(|job| chosen.as_ref().is_none_or(|jobs| jobs.contains(job))) {
            by_needs.entry(&self.profile(job).requirements).or_default().push(job);
        }
        let mut found = Vec::new();
        for (needs, jobs) in by_needs {
            // What every job has that names none is nobody's estimate.
            if needs.name == torc_api::resources::DEFAULT_REQUIREMENTS {
                continue;
            }
            let results = jobs.iter().filter_map(|job| latest.get(&self.jobs[*job as usize].id));
            let observed: Vec<Observation> = results.map(observation).collect();
            let may_reduce = may_reduce && observed.len() == jobs.len();
            if let Some(better) = correct(needs, &observed, may_reduce) {
                found.push(Misfit { needs: needs.clone(), better, jobs, observed: observed.len() });
            }
        }
        found.sort_by(|left, right| left.needs.cmp(&right.needs));
        Ok(found)
    }

    /// Why each failed job failed, and what is done about it.
    fn judge_failed(&self, latest: &LatestResults, options: Options) -> Vec<Judged> {
        let failed = |job: &u32| {
            matches!(self.jobs[*job as usize].state, JobState::Failed | JobState::Terminated | JobState::PendingFailed)
        };
        (0..self.jobs.len() as u32).filter(failed).map(|job| self.judge_one(job, latest, options)).collect()
    }

    fn judge_one(&self, job: u32, latest: &LatestResults, options: Options) -> Judged {
        let record = &self.jobs[job as usize];
        let needs = &self.profile(job).requirements;
        let result = latest.get(&record.id);
        let evidence = Evidence {
            needs,
            cause: result.map_or(Some(Cause::Lost), |row| row.cause),
            return_code: result.map_or(super::attempt::LOST_RETURN_CODE, |row| row.return_code),
            peak_memory_bytes: result.and_then(|row| row.usage.peak_memory_bytes),
            peak_cpu_percent: result.and_then(|row| row.usage.peak_cpu_percent),
            run_seconds: result.map_or(0, |row| (row.ended_ms - row.started_ms).max(0) / 1_000),
        };
        let (cause, decision) = decide(&evidence, options);
        let (decision, requirements) = match decision {
            Decision::Retry => (RecoveryDecision::Retry, None),
            Decision::RetryWith(requirements) => (RecoveryDecision::Retry, Some(requirements)),
            Decision::Leave => (RecoveryDecision::Leave, None),
        };
        let report = RecoveredJob {
            job: self.name(job).to_owned(),
            attempt: record.attempt,
            return_code: evidence.return_code,
            cause,
            decision,
            raised: requirements.as_ref().map_or_else(Vec::new, |more| raised(needs, more)),
        };
        Judged { job, report, requirements }
    }

    fn waiting_for_decision(&self, references: &[String]) -> Result<BTreeSet<u32>, Refusal> {
        let waits = |job: u32| self.jobs[job as usize].state == JobState::PendingFailed;
        if references.is_empty() {
            return Ok((0..self.jobs.len() as u32).filter(|job| waits(*job)).collect());
        }
        let jobs = self.find_all(references)?;
        match jobs.iter().find(|job| !waits(**job)) {
            None => Ok(jobs),
            Some(job) => {
                let (name, state) = (self.name(*job), self.jobs[*job as usize].state);
                Err(Refusal::Conflict(format!(
                    "job '{name}' is {state}; only one that is pending_failed waits for a decision"
                )))
            }
        }
    }

    /// Gives a job other requirements. What the document says stays known.
    fn require(
        &mut self,
        job: u32,
        requirements: &Requirements,
        (made, last_profile): (&mut HashMap<(u32, Requirements), u32>, &mut i64),
        recorder: &mut Recorder,
    ) {
        let present = self.jobs[job as usize].profile;
        let index = match made.get(&(present, requirements.clone())) {
            Some(index) => *index,
            None => {
                let mut profile = self.whole_profile(job);
                profile.declared.get_or_insert_with(|| Box::new(profile.requirements.clone()));
                profile.requirements = requirements.clone();
                *last_profile += 1;
                let id = ProfileId(*last_profile);
                recorder.changes().profiles.push(ProfileRow { id, workflow: self.row.id, profile: profile.clone() });
                let index = self.add_profile(id, profile);
                made.insert((present, requirements.clone()), index);
                index
            }
        };
        self.set_profile(job, index);
        recorder.job(self.job_row(job));
    }
}
