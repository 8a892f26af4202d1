//! Workloads on which schedules are measured. Each is a function of a seed.

use std::time::Duration;

use crate::random::Random;
use crate::time::Time;
use crate::workload::{GIB, JobPlan, RunnerPlan, Scenario, WorkflowPlan, whole_seconds};

mod changing_fleets;
mod graphs;
mod independent;
mod links;
mod several_workflows;

/// A kind of workload.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub name: &'static str,
    /// One line for a reader.
    pub description: &'static str,
    pub build: fn(u64) -> Scenario,
}

const fn shape(name: &'static str, description: &'static str, build: fn(u64) -> Scenario) -> Shape {
    Shape { name, description, build }
}

/// Returns all shapes.
pub fn all() -> Vec<Shape> {
    let files: [&[Shape]; 5] =
        [independent::SHAPES, graphs::SHAPES, changing_fleets::SHAPES, links::SHAPES, several_workflows::SHAPES];
    files.concat()
}

/// Returns runners of the same size. Their memory is never what is missing.
fn equal_runners(count: usize, cpus: i64) -> Vec<RunnerPlan> {
    (0..count).map(|number| RunnerPlan::new(format!("node{number}"), cpus, 4 * GIB * cpus, 0)).collect()
}

/// Returns independent jobs of one CPU.
fn bag(random: &mut Random, count: usize, low: Duration, high: Duration) -> Vec<JobPlan> {
    (0..count).map(|number| job(number, random.duration(low, high))).collect()
}

/// Returns a job that declares a round runtime, as authors do.
fn job(number: usize, duration: Duration) -> JobPlan {
    JobPlan { runtime_seconds: round_runtime(duration), ..JobPlan::new(format!("j{number}"), duration) }
}

/// Returns the next of few durations.
fn round_runtime(duration: Duration) -> i64 {
    let declared = whole_seconds(duration);
    [1, 2, 5, 10, 20, 60, 120, 300, 600].into_iter().find(|limit| declared <= *limit).unwrap_or(3_600)
}

/// Returns a workflow that lets the agents learn how long jobs take.
fn warm_up(jobs: usize, duration: Duration) -> WorkflowPlan {
    let jobs = (0..jobs).map(|number| JobPlan::new(format!("w{number}"), duration)).collect();
    WorkflowPlan { is_warm_up: true, ..WorkflowPlan::new("warm-up", jobs) }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn applied_at(seconds: u64, workflow: WorkflowPlan) -> WorkflowPlan {
    WorkflowPlan { applied: Time::from_secs(seconds), ..workflow }
}
