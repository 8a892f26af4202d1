//! Speed, as ratios measured in one run on one machine. `tests/bench` builds and runs this.
#![allow(clippy::print_stdout, reason = "a bench is a program that prints")]

mod apply;
mod chain;
mod nodes;
mod processes;
mod report;
mod schedule;
mod server;
mod simulate;
mod slurm;
mod trues;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

use report::Report;

/// Measures Torc's speed and compares it with its bars.
#[derive(Parser)]
struct Args {
    /// The torc binary (release).
    #[arg(long)]
    torc: PathBuf,
    /// Number of `true` processes.
    #[arg(long, default_value_t = 5_000)]
    trues: usize,
    /// Number of jobs of the simulated runners.
    #[arg(long, default_value_t = 100_000)]
    simulated: usize,
    /// Length of the chain.
    #[arg(long, default_value_t = 1_000)]
    chain: usize,
    /// Number of steps on a real Slurm; only with `--only slurm-steps`.
    #[arg(long, default_value_t = 500)]
    steps: usize,
    /// Number of jobs of `slurm-direct`.
    #[arg(long, default_value_t = 10_000)]
    jobs: usize,
    /// Number of seeds for each shape of `schedule`.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Only shapes of `schedule` or `processes` whose name contains this.
    #[arg(long, default_value = "")]
    shape: String,
    /// Write the table of `schedule` into this page of the book, and its chart beside it.
    #[arg(long)]
    write: Option<PathBuf>,
    /// Write the figures here, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only measurements whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let mut report = Report::default();
    let wanted = |name: &str| name.contains(&args.only);
    if wanted("trues") {
        trues::measure(&args.torc, args.trues, &mut report)?;
    }
    if wanted("chain") {
        chain::measure(&args.torc, args.chain, &mut report)?;
    }
    if wanted("simulated") {
        simulate::measure(&args.torc, args.simulated, &mut report).await?;
    }
    if wanted("apply") {
        apply::measure(&args.torc, &mut report).await?;
    }
    if wanted("nodes") {
        nodes::measure(&args.torc, &mut report).await?;
    }
    if wanted("schedule") {
        let options = schedule::Options { seeds: args.seeds, shape: &args.shape, write: args.write.as_deref() };
        schedule::measure(&options, &mut report)?;
    }
    if wanted("processes") {
        processes::measure(&args.torc, &args.shape, &mut report).await?;
    }
    // Not part of a call without arguments: few machines have a Slurm.
    let asked_for = |name: &str| !args.only.is_empty() && name.contains(&args.only);
    if asked_for("slurm-steps") {
        slurm::measure_steps(&args.torc, args.steps, &mut report).await?;
    }
    if asked_for("slurm-direct") {
        slurm::measure_direct(&args.torc, args.jobs, &mut report).await?;
    }
    report.print();
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}
