//! The program `torc-slurm-job-runner`, for batch scripts. Deliberately absent here: everything but the start.

use std::process::ExitCode;

fn main() -> ExitCode {
    torc::slurm_job_runner(std::env::args_os().collect())
}
