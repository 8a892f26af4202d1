//! Allocations on a real Slurm: submitted for jobs, lost in every way, replaced, and never submitted twice.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use serde_json::Value;
use torc_api::token::Credential;
use torc_tests::env::{Outcome, Running};
use torc_tests::labs::shared::Turn;
use torc_tests::labs::slurm::{SlurmLab, wait_for};

use crate::slurm_env::SlurmEnv;

mod chaos;
mod handover;
mod outages;
mod scheduler_options;
mod sharing;
mod time;

/// Returns the Slurm of this suite.
fn slurm() -> SlurmLab {
    SlurmLab::shared("allocations")
}

/// Waits for a turn. Most tests share the Slurm; those that stop a part of it use `alone`.
fn shared() -> Turn {
    Turn::shared("slurm-allocations")
}

fn alone() -> Turn {
    Turn::alone("slurm-allocations")
}

impl SlurmEnv {
    /// Returns the allocations of the store, or none before there is one.
    fn allocations(&self) -> Vec<Value> {
        if self.env.path(".torc/torc.db").exists() { self.items("get allocations") } else { Vec::new() }
    }

    /// Returns the Slurm job ids of all allocations.
    fn numbers(&self) -> Vec<String> {
        self.slurm_jobs(|_| true)
    }

    /// Returns the state of a Slurm job in the queue, or an empty text if it is neither pending nor running.
    fn queued(&self, number: &str) -> String {
        let all = self.slurm.command("squeue", &["-h", "-a", "-o", "%i %T"]);
        let line = all.lines().find_map(|line| line.strip_prefix(&format!("{number} ")).map(str::to_owned));
        line.unwrap_or_default()
    }

    /// Waits until the workflow has an active allocation and returns its Slurm job id.
    fn active(&self) -> String {
        wait_for("an active allocation", || {
            let active = self.allocations().into_iter().find(|one| one["status"] == "active")?;
            Some(active["slurmJobId"].as_str()?.to_owned())
        })
    }

    /// Releases a requeued job, which Slurm would delay for two minutes.
    fn release_requeued(&self, number: &str) {
        wait_for("a requeued allocation", || (self.queued(number) == "PENDING").then_some(()));
        self.slurm.command("scontrol", &["update", &format!("JobId={number}"), "StartTime=now"]);
    }

    /// Returns the records of the accounting, which are written a little later than the queue.
    fn recorded(&self, arguments: &[&str]) -> String {
        wait_for("a record of the accounting", || {
            // A restarted slurmdbd refuses connections for a moment.
            let output = self.slurm.attempt("sacct", &[&["-X", "-n", "-P"], arguments].concat());
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // The name is "allocation" at first.
            (!text.trim().is_empty() && !text.starts_with("allocation")).then_some(text)
        })
    }

    fn until_exists(&self, name: &str) {
        wait_for(&format!("{name} exists"), || self.env.path(name).exists().then_some(()));
    }

    /// Waits until a call that waits for Slurm exits.
    fn end(&self, mut running: Running) -> Outcome {
        wait_for("torc ends", || running.has_ended().then_some(()));
        running.finish()
    }

    /// Returns every attempt that has ended, as "job attempt cause".
    fn causes(&self) -> BTreeSet<String> {
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let results = self.items("get results");
        results.iter().map(|one| format!("{} {} {}", word(&one["job"]), one["attempt"], word(&one["cause"]))).collect()
    }

    /// Waits until no allocation of this store is pending or running.
    fn expect_nothing_queued(&self) {
        for number in self.numbers() {
            wait_for("nothing is left in Slurm", || self.queued(&number).is_empty().then_some(()));
        }
    }

    fn reasons(&self) -> Vec<String> {
        self.items("get events").iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }
}

/// Returns a workflow whose allocations are sized from the requirements of its jobs.
fn sized(jobs: &str, more: &str) -> String {
    format!(
        "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  slurmCluster: local\n  {more}\n  \
         resourceRequirements:\n    - {{name: small, numCpus: 1, memory: 100m, runtime: PT2M}}\n  jobs:\n{jobs}"
    )
}

/// Returns a job that hangs in its first attempt and ends at once in the second.
const SECOND_TIME_LUCKY: &str = "    - name: job
      command: \"if [ -e first ]; then touch second; else touch first; sleep 600; fi\"
      resourceRequirements: small
";

/// Returns a file of Torc 1.0 with an explicit scheduler.
fn scheduled(scheduler: &str, action: &str) -> String {
    format!(
        "name: w
jobs:
  - name: job
    command: if [ -e first ]; then touch second; else touch first; sleep 600; fi
    resource_requirements: small
resource_requirements:
  - name: small
    num_cpus: 1
    memory: 100m
    runtime: PT2M
slurm_schedulers:
  - name: nodes
    account: root
    mem: 300m
    walltime: 00:20:00
{scheduler}
actions:
  - trigger_type: on_workflow_start
    action_type: schedule_nodes
    scheduler: nodes
    scheduler_type: slurm
{action}
"
    )
}

// J02, J03, R13, R16
#[test]
fn allocations_are_submitted_for_jobs_and_canceled_after_them() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let jobs = "    - name: \"work_{i}\"\n      command: \"echo {i} $SLURM_JOB_ID >>ran\"\n      \
                resourceRequirements: small\n      parameters: {i: \"1:12\"}\n    \
                - name: last\n      command: \"test -n \\\"$SLURM_JOB_ID\\\"\"\n      dependsOnRegexes: [\"work_.*\"]\n";
    login.env.write("w.yaml", sized(jobs, "maxAllocations: 2"));
    let running = login.call("apply -f w.yaml").start();
    login.end(running).exits(0).prints("13 of 13 jobs completed").prints("allocation");
    let places: BTreeSet<String> =
        login.env.lines("ran").iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
    let allocations = login.allocations();
    let numbers: BTreeSet<String> = login.numbers().into_iter().collect();
    assert!(!places.is_empty() && places.is_subset(&numbers), "{places:?} {numbers:?}");
    assert!((1..=2).contains(&allocations.len()), "{allocations:?}");
    // The other allocation may have been canceled before it started, after the jobs were done.
    let has_run = |one: &&Value| places.contains(one["slurmJobId"].as_str().unwrap_or_default());
    let one = allocations.iter().find(has_run).unwrap();
    for field in ["workflow", "cluster", "status", "slurmState", "nodes", "partition"] {
        assert!(!one[field].is_null(), "{field} is missing: {one}");
    }
    assert!(["torc-wf1-a1", "torc-wf1-a2"].contains(&one["name"].as_str().unwrap()), "{one}");
    assert_eq!(one["origin"].as_str(), Some("sizing"));
    let times = ["submitTime", "startTime", "endTime"].map(|field| one[field].as_str());
    assert!(times[0].is_some() && times.is_sorted(), "{one}");
    login.expect_nothing_queued();
    let files = fs::read_dir(login.env.path(".torc/allocations")).unwrap().count();
    assert_eq!(files, 0, "the credential files were not removed");
    let counts = &login.items("get workflows")[0]["status"]["allocations"];
    assert_eq!((counts["pending"].as_i64(), counts["active"].as_i64()), (Some(0), Some(0)));
    assert_eq!(counts["finished"].as_i64(), Some(allocations.len() as i64));
}

// R01
#[test]
fn a_canceled_active_allocation_is_replaced() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    login.env.write("w.yaml", sized(SECOND_TIME_LUCKY, "maxAllocations: 1"));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    let number = login.active();
    login.slurm.command("scancel", &[&number]);
    login.end(running).exits(0);
    let allocations = login.allocations();
    assert_eq!(allocations.len(), 2, "{allocations:?}");
    assert_eq!(allocations[0]["slurmState"], "CANCELLED");
    assert!(login.env.path("second").exists());
    assert!(login.causes().contains("job 2 -"), "{:?}", login.causes());
}

// R02
#[test]
fn a_canceled_pending_allocation_is_replaced() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    fs::write(login.env.path("first"), "").unwrap();
    login.env.write("w.yaml", scheduled("    extra: --hold", ""));
    let running = login.call("apply -f w.yaml").start();
    let number = wait_for("a number", || login.numbers().pop());
    wait_for("Slurm's own reason", || {
        let one = login.allocations().remove(0);
        (one["slurmReason"] == "JobHeldUser" && one["status"] == "pending").then_some(())
    });
    running.prints("1 allocation pending (JobHeldUser)");
    login.slurm.command("scancel", &[&number]);
    let second = wait_for("another number", || login.numbers().into_iter().find(|one| *one != number));
    assert_eq!(login.allocations()[0]["status"], "complete");
    assert_eq!(login.allocations()[1]["origin"], "recovery");
    login.slurm.command("scontrol", &["release", &second]);
    login.end(running).exits(0);
}

#[test]
fn an_allocation_out_of_time_is_replaced() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    // Without an explicit count, Slurm grants one CPU of a shared node, but the job needs two.
    login.env.write("w.yaml", scheduled("", "").replace("num_cpus: 1", "num_cpus: 2"));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    let number = login.active();
    // Slurm refuses an end time within a second of the start.
    wait_for("its time is up", || {
        let ended = login.slurm.attempt("scontrol", &["update", &format!("JobId={number}"), "EndTime=now"]);
        ended.status.success().then_some(())
    });
    login.end(running).exits(0);
    assert_eq!(login.allocations()[0]["slurmState"], "TIMEOUT");
}

#[test]
fn a_preempted_allocation_is_requeued_or_replaced() {
    let _calm = shared();
    // One partition requeues preempted jobs, the other cancels them.
    for (partition, node, allocations) in [("standby", "n3", 1), ("cut", "n4", 2)] {
        let login = SlurmEnv::new(slurm());
        let scheduler = format!("    partition: {partition}\n    extra: --exclusive --nodelist={node}");
        login.env.write("w.yaml", scheduled(&scheduler, ""));
        let running = login.call("apply -f w.yaml").start();
        login.until_exists("first");
        let list = format!("--nodelist={node}");
        let taker = ["-p", "debug", "--exclusive", "--parsable", &list, "-o", "/dev/null", "--wrap", "sleep 3"];
        let number = login.active();
        login.slurm.command("sbatch", &taker);
        if partition == "standby" {
            login.release_requeued(&number);
        }
        login.end(running).exits(0);
        assert_eq!(login.allocations().len(), allocations, "{partition}: {:?}", login.allocations());
        assert!(login.env.path("second").exists());
    }
}

#[test]
fn a_refused_submission_is_reported_and_retried_after_an_edit() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    fs::write(login.env.path("first"), "").unwrap();
    login.env.write("w.yaml", scheduled("    partition: nowhere", "    num_allocations: 2"));
    let running = login.call("apply -f w.yaml").start();
    running.prints("invalid partition specified: nowhere");
    let actions = login.items("get actions w");
    assert_ne!(actions[0]["status"], "executed", "an action is executed when Slurm has what it asks for");
    let workflow = login.items("get workflows").remove(0);
    let ready = workflow["status"]["conditions"].as_array().unwrap();
    let ready = ready.iter().find(|condition| condition["type"] == "AllocationsReady").unwrap();
    assert_eq!((ready["status"].as_str(), ready["reason"].as_str()), (Some("False"), Some("SubmitFailed")));
    assert!(login.reasons().contains(&"AllocationRefused".to_owned()));
    assert_eq!(login.numbers(), Vec::<String>::new());
    login.env.write("w.yaml", scheduled("    partition: short", "    num_allocations: 2"));
    let again = login.call("apply -f w.yaml").start();
    login.end(again).exits(0);
    login.end(running).exits(0);
    assert_eq!(login.items("get actions w")[0]["status"], "executed");
    assert_eq!(login.numbers().len(), 2, "{:?}", login.allocations());
    login.expect_nothing_queued();
}

/// An `sbatch` that submits and then hangs.
const HANGING_SBATCH: &str = "#!/bin/sh\nsbatch \"$@\" >submitted && touch hangs && exec sleep 600\n";

#[test]
fn an_allocation_submitted_before_a_crash_is_adopted() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    fs::write(login.env.path("first"), "").unwrap();
    login.env.write("w.yaml", sized(SECOND_TIME_LUCKY, ""));
    login.env.write("sbatch-that-hangs", HANGING_SBATCH);
    fs::set_permissions(login.env.path("sbatch-that-hangs"), fs::Permissions::from_mode(0o755)).unwrap();
    let running = login.call("apply -f w.yaml").env("TORC_FAKE_SBATCH", login.env.path("sbatch-that-hangs")).start();
    login.until_exists("hangs");
    running.kill();
    let submitted = login.env.lines("submitted")[0].clone();
    let again = login.call("apply -f w.yaml").start();
    login.end(again).exits(0);
    assert_eq!(login.numbers(), [submitted.as_str()], "{:?}", login.allocations());
    let names = format!("torc-wf1-a1-{}", identity(&login));
    let known = login.recorded(&["-a", "-o", "JobID", &format!("--name={names}")]);
    assert_eq!(known.lines().count(), 1, "Slurm has seen it once: {known}");
}

/// Returns the identity of this store: the end of the name of its Slurm jobs.
fn identity(login: &SlurmEnv) -> String {
    let name = login.recorded(&["-j", &login.numbers()[0], "-o", "JobName"]);
    name.trim().rsplit('-').next().unwrap().to_owned()
}

#[test]
fn a_stopped_apply_cancels_its_allocations_and_can_continue() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    login.env.write("w.yaml", sized(SECOND_TIME_LUCKY, ""));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    let number = login.active();
    running.signal(Signal::SIGINT);
    running.prints("canceling 1 allocation");
    login.end(running).exits(130);
    assert_eq!(login.queued(&number), "");
    assert_eq!(login.allocations()[0]["status"], "canceled");
    assert_eq!(login.env.states("w")["job"], "ready");
    let again = login.call("apply -f w.yaml").start();
    login.end(again).exits(0);
}

#[test]
fn a_killed_apply_continues_with_its_running_allocation() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let job = "    - name: job\n      command: \"echo ran >>ran; touch first; until [ -e go ]; do sleep 0.1; done\"\n      \
               resourceRequirements: small\n";
    login.env.write("w.yaml", sized(job, ""));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    running.kill();
    let again = login.call("apply -f w.yaml").start();
    login.env.write("go", "");
    login.end(again).exits(0);
    assert_eq!(login.env.lines("ran").len(), 1, "the job went on: {:?}", login.causes());
    assert_eq!(login.numbers().len(), 1, "{:?}", login.allocations());
}

#[test]
fn deleting_a_workflow_waits_for_the_end_of_its_allocations() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    login.env.write("w.yaml", sized(SECOND_TIME_LUCKY, ""));
    login.call("apply -f w.yaml --detach").run().exits(0);
    login.until_exists("first");
    let number = login.active();
    login.torc("delete w -y").exits(0);
    assert_eq!(login.queued(&number), "");
    assert_eq!(login.items("get workflows").len(), 0);
}

#[test]
fn several_allocations_with_a_runner_on_every_node() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let document = "name: w
parameters: {i: \"1:8\"}
jobs:
  - name: work_{i}
    command: echo $SLURMD_NODENAME >>nodes; sleep 2
    use_parameters: [i]
    resource_requirements: whole
resource_requirements:
  - name: whole
    num_cpus: 1
    memory: 10m
    runtime: PT1M
execution_config: {mode: direct, staggered_start: false}
slurm_defaults: {comment: overridden, nice: 5}
slurm_schedulers:
  - name: nodes
    account: root
    nodes: 2
    mem: 200m
    walltime: 00:10:00
actions:
  - trigger_type: on_workflow_start
    action_type: schedule_nodes
    scheduler: nodes
    scheduler_type: slurm
    start_one_worker_per_node: true
    max_parallel_jobs: 1
";
    login.env.write("w.yaml", document);
    let running = login.call("apply -f w.yaml").start();
    login.end(running).exits(0);
    let nodes: BTreeSet<String> = login.env.lines("nodes").into_iter().collect();
    assert_eq!(nodes.len(), 2, "a runner on each of two nodes: {nodes:?}");
    let one = &login.allocations()[0];
    assert_eq!((one["nodes"].as_i64(), one["scheduler"].as_str()), (Some(2), Some("nodes")));
    assert_eq!((one["origin"].as_str(), one["account"].as_str()), (Some("action"), Some("root")));
}

#[test]
fn a_job_without_a_matching_partition_is_reported() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let document = sized(SECOND_TIME_LUCKY, "").replace("numCpus: 1", "numCpus: 99");
    login.env.write("w.yaml", document);
    let running = login.call("apply -f w.yaml").start();
    let outcome = login.end(running).exits(3);
    outcome.prints("99 CPUs on a node are more than any partition has (4)");
}

#[test]
fn a_cluster_is_reached_with_a_command_prefix() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    fs::write(login.env.path("first"), "").unwrap();
    let conf = login.slurm.conf();
    let cluster = format!(
        "apiVersion: torc.dev/v1alpha1\nkind: SlurmCluster\nmetadata: {{name: lab}}\nspec:\n  defaultAccount: root\n  \
         commandPrefix: [env, \"SLURM_CONF={}\"]\n---\n",
        conf.display()
    );
    let workflow = sized(SECOND_TIME_LUCKY, "").replace("slurmCluster: local", "slurmCluster: lab");
    login.env.write("w.yaml", cluster + &workflow);
    // Without SLURM_CONF, only the prefix reaches Slurm.
    let call = login.env.call("apply -f w.yaml").env("TORC_SERVER_SLURM_POLL_INTERVAL", "1");
    login.end(call.start()).exits(0).prints("slurmcluster/lab created");
    let one = &login.allocations()[0];
    assert_eq!((one["cluster"].as_str(), one["account"].as_str()), (Some("lab"), Some("root")));
    let clusters = login.items("get slurmclusters");
    assert_eq!((clusters.len(), clusters[0]["name"].as_str()), (1, Some("lab")));
    login.torc("describe slurmcluster lab").exits(0).prints("SLURM_CONF");
    login.torc("delete slurmcluster/lab").exits(0).prints("slurmcluster/lab deleted");
    assert_eq!(login.items("get slurmclusters").len(), 0);
}

// R01, R16
#[test]
fn jobs_of_a_dead_node_run_again() {
    let _alone = alone();
    let login = SlurmEnv::new(slurm());
    login.env.write("w.yaml", sized(SECOND_TIME_LUCKY, "maxAllocations: 1"));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    let number = login.active();
    let node = login.slurm.command("squeue", &["-h", "-j", &number, "-o", "%N"]);
    let node = node.trim().trim_start_matches('n').to_owned();
    login.slurm.run("node-down", &node);
    login.release_requeued(&number);
    let outcome = login.end(running);
    login.slurm.run("node-up", &node);
    outcome.exits(0);
    assert!(login.env.path("second").exists());
    let first = login.causes().into_iter().find(|line| line.starts_with("job 1")).unwrap();
    // The cause is that of Slurm or of the restarted runner, whichever notices the loss first.
    assert!(["job 1 Preempted", "job 1 NodeFailure", "job 1 Lost"].contains(&first.as_str()), "{first}");
}

impl SlurmEnv {
    /// Returns the metrics of the server.
    fn metrics(&self) -> String {
        let info: Value = serde_json::from_str(&self.env.lines(".torc/server.json").join("\n")).unwrap();
        let word = self.env.lines(".torc/token")[0].clone();
        let token = Credential::token_of(&word);
        let url = format!("{}/metrics", info["url"].as_str().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // Fails only if a provider is installed. The certificate is not checked: it is self-signed, and the response is no secret.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap();
            client.get(url).bearer_auth(token).send().await.unwrap().text().await.unwrap()
        })
    }
}
