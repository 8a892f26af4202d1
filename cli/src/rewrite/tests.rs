#![allow(clippy::unwrap_used)]

use torc_api::action::{Action, ActionType, TriggerType};
use torc_api::resources::SlurmScheduler;

use super::*;

/// Writes a scheduler, an action and the first job's scheduler into a text.
fn written(text: &str, format: Format) -> Option<String> {
    let loaded = load(text.as_bytes(), Some(format), &LoadOptions::default());
    assert!(!loaded.has_errors(), "{:?}", loaded.problems);
    let is_workflow = |found: &&LoadedDocument| matches!(found.document, Document::Workflow(_));
    let found = loaded.documents.iter().find(is_workflow).unwrap();
    let Document::Workflow(document) = &found.document else { unreachable!() };
    let mut wanted = document.spec.clone();
    wanted.slurm_schedulers = vec![SlurmScheduler {
        name: Some("p_scheduler".to_owned()),
        account: "a".to_owned(),
        ntasks_per_node: Some(2),
        ..SlurmScheduler::default()
    }];
    wanted.actions.retain(|action| action.action_type != ActionType::ScheduleNodes);
    wanted.actions.push(Action {
        trigger_type: TriggerType::OnJobsReady,
        action_type: ActionType::ScheduleNodes,
        jobs: Some(vec!["a".to_owned(), "b".to_owned()]),
        job_name_regexes: None,
        commands: None,
        scheduler: Some("p_scheduler".to_owned()),
        scheduler_type: Some("slurm".to_owned()),
        num_allocations: Some(3),
        start_one_worker_per_node: None,
        max_parallel_jobs: None,
        persistent: None,
    });
    wanted.jobs[0].scheduler = Some("p_scheduler".to_owned());
    rewrite(text, format, found, &wanted)
}

#[test]
fn yaml_keeps_its_comments_and_its_order() {
    let text = "\
# mine
name: w
jobs: # the work
  - name: a   # first
    command: x
  - command: y
    name: b
";
    let expected = "\
# mine
name: w
slurm_schedulers:
- account: a
  name: p_scheduler
  ntasks_per_node: 2
actions:
- action_type: schedule_nodes
  jobs:
  - a
  - b
  num_allocations: 3
  scheduler: p_scheduler
  scheduler_type: slurm
  trigger_type: on_jobs_ready
jobs: # the work
  - name: a   # first
    scheduler: p_scheduler
    command: x
  - command: y
    name: b
";
    assert_eq!(written(text, Format::Yaml).unwrap(), expected);
}

#[test]
fn yaml_with_an_envelope_other_documents_and_what_was_there_before() {
    let text = "\
apiVersion: torc.dev/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  actions:
  - triggerType: on_workflow_start
    actionType: run_commands
    commands: [date]
  - triggerType: on_workflow_start
    actionType: schedule_nodes
    scheduler: old

  # the work
  jobs:
  - name: a
    command: x
    scheduler: old
  - {name: b, command: y}
  slurmSchedulers:
    - name: old
      account: a

---
apiVersion: torc.dev/v1alpha1
kind: SlurmCluster
metadata: {name: c}
spec: {}
";
    let found = written(text, Format::Yaml).unwrap();
    assert!(
        found.contains("\n  # the work\n  jobs:\n  - name: a\n    command: x\n    scheduler: p_scheduler\n"),
        "{found}"
    );
    assert!(found.contains("commands:\n    - date") && found.contains("kind: SlurmCluster"), "{found}");
    assert!(!found.contains("old"), "{found}");
}

#[test]
fn json_and_json5() {
    let text = "{\n  // mine\n  \"name\": \"w\",\n  \"jobs\": [{\"name\": \"a\", \"command\": \"x\"}, {\"name\": \"b\", \"command\": \"y\"}]\n}\n";
    let found = written(text, Format::Json5).unwrap();
    assert!(
        found.contains("// mine") && found.contains("[{\"scheduler\": \"p_scheduler\", \"name\": \"a\""),
        "{found}"
    );
    let again = written(&found, Format::Json5).unwrap();
    assert_eq!(again, found, "the same again changes nothing");
    let line = written(
        "{\"name\": \"w\", \"jobs\": [{\"name\": \"a\", \"command\": \"]\"}, {\"name\": \"b\", \"command\": \"y\"}]}",
        Format::Json,
    );
    assert!(line.unwrap().contains("\"jobs\": [{\"scheduler\""));
}

#[test]
fn kdl() {
    let text = "// mine\nname \"w\"\njob \"a\" {\n    command \"x\"\n}\njob \"b\" {\n    command \"y\"\n}\n";
    let found = written(text, Format::Kdl).unwrap();
    assert!(found.starts_with("// mine\nname \"w\"\nslurm_scheduler \"p_scheduler\" {\n"), "{found}");
    assert!(found.contains("job \"a\" {\n    scheduler \"p_scheduler\"\n    command"), "{found}");
}

#[test]
fn what_cannot_be_edited_is_not_guessed() {
    let flow = "{name: w, jobs: [{name: a, command: x}, {name: b, command: y}]}\n";
    assert_eq!(written(flow, Format::Yaml), None);
}
