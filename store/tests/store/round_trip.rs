//! Any changes, one group after the other, are what a load gives back.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use torc_api::action::ActionState;
use torc_api::allocation::{AllocationOrigin, AllocationStatus};
use torc_api::state::{Cause, JobState};
use torc_api::wire::{LeaseRole, Resources, RunnerKind, RunnerScope, Usage};
use torc_core::expanded::Requirements;
use torc_core::ids::{AllocationId, JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{
    ActionRow, AllocationRow, Changes, ClusterRow, Errand, EventRow, JobProfile, JobRow, JobUpdate, ProfileRow,
    RecoveryRow, ResultRow, RunnerRow, StrayFate, StrayLease, UserDataRow, WorkflowRow,
};
use torc_store::{EventQuery, Store};

use crate::model::Model;
use crate::samples::{job, load, new_store, options, profile, result, update, workflow};

const CAUSES: [Cause; 10] = [
    Cause::OutOfMemory,
    Cause::Timeout,
    Cause::NodeFailure,
    Cause::Preempted,
    Cause::Lost,
    Cause::ExitCode,
    Cause::Canceled,
    Cause::StartFailed,
    Cause::MissingOutput,
    Cause::Stopped,
];

/// Few workflows, so that rows meet; a job's number says whose it is.
const WORKFLOWS: i64 = 3;

fn owner(job: i64) -> WorkflowId {
    WorkflowId(1 + job % WORKFLOWS)
}

fn state() -> impl Strategy<Value = JobState> {
    prop::sample::select(JobState::ALL.to_vec())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z ]{0,12}", "\\PC{0,12}", Just("null\0byte ' \" \\ \n".to_owned())]
}

prop_compose! {
    fn workflow_row()(id in 1..=WORKFLOWS, generation in 1..5i64, run in 1..3i32, flags in any::<(bool, bool)>(),
        texts in (text(), text(), text(), text()), times in any::<(i64, Option<i64>, Option<i64>)>(),
    ) -> WorkflowRow {
        WorkflowRow {
            id: WorkflowId(id),
            namespace: texts.0,
            name: format!("workflow-{id}"),
            owner: texts.1,
            document: format!("document of generation {generation}"),
            generation,
            digest: texts.2,
            working_dir: texts.3,
            run,
            suspended: flags.0,
            canceled: flags.1,
            expired: flags.1,
            created_ms: times.0,
            started_ms: times.1,
            completed_ms: times.2,
            conditions: "[]".to_owned(),
            recovery_schedulers: if flags.0 { "[{}]".to_owned() } else { String::new() },
        }
    }
}

prop_compose! {
    fn profile_row()(id in 1..9i64, texts in vec(text(), 0..3), name in text(), cpus in any::<i64>()) -> ProfileRow {
        let requirements = Requirements { name, num_cpus: cpus, ..Requirements::default() };
        let profile = JobProfile { requirements, labels: texts, ..JobProfile::default() };
        ProfileRow { id: ProfileId(id), workflow: owner(id), profile }
    }
}

prop_compose! {
    fn job_row()(id in 1..30i64, command in text(), profile in 1..9i64, priority in any::<i64>(), hash in any::<[u8; 32]>(),
        depends_on in vec(any::<i64>(), 0..5), update in job_update(),
    ) -> JobRow {
        JobRow {
            id: JobId(id),
            workflow: owner(id),
            name: format!("job-{id}"),
            command,
            profile: ProfileId(profile),
            priority,
            hash,
            depends_on: depends_on.into_iter().map(JobId).collect(),
            state: update.state,
            run: update.run,
            attempt: update.attempt,
            epoch: update.epoch,
            runner: update.runner,
            started_ms: update.started_ms,
        }
    }
}

prop_compose! {
    fn job_update()(id in 1..30i64, state in state(), run in 1..3i32, attempt in 1..4i32, epoch in 0..1_000_000i64,
        runner in option::of(1..5i64), started_ms in any::<Option<i64>>(),
    ) -> JobUpdate {
        JobUpdate { id: JobId(id), state, run, attempt, epoch, runner: runner.map(RunnerId), started_ms }
    }
}

prop_compose! {
    fn usage()(memory in any::<(Option<i64>, Option<i64>)>(), cpu in (option::of(0.0..1e6f64), option::of(0.0..1e6f64)),
        gpu in (option::of(0.0..1e6f64), option::of(0.0..1e6f64), any::<Option<i64>>()),
    ) -> Usage {
        Usage {
            peak_memory_bytes: memory.0,
            average_memory_bytes: memory.1,
            peak_cpu_percent: cpu.0,
            average_cpu_percent: cpu.1,
            peak_gpu_percent: gpu.0,
            average_gpu_percent: gpu.1,
            peak_gpu_memory_bytes: gpu.2,
        }
    }
}

prop_compose! {
    fn result_row()(key in (1..30i64, 1..3i32, 1..4i32), state in state(), return_code in any::<i32>(),
        cause in option::of(prop::sample::select(CAUSES.to_vec())), texts in (option::of(text()), option::of(text()), option::of(text())),
        times in (any::<i64>(), 0..9i64), runner in option::of(1..5i64), usage in usage(),
    ) -> ResultRow {
        ResultRow {
            workflow: owner(key.0),
            job: JobId(key.0),
            run: key.1,
            attempt: key.2,
            state,
            return_code,
            cause,
            message: texts.0,
            started_ms: times.0,
            ended_ms: times.1,
            runner: runner.map(RunnerId),
            stdout: texts.1,
            stderr: texts.2,
            usage,
        }
    }
}

prop_compose! {
    fn runner_row()(id in 1..5i64, texts in (text(), text(), text(), option::of(text())), labels in vec(text(), 0..3),
        numbers in any::<(i64, i64, Option<u32>, Option<i64>)>(),
        kind in prop::sample::select(vec![RunnerKind::Local, RunnerKind::Slurm, RunnerKind::Remote, RunnerKind::Pod]),
        scope in prop_oneof![Just(RunnerScope::All), Just(RunnerScope::Session), text().prop_map(RunnerScope::Workflow)],
    ) -> RunnerRow {
        RunnerRow {
            id: RunnerId(id),
            host: texts.0,
            pid: numbers.0,
            kind,
            capacity: Resources { cpus: 2, memory_bytes: numbers.1, gpus: 1, nodes: 1 },
            max_parallel_jobs: numbers.2,
            labels,
            scope,
            scheduler: texts.3.clone(),
            slurm_job_id: texts.3,
            output_dir: texts.1,
            place: texts.2,
            version: "0.1.0".to_owned(),
            started_ms: 5,
            ended_ms: numbers.3,
        }
    }
}

prop_compose! {
    /// Few names, so that rows meet; one of them is a loop's, whose value is not loaded.
    fn user_data_row()(name in prop_oneof!["[a-c]", Just("__torc_lineage__x__g000001".to_owned())], flags in any::<(bool, bool)>(),
        numbers in (option::of(1..30i64), 0..1_000_000i64, any::<i64>()), texts in (option::of(text()), option::of(text())),
    ) -> UserDataRow {
        UserDataRow {
            workflow: WorkflowId(0),
            name,
            in_document: flags.0,
            ephemeral: flags.1,
            declared: texts.0.map(|text| serde_json::json!({ "text": text })),
            written: texts.1.map(|text| serde_json::json!([text, null])),
            job: numbers.0.map(JobId),
            epoch: numbers.1,
            changed_ms: numbers.2,
        }
    }
}

prop_compose! {
    // A lease's number is that of one job.
    fn stray_lease()(epoch in 1..20i64, run in 1..3i32, attempt in 1..4i32, runner in 1..5i64,
        started_ms in any::<Option<i64>>(), fate in prop::sample::select(vec![StrayFate::Ending, StrayFate::GivenUp]),
        role in prop::sample::select(vec![LeaseRole::Job, LeaseRole::Action, LeaseRole::Recovery]),
    ) -> StrayLease {
        let (workflow, job, runner) = (owner(epoch), JobId(epoch), RunnerId(runner));
        StrayLease { epoch, workflow, job, run, attempt, runner, started_ms, fate, role }
    }
}

prop_compose! {
    fn event_row()(time_ms in any::<i64>(), workflow in option::of(1..=WORKFLOWS), texts in (text(), text()),
        jobs in vec((any::<i64>(), any::<i32>(), state()), 0..5),
    ) -> EventRow {
        EventRow {
            sequence: 0,
            time_ms,
            workflow: workflow.map(WorkflowId),
            reason: texts.0,
            message: texts.1,
            jobs: jobs.into_iter().map(|(job, attempt, state)| (JobId(job), attempt, state)).collect(),
        }
    }
}

prop_compose! {
    fn errand()(numbers in any::<(i32, i32, i32)>(), epoch in 0..1_000_000i64, runner in any::<(Option<i64>, Option<i64>)>()) -> Errand {
        Errand {
            run: numbers.0,
            attempt: numbers.1,
            tries: numbers.2,
            epoch,
            runner: runner.0.map(RunnerId),
            started_ms: runner.1,
        }
    }
}

prop_compose! {
    fn action_row()(id in 1..30i64, position in any::<i32>(), worker in any::<Option<i64>>(), state in 0..5usize, errand in errand(),
        numbers in any::<(Option<i64>, Option<i32>)>(), texts in vec(option::of(text()), 4),
    ) -> ActionRow {
        let states = [ActionState::Waiting, ActionState::Pending, ActionState::Executed, ActionState::Failed, ActionState::Skipped];
        ActionRow {
            id: JobId(id),
            workflow: owner(id),
            position,
            definition: texts[3].clone(),
            worker: worker.map(RunnerId),
            state: states[state],
            errand,
            ended_ms: numbers.0,
            return_code: numbers.1,
            message: texts[0].clone(),
            stdout: texts[1].clone(),
            stderr: texts[2].clone(),
        }
    }
}

prop_compose! {
    fn recovery_row()(job in 1..30i64, script in text(), return_code in any::<i32>(), cause in prop::sample::select(CAUSES.to_vec()),
        preferred in any::<Option<i64>>(), errand in errand(),
    ) -> RecoveryRow {
        let preferred = preferred.map(RunnerId);
        RecoveryRow { job: JobId(job), workflow: owner(job), script, return_code, cause, preferred, errand }
    }
}

prop_compose! {
    fn allocation_row()(id in 1..20i64, status in 0..4usize, origin in 0..4usize, texts in vec(option::of(text()), 8), cluster in text(),
        numbers in vec(any::<i64>(), 7), times in vec(any::<Option<i64>>(), 8), flags in any::<(bool, bool)>(),
        most in any::<Option<i32>>(),
    ) -> AllocationRow {
        let status = AllocationStatus::ALL[status];
        AllocationRow {
            id: AllocationId(id),
            workflow: owner(id),
            cluster,
            scheduler: texts[0].clone(),
            origin: AllocationOrigin::ALL[origin],
            action: times[0].map(JobId),
            status,
            slurm_job_id: texts[1].clone(),
            slurm_state: texts[2].clone(),
            slurm_reason: texts[3].clone(),
            partition: texts[4].clone(),
            account: texts[5].clone(),
            nodes: numbers[0],
            cpus: numbers[1],
            memory_bytes: numbers[2],
            gpus: numbers[3],
            seconds: numbers[4],
            one_worker_per_node: flags.0,
            max_parallel_jobs: most,
            node_list: texts[6].clone(),
            created_ms: numbers[5],
            called_ms: times[1],
            submitted_ms: times[2],
            started_ms: times[3],
            ended_ms: status.is_over().then_some(numbers[6]),
            estimated_start_ms: times[4],
            expected_end_ms: times[5],
            canceled_ms: times[6],
            has_reported: flags.1,
            message: texts[7].clone(),
        }
    }
}

prop_compose! {
    fn cluster_row()(name in "[a-d]", document in text(), generation in any::<i64>(), created_ms in any::<i64>()) -> ClusterRow {
        ClusterRow { name, document, generation, created_ms }
    }
}

prop_compose! {
    fn changes()(workflows in vec(workflow_row(), 0..4), deleted in option::weighted(0.1, 1..=WORKFLOWS), profiles in vec(profile_row(), 0..4),
        jobs in vec(job_row(), 0..30), removed in vec(1..30i64, 0..3), job_updates in vec(job_update(), 0..40),
        results in vec(result_row(), 0..60), runners in vec(runner_row(), 0..3), events in vec(event_row(), 0..3),
        (data, forgotten) in (vec((1..=WORKFLOWS, user_data_row()), 0..6), vec((1..=WORKFLOWS, "[a-c]"), 0..2)),
        (strays, ended) in (vec(stray_lease(), 0..5), vec(1..20i64, 0..5)),
        actions in (vec(action_row(), 0..9), vec(1..30i64, 0..3)), recoveries in (vec(recovery_row(), 0..9), vec(1..30i64, 0..3)),
        slurm in (vec(allocation_row(), 0..9), vec(cluster_row(), 0..3), vec("[a-d]", 0..2)),
    ) -> Changes {
        let ended_strays = ended.into_iter().filter(|epoch| strays.iter().all(|lease| lease.epoch != *epoch)).collect();
        Changes {
            workflows,
            deleted_workflows: deleted.into_iter().map(WorkflowId).collect(),
            profiles,
            jobs,
            removed_jobs: removed.into_iter().map(JobId).collect(),
            job_updates,
            actions: actions.0,
            removed_actions: actions.1.into_iter().map(JobId).collect(),
            recoveries: recoveries.0,
            ended_recoveries: recoveries.1.into_iter().map(JobId).collect(),
            results,
            runners,
            strays,
            ended_strays,
            events,
            allocations: slurm.0,
            clusters: slurm.1,
            removed_clusters: slurm.2,
            audit: Vec::new(),
            files: Vec::new(),
            slurm_stats: Vec::new(),
            user_data: data.iter().map(|row| UserDataRow { workflow: WorkflowId(row.0), ..row.1.clone() }).collect(),
            removed_user_data: forgotten.into_iter().map(|(id, name)| (WorkflowId(id), name)).collect(),
        }
    }
}

/// Groups whose events are numbered, and whose documents change with their generation only: the core sees to both.
fn groups() -> impl Strategy<Value = Vec<Changes>> {
    vec(changes(), 1..4).prop_map(|mut groups| {
        let events = groups.iter_mut().flat_map(|group| &mut group.events);
        events.zip(1..).for_each(|(event, sequence)| event.sequence = sequence);
        groups
    })
}

async fn check(groups: &[Changes]) {
    let (folder, store) = new_store().await;
    let mut model = Model::default();
    for group in groups {
        store.commit(group).await.unwrap();
        model.apply(group);
        assert_eq!(load(&store).await, model.snapshot());
    }
    store.close().await.unwrap();
    let store = Store::open(options(&folder)).await.unwrap();
    assert_eq!(load(&store).await, model.snapshot(), "after opening it again");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_load_gives_back_what_was_committed(groups in groups()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(check(&groups));
    }

    #[test]
    fn events_come_back_in_order(events in vec(event_row(), 1..300)) {
        let mut events = events;
        events.iter_mut().zip(1..).for_each(|(event, sequence)| event.sequence = sequence);
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (_folder, store) = new_store().await;
            store.commit(&Changes { events: events.clone(), ..Changes::default() }).await.unwrap();
            let found = store.events(&EventQuery { limit: 1_000, ..EventQuery::default() }).await.unwrap();
            let found: Vec<EventRow> = found.items.into_iter().map(|view| view.event).collect();
            assert_eq!(found, events);
        });
    }
}

#[tokio::test]
async fn every_size_of_a_group_is_written_whole() {
    let (_folder, store) = new_store().await;
    let mut model = Model::default();
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
        model.apply(&changes);
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
async fn a_name_is_free_again_once_its_job_is_removed_or_its_workflow_deleted() {
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
