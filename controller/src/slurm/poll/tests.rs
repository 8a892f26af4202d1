#![allow(clippy::unwrap_used)]

use std::time::Duration;

use torc_core::ids::WorkflowId;

use super::super::tests::{FakeSlurm, row};
use super::*;

const IDENTITY: &str = "0a1b";

/// Returns a line of `squeue`.
fn queued(number: &str, state: &str, comment: &str, name: &str) -> String {
    format!("{number}|{state}|gpu|2|2026-01-01T00:00:10|2026-01-01T00:00:20|1:00|n[1-2]|{comment}|{name}|Priority\n")
}

/// Returns a line of `sacct`.
fn recorded_line(number: &str, state: &str, name: &str) -> String {
    format!("{number}|{state}|0:0|2026-01-01T00:00:30|2026-01-01T00:00:40|n3|{name}\n")
}

const T: i64 = 1_767_225_600_000;

#[tokio::test]
async fn what_the_queue_says_is_taken_over_field_by_field() {
    let slurm = FakeSlurm::new();
    let lines = [queued("71", "RUNNING", "c", "x"), queued("72", "PENDING", "c", "x")].concat();
    slurm.set_output("squeue", &lines);
    let mut clusters = slurm.clusters();
    let rows = [row(1, Some("72")), row(2, None), row(4, Some("71"))];
    let seen = poll_allocations(clusters.get("local", None).unwrap(), &rows, &mut MissingSince::new()).await;
    let expected = |id: i64, state: SlurmState, text: &str| Observation {
        key: (WorkflowId(3), AllocationId(id)),
        observation: SlurmObservation::Queued(state),
        unseen_ms: 0,
        state_text: Some(text.to_owned()),
        reason: Some("Priority".to_owned()),
        start_ms: Some(T + 10_000),
        end_ms: Some(T + 20_000),
        node_list: Some("n[1-2]".to_owned()),
        partition: Some("gpu".to_owned()),
        former_end: None,
    };
    assert_eq!(seen, [expected(1, SlurmState::Pending, "PENDING"), expected(4, SlurmState::Running, "RUNNING")]);
    assert_eq!(slurm.calls("squeue").len(), 1, "one call for all");
    assert!(slurm.calls("squeue").is_empty() && slurm.calls("sacct").is_empty(), "the queue knows all of them");
}

// R01, R02
#[tokio::test]
async fn what_the_queue_has_forgotten_is_looked_up_in_the_accounting() {
    let slurm = FakeSlurm::new();
    slurm.set_output("squeue", &queued("71", "RUNNING", "c", "x"));
    slurm.set_output("sacct", &recorded_line("72", "TIMEOUT", "x"));
    let mut clusters = slurm.clusters();
    let rows = [row(1, Some("71")), row(2, Some("72")), row(4, Some("73"))];
    let seen = poll_allocations(clusters.get("local", None).unwrap(), &rows, &mut MissingSince::new()).await;
    assert_eq!(seen[0].observation, SlurmObservation::Queued(SlurmState::Running));
    let recorded = Observation {
        observation: SlurmObservation::Recorded(SlurmState::Timeout),
        state_text: Some("TIMEOUT".to_owned()),
        end_ms: Some(T + 40_000),
        ..Observation::unanswered((WorkflowId(3), AllocationId(2)))
    };
    assert_eq!(seen[1], recorded);
    assert_eq!(seen[2].observation, SlurmObservation::Unseen);
    let requested = slurm.calls("sacct");
    assert!(requested.len() == 1 && requested[0].ends_with("-j 72,73"), "only of those: {requested:?}");
}

// R01
#[tokio::test]
async fn an_allocation_is_missing_since_it_was_first_missed() {
    let slurm = FakeSlurm::new();
    let (mut clusters, mut unseen) = (slurm.clusters(), MissingSince::new());
    let cluster = clusters.get("local", None).unwrap();
    let rows = [row(1, Some("71"))];
    let mut missing = async |seconds: u64| {
        slurm.advance(Duration::from_secs(seconds));
        let seen = poll_allocations(cluster, &rows, &mut unseen).await.remove(0);
        (seen.observation, seen.unseen_ms)
    };
    assert_eq!(missing(100).await, (SlurmObservation::Unseen, 0));
    assert_eq!(missing(59).await, (SlurmObservation::Unseen, 59_000));
    assert_eq!(missing(1).await, (SlurmObservation::Unseen, 60_000));
    slurm.refuses("sacct", "sacct: error: Unable to contact slurm controller (connect failure)");
    assert_eq!(missing(5).await, (SlurmObservation::NoAnswer, 0), "it is unknown");
    slurm.relents("sacct");
    assert_eq!(missing(5).await, (SlurmObservation::Unseen, 70_000));
    slurm.set_output("squeue", &queued("71", "RUNNING", "c", "x"));
    assert_eq!(missing(5).await, (SlurmObservation::Queued(SlurmState::Running), 0));
    slurm.set_output("squeue", "");
    assert_eq!(missing(5).await, (SlurmObservation::Unseen, 0), "it was there in between");
}

#[tokio::test]
async fn an_answer_that_did_not_come_says_nothing() {
    let slurm = FakeSlurm::new();
    let mut clusters = slurm.clusters();
    let cluster = clusters.get("local", None).unwrap();
    let rows = [row(1, Some("71")), row(2, Some("72"))];
    let unanswered: Vec<Observation> = rows.iter().map(|row| Observation::unanswered(key(row))).collect();
    slurm.refuses("squeue", "squeue: error: Socket timed out on send/recv operation");
    assert_eq!(poll_allocations(cluster, &rows, &mut MissingSince::new()).await, unanswered);
    slurm.set_output("squeue", "not a line of squeue\n");
    assert_eq!(poll_allocations(cluster, &rows, &mut MissingSince::new()).await, unanswered);
    // The empty answer of a site without accounting is an answer.
    slurm.set_output("squeue", "");
    slurm.refuses("sacct", "Slurm accounting storage is disabled");
    let seen = poll_allocations(cluster, &rows, &mut MissingSince::new()).await;
    assert_eq!(seen.iter().map(|one| one.observation).collect::<Vec<_>>(), [SlurmObservation::Unseen; 2]);
    assert!(
        poll_allocations(cluster, &[row(1, None)], &mut MissingSince::new()).await.is_empty(),
        "one without a number is not looked for"
    );
}

#[tokio::test]
async fn of_one_that_was_requeued_the_accounting_knows_the_former_end() {
    let slurm = FakeSlurm::new();
    let mut clusters = slurm.clusters();
    let cluster = clusters.get("local", None).unwrap();
    slurm.set_output("squeue", &[queued("71", "PENDING", "c", "x"), queued("72", "PENDING", "c", "x")].concat());
    let records = [
        recorded_line("71", "NODE_FAIL", "x"),
        recorded_line("71", "PREEMPTED", "x"),
        recorded_line("71", "PENDING", "x"),
        recorded_line("71", "RUNNING", "x"),
        recorded_line("72", "TIMEOUT", "x"),
    ];
    slurm.set_output("sacct", &records.concat());
    let started = |row: AllocationRow| AllocationRow {
        started_ms: Some(5),
        status: torc_api::allocation::AllocationStatus::Active,
        ..row
    };
    let rows = [started(row(1, Some("71"))), row(2, Some("72"))];
    let seen = poll_allocations(cluster, &rows, &mut MissingSince::new()).await;
    assert_eq!(seen[0].former_end, Some(SlurmState::Preempted), "the latest end, not the latest record");
    assert_eq!(seen[1].former_end, None, "it has never started");
    let requested = slurm.calls("sacct");
    assert!(requested.len() == 1 && requested[0].contains("-D") && requested[0].ends_with("-j 71"), "{requested:?}");
}

/// Returns the search results for allocations without a Slurm job ID, `called_ms_ago` after the call of `sbatch`.
async fn found(slurm: &FakeSlurm, rows: &[AllocationRow], called_ms_ago: i64) -> Vec<(i64, PollResult)> {
    let mut clusters = slurm.clusters();
    let named = |row: &AllocationRow| slurm_name(row, IDENTITY);
    let found = search(clusters.get("local", None).unwrap(), rows, &named, IDENTITY, 1_000 + called_ms_ago).await;
    found.into_iter().map(|((_, id), found)| (id.0, found)).collect()
}

fn there(number: &str, copies: &[&str]) -> PollResult {
    PollResult::There(number.to_owned(), copies.iter().map(|&copy| copy.to_owned()).collect())
}

// R08
#[tokio::test]
async fn a_submission_that_was_cut_short_is_found_by_its_name() {
    let slurm = FakeSlurm::new();
    let name = |id: i64| slurm_name(&row(id, None), IDENTITY);
    let lines = [
        queued("71", "PENDING", &name(1), &name(1)),
        queued("72", "PENDING", "(null)", &name(1)),
        queued("73", "PENDING", "another user's", &name(1)),
        queued("74", "PENDING", &name(2), &name(2)),
    ];
    slurm.set_output("squeue", &lines.concat());
    let rows = [row(1, None), row(2, Some("74")), row(4, None)];
    assert_eq!(found(&slurm, &rows, 59_999).await, [(1, there("71", &["72"])), (4, PollResult::Unclear)]);
    assert_eq!(found(&slurm, &rows, 60_000).await, [(1, there("71", &["72"])), (4, PollResult::Lost)]);
    let requested = slurm.calls("sacct");
    assert!(
        requested[0].ends_with(&format!("--name={}", name(4))),
        "only of the one that the queue does not know: {requested:?}"
    );
    assert!(requested[0].contains("-S 2026-09-21T14:12:20"), "from a minute before it was decided upon: {requested:?}");
    slurm.set_output(
        "sacct",
        &[recorded_line("71", "COMPLETED", &name(4)), recorded_line("75", "COMPLETED", &name(4))].concat(),
    );
    let taken = [(1, there("71", &["72"])), (4, there("75", &[]))];
    assert_eq!(found(&slurm, &rows, 60_000).await, taken, "a number that is taken is not taken again");
}

#[tokio::test]
async fn a_submission_is_not_lost_while_slurm_does_not_answer() {
    let slurm = FakeSlurm::new();
    let rows = [row(1, None)];
    let silent = "error: Unable to contact slurm controller (connect failure)";
    slurm.refuses("squeue", silent);
    assert_eq!(found(&slurm, &rows, 900_000).await, [(1, PollResult::Unclear)]);
    slurm.relents("squeue");
    slurm.refuses("sacct", silent);
    assert_eq!(found(&slurm, &rows, 900_000).await, [(1, PollResult::Unclear)]);
    slurm.refuses("sacct", "Slurm accounting storage is disabled");
    assert_eq!(found(&slurm, &rows, 900_000).await, [(1, PollResult::Lost)]);
    let uncalled = AllocationRow { called_ms: None, ..row(1, None) };
    assert!(found(&slurm, &[uncalled, row(2, Some("9"))], 900_000).await.is_empty(), "there is nothing to find out");
}

/// Allocations that run one after another share a name, but not a comment.
#[tokio::test]
async fn serialized_allocations_are_told_apart_by_their_comments() {
    let slurm = FakeSlurm::new();
    let comment = |id: i64| slurm_name(&row(id, None), IDENTITY);
    let lines = [queued("71", "PENDING", &comment(2), "chain"), queued("72", "PENDING", &comment(1), "chain")];
    slurm.set_output("squeue", &lines.concat());
    let mut clusters = slurm.clusters();
    let named = |_: &AllocationRow| "chain".to_owned();
    let rows = [row(1, None), row(2, None)];
    let found = search(clusters.get("local", None).unwrap(), &rows, &named, IDENTITY, 2_000).await;
    let found: Vec<PollResult> = found.into_iter().map(|(_, found)| found).collect();
    assert_eq!(found, [there("72", &[]), there("71", &[])]);
}

#[tokio::test]
async fn the_accounting_is_asked_from_the_earliest_decision_on() {
    let slurm = FakeSlurm::new();
    let later = AllocationRow { created_ms: 1_790_000_900_000, ..row(1, None) };
    found(&slurm, &[later, row(2, None)], 5).await;
    let requested = slurm.calls("sacct");
    assert!(requested.len() == 1 && requested[0].contains("-S 2026-09-21T14:12:20"), "{requested:?}");
}
