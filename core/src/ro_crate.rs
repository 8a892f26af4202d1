//! Provenance as an RO-Crate: the runs, their machines and their files, as JSON-LD. Created from the rows on request
//! and never stored.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use torc_api::api::Workflow;
use torc_api::state::JobState;
use torc_api::wire::RunnerKind;

use crate::expanded::ExpandedFile;
use crate::ids::{JobId, RunnerId};
use crate::rows::{FileRow, JobProfile, ResultRow, RunnerRow};
use crate::time::rfc3339;

/// The file name that the RO-Crate specification requires.
pub const FILE_NAME: &str = "ro-crate-metadata.json";
const WORKFLOW: &str = "#torc-workflow";

/// The input of a crate.
#[derive(Debug)]
pub struct CrateInput<'a> {
    /// The workflow, with its document.
    pub workflow: &'a Workflow,
    /// Files that the document declares.
    pub declared: &'a [ExpandedFile],
    /// The profiles of its jobs, by job number.
    pub jobs: &'a BTreeMap<JobId, JobProfile>,
    /// Attempts that ended with the names of their jobs, sorted by job, run and attempt.
    pub attempts: &'a [(ResultRow, String)],
    /// The runners of the attempts.
    pub runners: &'a [RunnerRow],
    /// Files as jobs saw them.
    pub files: &'a [FileRow],
}

/// Returns the JSON-LD document of the crate.
pub fn ro_crate(source: &CrateInput<'_>) -> Value {
    let files = FileEntities::of(source);
    let mut graph = vec![descriptor(), root(source, &files), workflow(source), language(), author(source)];
    let runs: BTreeSet<i32> = source.attempts.iter().map(|(row, _)| row.run).collect();
    for run in &runs {
        let rows: Vec<&ResultRow> = source.attempts.iter().map(|(row, _)| row).filter(|row| row.run == *run).collect();
        graph.extend(software(source, *run, &rows));
        graph.push(run_action(source, *run, &rows, &files));
    }
    graph.extend(source.attempts.iter().map(|(row, name)| attempt(source, row, name, &files)));
    graph.extend(files.entities);
    json!({
        "@context": ["https://w3id.org/ro/crate/1.1/context", { "sha256": "http://schema.org/sha256" }],
        "@graph": graph,
    })
}

fn link(id: impl AsRef<str>) -> Value {
    json!({ "@id": id.as_ref() })
}

fn descriptor() -> Value {
    json!({
        "@id": FILE_NAME,
        "@type": "CreativeWork",
        "conformsTo": link("https://w3id.org/ro/crate/1.1"),
        "about": link("./"),
    })
}

fn root(source: &CrateInput<'_>, files: &FileEntities) -> Value {
    let workflow = source.workflow;
    let spec = workflow.document.as_ref().map(|document| &document.spec);
    let said = |key: &str| spec?.metadata.as_ref()?.get(key).cloned();
    let description = spec.and_then(|spec| spec.description.clone());
    let ended = workflow.status.completion_time.clone();
    let actions = source.attempts.iter().map(|(row, _)| row.run).collect::<BTreeSet<_>>();
    let mentions = actions.into_iter().map(run_id).chain(source.attempts.iter().map(|(row, _)| attempt_id(row)));
    json!({
        "@id": "./",
        "@type": "Dataset",
        "name": spec.and_then(|spec| spec.display_name.clone()).unwrap_or_else(|| workflow.name.clone()),
        "description": description.unwrap_or_else(|| format!("Files and runs of the Torc workflow {}", workflow.name)),
        "datePublished": ended.unwrap_or_else(|| workflow.creation_time.clone()),
        "license": said("license").unwrap_or_else(|| json!("not specified")),
        "author": link(author_id(source)),
        "mainEntity": link(WORKFLOW),
        "hasPart": files.entities.iter().map(|file| json!({ "@id": file["@id"] })).collect::<Vec<_>>(),
        "mentions": mentions.map(link).collect::<Vec<_>>(),
    })
}

fn workflow(source: &CrateInput<'_>) -> Value {
    let workflow = source.workflow;
    let digest = workflow.status.plan.as_ref().map(|plan| plan.digest.clone());
    without_nulls(json!({
        "@id": WORKFLOW,
        "@type": ["SoftwareSourceCode", "ComputationalWorkflow"],
        "name": workflow.name,
        "description": workflow.document.as_ref().and_then(|document| document.spec.description.clone()),
        "version": workflow.generation.to_string(),
        "identifier": digest,
        "dateCreated": workflow.creation_time,
        "creator": link(author_id(source)),
        "programmingLanguage": link("#torc"),
    }))
}

fn language() -> Value {
    json!({ "@id": "#torc", "@type": "ComputerLanguage", "name": "Torc workflow document", "identifier": torc_api::API_VERSION })
}

fn author_id(source: &CrateInput<'_>) -> String {
    format!("#person-{}", escaped(&source.workflow.owner))
}

fn author(source: &CrateInput<'_>) -> Value {
    json!({ "@id": author_id(source), "@type": "Person", "name": source.workflow.owner })
}

fn run_id(run: i32) -> String {
    format!("#torc-run-id-{run}")
}

/// Returns the ID of an attempt. Attempts are counted from 1 in every run, so IDs of later runs contain the run.
fn attempt_id(row: &ResultRow) -> String {
    let id = format!("#job-{}-attempt-{}", row.job, row.attempt);
    if row.run > 1 { format!("{id}-run-id-{}", row.run) } else { id }
}

fn program(runner: &RunnerRow) -> &'static str {
    match runner.kind {
        RunnerKind::Slurm => "torc-slurm-job-runner",
        RunnerKind::Local | RunnerKind::Remote | RunnerKind::Pod => "torc",
    }
}

fn software_id(program: &str, run: i32) -> String {
    format!("#software-{program}-run-id-{run}")
}

fn runner<'a>(source: &CrateInput<'a>, id: Option<RunnerId>) -> Option<&'a RunnerRow> {
    id.and_then(|id| source.runners.iter().find(|runner| runner.id == id))
}

/// Returns the programs that ran the jobs of a run, each once, with all versions.
fn software(source: &CrateInput<'_>, run: i32, rows: &[&ResultRow]) -> Vec<Value> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for runner in rows.iter().filter_map(|row| runner(source, row.runner)) {
        versions.entry(program(runner)).or_default().insert(&runner.version);
    }
    let entity = |(program, versions): (&str, BTreeSet<&str>)| {
        json!({
            "@id": software_id(program, run),
            "@type": "SoftwareApplication",
            "name": program,
            "softwareVersion": versions.into_iter().collect::<Vec<_>>().join(", "),
        })
    };
    versions.into_iter().map(entity).collect()
}

fn run_action(source: &CrateInput<'_>, run: i32, rows: &[&ResultRow], files: &FileEntities) -> Value {
    let current = source.workflow.status.run_id == Some(run);
    let open = current && source.workflow.status.completion_time.is_none();
    let last: BTreeMap<JobId, &ResultRow> = rows.iter().map(|row| (row.job, *row)).collect();
    let status = match last.values().all(|row| row.state == JobState::Completed) {
        _ if open => "ActiveActionStatus",
        true => "CompletedActionStatus",
        false => "FailedActionStatus",
    };
    let end = rows.iter().map(|row| row.ended_ms).max().filter(|_| !open);
    let (read, written) = files.of_run(source, rows);
    without_nulls(json!({
        "@id": run_id(run),
        "@type": "CreateAction",
        "name": format!("Run {run} of workflow {}", source.workflow.name),
        "instrument": link(WORKFLOW),
        "agent": link(author_id(source)),
        "object": links(read),
        "result": links(written),
        "startTime": rows.iter().map(|row| row.started_ms).min().map(rfc3339),
        "endTime": end.map(rfc3339),
        "actionStatus": format!("http://schema.org/{status}"),
    }))
}

fn attempt(source: &CrateInput<'_>, row: &ResultRow, name: &str, files: &FileEntities) -> Value {
    let succeeded = row.state == JobState::Completed;
    let none = JobProfile::default();
    let profile = source.jobs.get(&row.job).unwrap_or(&none);
    let instrument = runner(source, row.runner).map(|runner| link(software_id(program(runner), row.run)));
    let host = runner(source, row.runner).map(|runner| runner.host.clone());
    let failure = row.cause.map(|cause| match &row.message {
        Some(message) => format!("{cause}: {message} (return code {})", row.return_code),
        None => format!("{cause} (return code {})", row.return_code),
    });
    without_nulls(json!({
        "@id": attempt_id(row),
        "@type": "CreateAction",
        "name": format!("Job {name}, attempt {}", row.attempt),
        "instrument": instrument,
        "agent": link(author_id(source)),
        "location": host,
        "object": links(files.ids(&profile.input_files)),
        "result": if succeeded { links(files.ids(&profile.output_files)) } else { json!([]) },
        "startTime": rfc3339(row.started_ms),
        "endTime": rfc3339(row.ended_ms),
        "actionStatus": format!("http://schema.org/{}", if succeeded { "CompletedActionStatus" } else { "FailedActionStatus" }),
        "error": failure,
    }))
}

fn links(ids: impl IntoIterator<Item = String>) -> Value {
    ids.into_iter().map(link).collect()
}

/// Removes null values and empty lists.
fn without_nulls(value: Value) -> Value {
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !is_empty(value)).collect::<Map<_, _>>().into(),
        other => other,
    }
}

/// The files that jobs saw: their JSON-LD entities, and the IDs of these by path.
struct FileEntities {
    entities: Vec<Value>,
    ids: BTreeMap<String, String>,
}

impl FileEntities {
    fn of(source: &CrateInput<'_>) -> Self {
        let mut latest: BTreeMap<&str, &FileRow> = BTreeMap::new();
        for row in source.files {
            let known = latest.entry(&row.path).or_insert(row);
            if known.seen_ms < row.seen_ms {
                *known = row;
            }
        }
        let declared: BTreeMap<&str, &ExpandedFile> =
            source.declared.iter().map(|file| (file.path.as_str(), file)).collect();
        let mut files = Self { entities: Vec::new(), ids: BTreeMap::new() };
        for (path, row) in latest {
            let declared = declared.get(path);
            let identifier = declared.and_then(|file| file.identifier.clone());
            let id = identifier.clone().unwrap_or_else(|| file_id(path));
            files.ids.insert(path.to_owned(), id.clone());
            files.entities.push(without_nulls(json!({
                "@id": id,
                "@type": "File",
                "name": declared.map_or(path, |file| file.name.as_str()),
                "identifier": identifier,
                "contentSize": row.size_bytes.to_string(),
                "dateModified": rfc3339(row.modified_ms),
                "sha256": row.sha256,
            })));
        }
        files
    }

    fn ids(&self, paths: &[String]) -> Vec<String> {
        paths.iter().filter_map(|path| self.ids.get(path).cloned()).collect()
    }

    /// Returns the files that a run read but did not write, and the files that it wrote.
    fn of_run(&self, source: &CrateInput<'_>, rows: &[&ResultRow]) -> (BTreeSet<String>, BTreeSet<String>) {
        let completed = rows.iter().filter(|row| row.state == JobState::Completed);
        let profiles: Vec<&JobProfile> = completed.filter_map(|row| source.jobs.get(&row.job)).collect();
        let written: BTreeSet<String> = profiles.iter().flat_map(|profile| self.ids(&profile.output_files)).collect();
        let read: BTreeSet<String> = profiles.iter().flat_map(|profile| self.ids(&profile.input_files)).collect();
        (read.difference(&written).cloned().collect(), written)
    }
}

/// Returns the identifier of a file: a path relative to the crate, or a URL.
fn file_id(path: &str) -> String {
    let path = escaped(path);
    match path.strip_prefix('/') {
        Some(_) => format!("file://{path}"),
        None => path.strip_prefix("./").unwrap_or(&path).to_owned(),
    }
}

/// Percent-encodes the characters that have a meaning in a URL.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests;
