//! Allocations on a real Slurm: they appear by themselves, fail in every way, are replaced, and are never asked for twice.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use nix::sys::signal::Signal;
use serde_json::Value;
use torc_api::token::Credential;
use torc_tests::lab::slurm::{SlurmLab, patiently};
use torc_tests::lab::{Call, Lab, Outcome, Running};

#[path = "allocations/chaos.rs"]
mod chaos;
#[path = "allocations/handover.rs"]
mod handover;
#[path = "allocations/manners.rs"]
mod manners;
#[path = "allocations/outages.rs"]
mod outages;

/// Most tests share the Slurm; those that take a part of it away have it for themselves.
static SLURM: RwLock<()> = RwLock::new(());

fn shared() -> RwLockReadGuard<'static, ()> {
    SLURM.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    SLURM.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A login node: a folder, and the Slurm that it belongs to.
struct Desk {
    lab: Lab,
    slurm: &'static SlurmLab,
}

impl Desk {
    fn new() -> Self {
        Self { lab: Lab::new(), slurm: SlurmLab::shared() }
    }

    fn call(&self, line: &str) -> Call {
        let call = self.lab.call(line).env("SLURM_CONF", self.slurm.conf());
        call.env("TORC_SERVER_SLURM_POLL_INTERVAL", "1")
    }

    fn torc(&self, line: &str) -> Outcome {
        self.call(line).run()
    }

    fn items(&self, line: &str) -> Vec<Value> {
        let outcome = self.torc(&format!("{line} -o json")).exits(0);
        outcome.json()["items"].as_array().unwrap().clone()
    }

    /// None as long as there is no store.
    fn allocations(&self) -> Vec<Value> {
        if self.lab.path(".torc/torc.db").exists() { self.items("get allocations") } else { Vec::new() }
    }

    /// Slurm's numbers of all allocations.
    fn numbers(&self) -> Vec<String> {
        self.allocations().iter().filter_map(|one| Some(one["slurmJobId"].as_str()?.to_owned())).collect()
    }

    /// What Slurm's queue says of a job; empty when it is not waiting or running.
    fn queued(&self, number: &str) -> String {
        let all = self.slurm.command("squeue", &["-h", "-a", "-o", "%i %T"]);
        let line = all.lines().find_map(|line| line.strip_prefix(&format!("{number} ")).map(str::to_owned));
        line.unwrap_or_default()
    }

    /// Waits until the workflow has an active allocation; its number in Slurm.
    fn active(&self) -> String {
        patiently("an active allocation", || {
            let active = self.allocations().into_iter().find(|one| one["status"] == "active")?;
            Some(active["slurmJobId"].as_str()?.to_owned())
        })
    }

    /// Slurm lets what it has requeued wait for two minutes; an administrator need not.
    fn hurry(&self, number: &str) {
        patiently("a requeued allocation", || (self.queued(number) == "PENDING").then_some(()));
        self.slurm.command("scontrol", &["update", &format!("JobId={number}"), "StartTime=now"]);
    }

    /// What the accounting has on record, which it learns a little later than the queue.
    fn recorded(&self, arguments: &[&str]) -> String {
        patiently("a record of the accounting", || {
            let text = self.slurm.command("sacct", &[&["-X", "-n", "-P"], arguments].concat());
            // Until it knows the name, it says "allocation".
            (!text.trim().is_empty() && !text.starts_with("allocation")).then_some(text)
        })
    }

    fn until_exists(&self, name: &str) {
        patiently(&format!("{name} exists"), || self.lab.path(name).exists().then_some(()));
    }

    /// The end of a call that waits for Slurm.
    fn end(&self, mut running: Running) -> Outcome {
        patiently("torc ends", || running.has_ended().then_some(()));
        running.finish()
    }

    /// Every attempt that ended, as "job attempt cause".
    fn causes(&self) -> BTreeSet<String> {
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let results = self.items("get results");
        results.iter().map(|one| format!("{} {} {}", word(&one["job"]), one["attempt"], word(&one["cause"]))).collect()
    }

    /// Nothing of this store waits or runs in Slurm.
    fn expect_nothing_queued(&self) {
        for number in self.numbers() {
            patiently("nothing is left in Slurm", || self.queued(&number).is_empty().then_some(()));
        }
    }

    fn reasons(&self) -> Vec<String> {
        self.items("get events").iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }
}

/// A workflow that says what its jobs need and where.
fn sized(jobs: &str, more: &str) -> String {
    format!(
        "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  slurmCluster: local\n  {more}\n  \
         resourceRequirements:\n    - {{name: small, numCpus: 1, memory: 100m, runtime: PT2M}}\n  jobs:\n{jobs}"
    )
}

/// A job that hangs the first time and is done at once the second.
const SECOND_TIME_LUCKY: &str = "    - name: job
      command: \"if [ -e first ]; then touch second; else touch first; sleep 600; fi\"
      resourceRequirements: small
";

/// The same for a file of Torc 1.0, with an allocation that somebody described.
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
fn what_jobs_need_appears_by_itself_and_goes_when_they_are_done() {
    let _calm = shared();
    let desk = Desk::new();
    let jobs = "    - name: \"work_{i}\"\n      command: \"echo {i} $SLURM_JOB_ID >>ran\"\n      \
                resourceRequirements: small\n      parameters: {i: \"1:12\"}\n    \
                - name: last\n      command: \"test -n \\\"$SLURM_JOB_ID\\\"\"\n      dependsOnRegexes: [\"work_.*\"]\n";
    desk.lab.write("w.yaml", sized(jobs, "maxAllocations: 2"));
    let running = desk.call("apply -f w.yaml").start();
    desk.end(running).exits(0).says("13 of 13 jobs completed").says("allocation");
    let places: BTreeSet<String> =
        desk.lab.lines("ran").iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
    let allocations = desk.allocations();
    let numbers: BTreeSet<String> = desk.numbers().into_iter().collect();
    assert!(!places.is_empty() && places.is_subset(&numbers), "{places:?} {numbers:?}");
    assert!((1..=2).contains(&allocations.len()), "{allocations:?}");
    let one = &allocations[0];
    for field in ["name", "workflow", "cluster", "slurmJobId", "status", "slurmState", "nodes", "partition", "origin"] {
        assert!(!one[field].is_null(), "{field} is missing: {one}");
    }
    assert_eq!((one["name"].as_str(), one["origin"].as_str()), (Some("torc-wf1-a1"), Some("sizing")));
    assert!(
        one["submitTime"].as_str() <= one["startTime"].as_str() && one["startTime"].as_str() <= one["endTime"].as_str()
    );
    desk.expect_nothing_queued();
    let files = fs::read_dir(desk.lab.path(".torc/allocations")).unwrap().count();
    assert_eq!(files, 0, "nobody needs the secrets any more");
    let counts = &desk.items("get workflows")[0]["status"]["allocations"];
    assert_eq!((counts["pending"].as_i64(), counts["active"].as_i64()), (Some(0), Some(0)));
    assert_eq!(counts["finished"].as_i64(), Some(allocations.len() as i64));
}

// R01
#[test]
fn an_allocation_that_somebody_cancels_is_replaced() {
    let _calm = shared();
    let desk = Desk::new();
    desk.lab.write("w.yaml", sized(SECOND_TIME_LUCKY, "maxAllocations: 1"));
    let running = desk.call("apply -f w.yaml").start();
    desk.until_exists("first");
    let number = desk.active();
    desk.slurm.command("scancel", &[&number]);
    desk.end(running).exits(0);
    let allocations = desk.allocations();
    assert_eq!(allocations.len(), 2, "{allocations:?}");
    assert_eq!(allocations[0]["slurmState"], "CANCELLED");
    assert!(desk.lab.path("second").exists());
    assert!(desk.causes().contains("job 2 -"), "{:?}", desk.causes());
}

// R02
#[test]
fn a_pending_allocation_that_somebody_cancels_is_replaced() {
    let _calm = shared();
    let desk = Desk::new();
    fs::write(desk.lab.path("first"), "").unwrap();
    desk.lab.write("w.yaml", scheduled("    extra: --hold", ""));
    let running = desk.call("apply -f w.yaml").start();
    let number = patiently("a number", || desk.numbers().pop());
    patiently("Slurm's own reason", || {
        let one = desk.allocations().remove(0);
        (one["slurmReason"] == "JobHeldUser" && one["status"] == "pending").then_some(())
    });
    running.says("1 allocation pending (JobHeldUser)");
    desk.slurm.command("scancel", &[&number]);
    let second = patiently("another number", || desk.numbers().into_iter().find(|one| *one != number));
    assert_eq!(desk.allocations()[0]["status"], "complete");
    assert_eq!(desk.allocations()[1]["origin"], "recovery");
    desk.slurm.command("scontrol", &["release", &second]);
    desk.end(running).exits(0);
}

#[test]
fn an_allocation_whose_time_is_up_is_replaced() {
    let _calm = shared();
    let desk = Desk::new();
    // Slurm gives one CPU of a shared node to whoever does not ask for more; its job needs two.
    desk.lab.write("w.yaml", scheduled("", "").replace("num_cpus: 1", "num_cpus: 2"));
    let running = desk.call("apply -f w.yaml").start();
    desk.until_exists("first");
    let number = desk.active();
    desk.slurm.command("scontrol", &["update", &format!("JobId={number}"), "EndTime=now"]);
    desk.end(running).exits(0);
    assert_eq!(desk.allocations()[0]["slurmState"], "TIMEOUT");
}

#[test]
fn a_preempted_allocation_comes_back_or_is_replaced() {
    let _calm = shared();
    // In the one partition Slurm requeues what it preempts, in the other it cancels it.
    for (partition, node, allocations) in [("standby", "n3", 1), ("cut", "n4", 2)] {
        let desk = Desk::new();
        let scheduler = format!("    partition: {partition}\n    extra: --exclusive --nodelist={node}");
        desk.lab.write("w.yaml", scheduled(&scheduler, ""));
        let running = desk.call("apply -f w.yaml").start();
        desk.until_exists("first");
        let list = format!("--nodelist={node}");
        let taker = ["-p", "debug", "--exclusive", "--parsable", &list, "-o", "/dev/null", "--wrap", "sleep 3"];
        let number = desk.active();
        desk.slurm.command("sbatch", &taker);
        if partition == "standby" {
            desk.hurry(&number);
        }
        desk.end(running).exits(0);
        assert_eq!(desk.allocations().len(), allocations, "{partition}: {:?}", desk.allocations());
        assert!(desk.lab.path("second").exists());
    }
}

#[test]
fn what_slurm_refuses_is_told_and_tried_again_when_the_document_is_corrected() {
    let _calm = shared();
    let desk = Desk::new();
    fs::write(desk.lab.path("first"), "").unwrap();
    desk.lab.write("w.yaml", scheduled("    partition: nowhere", "    num_allocations: 2"));
    let running = desk.call("apply -f w.yaml").start();
    running.says("invalid partition specified: nowhere");
    let actions = desk.items("get actions w");
    assert_ne!(actions[0]["status"], "executed", "an action is executed when Slurm has what it asks for");
    let workflow = desk.items("get workflows").remove(0);
    let ready = workflow["status"]["conditions"].as_array().unwrap();
    let ready = ready.iter().find(|condition| condition["type"] == "AllocationsReady").unwrap();
    assert_eq!((ready["status"].as_str(), ready["reason"].as_str()), (Some("False"), Some("SubmitFailed")));
    assert!(desk.reasons().contains(&"AllocationRefused".to_owned()));
    assert_eq!(desk.numbers(), Vec::<String>::new());
    desk.lab.write("w.yaml", scheduled("    partition: short", "    num_allocations: 2"));
    let again = desk.call("apply -f w.yaml").start();
    desk.end(again).exits(0);
    desk.end(running).exits(0);
    assert_eq!(desk.items("get actions w")[0]["status"], "executed");
    assert_eq!(desk.numbers().len(), 2, "{:?}", desk.allocations());
    desk.expect_nothing_queued();
}

/// An `sbatch` that submits and then never answers.
const HANGING_SBATCH: &str = "#!/bin/sh\nsbatch \"$@\" >submitted && touch hangs && exec sleep 600\n";

#[test]
fn what_was_submitted_just_before_a_crash_is_found_again_and_not_submitted_twice() {
    let _calm = shared();
    let desk = Desk::new();
    fs::write(desk.lab.path("first"), "").unwrap();
    desk.lab.write("w.yaml", sized(SECOND_TIME_LUCKY, ""));
    desk.lab.write("sbatch-that-hangs", HANGING_SBATCH);
    fs::set_permissions(desk.lab.path("sbatch-that-hangs"), fs::Permissions::from_mode(0o755)).unwrap();
    let running = desk.call("apply -f w.yaml").env("TORC_FAKE_SBATCH", desk.lab.path("sbatch-that-hangs")).start();
    desk.until_exists("hangs");
    running.kill();
    let submitted = desk.lab.lines("submitted")[0].clone();
    let again = desk.call("apply -f w.yaml").start();
    desk.end(again).exits(0);
    assert_eq!(desk.numbers(), [submitted.as_str()], "{:?}", desk.allocations());
    let names = format!("torc-wf1-a1-{}", identity(&desk));
    let known = desk.recorded(&["-a", "-o", "JobID", &format!("--name={names}")]);
    assert_eq!(known.lines().count(), 1, "Slurm has seen it once: {known}");
}

/// What tells this store from others: the end of the name that Slurm knows.
fn identity(desk: &Desk) -> String {
    let name = desk.recorded(&["-j", &desk.numbers()[0], "-o", "JobName"]);
    name.trim().rsplit('-').next().unwrap().to_owned()
}

#[test]
fn whoever_stops_apply_leaves_nothing_behind_and_goes_on_later() {
    let _calm = shared();
    let desk = Desk::new();
    desk.lab.write("w.yaml", sized(SECOND_TIME_LUCKY, ""));
    let running = desk.call("apply -f w.yaml").start();
    desk.until_exists("first");
    let number = desk.active();
    running.signal(Signal::SIGINT);
    running.says("cancelling 1 allocation");
    desk.end(running).exits(130);
    assert_eq!(desk.queued(&number), "");
    assert_eq!(desk.allocations()[0]["status"], "canceled");
    assert_eq!(desk.lab.states("w")["job"], "ready");
    let again = desk.call("apply -f w.yaml").start();
    desk.end(again).exits(0);
}

#[test]
fn a_killed_apply_is_continued_with_the_allocation_that_runs() {
    let _calm = shared();
    let desk = Desk::new();
    let job = "    - name: job\n      command: \"echo ran >>ran; touch first; until [ -e go ]; do sleep 0.1; done\"\n      \
               resourceRequirements: small\n";
    desk.lab.write("w.yaml", sized(job, ""));
    let running = desk.call("apply -f w.yaml").start();
    desk.until_exists("first");
    running.kill();
    let again = desk.call("apply -f w.yaml").start();
    desk.lab.write("go", "");
    desk.end(again).exits(0);
    assert_eq!(desk.lab.lines("ran").len(), 1, "the job went on: {:?}", desk.causes());
    assert_eq!(desk.numbers().len(), 1, "{:?}", desk.allocations());
}

#[test]
fn deleting_a_workflow_waits_until_its_allocations_are_gone() {
    let _calm = shared();
    let desk = Desk::new();
    desk.lab.write("w.yaml", sized(SECOND_TIME_LUCKY, ""));
    desk.call("apply -f w.yaml --detach").run().exits(0);
    desk.until_exists("first");
    let number = desk.active();
    desk.torc("delete w -y").exits(0);
    assert_eq!(desk.queued(&number), "");
    assert_eq!(desk.items("get workflows").len(), 0);
}

#[test]
fn several_allocations_with_a_runner_on_every_node() {
    let _calm = shared();
    let desk = Desk::new();
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
    desk.lab.write("w.yaml", document);
    let running = desk.call("apply -f w.yaml").start();
    desk.end(running).exits(0);
    let nodes: BTreeSet<String> = desk.lab.lines("nodes").into_iter().collect();
    assert_eq!(nodes.len(), 2, "a runner on each of two nodes: {nodes:?}");
    let one = &desk.allocations()[0];
    assert_eq!((one["nodes"].as_i64(), one["scheduler"].as_str()), (Some(2), Some("nodes")));
    assert_eq!((one["origin"].as_str(), one["account"].as_str()), (Some("action"), Some("root")));
}

#[test]
fn a_job_that_fits_nowhere_is_told_about() {
    let _calm = shared();
    let desk = Desk::new();
    let document = sized(SECOND_TIME_LUCKY, "").replace("numCpus: 1", "numCpus: 99");
    desk.lab.write("w.yaml", document);
    let running = desk.call("apply -f w.yaml").start();
    let outcome = desk.end(running).exits(3);
    outcome.says("99 CPUs on a node are more than any partition has (4)");
}

#[test]
fn a_cluster_is_described_kept_and_reached_with_a_prefix() {
    let _calm = shared();
    let desk = Desk::new();
    fs::write(desk.lab.path("first"), "").unwrap();
    let conf = desk.slurm.conf();
    let cluster = format!(
        "apiVersion: torc.dev/v1alpha1\nkind: SlurmCluster\nmetadata: {{name: lab}}\nspec:\n  defaultAccount: root\n  \
         commandPrefix: [env, \"SLURM_CONF={}\"]\n---\n",
        conf.display()
    );
    let workflow = sized(SECOND_TIME_LUCKY, "").replace("slurmCluster: local", "slurmCluster: lab");
    desk.lab.write("w.yaml", cluster + &workflow);
    // Without SLURM_CONF only the prefix leads to Slurm.
    let call = desk.lab.call("apply -f w.yaml").env("TORC_SERVER_SLURM_POLL_INTERVAL", "1");
    desk.end(call.start()).exits(0).says("slurmcluster/lab created");
    let one = &desk.allocations()[0];
    assert_eq!((one["cluster"].as_str(), one["account"].as_str()), (Some("lab"), Some("root")));
    let clusters = desk.items("get slurmclusters");
    assert_eq!((clusters.len(), clusters[0]["name"].as_str()), (1, Some("lab")));
    desk.torc("describe slurmcluster lab").exits(0).says("SLURM_CONF");
    desk.torc("delete slurmcluster/lab").exits(0).says("slurmcluster/lab deleted");
    assert_eq!(desk.items("get slurmclusters").len(), 0);
}

// R01, R16
#[test]
fn a_node_that_dies_takes_nothing_with_it_that_does_not_come_back() {
    let _alone = alone();
    let desk = Desk::new();
    desk.lab.write("w.yaml", sized(SECOND_TIME_LUCKY, "maxAllocations: 1"));
    let running = desk.call("apply -f w.yaml").start();
    desk.until_exists("first");
    let number = desk.active();
    let node = desk.slurm.command("squeue", &["-h", "-j", &number, "-o", "%N"]);
    let node = node.trim().trim_start_matches('n').to_owned();
    desk.slurm.run("node-down", &node);
    desk.hurry(&number);
    let outcome = desk.end(running);
    desk.slurm.run("node-up", &node);
    outcome.exits(0);
    assert!(desk.lab.path("second").exists());
    let first = desk.causes().into_iter().find(|line| line.starts_with("job 1")).unwrap();
    // Whoever notices first says why: Slurm, or the runner that comes back to the allocation without the job.
    assert!(["job 1 Preempted", "job 1 NodeFailure", "job 1 Lost"].contains(&first.as_str()), "{first}");
}

impl Desk {
    /// What the server counts.
    fn metrics(&self) -> String {
        let info: Value = serde_json::from_str(&self.lab.lines(".torc/server.json").join("\n")).unwrap();
        let word = self.lab.lines(".torc/token")[0].clone();
        let token = Credential::token_of(&word);
        let url = format!("{}/metrics", info["url"].as_str().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // The second test to come here finds it done. What is asked for is no secret; the server's certificate is its own.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap();
            client.get(url).bearer_auth(token).send().await.unwrap().text().await.unwrap()
        })
    }
}
