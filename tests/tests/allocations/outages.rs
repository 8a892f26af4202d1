//! A Slurm that is away for a minute, or is there and does not answer. It is one of its own, so that the others need not wait.

use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use super::*;

/// As long as it takes to restart a controller that has a lot to remember.
const A_MINUTE: Duration = Duration::from_secs(60);

/// The Slurm that falls ill, for one test at a time.
fn ill() -> (MutexGuard<'static, ()>, Desk) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    static LAB: OnceLock<SlurmLab> = OnceLock::new();
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    (turn, Desk { lab: Lab::new(), slurm: LAB.get_or_init(|| SlurmLab::with_cpus(4)) })
}

/// Something that was done to a daemon, and is undone whatever becomes of the test.
struct Illness<'a> {
    desk: &'a Desk,
    daemon: &'static str,
    cure: &'static str,
}

impl<'a> Illness<'a> {
    fn new(desk: &'a Desk, daemon: &'static str, verb: &str, cure: &'static str) -> Self {
        desk.slurm.run(verb, daemon);
        Self { desk, daemon, cure }
    }
}

impl Drop for Illness<'_> {
    fn drop(&mut self) {
        self.desk.slurm.run(self.cure, self.daemon);
    }
}

impl Desk {
    /// How often a command of Slurm's was called.
    fn calls(&self, command: &str) -> u64 {
        let prefix = format!("torc_slurm_calls_total{{command=\"{command}\"}} ");
        let metrics = self.metrics();
        metrics.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap_or(0)
    }

    fn has_run(&self, name: &str) -> bool {
        self.lab.lines("ran").iter().any(|line| line == name)
    }
}

/// Jobs that wait until they are let go, one to follow each turn; and one that is too big for their allocation.
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

// R01, R16. First the accounting is away for a minute, then the controller; meanwhile jobs end and start, and an allocation is needed.
#[test]
fn a_slurm_that_is_away_for_a_minute_takes_nothing_away() {
    let (_turn, desk) = ill();
    let document = sized(JOBS, "maxAllocations: 2\n  executionConfig: {mode: direct, staggeredStart: false}");
    // One allocation takes the long ones side by side; it has not the memory for the other.
    let needs = "  resourceRequirements:\n    - {name: wide, numCpus: 1, memory: 3000m, runtime: PT2M}\n    \
                 - {name: long, numCpus: 1, memory: 100m, runtime: PT20M}\n";
    desk.lab.write("w.yaml", document.replace("  resourceRequirements:\n", needs));
    let running = desk.call("apply -f w.yaml").start();
    desk.until_exists("first");
    desk.active();
    for daemon in ["slurmdbd", "slurmctld"] {
        let (began, looks) = (Instant::now(), desk.calls("squeue"));
        let away = Illness::new(&desk, daemon, "stop", "start");
        desk.lab.write(&format!("away_{daemon}"), "");
        patiently("a minute without it, and looks in vain", || {
            let has_looked = desk.calls("squeue") > looks + 2;
            (began.elapsed() >= A_MINUTE && has_looked).then_some(())
        });
        patiently("a job that starts without it", || desk.has_run(&format!("next_{daemon}")).then_some(()));
        let live = |one: &&Value| one["status"] == "active";
        assert!(desk.allocations().iter().filter(live).count() > 0, "{daemon}: {:?}", desk.allocations());
        // Asked by a person, it says no more than it knows.
        let found = desk.torc("workflows sync-status w -o json").exits(0).json();
        assert_eq!(found["jobs"].as_array().map(Vec::len), Some(0), "{daemon}: {found:#}");
        if daemon == "slurmctld" {
            desk.torc("explain job/wide -w w").exits(0).says("Slurm");
        }
        drop(away);
    }
    desk.lab.write("go", "");
    desk.end(running).exits(0).says("6 of 6 jobs completed");
    let ran = desk.lab.lines("ran");
    let distinct: BTreeSet<&String> = ran.iter().collect();
    assert_eq!((ran.len(), distinct.len()), (6, 6), "nothing ran twice: {:?}", desk.causes());
    let results = desk.items("get results");
    assert!(results.iter().all(|one| one["status"] == "completed" && one["attempt"] == 1), "{:?}", desk.causes());
    let numbers = desk.numbers();
    let names = desk.recorded(&["-a", "-o", "JobName", "-S", "now-1hour"]);
    let own: Vec<&str> = names.lines().filter(|name| name.ends_with(&identity(&desk))).collect();
    assert_eq!(own.len(), numbers.len(), "nothing was submitted twice: {own:?}, {:?}", desk.allocations());
    let distinct: BTreeSet<&&str> = own.iter().collect();
    assert_eq!(distinct.len(), own.len(), "{own:?}");
}

// R05. A controller that is there and does not answer: Slurm's commands hang until they give up by themselves. Whoever asks Torc is
// answered, jobs go on, and what is not known is not taken for gone.
#[test]
fn a_slurm_that_hangs_holds_nobody_up() {
    let (_turn, desk) = ill();
    let job = "    - name: job\n      command: \"touch first; until [ -e go ]; do sleep 0.1; done\"\n      \
               resourceRequirements: small\n    - name: next\n      command: \"touch second; until [ -e done ]; do sleep 0.1; done\"\n      \
               dependsOn: [job]\n      resourceRequirements: small\n";
    desk.lab.write("w.yaml", sized(job, "executionConfig: {mode: direct}"));
    desk.call("apply -f w.yaml --detach").run().exits(0);
    desk.until_exists("first");
    let number = desk.active();
    let looks = desk.calls("squeue");
    let frozen = Illness::new(&desk, "slurmctld", "freeze", "thaw");
    patiently("the loop has asked", || (desk.calls("squeue") > looks).then_some(()));
    // Everything here is said and done while it hangs.
    let asked: Vec<Running> =
        ["workflows sync-status w -o json", "delete w -y"].map(|line| desk.call(line).start()).into_iter().collect();
    for line in ["get allocations w", "explain job/next -w w", "status w", "get slurmclusters", "get results w"] {
        desk.torc(line).exits(0);
    }
    let mut asked = asked.into_iter();
    let found = desk.end(asked.next().unwrap()).exits(0).json();
    assert_eq!(found["jobs"].as_array().map(Vec::len), Some(0), "{found:#}");
    assert_eq!(found["inDoubt"].as_array().map(Vec::len), Some(1), "{found:#}");
    // It is cancelled and not forgotten: nobody could say that its allocation is gone.
    desk.end(asked.next().unwrap()).exits(7).says("may still be in Slurm").says("--force");
    assert_eq!(desk.allocations()[0]["slurmJobId"], number.as_str());
    drop(frozen);
    desk.torc("delete w -y").exits(0);
    patiently("nothing is left in Slurm", || desk.queued(&number).is_empty().then_some(()));
    assert_eq!(desk.items("get workflows").len(), 0);
}
