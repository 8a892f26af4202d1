//! Recovery commands: they combine the engine's state, the stored results and the user's request.

use torc_api::allocation::OrphanedJob;
use torc_api::api;
use torc_api::filter::ResultFilter;
use torc_api::quantity::parse_walltime;
use torc_api::recovery::{
    ClassifyRequest, CorrectResourcesReport, CorrectResourcesRequest, RecoverReport, RecoverRequest, RegenerateReport,
    RegenerateRequest, ScheduleNodesRequest,
};
use torc_core::engine::{CorrectResources, Engine, LatestResults, Recover, Regenerate};
use torc_core::failure::{Multipliers, RecoveryOptions};
use torc_core::ids::WorkflowId;
use torc_core::planning::partition::PartitionLimits;

use super::{EngineError, EngineHandle};

/// Number of results that one query reads.
const PAGE: u32 = 10_000;

impl EngineHandle {
    /// Retries failed jobs with more of the resources that they lacked. A dry run only returns the plan.
    pub async fn recover(&self, id: WorkflowId, request: RecoverRequest) -> Result<RecoverReport, EngineError> {
        let latest = self.latest_results(id, true).await?;
        let RecoverRequest { dry_run, memory_percent, runtime_percent, retry_unknown, .. } = request;
        let percent = |asked: Option<i32>, built_in: i64| asked.map_or(built_in, i64::from).max(100);
        let built_in = Multipliers::default();
        let multipliers = Multipliers {
            memory_percent: percent(memory_percent, built_in.memory_percent),
            runtime_percent: percent(runtime_percent, built_in.runtime_percent),
        };
        let options = RecoveryOptions { multipliers, retry_unknown };
        let partitions = read_partitions(&request.partitions)?;
        let plan = request.regenerate.map(|request| PreparedRegenerate::new(*request)).transpose()?;
        let wanted = PreparedRecovery { latest, options, partitions, plan, lost: request.lost };
        if dry_run {
            return self
                .read(move |engine| {
                    let account = wanted.account(engine, id)?;
                    Ok(engine.recover_preview(id, wanted.with(&account), crate::clock::now())?)
                })
                .await;
        }
        self.write(move |engine, tx| {
            let account = wanted.account(engine, id)?;
            Ok(engine.recover(id, wanted.with(&account), tx)?)
        })
        .await
    }

    /// Plans schedulers and allocations again. A dry run only returns the plan.
    pub async fn regenerate(
        &self,
        id: WorkflowId,
        request: RegenerateRequest,
    ) -> Result<RegenerateReport, EngineError> {
        let plan = PreparedRegenerate::new(request)?;
        if plan.request.dry_run {
            return self
                .read(move |engine| {
                    let account = plan.account(engine, id)?;
                    Ok(engine.regenerate_preview(id, plan.with(&account), crate::clock::now())?)
                })
                .await;
        }
        self.write(move |engine, tx| {
            let account = plan.account(engine, id)?;
            Ok(engine.regenerate(id, plan.with(&account), tx)?)
        })
        .await
    }

    /// Corrects requirements by the observed usage. A dry run only returns the corrections.
    pub async fn correct_resources(
        &self,
        id: WorkflowId,
        request: CorrectResourcesRequest,
    ) -> Result<CorrectResourcesReport, EngineError> {
        let latest = self.latest_results(id, false).await?;
        let CorrectResourcesRequest { dry_run, no_downsize, jobs } = request;
        if dry_run {
            return self
                .read(move |engine| {
                    Ok(engine.correction_preview(
                        id,
                        CorrectResources { references: &jobs, latest: &latest, may_reduce: !no_downsize },
                    )?)
                })
                .await;
        }
        self.write(move |engine, tx| {
            Ok(engine.correct_resources(
                id,
                CorrectResources { references: &jobs, latest: &latest, may_reduce: !no_downsize },
                tx,
            )?)
        })
        .await
    }

    /// Classifies failed jobs that need a manual decision.
    pub async fn classify(&self, id: WorkflowId, request: ClassifyRequest) -> Result<api::AffectedJobs, EngineError> {
        let decide =
            move |engine: &mut Engine, tx: &mut _| Ok(engine.classify(id, &request.jobs, request.class, tx)?);
        Ok(api::AffectedJobs { jobs: self.write(decide).await?, names: Vec::new() })
    }

    /// Submits allocations of a scheduler and returns their names.
    pub async fn schedule_nodes(
        &self,
        id: WorkflowId,
        request: ScheduleNodesRequest,
    ) -> Result<Vec<String>, EngineError> {
        self.write(move |engine, tx| Ok(engine.schedule_nodes(id, &request, tx)?)).await
    }

    /// Lets this process run a stored workflow.
    pub async fn submit(&self, id: WorkflowId) -> Result<api::Workflow, EngineError> {
        self.write_and_show(id, move |engine, _| Ok(engine.serve(id)?)).await
    }

    async fn latest_results(&self, id: WorkflowId, failed: bool) -> Result<LatestResults, EngineError> {
        let mut latest = LatestResults::new();
        let (workflow, limit) = (Some(id.0), Some(PAGE));
        let mut filter = ResultFilter { workflow, latest: true, failed, limit, ..ResultFilter::default() };
        loop {
            let page = self.store.results(&filter).await?;
            latest.extend(page.items.into_iter().map(|view| (view.result.job, view.result)));
            match page.next {
                Some(next) => filter.cursor = Some(next),
                None => return Ok(latest),
            }
        }
    }
}

/// A parsed recovery request.
struct PreparedRecovery {
    latest: LatestResults,
    options: RecoveryOptions,
    partitions: Vec<PartitionLimits>,
    plan: Option<PreparedRegenerate>,
    lost: Vec<OrphanedJob>,
}

impl PreparedRecovery {
    fn account(&self, engine: &Engine, id: WorkflowId) -> Result<String, EngineError> {
        self.plan.as_ref().map_or_else(|| Ok(String::new()), |plan| plan.account(engine, id))
    }

    fn with<'a>(&'a self, account: &'a str) -> Recover<'a> {
        let Self { latest, options, partitions, plan, lost } = self;
        let regenerate = plan.as_ref().map(|plan| plan.with(account));
        Recover { latest, options: *options, partitions, regenerate, lost }
    }
}

fn read_partitions(partitions: &[torc_api::cluster::Partition]) -> Result<Vec<PartitionLimits>, EngineError> {
    let partitions = partitions.iter().map(PartitionLimits::try_from).collect::<Result<_, _>>();
    partitions.map_err(|error| EngineError::bad_request(error.to_string()))
}

/// A parsed request to plan again.
struct PreparedRegenerate {
    request: RegenerateRequest,
    partitions: Vec<PartitionLimits>,
    seconds: Option<i64>,
    stamp: String,
}

impl PreparedRegenerate {
    fn new(request: RegenerateRequest) -> Result<Self, EngineError> {
        let wrong = |error: torc_api::quantity::QuantityError| EngineError::bad_request(error.to_string());
        let partitions = read_partitions(&request.partitions)?;
        let seconds = request.walltime.as_deref().map(parse_walltime).transpose().map_err(wrong)?;
        let now = torc_core::time::rfc3339(crate::clock::now().wall_ms);
        // Seconds are precise enough, and names may contain only letters and digits: 20261116T080000.
        let digits: String = now.chars().filter(char::is_ascii_alphanumeric).take(15).collect();
        let stamp = format!("regen_{digits}");
        Ok(Self { request, partitions, seconds, stamp })
    }

    /// Returns the account: as requested, or that of the document's schedulers.
    fn account(&self, engine: &Engine, id: WorkflowId) -> Result<String, EngineError> {
        Ok(self.request.account.clone().or(engine.scheduler_account(id)?).unwrap_or_default())
    }

    fn with<'a>(&'a self, account: &'a str) -> Regenerate<'a> {
        let Self { request, partitions, seconds, stamp } = self;
        Regenerate { request, account, seconds: *seconds, partitions, stamp }
    }
}
