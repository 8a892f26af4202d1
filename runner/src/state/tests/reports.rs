//! Results of attempts, and the journal that keeps them during outages.

use torc_api::execution::{ExecutionConfig, Stdio};
use torc_api::wire::FinishedAttempt;

use super::*;
use crate::protocol::Rusage;

fn checks(agent: &AgentHarness) -> Vec<OutputCheck> {
    let checks = agent.effects.iter().filter_map(|effect| match effect {
        Effect::CheckOutputs(_, check) => Some((**check).clone()),
        _ => None,
    });
    checks.collect()
}

// J16, X02, X16. Every outcome with every reason.
#[test]
fn code_and_cause_of_every_outcome_and_reason() {
    use StopReason::{Canceled, LeaseLost, OutOfMemory, Preempted, Stopped, Timeout};
    let not_started = || Outcome::NotStarted { code: 127, message: "no such program".to_owned() };
    let table = [
        (Outcome::Exited(0), None, 0, None),
        (Outcome::Exited(5), None, 5, Some(Cause::ExitCode)),
        (Outcome::Signaled(11), None, 139, Some(Cause::ExitCode)),
        (not_started(), None, 127, Some(Cause::StartFailed)),
        (Outcome::Exited(0), Some(Stopped), 0, Some(Cause::Stopped)),
        (Outcome::Exited(5), Some(Stopped), 5, Some(Cause::Stopped)),
        (Outcome::Signaled(15), Some(Stopped), 143, Some(Cause::Stopped)),
        (Outcome::Signaled(9), Some(LeaseLost), 137, Some(Cause::Stopped)),
        (Outcome::Signaled(15), Some(Canceled), 143, Some(Cause::Canceled)),
        (Outcome::Signaled(15), Some(Preempted), 143, Some(Cause::Preempted)),
        (Outcome::Exited(0), Some(Timeout), 0, None),
        (Outcome::Exited(5), Some(Timeout), 91, Some(Cause::Timeout)),
        (Outcome::Signaled(15), Some(Timeout), 91, Some(Cause::Timeout)),
        (Outcome::Exited(0), Some(OutOfMemory), 0, None),
        (Outcome::Exited(5), Some(OutOfMemory), 5, Some(Cause::ExitCode)),
        (Outcome::Signaled(9), Some(OutOfMemory), 92, Some(Cause::OutOfMemory)),
        (not_started(), Some(Canceled), 127, Some(Cause::StartFailed)),
    ];
    for (outcome, ending, code, cause) in table {
        let mut agent = AgentHarness::new(1);
        agent.profile.execution_config = Some(ExecutionConfig {
            timeout_exit_code: Some(91),
            oom_exit_code: Some(92),
            ..ExecutionConfig::default()
        });
        agent.answer([1]);
        agent.started(1);
        agent.handle(AgentEvent::Ended(Box::new(JobExit { ending, ..ended(1, outcome.clone(), agent.now) })));
        let report = &agent.state.reports[&key(1)].finished;
        assert_eq!((report.return_code, report.cause), (code, cause), "{outcome:?} {ending:?}");
        let message = (outcome == not_started()).then_some("no such program");
        assert_eq!(report.message.as_deref(), message, "{outcome:?} {ending:?}");
    }
}

#[test]
fn every_field_of_an_end_reaches_the_report() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    agent.handle(AgentEvent::Started(key(1), agent.now, 100)).later(Duration::from_secs(9));
    let over = JobExit {
        rusage: Some(Rusage { cpu_us: 350_000, peak_memory_bytes: Some(77) }),
        stdout: Some("/o".to_owned()),
        stderr: Some("/e".to_owned()),
        ..JobExit::new(key(1), BootInstant(1_001 * SECOND), BootInstant(1_004 * SECOND + 500_000), Outcome::Exited(0))
    };
    agent.handle(AgentEvent::Ended(Box::new(over)));
    let report = &agent.state.reports[&key(1)];
    let observed = report.with_age(agent.now);
    assert_eq!((observed.key, observed.duration_ms, observed.ended_ms_ago), (key(1), 3_500, 4_500));
    assert_eq!((observed.stdout.as_deref(), observed.stderr.as_deref()), (Some("/o"), Some("/e")));
    let usage = observed.usage.expect("the system has counted");
    assert_eq!((usage.peak_memory_bytes, usage.average_cpu_percent), (Some(77), Some(10.0)));
    assert_eq!((report.is_journaled, report.older, report.name.as_str()), (false, Duration::ZERO, "job1"));
    assert_eq!((observed.message, observed.files.len(), observed.slurm_stats), (None, 0, None));
}

/// Returns the logs to delete, and whether the kernel's kills are counted.
type Look<'a> = (&'a [&'a str], bool);

// J22. Logs are deleted only after success, and only on request.
#[test]
fn what_is_looked_for_after_an_end() {
    let stdio = |delete| Some(Stdio { mode: None, delete_on_success: Some(delete) });
    // Output files, whether logs are deleted, the outcome; whether files are checked, and the deleted logs.
    let cases: [(&[&str], bool, Outcome, Option<Look<'_>>); 7] = [
        (&[], false, Outcome::Exited(0), None),
        (&["out"], false, Outcome::Exited(0), Some((&[], false))),
        (&[], true, Outcome::Exited(0), Some((&["/o", "/e"], false))),
        (&["out"], true, Outcome::Exited(3), None),
        (&[], false, Outcome::Signaled(9), Some((&[], true))),
        (&[], false, Outcome::Exited(137), Some((&[], true))),
        (&[], false, Outcome::Signaled(15), None),
    ];
    for (outputs, delete, outcome, expected) in cases {
        let mut agent = AgentHarness::new(1);
        agent.profile.output_files = outputs.iter().map(|path| (*path).to_owned()).collect();
        agent.profile.stdio = stdio(delete);
        agent.profile.working_dir = "/work".to_owned();
        agent.answer([1]);
        agent.started(1);
        let over = JobExit {
            stdout: Some("/o".to_owned()),
            stderr: Some("/e".to_owned()),
            ..ended(1, outcome.clone(), agent.now)
        };
        agent.handle(AgentEvent::Ended(Box::new(over)));
        let found = checks(&agent);
        let found = found.first().map(|check| (check.delete.clone(), check.oom_kills));
        let wanted = expected.map(|(logs, kills)| (logs.iter().map(|log| (*log).to_owned()).collect(), kills));
        assert_eq!(found, wanted, "{outputs:?} {delete} {outcome:?}");
        // A result that needs a check is not reported before.
        assert_eq!(agent.state.jobs.contains_key(&key(1)), expected.is_some(), "{outputs:?} {outcome:?}");
    }
}

#[test]
fn what_was_found_changes_the_report() {
    let found = FileStat { path: "f".to_owned(), size_bytes: 3, modified_ms: 4, sha256: None };
    let logs = (Some("/o".to_owned()), Some("/e".to_owned()));
    let cases = [
        (OutputFindings { files: vec![found.clone()], ..OutputFindings::default() }, (0, None, None), logs.clone()),
        (OutputFindings { logs_deleted: true, ..OutputFindings::default() }, (0, None, None), (None, None)),
        (
            OutputFindings { missing: Some("out".to_owned()), ..OutputFindings::default() },
            (1, Some(Cause::MissingOutput), Some("output file out does not exist".to_owned())),
            logs,
        ),
    ];
    for (findings, (code, cause, message), (stdout, stderr)) in cases {
        let mut agent = AgentHarness::new(1);
        agent.profile.output_files = vec!["out".to_owned()];
        agent.answer([1]);
        agent.started(1);
        let over = JobExit {
            stdout: Some("/o".to_owned()),
            stderr: Some("/e".to_owned()),
            ..ended(1, Outcome::Exited(0), agent.now)
        };
        agent.handle(AgentEvent::Ended(Box::new(over)));
        agent.handle(AgentEvent::OutputsChecked(key(1), findings.clone()));
        let report = agent.state.reports[&key(1)].finished.clone();
        let expected = FinishedAttempt {
            return_code: code,
            cause,
            message,
            stdout,
            stderr,
            files: findings.files.clone(),
            ..report.clone()
        };
        assert_eq!(report, expected, "{findings:?}");
        let observed = |effect: &Effect| match effect {
            Effect::Log(RunnerEvent::Finished { key, name, return_code, cause }) => {
                Some((*key, name.clone(), *return_code, *cause))
            }
            _ => None,
        };
        let observed: Vec<_> = agent.effects.iter().filter_map(observed).collect();
        assert_eq!(observed, [(key(1), "job1".to_owned(), code, cause)]);
    }
}

#[test]
fn what_a_killed_shim_had_is_reported_as_lost() {
    let mut agent = AgentHarness::new(2);
    agent.answer([1, 2]);
    agent.handle(AgentEvent::Started(key(1), agent.now, 100));
    agent.later(Duration::from_millis(2_750));
    agent.handle(AgentEvent::ShimLost);
    let report = &agent.state.reports[&key(1)];
    let finished = &report.finished;
    assert_eq!((finished.key, finished.return_code, finished.cause), (key(1), -128, Some(Cause::Lost)));
    assert_eq!((finished.duration_ms, report.ended, report.name.as_str()), (2_750, agent.now, "job1"));
    assert!(finished.message.as_deref().is_some_and(|message| message.contains("killed")), "{finished:?}");
    assert!(agent.state.reports.contains_key(&key(2)), "it was about to start");
    assert_eq!(agent.state.jobs.ledger().free(), agent.state.jobs.ledger().capacity());
}

// J33
#[test]
fn the_journal_gets_every_report_once_and_again_when_it_changed() {
    let mut agent = AgentHarness::new(1);
    let offline = RunnerSettings { server_retry_window: Some(Duration::ZERO), ..user() };
    agent.state.settings.user = offline;
    agent.answer([1]).started(1).later(Duration::from_millis(100));
    agent.fail(LinkError::Unreachable("x".to_owned()));
    assert!(agent.state.session.is_draining());
    let now = agent.now;
    let over = JobExit::new(key(1), now.minus(Duration::from_secs(2)), now, Outcome::Exited(4));
    agent.now = now.plus(Duration::from_millis(30));
    agent.handle(AgentEvent::Ended(Box::new(over)));
    let written = |agent: &AgentHarness| {
        let written = agent.effects.iter().filter_map(|effect| match effect {
            Effect::Journal(results) => Some(results.clone()),
            _ => None,
        });
        written.flatten().collect::<Vec<_>>()
    };
    let results = written(&agent);
    assert_eq!(results.len(), 1);
    let result = &results[0];
    assert_eq!((result.ended_ms, result.runner, result.name.as_str()), (0, Some(5), "job1"));
    assert_eq!((result.finished.key, result.finished.return_code), (key(1), 4));
    assert_eq!((result.finished.ended_ms_ago, result.finished.duration_ms), (30, 2_000));
    agent.handle(AgentEvent::Tick);
    assert_eq!(written(&agent), [], "it is being written");
    // The disk is full, so the write is repeated five seconds later.
    agent.handle(AgentEvent::NotJournalled("full".to_owned()));
    let failed = agent.now;
    assert_eq!(written(&agent), []);
    for (after, count) in [(4_999, 0), (5_000, 1)] {
        agent.now = failed.plus(Duration::from_millis(after));
        agent.handle(AgentEvent::Tick);
        assert_eq!(written(&agent).len(), count, "{after} ms");
    }
    agent.handle(AgentEvent::Journalled(vec![key(1)]));
    assert!(agent.state.reports[&key(1)].is_journaled);
}

// J18, J36. The hints name every workflow and run with results in the journal once.
#[test]
fn hints_name_every_run_that_left_results() {
    let mut agent = AgentHarness::new(1);
    let result = |workflow, job, run| {
        let key = AttemptKey { workflow, job, run, attempt: 1, lease_id: 1 };
        let finished = FinishedAttempt { key, ..FinishedAttempt::default() };
        (JournalledResult { name: "j".to_owned(), finished, ..JournalledResult::default() }, Duration::from_secs(3))
    };
    agent.handle(AgentEvent::Recovered(vec![result(4, 1, 2), result(4, 2, 2), result(4, 1, 3), result(6, 1, 1)]));
    agent.handle(AgentEvent::Ended(Box::new(ended(9, Outcome::Exited(0), agent.now))));
    agent.state.exit_with_undelivered(RunnerExit::Stopped, &mut agent.effects);
    let observed = agent.effects.iter().find_map(|effect| match effect {
        Effect::Log(RunnerEvent::LeftResults { journalled, unwritten, hints }) => {
            Some((*journalled, *unwritten, hints.clone()))
        }
        _ => None,
    });
    let hint = |of: &str| format!("torc workflows reconcile {of} --base-dir /out");
    assert_eq!(observed, Some((4, 1, vec![hint("4 2"), hint("4 3"), hint("6 1")])));
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Stopped)));
}

// J37. A result in the journal is neither duplicated nor replaced.
#[test]
fn a_recovered_result_does_not_replace_what_is_known() {
    let mut agent = AgentHarness::new(2);
    agent.answer([1, 2]).started(1).started(2);
    agent.ended(1, 6);
    let recovered = |job| {
        let finished = FinishedAttempt { key: key(job), return_code: 99, ..FinishedAttempt::default() };
        (JournalledResult { name: "old".to_owned(), finished, ..JournalledResult::default() }, Duration::from_secs(3))
    };
    agent.handle(AgentEvent::Recovered(vec![recovered(1), recovered(2), recovered(3)]));
    let report = &agent.state.reports[&key(1)];
    assert_eq!((report.finished.return_code, report.is_journaled), (6, true), "known: it is only safe now");
    assert!(!agent.state.reports.contains_key(&key(2)), "it runs");
    let report = &agent.state.reports[&key(3)];
    assert_eq!((report.finished.return_code, report.is_journaled, report.name.as_str()), (99, true, "old"));
    assert_eq!(report.with_age(agent.now).ended_ms_ago, 3_000);
}

// J33. A result is written only after its output files were checked.
#[test]
fn a_result_is_journalled_when_it_is_complete() {
    let mut agent = AgentHarness::new(1);
    agent.state.settings.user.server_retry_window = Some(Duration::ZERO);
    agent.profile.output_files = vec!["out".to_owned()];
    agent.answer([1]).started(1).later(Duration::from_millis(100));
    agent.fail(LinkError::Unreachable("x".to_owned()));
    assert!(agent.state.session.is_draining());
    agent.ended(1, 0);
    let written = |agent: &AgentHarness| agent.effects.iter().any(|effect| matches!(effect, Effect::Journal(_)));
    assert!(!written(&agent) && checks(&agent).len() == 1, "{:?}", agent.effects);
    agent.handle(AgentEvent::OutputsChecked(
        key(1),
        OutputFindings { missing: Some("out".to_owned()), ..OutputFindings::default() },
    ));
    assert!(written(&agent), "{:?}", agent.effects);
}

// A result from before the start of the machine: its age plus its duration is the time since its start.
#[test]
fn an_old_result_began_its_duration_before_its_end() {
    let mut agent = AgentHarness::new(1);
    let template = StartTemplate { output_files: vec!["out".to_owned()], ..Default::default() };
    let mut old = JobExit::new(key(1), BootInstant(1 << 50), BootInstant((1 << 50) + 3_000_000), Outcome::Exited(0));
    (old.age_ms, old.job) = (Some(50_000), Some(Box::new(ShimJob { template, ..ShimJob::default() })));
    agent.handle(AgentEvent::Ended(Box::new(old)));
    assert_eq!(checks(&agent)[0].elapsed, Duration::from_secs(53));
}

// P06. A job that could not start does not count as a short job.
#[test]
fn what_did_not_start_is_no_short_job() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    let outcome = Outcome::NotStarted { code: 127, message: "no such program".to_owned() };
    agent.handle(AgentEvent::Ended(Box::new(JobExit::new(key(1), agent.now, agent.now, outcome))));
    assert_eq!(agent.state.throughput.prefetch_to_shim(), 0);
    let started = |effect: &Effect| matches!(effect, Effect::Log(RunnerEvent::Started { .. }));
    assert!(!agent.effects.iter().any(started), "it never ran: {:?}", agent.effects);
}

// J35. Without draining nothing is written into the journal.
#[test]
fn without_draining_there_is_no_journal() {
    let mut agent = AgentHarness::new(2);
    agent.state.settings.user =
        RunnerSettings { offline_drain: false, server_retry_window: Some(Duration::ZERO), ..user() };
    agent.answer([1, 2]).started(1).started(2).later(Duration::from_millis(100));
    agent.fail(LinkError::Unreachable("x".to_owned()));
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(15), agent.now))));
    assert!(!agent.effects.iter().any(|effect| matches!(effect, Effect::Journal(_))), "{:?}", agent.effects);
    assert_eq!(agent.exit(), None, "the other one has not ended");
}
