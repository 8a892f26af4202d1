//! Results that runners wrote down while the server was away, brought by a person or by the next runner in the same place.

use torc_api::wire::{AttemptKey, FinishedAttempt, JournalledResult, ReplayOutcome, Replayed};

use super::reports::ago;
use super::runners::Runner;
use super::tx::Tx;
use super::workflow::Workflow;
use super::{CommandError, Engine};
use crate::ids::{JobId, Now, RunnerId, WorkflowId};
use crate::rows::DetachedLease;

/// Clocks of hosts may differ by so much.
const SKEW_MS: i64 = 60_000;

impl Engine {
    /// Takes in results of one run of a workflow, by the rule for every result; says what became of each.
    pub fn replay(
        &mut self,
        workflow: WorkflowId,
        run: i32,
        results: &[JournalledResult],
        tx: &mut Tx,
    ) -> Result<Vec<Replayed>, CommandError> {
        self.workflow(workflow)?;
        Ok(results.iter().map(|result| self.replay_one((workflow, run), result, tx)).collect())
    }

    fn replay_one(&mut self, run: (WorkflowId, i32), result: &JournalledResult, tx: &mut Tx) -> Replayed {
        let key = result.finished.key;
        let rejected = |reason| Replayed { key, outcome: ReplayOutcome::Rejected, reason: Some(reason) };
        if let Some(reason) = self.misplaced(run, result) {
            self.end_superseded(&key, tx);
            return rejected(reason);
        }
        let age = u64::try_from(tx.now.wall_ms.saturating_sub(result.ended_ms)).unwrap_or(0);
        let finished = FinishedAttempt { ended_ms_ago: age, ..result.finished.clone() };
        let runner = result.runner.map(RunnerId).or_else(|| self.holder(&key)).unwrap_or_default();
        let written = tx.changes.rows().results.len();
        if !self.accept_result(runner, &finished, tx) {
            return rejected("a newer attempt has been started".to_owned());
        }
        let outcome = match tx.changes.rows().results.len() > written {
            true => ReplayOutcome::Accepted,
            false => ReplayOutcome::AlreadyKnown,
        };
        Replayed { key, outcome, reason: None }
    }

    /// A result of an earlier run counts no more, but it tells that its attempt has ended: the job need not wait for that.
    fn end_superseded(&mut self, key: &AttemptKey, tx: &mut Tx) {
        let is_key = |lease: &DetachedLease| (lease.lease_id, lease.workflow.0) == (key.lease_id, key.workflow);
        let is_ending = |runner: &&Runner| runner.leases.revoked().any(is_key);
        let Some(holder) = self.runners.values().find(is_ending).map(|runner| runner.row.id) else { return };
        if let Some(lease) = self.take_revoked(holder, key) {
            // The result is rejected, so there is nothing to record of it.
            let lease = DetachedLease { started_ms: None, ..lease };
            self.end_revoked(lease, Err("the journal of its runner says that it has ended"), tx);
        }
    }

    /// Why a result cannot be one of this run, if so.
    fn misplaced(&self, (id, run): (WorkflowId, i32), result: &JournalledResult) -> Option<String> {
        let key = &result.finished.key;
        if key.workflow != id.0 || key.run != run {
            return Some(format!("it belongs to run {} of workflow {}", key.run, key.workflow));
        }
        let workflow = self.workflows.get(&id)?;
        if key.run != workflow.row.run {
            return Some(format!("run {} is superseded: the workflow is at run {}", key.run, workflow.row.run));
        }
        let Some(job) = workflow.graph.ordinal(JobId(key.job)) else {
            return Some(format!("the workflow has no job {}", key.job));
        };
        let name = workflow.graph.name(job);
        if !result.name.is_empty() && result.name != name {
            return Some(format!("job {} is '{name}' here, not '{}'", key.job, result.name));
        }
        let foreign = workflow.is_younger_than(result.ended_ms);
        foreign.then(|| "it ended before this workflow was created".to_owned())
    }

    /// Whether a report is about a workflow of an earlier store that had the same numbers: it ended before this one was created.
    pub(super) fn is_from_another_store(&self, finished: &FinishedAttempt, now: Now) -> bool {
        let Some(workflow) = self.workflows.get(&WorkflowId(finished.key.workflow)) else { return false };
        let ended_ms = ago(now.wall_ms, finished.ended_ms_ago);
        // A clock that was set back to before the creation says nothing about anybody's age.
        workflow.row.created_ms <= now.wall_ms && workflow.is_younger_than(ended_ms)
    }

    fn holder(&self, key: &AttemptKey) -> Option<RunnerId> {
        let workflow = self.workflows.get(&WorkflowId(key.workflow))?;
        workflow.graph.job(workflow.graph.ordinal(JobId(key.job))?).runner()
    }
}

impl Workflow {
    /// Times that make no sense at all say nothing.
    fn is_younger_than(&self, time_ms: i64) -> bool {
        time_ms > 0 && time_ms < self.row.created_ms.saturating_sub(SKEW_MS)
    }
}
