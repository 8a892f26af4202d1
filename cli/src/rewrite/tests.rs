#![allow(clippy::unwrap_used)]

use torc_api::action::{Action, ActionType, TriggerType};
use torc_api::resources::SlurmScheduler;

use super::*;

/// Writes a scheduler, an action and the first job's scheduler into a text.
fn written(text: &str, format: Format) -> Result<String, Box<EditError>> {
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
    rewrite(text, format, found, &wanted, &LoadOptions::default())
}

#[test]
fn yaml_keeps_comments_and_order() {
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
fn yaml_with_an_envelope_keeps_other_documents() {
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
fn json_and_json5_keep_comments_and_style() {
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
fn kdl_keeps_comments() {
    let text = "// mine\nname \"w\"\njob \"a\" {\n    command \"x\"\n}\njob \"b\" {\n    command \"y\"\n}\n";
    let found = written(text, Format::Kdl).unwrap();
    assert!(found.starts_with("// mine\nname \"w\"\nslurm_scheduler \"p_scheduler\" {\n"), "{found}");
    assert!(found.contains("job \"a\" {\n    scheduler \"p_scheduler\"\n    command"), "{found}");
}

#[test]
fn jobs_in_flow_style_stay_in_flow_style() {
    let text = "\
# mine
name: w

# the work
jobs:
  - {name: a, command: \"echo , }\"}  # first
  # between
  - {command: y, name: 'b'}
";
    let found = written(text, Format::Yaml).unwrap();
    assert!(
        found.contains("  - {name: a, scheduler: p_scheduler, command: \"echo , }\"}  # first\n  # between\n"),
        "{found}"
    );
    assert!(found.contains("  scheduler_type: slurm\n  trigger_type: on_jobs_ready\n# the work\njobs:\n"), "{found}");
    assert!(found.starts_with("# mine\nname: w\n\nslurm_schedulers:\n"), "{found}");
    assert_eq!(written(&found, Format::Yaml).unwrap(), found, "the same again changes nothing");
}

#[test]
fn a_document_in_flow_style_stays_in_flow_style() {
    let line = "{name: w, jobs: [{name: a, command: x}, {name: b, command: y}]}  # mine\n";
    let found = written(line, Format::Yaml).unwrap();
    assert_eq!(
        found,
        "{name: w, slurm_schedulers: [{account: a, name: p_scheduler, ntasks_per_node: 2}], actions: [{action_type: \
         schedule_nodes, jobs: [a, b], num_allocations: 3, scheduler: p_scheduler, scheduler_type: slurm, trigger_type: \
         on_jobs_ready}], jobs: [{name: a, scheduler: p_scheduler, command: x}, {name: b, command: y}]}  # mine\n"
    );
    assert_eq!(written(&found, Format::Yaml).unwrap(), found, "the same again changes nothing");
    let envelope = "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: {\n  # the work\n  \
        jobs: [{name: a, command: x}, {name: b, command: y}],\n  actions: [],\n  }\n";
    let found = written(envelope, Format::Yaml).unwrap();
    assert!(
        found.contains("  # the work\n  slurmSchedulers: [{") && found.contains("  actions: [{actionType"),
        "{found}"
    );
}

#[test]
fn lists_in_flow_style_are_replaced_in_place() {
    let text = "\
name: w
slurm_schedulers: [{name: old, account: a}]  # old
actions: [
  {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: old},
  ]
jobs:
- {name: a, command: x, scheduler: old}
- {name: b, command: y}
";
    let found = written(text, Format::Yaml).unwrap();
    assert!(!found.contains("old") && found.contains("- {name: a, command: x, scheduler: p_scheduler}\n"), "{found}");
}

#[test]
fn a_job_with_a_merge_key_gets_a_scheduler_of_its_own() {
    let text = "name: w\njobs:\n- <<: &base {command: y}\n  name: a\n- {<<: *base, name: b}\n";
    let found = written(text, Format::Yaml).unwrap();
    assert!(found.contains("- <<: &base {command: y}\n  name: a\n  scheduler: p_scheduler\n- {<<"), "{found}");
}

#[test]
fn a_removed_scheduler_leaves_no_empty_line() {
    let taken = |text: &str, format: Format| {
        let loaded = load(text.as_bytes(), Some(format), &LoadOptions::default());
        assert!(!loaded.has_errors(), "{:?}", loaded.problems);
        let found = &loaded.documents[0];
        let Document::Workflow(document) = &found.document else { unreachable!() };
        let mut wanted = document.spec.clone();
        wanted.jobs[0].scheduler = None;
        rewrite(text, format, found, &wanted, &LoadOptions::default()).unwrap()
    };
    let head = "name: w\nslurm_schedulers:\n- {name: s, account: a}\njobs:\n";
    for (before, after) in [
        ("- name: a\n  scheduler: s\n  command: x\n", "- name: a\n  command: x\n"),
        ("- scheduler: s\n  name: a\n  command: x\n", "- scheduler: null\n  name: a\n  command: x\n"),
        ("- {name: a, scheduler: s, command: x}\n", "- {name: a, scheduler: null, command: x}\n"),
    ] {
        let found = taken(&format!("{head}{before}"), Format::Yaml);
        assert!(found.ends_with(&format!("jobs:\n{after}")), "{found}");
    }
}

#[test]
fn kdl_replaces_nodes_and_properties() {
    let text = "// mine\nname \"w\"\nslurm_scheduler \"old\" account=\"}\" {\n    nodes 1\n}\n// kept\naction {\n    \
        trigger_type \"on_workflow_start\"\n    action_type \"schedule_nodes\"\n    scheduler \"old\"\n}\njob \"a\" \
        command=\"x\" scheduler=\"old\"\njob \"b\" command=\"y\"\n";
    let found = written(text, Format::Kdl).unwrap();
    assert!(!found.contains("old") && found.contains("// kept\n"), "{found}");
    assert!(found.contains("job \"a\" command=\"x\" scheduler=\"p_scheduler\"\n"), "{found}");
    let fresh = written("name \"w\"\njob \"a\" command=\"x\"\njob \"b\" command=\"y\"\n", Format::Kdl).unwrap();
    assert!(fresh.contains("job \"a\" scheduler=\"p_scheduler\" command=\"x\"\n"), "{fresh}");
}

#[test]
fn an_obstacle_has_a_position_and_a_hint() {
    let alias = "name: w\njobs:\n- *a\n- {name: b, command: y}\n";
    let anchored = format!("x: &a {{name: a, command: x}}\n{alias}");
    let obstacle = written(&anchored, Format::Yaml).unwrap_err();
    assert_eq!(obstacle.position.map(|at| at.line), Some(4), "{obstacle:?}");
    assert!(obstacle.reason.contains("job 'a' is an alias") && !obstacle.hint.is_empty(), "{obstacle:?}");
    let list = "x: &all [{name: a, command: x}, {name: b, command: y}]\nname: w\njobs: *all\n";
    let obstacle = written(list, Format::Yaml).unwrap_err();
    assert_eq!(obstacle.position.map(|at| at.line), Some(3), "{obstacle:?}");
}
