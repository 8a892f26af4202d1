//! Demand for runners outside of Slurm, to size a pool of them.

use torc_api::state::JobState;

use super::Engine;
use super::workflow::LiveWorkflow;
use crate::expanded::Requirements;

/// Jobs with equal requirements that run, or could run on another runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDemand {
    /// Their workflow, as `namespace/name`.
    pub workflow: String,
    /// Requirements of each job.
    pub needs: Requirements,
    /// Labels that a runner must have.
    pub labels: Vec<String>,
    /// Number of such jobs.
    pub jobs: i64,
}

impl Engine {
    /// Returns the jobs that run outside of Slurm, or could.
    pub fn demands(&self) -> Vec<PoolDemand> {
        let live = self.workflows.live().filter(|workflow| !self.workflows.is_left_to_slurm(workflow.id()));
        live.flat_map(demands).collect()
    }
}

fn demands(workflow: &LiveWorkflow) -> Vec<PoolDemand> {
    let graph = &workflow.graph;
    let mut counts = vec![0; graph.classes().len()];
    let may_start = !workflow.is_suspended() && !workflow.is_canceled();
    for (job, record) in graph.iter() {
        let is_demanded = match record.state() {
            JobState::Running => true,
            JobState::Ready | JobState::Leased => may_start,
            _ => false,
        };
        if is_demanded {
            counts[graph.class_index(job) as usize] += 1;
        }
    }
    let name = format!("{}/{}", workflow.row().namespace, workflow.row().name);
    let classes = graph.classes().zip(counts).filter(|(_, jobs)| *jobs > 0);
    classes
        .map(|(class, jobs)| PoolDemand {
            workflow: name.clone(),
            needs: class.requirements.clone(),
            labels: class.labels.clone(),
            jobs,
        })
        .collect()
}
