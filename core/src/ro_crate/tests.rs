#![allow(clippy::unwrap_used)]

use torc_api::state::Cause;
use torc_api::status::WorkflowStatus;
use torc_api::wire::{Resources, RunnerScope, Usage};

use super::*;
use crate::ids::WorkflowId;

fn result(job: i64, run: i32, attempt: i32, state: JobState) -> ResultRow {
    let failed = state != JobState::Completed;
    ResultRow {
        workflow: WorkflowId(1),
        job: JobId(job),
        run,
        attempt,
        state,
        return_code: i32::from(failed),
        cause: failed.then_some(Cause::ExitCode),
        message: None,
        started_ms: 1_000 * job,
        ended_ms: 1_000 * job + 500,
        runner: Some(RunnerId(1)),
        stdout: None,
        stderr: None,
        usage: Usage::default(),
    }
}

fn runner_row() -> RunnerRow {
    RunnerRow {
        id: RunnerId(1),
        host: "node1".into(),
        pid: 1,
        kind: RunnerKind::Local,
        capacity: Resources::default(),
        max_parallel_jobs: None,
        labels: Vec::new(),
        scope: RunnerScope::All,
        scheduler: None,
        slurm_job_id: None,
        output_dir: String::new(),
        place: String::new(),
        process: None,
        version: "0.1.0".into(),
        started_ms: 0,
        ended_ms: None,
    }
}

fn example() -> Value {
    let file = |job: i64, path: &str, seen_ms: i64| FileRow {
        job: JobId(job),
        path: path.into(),
        size_bytes: 3,
        modified_ms: 5,
        sha256: Some(format!("hash{seen_ms}")),
        seen_ms,
        ..FileRow::default()
    };
    let profile = |inputs: &[&str], outputs: &[&str]| JobProfile {
        input_files: inputs.iter().map(|path| (*path).to_owned()).collect(),
        output_files: outputs.iter().map(|path| (*path).to_owned()).collect(),
        ..JobProfile::default()
    };
    let workflow = Workflow {
        id: 1,
        name: "w".into(),
        namespace: "default".into(),
        owner: "ada l".into(),
        generation: 2,
        creation_time: "2026-01-01T00:00:00Z".into(),
        working_dir: "/w".into(),
        suspended: false,
        canceled: false,
        slurm_cluster: None,
        enable_ro_crate: true,
        document: None,
        status: WorkflowStatus { run_id: Some(2), ..WorkflowStatus::default() },
    };
    ro_crate(&CrateInput {
        workflow: &workflow,
        declared: &[
            ExpandedFile { name: "raw".into(), path: "/data/raw x.csv".into(), identifier: Some("doi:1".into()) },
            ExpandedFile { name: "mid".into(), path: "./mid.csv".into(), identifier: None },
        ],
        jobs: &BTreeMap::from([
            (JobId(1), profile(&["/data/raw x.csv"], &["./mid.csv"])),
            (JobId(2), profile(&["./mid.csv", "never"], &["end"])),
        ]),
        attempts: &[
            (result(1, 1, 1, JobState::Failed), "first".into()),
            (result(1, 1, 2, JobState::Completed), "first".into()),
            (result(2, 1, 1, JobState::Completed), "second".into()),
            (result(2, 2, 1, JobState::Completed), "second".into()),
        ],
        runners: &[runner_row()],
        files: &[file(1, "/data/raw x.csv", 1), file(1, "./mid.csv", 2), file(2, "./mid.csv", 9), file(2, "end", 3)],
    })
}

fn entity<'a>(graph: &'a Value, id: &str) -> &'a Value {
    graph["@graph"].as_array().unwrap().iter().find(|entity| entity["@id"] == id).unwrap_or(&Value::Null)
}

/// J10: entities of the run and of the software that ran it.
#[test]
fn a_crate_tells_what_ran_on_what_with_which_files() {
    let graph = example();
    assert_eq!(entity(&graph, FILE_NAME)["about"], link("./"));
    assert_eq!(entity(&graph, "./")["mainEntity"], link(WORKFLOW));
    assert_eq!(entity(&graph, "#software-torc-run-id-1")["softwareVersion"], "0.1.0");
    let run = entity(&graph, "#torc-run-id-1");
    assert_eq!(
        (&run["object"], &run["actionStatus"]),
        (&json!([link("doi:1")]), &json!("http://schema.org/CompletedActionStatus"))
    );
    assert_eq!(run["result"], json!([link("end"), link("mid.csv")]));
    assert_eq!(entity(&graph, "#torc-run-id-2")["actionStatus"], "http://schema.org/ActiveActionStatus");
    let failed = entity(&graph, "#job-1-attempt-1");
    assert_eq!((failed.get("result"), &failed["error"]), (None, &json!("ExitCode (return code 1)")));
    assert_eq!(failed["actionStatus"], "http://schema.org/FailedActionStatus");
    let done = entity(&graph, "#job-1-attempt-2");
    assert_eq!(
        *done,
        json!({
            "@id": "#job-1-attempt-2",
            "@type": "CreateAction",
            "name": "Job first, attempt 2",
            "instrument": { "@id": "#software-torc-run-id-1" },
            "agent": { "@id": "#person-ada%20l" },
            "location": "node1",
            "object": [{ "@id": "doi:1" }],
            "result": [{ "@id": "mid.csv" }],
            "startTime": "1970-01-01T00:00:01.000Z",
            "endTime": "1970-01-01T00:00:01.500Z",
            "actionStatus": "http://schema.org/CompletedActionStatus",
        })
    );
    assert!(entity(&graph, "#job-2-attempt-1-run-id-2").is_object(), "attempts of a later run have names of their own");
    let mid = entity(&graph, "mid.csv");
    assert_eq!((&mid["sha256"], &mid["contentSize"], &mid["name"]), (&json!("hash9"), &json!("3"), &json!("mid")));
    assert_eq!(entity(&graph, "doi:1")["identifier"], "doi:1");
}

#[test]
fn every_reference_leads_somewhere_and_no_name_is_taken_twice() {
    let graph = example();
    let entities = graph["@graph"].as_array().unwrap();
    let ids: BTreeSet<&str> = entities.iter().map(|entity| entity["@id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), entities.len());
    for value in entities.iter().flat_map(|entity| entity.as_object().unwrap().values()) {
        let links = value.as_array().map_or_else(|| vec![value], |list| list.iter().collect());
        for id in links.into_iter().filter_map(|link| link.get("@id")?.as_str()) {
            assert!(ids.contains(id) || id.starts_with("https://"), "{id} leads nowhere");
        }
        assert!(!value.is_null());
    }
}

#[test]
fn paths_become_identifiers() {
    for (path, id) in [("a b.csv", "a%20b.csv"), ("./x/y", "x/y"), ("/abs/é", "file:///abs/%C3%A9"), ("#1", "%231")] {
        assert_eq!(file_id(path), id);
    }
}
