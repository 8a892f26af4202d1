//! Time limits of steps, and the warning before them.

use super::*;
use torc_api::execution::MonitorPlan;

use crate::protocol::StartTemplate;

/// Returns what the shim records about steps.
fn notes(agent: &AgentHarness) -> Vec<(Option<u64>, bool)> {
    let noted = agent.effects.iter().filter_map(|effect| match effect {
        Effect::RecordStep(note) => Some((note.step_limit_ms, note.is_warned)),
        _ => None,
    });
    noted.collect()
}

// X05, X10. Slurm may move the end.
#[test]
fn an_end_that_is_put_off_is_heard_of() {
    let mut agent = agent();
    let began = agent.now;
    let off = torc_api::execution::ResourceMonitor { enabled: Some(false), ..Default::default() };
    agent.profile.resource_monitor = Some(off);
    agent.answer([1]);
    agent.started(1);
    assert_eq!(agent.until_asked(), [SlurmQuery::TimeLeft]);
    assert_eq!(agent.now.since(began), Duration::from_secs(90), "a twentieth of half an hour");
    agent.slurm_says(SlurmAnswer::TimeLeft(Some(Duration::from_secs(7_200))));
    assert_eq!(agent.state.deadlines.end().map(|end| end.since(agent.now)), Some(Duration::from_secs(7_200)));
    let asked = agent.now;
    // The running step is extended; a new step has the later limit from its start.
    assert_eq!(agent.until_asked(), [SlurmQuery::StepNumbers]);
    agent.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
    let extend = SlurmQuery::Extend { key: key(1), step: 4, minutes: 120 };
    assert!(queries(&agent).contains(&extend), "{:?}", agent.effects);
    agent.effects.clear();
    agent.slurm_says(SlurmAnswer::StepUsage(agent.now, Vec::new()));
    agent.slurm_says(SlurmAnswer::Extended(key(1), Ok(120)));
    assert_eq!(notes(&agent), [(Some(120 * 60_000), false)], "the next agent knows it");
    assert_eq!(agent.state.extensions.keys(), []);
    assert_eq!(agent.until_asked(), [SlurmQuery::TimeLeft]);
    assert_eq!(agent.now.since(asked), Duration::from_secs(360));
    agent.slurm_says(SlurmAnswer::TimeLeft(None));
    assert_eq!(agent.state.deadlines.end().map(|end| end.since(asked)), Some(Duration::from_secs(7_200)), "no answer");
    // The runner's own time limit counts as well.
    let own = agent.now.plus(Duration::from_secs(60));
    agent.state.settings.own_end = Some(own);
    looks_time(&mut agent);
    agent.slurm_says(SlurmAnswer::TimeLeft(Some(Duration::from_secs(7_200))));
    assert_eq!(agent.state.deadlines.end(), Some(own));
}

// X11, S06
#[test]
fn a_step_is_warned_in_time_once_its_number_is_known() {
    let mut agent = agent();
    agent.profile.execution_config =
        Some(ExecutionConfig { srun_termination_signal: Some("TERM@120".to_owned()), ..ExecutionConfig::default() });
    let off = torc_api::execution::ResourceMonitor { enabled: Some(false), ..Default::default() };
    agent.profile.resource_monitor = Some(off);
    agent.answer([1, 2]);
    agent.started(1).started(2);
    let began = agent.now;
    agent.ended(2, 0);
    let asked = loop {
        match agent.until_asked().as_slice() {
            [SlurmQuery::TimeLeft] => agent.slurm_says(SlurmAnswer::TimeLeft(None)),
            [SlurmQuery::Accounts(_)] => agent.slurm_says(accounts([account(2, "COMPLETED", Some(1))])),
            other => break other.to_vec(),
        };
    };
    assert_eq!(asked, [SlurmQuery::StepNumbers]);
    assert_eq!(agent.now.since(began), Duration::from_secs(29 * 60 - 120), "--time=29");
    agent.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
    let signal = SlurmQuery::Signal { step: 4, signal: "TERM".to_owned() };
    assert!(queries(&agent).contains(&signal), "{:?}", agent.effects);
    agent.effects.clear();
    agent.slurm_says(SlurmAnswer::StepUsage(agent.now, Vec::new()));
    for _ in 0..20 {
        if agent.has_sync() {
            agent.answer([]);
        } else {
            agent.until_due();
        }
        assert!(!queries(&agent).contains(&signal), "once");
    }
}

// X12, S06, S20. A step that dies of the warning has run out of time; one that handles it keeps its exit code.
#[test]
fn a_step_that_dies_of_its_warning_has_run_out_of_time() {
    let limit = Duration::from_secs(600);
    let cases = [
        ("TERM@120", 143, limit - Duration::from_secs(120), "CANCELLED by 0", 152, Cause::Timeout),
        ("15@120", 143, limit - Duration::from_secs(110), "FAILED", 152, Cause::Timeout),
        ("USR1@60", 138, limit - Duration::from_secs(60), "CANCELLED", 152, Cause::Timeout),
        ("USR1@60", 143, limit - Duration::from_secs(60), "CANCELLED", 143, Cause::Lost),
        ("TERM@120", 143, limit - Duration::from_secs(130), "CANCELLED by 0", 143, Cause::Lost),
        ("TERM@120", 3, limit - Duration::from_secs(119), "FAILED", 3, Cause::ExitCode),
        ("TERM@120", 143, limit - Duration::from_secs(119), "OUT_OF_MEMORY", 137, Cause::OutOfMemory),
    ];
    for (signal, code, ran, state, reported, cause) in cases {
        let mut agent = agent();
        let signal = Some(signal.to_owned());
        let config = ExecutionConfig { srun_termination_signal: signal.clone(), ..ExecutionConfig::default() };
        agent.profile.execution_config = Some(config);
        agent.answer([1]);
        agent.started(1);
        let mut ended = ended(1, Outcome::Exited(code), agent.now);
        ended.started = agent.now.minus(ran);
        set_step_limit(&mut agent, u64::try_from(limit.as_millis()).expect("small"));
        agent.handle(AgentEvent::Ended(Box::new(ended)));
        for _ in 0..9 {
            match queries(&agent).as_slice() {
                [SlurmQuery::Accounts(_), ..] => break,
                [SlurmQuery::Preemption, ..] => agent.slurm_says(SlurmAnswer::Preemption(Some(false))),
                _ => agent.until_due(),
            };
        }
        agent.slurm_says(accounts([account(1, state, Some(1))]));
        let report = &agent.state.reports[&key(1)].finished;
        assert_eq!((report.return_code, report.cause), (reported, Some(cause)), "{signal:?} {code} {state}");
    }
}

// S06. An ended step is not warned, even while the accounting is asked about it.
#[test]
fn a_step_that_has_failed_is_not_warned_any_more() {
    let mut agent = agent();
    measured(&mut agent);
    agent.profile.execution_config =
        Some(ExecutionConfig { srun_termination_signal: Some("TERM@120".to_owned()), ..ExecutionConfig::default() });
    agent.answer([1]);
    agent.started(1);
    let warning = agent.now.plus(Duration::from_secs(29 * 60 - 120));
    assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
    agent.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
    agent.slurm_says(SlurmAnswer::StepUsage(agent.now, Vec::new()));
    agent.now = warning.minus(Duration::from_secs(2));
    agent.ended(1, 3);
    assert!(agent.state.jobs.contains_key(&key(1)), "its report waits");
    agent.now = warning.plus(Duration::from_secs(1));
    agent.handle(AgentEvent::Tick);
    let is_signal = |one: &SlurmQuery| matches!(one, SlurmQuery::Signal { .. });
    assert!(!queries(&agent).iter().any(is_signal), "{:?}", queries(&agent));
    assert!(agent.state.warnings.is_empty());
}

// S07, S06. A step without a number is looked up five times.
#[test]
fn a_step_without_a_number_is_not_warned() {
    let mut agent = agent();
    agent.profile.execution_config =
        Some(ExecutionConfig { srun_termination_signal: Some("TERM@120".to_owned()), ..ExecutionConfig::default() });
    let off = torc_api::execution::ResourceMonitor { enabled: Some(false), ..Default::default() };
    agent.profile.resource_monitor = Some(off);
    agent.answer([1]);
    agent.started(1);
    for _ in 0..5 {
        assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
        agent.slurm_says(SlurmAnswer::StepNumbers(Vec::new()));
    }
    assert!(agent.state.warnings.is_empty() && queries(&agent).is_empty(), "{:?}", agent.effects);
}

fn unmeasured() -> MonitorPlan {
    torc_api::execution::ResourceMonitor { enabled: Some(false), ..Default::default() }.plan()
}

// X11, S06. After a restart, the next agent warns the step, unless that was done.
#[test]
fn a_step_that_was_taken_over_is_warned_in_time() {
    let held = |is_warned| ShimJob {
        order: step_order(29 * 60_000),
        started: BootInstant(1_000 * SECOND),
        is_warned,
        template: StartTemplate {
            in_step: true,
            warning: Some("TERM@120".to_owned()),
            monitor: unmeasured(),
            ..StartTemplate::default()
        },
        ..ShimJob::default()
    };
    let signal = SlurmQuery::Signal { step: 4, signal: "TERM".to_owned() };
    let mut agent = agent();
    agent.handle(AgentEvent::Adopted(Box::new(held(false))));
    assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
    assert_eq!(agent.now, BootInstant(1_000 * SECOND).plus(Duration::from_secs(29 * 60 - 120)));
    agent.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
    assert!(queries(&agent).contains(&signal), "{:?}", agent.effects);
    assert_eq!(notes(&agent), [(Some(29 * 60_000), true)]);
    let mut agent = super::agent();
    agent.handle(AgentEvent::Adopted(Box::new(held(true))));
    assert!(agent.state.warnings.is_empty(), "once is enough");
    // A step that dies of its warning has run out of time, whichever agent sent it.
    agent.now = BootInstant(1_000 * SECOND).plus(Duration::from_secs(29 * 60 - 110));
    let mut over = ended(1, Outcome::Exited(143), agent.now);
    over.started = BootInstant(1_000 * SECOND);
    agent.handle(AgentEvent::Ended(Box::new(over)));
    for _ in 0..9 {
        match queries(&agent).as_slice() {
            [SlurmQuery::Accounts(_), ..] => break,
            [SlurmQuery::TimeLeft, ..] => agent.slurm_says(SlurmAnswer::TimeLeft(None)),
            [SlurmQuery::Preemption, ..] => agent.slurm_says(SlurmAnswer::Preemption(Some(false))),
            _ if agent.has_sync() => agent.answer([]),
            _ => agent.until_due(),
        };
    }
    agent.slurm_says(accounts([account(1, "CANCELLED by 0", Some(1))]));
    assert_eq!(agent.state.reports[&key(1)].finished.cause, Some(Cause::Timeout));
}

// X10. Slurm may refuse to extend a step. The next agent notices an extension of the allocation that happened without
// an agent.
#[test]
fn more_time_is_asked_for_once_and_also_by_the_next_agent() {
    let held = ShimJob {
        order: step_order(5 * 60_000),
        started: BootInstant(1_000 * SECOND),
        template: StartTemplate { in_step: true, warning: Some("USR1@60".to_owned()), ..StartTemplate::default() },
        ..ShimJob::default()
    };
    let mut agent = agent();
    agent.handle(AgentEvent::Adopted(Box::new(held.clone())));
    assert_eq!(agent.until_asked(), [SlurmQuery::StepNumbers]);
    agent.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
    assert!(queries(&agent).contains(&SlurmQuery::Extend { key: key(1), step: 4, minutes: 29 }), "{:?}", agent.effects);
    let due =
        |agent: &AgentHarness| agent.state.warnings.iter().map(|(due, _)| due.since(held.started)).collect::<Vec<_>>();
    assert_eq!(due(&agent), [Duration::from_secs(4 * 60)]);
    agent.slurm_says(SlurmAnswer::Extended(key(1), Ok(29)));
    assert_eq!(due(&agent), [Duration::from_secs(28 * 60)], "the warning moves with the end");
    let end = agent.now.plus(Duration::from_secs(7_200));
    agent.state.deadlines.set_time(Some(TimeSpan { began: agent.now, end }));
    agent.slurm_says(SlurmAnswer::TimeLeft(Some(Duration::from_secs(10_800))));
    let asked = queries(&agent);
    assert!(asked.iter().any(|asked| matches!(asked, SlurmQuery::Extend { minutes: 179.., .. })), "{asked:?}");
    agent.effects.clear();
    agent.slurm_says(SlurmAnswer::Extended(key(1), Err("access denied".to_owned())));
    let observed = agent
        .effects
        .iter()
        .any(|effect| matches!(effect, Effect::Log(RunnerEvent::Problem { message }) if message == "access denied"));
    assert!(observed && due(&agent) == [Duration::from_secs(28 * 60)], "{:?}", agent.effects);
    agent.slurm_says(SlurmAnswer::TimeLeft(Some(Duration::from_secs(20_000))));
    let again = queries(&agent).into_iter().any(|asked| matches!(asked, SlurmQuery::Extend { .. }));
    assert!(!again, "it was logged once");
}
