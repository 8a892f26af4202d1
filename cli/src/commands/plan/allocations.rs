//! The allocations of a document and their cost.

use torc_api::action::Action;
use torc_api::document::SlurmClusterDocument;
use torc_api::quantity::parse_walltime;
use torc_api::recovery::UnplacedJob;
use torc_api::workflow::WorkflowSpec;
use torc_core::expanded::Expanded;
use torc_core::planning::fit::{WalltimeMargin, node_hours};
use torc_core::planning::generate::{PlanSettings, PlannedScheduler, Unschedulable, plan};
use torc_core::planning::groups::pending;
use torc_core::planning::partition::PartitionLimits;

use crate::output::SchedulerRow;

/// Walltime of a scheduler without one, as in Torc 1.0.
const DEFAULT_WALLTIME_SECONDS: i64 = 3_600;

/// The allocations of a document, and the jobs without one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlannedAllocations {
    pub rows: Vec<SchedulerRow>,
    pub unplaced: Vec<UnplacedJob>,
}

/// Returns the allocations that actions request, or those that the jobs need on a cluster of the same files.
pub fn of(spec: &WorkflowSpec, expanded: &Expanded, clusters: &[SlurmClusterDocument]) -> PlannedAllocations {
    let actions: Vec<&Action> = spec.actions.iter().filter(|action| action.requests_slurm_nodes()).collect();
    if !actions.is_empty() {
        let rows = actions.into_iter().filter_map(|action| requested(action, spec, expanded)).collect();
        return PlannedAllocations { rows, unplaced: Vec::new() };
    }
    let cluster = clusters.iter().find(|cluster| spec.slurm_cluster.as_ref() == Some(&cluster.metadata.name));
    let partitions: Vec<PartitionLimits> = cluster
        .into_iter()
        .flat_map(|cluster| &cluster.spec.partitions)
        .filter_map(|one| one.try_into().ok())
        .collect();
    if partitions.is_empty() {
        return PlannedAllocations::default();
    }
    let settings =
        PlanSettings { margin: WalltimeMargin::of(spec.execution_config.as_ref()), ..PlanSettings::default() };
    let plan = plan(&pending(expanded, |_| true), &partitions, settings);
    let row = |one: &PlannedScheduler| SchedulerRow { name: String::new(), ..SchedulerRow::of(one) };
    let unplaced = |one: &Unschedulable| {
        let job = expanded.jobs.get(one.job as usize)?.name.clone();
        Some(UnplacedJob { job, reason: one.reason.to_string() })
    };
    PlannedAllocations {
        rows: plan.planned.iter().map(row).collect(),
        unplaced: plan.unplaced.iter().filter_map(unplaced).collect(),
    }
}

fn requested(action: &Action, spec: &WorkflowSpec, expanded: &Expanded) -> Option<SchedulerRow> {
    let name = action.scheduler.clone()?;
    let scheduler = spec.slurm_schedulers.iter().find(|one| one.name.as_ref() == Some(&name))?;
    let (allocations, nodes) = (action.num_allocations.unwrap_or(1), scheduler.nodes.unwrap_or(1));
    let seconds =
        scheduler.walltime.as_deref().and_then(|text| parse_walltime(text).ok()).unwrap_or(DEFAULT_WALLTIME_SECONDS);
    Some(SchedulerRow {
        partition: scheduler.partition.clone(),
        jobs: expanded.jobs.iter().filter(|job| job.scheduler.as_ref() == Some(&name)).count(),
        allocations,
        nodes,
        walltime_seconds: seconds,
        deferred: action.trigger_type.is_of_jobs(),
        node_hours: node_hours(allocations, nodes, seconds),
        name,
    })
}

#[cfg(test)]
mod tests {

    use super::*;

    // R13
    #[test]
    fn what_actions_ask_for_is_counted() {
        let spec: WorkflowSpec = serde_json::from_value(serde_json::json!({
            "jobs": [{ "name": "a", "command": "x" }],
            "slurmSchedulers": [
                { "name": "s", "account": "acc", "partition": "p", "nodes": 3, "walltime": "02:00:00" },
                { "name": "t", "account": "acc" },
            ],
            "actions": [
                { "triggerType": "on_workflow_start", "actionType": "schedule_nodes", "scheduler": "s", "schedulerType": "slurm", "numAllocations": 4 },
                { "triggerType": "on_jobs_ready", "actionType": "schedule_nodes", "scheduler": "t", "schedulerType": "slurm" },
                { "triggerType": "on_workflow_start", "actionType": "run_commands", "commands": ["x"] },
            ],
        }))
        .expect("a specification");
        let job = |scheduler: Option<&str>| torc_core::expanded::ExpandedJob {
            scheduler: scheduler.map(str::to_owned),
            ..torc_core::expanded::ExpandedJob::default()
        };
        let expanded =
            Expanded { jobs: vec![job(Some("s")), job(Some("s")), job(Some("t")), job(None)], ..Expanded::default() };
        let row =
            |name: &str, partition: Option<&str>, numbers: (usize, i64, i64, i64), deferred, node_hours| SchedulerRow {
                name: name.to_owned(),
                partition: partition.map(str::to_owned),
                jobs: numbers.0,
                allocations: numbers.1,
                nodes: numbers.2,
                walltime_seconds: numbers.3,
                deferred,
                node_hours,
            };
        let expected =
            [row("s", Some("p"), (2, 4, 3, 7_200), false, 24.0), row("t", None, (1, 1, 1, 3_600), true, 1.0)];
        assert_eq!(of(&spec, &expanded, &[]).rows, expected);
    }
}
