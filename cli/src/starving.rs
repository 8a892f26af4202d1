//! Notices that jobs are ready and nobody will ever take them, so that a command in the foreground does not wait for ever.

use std::time::{Duration, Instant};

use torc_api::api::{Job, Workflow};
use torc_api::wire::Resources;

use crate::client::{Client, ClientError, JobFilter};
use crate::follow::look;
use crate::output::human;

/// A job that fits is taken within milliseconds; so long nobody moves only when none does.
const GRACE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);

/// Ends with a sentence when jobs are ready, nothing moves, and no runner but ours is there.
pub async fn starving(client: &Client, ids: &[i64], capacity: Resources) -> Result<String, ClientError> {
    let mut since: Option<Instant> = None;
    loop {
        tokio::time::sleep(PAUSE).await;
        let workflows = look(client, ids).await?;
        let Some(stuck) =
            workflows.iter().find(|workflow| is_stuck(workflow)).filter(|_| workflows.iter().all(is_still))
        else {
            since = None;
            continue;
        };
        if since.get_or_insert_with(Instant::now).elapsed() < GRACE || client.runners(false).await?.len() > 1 {
            continue;
        }
        let ready = JobFilter { status: Some("ready".to_owned()), ..JobFilter::default() };
        let jobs = client.jobs(&stuck.id.to_string(), &ready, Some(1)).await?;
        if let Some(job) = jobs.first() {
            return Ok(explain(stuck, job, capacity));
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

fn explain(workflow: &Workflow, job: &Job, capacity: Resources) -> String {
    let needs = &job.resources;
    let mut reasons = Vec::new();
    if needs.num_cpus > capacity.cpus {
        reasons.push(format!("{} CPUs where {} are", needs.num_cpus, capacity.cpus));
    }
    if needs.memory_bytes > capacity.memory_bytes {
        reasons.push(format!(
            "{} of memory where {} are",
            human::bytes(needs.memory_bytes),
            human::bytes(capacity.memory_bytes)
        ));
    }
    if needs.num_gpus > capacity.gpus {
        reasons.push(format!("{} GPUs where {} are", needs.num_gpus, capacity.gpus));
    }
    if needs.num_nodes > capacity.nodes {
        reasons.push(format!("{} nodes where {} is", needs.num_nodes, capacity.nodes));
    }
    if !job.labels.is_empty() {
        reasons.push(format!("a runner with the labels {}", job.labels.join(", ")));
    }
    let count = human::count(workflow.status.jobs.ready, "job");
    let verb = if workflow.status.jobs.ready == 1 { "is" } else { "are" };
    let example = match reasons.as_slice() {
        [] => format!("e.g. {}", job.name),
        reasons => format!("{} needs {}", job.name, reasons.join(" and ")),
    };
    format!("{}: {count} {verb} ready, but the local runner can take none: {example}", workflow.name)
}

#[cfg(test)]
mod tests {
    use torc_api::api::JobResources;
    use torc_api::state::JobState;
    use torc_api::status::JobCounts;

    use super::*;
    use crate::follow::tests::workflow;

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
        assert_eq!(
            explain(&stuck, &job, capacity),
            "w: 1 job is ready, but the local runner can take none: big needs 99 CPUs where 2 are and 1 GPUs where 0 are"
        );
    }

    #[test]
    fn who_is_stuck() {
        let with = |jobs| workflow(jobs, &[]);
        assert!(is_stuck(&with(JobCounts { ready: 1, ..JobCounts::default() })));
        assert!(!is_stuck(&with(JobCounts { ready: 1, running: 1, ..JobCounts::default() })));
        assert!(!is_stuck(&with(JobCounts { blocked: 1, ..JobCounts::default() })));
        assert!(!is_stuck(&Workflow { suspended: true, ..with(JobCounts { ready: 1, ..JobCounts::default() }) }));
    }
}
