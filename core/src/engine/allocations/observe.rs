//! One look at everything: what Slurm says about allocations, and what follows for runners and jobs.

use torc_api::allocation::{AllocationStatus, OrphanReport, OrphanedAllocation, OrphanedJob};
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::slurm::SlurmState;
use torc_api::state::{Cause, JobState};
use torc_api::wire::LeaseRole;

use super::Engine;
use crate::engine::held_leases::LeaseTarget;
use crate::engine::leases::NotHeldReason;
use crate::engine::tx::Tx;
use crate::ids::{AllocationId, AllocationKey, JobId, RunnerId, WorkflowId};
use crate::planning::orphans::{self, Allocation, OrphanFindings, Runner, RunningJob, SlurmObservation};
use crate::rows::AllocationRow;

/// Slurm gives times in whole seconds: a start that is later by more than this is another start.
const RESTART_MS: i64 = 2_000;

/// What Slurm says about an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Which one.
    pub key: AllocationKey,
    /// What it means.
    pub sighting: SlurmObservation,
    /// How long Slurm has known nothing of it.
    pub unseen_ms: i64,
    /// What Slurm calls its state.
    pub state_text: Option<String>,
    /// Why it waits.
    pub reason: Option<String>,
    /// When it started, or will in Slurm's estimation.
    pub start_ms: Option<i64>,
    /// When it ended, or will at the latest.
    pub end_ms: Option<i64>,
    /// Its nodes, as Slurm lists them.
    pub node_list: Option<String>,
    /// Its partition.
    pub partition: Option<String>,
    /// How its earlier start ended, if it was requeued.
    pub former_end: Option<SlurmState>,
}

impl Observation {
    /// Slurm did not answer.
    pub fn unanswered(key: AllocationKey) -> Self {
        Self {
            key,
            sighting: SlurmObservation::NoAnswer,
            unseen_ms: 0,
            state_text: None,
            reason: None,
            start_ms: None,
            end_ms: None,
            node_list: None,
            partition: None,
            former_end: None,
        }
    }
}

/// What cannot be alive any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    findings: OrphanFindings,
}

impl Orphans {
    /// Nothing was found.
    pub fn is_empty(&self) -> bool {
        self.findings.over.is_empty()
            && self.findings.coming_back.is_empty()
            && self.findings.stale_runners.is_empty()
            && self.findings.lost_jobs.is_empty()
    }
}

impl Engine {
    /// What is known to be over or lost, given what Slurm says. Changes nothing.
    pub fn find_orphans(&self, observations: &[Observation]) -> Orphans {
        let allocations: Vec<Allocation> =
            observations.iter().filter_map(|seen| Some(judged(self.live_allocation(seen.key)?, seen))).collect();
        let restarts = |id: AllocationId| {
            let seen = observations.iter().find(|seen| seen.key.1 == id)?;
            has_restarted(self.live_allocation(seen.key)?, seen).then_some(seen.start_ms?)
        };
        let runners: Vec<Runner> = self
            .runners
            .values()
            .map(|runner| {
                let home = runner.allocation.map(|(_, id)| id);
                // One that has come since the allocation started again is of the new start.
                let is_of_this_start = home
                    .and_then(restarts)
                    .is_some_and(|start_ms| runner.row.started_ms.saturating_add(RESTART_MS) >= start_ms);
                let allocation = home.filter(|_| !is_of_this_start).map(|id| id.0);
                Runner { id: runner.row.id.0, allocation, is_silent: runner.is_silent() }
            })
            .collect();
        Orphans { findings: orphans::detect(&allocations, &runners, &self.running_jobs()) }
    }

    fn running_jobs(&self) -> Vec<RunningJob> {
        let busy = self.workflows.values().filter(|workflow| workflow.graph.counts().running > 0);
        let running =
            busy.flat_map(|workflow| workflow.graph.iter()).filter(|(_, job)| job.state() == JobState::Running);
        running
            .map(|(_, job)| RunningJob { id: job.id().0, runner: job.runner().map_or(0, |runner| runner.0) })
            .collect()
    }

    /// Takes in what Slurm says, and carries out what follows from it: what is over is over, and what was lost with it is lost.
    pub fn observe_allocations(&mut self, observations: &[Observation], tx: &mut Tx) -> Orphans {
        let orphans = self.find_orphans(observations);
        for seen in observations {
            self.take_in_sighting(seen, tx);
        }
        self.reclaim(&orphans.findings, observations, tx);
        orphans
    }

    fn take_in_sighting(&mut self, seen: &Observation, tx: &mut Tx) {
        let Some(row) = self.live_allocation_mut(seen.key) else { return };
        let before = row.clone();
        if let Some(text) = &seen.state_text {
            row.slurm_state = Some(text.clone());
        }
        row.unseen_since_ms = match seen.sighting {
            SlurmObservation::NoAnswer => row.unseen_since_ms,
            SlurmObservation::Queued(_) => None,
            SlurmObservation::Recorded(state) if state.is_over() => None,
            SlurmObservation::Recorded(_) | SlurmObservation::Unseen => row.unseen_since_ms.or(Some(tx.now.wall_ms)),
        };
        let SlurmObservation::Queued(state) = seen.sighting else {
            if *row != before {
                tx.changes.allocation(row);
            }
            return;
        };
        row.node_list = seen.node_list.clone().or_else(|| row.node_list.take());
        row.partition = seen.partition.clone().or_else(|| row.partition.take());
        let waits = matches!(state, SlurmState::Pending | SlurmState::ComingBack);
        row.slurm_reason = seen.reason.clone().filter(|_| waits);
        row.estimated_start_ms = seen.start_ms.filter(|_| waits);
        if state.has_nodes() {
            row.expected_end_ms = seen.end_ms;
        }
        let changed = *row != before;
        if changed {
            tx.changes.allocation(row);
        }
        self.count_idle_poll(seen.key, state);
        if state.has_nodes() {
            self.allocation_started(seen.key, seen.start_ms.unwrap_or(tx.now.wall_ms), tx);
        }
    }

    fn count_idle_poll(&mut self, (workflow, id): AllocationKey, state: SlurmState) {
        let is_inhabited = self.runners.values().any(|runner| runner.allocation == Some((workflow, id)));
        let Some(workflow) = self.workflows.get_mut(&workflow) else { return };
        let allocations = &mut workflow.allocations;
        let had_runners = allocations.get(id).is_some_and(|row| row.has_reported);
        allocations.count_poll(id, state == SlurmState::Running && had_runners && !is_inhabited);
    }

    fn reclaim(&mut self, findings: &OrphanFindings, seen: &[Observation], tx: &mut Tx) {
        let lost = self.lose_jobs(findings, tx);
        for runner in &findings.stale_runners {
            self.dismiss(RunnerId(*runner), tx);
        }
        let key_of = |id: i64| seen.iter().find(|seen| seen.key.1.0 == id);
        for (id, state) in &findings.over {
            if let Some(seen) = key_of(*id) {
                let ended_ms = seen.end_ms.filter(|end| *end <= tx.now.wall_ms).unwrap_or(tx.now.wall_ms);
                self.end_allocation(seen.key, Some(*state), ended_ms, tx);
            }
        }
        for id in &findings.coming_back {
            let Some(seen) = key_of(*id) else { continue };
            let Some(row) = self.live_allocation_mut(seen.key) else { continue };
            let has_nodes = matches!(seen.sighting, SlurmObservation::Queued(state) if state.has_nodes());
            row.status = if has_nodes { AllocationStatus::Active } else { AllocationStatus::Pending };
            row.started_ms = seen.start_ms.filter(|_| has_nodes);
            row.expected_end_ms = seen.end_ms.filter(|_| has_nodes);
            tx.changes.allocation(row);
            let message = format!("{} was requeued by Slurm", row.name());
            tx.event(Some(seen.key.0), EventReason::AllocationRequeued, message);
        }
        for (workflow, jobs) in lost {
            let (jobs, runners) = (count(jobs, "running job"), count(findings.stale_runners.len(), "runner"));
            let message = format!("{jobs} lost with their allocations ({runners})");
            tx.event(Some(workflow), EventReason::OrphansReclaimed, message);
        }
    }

    /// Every job that cannot be alive is lost; how many that were, for each workflow.
    fn lose_jobs(&mut self, findings: &OrphanFindings, tx: &mut Tx) -> Vec<(WorkflowId, usize)> {
        let mut counts: Vec<(WorkflowId, usize)> = Vec::new();
        for (id, cause) in &findings.lost_jobs {
            let id = JobId(*id);
            let Some((workflow, holder)) = self.home_of(id) else { continue };
            let why = match cause {
                Cause::NodeFailure => "its node failed",
                Cause::Preempted => "its allocation was preempted",
                Cause::Timeout => "the time of its allocation was up",
                _ => "its allocation is over",
            };
            let target = LeaseTarget { workflow, number: id, role: LeaseRole::Job };
            self.abandon_lease(holder, target, why, NotHeldReason::Gone(*cause), tx);
            match counts.iter_mut().find(|(known, _)| *known == workflow) {
                Some((_, count)) => *count += 1,
                None => counts.push((workflow, 1)),
            }
        }
        counts
    }

    fn home_of(&self, job: JobId) -> Option<(WorkflowId, RunnerId)> {
        self.workflows.values().find_map(|workflow| {
            let record = workflow.graph.job(workflow.graph.ordinal(job)?);
            (record.state() == JobState::Running).then_some((workflow.id(), record.runner().unwrap_or_default()))
        })
    }

    /// A runner cannot be alive: what it held returns to the pool.
    fn dismiss(&mut self, id: RunnerId, tx: &mut Tx) {
        self.end_all_revoked(id, "its allocation is over", |_| true, tx);
        let Some(mut runner) = self.remove_runner(id) else { return };
        // Should it be alive all the same, on a node that Slurm has given up, it is not to come back as somebody else.
        if let Some(number) = &runner.row.slurm_job_id {
            self.slurm.dismissed.insert((number.clone(), runner.row.host.clone(), runner.row.pid));
        }
        runner.row.ended_ms = Some(tx.now.wall_ms);
        tx.changes.runner(&runner.row);
        tx.event(None, EventReason::RunnerLeft, format!("runner {id} on {} went with its allocation", runner.row.host));
        for (target, _) in runner.leases.sorted() {
            self.abandon_lease(id, target, "its allocation is over", NotHeldReason::Unknown, tx);
        }
        self.forget_worker(id, tx);
    }

    fn live_allocation(&self, key: AllocationKey) -> Option<&AllocationRow> {
        self.workflows.get(&key.0)?.allocations.get(key.1)
    }

    /// What was found, by names, of one workflow or of all.
    pub fn orphan_report(&self, orphans: &Orphans, workflow: Option<WorkflowId>) -> OrphanReport {
        let concerns = |id: WorkflowId| workflow.is_none_or(|wanted| wanted == id);
        let rows = || self.workflows.values().flat_map(|workflow| workflow.allocations.iter());
        let named = |id: &i64| rows().find(|row| row.id.0 == *id && concerns(row.workflow));
        let findings = &orphans.findings;
        let over = findings.over.iter().filter_map(|(id, state)| Some((named(id)?, *state)));
        let job = |id: i64, cause: Cause| {
            let (workflow, _) = self.home_of(JobId(id)).filter(|(workflow, _)| concerns(*workflow))?;
            let job = self.job_name(workflow, JobId(id))?.to_owned();
            Some(OrphanedJob { workflow: self.workflow_name(workflow)?.to_owned(), job, cause })
        };
        let serves = |id: &&i64| {
            let home = self.runners.get(&RunnerId(**id)).and_then(|runner| runner.allocation);
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
            requeued: findings.coming_back.iter().filter_map(named).map(AllocationRow::name).collect(),
            in_doubt: findings.in_doubt.iter().filter_map(named).map(AllocationRow::name).collect(),
            runners: findings.stale_runners.iter().filter(serves).copied().collect(),
            jobs: findings.lost_jobs.iter().filter_map(|(id, cause)| job(*id, *cause)).collect(),
            unreachable: Vec::new(),
        }
    }
}

fn judged(row: &AllocationRow, seen: &Observation) -> Allocation {
    Allocation {
        id: row.id.0,
        is_active: row.status == AllocationStatus::Active,
        sighting: seen.sighting,
        unseen_ms: seen.unseen_ms,
        has_restarted: has_restarted(row, seen),
        former_end: seen.former_end,
    }
}

impl Observation {
    /// It was requeued, as far as is known here: it waits although it had started, or it has started again.
    pub fn is_requeued(&self, row: &AllocationRow) -> bool {
        let waits = matches!(self.sighting, SlurmObservation::Queued(SlurmState::Pending | SlurmState::ComingBack));
        row.status == AllocationStatus::Active && waits || has_restarted(row, self)
    }
}

fn has_restarted(row: &AllocationRow, seen: &Observation) -> bool {
    let runs = matches!(seen.sighting, SlurmObservation::Queued(state) if state.has_nodes());
    runs && row.started_ms.zip(seen.start_ms).is_some_and(|(known, start)| start > known.saturating_add(RESTART_MS))
}
