//! Pins the names of all states, causes and choices literally.

use crate::action::{ActionState, ActionType, TriggerType};
use crate::allocation::{AllocationOrigin, AllocationStatus};
use crate::api::{ApplyOutcome, RunnerStatus};
use crate::data::{FileRole, FileStatus};
use crate::execution::{ExecutionMode, Granularity, StdioMode};
use crate::explain::ReasonKind;
use crate::failure::{RecoveryPolicy, UnknownAction};
use crate::parameters::ParameterMode;
use crate::problem::{ProblemKind, Severity};
use crate::recovery::{FailureClass, RecoveryDecision};
use crate::slurm::SlurmState;
use crate::state::{Cause, JobState};
use crate::status::JobCounts;
use crate::testing::are_named;
use crate::token::Scope;
use crate::workflow::{RerunPolicy, StopPolicy};

/// The code, the name, and whether the state is complete, settled and held.
const JOB_STATES: [(JobState, u8, &str, [bool; 3]); 12] = [
    (JobState::Uninitialized, 0, "uninitialized", [false, false, false]),
    (JobState::Blocked, 1, "blocked", [false, false, false]),
    (JobState::Ready, 2, "ready", [false, false, false]),
    (JobState::Leased, 3, "leased", [false, false, true]),
    (JobState::Running, 4, "running", [false, false, true]),
    (JobState::Completed, 5, "completed", [true, true, false]),
    (JobState::Failed, 6, "failed", [true, true, false]),
    (JobState::Canceled, 7, "canceled", [true, true, false]),
    (JobState::Terminated, 8, "terminated", [true, true, false]),
    (JobState::Disabled, 9, "disabled", [false, true, false]),
    (JobState::PendingFailed, 10, "pending_failed", [false, false, false]),
    (JobState::Recovering, 11, "recovering", [false, false, false]),
];

#[test]
fn states_of_jobs() {
    for (state, code, name, kinds) in JOB_STATES {
        are_named(&[(state, name)]);
        assert_eq!((state.code(), JobState::from_code(code)), (code, Some(state)), "{name}");
        assert_eq!((state.as_str(), name.parse()), (name, Ok(state)));
        assert_eq!([state.is_complete(), state.is_settled(), state.is_held()], kinds, "{name}");
        assert_eq!(format!("{state:>15}|"), format!("{name:>15}|"));
    }
    assert_eq!(JobState::ALL.to_vec(), JOB_STATES.map(|(state, ..)| state));
    assert_eq!(JobState::from_code(12), None);
    assert_eq!("Ready".parse::<JobState>(), Err("unknown job state 'Ready'".to_owned()));
}

#[test]
fn each_state_has_a_counter_of_its_own() {
    let mut counts = JobCounts::default();
    for (state, code, ..) in JOB_STATES {
        counts.add(state, 1 << code);
    }
    let expected = JobCounts {
        total: (1 << 12) - 1,
        uninitialized: 1,
        blocked: 2,
        ready: 4,
        leased: 8,
        running: 16,
        completed: 32,
        failed: 64,
        canceled: 128,
        terminated: 256,
        disabled: 512,
        pending_failed: 1_024,
        recovering: 2_048,
    };
    assert_eq!(counts, expected);
    for (state, code, ..) in JOB_STATES {
        assert_eq!(counts.of(state), 1 << code, "{state}");
    }
    assert_eq!(counts.settled(), 32 + 64 + 128 + 256 + 512);
    counts.add(JobState::Ready, -3);
    assert_eq!((counts.ready, counts.total), (1, expected.total - 3));
}

#[test]
fn causes_and_whether_the_job_is_to_blame() {
    let cases = [
        (Cause::OutOfMemory, "OutOfMemory", false),
        (Cause::Timeout, "Timeout", false),
        (Cause::NodeFailure, "NodeFailure", true),
        (Cause::Preempted, "Preempted", true),
        (Cause::Lost, "Lost", true),
        (Cause::ExitCode, "ExitCode", false),
        (Cause::Canceled, "Canceled", false),
        (Cause::StartFailed, "StartFailed", false),
        (Cause::MissingOutput, "MissingOutput", false),
        (Cause::Stopped, "Stopped", false),
    ];
    for (cause, name, is_loss) in cases {
        are_named(&[(cause, name)]);
        assert_eq!((cause.as_str(), cause.to_string(), cause.is_loss()), (name, name.to_owned(), is_loss));
    }
}

// R01, R02, S20
#[test]
fn states_of_slurm_and_what_they_end() {
    let cases = [
        // Name, whether it is over, whether it has nodes, why its jobs ended.
        (SlurmState::Pending, "Pending", false, false, None),
        (SlurmState::Running, "Running", false, true, None),
        (SlurmState::Suspended, "Suspended", false, true, None),
        (SlurmState::ComingBack, "ComingBack", false, false, Some(Cause::Preempted)),
        (SlurmState::Preempted, "Preempted", true, false, Some(Cause::Preempted)),
        (SlurmState::NodeFailure, "NodeFailure", true, false, Some(Cause::NodeFailure)),
        (SlurmState::BootFailure, "BootFailure", true, false, Some(Cause::NodeFailure)),
        (SlurmState::OutOfMemory, "OutOfMemory", true, false, Some(Cause::Lost)),
        (SlurmState::Deadline, "Deadline", true, false, Some(Cause::Timeout)),
        (SlurmState::Timeout, "Timeout", true, false, Some(Cause::Timeout)),
        (SlurmState::Cancelled, "Cancelled", true, false, Some(Cause::Lost)),
        (SlurmState::Completed, "Completed", true, false, Some(Cause::Lost)),
        (SlurmState::Failed, "Failed", true, false, Some(Cause::Lost)),
        (SlurmState::Unknown, "Unknown", false, false, None),
    ];
    assert_eq!(SlurmState::ALL.to_vec(), cases.map(|(state, ..)| state));
    for (state, name, is_over, has_nodes, cause) in cases {
        are_named(&[(state, name)]);
        assert_eq!((state.as_str(), state.to_string()), (name, name.to_owned()));
        assert_eq!(
            (state.is_over(), state.has_nodes(), state.cause_of_its_jobs()),
            (is_over, has_nodes, cause),
            "{name}"
        );
    }
}

#[test]
fn triggers_actions_and_their_states() {
    let triggers = [
        // Name, whether it waits for jobs, whether it concerns workers.
        (TriggerType::OnWorkflowStart, "on_workflow_start", false, false),
        (TriggerType::OnWorkflowComplete, "on_workflow_complete", false, false),
        (TriggerType::OnJobsReady, "on_jobs_ready", true, false),
        (TriggerType::OnJobsComplete, "on_jobs_complete", true, false),
        (TriggerType::OnWorkerStart, "on_worker_start", false, true),
        (TriggerType::OnWorkerComplete, "on_worker_complete", false, true),
    ];
    for (trigger, name, of_jobs, of_workers) in triggers {
        are_named(&[(trigger, name)]);
        assert_eq!((trigger.as_str(), trigger.to_string()), (name, name.to_owned()));
        assert_eq!((trigger.is_of_jobs(), trigger.is_of_workers()), (of_jobs, of_workers), "{name}");
    }
    for (action, name) in [(ActionType::RunCommands, "run_commands"), (ActionType::ScheduleNodes, "schedule_nodes")] {
        are_named(&[(action, name)]);
        assert_eq!((action.as_str(), action.to_string()), (name, name.to_owned()));
    }
    let states = [
        (ActionState::Waiting, "waiting", false),
        (ActionState::Pending, "pending", true),
        (ActionState::Running, "running", true),
        (ActionState::Executed, "executed", false),
        (ActionState::Failed, "failed", false),
        (ActionState::Skipped, "skipped", false),
    ];
    assert_eq!(ActionState::ALL.to_vec(), states.map(|(state, ..)| state));
    for (state, name, is_open) in states {
        are_named(&[(state, name)]);
        assert_eq!((state.as_str(), state.to_string(), state.is_open()), (name, name.to_owned(), is_open));
        assert_eq!(name.parse(), Ok(state));
    }
    assert_eq!("open".parse::<ActionState>(), Err("unknown state of an action 'open'".to_owned()));
    assert_eq!(ActionState::default(), ActionState::Waiting);
}

#[test]
fn states_and_origins_of_allocations() {
    let statuses = [
        (AllocationStatus::Pending, "pending", false),
        (AllocationStatus::Active, "active", false),
        (AllocationStatus::Complete, "complete", true),
        (AllocationStatus::Canceled, "canceled", true),
    ];
    assert_eq!(AllocationStatus::ALL.to_vec(), statuses.map(|(status, ..)| status));
    for (status, name, is_over) in statuses {
        are_named(&[(status, name)]);
        assert_eq!((status.to_string(), status.is_over(), name.parse()), (name.to_owned(), is_over, Ok(status)));
    }
    let origins = [
        (AllocationOrigin::Sizing, "sizing"),
        (AllocationOrigin::Action, "action"),
        (AllocationOrigin::Recovery, "recovery"),
        (AllocationOrigin::Manual, "manual"),
    ];
    assert_eq!(AllocationOrigin::ALL.to_vec(), origins.map(|(origin, _)| origin));
    for (origin, name) in origins {
        are_named(&[(origin, name)]);
        assert_eq!((origin.to_string(), name.parse()), (name.to_owned(), Ok(origin)));
    }
    assert_eq!(
        (AllocationStatus::default(), AllocationOrigin::default()),
        (AllocationStatus::Pending, AllocationOrigin::Sizing)
    );
}

// X01, X06
#[test]
fn words_of_documents_and_their_defaults() {
    are_named(&[(ExecutionMode::Direct, "direct"), (ExecutionMode::Slurm, "slurm"), (ExecutionMode::Auto, "auto")]);
    are_named(&[
        (StdioMode::Separate, "separate"),
        (StdioMode::Combined, "combined"),
        (StdioMode::NoStdout, "no_stdout"),
        (StdioMode::NoStderr, "no_stderr"),
        (StdioMode::None, "none"),
        (StdioMode::Packed, "packed"),
    ]);
    are_named(&[(Granularity::Summary, "summary"), (Granularity::TimeSeries, "time_series")]);
    are_named(&[(ParameterMode::Product, "product"), (ParameterMode::Zip, "zip")]);
    are_named(&[(StopPolicy::None, "None"), (StopPolicy::Cancel, "Cancel"), (StopPolicy::Drain, "Drain")]);
    are_named(&[(RerunPolicy::Failed, "Failed"), (RerunPolicy::Incomplete, "Incomplete"), (RerunPolicy::All, "All")]);
    are_named(&[(RecoveryPolicy::Auto, "Auto"), (RecoveryPolicy::Manual, "Manual"), (RecoveryPolicy::Never, "Never")]);
    are_named(&[(UnknownAction::Fail, "Fail"), (UnknownAction::Retry, "Retry")]);
    assert_eq!(
        (ExecutionMode::default(), StdioMode::default(), Granularity::default()),
        (ExecutionMode::Auto, StdioMode::Separate, Granularity::Summary)
    );
    assert_eq!((ParameterMode::default(), RerunPolicy::default()), (ParameterMode::Product, RerunPolicy::Incomplete));
}

#[test]
fn words_of_answers() {
    are_named(&[
        (ApplyOutcome::Created, "created"),
        (ApplyOutcome::Configured, "configured"),
        (ApplyOutcome::Unchanged, "unchanged"),
    ]);
    are_named(&[(RunnerStatus::Active, "active"), (RunnerStatus::Silent, "silent"), (RunnerStatus::Gone, "gone")]);
    are_named(&[(FileRole::Input, "input"), (FileRole::Output, "output")]);
    for (status, name) in
        [(FileStatus::Present, "present"), (FileStatus::Required, "required"), (FileStatus::Expected, "expected")]
    {
        are_named(&[(status, name)]);
        assert_eq!(status.as_str(), name);
    }
    are_named(&[(RecoveryDecision::Retry, "Retry"), (RecoveryDecision::Leave, "Leave")]);
    are_named(&[(FailureClass::Retry, "Retry"), (FailureClass::Fail, "Fail")]);
    are_named(&[(Severity::Error, "Error"), (Severity::Warning, "Warning")]);
    are_named(&[
        (ProblemKind::Plain, "Plain"),
        (ProblemKind::Duplicate, "Duplicate"),
        (ProblemKind::Cycle, "Cycle"),
        (ProblemKind::TooLarge, "TooLarge"),
        (ProblemKind::UnknownReference, "UnknownReference"),
    ]);
    let scopes = [
        (Scope::Admin, "admin"),
        (Scope::Owner, "owner"),
        (Scope::Viewer, "viewer"),
        (Scope::Editor, "editor"),
        (Scope::Runner, "runner"),
        (Scope::Pool, "pool"),
        (Scope::Metrics, "metrics"),
    ];
    for (scope, name) in scopes {
        are_named(&[(scope, name)]);
        assert_eq!(scope.name(), name);
    }
}

#[test]
fn words_of_explanations() {
    are_named(&[
        (ReasonKind::Running, "Running"),
        (ReasonKind::Promised, "Promised"),
        (ReasonKind::RunnerSilent, "RunnerSilent"),
        (ReasonKind::Dependency, "Dependency"),
        (ReasonKind::DependencyFailed, "DependencyFailed"),
        (ReasonKind::NoRunner, "NoRunner"),
        (ReasonKind::NoAllocation, "NoAllocation"),
        (ReasonKind::Label, "Label"),
        (ReasonKind::Capacity, "Capacity"),
        (ReasonKind::TimeLeft, "TimeLeft"),
        (ReasonKind::Busy, "Busy"),
        (ReasonKind::AllocationPending, "AllocationPending"),
        (ReasonKind::AllocationRefused, "AllocationRefused"),
        (ReasonKind::NoPartition, "NoPartition"),
        (ReasonKind::SlurmUnreachable, "SlurmUnreachable"),
        (ReasonKind::AllocationLimit, "AllocationLimit"),
        (ReasonKind::AllocationsFruitless, "AllocationsFruitless"),
        (ReasonKind::AttemptEnding, "AttemptEnding"),
        (ReasonKind::RecoveryScript, "RecoveryScript"),
        (ReasonKind::StartActions, "StartActions"),
        (ReasonKind::Suspended, "Suspended"),
        (ReasonKind::Canceled, "Canceled"),
        (ReasonKind::Disabled, "Disabled"),
        (ReasonKind::NeedsDecision, "NeedsDecision"),
        (ReasonKind::Failed, "Failed"),
        (ReasonKind::Completed, "Completed"),
        (ReasonKind::NotStarted, "NotStarted"),
    ]);
}
