//! Runners that are gone, and the jobs of one workflow that were lost with them.
//!
//! A request concerns one workflow: jobs of other workflows that the same runner holds stay as they are.

use torc_api::allocation::{OrphanReport, OrphanedJob, UnreachableRunner};
use torc_api::event_reason::EventReason;
use torc_api::recovery::{RunnerEvidence, SyncStatusRequest};
use torc_api::state::{Cause, JobState};

use super::leases::NotHeldReason;
use super::runners::Runner;
use super::tx::Tx;
use super::{CommandError, Engine};
use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::planning::runner_fate::{Loss, RunnerContact, RunnerFacts, RunnerFate, runner_fate};

/// Jobs of a runner that are named in a report.
const NAMED_JOBS: usize = 20;

/// The lost and the unreachable runners of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRunners {
    lost: Vec<(RunnerId, Loss)>,
    unreachable: Vec<UnreachableRunner>,
}

impl Engine {
    /// Finds the runners of a workflow that are gone; `gone` are known to be by other means. Changes nothing.
    pub fn find_lost_runners(
        &self,
        workflow: WorkflowId,
        request: &SyncStatusRequest,
        gone: &[i64],
    ) -> Result<LostRunners, CommandError> {
        let mut found = LostRunners::default();
        for runner in self.runners.values().filter(|runner| !gone.contains(&runner.row.id.0)) {
            if !runner.leases.concerns(workflow) {
                continue;
            }
            let id = runner.row.id;
            match runner_fate(&facts(runner, request)) {
                RunnerFate::Present => {}
                RunnerFate::Lost(loss) => found.lost.push((id, loss)),
                RunnerFate::Unreachable(reason) => {
                    let jobs = self.running_on(workflow, runner);
                    let named = jobs.iter().take(NAMED_JOBS).filter_map(|job| self.job_name(workflow, *job));
                    let (host, pid, running) = (runner.row.host.clone(), runner.row.pid, jobs.len() as i64);
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

    /// An assumption that was not followed is refused with the reason.
    fn check_assumption(&self, workflow: WorkflowId, id: RunnerId, found: &LostRunners) -> Result<(), CommandError> {
        let runner = self.runners.get(&id).ok_or(CommandError::NoRunner(id))?;
        if found.lost.iter().any(|(lost, _)| *lost == id) || !runner.leases.concerns(workflow) {
            return Ok(());
        }
        let host = &runner.row.host;
        Err(CommandError::Conflict(match found.unreachable.iter().any(|one| one.runner == id.0) {
            true => format!("runner {id} on {host} is not lost: processes of it, or of its jobs, still run"),
            false => format!("runner {id} on {host} is not lost: it reports to this server"),
        }))
    }

    /// Adds to a report what was found.
    pub fn report_lost_runners(&self, workflow: WorkflowId, found: &LostRunners, report: &mut OrphanReport) {
        let name = self.workflow_name(workflow).unwrap_or_default();
        for (id, _) in &found.lost {
            let Some(runner) = self.runners.get(id) else { continue };
            report.runners.push(id.0);
            let running = self.running_on(workflow, runner);
            let names = running.into_iter().filter_map(|job| self.job_name(workflow, job));
            let lost = |job: &str| OrphanedJob { workflow: name.to_owned(), job: job.to_owned(), cause: Cause::Lost };
            report.jobs.extend(names.map(lost));
        }
        report.unreachable.extend(found.unreachable.iter().cloned());
    }

    /// Marks the started jobs of lost runners as lost and returns the others to the queue.
    pub fn lose_runners(&mut self, workflow: WorkflowId, found: &LostRunners, tx: &mut Tx) {
        for (id, loss) in &found.lost {
            self.lose_runner(workflow, *id, loss.message(), tx);
        }
    }

    fn lose_runner(&mut self, workflow: WorkflowId, id: RunnerId, why: &str, tx: &mut Tx) {
        let Some(runner) = self.runners.get(&id) else { return };
        let running = self.running_on(workflow, runner).len();
        let message = format!("runner {id} on {} is lost, with {running} running jobs: {why}", runner.row.host);
        for (target, _) in runner.leases.sorted().into_iter().filter(|(target, _)| target.workflow == workflow) {
            self.abandon_lease(id, target, why, NotHeldReason::Gone(Cause::Lost), tx);
        }
        self.end_all_revoked(id, why, |lease| lease.workflow == workflow, tx);
        tx.event(Some(workflow), EventReason::OrphansReclaimed, message);
        self.forget_if_empty(id, tx);
    }

    /// Jobs of a workflow that run on a runner, in the order of their numbers.
    fn running_on(&self, workflow: WorkflowId, runner: &Runner) -> Vec<JobId> {
        let Some(home) = self.workflows.get(&workflow) else { return Vec::new() };
        let runs =
            |job: &JobId| home.graph.ordinal(*job).is_some_and(|job| home.graph.job(job).state() == JobState::Running);
        let held = runner.leases.jobs().filter(|(of, _)| *of == workflow).map(|(_, job)| job);
        let mut running: Vec<JobId> = held.filter(runs).collect();
        running.sort_unstable();
        running
    }
}

impl Runner {
    fn contact(&self) -> RunnerContact {
        match (self.is_silent(), self.sequence()) {
            (true, _) => RunnerContact::Silent,
            (false, 0) => RunnerContact::NotYet,
            (false, _) => RunnerContact::Heard,
        }
    }
}

fn facts<'a>(runner: &Runner, request: &'a SyncStatusRequest) -> RunnerFacts<'a> {
    let id = runner.row.id.0;
    let evidence: Option<&RunnerEvidence> = request.evidence.iter().find(|one| one.runner == id);
    RunnerFacts {
        contact: runner.contact(),
        is_unserved: request.is_unserved,
        is_in_slurm: runner.row.slurm_job_id.is_some(),
        is_assumed_lost: request.assume_lost.contains(&id),
        evidence,
    }
}
