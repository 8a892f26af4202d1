//! Free capacity comes first, work that waits moves to runners that can start it, and everything runs exactly once.

use std::collections::BTreeMap;

use proptest::prelude::*;
use torc_api::state::JobState;
use torc_api::wire::{AttemptKey, RegisterRequest, Resources, SyncRequest, SyncResponse, Verdict, Want};

use super::fleet::{Promise, SimRunner};
use super::plan::{Plan, job, needs};
use super::world::{World, runner};
use crate::engine::{LongPoll, LongPolls};
use crate::ids::{JobId, RunnerId};

/// A runner of so many slots.
fn sized(host: &str, cpus: i64) -> RegisterRequest {
    let capacity = Resources { cpus, ..runner("").capacity };
    RegisterRequest { capacity, ..runner(host) }
}

/// Runners that start what fits, lease ahead, and wait on the server for news.
struct Hall {
    world: World,
    hands: Vec<SimRunner>,
    polls: LongPolls<u64, Waiting>,
    /// Who ran what.
    ran: BTreeMap<i64, usize>,
    moves: usize,
    ahead: u32,
}

/// A runner that waits for an answer, and its message.
struct Waiting {
    index: usize,
    request: SyncRequest,
}

impl Hall {
    fn new(jobs: usize, ahead: u32) -> Self {
        Self::of(&Plan::new((0..jobs).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))), ahead)
    }

    fn of(plan: &Plan, ahead: u32) -> Self {
        Self::in_world(World::with(plan), ahead)
    }

    /// Runners that wait for their first workflow.
    fn idle(ahead: u32) -> Self {
        Self::in_world(World::new(), ahead)
    }

    fn in_world(world: World, ahead: u32) -> Self {
        let polls = LongPolls::new(&world.state);
        Self { world, hands: Vec::new(), polls, ran: BTreeMap::new(), moves: 0, ahead }
    }

    fn hire(&mut self, cpus: i64) -> usize {
        let host = format!("host{}", self.hands.len());
        self.hire_as(sized(&host, cpus))
    }

    fn hire_as(&mut self, introduction: RegisterRequest) -> usize {
        let mut hand = SimRunner::new(introduction);
        hand.id = Some(self.world.register(&hand.introduction));
        self.hands.push(hand);
        self.hands.len() - 1
    }

    fn id(&self, index: usize) -> RunnerId {
        self.hands[index].id.unwrap()
    }

    fn message(&mut self, index: usize) -> SyncRequest {
        let now = self.world.now.mono_ms;
        let hand = &mut self.hands[index];
        let queued = hand.queued.len() as u32;
        let mut request = hand.message(self.ahead.saturating_sub(queued), 0, now);
        let idle = u32::try_from(request.want.free.cpus).unwrap();
        let wants = idle > 0 || queued < self.ahead / 2;
        request.want = if wants { Want { limit: idle + request.want.ahead, ..request.want } } else { Want::default() };
        request.wait_ms = 30_000;
        request
    }

    /// A runner says what is, and waits. Whoever is answered starts what fits at once and speaks again, as real runners do.
    fn speak(&mut self, index: usize) {
        let mut speakers = vec![index];
        while let Some(index) = speakers.pop() {
            let request = self.message(index);
            let id = self.id(index);
            let answer = self.world.try_sync(id, &request).unwrap();
            let mut answers = Vec::new();
            match answer.wait(&request) {
                Some(_) => self.polls.park(LongPoll {
                    runner: id,
                    request: Box::new(request.clone()),
                    until: u64::MAX,
                    reply: Waiting { index, request },
                }),
                None => answers.push((Waiting { index, request }, answer.response)),
            }
            let polls = &mut self.polls;
            answers.extend(self.world.run(|state, recorder, now| polls.answer(state, (recorder, now), 0, false)));
            for (Waiting { index, request }, response) in answers {
                self.take(index, &request, &response);
                let is_latest = response.sequence == self.hands[index].sequence;
                speakers.extend((is_latest && response.verdict == Verdict::Continue).then_some(index));
            }
        }
    }

    fn take(&mut self, index: usize, request: &SyncRequest, response: &SyncResponse) {
        let now = self.world.now.mono_ms;
        let has = |key: &&AttemptKey| self.hands[index].queued.iter().any(|promise| promise.key == **key);
        self.moves += response.give_back.iter().filter(has).count();
        self.hands[index].take(request, response, now);
        let hand = &mut self.hands[index];
        let cpus = |promises: &[Promise]| promises.iter().map(|promise| promise.demand.cpus).sum::<i64>();
        let capacity = hand.introduction.capacity.cpus;
        while hand.queued.first().is_some_and(|next| cpus(&hand.running) + next.demand.cpus <= capacity) {
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

    /// Jobs that a runner runs, and jobs that wait in it.
    fn held(&self, index: usize) -> (usize, usize) {
        (self.hands[index].running.len(), self.hands[index].queued.len())
    }

    /// Whoever is free has nothing to do only because nothing waits, or what waits has moved twice.
    fn check_nobody_is_idle_beside_waiting_work(&self) {
        let workflow = self.world.state.workflows.values().next().unwrap();
        let is_stuck = |promise: &Promise| {
            let job = workflow.ordinal(JobId(promise.key.job)).unwrap();
            workflow.jobs[job as usize].moves >= 2
        };
        let waiting = self.hands.iter().flat_map(|hand| &hand.queued).filter(|promise| !is_stuck(promise)).count();
        let ready = workflow.counts.of(JobState::Ready);
        let is_free = |hand: &SimRunner| (hand.running.len() as i64) < hand.introduction.capacity.cpus;
        let free = self.hands.iter().filter(|hand| is_free(hand)).count();
        assert!(free == 0 || waiting == 0 && ready == 0, "{free} are free, {waiting} jobs wait, {ready} are ready");
    }

    fn ran_by(&self, index: usize) -> usize {
        self.ran.values().filter(|runner| **runner == index).count()
    }
}

// P01, P06
#[test]
fn two_idle_runners_share_the_jobs() {
    let mut hall = Hall::idle(4);
    let hands = [hall.hire(4), hall.hire(4)];
    hands.into_iter().for_each(|index| hall.speak(index));
    hall.world.apply(&Plan::new((0..8).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))));
    hall.speak(0);
    assert_eq!(hands.map(|index| hall.held(index)), [(4, 0), (4, 0)]);
    assert_eq!(hall.moves, 0, "nothing was given to the wrong one");
}

// P03, P06. Nobody waits for an unrelated event.
#[test]
fn work_is_queued_as_soon_as_nobody_is_free() {
    let mut hall = Hall::idle(4);
    let hands = [hall.hire(4), hall.hire(4)];
    hands.into_iter().for_each(|index| hall.speak(index));
    hall.world.apply(&Plan::new((0..13).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))));
    hall.speak(0);
    assert_eq!(hands.map(|index| hall.held(index).0), [4, 4]);
    let queued = hands.map(|index| hall.held(index).1);
    assert_eq!(queued.iter().sum::<usize>(), 5, "all of it waits where it runs next: {queued:?}");
}

#[test]
fn an_offer_counts_only_for_jobs_that_it_fits() {
    let plan = Plan::new((0..6).map(|n| job(&format!("j{n}")).needs(needs(2, 0, 1))));
    let mut hall = Hall::idle(2);
    let (small, large) = (hall.hire(1), hall.hire(2));
    hall.speak(small);
    hall.world.apply(&plan);
    hall.speak(large);
    assert_eq!((hall.held(small), hall.held(large)), ((0, 0), (1, 2)), "the small runner can start none of them");
}

#[test]
fn an_offer_ends_when_its_runner_is_not_heard_of() {
    let mut hall = Hall::idle(4);
    let (lost, busy) = (hall.hire(4), hall.hire(4));
    hall.speak(lost);
    hall.world.apply(&Plan::new((0..8).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))));
    // Its connection is gone, and it does not take what it could have.
    hall.polls.take_all();
    for (pass_ms, queued, why) in [(32_000, 0, "it may be there"), (1, 4, "it does not wait any more")] {
        hall.world.now.mono_ms += pass_ms;
        let message = hall.message(busy);
        let id = hall.id(busy);
        let response = hall.world.sync(id, &message);
        hall.take(busy, &message, &response);
        assert_eq!(hall.held(busy), (4, queued), "{why}");
    }
}

// P01
#[test]
fn an_idle_runner_gets_its_share_before_the_loaded_one_has_finished() {
    let mut hall = Hall::new(40, 100);
    let loaded = hall.hire(2);
    hall.speak(loaded);
    assert_eq!(hall.held(loaded), (2, 38), "it has everything");
    let idle = hall.hire(2);
    hall.speak(idle);
    assert_eq!(hall.held(idle).0, 2, "it has work although nothing has ended");
    assert!(hall.held(loaded).1 >= 19, "and the other keeps half of what waited");
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
fn everything_that_an_idle_runner_can_start_comes_to_it() {
    let mut hall = Hall::new(8, 4);
    let loaded = hall.hire(4);
    hall.speak(loaded);
    assert_eq!(hall.held(loaded), (4, 4));
    let idle = hall.hire(4);
    hall.speak(idle);
    assert_eq!((hall.held(loaded), hall.held(idle), hall.moves), ((4, 0), (4, 0), 4));
}

#[test]
fn free_capacity_beside_running_jobs_takes_leases_over_too() {
    let mut hall = Hall::new(9, 4);
    let loaded = hall.hire(4);
    hall.speak(loaded);
    let other = hall.hire(4);
    hall.speak(other);
    assert_eq!((hall.held(loaded), hall.held(other)), ((4, 1), (4, 0)), "one was ready, three came over");
    let third = hall.hire(2);
    hall.speak(third);
    assert_eq!((hall.held(loaded), hall.held(third)), ((4, 0), (1, 0)));
}

#[test]
fn nothing_is_taken_from_who_would_be_idle_or_for_whom_it_does_not_fit() {
    let mut hall = Hall::new(4, 10);
    let loaded = hall.hire(8);
    hall.speak(loaded);
    let idle = hall.hire(8);
    hall.speak(idle);
    assert_eq!(hall.moves, 0, "all of it runs");
    let mut hall = Hall::of(&Plan::new((0..8).map(|n| job(&format!("j{n}")).needs(needs(1, 1, 1)))), 10);
    let loaded = hall.hire(2);
    hall.speak(loaded);
    let mut without = sized("small", 2);
    without.capacity.gpus = 0;
    let idle = hall.hire_as(without);
    hall.speak(idle);
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
fn a_lease_moves_at_most_twice() {
    let mut hall = Hall::new(12, 100);
    let hands = [hall.hire(1), hall.hire(1)];
    hall.speak(0);
    hall.speak(1);
    assert!(hall.held(1).1 > 1, "more than it can start came to it");
    // Now one, now the other is idle; nothing ends that the other has.
    for round in 0..20 {
        let index = hands[round % 2];
        hall.finish(index);
        hall.speak(index);
    }
    let moves = |hall: &Hall| {
        let workflow = hall.world.state.workflows.values().next().unwrap();
        workflow.jobs.iter().map(|job| job.moves).max()
    };
    assert!(moves(&hall) <= Some(2) && hall.moves <= 24, "{:?}", moves(&hall));
    assert_eq!(hall.ran.len(), 12);
}

#[test]
fn a_lease_that_has_moved_twice_stays() {
    let mut hall = Hall::new(2, 4);
    let (loaded, idle) = (hall.hire(1), 1);
    hall.speak(loaded);
    for moves in [0, 1, 2] {
        let workflow = hall.world.workflow();
        let mut hall_again = Hall::new(2, 4);
        assert_eq!(hall_again.hire(1), loaded);
        hall_again.speak(loaded);
        let jobs = &mut hall_again.world.state.workflows.get_mut(&workflow).unwrap().jobs;
        jobs.iter_mut().for_each(|job| job.moves = moves);
        assert_eq!(hall_again.hire(1), idle);
        hall_again.speak(idle);
        assert_eq!(hall_again.held(idle).0, usize::from(moves < 2), "moved {moves} times before");
    }
}

#[test]
fn a_runner_that_has_started_it_keeps_it() {
    let mut hall = Hall::new(6, 10);
    let loaded = hall.hire(2);
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
fn others_are_asked_when_a_holder_does_not_answer() {
    let mut hall = Hall::idle(1);
    let holders = [hall.hire(1), hall.hire(1)];
    hall.world.apply(&Plan::new((0..4).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))));
    holders.into_iter().for_each(|index| hall.speak(index));
    assert_eq!(holders.map(|index| hall.held(index)), [(1, 1), (1, 1)]);
    let idle = hall.hire(1);
    let request = hall.message(idle);
    let id = hall.id(idle);
    hall.world.sync(id, &request);
    let asked = |hall: &Hall| {
        holders.map(|index| hall.world.state.runners[&hall.id(index)].asked_back.len()).iter().sum::<usize>()
    };
    for (ms, expected) in [(0, 1), (1_999, 1), (1, 2)] {
        hall.world.now.mono_ms += ms;
        hall.world.run(|state, recorder, now| state.poll(id, &request, recorder, now));
        assert_eq!(asked(&hall), expected, "{ms} ms later");
    }
}

#[test]
fn many_waiting_leases_cost_no_more_than_a_few() {
    let mut hall = Hall::new(1_500, 1_500);
    let loaded = hall.hire(2);
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
            hall.check_nobody_is_idle_beside_waiting_work();
        }
        for _ in 0..jobs + 10 {
            for index in 0..hall.hands.len() {
                hall.finish(index);
                hall.speak(index);
            }
        }
        prop_assert_eq!(hall.ran.len(), jobs);
        prop_assert!(hall.moves <= 2 * jobs, "{} moves of {jobs} jobs: each moves twice at most", hall.moves);
    }
}
