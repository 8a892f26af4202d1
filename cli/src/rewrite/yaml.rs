//! Edits YAML: inserts new keys before `jobs`, and a job's scheduler after its name. Block style (`- name: a`) and flow style
//! (`- {name: a}`) are kept; a document may contain both.

use serde_json::{Value, json};
use torc_api::load::{YamlEntry, YamlKind, YamlNode, yaml_layout};
use torc_api::problem::Position;
use torc_api::schema::snake_case;

use super::{Edit, EditError, EditRequest, obstacle};
use crate::output::document_text;

pub(super) fn edits(task: &EditRequest<'_>) -> Result<Vec<Edit>, Box<EditError>> {
    let documents = yaml_layout(task.text);
    let spec = documents.iter().find_map(|root| spec_of(task, root)).ok_or_else(|| task.unknown_layout())?;
    let jobs = entry(spec, "jobs").ok_or_else(|| task.unknown_layout())?;
    let lists =
        [("slurmSchedulers", task.list(&task.wanted.slurm_schedulers)), ("actions", task.list(&task.wanted.actions))];
    let mut edits = Vec::new();
    for (name, list) in lists {
        let list = list.ok_or_else(|| task.unknown_layout())?;
        edits.extend(list_edit(task, spec, jobs, name, &list));
    }
    for (index, _, after) in task.jobs() {
        edits.push(job_edit(task, &jobs.node, index, after)?);
    }
    Ok(edits)
}

/// Returns the mapping that contains `jobs`, if this is the document to edit.
fn spec_of<'d>(task: &EditRequest<'_>, root: &'d YamlNode) -> Option<&'d YamlNode> {
    let spec = if task.found.bare { root } else { &entry(root, "spec")?.node };
    let jobs = entry(spec, "jobs")?;
    (Some(jobs.start) == task.offset("spec.jobs")).then_some(spec)
}

/// Finds a key of a mapping, in either spelling. Keys from a merge are not part of the mapping.
fn entry<'d>(map: &'d YamlNode, name: &str) -> Option<&'d YamlEntry> {
    map.entries().iter().find(|entry| snake_case(&entry.key) == snake_case(name))
}

/// Returns the edit that replaces a list, or inserts it before `jobs`.
fn list_edit(task: &EditRequest<'_>, spec: &YamlNode, jobs: &YamlEntry, name: &str, list: &Value) -> Option<Edit> {
    let is_empty = list.as_array().is_none_or(Vec::is_empty);
    let known = entry(spec, name);
    if known.is_none() && is_empty {
        return None;
    }
    let key = known.map_or_else(|| task.key(name), |known| known.key.clone());
    if spec.is_flow() {
        return Some(match known {
            Some(known) => Edit { start: known.node.start, end: known.node.end, text: flow(list) },
            None => {
                let text = format!("{key}: {},{}", flow(list), gap_before(task.text, jobs));
                Edit { start: jobs.start, end: jobs.start, text }
            }
        });
    }
    let pad = " ".repeat(jobs.column - 1);
    let lines = if is_empty { String::new() } else { document_text(&json!({ &key: list })) };
    let text: String = lines.lines().map(|line| format!("{pad}{line}\n")).collect();
    let Some(known) = known else {
        let at = above_comments(task.text, start_of_line(task.text, jobs.start));
        return Some(Edit { start: at, end: at, text });
    };
    let start = start_of_line(task.text, known.start);
    let end = match known.node.is_flow() {
        true => end_of_line(task.text, known.node.end),
        false => end_of_block(task.text, start, jobs.column - 1),
    };
    Some(Edit { start, end, text })
}

/// Returns the separator between a new key and `jobs` in flow style: a line break if `jobs` starts a line.
fn gap_before(text: &str, jobs: &YamlEntry) -> String {
    let line = start_of_line(text, jobs.start);
    let pad = text.get(line..jobs.start).unwrap_or_default();
    if pad.trim().is_empty() && line > 0 { format!("\n{pad}") } else { " ".to_owned() }
}

/// Returns the offset before the comments directly above a line, which describe it. Comments at the top describe the file.
fn above_comments(text: &str, line: usize) -> usize {
    let mut at = line;
    while at > 0 {
        let above = start_of_line(text, at - 1);
        if !text.get(above..at).unwrap_or_default().trim_start().starts_with('#') {
            return at;
        }
        at = above;
    }
    line
}

/// Returns the end of the value of a key in block style: the next line without further indentation that is no item of its list.
fn end_of_block(text: &str, start: usize, indent: usize) -> usize {
    let mut end = start;
    let mut blank = 0;
    for (number, line) in text.get(start..).unwrap_or_default().split_inclusive('\n').enumerate() {
        let content = line.trim();
        let depth = line.len() - line.trim_start().len();
        let is_item = depth == indent && (content.starts_with("- ") || content == "-");
        match content {
            "" => blank += line.len(),
            _ if number == 0 || depth > indent || is_item => {
                end += blank + line.len();
                blank = 0;
            }
            _ => break,
        }
    }
    end
}

fn start_of_line(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().rfind('\n').map_or(0, |end| end + 1)
}

/// Returns the beginning of the next line.
fn end_of_line(text: &str, at: usize) -> usize {
    text.get(at..).unwrap_or_default().find('\n').map_or(text.len(), |end| at + end + 1)
}

fn job_edit(
    task: &EditRequest<'_>,
    jobs: &YamlNode,
    index: usize,
    after: Option<&str>,
) -> Result<Edit, Box<EditError>> {
    let name = task.before.jobs.get(index).map_or("", |job| job.name.as_str());
    let Some(job) = jobs.items().get(index) else {
        let reason = "the list of jobs is an alias";
        return Err(Box::new(obstacle(Some(position(jobs)), reason, "write the list of jobs under `jobs`")));
    };
    if !matches!(job.kind, YamlKind::Map { .. }) {
        let reason = format!("job '{name}' is an alias, so an edit would change the scheduler of another job");
        return Err(Box::new(obstacle(Some(position(job)), &reason, "write the job out instead of the alias (`*…`)")));
    }
    let scheduler = after.map_or_else(|| "null".to_owned(), |name| flow(&json!(name)));
    if let Some(known) = entry(job, "scheduler") {
        return Ok(replaced(task.text, known, after.is_none() && !job.is_flow(), scheduler));
    }
    let added = format!("scheduler: {scheduler}");
    let pad = " ".repeat(job.entries().first().map_or(job.column, |first| first.column) - 1);
    Ok(match (entry(job, "name"), job.is_flow()) {
        (Some(name), true) => insert(name.node.end, format!(", {added}")),
        (Some(name), false) => {
            let at = end_of_line(task.text, name.node.end);
            // The last line of a file may have no line end.
            let ends = task.text.get(..at).is_some_and(|text| text.ends_with('\n'));
            insert(at, if ends { format!("{pad}{added}\n") } else { format!("\n{pad}{added}\n") })
        }
        (None, is_flow) => {
            let gap = if is_flow { ", ".to_owned() } else { format!("\n{pad}") };
            insert(job.entries().first().map_or(job.end, |first| first.start), format!("{added}{gap}"))
        }
    })
}

/// Returns the edit that replaces the value of a key, or removes the line of the key.
fn replaced(text: &str, known: &YamlEntry, is_removed: bool, value: String) -> Edit {
    let line = start_of_line(text, known.start);
    if is_removed && text.get(line..known.start).is_some_and(|before| before.trim().is_empty()) {
        return Edit { start: line, end: end_of_line(text, known.node.end), text: String::new() };
    }
    Edit { start: known.node.start, end: known.node.end, text: value }
}

fn insert(at: usize, text: String) -> Edit {
    Edit { start: at, end: at, text }
}

fn position(node: &YamlNode) -> Position {
    Position::new(node.line, node.column)
}

/// Formats a value in flow style.
fn flow(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}: {}", flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns whether every YAML reader parses the unquoted text as this string.
fn is_plain(text: &str) -> bool {
    const OTHERS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(is_word)
        && !OTHERS.contains(&text.to_ascii_lowercase().as_str())
}
