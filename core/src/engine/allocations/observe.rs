//! Applies the answers of Slurm to allocations, and their consequences to runners and jobs.

use torc_api::allocation::{AllocationStatus, OrphanReport, OrphanedAllocation, OrphanedJob};
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::slurm::SlurmState;
use torc_api::state::{Cause, JobState};
use torc_api::wire::LeaseRole;

use super::Engine;
use crate::engine::leases::NotHeldReason;
use crate::engine::runners::LeaseTarget;
use crate::engine::tx::Tx;
use crate::engine::workflow::Observation;
use crate::engine::workflows::Workflows;
use crate::ids::{AllocationId, AllocationKey, JobId, RunnerId, WorkflowId};
use crate::planning::orphans::{self, KnownRunner, ObservedAllocation, OrphanFindings, RunningJob, SlurmObservation};
use crate::rows::AllocationRow;

/// Difference of start times above which an allocation has restarted. Slurm rounds times to seconds.
const RESTART_TOLERANCE_MS: i64 = 2_000;
/// Message of attempts that ended with their allocation.
const ALLOCATION_ENDED: &str = "its allocation has ended";

/// Allocations, runners and jobs that cannot be alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    findings: OrphanFindings,
}

impl Orphans {
    /// Returns whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.findings.over.is_empty()
            && self.findings.requeued.is_empty()
            && self.findings.stale_runners.is_empty()
            && self.findings.lost_jobs.is_empty()
    }
}

impl Engine {
    /// Returns the allocations, runners and jobs that have ended or are lost according to Slurm. Changes nothing.
    pub fn find_orphans(&self, observations: &[Observation]) -> Orphans {
        let allocations: Vec<ObservedAllocation> = observations
            .iter()
            .filter_map(|seen| Some(observed(live_allocation(&self.workflows, seen.key)?, seen)))
            .collect();
        let restarts = |id: AllocationId| {
            let seen = observations.iter().find(|seen| seen.key.1 == id)?;
            has_restarted(live_allocation(&self.workflows, seen.key)?, seen).then_some(seen.start_ms?)
        };
        let runners: Vec<KnownRunner> = self
            .runners
            .values()
            .map(|runner| {
                let allocation = runner.allocation().map(|(_, id)| id);
                // A runner that registered after a restart of its allocation belongs to the new start.
                let is_of_new_start = allocation
                    .and_then(restarts)
                    .is_some_and(|start_ms| runner.row().started_ms.saturating_add(RESTART_TOLERANCE_MS) >= start_ms);
                let allocation = allocation.filter(|_| !is_of_new_start).map(|id| id.0);
                KnownRunner { id: runner.id().0, allocation, is_silent: runner.is_silent() }
            })
            .collect();
        Orphans { findings: orphans::detect(&allocations, &runners, &running_jobs(&self.workflows)) }
    }

    /// Records the answers of Slurm, ends allocations that are over, and ends the attempts that were lost with them.
    pub fn observe_allocations(&mut self, observations: &[Observation], tx: &mut Tx) -> Orphans {
        let orphans = self.find_orphans(observations);
        for observation in observations {
            self.observe_allocation(observation, tx);
        }
        self.apply_findings(&orphans.findings, observations, tx);
        orphans
    }

    fn observe_allocation(&mut self, observation: &Observation, tx: &mut Tx) {
        let key = observation.key;
        let Some(workflow) = self.workflows.get_mut(&key.0) else { return };
        let Some(state) = workflow.allocations.observe(observation, tx) else { return };
        let is_occupied = self.runners.values().any(|runner| runner.allocation() == Some(key));
        workflow.allocations.count_poll(key.1, state, is_occupied);
        if state.has_nodes() {
            self.allocation_started(key, observation.start_ms.unwrap_or(tx.now.wall_ms), tx);
        }
    }

    fn apply_findings(&mut self, findings: &OrphanFindings, seen: &[Observation], tx: &mut Tx) {
        let lost = self.mark_jobs_lost(findings, tx);
        for runner in &findings.stale_runners {
            self.remove_dead_runner(RunnerId(*runner), tx);
        }
        let observation_of = |id: i64| seen.iter().find(|seen| seen.key.1.0 == id);
        for (id, state) in &findings.over {
            if let Some(seen) = observation_of(*id) {
                let ended_ms = seen.end_ms.filter(|end| *end <= tx.now.wall_ms).unwrap_or(tx.now.wall_ms);
                self.end_allocation(seen.key, Some(*state), ended_ms, tx);
            }
        }
        for id in &findings.requeued {
            let Some(seen) = observation_of(*id) else { continue };
            let Some(workflow) = self.workflows.get_mut(&seen.key.0) else { continue };
            let Some(row) = workflow.allocations.requeue(seen, tx) else { continue };
            let message = format!("{} was requeued by Slurm", row.name());
            tx.event(Some(seen.key.0), EventReason::AllocationRequeued, message);
        }
        for (workflow, jobs) in lost {
            let (jobs, runners) = (count(jobs, "running job"), count(findings.stale_runners.len(), "runner"));
            let message = format!("{jobs} lost with their allocations ({runners})");
            tx.event(Some(workflow), EventReason::OrphansReclaimed, message);
        }
    }

    /// Ends the attempts of jobs that cannot be alive. Returns their number by workflow.
    fn mark_jobs_lost(&mut self, findings: &OrphanFindings, tx: &mut Tx) -> Vec<(WorkflowId, usize)> {
        let mut counts: Vec<(WorkflowId, usize)> = Vec::new();
        for (id, cause) in &findings.lost_jobs {
            let id = JobId(*id);
            let Some((workflow, holder)) = running_job(&self.workflows, id) else { continue };
            let why = match cause {
                Cause::NodeFailure => "its node failed",
                Cause::Preempted => "its allocation was preempted",
                Cause::Timeout => "its allocation reached its time limit",
                _ => ALLOCATION_ENDED,
            };
            let target = LeaseTarget { workflow, number: id, role: LeaseRole::Job };
            self.leases().abandon(holder, target, why, NotHeldReason::Gone(*cause), tx);
            match counts.iter_mut().find(|(known, _)| *known == workflow) {
                Some((_, count)) => *count += 1,
                None => counts.push((workflow, 1)),
            }
        }
        counts
    }

    /// Removes a runner that cannot be alive, and returns its leases to the queue.
    fn remove_dead_runner(&mut self, id: RunnerId, tx: &mut Tx) {
        let mut leases = self.leases();
        leases.end_all_revoked(id, ALLOCATION_ENDED, |_| true, tx);
        let Some(mut runner) = self.runners.remove(id) else { return };
        runner.end(tx);
        // The runner may be alive on a node that Slurm has given up. It must not register again.
        let row = runner.row();
        if let Some(number) = &row.slurm_job_id {
            self.slurm.dismissed.insert((number.clone(), row.host.clone(), row.pid));
        }
        tx.event(None, EventReason::RunnerLeft, format!("runner {id} on {} ended with its allocation", row.host));
        let mut leases = self.leases();
        for (target, _) in runner.leases.sorted() {
            leases.abandon(id, target, ALLOCATION_ENDED, NotHeldReason::Unknown, tx);
        }
        leases.forget_worker(id, tx);
    }

    /// Returns the findings with names, for one workflow or for all.
    pub fn orphan_report(&self, orphans: &Orphans, workflow: Option<WorkflowId>) -> OrphanReport {
        let concerns = |id: WorkflowId| workflow.is_none_or(|wanted| wanted == id);
        let rows = || self.workflows.values().flat_map(|workflow| workflow.allocations.iter());
        let named = |id: &i64| rows().find(|row| row.id.0 == *id && concerns(row.workflow));
        let findings = &orphans.findings;
        let over = findings.over.iter().filter_map(|(id, state)| Some((named(id)?, *state)));
        let job = |id: i64, cause: Cause| {
            let (workflow, _) = running_job(&self.workflows, JobId(id)).filter(|(workflow, _)| concerns(*workflow))?;
            let job = self.job_name(workflow, JobId(id))?.to_owned();
            Some(OrphanedJob { workflow: self.workflow_name(workflow)?.to_owned(), job, cause })
        };
        let serves = |id: &&i64| {
            let home = self.runners.get(&RunnerId(**id)).and_then(|runner| runner.allocation());
            home.is_none_or(|(workflow, _)| concerns(workflow))
        };
        OrphanReport {
            allocations: over
                .map(|(row, state)| OrphanedAllocation {
                    name: row.name(),
                    slurm_job_id: row.slurm_job_id.clone(),
                    was: row.status,
                    slurm_state: state,
                })
                .collect(),
            requeued: findings.requeued.iter().filter_map(named).map(AllocationRow::name).collect(),
            in_doubt: findings.in_doubt.iter().filter_map(named).map(AllocationRow::name).collect(),
            runners: findings.stale_runners.iter().filter(serves).copied().collect(),
            jobs: findings.lost_jobs.iter().filter_map(|(id, cause)| job(*id, *cause)).collect(),
            unreachable: Vec::new(),
        }
    }
}

fn live_allocation(workflows: &Workflows, key: AllocationKey) -> Option<&AllocationRow> {
    workflows.get(&key.0)?.allocations.get(key.1)
}

/// Returns the workflow and the runner of a running job.
fn running_job(workflows: &Workflows, job: JobId) -> Option<(WorkflowId, RunnerId)> {
    workflows.values().find_map(|workflow| {
        let record = workflow.graph.job(workflow.graph.ordinal(job)?);
        (record.state() == JobState::Running).then_some((workflow.id(), record.runner().unwrap_or_default()))
    })
}

fn running_jobs(workflows: &Workflows) -> Vec<RunningJob> {
    let busy = workflows.values().filter(|workflow| workflow.graph.counts().running > 0);
    let running = busy.flat_map(|workflow| workflow.graph.iter()).filter(|(_, job)| job.state() == JobState::Running);
    running.map(|(_, job)| RunningJob { id: job.id().0, runner: job.runner().map_or(0, |runner| runner.0) }).collect()
}

fn observed(row: &AllocationRow, seen: &Observation) -> ObservedAllocation {
    ObservedAllocation {
        id: row.id.0,
        is_active: row.status == AllocationStatus::Active,
        observation: seen.observation,
        unseen_ms: seen.unseen_ms,
        has_restarted: has_restarted(row, seen),
        former_end: seen.former_end,
    }
}

impl Observation {
    /// Returns whether the allocation was requeued: it is pending although it had started, or it has started again.
    pub fn is_requeued(&self, row: &AllocationRow) -> bool {
        let waits = matches!(self.observation, SlurmObservation::Queued(SlurmState::Pending | SlurmState::ComingBack));
        row.status == AllocationStatus::Active && waits || has_restarted(row, self)
    }
}

fn has_restarted(row: &AllocationRow, seen: &Observation) -> bool {
    let runs = matches!(seen.observation, SlurmObservation::Queued(state) if state.has_nodes());
    runs && row
        .started_ms
        .zip(seen.start_ms)
        .is_some_and(|(known, start)| start > known.saturating_add(RESTART_TOLERANCE_MS))
}
