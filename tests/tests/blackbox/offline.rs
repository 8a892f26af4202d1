//! Outages of the server while jobs run. Every result arrives exactly once, whichever other processes are killed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;
use torc_tests::env::{Call, Running, Server, SmallDisk, TestEnv, kill, text, until};

/// An environment with a server that can be killed and restarted at the same address.
struct Fixture {
    env: TestEnv,
    server: Server,
}

impl Fixture {
    fn new() -> Self {
        let env = TestEnv::new();
        let server = Server::start(&env);
        fs::create_dir_all(env.path("client")).unwrap();
        Self { env, server }
    }

    /// Applies jobs that each wait for a gate, named like the text before the `_` in their names.
    fn apply(&self, jobs: &[String], spec: &str) {
        let mut text = format!("name: w\n{spec}\njobs:\n");
        for job in jobs {
            let gate = job.split('_').next().unwrap();
            let path = self.env.path(&format!("client/{gate}"));
            if !path.exists() {
                nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
            }
            let command = format!("echo {job} $TORC_ATTEMPT_ID >> started; : < {gate}; echo {job} >> ended");
            text.push_str(&format!("  - {{name: {job}, command: '{command}'}}\n"));
        }
        self.env.write("client/w.yaml", text);
        self.server.torc(&self.env, "apply -f w.yaml").exits(0);
    }

    /// Opens a gate for waiting and later jobs, as long as the returned file is kept.
    fn open(&self, gate: &str) -> File {
        fs::OpenOptions::new().read(true).write(true).open(self.env.path(&format!("client/{gate}"))).unwrap()
    }

    fn runner(&self, line: &str) -> Call {
        self.server
            .call(&self.env, &format!("runner {line}"))
            .env("TORC_CLIENT__OFFLINE__DRAIN_PING_INTERVAL_SECS", "0.2")
    }

    /// Starts a runner, kills the server while this many jobs run, and waits until the runner drains.
    fn drain(&mut self, line: &str, jobs: usize) -> Running {
        let runner = self.runner(line).start();
        self.until_running(jobs);
        self.server.kill();
        runner.prints("draining offline");
        runner
    }

    fn running(&self) -> usize {
        let jobs = self.server.items(&self.env, "get jobs w");
        jobs.iter().filter(|job| job["status"] == "running").count()
    }

    fn until_running(&self, count: usize) {
        until(|| self.running() == count, || format!("{} instead of {count} jobs run", self.running()));
    }

    /// Returns the names of the jobs with this status.
    fn with_status(&self, status: &str) -> Vec<String> {
        let jobs = self.server.items(&self.env, "get jobs w");
        jobs.iter().filter(|job| job["status"] == status).map(|job| text(job, "name")).collect()
    }

    fn until_ended(&self, count: usize) {
        until(|| self.ended() == count, || format!("{} instead of {count} jobs ended", self.ended()));
    }

    fn ended(&self) -> usize {
        self.env.lines("client/ended").len()
    }

    /// Returns every attempt that has ended, as "job attempt status", sorted.
    fn attempts(&self) -> Vec<String> {
        let results = self.server.items(&self.env, "get results w");
        let text = |result: &Value, field: &str| result[field].as_str().unwrap().to_owned();
        let mut attempts: Vec<String> = results
            .iter()
            .map(|result| format!("{} {} {}", text(result, "job"), result["attempt"], text(result, "status")))
            .collect();
        attempts.sort();
        attempts
    }

    fn journals(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.env.path("client/torc_output/offline_journal")).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "db"));
        paths.sort();
        paths
    }

    fn reconcile(&self, line: &str) -> Value {
        self.server.torc(&self.env, &format!("workflows reconcile {line} -o json")).exits(0).json()
    }
}

/// Returns the numbers of results that were found, accepted, already known and rejected.
fn numbers(report: &Value) -> (u64, u64, u64, usize) {
    let number = |field: &str| report[field].as_u64().unwrap();
    (number("results"), number("accepted"), number("alreadyKnown"), report["rejected"].as_array().unwrap().len())
}

const AT_ONCE: &str = "compute_node_wait_for_healthy_database_minutes: 0";

fn names(gate: &str, count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("{gate}_{number}")).collect()
}

fn once_each(jobs: &[String]) -> Vec<String> {
    let mut all: Vec<String> = jobs.iter().map(|job| format!("{job} 1 completed")).collect();
    all.sort();
    all
}

/// Runs fifty jobs on three runners and kills the server.
fn fifty_without_a_server() -> (Fixture, Vec<Running>, Vec<String>) {
    let mut fixture = Fixture::new();
    // The runners start one after another, so that each one has jobs of both gates.
    let both = names("early", 25).into_iter().zip(names("late", 25));
    let jobs: Vec<String> = both.flat_map(|(early, late)| [early, late]).collect();
    fixture.apply(&jobs, AT_ONCE);
    let runners: Vec<Running> = (0..3).map(|_| fixture.runner("w --num-cpus 17 --prefetch off").start()).collect();
    fixture.until_running(50);
    fixture.server.kill();
    for runner in &runners {
        runner.prints("draining offline");
    }
    (fixture, runners, jobs)
}

// J31, J32, J33, J34
#[test]
fn results_arrive_once_after_a_short_outage() {
    let (mut fixture, runners, jobs) = fifty_without_a_server();
    let early = fixture.open("early");
    fixture.until_ended(25);
    until(|| fixture.journals().len() == 3, || format!("{:?} instead of three journals", fixture.journals()));
    for path in fixture.journals() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("offline_results_wf1_r1_h"), "{name}");
    }
    fixture.server.start_again(&fixture.env);
    for runner in &runners {
        runner.prints("server reachable again");
    }
    until(|| fixture.attempts().len() == 25, || format!("{:?}", fixture.attempts()));
    until(|| fixture.journals().is_empty(), || format!("{:?} are left", fixture.journals()));
    let late = fixture.open("late");
    for runner in runners {
        runner.finish().exits(0);
    }
    assert_eq!(fixture.attempts(), once_each(&jobs));
    let started: BTreeSet<String> = fixture.env.lines("client/started").into_iter().collect();
    assert_eq!((started.len(), fixture.env.lines("client/started").len()), (50, 50), "none ran twice");
    assert!(!fixture.env.path("client/torc_output/offline_journal").exists(), "the journals are removed");
    drop((early, late));
    fixture.server.stop();
    fixture.env.expect_nothing_left();
}

// J14, J18, J32, J33, J36, J37
#[test]
fn reconcile_delivers_results_once_after_a_long_outage() {
    let (mut fixture, runners, jobs) = fifty_without_a_server();
    let gates = (fixture.open("early"), fixture.open("late"));
    let hint = format!("torc workflows reconcile 1 1 --base-dir {}", fixture.env.text_path("client/torc_output"));
    for runner in runners {
        runner.finish().exits(0).prints(&hint).prints("the server stayed unreachable");
    }
    fixture.env.expect_nothing_left();
    assert_eq!((fixture.ended(), fixture.journals().len()), (50, 3));

    fixture.server.start_again(&fixture.env);
    assert_eq!(fixture.attempts().len(), 0);
    let nodes = fixture.server.items(&fixture.env, "get runners");
    assert_eq!(nodes.len(), 3, "all runners are registered: {nodes:#?}");
    let report = fixture.reconcile("1 1 --base-dir torc_output");
    assert_eq!(numbers(&report), (50, 50, 0, 0), "{report:#}");
    assert_eq!(fixture.attempts(), once_each(&jobs));
    let before = fixture.server.items(&fixture.env, "get results w");

    // A second call, by name and from the current folder, changes nothing.
    let report = fixture.reconcile("w 1");
    assert_eq!(numbers(&report), (50, 0, 50, 0), "{report:#}");
    assert_eq!(fixture.server.items(&fixture.env, "get results w"), before);
    assert_eq!(fixture.journals().len(), 3, "journals are kept");
    let text = fixture.server.torc(&fixture.env, "workflows reconcile 1 1").exits(0).stdout;
    assert!(text.contains("50 results in 3 journals: 0 accepted, 50 already known, 0 rejected"), "{text}");
    drop(gates);
    fixture.server.stop();
}

// J37
#[test]
fn results_of_a_superseded_run_are_rejected_without_an_error() {
    let mut fixture = Fixture::new();
    fixture.apply(&names("gate", 2), AT_ONCE);
    let runner = fixture.drain("w --num-cpus 2", 2);
    let gate = fixture.open("gate");
    runner.finish().exits(0);
    fixture.server.start_again(&fixture.env);
    // Moved, because a runner would deliver a journal in its own folder.
    fs::rename(fixture.env.path("client/torc_output/offline_journal"), fixture.env.path("client/moved")).unwrap();
    fixture.server.torc(&fixture.env, "retry w --all").exits(0);
    let before = fixture.attempts();
    let report = fixture.reconcile("w 1");
    assert_eq!(numbers(&report), (2, 0, 0, 2), "{report:#}");
    assert_eq!(report["rejected"][0]["reason"], "run 1 is superseded: the workflow is at run 2");
    let text = fixture.server.torc(&fixture.env, "workflows reconcile w 1").exits(0).stdout;
    assert!(text.contains("rejected: gate_1 (attempt 1): run 1 is superseded"), "{text}");
    assert_eq!(fixture.attempts(), before, "nothing has changed");
    let status = fixture.server.torc(&fixture.env, "workflows status w").exits(0).stdout;
    assert!(status.contains('2'), "{status}");
    // The current run has no journals, which is no error.
    let report = fixture.reconcile("w 2");
    assert_eq!(numbers(&report), (0, 0, 0, 0), "{report:#}");
    fixture.runner("w --num-cpus 2").run().exits(0);
    let attempts = fixture.attempts();
    let completed = attempts.iter().filter(|attempt| attempt.ends_with("completed")).count();
    assert_eq!(completed, 2, "only jobs of the second run: {attempts:?}");
    drop(gate);
}

// J36. A new run waits neither for results in a journal nor for the lease of the runner that wrote them.
#[test]
fn a_retry_after_an_offline_drain_starts_at_once() {
    let mut fixture = Fixture::new();
    fixture.apply(&names("gate", 2), AT_ONCE);
    let runner = fixture.runner("w --num-cpus 1").start();
    let jobs = |fixture: &Fixture, status: &str| {
        fixture.server.items(&fixture.env, "get jobs w").iter().filter(|job| job["status"] == status).count()
    };
    fixture.until_running(1);
    until(|| jobs(&fixture, "leased") == 1, || "nothing is leased ahead".to_owned());
    fixture.server.kill();
    runner.prints("draining offline");
    let gate = fixture.open("gate");
    runner.finish().exits(0);
    fixture.server.start_again(&fixture.env);
    let journalled = fixture.ended();
    fixture.server.torc(&fixture.env, "retry w --all").exits(0).prints("replayed from offline journals");
    assert_eq!(jobs(&fixture, "ready"), 2, "{:#?}", fixture.server.items(&fixture.env, "get jobs w"));
    let completed =
        |line: &str| fixture.server.items(&fixture.env, line).iter().filter(|one| one["status"] == "completed").count();
    assert_eq!(completed("get results w"), journalled, "completed jobs count in the first run");
    drop(gate);
}

// J16, J36
#[test]
fn a_damaged_journal_does_not_hide_the_others() {
    let mut fixture = Fixture::new();
    fixture.apply(&names("gate", 1), AT_ONCE);
    let runner = fixture.drain("w", 1);
    let gate = fixture.open("gate");
    runner.finish().exits(0);
    fixture.server.start_again(&fixture.env);
    fixture.env.write("client/elsewhere/offline_journal/offline_results_wf1_r1_hx.db", "this is no database");
    let outcome = fixture.server.torc(&fixture.env, "workflows reconcile w 1").exits(1);
    assert!(outcome.stdout.contains("1 result in 2 journals: 1 accepted"), "{outcome:?}");
    assert!(outcome.stdout.contains("damaged:") && outcome.stdout.contains("_hx.db"), "{outcome:?}");
    assert_eq!(fixture.attempts(), ["gate_1 1 completed"]);
    fixture.server.torc(&fixture.env, "workflows reconcile missing 1").exits(5);
    fixture.server.torc(&fixture.env, "workflows reconcile w 1 --base-dir nowhere").exits(5).prints("nowhere");
    fixture.server.torc(&fixture.env, "workflows reconcile w first").exits(2);
    drop(gate);
}

/// The agent is killed while it drains. One job ends before that, one while there is no agent, one after.
#[test]
fn a_new_agent_adopts_jobs_without_a_server() {
    let mut fixture = Fixture::new();
    let jobs = ["before_1", "between_1", "after_1"].map(str::to_owned);
    fixture.apply(&jobs, "");
    let runner =
        || fixture.runner("1 --num-cpus 3").env("TORC_CLIENT__OFFLINE__WAIT_FOR_HEALTHY_DATABASE_MINUTES", "0");
    let (first, second) = (runner(), runner());
    let first = first.start();
    fixture.until_running(3);
    fixture.server.kill();
    first.prints("draining offline");
    let before = fixture.open("before");
    until(|| fixture.journals().len() == 1, || "no journal".to_owned());
    first.kill();
    let between = fixture.open("between");
    fixture.until_ended(2);
    let second = second.start();
    second.prints("continuing the jobs of an earlier runner");
    let after = fixture.open("after");
    second.finish().exits(0).prints("torc workflows reconcile 1 1").prints("journalled=3");
    fixture.env.expect_nothing_left();
    fixture.server.start_again(&fixture.env);
    assert_eq!(numbers(&fixture.reconcile("1 1")), (3, 3, 0, 0));
    assert_eq!(fixture.attempts(), once_each(&jobs));
    drop((before, between, after));
}

/// The next runner in the same folder delivers the journal of a killed one.
#[test]
fn a_runner_delivers_the_journal_of_its_predecessor() {
    let mut fixture = Fixture::new();
    let jobs = ["before_1", "after_1"].map(str::to_owned);
    fixture.apply(&jobs, AT_ONCE);
    let first = fixture.drain("w --num-cpus 2", 2);
    let before = fixture.open("before");
    until(|| fixture.journals().len() == 1, || "no journal".to_owned());
    first.kill();
    fixture.server.start_again(&fixture.env);
    let second = fixture.runner("w --num-cpus 2").start();
    until(|| fixture.attempts() == ["before_1 1 completed"], || format!("{:?}", fixture.attempts()));
    let after = fixture.open("after");
    second.finish().exits(0);
    assert_eq!(fixture.attempts(), once_each(&jobs));
    assert_eq!(fixture.journals(), Vec::<PathBuf>::new());
    drop((before, after));
}

#[test]
fn an_attempt_lost_during_an_outage_is_repeated() {
    let mut fixture = Fixture::new();
    fixture.apply(&names("gate", 1), AT_ONCE);
    let first = fixture.runner("w").start();
    fixture.until_running(1);
    // A running job may not have written its first line yet.
    until(|| fixture.env.lines("client/started").len() == 1, || "no first attempt".to_owned());
    fixture.server.kill();
    first.prints("draining offline");
    first.kill();
    assert_eq!(fixture.env.kill_all(" shim "), 1);
    fixture.server.start_again(&fixture.env);
    let second = fixture.runner("w").start();
    until(|| fixture.env.lines("client/started").len() == 2, || "no second attempt".to_owned());
    let gate = fixture.open("gate");
    second.finish().exits(0);
    assert_eq!(fixture.attempts(), ["gate_1 1 failed", "gate_1 2 completed"]);
    assert_eq!(fixture.env.lines("client/started"), ["gate_1 1", "gate_1 2"]);
    drop(gate);
    fixture.server.stop();
    fixture.env.expect_nothing_left();
}

// P08
#[test]
fn a_runner_frozen_past_its_lease_repeats_no_job() {
    let fixture = Fixture::new();
    let jobs = [names("first", 1), names("second", 1)].concat();
    let spec = "prefetch: {lease_seconds: 5}\norphan_after: never";
    fixture.apply(&jobs, spec);
    let frozen = fixture.runner("w --num-cpus 1").start();
    fixture.until_running(1);
    let held = |status: &str| {
        fixture.server.items(&fixture.env, "get jobs w").iter().filter(|job| job["status"] == status).count()
    };
    until(|| held("leased") == 1, || "nothing was leased ahead".to_owned());
    frozen.freeze();
    let gates = (fixture.open("first"), fixture.open("second"));
    until(|| held("ready") == 1, || "its lease was not released".to_owned());
    let other = fixture.runner("w --num-cpus 1 --idle-exit 5s").run();
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_eq!(fixture.attempts(), ["second_1 2 completed"], "another runner ran the job that had not started");
    frozen.signal(Signal::SIGCONT);
    frozen.finish().exits(0);
    assert_eq!(fixture.attempts(), ["first_1 1 completed", "second_1 2 completed"]);
    assert_eq!(fixture.env.lines("client/started"), ["first_1 1", "second_1 2"], "nothing ran twice");
    drop(gates);
}

// P03, P08. The shim gets short jobs in advance. It starts none of them after its agent was silent for a third of the lease.
#[test]
fn a_shim_starts_no_job_while_its_agent_is_frozen() {
    const LEASE: Duration = Duration::from_secs(6);
    let fixture = Fixture::new();
    let (short, last, after) = (names("short", 30), names("last", 1), names("after", 20));
    let spec = format!("prefetch: {{lease_seconds: {}}}\norphan_after: never", LEASE.as_secs());
    fixture.apply(&[short.clone(), last.clone(), after.clone()].concat(), &spec);
    let gates = (fixture.open("short"), fixture.open("after"));
    let frozen = fixture.runner("w --num-cpus 1").start();
    until(|| fixture.with_status("running") == last, || "the server does not know that the last one runs".to_owned());
    until(|| !fixture.with_status("leased").is_empty(), || "nothing was leased ahead".to_owned());
    // The shim runs the last job and holds at least one order for a later one.
    frozen.freeze();
    let since = Instant::now();
    until(|| since.elapsed() > LEASE / 3, || "the clock does not advance".to_owned());
    let gate = fixture.open("last");
    until(|| fixture.env.lines("client/ended").contains(&last[0]), || "the last one has not ended".to_owned());
    until(|| fixture.with_status("leased").is_empty(), || "the leases have not expired".to_owned());
    fixture.runner("w --num-cpus 1 --idle-exit 2s").run().exits(0);
    frozen.signal(Signal::SIGCONT);
    frozen.finish().exits(0);
    let started = fixture.env.lines("client/started");
    let mut starts: Vec<&str> = started.iter().filter_map(|line| line.split(' ').next()).collect();
    starts.sort_unstable();
    let mut jobs = [short, last, after].concat();
    jobs.sort_unstable();
    assert_eq!(starts, jobs, "every job started once");
    assert_eq!(fixture.attempts().len(), jobs.len());
    drop((gates, gate));
}

#[test]
fn of_two_attempts_after_a_freeze_each_has_one_result() {
    let fixture = Fixture::new();
    fixture.apply(&names("gate", 1), "prefetch: {lease_seconds: 5}\norphan_after: 6s");
    let frozen = fixture.runner("w --num-cpus 1").start();
    fixture.until_running(1);
    frozen.freeze();
    let other = fixture.runner("w --num-cpus 1 --idle-exit 60s").start();
    until(|| fixture.env.lines("client/started").len() == 2, || "no second attempt".to_owned());
    until(|| fixture.running() == 1, || "the server does not know of its start".to_owned());
    frozen.signal(Signal::SIGCONT);
    // The server tells the frozen runner to end the old attempt.
    until(
        || fixture.env.processes().iter().filter(|process| process.command.contains(": < gate")).count() == 1,
        || "two attempts go on".to_owned(),
    );
    let gate = fixture.open("gate");
    other.finish().exits(0);
    frozen.finish().exits(0);
    assert_eq!(fixture.attempts(), ["gate_1 1 failed", "gate_1 2 completed"]);
    drop(gate);
}

#[test]
fn a_journal_that_cannot_be_written_loses_nothing() {
    let mut fixture = Fixture::new();
    fixture.apply(&names("gate", 3), AT_ONCE);
    let folder = "client/torc_output/offline_journal";
    let disk = SmallDisk::new(&fixture.env, folder, "64k");
    match &disk {
        Some(disk) => disk.fill(),
        // A user who may not mount puts a file in its place.
        None => {
            fs::remove_dir(fixture.env.path(folder)).unwrap();
            fixture.env.write(folder, "in place of the folder");
        }
    }
    let mut runner = fixture.drain("w --num-cpus 3", 3);
    let gate = fixture.open("gate");
    runner.prints("keeping them in memory");
    assert!(!runner.has_ended(), "the runner stays until its results are stored elsewhere");
    match &disk {
        Some(disk) => disk.empty(),
        None => fs::remove_file(fixture.env.path(folder)).unwrap(),
    }
    runner.finish().exits(0);
    fixture.server.start_again(&fixture.env);
    assert_eq!(numbers(&fixture.reconcile("w 1")), (3, 3, 0, 0));
    drop((gate, disk));
}

// J35
#[test]
fn draining_can_be_switched_off() {
    let mut fixture = Fixture::new();
    fixture.apply(&names("gate", 1), AT_ONCE);
    let runner = fixture.runner("w").env("TORC_CLIENT__OFFLINE__ENABLED", "false").start();
    fixture.until_running(1);
    fixture.server.kill();
    runner.finish().exits(6).prints("the running jobs were terminated");
    assert_eq!(fixture.journals(), Vec::<PathBuf>::new());
    assert_eq!(fixture.ended(), 0);
    fixture.env.expect_nothing_left();
    // The next runner in the same folder reports the job as stopped, which is no failure.
    fixture.server.start_again(&fixture.env);
    let gate = fixture.open("gate");
    fixture.runner("w").run().exits(0);
    assert_eq!(fixture.attempts(), ["gate_1 1 terminated", "gate_1 2 completed"]);
    drop(gate);
}

// J23
#[test]
fn a_runner_stopped_offline_keeps_results_in_its_journal() {
    let mut fixture = Fixture::new();
    fixture.apply(&names("gate", 1), AT_ONCE);
    let runner = fixture.drain("w", 1);
    runner.signal(Signal::SIGTERM);
    runner.finish().exits(130).prints("torc workflows reconcile 1 1");
    fixture.env.expect_nothing_left();
    fixture.server.start_again(&fixture.env);
    assert_eq!(numbers(&fixture.reconcile("w 1")), (1, 1, 0, 0));
    assert_eq!(fixture.attempts(), ["gate_1 1 terminated"]);
    let jobs = fixture.server.items(&fixture.env, "get jobs w");
    assert_eq!(jobs[0]["status"], "ready", "a stopped job has not failed");
}

/// `torc run` follows in the foreground and must not exit before its runner.
#[test]
fn a_foreground_run_drains_during_an_outage() {
    let mut fixture = Fixture::new();
    fixture.apply(&names("gate", 1), AT_ONCE);
    let run =
        fixture.server.call(&fixture.env, "run w").env("TORC_CLIENT__OFFLINE__DRAIN_PING_INTERVAL_SECS", "0.2").start();
    fixture.until_running(1);
    fixture.server.kill();
    run.prints("draining offline");
    let gate = fixture.open("gate");
    run.finish().exits(6).prints("their results are in the journal");
    fixture.server.start_again(&fixture.env);
    assert_eq!(numbers(&fixture.reconcile("w 1")), (1, 1, 0, 0));
    drop(gate);
}

// J05, J26
#[test]
fn an_exit_wakes_the_runner_despite_a_long_poll_interval() {
    let fixture = Fixture::new();
    let mut text = "name: chain\njobs:\n  - {name: j0, command: 'true'}\n".to_owned();
    for number in 1..20 {
        text.push_str(&format!("  - {{name: j{number}, command: 'true', depends_on: [j{}]}}\n", number - 1));
    }
    fixture.env.write("client/chain.yaml", text);
    fixture.server.torc(&fixture.env, "apply -f chain.yaml").exits(0);
    // With a poll only every 40 s, twenty jobs would exceed the limit of this test.
    fixture.runner("chain --long-poll false --poll-interval 3600 --claim-backoff-max-secs 3600").run().exits(0);
    assert_eq!(fixture.server.items(&fixture.env, "get results chain").len(), 20);
}

// J25
#[test]
fn an_idle_runner_exits_after_the_configured_time() {
    let fixture = Fixture::new();
    let text = "name: idle\ncompute_node_wait_for_new_jobs_seconds: 1\nresource_requirements: [{name: big, num_cpus: 64, memory: 1m, runtime: PT1M}]\njobs: [{name: a, command: 'true', resource_requirements: big}]\n";
    fixture.env.write("client/idle.yaml", text);
    fixture.server.torc(&fixture.env, "apply -f idle.yaml").exits(0);
    fixture.runner("idle --num-cpus 1").run().exits(0).prints("runner: idle");
    let mut persistent = fixture.runner("idle --num-cpus 1 --persistent").start();
    fixture.runner("idle --num-cpus 1").run().exits(0).prints("runner: idle");
    assert!(!persistent.has_ended(), "a persistent runner stays");
    kill(persistent.pid());
}

// J20
#[test]
fn no_job_is_leased_near_the_end_of_the_time_limit() {
    let fixture = Fixture::new();
    fixture.env.write("client/w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    fixture.server.torc(&fixture.env, "apply -f w.yaml").exits(0);
    let outcome =
        fixture.runner("w --max-parallel-jobs 1 --time-limit 200s").run().exits(0).prints("time limit reached");
    assert!(outcome.stderr.contains("less than 300 s of the runner's time are left"), "{}", outcome.stderr);
    assert_eq!(fixture.server.items(&fixture.env, "get results w").len(), 0);
    let shorter = "name: w\ncompute_node_min_time_for_new_jobs_seconds: 10\njobs: [{name: a, command: 'true'}]\n";
    fixture.env.write("client/w.yaml", shorter);
    fixture.server.torc(&fixture.env, "apply -f w.yaml").exits(0);
    fixture.runner("w --max-parallel-jobs 1 --time-limit 200s").run().exits(0);
    assert_eq!(fixture.server.items(&fixture.env, "get results w").len(), 1);
}
