//! Recovery on a real Slurm: what was lost is found, failed jobs get what they lacked, allocations are planned anew.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use torc_tests::lab::slurm::SlurmLab;
use torc_tests::lab::{Call, Lab, kill, text, until};

/// A folder whose commands speak with the lab's Slurm. Only sync-status and the like look at Slurm: the server looks too seldom.
struct Desk {
    lab: Lab,
    slurm: &'static SlurmLab,
}

impl Desk {
    fn new(document: &str) -> Self {
        let desk = Self { lab: Lab::new(), slurm: SlurmLab::shared() };
        desk.lab.write("w.yaml", format!("{HEAD}{document}"));
        desk
    }

    fn call(&self, line: &str) -> Call {
        self.lab.call(line).env("SLURM_CONF", self.slurm.conf()).env("TORC_SERVER_SLURM_POLL_INTERVAL", "600")
    }

    fn json(&self, line: &str) -> Value {
        self.call(line).arg("-o").arg("json").run().exits(0).json()
    }

    fn items(&self, line: &str) -> Vec<Value> {
        self.json(line)["items"].as_array().unwrap().clone()
    }

    fn state(&self, job: &str) -> String {
        let jobs = self.items("get jobs w");
        jobs.iter().find(|one| text(one, "name") == job).map(|one| text(one, "status")).unwrap_or_default()
    }

    fn until_state(&self, job: &str, state: &str) {
        until(|| self.state(job) == state, || format!("{job} is {} and not {state}", self.state(job)));
    }

    /// The Slurm jobs of its allocations that are not over, as Torc knows them.
    fn slurm_jobs(&self) -> Vec<String> {
        let live = |one: &&Value| matches!(text(one, "status").as_str(), "pending" | "active");
        let rows = self.items("get allocations w");
        rows.iter().filter(live).filter_map(|one| Some(one["slurmJobId"].as_str()?.to_owned())).collect()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.call("cancel w").run();
        for id in self.slurm_jobs() {
            self.slurm.command("scancel", &[&id]);
        }
    }
}

const HEAD: &str = "\
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
fn what_was_lost_is_found_and_its_allocations_are_planned_anew() {
    let desk = Desk::new(
        "recovery: {policy: Never}\njobs:\n\
         - {name: a, command: 'test -e go || sleep 600', resource_requirements: small}\n\
         - {name: b, command: 'true', resource_requirements: small, depends_on: [a]}\n",
    );
    desk.call("submit w.yaml").run().exits(0);
    desk.until_state("a", "running");
    desk.call("recover w").run().exits(7).says("1 job still running");
    // Nobody is told: the runner is gone without a word, and its allocation with it.
    let runners = desk.items("get runners");
    let runner = runners.iter().find(|one| text(one, "kind") == "slurm").unwrap();
    kill(i32::try_from(runner["pid"].as_i64().unwrap()).unwrap());
    let found = || desk.json("workflows sync-status w --dry-run");
    until(|| !found()["jobs"].as_array().unwrap().is_empty(), || format!("{:#}", found()));
    assert_eq!(desk.state("a"), "running", "a dry run changes nothing");
    let report = desk.json("workflows sync-status w");
    assert_eq!(
        (text(&report["jobs"][0], "job"), text(&report["allocations"][0], "was")),
        ("a".into(), "active".into())
    );
    assert_eq!(desk.state("a"), "failed", "the policy says never");
    let results = desk.items("get results w");
    assert_eq!((results[0]["returnCode"].as_i64(), text(&results[0], "status")), (Some(-128), "failed".into()));

    desk.lab.write("go", "");
    desk.call("retry w").run().exits(0);
    let before = desk.items("get actions w");
    let would = desk.json("slurm regenerate w --partition debug --dry-run");
    assert_eq!(desk.items("get actions w"), before, "a dry run changes nothing");
    let done = desk.json("slurm regenerate w --partition debug --submit");
    assert_eq!((done["pendingJobs"].as_i64(), would["pendingJobs"].as_i64()), (Some(2), Some(2)));
    // The server that looked after it may have left: there was nothing to do.
    desk.call("submit w").run().exits(0);
    let deferred: Vec<bool> =
        done["schedulers"].as_array().unwrap().iter().map(|one| one["deferred"] == true).collect();
    assert_eq!(deferred, [false, true]);
    assert!(text(&done["schedulers"][1], "name").ends_with("_deferred"));
    let actions = desk.items("get actions w");
    assert_eq!(text(&actions[0], "status"), "executed");
    let recovery: Vec<&Value> = actions.iter().filter(|one| one["isRecovery"] == true).collect();
    assert_eq!(recovery.len(), 1, "only for jobs that wait");
    assert_eq!(recovery[0]["scheduler"], done["schedulers"][1]["name"]);
    desk.until_state("b", "completed");
    // One that was lost and one for what was ready. A job that waited is quick enough to find room in that one, before Slurm has
    // been asked for its own.
    let allocations = desk.items("get allocations w");
    assert!((2..=3).contains(&allocations.len()), "{allocations:?}");
    let nothing = desk.json("slurm regenerate w --submit");
    assert_eq!((nothing["pendingJobs"].as_i64(), nothing["allocations"].as_array().map(Vec::len)), (Some(0), Some(0)));
}

// R04, R06, S20
#[test]
fn watch_recovers_a_job_with_more_memory_and_leaves_what_failed_by_itself() {
    let desk = Desk::new(
        "jobs:\n\
         - name: eater\n  command: python3 -c 'x = bytearray(75 << 20); import time; time.sleep(1)'\n  resource_requirements: small\n\
         - {name: after, command: 'true', resource_requirements: small, depends_on: [eater]}\n\
         - {name: bad, command: exit 3, resource_requirements: small}\n",
    );
    desk.call("submit w.yaml").run().exits(0);
    desk.until_state("after", "canceled");
    desk.until_state("bad", "failed");
    let would = desk.json("recover w --dry-run --partition debug");
    let decisions: Vec<(String, String)> =
        would["jobs"].as_array().unwrap().iter().map(|one| (text(one, "job"), text(one, "decision"))).collect();
    assert_eq!(decisions, [("eater".into(), "Retry".into()), ("bad".into(), "Leave".into())]);
    assert_eq!(desk.state("eater"), "failed", "a dry run changes nothing");
    // The second round finds nothing that would help.
    desk.call("watch w --recover -m 2 -p 1 --partition debug").run().exits(3);
    assert_eq!((desk.state("eater"), desk.state("after")), ("completed".into(), "completed".into()));
    assert_eq!(desk.state("bad"), "failed");
    let eater = desk.json("explain job/eater -w w");
    assert_eq!(eater["raised"][0], "memory from 60m to 90m");
    assert_eq!(text(&eater["attempts"][0], "diagnosis"), "OutOfMemory");
    let small = desk.json("get jobs w");
    let bad = small["items"].as_array().unwrap().iter().find(|one| text(one, "name") == "bad").cloned().unwrap();
    assert_eq!(bad["resources"]["memoryBytes"].as_i64(), Some(60 << 20), "no other job's requirements change");
}

// R06, R14. Nobody serves the store: who asks for allocations leaves somebody who submits them.
#[test]
fn watch_asks_for_allocations_where_there_are_none_and_sees_to_them() {
    let desk = Desk::new("jobs:\n- {name: a, command: 'true', resource_requirements: small}\n");
    desk.call("apply -f w.yaml --no-run").run().exits(0);
    assert_eq!(desk.slurm_jobs(), Vec::<String>::new());
    desk.call("watch w --auto-schedule -p 1 --partition debug").run().exits(0).says("running in the background");
    assert_eq!(desk.state("a"), "completed");
    let actions = desk.items("get actions w");
    assert_eq!(text(&actions[0], "status"), "executed", "the document's own action asks for nothing more");
}
