//! Submission of an allocation: its batch script, the arguments of its runner, and the call.

use std::path::{Path, PathBuf};

use torc_api::resources::SlurmScheduler;
use torc_core::engine::slurm_name;
use torc_core::planning::allocation_plan::{WorkflowDemand, scheduler};
use torc_core::planning::cpus::least_cpus;
use torc_core::planning::partition::PartitionLimits;
use torc_core::rows::AllocationRow;
use torc_slurm::error::SlurmError;
use torc_slurm::sbatch;
use torc_slurm::script::{AllocationMarker, Request, ScriptRunner, script};

use super::SlurmConfig;
use super::clusters::ClusterConnection;

/// Returns the name of the Slurm job of an allocation. Allocations that run one after another share a name.
pub(super) fn slurm_job_name(row: &AllocationRow, needs: &WorkflowDemand, identity: &str) -> String {
    match serialized(row, needs) {
        Some(name) => format!("torc-wf{}-sched-{name}-{identity}", row.workflow),
        None => slurm_name(row, identity),
    }
}

fn serialized<'a>(row: &AllocationRow, needs: &'a WorkflowDemand) -> Option<&'a str> {
    let scheduler = definition(row, needs).filter(|scheduler| scheduler.serialize_allocations == Some(true))?;
    scheduler.name.as_deref()
}

fn definition<'a>(row: &AllocationRow, needs: &'a WorkflowDemand) -> Option<&'a SlurmScheduler> {
    scheduler(&needs.spec, row.scheduler.as_deref()?)
}

/// Returns the folder of credential files: next to the store, or in the working folder if Slurm's commands run on
/// another machine. The nodes must share it, because runners read the files.
pub(super) fn credentials_folder(config: &SlurmConfig, working_dir: &str, is_elsewhere: bool) -> PathBuf {
    if is_elsewhere { Path::new(working_dir).join(".torc-allocations") } else { config.folder.clone() }
}

/// Submits an allocation whose credential files are written, and returns its Slurm job ID.
pub(super) async fn submit(
    cluster: &mut ClusterConnection,
    config: &SlurmConfig,
    environment_file: &str,
    needs: &WorkflowDemand,
    row: &AllocationRow,
    identity: &str,
) -> Result<String, SlurmError> {
    let refused = |message: String| SlurmError::Refused { message };
    let output = Path::new(&needs.working_dir).join(&config.output_dir);
    let output =
        output.to_str().ok_or_else(|| refused("the path of the output folder is not valid UTF-8".to_owned()))?;
    // Slurm writes the output of the script into the folder and does not create it.
    cluster.make_folder(output).await?;
    let partitions = cluster.known_partitions().unwrap_or_default();
    let text = text(config, needs, row, &partitions, identity, environment_file, output).map_err(refused)?;
    let answer = cluster.ask(&sbatch::submit(&text)).await?;
    Ok(sbatch::read_number(&answer)?.to_string())
}

/// Returns the batch script.
fn text(
    config: &SlurmConfig,
    needs: &WorkflowDemand,
    row: &AllocationRow,
    partitions: &[PartitionLimits],
    identity: &str,
    environment_file: &str,
    output: &str,
) -> Result<String, String> {
    let own = slurm_name(row, identity);
    let shared = serialized(row, needs).map(|_| slurm_job_name(row, needs, identity));
    let marker = AllocationMarker { own: &own, shared_name: shared.as_deref() };
    let arguments = arguments(needs, row, output);
    let name = row.name();
    let log = format!("{output}/slurm_output_wf{}_sl%j.o", row.workflow);
    let execution = needs.spec.execution_config.as_ref();
    let worker = ScriptRunner {
        command: &config.runner,
        arguments: &arguments,
        allocation: &name,
        environment_file,
        one_per_node: row.one_worker_per_node,
        srun_mpi: execution.and_then(|execution| execution.srun_mpi.as_deref()),
        folder: &needs.working_dir,
        output: &log,
    };
    let gres = (row.gpus > 0).then(|| format!("gpu:{}", row.gpus));
    let request = request(row, needs, partitions, gres.as_deref())?;
    script(&request, &needs.spec.slurm_defaults, &marker, &worker).map_err(|error| error.to_string())
}

/// Returns the request: by the scheduler of the document, or by the demand of jobs.
fn request<'a>(
    row: &'a AllocationRow,
    needs: &'a WorkflowDemand,
    partitions: &[PartitionLimits],
    gres: Option<&'a str>,
) -> Result<Request<'a>, String> {
    if let Some(name) = &row.scheduler {
        let scheduler =
            definition(row, needs).ok_or_else(|| format!("there is no Slurm scheduler '{name}' any more"))?;
        let least_cpus = least_cpus(&needs.spec, scheduler, &needs.kinds, partitions);
        return Ok(Request { least_cpus, ..Request::of_scheduler(scheduler, row.account.as_deref()) });
    }
    Ok(Request {
        account: row.account.as_deref(),
        partition: row.partition.as_deref(),
        gres,
        memory: (row.memory_bytes > 0).then(|| format!("{}M", row.memory_bytes >> 20)),
        nodes: row.nodes,
        tasks_per_node: Some(1),
        cpus_per_task: (row.cpus > 0).then_some(row.cpus),
        seconds: row.seconds,
        ..Request::default()
    })
}

/// Returns the arguments of the runner after the address of the server. None of them is secret.
fn arguments(needs: &WorkflowDemand, row: &AllocationRow, output: &str) -> Vec<String> {
    let mut words = vec![needs.workflow.to_string(), output.to_owned()];
    if row.one_worker_per_node {
        words.push("--is-subtask".to_owned());
    }
    if let Some(most) = row.max_parallel_jobs {
        words.extend(["--max-parallel-jobs".to_owned(), most.to_string()]);
    }
    let is_staggered = needs.spec.execution_config.as_ref().is_none_or(|config| config.staggered_start != Some(false));
    let runners = needs.allocations.iter().map(|one| &one.row).filter(|one| one.scheduler == row.scheduler);
    let runners: i64 = runners.map(|one| if one.one_worker_per_node { one.nodes } else { 1 }).sum();
    if is_staggered && runners > 1 {
        words.extend(["--stagger-among".to_owned(), runners.to_string()]);
    }
    words
}

#[cfg(test)]
mod tests;
