//! The server dies while jobs run: for a moment, for long, for good. Whatever dies with it, every result arrives, and none twice.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;
use torc_tests::env::{Call, Running, Server, SmallDisk, TestEnv, kill, text, until};

/// An environment with a server that can be killed and brought back at the same address.
struct ServerEnv {
    env: TestEnv,
    server: Server,
}

impl ServerEnv {
    fn new() -> Self {
        let env = TestEnv::new();
        let server = Server::start(&env);
        fs::create_dir_all(env.path("client")).unwrap();
        Self { env, server }
    }

    /// Applies jobs that each wait for the gate that is named after the text before their `_`.
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

    /// Lets every job go on that waits at a gate, now or later, as long as the file is held.
    fn open(&self, gate: &str) -> File {
        fs::OpenOptions::new().read(true).write(true).open(self.env.path(&format!("client/{gate}"))).unwrap()
    }

    fn runner(&self, line: &str) -> Call {
        self.server
            .call(&self.env, &format!("runner {line}"))
            .env("TORC_CLIENT__OFFLINE__DRAIN_PING_INTERVAL_SECS", "0.2")
    }

    fn running(&self) -> usize {
        let jobs = self.server.items(&self.env, "get jobs w");
        jobs.iter().filter(|job| job["status"] == "running").count()
    }

    fn until_running(&self, count: usize) {
        until(|| self.running() == count, || format!("{} instead of {count} jobs run", self.running()));
    }

    /// The names of the jobs that have a status.
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

    /// Every attempt that ended, as "job attempt status", sorted.
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

/// How many were found, accepted, known and rejected.
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

/// Fifty jobs on three runners, and no server.
fn fifty_without_a_server() -> (ServerEnv, Vec<Running>, Vec<String>) {
    let mut site = ServerEnv::new();
    // One after the other, so that every runner has some of both.
    let both = names("early", 25).into_iter().zip(names("late", 25));
    let jobs: Vec<String> = both.flat_map(|(early, late)| [early, late]).collect();
    site.apply(&jobs, AT_ONCE);
    let runners: Vec<Running> = (0..3).map(|_| site.runner("w --num-cpus 17 --prefetch off").start()).collect();
    site.until_running(50);
    site.server.kill();
    for runner in &runners {
        runner.says("draining offline");
    }
    (site, runners, jobs)
}

// J31, J32, J33, J34
#[test]
fn the_server_comes_back_while_jobs_run_and_every_result_arrives_once() {
    let (mut site, runners, jobs) = fifty_without_a_server();
    let early = site.open("early");
    site.until_ended(25);
    until(|| site.journals().len() == 3, || format!("{:?} instead of three journals", site.journals()));
    for path in site.journals() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("offline_results_wf1_r1_h"), "{name}");
    }
    site.server.start_again(&site.env);
    for runner in &runners {
        runner.says("server reachable again");
    }
    until(|| site.attempts().len() == 25, || format!("{:?}", site.attempts()));
    until(|| site.journals().is_empty(), || format!("{:?} are left", site.journals()));
    let late = site.open("late");
    for runner in runners {
        runner.finish().exits(0);
    }
    assert_eq!(site.attempts(), once_each(&jobs));
    let started: BTreeSet<String> = site.env.lines("client/started").into_iter().collect();
    assert_eq!((started.len(), site.env.lines("client/started").len()), (50, 50), "none ran twice");
    assert!(!site.env.path("client/torc_output/offline_journal").exists(), "nothing is left of the journal");
    drop((early, late));
    site.server.stop();
    site.env.expect_nothing_left();
}

// J14, J18, J32, J33, J36, J37
#[test]
fn the_server_stays_away_until_all_have_left_and_reconcile_brings_every_result_once() {
    let (mut site, runners, jobs) = fifty_without_a_server();
    let gates = (site.open("early"), site.open("late"));
    let hint = format!("torc workflows reconcile 1 1 --base-dir {}", site.env.text_path("client/torc_output"));
    for runner in runners {
        runner.finish().exits(0).says(&hint).says("the server stayed away");
    }
    site.env.expect_nothing_left();
    assert_eq!((site.ended(), site.journals().len()), (50, 3));

    site.server.start_again(&site.env);
    assert_eq!(site.attempts().len(), 0);
    let nodes = site.server.items(&site.env, "get runners");
    assert_eq!(nodes.len(), 3, "they are still registered: {nodes:#?}");
    let report = site.reconcile("1 1 --base-dir torc_output");
    assert_eq!(numbers(&report), (50, 50, 0, 0), "{report:#}");
    assert_eq!(site.attempts(), once_each(&jobs));
    let before = site.server.items(&site.env, "get results w");

    // By name, from the current folder, and once more: nothing changes.
    let report = site.reconcile("w 1");
    assert_eq!(numbers(&report), (50, 0, 50, 0), "{report:#}");
    assert_eq!(site.server.items(&site.env, "get results w"), before);
    assert_eq!(site.journals().len(), 3, "journals are kept");
    let text = site.server.torc(&site.env, "workflows reconcile 1 1").exits(0).stdout;
    assert!(text.contains("50 results in 3 journals: 0 accepted, 50 already known, 0 rejected"), "{text}");
    drop(gates);
    site.server.stop();
}

// J37
#[test]
fn results_of_a_superseded_run_are_rejected_and_reported_without_an_error() {
    let mut site = ServerEnv::new();
    site.apply(&names("gate", 2), AT_ONCE);
    let runner = site.runner("w --num-cpus 2").start();
    site.until_running(2);
    site.server.kill();
    runner.says("draining offline");
    let gate = site.open("gate");
    runner.finish().exits(0);
    site.server.start_again(&site.env);
    // Where its runner wrote it, the retry would find it.
    fs::rename(site.env.path("client/torc_output/offline_journal"), site.env.path("client/moved")).unwrap();
    site.server.torc(&site.env, "retry w --all").exits(0);
    let before = site.attempts();
    let report = site.reconcile("w 1");
    assert_eq!(numbers(&report), (2, 0, 0, 2), "{report:#}");
    assert_eq!(report["rejected"][0]["reason"], "run 1 is superseded: the workflow is at run 2");
    let text = site.server.torc(&site.env, "workflows reconcile w 1").exits(0).stdout;
    assert!(text.contains("rejected: gate_1 (attempt 1): run 1 is superseded"), "{text}");
    assert_eq!(site.attempts(), before, "nothing has changed");
    let status = site.server.torc(&site.env, "workflows status w").exits(0).stdout;
    assert!(status.contains('2'), "{status}");
    // Nothing was written in the run that counts now, and nobody complains about that.
    let report = site.reconcile("w 2");
    assert_eq!(numbers(&report), (0, 0, 0, 0), "{report:#}");
    site.runner("w --num-cpus 2").run().exits(0);
    let attempts = site.attempts();
    let completed = attempts.iter().filter(|attempt| attempt.ends_with("completed")).count();
    assert_eq!(completed, 2, "the second run's own: {attempts:?}");
    drop(gate);
}

// J36. A new run waits neither for results that are in a journal nor for the lease of the runner that wrote them.
#[test]
fn a_retry_after_a_drained_exit_starts_at_once() {
    let mut site = ServerEnv::new();
    site.apply(&names("gate", 2), AT_ONCE);
    let runner = site.runner("w --num-cpus 1").start();
    let jobs = |site: &ServerEnv, status: &str| {
        site.server.items(&site.env, "get jobs w").iter().filter(|job| job["status"] == status).count()
    };
    site.until_running(1);
    until(|| jobs(&site, "leased") == 1, || "nothing is leased ahead".to_owned());
    site.server.kill();
    runner.says("draining offline");
    let gate = site.open("gate");
    runner.finish().exits(0);
    site.server.start_again(&site.env);
    let journalled = site.ended();
    site.server.torc(&site.env, "retry w --all").exits(0).says("replayed from offline journals");
    assert_eq!(jobs(&site, "ready"), 2, "{:#?}", site.server.items(&site.env, "get jobs w"));
    let completed =
        |line: &str| site.server.items(&site.env, line).iter().filter(|one| one["status"] == "completed").count();
    assert_eq!(completed("get results w"), journalled, "what had ended counts in its run");
    drop(gate);
}

// J16, J36
#[test]
fn a_damaged_journal_does_not_hide_the_others() {
    let mut site = ServerEnv::new();
    site.apply(&names("gate", 1), AT_ONCE);
    let runner = site.runner("w").start();
    site.until_running(1);
    site.server.kill();
    runner.says("draining offline");
    let gate = site.open("gate");
    runner.finish().exits(0);
    site.server.start_again(&site.env);
    site.env.write("client/elsewhere/offline_journal/offline_results_wf1_r1_hx.db", "this is no database");
    let outcome = site.server.torc(&site.env, "workflows reconcile w 1").exits(1);
    assert!(outcome.stdout.contains("1 result in 2 journals: 1 accepted"), "{outcome:?}");
    assert!(outcome.stdout.contains("damaged:") && outcome.stdout.contains("_hx.db"), "{outcome:?}");
    assert_eq!(site.attempts(), ["gate_1 1 completed"]);
    site.server.torc(&site.env, "workflows reconcile nobody 1").exits(5);
    site.server.torc(&site.env, "workflows reconcile w 1 --base-dir nowhere").exits(5).says("nowhere");
    site.server.torc(&site.env, "workflows reconcile w first").exits(2);
    drop(gate);
}

/// The agent dies while it drains; one job ends before that, one while there is no agent, one after.
#[test]
fn an_agent_that_dies_without_a_server_is_succeeded_without_a_server() {
    let mut site = ServerEnv::new();
    let jobs = ["before_1", "between_1", "after_1"].map(str::to_owned);
    site.apply(&jobs, "");
    let runner = || site.runner("1 --num-cpus 3").env("TORC_CLIENT__OFFLINE__WAIT_FOR_HEALTHY_DATABASE_MINUTES", "0");
    let (first, second) = (runner(), runner());
    let first = first.start();
    site.until_running(3);
    site.server.kill();
    first.says("draining offline");
    let before = site.open("before");
    until(|| site.journals().len() == 1, || "no journal".to_owned());
    first.kill();
    let between = site.open("between");
    site.until_ended(2);
    let second = second.start();
    second.says("going on with what an earlier runner left here");
    let after = site.open("after");
    second.finish().exits(0).says("torc workflows reconcile 1 1").says("journalled=3");
    site.env.expect_nothing_left();
    site.server.start_again(&site.env);
    assert_eq!(numbers(&site.reconcile("1 1")), (3, 3, 0, 0));
    assert_eq!(site.attempts(), once_each(&jobs));
    drop((before, between, after));
}

/// The journal of a runner that died belongs to the next one in its place.
#[test]
fn a_successor_delivers_what_its_predecessor_wrote_down() {
    let mut site = ServerEnv::new();
    let jobs = ["before_1", "after_1"].map(str::to_owned);
    site.apply(&jobs, AT_ONCE);
    let first = site.runner("w --num-cpus 2").start();
    site.until_running(2);
    site.server.kill();
    first.says("draining offline");
    let before = site.open("before");
    until(|| site.journals().len() == 1, || "no journal".to_owned());
    first.kill();
    site.server.start_again(&site.env);
    let second = site.runner("w --num-cpus 2").start();
    until(|| site.attempts() == ["before_1 1 completed"], || format!("{:?}", site.attempts()));
    let after = site.open("after");
    second.finish().exits(0);
    assert_eq!(site.attempts(), once_each(&jobs));
    assert_eq!(site.journals(), Vec::<PathBuf>::new());
    drop((before, after));
}

#[test]
fn agent_and_shim_die_without_a_server_and_the_attempt_is_made_again() {
    let mut site = ServerEnv::new();
    site.apply(&names("gate", 1), AT_ONCE);
    let first = site.runner("w").start();
    site.until_running(1);
    // A running job may not have come to its first line yet.
    until(|| site.env.lines("client/started").len() == 1, || "no first attempt".to_owned());
    site.server.kill();
    first.says("draining offline");
    first.kill();
    assert_eq!(site.env.kill_all(" shim "), 1);
    site.server.start_again(&site.env);
    let second = site.runner("w").start();
    until(|| site.env.lines("client/started").len() == 2, || "no second attempt".to_owned());
    let gate = site.open("gate");
    second.finish().exits(0);
    assert_eq!(site.attempts(), ["gate_1 1 failed", "gate_1 2 completed"]);
    assert_eq!(site.env.lines("client/started"), ["gate_1 1", "gate_1 2"]);
    drop(gate);
    site.server.stop();
    site.env.expect_nothing_left();
}

// P08
#[test]
fn a_runner_that_was_frozen_past_its_lease_doubles_nothing() {
    let site = ServerEnv::new();
    let jobs = [names("first", 1), names("second", 1)].concat();
    let spec = "prefetch: {lease_seconds: 5}\norphan_after: never";
    site.apply(&jobs, spec);
    let frozen = site.runner("w --num-cpus 1").start();
    site.until_running(1);
    let held =
        |status: &str| site.server.items(&site.env, "get jobs w").iter().filter(|job| job["status"] == status).count();
    until(|| held("leased") == 1, || "nothing was leased ahead".to_owned());
    frozen.freeze();
    let gates = (site.open("first"), site.open("second"));
    until(|| held("ready") == 1, || "its promise did not return to the pool".to_owned());
    let other = site.runner("w --num-cpus 1 --idle-exit 5s").run();
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_eq!(site.attempts(), ["second_1 2 completed"], "what had not started was done by somebody else");
    frozen.signal(Signal::SIGCONT);
    frozen.finish().exits(0);
    assert_eq!(site.attempts(), ["first_1 1 completed", "second_1 2 completed"]);
    assert_eq!(site.env.lines("client/started"), ["first_1 1", "second_1 2"], "nothing ran twice");
    drop(gates);
}

// P03, P08. Jobs this short are handed to the shim in advance. It starts none of them when its agent was silent for a third of the lease.
#[test]
fn a_shim_starts_nothing_for_an_agent_that_was_frozen() {
    const LEASE: Duration = Duration::from_secs(6);
    let site = ServerEnv::new();
    let (short, last, after) = (names("short", 30), names("last", 1), names("after", 20));
    let spec = format!("prefetch: {{lease_seconds: {}}}\norphan_after: never", LEASE.as_secs());
    site.apply(&[short.clone(), last.clone(), after.clone()].concat(), &spec);
    let gates = (site.open("short"), site.open("after"));
    let frozen = site.runner("w --num-cpus 1").start();
    until(|| site.with_status("running") == last, || "the server does not know that the last one runs".to_owned());
    until(|| !site.with_status("leased").is_empty(), || "nothing was leased ahead".to_owned());
    // The shim runs the last one, and has been handed at least one of those that follow it.
    frozen.freeze();
    let since = Instant::now();
    until(|| since.elapsed() > LEASE / 3, || "time stands still".to_owned());
    let gate = site.open("last");
    until(|| site.env.lines("client/ended").contains(&last[0]), || "the last one has not ended".to_owned());
    until(|| site.with_status("leased").is_empty(), || "the leases have not expired".to_owned());
    site.runner("w --num-cpus 1 --idle-exit 2s").run().exits(0);
    frozen.signal(Signal::SIGCONT);
    frozen.finish().exits(0);
    let started = site.env.lines("client/started");
    let mut starts: Vec<&str> = started.iter().filter_map(|line| line.split(' ').next()).collect();
    starts.sort_unstable();
    let mut jobs = [short, last, after].concat();
    jobs.sort_unstable();
    assert_eq!(starts, jobs, "each was started once");
    assert_eq!(site.attempts().len(), jobs.len());
    drop((gates, gate));
}

#[test]
fn of_two_attempts_after_a_freeze_each_has_one_result() {
    let site = ServerEnv::new();
    site.apply(&names("gate", 1), "prefetch: {lease_seconds: 5}\norphan_after: 6s");
    let frozen = site.runner("w --num-cpus 1").start();
    site.until_running(1);
    frozen.freeze();
    let other = site.runner("w --num-cpus 1 --idle-exit 60s").start();
    until(|| site.env.lines("client/started").len() == 2, || "no second attempt".to_owned());
    until(|| site.running() == 1, || "its start is not known".to_owned());
    frozen.signal(Signal::SIGCONT);
    // It is told to end what is no longer its own.
    until(
        || site.env.processes().iter().filter(|process| process.command.contains(": < gate")).count() == 1,
        || "two attempts go on".to_owned(),
    );
    let gate = site.open("gate");
    other.finish().exits(0);
    frozen.finish().exits(0);
    assert_eq!(site.attempts(), ["gate_1 1 failed", "gate_1 2 completed"]);
    drop(gate);
}

#[test]
fn a_journal_that_cannot_be_written_loses_nothing() {
    let mut site = ServerEnv::new();
    site.apply(&names("gate", 3), AT_ONCE);
    let folder = "client/torc_output/offline_journal";
    let disk = SmallDisk::new(&site.env, folder, "64k");
    match &disk {
        Some(disk) => disk.fill(),
        // Who may not mount puts something in its way.
        None => {
            fs::remove_dir(site.env.path(folder)).unwrap();
            site.env.write(folder, "in the way");
        }
    }
    let mut runner = site.runner("w --num-cpus 3").start();
    site.until_running(3);
    site.server.kill();
    runner.says("draining offline");
    let gate = site.open("gate");
    runner.says("kept in memory");
    assert!(!runner.has_ended(), "it stays as long as results are nowhere else");
    match &disk {
        Some(disk) => disk.empty(),
        None => fs::remove_file(site.env.path(folder)).unwrap(),
    }
    runner.finish().exits(0);
    site.server.start_again(&site.env);
    assert_eq!(numbers(&site.reconcile("w 1")), (3, 3, 0, 0));
    drop((gate, disk));
}

// J35
#[test]
fn draining_can_be_switched_off() {
    let mut site = ServerEnv::new();
    site.apply(&names("gate", 1), AT_ONCE);
    let runner = site.runner("w").env("TORC_CLIENT__OFFLINE__ENABLED", "false").start();
    site.until_running(1);
    site.server.kill();
    runner.finish().exits(6).says("the running jobs were ended");
    assert_eq!(site.journals(), Vec::<PathBuf>::new());
    assert_eq!(site.ended(), 0);
    site.env.expect_nothing_left();
    // The next runner in the same place brings what became of it: it was stopped, which is nobody's failure.
    site.server.start_again(&site.env);
    let gate = site.open("gate");
    site.runner("w").run().exits(0);
    assert_eq!(site.attempts(), ["gate_1 1 terminated", "gate_1 2 completed"]);
    drop(gate);
}

// J23
#[test]
fn stopped_without_a_server_it_leaves_its_results_in_the_journal() {
    let mut site = ServerEnv::new();
    site.apply(&names("gate", 1), AT_ONCE);
    let runner = site.runner("w").start();
    site.until_running(1);
    site.server.kill();
    runner.says("draining offline");
    runner.signal(Signal::SIGTERM);
    runner.finish().exits(130).says("torc workflows reconcile 1 1");
    site.env.expect_nothing_left();
    site.server.start_again(&site.env);
    assert_eq!(numbers(&site.reconcile("w 1")), (1, 1, 0, 0));
    assert_eq!(site.attempts(), ["gate_1 1 terminated"]);
    let jobs = site.server.items(&site.env, "get jobs w");
    assert_eq!(jobs[0]["status"], "ready", "being stopped is nobody's failure");
}

/// `torc run` follows in the foreground; it must not give up on its jobs before its runner does.
#[test]
fn a_run_in_the_foreground_drains_too_and_says_that_it_does_not_know() {
    let mut site = ServerEnv::new();
    site.apply(&names("gate", 1), AT_ONCE);
    let run = site.server.call(&site.env, "run w").env("TORC_CLIENT__OFFLINE__DRAIN_PING_INTERVAL_SECS", "0.2").start();
    site.until_running(1);
    site.server.kill();
    run.says("draining offline");
    let gate = site.open("gate");
    run.finish().exits(6).says("the results are in the journal");
    site.server.start_again(&site.env);
    assert_eq!(numbers(&site.reconcile("w 1")), (1, 1, 0, 0));
    drop(gate);
}

// J05, J26
#[test]
fn an_exit_wakes_the_runner_however_rarely_it_looks() {
    let site = ServerEnv::new();
    let mut text = "name: chain\njobs:\n  - {name: j0, command: 'true'}\n".to_owned();
    for number in 1..20 {
        text.push_str(&format!("  - {{name: j{number}, command: 'true', depends_on: [j{}]}}\n", number - 1));
    }
    site.env.write("client/chain.yaml", text);
    site.server.torc(&site.env, "apply -f chain.yaml").exits(0);
    // With a look every 40 s at most, by the lease, twenty jobs would take longer than anybody waits here.
    site.runner("chain --long-poll false --poll-interval 3600 --claim-backoff-max-secs 3600").run().exits(0);
    assert_eq!(site.server.items(&site.env, "get results chain").len(), 20);
}

// J25
#[test]
fn a_runner_with_nothing_to_do_leaves_as_the_workflow_says() {
    let site = ServerEnv::new();
    let text = "name: idle\ncompute_node_wait_for_new_jobs_seconds: 1\nresource_requirements: [{name: big, num_cpus: 64, memory: 1m, runtime: PT1M}]\njobs: [{name: a, command: 'true', resource_requirements: big}]\n";
    site.env.write("client/idle.yaml", text);
    site.server.torc(&site.env, "apply -f idle.yaml").exits(0);
    site.runner("idle --num-cpus 1").run().exits(0).says("there was nothing to do");
    let mut persistent = site.runner("idle --num-cpus 1 --persistent").start();
    site.runner("idle --num-cpus 1").run().exits(0).says("there was nothing to do");
    assert!(!persistent.has_ended(), "one that is to stay stays");
    kill(persistent.pid());
}

// J20
#[test]
fn by_number_of_jobs_nothing_is_taken_near_the_end() {
    let site = ServerEnv::new();
    site.env.write("client/w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    site.server.torc(&site.env, "apply -f w.yaml").exits(0);
    let outcome = site.runner("w --max-parallel-jobs 1 --time-limit 200s").run().exits(0).says("its time is over");
    assert!(outcome.stderr.contains("less than 300 s of its time are left"), "{}", outcome.stderr);
    assert_eq!(site.server.items(&site.env, "get results w").len(), 0);
    let shorter = "name: w\ncompute_node_min_time_for_new_jobs_seconds: 10\njobs: [{name: a, command: 'true'}]\n";
    site.env.write("client/w.yaml", shorter);
    site.server.torc(&site.env, "apply -f w.yaml").exits(0);
    site.runner("w --max-parallel-jobs 1 --time-limit 200s").run().exits(0);
    assert_eq!(site.server.items(&site.env, "get results w").len(), 1);
}
