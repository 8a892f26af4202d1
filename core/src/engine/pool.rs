//! What runners outside of Slurm could run: everything that somebody who sizes a pool of them must know.

use torc_api::state::JobState;

use super::Engine;
use super::workflow::Workflow;
use crate::expanded::Requirements;

/// Jobs of one kind that run, or could if there were a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Their workflow, as `namespace/name`.
    pub workflow: String,
    /// What each needs.
    pub needs: Requirements,
    /// Labels that a runner must have.
    pub labels: Vec<String>,
    /// How many.
    pub jobs: i64,
}

impl Engine {
    /// Everything that runs outside of Slurm, or could.
    pub fn demands(&self) -> Vec<Demand> {
        let live = self.live.iter().filter(|id| !self.is_left_to_slurm(**id)).filter_map(|id| self.workflows.get(id));
        live.flat_map(Workflow::demands).collect()
    }
}

impl Workflow {
    fn demands(&self) -> Vec<Demand> {
        let mut counts = vec![0; self.graph.classes().len()];
        let may_start = !self.is_suspended() && !self.is_canceled();
        for (job, record) in self.graph.iter() {
            let counts_now = match record.state() {
                JobState::Running => true,
                JobState::Ready | JobState::Leased => may_start,
                _ => false,
            };
            if counts_now {
                counts[self.graph.class_index(job) as usize] += 1;
            }
        }
        let workflow = format!("{}/{}", self.row.namespace, self.row.name);
        let classes = self.graph.classes().zip(counts).filter(|(_, jobs)| *jobs > 0);
        classes
            .map(|(class, jobs)| Demand {
                workflow: workflow.clone(),
                needs: class.requirements.clone(),
                labels: class.labels.clone(),
                jobs,
            })
            .collect()
    }
}
