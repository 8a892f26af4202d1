//! Schedules in virtual time: Torc's engine and agents against a reference scheduler that knows everything.

mod chart;
mod page;
mod results;
mod table;

use std::path::Path;

use anyhow::{Result, ensure};
use torc_sim::shapes;

use crate::report::{Bar, Report};
use results::{Goals, ShapeResult};

/// Options of the measurement.
pub struct Options<'a> {
    /// Seeds of each shape.
    pub seeds: u64,
    /// Only shapes whose name contains this.
    pub shape: &'a str,
    /// The page of the book that is written, if any; its chart is beside it.
    pub write: Option<&'a Path>,
}

/// Measures every shape with leasing ahead and without, and prints one table.
pub fn measure(options: &Options<'_>, report: &mut Report) -> Result<()> {
    let shapes: Vec<_> = shapes::all().into_iter().filter(|shape| shape.name.contains(options.shape)).collect();
    ensure!(!shapes.is_empty(), "no shape is named '{}'", options.shape);
    let results = results::measure_all(&shapes, options.seeds.max(1))?;
    println!("{}", table::text(&results));
    let goals = Goals::default();
    let worst = |figure: fn(&ShapeResult) -> f64| results.iter().map(figure).fold(0.0, f64::max);
    let ratio = Bar::AtMost(goals.ratio);
    report.record_with_bar("schedule: makespan / reference, worst", worst(ShapeResult::worst_ratio), "", ratio);
    let idle = Bar::AtMost(goals.idle_percent);
    report.record_with_bar("schedule: idle while ready, worst", worst(ShapeResult::worst_idle_percent), "%", idle);
    let prefetch = Bar::AtMost(goals.prefetch_ratio);
    report.record_with_bar(
        "schedule: leasing ahead / one by one, worst median",
        worst(ShapeResult::prefetch_ratio),
        "",
        prefetch,
    );
    options.write.map_or(Ok(()), |path| page::write(path, &results))
}
