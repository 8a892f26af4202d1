//! Granting leases: chosen jobs are promised to a runner and described so completely that no further call is needed.

use std::collections::HashMap;

use torc_api::state::JobState;
use torc_api::wire::{Lease, Profile, SyncResponse, WorkRequest};

use crate::class::{Class, minus};
use crate::engine::Engine;
use crate::engine::runners::Runner;
use crate::engine::tx::Tx;
use crate::engine::workflow::Workflow;
use crate::ids::{Now, RunnerId, WorkflowId};
use crate::matching::{Allowance, Choice, ClassQueue, OwnerQueues, Usage, WorkflowQueues, choose};

impl Engine {
    /// Promises work to a runner and adds it to the answer.
    pub(in crate::engine) fn grant(
        &mut self,
        id: RunnerId,
        want: WorkRequest,
        response: &mut SyncResponse,
        tx: &mut Tx,
    ) {
        let Some(runner) = self.runners.get(&id) else { return };
        let scope = self.live_in_scope(&runner.row.scope);
        let chosen = choose(&runner.place(tx.now), &want, &self.queues_for(id, want, &scope, tx.now));
        self.runners.set_withheld(id, chosen.is_withheld);
        let left = minus(&want.free, &chosen.taken);
        self.set_offer(id, left);
        let count = |choices: &[Choice]| u32::try_from(choices.len()).unwrap_or(u32::MAX);
        let (now_count, ahead_count) = (count(&chosen.now), count(&chosen.ahead));
        self.lease_all(id, chosen.now.into_iter().chain(chosen.ahead), response, tx);
        if left.cpus > 0 && self.runners.has_donors() {
            let ahead = want.ahead.saturating_sub(ahead_count);
            let bridge = want.bridge.saturating_sub(ahead_count);
            let limit = want.limit.saturating_sub(now_count).saturating_sub(ahead_count);
            self.request_leases_for(id, WorkRequest { free: left, ahead, bridge, limit }, tx.now);
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
            let Some(target) = self.workflows.get(&workflow).map(|workflow| workflow.job_target(job)) else { continue };
            let Some(key) = self.grant_lease(id, target, response.sequence, tx) else { continue };
            let Some(workflow) = self.workflows.get(&workflow) else { continue };
            if let Some(message) = workflow.lacks_data(job) {
                self.fail_without_data(id, target, key, message, tx);
                continue;
            }
            let record = workflow.graph.job(job);
            let index = record.profile();
            let profile = *profiles.entry((workflow.id(), index)).or_insert_with(|| {
                response.profiles.push(workflow.wire_profile(index));
                response.profiles.len() as u32 - 1
            });
            response.leases.push(Lease {
                key,
                name: workflow.graph.name(job).to_owned(),
                command: workflow.filled_command(job),
                profile,
                priority: record.priority(),
                downstream_seconds: record.downstream_seconds(),
                ..Lease::default()
            });
        }
    }

    /// Ready jobs of workflows that may give work to this runner, by owner.
    fn queues_for(&self, id: RunnerId, want: WorkRequest, scope: &[WorkflowId], now: Now) -> Vec<OwnerQueues<'_>> {
        let Some(runner) = self.runners.get(&id) else { return Vec::new() };
        let may_give = |workflow: &&Workflow| workflow.has_ready_jobs() && workflow.may_lease_to(id);
        let is_wanted_elsewhere =
            |workflow: &Workflow, class: &Class| want.ahead > 0 && self.is_wanted_elsewhere(id, workflow, class, now);
        let mut owners: Vec<OwnerQueues<'_>> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        for workflow in scope.iter().filter_map(|id| self.workflows.get(id)).filter(may_give) {
            let ready = workflow.graph.ready_queues();
            let classes = ready.map(|(class, queue)| {
                let is_wanted_elsewhere = is_wanted_elsewhere(workflow, class);
                ClassQueue { class, queue, is_wanted_elsewhere }
            });
            let queues = WorkflowQueues {
                workflow: workflow.id(),
                usage: workflow.graph.usage(),
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
            usage.entry(&workflow.row.owner).or_default().merge(&workflow.graph.usage());
        }
        for owner in owners {
            owner.usage = usage.get(owner.owner).copied().unwrap_or_default();
        }
    }

    /// How much of a workflow's work a runner may get in one answer, and beyond what it can start now.
    fn allowance(&self, runner: &Runner, workflow: &Workflow) -> Allowance {
        let Some(prefetch) = &workflow.spec.prefetch else { return Allowance::default() };
        let number = |value: Option<i32>| value.map_or(usize::MAX, |value| value.unsigned_abs() as usize);
        let waiting = || runner.waiting().filter(|key| key.workflow == workflow.id().0).count();
        let most_ahead = match (prefetch.enabled, prefetch.max_queued) {
            (Some(false), _) => 0,
            (_, None) => usize::MAX,
            (_, most) => number(most).saturating_sub(waiting()),
        };
        Allowance { batch: number(prefetch.batch_size), ahead: most_ahead }
    }
}

impl Workflow {
    fn has_ready_jobs(&self) -> bool {
        self.graph.counts().of(JobState::Ready) > 0
    }

    fn wire_profile(&self, index: u32) -> Profile {
        let profile = self.graph.profile_at(index);
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
