//! Tests of the shim's jobs with a clock that the test sets. The processes are real, and end with their test.

use super::*;
use crate::shim::start_log::StartLogHeader;

mod endings;

const KEY: AttemptKey = AttemptKey { workflow: 1, job: 2, run: 1, attempt: 1, lease_id: 5 };

/// Waits for a real process, up to a timeout.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a shim with one job, which ignores SIGTERM.
fn at_work(dir: &Path) -> JobTable {
    let header = StartLogHeader { shim: "tests".to_owned(), boot_id: String::new() };
    let mut jobs = JobTable::new("tests", StartLog::create(dir, &header).expect("start_log"), Vec::new());
    jobs.welcome(std::env::vars_os().collect());
    let folder = dir.display().to_string();
    jobs.define(StartTemplate { id: 1, working_dir: folder.clone(), log_dir: folder, ..StartTemplate::default() });
    let argv = ["sh", "-c", "trap '' TERM; echo > ready; while true; do sleep 0.05; done"];
    jobs.order(StartOrder {
        key: KEY,
        template: 1,
        argv: argv.map(str::to_owned).into(),
        until: BootInstant(u64::MAX),
        ..StartOrder::default()
    });
    wait_until("the job", || dir.join("ready").exists());
    jobs.outbox.clear();
    jobs
}

/// Returns the job as the next agent gets it.
fn described(jobs: &mut JobTable) -> ShimJob {
    jobs.welcome(Vec::new());
    let observed = std::mem::take(&mut jobs.outbox).into_iter().find_map(|outbox| match outbox {
        FromShim::Running(held) => Some(*held),
        _ => None,
    });
    observed.expect("it has not been collected")
}

/// Returns the reason and the moment of the first signal, as the next agent gets them.
fn ending(jobs: &mut JobTable) -> Option<(StopReason, BootInstant)> {
    described(jobs).ending
}

/// Waits until the process has exited, and collects only it: other children may belong to other tests.
fn expect_killed(jobs: &JobTable) {
    await_end(jobs.processes[&KEY]);
}

fn await_end(pid: i32) {
    wait_until("the end of a job", || procfs::is_zombie(pid));
    let _ = rustix::process::waitpid(Pid::from_raw(pid), rustix::process::WaitOptions::NOHANG);
}

fn ask(jobs: &mut JobTable, why: StopReason, lead_seconds: u64, now: BootInstant) {
    jobs.terminate(&Termination { key: KEY, why, signal: 15, lead_ms: lead_seconds * 1_000 }, now);
}

// J23, X05, X17. To the second, without waiting for it.
#[test]
fn a_job_has_exactly_its_lead() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = at_work(dir.path());
    let now = clock_now();
    let at = |seconds| now.plus(Duration::from_secs(seconds));
    jobs.on_time(at(5));
    ask(&mut jobs, StopReason::Timeout, 30, now);
    assert_eq!(jobs.next_time(at(2)), Some(at(30)));
    jobs.on_time(at(29));
    assert_eq!(jobs.outbox, []);
    jobs.on_time(at(30));
    assert_eq!(jobs.outbox, [FromShim::Killed(KEY)]);
    expect_killed(&jobs);
    assert_eq!(ending(&mut jobs), Some((StopReason::Timeout, now)));
}

// X11
#[test]
fn what_was_done_to_a_step_is_told_to_the_next_agent() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = at_work(dir.path());
    assert_eq!((described(&mut jobs).order.step_limit_ms, described(&mut jobs).is_warned), (None, false));
    let record = StepRecord { key: KEY, step_limit_ms: Some(60_000), is_warned: true };
    jobs.record(&record);
    jobs.record(&StepRecord { key: AttemptKey { job: 99, ..KEY }, ..record });
    assert_eq!((described(&mut jobs).order.step_limit_ms, described(&mut jobs).is_warned), (Some(60_000), true));
    ask(&mut jobs, StopReason::Stopped, 0, clock_now());
    jobs.on_time(clock_now());
    expect_killed(&jobs);
}

// J23
#[test]
fn a_repeated_order_only_shortens_the_lead() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = at_work(dir.path());
    let now = clock_now();
    let at = |seconds| now.plus(Duration::from_secs(seconds));
    jobs.on_time(at(5));
    ask(&mut jobs, StopReason::Canceled, 30, now);
    ask(&mut jobs, StopReason::Stopped, 60, at(1));
    assert_eq!(jobs.next_time(at(2)), Some(at(30)));
    ask(&mut jobs, StopReason::Stopped, 10, at(2));
    assert_eq!(jobs.next_time(at(2)), Some(at(12)));
    ask(&mut jobs, StopReason::Stopped, 0, at(3));
    jobs.on_time(at(3));
    expect_killed(&jobs);
    assert_eq!(ending(&mut jobs), Some((StopReason::Canceled, now)));
}

/// Returns a shim without jobs, with a template in which every field counts.
fn idle(dir: &Path) -> JobTable {
    let header = StartLogHeader { shim: "tests".to_owned(), boot_id: String::new() };
    let mut jobs = JobTable::new("tests", StartLog::create(dir, &header).expect("start_log"), Vec::new());
    jobs.welcome(std::env::vars_os().collect());
    let folder = dir.display().to_string();
    jobs.define(StartTemplate {
        id: 3,
        working_dir: folder.clone(),
        log_dir: folder,
        lead_ms: 4_000,
        signal: 12,
        timeout_exit_code: 77,
        ..StartTemplate::default()
    });
    jobs.heartbeat(BootInstant(u64::MAX));
    jobs.outbox.clear();
    jobs
}

fn order(job: i64, in_turn: bool) -> StartOrder {
    StartOrder {
        key: AttemptKey { job, ..KEY },
        name: format!("job {job}"),
        template: 3,
        argv: vec!["sleep".to_owned(), "1000".to_owned()],
        devices: vec!["7".to_owned()],
        nodes: vec!["n8".to_owned()],
        step_limit_ms: Some(9),
        class: 2,
        in_turn,
        until: BootInstant(u64::MAX),
        ..StartOrder::default()
    }
}

fn started(jobs: &JobTable) -> Vec<i64> {
    let keys = jobs.outbox.iter().filter_map(|outbox| match outbox {
        FromShim::Started { key, .. } => Some(key.job),
        _ => None,
    });
    keys.collect()
}

/// Takes the next job of the class of every [`order`].
fn next_in_turn(jobs: &mut JobTable, now: BootInstant) -> Option<i64> {
    jobs.next_in_turn(2, now).map(|order| order.key.job)
}

/// Ends a job that cannot be started, and returns the job that started in its place.
fn successor_of_a_failed_start(jobs: &mut JobTable, job: i64) -> Option<i64> {
    jobs.order(StartOrder { template: 99, ..order(job, false) });
    let successor = jobs.outbox.iter().find_map(|outbox| match outbox {
        FromShim::Ended(ended) if ended.key.job == job => Some(ended.successor),
        _ => None,
    });
    successor.expect("it has ended").map(|key| key.job)
}

fn kill_all(mut jobs: JobTable) {
    for pid in jobs.processes.values().copied().collect::<Vec<_>>() {
        signal_group(pid, Signal::KILL);
        await_end(pid);
    }
    jobs.running.clear();
}

#[test]
fn everything_about_a_job_is_told_to_the_next_agent() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    jobs.order(order(4, false));
    let pid = jobs.processes[&AttemptKey { job: 4, ..KEY }];
    let held = described(&mut jobs);
    let expected = ShimJob {
        order: StartOrder { argv: Vec::new(), env: Vec::new(), ..order(4, false) },
        template: jobs.running[&pid].prepared.template.clone(),
        started: held.started,
        pid,
        is_warned: false,
        ending: None,
    };
    assert_eq!(held, expected);
    assert_eq!((held.template.lead_ms, held.template.timeout_exit_code), (4_000, 77));
    kill_all(jobs);
}

// P03. A waiting job starts on order, and does not after its revocation.
#[test]
fn what_waits_for_its_turn_is_started_or_revoked() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    for job in [4, 5, 6] {
        jobs.order(order(job, true));
    }
    assert_eq!((started(&jobs), jobs.is_idle()), (vec![], true));
    jobs.start_now(&AttemptKey { job: 5, ..KEY });
    assert_eq!(started(&jobs), [5]);
    jobs.outbox.clear();
    jobs.revoke(&[4, 5, 9].map(|job| AttemptKey { job, ..KEY }));
    assert_eq!(jobs.outbox, [FromShim::Revoked(AttemptKey { job: 4, ..KEY })], "one runs, and one was never here");
    assert_eq!(next_in_turn(&mut jobs, clock_now()), Some(6), "only its own class");
    assert!(next_in_turn(&mut jobs, clock_now()).is_none() && jobs.next_in_turn(0, clock_now()).is_none());
    kill_all(jobs);
}

// P08. An order with an expired lease is not carried out.
#[test]
fn a_late_order_is_revoked() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    jobs.order(StartOrder { until: BootInstant(1), ..order(4, false) });
    assert_eq!(jobs.outbox, [FromShim::Revoked(AttemptKey { job: 4, ..KEY })]);
    assert!(jobs.is_idle());
    jobs.outbox.clear();
    jobs.order(StartOrder { template: 99, ..order(5, false) });
    let [FromShim::Ended(ended)] = jobs.outbox.as_slice() else { panic!("{:?}", jobs.outbox) };
    assert_eq!((ended.key.job, ended.outcome.return_code()), (5, 126), "its template is unknown");
}

// P08. To the microsecond: handed jobs start until the agent has been silent for too long, and again when it is back.
#[test]
fn jobs_follow_in_turn_only_while_the_agent_is_alive() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    for job in [4, 5, 6] {
        jobs.order(order(job, true));
    }
    jobs.heartbeat(BootInstant(1_000));
    assert_eq!(next_in_turn(&mut jobs, BootInstant(999)), Some(4));
    assert_eq!(next_in_turn(&mut jobs, BootInstant(1_000)), Some(5));
    assert_eq!(next_in_turn(&mut jobs, BootInstant(1_001)), None);
    assert_eq!(jobs.outbox, [], "the last one goes on waiting");
    jobs.heartbeat(BootInstant(2_000));
    assert_eq!(next_in_turn(&mut jobs, BootInstant(2_001)), None, "a heartbeat that is read late grants no more time");
    assert_eq!(next_in_turn(&mut jobs, BootInstant(1_001)), Some(6));
}

// P08. An agent without heartbeats starts each job itself.
#[test]
fn nothing_follows_in_turn_before_the_first_heartbeat() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    jobs.welcome(Vec::new());
    jobs.order(order(4, true));
    assert_eq!(next_in_turn(&mut jobs, BootInstant(0)), None, "the heartbeat was the last agent's");
    jobs.heartbeat(BootInstant(0));
    assert_eq!(next_in_turn(&mut jobs, BootInstant(0)), Some(4));
}

// P08. The lease also bounds turns while the agent is alive: machine, shim and agent may have been suspended together.
#[test]
fn a_turn_ends_with_the_lease_whatever_the_agent_says() {
    for (until, expected) in [(999, None), (1_000, Some(4)), (1_001, Some(4))] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut jobs = idle(dir.path());
        jobs.order(StartOrder { until: BootInstant(until), ..order(4, true) });
        assert_eq!(next_in_turn(&mut jobs, BootInstant(1_000)), expected, "a lease until {until}");
        let revoked = FromShim::Revoked(AttemptKey { job: 4, ..KEY });
        assert_eq!(jobs.outbox.contains(&revoked), expected.is_none(), "a lease until {until}");
    }
}

// P03, P08. While the agent is silent a slot stays empty and the agent gets a message; its next orders are carried out.
#[test]
fn a_silent_agent_decides_itself_when_it_is_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    jobs.order(order(5, true));
    jobs.order(order(6, true));
    jobs.heartbeat(clock_now().minus(Duration::from_micros(1)));
    assert_eq!(successor_of_a_failed_start(&mut jobs, 4), None);
    assert_eq!(started(&jobs), Vec::<i64>::new());
    assert!(jobs.has_urgent_messages(), "a place is empty");
    jobs.outbox.clear();
    jobs.revoke(&[AttemptKey { job: 6, ..KEY }]);
    assert_eq!(jobs.outbox, [FromShim::Revoked(AttemptKey { job: 6, ..KEY })]);
    jobs.order(order(7, false));
    jobs.start_now(&AttemptKey { job: 5, ..KEY });
    assert_eq!(started(&jobs), [7, 5], "what is ordered needs no heartbeat");
    jobs.order(order(8, true));
    jobs.heartbeat(BootInstant(u64::MAX));
    assert_eq!(started(&jobs), [7, 5], "a heartbeat alone starts nothing");
    assert_eq!(successor_of_a_failed_start(&mut jobs, 9), Some(8));
    assert_eq!(started(&jobs), [7, 5, 8]);
    kill_all(jobs);
}

// J16. A result is kept until it is acknowledged, and sent to each agent with its template.
#[test]
fn a_result_is_told_until_it_is_acknowledged() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    jobs.order(StartOrder { argv: vec!["no-such-program-here".to_owned()], ..order(4, false) });
    jobs.order(StartOrder { argv: Vec::new(), ..order(5, false) });
    for acknowledged in [vec![], vec![4], vec![4, 5]] {
        jobs.acknowledge(&acknowledged.iter().map(|job| AttemptKey { job: *job, ..KEY }).collect::<Vec<_>>());
        jobs.welcome(Vec::new());
        let observed: Vec<(i64, i32, Option<u64>)> = std::mem::take(&mut jobs.outbox)
            .into_iter()
            .filter_map(|outbox| match outbox {
                FromShim::Ended(ended) => {
                    Some((ended.key.job, ended.outcome.return_code(), ended.job.map(|job| job.template.lead_ms)))
                }
                _ => None,
            })
            .collect();
        let all = [(4, 127, Some(4_000)), (5, 126, Some(4_000))];
        let expected: Vec<_> = all.into_iter().filter(|(job, ..)| !acknowledged.contains(job)).collect();
        assert_eq!(observed, expected, "{acknowledged:?}");
    }
}

// P03. The agent is woken at once when it has to act, and later when the shim went on by itself.
#[test]
fn which_messages_are_urgent() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    let over = |successor| {
        let ended = JobExit::new(KEY, BootInstant(1), BootInstant(2), Outcome::Exited(0));
        FromShim::Ended(JobExit { successor, ..ended })
    };
    let run = FromShim::Started { key: KEY, at: BootInstant(1), pid: 1 };
    let cases = [
        (vec![], false),
        (vec![run.clone()], false),
        (vec![over(Some(KEY))], false),
        (vec![run.clone(), over(Some(KEY))], false),
        (vec![over(None)], true),
        (vec![run, over(Some(KEY)), over(None)], true),
        (vec![FromShim::Revoked(KEY)], true),
        (vec![FromShim::Killed(KEY)], true),
        (vec![FromShim::Problem(String::new())], true),
    ];
    for (outbox, urgent) in cases {
        jobs.outbox.clone_from(&outbox);
        assert_eq!(jobs.has_urgent_messages(), urgent, "{outbox:?}");
    }
    // Fewer jobs wait than run, so the queue is soon empty.
    jobs.outbox.clear();
    jobs.order(order(4, false));
    jobs.outbox.clear();
    assert!(jobs.has_urgent_messages());
    jobs.order(order(5, true));
    assert!(!jobs.has_urgent_messages());
    kill_all(jobs);
}

// Waiting jobs do not start under the next agent, whose classes differ.
#[test]
fn nothing_of_the_last_agent_is_left_for_the_next() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    jobs.order(order(4, false));
    jobs.order(order(5, true));
    jobs.outbox.push(FromShim::Problem("old".to_owned()));
    jobs.welcome(Vec::new());
    jobs.heartbeat(BootInstant(u64::MAX));
    assert!(next_in_turn(&mut jobs, clock_now()).is_none(), "it waited for the last agent");
    assert!(
        !jobs.outbox.contains(&FromShim::Problem("old".to_owned())),
        "the new agent does not get the old one's messages"
    );
    assert_eq!(jobs.outbox.last(), Some(&FromShim::Ready));
    let classes: Vec<Option<u32>> = jobs.running.values().map(|job| job.class).collect();
    assert_eq!(classes, [None], "nothing follows a job of another agent");
    kill_all(jobs);
}

// J16, J23, X10. The result has everything that the shim knows of its job.
#[test]
fn a_result_has_all_that_is_known_of_its_job() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    jobs.order(order(4, false));
    let key = AttemptKey { job: 4, ..KEY };
    let asked = clock_now();
    jobs.terminate(&Termination { key, why: StopReason::Canceled, signal: 12, lead_ms: 9_000 }, asked);
    let pid = jobs.processes[&key];
    let job = jobs.running.get_mut(&pid).expect("it runs");
    job.rusage = Rusage { cpu_us: 21, peak_memory_bytes: Some(22) };
    job.order.step_limit_ms = Some(23);
    let kept = logs::LogOutcome { stdout: Some("/o".into()), stderr: Some("/e".into()), problem: None };
    let before = BootInstant(asked.0 - 1);
    for (at, ending) in [(before, None), (asked, Some(StopReason::Canceled))] {
        let job = jobs.running.get(&pid).expect("it runs");
        let expected = JobExit {
            rusage: Some(Rusage { cpu_us: 21, peak_memory_bytes: Some(22) }),
            ending,
            stdout: Some("/o".to_owned()),
            stderr: Some("/e".to_owned()),
            ..JobExit::new(key, job.started, at, Outcome::Exited(5))
        };
        assert_eq!(reap::job_exit(job, at, Outcome::Exited(5), &kept), expected);
    }
    kill_all(jobs);
}

// J23. A repeated order does not signal the job again.
#[test]
fn a_job_is_signaled_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = idle(dir.path());
    // bash runs the traps of signals that arrived together in the order of their numbers: 10, 12, 14.
    let script = "trap 'echo > first' USR1; trap 'echo > second' USR2; trap 'echo > last' ALRM; echo > ready; \
                  while true; do sleep 0.05; done";
    jobs.order(StartOrder { argv: ["bash", "-c", script].map(str::to_owned).into(), ..order(4, false) });
    wait_until("the job", || dir.path().join("ready").exists());
    let key = AttemptKey { job: 4, ..KEY };
    let now = clock_now();
    for (signal, lead_ms) in [(10, 900_000), (12, 800_000)] {
        jobs.terminate(&Termination { key, why: StopReason::Stopped, signal, lead_ms }, now);
    }
    signal_group(jobs.processes[&key], Signal::ALARM);
    wait_until("the last signal", || dir.path().join("last").exists());
    assert_eq!((dir.path().join("first").exists(), dir.path().join("second").exists()), (true, false));
    kill_all(jobs);
}

// J22. Packed output is dropped at once only if it is not needed any more.
#[test]
fn which_packed_outputs_go_at_once() {
    use torc_api::execution::StdioMode::{Packed, Separate};
    let cases = [
        (Packed, true, vec![], Outcome::Exited(0), true),
        (Separate, true, vec![], Outcome::Exited(0), false),
        (Packed, false, vec![], Outcome::Exited(0), false),
        (Packed, true, vec!["out".to_owned()], Outcome::Exited(0), false),
        (Packed, true, vec![], Outcome::Exited(1), false),
        (Packed, true, vec![], Outcome::Signaled(9), false),
    ];
    for (stdio, delete_on_success, output_files, outcome, expected) in cases {
        let template = StartTemplate { stdio, delete_on_success, output_files, ..StartTemplate::default() };
        assert_eq!(reap::is_unwanted(&template, &outcome), expected, "{template:?} {outcome:?}");
    }
}
