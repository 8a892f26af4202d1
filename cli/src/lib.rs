//! The command line: one verb a file in `commands`.

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
mod runner_config;
mod serving;
mod settings;
mod sites;
mod slurm_job_runner;
mod spellings;
mod standalone;
mod starving;
mod summary;
mod versions;

pub use commands::main;
