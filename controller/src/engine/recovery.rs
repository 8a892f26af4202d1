//! Commands of recovery: the live state, the attempts in the store, and what a person asked for.

use torc_api::api;
use torc_api::quantity::parse_walltime;
use torc_api::recovery::{
    ClassifyRequest, CorrectResourcesReport, CorrectResourcesRequest, RecoverReport, RecoverRequest, RegenerateReport,
    RegenerateRequest, ScheduleNodesRequest,
};
use torc_core::engine::{LatestResults, Regenerate, State};
use torc_core::ids::WorkflowId;
use torc_core::planning::diagnosis::Factors;
use torc_core::planning::partition::Partition;
use torc_core::planning::recovery::Options;
use torc_store::ResultQuery;

use super::{Engine, EngineError, WorkflowRef};

/// How many results are read at once.
const PAGE: u32 = 10_000;

impl Engine {
    /// Tries failed jobs again, each with what it lacked, or says what that would do.
    pub async fn recover(
        &self,
        reference: WorkflowRef<'_>,
        request: RecoverRequest,
    ) -> Result<RecoverReport, EngineError> {
        let id = self.find(reference).await?;
        let latest = self.latest_results(id, true).await?;
        let percent = |asked: Option<i32>, built_in: i64| asked.map_or(built_in, i64::from).max(100);
        let built_in = Factors::default();
        let options = Options {
            factors: Factors {
                memory_percent: percent(request.memory_percent, built_in.memory_percent),
                runtime_percent: percent(request.runtime_percent, built_in.runtime_percent),
            },
            retry_unknown: request.retry_unknown,
        };
        if request.dry_run {
            return self.read(move |state| Ok(state.recover_preview(id, &latest, options)?)).await;
        }
        self.write(move |state, recorder, now| Ok(state.recover(id, &latest, options, recorder, now)?)).await
    }

    /// Plans schedulers and allocations anew, or says what that would do.
    pub async fn regenerate(
        &self,
        reference: WorkflowRef<'_>,
        request: RegenerateRequest,
    ) -> Result<RegenerateReport, EngineError> {
        let id = self.find(reference).await?;
        let plan = Prepared::new(request)?;
        if plan.request.dry_run {
            return self
                .read(move |state| Ok(state.regenerate_preview(id, plan.with(&plan.account(state, id)?))?))
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
        reference: WorkflowRef<'_>,
        request: CorrectResourcesRequest,
    ) -> Result<CorrectResourcesReport, EngineError> {
        let id = self.find(reference).await?;
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
    pub async fn classify(
        &self,
        reference: WorkflowRef<'_>,
        request: ClassifyRequest,
    ) -> Result<api::Affected, EngineError> {
        let id = self.find(reference).await?;
        let decide = move |state: &mut State, recorder: &mut _, now| {
            Ok(state.classify(id, &request.jobs, request.class, recorder, now)?)
        };
        Ok(api::Affected { jobs: self.write(decide).await?, names: Vec::new() })
    }

    /// Asks for allocations of a scheduler; their names.
    pub async fn schedule_nodes(
        &self,
        reference: WorkflowRef<'_>,
        request: ScheduleNodesRequest,
    ) -> Result<Vec<String>, EngineError> {
        let id = self.find(reference).await?;
        self.write(move |state, recorder, now| Ok(state.schedule_nodes(id, &request, recorder, now)?)).await
    }

    /// This process is to run a workflow that is stored.
    pub async fn submit(&self, reference: WorkflowRef<'_>) -> Result<api::Workflow, EngineError> {
        let id = self.find(reference).await?;
        self.write(move |state, _, _| Ok(state.serve(id)?)).await?;
        self.summary(id).await
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
        let partitions: Vec<Partition> =
            request.partitions.iter().map(Partition::try_from).collect::<Result<_, _>>().map_err(wrong)?;
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
