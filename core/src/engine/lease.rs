//! Granting leases: chosen jobs are promised to a runner and described so completely that no further call is needed.

use std::collections::HashMap;

use torc_api::failure::Prefetch;
use torc_api::state::JobState;
use torc_api::wire::{LEASE_SECONDS, Lease, Profile, RunnerScope, RunnerTerms, SyncResponse, Verdict, Want};
use torc_api::workflow::WorkflowSpec;

use super::Engine;
use super::runner::{HeldLease, Runner};
use super::tx::Tx;
use super::workflow::Workflow;
use crate::class::{Class, minus};
use crate::ids::{Now, RunnerId, WorkflowId};
use crate::job::JobEvent;
use crate::matching::{Allowance, Choice, ClassQueue, OwnerQueues, Usage, WorkflowQueues, choose};
use crate::prefetch::together;

/// No lease is shorter: the next sync would come too late.
const SHORTEST_LEASE_SECONDS: u32 = 5;

impl Engine {
    /// Promises work to a runner and adds it to the answer.
    pub(super) fn grant(&mut self, id: RunnerId, want: Want, response: &mut SyncResponse, tx: &mut Tx) {
        let Some(runner) = self.runners.get(&id) else { return };
        let scope = self.live_in_scope(&runner.row.scope);
        let chosen = choose(&runner.place(tx.now), &want, &self.queues_for(id, want, &scope, tx.now));
        if chosen.is_withheld {
            self.withheld.insert(id);
        } else {
            self.withheld.remove(&id);
        }
        let left = minus(&want.free, &chosen.taken);
        self.set_offer(id, left);
        let count = |choices: &[Choice]| u32::try_from(choices.len()).unwrap_or(u32::MAX);
        let (now_count, ahead_count) = (count(&chosen.now), count(&chosen.ahead));
        self.lease_all(id, chosen.now.into_iter().chain(chosen.ahead), response, tx);
        if left.cpus > 0 && !self.donors.is_empty() {
            let ahead = want.ahead.saturating_sub(ahead_count);
            let bridge = want.bridge.saturating_sub(ahead_count);
            let limit = want.limit.saturating_sub(now_count).saturating_sub(ahead_count);
            self.request_leases_for(id, Want { free: left, ahead, bridge, limit }, tx.now);
        }
    }

    /// Leases the chosen jobs and describes them in the answer.
    fn lease_all(
        &mut self,
        id: RunnerId,
        choices: impl Iterator<Item = Choice>,
        response: &mut SyncResponse,
        tx: &mut Tx,
    ) {
        let mut profiles = HashMap::new();
        for Choice { workflow, job } in choices {
            self.grant_one(id, (workflow, job), response.sequence, tx);
            let lacks_data = self.workflows.get(&workflow).and_then(|workflow| workflow.lacks_data(job));
            if let Some(message) = lacks_data {
                self.fail_without_data(id, (workflow, job), message, tx);
                continue;
            }
            let Some(workflow) = self.workflows.get(&workflow) else { continue };
            let record = &workflow.jobs[job as usize];
            let index = record.profile;
            let profile = *profiles.entry((workflow.id(), index)).or_insert_with(|| {
                response.profiles.push(workflow.wire_profile(index));
                response.profiles.len() as u32 - 1
            });
            response.leases.push(Lease {
                key: workflow.key(job),
                name: workflow.name(job).to_owned(),
                command: workflow.filled_command(job),
                profile,
                priority: record.priority,
                downstream_seconds: record.downstream_seconds,
                ..Lease::default()
            });
        }
    }

    /// Ready jobs of workflows that may give work to this runner, by owner.
    fn queues_for(&self, id: RunnerId, want: Want, scope: &[WorkflowId], now: Now) -> Vec<OwnerQueues<'_>> {
        let Some(runner) = self.runners.get(&id) else { return Vec::new() };
        let may_give = |workflow: &&Workflow| workflow.has_ready_jobs() && workflow.may_lease_to(id);
        let is_wanted_elsewhere =
            |workflow: &Workflow, class: &Class| want.ahead > 0 && self.is_wanted_elsewhere(id, workflow, class, now);
        let mut owners: Vec<OwnerQueues<'_>> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        for workflow in scope.iter().filter_map(|id| self.workflows.get(id)).filter(may_give) {
            let ready = workflow.classes.iter().zip(&workflow.queues).filter(|(_, queue)| !queue.is_empty());
            let classes = ready.map(|(class, queue)| {
                let is_wanted_elsewhere = is_wanted_elsewhere(workflow, class);
                ClassQueue { class, queue, is_wanted_elsewhere }
            });
            let queues = WorkflowQueues {
                workflow: workflow.id(),
                usage: workflow.usage,
                allowance: self.allowance(runner, workflow),
                end: workflow.end_margin(runner.is_in_allocation()),
                classes: classes.collect(),
            };
            let owner = workflow.row.owner.as_str();
            let at = *index.entry(owner).or_insert(owners.len());
            if at == owners.len() {
                owners.push(OwnerQueues { owner, usage: Usage::default(), workflows: Vec::new() });
            }
            owners[at].workflows.push(queues);
        }
        self.add_usage(&mut owners);
        owners
    }

    /// Adds the resources in use by each owner. A single owner shares with no other.
    fn add_usage(&self, owners: &mut [OwnerQueues<'_>]) {
        if owners.len() < 2 {
            return;
        }
        let mut usage: HashMap<&str, Usage> = HashMap::new();
        for workflow in self.live.iter().filter_map(|id| self.workflows.get(id)) {
            usage.entry(&workflow.row.owner).or_default().merge(&workflow.usage);
        }
        for owner in owners {
            owner.usage = usage.get(owner.owner).copied().unwrap_or_default();
        }
    }

    fn grant_one(&mut self, id: RunnerId, (workflow_id, job): (WorkflowId, u32), granted_in: u64, tx: &mut Tx) {
        let epoch = tx.next_lease();
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        let attempt_is_unconfirmed = workflow.attempt_is_unconfirmed(job);
        let record = &mut workflow.jobs[job as usize];
        record.attempt += i32::from(attempt_is_unconfirmed);
        record.epoch = epoch;
        record.runner = Some(id);
        let job_id = record.id;
        // Only ready jobs are in the queues that choices come from.
        let granted = workflow.transition(job, JobEvent::Granted, tx);
        debug_assert_eq!(granted, Ok(JobState::Leased));
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.held.insert(job_id, HeldLease { workflow: workflow_id, granted_in });
        }
    }

    /// How long a silent runner keeps its leases: the shortest that any of its workflows asks for.
    pub(super) fn lease_ms(&self, scope: &[WorkflowId]) -> u64 {
        let asked = self.prefetch_settings(scope).filter_map(|prefetch| prefetch.lease_seconds).min();
        asked.map_or(LEASE_SECONDS, |seconds| u64::from(seconds.unsigned_abs())) * 1_000
    }

    /// How long this runner keeps its leases in silence: as it said itself, or as its workflows say.
    pub(super) fn lease_of(&self, runner: &Runner, scope: &[WorkflowId]) -> u64 {
        let own = runner.lease_seconds.map(|seconds| u64::from(seconds.max(SHORTEST_LEASE_SECONDS)) * 1_000);
        own.unwrap_or_else(|| self.lease_ms(scope))
    }

    /// How far to lease ahead, as the workflows say together; see [`together`].
    pub(super) fn prefetch(&self, scope: &[WorkflowId]) -> Option<Prefetch> {
        let live = scope.iter().filter_map(|id| self.workflows.get(id));
        together(live.map(|workflow| workflow.spec.prefetch.as_ref()))
    }

    /// How much of a workflow's work a runner may get in one answer, and beyond what it can start now.
    fn allowance(&self, runner: &Runner, workflow: &Workflow) -> Allowance {
        let Some(prefetch) = &workflow.spec.prefetch else { return Allowance::default() };
        let number = |value: Option<i32>| value.map_or(usize::MAX, |value| value.unsigned_abs() as usize);
        let waiting = || runner.waiting.iter().filter(|key| key.workflow == workflow.id().0).count();
        let most_ahead = match (prefetch.enabled, prefetch.max_queued) {
            (Some(false), _) => 0,
            (_, None) => usize::MAX,
            (_, most) => number(most).saturating_sub(waiting()),
        };
        Allowance { batch: number(prefetch.batch_size), ahead: most_ahead }
    }

    /// How long a runner stays: of what its unsettled workflows say, or all of them once all have settled, the most patient.
    pub(super) fn terms(&self, scope: &RunnerScope) -> RunnerTerms {
        let live = self.live_in_scope(scope);
        let mut counting: Vec<&Workflow> = live.iter().filter_map(|id| self.workflows.get(id)).collect();
        counting.retain(|workflow| !workflow.is_settled());
        if counting.is_empty() {
            counting.extend(self.in_scope(scope));
        }
        let counting = || counting.iter().map(|workflow| workflow.spec.as_ref());
        let longest = |field: fn(&WorkflowSpec) -> Option<i64>, usual: u64| {
            let says = |spec: &WorkflowSpec| field(spec).map_or(usual, |value| u64::try_from(value).unwrap_or(0));
            counting().map(says).max().unwrap_or(usual)
        };
        let usual = RunnerTerms::default();
        RunnerTerms {
            wait_for_new_jobs_seconds: longest(
                |spec| spec.compute_node_wait_for_new_jobs_seconds,
                usual.wait_for_new_jobs_seconds,
            ),
            ignore_workflow_completion: counting()
                .any(|spec| spec.compute_node_ignore_workflow_completion == Some(true)),
            min_time_for_new_jobs_seconds: longest(
                |spec| spec.compute_node_min_time_for_new_jobs_seconds,
                usual.min_time_for_new_jobs_seconds,
            ),
            wait_for_healthy_database_minutes: longest(
                |spec| spec.compute_node_wait_for_healthy_database_minutes,
                usual.wait_for_healthy_database_minutes,
            ),
        }
    }

    fn prefetch_settings<'a>(&'a self, scope: &'a [WorkflowId]) -> impl Iterator<Item = &'a Prefetch> {
        scope.iter().filter_map(|id| self.workflows.get(id)?.spec.prefetch.as_ref())
    }

    /// Something may still come: see [`Workflow::expects_capacity`].
    pub(super) fn expects_capacity(&self, scope: &[WorkflowId]) -> bool {
        scope.iter().filter_map(|id| self.workflows.get(id)).any(Workflow::expects_capacity)
    }

    /// What a runner should do next.
    pub(super) fn verdict(&self, scope: &RunnerScope) -> Verdict {
        let is_open = |id: &WorkflowId| self.workflows.get(id).is_some_and(|workflow| !workflow.is_over());
        if self.in_scope(scope).next().is_none() || self.live_in_scope(scope).iter().any(is_open) {
            Verdict::Continue
        } else if self.in_scope(scope).all(Workflow::is_canceled) {
            Verdict::Canceled
        } else {
            Verdict::Complete
        }
    }
}

impl Workflow {
    fn has_ready_jobs(&self) -> bool {
        self.counts.of(JobState::Ready) > 0
    }

    fn wire_profile(&self, index: u32) -> Profile {
        let profile = self.profiles[index as usize].whole();
        let needs = &profile.requirements;
        Profile {
            resources: needs.resources(),
            runtime_seconds: needs.runtime_seconds,
            unlimited: needs.name == torc_api::resources::DEFAULT_REQUIREMENTS,
            workflow_name: self.row.name.clone(),
            working_dir: self.row.working_dir.clone(),
            env: profile.env.clone(),
            invocation_script: profile
                .invocation_script
                .as_deref()
                .map(|script| self.filled(script, &profile.input_user_data).into_owned()),
            stdio: profile.stdio.clone(),
            input_files: profile.input_files.clone(),
            hash_large_files: self.spec.enable_ro_crate == Some(true),
            output_files: profile.output_files.clone(),
            execution_config: self.spec.execution_config.clone(),
            resource_monitor: self.spec.resource_monitor.clone(),
            tasks_per_node: profile.tasks_per_node,
        }
    }
}
