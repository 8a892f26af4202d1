//! The time line before an end, to the millisecond.

use torc_api::execution::ExecutionConfig;

use super::*;

/// Returns an agent whose time is over after `seconds`.
fn with_seconds_left(seconds: u64, config: ExecutionConfig) -> AgentHarness {
    let began = BootInstant(1_000 * SECOND);
    let time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(seconds)) });
    let mut agent = AgentHarness::with(AgentSettings { time, ..settings(4) });
    agent.profile.execution_config = Some(config);
    agent
}

fn observed(agent: &AgentHarness) -> Vec<String> {
    let lines = agent.effects.iter().filter_map(|effect| match effect {
        Effect::Log(RunnerEvent::Terminating { workflow, count }) => Some(format!("{count} of {workflow}")),
        Effect::Log(RunnerEvent::Signaled { key, signal }) => Some(format!("job {} signal {signal}", key.job)),
        Effect::Log(RunnerEvent::Waiting { lead }) => Some(format!("wait {lead:?}")),
        _ => None,
    });
    lines.collect()
}

/// Answers every sync until jobs are asked to end. Returns the time since the beginning.
fn until_terminated(agent: &mut AgentHarness, began: BootInstant) -> Duration {
    while agent.terminated().is_empty() {
        if agent.has_sync() {
            agent.answer([]);
        } else {
            agent.until_due();
        }
    }
    agent.now.since(began)
}

// X05, X06, X16, J24
#[test]
fn the_time_line_before_the_end_of_its_time() {
    let mut settings = settings(2);
    let began = BootInstant(1_000 * SECOND);
    settings.time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(600)) });
    let mut agent = AgentHarness::with(settings);
    assert_eq!(agent.sync().remaining_ms, Some(600_000));
    agent.answer([1, 2]);
    agent.started(1).started(2);
    while agent.terminated().is_empty() {
        if agent.has_sync() {
            agent.answer([]);
        } else {
            agent.until_due();
        }
    }
    assert_eq!(agent.now.since(began), Duration::from_secs(600 - 60 - 30));
    assert_eq!(agent.terminated(), [(1, 15, 30_000), (2, 15, 30_000)]);
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Exited(0), agent.now))));
    agent.handle(AgentEvent::Ended(Box::new(ended(2, Outcome::Signaled(9), agent.now))));
    let result = |job| {
        let report = &agent.state.reports[&key(job)].finished;
        (report.return_code, report.cause)
    };
    assert_eq!((result(1), result(2)), ((0, None), (152, Some(Cause::Timeout))));
    agent.answer([]);
    assert_eq!(agent.exit(), None);
}

#[test]
fn a_declared_runtime_is_enforced_when_asked_for() {
    let mut agent = AgentHarness::new(1);
    agent.profile.execution_config = Some(ExecutionConfig {
        enforce_runtime: Some(true),
        termination_signal: Some("USR1".to_owned()),
        timeout_exit_code: Some(77),
        ..ExecutionConfig::default()
    });
    agent.answer([1]);
    agent.started(1);
    agent.later(Duration::from_millis(59_999));
    assert!(agent.terminated().is_empty());
    agent.later(Duration::from_millis(1));
    assert_eq!(agent.terminated(), [(1, 10, 30_000)]);
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(10), agent.now))));
    assert_eq!(agent.state.reports[&key(1)].finished.return_code, 77);
}

// X05, X17
#[test]
fn headroom_lead_and_signal_are_the_workflows() {
    let cases = [
        (None, None, None, 510_000, 15, 30_000),
        (Some("SIGINT"), Some(60), Some(90), 450_000, 2, 60_000),
        (Some("USR2"), Some(0), Some(7), 593_000, 12, 0),
        (None, Some(1), Some(0), 599_000, 15, 1_000),
    ];
    for (signal, lead, headroom, at, number, lead_ms) in cases {
        let mut agent = with_seconds_left(
            600,
            ExecutionConfig {
                termination_signal: signal.map(str::to_owned),
                sigterm_lead_seconds: lead,
                sigkill_headroom_seconds: headroom,
                ..ExecutionConfig::default()
            },
        );
        let began = agent.now;
        agent.answer([1]);
        agent.started(1);
        assert_eq!(until_terminated(&mut agent, began), Duration::from_millis(at), "{signal:?}");
        assert_eq!(agent.terminated(), [(1, number, lead_ms)]);
    }
}

// X18
#[test]
fn what_is_said_about_it() {
    let mut agent = with_seconds_left(600, ExecutionConfig::default());
    let began = agent.now;
    agent.answer([1, 2, 3]);
    let serving = agent.effects.iter().find_map(|effect| match effect {
        Effect::Log(RunnerEvent::Serving { workflow, mode, limit_resources, .. }) => {
            Some((*workflow, mode.to_string(), *limit_resources))
        }
        _ => None,
    });
    assert_eq!(serving, Some((1, "Direct".to_owned(), true)));
    agent.started(1).started(2).started(3);
    until_terminated(&mut agent, began);
    assert_eq!(observed(&agent), ["3 of 1", "job 1 signal 15", "job 2 signal 15", "job 3 signal 15", "wait 30s"]);
}

// X05
#[test]
fn a_late_signal_does_not_make_sigkill_late() {
    let mut agent = with_seconds_left(600, ExecutionConfig::default());
    agent.answer([1]);
    agent.started(1).later(Duration::from_secs(1)).answer([]);
    // The machine was suspended at the moment of the signal, and 12,345 ms longer.
    agent.later(Duration::from_millis(509_000 + 12_345));
    assert_eq!(agent.terminated(), [(1, 15, 30_000 - 12_345)]);
}

// X05
#[test]
fn nothing_starts_that_would_be_asked_to_end_at_once() {
    let mut agent = with_seconds_left(600, ExecutionConfig::default());
    agent.later(Duration::from_millis(509_999));
    agent.answer([1]);
    assert_eq!(agent.starts(), [1]);
    let mut agent =
        with_seconds_left(600, ExecutionConfig { sigkill_headroom_seconds: Some(61), ..ExecutionConfig::default() });
    agent.later(Duration::from_millis(509_999));
    agent.answer([1]);
    assert_eq!(agent.starts(), Vec::<i64>::new());
}

// X16
#[test]
fn how_a_job_that_was_asked_to_end_is_counted() {
    let cases = [
        (Outcome::Exited(0), 0, None),
        (Outcome::Exited(3), 152, Some(Cause::Timeout)),
        (Outcome::Signaled(15), 152, Some(Cause::Timeout)),
        (Outcome::Signaled(9), 152, Some(Cause::Timeout)),
    ];
    for (outcome, code, cause) in cases {
        let mut agent = with_seconds_left(600, ExecutionConfig::default());
        let began = agent.now;
        agent.answer([1]);
        agent.started(1);
        until_terminated(&mut agent, began);
        agent.handle(AgentEvent::Ended(Box::new(ended(1, outcome.clone(), agent.now))));
        let report = &agent.state.reports[&key(1)].finished;
        assert_eq!((report.return_code, report.cause), (code, cause), "{outcome:?}");
    }
}

// X15
#[test]
fn the_deadline_holds_without_limits() {
    let mut agent =
        with_seconds_left(600, ExecutionConfig { limit_resources: Some(false), ..ExecutionConfig::default() });
    let began = agent.now;
    agent.answer([1]);
    agent.started(1);
    assert_eq!(until_terminated(&mut agent, began), Duration::from_secs(510));
}

// J24. Ninety seconds are the default headroom and lead.
#[test]
fn near_the_end_waiting_leases_return_and_no_work_is_taken() {
    let short = ExecutionConfig {
        sigkill_headroom_seconds: Some(2),
        sigterm_lead_seconds: Some(1),
        ..ExecutionConfig::default()
    };
    let mut agent = with_seconds_left(600, short);
    let began = agent.now;
    agent.answer(1..=5);
    assert_eq!(agent.starts(), [1, 2, 3, 4]);
    (1..=4).for_each(|job| {
        agent.started(job);
    });
    while agent.state.job_counts() == (4, 1) {
        if agent.has_sync() {
            agent.answer([]);
        } else {
            agent.until_due();
        }
    }
    assert_eq!(agent.now.since(began), Duration::from_secs(510));
    assert_eq!((agent.state.job_counts(), agent.state.work_request(agent.now).limit), ((4, 0), 0));
    assert!(agent.state.reports.returned().contains(&key(5)), "{:?}", agent.state.reports.returned());
    assert_eq!(agent.terminated(), [], "who has a shorter headroom and lead goes on");
}

// J24
#[test]
fn a_runner_without_work_leaves_when_its_end_is_near() {
    let mut agent = with_seconds_left(600, ExecutionConfig::default());
    let began = agent.now;
    agent.answer([]);
    while !agent.effects.iter().any(|effect| matches!(effect, Effect::Sync(_, request) if request.leaving)) {
        if agent.has_sync() {
            agent.answer([]);
        } else {
            agent.until_due();
        }
    }
    assert_eq!(agent.now.since(began), Duration::from_secs(510));
    agent.answer([]);
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Deadline)));
}

// X05
#[test]
fn whatever_is_left_at_the_end_is_killed() {
    let mut agent = with_seconds_left(600, ExecutionConfig::default());
    let began = agent.now;
    agent.answer([1]);
    agent.started(1);
    until_terminated(&mut agent, began);
    agent.effects.clear();
    until_terminated(&mut agent, began);
    assert_eq!((agent.now.since(began), agent.terminated()), (Duration::from_secs(600), vec![(1, 9, 0)]));
}

/// Answers every sync up to a moment.
fn pass_until(agent: &mut AgentHarness, end: BootInstant) {
    for _ in 0..10_000 {
        if agent.has_sync() {
            agent.answer([]);
        } else if agent.state.wake_at().is_some_and(|due| due < end) {
            agent.until_due();
        } else {
            agent.now = end;
            agent.handle(AgentEvent::Tick);
            return;
        }
    }
    panic!("time does not pass: {:?}", agent.state);
}

// J24. Ninety seconds before the end, but not in the first half of a short life.
#[test]
fn a_short_life_takes_work_for_half_of_it() {
    let began = BootInstant(1_000 * SECOND);
    for (life_ms, close_ms) in [(600_000, 510_000), (180_002, 90_002), (180_000, 90_000), (179_000, 89_500), (10, 5)] {
        let time = Some(TimeSpan { began, end: began.plus(Duration::from_millis(life_ms)) });
        let open = |at_ms| {
            let mut agent = AgentHarness::with(AgentSettings { time, ..settings(1) });
            pass_until(&mut agent, began.plus(Duration::from_millis(at_ms)));
            *agent.state.lifecycle.phase() == Phase::Serving
        };
        assert!(open(close_ms - 1), "a life of {life_ms} ms takes work until {close_ms} ms");
        assert!(!open(close_ms), "a life of {life_ms} ms takes no work from {close_ms} ms on");
    }
}

// J24. The runner wakes up for it.
#[test]
fn the_close_and_the_end_of_its_time_wake_the_runner() {
    let began = BootInstant(1_000 * SECOND);
    let time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(100)) });
    let mut agent =
        AgentHarness::with(AgentSettings { user: RunnerSettings { long_poll: false, ..user() }, time, ..settings(1) });
    agent.handle(AgentEvent::Adopted(Box::new(shim_job(9, began))));
    agent.state.session.drain(BootInstant(u64::MAX));
    agent.effects.clear();
    for (after, phase) in [(49, "Serving"), (50, "Ending")] {
        agent.now = began.plus(Duration::from_secs(after));
        agent.handle(AgentEvent::Tick);
        let name = format!("{:?}", agent.state.lifecycle.phase());
        assert!(name.starts_with(phase), "{after} s: {name}");
        assert!(agent.state.wake_at().is_some_and(|due| due <= began.plus(Duration::from_secs(100))), "{after} s");
    }
}

// X05. The actions of a worker's end are left out when no time is left for them.
#[test]
fn at_the_very_end_no_last_commands_are_asked_for() {
    let began = BootInstant(1_000 * SECOND);
    for (after_ms, completing) in [(599_999, true), (600_000, false), (600_001, false)] {
        let mut agent = with_seconds_left(600, ExecutionConfig::default());
        agent.answer([1]);
        agent.started(1);
        pass_until(&mut agent, began.plus(Duration::from_millis(after_ms)));
        if agent.has_sync() {
            agent.answer([]);
        }
        agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(9), agent.now))));
        let sync = agent.sync();
        assert_eq!((sync.completing, sync.leaving), (completing, !completing), "{after_ms} ms");
        assert_eq!(sync.finished.len(), 1, "{after_ms} ms: the result is reported all the same");
    }
}

// X05
#[test]
fn when_the_signal_and_sigkill_are_due() {
    use crate::protocol::StartTemplate;
    let end = BootInstant(1_000 * SECOND);
    let before = |moment: BootInstant| end.since(moment).as_millis();
    let cases = [
        (false, 60_000, 30_000, (90_000, 60_000), "the signal by the lead before SIGKILL, SIGKILL by the headroom"),
        (false, 10_000, 30_000, (40_000, 10_000), "a short headroom"),
        (false, 0, 2_000, (2_000, 0), "no headroom"),
        (false, 7_000, 0, (7_000, 7_000), "no lead"),
        (true, 60_000, 30_000, (30_000, 15_000), "Slurm ends steps when the headroom begins"),
        (true, 20_000, 30_000, (20_000, 10_000), "not before the headroom begins"),
    ];
    for (in_step, headroom_ms, lead_ms, expected, why) in cases {
        let template = StartTemplate { in_step, headroom_ms, lead_ms, ..StartTemplate::default() };
        assert_eq!((before(template.signal_time(end)), before(template.kill_time(end))), expected, "{why}");
    }
}

// X05, X16. An enforced runtime counts if it is the earlier end.
#[test]
fn the_earlier_of_the_two_ends_counts() {
    let began = BootInstant(1_000 * SECOND);
    let cases = [
        (true, 100, 600, 100, "its runtime"),
        (true, 509, 600, 509, "its runtime, just before the other"),
        (true, 511, 600, 510, "the end of the runner's time"),
        (true, 0, 600, 510, "it declares no runtime"),
        (false, 100, 600, 510, "its runtime is not enforced"),
    ];
    for (enforce, runtime, life, expected, why) in cases {
        let mut agent =
            with_seconds_left(life, ExecutionConfig { enforce_runtime: Some(enforce), ..ExecutionConfig::default() });
        agent.profile.runtime_seconds = runtime;
        agent.answer([1]);
        agent.started(1);
        assert_eq!(until_terminated(&mut agent, began), Duration::from_secs(expected), "{why}");
    }
}

// X05, X18. Jobs are counted for each workflow, and the longest lead is logged.
#[test]
fn what_is_said_when_workflows_differ() {
    let mut agent = AgentHarness::new(4);
    agent.answer([1, 2]);
    agent.started(1).started(2);
    let other = AttemptKey { workflow: 8, job: 3, run: 2, attempt: 4, lease_id: 70 };
    agent.until_due();
    agent.profile.execution_config = Some(ExecutionConfig {
        sigterm_lead_seconds: Some(45),
        termination_signal: Some("SIGUSR2".to_owned()),
        ..ExecutionConfig::default()
    });
    agent.respond(SyncResponse { leases: vec![Lease { key: other, ..lease(3) }], ..SyncResponse::default() });
    agent.handle(AgentEvent::Started(other, agent.now, 103));
    agent.handle(AgentEvent::Stop);
    assert_eq!(
        observed(&agent),
        ["2 of 1", "1 of 8", "job 1 signal 15", "job 2 signal 15", "job 3 signal 12", "wait 45s"],
        "each workflow once, each job once, the longest wait"
    );
    assert_eq!(agent.terminated(), [(1, 15, 30_000), (2, 15, 30_000), (3, 12, 45_000)]);
}

// X18. Without a lead the runner does not wait.
#[test]
fn without_a_lead_no_wait_is_told() {
    let config = ExecutionConfig { sigterm_lead_seconds: Some(0), ..ExecutionConfig::default() };
    let mut agent = with_seconds_left(600, config);
    agent.answer([1]);
    agent.started(1).handle(AgentEvent::Stop);
    assert_eq!(observed(&agent), ["1 of 1", "job 1 signal 15"]);
}

// X05. A job that has ended, and whose files are being checked, is not asked to end.
#[test]
fn a_job_that_has_ended_is_not_asked_to_end() {
    let began = BootInstant(1_000 * SECOND);
    let mut agent = with_seconds_left(600, ExecutionConfig::default());
    agent.profile.output_files = vec!["out".to_owned()];
    agent.answer([1]);
    agent.started(1).ended(1, 0);
    assert!(agent.state.jobs.contains_key(&key(1)), "its files are being looked for");
    agent.now = began.plus(Duration::from_secs(510));
    agent.handle(AgentEvent::Tick);
    assert_eq!((agent.terminated(), observed(&agent)), (vec![], vec![]));
}

/// Answers every sync until leases are returned. Returns the time since the beginning, and the leases.
fn until_returned(agent: &mut AgentHarness, began: BootInstant) -> (Duration, Vec<i64>) {
    while agent.state.reports.returned().is_empty() {
        if agent.has_sync() {
            agent.answer([]);
        } else {
            agent.until_due();
        }
    }
    assert_eq!(agent.state.reports.returned(), agent.state.reports.out_of_time(), "the reason is reported");
    (agent.now.since(began), agent.state.reports.returned().iter().map(|key| key.job).collect())
}

fn two_minutes_of_headroom() -> ExecutionConfig {
    ExecutionConfig { sigkill_headroom_seconds: Some(120), ..ExecutionConfig::default() }
}

/// A job of one minute has to start before the first signal is due; a job of five minutes may lose one.
// J39, X05
#[test]
fn a_lease_that_cannot_start_in_time_is_returned() {
    for (runtime, latest_start) in [(60, 600 - 151), (300, 600 - 390)] {
        let mut agent = with_seconds_left(600, two_minutes_of_headroom());
        agent.profile.runtime_seconds = runtime;
        let began = agent.now;
        agent.answer([1, 2, 3, 4, 5]);
        agent.started(1).started(2).started(3).started(4);
        let (after, jobs) = until_returned(&mut agent, began);
        assert_eq!(jobs, [5], "what waits behind the four that run");
        let due = Duration::from_secs(latest_start + 5);
        assert!(after > due && after <= due + Duration::from_secs(1), "{runtime}: {after:?}");
        let observed = agent
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Log(RunnerEvent::OutOfTime { key: late, .. }) if *late == key(5)));
        assert!(observed, "{:?}", agent.effects);
    }
}

#[test]
fn by_number_of_jobs_the_declared_runtime_is_ignored() {
    let began = BootInstant(1_000 * SECOND);
    let time = Some(TimeSpan { began, end: began.plus(Duration::from_secs(600)) });
    let user = RunnerSettings { max_parallel_jobs: Some(4), ..user() };
    let mut agent = AgentHarness::with(AgentSettings { user, time, ..settings(4) });
    agent.profile.execution_config = Some(two_minutes_of_headroom());
    agent.profile.runtime_seconds = 86_400;
    agent.answer([1, 2, 3, 4, 5]);
    agent.started(1).started(2).started(3).started(4);
    assert_eq!(until_returned(&mut agent, began).1, [5]);
    assert!(agent.now.since(began) > Duration::from_secs(449), "{:?}", agent.now.since(began));
}
