//! Jobs that running jobs add to their workflow.

use serde_json::{Value, json};
use torc_api::data::SpawnResponse;
use torc_api::state::JobState::{Blocked, Canceled, Completed, Ready, Running};
use torc_api::wire::{AttemptKey, SyncRequest};
use torc_api::workflow::DynamicJobs;

use super::plan::{Plan, PlannedJob, job};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::engine::{Apply, CommandError, Retry, Spawn};
use crate::expanded::{Expanded, ExpandedFile, ExpandedUserData};
use crate::ids::{JobId, RunnerId};

/// Spawns jobs as the attempt `key`; `jobs` may depend on `known`.
fn spawn(
    world: &mut World,
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
    let id = world.workflow();
    world.run(|engine, tx| engine.spawn(id, &spawn, tx))
}

/// Spawns jobs as the current attempt of a job.
pub fn spawn_from(
    world: &mut World,
    caller: &str,
    known: &[&str],
    jobs: impl IntoIterator<Item = PlannedJob>,
    state: Option<Value>,
) -> Result<SpawnResponse, CommandError> {
    let key = world.key(caller);
    spawn(world, key, known, jobs, state)
}

fn state_of_loop(world: &World, suffix: &str) -> Option<Value> {
    let name = format!("__torc_lineage__tune__{suffix}");
    world.database.user_data.get(&(world.workflow(), name)).and_then(|row| row.written.clone())
}

/// `seed` and `slow` run, `end` depends on `seed`.
fn seeded() -> (World, Plan, RunnerId) {
    let plan = Plan::new([job("seed"), job("slow"), job("end").after(&["seed"])]);
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 8));
    let keys = ["seed", "slow"].map(|name| running(world.key(name)));
    world.sync(id, &SyncRequest { running: keys.to_vec(), ..say(2) });
    (world, plan, id)
}

#[test]
fn spawned_jobs_wait_for_their_spawner_and_dependencies() {
    let (mut world, _, id) = seeded();
    let jobs = [job("a"), job("b").after(&["slow", "a"])];
    let answer = spawn_from(&mut world, "seed", &["slow"], jobs, Some(json!({"x": 1}))).unwrap();
    assert_eq!((answer.generation, answer.jobs, answer.converged), (1, 2, false));
    assert_eq!(world.states(&["a", "b"]), [Blocked; 2]);
    let ids = |names: &[&str]| names.iter().map(|name| world.job(name).id).collect::<Vec<JobId>>();
    assert_eq!(world.job("b").depends_on, ids(&["seed", "slow", "a"]));
    let profile = &world.database.profiles[&world.job("a").profile].profile;
    assert_eq!(profile.env["TORC_ORCHESTRATOR_LINEAGE_ID"], "tune");
    assert_eq!(state_of_loop(&world, "g000001"), Some(json!({"x": 1})));
    let total = world.engine.workflow_summary(world.workflow()).unwrap().status.jobs.total;
    assert_eq!(total, 5);
    // They survive a restart, and run when their dependencies have ended.
    world.restart();
    let done = SyncRequest {
        finished: vec![success(world.key("seed"))],
        running: vec![running(world.key("slow"))],
        ..ask(3, 8)
    };
    let names: Vec<String> = world.sync(id, &done).leases.into_iter().map(|lease| lease.name).collect();
    assert_eq!(names, ["a", "end"], "b waits for a");
}

// A job that has gained dependents by a spawn starts before its equals.
#[test]
fn a_ready_job_that_spawned_jobs_wait_for_comes_first() {
    let mut world = World::with(&Plan::new([job("seed"), job("p"), job("q")]));
    let id = world.register(&runner("one"));
    assert_eq!(world.sync(id, &ask(1, 1)).leases[0].name, "seed");
    let seed = world.key("seed");
    world.sync(id, &SyncRequest { running: vec![running(seed)], ..say(2) });
    spawn_from(&mut world, "seed", &["q"], [job("a").after(&["q"]), job("b").after(&["a"])], None).unwrap();
    let leases = world.sync(id, &SyncRequest { running: vec![running(seed)], ..ask(3, 2) }).leases;
    let order: Vec<(&str, u32)> = leases.iter().map(|lease| (lease.name.as_str(), lease.downstream_seconds)).collect();
    assert_eq!(order, [("q", 120), ("p", 0)]);
}

#[test]
fn a_start_that_was_not_reported_yet_may_spawn() {
    let mut world = World::with(&Plan::new([job("seed")]));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 8));
    assert_eq!(world.state_of("seed"), torc_api::state::JobState::Leased);
    spawn_from(&mut world, "seed", &[], [job("a")], None).unwrap();
}

#[test]
fn a_repeated_spawn_is_idempotent_and_a_part_is_refused() {
    let (mut world, _, _) = seeded();
    let key = world.key("seed");
    spawn(&mut world, key, &[], [job("a"), job("b")], Some(json!(1))).unwrap();
    let before = world.database.clone();
    let again = spawn(&mut world, key, &[], [job("b"), job("a")], Some(json!(2))).unwrap();
    assert_eq!((again.replayed, again.jobs, again.generation), (true, 0, 1));
    assert_eq!(world.database.jobs, before.jobs);
    assert_eq!(world.database.user_data, before.user_data);
    for jobs in [vec![job("a"), job("c")], vec![job("slow")], vec![job("a"), job("slow")]] {
        let refused = spawn(&mut world, key, &[], jobs, None);
        assert!(matches!(refused, Err(CommandError::Conflict(_))), "{refused:?}");
    }
    assert_eq!(world.database.jobs, before.jobs);
}

#[test]
fn only_the_attempt_that_runs_may_spawn() {
    let (mut world, _, id) = seeded();
    let key = world.key("seed");
    for stale in [AttemptKey { attempt: 2, ..key }, AttemptKey { run: 2, ..key }, world.key("end")] {
        assert!(matches!(spawn(&mut world, stale, &[], [job("a")], None), Err(CommandError::Conflict(_))));
    }
    let unknown = AttemptKey { job: 99, ..key };
    assert!(matches!(spawn(&mut world, unknown, &[], [job("a")], None), Err(CommandError::NoJob { .. })));
    world.sync(id, &SyncRequest { finished: vec![success(key)], running: vec![running(world.key("slow"))], ..say(3) });
    assert!(matches!(spawn(&mut world, key, &[], [job("a")], None), Err(CommandError::Conflict(_))), "it has ended");
    assert_eq!(world.database.jobs.len(), 3);
}

#[test]
fn a_loop_ends_with_an_empty_list_or_at_its_limit() {
    let plan = Plan::new([job("seed")]).with(|spec| spec.dynamic_jobs = Some(DynamicJobs { max_iterations: Some(2) }));
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 8));
    let key = world.key("seed");
    spawn(&mut world, key, &[], [job("a")], Some(json!(1))).unwrap();
    spawn(&mut world, key, &[], [job("b")], Some(json!(2))).unwrap();
    let refused = spawn(&mut world, key, &[], [job("c")], None).unwrap_err();
    assert_eq!(refused, CommandError::TooManyIterations { lineage: "tune".to_owned(), most: 2 });
    assert_eq!(refused.to_string(), "loop 'tune' has reached its limit of 2 iterations");
    let end = spawn(&mut world, key, &[], [], Some(json!(3))).unwrap();
    assert_eq!((end.converged, end.generation), (true, 2));
    assert_eq!(spawn(&mut world, key, &[], [], Some(json!(4))).unwrap(), end);
    let states = ["g000001", "g000002", "g000003", "final"].map(|suffix| state_of_loop(&world, suffix));
    assert_eq!(states, [Some(json!(1)), Some(json!(2)), None, Some(json!(3))]);
    assert!(
        matches!(spawn(&mut world, key, &[], [job("c")], None), Err(CommandError::Conflict(_))),
        "it has converged"
    );
}

#[test]
fn the_servers_limit_of_jobs_counts_spawned_ones() {
    let (mut world, _, _) = seeded();
    let many = (0..18).map(|number| job(&format!("m{number}")));
    assert!(matches!(spawn_from(&mut world, "seed", &[], many, None), Err(CommandError::Invalid(_))));
    let fitting = (0..17).map(|number| job(&format!("m{number}")));
    assert_eq!(spawn_from(&mut world, "seed", &[], fitting, None).unwrap().jobs, 17);
}

#[test]
fn a_retry_after_a_failure_keeps_what_was_spawned() {
    let (mut world, _, id) = seeded();
    spawn_from(&mut world, "seed", &[], [job("a")], None).unwrap();
    let lost = failure(world.key("seed"), 143, torc_api::state::Cause::Stopped);
    let slow = running(world.key("slow"));
    world.sync(id, &SyncRequest { finished: vec![lost], running: vec![slow], want: ask(3, 8).want, ..say(3) });
    assert_eq!((world.job("seed").attempt, world.state_of("a")), (2, Blocked));
    assert!(spawn_from(&mut world, "seed", &[], [job("a")], None).unwrap().replayed);
}

#[test]
fn when_it_runs_again_from_the_start_what_it_spawned_goes() {
    for how in 0..3 {
        let (mut world, plan, id) = seeded();
        let keys = (world.key("seed"), running(world.key("slow")));
        spawn(&mut world, keys.0, &[], [job("a")], Some(json!(1))).unwrap();
        let end = SyncRequest { finished: vec![success(keys.0)], running: vec![keys.1], ..ask(3, 8) };
        world.sync(id, &end);
        let a = world.key("a");
        let slow = running(world.key("slow"));
        world.sync(id, &SyncRequest { running: vec![slow, running(a)], queued: vec![world.key("end")], ..say(4) });
        spawn(&mut world, a, &[], [job("b")], Some(json!(2))).unwrap();
        let done = SyncRequest {
            finished: vec![success(a)],
            running: vec![slow],
            queued: vec![world.key("end")],
            ..ask(5, 8)
        };
        world.sync(id, &done);
        let id = world.workflow();
        match how {
            0 => drop(world.run(|engine, tx| engine.retry(id, &Retry::All, tx)).unwrap()),
            1 => {
                let seed = Retry::Jobs(vec!["seed".to_owned()]);
                assert_eq!(world.engine.retry_preview(id, &seed).unwrap().names, ["seed", "end"]);
                world.run(|engine, tx| engine.retry(id, &seed, tx)).unwrap();
            }
            _ => {
                let edited = plan.edit("seed", |job| job.version = 1);
                let changes = world.apply(&edited).changes;
                assert_eq!((changes.removed.names, changes.downstream.names), (own(&["a", "b"]), own(&["end"])));
            }
        }
        assert!(world.database.jobs.values().all(|row| row.name != "a" && row.name != "b"), "{how}");
        assert_eq!(world.database.results_of(JobId(a.job)).len(), 1, "results stay");
        assert_eq!((state_of_loop(&world, "g000001"), state_of_loop(&world, "g000002")), (None, None));
        assert_eq!(world.states(&["seed", "end"]), [Ready, Blocked]);
    }
}

fn own(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn an_edit_keeps_spawned_jobs_while_their_spawner_stays() {
    let (mut world, plan, _) = seeded();
    spawn_from(&mut world, "seed", &["slow"], [job("a"), job("b").after(&["slow"])], None).unwrap();
    let before = world.job("a").clone();
    let answer = world.apply(&plan.clone().plus(job("new")));
    assert_eq!((answer.changes.removed.count, answer.changes.unchanged), (0, 5));
    assert_eq!(*world.job("a"), before);
    // One of its dependencies is removed: it no longer waits for that.
    let without = plan.clone().without("slow");
    let preview = world.engine.preview(&without.document(), &without.expanded());
    assert_eq!((preview.removed.names, preview.downstream.names), (own(&["slow", "new"]), own(&["b"])));
    world.apply(&plan.clone().without("slow"));
    assert_eq!(world.job("b").depends_on, [world.job("seed").id]);
    assert_eq!(world.states(&["seed", "a", "b"]), [Running, Blocked, Blocked]);
    let changes = world.apply(&plan.without("seed").without("slow")).changes;
    assert_eq!(changes.removed.names, own(&["seed", "a", "b"]));
    assert_eq!((world.database.jobs.len(), world.database.user_data.len()), (1, 0));
}

#[test]
fn a_document_may_take_over_the_name_of_a_spawned_job() {
    let (mut world, plan, _) = seeded();
    spawn_from(&mut world, "seed", &[], [job("a")], None).unwrap();
    world.apply(&plan.plus(job("a")));
    assert_eq!(world.state_of("a"), Ready, "it is the document's, and waits for nothing");
    assert!(matches!(spawn_from(&mut world, "seed", &[], [job("a")], None), Err(CommandError::Conflict(_))));
}

#[test]
fn spawned_jobs_are_canceled_like_others() {
    let (mut world, _, id) = seeded();
    spawn_from(&mut world, "seed", &[], [job("a"), job("b").runs_after_failures()], None).unwrap();
    let failed = failure(world.key("seed"), 1, torc_api::state::Cause::ExitCode);
    let slow = running(world.key("slow"));
    world.sync(id, &SyncRequest { finished: vec![failed], running: vec![slow], ..say(3) });
    assert_eq!(world.states(&["a", "b"]), [Canceled, Ready]);
    let workflow = world.workflow();
    world.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert_eq!(world.state_of("b"), Canceled);
    let refused = spawn_from(&mut world, "slow", &[], [job("c")], None);
    assert!(matches!(refused, Err(CommandError::Conflict(_))));
    assert!(!world.states(&["a", "b"]).contains(&Completed));
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
    let mut world = World::new();
    let document = plan.document();
    let apply =
        Apply { document: &document, expanded: &expanded, owner: "ada", working_dir: "/here", store_only: false };
    world.run(|engine, tx| engine.apply(&apply, tx).unwrap());
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 8));
    let mut spawned = Plan::new([job("x"), job("y"), job("z")]).expanded();
    named(&mut spawned);
    spawned.jobs[0].input_files = vec![0];
    spawned.jobs[1].input_user_data = vec![0];
    let key = world.key("seed");
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
    let workflow = world.workflow();
    world.run(|engine, tx| engine.spawn(workflow, &spawn, tx)).unwrap();
    let ids = |names: &[&str]| names.iter().map(|name| world.job(name).id).collect::<Vec<JobId>>();
    assert_eq!(world.job("x").depends_on, ids(&["seed", "file_writer"]));
    assert_eq!(world.job("y").depends_on, ids(&["seed", "data_writer"]));
    assert_eq!(world.job("z").depends_on, ids(&["seed"]));
}

fn file(name: &str) -> ExpandedFile {
    ExpandedFile { name: name.to_owned(), path: format!("{name}.txt"), identifier: None }
}

fn data(name: &str) -> ExpandedUserData {
    ExpandedUserData { name: name.to_owned(), data: None, is_ephemeral: false }
}
