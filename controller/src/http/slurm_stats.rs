//! `/v1/slurm_stats`: Slurm's accounting of steps.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use torc_api::api::Page;
use torc_api::filter::SlurmStatsFilter;
use torc_api::slurm_stats::{SlurmStats, SlurmStatsRequest};
use torc_core::ids::WorkflowId;

use super::access::Access;
use super::access::AccessMode::{Read, Write};
use super::access::{find_filtered, require_access};
use super::error::{ApiError, ApiResult};
use super::extract::{Body, Query};
use super::route::Route;
use super::{App, Caller};
use crate::audit::AuditVerb;
use crate::engine::EngineError;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/slurm_stats", list).access(Access::Member(Read)).summary("List Slurm's accounting of steps"),
        Route::post("/v1/slurm_stats", record)
            .access(Access::Member(Write))
            .audit(AuditVerb::RecordSlurmStats)
            .summary("Record Slurm's accounting of one or several steps, replacing earlier records"),
    ]
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(filter): Query<SlurmStatsFilter>,
) -> ApiResult<Page<SlurmStats>> {
    let SlurmStatsFilter { namespace, workflow_id, job_id, run_id, attempt_id, limit, cursor } = filter;
    let workflow = find_filtered(&app, &caller, namespace.as_deref(), workflow_id.as_deref()).await?;
    let job = match (&job_id, workflow) {
        (Some(job), Some(workflow)) => Some(app.engine.job_id(workflow, job).await?.0),
        (Some(job), None) => Some(job_number(job)?),
        (None, _) => None,
    };
    let workflow_id = workflow.map(|id| id.0);
    let filter = SlurmStatsFilter { namespace, workflow_id, job_id: job, run_id, attempt_id, limit, cursor };
    let mut page = app.engine.slurm_stats(&filter).await?;
    if let Some(theirs) = app.engine.theirs(&caller.grant).await? {
        page.items.retain(|stats| theirs.contains(&WorkflowId(stats.workflow)));
    }
    Ok(Json(page))
}

/// Reads the number of a job without its workflow: numbers are unique in a store, names are not.
fn job_number(job: &str) -> Result<i64, EngineError> {
    job.parse().map_err(|_| EngineError::bad_request(format!("job '{job}' is a name: add workflow_id")))
}

async fn record(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<SlurmStatsRequest>,
) -> Result<StatusCode, ApiError> {
    let stats = request.into_items();
    let workflows: Vec<WorkflowId> = stats.iter().map(|stats| WorkflowId(stats.workflow)).collect();
    require_access(&app, &caller, &workflows).await?;
    app.engine.record_slurm_stats(stats).await?;
    Ok(StatusCode::NO_CONTENT)
}
