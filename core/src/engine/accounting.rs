//! What Slurm's accounting says of steps, as it comes in: with a sync, from a journal, or from a person.

use torc_api::slurm_stats::SlurmStats;

use super::tx::Tx;
use super::{CommandError, Engine};
use crate::ids::{JobId, WorkflowId};

impl Engine {
    /// Takes in what is about attempts that there may have been. The rest is about a workflow that is gone.
    pub(super) fn take_slurm_stats(&self, stats: &[SlurmStats], tx: &mut Tx) {
        let known = stats.iter().filter(|stats| self.has_attempt(stats));
        tx.changes.rows().slurm_stats.extend(known.cloned());
    }

    fn has_attempt(&self, stats: &SlurmStats) -> bool {
        let workflow = self.workflows.get(&WorkflowId(stats.workflow));
        workflow.is_some_and(|workflow| {
            let runs = 1..=workflow.row.run;
            workflow.graph.ordinal(JobId(stats.job)).is_some() && runs.contains(&stats.run) && stats.attempt > 0
        })
    }

    /// Writes them down, all or none.
    pub fn record_slurm_stats(&self, stats: &[SlurmStats], tx: &mut Tx) -> Result<(), CommandError> {
        for one in stats {
            let workflow = self.workflow(WorkflowId(one.workflow))?;
            if workflow.graph.ordinal(JobId(one.job)).is_none() {
                return Err(CommandError::NoJob { workflow: workflow.row.name.clone(), job: one.job.to_string() });
            }
            if !self.has_attempt(one) {
                let message = format!("job {} has no attempt {} in run {}", one.job, one.attempt, one.run);
                return Err(CommandError::Invalid(message));
            }
        }
        self.take_slurm_stats(stats, tx);
        Ok(())
    }
}
