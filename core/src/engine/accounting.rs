//! Statistics of steps from the accounting of Slurm.

use torc_api::slurm_stats::SlurmStats;

use super::tx::Tx;
use super::workflows::Workflows;
use super::{CommandError, Engine};
use crate::ids::{JobId, WorkflowId};

impl Engine {
    /// Records statistics of steps, or nothing if one of them names an attempt that cannot exist.
    pub fn record_slurm_stats(&self, stats: &[SlurmStats], tx: &mut Tx) -> Result<(), CommandError> {
        for one in stats {
            let workflow = self.workflows.require(WorkflowId(one.workflow))?;
            if workflow.graph.ordinal(JobId(one.job)).is_none() {
                return Err(CommandError::NoJob { workflow: workflow.row().name.clone(), job: one.job.to_string() });
            }
            if !has_attempt(&self.workflows, one) {
                let message = format!("job {} has no attempt {} in run {}", one.job, one.attempt, one.run);
                return Err(CommandError::Invalid(message));
            }
        }
        ingest_slurm_stats(&self.workflows, stats, tx);
        Ok(())
    }
}

/// Records the statistics of steps, except those of attempts that cannot exist: their workflow was deleted.
pub(super) fn ingest_slurm_stats(workflows: &Workflows, stats: &[SlurmStats], tx: &mut Tx) {
    let known = stats.iter().filter(|stats| has_attempt(workflows, stats));
    tx.changes.rows().slurm_stats.extend(known.cloned());
}

fn has_attempt(workflows: &Workflows, stats: &SlurmStats) -> bool {
    workflows.get(&WorkflowId(stats.workflow)).is_some_and(|workflow| {
        let runs = 1..=workflow.row().run;
        workflow.graph.ordinal(JobId(stats.job)).is_some() && runs.contains(&stats.run) && stats.attempt > 0
    })
}
