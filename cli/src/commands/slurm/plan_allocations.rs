//! `torc slurm plan-allocations`: compare one large allocation with many small ones, by the estimates of Slurm.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use torc_core::planning::compare::{QueueEstimate, compare};
use torc_core::planning::generate::PlannedScheduler;
use torc_slurm::error::SlurmError;
use torc_slurm::exec::Slurm;
use torc_slurm::script::{AllocationMarker, Request, ScriptRunner, script};
use torc_slurm::{sbatch, sinfo, squeue};

use super::plan::{SchedulerPlanArgs, plan};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::{AllocationPlanRow, EstimateRow};
use crate::sites;

/// Compare one allocation with many nodes to many with one node
///
/// Queries Slurm for idle nodes and for the start time of both options (`sbatch --test-only`). Submits nothing.
#[derive(Debug, Args)]
pub struct PlanAllocationsArgs {
    /// Document with one workflow
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub plan: SchedulerPlanArgs,
}

pub(super) async fn run(context: &CommandContext, args: &PlanAllocationsArgs) -> Result<ExitStatus, CliError> {
    let planned = plan(context, &args.file, &args.plan).await?;
    let slurm = sites::slurm(&args.plan.site.prefix.words());
    let nodes = slurm
        .query_with_retries(&sinfo::nodes().within(sites::QUERY_TIMEOUT), sites::COMMAND_SCHEDULE)
        .await
        .map_err(sites::slurm_error)?;
    let nodes = sinfo::read_nodes(&nodes.text).map_err(sites::slurm_error)?;
    let mut rows = Vec::new();
    for one in &planned.plan.planned {
        let partition = one.scheduler.partition.clone().unwrap_or_default();
        let queue = slurm
            .query_with_retries(
                &squeue::jobs_of_partition(&partition).within(sites::QUERY_TIMEOUT),
                sites::COMMAND_SCHEDULE,
            )
            .await;
        let queued = squeue::read_jobs(queue).map_err(sites::slurm_error)?;
        let idle = sinfo::idle(&nodes, &partition);
        rows.push(row(&slurm, one, &partition, idle, queued.len()).await?);
    }
    context.output.list(&rows)?;
    Ok(ExitStatus::Success)
}

async fn row(
    slurm: &Slurm,
    planned: &PlannedScheduler,
    partition: &str,
    idle_nodes: i64,
    queued: usize,
) -> Result<AllocationPlanRow, CliError> {
    let each = planned.nodes_per_job.max(1);
    let total = planned.allocations.saturating_mul(planned.scheduler.nodes.unwrap_or(1)).max(1);
    let all = wait(slurm, planned, total).await?;
    let one = wait(slurm, planned, each).await?;
    let estimate = QueueEstimate {
        nodes: total / each,
        seconds: planned.seconds,
        idle_nodes: idle_nodes / each,
        wait_for_all: all.seconds,
        wait_for_one: one.seconds,
    };
    let both = compare(estimate);
    let option = |option: torc_core::planning::compare::SubmissionOption| EstimateRow {
        allocations: option.allocations,
        nodes: option.nodes * each,
        start_seconds: option.first_start,
        done_seconds: option.done,
    };
    Ok(AllocationPlanRow {
        scheduler: planned.name.clone(),
        partition: partition.to_owned(),
        jobs: planned.jobs.len(),
        nodes: total,
        idle_nodes,
        queued_jobs: queued,
        walltime_seconds: planned.seconds,
        together: both.together.map(option),
        together_refused: all.refused,
        apart: both.apart.map(option),
        apart_refused: one.refused,
        recommended: if both.prefer_apart { "apart" } else { "together" },
    })
}

/// The estimated wait for an allocation, or the reason why Slurm refuses it.
#[derive(Default)]
struct EstimatedWait {
    seconds: Option<i64>,
    refused: Option<String>,
}

async fn wait(slurm: &Slurm, planned: &PlannedScheduler, nodes: i64) -> Result<EstimatedWait, CliError> {
    let mut request = Request::of_scheduler(&planned.scheduler, None);
    request.nodes = nodes;
    let worker = ScriptRunner {
        command: &["true".to_owned()],
        arguments: &[],
        allocation: "torc-plan",
        environment_file: "/dev/null",
        one_per_node: false,
        srun_mpi: None,
        folder: "/",
        output: "/dev/null",
    };
    let text = script(&request, &BTreeMap::new(), &AllocationMarker { own: "torc-plan", shared_name: None }, &worker)
        .map_err(|error| CliError::invalid("the scheduler is not valid for sbatch").because(error))?;
    match slurm.ask(&sbatch::test(&text).within(sites::QUERY_TIMEOUT)).await {
        Ok(answer) => {
            let start = sbatch::read_start(&answer);
            Ok(EstimatedWait { seconds: start.map(|at| (at - Timestamp::now().as_second()).max(0)), refused: None })
        }
        Err(SlurmError::Refused { message: sentence }) => Ok(EstimatedWait { seconds: None, refused: Some(sentence) }),
        Err(other) => Err(sites::slurm_error(other)),
    }
}
