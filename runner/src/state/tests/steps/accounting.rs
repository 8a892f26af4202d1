//! When the accounting is asked, and how what it says becomes part of a result.

use super::*;
use torc_api::execution::{Granularity, ResourceMonitor};

/// What Slurm is asked next apart from the time that is left, and how long that took.
fn next_question(desk: &mut AgentHarness) -> (Vec<SlurmQuery>, Duration) {
    let before = desk.now;
    for _ in 0..200 {
        match desk.until_asked().as_slice() {
            [SlurmQuery::TimeLeft] => desk.slurm_says(SlurmAnswer::TimeLeft(None)),
            [SlurmQuery::Preemption] => desk.slurm_says(SlurmAnswer::Preemption(Some(false))),
            asked => return (asked.to_vec(), desk.now.since(before)),
        };
    }
    panic!("nothing is asked: {:?}", desk.state);
}

fn attempt(run: i32, attempt: i32) -> AttemptKey {
    AttemptKey { workflow: 1, job: 1, run, attempt, lease_id: i64::from(run * 10 + attempt) }
}

fn row(key: AttemptKey, columns: &str) -> (String, StepAccount) {
    let steps = torc_slurm::sacct::read_steps(&format!("{}|{columns}\n", key.label()));
    steps.into_iter().next().expect("one step")
}

// S10. A success waits one second for company; a failure is asked about at once.
#[test]
fn when_the_accounting_is_asked_first() {
    for (code, after_ms) in [(0, 1_000), (3, 0), (137, 0)] {
        let mut desk = desk();
        desk.answer([1]);
        desk.started(1).ended(1, code);
        let (asked, after) = next_question(&mut desk);
        assert_eq!((asked, after.as_millis()), (vec![SlurmQuery::Accounts(Vec::new())], after_ms), "{code}");
    }
}

// S10. Five seconds between two questions, or ten times what the last one took.
#[test]
fn when_the_accounting_is_asked_again() {
    for (took_ms, after_ms) in [(0, 5_000), (499, 5_000), (500, 5_000), (501, 5_010), (3_000, 30_000)] {
        let mut desk = desk();
        desk.answer([1]);
        desk.started(1).ended(1, 0);
        next_question(&mut desk);
        desk.slurm_says(SlurmAnswer::Accounts(Ok([].into()), Duration::from_millis(took_ms)));
        let (_, after) = next_question(&mut desk);
        assert_eq!(after.as_millis(), after_ms, "it took {took_ms} ms");
    }
}

// S10, S19. A failure that the accounting never hears of is reported after six tries, by its code.
#[test]
fn an_unknown_failure_is_reported_after_six_tries() {
    let mut desk = desk();
    desk.answer([1]);
    desk.started(1).ended(1, 137);
    let failed = desk.now;
    for number in 1..=6 {
        let (asked, _) = next_question(&mut desk);
        assert_eq!(asked, [SlurmQuery::Accounts(Vec::new())], "try {number}");
        assert!(desk.state.jobs.contains_key(&key(1)), "try {number}: its report waits");
        // Another step's account is not this one's.
        desk.slurm_says(accounts([account(2, "OUT_OF_MEMORY", Some(9))]));
    }
    assert_eq!(desk.now.since(failed), Duration::from_secs(25), "six tries, 5 s apart");
    assert!(!desk.state.jobs.contains_key(&key(1)), "its report is complete");
    let report = &desk.state.reports[&key(1)].finished;
    assert_eq!((report.return_code, report.cause), (137, Some(Cause::OutOfMemory)));
    let stats = report.slurm_stats.clone().expect("a row without numbers");
    assert_eq!((stats.slurm_job_id.as_deref(), stats.step.as_deref()), (Some("77"), Some("wf1_j1_r1_a1")));
    assert_eq!((stats.state, stats.max_rss_bytes), (None, None));
}

// S10, S11, S17. Rows are matched by the whole name: other attempts and runs of the same job have numbers of their own.
#[test]
fn attempts_and_runs_of_one_job_have_their_own_accounts() {
    let mut desk = desk();
    let keys = [attempt(1, 1), attempt(1, 2), attempt(2, 1), attempt(1, 11)];
    let leases = keys.iter().map(|key| Lease { key: *key, ..lease(1) }).collect();
    desk.respond(SyncResponse { leases, ..SyncResponse::default() });
    for key in keys {
        desk.handle(Event::Started(key, desk.now, 100));
        let over = JobExit { key, ..ended(1, Outcome::Exited(0), desk.now) };
        desk.handle(Event::Ended(Box::new(over)));
    }
    let (asked, _) = next_question(&mut desk);
    assert_eq!(asked, [SlurmQuery::Accounts(Vec::new())]);
    let found = [
        row(keys[0], "11K|12K|13K|14K|00:00:15|n1|COMPLETED"),
        row(keys[1], "21K|22K|23K|24K|00:00:25|n2|COMPLETED"),
        row(keys[2], "31K|32K|33K|34K|00:00:35|n3|COMPLETED"),
        row(keys[3], "41K|42K|43K|44K|00:00:45|n4|COMPLETED"),
    ];
    desk.slurm_says(SlurmAnswer::Accounts(Ok(found.into()), Duration::ZERO));
    for (key, number) in keys.into_iter().zip([1, 2, 3, 4]) {
        let stats = desk.state.sacct.news().get(&key).cloned().expect("an account");
        assert_eq!((stats.workflow, stats.job, stats.run, stats.attempt), (1, 1, key.run, key.attempt));
        let kibibytes =
            [stats.max_rss_bytes, stats.max_vm_size_bytes, stats.max_disk_read_bytes, stats.max_disk_write_bytes];
        assert_eq!(kibibytes, [1, 2, 3, 4].map(|column| Some((number * 10 + column) << 10)), "{key:?}");
        assert_eq!(stats.ave_cpu_seconds, Some(f64::from(i32::try_from(number).expect("small") * 10 + 5)), "{key:?}");
        assert_eq!(stats.node_list, Some(format!("n{number}")), "{key:?}");
    }
}

// S12, S13, S14, S15, S16. What is kept in a file is completed by the accounting.
#[test]
fn a_kept_record_is_completed_by_the_accounting() {
    let mut desk = desk();
    desk.profile.resource_monitor = Some(ResourceMonitor {
        granularity: Some(Granularity::TimeSeries),
        sample_interval_seconds: Some(1_000),
        ..ResourceMonitor::default()
    });
    desk.answer([1]);
    desk.started(1);
    let over = JobExit { started: desk.now.minus(Duration::from_secs(20)), ..ended(1, Outcome::Exited(0), desk.now) };
    desk.handle(Event::Ended(Box::new(over)));
    let usage = |desk: &AgentHarness| {
        let rows = desk.effects.iter().filter_map(|effect| match effect {
            Effect::Record(records) => Some(records),
            _ => None,
        });
        let rows = rows.flatten().filter_map(|record| match &record.measurement {
            Measurement::Job(row) => Some((row.key, row.usage.peak_memory_bytes, row.usage.average_cpu_percent)),
            _ => None,
        });
        rows.collect::<Vec<_>>()
    };
    assert_eq!(usage(&desk), [(key(1), None, None)], "nothing was seen while it ran");
    next_question(&mut desk);
    desk.slurm_says(SlurmAnswer::Accounts(Ok([row(key(1), "11K||||00:00:15|n1|COMPLETED")].into()), Duration::ZERO));
    assert_eq!(usage(&desk), [(key(1), Some(11 << 10), Some(75.0))], "15 s of CPU in 20 s");
}

// J23. What failed ten seconds before the runner was told to stop was ended with it.
#[test]
fn a_failure_just_before_a_stop_is_part_of_it() {
    for (before_ms, stop, cause) in [
        (0, true, Cause::Stopped),
        (10_000, true, Cause::Stopped),
        (10_001, true, Cause::ExitCode),
        (0, false, Cause::ExitCode),
    ] {
        let mut desk = desk();
        desk.answer([1, 2]);
        desk.started(1).started(2);
        while !desk.has_sync() {
            desk.until_due();
        }
        desk.ended(1, 3);
        desk.now = desk.now.plus(Duration::from_millis(before_ms));
        match stop {
            true => desk.handle(Event::Stop),
            false => desk.respond(SyncResponse { verdict: RunnerDirective::Leave, ..SyncResponse::default() }),
        };
        assert_eq!(desk.state.reports[&key(1)].finished.cause, Some(cause), "{before_ms} ms, stopped: {stop}");
        assert!(!desk.state.jobs.contains_key(&key(1)), "nobody waits for the accounting");
    }
}

// X10, X12. Slurm ends a step in the second in which its time is over.
#[test]
fn a_step_within_a_second_of_its_limit_ran_out_of_time() {
    let cases = [
        (143, 59_000, 152, Cause::Timeout),
        (143, 58_999, 143, Cause::ExitCode),
        (137, 59_000, 152, Cause::Timeout),
        (137, 58_999, 137, Cause::OutOfMemory),
        (1, 59_000, 152, Cause::Timeout),
        (138, 58_999, 138, Cause::ExitCode),
    ];
    for (code, ran_ms, reported, cause) in cases {
        let mut desk = desk();
        desk.answer([1]);
        desk.started(1);
        set_step_limit(&mut desk, 60_000);
        let over = JobExit {
            started: desk.now.minus(Duration::from_millis(ran_ms)),
            ..ended(1, Outcome::Exited(code), desk.now)
        };
        desk.handle(Event::Ended(Box::new(over)));
        let report = &desk.state.reports[&key(1)].finished;
        assert_eq!((report.return_code, report.cause), (reported, Some(cause)), "{code} after {ran_ms} ms");
    }
    let mut desk = desk();
    desk.answer([1]);
    desk.started(1).ended(1, 143);
    assert_eq!(desk.state.reports[&key(1)].finished.cause, Some(Cause::ExitCode), "its time has no end");
}

// S08. Two samples: CPU from their difference, the peak of memory from all of them.
#[test]
fn what_steps_use_is_the_difference_of_two_samples() {
    let mut desk = desk();
    measured(&mut desk);
    desk.answer([1]);
    desk.started(1);
    assert_eq!(looks(&mut desk), [SlurmQuery::StepNumbers]);
    desk.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4), (key(2).label(), 5)]));
    let began = desk.now;
    let samples = [(0, 50.0, 30), (10, 65.0, 90), (30, 75.0, 60)];
    for (seconds, cpu, mebibytes) in samples {
        let sample = |step, memory: i64| Sample { step, cpu_seconds: Some(cpu), memory_bytes: Some(memory << 20) };
        let at = began.plus(Duration::from_secs(seconds));
        desk.now = at;
        // The other step's numbers are none of its business.
        desk.slurm_says(SlurmAnswer::StepUsage(at, vec![sample(5, 900), sample(4, mebibytes)]));
    }
    desk.ended(1, 0);
    let usage = desk.state.reports[&key(1)].finished.usage.expect("measured");
    assert_eq!((usage.peak_memory_bytes, usage.average_memory_bytes), (Some(90 << 20), Some(60 << 20)));
    assert_eq!((usage.peak_cpu_percent, usage.average_cpu_percent), (Some(150.0), Some(100.0)));
}

// S10. An accounting that answers a question about one step does not close the books on another.
#[test]
fn an_answer_settles_only_what_was_asked_about() {
    let mut desk = desk();
    desk.answer([1, 2]);
    desk.started(1).started(2).ended(1, 3);
    let (asked, _) = next_question(&mut desk);
    assert!(matches!(asked.as_slice(), [SlurmQuery::Accounts(_)]));
    desk.ended(2, 0);
    desk.slurm_says(accounts([account(1, "FAILED", Some(1)), account(2, "COMPLETED", Some(2))]));
    assert_eq!(desk.state.sacct.news().len(), 0, "the second was not asked about");
    assert!(!desk.state.sacct.are_settled());
    let (_, after) = next_question(&mut desk);
    assert_eq!(after, Duration::from_secs(5), "no sooner than it is cheap");
    desk.slurm_says(accounts([account(1, "FAILED", Some(9)), account(2, "COMPLETED", Some(2))]));
    let news: Vec<_> = desk.state.sacct.news().iter().map(|(key, one)| (key.job, one.max_rss_bytes)).collect();
    assert_eq!(news, [(2, Some(2 << 10))]);
    assert!(desk.state.sacct.are_settled());
}

// X05. At the end of its time the runner does not wait for the accounting.
#[test]
fn the_end_of_time_does_not_wait_for_the_accounting() {
    let began = BootInstant(1_000 * SECOND);
    let end = began.plus(Duration::from_secs(1_800));
    let mut desk = desk();
    desk.answer([1]);
    desk.started(1);
    desk.now = end.minus(Duration::from_secs(20));
    desk.handle(Event::Tick);
    desk.ended(1, 0);
    for (at, settled) in [(end.minus(Duration::from_millis(1)), false), (end, true)] {
        desk.now = at;
        desk.handle(Event::Tick);
        let left = !matches!(desk.state.lifecycle.phase(), Phase::Ending(_));
        assert_eq!(left, settled, "{:?} before the end: {:?}", end.since(at), desk.state.lifecycle.phase());
        assert!(!desk.state.sacct.are_settled());
    }
}

// S10. After a stop the account of a step that failed before it is still told.
#[test]
fn an_account_that_comes_after_a_stop_is_told() {
    let mut desk = desk();
    desk.answer([1, 2]);
    desk.started(1).started(2).ended(1, 3);
    assert!(matches!(next_question(&mut desk).0.as_slice(), [SlurmQuery::Accounts(_)]));
    desk.handle(Event::Stop);
    desk.slurm_says(accounts([account(1, "FAILED", Some(6))]));
    let news: Vec<_> = desk.state.sacct.news().values().map(|one| (one.job, one.max_rss_bytes)).collect();
    assert_eq!(news, [(1, Some(6 << 10))]);
}

// S19. What srun wrote is read where srun itself may have failed: it ends with 1 then.
#[test]
fn the_log_of_a_failed_srun_is_read() {
    let log = |name: &str| Some(name.to_owned());
    let cases = [
        (1, log("/o"), log("/e"), log("/e")),
        (1, log("/o"), None, log("/o")),
        (1, None, None, None),
        (2, log("/o"), log("/e"), None),
    ];
    for (code, stdout, stderr, expected) in cases {
        let mut desk = desk();
        desk.answer([1]);
        desk.started(1);
        let over = JobExit { stdout, stderr, ..ended(1, Outcome::Exited(code), desk.now) };
        desk.handle(Event::Ended(Box::new(over)));
        let read = desk.effects.iter().find_map(|effect| match effect {
            Effect::ReadSrun(of, log) if *of == key(1) => Some(log.clone()),
            _ => None,
        });
        assert_eq!(read, expected, "{code}");
    }
}

// S10, S19. An account without a state settles a step all the same, and one of a step that runs does not.
#[test]
fn an_account_without_a_state_is_one_of_an_end() {
    for (state, settled) in [("", true), ("COMPLETED", true), ("RUNNING", false), ("PENDING", false)] {
        let mut desk = desk();
        desk.answer([1]);
        desk.started(1).ended(1, 0);
        next_question(&mut desk);
        desk.slurm_says(accounts([account(1, state, Some(8))]));
        assert_eq!(desk.state.sacct.are_settled(), settled, "{state:?}");
        let memory = desk.state.sacct.news().get(&key(1)).and_then(|one| one.max_rss_bytes);
        assert_eq!(memory, settled.then_some(8 << 10), "{state:?}");
    }
}

// S19. What srun was never started for has no account.
#[test]
fn a_step_that_was_not_started_is_reported_at_once() {
    let mut desk = desk();
    desk.answer([1]);
    let outcome = Outcome::NotStarted { code: 127, message: "srun: program not found".to_owned() };
    desk.handle(Event::Ended(Box::new(JobExit::new(key(1), desk.now, desk.now, outcome))));
    assert!(desk.state.sacct.are_settled() && !desk.state.jobs.contains_key(&key(1)));
    assert_eq!(desk.state.reports[&key(1)].finished.cause, Some(Cause::StartFailed));
}

// J23. A runner that was told to stop does not wait for the numbers of what succeeded.
#[test]
fn a_stop_does_not_wait_for_the_accounting() {
    let mut desk = desk();
    desk.answer([1]);
    desk.started(1).ended(1, 0);
    assert!(!desk.state.sacct.are_settled());
    desk.handle(Event::Stop);
    assert!(matches!(desk.state.lifecycle.phase(), Phase::Completing(..)), "{:?}", desk.state.lifecycle.phase());
}

// S07. Only a step that is looked for uses up its tries.
#[test]
fn a_step_that_is_not_looked_for_uses_up_no_tries() {
    let mut desk = desk();
    measured(&mut desk);
    desk.answer([1]);
    desk.started(1);
    while !desk.has_sync() {
        desk.until_due();
    }
    desk.profile.resource_monitor = Some(ResourceMonitor { enabled: Some(false), ..ResourceMonitor::default() });
    desk.answer([2]);
    desk.started(2);
    for _ in 0..5 {
        assert_eq!(looks(&mut desk), [SlurmQuery::StepNumbers]);
        desk.slurm_says(SlurmAnswer::StepNumbers(Vec::new()));
    }
    assert_eq!((desk.state.expect_number(key(1)), desk.state.expect_number(key(2))), (false, true));
}

// X05. A step that was ended from here needs no explanation by Slurm.
#[test]
fn an_end_that_was_ordered_leads_to_no_look_at_the_allocation() {
    let mut desk = desk();
    desk.answer([1, 2]);
    desk.started(1).started(2).later(Duration::from_millis(100));
    desk.respond(SyncResponse { cancel: vec![key(1)], ..SyncResponse::default() });
    desk.ended(1, 143);
    assert!(!inquiries(&desk).contains(&SlurmQuery::Preemption), "{:?}", desk.effects);
    desk.ended(2, 143);
    assert!(inquiries(&desk).contains(&SlurmQuery::Preemption), "nobody here has ended this one");
}

// S08. Once per interval, and not again as soon as Slurm has answered.
#[test]
fn steps_are_measured_once_in_an_interval() {
    let mut desk = desk();
    measured(&mut desk);
    desk.answer([1]);
    desk.started(1);
    assert_eq!(looks(&mut desk), [SlurmQuery::StepNumbers]);
    desk.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
    assert_eq!(inquiries(&desk), [SlurmQuery::StepUsage(vec![4])]);
    let asked = desk.now;
    desk.effects.clear();
    desk.slurm_says(SlurmAnswer::StepUsage(desk.now, Vec::new()));
    assert_eq!(looks(&mut desk), [SlurmQuery::StepUsage(vec![4])]);
    assert_eq!(desk.now.since(asked), Duration::from_secs(10));
}
