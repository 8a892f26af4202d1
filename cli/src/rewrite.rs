//! A document's text with schedulers and actions written into it. Whatever else its author wrote stays as it is, comments too.
//!
//! Each format is edited as text, and the result is read again: only a text that says exactly what it should is given out.

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

/// A place in a text that cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Line and column, where known.
    pub position: Option<Position>,
    /// The reason why the text cannot be edited.
    pub reason: String,
    /// A change by hand that helps.
    pub hint: String,
}

/// A text and what it is to say.
struct Task<'a> {
    text: &'a str,
    found: &'a LoadedDocument,
    before: &'a WorkflowSpec,
    wanted: &'a WorkflowSpec,
}

/// One change: a part of the text, and what is there instead.
#[derive(Debug, PartialEq, Eq)]
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

/// Returns the text of a file in which a workflow's schedulers, actions and jobs' schedulers are as wanted; an error if that
/// cannot be done by editing, e.g. because a job is an alias.
pub fn rewrite(
    text: &str,
    format: Format,
    found: &LoadedDocument,
    wanted: &WorkflowSpec,
    options: &LoadOptions,
) -> Result<String, Box<Obstacle>> {
    let Document::Workflow(document) = &found.document else {
        return Err(Box::new(obstacle(None, "the document is no workflow", "name a file with a workflow")));
    };
    let task = Task { text, found, before: &document.spec, wanted };
    let edits = match format {
        Format::Yaml => yaml::edits(&task)?,
        Format::Json | Format::Json5 => json::edits(&task).ok_or_else(|| task.unknown_layout())?,
        Format::Kdl => kdl::edits(&task).ok_or_else(|| task.unknown_layout())?,
    };
    let is_wanted = |edited: &String| {
        let loaded = load(edited.as_bytes(), Some(format), options);
        !loaded.has_errors() && says(&loaded, &document.metadata.name, wanted)
    };
    carry_out(text, edits).filter(is_wanted).ok_or_else(|| Box::new(task.unknown_layout()))
}

fn obstacle(position: Option<Position>, reason: &str, hint: &str) -> Obstacle {
    Obstacle { position, reason: reason.to_owned(), hint: hint.to_owned() }
}

fn carry_out(text: &str, mut edits: Vec<Edit>) -> Option<String> {
    // From the end, so that places before it stay right; of two at one place the first comes first.
    edits.sort_by_key(|edit| edit.start);
    let mut edited = text.to_owned();
    for edit in edits.iter().rev() {
        edited.get(edit.start..edit.end)?;
        edited.replace_range(edit.start..edit.end, &edit.text);
    }
    Some(edited)
}

fn says(loaded: &Loaded, name: &str, wanted: &WorkflowSpec) -> bool {
    let is_wanted = |found: &LoadedDocument| matches!(&found.document, Document::Workflow(document) if document.metadata.name == name && document.spec == *wanted);
    loaded.documents.iter().any(is_wanted)
}

impl Task<'_> {
    /// Returns the error for a text whose edited form says something else, e.g. because of an anchor that several parts use.
    fn unknown_layout(&self) -> Obstacle {
        let position = self.found.positions.of("spec.jobs");
        let hint = "write out what anchors (&), aliases (*) and merge keys (<<) stand for, one key a line, and run the command again";
        obstacle(position, "the jobs cannot be edited as they are laid out", hint)
    }

    /// Where a field is, as a number of bytes.
    fn offset(&self, field: &str) -> Option<usize> {
        offset(self.text, self.found.positions.of(field)?)
    }

    /// A key as this document spells keys.
    fn key(&self, name: &str) -> String {
        if self.found.bare { snake_case(name) } else { name.to_owned() }
    }

    /// A list with keys as this document spells them.
    fn list(&self, list: &impl Serialize) -> Option<Value> {
        let value = serde_json::to_value(list).ok()?;
        Some(if self.found.bare { snake_keys(value) } else { value })
    }

    /// The jobs whose scheduler is to be another: number, before, after.
    fn jobs(&self) -> impl Iterator<Item = (usize, Option<&str>, Option<&str>)> {
        let pairs = self.before.jobs.iter().zip(&self.wanted.jobs).enumerate();
        pairs
            .map(|(index, (before, after))| (index, before.scheduler.as_deref(), after.scheduler.as_deref()))
            .filter(|(_, before, after)| before != after)
    }
}

/// Schedulers and actions have no keys that people chose.
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
    // Editors may have put a mark in front, which does not count.
    let mark = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    if line <= 1 {
        return Some(mark);
    }
    text.match_indices('\n').nth(line - 2).map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests;
