//! Recovery in progress: jobs that are retried because an attempt was lost or exceeded a limit.

use std::collections::{BTreeMap, HashMap};

use torc_api::condition::ConditionReason;
use torc_api::state::{Cause, JobState};
use torc_api::status::RecoveryProgress;

use crate::ids::JobId;

/// Jobs that are being retried. The counts are updated with each change of state, because a status is read more often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Recovering {
    jobs: HashMap<JobId, RetryInfo>,
    causes: BTreeMap<Cause, i64>,
    rounds: BTreeMap<i32, i64>,
}

/// The cause for which a job is retried, and the number of its failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RetryInfo {
    cause: Cause,
    round: i32,
}

impl Recovering {
    /// Updates a job with these failed attempts.
    pub(super) fn update(&mut self, job: JobId, state: JobState, failed: Option<&BTreeMap<Cause, i32>>) {
        self.set(job, failed.and_then(|failed| retry_info(state, failed)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    fn set(&mut self, job: JobId, retry_info: Option<RetryInfo>) {
        let before = match retry_info {
            Some(retry_info) => self.jobs.insert(job, retry_info),
            None => self.jobs.remove(&job),
        };
        if let Some(before) = before {
            count(&mut self.causes, before.cause, -1);
            count(&mut self.rounds, before.round, -1);
        }
        if let Some(retry_info) = retry_info {
            count(&mut self.causes, retry_info.cause, 1);
            count(&mut self.rounds, retry_info.round, 1);
        }
    }

    /// Returns the reason of the condition, if recovery is in progress: the first cause in the order of their declaration.
    pub fn reason(&self) -> Option<ConditionReason> {
        self.causes.keys().next().and_then(|cause| condition_reason(*cause))
    }

    /// Returns a message that does not change with each job.
    pub fn sentence(&self) -> String {
        let causes: Vec<&str> = self.causes.keys().map(|cause| cause.as_str()).collect();
        if causes.is_empty() { String::new() } else { format!("jobs are retried after {}", causes.join(", ")) }
    }

    /// Returns the largest number of failed attempts of a job, and the number of jobs by cause.
    pub fn status(&self) -> Option<RecoveryProgress> {
        let round = *self.rounds.keys().next_back()?;
        let causes: Vec<String> = self.causes.iter().map(|(cause, count)| format!("{count} after {cause}")).collect();
        let verb = if self.jobs.len() == 1 { "job is" } else { "jobs are" };
        let message = format!("{} {verb} retried: {}", self.jobs.len(), causes.join(", "));
        Some(RecoveryProgress { round, message })
    }
}

fn count<K: Ord>(counters: &mut BTreeMap<K, i64>, key: K, change: i64) {
    let counter = counters.entry(key).or_default();
    *counter += change;
    counters.retain(|_, count| *count != 0);
}

/// Returns the reason of `Recovering` for a cause that recovery retries.
const fn condition_reason(cause: Cause) -> Option<ConditionReason> {
    Some(match cause {
        Cause::OutOfMemory => ConditionReason::OutOfMemory,
        Cause::Timeout => ConditionReason::Timeout,
        Cause::NodeFailure => ConditionReason::NodeFailure,
        Cause::Preempted => ConditionReason::Preempted,
        Cause::Lost => ConditionReason::Lost,
        _ => return None,
    })
}

/// Returns the cause for which a job is retried. A retry by a failure handler or a user is no recovery.
fn retry_info(state: JobState, failed: &BTreeMap<Cause, i32>) -> Option<RetryInfo> {
    let causes = failed.iter().filter(|(cause, count)| condition_reason(**cause).is_some() && **count > 0);
    if state.is_complete() || matches!(state, JobState::PendingFailed | JobState::Disabled) {
        return None;
    }
    let round = causes.clone().map(|(_, count)| *count).sum();
    // Of equally frequent causes the first one counts.
    let (cause, _) = causes.rev().max_by_key(|(_, count)| **count)?;
    Some(RetryInfo { cause: *cause, round })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_exceeded_limits_count_until_the_job_ends() {
        let failed = BTreeMap::from([(Cause::Lost, 2), (Cause::OutOfMemory, 1), (Cause::ExitCode, 5)]);
        let expected = Some(RetryInfo { cause: Cause::Lost, round: 3 });
        for state in [JobState::Blocked, JobState::Ready, JobState::Leased, JobState::Running, JobState::Recovering] {
            assert_eq!(retry_info(state, &failed), expected, "{state}");
        }
        let over = [JobState::Completed, JobState::Failed, JobState::Canceled, JobState::Terminated];
        for state in over.into_iter().chain([JobState::PendingFailed, JobState::Disabled]) {
            assert_eq!(retry_info(state, &failed), None, "{state}");
        }
        let by_itself = BTreeMap::from([(Cause::ExitCode, 1), (Cause::StartFailed, 1), (Cause::MissingOutput, 1)]);
        assert_eq!(retry_info(JobState::Ready, &by_itself), None);
        let equally = BTreeMap::from([(Cause::OutOfMemory, 1), (Cause::Lost, 1)]);
        assert_eq!(retry_info(JobState::Ready, &equally), Some(RetryInfo { cause: Cause::OutOfMemory, round: 2 }));
    }

    #[test]
    fn status_follows_the_retried_jobs() {
        let mut recovering = Recovering::default();
        assert_eq!((recovering.reason(), recovering.status()), (None, None));
        recovering.set(JobId(1), Some(RetryInfo { cause: Cause::Lost, round: 2 }));
        recovering.set(JobId(2), Some(RetryInfo { cause: Cause::Lost, round: 1 }));
        recovering.set(JobId(3), Some(RetryInfo { cause: Cause::Timeout, round: 1 }));
        assert_eq!(recovering.reason(), Some(ConditionReason::Timeout));
        assert_eq!(recovering.sentence(), "jobs are retried after Timeout, Lost");
        let message = "3 jobs are retried: 1 after Timeout, 2 after Lost".to_owned();
        assert_eq!(recovering.status(), Some(RecoveryProgress { round: 2, message }));
        recovering.set(JobId(1), None);
        recovering.set(JobId(3), None);
        let message = "1 job is retried: 1 after Lost".to_owned();
        assert_eq!(recovering.status(), Some(RecoveryProgress { round: 1, message }));
        recovering.set(JobId(2), None);
        assert_eq!(recovering, Recovering::default());
    }
}
