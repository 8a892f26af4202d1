//! Nodes that a job could get: of the partitions of its cluster, of the schedulers of its document, or of connected runners.

use torc_api::recovery::ScheduleNodesRequest;
use torc_api::resources::SlurmScheduler;

use super::regenerate::nodes_action;
use super::runners::{LiveRunner, Runners};
use super::workflow::LiveWorkflow;
use super::workflows::Workflows;
use crate::class::labels_match;
use crate::failure::NodeShape;
use crate::planning::allocation_plan;
use crate::planning::partition::PartitionLimits;

/// Returns the nodes that a job could get in its workflow; empty if they are unknown.
pub(super) fn nodes_for(workflows: &Workflows, runners: &Runners, workflow: &LiveWorkflow, job: u32) -> Vec<NodeShape> {
    // Allocations that Torc submits have no labels.
    let cluster = workflow.schedulers.cluster().filter(|_| workflow.graph.profile(job).labels.is_empty());
    let Some(cluster) = cluster else { return nodes_of_runners(workflows, runners, workflow, job) };
    let partitions = workflows.session.partitions(cluster);
    let mut nodes = match workflow.schedulers.are_submitted_by_actions() {
        true => nodes_of_schedulers(workflow, job, partitions),
        false => NodeShape::of_partitions(partitions, None),
    };
    if !nodes.is_empty() {
        nodes.extend(nodes_of_runners(workflows, runners, workflow, job));
    }
    nodes
}

/// Returns the nodes of connected runners that may run a job. Runners in allocations are left out: their size is the one that was
/// requested, not the largest that could be requested.
fn nodes_of_runners(workflows: &Workflows, runners: &Runners, workflow: &LiveWorkflow, job: u32) -> Vec<NodeShape> {
    let labels = &workflow.graph.profile(job).labels;
    let may_run = |runner: &&LiveRunner| {
        !runner.is_silent()
            && runner.row().slurm_job_id.is_none()
            && labels_match(labels, &runner.row().labels)
            && workflows.is_served_by(workflow.id(), &runner.row().scope)
    };
    runners.values().filter(may_run).map(node_shape).collect()
}

/// Returns one node of a runner. The time is unlimited, because a runner can be started again.
fn node_shape(runner: &LiveRunner) -> NodeShape {
    let row = runner.row();
    if row.max_parallel_jobs.is_some() {
        return NodeShape::UNLIMITED;
    }
    let nodes = row.capacity.nodes.max(1);
    NodeShape {
        cpus: row.capacity.cpus / nodes,
        memory_bytes: row.capacity.memory_bytes / nodes,
        gpus: row.capacity.gpus / nodes,
        max_nodes: nodes,
        ..NodeShape::UNLIMITED
    }
}

/// Returns the nodes of the schedulers that a job may use. The partition supplies what a scheduler leaves open.
fn nodes_of_schedulers(workflow: &LiveWorkflow, job: u32, partitions: &[PartitionLimits]) -> Vec<NodeShape> {
    let own = workflow.graph.class_of(job).and_then(|class| class.scheduler.as_deref());
    let is_usable = |scheduler: &&SlurmScheduler| own.is_none_or(|own| scheduler.name.as_deref() == Some(own));
    let shape = |scheduler: &SlurmScheduler| {
        let name = scheduler.name.as_deref().unwrap_or_default();
        let row = allocation_plan::of_scheduler(scheduler, &nodes_action(name, &ScheduleNodesRequest::default()));
        let partition = partitions.iter().find(|one| scheduler.partition.as_deref() == Some(one.name.as_str()));
        let node_memory = partition.map_or(i64::MAX, |partition| partition.memory_bytes);
        NodeShape {
            cpus: partition.map_or(i64::MAX, |partition| partition.cpus),
            memory_bytes: if row.memory_bytes > 0 { row.memory_bytes } else { node_memory },
            seconds: row.seconds,
            ..NodeShape::UNLIMITED
        }
    };
    workflow.schedulers.iter().filter(is_usable).map(shape).collect()
}
