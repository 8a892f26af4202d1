//! Grants leases of jobs. The answer describes a job completely, so that the runner needs no further call.

use std::collections::HashMap;

use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, FinishedAttempt, Lease, Profile, SyncResponse, WorkRequest};

use super::Leases;
use crate::class::minus;
use crate::engine::runners::{LeaseTarget, ReturnRequest, SpareLease};
use crate::engine::tx::Tx;
use crate::engine::workflow::LiveWorkflow;
use crate::ids::{Now, RunnerId};
use crate::matching::{Choice, choose};

/// Exit code of a shell for a command that it cannot execute.
const CANNOT_EXECUTE: i32 = 126;

impl Leases<'_> {
    /// Leases jobs to a runner and adds them to the answer.
    pub fn grant_jobs(&mut self, id: RunnerId, want: WorkRequest, response: &mut SyncResponse, tx: &mut Tx) {
        let Some(runner) = self.runners.get(&id) else { return };
        let scope = self.workflows.live_in_scope(&runner.row().scope);
        let chosen = choose(&runner.view(tx.now), &want, &self.fleet(tx.now).queues_for(id, want, &scope));
        self.runners.set_withheld(id, chosen.is_withheld);
        let free = minus(&want.free, &chosen.taken);
        self.runners.set_offer(id, free);
        let count = |choices: &[Choice]| u32::try_from(choices.len()).unwrap_or(u32::MAX);
        let (now_count, ahead_count) = (count(&chosen.now), count(&chosen.ahead));
        self.lease_all(id, chosen.now.into_iter().chain(chosen.ahead), response, tx);
        if free.cpus > 0 && self.runners.has_donors() {
            let ahead = want.ahead.saturating_sub(ahead_count);
            let bridge = want.bridge.saturating_sub(ahead_count);
            let limit = want.limit.saturating_sub(now_count).saturating_sub(ahead_count);
            self.request_returns(id, WorkRequest { free, ahead, bridge, limit }, tx.now);
        }
    }

    /// Requests other runners to return leases that this one could start now.
    fn request_returns(&mut self, id: RunnerId, want: WorkRequest, now: Now) {
        let found = self.fleet(now).spare_leases(id, want);
        if found.is_empty() {
            return;
        }
        for SpareLease { donor, workflow, job } in found {
            let Some(workflow) = self.workflows.get_mut(&workflow) else { continue };
            workflow.graph.count_move(job);
            let request = ReturnRequest { taker: id, workflow: workflow.id(), at_ms: now.mono_ms };
            self.runners.request_return(donor, workflow.graph.job(job).id(), request);
        }
        self.runners.wake();
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
            if let Some(message) = workflow.missing_input(job) {
                self.fail_without_input(id, target, key, message, tx);
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

    /// Fails a job that cannot start because one of its inputs has no value.
    fn fail_without_input(
        &mut self,
        runner: RunnerId,
        target: LeaseTarget,
        key: AttemptKey,
        message: String,
        tx: &mut Tx,
    ) {
        let finished = FinishedAttempt {
            key,
            return_code: CANNOT_EXECUTE,
            cause: Some(Cause::StartFailed),
            message: Some(message),
            ..FinishedAttempt::default()
        };
        self.drop_lease(target, Some(runner));
        self.end_lease(target, &finished, None, tx);
    }
}

impl LiveWorkflow {
    fn wire_profile(&self, index: u32) -> Profile {
        let profile = self.graph.profile_at(index);
        let needs = &profile.requirements;
        Profile {
            resources: needs.resources(),
            runtime_seconds: needs.runtime_seconds,
            unlimited: needs.name == torc_api::resources::DEFAULT_REQUIREMENTS,
            workflow_name: self.row().name.clone(),
            working_dir: self.row().working_dir.clone(),
            env: profile.env.clone(),
            invocation_script: profile
                .invocation_script
                .as_deref()
                .map(|script| self.filled(script, &profile.input_user_data).into_owned()),
            stdio: profile.stdio.clone(),
            input_files: profile.input_files.clone(),
            hash_large_files: self.spec().enable_ro_crate == Some(true),
            output_files: profile.output_files.clone(),
            execution_config: self.spec().execution_config.clone(),
            resource_monitor: self.spec().resource_monitor.clone(),
            tasks_per_node: profile.tasks_per_node,
        }
    }
}
