//! Commands that continue a workflow, for hints.

use torc_api::api::Workflow;

/// Returns the command that runs a stored workflow: on Slurm if the workflow has a Slurm cluster, otherwise on this
/// machine.
pub fn start_command(workflow: &Workflow) -> String {
    let command = if workflow.slurm_cluster.is_some() { "torc submit" } else { "torc run" };
    format!("{command} {}", workflow.name)
}

#[cfg(test)]
mod tests {
    use torc_api::status::JobCounts;

    use super::*;

    #[test]
    fn a_workflow_for_slurm_is_submitted() {
        let here = crate::workflow_phase::tests::workflow(JobCounts::default(), &[]);
        assert_eq!(start_command(&here), "torc run w");
        let there = Workflow { slurm_cluster: Some("local".to_owned()), ..here };
        assert_eq!(start_command(&there), "torc submit w");
    }
}
