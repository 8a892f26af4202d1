//! Every environment variable that `torc` reads, documented once. The reference page is generated from this table.

use torc_slurm::call::Tool;

/// The URL of the server.
pub const API_URL: &str = "TORC_API_URL";
/// The token itself, not the path of a file.
pub const TOKEN: &str = "TORC_TOKEN";
/// The file with the address of the server that owns a job's store; set by runners.
pub const SERVER_FILE: &str = "TORC_SERVER_FILE";
/// The file with the server's certificates; set in allocations.
pub const SERVER_CERTIFICATES: &str = "TORC_SERVER_CERTIFICATES";
/// The number of a job's workflow; set by runners.
pub const WORKFLOW_ID: &str = "TORC_WORKFLOW_ID";
/// The number of a job; set by runners.
pub const JOB_ID: &str = "TORC_JOB_ID";
/// The run of a job; set by runners.
pub const RUN_ID: &str = "TORC_RUN_ID";
/// The attempt of a job; set by runners.
pub const ATTEMPT_ID: &str = "TORC_ATTEMPT_ID";
/// The name of the runner's allocation; set by the batch script.
pub const ALLOCATION: &str = "TORC_ALLOCATION";
/// The kind of the runner; set by the chart.
pub const RUNNER_KIND: &str = "TORC_RUNNER_KIND";
/// The filter of log lines on standard error.
pub const LOG: &str = "TORC_LOG";
/// Turns colors off if set.
pub const NO_COLOR: &str = "NO_COLOR";
/// The user's configuration folder.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// The home folder of the user.
pub const HOME: &str = "HOME";

/// A variable that is not a setting.
pub struct Variable {
    pub name: &'static str,
    pub doc: &'static str,
}

/// Variables that are not in the settings table.
pub const OTHERS: &[Variable] = &[
    Variable { name: TOKEN, doc: "The token; takes precedence over every token file." },
    Variable {
        name: SERVER_FILE,
        doc: "Set for jobs: the file with the current address of the server that owns their store.",
    },
    Variable {
        name: SERVER_CERTIFICATES,
        doc: "Set in allocations of a server with a given certificate: the file with that certificate and its CAs. The runner trusts a server whose certificate is in the file, is signed by a CA in the file, or is trusted by the machine.",
    },
    Variable {
        name: WORKFLOW_ID,
        doc: "Set for jobs: the number of their workflow. Commands inside a job use it by default.",
    },
    Variable { name: JOB_ID, doc: "Set for jobs: their number." },
    Variable { name: RUN_ID, doc: "Set for jobs: their run." },
    Variable { name: ATTEMPT_ID, doc: "Set for jobs: their attempt." },
    Variable { name: "SBATCH_ACCOUNT", doc: "The Slurm account of planned schedulers without `--account`." },
    Variable {
        name: "SLURM_ACCOUNT",
        doc: "The Slurm account of planned schedulers without `--account` and `SBATCH_ACCOUNT`.",
    },
    Variable {
        name: "SLURM_JOB_ID",
        doc: "Set by Slurm in an allocation; `mode: auto` then starts each job as a step with `srun`.",
    },
    Variable {
        name: LOG,
        doc: "The filter of log lines on standard error, e.g. `info` or `torc_runner=debug` (default: `warn`).",
    },
    Variable {
        name: ALLOCATION,
        doc: "The name of the runner's allocation, e.g. `torc-wf3-a12`; set in the allocations that Torc submits.",
    },
    Variable {
        name: RUNNER_KIND,
        doc: "The kind of the runner: `local` (default) or `pod`; set in the Pods of the Helm chart.",
    },
    Variable { name: Tool::Srun.replacement_variable(), doc: "The command to run instead of `srun`; for tests." },
    Variable { name: Tool::Squeue.replacement_variable(), doc: "The command to run instead of `squeue`; for tests." },
    Variable { name: Tool::Sbatch.replacement_variable(), doc: "The command to run instead of `sbatch`; for tests." },
    Variable { name: Tool::Scancel.replacement_variable(), doc: "The command to run instead of `scancel`; for tests." },
    Variable { name: Tool::Sacct.replacement_variable(), doc: "The command to run instead of `sacct`; for tests." },
    Variable { name: Tool::Sinfo.replacement_variable(), doc: "The command to run instead of `sinfo`; for tests." },
    Variable {
        name: Tool::Scontrol.replacement_variable(),
        doc: "The command to run instead of `scontrol`; for tests.",
    },
    Variable { name: Tool::Sstat.replacement_variable(), doc: "The command to run instead of `sstat`; for tests." },
    Variable { name: NO_COLOR, doc: "Turns colors off if set to any value." },
    Variable {
        name: XDG_CONFIG_HOME,
        doc: "The folder that contains the user's `torc/config.toml` (default: `~/.config`).",
    },
];
