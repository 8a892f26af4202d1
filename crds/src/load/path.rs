//! The path of a field in a document. Its text is composed only for a problem.

use std::borrow::Cow;
use std::fmt;

use super::tree::excerpt;

/// A path on the stack of the walk.
#[derive(Clone, Copy)]
pub(super) enum Path<'p> {
    Root,
    Key(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl Path<'_> {
    pub fn key<'p>(&'p self, key: &'p str) -> Path<'p> {
        Path::Key(self, key)
    }

    /// Returns the last key of the path; none for an item of a list.
    pub fn last_key(&self) -> Option<&str> {
        match self {
            Path::Key(_, key) => Some(key),
            Path::Root | Path::Item(..) => None,
        }
    }

    pub fn item(&self, index: usize) -> Path<'_> {
        Path::Item(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) => f.write_str(&short(key)),
            Path::Key(parent, key) => write!(f, "{parent}.{}", short(key)),
            Path::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Shortens a key, because an unknown one may have any length.
fn short(key: &str) -> Cow<'_, str> {
    if key.len() <= 100 { Cow::Borrowed(key) } else { Cow::Owned(excerpt(key)) }
}

/// One step of a path in text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathStep<'f> {
    Key(&'f str),
    Item(usize),
}

/// Splits a field such as `spec.jobs[3].command` into steps.
pub(super) fn steps(field: &str) -> Vec<PathStep<'_>> {
    let mut steps = Vec::new();
    for part in field.split('.') {
        let (key, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
        if !key.is_empty() {
            steps.push(PathStep::Key(key));
        }
        while let Some((index, tail)) = rest.strip_prefix('[').and_then(|open| open.split_once(']')) {
            let Ok(index) = index.parse() else { break };
            steps.push(PathStep::Item(index));
            rest = tail;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_they_are_written() {
        let (spec, jobs, job) = (Path::Root, "jobs", 3);
        let spec = spec.key("spec");
        let jobs = spec.key(jobs);
        let job = jobs.item(job);
        let command = job.key("command");
        assert_eq!(command.to_string(), "spec.jobs[3].command");
        assert_eq!(
            steps("spec.jobs[3].command"),
            [PathStep::Key("spec"), PathStep::Key("jobs"), PathStep::Item(3), PathStep::Key("command")]
        );
        assert_eq!(steps("a[1][2]"), [PathStep::Key("a"), PathStep::Item(1), PathStep::Item(2)]);
        assert_eq!(steps(""), []);
        assert_eq!(steps("a[x"), [PathStep::Key("a")]);
    }
}
