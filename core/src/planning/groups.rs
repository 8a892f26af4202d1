//! Jobs that can share an allocation: those with the same requirements, and either all or none of which wait for others.

use std::collections::HashMap;

use crate::expanded::{Expanded, Requirements};
use crate::graph::stages;

/// A job that is still to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingJob<'a> {
    /// Its place in the list of all jobs.
    pub index: u32,
    /// Name of the job, for messages.
    pub name: &'a str,
    /// The requirements of the job.
    pub requirements: &'a Requirements,
    /// Labels a runner must have.
    pub labels: &'a [String],
    /// It waits for another job that is still to run.
    pub waits: bool,
    /// Seconds until it has ended if it and the jobs that it waits for run one after another.
    pub chain_seconds: i64,
}

/// Returns the jobs of a document that are still to run. A job whose dependencies have all ended does not wait.
pub fn pending<'a>(expanded: &'a Expanded, is_pending: impl Fn(u32) -> bool) -> Vec<PendingJob<'a>> {
    let chains = chain_seconds(expanded, &is_pending);
    let jobs = (0_u32..).zip(&expanded.jobs).filter(|(index, _)| is_pending(*index));
    let describe = |(index, job): (u32, &'a crate::expanded::ExpandedJob)| {
        let requirements = expanded.requirements.get(job.requirements as usize)?;
        let waits = job.depends_on.iter().any(|job| is_pending(*job));
        let chain_seconds = chains.get(index as usize).copied().unwrap_or_default();
        Some(PendingJob { index, name: &job.name, requirements, labels: &job.labels, waits, chain_seconds })
    };
    jobs.filter_map(describe).collect()
}

/// Returns for each pending job the longest sequence of pending jobs that ends with it, in seconds.
fn chain_seconds(expanded: &Expanded, is_pending: impl Fn(u32) -> bool) -> Vec<i64> {
    let mut chains = vec![0_i64; expanded.jobs.len()];
    for job in stages(expanded).into_iter().flatten() {
        let Some(one) = expanded.jobs.get(job as usize).filter(|_| is_pending(job)) else { continue };
        let runtime = expanded.requirements.get(one.requirements as usize).map_or(0, |needs| needs.runtime_seconds);
        let before = one.depends_on.iter().filter_map(|parent| chains.get(*parent as usize)).max().copied();
        if let Some(chain) = chains.get_mut(job as usize) {
            *chain = runtime.saturating_add(before.unwrap_or(0));
        }
    }
    chains
}

/// Jobs that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// The requirements of each job.
    pub requirements: &'a Requirements,
    /// They wait for others.
    pub waits: bool,
    /// Labels that their runners must have. Jobs with labels are never together with others.
    pub labels: &'a [String],
    /// Their places in the list of all jobs.
    pub jobs: Vec<u32>,
    /// Seconds of the longest sequence of pending jobs that ends with one of them.
    pub chain_seconds: i64,
}

/// Groups jobs by what they need, whether they wait, and their labels; in the order in which the groups first appear.
pub fn groups<'a>(jobs: &[PendingJob<'a>]) -> Vec<Group<'a>> {
    let mut found: Vec<Group<'a>> = Vec::new();
    let mut places: HashMap<(&Requirements, bool, &[String]), usize> = HashMap::new();
    for job in jobs {
        let place = *places.entry((job.requirements, job.waits, job.labels)).or_insert_with(|| {
            found.push(Group {
                requirements: job.requirements,
                waits: job.waits,
                labels: job.labels,
                jobs: Vec::new(),
                chain_seconds: 0,
            });
            found.len() - 1
        });
        if let Some(group) = found.get_mut(place) {
            group.jobs.push(job.index);
            group.chain_seconds = group.chain_seconds.max(job.chain_seconds);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::expanded::ExpandedJob;

    fn job(name: &str, requirements: u32, depends_on: &[u32], labels: &[&str]) -> ExpandedJob {
        ExpandedJob {
            name: name.to_owned(),
            requirements,
            depends_on: depends_on.to_vec(),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            ..ExpandedJob::default()
        }
    }

    fn document() -> Expanded {
        let gpu = Requirements { name: "gpu".to_owned(), num_gpus: 1, ..Requirements::default() };
        Expanded {
            jobs: vec![
                job("a", 0, &[], &[]),
                job("b", 0, &[], &[]),
                job("c", 0, &[0], &[]),
                job("d", 1, &[], &[]),
                job("e", 0, &[], &["licence"]),
            ],
            requirements: vec![Requirements::default(), gpu],
            ..Expanded::default()
        }
    }

    fn shown(jobs: &[PendingJob<'_>]) -> Vec<(String, bool, usize, Vec<u32>)> {
        let show =
            |group: &Group<'_>| (group.requirements.name.clone(), group.waits, group.labels.len(), group.jobs.clone());
        groups(jobs).iter().map(show).collect()
    }

    // R09
    #[test]
    fn by_requirements_and_by_waiting() {
        let document = document();
        let expected = [
            ("default".to_owned(), false, 0, vec![0, 1]),
            ("default".to_owned(), true, 0, vec![2]),
            ("gpu".to_owned(), false, 0, vec![3]),
            ("default".to_owned(), false, 1, vec![4]),
        ];
        assert_eq!(shown(&pending(&document, |_| true)), expected);
    }

    /// Recovery gives jobs more under the name that the document has for their requirements, so the name does not decide.
    // R09
    #[test]
    fn whatever_differs_makes_a_group_of_its_own() {
        let base = Requirements {
            name: "work".to_owned(),
            num_cpus: 2,
            memory_bytes: 3,
            num_gpus: 4,
            num_nodes: 5,
            runtime_seconds: 6,
        };
        let others = [
            Requirements { name: "other".to_owned(), ..base.clone() },
            Requirements { num_cpus: 7, ..base.clone() },
            Requirements { memory_bytes: 7, ..base.clone() },
            Requirements { num_gpus: 7, ..base.clone() },
            Requirements { num_nodes: 7, ..base.clone() },
            Requirements { runtime_seconds: 7, ..base.clone() },
        ];
        let labels = ["a".to_owned(), "b".to_owned()];
        let plain = PendingJob {
            index: 0,
            name: "j",
            requirements: &base,
            labels: &labels[..1],
            waits: false,
            chain_seconds: 6,
        };
        let mut jobs = vec![plain, PendingJob { waits: true, ..plain }];
        jobs.extend([&labels[..0], &labels[1..], &labels].map(|labels| PendingJob { labels, ..plain }));
        jobs.extend(others.iter().map(|requirements| PendingJob { requirements, ..plain }));
        let same = Requirements { ..base.clone() };
        jobs.push(PendingJob { name: "k", requirements: &same, ..plain });
        for (index, job) in (0..).zip(&mut jobs) {
            job.index = index;
        }
        let found = groups(&jobs);
        assert_eq!(found[0].jobs, [0, 11], "what is alike is together, whatever the jobs are called");
        let alone: Vec<Vec<u32>> = (1..11).map(|index| vec![index]).collect();
        assert_eq!(found[1..].iter().map(|group| group.jobs.clone()).collect::<Vec<_>>(), alone);
        for (group, job) in found.iter().zip(&jobs) {
            assert_eq!((group.requirements, group.waits, group.labels), (job.requirements, job.waits, job.labels));
        }
    }

    #[test]
    fn chains_are_as_long_as_all_that_is_pending_before() {
        let needs = |runtime_seconds| Requirements { runtime_seconds, ..Requirements::default() };
        // c waits for a and b, d for c; listed in an order in which nothing comes after what it waits for.
        let document = Expanded {
            jobs: vec![job("d", 0, &[1], &[]), job("c", 1, &[2, 3], &[]), job("a", 2, &[], &[]), job("b", 3, &[], &[])],
            requirements: vec![needs(1), needs(10), needs(100), needs(1_000)],
            ..Expanded::default()
        };
        let chains = |is_pending: fn(u32) -> bool| {
            pending(&document, is_pending).iter().map(|job| job.chain_seconds).collect::<Vec<_>>()
        };
        assert_eq!(chains(|_| true), [1_011, 1_010, 100, 1_000]);
        assert_eq!(chains(|job| job != 3), [111, 110, 100], "what has ended takes no time");
    }

    // R07, R09
    #[test]
    fn a_job_whose_parents_have_ended_does_not_wait() {
        let document = document();
        assert_eq!(shown(&pending(&document, |job| job == 2)), [("default".to_owned(), false, 0, vec![2])]);
        assert_eq!(groups(&pending(&document, |_| false)), [], "nothing pending, nothing to group");
    }
}
