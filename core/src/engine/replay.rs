//! Replay of results from the journal of a runner that was offline.

use torc_api::wire::{AttemptKey, FinishedAttempt, JournalledResult, ReplayOutcome, Replayed};

use super::runners::LiveRunner;
use super::tx::Tx;
use super::workflow::LiveWorkflow;
use super::workflows::Workflows;
use super::{CommandError, Engine};
use crate::ids::{JobId, Now, RunnerId, WorkflowId};
use crate::rows::DetachedLease;
use crate::time::before;

/// Tolerated difference between the clocks of hosts. Synchronized hosts differ by less than a second.
const CLOCK_SKEW_MS: i64 = 60_000;

impl Engine {
    /// Accepts journaled results of one run of a workflow under the same rules as reported results. Returns the
    /// outcome of each.
    pub fn replay(
        &mut self,
        workflow: WorkflowId,
        run: i32,
        results: &[JournalledResult],
        tx: &mut Tx,
    ) -> Result<Vec<Replayed>, CommandError> {
        self.workflows.require(workflow)?;
        Ok(results.iter().map(|result| self.replay_one(workflow, run, result, tx)).collect())
    }

    fn replay_one(&mut self, id: WorkflowId, run: i32, result: &JournalledResult, tx: &mut Tx) -> Replayed {
        let key = result.finished.key;
        let rejected = |reason| Replayed { key, outcome: ReplayOutcome::Rejected, reason: Some(reason) };
        if let Some(reason) = self.rejection(id, run, result) {
            self.end_superseded(&key, tx);
            return rejected(reason);
        }
        let age = u64::try_from(tx.now.wall_ms.saturating_sub(result.ended_ms)).unwrap_or(0);
        let finished = FinishedAttempt { ended_ms_ago: age, ..result.finished.clone() };
        let runner = result.runner.map(RunnerId).or_else(|| self.holder(&key)).unwrap_or_default();
        let recorded = tx.changes.rows().results.len();
        if !self.leases().accept_result(runner, &finished, tx) {
            return rejected("a newer attempt has been started".to_owned());
        }
        let outcome = match tx.changes.rows().results.len() > recorded {
            true => ReplayOutcome::Accepted,
            false => ReplayOutcome::AlreadyKnown,
        };
        Replayed { key, outcome, reason: None }
    }

    /// Ends the revoked lease of a rejected result, because the result shows that its attempt has ended.
    fn end_superseded(&mut self, key: &AttemptKey, tx: &mut Tx) {
        let is_key = |lease: &DetachedLease| (lease.lease_id, lease.workflow.0) == (key.lease_id, key.workflow);
        let is_ending = |runner: &&LiveRunner| runner.leases.revoked().any(is_key);
        let Some(holder) = self.runners.values().find(is_ending).map(LiveRunner::id) else { return };
        let mut leases = self.leases();
        if let Some(lease) = leases.remove_revoked(holder, key) {
            // A rejected result is not recorded.
            let lease = DetachedLease { started_ms: None, ..lease };
            leases.end_revoked(lease, Err("it has ended according to the journal of its runner"), tx);
        }
    }

    /// Returns the reason to reject a result that does not belong to this run.
    fn rejection(&self, id: WorkflowId, run: i32, result: &JournalledResult) -> Option<String> {
        let key = &result.finished.key;
        if key.workflow != id.0 || key.run != run {
            return Some(format!("it belongs to run {} of workflow {}", key.run, key.workflow));
        }
        let workflow = self.workflows.get(&id)?;
        if key.run != workflow.row().run {
            return Some(format!("run {} is superseded: the workflow is at run {}", key.run, workflow.row().run));
        }
        let Some(job) = workflow.graph.ordinal(JobId(key.job)) else {
            return Some(format!("the workflow has no job {}", key.job));
        };
        let name = workflow.graph.name(job);
        if !result.name.is_empty() && result.name != name {
            return Some(format!("job {} is '{name}' here, not '{}'", key.job, result.name));
        }
        let is_foreign = is_created_after(workflow, result.ended_ms);
        is_foreign.then(|| "it ended before this workflow was created".to_owned())
    }

    fn holder(&self, key: &AttemptKey) -> Option<RunnerId> {
        let workflow = self.workflows.get(&WorkflowId(key.workflow))?;
        workflow.graph.job(workflow.graph.ordinal(JobId(key.job))?).runner()
    }
}

impl Workflows {
    /// Returns whether a result belongs to an earlier store with the same numbers: it ended before this workflow was created.
    pub(super) fn is_from_another_store(&self, finished: &FinishedAttempt, now: Now) -> bool {
        let Some(workflow) = self.get(&WorkflowId(finished.key.workflow)) else { return false };
        let ended_ms = before(now.wall_ms, finished.ended_ms_ago);
        // If the clock was set back to a time before the creation, the times cannot be compared.
        workflow.row().created_ms <= now.wall_ms && is_created_after(workflow, ended_ms)
    }
}

/// Returns whether a workflow was created after a time. Times before 1970 are ignored.
fn is_created_after(workflow: &LiveWorkflow, time_ms: i64) -> bool {
    time_ms > 0 && time_ms < workflow.row().created_ms.saturating_sub(CLOCK_SKEW_MS)
}
