//! A Slurm that is down for a minute, or hangs. These tests have a separate Slurm, so that others need not wait.

use std::time::{Duration, Instant};

use super::*;

/// Time to restart a controller with a large state.
const A_MINUTE: Duration = Duration::from_secs(60);

/// Returns the Slurm whose daemons are stopped, for one test at a time.
fn ill() -> (Turn, SlurmEnv) {
    let turn = Turn::alone("slurm-outages");
    (turn, SlurmEnv::new(SlurmLab::shared("outages")))
}

/// A failure of a daemon, repaired when dropped.
struct Illness<'a> {
    login: &'a SlurmEnv,
    daemon: &'static str,
    cure: &'static str,
}

impl<'a> Illness<'a> {
    fn new(login: &'a SlurmEnv, daemon: &'static str, verb: &str, cure: &'static str) -> Self {
        login.slurm.run(verb, daemon);
        Self { login, daemon, cure }
    }
}

impl Drop for Illness<'_> {
    fn drop(&mut self) {
        self.login.slurm.run(self.cure, self.daemon);
    }
}

impl SlurmEnv {
    /// Returns the number of calls of a Slurm command.
    fn calls(&self, command: &str) -> u64 {
        let prefix = format!("torc_slurm_calls_total{{command=\"{command}\"}} ");
        let metrics = self.metrics();
        metrics.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap_or(0)
    }

    fn has_run(&self, name: &str) -> bool {
        self.env.lines("ran").iter().any(|line| line == name)
    }
}

/// Returns jobs that wait for a file, a dependent of each, and one that is too big for their allocation.
const JOBS: &str = "    - name: holds
      command: \"echo holds >>ran; touch first; until [ -e go ]; do sleep 0.1; done\"
      resourceRequirements: long
    - name: \"turn_{daemon}\"
      command: \"until [ -e away_{daemon} ]; do sleep 0.1; done; echo turn_{daemon} >>ran\"
      resourceRequirements: long
      parameters: {daemon: \"['slurmdbd', 'slurmctld']\"}
    - name: \"next_{daemon}\"
      command: \"echo next_{daemon} >>ran\"
      dependsOn: [\"turn_{daemon}\"]
      resourceRequirements: long
      parameters: {daemon: \"['slurmdbd', 'slurmctld']\"}
    - name: wide
      command: \"echo wide >>ran\"
      dependsOn: [turn_slurmctld]
      resourceRequirements: wide
";

// R01, R16. The accounting is down for a minute, then the controller. Meanwhile jobs end and start, and an allocation is needed.
#[test]
fn an_outage_of_slurm_loses_nothing() {
    let (_turn, login) = ill();
    let document = sized(JOBS, "maxAllocations: 2\n  executionConfig: {mode: direct, staggeredStart: false}");
    // One allocation runs the long jobs at the same time. It has too little memory for the other job.
    let needs = "  resourceRequirements:\n    - {name: wide, numCpus: 1, memory: 3000m, runtime: PT2M}\n    \
                 - {name: long, numCpus: 1, memory: 100m, runtime: PT20M}\n";
    login.env.write("w.yaml", document.replace("  resourceRequirements:\n", needs));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    login.active();
    for daemon in ["slurmdbd", "slurmctld"] {
        let (began, looks) = (Instant::now(), login.calls("squeue"));
        let away = Illness::new(&login, daemon, "stop", "start");
        login.env.write(&format!("away_{daemon}"), "");
        wait_for("a minute without it, and looks in vain", || {
            let has_looked = login.calls("squeue") > looks + 2;
            (began.elapsed() >= A_MINUTE && has_looked).then_some(())
        });
        wait_for("a job that starts without it", || login.has_run(&format!("next_{daemon}")).then_some(()));
        let live = |one: &&Value| one["status"] == "active";
        assert!(login.allocations().iter().filter(live).count() > 0, "{daemon}: {:?}", login.allocations());
        // `sync-status` reports the outage and no losses.
        let found = login.torc("workflows sync-status w -o json").exits(0).json();
        assert_eq!(found["jobs"].as_array().map(Vec::len), Some(0), "{daemon}: {found:#}");
        if daemon == "slurmctld" {
            login.torc("explain job/wide -w w").exits(0).prints("Slurm");
        }
        drop(away);
    }
    login.env.write("go", "");
    login.end(running).exits(0).prints("6 of 6 jobs completed");
    let ran = login.env.lines("ran");
    let distinct: BTreeSet<&String> = ran.iter().collect();
    assert_eq!((ran.len(), distinct.len()), (6, 6), "nothing ran twice: {:?}", login.causes());
    let results = login.items("get results");
    assert!(results.iter().all(|one| one["status"] == "completed" && one["attempt"] == 1), "{:?}", login.causes());
    let numbers = login.numbers();
    let names = login.recorded(&["-a", "-o", "JobName", "-S", "now-1hour"]);
    let own: Vec<&str> = names.lines().filter(|name| name.ends_with(&identity(&login))).collect();
    assert_eq!(own.len(), numbers.len(), "nothing was submitted twice: {own:?}, {:?}", login.allocations());
    let distinct: BTreeSet<&&str> = own.iter().collect();
    assert_eq!(distinct.len(), own.len(), "{own:?}");
}

// R05. The controller hangs, and with it the commands of Slurm until their own timeout. Commands of Torc answer, jobs run on, and
// allocations in an unknown state do not count as ended.
#[test]
fn a_hanging_slurm_delays_no_command_and_no_job() {
    let (_turn, login) = ill();
    let job = "    - name: job\n      command: \"touch first; until [ -e go ]; do sleep 0.1; done\"\n      \
               resourceRequirements: small\n    - name: next\n      command: \"touch second; until [ -e done ]; do sleep 0.1; done\"\n      \
               dependsOn: [job]\n      resourceRequirements: small\n";
    login.env.write("w.yaml", sized(job, "executionConfig: {mode: direct}"));
    login.call("apply -f w.yaml --detach").run().exits(0);
    login.until_exists("first");
    let number = login.active();
    let looks = login.calls("squeue");
    let frozen = Illness::new(&login, "slurmctld", "freeze", "thaw");
    wait_for("the loop has asked", || (login.calls("squeue") > looks).then_some(()));
    // All of the following happens while it hangs.
    let asked: Vec<Running> =
        ["workflows sync-status w -o json", "delete w -y"].map(|line| login.call(line).start()).into_iter().collect();
    for line in ["get allocations w", "explain job/next -w w", "status w", "get slurmclusters", "get results w"] {
        login.torc(line).exits(0);
    }
    let mut asked = asked.into_iter();
    let found = login.end(asked.next().unwrap()).exits(0).json();
    assert_eq!(found["jobs"].as_array().map(Vec::len), Some(0), "{found:#}");
    assert_eq!(found["inDoubt"].as_array().map(Vec::len), Some(1), "{found:#}");
    // The workflow is canceled but not deleted, because its allocation may still be alive.
    login.end(asked.next().unwrap()).exits(7).prints("may still be in Slurm").prints("--force");
    assert_eq!(login.allocations()[0]["slurmJobId"], number.as_str());
    drop(frozen);
    login.torc("delete w -y").exits(0);
    wait_for("nothing is left in Slurm", || login.queued(&number).is_empty().then_some(()));
    assert_eq!(login.items("get workflows").len(), 0);
}
