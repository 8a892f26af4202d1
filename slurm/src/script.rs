//! The batch script of an allocation, as text.
//!
//! It holds no secret: the script reads the token from a file that only its owner can read.

mod directive;

use std::collections::BTreeMap;

use serde_json::Value;
use torc_api::quantity::{parse_memory, parse_walltime};
use torc_api::resources::SlurmScheduler;

use crate::shell;
pub use directive::BadDirective;
use directive::{Directives, time_limit};

/// Options of `sbatch`. Absent values are left to the site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request<'a> {
    /// The account to charge.
    pub account: Option<&'a str>,
    pub partition: Option<&'a str>,
    /// The quality of service.
    pub qos: Option<&'a str>,
    /// Generic resources of each node, e.g. `gpu:4`.
    pub gres: Option<&'a str>,
    /// Memory of each node, in the notation of `sbatch`.
    pub memory: Option<String>,
    /// Temporary disk space of each node.
    pub tmp: Option<&'a str>,
    pub nodes: i64,
    /// Tasks on each node.
    pub tasks_per_node: Option<i64>,
    /// CPUs of a task: all CPUs of a runner belong to one task.
    pub cpus_per_task: Option<i64>,
    /// Minimum CPUs of each node, where no other option sets them.
    pub least_cpus: Option<i64>,
    pub seconds: i64,
    /// `true` if allocations run one after another.
    pub serialize: bool,
    pub extra: Option<&'a str>,
}

/// Default time limit of a scheduler.
const WALLTIME_SECONDS: i64 = 3_600;

impl<'a> Request<'a> {
    /// Returns the options of a scheduler of the document.
    pub fn of_scheduler(scheduler: &'a SlurmScheduler, default_account: Option<&'a str>) -> Self {
        let seconds = scheduler.walltime.as_deref().and_then(|text| parse_walltime(text).ok());
        Self {
            account: Some(scheduler.account.as_str()).filter(|account| !account.is_empty()).or(default_account),
            partition: scheduler.partition.as_deref(),
            qos: scheduler.qos.as_deref(),
            gres: scheduler.gres.as_deref(),
            memory: scheduler.mem.as_deref().map(memory),
            tmp: scheduler.tmp.as_deref(),
            nodes: scheduler.nodes.unwrap_or(1),
            tasks_per_node: scheduler.ntasks_per_node,
            cpus_per_task: None,
            least_cpus: None,
            seconds: seconds.unwrap_or(WALLTIME_SECONDS),
            serialize: scheduler.serialize_allocations == Some(true),
            extra: scheduler.extra.as_deref(),
        }
    }
}

/// Returns memory in the notation of `sbatch`, which knows fewer units than documents. A number without a unit is in MB already.
fn memory(text: &str) -> String {
    let text = text.trim();
    match parse_memory(text) {
        Ok(bytes) if !text.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{}M", bytes / (1 << 20) + i64::from(bytes % (1 << 20) > 0))
        }
        _ => text.to_owned(),
    }
}

/// The marker by which an allocation is found again, even after a crash between `sbatch` and storing its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationMarker<'a> {
    /// The name of the allocation, such as `torc-wf3-a12`. It is the comment and, unless `shared_name` is set, the job name.
    pub own: &'a str,
    /// The name that the allocations of a scheduler share if they run one after another.
    pub shared_name: Option<&'a str>,
}

/// The runner that the script starts.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptRunner<'a> {
    /// The runner and its first arguments. The server's address follows, as the environment file has it when the allocation starts.
    pub command: &'a [String],
    pub arguments: &'a [String],
    /// The name of the allocation.
    pub allocation: &'a str,
    /// A file of variables that only its owner can read: the server's address, and the paths of the token and the certificates.
    pub environment_file: &'a str,
    /// `true` if every node gets a runner; otherwise the allocation gets one.
    pub one_per_node: bool,
    /// `--mpi` of the `srun` that starts a runner on every node.
    pub srun_mpi: Option<&'a str>,
    pub folder: &'a str,
    /// The output file; `%j` is the Slurm job ID.
    pub output: &'a str,
}

/// Returns the script. Later lines override earlier ones: the document's defaults, the request, further options, and the marker,
/// which must not be overridden.
pub fn script(
    request: &Request<'_>,
    defaults: &BTreeMap<String, Value>,
    marker: &AllocationMarker<'_>,
    worker: &ScriptRunner<'_>,
) -> Result<String, BadDirective> {
    let mut lines = Directives::default();
    for (option, value) in defaults {
        lines.option(option, value)?;
    }
    lines.text("chdir", Some(worker.folder))?;
    lines.text("output", Some(worker.output))?;
    // A requeued allocation appends to the same file.
    lines.text("open-mode", Some("append"))?;
    lines.text("account", request.account)?;
    lines.text("partition", request.partition)?;
    lines.text("qos", request.qos)?;
    lines.text("gres", request.gres)?;
    lines.text("mem", request.memory.as_deref())?;
    lines.text("tmp", request.tmp)?;
    lines.number("nodes", Some(request.nodes.max(1)))?;
    lines.number("ntasks-per-node", request.tasks_per_node)?;
    lines.number("cpus-per-task", request.cpus_per_task)?;
    lines.number("mincpus", request.least_cpus)?;
    lines.text("time", Some(&time_limit(request.seconds)))?;
    lines.raw(request.extra.unwrap_or_default())?;
    lines.text("job-name", Some(marker.shared_name.unwrap_or(marker.own)))?;
    lines.text("comment", Some(marker.own))?;
    if request.serialize {
        lines.text("dependency", Some("singleton"))?;
    }
    Ok(format!("#!/bin/bash\n{}\n{}", lines.finish(), body(worker)))
}

/// Variables that the script clears. A batch job inherits its submitter's environment, but its runner must only use the server
/// that the environment file names.
const OTHER_SERVERS: &str = "TORC_TOKEN TORC_TOKEN_FILE TORC_CA_CERT TORC_CERTIFICATE_SHA256 TORC_SERVER_CERTIFICATES \
                             TORC_CONTEXT TORC_KUBECONFIG TORC_SERVICE";

fn body(worker: &ScriptRunner<'_>) -> String {
    let file = shell::quote(worker.environment_file);
    let mut words: Vec<String> = Vec::new();
    if worker.one_per_node {
        let srun = ["srun", "--ntasks-per-node=1", "--wait=0", "--kill-on-bad-exit=0", "--overlap"];
        words.extend(srun.map(str::to_owned));
        // The allocation may have several tasks for each node; there is one runner for each node.
        words.push("--ntasks=\"$SLURM_JOB_NUM_NODES\"".to_owned());
        words.extend(worker.srun_mpi.map(|mpi| format!("--mpi={}", shell::quote(mpi))));
    }
    words.extend(worker.command.iter().map(|word| shell::quote(word)));
    // The address of the server may change before the allocation starts.
    words.push("\"$TORC_API_URL\"".to_owned());
    words.extend(worker.arguments.iter().map(|word| shell::quote(word)));
    format!(
        "# Each step sets its own memory limit; srun rejects it together with these variables.\n\
         unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU\n\
         # Variables of the submitting user for other servers do not apply here.\n\
         unset {OTHER_SERVERS}\n\
         export TORC_ALLOCATION={}\n\
         set -a\n\
         if ! . {file}; then\n\
         \x20 echo \"torc: cannot read \"{file}\" on $(hostname): its folder must be on a file system that the nodes and the server share\" >&2\n\
         \x20 exit 1\n\
         fi\n\
         set +a\n\
         exec {}\n",
        shell::quote(worker.allocation),
        words.join(" ")
    )
}

/// Returns the content of the environment file, which a shell reads. The names must be valid variable names.
pub fn environment_file(variables: &BTreeMap<String, String>) -> Result<String, BadDirective> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let mut text = String::new();
    for (name, value) in variables {
        if !is_name(name) || value.contains('\0') {
            return Err(BadDirective::new(name, "is not a valid shell variable"));
        }
        text.push_str(&format!("{name}={}\n", shell::quote(value)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
