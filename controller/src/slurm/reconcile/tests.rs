#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use torc_api::wire::RunnerScope;

use super::super::tests::FakeSlurm;
use super::*;
use crate::handover::Vouching;
use crate::issuer::Issuer;
use crate::tests::{TestServer, VirtualClock, token_key};

/// A server, a Slurm, and what talks with both.
struct Lab {
    slurm: FakeSlurm,
    server: TestServer,
    desk: Desk,
    winding_down: Arc<AtomicBool>,
}

impl Lab {
    async fn new() -> Self {
        Self::with_office(Office::permanent()).await
    }

    async fn with_office(office: Office) -> Self {
        let slurm = FakeSlurm::new();
        slurm.says("scontrol", "PartitionName=short MaxTime=01:00:00 State=UP TotalNodes=2 MaxNodes=UNLIMITED\n");
        slurm.says("sinfo", "short|2|8|16000|(null)|idle\n");
        let server = TestServer::start_in(tempfile::tempdir().unwrap(), VirtualClock::from_now()).await;
        server.engine.serve_slurm().await.unwrap();
        let config = SlurmConfig {
            serves: Some(RunnerScope::All),
            poll: Duration::from_secs(30),
            runner: vec!["/opt/runner".to_owned()],
            folder: slurm.path("handed"),
            output_dir: "output".into(),
            ssh_secrets: None,
            replaced: slurm.replaced(),
        };
        let issuer = Issuer::new(token_key(), None);
        let lifetime = Duration::from_secs(1_000);
        let handovers = Handovers::new("https://server".to_owned(), issuer, lifetime, Vouching::default());
        let winding_down = Arc::new(AtomicBool::new(false));
        let down = Arc::clone(&winding_down);
        let desk = Desk::new(server.engine.clone(), config, handovers, office, down, slurm.moments());
        Self { slurm, server, desk, winding_down }
    }

    /// A workflow with as many jobs, each of which takes a whole node.
    async fn apply(&self, name: &str, jobs: usize) {
        let job =
            |number: usize| json!({ "name": format!("j{number}"), "command": "true", "resourceRequirements": "node" });
        let spec = json!({
            "slurmCluster": "local",
            "resourceRequirements": [{ "name": "node", "numCpus": 8, "memory": "1g", "runtime": "PT10M" }],
            "jobs": (0..jobs).map(job).collect::<Value>(),
        });
        let document = crate::tests::document("default", name, spec);
        let body = json!({ "document": document, "workingDir": self.slurm.path("work") });
        self.server.ok("POST", "/v1/workflows", Some(body)).await;
    }

    /// Allocations with their numbers in Slurm, where they stand, and what is said of them.
    async fn allocations(&self) -> Vec<(Option<String>, String)> {
        let page = self.server.ok("GET", "/v1/allocations", None).await;
        let one =
            |row: &Value| (row["slurmJobId"].as_str().map(str::to_owned), row["status"].as_str().unwrap().to_owned());
        page["items"].as_array().unwrap().iter().map(one).collect()
    }

    async fn tick(&mut self, is_due: bool) -> bool {
        self.desk.tick(is_due).await.unwrap()
    }

    /// Files that were handed to runners.
    fn handed(&self) -> Vec<String> {
        let Ok(folder) = std::fs::read_dir(self.slurm.path("handed")) else { return Vec::new() };
        let mut names: Vec<String> = folder.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.iter().map(|name| name.rsplit('.').next().unwrap().to_owned()).collect()
    }

    fn queue(&self, jobs: &[(&str, &str)]) {
        let line = |(number, state): &(&str, &str)| format!("{number}|{state}|short|1|N/A|N/A|1:00|n1|(null)|x|None\n");
        self.slurm.says("squeue", &jobs.iter().map(line).collect::<String>());
    }
}

fn known(number: &str, status: &str) -> (Option<String>, String) {
    (Some(number.to_owned()), status.to_owned())
}

// R13, R16
#[tokio::test]
async fn what_jobs_need_is_submitted_once() {
    let mut lab = Lab::new().await;
    lab.apply("w", 2).await;
    lab.tick(false).await;
    assert_eq!(lab.allocations().await, [known("501", "pending"), known("502", "pending")]);
    assert_eq!(lab.slurm.calls("sbatch"), ["--parsable", "--parsable"]);
    assert_eq!(lab.handed(), ["env", "token"], "what the runners need is there before they are");
    let script = lab.slurm.script();
    assert!(
        script.contains("exec /opt/runner \"$TORC_API_URL\" 1 ") && script.contains("--partition=short"),
        "{script}"
    );
    assert!(lab.slurm.path("work/output").is_dir(), "Slurm does not make the folder of its logs");
    lab.queue(&[("501", "PENDING"), ("502", "RUNNING")]);
    lab.tick(true).await;
    lab.tick(false).await;
    assert_eq!(lab.allocations().await, [known("501", "pending"), known("502", "active")]);
    assert!(lab.slurm.calls("sbatch").is_empty(), "nothing is asked for twice");
    assert_eq!(lab.slurm.calls("squeue").len(), 1, "Slurm is looked at only when that is due");
}

#[tokio::test]
async fn nothing_is_asked_for_without_leadership() {
    let mut lab = Lab::with_office(Office::of_lease(0, CancellationToken::new())).await;
    lab.apply("w", 1).await;
    assert!(!lab.tick(true).await);
    for tool in ["sbatch", "squeue", "scontrol", "sinfo"] {
        assert!(lab.slurm.calls(tool).is_empty(), "{tool}");
    }
    assert!(lab.allocations().await.is_empty());
}

#[tokio::test]
async fn a_refusal_is_answered_with_a_pause_that_doubles() {
    let mut lab = Lab::new().await;
    lab.slurm.refuses("sbatch", "sbatch: error: Batch job submission failed: Invalid account");
    lab.apply("w", 2).await;
    lab.tick(false).await;
    assert_eq!(lab.slurm.calls("sbatch").len(), 1, "Slurm would say the same of the others");
    assert_eq!(lab.allocations().await, [(None, "pending".to_owned()), (None, "pending".to_owned())]);
    // The first pause is 10 s, since the interval of the loop is longer than that.
    let mut count = 1;
    for (passed, calls) in [(9_999, 0), (1, 1), (19_999, 0), (1, 1), (39_999, 0), (1, 1)] {
        lab.slurm.advance(Duration::from_millis(passed));
        lab.tick(false).await;
        count += calls;
        assert_eq!(lab.slurm.calls("sbatch").len(), calls, "after {passed} ms more, {count} refusals");
    }
    let workflow = lab.server.ok("GET", "/v1/workflows/w", None).await;
    assert!(workflow["status"]["conditions"].to_string().contains("Invalid account"), "{workflow}");
    lab.slurm.relents("sbatch");
    lab.slurm.advance(Duration::from_secs(80));
    lab.tick(false).await;
    let numbers: Vec<Option<String>> = lab.allocations().await.into_iter().map(|(number, _)| number).collect();
    assert!(numbers.len() == 2 && numbers.iter().all(Option::is_some), "{numbers:?}");
    // What was refused is forgotten with the first success: the next pause is the first one again.
    assert!(lab.desk.refusals.is_empty());
}

#[tokio::test]
async fn an_edited_document_is_asked_about_at_once() {
    let mut lab = Lab::new().await;
    lab.slurm.refuses("sbatch", "sbatch: error: Batch job submission failed: Invalid account");
    lab.apply("w", 1).await;
    lab.apply("v", 1).await;
    lab.tick(false).await;
    assert_eq!(lab.slurm.calls("sbatch").len(), 2, "each workflow is refused by itself");
    lab.apply("w", 2).await;
    lab.tick(false).await;
    assert_eq!(lab.slurm.calls("sbatch").len(), 1, "only the one that was edited is another question");
}

// R01, R02
#[tokio::test]
async fn an_allocation_is_over_when_slurm_says_so() {
    let mut lab = Lab::new().await;
    lab.apply("w", 2).await;
    lab.tick(false).await;
    lab.slurm.refuses("squeue", "squeue: error: Unable to contact slurm controller (connect failure)");
    lab.tick(true).await;
    assert_eq!(lab.allocations().await, [known("501", "pending"), known("502", "pending")], "silence says nothing");
    lab.queue(&[("501", "RUNNING"), ("502", "RUNNING")]);
    lab.tick(true).await;
    lab.slurm.says("sacct", "501|COMPLETED|0:0|2026-01-01T00:00:30|2026-01-01T00:00:40|n3|x\n");
    lab.queue(&[("502", "RUNNING")]);
    lab.server.ok("POST", "/v1/workflows/w/suspend", None).await;
    lab.tick(true).await;
    assert_eq!(lab.allocations().await, [known("501", "complete"), known("502", "active")]);
    assert_eq!(lab.handed(), ["env", "token"], "the other one's runner reads them");
}

#[tokio::test]
async fn what_was_handed_over_goes_with_the_last_allocation() {
    let mut lab = Lab::new().await;
    lab.apply("w", 1).await;
    lab.tick(false).await;
    lab.server.ok("POST", "/v1/workflows/w/cancel", None).await;
    lab.queue(&[("501", "PENDING")]);
    lab.tick(true).await;
    assert_eq!(lab.slurm.calls("scancel"), ["501"]);
    assert_eq!(lab.handed(), ["env", "token"]);
    lab.queue(&[("501", "CANCELLED")]);
    lab.tick(true).await;
    assert_eq!(lab.allocations().await.len(), 1);
    assert_eq!(lab.handed(), Vec::<String>::new());
    assert!(lab.slurm.calls("sbatch").len() == 1, "nothing is asked for any more");
}

#[tokio::test]
async fn everything_is_cancelled_when_all_of_it_is_to_go() {
    let mut lab = Lab::new().await;
    lab.apply("w", 1).await;
    lab.apply("v", 1).await;
    lab.tick(false).await;
    assert_eq!(lab.slurm.calls("sbatch").len(), 2);
    lab.winding_down.store(true, Ordering::Relaxed);
    lab.apply("late", 1).await;
    lab.tick(false).await;
    let mut canceled = lab.slurm.calls("scancel");
    canceled.sort();
    assert_eq!(canceled, ["501", "502"]);
    assert!(lab.slurm.calls("sbatch").is_empty(), "nothing is submitted any more");
}

#[tokio::test]
async fn an_unknown_cluster_is_named_and_nothing_is_submitted() {
    let mut lab = Lab::new().await;
    let spec = json!({ "slurmCluster": "far", "jobs": crate::tests::jobs(&["j"]) });
    lab.server.apply_spec("ada", "default", "w", spec).await;
    lab.tick(false).await;
    let workflow = lab.server.ok("GET", "/v1/workflows/w", None).await;
    assert!(workflow["status"]["conditions"].to_string().contains("there is no SlurmCluster 'far'"), "{workflow}");
    assert!(lab.slurm.calls("sbatch").is_empty() && lab.allocations().await.is_empty());
}

// R03, R05
#[tokio::test]
async fn orphans_are_found_and_a_dry_run_changes_nothing() {
    let mut lab = Lab::new().await;
    lab.apply("w", 1).await;
    lab.tick(false).await;
    lab.slurm.says("sacct", "501|FAILED|1:0|2026-01-01T00:00:30|2026-01-01T00:00:40|n3|x\n");
    let before = lab.allocations().await;
    let report = lab.desk.find_orphans(Some(WorkflowId(1)), true).await.unwrap();
    let other = lab.desk.find_orphans(Some(WorkflowId(9)), true).await.unwrap();
    assert_eq!(lab.allocations().await, before);
    assert_ne!(report, other, "a report is about one workflow");
    assert_eq!(lab.desk.find_orphans(Some(WorkflowId(1)), false).await.unwrap(), report);
    assert_eq!(lab.allocations().await, [known("501", "complete")]);
}

#[test]
fn pauses_double_from_ten_seconds_to_five_minutes() {
    let seconds = |count| pause_after(count, FIRST_PAUSE).as_secs();
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 33, 99].map(seconds), [10, 10, 20, 40, 80, 160, 300, 300, 300, 300]);
    assert_eq!(pause_after(3, Duration::from_secs(2)), Duration::from_secs(8), "a loop that is faster waits less");
}

#[tokio::test]
async fn a_store_is_told_from_others_by_its_identity() {
    let lab = Lab::new().await;
    let identity = lab.server.engine.identity().await.unwrap();
    assert!(!identity.is_empty());
    assert_ne!(identity, Lab::new().await.server.engine.identity().await.unwrap());
}
