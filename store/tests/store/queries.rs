//! Lists of arbitrary stores: each filter alone and together with others, compared with plain maps.

use std::collections::{BTreeSet, HashMap};

use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use torc_api::api::Page;
use torc_api::filter::{
    AllocationFilter, AuditFilter, EventFilter, JobFilter, ResultFilter, RunnerFilter, SlurmStatsFilter,
};
use torc_api::state::JobState;
use torc_core::accounting::complete;
use torc_core::ids::{JobId, WorkflowId};
use torc_core::rows::{AllocationRow, AuditRow, Changes, JobRow, ResultRow, RunnerRow};
use torc_core::testing::Database;
use torc_store::{EventView, JobView, ResultView, Store, StoreError};

use crate::generators::{JOBS, WORKFLOWS, groups};
use crate::samples::new_store;

/// All filters of all lists.
#[derive(Clone, Debug)]
struct Filters {
    workflow: Option<WorkflowId>,
    job: Option<JobId>,
    run: Option<i32>,
    attempt: Option<i32>,
    states: Vec<JobState>,
    name: Option<String>,
    contains: Option<String>,
    return_code: Option<i32>,
    who: Option<String>,
    after: i64,
    /// The boolean filter of a list: failed, active or live.
    is_narrow: bool,
    is_latest: bool,
    page: u32,
}

prop_compose! {
    fn filters()(workflow in option::of(1..=WORKFLOWS), job in option::weighted(0.3, 1..=JOBS), run in option::weighted(0.3, 1..3i32),
        attempt in option::weighted(0.3, 1..4i32),
        states in option::weighted(0.3, subsequence(JobState::ALL.to_vec(), 1..8)),
        name in option::weighted(0.3, ("[aB]", 1..=JOBS)), contains in option::weighted(0.3, select(vec!["a", "A", "B-1", "b", "-", "%"])),
        return_code in option::weighted(0.3, 0..4i32), who in option::of("[ab]"), after in 0..4i64,
        (is_narrow, is_latest) in any::<(bool, bool)>(), page in 1..6u32,
    ) -> Filters {
        Filters {
            workflow: workflow.map(WorkflowId),
            job: job.map(JobId),
            run,
            attempt,
            states: states.unwrap_or_default(),
            name: name.map(|(letter, id)| format!("{letter}-{id}")),
            contains: contains.map(str::to_owned),
            return_code,
            who,
            after,
            is_narrow,
            is_latest,
            page,
        }
    }
}

/// Returns all pages. Each but the last must be full and have a cursor.
async fn pages<T>(size: u32, mut ask: impl AsyncFnMut(Option<String>) -> Result<Page<T>, StoreError>) -> Vec<T> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = ask(cursor).await.unwrap();
        let found = u32::try_from(page.items.len()).unwrap();
        assert!(found == size || (found < size && page.next.is_none()), "{found} of {size} and then {:?}", page.next);
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
        assert_eq!(found, size, "a page that is not the last is full");
    }
}

fn is_one<T: PartialEq>(wanted: &Option<T>, found: &T) -> bool {
    wanted.as_ref().is_none_or(|wanted| wanted == found)
}

fn any_job(model: &Database, id: JobId) -> Option<&JobRow> {
    model.jobs.get(&id).or_else(|| model.removed_jobs.get(&id))
}

async fn check_jobs(store: &Store, model: &Database, filters: &Filters) {
    let query = JobFilter {
        workflow: filters.workflow.map(|id| id.0),
        status: filters.states.clone(),
        name: filters.name.clone(),
        contains: filters.contains.clone(),
        cursor: None,
        limit: Some(filters.page),
    };
    let found = pages(filters.page, async |cursor| store.jobs(&JobFilter { cursor, ..query.clone() }).await).await;
    let is_asked = |job: &&JobRow| {
        is_one(&filters.workflow, &job.workflow)
            && (filters.states.is_empty() || filters.states.contains(&job.state))
            && is_one(&filters.name, &job.name)
            && filters.contains.as_ref().is_none_or(|part| job.name.contains(part.as_str()))
    };
    let view = |job: &JobRow| {
        let profile = model.profiles.get(&job.profile)?.profile.clone();
        Some(JobView { job: job.clone(), profile })
    };
    let expected: Vec<JobView> = model.jobs.values().filter(is_asked).filter_map(view).collect();
    assert_eq!(found, expected, "{query:?}");
}

/// Returns whether a later attempt of the same job has a result.
fn is_superseded(model: &Database, row: &ResultRow) -> bool {
    let of_job = model.results.iter().filter(|other| (other.workflow, other.job) == (row.workflow, row.job));
    of_job.map(|other| (other.run, other.attempt)).any(|other| other > (row.run, row.attempt))
}

fn result_view(model: &Database, row: &ResultRow) -> Option<ResultView> {
    let mut result = row.clone();
    if let Some(stats) = model.slurm_stats.get(&(row.workflow.0, row.job.0, row.run, row.attempt)) {
        result.usage = complete(result.usage, stats, row.ended_ms - row.started_ms);
    }
    Some(ResultView {
        workflow_name: model.workflows.get(&row.workflow)?.name.clone(),
        job_name: any_job(model, row.job)?.name.clone(),
        host: row.runner.and_then(|id| model.runners.get(&id)).map(|runner| runner.host.clone()),
        result,
    })
}

async fn check_results(store: &Store, model: &Database, filters: &Filters) {
    let query = ResultFilter {
        workflow: filters.workflow.map(|id| id.0),
        job: filters.job.map(|id| id.0),
        run: filters.run,
        status: filters.states.clone(),
        failed: filters.is_narrow,
        return_code: filters.return_code,
        latest: filters.is_latest,
        cursor: None,
        limit: Some(filters.page),
    };
    let found =
        pages(filters.page, async |cursor| store.results(&ResultFilter { cursor, ..query.clone() }).await).await;
    let is_asked = |row: &&ResultRow| {
        let of_job = |id: JobId| row.job == id && any_job(model, id).is_some_and(|job| job.workflow == row.workflow);
        is_one(&filters.workflow, &row.workflow)
            && filters.job.is_none_or(of_job)
            && is_one(&filters.run, &row.run)
            && (filters.states.is_empty() || filters.states.contains(&row.state))
            && (!filters.is_narrow || matches!(row.state, JobState::Failed | JobState::Terminated))
            && is_one(&filters.return_code, &row.return_code)
            && !(filters.is_latest && is_superseded(model, row))
    };
    let mut expected: Vec<ResultView> =
        model.results.iter().filter(is_asked).filter_map(|row| result_view(model, row)).collect();
    expected.sort_by_key(|view| {
        let row = &view.result;
        (row.workflow, row.job, row.run, row.attempt)
    });
    assert_eq!(found, expected, "{query:?}");
}

// S17
async fn check_slurm_stats(store: &Store, model: &Database, filters: &Filters) {
    let query = SlurmStatsFilter {
        workflow_id: filters.workflow.map(|id| id.0),
        job_id: filters.job.map(|id| id.0),
        run_id: filters.run,
        attempt_id: filters.attempt,
        limit: Some(filters.page),
        ..SlurmStatsFilter::default()
    };
    let ask = async |cursor| store.slurm_stats(&SlurmStatsFilter { cursor, ..query.clone() }).await;
    let found = pages(filters.page, ask).await;
    let expected = model.slurm_stats.values().filter(|row| {
        is_one(&filters.workflow, &WorkflowId(row.workflow))
            && is_one(&filters.job, &JobId(row.job))
            && is_one(&filters.run, &row.run)
            && is_one(&filters.attempt, &row.attempt)
    });
    assert_eq!(found, expected.cloned().collect::<Vec<_>>(), "{query:?}");
}

async fn check_events(store: &Store, model: &Database, filters: &Filters) {
    let workflow = filters.workflow.map(|id| id.0);
    let first = EventFilter { workflow, limit: Some(filters.page), ..EventFilter::default() };
    let ask = async |cursor: Option<String>| {
        let after = cursor.map_or(filters.after, |cursor| cursor.parse().unwrap());
        store.events(&EventFilter { after: Some(after), ..first.clone() }).await
    };
    let found = pages(filters.page, ask).await;
    let asked = model.events.iter().filter(|event| {
        event.sequence > filters.after && filters.workflow.is_none_or(|workflow| event.workflow == Some(workflow))
    });
    let name = |id: &JobId| any_job(model, *id).map_or_else(String::new, |job| job.name.clone());
    let view = |event: &torc_core::rows::EventRow| EventView {
        workflow_name: event.workflow.and_then(|id| model.workflows.get(&id)).map(|workflow| workflow.name.clone()),
        job_names: event.jobs.iter().map(|(job, ..)| name(job)).collect(),
        event: event.clone(),
    };
    assert_eq!(found, asked.map(view).collect::<Vec<_>>(), "{first:?}");
}

async fn check_audit(store: &Store, model: &Database, filters: &Filters) {
    let first = AuditFilter { who: filters.who.clone(), cursor: None, limit: Some(filters.page) };
    let ask = async |cursor: Option<String>| {
        let cursor = cursor.or_else(|| Some(filters.after.to_string()));
        store.audit(&AuditFilter { cursor, ..first.clone() }).await
    };
    let found = pages(filters.page, ask).await;
    let numbered = (1..).zip(model.audit.iter().cloned());
    let asked = numbered.filter(|(sequence, row)| *sequence > filters.after && is_one(&filters.who, &row.who));
    assert_eq!(found, asked.collect::<Vec<(i64, AuditRow)>>(), "{first:?}");
}

async fn check_runners(store: &Store, model: &Database, filters: &Filters) {
    let found = store.runners(RunnerFilter { all: !filters.is_narrow }).await.unwrap();
    let asked = model.runners.values().filter(|row| !filters.is_narrow || row.ended_ms.is_none());
    assert_eq!(found, asked.cloned().collect::<Vec<RunnerRow>>());
}

async fn check_allocations(store: &Store, model: &Database, filters: &Filters) {
    let workflow = filters.workflow.map(|id| id.0);
    let limit = Some(filters.page);
    let query = AllocationFilter { workflow, live: filters.is_narrow, limit, ..AllocationFilter::default() };
    let ask = async |cursor| store.allocations(&AllocationFilter { cursor, ..query.clone() }).await;
    let found = pages(filters.page, ask).await;
    let asked = model
        .allocations
        .values()
        .filter(|row| is_one(&filters.workflow, &row.workflow) && !(filters.is_narrow && row.status.is_over()));
    assert_eq!(found, asked.cloned().collect::<Vec<AllocationRow>>(), "{query:?}");
}

/// Checks the lists without pages.
async fn check_data(store: &Store, model: &Database, filters: &Filters) {
    let workflow = filters.workflow.unwrap_or(WorkflowId(1));
    let of_workflow = || model.user_data.values().filter(|row| row.workflow == workflow);
    let names: BTreeSet<Option<&str>> =
        of_workflow().map(|row| Some(row.name.as_str())).chain([None, Some("z")]).collect();
    for name in names {
        let found = store.user_data(workflow, name).await.unwrap();
        let asked = of_workflow().filter(|row| name.is_none_or(|name| row.name == name));
        assert_eq!(found, asked.cloned().collect::<Vec<_>>(), "{name:?} of {workflow}");
    }
    let first = filters.job.unwrap_or(JobId(1));
    let last = JobId(first.0 + filters.after);
    let found = store.files(workflow, first..=last).await.unwrap();
    let asked = model.files.values().filter(|row| row.workflow == workflow && row.job >= first && row.job <= last);
    assert_eq!(found, asked.cloned().collect::<Vec<_>>(), "files from {first} to {last}");

    let ids: Vec<JobId> = (first.0..last.0 + 3).map(JobId).collect();
    let known = ids.iter().filter_map(|id| Some((*id, any_job(model, *id)?.name.clone())));
    assert_eq!(store.job_names(&ids).await.unwrap(), known.collect::<HashMap<_, _>>());
    assert_eq!(store.job_names(&[]).await.unwrap(), HashMap::new());
}

async fn check(groups: &[Changes], questions: &[Filters]) {
    let (_folder, store) = new_store().await;
    let mut model = Database::default();
    for group in groups {
        store.commit(group).await.unwrap();
        model.write(group);
    }
    for filters in questions {
        check_jobs(&store, &model, filters).await;
        check_results(&store, &model, filters).await;
        check_slurm_stats(&store, &model, filters).await;
        check_events(&store, &model, filters).await;
        check_audit(&store, &model, filters).await;
        check_runners(&store, &model, filters).await;
        check_allocations(&store, &model, filters).await;
        check_data(&store, &model, filters).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lists_have_what_was_asked_for(groups in groups(0.05), questions in proptest::collection::vec(filters(), 12)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(check(&groups, &questions));
    }
}
