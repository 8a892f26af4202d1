//! Work that waits moves from loaded runners to idle ones, once, and everything runs exactly once.

use std::collections::BTreeMap;

use proptest::prelude::*;
use torc_api::wire::{AttemptKey, RegisterRequest, Resources, SyncRequest, SyncResponse, Want};

use super::fleet::SimRunner;
use super::plan::{Plan, job, needs};
use super::world::{World, runner};
use crate::ids::RunnerId;

/// A runner of so many slots.
fn sized(host: &str, cpus: i64) -> RegisterRequest {
    let capacity = Resources { cpus, ..runner("").capacity };
    RegisterRequest { capacity, ..runner(host) }
}

/// Runners that start what fits, lease ahead, and wait on the server for news.
struct Hall {
    world: World,
    hands: Vec<SimRunner>,
    /// Who ran what.
    ran: BTreeMap<i64, usize>,
    moves: usize,
    ahead: u32,
}

impl Hall {
    fn new(jobs: usize, ahead: u32) -> Self {
        let plan = Plan::new((0..jobs).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1))));
        Self { world: World::with(&plan), hands: Vec::new(), ran: BTreeMap::new(), moves: 0, ahead }
    }

    fn hire(&mut self, cpus: i64) -> usize {
        let mut hand = SimRunner::new(sized(&format!("host{}", self.hands.len()), cpus));
        hand.id = Some(self.world.register(&hand.introduction));
        self.hands.push(hand);
        self.hands.len() - 1
    }

    fn id(&self, index: usize) -> RunnerId {
        self.hands[index].id.unwrap()
    }

    /// One exchange; what fits is started at once, as real runners do.
    fn speak(&mut self, index: usize) {
        let now = self.world.now.mono_ms;
        let cpus = self.hands[index].introduction.capacity.cpus as usize;
        let hand = &mut self.hands[index];
        let queued = hand.queued.len() as u32;
        let mut request = hand.message(self.ahead.saturating_sub(queued), 0, now);
        let idle = cpus.saturating_sub(hand.running.len() + hand.queued.len()) as u32;
        let wants = idle > 0 || queued < self.ahead / 2;
        request.want = if wants { Want { limit: idle + request.want.ahead, ..request.want } } else { Want::default() };
        let response = self.world.sync(self.id(index), &request);
        self.take(index, &request, &response);
        // Everybody else waits on the server and hears of news.
        for other in (0..self.hands.len()).filter(|other| *other != index) {
            self.hear(other);
        }
    }

    /// What a waiting runner is told, if anything: it speaks then.
    fn hear(&mut self, index: usize) {
        let now = self.world.now.mono_ms;
        let mut listening = self.hands[index].clone();
        let mut request = listening.message(0, 0, now);
        // Its last message is the one that waits for an answer.
        request.sequence -= 1;
        request.acknowledged = request.acknowledged.saturating_sub(1);
        request.want = Want::default();
        let id = self.id(index);
        let told = self.world.run(|state, recorder, now| state.poll(id, &request, recorder, now));
        if let Some(response) = told {
            for key in &response.give_back {
                let hand = &mut self.hands[index];
                if let Some(at) = hand.queued.iter().position(|promise| promise.key == *key) {
                    hand.queued.remove(at);
                    hand.returned.push(*key);
                    self.moves += 1;
                }
            }
        }
    }

    fn take(&mut self, index: usize, request: &SyncRequest, response: &SyncResponse) {
        let now = self.world.now.mono_ms;
        let has = |key: &&AttemptKey| self.hands[index].queued.iter().any(|promise| promise.key == **key);
        self.moves += response.give_back.iter().filter(has).count();
        self.hands[index].take(request, response, now);
        let cpus = self.hands[index].introduction.capacity.cpus as usize;
        let hand = &mut self.hands[index];
        while hand.running.len() < cpus && !hand.queued.is_empty() {
            hand.start(0, now);
        }
    }

    /// The oldest job of a runner ends.
    fn finish(&mut self, index: usize) {
        let hand = &mut self.hands[index];
        if let Some(promise) = hand.running.first() {
            let job = promise.key.job;
            assert_eq!(self.ran.insert(job, index), None, "job {job} ran twice");
            hand.finish(0, None);
        }
    }

    fn ran_by(&self, index: usize) -> usize {
        self.ran.values().filter(|runner| **runner == index).count()
    }
}

// P01
#[test]
fn an_idle_runner_gets_its_share_before_the_loaded_one_has_finished() {
    let mut hall = Hall::new(40, 100);
    let loaded = hall.hire(2);
    hall.speak(loaded);
    assert_eq!(hall.hands[loaded].running.len() + hall.hands[loaded].queued.len(), 40, "it has everything");
    hall.speak(loaded);
    let idle = hall.hire(2);
    hall.speak(idle);
    hall.speak(loaded);
    hall.speak(idle);
    assert_eq!(hall.hands[idle].running.len(), 2, "it has work although nothing has ended");
    assert!(hall.hands[loaded].queued.len() >= 19, "and the other keeps half of what waited");
    for _ in 0..40 {
        for index in [loaded, idle] {
            hall.finish(index);
            hall.speak(index);
        }
    }
    assert_eq!(hall.ran.len(), 40);
    assert!(hall.ran_by(idle) >= 15, "{} of 40", hall.ran_by(idle));
}

#[test]
fn nothing_is_taken_from_who_would_be_idle_or_for_whom_it_does_not_fit() {
    let mut hall = Hall::new(4, 10);
    let loaded = hall.hire(8);
    hall.speak(loaded);
    hall.speak(loaded);
    let idle = hall.hire(8);
    hall.speak(idle);
    assert_eq!(hall.moves, 0, "all of it runs");
    let plan = Plan::new((0..8).map(|n| job(&format!("j{n}")).needs(needs(1, 1, 1))));
    let mut hall = Hall { world: World::with(&plan), ..Hall::new(1, 10) };
    let loaded = hall.hire(2);
    hall.speak(loaded);
    hall.speak(loaded);
    let mut without = SimRunner::new(sized("small", 2));
    without.introduction.capacity.gpus = 0;
    without.id = Some(hall.world.register(&without.introduction));
    hall.hands.push(without);
    hall.speak(1);
    assert_eq!(hall.moves, 0, "it has no GPU");
}

#[test]
fn who_runs_nothing_yet_is_left_alone() {
    let mut hall = Hall::new(4, 10);
    let loaded = hall.hire(2);
    let now = hall.world.now.mono_ms;
    for _ in 0..2 {
        let (id, request) = (hall.id(loaded), hall.hands[loaded].message(4, 4, now));
        let response = hall.world.sync(id, &request);
        hall.hands[loaded].take(&request, &response, now);
    }
    assert_eq!(hall.hands[loaded].queued.len(), 4, "it has everything, and has started none of it");
    let idle = hall.hire(2);
    hall.speak(idle);
    assert!(hall.world.state.runners[&hall.id(loaded)].asked_back.is_empty());
}

#[test]
fn a_lease_moves_once() {
    let mut hall = Hall::new(12, 100);
    let (first, second) = (hall.hire(1), 1);
    hall.speak(first);
    hall.speak(first);
    assert_eq!(hall.hire(1), second);
    for index in [second, first, second, second] {
        hall.speak(index);
    }
    let waiting = hall.hands[second].queued.len();
    assert!(waiting > 1, "more than it can start came to it");
    while !hall.hands[first].running.is_empty() {
        hall.finish(first);
        hall.speak(first);
    }
    assert_eq!(hall.hands[second].queued.len(), waiting, "the first is idle now, but what has moved stays");
}

#[test]
fn a_runner_that_has_started_it_keeps_it() {
    let mut hall = Hall::new(6, 10);
    let loaded = hall.hire(2);
    hall.speak(loaded);
    hall.speak(loaded);
    let idle = hall.hire(1);
    // The loaded one starts everything before it hears that some is asked for.
    let now = hall.world.now.mono_ms;
    let (id, request) = (hall.id(idle), hall.hands[idle].message(0, 1, now));
    hall.world.sync(id, &request);
    while !hall.hands[loaded].queued.is_empty() {
        hall.hands[loaded].start(0, now);
    }
    let request = hall.hands[loaded].message(0, 0, now);
    let answer = hall.world.sync(hall.id(loaded), &request);
    assert_eq!((answer.give_back.len(), answer.cancel.len()), (0, 0));
}

#[test]
fn many_waiting_leases_cost_no_more_than_a_few() {
    let mut hall = Hall::new(1_500, 1_500);
    let loaded = hall.hire(2);
    hall.speak(loaded);
    hall.speak(loaded);
    let idle = hall.hire(2);
    let now = hall.world.now.mono_ms;
    let mut request = hall.hands[idle].message(1_500, 1_500, now);
    request.want.free.cpus = 2;
    let id = hall.id(idle);
    hall.world.sync(id, &request);
    let asked = hall.world.state.runners[&hall.id(loaded)].asked_back.len();
    assert!((2..=256).contains(&asked), "{asked} were asked back in one go");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn moves_are_bounded_and_everything_runs_once(
        jobs in 1..40usize,
        ahead in 0..40u32,
        sizes in prop::collection::vec(1..5i64, 1..6),
        order in prop::collection::vec((any::<u16>(), any::<bool>()), 0..80),
    ) {
        let mut hall = Hall::new(jobs, ahead);
        for cpus in sizes {
            let index = hall.hire(cpus);
            hall.speak(index);
        }
        for (who, ends) in order {
            let index = who as usize % hall.hands.len();
            if ends {
                hall.finish(index);
            }
            hall.speak(index);
        }
        for _ in 0..3 * jobs + 10 {
            for index in 0..hall.hands.len() {
                hall.finish(index);
                hall.speak(index);
            }
        }
        prop_assert_eq!(hall.ran.len(), jobs);
        prop_assert!(hall.moves <= jobs, "{} moves of {jobs} jobs: each moves once at most", hall.moves);
    }
}
