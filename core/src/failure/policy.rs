//! The document's failure policy: the failure handler is asked first, then the recovery policy; otherwise the job fails.

use torc_api::failure::{FailureHandler, FailureRule, Recovery, RecoveryPolicy, UnknownAction};
use torc_api::state::Cause;

use super::diagnosis::{Evidence, diagnose};
use super::escalation::{ESCALATION_PERCENT, Escalated, LimitReached, Multipliers, NodeShape, escalate};
use crate::expanded::Requirements;

/// Retries of attempts that were lost through no fault of the job, unless the document says otherwise.
pub const LOST_LIMIT: i32 = 3;
/// Retries with more memory or time under `policy: Auto`, unless the document says otherwise.
pub const ESCALATION_LIMIT: i32 = 2;
/// Retries of a failure handler's rule, unless the document says otherwise.
pub const HANDLER_RETRIES: i32 = 3;

/// A failed attempt, as the policy sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttemptFailure<'a> {
    /// The reported cause, which failure handlers match.
    pub cause: Cause,
    /// Facts about the attempt.
    pub evidence: Evidence<'a>,
    /// Attempts of this job in this run that have ended with this cause, this one included.
    pub count: i32,
    /// Nodes that the job could get; none means that this is not known.
    pub nodes: &'a [NodeShape],
}

/// The parts of a document that decide about failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy<'a> {
    /// The failure handler that the job names.
    pub handler: Option<&'a FailureHandler>,
    /// The recovery policy of the workflow.
    pub recovery: Option<&'a Recovery>,
    /// Failures that nothing else decides need a manual decision.
    pub use_pending_failed: bool,
}

/// The decision about the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureDecision<'a> {
    /// It is retried as it is.
    Retry,
    /// It is retried with these requirements.
    RetryWith(Requirements),
    /// It is retried once this script has succeeded.
    RunScript(&'a str),
    /// It needs a manual decision.
    PendingFailed(Option<LimitReached>),
    /// It has failed for good.
    Fail(Option<LimitReached>),
}

/// Decides about a failed attempt.
pub fn decide<'a>(failure: &AttemptFailure<'_>, policy: Policy<'a>) -> FailureDecision<'a> {
    if let Some(rule) = policy.handler.and_then(|handler| matching_rule(handler, failure))
        && failure.count <= rule.max_retries.unwrap_or(HANDLER_RETRIES)
    {
        let script = rule.recovery_script.as_deref().filter(|script| !script.trim().is_empty());
        return script.map_or(FailureDecision::Retry, FailureDecision::RunScript);
    }
    let limit = match recover(failure, policy.recovery) {
        Some(Ok(decision)) => return decision,
        Some(Err(limit)) => Some(limit),
        None => None,
    };
    let is_manual = policy.recovery.and_then(|recovery| recovery.policy) == Some(RecoveryPolicy::Manual);
    if policy.use_pending_failed || is_manual {
        FailureDecision::PendingFailed(limit)
    } else {
        FailureDecision::Fail(limit)
    }
}

/// Returns whether an attempt may be retried with more memory or time, so that it matters which nodes there are.
pub fn may_escalate(evidence: &Evidence<'_>, policy: Policy<'_>) -> bool {
    let is_auto = policy.recovery.and_then(|recovery| recovery.policy) == Some(RecoveryPolicy::Auto);
    is_auto && matches!(diagnose(evidence), Cause::OutOfMemory | Cause::Timeout)
}

/// Returns the first rule that lists the code or the cause, else the first that matches everything.
fn matching_rule<'a>(handler: &'a FailureHandler, failure: &AttemptFailure<'_>) -> Option<&'a FailureRule> {
    let return_code = failure.evidence.return_code;
    let lists = |rule: &&FailureRule| rule.exit_codes.contains(&return_code) || rule.causes.contains(&failure.cause);
    handler
        .rules
        .iter()
        .find(lists)
        .or_else(|| handler.rules.iter().find(|rule| rule.match_all_exit_codes == Some(true)))
}

/// Returns what the recovery policy does, if it does anything.
fn recover<'a>(
    failure: &AttemptFailure<'_>,
    recovery: Option<&Recovery>,
) -> Option<Result<FailureDecision<'a>, LimitReached>> {
    let policy = recovery.and_then(|recovery| recovery.policy);
    if policy == Some(RecoveryPolicy::Never) {
        return None;
    }
    let within = |limit: i32| (failure.count <= limit).then_some(());
    let is_auto = policy == Some(RecoveryPolicy::Auto);
    let multipliers = Multipliers::default();
    match diagnose(&failure.evidence) {
        cause if cause.is_loss() => {
            let limit = recovery.and_then(|recovery| recovery.lost.as_ref()).and_then(|lost| lost.limit);
            within(limit.unwrap_or(LOST_LIMIT))?;
            Some(Ok(FailureDecision::Retry))
        }
        Cause::OutOfMemory if is_auto => {
            let budget = EscalationBudget::of(recovery.and_then(|recovery| recovery.out_of_memory.as_ref()));
            within(budget.retries)?;
            Some(with_more(failure, Multipliers { memory_percent: budget.percent, ..multipliers }))
        }
        Cause::Timeout if is_auto => {
            let budget = EscalationBudget::of(recovery.and_then(|recovery| recovery.timeout.as_ref()));
            within(budget.retries)?;
            Some(with_more(failure, Multipliers { runtime_percent: budget.percent, ..multipliers }))
        }
        Cause::ExitCode | Cause::StartFailed | Cause::MissingOutput => {
            let unknown = recovery.and_then(|recovery| recovery.unknown.as_ref())?;
            (unknown.action == Some(UnknownAction::Retry)).then_some(())?;
            within(unknown.limit.unwrap_or(ESCALATION_LIMIT))?;
            Some(Ok(FailureDecision::Retry))
        }
        _ => None,
    }
}

fn with_more<'a>(failure: &AttemptFailure<'_>, multipliers: Multipliers) -> Result<FailureDecision<'a>, LimitReached> {
    match escalate(&failure.evidence, multipliers, failure.nodes) {
        Escalated::To(requirements) => Ok(FailureDecision::RetryWith(requirements)),
        Escalated::Not(limit) => Err(limit),
        Escalated::Unneeded => Ok(FailureDecision::Retry),
    }
}

/// The number of retries with more, and the increase of each.
struct EscalationBudget {
    retries: i32,
    percent: i64,
}

impl EscalationBudget {
    fn of(settings: Option<&torc_api::failure::Escalation>) -> Self {
        let percent = settings.and_then(|settings| settings.increase_percent).unwrap_or(ESCALATION_PERCENT);
        Self {
            retries: settings.and_then(|settings| settings.limit).unwrap_or(ESCALATION_LIMIT),
            percent: i64::from(percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_api::failure::{Escalation, RetryLimit, UnknownFailures};

    /// A failed attempt: its cause, exit code and number.
    type Failed = (Cause, i32, i32);

    fn needs() -> Requirements {
        Requirements { name: "r".to_owned(), memory_bytes: 1_000, ..Requirements::default() }
    }

    fn decided<'a>((cause, return_code, count): Failed, policy: Policy<'a>) -> FailureDecision<'a> {
        decided_on((cause, return_code, count), policy, &[])
    }

    fn decided_on<'a>(
        (cause, return_code, count): Failed,
        policy: Policy<'a>,
        nodes: &[NodeShape],
    ) -> FailureDecision<'a> {
        let needs = needs();
        let evidence = Evidence {
            needs: &needs,
            cause: Some(cause),
            return_code,
            peak_memory_bytes: None,
            peak_cpu_percent: None,
            run_seconds: 1,
        };
        decide(&AttemptFailure { cause, evidence, count, nodes }, policy)
    }

    fn handler(rules: Vec<FailureRule>) -> FailureHandler {
        FailureHandler { name: "h".into(), rules }
    }

    const PLAIN: FailureDecision<'static> = FailureDecision::Retry;
    const FAIL: FailureDecision<'static> = FailureDecision::Fail(None);
    const PENDING: FailureDecision<'static> = FailureDecision::PendingFailed(None);

    #[test]
    fn without_a_policy_only_lost_attempts_are_retried() {
        let none = Policy::default();
        for cause in [Cause::Lost, Cause::NodeFailure, Cause::Preempted] {
            assert_eq!(decided((cause, -128, 3), none), PLAIN);
            assert_eq!(decided((cause, -128, 4), none), FAIL);
        }
        for cause in [Cause::ExitCode, Cause::OutOfMemory, Cause::Timeout, Cause::StartFailed, Cause::MissingOutput] {
            assert_eq!(decided((cause, 1, 1), none), FAIL);
        }
    }

    #[test]
    fn max_retries_counts_retries_after_the_first_attempt() {
        let handler = handler(vec![FailureRule { exit_codes: vec![7], max_retries: Some(2), ..Default::default() }]);
        let policy = Policy { handler: Some(&handler), ..Default::default() };
        assert_eq!(decided((Cause::ExitCode, 7, 1), policy), PLAIN);
        assert_eq!(decided((Cause::ExitCode, 7, 2), policy), PLAIN);
        assert_eq!(decided((Cause::ExitCode, 7, 3), policy), FAIL);
        assert_eq!(decided((Cause::ExitCode, 8, 1), policy), FAIL);
    }

    #[test]
    fn a_listed_code_wins_over_an_earlier_catch_all() {
        let handler = handler(vec![
            FailureRule { match_all_exit_codes: Some(true), max_retries: Some(9), ..Default::default() },
            FailureRule { exit_codes: vec![7], max_retries: Some(0), ..Default::default() },
            FailureRule { causes: vec![Cause::OutOfMemory], max_retries: Some(1), ..Default::default() },
        ]);
        let policy = Policy { handler: Some(&handler), ..Default::default() };
        assert_eq!(decided((Cause::ExitCode, 7, 1), policy), FAIL);
        assert_eq!(decided((Cause::ExitCode, 3, 9), policy), PLAIN);
        assert_eq!(decided((Cause::OutOfMemory, 137, 2), policy), FAIL);
    }

    #[test]
    fn auto_gives_more_of_what_ran_out() {
        let recovery = Recovery {
            policy: Some(RecoveryPolicy::Auto),
            timeout: Some(Escalation { limit: Some(1), increase_percent: Some(200) }),
            ..Default::default()
        };
        let policy = Policy { recovery: Some(&recovery), ..Default::default() };
        let memory = FailureDecision::RetryWith(Requirements { memory_bytes: 1_500, ..needs() });
        let time = FailureDecision::RetryWith(Requirements { runtime_seconds: 120, ..needs() });
        assert_eq!(decided((Cause::OutOfMemory, 137, 2), policy), memory);
        assert_eq!(decided((Cause::OutOfMemory, 137, 3), policy), FAIL);
        assert_eq!(decided((Cause::Timeout, 152, 1), policy), time);
        assert_eq!(decided((Cause::Timeout, 152, 2), policy), FAIL);
        assert_eq!(decided((Cause::ExitCode, 1, 1), policy), FAIL);
    }

    #[test]
    fn manual_and_pending_failed_need_a_decision() {
        let manual = Recovery { policy: Some(RecoveryPolicy::Manual), ..Default::default() };
        let policy = Policy { recovery: Some(&manual), ..Default::default() };
        assert_eq!(decided((Cause::ExitCode, 1, 1), policy), PENDING);
        assert_eq!(decided((Cause::Lost, -128, 1), policy), PLAIN);
        let asked = Policy { use_pending_failed: true, ..Default::default() };
        assert_eq!(decided((Cause::ExitCode, 1, 1), asked), PENDING);
    }

    #[test]
    fn never_retries_nothing_and_unknown_can_be_retried() {
        let never = Recovery {
            policy: Some(RecoveryPolicy::Never),
            lost: Some(RetryLimit { limit: Some(5) }),
            ..Default::default()
        };
        let policy = Policy { recovery: Some(&never), ..Default::default() };
        assert_eq!(decided((Cause::Lost, -128, 1), policy), FAIL);
        let unknown = Recovery {
            unknown: Some(UnknownFailures { action: Some(UnknownAction::Retry), limit: Some(1) }),
            ..Default::default()
        };
        let policy = Policy { recovery: Some(&unknown), ..Default::default() };
        assert_eq!(decided((Cause::ExitCode, 1, 1), policy), PLAIN);
        assert_eq!(decided((Cause::ExitCode, 1, 2), policy), FAIL);
    }

    #[test]
    fn auto_goes_by_what_is_known_and_not_by_the_code_alone() {
        let recovery = Recovery { policy: Some(RecoveryPolicy::Auto), ..Default::default() };
        let policy = Policy { recovery: Some(&recovery), ..Default::default() };
        let memory = FailureDecision::RetryWith(Requirements { memory_bytes: 1_500, ..needs() });
        assert_eq!(decided((Cause::ExitCode, 137, 1), policy), memory);
        let handler = handler(vec![FailureRule { causes: vec![Cause::ExitCode], ..Default::default() }]);
        let policy = Policy { handler: Some(&handler), ..policy };
        assert_eq!(decided((Cause::ExitCode, 137, 1), policy), PLAIN, "a handler goes by the reported cause");
    }

    #[test]
    fn a_job_that_had_all_there_is_fails_with_the_numbers() {
        let recovery = Recovery { policy: Some(RecoveryPolicy::Auto), ..Default::default() };
        let policy = Policy { recovery: Some(&recovery), ..Default::default() };
        let node = NodeShape { memory_bytes: 1_000, seconds: 60, ..NodeShape::UNLIMITED };
        let memory = Some(LimitReached::Memory { had: 1_000, largest: 1_000 });
        assert_eq!(decided_on((Cause::OutOfMemory, 137, 1), policy, &[node]), FailureDecision::Fail(memory));
        let time = Some(LimitReached::Time { had: 60, longest: 60 });
        assert_eq!(decided_on((Cause::Timeout, 152, 1), policy, &[node]), FailureDecision::Fail(time));
        let pending = Policy { use_pending_failed: true, ..policy };
        assert_eq!(decided_on((Cause::Timeout, 152, 1), pending, &[node]), FailureDecision::PendingFailed(time));
        assert_eq!(decided_on((Cause::Timeout, 152, 3), policy, &[node]), FAIL, "its budget is spent anyway");
        assert_eq!(decided_on((Cause::Lost, -128, 1), policy, &[node]), PLAIN);
    }
}
