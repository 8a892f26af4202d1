//! When a status is written: at once when a condition changes, else at most every few seconds, and never without need. Pure.

use std::time::Duration;

use torc_api::status::{Condition, WorkflowStatus};

/// Between two writes that tell of progress alone.
pub(super) const PAUSE: Duration = Duration::from_secs(5);

/// Whether to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// There is nothing new.
    Nothing,
    /// Now.
    Now,
    /// Not before so long.
    After(Duration),
}

/// Decides. `since` is how long ago the last write was.
pub(super) fn decide(before: Option<&WorkflowStatus>, after: &WorkflowStatus, since: Duration) -> Decision {
    match before {
        Some(before) if before == after => Decision::Nothing,
        Some(before) if !has_moved(&before.conditions, &after.conditions) && since < PAUSE => {
            Decision::After(PAUSE - since)
        }
        _ => Decision::Now,
    }
}

/// A condition says something else; its message and times are only words about it.
fn has_moved(before: &[Condition], after: &[Condition]) -> bool {
    let value = |condition: &Condition| {
        let Condition { type_, status, reason, observed_generation, .. } = condition.clone();
        (type_, status, reason, observed_generation)
    };
    !before.iter().map(value).eq(after.iter().map(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(progress: &str, reason: &str, message: &str) -> WorkflowStatus {
        let condition = Condition {
            type_: "Succeeded".to_owned(),
            status: "Unknown".to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: String::new(),
            observed_generation: Some(1),
        };
        let progress = Some(progress.to_owned());
        WorkflowStatus { progress, conditions: vec![condition], ..WorkflowStatus::default() }
    }

    #[test]
    fn statuses_are_written_when_they_say_something_new_and_not_too_often() {
        let before = status("1/9", "Running", "");
        let seconds = Duration::from_secs;
        for (after, since, expected) in [
            (status("1/9", "Running", ""), 100, Decision::Nothing),
            (status("2/9", "Running", ""), 100, Decision::Now),
            (status("2/9", "Running", ""), 5, Decision::Now),
            (status("2/9", "Running", ""), 2, Decision::After(seconds(3))),
            (status("1/9", "Running", "words"), 0, Decision::After(seconds(5))),
            (status("1/9", "Suspended", ""), 0, Decision::Now),
        ] {
            assert_eq!(decide(Some(&before), &after, seconds(since)), expected, "{after:?} after {since} s");
        }
        assert_eq!(decide(None, &before, Duration::ZERO), Decision::Now);
        let mut edited = before.clone();
        edited.conditions[0].observed_generation = Some(2);
        assert_eq!(
            decide(Some(&before), &edited, Duration::ZERO),
            Decision::Now,
            "who waits for an edit is told at once"
        );
    }
}
