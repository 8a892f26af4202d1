//! Failures of Slurm during a workflow: it finishes, no result is lost, and no job loses a retry.

use std::collections::BTreeMap;

use super::*;

/// Returns jobs that log their start and end, enough to keep four nodes busy.
fn many(mode: &str) -> String {
    let jobs = "    - name: \"j{i}\"\n      command: \"echo begun {i} >>ran; sleep 2; echo ended {i} >>ran\"\n      \
                resourceRequirements: half\n      parameters: {i: \"1:48\"}\n";
    let document =
        sized(jobs, &format!("maxAllocations: 4\n  executionConfig: {{mode: {mode}, staggeredStart: false}}"));
    // Two jobs fill a node, so each node has an allocation.
    document.replace("- {name: small, numCpus: 1, memory: 100m,", "- {name: half, numCpus: 2, memory: 100m,")
}

impl SlurmEnv {
    /// Returns how often each job was lost.
    fn losses(&self) -> BTreeMap<String, usize> {
        let mut losses = BTreeMap::new();
        for result in self.items("get results") {
            if ["Lost", "NodeFailure", "Preempted"].map(Value::from).contains(&result["cause"]) {
                *losses.entry(result["job"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        losses
    }

    fn count(&self, word: &str) -> usize {
        if !self.env.path("ran").exists() {
            return 0;
        }
        self.env.lines("ran").iter().filter(|line| line.starts_with(word)).count()
    }
}

/// Kills the daemon of a node and cancels another allocation while all nodes are busy.
fn a_node_falls_silent_and_an_allocation_is_canceled(mode: &str) {
    let _alone = alone();
    let login = SlurmEnv::new(slurm());
    login.env.write("w.yaml", many(mode));
    let running = login.call("apply -f w.yaml").start();
    wait_for("jobs have ended on every node", || (login.count("ended") >= 8).then_some(()));
    let list = login.slurm.command("squeue", &["-h", "-t", "R", "-o", "%i %N"]);
    let nodes: Vec<(&str, &str)> = list.lines().filter_map(|line| line.split_once(' ')).collect();
    assert!(nodes.len() > 1, "{list}");
    let silent = Silent::new(&login.slurm, nodes[0].1);
    login.slurm.command("scancel", &[nodes[1].0]);
    login.end(running).exits(0).prints("48 of 48 jobs completed");
    drop(silent);
    let ended: BTreeSet<String> = login.env.lines("ran").into_iter().filter(|line| line.starts_with("ended")).collect();
    assert_eq!(ended.len(), 48);
    let worst = login.losses().into_iter().filter(|(_, count)| *count > 1).collect::<Vec<_>>();
    assert_eq!(worst, [], "one blow takes one attempt at most: {:?}", login.causes());
    if mode == "slurm" {
        // A step on the silent node may end before Slurm takes it for lost.
        let lost: usize = login.losses().values().sum();
        assert!(login.count("ended") <= 48 + lost, "no step was run to its end twice: {:?}", login.causes());
    }
}

// R01, R16
#[test]
fn direct_mode_survives_a_silent_node_and_a_canceled_allocation() {
    a_node_falls_silent_and_an_allocation_is_canceled("direct");
}

// R01, R16, S01
#[test]
fn slurm_mode_survives_a_silent_node_and_a_canceled_allocation() {
    a_node_falls_silent_and_an_allocation_is_canceled("slurm");
}

/// A node whose daemon is stopped until the test ends.
struct Silent<'a> {
    slurm: &'a SlurmLab,
    number: String,
}

impl<'a> Silent<'a> {
    fn new(slurm: &'a SlurmLab, name: &str) -> Self {
        let number = name.trim_start_matches('n').to_owned();
        slurm.run("node-silent", &number);
        Self { slurm, number }
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        self.slurm.run("node-up", &self.number);
    }
}

/// A daemon that is stopped, and started again when dropped: other tests need it.
struct Away<'a> {
    slurm: &'a SlurmLab,
    daemon: &'static str,
}

impl<'a> Away<'a> {
    fn new(slurm: &'a SlurmLab, daemon: &'static str) -> Self {
        slurm.run("stop", daemon);
        Self { slurm, daemon }
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.slurm.run("start", self.daemon);
    }
}

// Without its controller Slurm creates no steps. `srun` fails after a while, and the attempt does not count.
#[test]
fn a_step_that_cannot_be_created_is_retried() {
    let _alone = alone();
    let login = SlurmEnv::new(slurm());
    let document = scheduled("    extra: --cpus-per-task=2", "").replace(
        "jobs:\n  - name: job\n    command: if [ -e first ]; then touch second; else touch first; sleep 600; fi\n    \
         resource_requirements: small\n",
        "jobs:\n  - {name: holds, command: 'touch first; until [ -e go ]; do sleep 0.1; done', resource_requirements: small}\n  \
         - {name: waits, command: 'until [ -e away ]; do sleep 0.1; done', resource_requirements: small}\n  \
         - {name: next, command: touch second, resource_requirements: small, depends_on: [waits]}\n",
    );
    login.env.write("w.yaml", document);
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    login.active();
    let away = Away::new(&login.slurm, "slurmctld");
    login.env.write("away", "");
    wait_for("srun has given up", || {
        let results = login.items("get results");
        let given_up = results.iter().find(|one| one["job"] == "next")?;
        assert_eq!(given_up["cause"], "Stopped", "{given_up:#}");
        let message = given_up["message"].as_str().unwrap_or_default();
        assert!(message.contains("Unable to contact slurm controller"), "{given_up:#}");
        Some(())
    });
    assert!(!login.env.path("second").exists());
    drop(away);
    login.env.write("go", "");
    login.end(running).exits(0);
    assert!(login.env.path("second").exists());
    assert_eq!(login.losses(), BTreeMap::new());
}
