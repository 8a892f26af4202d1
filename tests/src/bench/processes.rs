//! Schedules of real processes: one `torc server` and several local `torc runner`s whose jobs sleep.
//!
//! A makespan lasts from the creation of the workflow to the end of its last job, both as recorded by the server. The ideal is the
//! makespan of the reference scheduler of `torc-sim`, which knows all durations and pays no latency. Jobs sleep, so that runners may
//! offer more CPUs than the machine has.

mod fleet;
mod shapes;
mod table;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};
use torc_sim::Scenario;
use torc_sim::measures::quotient;
use torc_sim::reference::{Knowledge, reference_end};

use crate::report::{Bar, Report};
use fleet::{Fleet, Schedule};
use shapes::ProcessShape;

/// The makespan with leasing ahead divided by the one without, for every shape.
const MAX_PREFETCH_RATIO: f64 = 1.05;

/// One shape, with leasing ahead and without.
struct Comparison {
    shape: ProcessShape,
    scenario: Scenario,
    ahead: Schedule,
    one_by_one: Schedule,
}

impl Comparison {
    /// Returns the makespan of the reference scheduler, in seconds.
    fn ideal_seconds(&self) -> f64 {
        self.reference_seconds(Knowledge::Durations)
    }

    /// Returns the same for a scheduler that knows declared runtimes instead of durations, as Torc does.
    fn declared_seconds(&self) -> f64 {
        self.reference_seconds(Knowledge::DeclaredRuntimes)
    }

    fn reference_seconds(&self, knowledge: Knowledge) -> f64 {
        reference_end(&self.scenario, knowledge).since(self.scenario.measured_from()).as_secs_f64()
    }

    fn ratio(&self, schedule: &Schedule) -> f64 {
        schedule.makespan.as_secs_f64() / self.ideal_seconds()
    }

    fn prefetch_ratio(&self) -> f64 {
        quotient(self.ahead.makespan, self.one_by_one.makespan)
    }

    /// Returns both schedules with the names of their ways to lease.
    fn schedules(&self) -> [(&'static str, &Schedule); 2] {
        [("ahead", &self.ahead), ("one by one", &self.one_by_one)]
    }
}

/// Measures every shape whose name contains `shape`, and prints one table.
pub async fn measure(torc: &Path, shape: &str, report: &mut Report) -> Result<()> {
    let shapes: Vec<_> = shapes::ALL.iter().copied().filter(|candidate| candidate.name.contains(shape)).collect();
    ensure!(!shapes.is_empty(), "no shape of `processes` is named '{shape}'");
    let load_before = load_average()?;
    // A signal drops the future, and with it all processes.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let comparisons = tokio::select! {
        comparisons = compare_all(torc, shapes) => comparisons?,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    };
    println!("load average of the machine: {load_before} before, {} after", load_average()?);
    println!("{}", table::text(&comparisons));
    for comparison in &comparisons {
        for (leasing, schedule) in comparison.schedules() {
            let name = format!("processes, {}, {leasing}: makespan / ideal", comparison.shape.name);
            report.record_with_bar(name, comparison.ratio(schedule), "", Bar::AtMost(comparison.shape.max_ratio));
        }
    }
    let worst = comparisons.iter().map(Comparison::prefetch_ratio).fold(0.0, f64::max);
    report.record_with_bar("processes: leasing ahead / one by one, worst", worst, "", Bar::AtMost(MAX_PREFETCH_RATIO));
    Ok(())
}

async fn compare_all(torc: &Path, shapes: Vec<ProcessShape>) -> Result<Vec<Comparison>> {
    let mut comparisons = Vec::new();
    for shape in shapes {
        let scenario = (shape.build)();
        let name = || format!("shape {}", shape.name);
        let ahead = run(torc, &scenario.clone().with_prefetch(true)).await.with_context(name)?;
        let one_by_one = run(torc, &scenario.clone().with_prefetch(false)).await.with_context(name)?;
        comparisons.push(Comparison { shape, scenario, ahead, one_by_one });
    }
    Ok(comparisons)
}

/// Runs a scenario on new processes: runners learn from earlier jobs.
async fn run(torc: &Path, scenario: &Scenario) -> Result<Schedule> {
    let fleet = Fleet::start(torc, &scenario.runners).await?;
    let mut measured = None;
    for plan in &scenario.workflows {
        let schedule = fleet.run(plan).await?;
        measured = Some(schedule).filter(|_| !plan.is_warm_up).or(measured);
    }
    measured.context("all workflows are warm-ups")
}

/// Returns the load averages of the last 1, 5 and 15 minutes.
fn load_average() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}
