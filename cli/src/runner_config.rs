//! From settings and surroundings to what a runner is told.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use torc_api::wire::{Resources, RunnerKind};
use torc_runner::detect::{self, Share};
use torc_runner::{RunnerConfig, detect::node_names};
use torc_slurm::allocation::{self, Allocation};
use torc_slurm::exec::Slurm;

use crate::error::CommandError;
use crate::settings::RunSettings;

/// What a runner on this machine is told. Inside a Slurm allocation its jobs become steps, and its time ends with the allocation's.
pub async fn runner_config(run: &RunSettings, state_dir: &Path, folder: &Path) -> Result<RunnerConfig, CommandError> {
    let executable = std::env::current_exe()
        .map_err(|error| CommandError::unexpected("could not find the path of this program", error))?;
    let keeper_command = vec![executable.into_os_string(), "keeper".into()];
    let mut config = RunnerConfig::new(folder.join(&run.output_dir), folder.join(state_dir), keeper_command);
    config.gpu_devices = gpu_devices(run.num_gpus, detect::gpus());
    config.capacity = Resources {
        cpus: run.num_cpus.unwrap_or_else(detect::cpus),
        memory_bytes: run.memory_bytes.unwrap_or_else(detect::memory),
        gpus: i64::try_from(config.gpu_devices.len()).unwrap_or(i64::MAX),
        nodes: 1,
    };
    config.max_parallel_jobs = run.max_parallel_jobs;
    config.labels.clone_from(&run.labels);
    config.poll_interval = run.poll_interval;
    config.backoff_max = run.claim_backoff_max;
    config.long_poll = run.long_poll;
    config.offline = run.offline;
    config.persistent = run.persistent;
    config.prefetch = run.prefetch.clone();
    config.time_limit = run.time_left(Timestamp::now());
    if let Some(around) = detect::surroundings() {
        config.slurm_job_id = Some(around.job_id.clone());
        config.allocation_name = std::env::var(crate::env::ALLOCATION).ok().filter(|name| !name.is_empty());
        config.allocation = detect::steps(&around, node_names(&around, Share::OwnNode));
        config.allocation_time = time_left(&around).await;
    }
    Ok(config)
}

/// Makes it the runner of an allocation, or of one node of it: what it has is what Slurm says.
pub fn share_allocation(config: &mut RunnerConfig, run: &RunSettings, around: &Allocation, share: Share) {
    let names = node_names(around, share);
    let nodes = i64::try_from(names.len().max(1)).unwrap_or(1);
    config.kind = RunnerKind::Slurm;
    config.poll_interval = run.slurm_poll_interval;
    let gpus = run.num_gpus.or(around.gpus);
    config.gpu_devices = gpu_devices(gpus, detect::gpus());
    // All nodes are counted alike, so those of a runner that has several count as the smallest does.
    let cpus = if nodes > 1 { around.cpus.min(around.least_cpus.or(around.cpus)) } else { around.cpus };
    config.capacity = Resources {
        cpus: run.num_cpus.or(cpus).unwrap_or_else(detect::cpus).saturating_mul(nodes),
        memory_bytes: run.memory_bytes.or(around.memory_bytes).unwrap_or_else(detect::memory).saturating_mul(nodes),
        gpus: i64::try_from(config.gpu_devices.len()).unwrap_or(i64::MAX).saturating_mul(nodes),
        nodes,
    };
    config.allocation = detect::steps(around, names);
}

/// The devices that were found, cut or filled up to the number that was asked for.
fn gpu_devices(wanted: Option<i64>, found: Vec<String>) -> Vec<String> {
    let Some(wanted) = wanted else { return found };
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let mut devices: Vec<String> = found.into_iter().take(wanted).collect();
    let mut number = 0_usize;
    while devices.len() < wanted {
        let name = number.to_string();
        if !devices.contains(&name) {
            devices.push(name);
        }
        number += 1;
    }
    devices
}

/// How much is left of an allocation.
async fn time_left(around: &Allocation) -> Option<Duration> {
    if let Some(end) = around.end_time {
        let left = end.saturating_sub(Timestamp::now().as_second());
        return Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)));
    }
    let slurm = Slurm::default().replaced_by(|name| std::env::var(name).ok());
    let left = match slurm.ask(&allocation::ask_time_left(&around.job_id)).await {
        Ok(answer) => allocation::time_left(&answer.text),
        Err(trouble) => {
            tracing::warn!("cannot find out when Slurm job {} ends: {trouble}", around.job_id);
            None
        }
    };
    left.map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_cut_and_filled() {
        let found = || vec!["2".to_owned(), "5".to_owned()];
        for (wanted, expected) in
            [(None, vec!["2", "5"]), (Some(0), vec![]), (Some(1), vec!["2"]), (Some(4), vec!["2", "5", "0", "1"])]
        {
            assert_eq!(gpu_devices(wanted, found()), expected);
        }
    }
}
