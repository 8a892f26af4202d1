//! Writes schedulers and actions into the text of a document, and keeps the rest of the text, including comments.
//!
//! Each format is edited as text. The result is loaded again and only returned if it is the wanted document.

mod json;
mod kdl;
mod yaml;

use serde::Serialize;
use serde_json::Value;
use torc_api::document::Document;
use torc_api::load::{Format, LoadOptions, Loaded, LoadedDocument, load};
use torc_api::problem::Position;
use torc_api::schema::snake_case;
use torc_api::workflow::WorkflowSpec;

/// A reason why a text cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditError {
    pub position: Option<Position>,
    pub reason: String,
    /// A manual change that makes the text editable.
    pub hint: String,
}

/// A text and the wanted specification.
struct EditRequest<'a> {
    text: &'a str,
    found: &'a LoadedDocument,
    before: &'a WorkflowSpec,
    wanted: &'a WorkflowSpec,
}

/// A replacement of a part of the text.
#[derive(Debug, PartialEq, Eq)]
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

/// Returns the text of a file with the wanted schedulers, actions and schedulers of jobs. Editing cannot achieve this
/// for every text; for example, a job that is an alias is an error.
pub fn rewrite(
    text: &str,
    format: Format,
    found: &LoadedDocument,
    wanted: &WorkflowSpec,
    options: &LoadOptions,
) -> Result<String, Box<EditError>> {
    let Document::Workflow(document) = &found.document else {
        return Err(Box::new(obstacle(None, "the document is not a workflow", "name a file with a workflow")));
    };
    let task = EditRequest { text, found, before: &document.spec, wanted };
    let edits = match format {
        Format::Yaml => yaml::edits(&task)?,
        Format::Json | Format::Json5 => json::edits(&task).ok_or_else(|| task.unknown_layout())?,
        Format::Kdl => kdl::edits(&task).ok_or_else(|| task.unknown_layout())?,
    };
    let is_wanted = |edited: &String| {
        let loaded = load(edited.as_bytes(), Some(format), options);
        !loaded.has_errors() && contains(&loaded, &document.metadata.name, wanted)
    };
    apply_edits(text, edits).filter(is_wanted).ok_or_else(|| Box::new(task.unknown_layout()))
}

fn obstacle(position: Option<Position>, reason: &str, hint: &str) -> EditError {
    EditError { position, reason: reason.to_owned(), hint: hint.to_owned() }
}

fn apply_edits(text: &str, mut edits: Vec<Edit>) -> Option<String> {
    // Edits are applied from the end, so that earlier offsets stay valid. The sort is stable: edits at one offset keep their order.
    edits.sort_by_key(|edit| edit.start);
    let mut edited = text.to_owned();
    for edit in edits.iter().rev() {
        edited.get(edit.start..edit.end)?;
        edited.replace_range(edit.start..edit.end, &edit.text);
    }
    Some(edited)
}

fn contains(loaded: &Loaded, name: &str, wanted: &WorkflowSpec) -> bool {
    let is_wanted = |found: &LoadedDocument| matches!(&found.document, Document::Workflow(document) if document.metadata.name == name && document.spec == *wanted);
    loaded.documents.iter().any(is_wanted)
}

impl EditRequest<'_> {
    /// Returns the error of a text whose edited form is another document, e.g. because several parts use an anchor.
    fn unknown_layout(&self) -> EditError {
        let position = self.found.positions.of("spec.jobs");
        let hint = "replace anchors (&), aliases (*) and merge keys (<<) by their content, with one key per line, and run the command again";
        obstacle(position, "the layout of the jobs cannot be edited", hint)
    }

    /// Returns the byte offset of a field.
    fn offset(&self, field: &str) -> Option<usize> {
        offset(self.text, self.found.positions.of(field)?)
    }

    /// Returns a key in the spelling of this document.
    fn key(&self, name: &str) -> String {
        if self.found.bare { snake_case(name) } else { name.to_owned() }
    }

    /// Returns a list with keys in the spelling of this document.
    fn list(&self, list: &impl Serialize) -> Option<Value> {
        let value = serde_json::to_value(list).ok()?;
        Some(if self.found.bare { snake_keys(value) } else { value })
    }

    /// Returns the jobs whose scheduler changes: index, old scheduler, new scheduler.
    fn jobs(&self) -> impl Iterator<Item = (usize, Option<&str>, Option<&str>)> {
        let pairs = self.before.jobs.iter().zip(&self.wanted.jobs).enumerate();
        pairs
            .map(|(index, (before, after))| (index, before.scheduler.as_deref(), after.scheduler.as_deref()))
            .filter(|(_, before, after)| before != after)
    }
}

/// Converts keys to snake case. Schedulers and actions have no keys that users choose.
fn snake_keys(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().map(|(key, value)| (snake_case(&key), snake_keys(value))).collect(),
        Value::Array(items) => items.into_iter().map(snake_keys).collect(),
        other => other,
    }
}

fn offset(text: &str, position: Position) -> Option<usize> {
    let start = line_start(text, position.line as usize)?;
    let line = text.get(start..)?;
    let inside = line.char_indices().nth(position.column.checked_sub(1)? as usize).map(|(at, _)| at)?;
    Some(start + inside)
}

fn line_start(text: &str, line: usize) -> Option<usize> {
    // Positions do not count a byte order mark.
    let mark = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    if line <= 1 {
        return Some(mark);
    }
    text.match_indices('\n').nth(line - 2).map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests;
