//! Queries to Slurm's accounting, and their effect on results.

use super::*;
use torc_api::execution::{Granularity, ResourceMonitor};

fn expect_number(agent: &mut AgentHarness, job: i64) -> bool {
    agent.state.steps.expect_number(key(job), &agent.state.jobs[&key(job)])
}

/// Returns the next query except those for the remaining time, and the time until it.
fn next_question(agent: &mut AgentHarness) -> (Vec<SlurmQuery>, Duration) {
    let before = agent.now;
    for _ in 0..200 {
        match agent.until_asked().as_slice() {
            [SlurmQuery::TimeLeft] => agent.slurm_says(SlurmAnswer::TimeLeft(None)),
            [SlurmQuery::Preemption] => agent.slurm_says(SlurmAnswer::Preemption(Some(false))),
            asked => return (asked.to_vec(), agent.now.since(before)),
        };
    }
    panic!("nothing is asked: {:?}", agent.state);
}

fn attempt(run: i32, attempt: i32) -> AttemptKey {
    AttemptKey { workflow: 1, job: 1, run, attempt, lease_id: i64::from(run * 10 + attempt) }
}

fn row(key: AttemptKey, columns: &str) -> (String, StepAccount) {
    let steps = torc_slurm::sacct::read_steps(&format!("{}|{columns}\n", key.label()));
    steps.into_iter().next().expect("one step")
}

// S10. A success is looked up after one second, a failure at once.
#[test]
fn when_the_accounting_is_asked_first() {
    for (code, after_ms) in [(0, 1_000), (3, 0), (137, 0)] {
        let mut agent = agent();
        agent.answer([1]);
        agent.started(1).ended(1, code);
        let (asked, after) = next_question(&mut agent);
        assert_eq!((asked, after.as_millis()), (vec![SlurmQuery::Accounts(Vec::new())], after_ms), "{code}");
    }
}

// S10. Two queries are five seconds apart, or ten times the duration of the last one.
#[test]
fn when_the_accounting_is_asked_again() {
    for (took_ms, after_ms) in [(0, 5_000), (499, 5_000), (500, 5_000), (501, 5_010), (3_000, 30_000)] {
        let mut agent = agent();
        agent.answer([1]);
        agent.started(1).ended(1, 0);
        next_question(&mut agent);
        agent.slurm_says(SlurmAnswer::Accounts(Ok([].into()), Duration::from_millis(took_ms)));
        let (_, after) = next_question(&mut agent);
        assert_eq!(after.as_millis(), after_ms, "it took {took_ms} ms");
    }
}

// S10, S19. A failure that the accounting never has is reported by its code after six tries.
#[test]
fn an_unknown_failure_is_reported_after_six_tries() {
    let mut agent = agent();
    agent.answer([1]);
    agent.started(1).ended(1, 137);
    let failed = agent.now;
    for number in 1..=6 {
        let (asked, _) = next_question(&mut agent);
        assert_eq!(asked, [SlurmQuery::Accounts(Vec::new())], "try {number}");
        assert!(agent.state.jobs.contains_key(&key(1)), "try {number}: its report waits");
        // The account of another step does not count.
        agent.slurm_says(accounts([account(2, "OUT_OF_MEMORY", Some(9))]));
    }
    assert_eq!(agent.now.since(failed), Duration::from_secs(25), "six tries, 5 s apart");
    assert!(!agent.state.jobs.contains_key(&key(1)), "its report is complete");
    let report = &agent.state.reports[&key(1)].finished;
    assert_eq!((report.return_code, report.cause), (137, Some(Cause::OutOfMemory)));
    let stats = report.slurm_stats.clone().expect("a row without numbers");
    assert_eq!((stats.slurm_job_id.as_deref(), stats.step.as_deref()), (Some("77"), Some("wf1_j1_r1_a1")));
    assert_eq!((stats.state, stats.max_rss_bytes), (None, None));
}

// S10, S11, S17. Rows are matched by the whole name: other attempts and runs have other steps.
#[test]
fn attempts_and_runs_of_one_job_have_their_own_accounts() {
    let mut agent = agent();
    let keys = [attempt(1, 1), attempt(1, 2), attempt(2, 1), attempt(1, 11)];
    let leases = keys.iter().map(|key| Lease { key: *key, ..lease(1) }).collect();
    agent.respond(SyncResponse { leases, ..SyncResponse::default() });
    for key in keys {
        agent.handle(AgentEvent::Started(key, agent.now, 100));
        let over = JobExit { key, ..ended(1, Outcome::Exited(0), agent.now) };
        agent.handle(AgentEvent::Ended(Box::new(over)));
    }
    let (asked, _) = next_question(&mut agent);
    assert_eq!(asked, [SlurmQuery::Accounts(Vec::new())]);
    let found = [
        row(keys[0], "11K|12K|13K|14K|00:00:15|n1|COMPLETED"),
        row(keys[1], "21K|22K|23K|24K|00:00:25|n2|COMPLETED"),
        row(keys[2], "31K|32K|33K|34K|00:00:35|n3|COMPLETED"),
        row(keys[3], "41K|42K|43K|44K|00:00:45|n4|COMPLETED"),
    ];
    agent.slurm_says(SlurmAnswer::Accounts(Ok(found.into()), Duration::ZERO));
    for (key, number) in keys.into_iter().zip([1, 2, 3, 4]) {
        let stats = agent.state.sacct.unreported().get(&key).cloned().expect("an account");
        assert_eq!((stats.workflow, stats.job, stats.run, stats.attempt), (1, 1, key.run, key.attempt));
        let kibibytes =
            [stats.max_rss_bytes, stats.max_vm_size_bytes, stats.max_disk_read_bytes, stats.max_disk_write_bytes];
        assert_eq!(kibibytes, [1, 2, 3, 4].map(|column| Some((number * 10 + column) << 10)), "{key:?}");
        assert_eq!(stats.ave_cpu_seconds, Some(f64::from(i32::try_from(number).expect("small") * 10 + 5)), "{key:?}");
        assert_eq!(stats.node_list, Some(format!("n{number}")), "{key:?}");
    }
}

// S12, S13, S14, S15, S16. Rows in the measurement file are completed by the accounting.
#[test]
fn a_kept_record_is_completed_by_the_accounting() {
    let mut agent = agent();
    agent.profile.resource_monitor = Some(ResourceMonitor {
        granularity: Some(Granularity::TimeSeries),
        sample_interval_seconds: Some(1_000),
        ..ResourceMonitor::default()
    });
    agent.answer([1]);
    agent.started(1);
    let over = JobExit { started: agent.now.minus(Duration::from_secs(20)), ..ended(1, Outcome::Exited(0), agent.now) };
    agent.handle(AgentEvent::Ended(Box::new(over)));
    let usage = |agent: &AgentHarness| {
        let rows = agent.effects.iter().filter_map(|effect| match effect {
            Effect::Record(records) => Some(records),
            _ => None,
        });
        let rows = rows.flatten().filter_map(|record| match &record.measurement {
            Measurement::Job(row) => Some((row.key, row.usage.peak_memory_bytes, row.usage.average_cpu_percent)),
            _ => None,
        });
        rows.collect::<Vec<_>>()
    };
    assert_eq!(usage(&agent), [(key(1), None, None)], "nothing was seen while it ran");
    next_question(&mut agent);
    agent.slurm_says(SlurmAnswer::Accounts(Ok([row(key(1), "11K||||00:00:15|n1|COMPLETED")].into()), Duration::ZERO));
    assert_eq!(usage(&agent), [(key(1), Some(11 << 10), Some(75.0))], "15 s of CPU in 20 s");
}

// J23. A step that failed within ten seconds before the stop was stopped with the runner.
#[test]
fn a_failure_just_before_a_stop_is_part_of_it() {
    for (before_ms, stop, cause) in [
        (0, true, Cause::Stopped),
        (10_000, true, Cause::Stopped),
        (10_001, true, Cause::ExitCode),
        (0, false, Cause::ExitCode),
    ] {
        let mut agent = agent();
        agent.answer([1, 2]);
        agent.started(1).started(2);
        while !agent.has_sync() {
            agent.until_due();
        }
        agent.ended(1, 3);
        agent.now = agent.now.plus(Duration::from_millis(before_ms));
        match stop {
            true => agent.handle(AgentEvent::Stop),
            false => agent.respond(SyncResponse { directive: RunnerDirective::Leave, ..SyncResponse::default() }),
        };
        assert_eq!(agent.state.reports[&key(1)].finished.cause, Some(cause), "{before_ms} ms, stopped: {stop}");
        assert!(!agent.state.jobs.contains_key(&key(1)), "the report does not wait for the accounting");
    }
}

// X10, X12. Slurm ends a step in the second of its time limit.
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
        let mut agent = agent();
        agent.answer([1]);
        agent.started(1);
        set_step_limit(&mut agent, 60_000);
        let over = JobExit {
            started: agent.now.minus(Duration::from_millis(ran_ms)),
            ..ended(1, Outcome::Exited(code), agent.now)
        };
        agent.handle(AgentEvent::Ended(Box::new(over)));
        let report = &agent.state.reports[&key(1)].finished;
        assert_eq!((report.return_code, report.cause), (reported, Some(cause)), "{code} after {ran_ms} ms");
    }
    let mut agent = agent();
    agent.answer([1]);
    agent.started(1).ended(1, 143);
    assert_eq!(agent.state.reports[&key(1)].finished.cause, Some(Cause::ExitCode), "its time has no end");
}

// S08. Two samples: CPU usage from their difference, and the larger memory peak.
#[test]
fn what_steps_use_is_the_difference_of_two_samples() {
    let mut agent = agent();
    measured(&mut agent);
    agent.answer([1]);
    agent.started(1);
    assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
    agent.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4), (key(2).label(), 5)]));
    let began = agent.now;
    let samples = [(0, 50.0, 30), (10, 65.0, 90), (30, 75.0, 60)];
    for (seconds, cpu, mebibytes) in samples {
        let sample = |step, memory: i64| Sample { step, cpu_seconds: Some(cpu), memory_bytes: Some(memory << 20) };
        let at = began.plus(Duration::from_secs(seconds));
        agent.now = at;
        // The numbers of the other step do not count.
        agent.slurm_says(SlurmAnswer::StepUsage(at, vec![sample(5, 900), sample(4, mebibytes)]));
    }
    agent.ended(1, 0);
    let usage = agent.state.reports[&key(1)].finished.usage.expect("measured");
    assert_eq!((usage.peak_memory_bytes, usage.average_memory_bytes), (Some(90 << 20), Some(60 << 20)));
    assert_eq!((usage.peak_cpu_percent, usage.average_cpu_percent), (Some(150.0), Some(100.0)));
}

// S10. An answer about one step does not settle another one.
#[test]
fn an_answer_settles_only_what_was_asked_about() {
    let mut agent = agent();
    agent.answer([1, 2]);
    agent.started(1).started(2).ended(1, 3);
    let (asked, _) = next_question(&mut agent);
    assert!(matches!(asked.as_slice(), [SlurmQuery::Accounts(_)]));
    agent.ended(2, 0);
    agent.slurm_says(accounts([account(1, "FAILED", Some(1)), account(2, "COMPLETED", Some(2))]));
    assert_eq!(agent.state.sacct.unreported().len(), 0, "the second was not asked about");
    assert!(!agent.state.sacct.is_settled());
    let (_, after) = next_question(&mut agent);
    assert_eq!(after, Duration::from_secs(5), "no sooner than it is cheap");
    agent.slurm_says(accounts([account(1, "FAILED", Some(9)), account(2, "COMPLETED", Some(2))]));
    let news: Vec<_> = agent.state.sacct.unreported().iter().map(|(key, one)| (key.job, one.max_rss_bytes)).collect();
    assert_eq!(news, [(2, Some(2 << 10))]);
    assert!(agent.state.sacct.is_settled());
}

// X05. At the end of its time the runner does not wait for the accounting.
#[test]
fn the_end_of_time_does_not_wait_for_the_accounting() {
    let began = BootInstant(1_000 * SECOND);
    let end = began.plus(Duration::from_secs(1_800));
    let mut agent = agent();
    agent.answer([1]);
    agent.started(1);
    agent.now = end.minus(Duration::from_secs(20));
    agent.handle(AgentEvent::Tick);
    agent.ended(1, 0);
    for (at, settled) in [(end.minus(Duration::from_millis(1)), false), (end, true)] {
        agent.now = at;
        agent.handle(AgentEvent::Tick);
        let left = !matches!(agent.state.lifecycle.phase(), Phase::Ending(_));
        assert_eq!(left, settled, "{:?} before the end: {:?}", end.since(at), agent.state.lifecycle.phase());
        assert!(!agent.state.sacct.is_settled());
    }
}

// S10. After a stop, accounting data of a step that failed before is still delivered.
#[test]
fn an_account_that_comes_after_a_stop_is_told() {
    let mut agent = agent();
    agent.answer([1, 2]);
    agent.started(1).started(2).ended(1, 3);
    assert!(matches!(next_question(&mut agent).0.as_slice(), [SlurmQuery::Accounts(_)]));
    agent.handle(AgentEvent::Stop);
    agent.slurm_says(accounts([account(1, "FAILED", Some(6))]));
    let news: Vec<_> = agent.state.sacct.unreported().values().map(|one| (one.job, one.max_rss_bytes)).collect();
    assert_eq!(news, [(1, Some(6 << 10))]);
}

// S19. The log of srun is read if srun itself may have failed: its exit code is 1 then.
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
        let mut agent = agent();
        agent.answer([1]);
        agent.started(1);
        let over = JobExit { stdout, stderr, ..ended(1, Outcome::Exited(code), agent.now) };
        agent.handle(AgentEvent::Ended(Box::new(over)));
        let read = agent.effects.iter().find_map(|effect| match effect {
            Effect::ReadSrunLog(of, log) if *of == key(1) => Some(log.clone()),
            _ => None,
        });
        assert_eq!(read, expected, "{code}");
    }
}

// S10, S19. An account without a state settles a step; one of a running step does not.
#[test]
fn an_account_without_a_state_is_one_of_an_end() {
    for (state, settled) in [("", true), ("COMPLETED", true), ("RUNNING", false), ("PENDING", false)] {
        let mut agent = agent();
        agent.answer([1]);
        agent.started(1).ended(1, 0);
        next_question(&mut agent);
        agent.slurm_says(accounts([account(1, state, Some(8))]));
        assert_eq!(agent.state.sacct.is_settled(), settled, "{state:?}");
        let memory = agent.state.sacct.unreported().get(&key(1)).and_then(|one| one.max_rss_bytes);
        assert_eq!(memory, settled.then_some(8 << 10), "{state:?}");
    }
}

// S19. A job that srun never started has no account.
#[test]
fn a_step_that_was_not_started_is_reported_at_once() {
    let mut agent = agent();
    agent.answer([1]);
    let outcome = Outcome::NotStarted { code: 127, message: "srun: program not found".to_owned() };
    agent.handle(AgentEvent::Ended(Box::new(JobExit::new(key(1), agent.now, agent.now, outcome))));
    assert!(agent.state.sacct.is_settled() && !agent.state.jobs.contains_key(&key(1)));
    assert_eq!(agent.state.reports[&key(1)].finished.cause, Some(Cause::StartFailed));
}

// J23. A stopped runner does not wait for the data of successful steps.
#[test]
fn a_stop_does_not_wait_for_the_accounting() {
    let mut agent = agent();
    agent.answer([1]);
    agent.started(1).ended(1, 0);
    assert!(!agent.state.sacct.is_settled());
    agent.handle(AgentEvent::Stop);
    assert!(matches!(agent.state.lifecycle.phase(), Phase::Completing(..)), "{:?}", agent.state.lifecycle.phase());
}

// S07. Only a step that is looked up uses its tries.
#[test]
fn a_step_that_is_not_looked_for_uses_up_no_tries() {
    let mut agent = agent();
    measured(&mut agent);
    agent.answer([1]);
    agent.started(1);
    while !agent.has_sync() {
        agent.until_due();
    }
    agent.profile.resource_monitor = Some(ResourceMonitor { enabled: Some(false), ..ResourceMonitor::default() });
    agent.answer([2]);
    agent.started(2);
    for _ in 0..5 {
        assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
        agent.slurm_says(SlurmAnswer::StepNumbers(Vec::new()));
    }
    assert_eq!((expect_number(&mut agent, 1), expect_number(&mut agent, 2)), (false, true));
}

// X05. A step that the runner ended needs no explanation by Slurm.
#[test]
fn an_end_that_was_ordered_leads_to_no_look_at_the_allocation() {
    let mut agent = agent();
    agent.answer([1, 2]);
    agent.started(1).started(2).later(Duration::from_millis(100));
    agent.respond(SyncResponse { cancel: vec![key(1)], ..SyncResponse::default() });
    agent.ended(1, 143);
    assert!(!queries(&agent).contains(&SlurmQuery::Preemption), "{:?}", agent.effects);
    agent.ended(2, 143);
    assert!(queries(&agent).contains(&SlurmQuery::Preemption), "the runner has not ended this one");
}

// S08. Once per interval, and not after each of Slurm's answers.
#[test]
fn steps_are_measured_once_in_an_interval() {
    let mut agent = agent();
    measured(&mut agent);
    agent.answer([1]);
    agent.started(1);
    assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
    agent.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
    assert_eq!(queries(&agent), [SlurmQuery::StepUsage(vec![4])]);
    let asked = agent.now;
    agent.effects.clear();
    agent.slurm_says(SlurmAnswer::StepUsage(agent.now, Vec::new()));
    assert_eq!(looks(&mut agent), [SlurmQuery::StepUsage(vec![4])]);
    assert_eq!(agent.now.since(asked), Duration::from_secs(10));
}
