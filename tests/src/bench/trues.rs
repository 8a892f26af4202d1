//! N × `true` against `seq N | xargs -P2 -n1 true`, measured in turn, so that both see the same load.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::report::{Bar, Report};

const ROUNDS: usize = 3;

pub fn measure(torc: &Path, count: usize, report: &mut Report) -> Result<()> {
    let mut xargs = Vec::new();
    let mut ours = Vec::new();
    for _ in 0..ROUNDS {
        xargs.push(run_xargs(count)?);
        ours.push(run_torc(torc, count)?);
    }
    let (xargs, ours) = (median(xargs), median(ours));
    report.record("xargs -P2 true", xargs.as_secs_f64(), "s");
    report.record("torc apply of as many true", ours.as_secs_f64(), "s");
    report.record_with_bar("torc apply / xargs", ours.as_secs_f64() / xargs.as_secs_f64(), "x", Bar::AtMost(1.1));
    Ok(())
}

fn run_xargs(count: usize) -> Result<Duration> {
    let started = Instant::now();
    let status = Command::new("sh").args(["-c", &format!("seq {count} | xargs -P2 -n1 true")]).status()?;
    ensure!(status.success(), "xargs failed");
    Ok(started.elapsed())
}

fn run_torc(torc: &Path, count: usize) -> Result<Duration> {
    let folder = tempfile::tempdir()?;
    let document = format!(
        "name: trues\njobs:\n  - name: \"true_{{i}}\"\n    command: \"true\"\n    parameters: {{i: \"1:{count}\"}}\n"
    );
    std::fs::write(folder.path().join("trues.yaml"), document)?;
    let started = Instant::now();
    apply(torc, folder.path(), "trues.yaml", &["--num-cpus", "2"])?;
    Ok(started.elapsed())
}

/// Runs `torc apply -f FILE` in a folder until the workflow has ended.
pub fn apply(torc: &Path, folder: &Path, file: &str, options: &[&str]) -> Result<()> {
    let output = Command::new(torc)
        .args(["apply", "-f", file])
        .args(options)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", torc.display()))?;
    ensure!(output.status.success(), "torc apply failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations[durations.len() / 2]
}
