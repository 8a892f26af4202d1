#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use torc_api::recovery::SyncStatusRequest;
use torc_api::wire::RunnerScope;

use super::super::tests::FakeSlurm;
use super::*;
use crate::credentials::ServerTrust;
use crate::issuer::Issuer;
use crate::tests::{TestServer, VirtualClock, token_key};

/// A server, a fake Slurm, and the loop between them.
struct ReconcileFixture {
    slurm: FakeSlurm,
    server: TestServer,
    context: SlurmContext,
    winding_down: Arc<AtomicBool>,
}

impl ReconcileFixture {
    async fn new() -> Self {
        Self::with_leadership(Leadership::permanent()).await
    }

    async fn with_leadership(leadership: Leadership) -> Self {
        let slurm = FakeSlurm::new();
        slurm.set_output("scontrol", "PartitionName=short MaxTime=01:00:00 State=UP TotalNodes=2 MaxNodes=UNLIMITED\n");
        slurm.set_output("sinfo", "short|2|8|16000|(null)|idle\n");
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
        let credentials = CredentialIssuer::new("https://server".to_owned(), issuer, lifetime, ServerTrust::default());
        let winding_down = Arc::new(AtomicBool::new(false));
        let down = Arc::clone(&winding_down);
        let context = SlurmContext::new(server.engine.clone(), config, credentials, leadership, down, slurm.instants());
        Self { slurm, server, context, winding_down }
    }

    /// Applies a workflow with this number of jobs, each of which takes a whole node.
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

    /// Returns the Slurm job ID and the status of each allocation.
    async fn allocations(&self) -> Vec<(Option<String>, String)> {
        let page = self.server.ok("GET", "/v1/allocations", None).await;
        let one =
            |row: &Value| (row["slurmJobId"].as_str().map(str::to_owned), row["status"].as_str().unwrap().to_owned());
        page["items"].as_array().unwrap().iter().map(one).collect()
    }

    async fn tick(&mut self, is_due: bool) -> bool {
        self.context.tick(is_due).await.unwrap()
    }

    /// Returns the credential files.
    fn handed(&self) -> Vec<String> {
        let Ok(folder) = std::fs::read_dir(self.slurm.path("handed")) else { return Vec::new() };
        let mut names: Vec<String> = folder.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.iter().map(|name| name.rsplit('.').next().unwrap().to_owned()).collect()
    }

    fn queue(&self, jobs: &[(&str, &str)]) {
        let line = |(number, state): &(&str, &str)| format!("{number}|{state}|short|1|N/A|N/A|1:00|n1|(null)|x|None\n");
        self.slurm.set_output("squeue", &jobs.iter().map(line).collect::<String>());
    }
}

fn condition(workflow: &Value, type_: &str) -> Value {
    let conditions = workflow["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|one| one["type"] == type_).unwrap().clone()
}

fn known(number: &str, status: &str) -> (Option<String>, String) {
    (Some(number.to_owned()), status.to_owned())
}

// R13, R16
#[tokio::test]
async fn what_jobs_need_is_submitted_once() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.apply("w", 2).await;
    fixture.tick(false).await;
    assert_eq!(fixture.allocations().await, [known("501", "pending"), known("502", "pending")]);
    assert_eq!(fixture.slurm.calls("sbatch"), ["--parsable", "--parsable"]);
    assert_eq!(fixture.handed(), ["env", "token"], "what the runners need is there before they are");
    let script = fixture.slurm.script();
    assert!(
        script.contains("exec /opt/runner \"$TORC_API_URL\" 1 ") && script.contains("--partition=short"),
        "{script}"
    );
    assert!(fixture.slurm.path("work/output").is_dir(), "Slurm does not make the folder of its logs");
    fixture.queue(&[("501", "PENDING"), ("502", "RUNNING")]);
    fixture.tick(true).await;
    fixture.tick(false).await;
    assert_eq!(fixture.allocations().await, [known("501", "pending"), known("502", "active")]);
    assert!(fixture.slurm.calls("sbatch").is_empty(), "nothing is asked for twice");
    assert_eq!(fixture.slurm.calls("squeue").len(), 1, "Slurm is looked at only when that is due");
}

#[tokio::test]
async fn nothing_is_asked_for_without_leadership() {
    let mut fixture = ReconcileFixture::with_leadership(Leadership::of_lease(0, CancellationToken::new())).await;
    fixture.apply("w", 1).await;
    assert!(!fixture.tick(true).await);
    for tool in ["sbatch", "squeue", "scontrol", "sinfo"] {
        assert!(fixture.slurm.calls(tool).is_empty(), "{tool}");
    }
    assert!(fixture.allocations().await.is_empty());
}

#[tokio::test]
async fn a_refusal_is_answered_with_a_pause_that_doubles() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.slurm.refuses("sbatch", "sbatch: error: Batch job submission failed: Invalid account");
    fixture.apply("w", 2).await;
    fixture.tick(false).await;
    assert_eq!(fixture.slurm.calls("sbatch").len(), 1, "Slurm would say the same of the others");
    assert_eq!(fixture.allocations().await, [(None, "pending".to_owned()), (None, "pending".to_owned())]);
    // The first back-off is 10 s, because the interval of the loop is longer.
    let mut count = 1;
    for (passed, calls) in [(9_999, 0), (1, 1), (19_999, 0), (1, 1), (39_999, 0), (1, 1)] {
        fixture.slurm.advance(Duration::from_millis(passed));
        fixture.tick(false).await;
        count += calls;
        assert_eq!(fixture.slurm.calls("sbatch").len(), calls, "after {passed} ms more, {count} backoffs");
        let workflow = fixture.server.ok("GET", "/v1/workflows/w", None).await;
        let ready = condition(&workflow, "AllocationsReady");
        assert_eq!(ready["reason"], "SubmitFailed", "{ready}");
        assert!(ready["message"].as_str().unwrap().contains("Invalid account"), "{ready}");
    }
    fixture.slurm.relents("sbatch");
    fixture.slurm.advance(Duration::from_secs(80));
    fixture.tick(false).await;
    let numbers: Vec<Option<String>> = fixture.allocations().await.into_iter().map(|(number, _)| number).collect();
    assert!(numbers.len() == 2 && numbers.iter().all(Option::is_some), "{numbers:?}");
    // A success resets the back-off.
    assert!(fixture.context.backoffs.is_empty());
}

#[tokio::test]
async fn an_edited_document_is_asked_about_at_once() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.slurm.refuses("sbatch", "sbatch: error: Batch job submission failed: Invalid account");
    fixture.apply("w", 1).await;
    fixture.apply("v", 1).await;
    fixture.tick(false).await;
    assert_eq!(fixture.slurm.calls("sbatch").len(), 2, "each workflow is refused by itself");
    fixture.apply("w", 2).await;
    fixture.tick(false).await;
    assert_eq!(fixture.slurm.calls("sbatch").len(), 1, "only the one that was edited is another question");
}

// R01, R02
#[tokio::test]
async fn an_allocation_is_over_when_slurm_says_so() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.apply("w", 2).await;
    fixture.tick(false).await;
    fixture.slurm.refuses("squeue", "squeue: error: Unable to contact slurm controller (connect failure)");
    fixture.tick(true).await;
    assert_eq!(fixture.allocations().await, [known("501", "pending"), known("502", "pending")], "silence says nothing");
    fixture.queue(&[("501", "RUNNING"), ("502", "RUNNING")]);
    fixture.tick(true).await;
    fixture.slurm.set_output("sacct", "501|COMPLETED|0:0|2026-01-01T00:00:30|2026-01-01T00:00:40|n3|x\n");
    fixture.queue(&[("502", "RUNNING")]);
    fixture.server.ok("POST", "/v1/workflows/w/suspend", None).await;
    fixture.tick(true).await;
    assert_eq!(fixture.allocations().await, [known("501", "complete"), known("502", "active")]);
    assert_eq!(fixture.handed(), ["env", "token"], "the other one's runner reads them");
}

#[tokio::test]
async fn what_was_handed_over_goes_with_the_last_allocation() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.apply("w", 1).await;
    fixture.tick(false).await;
    fixture.server.ok("POST", "/v1/workflows/w/cancel", None).await;
    fixture.queue(&[("501", "PENDING")]);
    fixture.tick(true).await;
    assert_eq!(fixture.slurm.calls("scancel"), ["501"]);
    assert_eq!(fixture.handed(), ["env", "token"]);
    fixture.queue(&[("501", "CANCELLED")]);
    fixture.tick(true).await;
    assert_eq!(fixture.allocations().await.len(), 1);
    assert_eq!(fixture.handed(), Vec::<String>::new());
    assert!(fixture.slurm.calls("sbatch").len() == 1, "nothing is asked for any more");
}

#[tokio::test]
async fn draining_cancels_all_allocations() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.apply("w", 1).await;
    fixture.apply("v", 1).await;
    fixture.tick(false).await;
    assert_eq!(fixture.slurm.calls("sbatch").len(), 2);
    fixture.winding_down.store(true, Ordering::Relaxed);
    fixture.apply("late", 1).await;
    fixture.tick(false).await;
    let mut canceled = fixture.slurm.calls("scancel");
    canceled.sort();
    assert_eq!(canceled, ["501", "502"]);
    assert!(fixture.slurm.calls("sbatch").is_empty(), "nothing is submitted any more");
}

#[tokio::test]
async fn an_unknown_cluster_is_named_and_nothing_is_submitted() {
    let mut fixture = ReconcileFixture::new().await;
    let spec = json!({ "slurmCluster": "far", "jobs": crate::tests::jobs(&["j"]) });
    fixture.server.apply_spec("ada", "default", "w", spec).await;
    fixture.tick(false).await;
    let workflow = fixture.server.ok("GET", "/v1/workflows/w", None).await;
    assert!(workflow["status"]["conditions"].to_string().contains("there is no SlurmCluster 'far'"), "{workflow}");
    assert!(fixture.slurm.calls("sbatch").is_empty() && fixture.allocations().await.is_empty());
}

// R03, R05
#[tokio::test]
async fn orphans_are_found_and_a_dry_run_changes_nothing() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.apply("w", 1).await;
    fixture.tick(false).await;
    fixture.slurm.set_output("sacct", "501|FAILED|1:0|2026-01-01T00:00:30|2026-01-01T00:00:40|n3|x\n");
    let before = fixture.allocations().await;
    let request = |dry_run| SyncStatusRequest { dry_run, ..SyncStatusRequest::default() };
    let report = fixture.context.find_orphans(WorkflowId(1), request(true)).await.unwrap();
    let other = fixture.context.find_orphans(WorkflowId(9), request(true)).await.unwrap();
    assert_eq!(fixture.allocations().await, before);
    assert_ne!(report, other, "a report is about one workflow");
    assert_eq!(fixture.context.find_orphans(WorkflowId(1), request(false)).await.unwrap(), report);
    assert_eq!(fixture.allocations().await, [known("501", "complete")]);
}

// R02. Every call of `sync-status` is a process of its own.
#[test]
fn what_an_earlier_process_did_not_see_counts() {
    let key = (WorkflowId(1), torc_core::ids::AllocationId(2));
    let row =
        |unseen_since_ms| AllocationRow { id: key.1, workflow: key.0, unseen_since_ms, ..AllocationRow::default() };
    let seen = |observation, unseen_ms| Observation { observation, unseen_ms, ..Observation::unanswered(key) };
    for (observation, own, since, expected) in [
        (SlurmObservation::Unseen, 0, Some(40_000), 60_000),
        (SlurmObservation::Unseen, 70_000, Some(40_000), 70_000),
        (SlurmObservation::Unseen, 5, None, 5),
        (SlurmObservation::Unseen, 5, Some(200_000), 5),
        (SlurmObservation::Recorded(torc_api::slurm::SlurmState::Running), 0, Some(40_000), 60_000),
        (SlurmObservation::Queued(torc_api::slurm::SlurmState::Running), 0, Some(40_000), 0),
        (SlurmObservation::NoAnswer, 0, Some(40_000), 0),
    ] {
        let mut found = [seen(observation, own)];
        remember_unseen(&mut found, &[row(since)], 100_000);
        assert_eq!(found[0].unseen_ms, expected, "{observation:?} {own} {since:?}");
    }
}

#[test]
fn delays_double_from_ten_seconds_to_five_minutes() {
    let seconds = |count| delay_after(count, INITIAL_BACKOFF).as_secs();
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 33, 99].map(seconds), [10, 10, 20, 40, 80, 160, 300, 300, 300, 300]);
    assert_eq!(delay_after(3, Duration::from_secs(2)), Duration::from_secs(8), "a loop that is faster waits less");
}

#[tokio::test]
async fn a_store_is_told_from_others_by_its_identity() {
    let fixture = ReconcileFixture::new().await;
    let identity = fixture.server.engine.identity().await.unwrap();
    assert!(!identity.is_empty());
    assert_ne!(identity, ReconcileFixture::new().await.server.engine.identity().await.unwrap());
}

// R08
#[tokio::test]
async fn a_submission_without_answer_is_adopted_once() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.slurm.refuses("sbatch", "sbatch: error: Socket timed out on send/recv operation");
    fixture.apply("w", 1).await;
    fixture.tick(false).await;
    assert_eq!(fixture.allocations().await, [(None, "pending".to_owned())]);
    fixture.slurm.advance(Duration::from_secs(600));
    fixture.tick(false).await;
    fixture.tick(true).await;
    fixture.tick(false).await;
    assert_eq!(fixture.slurm.calls("sbatch").len(), 1, "it is not known yet whether Slurm has it");
    let name = format!("torc-wf1-a1-{}", fixture.server.engine.identity().await.unwrap());
    let line = |number: i32| format!("{number}|PENDING|short|1|N/A|N/A|1:00||{name}|{name}|None\n");
    fixture.slurm.set_output("squeue", &[line(71), line(72)].concat());
    fixture.tick(true).await;
    assert_eq!(fixture.allocations().await, [known("71", "pending")]);
    assert_eq!(fixture.slurm.calls("scancel"), ["72"], "the other one has no allocation");
}

#[tokio::test]
async fn another_process_delivers_the_credentials_again() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.apply("w", 1).await;
    fixture.tick(false).await;
    fixture.queue(&[("501", "RUNNING")]);
    std::fs::remove_dir_all(fixture.slurm.path("handed")).unwrap();
    fixture.tick(true).await;
    assert_eq!(fixture.handed(), Vec::<String>::new(), "this one has handed it over");
    let issuer = Issuer::new(token_key(), None);
    for (serves, expected) in [(None, vec![]), (Some(RunnerScope::All), vec!["env", "token"])] {
        let config = SlurmConfig { serves, ..fixture.context.config.clone() };
        let credentials = CredentialIssuer::new(
            "https://s".to_owned(),
            issuer.clone(),
            Duration::from_secs(9),
            ServerTrust::default(),
        );
        let (leadership, down) = (Leadership::permanent(), Arc::default());
        let mut context = SlurmContext::new(
            fixture.server.engine.clone(),
            config,
            credentials,
            leadership,
            down,
            fixture.slurm.instants(),
        );
        context.tick(true).await.unwrap();
        assert_eq!(fixture.handed(), expected, "runners cannot reach a process that serves none");
    }
}

#[tokio::test]
async fn clusters_are_listed_by_name_with_what_is_known_of_them() {
    let fixture = ReconcileFixture::new().await;
    for name in ["zeta", "alpha"] {
        let document = json!({ "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": name }, "spec": {} });
        fixture.server.ok("POST", "/v1/slurmclusters", Some(document)).await;
    }
    let issuer = Issuer::new(token_key(), None);
    let credentials =
        CredentialIssuer::new("https://s".to_owned(), issuer, Duration::from_secs(9), ServerTrust::default());
    let config = SlurmConfig { serves: None, ..fixture.context.config.clone() };
    let stop = CancellationToken::new();
    let (handle, task) = super::super::SlurmHandle::start(
        fixture.server.engine.clone(),
        config,
        credentials,
        Leadership::permanent(),
        stop,
    );
    assert!(task.is_none() && !handle.has_loop());
    let listed = async || {
        let clusters = handle.clusters().await.unwrap();
        clusters.into_iter().map(|one| (one.name, one.status.is_some())).collect::<Vec<_>>()
    };
    let row = |name: &str, spoken: bool| (name.to_owned(), spoken);
    assert_eq!(listed().await, [row("alpha", false), row("zeta", false)]);
    handle.probe("local").await.unwrap();
    handle.probe("zeta").await.unwrap();
    assert_eq!(listed().await, [row("alpha", false), row("local", true), row("zeta", true)]);
}

#[tokio::test]
async fn a_cancel_reaches_slurm_without_periodic_ticks() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.apply("w", 1).await;
    fixture.tick(false).await;
    let issuer = Issuer::new(token_key(), None);
    let credentials =
        CredentialIssuer::new("https://s".to_owned(), issuer, Duration::from_secs(9), ServerTrust::default());
    let config = SlurmConfig { serves: None, ..fixture.context.config.clone() };
    let stop = CancellationToken::new();
    let (handle, _) = super::super::SlurmHandle::start(
        fixture.server.engine.clone(),
        config,
        credentials,
        Leadership::permanent(),
        stop,
    );
    fixture.queue(&[("501", "PENDING")]);
    handle.reconcile_now().await.unwrap();
    assert!(fixture.slurm.calls("scancel").is_empty(), "it is not canceled");
    fixture.server.ok("POST", "/v1/workflows/w/cancel", None).await;
    handle.reconcile_now().await.unwrap();
    assert_eq!(fixture.slurm.calls("scancel"), ["501"]);
    assert_eq!(handle.live_allocations().await.unwrap(), 1);
    fixture.queue(&[("501", "CANCELLED")]);
    handle.await_release(WorkflowId(1), Duration::from_secs(60)).await.unwrap();
    assert_eq!(handle.live_allocations().await.unwrap(), 0);
}

#[tokio::test]
async fn an_allocation_without_its_runner_is_looked_at_soon() {
    let mut fixture = ReconcileFixture::new().await;
    for name in ["v", "w", "x"] {
        fixture.apply(name, 1).await;
    }
    fixture.tick(false).await;
    fixture.queue(&[("501", "RUNNING"), ("502", "RUNNING"), ("503", "RUNNING")]);
    fixture.tick(true).await;
    let mut registration = crate::tests::registration("n1", Some("default/w"));
    registration["slurmJobId"] = json!("502");
    registration["allocation"] = json!("torc-wf2-a2");
    let node = json!({ "cpus": 8, "memoryBytes": 4_u64 << 30, "gpus": 0, "nodes": 1 });
    registration["capacity"] = node.clone();
    let runner = fixture.server.ok("POST", "/v1/runners", Some(registration)).await["runner"].as_i64().unwrap();
    assert!(
        !fixture.tick(true).await && !fixture.tick(true).await,
        "its runner is there, and those of the others may come"
    );
    let leased =
        fixture.server.sync(runner, json!({ "sequence": 1, "want": { "free": node, "ahead": 0, "limit": 1 } })).await;
    let mut ended = json!({ "key": leased["leases"][0]["key"], "returnCode": 1, "durationMs": 1, "endedMsAgo": 0 });
    ended["cause"] = json!("ExitCode");
    let left = json!({ "sequence": 2, "acknowledged": 1, "finished": [ended], "leaving": true });
    fixture.server.sync(runner, left).await;
    fixture.apply("w", 2).await;
    assert!(!fixture.tick(true).await, "once is not enough");
    assert!(fixture.tick(true).await, "the one in the middle seems to have ended");
}

// R05
#[tokio::test]
async fn orphans_of_one_workflow_are_reported_over_http() {
    let mut fixture = ReconcileFixture::new().await;
    fixture.apply("w", 1).await;
    fixture.apply("v", 1).await;
    fixture.tick(false).await;
    let record = |number: i32| format!("{number}|FAILED|1:0|2026-01-01T00:00:30|2026-01-01T00:00:40|n3|x\n");
    fixture.slurm.set_output("sacct", &[record(501), record(502)].concat());
    let issuer = Issuer::new(token_key(), None);
    let credentials =
        CredentialIssuer::new("https://s".to_owned(), issuer.clone(), Duration::from_secs(9), ServerTrust::default());
    let config = SlurmConfig { serves: None, ..fixture.context.config.clone() };
    let stop = CancellationToken::new();
    let (handle, _) = super::super::SlurmHandle::start(
        fixture.server.engine.clone(),
        config,
        credentials,
        Leadership::permanent(),
        stop.clone(),
    );
    let identities = crate::http::Identities::new(crate::tests::ADMIN.to_owned(), issuer);
    fixture.server.app =
        crate::http::app(fixture.server.engine.clone(), Some(handle), identities, Default::default(), stop);
    let report = async |name: &str| {
        let path = format!("/v1/workflows/{name}/sync-status");
        fixture.server.ok("POST", &path, Some(json!({ "dryRun": true }))).await.to_string()
    };
    let (of_w, of_v) = (report("w").await, report("v").await);
    assert!(of_w.contains("torc-wf1-a1") && !of_w.contains("torc-wf2-a2"), "{of_w}");
    assert!(of_v.contains("torc-wf2-a2") && !of_v.contains("torc-wf1-a1"), "{of_v}");
    // Without a loop, a workflow that is canceled over HTTP has its allocations canceled at once.
    fixture.queue(&[("501", "RUNNING"), ("502", "RUNNING")]);
    fixture.slurm.calls("scancel");
    fixture.server.ok("POST", "/v1/workflows/v/cancel", None).await;
    assert_eq!(fixture.slurm.calls("scancel"), ["502"]);
}

// J19, R08
#[tokio::test]
async fn an_action_asks_for_its_allocations_once() {
    let mut fixture = ReconcileFixture::new().await;
    let spec = json!({
        "slurmSchedulers": [{ "name": "s", "account": "a", "walltime": "00:20:00" }],
        "actions": [{
            "triggerType": "on_workflow_start", "actionType": "schedule_nodes", "scheduler": "s", "schedulerType": "slurm",
            "numAllocations": 2,
        }],
        "jobs": crate::tests::jobs(&["j"]),
    });
    let document = crate::tests::document("default", "w", spec);
    let body = json!({ "document": document, "workingDir": fixture.slurm.path("work") });
    fixture.server.ok("POST", "/v1/workflows", Some(body)).await;
    fixture.tick(false).await;
    assert_eq!(fixture.slurm.calls("sbatch").len(), 2);
    fixture.queue(&[("501", "PENDING"), ("502", "PENDING")]);
    fixture.tick(true).await;
    assert!(fixture.slurm.calls("sbatch").is_empty(), "an action is executed once");
    let actions = fixture.server.ok("GET", "/v1/workflows/w/actions", None).await;
    let action = &actions["items"][0];
    assert_eq!((&action["status"], &action["scheduler"]), (&json!("executed"), &json!("s")), "{action}");
    assert_ne!(action["message"], "its allocations already exist", "{action}");
}
