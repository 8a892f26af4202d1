#![allow(clippy::unwrap_used)]

use torc_api::termination::EndMargin;
use torc_api::wire::{Resources, Usage};

use super::*;
use crate::class::RunnerView;
use crate::ids::{JobId, WorkflowId};
use crate::rows::{JobProfile, ResultRow};

const GIB: i64 = 1 << 30;

fn class(cpus: i64, gib: i64, labels: &[&str]) -> JobClass {
    JobClass::of(&JobProfile {
        requirements: Requirements {
            num_cpus: cpus,
            memory_bytes: gib * GIB,
            runtime_seconds: 3_600,
            ..Requirements::default()
        },
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        ..JobProfile::default()
    })
}

fn facts<'a>(state: JobState, class: &'a JobClass, parents: &[(&'a str, JobState)]) -> JobFacts<'a> {
    JobFacts {
        state,
        class,
        parents: parents.to_vec(),
        ending: 0,
        host: Some("n1"),
        running_seconds: Some(90),
        unconfirmed: false,
        script: None,
        last_failure: None,
    }
}

fn runner<'a>(cpus: i64, gib: i64, labels: &'a [String], left: Option<i64>) -> ServingRunner<'a> {
    let capacity = Resources { cpus, memory_bytes: gib * GIB, gpus: 0, nodes: 1 };
    ServingRunner {
        host: "n1",
        view: RunnerView { capacity, labels, scheduler: None, remaining_seconds: left, by_count: false },
        end: EndMargin { headroom_seconds: 60, notice_seconds: 30, in_step: false },
        is_silent: false,
    }
}

fn first(reasons: &[Reason]) -> (ReasonKind, &str) {
    let reason = reasons.first().unwrap();
    (reason.reason, reason.message.as_str())
}

fn of_ready(class: &JobClass, runners: &[ServingRunner<'_>], slurm: &SlurmFacts<'_>) -> (ReasonKind, String) {
    let facts = facts(JobState::Ready, class, &[]);
    let reasons = job_reasons(&facts, WorkflowFacts::default(), runners, slurm);
    let (kind, message) = first(&reasons);
    (kind, message.to_owned())
}

#[test]
fn a_blocked_job_names_what_it_waits_for() {
    let class = class(1, 1, &[]);
    let parents = [("a", JobState::Completed), ("b", JobState::Running)];
    let reasons =
        job_reasons(&facts(JobState::Blocked, &class, &parents), WorkflowFacts::default(), &[], &SlurmFacts::default());
    assert_eq!(first(&reasons), (ReasonKind::Dependency, "it waits for job b, which is running"));
    assert_eq!(reasons[0].jobs, [JobPhase { job: "b".to_owned(), status: JobState::Running }]);
    let parents: Vec<(&str, JobState)> = ["a", "b", "c", "d", "e", "f"].map(|name| (name, JobState::Ready)).to_vec();
    let reasons =
        job_reasons(&facts(JobState::Blocked, &class, &parents), WorkflowFacts::default(), &[], &SlurmFacts::default());
    assert!(reasons[0].message.ends_with("e (ready), and 1 more"), "{}", reasons[0].message);
    let ending = JobFacts { ending: 1, ..facts(JobState::Blocked, &class, &[]) };
    let reasons = job_reasons(&ending, WorkflowFacts::default(), &[], &SlurmFacts::default());
    assert_eq!(first(&reasons).0, ReasonKind::AttemptEnding);
}

#[test]
fn a_ready_job_says_what_no_runner_has() {
    let (gpu, none) = ([String::from("gpu")], SlurmFacts::default());
    let job = class(8, 16, &[]);
    let cases = [
        (vec![], ReasonKind::NoRunner, "no runner serves its workflow"),
        (vec![runner(99, 99, &gpu, None)], ReasonKind::Label, "every runner of its workflow has labels"),
        (
            vec![runner(4, 64, &[], None), runner(2, 8, &[], None)],
            ReasonKind::Capacity,
            "the largest, on n1, has 4 CPUs, 64g of memory",
        ),
        (
            vec![runner(8, 16, &[], Some(1_200))],
            ReasonKind::TimeLeft,
            "it needs 1h, but no runner has enough time left: the most is 18m30s before its first signal, on n1 (20m left, of \
             which 1m30s are for the signal and the headroom)",
        ),
        (vec![runner(8, 16, &[], Some(3_569))], ReasonKind::TimeLeft, "it needs 1h"),
        (vec![runner(8, 16, &[], Some(3_570))], ReasonKind::Busy, "it waits for its turn"),
        (
            vec![ServingRunner { is_silent: true, ..runner(8, 16, &[], None) }],
            ReasonKind::NoRunner,
            "the only runner of its workflow is silent",
        ),
    ];
    for (runners, kind, words) in cases {
        let (found, message) = of_ready(&job, &runners, &none);
        assert_eq!(found, kind, "{message}");
        assert!(message.contains(words), "{message}");
    }
    let (kind, message) = of_ready(&class(1, 1, &["gpu"]), &[runner(8, 16, &[], None)], &none);
    assert_eq!((kind, message.as_str()), (ReasonKind::Label, "no runner has its label `gpu`"));
}

#[test]
fn a_workflow_that_holds_its_jobs_back() {
    let class = class(1, 1, &[]);
    let big = [runner(8, 16, &[], None)];
    let held = |workflow: WorkflowFacts<'_>| {
        let reasons = job_reasons(&facts(JobState::Ready, &class, &[]), workflow, &big, &SlurmFacts::default());
        first(&reasons).0
    };
    assert_eq!(held(WorkflowFacts { is_suspended: true, ..WorkflowFacts::default() }), ReasonKind::Suspended);
    assert_eq!(held(WorkflowFacts { is_starting: true, ..WorkflowFacts::default() }), ReasonKind::StartActions);
    assert_eq!(held(WorkflowFacts::default()), ReasonKind::Busy);
}

#[test]
fn slurms_own_words_are_shown() {
    let job = class(8, 16, &[]);
    let waiting = WaitingAllocation {
        name: "torc-wf1-a1".to_owned(),
        slurm_job_id: Some("77".to_owned()),
        reason: Some("Priority".to_owned()),
        estimated_start: Some("2026-11-16T15:00:00Z".to_owned()),
    };
    let pending = SlurmFacts { is_used: true, pending: vec![waiting], ..SlurmFacts::default() };
    let (kind, message) = of_ready(&job, &[], &pending);
    assert_eq!(kind, ReasonKind::AllocationPending);
    let said = "its allocation torc-wf1-a1, Slurm job 77, waits in Slurm's queue: reason Priority, expected to start at 2026-11-16T15:00:00Z";
    assert_eq!(message, said);
    let refused = SlurmFacts { refused: Some("Invalid account"), ..SlurmFacts::default() };
    let (kind, message) = of_ready(&job, &[], &refused);
    assert_eq!(
        (kind, message.as_str()),
        (ReasonKind::AllocationRefused, "Slurm refused an allocation for it: Invalid account")
    );
    let none = SlurmFacts { is_used: true, ..SlurmFacts::default() };
    assert_eq!(of_ready(&job, &[], &none).0, ReasonKind::NoAllocation);
    let active = SlurmFacts { is_used: true, active: vec!["torc-wf1-a1".to_owned()], ..SlurmFacts::default() };
    let (kind, message) = of_ready(&job, &[], &active);
    assert_eq!(kind, ReasonKind::Busy, "one is there, so none has to be asked for");
    assert!(message.starts_with("its allocation torc-wf1-a1 is running but accepts no jobs"), "{message}");
    let limit = SlurmFacts { held_back: 3, ..SlurmFacts::default() };
    assert_eq!(of_ready(&job, &[], &limit).0, ReasonKind::AllocationLimit);
    let silent = SlurmFacts { unreachable: Some("socket timed out"), ..SlurmFacts::default() };
    assert_eq!(of_ready(&job, &[], &silent).0, ReasonKind::SlurmUnreachable);
}

#[test]
fn ended_jobs_say_why() {
    let class = class(1, 1, &[]);
    let none = SlurmFacts::default();
    let failed = JobFacts { last_failure: Some((Cause::OutOfMemory, 137)), ..facts(JobState::Failed, &class, &[]) };
    let reasons = job_reasons(&failed, WorkflowFacts::default(), &[], &none);
    assert_eq!(first(&reasons), (ReasonKind::Failed, "it ran out of memory (exit code 137, signal 9)"));
    let had = Requirements { memory_bytes: 60 << 20, ..Requirements::default() };
    let hint = |next: Escalated| next_steps("w", "j", &reasons, Some(&RecoveryHint { had: had.clone(), next }));
    let memory = hint(Escalated::To(Requirements { memory_bytes: 90 << 20, ..had.clone() }));
    assert!(memory[0].starts_with("`torc recover w` retries it with more memory (60 MiB -> 90 MiB);"), "{memory:?}");
    let time = hint(Escalated::To(Requirements { runtime_seconds: 90, ..had.clone() }));
    assert!(time[0].starts_with("`torc recover w` retries it with more time (1m -> 1m30s);"), "{time:?}");
    let limit = hint(Escalated::Not(LimitReached::Memory { had: 60 << 20, largest: 60 << 20 }));
    assert_eq!(limit[0], "change the job so that it needs less memory, or make a larger node available");
    assert_eq!(hint(Escalated::Unneeded), ["`torc retry w --job j` runs it again"]);
    let canceled = job_reasons(
        &facts(JobState::Canceled, &class, &[("a", JobState::Failed)]),
        WorkflowFacts::default(),
        &[],
        &none,
    );
    assert_eq!(first(&canceled), (ReasonKind::DependencyFailed, "it depends on job a, which is failed"));
    let next = next_steps("w", "j", &canceled, None);
    assert_eq!(next, ["`torc explain job/a -w w` says why"]);
    let by_person = WorkflowFacts { is_canceled: true, ..WorkflowFacts::default() };
    let canceled = job_reasons(&facts(JobState::Canceled, &class, &[("a", JobState::Failed)]), by_person, &[], &none);
    assert_eq!(first(&canceled).0, ReasonKind::Canceled);
    let script = ScriptFacts { cause: Cause::ExitCode, return_code: 3, is_running: false };
    let recovering = JobFacts { script: Some(script), ..facts(JobState::Recovering, &class, &[]) };
    let reasons = job_reasons(&recovering, WorkflowFacts::default(), &[], &none);
    assert!(first(&reasons).1.starts_with("it failed with exit code 3; its recovery script waits"), "{reasons:?}");
}

#[test]
fn a_running_job_whose_runner_is_silent_is_in_doubt() {
    let class = class(1, 1, &[]);
    let running = facts(JobState::Running, &class, &[]);
    let reasons = job_reasons(&running, WorkflowFacts::default(), &[], &SlurmFacts::default());
    assert_eq!(first(&reasons), (ReasonKind::Running, "it has been running on n1 for 1m30s"));
    let silent = JobFacts { unconfirmed: true, ..running };
    let reasons = job_reasons(&silent, WorkflowFacts::default(), &[], &SlurmFacts::default());
    assert_eq!(first(&reasons).0, ReasonKind::RunnerSilent);
}

fn result(attempt: i32, return_code: i32, cause: Option<Cause>, peak_gib: Option<i64>) -> ResultRow {
    ResultRow {
        workflow: WorkflowId(1),
        job: JobId(1),
        run: 1,
        attempt,
        state: if cause.is_none() { JobState::Completed } else { JobState::Failed },
        return_code,
        cause,
        message: None,
        started_ms: 0,
        ended_ms: 60_000,
        runner: None,
        stdout: None,
        stderr: None,
        usage: Usage { peak_memory_bytes: peak_gib.map(|gib| gib * GIB), ..Usage::default() },
    }
}

#[test]
fn each_attempt_tells_how_it_ended_and_why_another_followed() {
    let needs = Requirements { memory_bytes: GIB, ..Requirements::default() };
    let rows = [
        result(1, -128, Some(Cause::Lost), None),
        result(2, 137, Some(Cause::ExitCode), Some(2)),
        result(3, 0, None, None),
    ];
    let attempts: Vec<EndedAttempt<'_>> = rows.iter().map(|result| EndedAttempt { result, node: Some("n1") }).collect();
    let told = attempt_reports(&attempts, &needs, true);
    assert_eq!(told[0].then.as_deref(), Some("it was retried: the job did not cause the failure"));
    assert_eq!(told[1].diagnosis, Some(Cause::OutOfMemory));
    assert!(
        told[1].evidence.contains(&"its peak memory was 2 GiB; it requests 1 GiB now".to_owned()),
        "{:?}",
        told[1].evidence
    );
    assert_eq!((told[2].then.as_ref(), told[2].evidence.len()), (None, 0));
    let open = attempt_reports(&attempts[..1], &needs, false);
    assert!(open[0].then.is_some(), "the next attempt has not ended");
}

#[test]
fn what_recovery_has_raised() {
    let declared = Requirements { memory_bytes: GIB, runtime_seconds: 60, ..Requirements::default() };
    let now = Requirements { memory_bytes: 2 * GIB, runtime_seconds: 90, ..declared.clone() };
    assert_eq!(raised(&declared, &now), ["memory from 1 GiB to 2 GiB", "runtime from 1m to 1m30s"]);
    assert!(raised(&declared, &declared).is_empty());
}
