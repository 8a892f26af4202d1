//! Arbitrary rows. All values are independent, so that a swapped column is noticed.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use torc_api::action::ActionState;
use torc_api::allocation::{AllocationOrigin, AllocationStatus};
use torc_api::slurm_stats::SlurmStats;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{LeaseRole, ProcessIdentity, Resources, RunnerKind, RunnerScope, Usage};
use torc_core::expanded::Requirements;
use torc_core::ids::{AllocationId, JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{
    ActionRow, AllocationRow, AuditRow, Changes, ClusterRow, DetachedLease, DetachedState, EventRow, FileRow,
    JobProfile, JobRow, JobUpdate, ProfileRow, RecoveryRow, ResultRow, RunnerRow, TaskLease, UserDataRow, WorkflowRow,
};

/// Every cause of a failure.
pub const CAUSES: [Cause; 10] = [
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

/// Few workflows and jobs, so that rows of different tables refer to each other.
pub const WORKFLOWS: i64 = 3;
pub const JOBS: i64 = 12;
/// Times are small, so that some are equal.
pub const TIMES: i64 = 10;

fn workflow_id() -> impl Strategy<Value = WorkflowId> {
    (1..=WORKFLOWS).prop_map(WorkflowId)
}

pub fn state() -> impl Strategy<Value = JobState> {
    select(JobState::ALL.to_vec())
}

/// Mostly the states that the lists of failures select.
fn end_state() -> impl Strategy<Value = JobState> {
    prop_oneof![Just(JobState::Failed), Just(JobState::Terminated), state()]
}

fn cause() -> impl Strategy<Value = Cause> {
    select(CAUSES.to_vec())
}

fn time() -> impl Strategy<Value = i64> {
    0..TIMES
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z ]{0,12}", "\\PC{0,12}", Just("null\0byte ' \" \\ \n".to_owned())]
}

/// One of few texts, so that rows of different tables refer to each other.
fn slurm_job_id() -> impl Strategy<Value = Option<String>> {
    option::of("[1-4]")
}

/// A log file; some are shared by several results.
fn log_file() -> impl Strategy<Value = String> {
    prop_oneof!["[a-d]", "[e-z]{3}"]
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        Just(serde_json::Value::Null),
        any::<i64>().prop_map(serde_json::Value::from),
        text().prop_map(|text| serde_json::json!({ "text": text })),
        text().prop_map(|text| serde_json::json!([text, null])),
    ]
}

prop_compose! {
    fn workflow_row()(id in 1..=WORKFLOWS, generation in 1..4i64, run in 1..3i32, flags in any::<[bool; 3]>(),
        texts in [text(), text(), text(), text(), text(), text(), text()], created_ms in any::<i64>(),
        started_ms in any::<Option<i64>>(), completed_ms in option::of(time()),
    ) -> WorkflowRow {
        let [namespace, owner, document, digest, working_dir, conditions, recovery_schedulers] = texts;
        let [suspended, canceled, expired] = flags;
        WorkflowRow {
            id: WorkflowId(id),
            namespace,
            name: format!("workflow-{id}"),
            owner,
            document,
            generation,
            digest,
            working_dir,
            run,
            suspended,
            canceled,
            expired,
            created_ms,
            started_ms,
            completed_ms,
            conditions,
            recovery_schedulers,
        }
    }
}

prop_compose! {
    fn profile_row()(id in 1..9i64, workflow in workflow_id(), labels in vec(text(), 0..3), name in text(), numbers in any::<[i64; 5]>(),
        texts in [option::of(text()), option::of(text()), option::of(text())], is_canceled in any::<bool>(),
    ) -> ProfileRow {
        let [num_cpus, memory_bytes, num_gpus, num_nodes, runtime_seconds] = numbers;
        let requirements = Requirements { name, num_cpus, memory_bytes, num_gpus, num_nodes, runtime_seconds };
        let [scheduler, recovery_scheduler, failure_handler] = texts;
        let profile = JobProfile {
            requirements,
            labels,
            scheduler,
            recovery_scheduler,
            failure_handler,
            cancel_on_blocking_job_failure: is_canceled,
            ..JobProfile::default()
        };
        ProfileRow { id: ProfileId(id), workflow, profile }
    }
}

prop_compose! {
    fn job_row()(update in job_update(), workflow in workflow_id(), command in text(), profile in 1..9i64, priority in any::<i64>(), hash in any::<[u8; 32]>(),
        depends_on in vec(any::<i64>(), 0..5), name in "[aB]",
    ) -> JobRow {
        let JobUpdate { id, state, run, attempt, lease_id, runner, started_ms } = update;
        JobRow {
            id,
            workflow,
            name: format!("{name}-{id}"),
            command,
            profile: ProfileId(profile),
            priority,
            hash,
            depends_on: depends_on.into_iter().map(JobId).collect(),
            state,
            run,
            attempt,
            lease_id,
            runner,
            started_ms,
        }
    }
}

prop_compose! {
    fn job_update()(id in 1..=JOBS, state in state(), run in 1..3i32, attempt in 1..4i32, lease_id in 0..1_000_000i64,
        runner in option::of(1..5i64), started_ms in any::<Option<i64>>(),
    ) -> JobUpdate {
        JobUpdate { id: JobId(id), state, run, attempt, lease_id, runner: runner.map(RunnerId), started_ms }
    }
}

prop_compose! {
    fn usage()(memory in any::<[Option<i64>; 3]>(), percent in prop::array::uniform4(option::of(0.0..1e6f64))) -> Usage {
        Usage {
            peak_memory_bytes: memory[0],
            average_memory_bytes: memory[1],
            peak_cpu_percent: percent[0],
            average_cpu_percent: percent[1],
            peak_gpu_percent: percent[2],
            average_gpu_percent: percent[3],
            peak_gpu_memory_bytes: memory[2],
        }
    }
}

prop_compose! {
    /// The key of an attempt. All four parts vary independently: a statement that ignores one mixes rows up.
    fn attempt()(workflow in workflow_id(), job in 1..=JOBS, run in 1..3i32, attempt in 1..4i32) -> (WorkflowId, JobId, i32, i32) {
        (workflow, JobId(job), run, attempt)
    }
}

prop_compose! {
    fn result_row()(key in attempt(), state in end_state(), return_code in 0..4i32, cause in option::of(cause()),
        texts in (option::of(text()), option::of(log_file()), option::of(log_file())), started_ms in -TIMES..TIMES, ended_ms in time(),
        runner in option::of(1..5i64), usage in usage(),
    ) -> ResultRow {
        let (message, stdout, stderr) = texts;
        ResultRow {
            workflow: key.0,
            job: key.1,
            run: key.2,
            attempt: key.3,
            state,
            return_code,
            cause,
            message,
            started_ms,
            ended_ms,
            runner: runner.map(RunnerId),
            stdout,
            stderr,
            usage,
        }
    }
}

prop_compose! {
    fn slurm_stats()(key in attempt(), slurm_job_id in slurm_job_id(), texts in [option::of(text()), option::of(text()), option::of(text())],
        bytes in any::<[Option<i64>; 4]>(), ave_cpu_seconds in option::of(0.0..1e6f64),
    ) -> SlurmStats {
        let [step, node_list, state] = texts;
        SlurmStats {
            workflow: key.0.0,
            job: key.1.0,
            run: key.2,
            attempt: key.3,
            slurm_job_id,
            step,
            max_rss_bytes: bytes[0],
            max_vm_size_bytes: bytes[1],
            max_disk_read_bytes: bytes[2],
            max_disk_write_bytes: bytes[3],
            ave_cpu_seconds,
            node_list,
            state,
        }
    }
}

prop_compose! {
    fn file_row()(key in attempt(), path in "[a-c]", numbers in any::<[i64; 3]>(), sha256 in option::of(text())) -> FileRow {
        FileRow {
            workflow: key.0,
            job: key.1,
            path,
            size_bytes: numbers[0],
            modified_ms: numbers[1],
            sha256,
            seen_ms: numbers[2],
        }
    }
}

prop_compose! {
    fn runner_row()(id in 1..5i64, texts in [text(), text(), text(), text()], labels in vec(text(), 0..3), scheduler in option::of(text()),
        slurm_job_id in slurm_job_id(), numbers in any::<[i64; 6]>(), max_parallel_jobs in any::<Option<u32>>(), ended_ms in option::of(time()),
        process in option::of(process()), kind in select(vec![RunnerKind::Local, RunnerKind::Slurm, RunnerKind::Remote, RunnerKind::Pod]),
        scope in prop_oneof![Just(RunnerScope::All), Just(RunnerScope::Session), text().prop_map(RunnerScope::Workflow)],
    ) -> RunnerRow {
        let [host, output_dir, place, version] = texts;
        let [pid, started_ms, cpus, memory_bytes, gpus, nodes] = numbers;
        RunnerRow {
            id: RunnerId(id),
            host,
            pid,
            kind,
            capacity: Resources { cpus, memory_bytes, gpus, nodes },
            max_parallel_jobs,
            labels,
            scope,
            scheduler,
            slurm_job_id,
            output_dir,
            place,
            process,
            version,
            started_ms,
            ended_ms,
        }
    }
}

prop_compose! {
    fn process()(texts in [text(), text()], start_ticks in any::<u64>()) -> ProcessIdentity {
        let [boot_id, pid_namespace] = texts;
        ProcessIdentity { boot_id, pid_namespace, start_ticks }
    }
}

prop_compose! {
    /// User data with few names, so that rows are overwritten; some names are those of loops, whose values are not loaded.
    fn user_data_row()(workflow in workflow_id(), name in user_data_name(), flags in any::<[bool; 2]>(), job in option::of(1..=JOBS),
        lease_id in 0..1_000_000i64, changed_ms in any::<i64>(), values in [option::of(value()), option::of(value())],
    ) -> UserDataRow {
        let [declared, written] = values;
        let [in_document, ephemeral] = flags;
        UserDataRow { workflow, name, in_document, ephemeral, declared, written, job: job.map(JobId), lease_id, changed_ms }
    }
}

fn user_data_name() -> impl Strategy<Value = String> {
    let of_loops = ["__torc_lineage__x__g000001", "__torc_lineage__x__final", "__torc_lineage__", "_torc_lineage__x"];
    prop_oneof!["[a-c]", select(of_loops.map(str::to_owned).to_vec())]
}

prop_compose! {
    fn detached_lease()(lease_id in 1..20i64, key in attempt(), runner in 1..5i64, started_ms in any::<Option<i64>>(),
        state in select(vec![DetachedState::Revoked, DetachedState::Expired]),
        role in select(vec![LeaseRole::Job, LeaseRole::Action, LeaseRole::Recovery]),
    ) -> DetachedLease {
        let (workflow, job, run, attempt) = key;
        DetachedLease { lease_id, workflow, job, run, attempt, runner: RunnerId(runner), started_ms, state, role }
    }
}

prop_compose! {
    pub fn event_row()(time_ms in time(), workflow in option::of(workflow_id()), texts in [text(), text()],
        jobs in vec((prop_oneof![1..=JOBS, any::<i64>()], any::<i32>(), state()), 0..5),
    ) -> EventRow {
        let [reason, message] = texts;
        let jobs = jobs.into_iter().map(|(job, attempt, state)| (JobId(job), attempt, state)).collect();
        EventRow { sequence: 0, time_ms, workflow, reason, message, jobs }
    }
}

prop_compose! {
    fn audit_row()(time_ms in any::<i64>(), who in "[ab]", texts in [text(), text(), text(), text()]) -> AuditRow {
        let [scope, verb, object, outcome] = texts;
        AuditRow { time_ms, who, scope, verb, object, outcome }
    }
}

prop_compose! {
    fn lease()(numbers in any::<[i32; 3]>(), lease_id in 0..1_000_000i64, runner in any::<Option<i64>>(), started_ms in any::<Option<i64>>()) -> TaskLease {
        let [run, attempt, tries] = numbers;
        TaskLease { run, attempt, tries, lease_id, runner: runner.map(RunnerId), started_ms }
    }
}

prop_compose! {
    /// An action in any stored state. A running action has the start of its lease instead of a state.
    fn action_row()(id in 1..30i64, workflow in workflow_id(), position in any::<i32>(), worker in any::<Option<i64>>(),
        state in select(ActionState::ALL.iter().copied().filter(|state| *state != ActionState::Running).collect::<Vec<_>>()), lease in lease(),
        ended_ms in any::<Option<i64>>(), return_code in any::<Option<i32>>(), texts in prop::array::uniform4(option::of(text())),
    ) -> ActionRow {
        let [definition, message, stdout, stderr] = texts;
        ActionRow {
            id: JobId(id),
            workflow,
            position,
            definition,
            worker: worker.map(RunnerId),
            state,
            lease,
            ended_ms,
            return_code,
            message,
            stdout,
            stderr,
        }
    }
}

prop_compose! {
    fn recovery_row()(job in 1..30i64, workflow in workflow_id(), script in text(), return_code in any::<i32>(), cause in cause(),
        preferred in any::<Option<i64>>(), lease in lease(),
    ) -> RecoveryRow {
        let preferred = preferred.map(RunnerId);
        RecoveryRow { job: JobId(job), workflow, script, return_code, cause, preferred, lease }
    }
}

prop_compose! {
    fn allocation_row()(id in 1..20i64, workflow in workflow_id(), status in select(AllocationStatus::ALL.to_vec()),
        origin in select(AllocationOrigin::ALL.to_vec()), texts in vec(option::of(text()), 7), cluster in text(), slurm_job_id in slurm_job_id(),
        numbers in any::<[i64; 6]>(), times in any::<[Option<i64>; 8]>(), ended_ms in option::of(time()), flags in any::<[bool; 2]>(),
        max_parallel_jobs in any::<Option<i32>>(),
    ) -> AllocationRow {
        let mut texts = texts.into_iter();
        let mut text = || texts.next().flatten();
        let [nodes, cpus, memory_bytes, gpus, seconds, created_ms] = numbers;
        let [action, called_ms, submitted_ms, started_ms, estimated_start_ms, expected_end_ms, canceled_ms, unseen_since_ms] =
            times;
        let [one_worker_per_node, has_reported] = flags;
        AllocationRow {
            id: AllocationId(id),
            workflow,
            cluster,
            scheduler: text(),
            origin,
            action: action.map(JobId),
            status,
            slurm_job_id,
            slurm_state: text(),
            slurm_reason: text(),
            partition: text(),
            account: text(),
            nodes,
            cpus,
            memory_bytes,
            gpus,
            seconds,
            one_worker_per_node,
            max_parallel_jobs,
            node_list: text(),
            created_ms,
            called_ms,
            submitted_ms,
            started_ms,
            ended_ms,
            estimated_start_ms,
            expected_end_ms,
            canceled_ms,
            unseen_since_ms,
            has_reported,
            message: text(),
        }
    }
}

prop_compose! {
    fn cluster_row()(name in "[a-d]", document in text(), generation in any::<i64>(), created_ms in any::<i64>()) -> ClusterRow {
        ClusterRow { name, document, generation, created_ms }
    }
}

prop_compose! {
    /// `deletes` is the probability that a group deletes a workflow.
    fn changes(deletes: f64)(workflows in vec(workflow_row(), 0..4), deleted in option::weighted(deletes, workflow_id()),
        profiles in vec(profile_row(), 0..6),
        (jobs, removed, job_updates) in (vec(job_row(), 0..16), vec(1..=JOBS, 0..3), vec(job_update(), 0..20)),
        results in vec(result_row(), 0..60), stats in vec(slurm_stats(), 0..40), files in vec(file_row(), 0..20),
        (runners, events, audit) in (vec(runner_row(), 0..3), vec(event_row(), 0..4), vec(audit_row(), 0..4)),
        (data, forgotten) in (vec(user_data_row(), 0..6), vec((workflow_id(), "[a-c]"), 0..2)),
        (detached_leases, ended) in (vec(detached_lease(), 0..5), vec(1..20i64, 0..5)),
        actions in (vec(action_row(), 0..9), vec(1..30i64, 0..3)), recoveries in (vec(recovery_row(), 0..9), vec(1..30i64, 0..3)),
        slurm in (vec(allocation_row(), 0..9), vec(cluster_row(), 0..3), vec("[a-d]", 0..2)),
    ) -> Changes {
        let ended_leases = ended.into_iter().filter(|lease_id| detached_leases.iter().all(|lease| lease.lease_id != *lease_id)).collect();
        Changes {
            workflows,
            deleted_workflows: deleted.into_iter().collect(),
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
            detached_leases,
            ended_leases,
            events,
            allocations: slurm.0,
            clusters: slurm.1,
            removed_clusters: slurm.2,
            audit,
            files,
            slurm_stats: stats,
            user_data: data,
            removed_user_data: forgotten,
        }
    }
}

/// Groups with numbered events.
pub fn groups(deletes: f64) -> impl Strategy<Value = Vec<Changes>> {
    vec(changes(deletes), 1..4).prop_map(|mut groups| {
        let events = groups.iter_mut().flat_map(|group| &mut group.events);
        events.zip(1..).for_each(|(event, sequence)| event.sequence = sequence);
        groups
    })
}
