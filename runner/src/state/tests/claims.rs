//! Requests for work: free resources, jobs ahead, and their limits.

use torc_api::wire::{RunnerPolicy, WorkRequest};

use super::*;
use crate::state::work_request::free_capacity;

fn is_too_late(agent: &AgentHarness, now: BootInstant) -> bool {
    agent.state.deadlines.is_too_late(agent.state.session.policy(), now)
}

/// Returns a runner whose jobs stay in its queue, because their input files have not been found yet.
fn with_queue(capacity: Resources, needs: &[Resources]) -> AgentHarness {
    let nodes = (0..capacity.nodes).map(|node| format!("n{node}")).collect();
    let allocation = StepAllocation { job_id: "77".to_owned(), srun: "srun".to_owned(), nodes };
    let allocation = (capacity.nodes > 1).then_some(allocation);
    let devices = (0..capacity.gpus / capacity.nodes).map(|gpu| gpu.to_string()).collect();
    let mut agent = AgentHarness::with(AgentSettings { capacity, devices, allocation, ..settings(1) });
    let input_files = vec!["in".to_owned()];
    let profiles =
        needs.iter().map(|resources| Profile { resources: *resources, input_files: input_files.clone(), ..profile(1) });
    let leases =
        (1..).zip(0..needs.len()).map(|(job, at)| Lease { profile: u32::try_from(at).expect("few"), ..lease(job) });
    let response = SyncResponse {
        sequence: agent.state.session.sequence(),
        leases: leases.collect(),
        profiles: profiles.collect(),
        lease_ms: 120_000,
        ..SyncResponse::default()
    };
    agent.handle(AgentEvent::Answered(Box::new(response)));
    assert_eq!(agent.state.job_counts(), (0, needs.len()), "all of them wait");
    agent
}

// J06, J39, P06
#[test]
fn what_waits_is_not_offered_as_free() {
    let all = |cpus, memory_bytes, gpus, nodes| Resources { cpus, memory_bytes, gpus, nodes };
    let capacity = all(16, 1_000, 4, 1);
    let cases: [(Resources, &[Resources], Resources, &str); 8] = [
        (capacity, &[], all(16, 1_000, 4, 1), "nothing waits"),
        (capacity, &[all(3, 10, 1, 1)], all(13, 990, 3, 1), "one waits"),
        (capacity, &[all(3, 10, 1, 1), all(2, 200, 2, 1)], all(11, 790, 1, 1), "two wait"),
        (capacity, &[all(5, 300, 0, 1); 3], all(1, 100, 4, 1), "a node is not used up by jobs of one node"),
        (capacity, &[all(1, 700, 3, 1); 2], all(15, 300, 1, 1), "one that does not fit takes nothing"),
        (capacity, &[all(16, 0, 0, 1)], all(0, 1_000, 4, 1), "no CPU is left"),
        (all(16, 1_000, 4, 4), &[all(2, 25, 1, 3)], all(4, 250, 1, 1), "whole nodes are taken"),
        (all(16, 1_000, 4, 4), &[all(2, 25, 1, 1)], all(14, 975, 3, 4), "one node is shared"),
    ];
    for (capacity, needs, expected, why) in cases {
        let agent = with_queue(capacity, needs);
        // A full runner asks for nothing, so the computation is called directly.
        assert_eq!(free_capacity(&agent.state.jobs, agent.now), expected, "{why}");
    }
}

// P02. Nodes are kept for a job of several nodes earlier than for a job of one node.
#[test]
fn large_jobs_are_passed_over_for_a_bounded_time() {
    let on_nodes = |nodes| Resources { cpus: 2, memory_bytes: 25, gpus: 0, nodes };
    let capacity = Resources { cpus: 16, memory_bytes: 1_000, gpus: 0, nodes: 4 };
    for (need, most) in [(on_nodes(1), 300), (on_nodes(2), 10)] {
        let agent = with_queue(capacity, &[need]);
        let job = agent.state.jobs.iter().next().expect("it waits").1;
        for (more_us, is_too_long) in [(0, false), (1, true)] {
            let now = job.since.plus(Duration::from_secs(most) + Duration::from_micros(more_us));
            assert_eq!(job.is_starved(now), is_too_long, "{need:?} after {most} s");
        }
    }
}

// P01, P02, J08
#[test]
fn slots_that_waiting_jobs_will_take_are_not_asked_for_again() {
    for (slots, waiting, expected) in [(4, 0, 4), (4, 1, 3), (4, 3, 1), (4, 4, 0)] {
        let mut agent = AgentHarness::with(AgentSettings {
            user: RunnerSettings { max_parallel_jobs: Some(slots), ..user() },
            ..settings(1)
        });
        agent.profile.input_files = vec!["in".to_owned()];
        agent.answer(1..=waiting);
        let want = agent.state.work_request(agent.now);
        assert_eq!(want.limit, expected, "{slots} slots, {waiting} wait");
    }
    let own = Prefetch { refill_threshold: Some(9), max_queued: Some(9), ..Prefetch::default() };
    let mut agent = AgentHarness::with(AgentSettings {
        user: RunnerSettings { max_parallel_jobs: Some(4), ..user() },
        prefetch: own,
        ..settings(1)
    });
    agent.answer([1]).started(1);
    agent.profile.input_files = vec!["in".to_owned()];
    agent.until_due();
    agent.answer([2]);
    agent.state.throughput.jobs_running(3);
    assert_eq!(agent.state.job_counts(), (1, 1));
    let want = agent.state.work_request(agent.now);
    assert_eq!((want.ahead, want.limit), (2, 4), "three slots are free, and one of them is promised");
}

// P04
#[test]
fn jobs_at_the_shim_count_as_waiting() {
    let own =
        Prefetch { refill_threshold: Some(3), max_queued: Some(5), horizon_seconds: Some(1), ..Prefetch::default() };
    let mut agent = AgentHarness::with(AgentSettings { prefetch: own, ..settings(1) });
    for _ in 0..9 {
        agent.state.throughput.job_ended(Duration::from_millis(4));
    }
    agent.answer(1..=5).started(1);
    assert_eq!(agent.state.jobs.handed(), 2, "two of them are at the shim");
    assert_eq!(agent.state.jobs.queue().len(), 2, "two are in the queue");
    assert_eq!(agent.state.work_request(agent.now), WorkRequest::default(), "four wait, and three would be enough");
    let ended = |job, successor| JobExit {
        successor: Some(key(successor)),
        started: test_start(),
        ended: test_start().plus(Duration::from_millis(4)),
        ..ended(job, Outcome::Exited(0), test_start())
    };
    agent.handle(AgentEvent::Ended(Box::new(ended(1, 2)))).started(2);
    assert_eq!(agent.state.work_request(agent.now), WorkRequest::default(), "three wait: that is the threshold");
    agent.handle(AgentEvent::Ended(Box::new(ended(2, 3)))).started(3);
    let want = agent.state.work_request(agent.now);
    assert_eq!((want.ahead, want.limit), (3, 3), "two wait, and five are wanted");
}

fn test_start() -> BootInstant {
    BootInstant(1_000 * SECOND)
}

// P04, P06. Long jobs are not hoarded. The youngest job tells how long jobs are.
#[test]
fn the_youngest_job_shows_whether_jobs_are_long() {
    for (first, second, ahead) in [(10, 10, 2), (31, 10, 2), (10, 31, 2), (31, 31, 0), (30, 30, 2)] {
        let mut agent = AgentHarness::new(2);
        agent.answer([1, 2]);
        agent.state.throughput.job_ended(Duration::from_secs(1));
        agent.state.throughput.jobs_running(2);
        let now = agent.now;
        for (job, age) in [(1, first), (2, second)] {
            agent.handle(AgentEvent::Started(key(job), now.minus(Duration::from_secs(age)), 100));
        }
        assert_eq!(agent.state.work_request(agent.now).ahead, ahead, "{first} s and {second} s");
    }
}

// P04
#[test]
fn a_full_runner_asks_ahead_and_a_starving_one_at_once() {
    let mut agent = AgentHarness::new(2);
    agent.answer([1, 2]).started(1).started(2);
    let full = agent.state.work_request(agent.now);
    assert_eq!((full.free.cpus, full.ahead, full.limit), (0, 2, 2), "one ahead for each that runs");
    agent.until_due();
    agent.answer([3]);
    assert_eq!(agent.state.work_request(agent.now), WorkRequest::default(), "one of two waits: the threshold is one");
    agent.until_due();
    agent.answer([4]);
    assert_eq!(
        (agent.state.job_counts(), agent.state.work_request(agent.now)),
        ((2, 2), WorkRequest::default()),
        "two wait"
    );
    agent.ended(1, 0).started(3);
    assert_eq!(
        (agent.state.job_counts(), agent.state.work_request(agent.now)),
        ((2, 1), WorkRequest::default()),
        "one waits"
    );
    agent.ended(2, 0).started(4);
    assert_eq!(agent.state.work_request(agent.now).ahead, 2, "none waits");
}

// P05
#[test]
fn a_batch_bounds_what_comes_at_once_also_on_an_empty_runner() {
    for (batch_size, limit) in [(None, 7), (Some(3), 3), (Some(7), 7), (Some(8), 7), (Some(1), 1), (Some(0), 1)] {
        let prefetch = Prefetch { batch_size, ..Prefetch::default() };
        let agent = AgentHarness::with(AgentSettings { prefetch, ..settings(7) });
        assert_eq!(agent.sync().want.limit, limit, "{batch_size:?}");
    }
}

// J20. To the microsecond, while the runner lives.
#[test]
fn new_jobs_are_claimed_only_while_the_time_exceeds_the_minimum() {
    let began = test_start();
    let time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(400)) });
    let minimum = RunnerPolicy { min_time_for_new_jobs_seconds: 70, ..RunnerPolicy::default() };
    for (left_us, is_late) in [(70_000_001, false), (70_000_000, true), (69_999_999, true)] {
        let now = began.plus(Duration::from_secs(400)).minus(Duration::from_micros(left_us));
        for max_parallel_jobs in [Some(2), None] {
            let user = RunnerSettings { max_parallel_jobs, ..user() };
            let mut agent = AgentHarness::with(AgentSettings { user, time, ..settings(1) });
            agent.respond(SyncResponse { terms: minimum, ..SyncResponse::default() });
            let expected = is_late && max_parallel_jobs.is_some();
            assert_eq!(is_too_late(&agent, now), expected, "{left_us} µs are left, {max_parallel_jobs:?}");
        }
    }
    let mut agent = AgentHarness::with(AgentSettings {
        user: RunnerSettings { max_parallel_jobs: Some(2), ..user() },
        ..settings(1)
    });
    agent.respond(SyncResponse { terms: minimum, ..SyncResponse::default() });
    assert!(!is_too_late(&agent, BootInstant(u64::MAX)), "time has no end");
}

// P03, P09. A report goes at once only where it can bring work.
#[test]
fn starving_means_free_and_nothing_waiting() {
    let mut agent = AgentHarness::new(2);
    assert!(agent.state.jobs.is_starving(), "empty");
    agent.answer([1]);
    assert!(agent.state.jobs.is_starving(), "one of two CPUs is free");
    agent.until_due();
    agent.answer([2, 3]);
    assert!(!agent.state.jobs.is_starving(), "full, and one waits");
    agent.started(1).started(2).ended(1, 0);
    assert!(!agent.state.jobs.is_starving(), "full, and none waits");
    agent.started(3).ended(2, 0);
    assert!(agent.state.jobs.is_starving(), "one of two is free again");
}
