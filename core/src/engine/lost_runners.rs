//! Lost runners, and the jobs of one workflow that were lost with them.
//!
//! A request concerns one workflow. Jobs of other workflows that the same runner holds do not change.

use torc_api::allocation::{OrphanReport, OrphanedJob, UnreachableRunner};
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::recovery::{RunnerEvidence, SyncStatusRequest};
use torc_api::state::{Cause, JobState};

use super::leases::NotHeldReason;
use super::runners::LiveRunner;
use super::tx::Tx;
use super::workflows::Workflows;
use super::{CommandError, Engine};
use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::planning::runner_liveness::{LossReason, RunnerContact, RunnerFacts, RunnerLiveness, runner_liveness};

/// Number of jobs of a runner that a report names: enough to recognize the work, short enough for a terminal.
const MAX_NAMED_JOBS: usize = 20;

/// The lost and the unreachable runners of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRunners {
    lost: Vec<(RunnerId, LossReason)>,
    unreachable: Vec<UnreachableRunner>,
}

impl Engine {
    /// Finds the lost and the unreachable runners of a workflow. `gone`: runners that are already known to be lost. Changes nothing.
    pub fn find_lost_runners(
        &self,
        workflow: WorkflowId,
        request: &SyncStatusRequest,
        gone: &[i64],
    ) -> Result<LostRunners, CommandError> {
        let mut found = LostRunners::default();
        for runner in self.runners.values().filter(|runner| !gone.contains(&runner.id().0)) {
            if !runner.leases.concerns(workflow) {
                continue;
            }
            let id = runner.id();
            match runner_liveness(&facts(runner, request)) {
                RunnerLiveness::Present => {}
                RunnerLiveness::Lost(loss) => found.lost.push((id, loss)),
                RunnerLiveness::Unreachable(reason) => {
                    let jobs = running_on(&self.workflows, workflow, runner);
                    let named = jobs.iter().take(MAX_NAMED_JOBS).filter_map(|job| self.job_name(workflow, *job));
                    let (host, pid, running) = (runner.row().host.clone(), runner.row().pid, jobs.len() as i64);
                    let jobs = named.map(str::to_owned).collect();
                    found.unreachable.push(UnreachableRunner { runner: id.0, host, pid, reason, jobs, running });
                }
            }
        }
        for assumed in request.assume_lost.iter().filter(|assumed| !gone.contains(assumed)) {
            self.check_assumption(workflow, RunnerId(*assumed), &found)?;
        }
        found.unreachable.retain(|one| one.running > 0);
        Ok(found)
    }

    /// Returns an error if a runner that the request assumes lost is not lost.
    fn check_assumption(&self, workflow: WorkflowId, id: RunnerId, found: &LostRunners) -> Result<(), CommandError> {
        let runner = self.runners.get(&id).ok_or(CommandError::NoRunner(id))?;
        if found.lost.iter().any(|(lost, _)| *lost == id) || !runner.leases.concerns(workflow) {
            return Ok(());
        }
        let host = &runner.row().host;
        Err(CommandError::Conflict(match found.unreachable.iter().any(|one| one.runner == id.0) {
            true => format!("runner {id} on {host} is not lost: its processes or processes of its jobs still run"),
            false => format!("runner {id} on {host} is not lost: it reports to this server"),
        }))
    }

    /// Adds lost and unreachable runners to a report.
    pub fn report_lost_runners(&self, workflow: WorkflowId, found: &LostRunners, report: &mut OrphanReport) {
        let name = self.workflow_name(workflow).unwrap_or_default();
        for (id, _) in &found.lost {
            let Some(runner) = self.runners.get(id) else { continue };
            report.runners.push(id.0);
            let running = running_on(&self.workflows, workflow, runner);
            let names = running.into_iter().filter_map(|job| self.job_name(workflow, job));
            let lost = |job: &str| OrphanedJob { workflow: name.to_owned(), job: job.to_owned(), cause: Cause::Lost };
            report.jobs.extend(names.map(lost));
        }
        report.unreachable.extend(found.unreachable.iter().cloned());
    }

    /// Marks the started jobs of lost runners as lost and returns the others to the queue.
    pub fn mark_runners_lost(&mut self, workflow: WorkflowId, found: &LostRunners, tx: &mut Tx) {
        for (id, loss) in &found.lost {
            self.mark_runner_lost(workflow, *id, loss.message(), tx);
        }
    }

    fn mark_runner_lost(&mut self, workflow: WorkflowId, id: RunnerId, why: &str, tx: &mut Tx) {
        let Some(runner) = self.runners.get(&id) else { return };
        let running = count(running_on(&self.workflows, workflow, runner).len(), "running job");
        let message = format!("runner {id} on {} is lost, with {running}: {why}", runner.row().host);
        let held = runner.leases.sorted();
        let mut leases = self.leases();
        for (target, _) in held.into_iter().filter(|(target, _)| target.workflow == workflow) {
            leases.abandon(id, target, why, NotHeldReason::Gone(Cause::Lost), tx);
        }
        leases.end_all_revoked(id, why, |lease| lease.workflow == workflow, tx);
        tx.event(Some(workflow), EventReason::OrphansReclaimed, message);
        leases.forget_if_empty(id, tx);
    }
}

/// Returns the jobs of a workflow that run on a runner, in the order of their numbers.
fn running_on(workflows: &Workflows, workflow: WorkflowId, runner: &LiveRunner) -> Vec<JobId> {
    let Some(graph) = workflows.get(&workflow).map(|workflow| &workflow.graph) else { return Vec::new() };
    let runs = |job: &JobId| graph.state_of(*job) == Some(JobState::Running);
    let held = runner.leases.jobs().filter(|(of, _)| *of == workflow).map(|(_, job)| job);
    let mut running: Vec<JobId> = held.filter(runs).collect();
    running.sort_unstable();
    running
}

fn contact(runner: &LiveRunner) -> RunnerContact {
    match (runner.is_silent(), runner.sequence()) {
        (true, _) => RunnerContact::Silent,
        (false, 0) => RunnerContact::NotYet,
        (false, _) => RunnerContact::Heard,
    }
}

fn facts<'a>(runner: &LiveRunner, request: &'a SyncStatusRequest) -> RunnerFacts<'a> {
    let id = runner.id().0;
    let evidence: Option<&RunnerEvidence> = request.evidence.iter().find(|one| one.runner == id);
    RunnerFacts {
        contact: contact(runner),
        is_unserved: request.is_unserved,
        is_in_slurm: runner.row().slurm_job_id.is_some(),
        is_assumed_lost: request.assume_lost.contains(&id),
        evidence,
    }
}
