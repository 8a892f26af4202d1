//! Computes the CPUs to request for schedulers that declare none.
//!
//! On exclusive nodes, a request for a node gets all of its CPUs. On shared nodes, Slurm gives one CPU to a request
//! without a number: jobs would run one after another, and those that need two would never run. So Torc requests as
//! many CPUs as the jobs can use.

use serde_json::Value;
use torc_api::resources::SlurmScheduler;
use torc_api::workflow::WorkflowSpec;

use super::allocation_plan::ResourceClass;
use super::partition::PartitionLimits;

/// Options of `sbatch` that determine the number of CPUs of a node.
const OPTIONS: [&str; 18] = [
    "exclusive",
    "cpus-per-task",
    "ntasks",
    "ntasks-per-node",
    "ntasks-per-core",
    "ntasks-per-socket",
    "ntasks-per-gpu",
    "cpus-per-gpu",
    "mincpus",
    "cores-per-socket",
    "sockets-per-node",
    "threads-per-core",
    "extra-node-info",
    "overcommit",
    "tres-per-task",
    "c",
    "n",
    "B",
];

/// Returns the number of CPUs to request for each node; none if the document determines it.
pub fn least_cpus(
    spec: &WorkflowSpec,
    scheduler: &SlurmScheduler,
    kinds: &[ResourceClass],
    partitions: &[PartitionLimits],
) -> Option<i64> {
    let is_said_in_text = scheduler.extra.as_deref().is_some_and(|text| text.split_whitespace().any(is_about_cpus));
    let is_said_by_default = |(name, value): (&String, &Value)| {
        *value != Value::Bool(false) && OPTIONS.contains(&name.trim_start_matches('-').replace('_', "-").as_str())
    };
    if is_said_in_text || spec.slurm_defaults.iter().any(is_said_by_default) {
        return None;
    }
    let its_own =
        |kind: &&ResourceClass| kind.scheduler.as_ref().is_none_or(|name| scheduler.name.as_ref() == Some(name));
    let widest = kinds.iter().filter(its_own).map(|kind| kind.needs.num_cpus).max()?;
    if let Some(tasks) = scheduler.ntasks_per_node {
        return (widest > tasks).then_some(widest);
    }
    let of_kind = |kind: &ResourceClass| kind.needs.num_cpus.saturating_mul(kind.ready.saturating_add(kind.waiting));
    let all = kinds.iter().filter(its_own).map(of_kind).fold(0, i64::saturating_add);
    // Without a named partition the site chooses one, which may have the smallest nodes.
    let node = match scheduler.partition.as_deref() {
        Some(name) => partitions.iter().find(|partition| partition.name == name).map(|partition| partition.cpus),
        None => partitions.iter().map(|partition| partition.cpus).min(),
    };
    Some(all.min(node.unwrap_or(widest)).max(widest)).filter(|cpus| *cpus > 1)
}

/// Returns whether a word of a command line is an option about CPUs: `--cpus-per-task=4`, `-c`, `-c4`.
fn is_about_cpus(word: &str) -> bool {
    if let Some(long) = word.strip_prefix("--") {
        return OPTIONS.contains(&long.split('=').next().unwrap_or_default());
    }
    let short = word.strip_prefix('-').and_then(|rest| rest.get(..1));
    short.is_some_and(|letter| OPTIONS.contains(&letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expanded::Requirements;

    fn kind(cpus: i64, ready: i64, waiting: i64) -> ResourceClass {
        let needs = Requirements { num_cpus: cpus, ..Requirements::default() };
        ResourceClass { needs, labels: Vec::new(), scheduler: None, ready, waiting }
    }

    fn partition(name: &str, cpus: i64) -> PartitionLimits {
        PartitionLimits { name: name.to_owned(), cpus, ..PartitionLimits::default() }
    }

    fn nodes() -> SlurmScheduler {
        SlurmScheduler { name: Some("nodes".to_owned()), ..SlurmScheduler::default() }
    }

    fn least(scheduler: &SlurmScheduler, kinds: &[ResourceClass]) -> Option<i64> {
        least_cpus(&WorkflowSpec::default(), scheduler, kinds, &[partition("big", 64), partition("small", 8)])
    }

    #[test]
    fn as_many_as_its_jobs_can_use_on_a_node() {
        let big = SlurmScheduler { partition: Some("big".to_owned()), ..nodes() };
        let cases = [
            (&big, vec![kind(2, 3, 1)], Some(8), "all side by side"),
            (&big, vec![kind(2, 3, 1), kind(16, 0, 1)], Some(24), "those that wait, too"),
            (&big, vec![kind(1, 1_000, 0)], Some(64), "no more than a node has"),
            (&big, vec![kind(80, 1, 0)], Some(80), "what does not fit is for Slurm to refuse, in its own words"),
            (&big, vec![kind(1, 1, 0)], None, "one is the default"),
            (&big, vec![], None, "it is unknown"),
            (&nodes(), vec![kind(2, 100, 0)], Some(8), "the site chooses the partition"),
        ];
        for (scheduler, kinds, expected, why) in cases {
            assert_eq!(least(scheduler, &kinds), expected, "{why}");
        }
        let unknown = least_cpus(&WorkflowSpec::default(), &big, &[kind(2, 9, 0)], &[]);
        assert_eq!(unknown, Some(2), "of unknown nodes as much as one job needs");
        let of_another = ResourceClass { scheduler: Some("other".to_owned()), ..kind(9, 9, 9) };
        assert_eq!(least(&big, &[of_another, kind(2, 1, 0)]), Some(2));
    }

    #[test]
    fn an_explicit_option_is_kept() {
        for extra in ["--exclusive", "--mem=3g --cpus-per-task=2", "-c 4", "-c4", "-n 8", "--ntasks=2", "--mincpus=3"] {
            let scheduler = SlurmScheduler { extra: Some(extra.to_owned()), ..nodes() };
            assert_eq!(least(&scheduler, &[kind(2, 9, 0)]), None, "{extra}");
        }
        for extra in ["--hold", "--nodelist=n1", "--comment=-c", "-C fast", "--constraint=x"] {
            let scheduler = SlurmScheduler { extra: Some(extra.to_owned()), ..nodes() };
            assert_eq!(least(&scheduler, &[kind(2, 2, 0)]), Some(4), "{extra}");
        }
        let mut spec = WorkflowSpec::default();
        spec.slurm_defaults.insert("cpus-per-task".to_owned(), Value::from(4));
        assert_eq!(least_cpus(&spec, &nodes(), &[kind(2, 9, 0)], &[]), None);
        let tasks = SlurmScheduler { ntasks_per_node: Some(4), ..nodes() };
        assert_eq!(least(&tasks, &[kind(2, 9, 0)]), None, "four tasks have four CPUs");
        assert_eq!(least(&tasks, &[kind(6, 1, 0)]), Some(6), "but a job that needs six has to have them");
    }
}
