//! Builds the in-memory state from the stored rows at start.

use std::collections::{BTreeMap, HashMap};

use torc_api::state::Cause;

use super::Engine;
use super::allocations::SlurmRecords;
use super::runners::LiveRunner;
use super::workflow::Data;
use super::workflow::Graph;
use super::workflow::{LiveWorkflow, read_spec};
use crate::ids::{JobId, Now, WorkflowId};
use crate::rows::{ActionRow, AllocationRow, JobRow, ProfileRow, RecoveryRow, ResultRow, Snapshot, UserDataRow};

/// A stored document that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("the stored document of workflow {workflow} cannot be read")]
pub struct UnreadableDocument {
    /// Workflow of the document.
    pub workflow: WorkflowId,
    /// Error of the parser.
    #[source]
    pub source: serde_json::Error,
}

impl Engine {
    /// Builds the state from the stored rows. Every runner counts as heard at `now`, so its lease duration begins
    /// again.
    pub fn restore(snapshot: Snapshot, now: Now) -> Result<Self, UnreadableDocument> {
        let mut engine = Self {
            last: snapshot.last,
            identity: snapshot.identity,
            slurm: SlurmRecords::restore(snapshot.clusters, snapshot.ended_slurm_jobs),
            ..Self::default()
        };
        let mut profiles: HashMap<WorkflowId, Vec<ProfileRow>> = HashMap::new();
        for profile in snapshot.profiles {
            profiles.entry(profile.workflow).or_default().push(profile);
        }
        let mut jobs: HashMap<WorkflowId, Vec<JobRow>> = HashMap::new();
        for job in snapshot.jobs {
            jobs.entry(job.workflow).or_default().push(job);
        }
        let mut data: HashMap<WorkflowId, Vec<UserDataRow>> = HashMap::new();
        for row in snapshot.user_data {
            data.entry(row.workflow).or_default().push(row);
        }
        let mut actions: HashMap<WorkflowId, Vec<ActionRow>> = HashMap::new();
        for action in snapshot.actions {
            actions.entry(action.workflow).or_default().push(action);
        }
        let mut recoveries: HashMap<WorkflowId, Vec<RecoveryRow>> = HashMap::new();
        for recovery in snapshot.recoveries {
            recoveries.entry(recovery.workflow).or_default().push(recovery);
        }
        for runner in snapshot.runners {
            engine.runners.insert(LiveRunner::new(runner, now));
        }
        for row in snapshot.workflows {
            let id = row.id;
            let spec = read_spec(&row.document).map_err(|source| UnreadableDocument { workflow: id, source })?;
            let rows = jobs.remove(&id).unwrap_or_default();
            let graph = Graph::new(id, profiles.remove(&id).unwrap_or_default(), &rows);
            let mut workflow = LiveWorkflow::new(row, spec, graph);
            workflow.data = Data::from_rows(data.remove(&id).unwrap_or_default());
            workflow.set_actions(actions.remove(&id).unwrap_or_default());
            for row in recoveries.remove(&id).unwrap_or_default() {
                workflow.recoveries.insert(row);
            }
            let is_over = workflow.is_over();
            engine.workflows.insert(workflow);
            if is_over {
                engine.workflows.settle(id);
            }
        }
        let mut leases = engine.leases();
        leases.restore_held();
        for lease in snapshot.detached_leases {
            leases.restore_detached(lease);
        }
        engine.restore_allocations(snapshot.allocations, snapshot.finished_allocations);
        engine.restore_failures(snapshot.failures, &snapshot.latest_failures);
        Ok(engine)
    }

    /// Restores allocations, and which runners live in them.
    fn restore_allocations(&mut self, live: Vec<AllocationRow>, finished: Vec<(WorkflowId, i64)>) {
        let mut finished: HashMap<WorkflowId, i64> = finished.into_iter().collect();
        let mut of_workflows: HashMap<WorkflowId, Vec<AllocationRow>> = HashMap::new();
        for row in live {
            let lives_here =
                |runner: &&mut LiveRunner| row.slurm_job_id.is_some() && runner.row().slurm_job_id == row.slurm_job_id;
            for runner in self.runners.values_mut().filter(lives_here) {
                runner.enter((row.workflow, row.id));
            }
            of_workflows.entry(row.workflow).or_default().push(row);
        }
        for workflow in self.workflows.values_mut() {
            let id = &workflow.id();
            let live = of_workflows.remove(id).unwrap_or_default();
            workflow.allocations.restore(live, finished.remove(id).unwrap_or_default());
        }
    }

    fn restore_failures(&mut self, counts: Vec<(JobId, Cause, i32)>, latest: &[ResultRow]) {
        // One pass over all jobs, because the counts do not name the workflows.
        let mut of_jobs: HashMap<JobId, BTreeMap<Cause, i32>> = HashMap::new();
        for (job, cause, count) in counts {
            of_jobs.entry(job).or_default().insert(cause, count);
        }
        for workflow in self.workflows.values_mut() {
            let failed = workflow.graph.iter().filter_map(|(_, job)| Some((job.id(), of_jobs.remove(&job.id())?)));
            let failed = failed.collect();
            workflow.failures.restore(failed, |job| workflow.graph.state_of(job));
        }
        for result in latest {
            let Some(workflow) = self.workflows.get_mut(&result.workflow) else { continue };
            workflow.remember_failure(result);
        }
    }
}
