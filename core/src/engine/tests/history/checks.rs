//! Checks of every answer and of every accepted result.

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, LeaseRole, SyncRequest, SyncResponse};

use super::History;
use crate::class::{fits, minus};
use crate::engine::tests::fleet::Promise;
use crate::engine::tests::plan::{PlannedJob, job};
use crate::engine::workflow::JobRecord;
use crate::ids::{JobId, RunnerId, WorkflowId};

impl History {
    pub(super) fn is_awaited(&self, key: &AttemptKey) -> bool {
        let Some(workflow) = self.harness.engine.workflows.get(&WorkflowId(key.workflow)) else { return false };
        let expired_leases =
            workflow.leases.expired_of(JobId(key.job)).iter().any(|lease| lease.lease_id == key.lease_id);
        self.live(key).is_some_and(|record| {
            let open = !record.state().is_complete() && record.state() != JobState::PendingFailed;
            open && record.run() == key.run && (record.lease_id() == key.lease_id || expired_leases)
        })
    }

    fn live(&self, key: &AttemptKey) -> Option<&JobRecord> {
        let workflow = self.harness.engine.workflows.get(&WorkflowId(key.workflow))?;
        Some(workflow.graph.job(workflow.graph.ordinal(JobId(key.job))?))
    }

    pub(super) fn runs_elsewhere(&self, key: &AttemptKey, id: RunnerId) -> bool {
        self.live(key).is_some_and(|record| {
            record.state() == JobState::Running && record.runner() != Some(id) && record.lease_id() != key.lease_id
        })
    }

    /// An attempt that its runner still has is lost only after a long silence.
    pub(super) fn check_nothing_lost_in_contact(&mut self) {
        let results = &self.harness.database.results;
        for row in results[self.results_seen..].iter().filter(|row| row.cause == Some(Cause::Lost)) {
            let attempt = |key: &AttemptKey| (JobId(key.job), key.run, key.attempt) == (row.job, row.run, row.attempt);
            let silent = row.message.as_deref().is_some_and(|message| message.contains("silent"));
            let holders =
                self.fleet.iter().filter(|runner| runner.id.is_some() && runner.id == row.runner && !runner.gone);
            for runner in holders {
                let has_it = runner.running.iter().any(|promise| attempt(&promise.key));
                assert!(silent || !has_it, "{} has lost job {} which it runs", row.runner.unwrap(), row.job);
            }
        }
        self.results_seen = results.len();
    }

    /// An attempt number is used for one start. Two attempts of a job are alive only if the runner of one was cut
    /// off. A lost script runs again for the same attempt.
    pub(super) fn check_start(&mut self, index: usize, key: &AttemptKey) {
        let role = |promise: &&Promise| promise.key == *key;
        let role = self.fleet[index].running.iter().find(role).map_or(LeaseRole::Job, |promise| promise.role);
        if role == LeaseRole::Recovery {
            return;
        }
        let lease_id = *self.started.entry((key.job, key.run, key.attempt)).or_insert(key.lease_id);
        assert_eq!(lease_id, key.lease_id, "{key:?} is started a second time");
        let now = self.harness.now.mono_ms;
        // An action that is triggered again may start before the earlier attempt has ended: actions run at least
        // once.
        if self.fleet[index].is_cut_off(now) || !role.is_job() {
            return;
        }
        let others = self.fleet.iter().filter(|runner| !runner.is_cut_off(now)).flat_map(|runner| &runner.running);
        let in_contact =
            others.filter(|promise| !promise.was_cut_off && promise.role == role).map(|promise| promise.key);
        let alive: Vec<AttemptKey> = in_contact.filter(|other| other.job == key.job).collect();
        assert_eq!(alive, [*key], "two attempts of a job are alive");
    }

    /// Records the tick at which each job has ended for good.
    pub(super) fn note_ends(&mut self) {
        for (_, record) in self.harness.engine.workflows.values().flat_map(|workflow| workflow.graph.iter()) {
            let attempt = (record.run(), record.attempt());
            let known = self.seen.ended.get(&record.id()).map(|(attempt, _)| *attempt);
            if !record.state().is_complete() {
                self.seen.ended.remove(&record.id());
            } else if known != Some(attempt) {
                self.seen.ended.insert(record.id(), (attempt, self.tick));
            }
        }
    }

    /// Checks that an attempt whose result counts was leased after the parents of the job had ended.
    pub(super) fn check_came_after_parents(&self, key: &AttemptKey) {
        let workflow = self.harness.engine.workflows.get(&self.harness.workflow()).unwrap();
        let Some(job) = workflow.graph.ordinal(JobId(key.job)) else { return };
        let granted = self.seen.granted[key];
        for parent in workflow.graph.parents(job) {
            let parent = workflow.graph.job(*parent);
            if let Some((_, ended)) = self.seen.ended.get(&parent.id()) {
                assert!(granted >= *ended, "{} was given out before a parent ended", workflow.graph.name(job));
            }
        }
    }

    /// Checks that the results of the parents are durable when a current lease reaches its runner.
    pub(super) fn check_parents_durable(&self, key: &AttemptKey) {
        let Some(row) = self.harness.database.jobs.get(&JobId(key.job)) else { return };
        if row.lease_id != key.lease_id || !row.state.is_held() {
            return;
        }
        let database = &self.harness.database;
        let flag = database.profiles[&row.profile].profile.cancel_on_blocking_job_failure;
        for parent in row.depends_on.iter().filter_map(|parent| database.jobs.get(parent)) {
            assert!(parent.state.is_complete(), "{} before {}", row.name, parent.name);
            if flag {
                let result = database.result((parent.id, parent.run, parent.attempt)).unwrap();
                assert_eq!(result.state, JobState::Completed);
            }
        }
    }

    /// Checks that the granted jobs fit: first into the free capacity, then, up to the requested number, into the
    /// empty runner.
    pub(super) fn check_packing(&self, runner: usize, request: &SyncRequest, response: &SyncResponse) {
        let introduction = &self.fleet[runner].introduction;
        let mut free = request.want.free;
        let mut ahead = 0;
        // Tasks that take no resources are granted in addition.
        let jobs = || response.leases.iter().filter(|lease| lease.role.is_job());
        assert!(jobs().count() <= request.want.limit as usize);
        for lease in jobs() {
            let planned = self.planned(&lease.name);
            assert_eq!(planned.labels.is_empty(), introduction.labels.is_empty());
            assert!(planned.labels.iter().all(|label| introduction.labels.contains(label)));
            if introduction.max_parallel_jobs.is_some() {
                continue;
            }
            let mut demand = response.profiles[lease.profile as usize].resources;
            demand.nodes = 0;
            assert!(fits(&introduction.capacity, &demand));
            if ahead == 0 && fits(&free, &demand) {
                free = minus(&free, &demand);
            } else {
                ahead += 1;
            }
        }
        assert!(ahead <= request.want.ahead, "{ahead} jobs ahead, {} asked for", request.want.ahead);
    }

    /// A job as it was written, or spawned.
    fn planned(&self, name: &str) -> PlannedJob {
        self.plan.job(name).cloned().unwrap_or_else(|| job(name))
    }
}
