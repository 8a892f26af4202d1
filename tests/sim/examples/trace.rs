//! Prints the schedule of one shape: `cargo run -p torc-sim --example trace -- equal-few 0 [off]`.
#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::error::Error;

use torc_sim::workload::JobRef;
use torc_sim::{measure, shapes, simulate};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or("name a shape and a seed")?;
    let seed = words.next().unwrap_or_default().parse().unwrap_or(0);
    let shape = shapes::all().into_iter().find(|shape| shape.name == name).ok_or("there is no such shape")?;
    let scenario = (shape.build)(seed).with_prefetch(words.next().is_none());
    let trace = simulate(&scenario)?;
    let times = trace.job_times(&scenario);
    println!("    workflow runner       job      CPUs GPUs      ready      start        end");
    for attempt in &trace.attempts {
        let JobRef { workflow, job } = attempt.job;
        let plan = scenario.job(attempt.job);
        let seconds = |time: torc_sim::Time| time.0 as f64 / 1e6;
        println!(
            "{:>12} {:<12} {:<8} {:>4} {:>4} {:>10.4} {:>10.4} {:>10.4}{}",
            scenario.workflows[workflow].name,
            scenario.runners[attempt.runner].host,
            plan.name,
            plan.needs.cpus,
            plan.needs.gpus,
            times[workflow][job].map_or(f64::NAN, |times| seconds(times.ready)),
            seconds(attempt.started),
            attempt.ended.map_or(f64::NAN, seconds),
            if attempt.succeeded { "" } else { " failed" },
        );
    }
    println!("{:#?}", measure(&scenario, &trace));
    Ok(())
}
