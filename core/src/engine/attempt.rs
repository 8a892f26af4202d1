//! What follows from the end of an attempt, in one command: record the result, ask for the verdict, settle the dependents.

use torc_api::failure::FailureHandler;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, FinishedAttempt};

use super::State;
use super::record::Recorder;
use super::recovery::FailedAttempt;
use super::workflow::Workflow;
use crate::ids::{Now, ProfileId, RunnerId, WorkflowId};
use crate::job::{Ending, JobEvent};
use crate::rows::{ProfileRow, ResultRow};
use crate::verdict::{Failure, Increase, Policy, Verdict, decide};

/// The return code of an attempt that was lost.
pub(super) const LOST_RETURN_CODE: i32 = -128;

/// What is said of an attempt that a recovery script follows.
const AWAITS_SCRIPT: &str = "the job is tried again if its recovery script succeeds";

impl State {
    /// An attempt of a job that nobody else has taken over has ended.
    pub(super) fn end_attempt(
        &mut self,
        workflow: WorkflowId,
        job: u32,
        finished: &FinishedAttempt,
        runner: Option<RunnerId>,
        context: (&mut Recorder, Now),
    ) {
        let (recorder, now) = context;
        let mut next_profile = self.last.profile;
        let Some(workflow) = self.workflows.get_mut(&workflow) else { return };
        let cause = cause_of(finished);
        let (ending, increase, script) = workflow.judge(job, cause, finished.return_code);
        workflow.record_result(job, finished, ending, runner, (recorder, now));
        if ending == Ending::Completed {
            workflow.record_files(job, finished, (recorder, now));
        }
        if let Some(increase) = increase {
            workflow.enlarge(job, increase, &mut next_profile, recorder);
        }
        workflow.forget_given_up(job, recorder);
        let retried = ending == Ending::Retry;
        if retried {
            workflow.jobs[job as usize].next_attempt();
        }
        if let (Some(script), Some(cause)) = (script, cause) {
            let failed = FailedAttempt { finished, cause, runner };
            workflow.begin_recovery(job, script, &failed, recorder);
        }
        let event = match workflow.jobs[job as usize].ending {
            // Another lease of it is still being ended: the next attempt waits for that.
            1.. if retried => JobEvent::Reset { unmet: workflow.count_unmet(job) },
            _ => JobEvent::Ended(ending),
        };
        let is_final = !matches!(ending, Ending::Retry | Ending::Recover | Ending::PendingFailed);
        // Every caller has checked that the job can end, so a refusal cannot happen; if it did, nothing would change.
        if workflow.step(job, event, recorder).is_ok() && is_final {
            workflow.settle_dependents(job, recorder);
        }
        self.last.profile = next_profile;
        self.news += 1;
    }

    /// An attempt is known to be gone without a result.
    pub(super) fn lose_attempt(
        &mut self,
        workflow: WorkflowId,
        job: u32,
        (cause, message): (Cause, &str),
        context: (&mut Recorder, Now),
    ) {
        let Some(record) =
            self.workflows.get(&workflow).map(|workflow| (workflow.key(job), &workflow.jobs[job as usize]))
        else {
            return;
        };
        let (key, record) = record;
        let lost = FinishedAttempt { cause: Some(cause), ..lost_attempt(key, record.started_ms, message, context.1) };
        let runner = record.runner;
        self.end_attempt(workflow, job, &lost, runner, context);
    }
}

/// The report that nobody made of an attempt that is gone.
pub(super) fn lost_attempt(key: AttemptKey, started_ms: Option<i64>, message: &str, now: Now) -> FinishedAttempt {
    let elapsed = started_ms.map_or(0, |started| (now.wall_ms - started).max(0));
    FinishedAttempt {
        key,
        return_code: LOST_RETURN_CODE,
        cause: Some(Cause::Lost),
        duration_ms: elapsed.unsigned_abs(),
        message: Some(message.to_owned()),
        ..FinishedAttempt::default()
    }
}

/// A point in time before another. What a runner says is no reason to overflow.
pub(super) fn ago(now_ms: i64, ms: u64) -> i64 {
    now_ms.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX))
}

pub(super) fn cause_of(finished: &FinishedAttempt) -> Option<Cause> {
    finished.cause.or_else(|| (finished.return_code != 0).then_some(Cause::ExitCode))
}

impl Workflow {
    /// What follows, what the next attempt gets more of, and the script that has to succeed before it.
    fn judge(
        &mut self,
        job: u32,
        cause: Option<Cause>,
        return_code: i32,
    ) -> (Ending, Option<Increase>, Option<String>) {
        let Some(cause) = cause else { return (Ending::Completed, None, None) };
        if self.is_canceled() || cause == Cause::Canceled {
            return (Ending::Canceled, None, None);
        }
        // The runner was asked to stop; that says nothing about the job.
        if cause == Cause::Stopped {
            return (Ending::Retry, None, None);
        }
        let id = self.jobs[job as usize].id;
        let count = self.failed_attempts.entry(id).or_default().entry(cause).or_default();
        *count += 1;
        let failure = Failure { cause, return_code, count: *count };
        let policy = Policy {
            handler: self.handler(job),
            recovery: self.spec.recovery.as_ref(),
            use_pending_failed: self.spec.use_pending_failed == Some(true),
        };
        match decide(failure, policy) {
            Verdict::Retry(increase) => (Ending::Retry, (increase != Increase::default()).then_some(increase), None),
            Verdict::Recover(script) => (Ending::Recover, None, Some(script.to_owned())),
            Verdict::PendingFailed => (Ending::PendingFailed, None, None),
            Verdict::Settle if cause == Cause::Timeout => (Ending::Terminated, None, None),
            Verdict::Settle => (Ending::Failed, None, None),
        }
    }

    fn handler(&self, job: u32) -> Option<&FailureHandler> {
        let name = self.profile(job).failure_handler.as_deref()?;
        self.spec.failure_handlers.iter().find(|handler| handler.name == name)
    }

    fn record_result(
        &mut self,
        job: u32,
        finished: &FinishedAttempt,
        ending: Ending,
        runner: Option<RunnerId>,
        (recorder, now): (&mut Recorder, Now),
    ) {
        let cause = cause_of(finished);
        let state = match ending {
            Ending::Completed => JobState::Completed,
            Ending::Canceled => JobState::Canceled,
            _ if matches!(cause, Some(Cause::Timeout | Cause::Stopped)) => JobState::Terminated,
            _ => JobState::Failed,
        };
        let cause = if ending == Ending::Canceled { Some(Cause::Canceled) } else { cause };
        let record = &self.jobs[job as usize];
        let (run, attempt) = (record.run, record.attempt);
        let mut row = self.result_row(job, (run, attempt), finished, (state, cause), runner, now);
        if ending == Ending::Recover {
            row.message.get_or_insert_with(|| AWAITS_SCRIPT.to_owned());
        }
        if finished.key.attempt != attempt {
            let late = format!("started as attempt {}, given up, and turned up again", finished.key.attempt);
            row.message = Some(row.message.map_or(late.clone(), |message| format!("{message} ({late})")));
        }
        self.remember_failure(&row);
        if self.row.started_ms.is_none() {
            self.row.started_ms = Some(row.started_ms);
            recorder.workflow(&self.row);
        }
        recorder.result(row);
    }

    /// The record of an attempt that ended.
    pub(super) fn result_row(
        &self,
        job: u32,
        (run, attempt): (i32, i32),
        finished: &FinishedAttempt,
        (state, cause): (JobState, Option<Cause>),
        runner: Option<RunnerId>,
        now: Now,
    ) -> ResultRow {
        let ended_ms = ago(now.wall_ms, finished.ended_ms_ago);
        ResultRow {
            workflow: self.row.id,
            job: self.jobs[job as usize].id,
            run,
            attempt,
            state,
            return_code: finished.return_code,
            cause,
            message: finished.message.clone(),
            started_ms: ago(ended_ms, finished.duration_ms),
            ended_ms,
            runner,
            stdout: finished.stdout.clone(),
            stderr: finished.stderr.clone(),
            usage: finished.usage.unwrap_or_default(),
        }
    }

    /// The next attempt of this job, and of no other, gets more memory or time.
    fn enlarge(&mut self, job: u32, increase: Increase, last_profile: &mut i64, recorder: &mut Recorder) {
        let grow = |amount: i64, percent: Option<i32>| match percent {
            Some(percent) => i64::try_from(i128::from(amount) * i128::from(percent) / 100).unwrap_or(i64::MAX),
            None => amount,
        };
        let present = self.jobs[job as usize].profile;
        let index = match self.enlarged.get(&(present, increase)) {
            Some(index) => *index,
            None => {
                let mut profile = self.whole_profile(job);
                profile.declared.get_or_insert_with(|| Box::new(profile.requirements.clone()));
                let needs = &mut profile.requirements;
                needs.memory_bytes = grow(needs.memory_bytes, increase.memory_percent);
                needs.runtime_seconds = grow(needs.runtime_seconds, increase.runtime_percent);
                *last_profile += 1;
                let id = ProfileId(*last_profile);
                recorder.changes().profiles.push(ProfileRow { id, workflow: self.row.id, profile: profile.clone() });
                let index = self.add_profile(id, profile);
                self.enlarged.insert((present, increase), index);
                index
            }
        };
        self.set_profile(job, index);
        recorder.job(self.job_row(job));
    }

    /// A job has ended for good: those that waited for it are ready, wait for others, or are cancelled with theirs.
    pub(super) fn settle_dependents(&mut self, job: u32, recorder: &mut Recorder) {
        let mut ended = vec![job];
        while let Some(job) = ended.pop() {
            let failed = self.jobs[job as usize].state != JobState::Completed;
            for index in 0..self.children(job).len() {
                let child = self.children(job)[index];
                let record = &mut self.jobs[child as usize];
                record.unmet = record.unmet.saturating_sub(1);
                if record.state != JobState::Blocked {
                    continue;
                }
                let unmet = record.unmet;
                if failed && self.profile(child).cancel_on_blocking_job_failure {
                    if self.step(child, JobEvent::DependencyFailed, recorder).is_ok() {
                        ended.push(child);
                    }
                } else if unmet == 0 {
                    // The state was checked above, so this is always legal.
                    let _ = self.step(child, JobEvent::DependenciesMet, recorder);
                }
            }
        }
    }
}
