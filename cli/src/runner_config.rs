//! Builds a runner's configuration from settings and from the machine.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use torc_api::wire::{Resources, RunnerKind};
use torc_runner::detect::{self, AllocationShare};
use torc_runner::{RunnerConfig, detect::node_names};
use torc_slurm::allocation::{self, CurrentAllocation};
use torc_slurm::exec::Slurm;

use crate::error::CliError;
use crate::settings::RunnerSettings;

/// Returns the configuration of a runner on this machine. Inside a Slurm allocation its jobs become steps, and its time limit is that
/// of the allocation.
pub async fn runner_config(run: &RunnerSettings, state_dir: &Path, folder: &Path) -> Result<RunnerConfig, CliError> {
    let executable = std::env::current_exe()
        .map_err(|error| CliError::unexpected("could not find the path of this program", error))?;
    let shim_command = vec![executable.into_os_string(), "shim".into()];
    let mut config = RunnerConfig::new(folder.join(&run.output_dir), folder.join(state_dir), shim_command);
    config.gpu_devices = gpu_devices(run.num_gpus, detect::gpus());
    config.capacity = Resources {
        cpus: run.num_cpus.unwrap_or_else(detect::cpus),
        memory_bytes: run.memory_bytes.unwrap_or_else(detect::memory),
        gpus: i64::try_from(config.gpu_devices.len()).unwrap_or(i64::MAX),
        nodes: 1,
    };
    folder.clone_into(&mut config.working_dir);
    config.kind = kind(std::env::var(crate::env::RUNNER_KIND).ok().as_deref())?;
    config.settings = run.clone();
    config.time_limit = run.time_left(Timestamp::now());
    if let Some(around) = detect::current_allocation() {
        config.slurm_job_id = Some(around.job_id.clone());
        config.allocation_name = std::env::var(crate::env::ALLOCATION).ok().filter(|name| !name.is_empty());
        config.allocation = detect::steps(&around, node_names(&around, AllocationShare::OwnNode));
        config.allocation_time = time_left(&around).await;
    }
    Ok(config)
}

/// Parses the kind of the runner from the value of `TORC_RUNNER_KIND`.
fn kind(word: Option<&str>) -> Result<RunnerKind, CliError> {
    match word.filter(|word| !word.is_empty()) {
        None | Some("local") => Ok(RunnerKind::Local),
        Some("pod") => Ok(RunnerKind::Pod),
        Some(other) => {
            let variable = crate::env::RUNNER_KIND;
            Err(CliError::invalid(format!("{variable} is '{other}': it must be `local` or `pod`")))
        }
    }
}

/// Configures the runner of an allocation, or of one of its nodes: Slurm's values become its capacity.
pub fn share_allocation(
    config: &mut RunnerConfig,
    run: &RunnerSettings,
    around: &CurrentAllocation,
    share: AllocationShare,
) {
    let names = node_names(around, share);
    let nodes = i64::try_from(names.len().max(1)).unwrap_or(1);
    config.kind = RunnerKind::Slurm;
    config.settings.poll_interval = run.slurm_poll_interval;
    let gpus = run.num_gpus.or(around.gpus);
    config.gpu_devices = gpu_devices(gpus, detect::gpus());
    // A runner with several nodes treats them as equal, so each counts as the smallest one.
    let cpus = if nodes > 1 { around.cpus.min(around.least_cpus.or(around.cpus)) } else { around.cpus };
    config.capacity = Resources {
        cpus: run.num_cpus.or(cpus).unwrap_or_else(detect::cpus).saturating_mul(nodes),
        memory_bytes: run.memory_bytes.or(around.memory_bytes).unwrap_or_else(detect::memory).saturating_mul(nodes),
        gpus: i64::try_from(config.gpu_devices.len()).unwrap_or(i64::MAX).saturating_mul(nodes),
        nodes,
    };
    config.allocation = detect::steps(around, names);
}

/// Returns the detected devices, cut or filled up to the requested number.
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

/// Returns the time until an allocation ends.
async fn time_left(around: &CurrentAllocation) -> Option<Duration> {
    if let Some(end) = around.end_time {
        let left = end.saturating_sub(Timestamp::now().as_second());
        return Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)));
    }
    let slurm = Slurm::default().replaced_by(|name| std::env::var(name).ok());
    let left = match slurm.ask(&allocation::time_left_query(&around.job_id)).await {
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

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Settings whose values all differ from the defaults.
    fn said() -> RunnerSettings {
        RunnerSettings {
            num_cpus: Some(3),
            memory_bytes: Some(5 << 20),
            num_gpus: Some(2),
            max_parallel_jobs: Some(7),
            labels: vec!["fast".to_owned()],
            output_dir: "results".into(),
            time_limit: Some(seconds(1_100)),
            end_time: None,
            poll_interval: seconds(13),
            slurm_poll_interval: seconds(17),
            claim_backoff_max: seconds(19),
            long_poll: false,
            offline_drain: false,
            drain_ping_interval: seconds(23),
            server_retry_window: Some(seconds(29)),
            persistent: true,
            skip_version_check: false,
            prefetch_enabled: Some(true),
            prefetch_batch_size: Some(31),
            prefetch_max_queued: Some(37),
            prefetch_refill_threshold: Some(41),
            lease_seconds: Some(43),
        }
    }

    // J01, J08, J26, J27, J35, P05
    #[tokio::test]
    async fn every_setting_reaches_the_runner() {
        let said = said();
        let config = runner_config(&said, Path::new("place"), Path::new("/folder")).await.expect("a configuration");
        assert_eq!(config.capacity, Resources { cpus: 3, memory_bytes: 5 << 20, gpus: 2, nodes: 1 });
        assert_eq!(config.gpu_devices.len(), 2);
        assert_eq!(config.settings, said);
        assert_eq!((config.output_dir, config.state_dir), ("/folder/results".into(), "/folder/place".into()));
        assert_eq!(config.time_limit, said.time_limit);
    }

    // J02
    #[tokio::test]
    async fn slurm_decides_the_capacity_unless_settings_do() {
        let around = CurrentAllocation {
            job_id: "4711".to_owned(),
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            node: Some("n2".to_owned()),
            cpus: Some(6),
            least_cpus: Some(4),
            memory_bytes: Some(9 << 30),
            gpus: Some(1),
            end_time: None,
        };
        let nothing = RunnerSettings { slurm_poll_interval: seconds(17), ..RunnerSettings::default() };
        let (place, folder) = (Path::new("place"), Path::new("/folder"));
        for (run, share, cpus, memory_bytes, gpus, nodes) in [
            (&nothing, AllocationShare::OwnNode, 6, 9 << 30, 1, 1),
            (&nothing, AllocationShare::AllNodes, 8, 18 << 30, 2, 2),
            (&said(), AllocationShare::AllNodes, 6, 10 << 20, 4, 2),
        ] {
            let mut config = runner_config(run, place, folder).await.expect("a configuration");
            share_allocation(&mut config, run, &around, share);
            assert_eq!(config.capacity, Resources { cpus, memory_bytes, gpus, nodes }, "{share:?}");
            assert_eq!((config.kind, config.settings.poll_interval), (RunnerKind::Slurm, seconds(17)));
        }
    }

    #[test]
    fn the_kind_of_a_runner_is_local_or_pod() {
        for (word, expected) in
            [(None, RunnerKind::Local), (Some(""), RunnerKind::Local), (Some("pod"), RunnerKind::Pod)]
        {
            assert_eq!(kind(word).expect("a kind"), expected);
        }
        assert!(kind(Some("slurm")).is_err());
    }

    #[test]
    fn devices_are_cut_and_filled_to_the_requested_number() {
        let found = || vec!["2".to_owned(), "5".to_owned()];
        for (wanted, expected) in
            [(None, vec!["2", "5"]), (Some(0), vec![]), (Some(1), vec!["2"]), (Some(4), vec!["2", "5", "0", "1"])]
        {
            assert_eq!(gpu_devices(wanted, found()), expected);
        }
    }
}
