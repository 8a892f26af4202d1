//! The status of a SlurmCluster, and when to write it.

use std::time::Duration;

use torc_api::cluster::SlurmClusterStatus;
use torc_api::condition::Condition;

/// Minimum interval between writes that only update the time of contact.
const MIN_CONTACT_INTERVAL: Duration = Duration::from_secs(60);

/// Returns the status. Its times change only when a value changes.
pub(super) fn report(
    found: SlurmClusterStatus,
    before: Option<&SlurmClusterStatus>,
    generation: i64,
    now: &str,
) -> SlurmClusterStatus {
    let conditions = found.conditions.into_iter().map(|condition| {
        let known = before.and_then(|before| before.conditions.iter().find(|one| one.type_ == condition.type_));
        let since = known.filter(|known| known.status == condition.status);
        let last_transition_time = since.map_or_else(|| now.to_owned(), |since| since.last_transition_time.clone());
        Condition { last_transition_time, observed_generation: Some(generation), ..condition }
    });
    SlurmClusterStatus { conditions: conditions.collect(), ..found }
}

/// Returns whether to write a status. `age` is the time since this process wrote the last one.
pub(super) fn is_due(before: Option<&SlurmClusterStatus>, after: &SlurmClusterStatus, age: Option<Duration>) -> bool {
    let Some(before) = before else { return true };
    let besides = |status: &SlurmClusterStatus| SlurmClusterStatus { last_contact_time: None, ..status.clone() };
    besides(before) != besides(after) || (before != after && age.is_none_or(|age| age >= MIN_CONTACT_INTERVAL))
}

#[cfg(test)]
mod tests {
    use torc_api::condition::ConditionStatus;

    use super::*;

    fn status(ready: ConditionStatus, contact: &str) -> SlurmClusterStatus {
        SlurmClusterStatus {
            last_contact_time: Some(contact.to_owned()),
            conditions: vec![Condition {
                type_: "Ready".to_owned(),
                status: ready,
                reason: "Answered".to_owned(),
                message: String::new(),
                last_transition_time: "then".to_owned(),
                observed_generation: Some(2),
            }],
            ..SlurmClusterStatus::default()
        }
    }

    #[test]
    fn times_move_with_values() {
        let before = status(ConditionStatus::True, "1");
        let since = |found: SlurmClusterStatus, before: Option<&SlurmClusterStatus>| {
            report(found, before, 3, "now").conditions[0].clone()
        };
        assert_eq!(since(status(ConditionStatus::True, "2"), Some(&before)).last_transition_time, "then");
        assert_eq!(since(status(ConditionStatus::False, "2"), Some(&before)).last_transition_time, "now");
        assert_eq!(since(status(ConditionStatus::True, "2"), None).observed_generation, Some(3));
    }

    #[test]
    fn contact_alone_is_written_once_a_minute() {
        let before = status(ConditionStatus::True, "1");
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (after, age, expected) in [
            (status(ConditionStatus::True, "1"), seconds(600), false),
            (status(ConditionStatus::True, "2"), seconds(59), false),
            (status(ConditionStatus::True, "2"), seconds(60), true),
            (status(ConditionStatus::False, "1"), seconds(0), true),
        ] {
            assert_eq!(is_due(Some(&before), &after, age), expected, "{after:?}");
        }
        assert!(is_due(None, &before, None));
    }

    #[test]
    fn everything_but_the_contact_is_written_at_once() {
        let before = status(ConditionStatus::True, "1");
        let mut counted = before.clone();
        counted.partition_count = Some(3);
        assert!(is_due(Some(&before), &counted, Some(Duration::ZERO)));
        assert!(is_due(Some(&before), &status(ConditionStatus::True, "2"), None), "this process has written none");
        assert!(!is_due(Some(&before), &before, None));
        let said = report(
            SlurmClusterStatus { partition_count: Some(7), ..status(ConditionStatus::True, "9") },
            None,
            5,
            "now",
        );
        assert_eq!((said.partition_count, said.last_contact_time.as_deref()), (Some(7), Some("9")));
        let condition = &said.conditions[0];
        assert_eq!((condition.reason.as_str(), condition.last_transition_time.as_str()), ("Answered", "now"));
    }
}
