//! What follows from a failed attempt: the failure handler is asked first, then the recovery policy, else it settles.

use torc_api::failure::{FailureHandler, FailureRule, Recovery, RecoveryPolicy, UnknownAction};
use torc_api::state::Cause;

/// Retries of attempts that were lost through no fault of the job, unless the document says otherwise.
pub const LOST_LIMIT: i32 = 3;
/// Retries with more memory or time under `policy: Auto`, unless the document says otherwise.
pub const ESCALATION_LIMIT: i32 = 2;
/// The new amount in percent of the old, unless the document says otherwise.
pub const ESCALATION_PERCENT: i32 = 150;
/// Retries of a failure handler's rule, unless the document says otherwise.
pub const HANDLER_RETRIES: i32 = 3;

/// A failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub cause: Cause,
    /// With which code.
    pub return_code: i32,
    /// How many attempts of this job in this run have ended with this cause, this one included.
    pub count: i32,
}

/// What the document says about failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy<'a> {
    /// The job's handler.
    pub handler: Option<&'a FailureHandler>,
    /// The workflow's recovery.
    pub recovery: Option<&'a Recovery>,
    /// Failures that nothing else decides wait for a person.
    pub use_pending_failed: bool,
}

/// What happens to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It is tried again, with more of something.
    Retry(Increase),
    /// It is tried again once this script has succeeded.
    Recover(&'a str),
    /// A person decides.
    PendingFailed,
    /// It has failed for good.
    Settle,
}

/// What the next attempt gets more of, in percent of what it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Increase {
    /// Memory.
    pub memory_percent: Option<i32>,
    /// Time.
    pub runtime_percent: Option<i32>,
}

/// Decides about a failed attempt.
pub fn decide<'a>(failure: Failure, policy: Policy<'a>) -> Verdict<'a> {
    if let Some(rule) = policy.handler.and_then(|handler| matching_rule(handler, failure))
        && failure.count <= rule.max_retries.unwrap_or(HANDLER_RETRIES)
    {
        let script = rule.recovery_script.as_deref().filter(|script| !script.trim().is_empty());
        return script.map_or(Verdict::Retry(Increase::default()), Verdict::Recover);
    }
    if let Some(verdict) = recover(failure, policy.recovery) {
        return verdict;
    }
    let manual = policy.recovery.and_then(|recovery| recovery.policy) == Some(RecoveryPolicy::Manual);
    if policy.use_pending_failed || manual { Verdict::PendingFailed } else { Verdict::Settle }
}

/// The first rule that lists the code or the cause, else the first that takes everything.
fn matching_rule(handler: &FailureHandler, failure: Failure) -> Option<&FailureRule> {
    let lists =
        |rule: &&FailureRule| rule.exit_codes.contains(&failure.return_code) || rule.causes.contains(&failure.cause);
    handler
        .rules
        .iter()
        .find(lists)
        .or_else(|| handler.rules.iter().find(|rule| rule.match_all_exit_codes == Some(true)))
}

fn recover<'a>(failure: Failure, recovery: Option<&Recovery>) -> Option<Verdict<'a>> {
    let policy = recovery.and_then(|recovery| recovery.policy);
    if policy == Some(RecoveryPolicy::Never) {
        return None;
    }
    let within = |limit: i32, increase: Increase| (failure.count <= limit).then_some(Verdict::Retry(increase));
    let auto = policy == Some(RecoveryPolicy::Auto);
    match failure.cause {
        cause if cause.is_loss() => {
            let limit = recovery.and_then(|recovery| recovery.lost.as_ref()).and_then(|lost| lost.limit);
            within(limit.unwrap_or(LOST_LIMIT), Increase::default())
        }
        Cause::OutOfMemory if auto => {
            let (limit, percent) = escalation(recovery.and_then(|recovery| recovery.out_of_memory.as_ref()));
            within(limit, Increase { memory_percent: Some(percent), ..Increase::default() })
        }
        Cause::Timeout if auto => {
            let (limit, percent) = escalation(recovery.and_then(|recovery| recovery.timeout.as_ref()));
            within(limit, Increase { runtime_percent: Some(percent), ..Increase::default() })
        }
        Cause::ExitCode | Cause::StartFailed | Cause::MissingOutput => {
            let unknown = recovery.and_then(|recovery| recovery.unknown.as_ref())?;
            (unknown.action == Some(UnknownAction::Retry)).then_some(())?;
            within(unknown.limit.unwrap_or(ESCALATION_LIMIT), Increase::default())
        }
        _ => None,
    }
}

fn escalation(settings: Option<&torc_api::failure::Escalation>) -> (i32, i32) {
    (
        settings.and_then(|settings| settings.limit).unwrap_or(ESCALATION_LIMIT),
        settings.and_then(|settings| settings.increase_percent).unwrap_or(ESCALATION_PERCENT),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_api::failure::{Escalation, RetryLimit, UnknownFailures};

    fn failure(cause: Cause, return_code: i32, count: i32) -> Failure {
        Failure { cause, return_code, count }
    }

    fn handler(rules: Vec<FailureRule>) -> FailureHandler {
        FailureHandler { name: "h".into(), rules }
    }

    const PLAIN: Verdict = Verdict::Retry(Increase { memory_percent: None, runtime_percent: None });

    #[test]
    fn without_a_policy_only_lost_attempts_are_retried() {
        let none = Policy::default();
        for cause in [Cause::Lost, Cause::NodeFailure, Cause::Preempted] {
            assert_eq!(decide(failure(cause, -128, 3), none), PLAIN);
            assert_eq!(decide(failure(cause, -128, 4), none), Verdict::Settle);
        }
        for cause in [Cause::ExitCode, Cause::OutOfMemory, Cause::Timeout, Cause::StartFailed, Cause::MissingOutput] {
            assert_eq!(decide(failure(cause, 1, 1), none), Verdict::Settle);
        }
    }

    #[test]
    fn max_retries_counts_retries_after_the_first_attempt() {
        let handler = handler(vec![FailureRule { exit_codes: vec![7], max_retries: Some(2), ..Default::default() }]);
        let policy = Policy { handler: Some(&handler), ..Default::default() };
        assert_eq!(decide(failure(Cause::ExitCode, 7, 1), policy), PLAIN);
        assert_eq!(decide(failure(Cause::ExitCode, 7, 2), policy), PLAIN);
        assert_eq!(decide(failure(Cause::ExitCode, 7, 3), policy), Verdict::Settle);
        assert_eq!(decide(failure(Cause::ExitCode, 8, 1), policy), Verdict::Settle);
    }

    #[test]
    fn a_rule_that_lists_the_code_wins_over_an_earlier_one_that_takes_everything() {
        let handler = handler(vec![
            FailureRule { match_all_exit_codes: Some(true), max_retries: Some(9), ..Default::default() },
            FailureRule { exit_codes: vec![7], max_retries: Some(0), ..Default::default() },
            FailureRule { causes: vec![Cause::OutOfMemory], max_retries: Some(1), ..Default::default() },
        ]);
        let policy = Policy { handler: Some(&handler), ..Default::default() };
        assert_eq!(decide(failure(Cause::ExitCode, 7, 1), policy), Verdict::Settle);
        assert_eq!(decide(failure(Cause::ExitCode, 3, 9), policy), PLAIN);
        assert_eq!(decide(failure(Cause::OutOfMemory, 137, 2), policy), Verdict::Settle);
    }

    #[test]
    fn auto_gives_more_of_what_ran_out() {
        let recovery = Recovery {
            policy: Some(RecoveryPolicy::Auto),
            timeout: Some(Escalation { limit: Some(1), increase_percent: Some(200) }),
            ..Default::default()
        };
        let policy = Policy { recovery: Some(&recovery), ..Default::default() };
        let memory = Verdict::Retry(Increase { memory_percent: Some(150), runtime_percent: None });
        let time = Verdict::Retry(Increase { memory_percent: None, runtime_percent: Some(200) });
        assert_eq!(decide(failure(Cause::OutOfMemory, 137, 2), policy), memory);
        assert_eq!(decide(failure(Cause::OutOfMemory, 137, 3), policy), Verdict::Settle);
        assert_eq!(decide(failure(Cause::Timeout, 152, 1), policy), time);
        assert_eq!(decide(failure(Cause::Timeout, 152, 2), policy), Verdict::Settle);
        assert_eq!(decide(failure(Cause::ExitCode, 1, 1), policy), Verdict::Settle);
    }

    #[test]
    fn manual_and_pending_failed_wait_for_a_person() {
        let manual = Recovery { policy: Some(RecoveryPolicy::Manual), ..Default::default() };
        let policy = Policy { recovery: Some(&manual), ..Default::default() };
        assert_eq!(decide(failure(Cause::ExitCode, 1, 1), policy), Verdict::PendingFailed);
        assert_eq!(decide(failure(Cause::Lost, -128, 1), policy), PLAIN);
        let asked = Policy { use_pending_failed: true, ..Default::default() };
        assert_eq!(decide(failure(Cause::ExitCode, 1, 1), asked), Verdict::PendingFailed);
    }

    #[test]
    fn never_retries_nothing_and_unknown_can_be_retried() {
        let never = Recovery {
            policy: Some(RecoveryPolicy::Never),
            lost: Some(RetryLimit { limit: Some(5) }),
            ..Default::default()
        };
        let policy = Policy { recovery: Some(&never), ..Default::default() };
        assert_eq!(decide(failure(Cause::Lost, -128, 1), policy), Verdict::Settle);
        let unknown = Recovery {
            unknown: Some(UnknownFailures { action: Some(UnknownAction::Retry), limit: Some(1) }),
            ..Default::default()
        };
        let policy = Policy { recovery: Some(&unknown), ..Default::default() };
        assert_eq!(decide(failure(Cause::ExitCode, 1, 1), policy), PLAIN);
        assert_eq!(decide(failure(Cause::ExitCode, 1, 2), policy), Verdict::Settle);
    }
}
