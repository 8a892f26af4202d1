//! Edits JSON and JSON5: inserts new keys before `jobs`, and a job's scheduler as its first key.

use serde_json::Value;

use super::{Edit, EditRequest};

pub(super) fn edits(task: &EditRequest<'_>) -> Option<Vec<Edit>> {
    let mut edits = vec![
        list(
            task,
            "slurmSchedulers",
            &task.list(&task.wanted.slurm_schedulers)?,
            !task.before.slurm_schedulers.is_empty(),
        )?,
        list(task, "actions", &task.list(&task.wanted.actions)?, !task.before.actions.is_empty())?,
    ];
    for (index, before, after) in task.jobs() {
        edits.push(job(task, index, before, after)?);
    }
    Some(edits)
}

fn list(task: &EditRequest<'_>, name: &str, list: &Value, is_there: bool) -> Option<Edit> {
    let jobs = task.offset("spec.jobs")?;
    let line = task.text.get(..jobs)?.rfind('\n').map_or(0, |at| at + 1);
    let pad = task.text.get(line..jobs)?;
    let (pad, gap) = if pad.trim().is_empty() { (pad, format!("\n{pad}")) } else { ("", " ".to_owned()) };
    let written = serde_json::to_string_pretty(list).ok()?.replace('\n', &format!("\n{pad}"));
    if is_there {
        let (start, end) = value_behind(task.text, task.offset(&format!("spec.{name}"))?)?;
        return Some(Edit { start, end, text: written });
    }
    let is_empty = list.as_array().is_none_or(Vec::is_empty);
    let text = if is_empty { String::new() } else { format!("{}: {written},{gap}", Value::from(task.key(name))) };
    Some(Edit { start: jobs, end: jobs, text })
}

fn job(task: &EditRequest<'_>, index: usize, before: Option<&str>, after: Option<&str>) -> Option<Edit> {
    let written = after.map_or(Value::Null, Value::from).to_string();
    if before.is_some() {
        let start = task.offset(&format!("spec.jobs[{index}].scheduler"))?;
        return Some(Edit { start, end: end_of_value(task.text, start)?, text: written });
    }
    let start = task.offset(&format!("spec.jobs[{index}]"))?;
    let inside = task.text.get(start..)?.strip_prefix('{').map(|_| start + 1)?;
    Some(Edit { start: inside, end: inside, text: format!("\"scheduler\": {written}, ") })
}

/// Returns the range of the value of the key at an offset.
fn value_behind(text: &str, key: usize) -> Option<(usize, usize)> {
    let colon = key + text.get(key..)?.find(':')?;
    let start = colon + 1 + text.get(colon + 1..)?.find(|c: char| !c.is_whitespace())?;
    Some((start, end_of_value(text, start)?))
}

/// Returns the end of the string, list or object at an offset.
pub(super) fn end_of_value(text: &str, start: usize) -> Option<usize> {
    let mut depth = 0;
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for (at, letter) in text.get(start..)?.char_indices() {
        match (quote, letter) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), letter) if open == letter => quote = None,
            (Some(_), _) => continue,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, _) => continue,
        }
        if quote.is_none() && depth == 0 {
            return Some(start + at + letter.len_utf8());
        }
    }
    None
}
