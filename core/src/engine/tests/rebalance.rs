//! Jobs go to free capacity first, waiting leases move to runners that can start them, and every job runs exactly
//! once.

use std::collections::BTreeMap;

use proptest::prelude::*;
use torc_api::state::JobState;
use torc_api::wire::{AttemptKey, RegisterRequest, Resources, RunnerDirective, SyncRequest, SyncResponse, WorkRequest};

use super::fleet::{Promise, SimRunner};
use super::harness::{EngineHarness, runner};
use super::plan::{Plan, job, needs};
use crate::engine::{LongPoll, LongPolls};
use crate::ids::{JobId, RunnerId};

/// Returns a runner with this number of CPUs.
fn sized(host: &str, cpus: i64) -> RegisterRequest {
    let capacity = Resources { cpus, ..runner("").capacity };
    RegisterRequest { capacity, ..runner(host) }
}

/// Runners that start what fits, lease ahead, and wait on the server for a change.
struct Fleet {
    harness: EngineHarness,
    runners: Vec<SimRunner>,
    polls: LongPolls<u64, Waiting>,
    /// The runner that ran each job.
    ran: BTreeMap<i64, usize>,
    moves: usize,
    ahead: u32,
}

/// The message of a runner that waits for an answer.
struct Waiting {
    index: usize,
    request: SyncRequest,
}

impl Fleet {
    fn new(jobs: usize, ahead: u32) -> Self {
        Self::of(&Plan::new((0..jobs).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))), ahead)
    }

    fn of(plan: &Plan, ahead: u32) -> Self {
        Self::in_world(EngineHarness::with(plan), ahead)
    }

    /// Returns a fleet without a workflow.
    fn idle(ahead: u32) -> Self {
        Self::in_world(EngineHarness::new(), ahead)
    }

    fn in_world(harness: EngineHarness, ahead: u32) -> Self {
        let polls = LongPolls::new(&harness.engine);
        Self { harness, runners: Vec::new(), polls, ran: BTreeMap::new(), moves: 0, ahead }
    }

    fn register(&mut self, cpus: i64) -> usize {
        let host = format!("host{}", self.runners.len());
        self.register_as(sized(&host, cpus))
    }

    fn register_as(&mut self, introduction: RegisterRequest) -> usize {
        let mut runner = SimRunner::new(introduction);
        runner.id = Some(self.harness.register(&runner.introduction));
        self.runners.push(runner);
        self.runners.len() - 1
    }

    fn id(&self, index: usize) -> RunnerId {
        self.runners[index].id.unwrap()
    }

    /// Returns the number of leases that a runner has to return.
    fn asked_back(&self, index: usize) -> usize {
        self.harness.engine.runners.get(&self.id(index)).unwrap().return_request_count()
    }

    fn message(&mut self, index: usize) -> SyncRequest {
        let now = self.harness.now.mono_ms;
        let runner = &mut self.runners[index];
        let queued = runner.queued.len() as u32;
        let mut request = runner.message(self.ahead.saturating_sub(queued), 0, now);
        let idle = u32::try_from(request.want.free.cpus).unwrap();
        let wants = idle > 0 || queued < self.ahead / 2;
        request.want = if wants {
            WorkRequest { limit: idle + request.want.ahead, ..request.want }
        } else {
            WorkRequest::default()
        };
        request.wait_ms = 30_000;
        request
    }

    /// A runner syncs and waits. Each runner that is answered starts what fits and syncs again, as real runners do.
    fn sync(&mut self, index: usize) {
        let mut pending = vec![index];
        while let Some(index) = pending.pop() {
            let request = self.message(index);
            let id = self.id(index);
            let answer = self.harness.try_sync(id, &request).unwrap();
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
            answers.extend(self.harness.run(|engine, tx| polls.answer(engine, tx, 0, false)));
            for (Waiting { index, request }, response) in answers {
                self.take(index, &request, &response);
                let is_latest = response.sequence == self.runners[index].sequence;
                pending.extend((is_latest && response.directive == RunnerDirective::Continue).then_some(index));
            }
        }
    }

    fn take(&mut self, index: usize, request: &SyncRequest, response: &SyncResponse) {
        let now = self.harness.now.mono_ms;
        let has = |key: &&AttemptKey| self.runners[index].queued.iter().any(|promise| promise.key == **key);
        self.moves += response.give_back.iter().filter(has).count();
        self.runners[index].take(request, response, now);
        let runner = &mut self.runners[index];
        let cpus = |promises: &[Promise]| promises.iter().map(|promise| promise.demand.cpus).sum::<i64>();
        let capacity = runner.introduction.capacity.cpus;
        while runner.queued.first().is_some_and(|next| cpus(&runner.running) + next.demand.cpus <= capacity) {
            runner.start(0, now);
        }
    }

    /// Ends the oldest job of a runner.
    fn finish(&mut self, index: usize) {
        let runner = &mut self.runners[index];
        if let Some(promise) = runner.running.first() {
            let job = promise.key.job;
            assert_eq!(self.ran.insert(job, index), None, "job {job} ran twice");
            runner.finish(0, None);
        }
    }

    /// Returns the numbers of running and of waiting jobs of a runner.
    fn held(&self, index: usize) -> (usize, usize) {
        (self.runners[index].running.len(), self.runners[index].queued.len())
    }

    /// Checks that no runner has free capacity while a lease waits that may still move.
    fn check_no_runner_is_idle_beside_waiting_work(&self) {
        let workflow = self.harness.engine.workflows.values().next().unwrap();
        let is_stuck = |promise: &Promise| {
            let job = workflow.graph.ordinal(JobId(promise.key.job)).unwrap();
            workflow.graph.job(job).moves() >= 2
        };
        let waiting =
            self.runners.iter().flat_map(|runner| &runner.queued).filter(|promise| !is_stuck(promise)).count();
        let ready = workflow.graph.counts().of(JobState::Ready);
        let is_free = |runner: &SimRunner| (runner.running.len() as i64) < runner.introduction.capacity.cpus;
        let free = self.runners.iter().filter(|runner| is_free(runner)).count();
        assert!(free == 0 || waiting == 0 && ready == 0, "{free} are free, {waiting} jobs wait, {ready} are ready");
    }

    fn ran_by(&self, index: usize) -> usize {
        self.ran.values().filter(|runner| **runner == index).count()
    }
}

// P01, P06
#[test]
fn two_idle_runners_share_the_jobs() {
    let mut fleet = Fleet::idle(4);
    let both = [fleet.register(4), fleet.register(4)];
    both.into_iter().for_each(|index| fleet.sync(index));
    fleet.harness.apply(&Plan::new((0..8).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))));
    fleet.sync(0);
    assert_eq!(both.map(|index| fleet.held(index)), [(4, 0), (4, 0)]);
    assert_eq!(fleet.moves, 0, "nothing was given to the wrong one");
}

// P03, P06. No runner waits for an unrelated event.
#[test]
fn work_is_queued_as_soon_as_no_runner_is_free() {
    let mut fleet = Fleet::idle(4);
    let both = [fleet.register(4), fleet.register(4)];
    both.into_iter().for_each(|index| fleet.sync(index));
    fleet.harness.apply(&Plan::new((0..13).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))));
    fleet.sync(0);
    assert_eq!(both.map(|index| fleet.held(index).0), [4, 4]);
    let queued = both.map(|index| fleet.held(index).1);
    assert_eq!(queued.iter().sum::<usize>(), 5, "all of it waits where it runs next: {queued:?}");
}

#[test]
fn an_offer_counts_only_for_jobs_that_it_fits() {
    let plan = Plan::new((0..6).map(|n| job(&format!("j{n}")).needs(needs(2, 0, 1))));
    let mut fleet = Fleet::idle(2);
    let (small, large) = (fleet.register(1), fleet.register(2));
    fleet.sync(small);
    fleet.harness.apply(&plan);
    fleet.sync(large);
    assert_eq!((fleet.held(small), fleet.held(large)), ((0, 0), (1, 2)), "the small runner can start none of them");
}

#[test]
fn an_offer_ends_when_its_runner_is_not_heard_of() {
    let mut fleet = Fleet::idle(4);
    let (lost, busy) = (fleet.register(4), fleet.register(4));
    fleet.sync(lost);
    fleet.harness.apply(&Plan::new((0..8).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))));
    // Its connection is lost, and it does not take the jobs that it could start.
    fleet.polls.take_all();
    for (pass_ms, queued, why) in [(32_000, 0, "it may be there"), (1, 4, "it does not wait any more")] {
        fleet.harness.now.mono_ms += pass_ms;
        let message = fleet.message(busy);
        let id = fleet.id(busy);
        let response = fleet.harness.sync(id, &message);
        fleet.take(busy, &message, &response);
        assert_eq!(fleet.held(busy), (4, queued), "{why}");
    }
}

/// Returns a busy runner whose leases are withheld in favor of a runner with free capacity that does not take them.
fn withheld() -> Fleet {
    let mut fleet = Fleet::idle(4);
    let (free, busy) = (fleet.register(4), fleet.register(4));
    fleet.sync(free);
    // The jobs arrive while the free runner has no connection.
    fleet.polls.take_all();
    fleet.harness.apply(&Plan::new((0..8).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))));
    fleet.sync(busy);
    assert_eq!(fleet.held(busy), (4, 0), "four are kept for the free runner");
    fleet
}

/// Answers the waiting runners that have something new.
fn poll(fleet: &mut Fleet) {
    let polls = &mut fleet.polls;
    let answers = fleet.harness.run(|engine, tx| polls.answer(engine, tx, 0, false));
    for (Waiting { index, request }, response) in answers {
        fleet.take(index, &request, &response);
    }
}

#[test]
fn withheld_leases_come_when_the_free_runner_leaves() {
    let mut fleet = withheld();
    poll(&mut fleet);
    assert_eq!(fleet.held(1), (4, 0), "nothing has changed");
    let leaving = SyncRequest { leaving: true, ..fleet.message(0) };
    let id = fleet.id(0);
    fleet.harness.sync(id, &leaving);
    poll(&mut fleet);
    assert_eq!(fleet.held(1), (4, 4));
}

#[test]
fn withheld_leases_come_when_the_offer_expires() {
    for (passed_ms, queued) in [(32_000, 0), (32_001, 4)] {
        let mut fleet = withheld();
        fleet.harness.now.mono_ms += passed_ms;
        fleet.harness.run(|engine, tx| engine.expire(tx));
        poll(&mut fleet);
        assert_eq!(fleet.held(1), (4, queued), "{passed_ms} ms later");
    }
}

#[test]
fn withheld_leases_come_when_the_free_runner_is_busy() {
    let mut fleet = withheld();
    fleet.harness.apply(&Plan::new((0..12).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))));
    fleet.sync(0);
    assert_eq!([0, 1].map(|index| fleet.held(index).0), [4, 4]);
    assert_eq!([0, 1].map(|index| fleet.held(index).1).iter().sum::<usize>(), 4, "the rest is queued at once");
}

// P01
#[test]
fn an_idle_runner_gets_its_share_early() {
    let mut fleet = Fleet::new(40, 100);
    let loaded = fleet.register(2);
    fleet.sync(loaded);
    assert_eq!(fleet.held(loaded), (2, 38), "it has everything");
    let idle = fleet.register(2);
    fleet.sync(idle);
    assert_eq!(fleet.held(idle).0, 2, "it has work although nothing has ended");
    assert!(fleet.held(loaded).1 >= 19, "and the other keeps half of what waited");
    for _ in 0..40 {
        for index in [loaded, idle] {
            fleet.finish(index);
            fleet.sync(index);
        }
    }
    assert_eq!(fleet.ran.len(), 40);
    assert!(fleet.ran_by(idle) >= 15, "{} of 40", fleet.ran_by(idle));
}

#[test]
fn everything_that_an_idle_runner_can_start_comes_to_it() {
    let mut fleet = Fleet::new(8, 4);
    let loaded = fleet.register(4);
    fleet.sync(loaded);
    assert_eq!(fleet.held(loaded), (4, 4));
    let idle = fleet.register(4);
    fleet.sync(idle);
    assert_eq!((fleet.held(loaded), fleet.held(idle), fleet.moves), ((4, 0), (4, 0), 4));
}

#[test]
fn free_capacity_beside_running_jobs_takes_leases_over_too() {
    let mut fleet = Fleet::new(9, 4);
    let loaded = fleet.register(4);
    fleet.sync(loaded);
    let other = fleet.register(4);
    fleet.sync(other);
    assert_eq!((fleet.held(loaded), fleet.held(other)), ((4, 1), (4, 0)), "one was ready, three came over");
    let third = fleet.register(2);
    fleet.sync(third);
    assert_eq!((fleet.held(loaded), fleet.held(third)), ((4, 0), (1, 0)));
}

#[test]
fn leases_move_only_where_they_help() {
    let mut fleet = Fleet::new(4, 10);
    let loaded = fleet.register(8);
    fleet.sync(loaded);
    let idle = fleet.register(8);
    fleet.sync(idle);
    assert_eq!(fleet.moves, 0, "all of it runs");
    let mut fleet = Fleet::of(&Plan::new((0..8).map(|n| job(&format!("j{n}")).needs(needs(1, 1, 1)))), 10);
    let loaded = fleet.register(2);
    fleet.sync(loaded);
    let mut without = sized("small", 2);
    without.capacity.gpus = 0;
    let idle = fleet.register_as(without);
    fleet.sync(idle);
    assert_eq!(fleet.moves, 0, "it has no GPU");
}

#[test]
fn who_runs_nothing_yet_is_left_alone() {
    let mut fleet = Fleet::new(4, 10);
    let loaded = fleet.register(2);
    let now = fleet.harness.now.mono_ms;
    for _ in 0..2 {
        let (id, request) = (fleet.id(loaded), fleet.runners[loaded].message(4, 4, now));
        let response = fleet.harness.sync(id, &request);
        fleet.runners[loaded].take(&request, &response, now);
    }
    assert_eq!(fleet.runners[loaded].queued.len(), 4, "it has everything, and has started none of it");
    let idle = fleet.register(2);
    fleet.sync(idle);
    assert_eq!(fleet.asked_back(loaded), 0);
}

#[test]
fn a_lease_moves_at_most_twice() {
    let mut fleet = Fleet::new(12, 100);
    let both = [fleet.register(1), fleet.register(1)];
    fleet.sync(0);
    fleet.sync(1);
    assert!(fleet.held(1).1 > 1, "more than it can start came to it");
    // The runners are idle in turn; neither ends a job of the other.
    for round in 0..20 {
        let index = both[round % 2];
        fleet.finish(index);
        fleet.sync(index);
    }
    let moves = |fleet: &Fleet| {
        let workflow = fleet.harness.engine.workflows.values().next().unwrap();
        workflow.graph.iter().map(|(_, job)| job.moves()).max()
    };
    assert!(moves(&fleet) <= Some(2) && fleet.moves <= 24, "{:?}", moves(&fleet));
    assert_eq!(fleet.ran.len(), 12);
}

#[test]
fn a_lease_that_has_moved_twice_stays() {
    let mut fleet = Fleet::new(2, 4);
    let (loaded, idle) = (fleet.register(1), 1);
    fleet.sync(loaded);
    for moves in [0, 1, 2] {
        let workflow = fleet.harness.workflow();
        let mut again = Fleet::new(2, 4);
        assert_eq!(again.register(1), loaded);
        again.sync(loaded);
        let graph = &mut again.harness.engine.workflows.get_mut(&workflow).unwrap().graph;
        for job in graph.ordinals() {
            (0..moves).for_each(|_| graph.count_move(job));
        }
        assert_eq!(again.register(1), idle);
        again.sync(idle);
        assert_eq!(again.held(idle).0, usize::from(moves < 2), "moved {moves} times before");
    }
}

#[test]
fn a_runner_that_has_started_it_keeps_it() {
    let mut fleet = Fleet::new(6, 10);
    let loaded = fleet.register(2);
    fleet.sync(loaded);
    let idle = fleet.register(1);
    // The loaded runner starts everything before it receives the request to return leases.
    let now = fleet.harness.now.mono_ms;
    let (id, request) = (fleet.id(idle), fleet.runners[idle].message(0, 1, now));
    fleet.harness.sync(id, &request);
    while !fleet.runners[loaded].queued.is_empty() {
        fleet.runners[loaded].start(0, now);
    }
    let request = fleet.runners[loaded].message(0, 0, now);
    let answer = fleet.harness.sync(fleet.id(loaded), &request);
    assert_eq!((answer.give_back.len(), answer.cancel.len()), (0, 0));
}

#[test]
fn others_are_asked_when_a_holder_does_not_answer() {
    let mut fleet = Fleet::idle(1);
    let holders = [fleet.register(1), fleet.register(1)];
    fleet.harness.apply(&Plan::new((0..4).map(|n| job(&format!("j{n}")).needs(needs(1, 0, 1)))));
    holders.into_iter().for_each(|index| fleet.sync(index));
    assert_eq!(holders.map(|index| fleet.held(index)), [(1, 1), (1, 1)]);
    let idle = fleet.register(1);
    let request = fleet.message(idle);
    let id = fleet.id(idle);
    fleet.harness.sync(id, &request);
    let asked = |fleet: &Fleet| holders.map(|index| fleet.asked_back(index)).iter().sum::<usize>();
    for (ms, expected) in [(0, 1), (1_999, 1), (1, 2)] {
        fleet.harness.now.mono_ms += ms;
        let before = fleet.harness.engine.wake_version();
        fleet.harness.run(|engine, tx| engine.expire(tx));
        assert_eq!(
            fleet.harness.engine.wake_version() > before,
            expected == 2,
            "{ms} ms later: runners are polled again"
        );
        fleet.harness.run(|engine, tx| engine.poll(id, &request, tx));
        assert_eq!(asked(&fleet), expected, "{ms} ms later");
    }
}

#[test]
fn many_waiting_leases_cost_no_more_than_a_few() {
    let mut fleet = Fleet::new(1_500, 1_500);
    let loaded = fleet.register(2);
    fleet.sync(loaded);
    let idle = fleet.register(2);
    let now = fleet.harness.now.mono_ms;
    let mut request = fleet.runners[idle].message(1_500, 1_500, now);
    request.want.free.cpus = 2;
    let id = fleet.id(idle);
    fleet.harness.sync(id, &request);
    let asked = fleet.asked_back(loaded);
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
        let mut fleet = Fleet::new(jobs, ahead);
        for cpus in sizes {
            let index = fleet.register(cpus);
            fleet.sync(index);
        }
        for (who, ends) in order {
            let index = who as usize % fleet.runners.len();
            if ends {
                fleet.finish(index);
            }
            fleet.sync(index);
            fleet.check_no_runner_is_idle_beside_waiting_work();
        }
        for _ in 0..jobs + 10 {
            for index in 0..fleet.runners.len() {
                fleet.finish(index);
                fleet.sync(index);
            }
        }
        prop_assert_eq!(fleet.ran.len(), jobs);
        prop_assert!(fleet.moves <= 2 * jobs, "{} moves of {jobs} jobs: each moves twice at most", fleet.moves);
    }
}
