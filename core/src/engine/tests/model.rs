//! The expected end of a workflow, computed from its results alone: one recursion over names, no counters, no queues.

use std::collections::HashMap;

use torc_api::failure::RecoveryPolicy;
use torc_api::state::{Cause, JobState};

use super::history::History;
use crate::rows::{JobRow, ResultRow};

/// Compares the state of every job with the state that its results and parents imply.
pub fn check_end(history: &History) {
    let mut model = Model { history, known: HashMap::new() };
    let database = &history.harness.database;
    for row in database.jobs.values() {
        let expected = model.evaluate(&row.name);
        let told = database.results_of(row.id).into_iter().map(|row| (row.run, row.attempt, row.cause));
        assert_eq!(row.state, expected, "{} after {:?}", row.name, told.collect::<Vec<_>>());
    }
    let spawner = |row: &JobRow| database.profiles[&row.profile].profile.spawned.as_ref().map(|spawned| spawned.by);
    let spawned: Vec<_> = database.jobs.values().filter_map(spawner).collect();
    assert!(spawned.iter().all(|by| database.jobs.contains_key(by)), "what spawned a job is there");
    assert_eq!(database.jobs.len(), history.plan.jobs.len() + spawned.len());
    for action in history.harness.engine.actions(history.harness.workflow()).unwrap() {
        let is_over = !action.status.is_open() || action.worker.is_some();
        assert!(is_over, "no runner carries out {action:?}");
    }
}

struct Model<'a> {
    history: &'a History,
    known: HashMap<String, JobState>,
}

impl Model<'_> {
    fn evaluate(&mut self, name: &str) -> JobState {
        if let Some(state) = self.known.get(name) {
            return *state;
        }
        let history = self.history;
        let (after, cancel_on_failure) = match history.plan.job(name) {
            Some(planned) => (planned.after.clone(), planned.cancel_on_failure),
            None => self.spawned(name),
        };
        let parents: Vec<JobState> = after.iter().map(|parent| self.evaluate(parent)).collect();
        let failed =
            |state: &JobState| !matches!(state, JobState::Completed | JobState::PendingFailed | JobState::Blocked);
        let state = if cancel_on_failure && parents.iter().any(failed) {
            JobState::Canceled
        } else if parents.iter().any(|state| !state.is_complete()) && !self.was_canceled(name) {
            JobState::Blocked
        } else {
            self.own_outcome(name)
        };
        self.known.insert(name.to_owned(), state);
        state
    }

    /// Returns the dependencies of a spawned job, which no document contains, from its row.
    fn spawned(&self, name: &str) -> (Vec<String>, bool) {
        let database = &self.history.harness.database;
        let row = self.history.harness.job(name);
        let name = |id| database.jobs.get(id).map(|parent: &JobRow| parent.name.clone());
        let cancel = database.profiles[&row.profile].profile.cancel_on_blocking_job_failure;
        (row.depends_on.iter().filter_map(name).collect(), cancel)
    }

    fn was_canceled(&self, name: &str) -> bool {
        self.history.canceled_once && self.history.harness.state_of(name) == JobState::Canceled
    }

    fn own_outcome(&self, name: &str) -> JobState {
        let row = self.history.harness.job(name);
        let database = &self.history.harness.database;
        let Some(result) = database.result((row.id, row.run, row.attempt)) else {
            assert!(self.was_canceled(name), "{name} is {} and has no result", row.state);
            return JobState::Canceled;
        };
        let Some(cause) = result.cause else { return JobState::Completed };
        if cause == Cause::Canceled {
            return JobState::Canceled;
        }
        let alike = |other: &&ResultRow| other.job == row.id && other.run == row.run && other.cause == Some(cause);
        let count = database.results.iter().filter(alike).count();
        if self.was_canceled(name) && history_handles(self.history, name) {
            return JobState::Canceled;
        }
        if self.script_failed(name, row.attempt) {
            return JobState::Failed;
        }
        let budget =
            if cause == Cause::ExitCode && history_handles(self.history, name) { 2 } else { self.budget(cause) };
        assert!(count > budget, "{name} was given up after {count} times {cause}");
        let spec = &self.history.plan.spec;
        let manual = spec.recovery.as_ref().and_then(|recovery| recovery.policy) == Some(RecoveryPolicy::Manual);
        match cause {
            _ if manual || spec.use_pending_failed == Some(true) => {
                // The user may have decided by canceling everything.
                if self.was_canceled(name) { JobState::Canceled } else { JobState::PendingFailed }
            }
            Cause::Timeout => JobState::Terminated,
            _ => JobState::Failed,
        }
    }

    fn script_failed(&self, name: &str, attempt: i32) -> bool {
        let events = &self.history.harness.database.events;
        let of_job = |message: &str| {
            message.contains(&format!("job '{name}' ")) && message.ends_with(&format!("attempt {attempt}"))
        };
        events.iter().any(|event| event.reason == "RecoveryFailed" && of_job(&event.message))
    }

    fn budget(&self, cause: Cause) -> usize {
        let policy = self.history.plan.spec.recovery.as_ref().and_then(|recovery| recovery.policy);
        match (cause, policy) {
            (_, Some(RecoveryPolicy::Never)) => 0,
            (Cause::Lost | Cause::NodeFailure | Cause::Preempted, _) => 3,
            (Cause::OutOfMemory | Cause::Timeout, Some(RecoveryPolicy::Auto)) => 2,
            (Cause::Stopped, _) => panic!("a job whose runner was stopped is tried again"),
            _ => 0,
        }
    }
}

/// Returns whether the job has a handler with a recovery script for exit codes.
fn history_handles(history: &History, name: &str) -> bool {
    history.plan.job(name).is_some_and(|job| job.handler.is_some())
}
