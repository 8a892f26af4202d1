//! The table of `processes`.

use std::fmt::Write;

use super::Comparison;

/// Returns two lines for each shape: leasing ahead, and one by one.
pub fn text(comparisons: &[Comparison]) -> String {
    let mut text = format!(
        "{:<12}{:>5}  {:<8}{:<11}{:>10}{:>9}{:>12}{:>8}{:>16}  {}\n",
        "shape",
        "jobs",
        "slots",
        "leasing",
        "makespan s",
        "ideal s",
        "declared s",
        "ratio",
        "first start ms",
        "jobs of each runner"
    );
    for comparison in comparisons {
        let runners = &comparison.scenario.runners;
        let slots = format!("{} x {}", runners.len(), runners.first().map_or(0, |runner| runner.capacity.cpus));
        for (leasing, schedule) in comparison.schedules() {
            let jobs: usize = schedule.jobs_of_runners.iter().sum();
            let shares: Vec<String> = schedule.jobs_of_runners.iter().map(usize::to_string).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<12}{jobs:>5}  {slots:<8}{leasing:<11}{:>10.3}{:>9.3}{:>12.3}{:>8.3}{:>16}  {}",
                comparison.shape.name,
                schedule.makespan.as_secs_f64(),
                comparison.ideal_seconds(),
                comparison.declared_seconds(),
                comparison.ratio(schedule),
                schedule.first_start.as_millis(),
                shares.join(" "),
            );
        }
    }
    text
}
