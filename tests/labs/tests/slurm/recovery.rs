//! Recovery on a real Slurm: lost jobs are found, failed jobs get more resources, allocations are regenerated.

use serde_json::Value;
use torc_tests::labs::slurm::SlurmLab;

use crate::slurm_env::SlurmEnv;
use torc_tests::env::{kill, text, until};

/// Creates an environment with a document. Only commands such as `sync-status` query Slurm.
fn login(document: &str) -> SlurmEnv {
    let login = SlurmEnv::without_polling(SlurmLab::shared("recovery"));
    login.env.write("w.yaml", format!("{HEAD}{document}"));
    login
}

impl SlurmEnv {
    fn state(&self, job: &str) -> String {
        let jobs = self.items("get jobs w");
        jobs.iter().find(|one| text(one, "name") == job).map(|one| text(one, "status")).unwrap_or_default()
    }

    fn until_state(&self, job: &str, state: &str) {
        until(|| self.state(job) == state, || format!("{job} is {} and not {state}", self.state(job)));
    }
}

/// The start of a workflow, with a scheduler and the action that requests its nodes.
pub const HEAD: &str = "\
name: w
resource_requirements:
- {name: small, num_cpus: 1, memory: 60m, runtime: PT5M}
slurm_schedulers:
- {name: s, account: root, partition: debug, nodes: 1, mem: 1g, walltime: '00:20:00'}
actions:
- {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}
";

// J03, R01, R05, R07, R08, R09, R10, R11, R12, R14
#[test]
fn lost_jobs_are_found_and_their_allocations_regenerated() {
    let login = login(
        "recovery: {policy: Never}\njobs:\n\
         - {name: a, command: 'test -e go || sleep 600', resource_requirements: small}\n\
         - {name: b, command: 'true', resource_requirements: small, depends_on: [a]}\n",
    );
    login.call("submit w.yaml").run().exits(0);
    login.until_state("a", "running");
    login.call("recover w").run().exits(7).prints("1 job still running");
    // The runner is killed with its allocation and reports nothing.
    let runners = login.items("get runners");
    let runner = runners.iter().find(|one| text(one, "kind") == "slurm").unwrap();
    kill(i32::try_from(runner["pid"].as_i64().unwrap()).unwrap());
    let found = || login.json("workflows sync-status w --dry-run");
    until(|| !found()["jobs"].as_array().unwrap().is_empty(), || format!("{:#}", found()));
    assert_eq!(login.state("a"), "running", "a dry run changes nothing");
    let report = login.json("workflows sync-status w");
    assert_eq!(
        (text(&report["jobs"][0], "job"), text(&report["allocations"][0], "was")),
        ("a".into(), "active".into())
    );
    assert_eq!(login.state("a"), "failed", "the policy retries no lost job");
    let results = login.items("get results w");
    assert_eq!((results[0]["returnCode"].as_i64(), text(&results[0], "status")), (Some(-128), "failed".into()));

    login.env.write("go", "");
    login.call("retry w").run().exits(0);
    let before = login.items("get actions w");
    let would = login.json("slurm regenerate w --partition debug --dry-run");
    assert_eq!(login.items("get actions w"), before, "a dry run changes nothing");
    let done = login.json("slurm regenerate w --partition debug --submit");
    assert_eq!((done["pendingJobs"].as_i64(), would["pendingJobs"].as_i64()), (Some(2), Some(2)));
    // The idle background server may have exited.
    login.call("submit w").run().exits(0);
    let deferred: Vec<bool> =
        done["schedulers"].as_array().unwrap().iter().map(|one| one["deferred"] == true).collect();
    assert_eq!(deferred, [false, true]);
    assert!(text(&done["schedulers"][1], "name").ends_with("_deferred"));
    let actions = login.items("get actions w");
    assert_eq!(text(&actions[0], "status"), "executed");
    let recovery: Vec<&Value> = actions.iter().filter(|one| one["isRecovery"] == true).collect();
    assert_eq!(recovery.len(), 1, "only for jobs that wait");
    assert_eq!(recovery[0]["scheduler"], done["schedulers"][1]["name"]);
    login.until_state("b", "completed");
    // One for the lost allocation and one for ready jobs. A waiting job may get a place in that one before its own is submitted.
    let allocations = login.items("get allocations w");
    assert!((2..=3).contains(&allocations.len()), "{allocations:?}");
    let nothing = login.json("slurm regenerate w --submit");
    assert_eq!((nothing["pendingJobs"].as_i64(), nothing["allocations"].as_array().map(Vec::len)), (Some(0), Some(0)));
}

// R04, R06, S20
#[test]
fn watch_retries_only_failures_that_more_memory_can_fix() {
    let login = login(
        "jobs:\n\
         - name: eater\n  command: python3 -c 'x = bytearray(75 << 20); import time; time.sleep(1)'\n  resource_requirements: small\n\
         - {name: after, command: 'true', resource_requirements: small, depends_on: [eater]}\n\
         - {name: bad, command: exit 3, resource_requirements: small}\n",
    );
    login.call("submit w.yaml").run().exits(0);
    login.until_state("after", "canceled");
    login.until_state("bad", "failed");
    let would = login.json("recover w --dry-run --partition debug");
    let decisions: Vec<(String, String)> =
        would["jobs"].as_array().unwrap().iter().map(|one| (text(one, "job"), text(one, "decision"))).collect();
    assert_eq!(decisions, [("eater".into(), "Retry".into()), ("bad".into(), "Leave".into())]);
    assert_eq!(login.state("eater"), "failed", "a dry run changes nothing");
    // More memory would not help the remaining job.
    login.call("watch w --recover -m 2 -p 1 --partition debug").run().exits(3);
    assert_eq!((login.state("eater"), login.state("after")), ("completed".into(), "completed".into()));
    assert_eq!(login.state("bad"), "failed");
    let eater = login.json("explain job/eater -w w");
    assert_eq!(eater["raised"][0], "memory from 60 MiB to 90 MiB");
    assert_eq!(text(&eater["attempts"][0], "diagnosis"), "OutOfMemory");
    let small = login.json("get jobs w");
    let bad = small["items"].as_array().unwrap().iter().find(|one| text(one, "name") == "bad").cloned().unwrap();
    assert_eq!(bad["resources"]["memoryBytes"].as_i64(), Some(60 << 20), "no other job's requirements change");
}

// R06, R14. No server runs, so the command starts one that submits the allocations.
#[test]
fn watch_submits_and_monitors_missing_allocations() {
    let login = login("jobs:\n- {name: a, command: 'true', resource_requirements: small}\n");
    login.call("apply -f w.yaml --no-run").run().exits(0);
    assert_eq!(login.slurm_jobs(SlurmEnv::is_live), Vec::<String>::new());
    login.call("watch w --auto-schedule -p 1 --partition debug").run().exits(0).prints("running in the background");
    assert_eq!(login.state("a"), "completed");
    let actions = login.items("get actions w");
    assert_eq!(text(&actions[0], "status"), "executed", "the document's own action asks for nothing more");
}
