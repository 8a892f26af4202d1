//! YAML: new keys stand before `jobs`, a job's scheduler behind its name.

use serde_json::{Value, json};

use super::{Edit, Task};
use crate::output::document_text;

pub(super) fn edits(task: &Task<'_>) -> Option<Vec<Edit>> {
    let jobs = task.offset("spec.jobs")?;
    let indent = task.column("spec.jobs")? - 1;
    let at = jobs.checked_sub(indent)?;
    let schedulers = task.list(&task.wanted.slurm_schedulers)?;
    let actions = task.list(&task.wanted.actions)?;
    let mut edits = vec![
        block(task, "slurmSchedulers", &schedulers, !task.before.slurm_schedulers.is_empty(), (at, indent))?,
        block(task, "actions", &actions, !task.before.actions.is_empty(), (at, indent))?,
    ];
    for (index, before, after) in task.jobs() {
        edits.push(job(task, index, before, after)?);
    }
    Some(edits)
}

/// A key with a list, in place of the one that is there or before `jobs`.
fn block(task: &Task<'_>, name: &str, list: &Value, is_there: bool, (at, indent): (usize, usize)) -> Option<Edit> {
    let is_empty = list.as_array().is_none_or(Vec::is_empty);
    let key = task.key(name);
    let lines = if is_empty { String::new() } else { document_text(&json!({ &key: list })) };
    let pad = " ".repeat(indent);
    let text: String = lines.lines().map(|line| format!("{pad}{line}\n")).collect();
    if !is_there {
        return Some(Edit { start: at, end: at, text });
    }
    let start = task.offset(&format!("spec.{name}"))?.checked_sub(indent)?;
    Some(Edit { start, end: end_of_block(task.text, start, indent)?, text })
}

/// Where the value of a key ends that begins a line: at the next line that is not indented further and is no item of its list.
fn end_of_block(text: &str, start: usize, indent: usize) -> Option<usize> {
    let mut end = start;
    let mut blank = 0;
    for (number, line) in text.get(start..)?.split_inclusive('\n').enumerate() {
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
    Some(end)
}

fn job(task: &Task<'_>, index: usize, before: Option<&str>, after: Option<&str>) -> Option<Edit> {
    let field = format!("spec.jobs[{index}]");
    let indent = task.column(&field)? - 1;
    let line = after.map(|name| document_text(&json!({ "scheduler": name })));
    let line = line.map_or_else(String::new, |line| format!("{}{line}", " ".repeat(indent)));
    let known = if before.is_some() { "scheduler" } else { "name" };
    let value = task.offset(&format!("{field}.{known}"))?;
    let text = task.text;
    let end = text.get(value..)?.find('\n').map_or(text.len(), |at| value + at + 1);
    let start = if before.is_some() { text.get(..value)?.rfind('\n').map_or(0, |at| at + 1) } else { end };
    // The last line of a file may lack its end.
    let line = if start == text.len() && !text.ends_with('\n') { format!("\n{line}") } else { line };
    Some(Edit { start, end, text: line })
}
