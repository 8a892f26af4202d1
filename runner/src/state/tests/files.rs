//! Files that jobs read and write.

use super::*;

fn seen(path: &str) -> FileStat {
    FileStat { path: path.to_owned(), size_bytes: 3, modified_ms: 7, sha256: None }
}

fn reader() -> AgentHarness {
    let mut desk = AgentHarness::new(1);
    desk.profile.input_files = vec!["in".to_owned()];
    desk.profile.output_files = vec!["out".to_owned()];
    desk.profile.working_dir = "/work".to_owned();
    desk
}

fn looks(desk: &AgentHarness) -> Vec<(i64, InputCheck)> {
    let look = |effect: &Effect| match effect {
        Effect::CheckInputs(key, look) => Some((key.job, (**look).clone())),
        _ => None,
    };
    desk.effects.iter().filter_map(look).collect()
}

#[test]
fn a_job_starts_when_what_it_reads_was_found() {
    let mut desk = reader();
    desk.answer([1]);
    let look = InputCheck { working_dir: "/work".into(), files: vec!["in".to_owned()], hash_large_files: false };
    assert_eq!((looks(&desk), desk.starts()), (vec![(1, look)], vec![]));
    desk.later(Duration::from_secs(5));
    assert_eq!(desk.starts(), [0; 0], "whoever looks has not come back");
    desk.handle(Event::InputsChecked(key(1), Ok(vec![seen("in")])));
    assert_eq!(desk.starts(), [1]);
    let at = desk.now;
    desk.handle(Event::Ended(Box::new(ended(1, Outcome::Exited(0), at))));
    let Some(Effect::CheckOutputs(_, check)) =
        desk.effects.iter().find(|effect| matches!(effect, Effect::CheckOutputs(..)))
    else {
        panic!("no check in {:?}", desk.effects)
    };
    assert_eq!((check.inputs.as_slice(), check.forgotten_inputs.len()), ([seen("in")].as_slice(), 0));
    let files = vec![seen("in"), seen("out")];
    desk.answer([]);
    desk.handle(Event::OutputsChecked(key(1), Findings { files: files.clone(), ..Findings::default() }));
    if !desk.has_sync() {
        desk.until_due();
    }
    assert_eq!(desk.sync().finished[0].files, files);
}

#[test]
fn a_workflow_without_a_folder_runs_where_the_runner_is() {
    let mut desk = reader();
    desk.profile.working_dir = String::new();
    desk.answer([1]);
    let folders: Vec<_> = looks(&desk).into_iter().map(|(_, look)| look.working_dir).collect();
    assert_eq!(folders, [PathBuf::from("/here")]);
}

#[test]
fn a_job_without_its_input_fails_before_it_starts() {
    let mut desk = reader();
    desk.answer([1]);
    desk.handle(Event::InputsChecked(key(1), Err("in".to_owned())));
    assert_eq!(desk.starts(), [0; 0]);
    let finished = &desk.sync().finished[0];
    assert_eq!((finished.return_code, finished.cause), (126, Some(Cause::StartFailed)));
    assert_eq!(finished.message.as_deref(), Some("the input file in does not exist"));
    assert!(desk.state.jobs.is_empty() && desk.state.jobs.queue().len() == 0);
}

#[test]
fn a_look_that_comes_back_too_late_changes_nothing() {
    let mut desk = reader();
    desk.answer([1]);
    desk.handle(Event::Stop);
    desk.handle(Event::InputsChecked(key(1), Err("in".to_owned())));
    assert_eq!((desk.starts(), desk.state.reports.len()), (vec![], 0), "it was given back");
}

#[test]
fn what_an_earlier_agent_found_is_looked_up_at_the_end() {
    let mut desk = AgentHarness::new(1);
    let template = crate::protocol::StartTemplate { input_files: vec!["in".to_owned()], ..Default::default() };
    let held = ShimJob { template, ..shim_job(1, desk.now) };
    desk.handle(Event::Adopted(Box::new(held)));
    let at = desk.now;
    desk.handle(Event::Ended(Box::new(ended(1, Outcome::Exited(0), at))));
    let forgotten = desk.effects.iter().find_map(|effect| match effect {
        Effect::CheckOutputs(_, check) => Some(check.forgotten_inputs.clone()),
        _ => None,
    });
    assert_eq!(forgotten, Some(vec!["in".to_owned()]));
}

#[test]
fn a_job_without_files_is_not_looked_after() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1]);
    assert_eq!((looks(&desk).len(), desk.starts()), (0, vec![1]));
    let at = desk.now;
    desk.handle(Event::Ended(Box::new(ended(1, Outcome::Exited(0), at))));
    assert!(!desk.effects.iter().any(|effect| matches!(effect, Effect::CheckOutputs(..))));
}
