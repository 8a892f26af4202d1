//! Reads, checks and completes the documents of a command line. It reports the problems of all files at once.

mod report;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use torc_api::document::{Document, SlurmClusterDocument, WorkflowDocument};
use torc_api::job::JobSpec;
use torc_api::load::{Format, LoadOptions, Loaded, Positions, load};
use torc_api::problem::{Problem, ProblemKind};
use torc_api::workflow::WorkflowSpec;
use torc_core::expand::{self, ExpansionLimits};
use torc_core::expanded::Expanded;

pub use report::ProblemReport;

use crate::error::CliError;

/// The documents of some files.
#[derive(Debug, Default)]
pub struct Documents {
    pub workflows: Vec<LoadedWorkflow>,
    pub clusters: Vec<SlurmClusterDocument>,
}

impl From<Vec<LoadedWorkflow>> for Documents {
    fn from(workflows: Vec<LoadedWorkflow>) -> Self {
        Self { workflows, clusters: Vec::new() }
    }
}

impl Documents {
    /// Returns the specifications of the workflows.
    pub fn specs(&self) -> impl Iterator<Item = &WorkflowSpec> {
        self.workflows.iter().map(|workflow| &workflow.document.spec)
    }
}

/// A workflow with the positions of its fields in the file.
#[derive(Debug)]
pub struct LoadedWorkflow {
    /// The file, for messages.
    pub file: String,
    /// The document, with its tables embedded.
    pub document: WorkflowDocument,
    positions: Positions,
    /// Fields with errors; empty for a usable document.
    wrong: Vec<String>,
}

impl LoadedWorkflow {
    pub fn name(&self) -> &str {
        &self.document.metadata.name
    }

    /// Expands the workflow into jobs.
    pub fn expand(&self, limits: &ExpansionLimits) -> Result<Expanded, Vec<Problem>> {
        expand::expand(&self.document.spec, limits)
    }

    /// Adds the positions of fields to problems, and the spelling of the fields in the file.
    pub fn locate(&self, mut problems: Vec<Problem>) -> Vec<Problem> {
        for problem in &mut problems {
            if problem.position.is_none() {
                problem.position = self.positions.of(&problem.field);
                problem.field = self.positions.as_written(&problem.field);
            }
        }
        problems
    }
}

/// Reads files, folders and `-`. The report contains all problems; the workflows are complete only if it has no errors.
pub fn read(paths: &[PathBuf], namespace: Option<&str>) -> Result<(Vec<LoadedWorkflow>, ProblemReport), CliError> {
    let mut workflows: Vec<LoadedWorkflow> = Vec::new();
    let mut invalid: Vec<LoadedWorkflow> = Vec::new();
    let mut report = ProblemReport::default();
    for path in files(paths)? {
        let text = read_text(&path)?;
        let format = Format::from_path(&path.to_string_lossy());
        let loaded = load(&text, format, &load_options(&path));
        invalid.extend(take(loaded, &display(&path), namespace, &mut workflows, &mut report));
    }
    if workflows.is_empty() && !report.has_errors() && !report.has_documents() {
        return Err(CliError::invalid("the files contain no document"));
    }
    if report.has_errors() {
        // The documents are rejected anyway, so all further problems are reported with them.
        for workflow in workflows.iter().chain(&invalid) {
            let problems = expand::further_problems(&workflow.document.spec, &CHECK_LIMITS, &workflow.wrong);
            report.add(&workflow.file, workflow.locate(problems));
        }
    }
    Ok((workflows, report))
}

/// Reads a file that contains only jobs, which may refer to other parts of their workflow.
pub fn read_jobs(path: &Path) -> Result<Vec<JobSpec>, CliError> {
    let mut text = read_text(path)?;
    let format = Format::from_path(&path.to_string_lossy());
    // The loader needs a workflow name; it is not used.
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => text = named_object(&text).unwrap_or(text),
        _ if format == Some(Format::Kdl) => text.extend_from_slice(b"\nname \"spawned\"\n"),
        _ => text.extend_from_slice(b"\nname: spawned\n"),
    }
    let mut loaded = load(&text, format, &LoadOptions::default());
    // An unknown name may be defined in the workflow.
    loaded.problems.retain(|problem| problem.kind != ProblemKind::UnknownReference);
    let mut report = ProblemReport::default();
    report.add(&display(path), loaded.problems);
    report.into_result()?;
    let found = loaded.documents.into_iter().chain(loaded.flawed.into_iter().map(|invalid| invalid.read)).next();
    let mut spec = match found.map(|found| found.document) {
        Some(Document::Workflow(document)) => document.spec,
        _ => {
            let message = format!("{} contains no jobs", display(path));
            return Err(CliError::invalid(message).hint("list them under the key `jobs:`"));
        }
    };
    let mut report = ProblemReport::default();
    report.add(&display(path), expand::embed(&mut spec, &mut read_table));
    report.into_result()?;
    Ok(spec.jobs)
}

fn named_object(text: &[u8]) -> Option<Vec<u8>> {
    let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(text).ok()?;
    object.entry("name").or_insert_with(|| "spawned".into());
    serde_json::to_vec(&object).ok()
}

/// Limits for finding problems. They exceed the limits of stores, which apply later.
const CHECK_LIMITS: ExpansionLimits =
    ExpansionLimits { max_jobs: 10_000_000, max_files: 20_000_000, max_dependencies: 100_000_000 };

/// Reads documents and returns an error with all problems. A single valid document is not expanded here, because the server expands
/// it.
pub fn read_valid(
    paths: &[PathBuf],
    namespace: Option<&str>,
    output: crate::output::Printer,
) -> Result<Documents, CliError> {
    let (workflows, mut report) = read(paths, namespace)?;
    if workflows.len() > 1 && !report.has_errors() {
        // The first document must not be stored if the second is refused.
        for workflow in &workflows {
            let problems = expand::further_problems(&workflow.document.spec, &CHECK_LIMITS, &[]);
            report.add(&workflow.file, workflow.locate(problems));
        }
    }
    report.print_warnings(output);
    let clusters = report.take_clusters();
    report.into_result()?;
    Ok(Documents { workflows, clusters })
}

/// Loads generated text. Positions of problems are lines of this text.
pub fn load_generated(
    text: &str,
    source: &str,
    namespace: Option<&str>,
    output: crate::output::Printer,
) -> Result<Vec<LoadedWorkflow>, CliError> {
    let (mut workflows, mut report) = (Vec::new(), ProblemReport::default());
    let loaded = load(text.as_bytes(), Some(Format::Yaml), &LoadOptions::default());
    take(loaded, source, namespace, &mut workflows, &mut report);
    report.print_warnings(output);
    report.into_result()?;
    Ok(workflows)
}

/// Adds the valid documents of a file to `workflows` and the report; returns those with errors.
fn take(
    loaded: Loaded,
    file: &str,
    namespace: Option<&str>,
    workflows: &mut Vec<LoadedWorkflow>,
    report: &mut ProblemReport,
) -> Vec<LoadedWorkflow> {
    report.add(file, loaded.problems);
    for found in loaded.documents {
        report.count_document();
        match found.document {
            Document::Workflow(document) => {
                let (file_name, wrong) = (file.to_owned(), Vec::new());
                let mut workflow = LoadedWorkflow { file: file_name, document, positions: found.positions, wrong };
                let problems = complete(&mut workflow, namespace, workflows);
                workflow
                    .wrong
                    .extend(problems.iter().filter(|found| found.is_error()).map(|found| found.field.clone()));
                report.add(file, workflow.locate(problems));
                workflows.push(workflow);
            }
            Document::SlurmCluster(cluster) => report.add_cluster(cluster),
        }
    }
    let mut invalid = Vec::new();
    for found in loaded.flawed {
        let Document::Workflow(document) = found.read.document else { continue };
        let (file_name, wrong) = (file.to_owned(), found.wrong);
        let mut workflow = LoadedWorkflow { file: file_name, document, positions: found.read.positions, wrong };
        let problems = expand::embed(&mut workflow.document.spec, &mut read_table);
        workflow.wrong.extend(problems.iter().map(|problem| problem.field.clone()));
        report.add(file, workflow.locate(problems));
        invalid.push(workflow);
    }
    invalid
}

/// Embeds tables, sets the namespace, and checks for a duplicate name.
fn complete(workflow: &mut LoadedWorkflow, namespace: Option<&str>, others: &[LoadedWorkflow]) -> Vec<Problem> {
    let mut problems = expand::embed(&mut workflow.document.spec, &mut read_table);
    let metadata = &mut workflow.document.metadata;
    match (namespace, &metadata.namespace) {
        (Some(wanted), None) => metadata.namespace = Some(wanted.to_owned()),
        (Some(wanted), Some(own)) if wanted != own => {
            let message = format!("the document is for namespace `{own}`, not `{wanted}`");
            problems.push(Problem::error("metadata.namespace", message));
        }
        _ => {}
    }
    let duplicate = others.iter().find(|other| {
        other.document.metadata.name == metadata.name && other.document.metadata.namespace() == metadata.namespace()
    });
    if let Some(duplicate) = duplicate {
        let message = format!("workflow `{}` is also in {}", metadata.name, duplicate.file);
        problems.push(Problem::error("metadata.name", message));
    }
    problems
}

fn read_table(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("could not read '{path}': {error}"))
}

/// Returns the files of the paths; files of a folder are sorted by name.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let found = documents_in(path)
            .map_err(|error| CliError::unexpected(format!("could not read the folder {}", path.display()), error))?;
        if found.is_empty() {
            let message = format!("the folder {} contains no .yaml, .yml, .json, .json5 or .kdl file", path.display());
            return Err(CliError::invalid(message));
        }
        files.extend(found);
    }
    Ok(files)
}

fn documents_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() && Format::from_path(&path.to_string_lossy()).is_some() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the options for loading a file. The file name is the default name of a bare document.
pub fn load_options(path: &Path) -> LoadOptions {
    let stem = path.file_stem().filter(|_| !is_stdin(path)).map(|stem| stem.to_string_lossy().into_owned());
    LoadOptions { default_name: stem, ..LoadOptions::default() }
}

fn display(path: &Path) -> String {
    if is_stdin(path) { "<stdin>".to_owned() } else { path.display().to_string() }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Reads a file up to one byte beyond the size limit, so that the loader can detect that it is too large.
pub fn read_text(path: &Path) -> Result<Vec<u8>, CliError> {
    let limit = u64::try_from(LoadOptions::default().max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = Vec::new();
    let result = if is_stdin(path) {
        std::io::stdin().lock().take(limit).read_to_end(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut text))
    };
    match result {
        Ok(_) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(CliError::not_found(format!("file {} does not exist", path.display())))
        }
        Err(error) => Err(CliError::unexpected(format!("could not read {}", display(path)), error)),
    }
}

#[cfg(test)]
mod tests;
