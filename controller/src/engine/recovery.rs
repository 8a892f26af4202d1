//! Commands of recovery: the live state, the attempts in the store, and what a person asked for.

use torc_api::allocation::OrphanedJob;
use torc_api::api;
use torc_api::quantity::parse_walltime;
use torc_api::recovery::{
    ClassifyRequest, CorrectResourcesReport, CorrectResourcesRequest, RecoverReport, RecoverRequest, RegenerateReport,
    RegenerateRequest, ScheduleNodesRequest,
};
use torc_core::engine::{LatestResults, Recover, Regenerate, State};
use torc_core::failure::{Multipliers, RecoveryOptions};
use torc_core::ids::WorkflowId;
use torc_core::planning::partition::Partition;
use torc_store::ResultQuery;

use super::{Engine, EngineError};

/// How many results are read at once.
const PAGE: u32 = 10_000;

impl Engine {
    /// Tries failed jobs again, each with what it lacked, or says what that would do.
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
        let plan = request.regenerate.map(|request| Prepared::new(*request)).transpose()?;
        let wanted = PreparedRecovery { latest, options, partitions, plan, lost: request.lost };
        if dry_run {
            return self
                .read(move |state| {
                    let account = wanted.account(state, id)?;
                    Ok(state.recover_preview(id, wanted.with(&account), crate::clock::now())?)
                })
                .await;
        }
        self.write(move |state, recorder, now| {
            let account = wanted.account(state, id)?;
            Ok(state.recover(id, wanted.with(&account), recorder, now)?)
        })
        .await
    }

    /// Plans schedulers and allocations anew, or says what that would do.
    pub async fn regenerate(
        &self,
        id: WorkflowId,
        request: RegenerateRequest,
    ) -> Result<RegenerateReport, EngineError> {
        let plan = Prepared::new(request)?;
        if plan.request.dry_run {
            return self
                .read(move |state| {
                    let account = plan.account(state, id)?;
                    Ok(state.regenerate_preview(id, plan.with(&account), crate::clock::now())?)
                })
                .await;
        }
        self.write(move |state, recorder, now| {
            let account = plan.account(state, id)?;
            Ok(state.regenerate(id, plan.with(&account), recorder, now)?)
        })
        .await
    }

    /// Corrects requirements by what was observed, or says which.
    pub async fn correct_resources(
        &self,
        id: WorkflowId,
        request: CorrectResourcesRequest,
    ) -> Result<CorrectResourcesReport, EngineError> {
        let latest = self.latest_results(id, false).await?;
        let CorrectResourcesRequest { dry_run, no_downsize, jobs } = request;
        if dry_run {
            return self.read(move |state| Ok(state.correction_preview(id, &jobs, (&latest, !no_downsize))?)).await;
        }
        self.write(move |state, recorder, now| {
            Ok(state.correct_resources(id, &jobs, (&latest, !no_downsize), recorder, now)?)
        })
        .await
    }

    /// Decides about failed jobs that wait for a person.
    pub async fn classify(&self, id: WorkflowId, request: ClassifyRequest) -> Result<api::Affected, EngineError> {
        let decide = move |state: &mut State, recorder: &mut _, now| {
            Ok(state.classify(id, &request.jobs, request.class, recorder, now)?)
        };
        Ok(api::Affected { jobs: self.write(decide).await?, names: Vec::new() })
    }

    /// Asks for allocations of a scheduler; their names.
    pub async fn schedule_nodes(
        &self,
        id: WorkflowId,
        request: ScheduleNodesRequest,
    ) -> Result<Vec<String>, EngineError> {
        self.write(move |state, recorder, now| Ok(state.schedule_nodes(id, &request, recorder, now)?)).await
    }

    /// This process is to run a workflow that is stored.
    pub async fn submit(&self, id: WorkflowId) -> Result<api::Workflow, EngineError> {
        self.write_and_show(id, move |state, _, _| Ok(state.serve(id)?)).await
    }

    async fn latest_results(&self, id: WorkflowId, failed_only: bool) -> Result<LatestResults, EngineError> {
        let mut latest = LatestResults::new();
        let mut query =
            ResultQuery { workflow: Some(id), latest_only: true, failed_only, limit: PAGE, ..ResultQuery::default() };
        loop {
            let page = self.store.results(&query).await?;
            latest.extend(page.items.into_iter().map(|view| (view.result.job, view.result)));
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return Ok(latest),
            }
        }
    }
}

/// A recovery with its texts read.
struct PreparedRecovery {
    latest: LatestResults,
    options: RecoveryOptions,
    partitions: Vec<Partition>,
    plan: Option<Prepared>,
    lost: Vec<OrphanedJob>,
}

impl PreparedRecovery {
    fn account(&self, state: &State, id: WorkflowId) -> Result<String, EngineError> {
        self.plan.as_ref().map_or_else(|| Ok(String::new()), |plan| plan.account(state, id))
    }

    fn with<'a>(&'a self, account: &'a str) -> Recover<'a> {
        let Self { latest, options, partitions, plan, lost } = self;
        let regenerate = plan.as_ref().map(|plan| plan.with(account));
        Recover { latest, options: *options, partitions, regenerate, lost }
    }
}

fn read_partitions(partitions: &[torc_api::cluster::Partition]) -> Result<Vec<Partition>, EngineError> {
    let partitions = partitions.iter().map(Partition::try_from).collect::<Result<_, _>>();
    partitions.map_err(|error| EngineError::bad_request(error.to_string()))
}

/// A request with its texts read.
struct Prepared {
    request: RegenerateRequest,
    partitions: Vec<Partition>,
    seconds: Option<i64>,
    stamp: String,
}

impl Prepared {
    fn new(request: RegenerateRequest) -> Result<Self, EngineError> {
        let wrong = |error: torc_api::quantity::QuantityError| EngineError::bad_request(error.to_string());
        let partitions = read_partitions(&request.partitions)?;
        let seconds = request.walltime.as_deref().map(parse_walltime).transpose().map_err(wrong)?;
        let now = torc_core::time::rfc3339(crate::clock::now().wall_ms);
        // To the second, as names may be: 20261116T080000.
        let digits: String = now.chars().filter(char::is_ascii_alphanumeric).take(15).collect();
        let stamp = format!("regen_{digits}");
        Ok(Self { request, partitions, seconds, stamp })
    }

    /// Who pays: as asked for, or as the document's schedulers say.
    fn account(&self, state: &State, id: WorkflowId) -> Result<String, EngineError> {
        Ok(self.request.account.clone().or(state.account_of(id)?).unwrap_or_default())
    }

    fn with<'a>(&'a self, account: &'a str) -> Regenerate<'a> {
        let Self { request, partitions, seconds, stamp } = self;
        Regenerate { request, account, seconds: *seconds, partitions, stamp }
    }
}
