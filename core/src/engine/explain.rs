//! Facts that explain why jobs and workflows are in their states. `crate::explain` draws the conclusions.

use torc_api::allocation::AllocationStatus;
use torc_api::api::JobResources;
use torc_api::explain::{JobExplanation, JobPhase, Reason, ReasonKind, WorkflowExplanation};
use torc_api::state::{Cause, JobState};
use torc_api::wire::RunnerScope;

use super::nodes::nodes_for;
use super::runners::Fleet;
use super::workflow::LiveWorkflow;
use super::{CommandError, Engine};
use crate::explain::{
    EndedAttempt, JobFacts, RecoveryHint, ScriptFacts, ServingRunner, SlurmFacts, WaitingAllocation, WorkflowFacts,
    attempt_reports, job_reasons, next_steps, raised, ready_reasons,
};
use crate::failure::{Evidence, Multipliers, escalate};
use crate::ids::{Now, WorkflowId};
use crate::rows::AllocationRow;
use crate::time::rfc3339;

/// Number of jobs of a state that an explanation names. Enough to find them, short enough for a terminal.
const EXAMPLES: usize = 5;

impl Engine {
    /// Explains the state of a job. `attempts` come from the store, the first one first.
    pub fn explain_job(
        &self,
        id: WorkflowId,
        reference: &str,
        attempts: &[EndedAttempt<'_>],
        now: Now,
    ) -> Result<JobExplanation, CommandError> {
        let workflow = self.workflows.require(id)?;
        let job = workflow.require_job(reference)?;
        let record = workflow.graph.job(job);
        let needs = &workflow.graph.profile(job).requirements;
        let reports =
            attempt_reports(attempts, needs, record.state().is_settled() || record.state() == JobState::PendingFailed);
        let last = reports.last().and_then(|report| Some((report.diagnosis?, report.return_code?)));
        let fleet = self.fleet(now);
        let Some(facts) = fleet.job_facts(workflow, job, last) else { return Ok(JobExplanation::default()) };
        let runners = fleet.runner_facts(workflow);
        let reasons = job_reasons(&facts, workflow_facts(workflow), &runners, &slurm_facts(workflow));
        let declared = workflow.graph.profile(job).declared.as_deref();
        let raised = declared.map_or_else(Vec::new, |declared| raised(declared, needs));
        let name = workflow.graph.name(job);
        let hint = attempts.last().map(|attempt| {
            let evidence = Evidence::of_result(needs, Some(attempt.result));
            let next =
                escalate(&evidence, Multipliers::default(), &nodes_for(&self.workflows, &self.runners, workflow, job));
            RecoveryHint { had: needs.clone(), next }
        });
        Ok(JobExplanation {
            workflow: workflow.row().name.clone(),
            job: name.to_owned(),
            status: Some(record.state()),
            run_id: record.run(),
            attempt: record.attempt(),
            next: next_steps(&workflow.row().name, name, &reasons, hint.as_ref()),
            reasons,
            resources: Some(JobResources::from(needs)),
            raised,
            attempts: reports,
        })
    }

    /// Explains the state of a workflow.
    pub fn explain_workflow(&self, id: WorkflowId, now: Now) -> Result<WorkflowExplanation, CommandError> {
        let workflow = self.workflows.require(id)?;
        let mut reasons = workflow_reasons(workflow);
        reasons.extend(self.fleet(now).ready_job_reasons(workflow));
        reasons.extend(reasons_by_state(workflow));
        let example = reasons.first().and_then(|reason| reason.jobs.first()).map_or("", |phase| phase.job.as_str());
        let mut next = next_steps(&workflow.row().name, example, &reasons, None);
        if reasons.iter().any(|reason| reason.reason == ReasonKind::Failed) {
            next.push(format!(
                "`torc recover {0} --dry-run` shows how it would retry the failed jobs",
                workflow.row().name
            ));
        }
        let counts = workflow.graph.counts();
        Ok(WorkflowExplanation {
            workflow: workflow.row().name.clone(),
            progress: format!("{}/{}", counts.settled(), counts.total),
            reasons,
            next,
        })
    }
}

impl<'a> Fleet<'a> {
    fn job_facts(
        self,
        workflow: &'a LiveWorkflow,
        job: u32,
        last_failure: Option<(Cause, i32)>,
    ) -> Option<JobFacts<'a>> {
        let record = workflow.graph.job(job);
        let parents = workflow.graph.parents(job).iter();
        let runner = record.runner().and_then(|runner| self.runners.get(&runner));
        let script = workflow.recoveries.get(record.id()).map(|row| ScriptFacts {
            cause: row.cause,
            return_code: row.return_code,
            is_running: row.lease.started_ms.is_some(),
        });
        Some(JobFacts {
            state: record.state(),
            class: workflow.graph.class_of(job)?,
            parents: parents
                .map(|parent| (workflow.graph.name(*parent), workflow.graph.job(*parent).state()))
                .collect(),
            ending: record.ending(),
            host: runner.map(|runner| runner.row().host.as_str()),
            running_seconds: record.started_ms().map(|started| (self.now.wall_ms - started).max(0) / 1_000),
            unconfirmed: record.is_unconfirmed(),
            script,
            last_failure,
        })
    }

    /// Returns the runners that serve a workflow.
    fn runner_facts(self, workflow: &LiveWorkflow) -> Vec<ServingRunner<'a>> {
        let serves = |scope: &RunnerScope| self.workflows.live_in_scope(scope).contains(&workflow.id());
        let serving = self.runners.values().filter(|runner| serves(&runner.row().scope));
        serving
            .map(|runner| ServingRunner {
                host: &runner.row().host,
                view: runner.view(self.now),
                end: workflow.end_margin(runner.is_in_allocation()),
                is_silent: runner.is_silent(),
            })
            .collect()
    }

    /// Returns the reasons why ready jobs wait. Classes with the same reason are counted together.
    fn ready_job_reasons(self, workflow: &LiveWorkflow) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = Vec::new();
        if workflow.is_suspended() || workflow.is_canceled() {
            return reasons;
        }
        let runners = self.runner_facts(workflow);
        let slurm = slurm_facts(workflow);
        for (class, queue) in workflow.graph.ready_queues() {
            let jobs: Vec<u32> = queue.jobs().collect();
            for mut reason in ready_reasons(class, &runners, &slurm) {
                let count = jobs.len() as i64;
                match reasons
                    .iter_mut()
                    .find(|known| (known.reason, &known.message) == (reason.reason, &reason.message))
                {
                    Some(known) => known.count = Some(known.count.unwrap_or(0) + count),
                    None => {
                        reason.count = Some(count);
                        reason.jobs = examples(workflow, jobs.iter().copied());
                        reasons.push(reason);
                    }
                }
            }
        }
        reasons
    }
}

fn workflow_facts(workflow: &LiveWorkflow) -> WorkflowFacts<'_> {
    WorkflowFacts {
        name: &workflow.row().name,
        is_suspended: workflow.is_suspended(),
        is_canceled: workflow.is_canceled(),
        is_starting: workflow.is_starting(),
    }
}

fn slurm_facts(workflow: &LiveWorkflow) -> SlurmFacts<'_> {
    let allocations = &workflow.allocations;
    let summary = allocations.summary();
    let is_active = |row: &&AllocationRow| row.status == AllocationStatus::Active;
    let is_pending = |row: &&AllocationRow| row.status == AllocationStatus::Pending;
    let waiting = |row: &AllocationRow| WaitingAllocation {
        name: row.name(),
        slurm_job_id: row.slurm_job_id.clone(),
        reason: row.slurm_reason.clone(),
        estimated_start: row.estimated_start_ms.map(rfc3339),
    };
    SlurmFacts {
        is_used: workflow.schedulers.is_for_slurm(),
        active: allocations.iter().filter(is_active).map(AllocationRow::name).collect(),
        pending: allocations.iter().filter(is_pending).map(waiting).collect(),
        unplaced: summary.unplaced.as_deref(),
        refused: summary.refused.as_deref(),
        unreachable: summary.unreachable.as_deref(),
        held_back: summary.held_back,
        is_exhausted: allocations.is_exhausted(),
    }
}

fn examples(workflow: &LiveWorkflow, jobs: impl Iterator<Item = u32>) -> Vec<JobPhase> {
    let graph = &workflow.graph;
    let phase = |job: u32| JobPhase { job: graph.name(job).to_owned(), status: graph.job(job).state() };
    jobs.take(EXAMPLES).map(phase).collect()
}

/// Returns the reasons why no job of the workflow starts.
fn workflow_reasons(workflow: &LiveWorkflow) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if workflow.is_settled() {
        return reasons;
    }
    if workflow.is_canceled() {
        reasons.push(Reason::new(ReasonKind::Canceled, "it was canceled by a user or by the document"));
    } else if workflow.is_suspended() {
        reasons.push(Reason::new(ReasonKind::Suspended, "it is suspended: no jobs start"));
    } else if workflow.is_starting() {
        reasons.push(Reason::new(ReasonKind::StartActions, "its on_workflow_start commands have not ended"));
    }
    reasons
}

/// Returns the number of jobs in each state that explains something, with examples.
fn reasons_by_state(workflow: &LiveWorkflow) -> Vec<Reason> {
    const STATES: [(JobState, ReasonKind, &str); 9] = [
        (JobState::PendingFailed, ReasonKind::NeedsDecision, "failed and waiting for a manual decision"),
        (JobState::Failed, ReasonKind::Failed, "failed"),
        (JobState::Terminated, ReasonKind::Failed, "ran out of time"),
        (JobState::Recovering, ReasonKind::RecoveryScript, "waiting for their recovery scripts"),
        (JobState::Running, ReasonKind::Running, "running"),
        (JobState::Leased, ReasonKind::Promised, "leased to runners, which start them when resources are free"),
        (JobState::Blocked, ReasonKind::Dependency, "waiting for other jobs"),
        (JobState::Canceled, ReasonKind::Canceled, "canceled"),
        (JobState::Completed, ReasonKind::Completed, "completed"),
    ];
    let graph = &workflow.graph;
    let reason = |(state, kind, words): (JobState, ReasonKind, &str)| {
        let count = graph.counts().of(state);
        let of_state = graph.iter().filter(|(_, job)| job.state() == state).map(|(job, _)| job);
        let jobs = if count > 0 && state != JobState::Completed { examples(workflow, of_state) } else { Vec::new() };
        (count > 0).then(|| Reason { count: Some(count), jobs, ..Reason::new(kind, words) })
    };
    STATES.into_iter().filter_map(reason).collect()
}
