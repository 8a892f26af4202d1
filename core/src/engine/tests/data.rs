//! User data, which jobs exchange.

use serde_json::{Value, json};
use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;

use super::plan::{Plan, PlannedJob, job};
use super::world::{World, ask, runner, say, success};
use crate::engine::{Apply, CommandError, DataWritten, MAX_VALUE_BYTES, Retry};
use crate::expanded::{Expanded, ExpandedUserData};
use crate::ids::RunnerId;

/// Jobs and user data with its declared value; `reads` and `writes` are pairs of job and data.
struct Story {
    jobs: Vec<PlannedJob>,
    data: Vec<(&'static str, Option<Value>, bool)>,
    reads: Vec<(&'static str, &'static str)>,
    writes: Vec<(&'static str, &'static str)>,
}

impl Story {
    /// `maker` writes `made`; `reader` reads `made` and `given`.
    fn usual() -> Self {
        Self {
            jobs: vec![job("maker"), job("reader").after(&["maker"])],
            data: vec![("made", None, false), ("given", Some(json!({"n": 1})), false)],
            reads: vec![("reader", "made"), ("reader", "given")],
            writes: vec![("maker", "made")],
        }
    }

    fn expanded(&self) -> Expanded {
        let mut expanded = Plan::new(self.jobs.clone()).expanded();
        for (name, data, is_ephemeral) in self.data.clone() {
            expanded.user_data.push(ExpandedUserData { name: name.to_owned(), data, is_ephemeral });
        }
        let number = |name: &str| self.data.iter().position(|(known, ..)| *known == name).unwrap() as u32;
        for job in &mut expanded.jobs {
            let of = |list: &[(&str, &str)]| {
                list.iter().filter(|(owner, _)| *owner == job.name).map(|(_, data)| number(data)).collect::<Vec<_>>()
            };
            (job.input_user_data, job.output_user_data) = (of(&self.reads), of(&self.writes));
            job.command = job.input_user_data.iter().fold(job.command.clone(), |command, data| {
                format!("{command} '${{user_data.input.{}}}'", self.data[*data as usize].0)
            });
        }
        expanded
    }

    fn apply(&self, world: &mut World) {
        let (mut document, expanded) = (Plan::new(self.jobs.clone()).document(), self.expanded());
        document.spec.project = Some(format!("{:?}", self.data));
        let apply =
            Apply { document: &document, expanded: &expanded, owner: "ada", working_dir: "/here", store_only: false };
        world.run(|engine, tx| engine.apply(&apply, tx).unwrap());
    }
}

fn start(story: &Story) -> (World, RunnerId) {
    let mut world = World::new();
    story.apply(&mut world);
    let id = world.register(&runner("one"));
    (world, id)
}

fn write(world: &mut World, name: &str, value: Value, job: Option<&str>) -> Result<DataWritten, CommandError> {
    let id = world.workflow();
    world.run(|engine, tx| engine.write_data(id, name, Some(value), job, tx))
}

fn take_back(world: &mut World, name: &str) -> Result<DataWritten, CommandError> {
    let id = world.workflow();
    world.run(|engine, tx| engine.write_data(id, name, None, None, tx))
}

fn value(world: &World, name: &str) -> Option<Value> {
    world.database.user_data.get(&(world.workflow(), name.to_owned())).and_then(|row| row.value().cloned())
}

#[test]
fn a_value_that_a_job_wrote_reaches_its_readers() {
    let (mut world, id) = start(&Story::usual());
    assert_eq!(world.sync(id, &ask(1, 8)).leases.len(), 1);
    write(&mut world, "made", json!("it's"), Some("maker")).unwrap();
    let done = SyncRequest { finished: vec![success(world.key("maker"))], ..ask(2, 8) };
    let leases = world.sync(id, &done).leases;
    assert_eq!(leases[0].command, r#"run 0 '"it\u0027s"' '{"n":1}'"#);
    let row = &world.database.user_data[&(world.workflow(), "made".to_owned())];
    assert_eq!(row.job, Some(world.job("maker").id));
}

#[test]
fn a_job_without_its_data_fails_before_it_starts() {
    let (mut world, id) = start(&Story::usual());
    world.sync(id, &ask(1, 8));
    let done = SyncRequest { finished: vec![success(world.key("maker"))], ..ask(2, 8) };
    assert_eq!(world.sync(id, &done).leases.len(), 0);
    assert_eq!(world.state_of("reader"), JobState::Failed);
    let result = world.results_of("reader")[0];
    assert_eq!((result.cause, result.return_code), (Some(Cause::StartFailed), 126));
    let message = "user data `made` has no value: job 'maker' did not write it";
    assert_eq!(result.message.as_deref(), Some(message));
    // With a value the job can be retried as another attempt.
    write(&mut world, "made", json!(1), None).unwrap();
    let workflow = world.workflow();
    world.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx)).unwrap();
    let leases = world.sync(id, &ask(3, 8)).leases;
    assert_eq!((leases[0].name.as_str(), leases[0].key.attempt), ("reader", 2));
}

/// Returns a world in which all jobs have completed.
fn completed() -> (World, Story) {
    let story = Story::usual();
    let (mut world, id) = start(&story);
    world.sync(id, &ask(1, 8));
    write(&mut world, "made", json!(1), Some("maker")).unwrap();
    world.sync(id, &SyncRequest { finished: vec![success(world.key("maker"))], ..ask(2, 8) });
    world.sync(id, &SyncRequest { finished: vec![success(world.key("reader"))], ..say(3) });
    assert_eq!(world.states(&["maker", "reader"]), [JobState::Completed; 2]);
    (world, story)
}

#[test]
fn readers_of_changed_data_are_stale_until_they_ran_again() {
    let (mut world, _) = completed();
    let workflow = world.workflow();
    assert_eq!(world.engine.stale_jobs(workflow).unwrap(), []);
    assert_eq!(write(&mut world, "given", json!({"n": 1}), None).unwrap(), DataWritten::default(), "the same");
    let written = write(&mut world, "given", json!({"n": 2}), None).unwrap();
    assert_eq!(written, DataWritten { changed: true, stale_jobs: 1 });
    assert_eq!(world.state_of("reader"), JobState::Completed, "nothing runs by itself");
    let stale = vec![("reader".to_owned(), "given".to_owned())];
    assert_eq!(world.engine.stale_jobs(workflow).unwrap(), stale);
    world.restart();
    assert_eq!(world.engine.stale_jobs(workflow).unwrap(), stale);
    let changed = Retry::Changed(Vec::new());
    assert_eq!(world.engine.retry_preview(workflow, &changed).unwrap().names, ["reader"]);
    let count = world.run(|engine, tx| engine.retry(workflow, &changed, tx)).unwrap();
    assert_eq!((count, world.states(&["maker", "reader"])), (1, vec![JobState::Completed, JobState::Ready]));
    assert_eq!(world.engine.stale_jobs(workflow).unwrap(), []);
    let again = world.run(|engine, tx| engine.retry(workflow, &changed, tx)).unwrap();
    assert_eq!(again, 0, "what is ready is not stale");
}

#[test]
fn an_edit_keeps_written_data_unless_its_value_changes() {
    let (mut world, mut story) = completed();
    write(&mut world, "given", json!(7), None).unwrap();
    write(&mut world, "extra", json!(8), None).unwrap();
    story.data.push(("more", Some(json!(0)), false));
    story.apply(&mut world);
    assert_eq!(
        ["given", "made", "extra", "more"].map(|name| value(&world, name)),
        [7, 1, 8, 0].map(|n| Some(json!(n)))
    );
    story.data[1].1 = Some(json!({"n": 3}));
    story.apply(&mut world);
    assert_eq!(value(&world, "given"), Some(json!({"n": 3})));
    assert_eq!(world.state_of("reader"), JobState::Ready, "its input is another one");
    story.data.pop();
    story.apply(&mut world);
    assert_eq!((value(&world, "more"), value(&world, "extra")), (None, Some(json!(8))));
}

#[test]
fn what_was_written_can_be_taken_back() {
    let (mut world, _) = completed();
    write(&mut world, "given", json!(7), None).unwrap();
    assert!(take_back(&mut world, "given").unwrap().changed);
    assert_eq!(value(&world, "given"), Some(json!({"n": 1})), "what the document says");
    write(&mut world, "extra", json!(null), None).unwrap();
    assert_eq!(value(&world, "extra"), Some(Value::Null), "null is a value");
    take_back(&mut world, "extra").unwrap();
    assert_eq!(value(&world, "extra"), None);
    assert!(matches!(take_back(&mut world, "extra"), Err(CommandError::NoData { .. })));
}

#[test]
fn ephemeral_data_is_forgotten_with_its_run() {
    let mut story = Story::usual();
    story.data = vec![("made", None, true), ("given", Some(json!(1)), true)];
    let (mut world, _) = start(&story);
    write(&mut world, "made", json!(5), Some("maker")).unwrap();
    write(&mut world, "given", json!(5), None).unwrap();
    let workflow = world.workflow();
    world.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx)).unwrap();
    assert_eq!(value(&world, "made"), Some(json!(5)));
    world.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    assert_eq!((value(&world, "made"), value(&world, "given")), (None, Some(json!(1))));
}

#[test]
fn names_and_sizes_have_limits() {
    let (mut world, _) = start(&Story::usual());
    for name in ["", "a\nb", "__torc_lineage__x__g000001"] {
        assert!(matches!(write(&mut world, name, json!(1), None), Err(CommandError::Invalid(_))), "{name}");
    }
    let large = json!("x".repeat(MAX_VALUE_BYTES));
    assert!(matches!(write(&mut world, "large", large, None), Err(CommandError::Invalid(_))));
    assert_eq!(world.database.user_data.len(), 2);
}

#[test]
fn data_without_a_source_is_reported_before_the_start() {
    let mut story = Story::usual();
    story.data.push(("lacking", None, false));
    story.reads.push(("maker", "lacking"));
    let (mut world, _) = start(&story);
    let missing = world.engine.missing_data(world.workflow()).unwrap();
    assert_eq!(missing, [("lacking".to_owned(), "maker".to_owned())], "`made` is still to be written");
    write(&mut world, "lacking", json!(0), None).unwrap();
    assert_eq!(world.engine.missing_data(world.workflow()).unwrap(), []);
}
