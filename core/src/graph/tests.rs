#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;
use crate::expanded::{ExpandedFile, ExpandedUserData};

/// Returns a graph from lists of parents.
fn graph(parents: &[Vec<u32>]) -> Expanded {
    let job = |(number, depends_on): (usize, &Vec<u32>)| ExpandedJob {
        name: format!("j{number}"),
        depends_on: depends_on.clone(),
        ..Default::default()
    };
    Expanded { jobs: parents.iter().enumerate().map(job).collect(), ..Default::default() }
}

#[test]
fn a_diamond_has_three_stages() {
    let diamond = graph(&[vec![], vec![0], vec![0], vec![1, 2]]);
    assert_eq!(stages(&diamond), [vec![0], vec![1, 2], vec![3]]);
    assert_eq!(find_cycles(&diamond), []);
    let children = children(&diamond.jobs);
    assert_eq!(
        (children.of(0), children.of(1), children.of(3), children.of(9)),
        (&[1, 2][..], &[3][..], &[][..], &[][..])
    );
}

#[test]
fn cycles_are_named_in_full_with_what_is_passed_on() {
    let mut ring = graph(&[vec![2], vec![0], vec![1], vec![2]]);
    ring.files = vec![ExpandedFile { name: "x".into(), ..Default::default() }];
    ring.user_data = vec![ExpandedUserData { name: "d".into(), ..Default::default() }];
    ring.jobs[0].output_files = vec![0];
    ring.jobs[1].input_files = vec![0];
    ring.jobs[1].output_user_data = vec![0];
    ring.jobs[2].input_user_data = vec![0];
    let cycles = find_cycles(&ring);
    assert_eq!(cycles, [Cycle { ring: vec![0, 1, 2], others: vec![] }]);
    assert_eq!(describe_cycle(&ring, &cycles[0]), "j0 -> j1 (through file `x`) -> j2 (through user data `d`) -> j0");
}

#[test]
fn a_job_can_wait_for_itself() {
    let alone = graph(&[vec![0]]);
    let cycle = Cycle { ring: vec![0], others: vec![] };
    assert_eq!(find_cycles(&alone), std::slice::from_ref(&cycle));
    assert_eq!(describe_cycle(&alone, &cycle), "j0 -> j0");
}

#[test]
fn a_long_ring_is_named_in_part() {
    let count = 1_000;
    let ring = graph(&(0..count).map(|job| vec![(job + count - 1) % count]).collect::<Vec<_>>());
    let cycles = find_cycles(&ring);
    assert_eq!((cycles.len(), cycles[0].ring.len()), (1, 1_000));
    let text = describe_cycle(&ring, &cycles[0]);
    assert!(text.starts_with("j0 -> j1 -> j2 ") && text.ends_with("-> (900 more jobs) -> j0"), "{text}");
}

#[test]
fn every_cycle_is_found_with_all_of_its_jobs() {
    // 0 and 1 wait for each other, 2 for them; 3, 4 and 5 are a ring with a short cut through 6.
    let cyclic = graph(&[vec![1], vec![0], vec![0], vec![5], vec![3], vec![4, 6], vec![3]]);
    let cycles = find_cycles(&cyclic);
    let expected = [Cycle { ring: vec![0, 1], others: vec![] }, Cycle { ring: vec![3, 4, 5], others: vec![6] }];
    assert_eq!(cycles, expected);
    assert_eq!(describe_cycle(&cyclic, &cycles[1]), "j3 -> j4 -> j5 -> j3; in the same cycle: j6");
}

#[test]
fn a_long_chain_does_not_exhaust_the_stack() {
    let count = 200_000;
    let chain = graph(&(0..count).map(|job: u32| job.checked_sub(1).into_iter().collect()).collect::<Vec<_>>());
    assert_eq!(find_cycles(&chain), []);
}

prop_compose! {
    fn any_graph()(count in 1usize..30)(
        parents in prop::collection::vec(prop::collection::btree_set(0..count as u32, 0..4), count)
    ) -> Expanded {
        graph(&parents.into_iter().map(|set| set.into_iter().collect()).collect::<Vec<_>>())
    }
}

/// Depth first with colours: a different way to ask the same question.
fn has_cycle(expanded: &Expanded) -> bool {
    fn visit(job: usize, expanded: &Expanded, colours: &mut [u8]) -> bool {
        match colours[job] {
            1 => return true,
            2 => return false,
            _ => colours[job] = 1,
        }
        let found = expanded.jobs[job].depends_on.iter().any(|parent| visit(*parent as usize, expanded, colours));
        colours[job] = 2;
        found
    }
    let mut colours = vec![0; expanded.jobs.len()];
    (0..expanded.jobs.len()).any(|job| visit(job, expanded, &mut colours))
}

/// Returns whether the first job waits for the second, directly or through others.
fn reaches(expanded: &Expanded, from: u32, to: u32) -> bool {
    let mut seen = vec![false; expanded.jobs.len()];
    let mut next = expanded.jobs[from as usize].depends_on.clone();
    while let Some(job) = next.pop() {
        if job == to {
            return true;
        }
        if !std::mem::replace(&mut seen[job as usize], true) {
            next.extend(&expanded.jobs[job as usize].depends_on);
        }
    }
    false
}

proptest! {
    #[test]
    fn cycles_are_the_jobs_that_reach_themselves(expanded in any_graph()) {
        let cycles = find_cycles(&expanded);
        prop_assert_eq!(!cycles.is_empty(), has_cycle(&expanded));
        for cycle in &cycles {
            let before = cycle.ring.iter().cycle().skip(cycle.ring.len() - 1);
            for (job, parent) in cycle.ring.iter().zip(before) {
                prop_assert!(expanded.jobs[*job as usize].depends_on.contains(parent), "{:?}", cycle);
            }
            let first = cycle.ring[0];
            prop_assert!(cycle.ring.iter().chain(&cycle.others).all(|job| *job >= first), "{:?}", cycle);
        }
        let mut tied: Vec<u32> = cycles.iter().flat_map(|cycle| cycle.ring.iter().chain(&cycle.others).copied()).collect();
        tied.sort_unstable();
        let expected: Vec<u32> =
            (0..expanded.jobs.len() as u32).filter(|job| reaches(&expanded, *job, *job)).collect();
        prop_assert_eq!(tied, expected);
        for pair in cycles.iter().flat_map(|one| cycles.iter().map(move |other| (one, other))) {
            let (one, other) = (pair.0.ring[0], pair.1.ring[0]);
            let both = reaches(&expanded, one, other) && reaches(&expanded, other, one);
            prop_assert_eq!(both, one == other, "jobs that reach each other are in one cycle");
        }
    }

    #[test]
    fn stages_respect_every_dependency(expanded in any_graph()) {
        let stages = stages(&expanded);
        let mut stage_of = vec![None; expanded.jobs.len()];
        for (stage, jobs) in stages.iter().enumerate() {
            prop_assert!(jobs.is_sorted());
            for job in jobs {
                prop_assert_eq!(stage_of[*job as usize].replace(stage), None, "a job is in one stage only");
            }
        }
        for (job, stage) in expanded.jobs.iter().zip(&stage_of) {
            let before: Option<Vec<usize>> = job.depends_on.iter().map(|parent| stage_of[*parent as usize]).collect();
            let expected = before.map(|before| before.into_iter().max().map_or(0, |latest| latest + 1));
            prop_assert_eq!(*stage, expected, "as early as its parents allow");
        }
        prop_assert_eq!(stage_of.contains(&None), has_cycle(&expanded));
    }

    #[test]
    fn children_are_the_parents_turned_around(expanded in any_graph()) {
        let children = children(&expanded.jobs);
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for parent in 0..expanded.jobs.len() as u32 {
            pairs.extend(children.of(parent).iter().map(|child| (*child, parent)));
        }
        pairs.sort_unstable();
        let expected: Vec<(u32, u32)> =
            (0u32..).zip(&expanded.jobs).flat_map(|(n, job)| job.depends_on.iter().map(move |p| (n, *p))).collect();
        prop_assert_eq!(pairs, expected);
    }
}
