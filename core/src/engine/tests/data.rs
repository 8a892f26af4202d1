//! User data, which jobs exchange.

use serde_json::{Value, json};
use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;

use super::harness::{EngineHarness, runner, success, sync_request, work_request};
use super::plan::{Plan, PlannedJob, job};
use crate::engine::{Apply, CommandError, DataWritten, MAX_VALUE_BYTES, Retry};
use crate::expanded::{Expanded, ExpandedUserData};
use crate::ids::RunnerId;

/// Jobs and user data with its declared value; `reads` and `writes` are pairs of job and data.
struct DataFixture {
    jobs: Vec<PlannedJob>,
    data: Vec<(&'static str, Option<Value>, bool)>,
    reads: Vec<(&'static str, &'static str)>,
    writes: Vec<(&'static str, &'static str)>,
}

impl DataFixture {
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

    fn apply(&self, harness: &mut EngineHarness) {
        let (mut document, expanded) = (Plan::new(self.jobs.clone()).document(), self.expanded());
        document.spec.project = Some(format!("{:?}", self.data));
        let apply =
            Apply { document: &document, expanded: &expanded, owner: "ada", working_dir: "/here", store_only: false };
        harness.run(|engine, tx| engine.apply(&apply, tx).unwrap());
    }
}

fn start(fixture: &DataFixture) -> (EngineHarness, RunnerId) {
    let mut harness = EngineHarness::new();
    fixture.apply(&mut harness);
    let id = harness.register(&runner("one"));
    (harness, id)
}

fn write(
    harness: &mut EngineHarness,
    name: &str,
    value: Value,
    job: Option<&str>,
) -> Result<DataWritten, CommandError> {
    let id = harness.workflow();
    harness.run(|engine, tx| engine.write_data(id, name, Some(value), job, tx))
}

fn delete_data(harness: &mut EngineHarness, name: &str) -> Result<DataWritten, CommandError> {
    let id = harness.workflow();
    harness.run(|engine, tx| engine.write_data(id, name, None, None, tx))
}

fn value(harness: &EngineHarness, name: &str) -> Option<Value> {
    harness.database.user_data.get(&(harness.workflow(), name.to_owned())).and_then(|row| row.value().cloned())
}

#[test]
fn a_value_that_a_job_wrote_reaches_its_readers() {
    let (mut harness, id) = start(&DataFixture::usual());
    assert_eq!(harness.sync(id, &work_request(1, 8)).leases.len(), 1);
    write(&mut harness, "made", json!("it's"), Some("maker")).unwrap();
    let done = SyncRequest { finished: vec![success(harness.key("maker"))], ..work_request(2, 8) };
    let leases = harness.sync(id, &done).leases;
    assert_eq!(leases[0].command, r#"run 0 '"it\u0027s"' '{"n":1}'"#);
    let row = &harness.database.user_data[&(harness.workflow(), "made".to_owned())];
    assert_eq!(row.job, Some(harness.job("maker").id));
}

#[test]
fn a_job_without_its_data_fails_before_it_starts() {
    let (mut harness, id) = start(&DataFixture::usual());
    harness.sync(id, &work_request(1, 8));
    let done = SyncRequest { finished: vec![success(harness.key("maker"))], ..work_request(2, 8) };
    assert_eq!(harness.sync(id, &done).leases.len(), 0);
    assert_eq!(harness.state_of("reader"), JobState::Failed);
    let result = harness.results_of("reader")[0];
    assert_eq!((result.cause, result.return_code), (Some(Cause::StartFailed), 126));
    let message = "user data `made` has no value: job 'maker' did not write it";
    assert_eq!(result.message.as_deref(), Some(message));
    // With a value the job can be retried as another attempt.
    write(&mut harness, "made", json!(1), None).unwrap();
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx)).unwrap();
    let leases = harness.sync(id, &work_request(3, 8)).leases;
    assert_eq!((leases[0].name.as_str(), leases[0].key.attempt), ("reader", 2));
}

/// Returns a world in which all jobs have completed.
fn completed() -> (EngineHarness, DataFixture) {
    let fixture = DataFixture::usual();
    let (mut harness, id) = start(&fixture);
    harness.sync(id, &work_request(1, 8));
    write(&mut harness, "made", json!(1), Some("maker")).unwrap();
    harness.sync(id, &SyncRequest { finished: vec![success(harness.key("maker"))], ..work_request(2, 8) });
    harness.sync(id, &SyncRequest { finished: vec![success(harness.key("reader"))], ..sync_request(3) });
    assert_eq!(harness.states(&["maker", "reader"]), [JobState::Completed; 2]);
    (harness, fixture)
}

#[test]
fn readers_of_changed_data_are_stale_until_they_ran_again() {
    let (mut harness, _) = completed();
    let workflow = harness.workflow();
    assert_eq!(harness.engine.stale_jobs(workflow).unwrap(), []);
    assert_eq!(write(&mut harness, "given", json!({"n": 1}), None).unwrap(), DataWritten::default(), "the same");
    let written = write(&mut harness, "given", json!({"n": 2}), None).unwrap();
    assert_eq!(written, DataWritten { changed: true, stale_jobs: 1 });
    assert_eq!(harness.state_of("reader"), JobState::Completed, "nothing runs by itself");
    let stale = vec![("reader".to_owned(), "given".to_owned())];
    assert_eq!(harness.engine.stale_jobs(workflow).unwrap(), stale);
    harness.restart();
    assert_eq!(harness.engine.stale_jobs(workflow).unwrap(), stale);
    let changed = Retry::Changed(Vec::new());
    assert_eq!(harness.engine.retry_preview(workflow, &changed).unwrap().names, ["reader"]);
    let count = harness.run(|engine, tx| engine.retry(workflow, &changed, tx)).unwrap();
    assert_eq!((count, harness.states(&["maker", "reader"])), (1, vec![JobState::Completed, JobState::Ready]));
    assert_eq!(harness.engine.stale_jobs(workflow).unwrap(), []);
    let again = harness.run(|engine, tx| engine.retry(workflow, &changed, tx)).unwrap();
    assert_eq!(again, 0, "what is ready is not stale");
}

#[test]
fn an_edit_keeps_written_data_unless_its_value_changes() {
    let (mut harness, mut fixture) = completed();
    write(&mut harness, "given", json!(7), None).unwrap();
    write(&mut harness, "extra", json!(8), None).unwrap();
    fixture.data.push(("more", Some(json!(0)), false));
    fixture.apply(&mut harness);
    assert_eq!(
        ["given", "made", "extra", "more"].map(|name| value(&harness, name)),
        [7, 1, 8, 0].map(|n| Some(json!(n)))
    );
    fixture.data[1].1 = Some(json!({"n": 3}));
    fixture.apply(&mut harness);
    assert_eq!(value(&harness, "given"), Some(json!({"n": 3})));
    assert_eq!(harness.state_of("reader"), JobState::Ready, "its input is another one");
    fixture.data.pop();
    fixture.apply(&mut harness);
    assert_eq!((value(&harness, "more"), value(&harness, "extra")), (None, Some(json!(8))));
}

#[test]
fn what_was_written_can_be_taken_back() {
    let (mut harness, _) = completed();
    write(&mut harness, "given", json!(7), None).unwrap();
    assert!(delete_data(&mut harness, "given").unwrap().changed);
    assert_eq!(value(&harness, "given"), Some(json!({"n": 1})), "what the document says");
    write(&mut harness, "extra", json!(null), None).unwrap();
    assert_eq!(value(&harness, "extra"), Some(Value::Null), "null is a value");
    delete_data(&mut harness, "extra").unwrap();
    assert_eq!(value(&harness, "extra"), None);
    assert!(matches!(delete_data(&mut harness, "extra"), Err(CommandError::NoData { .. })));
}

#[test]
fn ephemeral_data_is_forgotten_with_its_run() {
    let mut fixture = DataFixture::usual();
    fixture.data = vec![("made", None, true), ("given", Some(json!(1)), true)];
    let (mut harness, _) = start(&fixture);
    write(&mut harness, "made", json!(5), Some("maker")).unwrap();
    write(&mut harness, "given", json!(5), None).unwrap();
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx)).unwrap();
    assert_eq!(value(&harness, "made"), Some(json!(5)));
    harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    assert_eq!((value(&harness, "made"), value(&harness, "given")), (None, Some(json!(1))));
}

#[test]
fn names_and_sizes_have_limits() {
    let (mut harness, _) = start(&DataFixture::usual());
    for name in ["", "a\nb", "__torc_lineage__x__g000001"] {
        assert!(matches!(write(&mut harness, name, json!(1), None), Err(CommandError::Invalid(_))), "{name}");
    }
    let large = json!("x".repeat(MAX_VALUE_BYTES));
    assert!(matches!(write(&mut harness, "large", large, None), Err(CommandError::Invalid(_))));
    assert_eq!(harness.database.user_data.len(), 2);
}

#[test]
fn data_without_a_source_is_reported_before_the_start() {
    let mut fixture = DataFixture::usual();
    fixture.data.push(("lacking", None, false));
    fixture.reads.push(("maker", "lacking"));
    let (mut harness, _) = start(&fixture);
    let missing = harness.engine.missing_data(harness.workflow()).unwrap();
    assert_eq!(missing, [("lacking".to_owned(), "maker".to_owned())], "`made` is still to be written");
    write(&mut harness, "lacking", json!(0), None).unwrap();
    assert_eq!(harness.engine.missing_data(harness.workflow()).unwrap(), []);
}
