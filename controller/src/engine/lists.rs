//! Lists, which combine rows of the store with the engine's state.

use std::collections::{HashMap, HashSet};

use torc_api::api::{self, Event, Page};
use torc_api::filter::{EventFilter, JobFilter, ResultFilter, RunnerFilter, SlurmStatsFilter};
use torc_api::slurm_stats::SlurmStats;
use torc_core::ids::{JobId, WorkflowId};

use super::{EngineError, EngineHandle};
use crate::views;

impl EngineHandle {
    /// Returns the runners; with `all`, also those that have left.
    pub async fn runners(&self, all: bool) -> Result<Vec<api::Runner>, EngineError> {
        let mut runners = self.read(|engine| Ok(engine.runners())).await?;
        if all {
            let live: HashSet<i64> = runners.iter().map(|runner| runner.id).collect();
            let stored = self.store.runners(RunnerFilter { all }).await?;
            let gone = stored.into_iter().filter(|runner| !live.contains(&runner.id.0));
            runners.extend(gone.map(|runner| views::deregistered_runner(&runner)));
            runners.sort_by_key(|runner| runner.id);
        }
        Ok(runners)
    }

    /// Returns one job with its dependencies.
    pub async fn job(&self, id: WorkflowId, job: &str) -> Result<api::Job, EngineError> {
        let job = job.to_owned();
        let live = self.read(move |engine| Ok(views::LiveJob::from(engine.job(id, &job)?.1))).await?;
        let name = Some(live.name.clone());
        let mut jobs = self.jobs(&JobFilter { workflow: Some(id.0), name, ..JobFilter::default() }).await?;
        let mut job =
            jobs.items.pop().ok_or_else(|| EngineError::internal("the job is not in the store".to_owned()))?;
        live.add_to(&mut job);
        Ok(job)
    }

    /// Returns a page of jobs.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Page<api::Job>, EngineError> {
        let mut page = self.store.jobs(filter).await?;
        let (names, hosts) = self.names().await?;
        self.fill_commands(&mut page.items).await?;
        let items = page.items.into_iter().map(|view| views::job(view, &names, &hosts)).collect();
        Ok(Page { items, next: page.next })
    }

    /// Returns a page of results.
    pub async fn results(&self, filter: &ResultFilter<i64>) -> Result<Page<api::JobResult>, EngineError> {
        let page = self.store.results(filter).await?;
        let items = page.items.into_iter().map(views::result).collect();
        Ok(Page { items, next: page.next })
    }

    /// Returns a page of Slurm's accounting of steps.
    pub async fn slurm_stats(&self, filter: &SlurmStatsFilter<i64>) -> Result<Page<SlurmStats>, EngineError> {
        Ok(self.store.slurm_stats(filter).await?)
    }

    /// Records Slurm's accounting of steps and replaces what was recorded before.
    pub async fn record_slurm_stats(&self, stats: Vec<SlurmStats>) -> Result<(), EngineError> {
        self.write(move |engine, tx| Ok(engine.record_slurm_stats(&stats, tx)?)).await
    }

    /// Returns the names of workflows and the hosts of runners, by number.
    pub(super) async fn names(&self) -> Result<(HashMap<i64, String>, HashMap<i64, String>), EngineError> {
        let workflows = self.workflows(None).await?;
        let runners = self.runners(false).await?;
        let names = workflows.into_iter().map(|workflow| (workflow.id, workflow.name)).collect();
        Ok((names, runners.into_iter().map(|runner| (runner.id, runner.host)).collect()))
    }

    /// Returns a page of events.
    pub async fn events(&self, filter: &EventFilter<i64>) -> Result<Page<Event>, EngineError> {
        let page = self.store.events(filter).await?;
        Ok(Page { items: page.items.into_iter().map(views::event).collect(), next: page.next })
    }

    /// Returns the number of a job that is given by name or number.
    pub async fn job_id(&self, workflow: WorkflowId, reference: &str) -> Result<JobId, EngineError> {
        let reference = reference.to_owned();
        self.read(move |engine| Ok(engine.job(workflow, &reference)?.0)).await
    }
}
