//! Allocations on a real Slurm: they appear by themselves, fail in every way, are replaced, and are never asked for twice.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use serde_json::Value;
use torc_api::token::Credential;
use torc_tests::env::{Outcome, Running};
use torc_tests::labs::shared::Turn;
use torc_tests::labs::slurm::{SlurmLab, patiently};

use crate::slurm_env::SlurmEnv;

mod chaos;
mod handover;
mod manners;
mod outages;
mod sharing;
mod time;

/// The Slurm of this suite.
fn slurm() -> SlurmLab {
    SlurmLab::shared("allocations")
}

/// Most tests share the Slurm; those that take a part of it away have it for themselves.
fn shared() -> Turn {
    Turn::shared("slurm-allocations")
}

fn alone() -> Turn {
    Turn::alone("slurm-allocations")
}

impl SlurmEnv {
    /// None as long as there is no store.
    fn allocations(&self) -> Vec<Value> {
        if self.env.path(".torc/torc.db").exists() { self.items("get allocations") } else { Vec::new() }
    }

    /// Slurm's numbers of all allocations.
    fn numbers(&self) -> Vec<String> {
        self.slurm_jobs(|_| true)
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
            // A slurmdbd that has just come back refuses connections for a moment.
            let output = self.slurm.attempt("sacct", &[&["-X", "-n", "-P"], arguments].concat());
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // Until it knows the name, it says "allocation".
            (!text.trim().is_empty() && !text.starts_with("allocation")).then_some(text)
        })
    }

    fn until_exists(&self, name: &str) {
        patiently(&format!("{name} exists"), || self.env.path(name).exists().then_some(()));
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
    let login = SlurmEnv::new(slurm());
    let jobs = "    - name: \"work_{i}\"\n      command: \"echo {i} $SLURM_JOB_ID >>ran\"\n      \
                resourceRequirements: small\n      parameters: {i: \"1:12\"}\n    \
                - name: last\n      command: \"test -n \\\"$SLURM_JOB_ID\\\"\"\n      dependsOnRegexes: [\"work_.*\"]\n";
    login.env.write("w.yaml", sized(jobs, "maxAllocations: 2"));
    let running = login.call("apply -f w.yaml").start();
    login.end(running).exits(0).says("13 of 13 jobs completed").says("allocation");
    let places: BTreeSet<String> =
        login.env.lines("ran").iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
    let allocations = login.allocations();
    let numbers: BTreeSet<String> = login.numbers().into_iter().collect();
    assert!(!places.is_empty() && places.is_subset(&numbers), "{places:?} {numbers:?}");
    assert!((1..=2).contains(&allocations.len()), "{allocations:?}");
    // The other one may have been canceled before it started, once the jobs were done.
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
    assert_eq!(files, 0, "nobody needs the secrets any more");
    let counts = &login.items("get workflows")[0]["status"]["allocations"];
    assert_eq!((counts["pending"].as_i64(), counts["active"].as_i64()), (Some(0), Some(0)));
    assert_eq!(counts["finished"].as_i64(), Some(allocations.len() as i64));
}

// R01
#[test]
fn an_allocation_that_somebody_cancels_is_replaced() {
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
fn a_pending_allocation_that_somebody_cancels_is_replaced() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    fs::write(login.env.path("first"), "").unwrap();
    login.env.write("w.yaml", scheduled("    extra: --hold", ""));
    let running = login.call("apply -f w.yaml").start();
    let number = patiently("a number", || login.numbers().pop());
    patiently("Slurm's own reason", || {
        let one = login.allocations().remove(0);
        (one["slurmReason"] == "JobHeldUser" && one["status"] == "pending").then_some(())
    });
    running.says("1 allocation pending (JobHeldUser)");
    login.slurm.command("scancel", &[&number]);
    let second = patiently("another number", || login.numbers().into_iter().find(|one| *one != number));
    assert_eq!(login.allocations()[0]["status"], "complete");
    assert_eq!(login.allocations()[1]["origin"], "recovery");
    login.slurm.command("scontrol", &["release", &second]);
    login.end(running).exits(0);
}

#[test]
fn an_allocation_whose_time_is_up_is_replaced() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    // Slurm gives one CPU of a shared node to whoever does not ask for more; its job needs two.
    login.env.write("w.yaml", scheduled("", "").replace("num_cpus: 1", "num_cpus: 2"));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    let number = login.active();
    // Slurm refuses an end in the second of the start.
    patiently("its time is up", || {
        let ended = login.slurm.attempt("scontrol", &["update", &format!("JobId={number}"), "EndTime=now"]);
        ended.status.success().then_some(())
    });
    login.end(running).exits(0);
    assert_eq!(login.allocations()[0]["slurmState"], "TIMEOUT");
}

#[test]
fn a_preempted_allocation_comes_back_or_is_replaced() {
    let _calm = shared();
    // In the one partition Slurm requeues what it preempts, in the other it cancels it.
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
            login.hurry(&number);
        }
        login.end(running).exits(0);
        assert_eq!(login.allocations().len(), allocations, "{partition}: {:?}", login.allocations());
        assert!(login.env.path("second").exists());
    }
}

#[test]
fn what_slurm_refuses_is_told_and_tried_again_when_the_document_is_corrected() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    fs::write(login.env.path("first"), "").unwrap();
    login.env.write("w.yaml", scheduled("    partition: nowhere", "    num_allocations: 2"));
    let running = login.call("apply -f w.yaml").start();
    running.says("invalid partition specified: nowhere");
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

/// An `sbatch` that submits and then never answers.
const HANGING_SBATCH: &str = "#!/bin/sh\nsbatch \"$@\" >submitted && touch hangs && exec sleep 600\n";

#[test]
fn what_was_submitted_just_before_a_crash_is_found_again_and_not_submitted_twice() {
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

/// What tells this store from others: the end of the name that Slurm knows.
fn identity(login: &SlurmEnv) -> String {
    let name = login.recorded(&["-j", &login.numbers()[0], "-o", "JobName"]);
    name.trim().rsplit('-').next().unwrap().to_owned()
}

#[test]
fn whoever_stops_apply_leaves_nothing_behind_and_goes_on_later() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    login.env.write("w.yaml", sized(SECOND_TIME_LUCKY, ""));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    let number = login.active();
    running.signal(Signal::SIGINT);
    running.says("canceling 1 allocation");
    login.end(running).exits(130);
    assert_eq!(login.queued(&number), "");
    assert_eq!(login.allocations()[0]["status"], "canceled");
    assert_eq!(login.env.states("w")["job"], "ready");
    let again = login.call("apply -f w.yaml").start();
    login.end(again).exits(0);
}

#[test]
fn a_killed_apply_is_continued_with_the_allocation_that_runs() {
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
fn deleting_a_workflow_waits_until_its_allocations_are_gone() {
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
fn a_job_that_fits_nowhere_is_told_about() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let document = sized(SECOND_TIME_LUCKY, "").replace("numCpus: 1", "numCpus: 99");
    login.env.write("w.yaml", document);
    let running = login.call("apply -f w.yaml").start();
    let outcome = login.end(running).exits(3);
    outcome.says("99 CPUs on a node are more than any partition has (4)");
}

#[test]
fn a_cluster_is_described_kept_and_reached_with_a_prefix() {
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
    // Without SLURM_CONF only the prefix leads to Slurm.
    let call = login.env.call("apply -f w.yaml").env("TORC_SERVER_SLURM_POLL_INTERVAL", "1");
    login.end(call.start()).exits(0).says("slurmcluster/lab created");
    let one = &login.allocations()[0];
    assert_eq!((one["cluster"].as_str(), one["account"].as_str()), (Some("lab"), Some("root")));
    let clusters = login.items("get slurmclusters");
    assert_eq!((clusters.len(), clusters[0]["name"].as_str()), (1, Some("lab")));
    login.torc("describe slurmcluster lab").exits(0).says("SLURM_CONF");
    login.torc("delete slurmcluster/lab").exits(0).says("slurmcluster/lab deleted");
    assert_eq!(login.items("get slurmclusters").len(), 0);
}

// R01, R16
#[test]
fn a_node_that_dies_takes_nothing_with_it_that_does_not_come_back() {
    let _alone = alone();
    let login = SlurmEnv::new(slurm());
    login.env.write("w.yaml", sized(SECOND_TIME_LUCKY, "maxAllocations: 1"));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    let number = login.active();
    let node = login.slurm.command("squeue", &["-h", "-j", &number, "-o", "%N"]);
    let node = node.trim().trim_start_matches('n').to_owned();
    login.slurm.run("node-down", &node);
    login.hurry(&number);
    let outcome = login.end(running);
    login.slurm.run("node-up", &node);
    outcome.exits(0);
    assert!(login.env.path("second").exists());
    let first = login.causes().into_iter().find(|line| line.starts_with("job 1")).unwrap();
    // Whoever notices first says why: Slurm, or the runner that comes back to the allocation without the job.
    assert!(["job 1 Preempted", "job 1 NodeFailure", "job 1 Lost"].contains(&first.as_str()), "{first}");
}

impl SlurmEnv {
    /// What the server counts.
    fn metrics(&self) -> String {
        let info: Value = serde_json::from_str(&self.env.lines(".torc/server.json").join("\n")).unwrap();
        let word = self.env.lines(".torc/token")[0].clone();
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
