//! Runs shapes with many seeds and summarizes them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result};
use torc_sim::measures::quotient;
use torc_sim::shapes::Shape;
use torc_sim::{Measures, measure, simulate};

/// Goals of every schedule.
pub struct Goals {
    /// Makespan divided by the reference, for every seed.
    pub ratio: f64,
    /// Idle capacity while jobs are ready, for every seed.
    pub idle_percent: f64,
    /// Makespan with leasing ahead divided by the one without, in the median.
    pub prefetch_ratio: f64,
}

impl Default for Goals {
    fn default() -> Self {
        Self { ratio: 1.05, idle_percent: 0.5, prefetch_ratio: 1.01 }
    }
}

/// One shape and its runs.
pub struct ShapeResult {
    pub shape: Shape,
    /// In the order of their seeds.
    runs: Vec<Run>,
}

/// The figures of one seed.
#[derive(Clone, Copy)]
struct Run {
    measures: Measures,
    /// Makespan with leasing ahead divided by the one without.
    prefetch_ratio: f64,
}

impl ShapeResult {
    /// Returns the makespan divided by the reference, in the median.
    pub fn ratio(&self) -> f64 {
        self.median(|run| run.measures.ratio())
    }

    /// Returns the same for the worst seed.
    pub fn worst_ratio(&self) -> f64 {
        self.worst(|run| run.measures.ratio())
    }

    /// Returns what a schedule can be at best that knows only declared runtimes, divided by the reference, for the worst seed.
    pub fn declared_ratio(&self) -> f64 {
        self.worst(|run| run.measures.declared_ratio())
    }

    /// Returns the lower bound divided by the reference.
    pub fn bound_ratio(&self) -> f64 {
        self.median(|run| run.measures.bound_ratio())
    }

    /// Returns the use of the scarcest resource.
    pub fn utilization_percent(&self) -> f64 {
        self.median(|run| run.measures.utilization * 100.0)
    }

    /// Returns the capacity that was idle while jobs were ready.
    pub fn idle_percent(&self) -> f64 {
        self.median(|run| run.measures.idle_while_ready * 100.0)
    }

    /// Returns the same for the worst seed.
    pub fn worst_idle_percent(&self) -> f64 {
        self.worst(|run| run.measures.idle_while_ready * 100.0)
    }

    /// Returns leases that were moved.
    pub fn moves_per_job(&self) -> f64 {
        self.median(|run| run.measures.moves_per_job)
    }

    /// Returns messages to the server.
    pub fn syncs_per_job(&self) -> f64 {
        self.median(|run| run.measures.syncs_per_job)
    }

    /// Returns the makespan with leasing ahead divided by the one without.
    pub fn prefetch_ratio(&self) -> f64 {
        self.median(|run| run.prefetch_ratio)
    }

    /// Names the goals that are missed.
    pub fn missed(&self, goals: &Goals) -> Vec<&'static str> {
        let checks = [
            ("unfinished", self.runs.iter().any(|run| run.measures.unfinished > 0)),
            ("makespan", self.worst_ratio() > goals.ratio),
            ("idle", self.worst_idle_percent() > goals.idle_percent),
            ("on/off", self.prefetch_ratio() > goals.prefetch_ratio),
        ];
        checks.into_iter().filter(|(_, missed)| *missed).map(|(name, _)| name).collect()
    }

    fn values(&self, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.runs.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        let values = self.values(figure);
        values.get(values.len() / 2).copied().unwrap_or_default()
    }

    fn worst(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        self.values(figure).last().copied().unwrap_or_default()
    }
}

/// Measures shapes on all cores. The results do not depend on their number.
pub fn measure_all(shapes: &[Shape], seeds: u64) -> Result<Vec<ShapeResult>> {
    let tasks: Vec<(usize, u64)> =
        shapes.iter().enumerate().flat_map(|(shape, _)| (0..seeds).map(move |seed| (shape, seed))).collect();
    let (next, runs) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(tasks.len())));
    let work = || {
        while let Some((shape, seed)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let run = measure_one(&shapes[*shape], *seed);
            let mut runs = runs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            runs.push((*shape, *seed, run));
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let mut runs = runs.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    runs.sort_by_key(|(shape, seed, _)| (*shape, *seed));
    let mut results: Vec<ShapeResult> =
        shapes.iter().map(|shape| ShapeResult { shape: *shape, runs: Vec::new() }).collect();
    for (shape, _, run) in runs {
        results[shape].runs.push(run?);
    }
    Ok(results)
}

fn measure_one(shape: &Shape, seed: u64) -> Result<Run> {
    let name = || format!("shape {} with seed {seed}", shape.name);
    let ahead = (shape.build)(seed).with_prefetch(true);
    let trace = simulate(&ahead).with_context(name)?;
    let one_by_one = ahead.clone().with_prefetch(false);
    let makespan = simulate(&one_by_one).with_context(name)?.makespan(&one_by_one);
    let measures = measure(&ahead, &trace);
    Ok(Run { measures, prefetch_ratio: quotient(measures.makespan, makespan) })
}
