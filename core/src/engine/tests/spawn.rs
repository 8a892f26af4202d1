//! Jobs that running jobs add to their workflow.

use serde_json::{Value, json};
use torc_api::data::SpawnResponse;
use torc_api::state::JobState::{Blocked, Canceled, Completed, Ready, Running};
use torc_api::wire::{AttemptKey, SyncRequest};
use torc_api::workflow::DynamicJobs;

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, PlannedJob, job};
use crate::engine::{Apply, CommandError, Retry, Spawn};
use crate::expanded::{Expanded, ExpandedFile, ExpandedUserData};
use crate::ids::{JobId, RunnerId};

/// Spawns jobs as the attempt `key`; `jobs` may depend on `known`.
fn spawn(
    harness: &mut EngineHarness,
    key: AttemptKey,
    known: &[&str],
    jobs: impl IntoIterator<Item = PlannedJob>,
    state: Option<Value>,
) -> Result<SpawnResponse, CommandError> {
    let expanded = Plan::new(jobs.into_iter().chain(known.iter().map(|name| job(name)))).expanded();
    let caller = key.job.to_string();
    let spawn = Spawn {
        caller: &caller,
        run: key.run,
        attempt: key.attempt,
        lineage: "tune",
        expanded: &expanded,
        known: known.len(),
        state,
        max_jobs: 20,
    };
    let id = harness.workflow();
    harness.run(|engine, tx| engine.spawn(id, &spawn, tx))
}

/// Spawns jobs as the current attempt of a job.
pub fn spawn_from(
    harness: &mut EngineHarness,
    caller: &str,
    known: &[&str],
    jobs: impl IntoIterator<Item = PlannedJob>,
    state: Option<Value>,
) -> Result<SpawnResponse, CommandError> {
    let key = harness.key(caller);
    spawn(harness, key, known, jobs, state)
}

fn state_of_loop(harness: &EngineHarness, suffix: &str) -> Option<Value> {
    let name = format!("__torc_lineage__tune__{suffix}");
    harness.database.user_data.get(&(harness.workflow(), name)).and_then(|row| row.written.clone())
}

/// `seed` and `slow` run, `end` depends on `seed`.
fn seeded() -> (EngineHarness, Plan, RunnerId) {
    let plan = Plan::new([job("seed"), job("slow"), job("end").after(&["seed"])]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 8));
    let keys = ["seed", "slow"].map(|name| running(harness.key(name)));
    harness.sync(id, &SyncRequest { running: keys.to_vec(), ..sync_request(2) });
    (harness, plan, id)
}

#[test]
fn spawned_jobs_wait_for_their_spawner_and_dependencies() {
    let (mut harness, _, id) = seeded();
    let jobs = [job("a"), job("b").after(&["slow", "a"])];
    let answer = spawn_from(&mut harness, "seed", &["slow"], jobs, Some(json!({"x": 1}))).unwrap();
    assert_eq!((answer.generation, answer.jobs, answer.converged), (1, 2, false));
    assert_eq!(harness.states(&["a", "b"]), [Blocked; 2]);
    let ids = |names: &[&str]| names.iter().map(|name| harness.job(name).id).collect::<Vec<JobId>>();
    assert_eq!(harness.job("b").depends_on, ids(&["seed", "slow", "a"]));
    let profile = &harness.database.profiles[&harness.job("a").profile].profile;
    assert_eq!(profile.env["TORC_ORCHESTRATOR_LINEAGE_ID"], "tune");
    assert_eq!(state_of_loop(&harness, "g000001"), Some(json!({"x": 1})));
    let total = harness.engine.workflow_summary(harness.workflow()).unwrap().status.jobs.total;
    assert_eq!(total, 5);
    // They survive a restart, and run when their dependencies have ended.
    harness.restart();
    let done = SyncRequest {
        finished: vec![success(harness.key("seed"))],
        running: vec![running(harness.key("slow"))],
        ..work_request(3, 8)
    };
    let names: Vec<String> = harness.sync(id, &done).leases.into_iter().map(|lease| lease.name).collect();
    assert_eq!(names, ["a", "end"], "b waits for a");
}

// A job that has gained dependents by a spawn starts before its equals.
#[test]
fn a_ready_job_that_spawned_jobs_wait_for_comes_first() {
    let mut harness = EngineHarness::with(&Plan::new([job("seed"), job("p"), job("q")]));
    let id = harness.register(&runner("one"));
    assert_eq!(harness.sync(id, &work_request(1, 1)).leases[0].name, "seed");
    let seed = harness.key("seed");
    harness.sync(id, &SyncRequest { running: vec![running(seed)], ..sync_request(2) });
    spawn_from(&mut harness, "seed", &["q"], [job("a").after(&["q"]), job("b").after(&["a"])], None).unwrap();
    let leases = harness.sync(id, &SyncRequest { running: vec![running(seed)], ..work_request(3, 2) }).leases;
    let order: Vec<(&str, u32)> = leases.iter().map(|lease| (lease.name.as_str(), lease.downstream_seconds)).collect();
    assert_eq!(order, [("q", 120), ("p", 0)]);
}

#[test]
fn a_start_that_was_not_reported_yet_may_spawn() {
    let mut harness = EngineHarness::with(&Plan::new([job("seed")]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 8));
    assert_eq!(harness.state_of("seed"), torc_api::state::JobState::Leased);
    spawn_from(&mut harness, "seed", &[], [job("a")], None).unwrap();
}

#[test]
fn a_repeated_spawn_is_idempotent_and_a_part_is_refused() {
    let (mut harness, _, _) = seeded();
    let key = harness.key("seed");
    spawn(&mut harness, key, &[], [job("a"), job("b")], Some(json!(1))).unwrap();
    let before = harness.database.clone();
    let again = spawn(&mut harness, key, &[], [job("b"), job("a")], Some(json!(2))).unwrap();
    assert_eq!((again.replayed, again.jobs, again.generation), (true, 0, 1));
    assert_eq!(harness.database.jobs, before.jobs);
    assert_eq!(harness.database.user_data, before.user_data);
    for jobs in [vec![job("a"), job("c")], vec![job("slow")], vec![job("a"), job("slow")]] {
        let refused = spawn(&mut harness, key, &[], jobs, None);
        assert!(matches!(refused, Err(CommandError::Conflict(_))), "{refused:?}");
    }
    assert_eq!(harness.database.jobs, before.jobs);
}

#[test]
fn only_the_attempt_that_runs_may_spawn() {
    let (mut harness, _, id) = seeded();
    let key = harness.key("seed");
    for stale in [AttemptKey { attempt: 2, ..key }, AttemptKey { run: 2, ..key }, harness.key("end")] {
        assert!(matches!(spawn(&mut harness, stale, &[], [job("a")], None), Err(CommandError::Conflict(_))));
    }
    let unknown = AttemptKey { job: 99, ..key };
    assert!(matches!(spawn(&mut harness, unknown, &[], [job("a")], None), Err(CommandError::NoJob { .. })));
    harness.sync(
        id,
        &SyncRequest { finished: vec![success(key)], running: vec![running(harness.key("slow"))], ..sync_request(3) },
    );
    assert!(matches!(spawn(&mut harness, key, &[], [job("a")], None), Err(CommandError::Conflict(_))), "it has ended");
    assert_eq!(harness.database.jobs.len(), 3);
}

#[test]
fn a_loop_ends_with_an_empty_list_or_at_its_limit() {
    let plan = Plan::new([job("seed")]).with(|spec| spec.dynamic_jobs = Some(DynamicJobs { max_iterations: Some(2) }));
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 8));
    let key = harness.key("seed");
    spawn(&mut harness, key, &[], [job("a")], Some(json!(1))).unwrap();
    spawn(&mut harness, key, &[], [job("b")], Some(json!(2))).unwrap();
    let refused = spawn(&mut harness, key, &[], [job("c")], None).unwrap_err();
    assert_eq!(refused, CommandError::TooManyIterations { lineage: "tune".to_owned(), most: 2 });
    assert_eq!(refused.to_string(), "loop 'tune' has reached its limit of 2 iterations");
    let end = spawn(&mut harness, key, &[], [], Some(json!(3))).unwrap();
    assert_eq!((end.converged, end.generation), (true, 2));
    assert_eq!(spawn(&mut harness, key, &[], [], Some(json!(4))).unwrap(), end);
    let states = ["g000001", "g000002", "g000003", "final"].map(|suffix| state_of_loop(&harness, suffix));
    assert_eq!(states, [Some(json!(1)), Some(json!(2)), None, Some(json!(3))]);
    assert!(
        matches!(spawn(&mut harness, key, &[], [job("c")], None), Err(CommandError::Conflict(_))),
        "it has converged"
    );
}

#[test]
fn the_servers_limit_of_jobs_counts_spawned_ones() {
    let (mut harness, _, _) = seeded();
    let many = (0..18).map(|number| job(&format!("m{number}")));
    assert!(matches!(spawn_from(&mut harness, "seed", &[], many, None), Err(CommandError::Invalid(_))));
    let fitting = (0..17).map(|number| job(&format!("m{number}")));
    assert_eq!(spawn_from(&mut harness, "seed", &[], fitting, None).unwrap().jobs, 17);
}

#[test]
fn a_retry_after_a_failure_keeps_what_was_spawned() {
    let (mut harness, _, id) = seeded();
    spawn_from(&mut harness, "seed", &[], [job("a")], None).unwrap();
    let lost = failure(harness.key("seed"), 143, torc_api::state::Cause::Stopped);
    let slow = running(harness.key("slow"));
    harness.sync(
        id,
        &SyncRequest { finished: vec![lost], running: vec![slow], want: work_request(3, 8).want, ..sync_request(3) },
    );
    assert_eq!((harness.job("seed").attempt, harness.state_of("a")), (2, Blocked));
    assert!(spawn_from(&mut harness, "seed", &[], [job("a")], None).unwrap().replayed);
}

#[test]
fn when_it_runs_again_from_the_start_what_it_spawned_goes() {
    for how in 0..3 {
        let (mut harness, plan, id) = seeded();
        let keys = (harness.key("seed"), running(harness.key("slow")));
        spawn(&mut harness, keys.0, &[], [job("a")], Some(json!(1))).unwrap();
        let end = SyncRequest { finished: vec![success(keys.0)], running: vec![keys.1], ..work_request(3, 8) };
        harness.sync(id, &end);
        let a = harness.key("a");
        let slow = running(harness.key("slow"));
        harness.sync(
            id,
            &SyncRequest { running: vec![slow, running(a)], queued: vec![harness.key("end")], ..sync_request(4) },
        );
        spawn(&mut harness, a, &[], [job("b")], Some(json!(2))).unwrap();
        let done = SyncRequest {
            finished: vec![success(a)],
            running: vec![slow],
            queued: vec![harness.key("end")],
            ..work_request(5, 8)
        };
        harness.sync(id, &done);
        let id = harness.workflow();
        match how {
            0 => drop(harness.run(|engine, tx| engine.retry(id, &Retry::All, tx)).unwrap()),
            1 => {
                let seed = Retry::Jobs(vec!["seed".to_owned()]);
                assert_eq!(harness.engine.retry_preview(id, &seed).unwrap().names, ["seed", "end"]);
                harness.run(|engine, tx| engine.retry(id, &seed, tx)).unwrap();
            }
            _ => {
                let edited = plan.edit("seed", |job| job.version = 1);
                let changes = harness.apply(&edited).changes;
                assert_eq!((changes.removed.names, changes.downstream.names), (own(&["a", "b"]), own(&["end"])));
            }
        }
        assert!(harness.database.jobs.values().all(|row| row.name != "a" && row.name != "b"), "{how}");
        assert_eq!(harness.database.results_of(JobId(a.job)).len(), 1, "results stay");
        assert_eq!((state_of_loop(&harness, "g000001"), state_of_loop(&harness, "g000002")), (None, None));
        assert_eq!(harness.states(&["seed", "end"]), [Ready, Blocked]);
    }
}

fn own(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn an_edit_keeps_spawned_jobs_while_their_spawner_stays() {
    let (mut harness, plan, _) = seeded();
    spawn_from(&mut harness, "seed", &["slow"], [job("a"), job("b").after(&["slow"])], None).unwrap();
    let before = harness.job("a").clone();
    let answer = harness.apply(&plan.clone().plus(job("new")));
    assert_eq!((answer.changes.removed.count, answer.changes.unchanged), (0, 5));
    assert_eq!(*harness.job("a"), before);
    // One of its dependencies is removed: it no longer waits for that.
    let without = plan.clone().without("slow");
    let preview = harness.engine.preview(&without.document(), &without.expanded());
    assert_eq!((preview.removed.names, preview.downstream.names), (own(&["slow", "new"]), own(&["b"])));
    harness.apply(&plan.clone().without("slow"));
    assert_eq!(harness.job("b").depends_on, [harness.job("seed").id]);
    assert_eq!(harness.states(&["seed", "a", "b"]), [Running, Blocked, Blocked]);
    let changes = harness.apply(&plan.without("seed").without("slow")).changes;
    assert_eq!(changes.removed.names, own(&["seed", "a", "b"]));
    assert_eq!((harness.database.jobs.len(), harness.database.user_data.len()), (1, 0));
}

#[test]
fn a_document_may_take_over_the_name_of_a_spawned_job() {
    let (mut harness, plan, _) = seeded();
    spawn_from(&mut harness, "seed", &[], [job("a")], None).unwrap();
    harness.apply(&plan.plus(job("a")));
    assert_eq!(harness.state_of("a"), Ready, "it is the document's, and waits for nothing");
    assert!(matches!(spawn_from(&mut harness, "seed", &[], [job("a")], None), Err(CommandError::Conflict(_))));
}

#[test]
fn spawned_jobs_are_canceled_like_others() {
    let (mut harness, _, id) = seeded();
    spawn_from(&mut harness, "seed", &[], [job("a"), job("b").runs_after_failures()], None).unwrap();
    let failed = failure(harness.key("seed"), 1, torc_api::state::Cause::ExitCode);
    let slow = running(harness.key("slow"));
    harness.sync(id, &SyncRequest { finished: vec![failed], running: vec![slow], ..sync_request(3) });
    assert_eq!(harness.states(&["a", "b"]), [Canceled, Ready]);
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert_eq!(harness.state_of("b"), Canceled);
    let refused = spawn_from(&mut harness, "slow", &[], [job("c")], None);
    assert!(matches!(refused, Err(CommandError::Conflict(_))));
    assert!(!harness.states(&["a", "b"]).contains(&Completed));
}

/// The document's jobs write files and data; a spawned job that reads them waits for their writers.
#[test]
fn a_spawned_job_waits_for_the_writers_of_what_it_reads() {
    let plan = Plan::new([job("seed"), job("file_writer"), job("data_writer"), job("other")]);
    let named = |expanded: &mut Expanded| {
        expanded.files = ["f", "g"].map(file).to_vec();
        expanded.user_data = ["d", "e"].map(data).to_vec();
    };
    let mut expanded = plan.expanded();
    named(&mut expanded);
    expanded.jobs[1].output_files = vec![0];
    expanded.jobs[2].output_user_data = vec![0];
    expanded.jobs[3].output_files = vec![1];
    expanded.jobs[3].output_user_data = vec![1];
    let mut harness = EngineHarness::new();
    let document = plan.document();
    let apply =
        Apply { document: &document, expanded: &expanded, owner: "ada", working_dir: "/here", store_only: false };
    harness.run(|engine, tx| engine.apply(&apply, tx).unwrap());
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 8));
    let mut spawned = Plan::new([job("x"), job("y"), job("z")]).expanded();
    named(&mut spawned);
    spawned.jobs[0].input_files = vec![0];
    spawned.jobs[1].input_user_data = vec![0];
    let key = harness.key("seed");
    let caller = key.job.to_string();
    let spawn = Spawn {
        caller: &caller,
        run: key.run,
        attempt: key.attempt,
        lineage: "tune",
        expanded: &spawned,
        known: 0,
        state: None,
        max_jobs: 7,
    };
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.spawn(workflow, &spawn, tx)).unwrap();
    let ids = |names: &[&str]| names.iter().map(|name| harness.job(name).id).collect::<Vec<JobId>>();
    assert_eq!(harness.job("x").depends_on, ids(&["seed", "file_writer"]));
    assert_eq!(harness.job("y").depends_on, ids(&["seed", "data_writer"]));
    assert_eq!(harness.job("z").depends_on, ids(&["seed"]));
}

fn file(name: &str) -> ExpandedFile {
    ExpandedFile { name: name.to_owned(), path: format!("{name}.txt"), identifier: None }
}

fn data(name: &str) -> ExpandedUserData {
    ExpandedUserData { name: name.to_owned(), data: None, is_ephemeral: false }
}
