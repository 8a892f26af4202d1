//! The command line: one verb a file in `commands`. A library, because two programs are made of it: `torc`, and
//! `torc-slurm-job-runner` for batch scripts.

mod advertise;
mod args;
mod changes;
mod client;
mod commands;
mod connection;
mod documents;
mod env;
mod error;
mod follow;
mod inside_job;
mod kubernetes;
mod listen_args;
mod listening;
mod logging;
mod next_step;
mod orphans;
mod output;
mod place;
mod progress;
mod reference;
mod remote;
mod rewrite;
mod run_here;
mod runner_args;
mod runner_config;
mod serving;
mod settings;
mod sites;
mod slurm_job_runner;
mod standalone;
mod starving;
mod summary;
mod versions;

/// The verb under which `torc` is the runner of a Slurm allocation, where the program for that is not beside it.
const SLURM_JOB_RUNNER: &str = "slurm-job-runner";

pub use commands::main;
pub use slurm_job_runner::main as slurm_job_runner;
