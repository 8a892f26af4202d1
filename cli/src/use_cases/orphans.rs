//! Search for losses: results in journals, allocations that have ended, and runners without processes.
//!
//! `torc workflows sync-status`, `torc recover` and `torc watch` share it. The owner of the store queries Slurm. This process checks
//! the processes of runners, because a server never opens a folder that a runner names.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use torc_api::allocation::OrphanReport;
use torc_api::api::{Runner, Workflow};
use torc_api::recovery::{MachineMatch, ProcessState, RunnerEvidence, SyncStatusRequest};
use torc_runner::{journal, liveness};

use super::replay::replay_below;
use crate::client::{Client, ClientError};
use crate::connection::explain_missing;
use crate::context::CommandContext;
use crate::embedded::store_dir::StoreDir;
use crate::error::CliError;
use crate::host::host_name;
use crate::output::human;

/// Options of a search for losses.
#[derive(Clone, Copy, Debug, Default)]
pub struct OrphanSearch<'a> {
    /// Report losses without recording them.
    pub dry_run: bool,
    /// True if a process serves the store. Running runners then report to it.
    pub is_served: bool,
    /// Kill job processes whose runner has ended. Otherwise these jobs do not count as lost.
    pub ends_left_processes: bool,
    /// Runners that the user declares lost.
    pub assume_lost: &'a [i64],
}

/// Finds the losses of a workflow, and records them unless it is a dry run.
pub async fn find_lost(
    context: &CommandContext,
    client: &Client,
    workflow: &Workflow,
    search: OrphanSearch<'_>,
) -> Result<OrphanReport, CliError> {
    let runners = visible_runners(client).await?;
    if !search.dry_run {
        replay_journals(context, client, workflow, &runners).await?;
    }
    let request = SyncStatusRequest {
        dry_run: search.dry_run,
        is_unserved: !search.is_served,
        evidence: gather(context, runners, search.ends_left_processes && !search.dry_run).await?,
        assume_lost: search.assume_lost.to_vec(),
    };
    client.sync_status(&workflow.id.to_string(), &request).await.map_err(explain_missing)
}

/// Returns the runners that have not exited; none if the caller may not list runners.
pub async fn visible_runners(client: &Client) -> Result<Vec<Runner>, CliError> {
    match client.runners(false).await {
        Err(ClientError::Answer { status: 403, .. }) => Ok(Vec::new()),
        answer => Ok(answer?),
    }
}

/// Replays the journals of the workflow, so that ended jobs do not count as lost.
pub async fn replay_journals(
    context: &CommandContext,
    client: &Client,
    workflow: &Workflow,
    runners: &[Runner],
) -> Result<(), CliError> {
    let jobs = &workflow.status.jobs;
    if jobs.running + jobs.leased == 0 {
        return Ok(());
    }
    let busy = runners.iter().filter(|runner| runner.running + runner.queued > 0 && !runner.output_dir.is_empty());
    let mut folders: Vec<PathBuf> = busy.map(|runner| Path::new(&runner.output_dir).join(journal::FOLDER)).collect();
    folders.sort();
    folders.dedup();
    // Journals of other users are not trusted.
    folders.retain(|folder| is_own(folder));
    let replayed = replay_below(context.output, client, workflow, folders).await?;
    if replayed > 0 {
        let results = human::count(i64::try_from(replayed).unwrap_or(i64::MAX), "result");
        context.output.progress(&format!("{}: {results} replayed from offline journals", workflow.name));
    }
    Ok(())
}

fn is_own(folder: &Path) -> bool {
    std::fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == nix::unistd::getuid().as_raw())
}

/// Checks the processes of the runners on this machine.
pub async fn gather(
    context: &CommandContext,
    runners: Vec<Runner>,
    ends_left_processes: bool,
) -> Result<Vec<RunnerEvidence>, CliError> {
    let store = match context.settings.url {
        None => StoreDir::find(&context.folder).filter(|store_dir| !store_dir.is_on_network()),
        Some(_) => None,
    };
    let store = store.and_then(|store_dir| store_dir.runner_folder().canonicalize().ok());
    let gather_evidence = move || {
        let without_allocation = runners.iter().filter(|runner| runner.slurm_job_id.is_none());
        without_allocation.filter_map(|runner| evidence(runner, store.as_deref(), ends_left_processes)).collect()
    };
    let gathered = tokio::task::spawn_blocking(gather_evidence).await;
    gathered.map_err(|error| CliError::unexpected("could not check the processes of runners", error))
}

/// Returns the evidence about a runner; `None` if it is not on this machine.
fn evidence(runner: &Runner, store: Option<&Path>, ends_left_processes: bool) -> Option<RunnerEvidence> {
    let process = runner.process.as_ref()?;
    let folder = Path::new(runner.place.strip_prefix(&runner.host)?.strip_prefix(':')?);
    let amount = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    if liveness::is_of_this_machine(process) {
        let agent = liveness::process_state(runner.pid, process);
        let mut found = liveness::place_state(folder);
        if ends_left_processes && agent == ProcessState::Ended && found.left_processes > 0 {
            // Processes that could not be killed are counted below.
            let _ = liveness::end_left_processes(folder);
            found = liveness::place_state(folder);
        }
        return Some(RunnerEvidence {
            runner: runner.id,
            machine: MachineMatch::Same,
            agent,
            shim: found.shim,
            left_processes: amount(found.left_processes),
            left_results: amount(found.left_results),
        });
    }
    // The runner of a store on a local disk: its processes ended with the reboot.
    let has_booted = !liveness::is_of_this_boot(process) && !process.boot_id.is_empty();
    (has_booted && runner.host == host_name() && store == Some(folder)).then(|| RunnerEvidence {
        runner: runner.id,
        machine: MachineMatch::Rebooted,
        agent: ProcessState::Ended,
        shim: ProcessState::Ended,
        left_processes: 0,
        left_results: amount(liveness::place_state(folder).left_results),
    })
}

#[cfg(test)]
mod tests {
    use torc_api::wire::ProcessIdentity;
    use torc_runner::ProcessId;

    use super::*;

    fn runner(folder: &Path, process: ProcessIdentity) -> Runner {
        let none = serde_json::json!({ "cpus": 0, "memoryBytes": 0, "gpus": 0, "nodes": 0 });
        serde_json::from_value(serde_json::json!({
            "id": 7, "host": host_name(), "pid": std::process::id(), "kind": "local", "status": "silent",
            "capacity": none, "version": "v", "queued": 0, "running": 1, "startTime": "t",
            "place": format!("{}:{}", host_name(), folder.display()), "process": process,
        }))
        .expect("a runner")
    }

    // R03
    #[test]
    fn processes_of_this_machine_are_checked() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = ProcessId::own().identity();
        let found = |process: &ProcessIdentity| evidence(&runner(folder.path(), process.clone()), None, false);
        let alive = found(&own).expect("evidence");
        assert_eq!((alive.runner, alive.machine, alive.agent), (7, MachineMatch::Same, ProcessState::Running));
        let ended = found(&ProcessIdentity { start_ticks: own.start_ticks + 1, ..own.clone() }).expect("evidence");
        assert_eq!((ended.agent, ended.shim), (ProcessState::Ended, ProcessState::Ended));
        let contained = ProcessIdentity { pid_namespace: "pid:[1]".to_owned(), ..own };
        assert_eq!(found(&contained), None, "its PIDs mean nothing here");
    }

    // R03
    #[test]
    fn a_reboot_ends_the_runner_of_a_local_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let before = || ProcessIdentity { boot_id: "earlier".to_owned(), ..ProcessId::own().identity() };
        let known = runner(folder.path(), before());
        let found = evidence(&known, Some(folder.path()), false).map(|evidence| evidence.machine);
        assert_eq!(found, Some(MachineMatch::Rebooted));
        assert_eq!(evidence(&known, None, false), None, "another machine may have the same name");
        assert_eq!(evidence(&known, Some(Path::new("/elsewhere")), false), None);
        let elsewhere = Runner { host: "x".to_owned(), place: format!("x:{}", folder.path().display()), ..known };
        assert_eq!(evidence(&elsewhere, Some(folder.path()), false), None);
    }
}
