//! Notices that jobs are ready and nobody will ever take them, so that a command in the foreground does not wait for ever.

use std::time::{Duration, Instant};

use torc_api::api::{Job, Workflow};
use torc_api::quantity::format_duration;
use torc_api::state::JobState;
use torc_api::termination::EndMargin;
use torc_api::wire::Resources;

use super::follow::fetch_workflows;
use crate::client::{Client, ClientError};
use crate::output::human;
use torc_api::filter::JobFilter;

/// A job that fits is taken within milliseconds; so long nobody moves only when none does.
const GRACE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);

/// Resources and time of the local runner.
#[derive(Clone, Copy, Debug)]
pub struct LocalOffer {
    /// The resources that it may use.
    pub capacity: Resources,
    /// The end of its time.
    pub end: Option<Instant>,
}

/// The reason why ready jobs are never started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starved {
    /// The resources or the time that is lacking.
    pub message: String,
    /// The flags or commands that provide it.
    pub hint: String,
}

/// Ends when jobs are ready, nothing moves, and no runner but ours is there.
pub async fn starving(client: &Client, ids: &[i64], offer: LocalOffer) -> Result<Starved, ClientError> {
    let mut since: Option<Instant> = None;
    loop {
        tokio::time::sleep(PAUSE).await;
        let workflows = fetch_workflows(client, ids).await?;
        let Some(stuck) =
            workflows.iter().find(|workflow| is_stuck(workflow)).filter(|_| workflows.iter().all(is_still))
        else {
            since = None;
            continue;
        };
        if since.get_or_insert_with(Instant::now).elapsed() < GRACE || client.runners(false).await?.len() > 1 {
            continue;
        }
        let ready = JobFilter { status: vec![JobState::Ready], ..JobFilter::default() };
        let jobs = client.jobs(&stuck.id.to_string(), &ready, Some(1)).await?;
        if let Some(job) = jobs.first() {
            let left = offer.end.map(|end| end.saturating_duration_since(Instant::now()));
            return Ok(explain(stuck, job, (offer.capacity, left)));
        }
    }
}

/// Nothing of it moves.
fn is_still(workflow: &Workflow) -> bool {
    let jobs = &workflow.status.jobs;
    jobs.leased + jobs.running + jobs.recovering == 0
}

/// Something of it could move, but does not.
fn is_stuck(workflow: &Workflow) -> bool {
    is_still(workflow) && workflow.status.jobs.ready > 0 && !workflow.suspended
}

fn lacking(needed: i64, noun: &str, there: i64) -> String {
    format!("{} where {there} {}", human::count(needed, noun), if there == 1 { "is" } else { "are" })
}

fn explain(workflow: &Workflow, job: &Job, (capacity, left): (Resources, Option<Duration>)) -> Starved {
    let needs = &job.resources;
    let mut reasons = Vec::new();
    let mut flags = Vec::new();
    if needs.num_cpus > capacity.cpus {
        reasons.push(lacking(needs.num_cpus, "CPU", capacity.cpus));
        flags.push("--num-cpus");
    }
    if needs.memory_bytes > capacity.memory_bytes {
        reasons.push(format!(
            "{} of memory where {} are",
            human::bytes(needs.memory_bytes),
            human::bytes(capacity.memory_bytes)
        ));
        flags.push("--memory");
    }
    if needs.num_gpus > capacity.gpus {
        reasons.push(lacking(needs.num_gpus, "GPU", capacity.gpus));
        flags.push("--num-gpus");
    }
    if needs.num_nodes > capacity.nodes {
        reasons.push(lacking(needs.num_nodes, "node", capacity.nodes));
    }
    if !job.labels.is_empty() {
        reasons.push(format!("a runner with the labels {}", job.labels.join(", ")));
    }
    let seconds_left = left.map(|left| i64::try_from(left.as_secs()).unwrap_or(i64::MAX));
    let config = workflow.document.as_ref().and_then(|document| document.spec.execution_config.as_ref());
    let end = EndMargin::of(config, false);
    if let Some(left) = seconds_left.filter(|left| !end.allows(needs.runtime_seconds, *left)) {
        let (needed, left) = (format_duration(needs.runtime_seconds), format_duration(left));
        reasons.push(format!("{needed} of time where {left} are left"));
        flags.push("--time-limit");
    }
    let count = human::count(workflow.status.jobs.ready, "job");
    let verb = if workflow.status.jobs.ready == 1 { "is" } else { "are" };
    let example = match reasons.as_slice() {
        [] => format!("e.g. {}", job.name),
        reasons => format!("{} needs {}", job.name, reasons.join(" and ")),
    };
    let message = format!("{}: {count} {verb} ready, but the local runner can take none: {example}", workflow.name);
    let elsewhere = "start `torc server` here and `torc runner` where it fits";
    let hint = match flags.as_slice() {
        [] => elsewhere.to_owned(),
        flags => format!("give it more ({}), or {elsewhere}", flags.join(", ")),
    };
    Starved { message, hint }
}

#[cfg(test)]
mod tests {
    use torc_api::api::JobResources;
    use torc_api::status::JobCounts;

    use super::*;
    use crate::workflow_phase::tests::workflow;

    #[test]
    fn what_is_missing_is_named() {
        let job = Job {
            id: 1,
            workflow: "w".to_owned(),
            name: "big".to_owned(),
            status: JobState::Ready,
            run_id: 1,
            attempt: 1,
            command: String::new(),
            priority: 0,
            resources: JobResources {
                num_cpus: 99,
                memory_bytes: 1 << 30,
                num_gpus: 1,
                num_nodes: 1,
                runtime_seconds: 60,
            },
            depends_on: Vec::new(),
            waiting_for: 0,
            labels: Vec::new(),
            node: None,
            runner: None,
            in_doubt: false,
            start_time: None,
            origin: None,
            lineage: None,
        };
        let stuck = workflow(JobCounts { total: 1, ready: 1, ..JobCounts::default() }, &[]);
        let capacity = Resources { cpus: 2, memory_bytes: 2 << 30, gpus: 0, nodes: 1 };
        let told = explain(&stuck, &job, (capacity, None));
        assert_eq!(
            told.message,
            "w: 1 job is ready, but the local runner can take none: big needs 99 CPUs where 2 are and 1 GPU where 0 are"
        );
        let hint = "give it more (--num-cpus, --num-gpus), or start `torc server` here and `torc runner` where it fits";
        assert_eq!(told.hint, hint);
    }

    #[test]
    fn time_is_named_where_only_time_is_lacking() {
        let job: Job = serde_json::from_value(serde_json::json!({
            "id": 1, "workflow": "w", "name": "long", "status": "ready", "runId": 1, "attempt": 1, "command": "", "priority": 0,
            "resources": { "numCpus": 1, "memoryBytes": 1, "numGpus": 0, "numNodes": 1, "runtimeSeconds": 14_400 },
        }))
        .expect("a job");
        let stuck = workflow(JobCounts { total: 1, ready: 1, ..JobCounts::default() }, &[]);
        let capacity = Resources { cpus: 2, memory_bytes: 2 << 30, gpus: 0, nodes: 1 };
        let told = |left: u64| explain(&stuck, &job, (capacity, Some(Duration::from_secs(left))));
        let start = "w: 1 job is ready, but the local runner can take none:";
        assert_eq!(told(600).message, format!("{start} long needs 4h of time where 10m are left"));
        assert!(told(600).hint.starts_with("give it more (--time-limit), or "), "{}", told(600).hint);
        // Two minutes less would do, of the time before the first signal, which comes 90 s before the end.
        assert!(told(14_400 - 120 + 89).message.contains("of time"));
        assert_eq!(told(14_400 - 120 + 90).message, format!("{start} e.g. long"));
        assert_eq!(told(14_400).hint, "start `torc server` here and `torc runner` where it fits");
    }

    #[test]
    fn who_is_stuck() {
        let with = |jobs| workflow(jobs, &[]);
        assert!(is_stuck(&with(JobCounts { ready: 1, ..JobCounts::default() })));
        assert!(!is_stuck(&with(JobCounts { ready: 1, running: 1, ..JobCounts::default() })));
        assert!(!is_stuck(&with(JobCounts { blocked: 1, ..JobCounts::default() })));
        assert!(!is_stuck(&Workflow { suspended: true, ..with(JobCounts { ready: 1, ..JobCounts::default() }) }));
    }

    #[test]
    fn whatever_moves_is_not_still() {
        let counts = JobCounts::default;
        for (jobs, still) in [
            (JobCounts { ready: 1, blocked: 1, failed: 1, pending_failed: 1, ..counts() }, true),
            (JobCounts { leased: 1, ..counts() }, false),
            (JobCounts { running: 1, ..counts() }, false),
            (JobCounts { recovering: 1, ..counts() }, false),
        ] {
            assert_eq!(is_still(&workflow(jobs, &[])), still, "{jobs:?}");
        }
        assert_eq!((GRACE.as_secs(), PAUSE.as_millis()), (5, 500));
    }

    #[test]
    fn each_need_is_compared_with_what_is_there() {
        let base = serde_json::json!({ "id": 1, "workflow": "w", "name": "j", "status": "ready", "runId": 1, "attempt": 1, "command": "",
            "priority": 0, "resources": { "numCpus": 2, "memoryBytes": 1 << 20, "numGpus": 3, "numNodes": 4, "runtimeSeconds": 1 } });
        let exact = Resources { cpus: 2, memory_bytes: 1 << 20, gpus: 3, nodes: 4 };
        let mut stuck = workflow(JobCounts { ready: 2, ..JobCounts::default() }, &[]);
        stuck.name = "many".to_owned();
        let told = |value: &serde_json::Value, capacity| {
            let job: Job = serde_json::from_value(value.clone()).expect("a job");
            let text = explain(&stuck, &job, (capacity, None)).message;
            let start = "many: 2 jobs are ready, but the local runner can take none: ";
            text.strip_prefix(start).unwrap_or_else(|| panic!("{text}")).to_owned()
        };
        for (capacity, expected) in [
            (exact, "e.g. j"),
            (Resources { cpus: 1, ..exact }, "j needs 2 CPUs where 1 is"),
            (Resources { memory_bytes: 1 << 10, ..exact }, "j needs 1Mi of memory where 1Ki are"),
            (Resources { gpus: 2, ..exact }, "j needs 3 GPUs where 2 are"),
            (Resources { nodes: 1, ..exact }, "j needs 4 nodes where 1 is"),
        ] {
            assert_eq!(told(&base, capacity), expected);
        }
        let mut labelled = base.clone();
        labelled["labels"] = serde_json::json!(["x", "y"]);
        assert_eq!(told(&labelled, exact), "j needs a runner with the labels x, y");
    }
}
