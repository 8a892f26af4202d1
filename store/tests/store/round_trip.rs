//! The tables and a load contain exactly the changes that were written, for arbitrary groups.

use proptest::collection::vec;
use proptest::prelude::*;
use torc_api::filter::EventFilter;
use torc_api::state::{Cause, JobState};
use torc_api::wire::LeaseRole;
use torc_core::ids::{AllocationId, JobId, RunnerId, WorkflowId};
use torc_core::rows::{
    ActionRow, AllocationRow, Changes, DetachedLease, DetachedState, EventRow, JobRow, JobUpdate, LastIds, RecoveryRow,
    ResultRow, TaskLease, UserDataRow, WorkflowRow,
};
use torc_core::testing::Database;
use torc_store::Store;

use crate::generators::{event_row, groups};
use crate::samples::{failure, job, load, new_store, options, profile, result, runner, update, workflow};
use crate::tables::{self, Beside};

async fn check(groups: &[Changes]) {
    let (folder, store) = new_store().await;
    let identity = store.load().await.unwrap().identity;
    let (mut model, beside) = (Database::with_identity(identity), Beside::default());
    for group in groups {
        store.commit(group).await.unwrap();
        model.write(group);
        tables::check(&store, &model, &beside).await;
        assert_eq!(store.load().await.unwrap(), model.snapshot());
    }
    store.close().await.unwrap();
    let store = Store::open(options(&folder)).await.unwrap();
    tables::check(&store, &model, &beside).await;
    assert_eq!(store.load().await.unwrap(), model.snapshot(), "after opening it again");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tables_and_a_load_have_what_was_committed(groups in groups(0.3)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(check(&groups));
    }

    #[test]
    fn events_come_back_in_order(events in vec(event_row(), 1..300)) {
        let mut events = events;
        events.iter_mut().zip(1..).for_each(|(event, sequence)| event.sequence = sequence);
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (_folder, store) = new_store().await;
            store.commit(&Changes { events: events.clone(), ..Changes::default() }).await.unwrap();
            let found = store.events(&EventFilter { limit: Some(1_000), ..EventFilter::default() }).await.unwrap();
            let found: Vec<EventRow> = found.items.into_iter().map(|view| view.event).collect();
            assert_eq!(found, events);
        });
    }
}

#[tokio::test]
async fn every_size_of_a_group_is_written_whole() {
    let (_folder, store) = new_store().await;
    let mut model = Database::default();
    let mut next = 1;
    for size in [1, 3, 4, 5, 16, 17, 64, 65, 255, 256, 257, 700] {
        let ids: Vec<i64> = (next..next + size).collect();
        next += size;
        let changes = Changes {
            workflows: vec![workflow(1)],
            profiles: vec![profile(1, 1)],
            jobs: ids.iter().map(|id| job(*id, 1, 1)).collect(),
            job_updates: ids.iter().map(|id| update(*id, JobState::Completed)).collect(),
            results: ids.iter().map(|id| result(1, *id, 1)).collect(),
            ..Changes::default()
        };
        store.commit(&changes).await.unwrap();
        model.write(&changes);
        assert_eq!(load(&store).await, model.snapshot(), "{size} rows");
    }
}

#[tokio::test]
async fn the_last_update_of_a_job_wins() {
    let (_folder, store) = new_store().await;
    let states = [JobState::Leased, JobState::Running, JobState::Completed];
    let changes = Changes {
        workflows: vec![workflow(1)],
        jobs: vec![job(1, 1, 1), job(2, 1, 1)],
        job_updates: states.into_iter().flat_map(|state| [update(2, state), update(1, state)]).collect(),
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let found: Vec<JobState> = store.load().await.unwrap().jobs.iter().map(|job| job.state).collect();
    assert_eq!(found, [JobState::Completed; 2]);
}

#[tokio::test]
async fn names_of_removed_jobs_and_deleted_workflows_are_free() {
    let (_folder, store) = new_store().await;
    let named = |id, workflow| JobRow { name: "train".to_owned(), ..job(id, workflow, 1) };
    let first = Changes { workflows: vec![workflow(1)], jobs: vec![named(1, 1)], ..Changes::default() };
    store.commit(&first).await.unwrap();
    let second = Changes { jobs: vec![named(2, 1)], removed_jobs: vec![JobId(1)], ..Changes::default() };
    store.commit(&second).await.unwrap();
    let third = Changes {
        workflows: vec![WorkflowRow { name: "workflow-1".to_owned(), ..workflow(2) }],
        deleted_workflows: vec![WorkflowId(1)],
        jobs: vec![named(3, 2)],
        ..Changes::default()
    };
    store.commit(&third).await.unwrap();
    let snapshot = store.load().await.unwrap();
    assert_eq!(snapshot.jobs, [named(3, 2)]);
    assert_eq!((snapshot.last.workflow, snapshot.last.job), (2, 3));
}

/// The latest 20 failures of each workflow's current run are loaded. Among equal end times, higher numbers come first.
#[tokio::test]
async fn a_load_has_the_latest_20_failures_of_each_workflow() {
    let (_folder, store) = new_store().await;
    let failed = |job: i64, attempt, ended_ms| ResultRow { run: 2, ..failure(1 + job % 2, job, attempt, ended_ms) };
    // Even jobs belong to the first workflow: lower numbers ended later. Odd jobs belong to the second and ended together.
    let ended_ms = |job: i64| if job % 2 == 0 { 50 - job } else { 60 };
    let both = |job: i64| [failed(job, 1, ended_ms(job)), failed(job, 2, ended_ms(job))];
    let mut results: Vec<ResultRow> = (1..=42).flat_map(both).collect();
    results.push(ResultRow { run: 1, ..failure(1, 2, 1, 90) });
    results.push(ResultRow { run: 3, ..failure(1, 2, 1, 91) });
    results.push(ResultRow { cause: None, ..failed(2, 3, 92) });
    results.push(ResultRow { state: JobState::Canceled, ..failed(2, 4, 93) });
    results.push(ResultRow { state: JobState::Terminated, cause: Some(Cause::Timeout), ..failed(2, 5, 94) });
    results.push(failed(43, 1, 95));
    let current = |id| WorkflowRow { run: 2, ..workflow(id) };
    let changes = Changes {
        workflows: vec![current(1), current(2)],
        jobs: (1..=43).map(|id| job(id, 1 + id % 2, 1)).collect(),
        removed_jobs: vec![JobId(43)],
        results,
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let found = store.load().await.unwrap().latest_failures;
    let keys: Vec<(i64, i64, i32)> = found.iter().map(|row| (row.workflow.0, row.job.0, row.attempt)).collect();
    let of_first = (2..=20).rev().step_by(2).flat_map(|job| [(1, job, 1), (1, job, 2)]).skip(1).chain([(1, 2, 5)]);
    let of_second = (23..=41).step_by(2).flat_map(|job| [(2, job, 1), (2, job, 2)]);
    assert_eq!(keys, of_first.chain(of_second).collect::<Vec<_>>());
}

/// Retry budgets count the attempts of a job's current run, by cause.
#[tokio::test]
async fn a_load_counts_failures_of_the_jobs_run_by_cause() {
    let (_folder, store) = new_store().await;
    let of = |job: i64, run, attempt, cause| ResultRow { run, cause: Some(cause), ..failure(1, job, attempt, 1) };
    let changes = Changes {
        workflows: vec![workflow(1)],
        jobs: vec![JobRow { run: 2, ..job(1, 1, 1) }, job(2, 1, 1), job(3, 1, 1)],
        removed_jobs: vec![JobId(3)],
        results: vec![
            of(1, 1, 1, Cause::Lost),
            of(1, 2, 1, Cause::Lost),
            of(1, 2, 2, Cause::Lost),
            of(1, 2, 3, Cause::ExitCode),
            ResultRow { cause: None, ..of(1, 2, 4, Cause::Lost) },
            of(1, 3, 1, Cause::Lost),
            of(2, 1, 1, Cause::Timeout),
            of(3, 1, 1, Cause::Timeout),
        ],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let expected = [(JobId(1), Cause::ExitCode, 1), (JobId(1), Cause::Lost, 2), (JobId(2), Cause::Timeout, 1)];
    assert_eq!(store.load().await.unwrap().failures, expected);
}

/// All rows of a deleted workflow are deleted, and no rows of others. Events that report the deletion stay.
#[tokio::test]
async fn a_deletion_in_its_own_group_leaves_only_its_events() {
    let (_folder, store) = new_store().await;
    let event = |sequence, workflow| EventRow { sequence, workflow: Some(WorkflowId(workflow)), ..EventRow::default() };
    let first = Changes {
        workflows: vec![workflow(1), workflow(2)],
        events: vec![event(1, 1), event(2, 2)],
        ..Changes::default()
    };
    store.commit(&first).await.unwrap();
    let second = Changes {
        workflows: vec![workflow(1), workflow(3)],
        deleted_workflows: vec![WorkflowId(1), WorkflowId(3)],
        jobs: vec![job(1, 1, 1), job(2, 2, 1), job(3, 3, 1)],
        events: vec![event(3, 1), event(4, 3)],
        ..Changes::default()
    };
    store.commit(&second).await.unwrap();
    let snapshot = load(&store).await;
    assert_eq!(snapshot.workflows, [workflow(2)]);
    assert_eq!(snapshot.jobs, [job(2, 2, 1)]);
    assert_eq!((snapshot.last.workflow, snapshot.last.job), (3, 3), "numbers are never given out again");
    let events = store.events(&EventFilter::default()).await.unwrap().items;
    assert_eq!(events.iter().map(|view| view.event.sequence).collect::<Vec<_>>(), [2, 3, 4]);
}

/// Returns groups with one number that no other row of the group raises.
fn numbered(number: i64) -> Vec<(&'static str, Changes, LastIds)> {
    let none = Changes::default;
    let (workflow_id, lease) = (WorkflowId(1), TaskLease { lease_id: number, ..TaskLease::default() });
    let recovery = RecoveryRow {
        job: JobId(1),
        workflow: workflow_id,
        script: String::new(),
        return_code: 1,
        cause: Cause::Lost,
        preferred: None,
        lease,
    };
    let detached = DetachedLease {
        lease_id: number,
        workflow: workflow_id,
        job: JobId(1),
        run: 1,
        attempt: 1,
        runner: RunnerId(1),
        started_ms: None,
        state: DetachedState::Revoked,
        role: LeaseRole::Job,
    };
    let datum = UserDataRow { workflow: workflow_id, name: "d".to_owned(), lease_id: number, ..UserDataRow::default() };
    let leased = JobUpdate { lease_id: number, ..update(1, JobState::Leased) };
    let held = JobRow { lease_id: number, ..job(1, 1, 1) };
    let action = |id, lease| ActionRow { id: JobId(id), workflow: workflow_id, lease, ..ActionRow::default() };
    let allocation = AllocationRow { id: AllocationId(number), workflow: workflow_id, ..AllocationRow::default() };
    let event = EventRow { sequence: number, ..EventRow::default() };
    let last = LastIds { job: 1, ..LastIds::default() };
    let lease_id = LastIds { lease_id: number, ..LastIds::default() };
    vec![
        (
            "workflow",
            Changes { workflows: vec![workflow(number)], ..none() },
            LastIds { workflow: number, ..LastIds::default() },
        ),
        (
            "deleted workflow",
            Changes { deleted_workflows: vec![WorkflowId(number)], ..none() },
            LastIds { workflow: number, ..LastIds::default() },
        ),
        (
            "profile",
            Changes { profiles: vec![profile(number, 1)], ..none() },
            LastIds { profile: number, ..LastIds::default() },
        ),
        ("job", Changes { jobs: vec![job(number, 1, 1)], ..none() }, LastIds { job: number, ..LastIds::default() }),
        (
            "action",
            Changes { actions: vec![action(number, TaskLease::default())], ..none() },
            LastIds { job: number, ..LastIds::default() },
        ),
        (
            "removed action",
            Changes { removed_actions: vec![JobId(number)], ..none() },
            LastIds { job: number, ..LastIds::default() },
        ),
        (
            "runner",
            Changes { runners: vec![runner(number)], ..none() },
            LastIds { runner: number, ..LastIds::default() },
        ),
        ("event", Changes { events: vec![event], ..none() }, LastIds { event: number, ..LastIds::default() }),
        (
            "allocation",
            Changes { allocations: vec![allocation], ..none() },
            LastIds { allocation: number, ..LastIds::default() },
        ),
        ("lease of a job", Changes { jobs: vec![held], ..none() }, LastIds { lease_id: number, ..last }),
        ("lease of a move", Changes { job_updates: vec![leased], ..none() }, lease_id),
        (
            "lease of an action",
            Changes { actions: vec![action(1, lease)], ..none() },
            LastIds { lease_id: number, ..last },
        ),
        ("lease of a recovery script", Changes { recoveries: vec![recovery], ..none() }, lease_id),
        ("detached lease", Changes { detached_leases: vec![detached], ..none() }, lease_id),
        ("user data", Changes { user_data: vec![datum], ..none() }, lease_id),
    ]
}

/// A number that is used twice would give one job the results of another.
#[tokio::test]
async fn every_row_with_a_number_raises_the_highest_one() {
    for ((what, first, low), (_, second, high)) in numbered(6).into_iter().zip(numbered(9)) {
        let (_folder, store) = new_store().await;
        store.commit(&first).await.unwrap();
        assert_eq!(load(&store).await.last, low, "{what}");
        store.commit(&second).await.unwrap();
        assert_eq!(load(&store).await.last, high, "{what}");
        // A lower number changes nothing, except that the number of an event must be new.
        if what != "event" {
            store.commit(&first).await.unwrap();
            assert_eq!(load(&store).await.last, high, "{what}, and then a lower one");
        }
    }
}
