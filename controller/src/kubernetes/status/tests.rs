#![allow(clippy::unwrap_used)]

use torc_api::state::Cause;
use torc_api::status::FailureSample;

use super::*;

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-01T00:10:00Z";
const NOW: &str = "2026-01-01T01:00:00Z";

fn stated(type_: ConditionType, status: ConditionStatus, reason: ConditionReason, since: &str) -> Condition {
    Condition { last_transition_time: since.to_owned(), ..plain(type_, status, reason, String::new(), 1) }
}

fn running() -> WorkflowStatus {
    WorkflowStatus {
        conditions: vec![
            stated(ConditionType::Accepted, ConditionStatus::True, ConditionReason::Planned, EARLY),
            stated(ConditionType::Finished, ConditionStatus::False, ConditionReason::Running, EARLY),
            stated(ConditionType::Succeeded, ConditionStatus::Unknown, ConditionReason::Running, EARLY),
        ],
        ..WorkflowStatus::default()
    }
}

fn view<'a>(engine: Option<&'a WorkflowStatus>, rejection: Option<&'a Rejection>) -> View<'a> {
    View { engine, generation: 3, accepted: None, rejection, lingers: None, before: &[], now: NOW, api_url: None }
}

fn summary(status: &WorkflowStatus) -> Vec<String> {
    let one = |condition: &Condition| {
        let observed = condition.observed_generation.unwrap();
        format!("{}={}/{}@{observed}", condition.type_, condition.status, condition.reason)
    };
    status.conditions.iter().map(one).collect()
}

#[test]
fn every_condition_is_there_from_the_first_time() {
    let accepted = View { accepted: Some(3), ..view(None, None) };
    let running = running();
    let status = status(&View { engine: Some(&running), ..accepted });
    assert_eq!(
        summary(&status),
        [
            "Accepted=True/Planned@3",
            "AllocationsReady=True/NotNeeded@3",
            "Suspended=False/NotSuspended@3",
            "Recovering=False/NotRecovering@3",
            "Stalled=False/NotStalled@3",
            "Finished=False/Running@3",
            "Succeeded=Unknown/Running@3",
        ]
    );
    assert_eq!(status.observed_generation, Some(3));
}

#[test]
fn what_was_never_accepted() {
    let rejection = Rejection { reason: ConditionReason::CycleFound, message: "jobs wait for each other".to_owned() };
    let status = status(&view(None, Some(&rejection)));
    assert_eq!(summary(&status)[0], "Accepted=False/CycleFound@3");
    assert_eq!(summary(&status)[5..], ["Finished=False/NotStarted@3", "Succeeded=False/InvalidSpec@3"]);
    assert_eq!(status.conditions[6].message, "jobs wait for each other");
    assert!(status.conditions.iter().all(|condition| condition.last_transition_time == NOW));
}

#[test]
fn a_refused_edit_leaves_what_was_accepted_before_as_it_is() {
    let rejection = Rejection { reason: ConditionReason::InvalidSpec, message: "no".to_owned() };
    let running = running();
    let status = status(&View { accepted: Some(2), ..view(Some(&running), Some(&rejection)) });
    let said = summary(&status);
    assert_eq!((said[0].as_str(), said[6].as_str()), ("Accepted=False/InvalidSpec@3", "Succeeded=Unknown/Running@2"));
    assert_eq!(status.observed_generation, Some(3), "it was looked at");
}

#[test]
fn times_of_change_move_only_with_the_value() {
    let running = running();
    for (before, expected) in [
        (vec![], EARLY),
        (vec![stated(ConditionType::Accepted, ConditionStatus::True, ConditionReason::Planned, LATE)], LATE),
        (vec![stated(ConditionType::Accepted, ConditionStatus::False, ConditionReason::InvalidSpec, LATE)], NOW),
        (vec![stated(ConditionType::Accepted, ConditionStatus::False, ConditionReason::InvalidSpec, EARLY)], NOW),
        (vec![stated(ConditionType::Finished, ConditionStatus::True, ConditionReason::Succeeded, LATE)], EARLY),
        (
            vec![stated(
                ConditionType::Accepted,
                ConditionStatus::False,
                ConditionReason::InvalidSpec,
                "2025-01-01T00:00:00Z",
            )],
            EARLY,
        ),
    ] {
        let view = View { accepted: Some(3), before: &before, ..view(Some(&running), None) };
        assert_eq!(status(&view).conditions[0].last_transition_time, expected, "{before:?}");
    }
}

#[test]
fn a_status_is_small_whatever_happens() {
    let failure = |number: i32| FailureSample {
        job: format!("{}{number}", "j".repeat(1_000)),
        attempt: 1,
        return_code: Some(1),
        cause: Cause::ExitCode,
        time: NOW.to_owned(),
    };
    let mut engine = running();
    engine.failures = (0..20).map(failure).collect();
    engine.conditions[2].message = "ü".repeat(5_000);
    let status = status(&View { accepted: Some(3), ..view(Some(&engine), None) });
    assert!(serde_json::to_string(&status).unwrap().len() < 8 << 10);
    assert_eq!(status.failures.last().unwrap().job, failure(19).job, "the latest stay");
    assert!(status.conditions[6].message.len() <= 600 && status.conditions[6].message.ends_with('…'));
}

#[test]
fn what_lingers_says_what_it_waits_for() {
    let running = running();
    let status = status(&View { accepted: Some(3), lingers: Some("it waits"), ..view(Some(&running), None) });
    assert_eq!(summary(&status)[4], "Stalled=True/SlurmUnreachable@3");
    assert_eq!(status.conditions[4].message, "it waits");
    assert_eq!(summary(&status)[6], "Succeeded=Unknown/Running@3", "the rest is as it was");
}

#[test]
fn an_object_without_a_reconcile_is_pending() {
    let status = status(&View { api_url: Some("http://torc"), ..view(None, None) });
    assert_eq!(summary(&status)[0], "Accepted=Unknown/Pending@3");
    assert_eq!(summary(&status)[5..], ["Finished=False/NotStarted@3", "Succeeded=Unknown/Pending@3"]);
    assert_eq!(status.api_url.as_deref(), Some("http://torc"));
    assert_eq!(status.allocations, Some(Default::default()), "a column that is empty says less than a zero");
}

#[test]
fn what_is_left_to_another_controller_says_to_whom() {
    let condition = unmanaged_status(2, "example.com/other", NOW);
    assert_eq!((condition.type_.as_str(), condition.reason.as_str()), ("Suspended", "ManagedByOther"));
    assert_eq!((condition.observed_generation, condition.last_transition_time.as_str()), (Some(2), NOW));
    assert!(condition.message.contains("example.com/other"));
}

#[test]
fn what_was_not_stated_has_its_own_words() {
    let expected = [
        "Accepted=Unknown/Pending@9",
        "AllocationsReady=True/NotNeeded@9",
        "Suspended=False/NotSuspended@9",
        "Recovering=False/NotRecovering@9",
        "Stalled=False/NotStalled@9",
        "Finished=False/NotStarted@9",
        "Succeeded=Unknown/Pending@9",
    ];
    assert_eq!(summary(&status(&View { generation: 9, ..view(None, None) })), expected);
}

#[test]
fn a_message_is_cut_at_a_character() {
    for (text, most, expected) in [
        ("abcd", 4, "abcd"),
        ("abcde", 4, "a…"),
        ("aüüü", 7, "aüüü"),
        ("aüüü", 6, "aü…"),
        ("üüü", 5, "ü…"),
        ("abc", 2, "…"),
    ] {
        assert_eq!(cut(text, most), expected, "{text} in {most} bytes");
    }
    let mut engine = running();
    engine.conditions[0].message = "x".repeat(600);
    let whole = status(&View { accepted: Some(3), ..view(Some(&engine), None) });
    assert_eq!(whole.conditions[0].message.len(), 600, "what fits is not cut");
}

#[test]
fn a_rejection_that_lingers_keeps_both_reasons() {
    let rejection = Rejection { reason: ConditionReason::TooLarge, message: "big".to_owned() };
    let view = View { lingers: Some("waits"), ..view(None, Some(&rejection)) };
    let said = status(&view);
    let of = |at: usize| (summary(&said)[at].clone(), said.conditions[at].message.clone());
    assert_eq!(of(0), ("Accepted=False/TooLarge@3".to_owned(), "big".to_owned()));
    assert_eq!(of(4), ("Stalled=True/SlurmUnreachable@3".to_owned(), "waits".to_owned()));
}
