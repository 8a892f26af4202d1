//! Detects the form of a document, and wraps a bare one in an envelope.

use super::bounded::BoundedProblems;
use super::check::{Dialect, check};
use super::path::{PathStep, steps};
use super::positions::Positions;
use super::tree::{Entry, Node, NodeKind};
use super::{InvalidDocument, LoadOptions, LoadedDocument, slug};
use crate::document::Document;
use crate::nearest::nearest;
use crate::problem::{Position, Problem};
use crate::schema::{BARE, CLUSTER, RecordSchema, WORKFLOW, camel_case};
use crate::validate;
use crate::{API_VERSION, GROUP};

const WORKFLOW_KIND: &str = "Workflow";
const CLUSTER_KIND: &str = "SlurmCluster";

/// The result for one document of a file.
pub(super) struct InterpretedDocument {
    pub document: Option<LoadedDocument>,
    pub flawed: Option<InvalidDocument>,
    pub problems: BoundedProblems,
}

/// Checks one document and converts it to its types.
pub(super) fn interpret(mut root: Node, options: &LoadOptions) -> InterpretedDocument {
    let most = options.max_problems;
    if !matches!(root.kind, NodeKind::Map(_)) {
        let message = format!("expected a mapping at the top of the document, found {}", root.describe());
        return refused(Problem::error("", message), root.position, most);
    }
    let keys = ["apiVersion", "kind", "spec"];
    if !keys.iter().any(|key| root.get(key).is_some()) {
        let named = options.default_name.as_deref().and_then(|name| set_missing_name(&mut root, name));
        let mut problems = check(&mut root, &BARE, Dialect::Bare, most);
        named.into_iter().for_each(|warning| problems.add(warning));
        return typed(wrap(root), Dialect::Bare, problems);
    }
    match record_of(&mut root) {
        Ok(record) => {
            let problems = check(&mut root, record, Dialect::Envelope, most);
            typed(root, Dialect::Envelope, problems)
        }
        Err((problem, position)) => refused(problem, position, most),
    }
}

/// Names a bare workflow that has no name. Returns the warning about it; none if nothing was changed.
fn set_missing_name(root: &mut Node, name: &str) -> Option<Problem> {
    let position = root.position;
    let NodeKind::Map(entries) = &mut root.kind else { return None };
    let has = |key: &str| entries.iter().any(|entry| &*entry.key == key && !entry.node.is_null());
    if has("name") || !has("jobs") {
        return None;
    }
    entries.retain(|entry| &*entry.key != "name");
    entries.push(Entry::new("name", position, Node::text(position, name)));
    let message = format!("the document has no `name`: the workflow is called `{}`, after its file", slug::slug(name));
    let hint = "add `name:` so that it stays the same workflow when the file is renamed";
    Some(Problem { position: Some(position), ..Problem::warning("name", message).hint(hint) })
}

fn refused(mut problem: Problem, position: Position, most: usize) -> InterpretedDocument {
    problem.position = Some(position);
    let mut problems = BoundedProblems::new(most);
    problems.add(problem);
    InterpretedDocument { document: None, flawed: None, problems }
}

/// Returns the schema that `apiVersion` and `kind` name. A document without `kind` is checked as a workflow, so that
/// its other problems are reported, too.
fn record_of(root: &mut Node) -> Result<&'static RecordSchema, (Problem, Position)> {
    let place_of = |key: &str| root.get(key).map_or(root.position, |node| node.position);
    let version = root.get("apiVersion").and_then(Node::as_text);
    if let Some(version) = version.filter(|version| *version != API_VERSION) {
        let ours = version.split('/').next() == Some(GROUP);
        let problem = if ours {
            Problem::error("apiVersion", format!("unknown API version '{version}'"))
                .hint(format!("write {API_VERSION}"))
        } else {
            Problem::warning(
                "apiVersion",
                format!("the API version '{version}' is not Torc's, so the document is ignored"),
            )
        };
        return Err((problem, place_of("apiVersion")));
    }
    match root.get("kind").and_then(Node::as_text) {
        Some(CLUSTER_KIND) => Ok(&CLUSTER),
        None | Some(WORKFLOW_KIND) => Ok(&WORKFLOW),
        Some(other) => {
            let kinds = [WORKFLOW_KIND, CLUSTER_KIND];
            let problem = Problem::error("kind", format!("'{other}' is not one of {}", kinds.join(", ")));
            let problem = match nearest(other, kinds.into_iter()) {
                Some(kind) => problem.hint(format!("did you mean `{kind}`?")),
                None => problem,
            };
            Err((problem, place_of("kind")))
        }
    }
}

/// Wraps a bare specification, whose keys have their real names by now, in an envelope.
fn wrap(mut root: Node) -> Node {
    let position = root.position;
    let mut metadata = Vec::new();
    if let NodeKind::Map(entries) = &mut root.kind
        && let Some(at) = entries.iter().position(|entry| &*entry.key == "name")
    {
        let mut name = entries.remove(at);
        if let NodeKind::Text(written) = &name.node.kind {
            let slug = slug::slug(written);
            if slug != *written && entries.iter().all(|entry| &*entry.key != "displayName") {
                entries.push(Entry::new("displayName", name.position, name.node.clone()));
            }
            name.node.kind = NodeKind::Text(slug);
        }
        metadata.push(name);
    }
    let entry = |key: &str, node: Node| Entry::new(key, position, node);
    let envelope = vec![
        entry("apiVersion", Node::text(position, API_VERSION)),
        entry("kind", Node::text(position, WORKFLOW_KIND)),
        entry("metadata", Node::new(position, NodeKind::Map(metadata))),
        entry("spec", root),
    ];
    Node::new(position, NodeKind::Map(envelope))
}

/// Converts a checked document to its types and applies the rules that a schema cannot express.
fn typed(mut root: Node, dialect: Dialect, mut problems: BoundedProblems) -> InterpretedDocument {
    let bare = dialect == Dialect::Bare;
    let position = root.position;
    let document = match to_document(&mut root) {
        Ok(document) => document,
        Err(error) => {
            if problems.errors().is_empty() {
                problems.add(Problem { position: Some(position), ..Problem::error("", error.to_string()) });
            }
            return InterpretedDocument { document: None, flawed: None, problems };
        }
    };
    let positions = Positions::new(root, bare);
    let wrong: Vec<String> = problems.errors().iter().map(|problem| problem.field.clone()).collect();
    for finding in validate::findings(&document) {
        let mut problem = finding.in_dialect(bare);
        problem.position = positions.of(&problem.field);
        problem.field = positions.as_written(&problem.field);
        if !wrong.iter().any(|field| is_within(&problem.field, field)) {
            problems.add(problem);
        }
    }
    let read = LoadedDocument { document, bare, positions };
    if problems.errors().is_empty() {
        return InterpretedDocument { document: Some(read), flawed: None, problems };
    }
    let wrong = problems.errors().iter().map(|problem| in_envelope(&problem.field, bare)).collect();
    // Without all wrong fields, consequences cannot be distinguished from causes.
    let flawed = problems.is_complete().then_some(InvalidDocument { read, wrong });
    InterpretedDocument { document: None, flawed, problems }
}

/// Returns the name of a field in the envelope: `spec.jobs[0].dependsOn` for `jobs[0].depends_on` of a bare file.
fn in_envelope(field: &str, bare: bool) -> String {
    if !bare {
        return field.to_owned();
    }
    if field == "name" {
        return "metadata.name".to_owned();
    }
    let mut name = "spec".to_owned();
    for step in steps(field) {
        match step {
            PathStep::Item(index) => name.push_str(&format!("[{index}]")),
            PathStep::Key(key) => name.push_str(&format!(".{}", camel_case(key))),
        }
    }
    name
}

fn to_document(root: &mut Node) -> Result<Document, serde_json::Error> {
    let kind = root.get("kind").and_then(Node::as_text).map(str::to_owned);
    match kind.as_deref() {
        Some(CLUSTER_KIND) => serde::Deserialize::deserialize(root).map(Document::SlurmCluster),
        _ => serde::Deserialize::deserialize(root).map(Document::Workflow),
    }
}

/// Returns whether a field is `wrong` or part of it, so that its problem is reported already.
fn is_within(field: &str, wrong: &str) -> bool {
    field.strip_prefix(wrong).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
