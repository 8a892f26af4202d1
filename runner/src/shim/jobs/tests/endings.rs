//! Ends of jobs: no process of an ended job is left, and no other process is killed.
//!
//! A shim collects all children of its process, so each of these tests is a process of its own.

use super::*;

/// Set in the process that a test starts for itself.
const ALONE: &str = "TORC_TEST_ALONE";

/// Runs the body of a test in a process without other children, which inherits the children of its descendants.
fn alone(name: &str, body: fn(&Path)) {
    if std::env::var_os(ALONE).is_some() {
        rustix::process::set_child_subreaper(Pid::from_raw(1)).expect("a subreaper");
        return body(tempfile::tempdir().expect("a folder").path());
    }
    let name = format!("{}::{name}", module_path!().split_once("::").map_or("", |(_, rest)| rest));
    let mut command = std::process::Command::new(std::env::current_exe().expect("a test"));
    let output = command.args([name.as_str(), "--exact"]).env(ALONE, "1").output().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// Orders a shell script as a job, with the variables that mark its processes.
fn script(job: i64, attempt: i32, script: &str) -> StartOrder {
    let key = AttemptKey { job, attempt, ..KEY };
    let marks = [
        ("TORC_WORKFLOW_ID", key.workflow.to_string()),
        ("TORC_JOB_ID", key.job.to_string()),
        ("TORC_RUN_ID", key.run.to_string()),
        ("TORC_ATTEMPT_ID", key.attempt.to_string()),
    ];
    StartOrder {
        key,
        argv: ["sh", "-c", script].map(str::to_owned).into(),
        env: marks.map(|(name, value)| (name.to_owned(), value)).into(),
        ..order(job, false)
    }
}

/// Returns the PID of a process that has left its job's group.
fn daemon(dir: &Path, file: &str) -> String {
    let path = dir.join(file);
    let path = path.display();
    format!(
        "setsid sh -c 'echo $$ >{path}.new; mv {path}.new {path}; exec sleep 300' & while [ ! -e {path} ]; do sleep 0.01; done"
    )
}

fn number(dir: &Path, file: &str) -> i32 {
    wait_until(file, || dir.join(file).exists());
    std::fs::read_to_string(dir.join(file)).expect("a number").trim().parse().expect("a number")
}

/// Collects until a job has ended, and returns its result.
fn result_of(jobs: &mut JobTable, job: i64) -> JobExit {
    let mut found = None;
    wait_until("a result", || {
        jobs.reap();
        found = jobs.outbox.iter().find_map(|outbox| match outbox {
            FromShim::Ended(ended) if ended.key.job == job => Some(ended.clone()),
            _ => None,
        });
        found.is_some()
    });
    found.expect("it was waited for")
}

fn lives(pid: i32) -> bool {
    !procfs::is_zombie(pid)
}

// J16
#[test]
fn the_outcome_of_each_job_is_its_own() {
    alone("the_outcome_of_each_job_is_its_own", |dir| {
        let mut jobs = idle(dir);
        let before = clock_now();
        for (job, attempt, text) in [(4, 1, "exit 7"), (5, 2, "exit 8"), (6, 1, "kill -9 $$")] {
            jobs.order(script(job, attempt, text));
        }
        let results = [4, 5, 6].map(|job| result_of(&mut jobs, job));
        let outcomes = results.clone().map(|ended| (ended.key.attempt, ended.outcome));
        assert_eq!(outcomes, [(1, Outcome::Exited(7)), (2, Outcome::Exited(8)), (1, Outcome::Signaled(9))]);
        assert!(results.iter().all(|ended| before <= ended.started && ended.started <= ended.ended));
        assert!(jobs.is_idle() && jobs.processes.is_empty() && jobs.ending.is_empty());
        assert_eq!(jobs.free_slots.len(), 3, "their places are free");
    });
}

// J16
#[test]
fn what_left_the_group_of_a_job_ends_with_it() {
    alone("what_left_the_group_of_a_job_ends_with_it", |dir| {
        let mut jobs = idle(dir);
        jobs.order(script(4, 1, &format!("{}; sleep 300 & exit 7", daemon(dir, "of_4"))));
        jobs.order(script(5, 1, &format!("{}; exec sleep 300", daemon(dir, "of_5"))));
        let (of_4, of_5) = (number(dir, "of_4"), number(dir, "of_5"));
        assert_eq!(result_of(&mut jobs, 4).outcome, Outcome::Exited(7));
        assert!(!lives(of_4), "nothing is left of a job that is reported");
        assert!(lives(of_5) && jobs.processes.len() == 1, "the other one goes on");
        let key = AttemptKey { job: 5, ..KEY };
        jobs.terminate(&Termination { key, why: StopReason::Stopped, signal: 15, lead_ms: 0 }, clock_now());
        jobs.on_time(clock_now());
        let ended = result_of(&mut jobs, 5);
        assert_eq!((ended.outcome, ended.ending), (Outcome::Signaled(9), Some(StopReason::Stopped)));
        assert!(!lives(of_5));
    });
}

// J16
#[test]
#[allow(clippy::zombie_processes, reason = "the shim collects all children of its process")]
fn what_an_earlier_attempt_left_ends_and_strangers_wait() {
    alone("what_an_earlier_attempt_left_ends_and_strangers_wait", |dir| {
        let mut jobs = idle(dir);
        #[allow(clippy::zombie_processes, reason = "the shim collects all children of its process")]
        let spawn = |shim: &str, attempt: i32| {
            let StartOrder { env, .. } = script(5, attempt, "");
            let mut command = std::process::Command::new("sleep");
            let child = command.arg("300").envs(env).env("TORC_SHIM", shim).spawn().expect("a process");
            i32::try_from(child.id()).expect("a number")
        };
        // Attempt 1 of job 5 has ended; the other process carries the mark of another shim.
        let (earlier, current, stranger) = (spawn("tests", 1), spawn("tests", 2), spawn("other", 2));
        jobs.order(script(5, 2, "exec sleep 300"));
        jobs.order(script(4, 1, "exit 0"));
        result_of(&mut jobs, 4);
        wait_until("the end of a leftover", || !lives(earlier));
        assert!(lives(current), "it is of the attempt that runs");
        assert!(lives(stranger), "it may be about to become one of a running job");
        let key = AttemptKey { job: 5, attempt: 2, ..KEY };
        jobs.terminate(&Termination { key, why: StopReason::Stopped, signal: 15, lead_ms: 0 }, clock_now());
        jobs.on_time(clock_now());
        result_of(&mut jobs, 5);
        assert!(!lives(current));
        wait_until("the end of a stranger", || !lives(stranger));
    });
}

// J17. The usage of a job includes processes that were collected after its first process.
#[test]
fn usage_of_orphaned_processes_counts_for_their_job() {
    alone("usage_of_orphaned_processes_counts_for_their_job", |dir| {
        let mut jobs = idle(dir);
        let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let file = dir.join("busy");
        let path = file.display();
        let orphan =
            format!("setsid sh -c '{busy}; echo >{path}; exec sleep 300' & while [ ! -e {path} ]; do sleep 0.01; done");
        jobs.order(script(4, 1, &orphan));
        jobs.order(script(5, 1, "exit 0"));
        let [with, without] = [4, 5].map(|job| result_of(&mut jobs, job).rusage.expect("it was counted").cpu_us);
        assert!(with > 10 * without.max(1_000), "{with} and {without} microseconds");
    });
}

// J23
#[test]
fn at_its_end_a_shim_leaves_no_children() {
    alone("at_its_end_a_shim_leaves_no_children", |dir| {
        let mut jobs = idle(dir);
        jobs.order(script(4, 1, &format!("{}; exit 3", daemon(dir, "daemon"))));
        let pid = number(dir, "daemon");
        jobs.order(script(5, 1, "exec sleep 300"));
        let other = jobs.processes[&AttemptKey { job: 5, ..KEY }];
        let results = jobs.close();
        assert!(results.is_empty(), "none was collected");
        assert!(!lives(pid) && !lives(other));
        assert!(wait_for_any().is_err(), "all are collected");
    });
}

fn wait_for_any() -> rustix::io::Result<()> {
    rustix::process::wait(rustix::process::WaitOptions::NOHANG).map(|_| ())
}
