//! The end of the allocation, which Slurm may move.

use super::*;

fn asked_after(agent: &mut AgentHarness) -> Duration {
    let before = agent.now;
    while agent.until_asked() != [SlurmQuery::TimeLeft] {}
    agent.now.since(before)
}

fn with_time(left: Option<u64>, poll_seconds: u64) -> AgentHarness {
    let began = BootInstant(1_000 * SECOND);
    AgentHarness::with(AgentSettings {
        user: RunnerSettings { poll_interval: Duration::from_secs(poll_seconds), ..user() },
        allocation: allocation(&["n1"]),
        time: left.map(|left| TimeSpan {
            began: began.minus(Duration::from_secs(100_000)),
            end: began.plus(Duration::from_secs(left)),
        }),
        ..settings(1)
    })
}

// X05. A twentieth of the remaining time, at most ten minutes, at least the poll interval.
#[test]
fn how_often_slurm_is_asked_for_the_end() {
    let cases = [
        (None, 10, 600, "no end is known"),
        (Some(100_000), 10, 600, "ten minutes at most"),
        (Some(12_000), 10, 600, "ten minutes"),
        (Some(11_980), 10, 599, "a twentieth"),
        (Some(220), 10, 11, "a twentieth"),
        (Some(180), 10, 10, "the poll interval at least"),
        (Some(2_000), 700, 600, "ten minutes even with a long poll interval"),
    ];
    for (left, poll, seconds, why) in cases {
        assert_eq!(asked_after(&mut with_time(left, poll)).as_secs(), seconds, "{why}");
    }
    let mut agent = AgentHarness::new(1);
    agent.answer([1]).started(1);
    for _ in 0..50 {
        if agent.has_sync() {
            agent.answer([]);
        } else {
            agent.until_due();
        }
        assert_eq!(queries(&agent), [], "there is no allocation");
    }
}

// X05. Differences of up to two seconds are ignored, because Slurm counts whole seconds. An end that comes more than a
// minute nearer has a reason.
#[test]
fn what_follows_from_another_end() {
    let cases = [
        (0, false, false),
        (2_000, false, false),
        (-2_000, false, false),
        (2_001, true, false),
        (-2_001, true, false),
        (-60_000, true, false),
        (-60_001, true, true),
        (3_600_000, true, false),
    ];
    for (change_ms, moves, is_suspicious) in cases {
        let mut agent = with_time(Some(50_000), 10);
        asked_after(&mut agent);
        let known = agent.state.deadlines.end().expect("an end");
        let left = i64::try_from(known.since(agent.now).as_millis()).expect("fits") + change_ms;
        let left = Duration::from_millis(u64::try_from(left).expect("later"));
        agent.slurm_says(SlurmAnswer::TimeLeft(Some(left)));
        let end = agent.state.deadlines.end().expect("an end");
        let expected = if moves { agent.now.plus(left) } else { known };
        assert_eq!(end, expected, "{change_ms} ms");
        let asked = queries(&agent).contains(&SlurmQuery::Preemption);
        assert_eq!(asked, is_suspicious, "{change_ms} ms");
        let began = agent.state.deadlines.time().expect("an end").began;
        assert_eq!(began, BootInstant(1_000 * SECOND).minus(Duration::from_secs(100_000)), "its beginning stays");
    }
}

// X05. Running jobs are asked to end by the new end.
#[test]
fn a_job_ends_by_the_new_end() {
    for left in [400, 4_000] {
        let mut agent = with_time(Some(2_000), 10);
        let config = ExecutionConfig { mode: Some(ExecutionMode::Direct), ..ExecutionConfig::default() };
        agent.profile.execution_config = Some(config);
        agent.answer([1]);
        agent.started(1);
        asked_after(&mut agent);
        agent.slurm_says(SlurmAnswer::TimeLeft(Some(Duration::from_secs(left))));
        let end = agent.now.plus(Duration::from_secs(left));
        while agent.terminated().is_empty() {
            match queries(&agent).first() {
                Some(SlurmQuery::Preemption) => agent.slurm_says(SlurmAnswer::Preemption(Some(false))),
                Some(_) => agent.slurm_says(SlurmAnswer::TimeLeft(None)),
                None if agent.has_sync() => agent.answer([]),
                None => agent.until_due(),
            };
        }
        assert_eq!(end.since(agent.now), Duration::from_secs(90), "{left} s");
        assert_eq!(agent.terminated(), [(1, 15, 30_000)], "once");
    }
}

// X05. Queries about preemption are rare.
#[test]
fn preemption_is_asked_about_at_most_every_five_seconds() {
    let mut agent = with_time(None, 10);
    agent.state.settings.capacity.cpus = 4;
    agent.answer([1]);
    agent.started(1).ended(1, 143);
    assert_eq!(queries(&agent), [SlurmQuery::Preemption]);
    let asked = agent.now;
    agent.slurm_says(SlurmAnswer::Preemption(Some(false)));
    agent.effects.clear();
    agent.state.allocation.suspect_preemption(agent.now);
    for (after_ms, again) in [(4_999, false), (5_000, true)] {
        agent.now = asked.plus(Duration::from_millis(after_ms));
        agent.handle(AgentEvent::Tick);
        assert_eq!(queries(&agent).contains(&SlurmQuery::Preemption), again, "{after_ms} ms");
    }
    agent.slurm_says(SlurmAnswer::Preemption(Some(true)));
    assert!(agent.effects.iter().any(|effect| matches!(effect, Effect::Log(RunnerEvent::Preempted))));
    agent.state.allocation.suspect_preemption(agent.now);
    agent.later(Duration::from_secs(60));
    assert!(!queries(&agent).contains(&SlurmQuery::Preemption), "it is known");
}

// X10. Steps are extended by whole minutes, counted from their start and without the headroom.
#[test]
fn more_time_for_a_step_is_a_whole_minute_more() {
    let held = |limit_minutes: u64| ShimJob {
        order: step_order(limit_minutes * 60_000),
        started: BootInstant(1_000 * SECOND),
        template: StartTemplate { in_step: true, headroom_ms: 60_000, ..Default::default() },
        ..ShimJob::default()
    };
    // Seconds from the start of the step to the end of the allocation, its minutes, and its possible minutes.
    let cases = [
        (1_800, 29, None),
        (1_859, 29, None),
        (1_860, 29, Some(30)),
        (1_860, 28, Some(30)),
        (1_860, 30, None),
        (1_860, 31, None),
    ];
    for (end, has, more) in cases {
        let mut agent = with_time(Some(end), 10);
        agent.handle(AgentEvent::Adopted(Box::new(held(has))));
        assert_eq!(agent.state.extensions.keys().contains(&key(1)), more.is_some(), "{end} s, {has} min");
        agent.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
        let asked = queries(&agent).into_iter().find_map(|asked| match asked {
            SlurmQuery::Extend { step: 4, minutes, .. } => Some(minutes),
            _ => None,
        });
        assert_eq!(asked, more, "{end} s, {has} min");
    }
}

// X11, S06. To the millisecond before the end of the step.
#[test]
fn a_step_is_warned_to_the_millisecond() {
    for (signal, before) in [("TERM@120", 120), ("USR1@7", 7), ("INT", 60)] {
        let mut agent = with_time(Some(50_000), 10);
        let off = torc_api::execution::ResourceMonitor { enabled: Some(false), ..Default::default() };
        agent.profile.resource_monitor = Some(off);
        let config = ExecutionConfig { srun_termination_signal: Some(signal.to_owned()), ..ExecutionConfig::default() };
        agent.profile.execution_config = Some(config);
        agent.answer([1]);
        agent.started(1);
        let limit = agent.state.jobs[&key(1)].step.limit.expect("a limit");
        let due = agent.now.plus(limit - Duration::from_secs(before));
        agent.state.jobs.get_mut(&key(1)).expect("it runs").step.number = Some(4);
        for (at, warned) in [(due.minus(Duration::from_millis(1)), false), (due, true)] {
            agent.now = at;
            agent.handle(AgentEvent::Tick);
            let name = signal.split('@').next().unwrap_or_default().to_owned();
            let expected = SlurmQuery::Signal { step: 4, signal: name };
            assert_eq!(queries(&agent).contains(&expected), warned, "{signal}");
            assert_eq!(agent.state.jobs[&key(1)].step.is_warned, warned, "{signal}");
        }
    }
}

// X11. An extended step is warned again before its new end.
#[test]
fn more_time_means_another_warning() {
    let mut agent = with_time(Some(7_200), 10);
    let held = ShimJob {
        order: step_order(5 * 60_000),
        started: BootInstant(1_000 * SECOND),
        is_warned: true,
        template: StartTemplate { in_step: true, warning: Some("USR1@60".to_owned()), ..Default::default() },
        ..ShimJob::default()
    };
    agent.handle(AgentEvent::Adopted(Box::new(held)));
    assert!(agent.state.warnings.is_empty());
    agent.slurm_says(SlurmAnswer::Extended(key(1), Ok(20)));
    assert!(!agent.state.jobs[&key(1)].step.is_warned);
    let due: Vec<Duration> =
        agent.state.warnings.iter().map(|(due, _)| due.since(BootInstant(1_000 * SECOND))).collect();
    assert_eq!(due, [Duration::from_secs(19 * 60)]);
}

// X05. Waiting leases return when the allocation is preempted.
#[test]
fn a_preempted_runner_gives_back_what_waits() {
    let mut agent = with_time(None, 10);
    agent.answer([1, 2, 3]);
    agent.started(1);
    assert_eq!(agent.state.job_counts(), (1, 2));
    agent.slurm_says(SlurmAnswer::Preemption(Some(true)));
    assert_eq!((agent.state.job_counts(), agent.state.reports.returned().len()), ((1, 0), 2));
}
