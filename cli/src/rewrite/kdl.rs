//! Edits KDL: inserts new nodes before the first job, and a job's scheduler as its first child or, without children, as a property.

use serde_json::Value;

use super::json::end_of_value;
use super::{Edit, EditRequest};

pub(super) fn edits(task: &EditRequest<'_>) -> Option<Vec<Edit>> {
    let mut edits = Vec::new();
    for index in 0..task.before.slurm_schedulers.len() {
        edits.push(removed(task, &format!("spec.slurmSchedulers[{index}]"))?);
    }
    for (index, action) in task.before.actions.iter().enumerate() {
        if !task.wanted.actions.contains(action) {
            edits.push(removed(task, &format!("spec.actions[{index}]"))?);
        }
    }
    let mut text = String::new();
    for scheduler in task.list(&task.wanted.slurm_schedulers)?.as_array()? {
        text.push_str(&node("slurm_scheduler", scheduler)?);
    }
    let is_new = |action: &&torc_api::action::Action| !task.before.actions.contains(action);
    let new: Vec<_> = task.wanted.actions.iter().filter(is_new).collect();
    for action in task.list(&new)?.as_array()? {
        text.push_str(&node("action", action)?);
    }
    let at = task.offset("spec.jobs")?;
    edits.push(Edit { start: at, end: at, text });
    for (index, before, after) in task.jobs() {
        edits.push(job(task, index, before, after)?);
    }
    Some(edits)
}

/// Returns the edit that removes a node with its children and the rest of its line.
fn removed(task: &EditRequest<'_>, field: &str) -> Option<Edit> {
    let start = task.offset(field)?;
    let mut end = end_of_node(task.text, start)?;
    let rest = task.text.get(end..)?;
    let line = rest.find('\n').map_or(rest.len(), |at| at + 1);
    if rest.get(..line)?.trim().is_empty() {
        end += line;
    }
    Some(Edit { start, end, text: String::new() })
}

/// Returns the end of a node: after its children, or at the end of its line.
fn end_of_node(text: &str, start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        let rest = text.get(at..)?;
        let Some(offset) = rest.find(['"', '{', '\n', ';']) else { return Some(text.len()) };
        at += offset;
        match rest.as_bytes().get(offset)? {
            b'"' => at = end_of_value(text, at)?,
            b'{' => return end_of_value(text, at),
            _ => return Some(at),
        }
    }
}

fn node(kind: &str, value: &Value) -> Option<String> {
    let fields = value.as_object()?;
    let name = fields.get("name").map_or_else(String::new, |name| format!(" {name}"));
    let mut text = format!("{kind}{name} {{\n");
    for (key, value) in fields.iter().filter(|(key, _)| *key != "name") {
        let values: Vec<String> = match value {
            Value::Array(items) => items.iter().map(Value::to_string).collect(),
            other => vec![other.to_string()],
        };
        text.push_str(&format!("    {key} {}\n", values.join(" ")));
    }
    Some(text + "}\n\n")
}

fn job(task: &EditRequest<'_>, index: usize, before: Option<&str>, after: Option<&str>) -> Option<Edit> {
    let text = task.text;
    if before.is_some() {
        let start = task.offset(&format!("spec.jobs[{index}].scheduler"))?;
        return Some(Edit { start, end: end_of_value(text, start)?, text: Value::from(after?).to_string() });
    }
    let scheduler = Value::from(after?);
    let start = task.offset(&format!("spec.jobs[{index}]"))?;
    let end = end_of_node(text, start)?;
    let node = text.get(start..end)?;
    let name = task.offset(&format!("spec.jobs[{index}].name"))?;
    let behind_name = end_of_value(text, name)?;
    let opening = text.get(behind_name..end)?.find('{').filter(|_| node.ends_with('}'));
    Some(match opening {
        Some(at) if text.get(behind_name..behind_name + at)?.trim().is_empty() => {
            let inside = behind_name + at + 1;
            Edit { start: inside, end: inside, text: format!("\n    scheduler {scheduler}") }
        }
        _ => Edit { start: behind_name, end: behind_name, text: format!(" scheduler={scheduler}") },
    })
}
