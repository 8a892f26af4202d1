//! Workers over SSH: real sshds on loopback ports, each with its own home.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use torc_tests::env::{Outcome, Running, TestEnv, eventually, kill, text, until};
use torc_tests::labs::sshd::{Machine, with_ssh};

/// A server with its token, and its workers.
struct Workers {
    env: TestEnv,
    server: Option<Running>,
    machines: Vec<Machine>,
}

impl Workers {
    fn new(machines: usize) -> Self {
        Self::serving(TestEnv::new(), "", machines)
    }

    fn serving(env: TestEnv, flags: &str, machines: usize) -> Self {
        let server = env.start(&format!("server --bind 127.0.0.1:0 -o json {flags}"));
        eventually("the server prints its address", || serde_json::from_str::<Value>(&server.stdout()).ok());
        let machines = (0..machines).map(|number| Machine::start(&env, &format!("m{number}"))).collect();
        Self { env, server: Some(server), machines }
    }

    fn torc(&self, line: &str) -> Outcome {
        with_ssh(&self.env, self.env.call(line)).run()
    }

    fn items(&self, line: &str) -> Vec<Value> {
        let outcome = self.torc(&format!("{line} --output json")).exits(0);
        outcome.json()["items"].as_array().unwrap().clone()
    }

    /// Writes the list of workers.
    fn list_workers(&self) {
        let lines: Vec<String> = self.machines.iter().map(Machine::address).collect();
        self.env.write("workers.txt", lines.join("\n"));
    }

    /// Returns the state of every worker by its address.
    fn states(&self) -> BTreeMap<String, String> {
        let statuses = self.items("remote status w");
        statuses.iter().map(|status| (text(status, "worker"), text(status, "state"))).collect()
    }

    fn worker_folder(&self, machine: usize) -> PathBuf {
        let name = self.machines[machine].address().replace(':', "_");
        self.env.path(&format!("torc_output/w_{name}"))
    }

    fn runner_pid(&self, machine: usize) -> i32 {
        let record = fs::read(self.worker_folder(machine).join("runner.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        i32::try_from(record["pid"].as_i64().unwrap()).unwrap()
    }

    fn close(mut self) {
        let server = self.server.take().unwrap();
        server.signal(Signal::SIGTERM);
        server.finish().exits(0);
        self.machines.clear();
        self.env.expect_nothing_left();
    }
}

/// Returns jobs that log their machine and wait for a file. Nothing is leased ahead, so an idle machine gets the next job.
const GATED: &str = "
name: w
parameters: {i: '1:8'}
jobs:
  - name: 'j_{i}'
    command: 'echo {i} $HOME >> ran; until test -e go; do sleep 0.05; done'
    use_parameters: [i]
";

fn ran(env: &TestEnv) -> Vec<(String, String)> {
    let lines = env.lines("ran");
    lines.iter().filter_map(|line| line.split_once(' ')).map(|(job, home)| (job.to_owned(), home.to_owned())).collect()
}

// J04
#[test]
fn jobs_spread_over_the_machines_and_none_runs_twice() {
    let workers = Workers::new(3);
    workers.list_workers();
    workers.env.write("w.yaml", GATED);
    let started =
        workers.torc("remote run workers.txt w.yaml --num-cpus 2 --memory 1g --num-gpus 0 --prefetch off").exits(0);
    started.clone().prints("workflow/w created: 8 jobs added");
    for machine in &workers.machines {
        started.clone().prints(&format!("{}: started", machine.address()));
    }
    // Two CPUs each: six of eight jobs run at the same time, so every machine runs some.
    until(|| ran(&workers.env).len() == 6, || format!("{:?}", ran(&workers.env)));
    let homes: BTreeSet<String> = ran(&workers.env).into_iter().map(|(_, home)| home).collect();
    assert_eq!(homes.len(), 3, "{homes:?}");

    // The runners have their own sessions, so the end of a login does not end them.
    for machine in 0..3 {
        let runner = Pid::from_raw(workers.runner_pid(machine));
        assert_eq!(nix::unistd::getsid(Some(runner)).unwrap(), runner);
    }

    // The server stores the workers, and the command lists them by address.
    let runners = workers.items("get runners");
    assert_eq!(runners.len(), 3);
    assert!(runners.iter().all(|runner| text(runner, "kind") == "remote"), "{runners:#?}");
    workers.torc("get runners").exits(0).prints("remote");
    let statuses = workers.items("remote status w");
    assert_eq!(statuses.len(), 3);
    for status in &statuses {
        assert_eq!((text(status, "state"), &status["running"]), ("running".to_owned(), &Value::from(2)));
    }

    // A second call starts no runner.
    let again = workers.torc("remote run workers.txt w").exits(0);
    assert_eq!(again.stdout.matches("already running").count(), 3, "{}", again.stdout);
    assert_eq!(workers.items("get runners").len(), 3);

    workers.env.write("go", "");
    workers.torc("wait workflow/w --for condition=Succeeded --timeout 1m").exits(0);
    let mut jobs: Vec<String> = ran(&workers.env).into_iter().map(|(job, _)| job).collect();
    jobs.sort();
    assert_eq!(jobs, ["1", "2", "3", "4", "5", "6", "7", "8"]);
    // The runners exit without a command and print the reason.
    until(|| workers.states().values().all(|state| state == "stopped"), || format!("{:?}", workers.states()));
    workers.torc("remote status w").exits(0).prints("all workflows have settled");
    workers.close();
}

// J04
#[test]
fn a_dead_runner_is_noticed_and_started_again() {
    let workers = Workers::new(2);
    workers.list_workers();
    workers.env.write("w.yaml", GATED);
    workers.torc("remote run workers.txt w.yaml --num-cpus 4 --memory 1g --num-gpus 0 --prefetch off").exits(0);
    until(|| ran(&workers.env).len() == 8, || format!("{:?}", ran(&workers.env)));
    let (dead, alive) = (workers.machines[0].address(), workers.machines[1].address());
    kill(workers.runner_pid(0));
    until(|| workers.states()[&dead] == "dead", || format!("{:?}", workers.states()));
    assert_eq!(workers.states()[&alive], "running");
    workers.torc("remote status w").exits(0).prints("restart it with `torc remote run`");

    // The server knows the workers without a file. The shim kept the jobs, and the new runner adopts them.
    let again = workers.torc("remote run w --num-cpus 4 --memory 1g --num-gpus 0 --prefetch off").exits(0);
    again.clone().prints(&format!("{dead}: started"));
    again.prints(&format!("{alive}: already running"));
    assert_eq!(workers.states()[&dead], "running");
    workers.env.write("go", "");
    workers.torc("wait workflow/w --for condition=Succeeded --timeout 1m").exits(0);
    assert_eq!(ran(&workers.env).len(), 8, "no job ran twice");
    until(|| workers.states().values().all(|state| state == "stopped"), || format!("{:?}", workers.states()));
    workers.close();
}

// J04
#[test]
fn unusable_machines_are_reported_and_others_work() {
    let mut workers = Workers::new(1);
    let script = "#!/bin/sh\ntest \"$1\" = --version && echo torc 0.0.1 && exit 0\necho unknown verb >&2\nexit 2\n";
    let old = Machine::with_program(&workers.env, "old", script);
    let bare = Machine::with_program(&workers.env, "bare", "");
    fs::remove_file(bare.home.join("bin/torc")).unwrap();
    workers.list_workers();
    // No process listens on this port, which is below those of the tests.
    let unreachable = "127.0.0.1:1".to_owned();
    let good = workers.machines[0].address();
    let list = format!("# machines\n{good}\n{}  # old\n{}\n{unreachable}\n{good}\n", old.address(), bare.address());
    workers.env.write("workers.txt", list);
    workers.env.write("w.yaml", "name: w\njobs: [{name: a, command: 'echo a >> ran'}]\n");
    let started = workers.torc("remote run workers.txt w.yaml").exits(6);
    for words in [
        format!("workers.txt:6: {good} is listed more than once"),
        format!("{good}: started"),
        format!("{}: torc on that machine has version 0.0.1", old.address()),
        "--skip-version-check".to_owned(),
        format!("{}: the program `torc` does not exist on that machine", bare.address()),
        "--remote-torc".to_owned(),
        "Connection refused".to_owned(),
        "check whether `ssh -p 1 127.0.0.1 true` works".to_owned(),
        "could not start 3 of 4 workers".to_owned(),
    ] {
        started.clone().prints(&words);
    }
    workers.torc("wait workflow/w --for condition=Succeeded --timeout 1m").exits(0);
    assert_eq!(workers.env.lines("ran"), ["a"]);
    let states = workers.states();
    assert_eq!(states[&unreachable], "unreachable");
    assert_eq!(states[&good], "stopped");
    assert_eq!(states[&bare.address()], "unknown", "its machine answers");
    // A program with another name is found by its path.
    let torc = workers.machines[0].home.join("bin/torc");
    let with_path = format!("remote run w --remote-torc {} -o json", torc.display());
    workers.torc(&with_path).exits(6).prints("could not start 1 of 4 workers");
    // All workers exit, because no job is left.
    let stopped = || workers.states().values().filter(|state| *state == "stopped").count();
    until(|| stopped() == 3, || format!("{} have stopped", stopped()));
    workers.machines.extend([old, bare]);
    workers.close();
}

// J04
#[test]
fn a_runner_is_stopped_and_its_logs_are_collected() {
    let workers = Workers::new(2);
    workers.list_workers();
    let job = "trap 'echo asked; exit 3' TERM; echo begun >> ran; while true; do sleep 0.05; done";
    workers.env.write(
        "w.yaml",
        format!(
            "name: w\nparameters: {{i: '1:2'}}\njobs: [{{name: 'j_{{i}}', command: \"{job}\", use_parameters: [i]}}]\n"
        ),
    );
    workers.torc("remote run workers.txt w.yaml --num-cpus 1 --memory 1g --num-gpus 0 --prefetch off").exits(0);
    until(|| workers.env.lines("ran").len() == 2, || format!("{:?}", workers.env.lines("ran")));
    let (first, second) = (workers.machines[0].address(), workers.machines[1].address());

    workers.torc("remote delete-logs w --yes").exits(7).prints("its runner is running and writes them");
    workers.torc(&format!("remote remove-worker w {first}")).exits(7).prints("torc remote stop w");
    // Only the named worker stops.
    workers.torc(&format!("remote stop w {first}")).exits(0).prints("stopped");
    assert_eq!(workers.states()[&first], "stopped");
    assert_eq!(workers.states()[&second], "running");
    workers.torc("remote stop w").exits(0).prints("not running");
    assert_eq!(workers.states()[&second], "stopped");

    workers.torc("remote collect-logs w -o here").exits(0);
    for address in [&first, &second] {
        let folder = workers.env.path(&format!("here/{}", address.replace(':', "_")));
        assert!(folder.join("runner.log").exists(), "{folder:?}");
        let outputs: Vec<PathBuf> = files(&folder.join("job_stdio"));
        assert!(outputs.iter().any(|path| fs::read_to_string(path).unwrap().contains("asked")), "{outputs:?}");
        assert!(!folder.join("token").exists(), "the token stays where it is");
    }
    workers.torc("remote delete-logs w").exits(7).prints("--yes");
    assert!(workers.worker_folder(0).join("job_stdio").exists());
    workers.torc(&format!("remote collect-logs w {second} --output-dir there --delete")).exits(0);
    assert!(!workers.worker_folder(1).join("job_stdio").exists());
    assert!(workers.worker_folder(0).join("job_stdio").exists());
    workers.torc("remote delete-logs w --yes").exits(0);
    assert!(!workers.worker_folder(0).join("runner.log").exists());
    workers.torc(&format!("remote remove-worker w {first}")).exits(0).prints("removed");
    assert_eq!(workers.items("remote list-workers w").len(), 1);
    workers.torc(&format!("remote remove-worker w {first}")).exits(5).prints("has no worker");
    workers.close();
}

// J04
#[test]
fn the_jobs_of_a_killed_runner_are_stopped_too() {
    let workers = Workers::new(1);
    workers.list_workers();
    workers.env.write("w.yaml", GATED);
    workers.torc("remote run workers.txt w.yaml --num-cpus 1 --memory 1g --num-gpus 0").exits(0);
    until(|| ran(&workers.env).len() == 1, || format!("{:?}", ran(&workers.env)));
    kill(workers.runner_pid(0));
    workers.torc("remote stop w").exits(0).prints("stopped");
    let jobs = || workers.env.processes().into_iter().filter(|process| process.command.contains("until test -e go"));
    assert_eq!(jobs().count(), 0, "the shim has ended the jobs without waiting for its timeout");
    workers.close();
}

// J04
#[test]
fn force_kills_jobs_that_ignore_sigterm() {
    let workers = Workers::new(1);
    workers.list_workers();
    let job = "trap '' TERM; echo begun >> ran; while true; do sleep 0.05; done";
    let lead = "execution_config: {sigterm_lead_seconds: 3000}";
    workers.env.write("w.yaml", format!("name: w\n{lead}\njobs: [{{name: a, command: \"{job}\"}}]\n"));
    workers.torc("remote run workers.txt w.yaml").exits(0);
    until(|| workers.env.lines("ran").len() == 1, || "the job has not begun".to_owned());
    workers.torc("remote stop w --timeout 1s").exits(8).prints("--force");
    assert_eq!(workers.states()[&workers.machines[0].address()], "running");
    workers.torc("remote stop w --force").exits(0).prints("stopped");
    until(
        || !workers.env.processes().iter().any(|process| process.command.contains("trap")),
        || format!("{:#?}", workers.env.processes()),
    );
    workers.close();
}

// J04
#[test]
fn the_token_is_hidden_from_other_users() {
    let workers = Workers::new(1);
    workers.list_workers();
    workers.env.write("w.yaml", GATED);
    let token = fs::read_to_string(workers.env.path(".torc/token")).unwrap().trim().to_owned();
    // The test checks all command lines from the start of the command to its end.
    let mut running = with_ssh(&workers.env, workers.env.call("remote run workers.txt w.yaml")).start();
    let mut seen = Vec::new();
    until(
        || {
            seen.extend(workers.env.processes().into_iter().map(|process| process.command));
            running.has_ended()
        },
        || "the command does not end".to_owned(),
    );
    running.finish().exits(0);
    until(|| !ran(&workers.env).is_empty(), || "no job has begun".to_owned());
    seen.extend(workers.env.processes().into_iter().map(|process| process.command));
    assert!(seen.iter().any(|command| command.contains("--worker-dir")), "{seen:#?}");
    let given = fs::read_to_string(workers.worker_folder(0).join("token")).unwrap().trim().to_owned();
    assert!(given.starts_with("torc1."), "a worker gets a token of its workflow, not the administrator's");
    for token in [&token, &given] {
        assert!(!seen.iter().any(|command| command.contains(token)), "{seen:#?}");
        let with_token: Vec<PathBuf> =
            files(workers.env.folder()).into_iter().filter(|path| contains(path, token)).collect();
        assert_eq!(with_token.len(), 1, "{with_token:?}");
        let mode = fs::metadata(&with_token[0]).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{with_token:?}");
    }
    workers.torc("remote stop w --force").exits(0);
    workers.close();
}

// J04
#[test]
fn workers_trust_the_servers_configured_certificate() {
    let env = TestEnv::new();
    let made = rcgen::generate_simple_self_signed(vec!["login1.example.org".to_owned()]).unwrap();
    env.write("tls.crt", made.cert.pem());
    env.write("tls.key", made.signing_key.serialize_pem());
    let workers = Workers::serving(env, "--tls-cert tls.crt --tls-key tls.key", 1);
    workers.env.write("w.yaml", "name: w\njobs: [{name: a, command: echo done >ran}]\n");
    workers.list_workers();
    workers.torc("remote run workers.txt w.yaml").exits(0);
    workers.torc("wait w --for condition=Succeeded --timeout 1m").exits(0);
    assert_eq!(workers.env.lines("ran"), ["done"]);
    let handed = fs::metadata(workers.worker_folder(0).join("server.crt")).unwrap();
    assert_eq!(handed.permissions().mode() & 0o777, 0o600);
    workers.close();
}

#[test]
fn missing_worker_lists_and_servers_are_reported() {
    let workers = Workers::new(0);
    workers.env.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    workers.torc("apply -f w.yaml --no-run").exits(0);
    workers.torc("remote add-workers w alice@n1 n2:2222 alice@n1").exits(0).prints("alice@n1 is listed more than once");
    workers.env.write("more", "n3\nn 4\n-oProxyCommand=x\n");
    workers
        .torc("remote add-workers-from-file w more")
        .exits(4)
        .prints("more:2: 'n 4'")
        .prints("must not begin with '-'");
    workers.env.write("more", "n3 # new\nalice@n1\n");
    workers
        .torc("remote add-workers-from-file w more")
        .exits(0)
        .prints("1 worker added, 3 in total")
        .prints("the workflow already has alice@n1");
    let mut names: Vec<String> =
        workers.items("remote list-workers w").iter().map(|item| text(item, "address")).collect();
    names.sort();
    assert_eq!(names, ["alice@n1", "n2:2222", "n3"]);
    // Other machines cannot reach a loopback address, so no login is tried.
    workers
        .torc("remote run w")
        .exits(7)
        .prints("is a loopback address of this machine")
        .prints("--advertise https://");
    workers.torc("remote run more missing").exits(5).prints("torc get workflows");
    workers.torc("remote run nofile w").exits(5).prints("one worker per line");
    // The workers are deleted with their workflow.
    workers.torc("delete workflow/w --yes").exits(0);
    workers.torc("apply -f w.yaml --no-run").exits(0);
    workers.torc("remote list-workers w").exits(0).prints("nothing found");
    workers.torc("remote status w").exits(5).prints("torc remote run FILE w");
    workers.close();

    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    env.write("workers.txt", "n1\n");
    env.torc("remote run workers.txt w.yaml").exits(6).prints("torc server --bind").prints("--advertise");
    env.expect_nothing_left();
}

/// Returns every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&path)),
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
    found
}

fn contains(path: &Path, words: &str) -> bool {
    fs::read(path).is_ok_and(|content| String::from_utf8_lossy(&content).contains(words))
}
