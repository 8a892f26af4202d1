//! Several workflows at once.

use super::{Shape, applied_at, bag, equal_runners, millis, seconds, shape};
use crate::random::Random;
use crate::workload::{Scenario, WorkflowPlan};

pub(super) const SHAPES: &[Shape] = &[
    shape("one-owner", "5 workflows of one owner, 2 s apart, 200 jobs each, on 4 runners with 8 CPUs", one_owner),
    shape("several-owners", "6 owners, one workflow of 50-400 jobs each, on 4 runners with 8 CPUs", several_owners),
];

fn one_owner(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 51);
    let workflow = |number: u64| {
        let jobs = bag(&mut random, 200, millis(500), seconds(5));
        applied_at(number * 2, WorkflowPlan::new(format!("workflow{number}"), jobs))
    };
    Scenario::new(seed, equal_runners(4, 8), (0..5).map(workflow).collect())
}

fn several_owners(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 52);
    let workflow = |number: u64| {
        let count = usize::try_from(random.within(50, 400)).unwrap_or(50);
        let jobs = bag(&mut random, count, millis(500), seconds(5));
        let workflow = WorkflowPlan::new(format!("workflow{number}"), jobs);
        let applied = random.within(0, 5);
        applied_at(applied, WorkflowPlan { owner: format!("owner{number}"), ..workflow })
    };
    Scenario::new(seed, equal_runners(4, 8), (0..6).map(workflow).collect())
}
