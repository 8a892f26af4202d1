//! KDL: new nodes stand before the first job, a job's scheduler is its first child.

use serde_json::Value;

use super::{Edit, Task};

pub(super) fn edits(task: &Task<'_>) -> Option<Vec<Edit>> {
    // Nodes that are already there may be anywhere.
    let has_others = task.before.actions.iter().any(|action| !task.wanted.actions.contains(action));
    if !task.before.slurm_schedulers.is_empty() || has_others {
        return None;
    }
    let at = task.offset("spec.jobs")?;
    let mut text = String::new();
    for scheduler in task.list(&task.wanted.slurm_schedulers)?.as_array()? {
        text.push_str(&node("slurm_scheduler", scheduler)?);
    }
    let new = task.wanted.actions.get(task.before.actions.len()..)?;
    for action in task.list(&new)?.as_array()? {
        text.push_str(&node("action", action)?);
    }
    let mut edits = vec![Edit { start: at, end: at, text }];
    for (index, before, after) in task.jobs() {
        edits.push(job(task, index, before, after?)?);
    }
    Some(edits)
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

fn job(task: &Task<'_>, index: usize, before: Option<&str>, after: &str) -> Option<Edit> {
    if before.is_some() {
        return None;
    }
    let start = task.offset(&format!("spec.jobs[{index}]"))?;
    let line = task.text.get(start..)?.lines().next()?;
    let inside = start + line.trim_end().strip_suffix('{')?.len() + 1;
    Some(Edit { start: inside, end: inside, text: format!("\n    scheduler {}", Value::from(after)) })
}
