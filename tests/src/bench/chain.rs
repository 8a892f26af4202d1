//! A chain of `true`: the time from the end of a job to the start of the next one.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::report::{Bar, Report};
use crate::trues::apply;

pub fn measure(torc: &Path, length: usize, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut document = String::from("name: chain\njobs:\n  - {name: job_0, command: \"true\"}\n");
    for job in 1..length {
        writeln!(document, "  - {{name: job_{job}, command: \"true\", depends_on: [job_{}]}}", job - 1)?;
    }
    std::fs::write(folder.path().join("chain.yaml"), document)?;
    apply(torc, folder.path(), "chain.yaml", &["--num-cpus", "2"])?;
    let mut gaps = gaps(torc, folder.path(), length)?;
    gaps.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| gaps[((gaps.len() - 1) as f64 * part) as usize];
    report.record("chain: end to next start, median", at(0.5), "ms");
    report.record_with_bar("chain: end to next start, p99", at(0.99), "ms", Bar::AtMost(10.0));
    Ok(())
}

fn gaps(torc: &Path, folder: &Path, length: usize) -> Result<Vec<f64>> {
    let output = Command::new(torc).args(["get", "results", "-o", "json"]).current_dir(folder).output()?;
    ensure!(output.status.success(), "torc get results failed: {}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout)?;
    let mut times = vec![(0.0, 0.0); length];
    for result in list["items"].as_array().context("no list of results")? {
        let name = result["job"].as_str().unwrap_or_default();
        let job: usize = name.trim_start_matches("job_").parse()?;
        times[job] = (milliseconds(&result["startTime"])?, milliseconds(&result["endTime"])?);
    }
    Ok(times.windows(2).map(|pair| (pair[1].0 - pair[0].1).max(0.0)).collect())
}

/// Returns the milliseconds of an RFC 3339 time since midnight. The chain takes much less than a day.
fn milliseconds(time: &Value) -> Result<f64> {
    let text = time.as_str().context("a result without a time")?;
    let clock = text.split_once('T').context("not a time")?.1.trim_end_matches('Z');
    let mut parts = clock.split(':');
    let mut next = || -> Result<f64> { Ok(parts.next().context("not a time")?.parse()?) };
    Ok((next()? * 3_600.0 + next()? * 60.0 + next()?) * 1_000.0)
}
