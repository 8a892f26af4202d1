//! Files that jobs read and write.

use super::*;

fn seen(path: &str) -> FileStat {
    FileStat { path: path.to_owned(), size_bytes: 3, modified_ms: 7, sha256: None }
}

fn reader() -> AgentHarness {
    let mut agent = AgentHarness::new(1);
    agent.profile.input_files = vec!["in".to_owned()];
    agent.profile.output_files = vec!["out".to_owned()];
    agent.profile.working_dir = "/work".to_owned();
    agent
}

fn looks(agent: &AgentHarness) -> Vec<(i64, InputCheck)> {
    let look = |effect: &Effect| match effect {
        Effect::CheckInputs(key, look) => Some((key.job, (**look).clone())),
        _ => None,
    };
    agent.effects.iter().filter_map(look).collect()
}

#[test]
fn a_job_starts_when_what_it_reads_was_found() {
    let mut agent = reader();
    agent.answer([1]);
    let look = InputCheck { working_dir: "/work".into(), files: vec!["in".to_owned()], hash_large_files: false };
    assert_eq!((looks(&agent), agent.starts()), (vec![(1, look)], vec![]));
    agent.later(Duration::from_secs(5));
    assert_eq!(agent.starts(), [0; 0], "the check has not ended");
    agent.handle(AgentEvent::InputsChecked(key(1), Ok(vec![seen("in")])));
    assert_eq!(agent.starts(), [1]);
    let at = agent.now;
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Exited(0), at))));
    let Some(Effect::CheckOutputs(_, check)) =
        agent.effects.iter().find(|effect| matches!(effect, Effect::CheckOutputs(..)))
    else {
        panic!("no check in {:?}", agent.effects)
    };
    assert_eq!((check.inputs.as_slice(), check.forgotten_inputs.len()), ([seen("in")].as_slice(), 0));
    let files = vec![seen("in"), seen("out")];
    agent.answer([]);
    agent.handle(AgentEvent::OutputsChecked(
        key(1),
        OutputFindings { files: files.clone(), ..OutputFindings::default() },
    ));
    if !agent.has_sync() {
        agent.until_due();
    }
    assert_eq!(agent.sync().finished[0].files, files);
}

#[test]
fn a_workflow_without_a_folder_runs_where_the_runner_is() {
    let mut agent = reader();
    agent.profile.working_dir = String::new();
    agent.answer([1]);
    let folders: Vec<_> = looks(&agent).into_iter().map(|(_, look)| look.working_dir).collect();
    assert_eq!(folders, [PathBuf::from("/here")]);
}

#[test]
fn a_job_without_its_input_fails_before_it_starts() {
    let mut agent = reader();
    agent.answer([1]);
    agent.handle(AgentEvent::InputsChecked(key(1), Err("in".to_owned())));
    assert_eq!(agent.starts(), [0; 0]);
    let finished = &agent.sync().finished[0];
    assert_eq!((finished.return_code, finished.cause), (126, Some(Cause::StartFailed)));
    assert_eq!(finished.message.as_deref(), Some("input file in does not exist"));
    assert!(agent.state.jobs.is_empty() && agent.state.jobs.queue().len() == 0);
}

#[test]
fn a_look_that_comes_back_too_late_changes_nothing() {
    let mut agent = reader();
    agent.answer([1]);
    agent.handle(AgentEvent::Stop);
    agent.handle(AgentEvent::InputsChecked(key(1), Err("in".to_owned())));
    assert_eq!((agent.starts(), agent.state.reports.len()), (vec![], 0), "it was given back");
}

#[test]
fn what_an_earlier_agent_found_is_looked_up_at_the_end() {
    let mut agent = AgentHarness::new(1);
    let template = StartTemplate { input_files: vec!["in".to_owned()], ..Default::default() };
    let held = ShimJob { template, ..shim_job(1, agent.now) };
    agent.handle(AgentEvent::Adopted(Box::new(held)));
    let at = agent.now;
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Exited(0), at))));
    let forgotten = agent.effects.iter().find_map(|effect| match effect {
        Effect::CheckOutputs(_, check) => Some(check.forgotten_inputs.clone()),
        _ => None,
    });
    assert_eq!(forgotten, Some(vec!["in".to_owned()]));
}

#[test]
fn a_job_without_files_is_not_looked_after() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    assert_eq!((looks(&agent).len(), agent.starts()), (0, vec![1]));
    let at = agent.now;
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Exited(0), at))));
    assert!(!agent.effects.iter().any(|effect| matches!(effect, Effect::CheckOutputs(..))));
}
