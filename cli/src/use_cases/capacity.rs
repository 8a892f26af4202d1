//! Detection of jobs that are ready but fit no runner, so that a command in the foreground does not wait forever.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use torc_api::api::{Job, Workflow};
use torc_api::filter::JobFilter;
use torc_api::quantity::format_duration;
use torc_api::state::JobState;
use torc_api::termination::EndMargin;
use torc_api::wire::Resources;

use crate::client::{Client, ClientError};
use crate::output::human;

/// Time without any movement of jobs after which none of the ready jobs fits: one that fits is leased within
/// milliseconds.
const STARVATION_DELAY: Duration = Duration::from_secs(5);
/// Interval at which the latest statuses are checked. The check costs no request while jobs move.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

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

/// Detects ready jobs that the local runner cannot run, from the statuses that the command receives anyway.
pub struct StarvationDetector {
    offer: LocalOffer,
    /// The workflows whose jobs run on this machine.
    ids: Vec<i64>,
    latest: RefCell<BTreeMap<i64, Workflow>>,
}

impl StarvationDetector {
    /// Returns a detector for these workflows.
    pub fn new(ids: Vec<i64>, offer: LocalOffer) -> Self {
        Self { offer, ids, latest: RefCell::default() }
    }

    /// Records the latest status of a workflow.
    pub fn update(&self, workflow: &Workflow) {
        if self.ids.contains(&workflow.id) {
            self.latest.borrow_mut().insert(workflow.id, workflow.clone());
        }
    }

    /// Waits until jobs are ready, no job moves, and the local runner is the only one.
    pub async fn wait(&self, client: &Client) -> Result<Starved, ClientError> {
        let mut since: Option<Instant> = None;
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let Some(stuck) = self.stuck_workflow() else {
                since = None;
                continue;
            };
            if since.get_or_insert_with(Instant::now).elapsed() < STARVATION_DELAY
                || client.runners(false).await?.len() > 1
            {
                continue;
            }
            let ready = JobFilter { status: vec![JobState::Ready], ..JobFilter::default() };
            let jobs = client.jobs(&stuck.id.to_string(), &ready, Some(1)).await?;
            if let Some(job) = jobs.first() {
                return Ok(explain(&stuck, job, self.offer));
            }
        }
    }

    /// Returns a workflow with ready jobs, if no job of any workflow moves.
    fn stuck_workflow(&self) -> Option<Workflow> {
        let latest = self.latest.borrow();
        let has_no_active_jobs = latest.values().all(has_no_active_jobs);
        latest.values().find(|workflow| has_no_active_jobs && is_stuck(workflow)).cloned()
    }
}

/// Returns whether no job of a workflow is leased, running or recovering.
fn has_no_active_jobs(workflow: &Workflow) -> bool {
    let jobs = &workflow.status.jobs;
    jobs.leased + jobs.running + jobs.recovering == 0
}

/// Returns whether jobs of a workflow are ready but none moves.
fn is_stuck(workflow: &Workflow) -> bool {
    has_no_active_jobs(workflow) && workflow.status.jobs.ready > 0 && !workflow.suspended
}

fn lacking(needed: i64, noun: &str, available: i64) -> String {
    format!("{} ({available} available)", human::count(needed, noun))
}

fn explain(workflow: &Workflow, job: &Job, offer: LocalOffer) -> Starved {
    let capacity = offer.capacity;
    let left = offer.end.map(|end| end.saturating_duration_since(Instant::now()));
    let needs = &job.resources;
    let mut reasons = Vec::new();
    let mut flags = Vec::new();
    if needs.num_cpus > capacity.cpus {
        reasons.push(lacking(needs.num_cpus, "CPU", capacity.cpus));
        flags.push("--num-cpus");
    }
    if needs.memory_bytes > capacity.memory_bytes {
        reasons.push(format!(
            "{} of memory ({} available)",
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
        let noun = if job.labels.len() == 1 { "label" } else { "labels" };
        reasons.push(format!("a runner with the {noun} {}", job.labels.join(", ")));
    }
    let seconds_left = left.map(|left| i64::try_from(left.as_secs()).unwrap_or(i64::MAX));
    let config = workflow.document.as_ref().and_then(|document| document.spec.execution_config.as_ref());
    let end = EndMargin::of(config, false);
    if let Some(left) = seconds_left.filter(|left| !end.allows(needs.runtime_seconds, *left)) {
        let (needed, left) = (format_duration(needs.runtime_seconds), format_duration(left));
        reasons.push(format!("{needed} of time ({left} left)"));
        flags.push("--time-limit");
    }
    let count = human::count(workflow.status.jobs.ready, "job");
    let verb = if workflow.status.jobs.ready == 1 { "is" } else { "are" };
    let example = match reasons.as_slice() {
        [] => format!("e.g. {}", job.name),
        reasons => format!("{} needs {}", job.name, reasons.join(" and ")),
    };
    let them = if workflow.status.jobs.ready == 1 { "it" } else { "them" };
    let message = format!("{}: {count} {verb} ready, but the local runner cannot run {them}: {example}", workflow.name);
    let elsewhere = "start `torc server` here and `torc runner` on a larger machine";
    let hint = match flags.as_slice() {
        [] => elsewhere.to_owned(),
        flags => format!("raise {}, or {elsewhere}", flags.join(", ")),
    };
    Starved { message, hint }
}

#[cfg(test)]
mod tests {
    use torc_api::api::JobResources;
    use torc_api::status::JobCounts;

    use super::*;
    use crate::workflow_phase::tests::workflow;

    fn offer(capacity: Resources, seconds_left: Option<u64>) -> LocalOffer {
        // Half a second more, so that the test does not depend on its own duration.
        let end = |seconds| Instant::now() + Duration::from_millis(seconds * 1_000 + 500);
        LocalOffer { capacity, end: seconds_left.map(end) }
    }

    #[test]
    fn missing_resources_are_named() {
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
        let starved = explain(&stuck, &job, offer(capacity, None));
        assert_eq!(
            starved.message,
            "w: 1 job is ready, but the local runner cannot run it: big needs 99 CPUs (2 available) and 1 GPU (0 available)"
        );
        let hint = "raise --num-cpus, --num-gpus, or start `torc server` here and `torc runner` on a larger machine";
        assert_eq!(starved.hint, hint);
    }

    #[test]
    fn missing_time_is_named_if_only_time_is_lacking() {
        let job: Job = serde_json::from_value(serde_json::json!({
            "id": 1, "workflow": "w", "name": "long", "status": "ready", "runId": 1, "attempt": 1, "command": "", "priority": 0,
            "resources": { "numCpus": 1, "memoryBytes": 1, "numGpus": 0, "numNodes": 1, "runtimeSeconds": 14_400 },
        }))
        .expect("a job");
        let stuck = workflow(JobCounts { total: 1, ready: 1, ..JobCounts::default() }, &[]);
        let capacity = Resources { cpus: 2, memory_bytes: 2 << 30, gpus: 0, nodes: 1 };
        let starved = |left: u64| explain(&stuck, &job, offer(capacity, Some(left)));
        let start = "w: 1 job is ready, but the local runner cannot run it:";
        assert_eq!(starved(600).message, format!("{start} long needs 4h of time (10m left)"));
        assert!(starved(600).hint.starts_with("raise --time-limit, or "), "{}", starved(600).hint);
        // A runner accepts a job whose runtime exceeds the time before the first signal by up to two minutes. The first signal
        // is sent 90 s before the end.
        assert!(starved(14_400 - 120 + 89).message.contains("of time"));
        assert_eq!(starved(14_400 - 120 + 90).message, format!("{start} e.g. long"));
        assert_eq!(starved(14_400).hint, "start `torc server` here and `torc runner` on a larger machine");
    }

    #[test]
    fn a_workflow_is_stuck_if_jobs_are_ready_and_none_moves() {
        let with = |jobs| workflow(jobs, &[]);
        assert!(is_stuck(&with(JobCounts { ready: 1, ..JobCounts::default() })));
        assert!(!is_stuck(&with(JobCounts { ready: 1, running: 1, ..JobCounts::default() })));
        assert!(!is_stuck(&with(JobCounts { blocked: 1, ..JobCounts::default() })));
        assert!(!is_stuck(&Workflow { suspended: true, ..with(JobCounts { ready: 1, ..JobCounts::default() }) }));
    }

    #[test]
    fn leased_running_and_recovering_jobs_move() {
        let counts = JobCounts::default;
        for (jobs, still) in [
            (JobCounts { ready: 1, blocked: 1, failed: 1, pending_failed: 1, ..counts() }, true),
            (JobCounts { leased: 1, ..counts() }, false),
            (JobCounts { running: 1, ..counts() }, false),
            (JobCounts { recovering: 1, ..counts() }, false),
        ] {
            assert_eq!(has_no_active_jobs(&workflow(jobs, &[])), still, "{jobs:?}");
        }
        assert_eq!((STARVATION_DELAY.as_secs(), CHECK_INTERVAL.as_millis()), (5, 500));
    }

    #[test]
    fn each_requirement_is_compared_with_the_offer() {
        let base = serde_json::json!({ "id": 1, "workflow": "w", "name": "j", "status": "ready", "runId": 1, "attempt": 1, "command": "",
            "priority": 0, "resources": { "numCpus": 2, "memoryBytes": 1 << 20, "numGpus": 3, "numNodes": 4, "runtimeSeconds": 1 } });
        let exact = Resources { cpus: 2, memory_bytes: 1 << 20, gpus: 3, nodes: 4 };
        let mut stuck = workflow(JobCounts { ready: 2, ..JobCounts::default() }, &[]);
        stuck.name = "many".to_owned();
        let reason = |value: &serde_json::Value, capacity| {
            let job: Job = serde_json::from_value(value.clone()).expect("a job");
            let text = explain(&stuck, &job, offer(capacity, None)).message;
            let start = "many: 2 jobs are ready, but the local runner cannot run them: ";
            text.strip_prefix(start).unwrap_or_else(|| panic!("{text}")).to_owned()
        };
        for (capacity, expected) in [
            (exact, "e.g. j"),
            (Resources { cpus: 1, ..exact }, "j needs 2 CPUs (1 available)"),
            (Resources { memory_bytes: 1 << 10, ..exact }, "j needs 1Mi of memory (1Ki available)"),
            (Resources { gpus: 2, ..exact }, "j needs 3 GPUs (2 available)"),
            (Resources { nodes: 1, ..exact }, "j needs 4 nodes (1 available)"),
        ] {
            assert_eq!(reason(&base, capacity), expected);
        }
        let mut labelled = base.clone();
        labelled["labels"] = serde_json::json!(["x", "y"]);
        assert_eq!(reason(&labelled, exact), "j needs a runner with the labels x, y");
    }

    #[test]
    fn one_moving_workflow_keeps_all_from_being_stuck() {
        let detector = StarvationDetector::new(vec![1, 2], offer(Resources::default(), None));
        let status = |id, jobs| Workflow { id, ..workflow(jobs, &[]) };
        let found = || detector.stuck_workflow().map(|workflow| workflow.id);
        assert_eq!(found(), None);
        detector.update(&status(3, JobCounts { ready: 1, ..JobCounts::default() }));
        assert_eq!(found(), None, "its jobs run in allocations");
        detector.update(&status(1, JobCounts { ready: 1, ..JobCounts::default() }));
        assert_eq!(found(), Some(1));
        detector.update(&status(2, JobCounts { running: 1, ..JobCounts::default() }));
        assert_eq!(found(), None);
    }
}
