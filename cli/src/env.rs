//! Every environment variable that `torc` reads, documented once. The reference page is made from this table.

use torc_slurm::call::Tool;

/// The server's address.
pub const API_URL: &str = "TORC_API_URL";
/// The token itself.
pub const TOKEN: &str = "TORC_TOKEN";
/// The file that says where the owner of a store answers, set for jobs by runners.
pub const SERVER_FILE: &str = "TORC_SERVER_FILE";
/// The file with the server's certificates, set in allocations.
pub const SERVER_CERTIFICATES: &str = "TORC_SERVER_CERTIFICATES";
/// The workflow of a job, set for jobs by runners.
pub const WORKFLOW_ID: &str = "TORC_WORKFLOW_ID";
/// A job's number, set for jobs by runners.
pub const JOB_ID: &str = "TORC_JOB_ID";
/// A job's run, set for jobs by runners.
pub const RUN_ID: &str = "TORC_RUN_ID";
/// A job's attempt, set for jobs by runners.
pub const ATTEMPT_ID: &str = "TORC_ATTEMPT_ID";
/// The name of the allocation that a runner lives in, set by the batch script.
pub const ALLOCATION: &str = "TORC_ALLOCATION";
/// What kind of place a runner lives in, set by the chart.
pub const RUNNER_KIND: &str = "TORC_RUNNER_KIND";
/// What is logged.
pub const LOG: &str = "TORC_LOG";
/// No colours.
pub const NO_COLOR: &str = "NO_COLOR";
/// The user's configuration folder.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// The user's home.
pub const HOME: &str = "HOME";

/// A variable that stands for no setting, with what it does.
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// Variables besides those of the settings table.
pub const OTHERS: &[Variable] = &[
    Variable { name: TOKEN, doc: "The token itself; it wins over every token file." },
    Variable {
        name: SERVER_FILE,
        doc: "Set for jobs: the file that says where the owner of their store answers at present.",
    },
    Variable {
        name: SERVER_CERTIFICATES,
        doc: "Set in allocations of a server whose certificate was given: the file in which the server keeps it, with those who vouch for it. The server is believed if its certificate is in the file, if those in it vouch for it, or if the machine trusts it.",
    },
    Variable {
        name: WORKFLOW_ID,
        doc: "Set for jobs: the number of their workflow. Commands inside a job mean that one.",
    },
    Variable { name: JOB_ID, doc: "Set for jobs: their number." },
    Variable { name: RUN_ID, doc: "Set for jobs: their run." },
    Variable { name: ATTEMPT_ID, doc: "Set for jobs: their attempt." },
    Variable { name: "SBATCH_ACCOUNT", doc: "The account of planned schedulers where `--account` is absent." },
    Variable { name: "SLURM_ACCOUNT", doc: "The same where `SBATCH_ACCOUNT` is absent, too." },
    Variable {
        name: "SLURM_JOB_ID",
        doc: "Set by Slurm in an allocation: `mode: auto` then starts every job as a step with `srun`.",
    },
    Variable {
        name: LOG,
        doc: "What is logged to standard error, e.g. `info` or `torc_runner=debug` (`warn` when absent).",
    },
    Variable {
        name: ALLOCATION,
        doc: "The allocation that a runner lives in, e.g. `torc-wf3-a12`; set in the allocations that Torc submits.",
    },
    Variable {
        name: RUNNER_KIND,
        doc: "What kind of place a runner lives in: `local` (when absent) or `pod`; set in the Pods of the Helm chart.",
    },
    Variable { name: Tool::Srun.replacement_variable(), doc: "Stands in for `srun`, for tests." },
    Variable { name: Tool::Squeue.replacement_variable(), doc: "Stands in for `squeue`, for tests." },
    Variable { name: Tool::Sbatch.replacement_variable(), doc: "Stands in for `sbatch`, for tests." },
    Variable { name: Tool::Scancel.replacement_variable(), doc: "Stands in for `scancel`, for tests." },
    Variable { name: Tool::Sacct.replacement_variable(), doc: "Stands in for `sacct`, for tests." },
    Variable { name: Tool::Sinfo.replacement_variable(), doc: "Stands in for `sinfo`, for tests." },
    Variable { name: Tool::Scontrol.replacement_variable(), doc: "Stands in for `scontrol`, for tests." },
    Variable { name: Tool::Sstat.replacement_variable(), doc: "Stands in for `sstat`, for tests." },
    Variable { name: NO_COLOR, doc: "Set to anything: no colours." },
    Variable { name: XDG_CONFIG_HOME, doc: "Where the user's `torc/config.toml` is (`~/.config` when absent)." },
];
