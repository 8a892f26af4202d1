//! The way from a lease to a start: resources, order, followers, and returned leases.

use torc_api::execution::{ExecutionConfig, ExecutionMode};
use torc_api::wire::LeaseRole;

use super::*;
use crate::state::jobs::JobStage;

fn orders(agent: &AgentHarness) -> Vec<(i64, bool)> {
    let orders = agent.effects.iter().filter_map(|effect| match effect {
        Effect::Start(order, _) => Some((order.key.job, order.in_turn)),
        _ => None,
    });
    orders.collect()
}

fn returned(agent: &AgentHarness) -> Vec<i64> {
    agent.state.reports.returned().iter().map(|key| key.job).collect()
}

// J21, J22, J39
#[test]
fn an_order_says_everything_about_a_start() {
    let mut agent =
        AgentHarness::with(AgentSettings { devices: vec!["GPU-a".to_owned(), "GPU-b".to_owned()], ..settings(4) });
    agent.profile.resources = Resources { cpus: 2, memory_bytes: 9, gpus: 2, nodes: 1 };
    let key = AttemptKey { workflow: 3, job: 14, run: 15, attempt: 9, lease_id: 26 };
    let env = [("OWN".to_owned(), "1".to_owned())].into();
    let lease = Lease { key, name: "name".to_owned(), command: "prog x".to_owned(), env, ..Lease::default() };
    agent.respond(SyncResponse { leases: vec![lease], ..SyncResponse::default() });
    let Some(Effect::Start(order, _)) = agent.effects.iter().find(|effect| matches!(effect, Effect::Start(..))) else {
        panic!("no start in {:?}", agent.effects)
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = StartOrder {
        key,
        role: LeaseRole::Job,
        name: "name".to_owned(),
        template: 1,
        argv: vec!["prog".to_owned(), "x".to_owned()],
        env: vec![
            pair("TORC_RUN_ID", "15"),
            pair("TORC_ATTEMPT_ID", "9"),
            pair("TORC_JOB_ID", "14"),
            pair("TORC_JOB_NAME", "name"),
            pair("OWN", "1"),
            pair("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"),
            pair("HIP_VISIBLE_DEVICES", "GPU-a,GPU-b"),
            pair("ROCR_VISIBLE_DEVICES", "GPU-a,GPU-b"),
            pair("TORC_GPU_VISIBLE_DEVICES", "GPU-a,GPU-b"),
        ],
        devices: vec!["GPU-a".to_owned(), "GPU-b".to_owned()],
        nodes: Vec::new(),
        step_limit_ms: None,
        class: 0,
        in_turn: false,
        until: BootInstant(1_120 * SECOND),
    };
    assert_eq!(**order, expected);
    assert_eq!(agent.state.jobs[&key].devices, ["GPU-a", "GPU-b"]);
}

// J06. The server's order between workflows stays.
#[test]
fn queued_leases_of_a_workflow_start_by_urgency() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    agent.started(1).until_due();
    let of = |workflow: i64, job: i64| {
        let key = AttemptKey { workflow, ..key(job) };
        Lease { key, ..lease(job) }
    };
    let leases = vec![
        of(2, 10),
        of(1, 20),
        Lease { downstream_seconds: 60, ..of(1, 21) },
        Lease { priority: 1, ..of(1, 22) },
        Lease { downstream_seconds: 60, ..of(1, 23) },
    ];
    agent.respond(SyncResponse { leases, ..SyncResponse::default() });
    let order: Vec<i64> = agent.state.jobs.queue().map(|key| key.job).collect();
    assert_eq!(order, [10, 22, 21, 23, 20]);
    agent.ended(1, 0);
    assert_eq!(agent.starts(), [10]);
}

// J06, J39
#[test]
fn what_can_never_fit_or_has_no_profile_goes_back_at_once() {
    let too_big = [
        Resources { cpus: 3, ..profile(1).resources },
        Resources { memory_bytes: (1 << 30) + 1, ..profile(1).resources },
        Resources { gpus: 2, ..profile(1).resources },
        Resources { nodes: 2, ..profile(1).resources },
    ];
    for resources in too_big {
        let mut agent = AgentHarness::with(AgentSettings { devices: vec!["0".to_owned()], ..settings(2) });
        agent.profile.resources = resources;
        agent.answer([1]);
        assert_eq!((agent.starts(), returned(&agent)), (vec![], vec![1]), "{resources:?}");
    }
    let mut agent = AgentHarness::with(AgentSettings { devices: vec!["0".to_owned()], ..settings(2) });
    agent.profile.resources = Resources { cpus: 2, memory_bytes: 1 << 30, gpus: 1, nodes: 1 };
    agent.answer([1]);
    assert_eq!((agent.starts(), returned(&agent)), (vec![1], vec![]), "all of the node");
    let mut agent = AgentHarness::new(2);
    agent.respond(SyncResponse { leases: vec![Lease { profile: 1, ..lease(1) }], ..SyncResponse::default() });
    assert_eq!((agent.starts(), returned(&agent)), (vec![], vec![1]), "there is one profile, number 0");
    // A lease that arrives again is not a second job; one that was returned may come back.
    agent.later(Duration::from_millis(100));
    agent.answer([1]);
    assert_eq!((agent.starts(), returned(&agent)), (vec![1], vec![]));
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.answer([1]);
    assert_eq!(agent.starts(), Vec::<i64>::new());
}

#[test]
fn a_lease_of_a_job_whose_result_waits_is_not_started_again() {
    let mut agent = AgentHarness::new(2);
    agent.answer([1]).started(1);
    agent.until_due();
    agent.answer([]);
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Exited(0), agent.now))));
    assert!(agent.state.reports.contains_key(&key(1)));
    agent.fail(LinkError::Unreachable("x".to_owned())).until_due();
    let mut state_before = agent.state.job_counts();
    agent.state.take_leases(vec![lease(1)], &[profile(1)], agent.now, &mut agent.effects);
    assert_eq!(std::mem::replace(&mut state_before, agent.state.job_counts()), agent.state.job_counts());
    assert!(!agent.state.jobs.contains_key(&key(1)));
}

// P02. Small jobs pass a large one for five minutes.
#[test]
fn a_big_job_is_passed_over_for_five_minutes() {
    for (waited_ms, starts) in [(299_999, vec![4]), (300_000, vec![4]), (300_001, vec![])] {
        let mut agent = AgentHarness::new(3);
        agent.answer([1, 2]);
        agent.started(1).started(2);
        while !agent.has_sync() {
            agent.until_due();
        }
        let came = agent.now;
        let sequence = agent.state.session.sequence();
        agent.handle(AgentEvent::Answered(Box::new(SyncResponse {
            sequence,
            leases: vec![Lease { profile: 1, ..lease(3) }, Lease { profile: 2, ..lease(4) }],
            profiles: vec![profile(1), profile(3), Profile { input_files: vec!["in".to_owned()], ..profile(1) }],
            lease_ms: 600_000,
            ..SyncResponse::default()
        })));
        agent.now = came.plus(Duration::from_millis(waited_ms));
        agent.handle(AgentEvent::InputsChecked(key(4), Ok(Vec::new())));
        assert_eq!(agent.starts(), starts, "{waited_ms} ms");
    }
}

// J32, P08. Without the server a job has to fit into the time of its lease.
#[test]
fn without_a_server_a_job_starts_if_its_lease_is_long_enough() {
    for (failing, runtime, left, starts) in [
        (true, 20, 20_000, true),
        (true, 20, 19_999, false),
        (true, 0, 0, true),
        (false, 2_000, 1, true),
        (false, 2_000, 0, true),
    ] {
        let mut agent = AgentHarness::new(1);
        agent.profile.runtime_seconds = runtime;
        agent.profile.input_files = vec!["in".to_owned()];
        agent.answer([1]);
        if failing {
            if !agent.has_sync() {
                agent.until_due();
            }
            agent.fail(LinkError::Unreachable("x".to_owned()));
        }
        agent.now = agent.state.session.lease_until().minus(Duration::from_millis(left));
        // A lease that expires now is dropped first.
        let inputs = &mut agent.state.jobs.get_mut(&key(1)).expect("it waits").inputs;
        *inputs = jobs::Inputs::Found(Vec::new());
        let mut effects = Vec::new();
        agent.state.start_jobs(agent.now, &mut effects);
        let started = effects.iter().any(|effect| matches!(effect, Effect::Start(..)));
        assert_eq!(started, starts, "failing {failing}, {runtime} s, {left} ms are left");
    }
}

// P08. An expired lease does not start, and is dropped at once.
#[test]
fn an_unstarted_lease_is_given_up_when_its_time_is_over() {
    for (left_us, holds) in [(1, (0, 1)), (0, (0, 0))] {
        let mut agent = AgentHarness::new(1);
        agent.profile.input_files = vec!["in".to_owned()];
        agent.answer([1]);
        agent.now = agent.state.session.lease_until().minus(Duration::from_micros(left_us));
        agent.handle(AgentEvent::Tick);
        assert_eq!(agent.state.job_counts(), holds, "{left_us} µs are left");
        assert_eq!(returned(&agent), Vec::<i64>::new(), "{left_us} µs: it is not ours to give back");
    }
}

// P08. A start that the server does not know is undone with the lease; a known one goes on.
#[test]
fn a_secret_start_ends_with_its_lease() {
    for (is_known, left_us, killed) in [(false, 1, vec![]), (false, 0, vec![(1, 9, 0)]), (true, 0, vec![])] {
        let mut agent = AgentHarness::new(1);
        agent.answer([1]);
        agent.started(1);
        if is_known {
            agent.later(Duration::from_millis(100));
            agent.answer([]);
        }
        agent.now = agent.state.session.lease_until().minus(Duration::from_micros(left_us));
        agent.handle(AgentEvent::Tick);
        assert_eq!(agent.terminated(), killed, "known: {is_known}, {left_us} µs are left");
        if !killed.is_empty() {
            assert_eq!(agent.state.jobs[&key(1)].ending.map(|ending| ending.why), Some(StopReason::LeaseLost));
        }
    }
}

// P03. Only jobs without devices, further nodes and steps follow each other at the shim.
#[test]
fn what_is_handed_to_the_shim_in_advance() {
    let allocation = || Some(StepAllocation { job_id: "7".to_owned(), srun: "srun".to_owned(), nodes: Vec::new() });
    let direct = ExecutionConfig { mode: Some(ExecutionMode::Direct), ..ExecutionConfig::default() };
    let cases = [
        (None, 0, None, 2, "plain jobs"),
        (None, 1, None, 0, "the next one may get another device"),
        (allocation(), 0, None, 0, "steps"),
        (allocation(), 0, Some(direct), 2, "direct jobs in an allocation"),
    ];
    for (allocation, gpus, config, handed, why) in cases {
        let devices = vec!["0".to_owned()];
        let mut agent = AgentHarness::with(AgentSettings { allocation, devices, ..settings(1) });
        agent.profile.resources.gpus = gpus;
        agent.profile.execution_config = config;
        agent.state.throughput.job_ended(Duration::from_millis(4));
        agent.answer(1..=4);
        let mut expected = vec![(1, false)];
        expected.extend((2..2 + handed).map(|job| (job, true)));
        assert_eq!(orders(&agent), expected, "{why}");
    }
    // The server cannot learn of starts, so the agent decides about each.
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.fail(LinkError::Unreachable("x".to_owned()));
    agent.state.take_leases((1..=4).map(lease).collect(), &[profile(1)], agent.now, &mut Vec::new());
    agent.handle(AgentEvent::Tick);
    assert_eq!(orders(&agent), [(1, false)]);
}

// P03. Two running jobs have twice as many followers; each class has its own.
#[test]
fn followers_are_counted_for_each_that_runs() {
    let mut agent = AgentHarness::new(3);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer(1..=12);
    let ahead = orders(&agent).iter().filter(|(_, in_turn)| *in_turn).count();
    assert_eq!((orders(&agent).len() - ahead, ahead), (3, 6), "three run, two follow each");
    assert_eq!(agent.state.job_counts(), (3, 9));
    assert_eq!(agent.state.jobs.handed(), 6);
    assert_eq!(agent.state.jobs.unstarted().len(), 9);
}

// J12, J23
#[test]
fn who_is_welcome_in_which_phase() {
    use LeaseRole::{Action, Job, Recovery};
    let exit = RunnerExit::Stopped;
    let later = BootInstant(u64::MAX);
    let phases = [
        (Phase::Serving, [true, true, true]),
        (Phase::Ending(Ok(exit)), [false, false, false]),
        (Phase::Completing(exit, later), [false, true, false]),
        (Phase::Leaving(exit, later), [false, false, false]),
        (Phase::Gone, [false, false, false]),
    ];
    for (phase, expected) in phases {
        let mut agent = AgentHarness::new(1);
        agent.state.lifecycle.set_phase(phase.clone());
        assert_eq!([Job, Action, Recovery].map(|role| agent.state.accepts(role)), expected, "{phase:?}");
    }
    let mut agent = AgentHarness::new(1);
    agent.state.jobs.set_in_service(0, false);
    assert_eq!([Job, Action, Recovery].map(|role| agent.state.accepts(role)), [false, true, true], "no node");
}

// X05. A task needs its own headroom before the end of the runner's time.
#[test]
fn an_auxiliary_task_starts_until_its_headroom_begins() {
    let began = BootInstant(1_000 * SECOND);
    let end = began.plus(Duration::from_secs(40));
    for (left_ms, starts, gone) in [(10_001, vec![1], vec![]), (10_000, vec![], vec![1]), (9_999, vec![], vec![1])] {
        let mut agent = AgentHarness::with(AgentSettings { time: Some(TimeSpan { began, end }), ..settings(1) });
        agent.now = end.minus(Duration::from_millis(left_ms));
        agent.state.lifecycle.set_phase(Phase::Completing(RunnerExit::Deadline, end));
        let task = Lease { role: LeaseRole::Action, ..lease(1) };
        agent.respond(SyncResponse { leases: vec![task], ..SyncResponse::default() });
        assert_eq!((agent.starts(), returned(&agent)), (starts, gone), "{left_ms} ms are left");
    }
}

// J16. A job that the shim did not start frees its resources, and waits at the front again.
#[test]
fn a_revoked_start_waits_again_or_goes_back() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1, 2]);
    assert_eq!(agent.starts(), [1]);
    agent.handle(AgentEvent::Revoked(key(1)));
    assert_eq!(agent.starts(), [1], "before the second, which came later");
    assert_eq!(agent.state.jobs[&key(1)].stage, JobStage::Starting);
    assert_eq!((agent.state.job_counts(), agent.state.jobs.ledger().free().cpus), ((1, 1), 0));
    agent.handle(AgentEvent::Stop);
    agent.handle(AgentEvent::Revoked(key(1)));
    assert_eq!((agent.state.job_counts(), returned(&agent)), ((0, 0), vec![1, 2]));
    assert_eq!(agent.state.jobs.ledger().free().cpus, 1);
}

#[test]
fn a_cancellation_reaches_what_the_shim_was_given_in_advance() {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer(1..=3);
    agent.started(1).later(Duration::from_millis(100));
    agent.respond(SyncResponse { cancel: vec![key(3)], ..SyncResponse::default() });
    let revoked: Vec<i64> = agent
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Revoke(keys) => Some(keys.iter().map(|key| key.job).collect::<Vec<_>>()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(revoked, [3]);
    assert_eq!(agent.state.jobs[&key(3)].stage, JobStage::Recalled);
    // It had started in the meantime, and is ended for the given reason.
    let mut first = ended(1, Outcome::Exited(0), agent.now);
    first.successor = Some(key(3));
    agent.handle(AgentEvent::Ended(Box::new(first)));
    agent.started(3);
    assert_eq!(agent.terminated(), [(3, 15, 30_000)]);
    assert_eq!(agent.state.jobs[&key(3)].ending.map(|ending| ending.why), Some(StopReason::Canceled));
    assert_eq!(agent.state.jobs.ledger().free().cpus, 0, "it has the place of the first");
}

// A repeated cancellation does not signal a job again.
#[test]
fn a_cancellation_that_is_repeated_is_not_repeated_to_the_job() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    agent.started(1).later(Duration::from_millis(100));
    agent.respond(SyncResponse { cancel: vec![key(1)], ..SyncResponse::default() });
    assert_eq!(agent.terminated(), [(1, 15, 30_000)]);
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.later(Duration::from_millis(1));
    agent.respond(SyncResponse { cancel: vec![key(1)], ..SyncResponse::default() });
    assert_eq!(agent.terminated(), []);
    // A job that starts only now is ended after its start.
    let mut agent = AgentHarness::new(1);
    agent.answer([2]);
    agent.later(Duration::from_millis(100));
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.respond(SyncResponse { cancel: vec![key(2)], ..SyncResponse::default() });
    assert_eq!(agent.terminated(), [(2, 15, 30_000)], "the shim has the order to start it");
    agent.started(2);
    assert_eq!(agent.terminated(), [(2, 15, 30_000)], "and gets the signal again once it runs");
}

// P03. A job whose input files have not been found is not handed to the shim.
#[test]
fn nothing_is_handed_to_the_shim_that_may_not_start() {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer([1]).started(1);
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.profile.input_files = vec!["in".to_owned()];
    agent.answer([2]);
    assert_eq!(orders(&agent), [], "its files are being looked for");
    agent.handle(AgentEvent::InputsChecked(key(2), Ok(Vec::new())));
    assert_eq!(orders(&agent), [(2, true)]);
}

// P03. A handed job that starts because resources are free counts as running.
#[test]
fn a_released_job_counts_as_running() {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer(1..=6).started(1);
    assert_eq!((agent.state.jobs.running_in_class(0), agent.state.jobs.handed()), (1, 2));
    let over = JobExit::new(key(1), agent.now.minus(Duration::from_millis(4)), agent.now, Outcome::Exited(0));
    agent.handle(AgentEvent::Ended(Box::new(over)));
    assert!(agent.effects.iter().any(|effect| matches!(effect, Effect::StartNow(next) if *next == key(2))));
    assert_eq!((agent.state.jobs.running_in_class(0), agent.state.jobs.handed()), (1, 2), "and two follow again");
}

// P03. A handed job that could not start never counted as running.
#[test]
fn a_follower_that_did_not_start_changes_no_count() {
    let mut agent = AgentHarness::new(1);
    agent.state.throughput.job_ended(Duration::from_millis(4));
    agent.answer(1..=3).started(1);
    assert_eq!(agent.state.jobs.running_in_class(0), 1);
    let outcome = Outcome::NotStarted { code: 127, message: String::new() };
    agent.handle(AgentEvent::Ended(Box::new(JobExit::new(key(2), agent.now, agent.now, outcome))));
    assert_eq!(agent.state.jobs.running_in_class(0), 1, "the first one runs");
}
