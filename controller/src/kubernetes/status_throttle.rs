//! Throttles writes of a status: at once when a condition changes, otherwise every few seconds, and only if it has changed.

use std::time::Duration;

use torc_api::condition::Condition;
use torc_api::status::WorkflowStatus;

/// Minimum interval between writes that only report progress.
pub(super) const MIN_STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// The decision about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteDecision {
    Nothing,
    Now,
    /// Write after this delay.
    After(Duration),
}

/// Decides about a write. `since` is the time since the last one.
pub(super) fn decide(before: Option<&WorkflowStatus>, after: &WorkflowStatus, since: Duration) -> WriteDecision {
    match before {
        Some(before) if before == after => WriteDecision::Nothing,
        Some(before) if !has_moved(&before.conditions, &after.conditions) && since < MIN_STATUS_INTERVAL => {
            WriteDecision::After(MIN_STATUS_INTERVAL - since)
        }
        _ => WriteDecision::Now,
    }
}

/// Returns whether a condition has another value. Its message and times do not count.
fn has_moved(before: &[Condition], after: &[Condition]) -> bool {
    let value = |condition: &Condition| {
        let Condition { type_, status, reason, observed_generation, .. } = condition.clone();
        (type_, status, reason, observed_generation)
    };
    !before.iter().map(value).eq(after.iter().map(value))
}

#[cfg(test)]
mod tests {
    use torc_api::condition::ConditionStatus;

    use super::*;

    fn status(progress: &str, reason: &str, message: &str) -> WorkflowStatus {
        let condition = Condition {
            type_: "Succeeded".to_owned(),
            status: ConditionStatus::Unknown,
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: String::new(),
            observed_generation: Some(1),
        };
        let progress = Some(progress.to_owned());
        WorkflowStatus { progress, conditions: vec![condition], ..WorkflowStatus::default() }
    }

    #[test]
    fn changed_statuses_are_written_at_intervals() {
        let before = status("1/9", "Running", "");
        let seconds = Duration::from_secs;
        for (after, since, expected) in [
            (status("1/9", "Running", ""), 100, WriteDecision::Nothing),
            (status("2/9", "Running", ""), 100, WriteDecision::Now),
            (status("2/9", "Running", ""), 5, WriteDecision::Now),
            (status("2/9", "Running", ""), 2, WriteDecision::After(seconds(3))),
            (status("1/9", "Running", "words"), 0, WriteDecision::After(seconds(5))),
            (status("1/9", "Suspended", ""), 0, WriteDecision::Now),
        ] {
            assert_eq!(decide(Some(&before), &after, seconds(since)), expected, "{after:?} after {since} s");
        }
        assert_eq!(decide(None, &before, Duration::ZERO), WriteDecision::Now);
        let mut edited = before.clone();
        edited.conditions[0].observed_generation = Some(2);
        assert_eq!(
            decide(Some(&before), &edited, Duration::ZERO),
            WriteDecision::Now,
            "who waits for an edit is told at once"
        );
    }

    #[test]
    fn changed_conditions_are_written_at_once() {
        let before = status("1/9", "Running", "");
        type Change = fn(&mut Condition);
        let changes: [(Change, bool); 6] = [
            (|one| one.type_ = "Other".to_owned(), true),
            (|one| one.status = ConditionStatus::True, true),
            (|one| one.reason = "Other".to_owned(), true),
            (|one| one.observed_generation = None, true),
            (|one| one.message = "Other".to_owned(), false),
            (|one| one.last_transition_time = "Other".to_owned(), false),
        ];
        for (number, (change, at_once)) in changes.into_iter().enumerate() {
            let mut after = before.clone();
            change(&mut after.conditions[0]);
            let expected = if at_once { WriteDecision::Now } else { WriteDecision::After(Duration::from_millis(1)) };
            let since = Duration::from_millis(4_999);
            assert_eq!(decide(Some(&before), &after, since), expected, "change {number}");
            assert_eq!(decide(Some(&before), &after, Duration::from_secs(5)), WriteDecision::Now, "change {number}");
        }
        let mut fewer = before.clone();
        fewer.conditions.clear();
        assert_eq!(decide(Some(&before), &fewer, Duration::ZERO), WriteDecision::Now);
    }
}
