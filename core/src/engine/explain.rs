//! Facts about jobs and workflows for those who ask why; what follows from them is decided elsewhere.

use torc_api::allocation::AllocationStatus;
use torc_api::api::JobResources;
use torc_api::explain::{JobExplanation, JobPhase, Reason, ReasonKind, WorkflowExplanation};
use torc_api::state::{Cause, JobState};
use torc_api::wire::RunnerScope;

use super::workflow::Workflow;
use super::{CommandError, Engine};
use crate::explain::{
    Attempt, JobFacts, RecoveryHint, RunnerFacts, ScriptFacts, SlurmFacts, WaitingAllocation, WorkflowFacts,
    next_steps, raised, stories, why, why_ready,
};
use crate::failure::{Evidence, Multipliers, escalate};
use crate::ids::{Now, WorkflowId};
use crate::rows::AllocationRow;
use crate::time::rfc3339;

/// Jobs of a state that are named as examples.
const EXAMPLES: usize = 5;

impl Engine {
    /// Why a job is where it is. Its attempts are in the store, so whoever asks brings them, the first one first.
    pub fn explain_job(
        &self,
        id: WorkflowId,
        reference: &str,
        attempts: &[Attempt<'_>],
        now: Now,
    ) -> Result<JobExplanation, CommandError> {
        let workflow = self.workflow(id)?;
        let job = workflow.require_job(reference)?;
        let record = workflow.graph.job(job);
        let needs = &workflow.graph.profile(job).requirements;
        let told = stories(attempts, needs, record.state().is_settled() || record.state() == JobState::PendingFailed);
        let last = told.last().and_then(|story| Some((story.diagnosis?, story.return_code?)));
        let Some(facts) = self.job_facts(workflow, job, last, now) else { return Ok(JobExplanation::default()) };
        let reasons = why(&facts, workflow.facts(), &self.runner_facts(workflow, now), &workflow.slurm_facts());
        let declared = workflow.graph.profile(job).declared.as_deref();
        let raised = declared.map_or_else(Vec::new, |declared| raised(declared, needs));
        let name = workflow.graph.name(job);
        let hint = attempts.last().map(|attempt| {
            let evidence = Evidence::of_result(needs, Some(attempt.result));
            let next = escalate(&evidence, Multipliers::default(), &self.nodes_for(workflow, job));
            RecoveryHint { had: needs.clone(), next }
        });
        Ok(JobExplanation {
            workflow: workflow.row.name.clone(),
            job: name.to_owned(),
            status: Some(record.state()),
            run_id: record.run(),
            attempt: record.attempt(),
            next: next_steps(&workflow.row.name, name, &reasons, hint.as_ref()),
            reasons,
            resources: Some(JobResources::from(needs)),
            raised,
            attempts: told,
        })
    }

    /// Why a workflow is where it is.
    pub fn explain_workflow(&self, id: WorkflowId, now: Now) -> Result<WorkflowExplanation, CommandError> {
        let workflow = self.workflow(id)?;
        let mut reasons = workflow.held_back_as_a_whole();
        reasons.extend(self.why_ready_jobs_wait(workflow, now));
        reasons.extend(workflow.by_state());
        let example =
            reasons.first().and_then(|reason| reason.jobs.first()).map_or("", |standing| standing.job.as_str());
        let mut next = next_steps(&workflow.row.name, example, &reasons, None);
        if reasons.iter().any(|reason| reason.reason == ReasonKind::Failed) {
            next.push(format!(
                "`torc recover {0} --dry-run` says what could be done about failed jobs",
                workflow.row.name
            ));
        }
        let counts = workflow.graph.counts();
        Ok(WorkflowExplanation {
            workflow: workflow.row.name.clone(),
            progress: format!("{}/{}", counts.settled(), counts.total),
            reasons,
            next,
        })
    }

    fn job_facts<'a>(
        &'a self,
        workflow: &'a Workflow,
        job: u32,
        last_failure: Option<(Cause, i32)>,
        now: Now,
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
            host: runner.map(|runner| runner.row.host.as_str()),
            running_seconds: record.started_ms().map(|started| (now.wall_ms - started).max(0) / 1_000),
            unconfirmed: record.is_unconfirmed(),
            script,
            last_failure,
        })
    }

    /// Runners that serve a workflow. Which session a runner of an earlier process served is not known.
    fn runner_facts(&self, workflow: &Workflow, now: Now) -> Vec<RunnerFacts<'_>> {
        let serves = |scope: &RunnerScope| self.live_in_scope(scope).contains(&workflow.id());
        let serving = self.runners.values().filter(|runner| serves(&runner.row.scope));
        serving
            .map(|runner| RunnerFacts {
                host: &runner.row.host,
                place: runner.place(now),
                end: workflow.end_margin(runner.is_in_allocation()),
                is_silent: runner.is_silent(),
            })
            .collect()
    }

    /// A reason for each kind of ready jobs; kinds with the same reason are one.
    fn why_ready_jobs_wait(&self, workflow: &Workflow, now: Now) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = Vec::new();
        if workflow.is_suspended() || workflow.is_canceled() {
            return reasons;
        }
        let runners = self.runner_facts(workflow, now);
        let slurm = workflow.slurm_facts();
        for (class, queue) in workflow.graph.ready_queues() {
            let jobs: Vec<u32> = queue.jobs().collect();
            for mut reason in why_ready(class, &runners, &slurm) {
                let count = jobs.len() as i64;
                match reasons
                    .iter_mut()
                    .find(|known| (known.reason, &known.message) == (reason.reason, &reason.message))
                {
                    Some(known) => known.count = Some(known.count.unwrap_or(0) + count),
                    None => {
                        reason.count = Some(count);
                        reason.jobs = workflow.standings(jobs.iter().copied());
                        reasons.push(reason);
                    }
                }
            }
        }
        reasons
    }
}

impl Workflow {
    fn facts(&self) -> WorkflowFacts<'_> {
        WorkflowFacts {
            name: &self.row.name,
            is_suspended: self.is_suspended(),
            is_canceled: self.is_canceled(),
            is_starting: self.is_starting(),
        }
    }

    fn slurm_facts(&self) -> SlurmFacts<'_> {
        let summary = self.allocations.summary();
        let runs = |row: &&AllocationRow| row.status == AllocationStatus::Active;
        let waits = |row: &&AllocationRow| row.status == AllocationStatus::Pending;
        let waiting = |row: &AllocationRow| WaitingAllocation {
            name: row.name(),
            slurm_job_id: row.slurm_job_id.clone(),
            reason: row.slurm_reason.clone(),
            estimated_start: row.estimated_start_ms.map(rfc3339),
        };
        SlurmFacts {
            is_used: self.is_for_slurm(),
            active: self.allocations.iter().filter(runs).map(AllocationRow::name).collect(),
            pending: self.allocations.iter().filter(waits).map(waiting).collect(),
            unplaced: summary.unplaced.as_deref(),
            refused: summary.refused.as_deref(),
            unreachable: summary.unreachable.as_deref(),
            held_back: summary.held_back,
            is_exhausted: self.allocations.is_exhausted(),
        }
    }

    fn standings(&self, jobs: impl Iterator<Item = u32>) -> Vec<JobPhase> {
        let standing =
            |job: u32| JobPhase { job: self.graph.name(job).to_owned(), status: self.graph.job(job).state() };
        jobs.take(EXAMPLES).map(standing).collect()
    }

    fn held_back_as_a_whole(&self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if self.graph.is_settled() {
            return reasons;
        }
        if self.is_canceled() {
            reasons.push(Reason::new(ReasonKind::Canceled, "it was cancelled by a person or by the document"));
        } else if self.is_suspended() {
            reasons.push(Reason::new(ReasonKind::Suspended, "it is suspended: no jobs start"));
        } else if self.is_starting() {
            reasons.push(Reason::new(ReasonKind::StartActions, "its on_workflow_start commands have not ended"));
        }
        reasons
    }

    /// How many jobs are in each state that says something, with examples.
    fn by_state(&self) -> Vec<Reason> {
        const STATES: [(JobState, ReasonKind, &str); 9] = [
            (JobState::PendingFailed, ReasonKind::NeedsDecision, "failed, and a person has to decide"),
            (JobState::Failed, ReasonKind::Failed, "failed"),
            (JobState::Terminated, ReasonKind::Failed, "ran out of time"),
            (JobState::Recovering, ReasonKind::RecoveryScript, "waiting for their recovery scripts"),
            (JobState::Running, ReasonKind::Running, "running"),
            (JobState::Leased, ReasonKind::Promised, "given to runners, which start them when there is room"),
            (JobState::Blocked, ReasonKind::Dependency, "waiting for other jobs"),
            (JobState::Canceled, ReasonKind::Canceled, "cancelled"),
            (JobState::Completed, ReasonKind::Completed, "completed"),
        ];
        let reason = |(state, kind, words): (JobState, ReasonKind, &str)| {
            let count = self.graph.counts().of(state);
            let of_state = self.graph.all().filter(|job| self.graph.job(*job).state() == state);
            let jobs = if count > 0 && state != JobState::Completed { self.standings(of_state) } else { Vec::new() };
            (count > 0).then(|| Reason { count: Some(count), jobs, ..Reason::new(kind, words) })
        };
        STATES.into_iter().filter_map(reason).collect()
    }
}
