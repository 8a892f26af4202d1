//! Nodes that a job could get: of the partitions of its cluster, of the schedulers of its document, or of connected runners.

use std::collections::BTreeMap;

use torc_api::recovery::ScheduleNodesRequest;
use torc_api::resources::SlurmScheduler;
use torc_api::wire::RunnerScope;

use super::Engine;
use super::regenerate::nodes_action;
use super::runners::Runner;
use super::workflow::Workflow;
use crate::class::labels_match;
use crate::failure::NodeShape;
use crate::ids::WorkflowId;
use crate::planning::course;
use crate::planning::partition::Partition;

/// Partitions by cluster, as far as the controller has looked at them.
pub(super) type KnownPartitions = BTreeMap<String, Vec<Partition>>;

impl Engine {
    /// Remembers the partitions of a cluster. Not kept: the next owner of the store looks again.
    pub fn note_partitions(&mut self, cluster: String, partitions: Vec<Partition>) {
        self.session.partitions.insert(cluster, partitions);
    }

    /// Returns the nodes that a job could get as its workflow is set up; none means that this is not known.
    pub(super) fn nodes_for(&self, workflow: &Workflow, job: u32) -> Vec<NodeShape> {
        // Allocations that are asked for here have no labels.
        let cluster = workflow.cluster().filter(|_| workflow.graph.profile(job).labels.is_empty());
        let Some(cluster) = cluster else { return self.nodes_of_runners(workflow, job) };
        let partitions = self.session.partitions.get(cluster).map_or(&[][..], Vec::as_slice);
        let mut nodes = match workflow.has_schedule_nodes() {
            true => workflow.nodes_of_schedulers(job, partitions),
            false => NodeShape::of_partitions(partitions, None),
        };
        if !nodes.is_empty() {
            nodes.extend(self.nodes_of_runners(workflow, job));
        }
        nodes
    }

    /// Returns the nodes of connected runners that may run a job. A runner in an allocation is as large as was asked for, which says
    /// nothing about what could be asked for.
    pub(super) fn nodes_of_runners(&self, workflow: &Workflow, job: u32) -> Vec<NodeShape> {
        let labels = &workflow.graph.profile(job).labels;
        let may_run = |runner: &&Runner| {
            !runner.is_silent()
                && runner.row.slurm_job_id.is_none()
                && labels_match(labels, &runner.row.labels)
                && self.is_served_by(workflow.id(), &runner.row.scope)
        };
        self.runners.values().filter(may_run).map(Runner::node_shape).collect()
    }

    /// Whether a runner with this scope serves the workflow.
    pub(super) fn is_served_by(&self, id: WorkflowId, scope: &RunnerScope) -> bool {
        match scope {
            RunnerScope::All => !self.is_left_to_slurm(id),
            RunnerScope::Session => self.session.workflows.contains(&id) && !self.is_left_to_slurm(id),
            RunnerScope::Workflow(reference) => self.find_served(reference) == Some(id),
        }
    }
}

impl Runner {
    /// One node of this runner, for as long as needed: a runner can be started again.
    fn node_shape(&self) -> NodeShape {
        if self.row.max_parallel_jobs.is_some() {
            return NodeShape::UNLIMITED;
        }
        let capacity = &self.row.capacity;
        let nodes = capacity.nodes.max(1);
        NodeShape {
            cpus: capacity.cpus / nodes,
            memory_bytes: capacity.memory_bytes / nodes,
            gpus: capacity.gpus / nodes,
            max_nodes: nodes,
            ..NodeShape::UNLIMITED
        }
    }
}

impl Workflow {
    /// Returns the nodes of the schedulers that a job may use. What a scheduler leaves open follows from its partition.
    fn nodes_of_schedulers(&self, job: u32, partitions: &[Partition]) -> Vec<NodeShape> {
        let own = self.graph.class_of(job).and_then(|class| class.scheduler.as_deref());
        let is_usable = |scheduler: &&SlurmScheduler| own.is_none_or(|own| scheduler.name.as_deref() == Some(own));
        let shape = |scheduler: &SlurmScheduler| {
            let name = scheduler.name.as_deref().unwrap_or_default();
            let row = course::of_scheduler(scheduler, &nodes_action(name, &ScheduleNodesRequest::default()));
            let partition = partitions.iter().find(|one| scheduler.partition.as_deref() == Some(one.name.as_str()));
            let on_node = partition.map_or(i64::MAX, |partition| partition.memory_bytes);
            NodeShape {
                cpus: partition.map_or(i64::MAX, |partition| partition.cpus),
                memory_bytes: if row.memory_bytes > 0 { row.memory_bytes } else { on_node },
                seconds: row.seconds,
                ..NodeShape::UNLIMITED
            }
        };
        self.schedulers().filter(is_usable).map(shape).collect()
    }
}
