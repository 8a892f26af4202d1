//! The command-line program.
//!
//! Layers, from top to bottom; a module uses its own layer and those below:
//!
//! 1. `dispatch`, `slurm_job_runner`, `cli`: the programs.
//! 2. `commands`: arguments, the call of a use case, and output.
//! 3. `use_cases`: operations that several commands share.
//! 4. `connection`, `kubernetes`, `embedded`, `client`, `remote`: access to stores.
//! 5. `settings`, `documents`, `output` and the rest: values, text in, text out.

mod args;
mod cli;
mod client;
mod commands;
mod connection;
mod context;
mod dispatch;
mod documents;
mod embedded;
mod env;
mod error;
mod host;
mod kubernetes;
mod listen_args;
mod logging;
mod object_view;
mod output;
mod program;
mod reference;
mod remote;
mod rewrite;
mod runner_config;
mod settings;
mod sites;
mod slurm_job_runner;
mod spellings;
mod token_file;
mod use_cases;
mod versions;
mod workflow_phase;

/// The hidden command that runs `torc-slurm-job-runner`.
const SLURM_JOB_RUNNER: &str = "slurm-job-runner";

pub use dispatch::main;
