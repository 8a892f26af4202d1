//! The early warning of steps, and what becomes of those that do not heed it.

use super::*;

// X11, S06
#[test]
fn a_step_is_warned_in_time_once_its_number_is_known() {
    let mut desk = desk();
    desk.profile.execution_config =
        Some(ExecutionConfig { srun_termination_signal: Some("TERM@120".to_owned()), ..ExecutionConfig::default() });
    let off = torc_api::execution::ResourceMonitor { enabled: Some(false), ..Default::default() };
    desk.profile.resource_monitor = Some(off);
    desk.answer([1, 2]);
    desk.started(1).started(2);
    let began = desk.now;
    desk.ended(2, 0);
    let asked = loop {
        match desk.until_asked().as_slice() {
            [Inquiry::TimeLeft] => desk.slurm_says(SlurmAnswer::TimeLeft(None)),
            [Inquiry::Accounts(_)] => desk.slurm_says(accounts([account(2, "COMPLETED", Some(1))])),
            other => break other.to_vec(),
        };
    };
    assert_eq!(asked, [Inquiry::StepNumbers]);
    assert_eq!(desk.now.since(began), Duration::from_secs(29 * 60 - 120), "--time=29");
    desk.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
    let signal = Inquiry::Signal { step: 4, signal: "TERM".to_owned() };
    assert!(inquiries(&desk).contains(&signal), "{:?}", desk.effects);
    desk.effects.clear();
    desk.slurm_says(SlurmAnswer::StepUsage(desk.now, Vec::new()));
    for _ in 0..20 {
        if desk.has_sync() {
            desk.answer([]);
        } else {
            desk.until_due();
        }
        assert!(!inquiries(&desk).contains(&signal), "once");
    }
}

// X12, S06, S20. Whoever does not catch the warning has run out of time; whoever ends by itself after it keeps its own code.
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
        let mut desk = desk();
        let signal = Some(signal.to_owned());
        let config = ExecutionConfig { srun_termination_signal: signal.clone(), ..ExecutionConfig::default() };
        desk.profile.execution_config = Some(config);
        desk.answer([1]);
        desk.started(1);
        let mut ended = ended(1, Outcome::Exited(code), desk.now);
        ended.started = desk.now.minus(ran);
        ended.step_limit_ms = u64::try_from(limit.as_millis()).ok();
        desk.handle(Event::Ended(Box::new(ended)));
        for _ in 0..9 {
            match inquiries(&desk).as_slice() {
                [Inquiry::Accounts(_), ..] => break,
                [Inquiry::Preemption, ..] => desk.slurm_says(SlurmAnswer::Preemption(Some(false))),
                _ => desk.until_due(),
            };
        }
        desk.slurm_says(accounts([account(1, state, Some(1))]));
        let report = &desk.state.reports[&key(1)].finished;
        assert_eq!((report.return_code, report.cause), (reported, Some(cause)), "{signal:?} {code} {state}");
    }
}

// S06. What has ended is not warned, also while the accounting is asked why.
#[test]
fn a_step_that_has_failed_is_not_warned_any_more() {
    let mut desk = desk();
    measured(&mut desk);
    desk.profile.execution_config =
        Some(ExecutionConfig { srun_termination_signal: Some("TERM@120".to_owned()), ..ExecutionConfig::default() });
    desk.answer([1]);
    desk.started(1);
    let warning = desk.now.plus(Duration::from_secs(29 * 60 - 120));
    assert_eq!(looks(&mut desk), [Inquiry::StepNumbers]);
    desk.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
    desk.slurm_says(SlurmAnswer::StepUsage(desk.now, Vec::new()));
    desk.now = warning.minus(Duration::from_secs(2));
    desk.ended(1, 3);
    assert!(desk.state.jobs.contains_key(&key(1)), "its report waits");
    desk.now = warning.plus(Duration::from_secs(1));
    desk.handle(Event::Tick);
    let is_signal = |one: &Inquiry| matches!(one, Inquiry::Signal { .. });
    assert!(!inquiries(&desk).iter().any(is_signal), "{:?}", inquiries(&desk));
    assert!(desk.state.warnings.is_empty());
}

// S07, S06. A step whose number Slurm does not tell is looked for five times, and then left alone.
#[test]
fn a_step_without_a_number_is_not_warned() {
    let mut desk = desk();
    desk.profile.execution_config =
        Some(ExecutionConfig { srun_termination_signal: Some("TERM@120".to_owned()), ..ExecutionConfig::default() });
    let off = torc_api::execution::ResourceMonitor { enabled: Some(false), ..Default::default() };
    desk.profile.resource_monitor = Some(off);
    desk.answer([1]);
    desk.started(1);
    for _ in 0..5 {
        assert_eq!(looks(&mut desk), [Inquiry::StepNumbers]);
        desk.slurm_says(SlurmAnswer::StepNumbers(Vec::new()));
    }
    assert!(desk.state.warnings.is_empty() && inquiries(&desk).is_empty(), "{:?}", desk.effects);
}
