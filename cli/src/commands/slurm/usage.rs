//! `torc slurm usage`: report the node and CPU time of a workflow.

use clap::Args;
use serde::Serialize;
use torc_slurm::accounting::AccountingRecord;

use super::allocations::{fetch_accounting, of_workflow};
use crate::client::Client;
use crate::connection::with_client;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;

/// Report the allocated and the used time of a workflow in Slurm
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
}

/// The total time of allocations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlurmUsage {
    /// The name of the workflow.
    pub workflow: String,
    /// The number of allocations that have started.
    pub allocations: usize,
    /// The number of these that have not ended.
    pub running: usize,
    /// The sum of nodes times seconds.
    pub node_seconds: i64,
    /// The sum of allocated CPUs times seconds.
    pub cpu_seconds: i64,
    /// The used CPU time.
    pub used_cpu_seconds: f64,
}

/// Adds up allocations. Their steps are not counted again.
pub fn add_up(workflow: &str, records: &[AccountingRecord]) -> SlurmUsage {
    let mut usage = SlurmUsage { workflow: workflow.to_owned(), ..SlurmUsage::default() };
    for record in records.iter().filter(|record| record.is_allocation() && record.start.is_some()) {
        usage.allocations += 1;
        usage.running += usize::from(!record.state.is_over());
        usage.node_seconds += record.elapsed_seconds.saturating_mul(record.nodes);
        usage.cpu_seconds += record.cpu_seconds;
        usage.used_cpu_seconds += record.used_cpu_seconds.unwrap_or_default();
    }
    usage
}

pub async fn run(context: &CommandContext, args: &UsageArgs) -> Result<ExitStatus, CliError> {
    let jobs = with_client(&context.settings, &context.folder, async |client: &Client| {
        of_workflow(client, args.workflow.as_deref()).await
    })
    .await?;
    let usage = add_up(&jobs.workflow, &fetch_accounting(&jobs).await?);
    context.output.value(&usage, || text(&usage))?;
    Ok(ExitStatus::Success)
}

fn text(usage: &SlurmUsage) -> String {
    let hours = |seconds: f64| format!("{:.2} h", seconds / 3_600.0);
    let allocations = human::count(i64::try_from(usage.allocations).unwrap_or(i64::MAX), "allocation");
    let running = if usage.running == 0 { String::new() } else { format!(" ({} running)", usage.running) };
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let (nodes, cpus) = (usage.node_seconds as f64, usage.cpu_seconds as f64);
    let share = if cpus > 0.0 {
        format!(", {:.0} % of the CPU time", usage.used_cpu_seconds / cpus * 100.0)
    } else {
        String::new()
    };
    format!(
        "workflow {}: {allocations}{running}\nnode time  {}\nCPU time   {}\nused       {}{share}\n",
        usage.workflow,
        hours(nodes),
        hours(cpus),
        hours(usage.used_cpu_seconds),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_added_up_and_steps_are_not() {
        let text = "\
1|COMPLETED|0:0|2026-11-16T13:00:00|2026-11-16T14:00:00|3600|2|8|28800|02:00:00||n[1-2]|a
1.0|COMPLETED|0:0|2026-11-16T13:00:00|2026-11-16T14:00:00|3600|1|4|14400|02:00:00|1M|n1|wf1_j1_r1_a1
2|RUNNING|0:0|2026-11-16T13:00:00|Unknown|1800|1|4|7200|00:00:00||n1|b
3|CANCELLED by 0|0:0|None|2026-11-16T14:00:00|0|4|0|0|00:00:00||None assigned|c
";
        let usage = add_up("w", &torc_slurm::accounting::read(text).expect("readable"));
        assert_eq!((usage.allocations, usage.running), (2, 1), "one never started");
        assert_eq!((usage.node_seconds, usage.cpu_seconds), (9_000, 36_000));
        assert!((usage.used_cpu_seconds - 7_200.0).abs() < 1e-9);
        assert_eq!(
            super::text(&usage),
            "workflow w: 2 allocations (1 running)\nnode time  2.50 h\nCPU time   10.00 h\nused       2.00 h, 20 % of the CPU time\n"
        );
    }
}
