//! Lost jobs and allocations, with fakes for Slurm: `sbatch` runs its script on this machine, the queue and the accounting are
//! files. `recovery.rs` and `allocations.rs` have the tests with a real Slurm.

use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use torc_tests::env::{Call, Running, TestEnv, kill, text, until};

const PARTITIONS: &str = "PartitionName=cpu MaxNodes=UNLIMITED MaxTime=2-00:00:00 OverSubscribe=EXCLUSIVE State=UP \
                          TotalNodes=4 RootOnly=NO Hidden=NO";
const TOOLS: [&str; 6] = ["sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo"];

/// An `sbatch` that runs the script as a node would.
const SBATCH: &str = "cat >script
n=$((70 + $(ls numbers | wc -l))); touch numbers/$n
echo \"$n|RUNNING|cpu|1|N/A|N/A|1:00:00|n1|(null)|x|None\" >queue
export SLURM_JOB_ID=$n SLURM_CPUS_ON_NODE=2 SLURM_MEM_PER_NODE=2000 SLURM_JOB_END_TIME=4000000000
setsid bash script </dev/null >/dev/null 2>&1 &
echo $n";

const DOCUMENT: &str = "name: w
recovery: {policy: Never}
execution_config: {mode: direct}
resource_requirements:
- {name: small, num_cpus: 1, memory: 60m, runtime: PT5M}
slurm_schedulers:
- {name: s, account: a, partition: cpu, mem: 1g, walltime: '00:20:00'}
actions:
- {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}
jobs:
- {name: a, command: 'touch began; test -e go || sleep 600', resource_requirements: small}
";

/// An `sbatch` whose jobs never start.
const SBATCH_PENDING: &str = "cat >script
echo '70|PENDING|cpu|1|N/A|N/A|1:00:00||(null)|x|Priority' >queue
echo 70";

const RECORD: &str = "70|CANCELLED by 0|0:15|2026-01-01T00:00:00|2026-01-01T00:01:00|n1|x\n";

/// The state of the background server of `torc submit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerState {
    Serves,
    Left,
    Killed,
}

const SERVER_STATES: [ServerState; 3] = [ServerState::Serves, ServerState::Left, ServerState::Killed];

struct FakeSlurm {
    env: TestEnv,
}

impl FakeSlurm {
    fn new() -> Self {
        let slurm = Self { env: TestEnv::new() };
        slurm.env.write("slurm/numbers/.keep", "");
        slurm.env.write("slurm/queue", "");
        slurm.env.write("slurm/records", "");
        slurm.program("sbatch", SBATCH);
        slurm.program("squeue", "cat queue");
        slurm.program("sacct", "cat records");
        slurm.program("scancel", "true");
        slurm.program("scontrol", &format!("echo '{PARTITIONS}'"));
        slurm.program("sinfo", "echo 'cpu|4|8|16000|(null)|idle'");
        slurm
    }

    fn program(&self, name: &str, lines: &str) {
        let path = format!("slurm/{name}");
        self.env.write(&path, format!("#!/bin/bash\ncd \"$(dirname \"$0\")\"\n{lines}\n"));
        std::fs::set_permissions(self.env.path(&path), PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Prepares a call. The server queries Slurm when it starts and then only on request.
    fn call(&self, line: &str) -> Call {
        let replaced = |call: Call, tool: &str| {
            call.env(&format!("TORC_FAKE_{}", tool.to_uppercase()), self.env.path(&format!("slurm/{tool}")))
        };
        TOOLS.into_iter().fold(self.env.call(line), replaced).env("TORC_SERVER_SLURM_POLL_INTERVAL", "600")
    }

    fn json(&self, line: &str) -> Value {
        self.call(line).arg("-o").arg("json").run().exits(0).json()
    }

    fn state(&self) -> String {
        text(&self.json("get jobs w")["items"][0], "status")
    }

    fn until_state(&self, state: &str) {
        until(|| self.state() == state, || format!("it is {} and not {state}", self.state()));
    }

    /// Runs a job in an allocation, kills its runner, and has Slurm report the allocation as canceled.
    fn lose(&self) {
        self.env.write("w.yaml", DOCUMENT);
        self.call("submit w.yaml").run().exits(0);
        self.until_state("running");
        until(|| self.env.path("began").exists(), || "the job has not begun".to_owned());
        let is_of_runner = |command: &str| command.contains("job-runner") || command.contains("sleep 600");
        until(
            || {
                let found = self.env.processes().into_iter().filter(|process| is_of_runner(&process.command));
                found.map(|process| kill(process.pid)).count() == 0
            },
            || "the runner does not go".to_owned(),
        );
        self.cancel();
        assert_eq!(self.state(), "running", "the server does not know of the loss");
    }

    /// Submits an allocation, which stays in the queue.
    fn submit_pending(&self) {
        self.program("sbatch", SBATCH_PENDING);
        self.env.write("w.yaml", DOCUMENT);
        self.call("submit w.yaml").run().exits(0);
        let submitted = || self.json("get allocations w")["items"][0]["slurmJobId"] == "70";
        until(submitted, || "nothing was submitted".to_owned());
    }

    /// Has Slurm report the allocation as canceled.
    fn cancel(&self) {
        self.env.write("slurm/queue", "");
        self.env.write("slurm/records", RECORD);
    }

    /// Brings the background server into a state.
    fn put_server_into(&self, server: ServerState) {
        let servers = || {
            let found = self.env.processes().into_iter();
            found.filter(|process| process.command.contains("server --background")).collect::<Vec<_>>()
        };
        let signal = match server {
            ServerState::Serves => return,
            ServerState::Left => Signal::SIGTERM,
            ServerState::Killed => Signal::SIGKILL,
        };
        for server in servers() {
            let _ = nix::sys::signal::kill(Pid::from_raw(server.pid), signal);
        }
        until(|| servers().is_empty(), || format!("the server does not end: {:#?}", servers()));
    }
}

// R01, R05
#[test]
fn sync_status_finds_losses_in_every_state_of_the_server() {
    for server in SERVER_STATES {
        let slurm = FakeSlurm::new();
        slurm.lose();
        slurm.put_server_into(server);
        let done = slurm.json("workflows sync-status w");
        assert_eq!(text(&done["jobs"][0], "job"), "a", "{server:?}: {done:#}");
        assert_eq!(text(&done["allocations"][0], "was"), "active", "{server:?}: {done:#}");
        assert_eq!((slurm.state(), done.get("unreachable")), ("failed".into(), None), "{server:?}: {done:#}");
    }
}

// R02, R05, R06
#[test]
fn an_allocation_missing_from_the_queue_is_complete() {
    for server in SERVER_STATES {
        let slurm = FakeSlurm::new();
        slurm.submit_pending();
        slurm.put_server_into(server);
        slurm.cancel();
        let done = slurm.json("workflows sync-status w");
        assert_eq!(text(&done["allocations"][0], "was"), "pending", "{server:?}: {done:#}");
        assert_eq!(slurm.json("get allocations w")["items"][0]["status"], "complete", "{server:?}");
    }
}

// R01, R06. No other process queries Slurm.
#[test]
fn watch_queries_slurm_when_no_server_runs() {
    for server in [ServerState::Left, ServerState::Killed] {
        let slurm = FakeSlurm::new();
        slurm.lose();
        slurm.put_server_into(server);
        let watched = slurm.call("watch w -p 1").run().exits(3);
        watched.prints("no torc process serves this store").prints("torc submit w").prints("job a of w was lost");
        assert_eq!(slurm.state(), "failed", "{server:?}");
    }
}

// R02, R06
#[test]
fn watch_notices_a_canceled_pending_allocation() {
    let slurm = FakeSlurm::new();
    slurm.submit_pending();
    slurm.put_server_into(ServerState::Killed);
    let watch = slurm.call("watch w -p 1").start();
    watch.prints("1 allocation pending");
    slurm.cancel();
    watch.prints("was pending and has ended");
    watch.prints("0 allocations pending, 0 active");
}

// R04. The server listens at the address of the one before.
#[test]
fn recover_restarts_a_dead_server_at_its_address() {
    let slurm = FakeSlurm::new();
    slurm.env.write("w.yaml", DOCUMENT);
    let url = || {
        let info: Value =
            serde_json::from_str(&std::fs::read_to_string(slurm.env.path(".torc/server.json")).ok()?).ok()?;
        Some((text(&info, "url"), info["pid"].as_i64()?))
    };
    slurm.call("submit w.yaml --bind 127.0.0.1:0").run().exits(0);
    let (_, first) = url().unwrap();
    slurm.lose();
    slurm.put_server_into(ServerState::Killed);
    slurm.env.write("go", "");
    slurm.call("recover w").run().exits(0).prints("job a of w was lost").prints("running in the background");
    let (address, second) = url().unwrap();
    assert!(address.starts_with("http://127.0.0.1:") && first != second, "{address}");
    slurm.until_state("completed");
    slurm.put_server_into(ServerState::Killed);
    slurm.call("workflows reset-status w").run().exits(0).prints("run them with: torc submit w");
    slurm.call("slurm regenerate w --account a --submit --bind 127.0.0.2:0").run().exits(0);
    let (address, _) = url().unwrap();
    assert!(address.starts_with("http://127.0.0.2:"), "{address}");
}

// The runner of the server is idle, and exits only with the server.
#[test]
fn a_server_with_a_runner_registers_it_once() {
    let slurm = FakeSlurm::new();
    let document = DOCUMENT.replace("test -e go || sleep 600", "sleep 3");
    slurm.env.write("w.yaml", document);
    let server = slurm.call("server --with-runner --idle-exit 1s --bind 127.0.0.1:0 -vv").start();
    server.prints("serving");
    slurm.call("apply -f w.yaml").run().exits(0);
    slurm.until_state("completed");
    let runners = slurm.json("get runners --all");
    let local = runners["items"].as_array().unwrap().iter().filter(|one| one["kind"] == "local").count();
    assert_eq!(local, 1, "{runners:#}");
    // The server queries Slurm only on request.
    slurm.cancel();
    slurm.json("workflows sync-status w");
    server.prints("allocation_tick: torc_controller::slurm::reconcile: allocations reconciled workflows=1");
    server.prints("idle: exiting");
    server.finish().exits(0);
}

// R01, R05
#[test]
fn sync_status_finds_losses_and_a_dry_run_changes_nothing() {
    let slurm = FakeSlurm::new();
    slurm.lose();
    let would = slurm.json("workflows sync-status w --dry-run");
    assert_eq!((slurm.state(), text(&would["jobs"][0], "job")), ("running".into(), "a".into()), "{would:#}");
    let done = slurm.json("workflows sync-status w");
    assert_eq!((&done["jobs"], &done["allocations"]), (&would["jobs"], &would["allocations"]));
    assert_eq!((slurm.state(), text(&done["allocations"][0], "was")), ("failed".into(), "active".into()));
    assert_eq!(slurm.json("get results w")["items"][0]["returnCode"], -128);
    slurm.call("workflows sync-status w").run().exits(0).prints("nothing was lost");
}

// R01, R04
#[test]
fn recover_finds_losses_before_it_decides() {
    for server in SERVER_STATES {
        recover_after_a_loss(server);
    }
}

fn recover_after_a_loss(server: ServerState) {
    let slurm = FakeSlurm::new();
    slurm.lose();
    slurm.put_server_into(server);
    let would = slurm.json("recover w --dry-run");
    assert_eq!((text(&would["orphans"]["jobs"][0], "job"), &would["again"]), ("a".into(), &1.into()), "{would:#}");
    assert_eq!(slurm.state(), "running", "a dry run changes nothing");
    slurm.env.write("go", "");
    let done = slurm.json("recover w");
    assert_eq!((text(&done["orphans"]["jobs"][0], "job"), &done["again"]), ("a".into(), &1.into()), "{done:#}");
    assert_eq!((&would["jobs"], would["regenerated"].is_object()), (&done["jobs"], true), "{would:#} {done:#}");
    slurm.until_state("completed");
    let results = slurm.json("get results w");
    let causes: Vec<&Value> = results["items"].as_array().unwrap().iter().map(|one| &one["cause"]).collect();
    assert_eq!(causes, [&Value::from("Lost"), &Value::Null], "{results:#}");
}

// R04, R07, R09, R10, S20
#[test]
fn a_dry_run_of_recover_shows_what_recover_does() {
    let slurm = FakeSlurm::new();
    let late = "'touch began; test -e go || exit 152'";
    let document = DOCUMENT.replace("'touch began; test -e go || sleep 600'", late);
    slurm.env.write(
        "w.yaml",
        format!("{document}- {{name: b, command: 'true', resource_requirements: small, depends_on: [a]}}\n"),
    );
    slurm.call("submit w.yaml").run().exits(0);
    slurm.until_state("failed");
    let text_of = |line: &str| slurm.call(line).run().exits(0).stdout;
    let shown = text_of("recover w --dry-run");
    assert_eq!(shown.matches("nothing was changed").count(), 1, "{shown}");
    assert!(shown.contains("runtime from 5m to 7m30s"), "{shown}");
    let would = slurm.json("recover w --dry-run");
    assert_eq!(slurm.state(), "failed", "a dry run changes nothing");
    slurm.env.write("go", "");
    let done = slurm.json("recover w");
    assert_eq!((&would["jobs"], &would["again"]), (&done["jobs"], &done["again"]));
    // Names of schedulers contain the time of their plan.
    let schedulers = |report: &Value| -> Vec<Value> {
        let planned = report["regenerated"]["schedulers"].as_array().unwrap();
        let mut planned = planned.clone();
        for one in &mut planned {
            let is_deferred = text(one, "name").ends_with("_deferred");
            one["name"] = is_deferred.into();
        }
        planned
    };
    assert_eq!(schedulers(&would), schedulers(&done), "{would:#} {done:#}");
    assert_eq!(schedulers(&done).iter().filter(|one| one["name"] == true && one["deferred"] == true).count(), 1);
    assert_eq!(would["regenerated"]["supersededActions"], done["regenerated"]["supersededActions"]);
    slurm.until_state("completed");
}

const CLUSTER: &str = "apiVersion: torc.dev/v1alpha1
kind: SlurmCluster
metadata: {name: far}
spec:
  commandPrefix: [/nowhere/ssh, far]
  partitions:
  - {name: theirs, cpusPerNode: 8, memoryMb: 16000, maxWalltime: 1d, nodes: 4}
---
apiVersion: torc.dev/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  slurmCluster: far
  slurmSchedulers: [{name: s, account: a}]
  actions: [{triggerType: on_workflow_start, actionType: schedule_nodes, scheduler: s, schedulerType: slurm}]
  jobs: [{name: a, command: 'true'}]
";

// R14
#[test]
fn a_plan_uses_the_workflows_cluster_or_a_named_profile() {
    let slurm = FakeSlurm::new();
    slurm.env.write("w.yaml", CLUSTER);
    let profile = "name = \"own\"\n[[partitions]]\nname = \"mine\"\ncpusPerNode = 4\nmemoryMb = 4000\n\
                   maxWalltime = \"2h\"\n";
    slurm.env.write("own.toml", profile);
    slurm.call("apply -f w.yaml --no-run").run().exits(0);
    for (options, partition) in [("", "theirs"), ("--profile own.toml", "mine")] {
        let plan = slurm.json(&format!("slurm regenerate w --account a --dry-run {options}"));
        assert_eq!(text(&plan["schedulers"][0], "partition"), partition, "{plan:#}");
    }
}

// Commands of Slurm that never exit: commands that wait for them fail after a timeout.
#[test]
fn a_hanging_slurm_command_times_out() {
    let slurm = FakeSlurm::new();
    slurm.env.write("w.yaml", DOCUMENT);
    slurm.call("submit w.yaml").run().exits(0);
    slurm.until_state("running");
    for tool in ["squeue", "scancel", "scontrol", "sinfo"] {
        slurm.program(tool, "exec sleep 3600");
    }
    let lines = ["workflows sync-status w -o json", "hpc partitions", "delete w -y"];
    let [sync, partitions, delete]: [Running; 3] = lines.map(|line| slurm.call(line).start());
    for line in ["get allocations w", "explain job/a -w w", "get jobs w", "status w", "slurm stats w"] {
        slurm.call(line).run().exits(0);
    }
    let found = sync.finish().exits(0).json();
    assert_eq!((found["jobs"].as_array().map(Vec::len), &found["inDoubt"][0]), (Some(0), &"torc-wf1-a1".into()));
    delete.finish().exits(7).prints("may still be in Slurm").prints("--force");
    partitions.finish().exits(6).prints("took longer than 20 s");
    slurm.call("delete w -y --force").run().exits(0).prints("workflow/w deleted");
    assert_eq!(slurm.json("get workflows")["items"].as_array().map(Vec::len), Some(0));
}
