//! Checks a tree against its shape, and reports all problems at once.
//!
//! The walk also prepares the tree for its types: keys of a bare file get their real names, and absent values
//! disappear. Placeholders replace wrong values, so that the remaining rules can still be checked.

use serde_json::Number;

use super::bounded::BoundedProblems;
use super::path::Path;
use super::tree::{Entry, Node, NodeKind, excerpt};
use super::yaml::is_boolean_for_kubectl;
use super::{LoadOptions, json};
use crate::nearest::nearest;
use crate::problem::{Position, Problem, Severity};
use crate::quantity::parse_duration;
use crate::schema::{RecordSchema, ValueShape, snake_case};

/// Fields that no longer exist, and the replacements.
const REMOVED: [(&str, &str); 1] = [("slurm_config", "use `execution_config`")];

/// Settings of runners that older files have in the document. The hint names the new place and the page that describes
/// it.
const SETTINGS: [(&str, &str); 3] = [
    (
        "job_completion_poll_interval",
        "set `poll_interval` in torc.toml, or `torc run --poll-interval SECONDS`: docs/reference/configuration.md",
    ),
    (
        "claim_backoff_max_secs",
        "set it in torc.toml, or `torc run --claim-backoff-max-secs SECONDS`: docs/reference/configuration.md",
    ),
    (
        "drain_ping_interval_secs",
        "set it in torc.toml, or `torc run --drain-ping-interval-secs SECONDS`: docs/reference/configuration.md",
    ),
];

/// The names of fields before Torc 1.0. Ignoring them would run jobs in the wrong order or place.
const OLDER_NAMES: [(&str, &str); 11] = [
    ("blocked_by", "depends_on"),
    ("blocked_by_job_names", "depends_on"),
    ("blocked_by_regexes", "depends_on_regexes"),
    ("blocked_by_job_name_regexes", "depends_on_regexes"),
    ("input_file_names", "input_files"),
    ("output_file_names", "output_files"),
    ("input_user_data_names", "input_user_data"),
    ("output_data_names", "output_user_data"),
    ("label", "labels"),
    ("resource_requirements_name", "resource_requirements"),
    ("scheduler_name", "scheduler"),
];

/// Choices for which Torc 1.0 replaced every unknown word by the default.
const DEFAULTED_CHOICES: [&str; 1] = ["parameterMode"];

/// Fields that are durations, in both spellings.
const DURATIONS: [&str; 3] = ["runtime", "orphanAfter", "orphan_after"];

/// The spelling of a document's keys, and the treatment of unknown ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// camelCase. Unknown keys are errors, and words that kubectl reads as booleans are warnings.
    Envelope,
    /// snake_case, as in Torc 1.0. Unknown keys are warnings.
    Bare,
}

/// Checks a whole document.
pub(super) fn check(root: &mut Node, record: &RecordSchema, dialect: Dialect, most: usize) -> BoundedProblems {
    let mut checker = Checker { dialect, listed: BoundedProblems::new(most) };
    if let NodeKind::Map(entries) = &mut root.kind {
        checker.record(entries, root.position, record, &Path::Root);
    }
    checker.listed
}

struct Checker {
    dialect: Dialect,
    listed: BoundedProblems,
}

impl Checker {
    /// Checks a value and returns whether it is usable.
    fn value(&mut self, node: &mut Node, shape: &ValueShape, path: &Path<'_>) -> bool {
        let position = node.position;
        let usable = match (shape, &mut node.kind) {
            (ValueShape::Any, _)
            | (ValueShape::Bool, NodeKind::Bool(_))
            | (ValueShape::Number, NodeKind::Number(_)) => true,
            (ValueShape::Integer { least, most }, NodeKind::Number(number)) => match whole(number) {
                Some(value) => return self.in_range(value, *least, *most, position, path),
                None => false,
            },
            (ValueShape::Text { least, most }, NodeKind::Text(text)) => {
                let length = if *most == usize::MAX { text.len() } else { text.chars().count() };
                return self.text(text, node.plain, position, path)
                    & self.long_enough(length, *least, *most, position, path);
            }
            (ValueShape::OneOf(words), NodeKind::Text(text)) => return self.one_of(text, words, position, path),
            (ValueShape::List { items, most }, NodeKind::List(nodes)) => {
                self.list(nodes, items, *most, position, path);
                true
            }
            (ValueShape::Map { values, most }, NodeKind::Map(entries)) => {
                self.map(entries, values, *most, position, path);
                true
            }
            (ValueShape::RecordSchema(record), NodeKind::Map(entries)) => {
                self.record(entries, position, record, path);
                true
            }
            _ => false,
        };
        if !usable {
            let message = format!("expected {}, found {}", wanted(shape), node.describe());
            self.report(with_hint(Problem::error(path.to_string(), message), advice(shape, node, path)), position);
        }
        usable
    }

    fn list(&mut self, nodes: &mut [Node], items: &ValueShape, most: usize, position: Position, path: &Path<'_>) {
        if nodes.len() > most {
            let message = format!("at most {most} items are allowed, found {}", nodes.len());
            self.report(Problem::error(path.to_string(), message), position);
        }
        for (index, item) in nodes.iter_mut().enumerate() {
            if !self.value(item, items, &path.item(index)) {
                *item = Node { position: item.position, ..placeholder(items) };
            }
        }
    }

    fn map(&mut self, entries: &mut Vec<Entry>, values: &ValueShape, most: usize, position: Position, path: &Path<'_>) {
        if entries.len() > most {
            let message = format!("at most {most} keys are allowed, found {}", entries.len());
            self.report(Problem::error(path.to_string(), message), position);
        }
        if *values == ValueShape::Any {
            return;
        }
        entries.retain_mut(|Entry { key, node, .. }| self.value(node, values, &path.key(key)));
    }

    fn record(&mut self, entries: &mut Vec<Entry>, position: Position, record: &RecordSchema, path: &Path<'_>) {
        if self.dialect == Dialect::Bare {
            self.modernize(entries, record, path);
        }
        entries.retain_mut(|entry| {
            let Some(name) = self.real_name(entry, record) else {
                self.unknown(entry, record, path);
                return true;
            };
            entry.rename(name);
            self.field(entry, name, record, path)
        });
        for name in record.required() {
            if entries.iter().all(|entry| &*entry.key != name) {
                let shown = self.shown(name);
                let message = format!("missing required field `{shown}`");
                self.report(Problem::error(path.key(&shown).to_string(), message), position);
                entries.push(Entry::new(name, position, Node { position, ..placeholder(record.shape_of(name)) }));
            }
        }
    }

    /// Renames fields with an older name, unless the present name is there as well.
    fn modernize(&mut self, entries: &mut [Entry], record: &RecordSchema, path: &Path<'_>) {
        for (older, name) in OLDER_NAMES {
            let Some(shape) = record.named_in_snake_case(name).map(|field| record.shape_of(field)) else { continue };
            let known = record.named_in_snake_case(older).is_some();
            if known || entries.iter().any(|entry| &*entry.key == name) {
                continue;
            }
            let Some(entry) = entries.iter_mut().find(|entry| &*entry.key == older) else { continue };
            let message = format!("`{older}` is now called `{name}`");
            self.report(Problem::warning(path.key(older).to_string(), message), entry.position);
            entry.rename(name);
            if matches!((shape, &entry.node.kind), (ValueShape::List { .. }, NodeKind::Text(_))) {
                let item = std::mem::take(&mut entry.node);
                entry.node = Node::new(item.position, NodeKind::List(vec![item]));
            }
        }
    }

    /// Checks an entry and returns whether it is usable.
    fn field(&mut self, entry: &mut Entry, name: &str, record: &RecordSchema, path: &Path<'_>) -> bool {
        let Some(field) = record.field(name) else { return true };
        if entry.node.is_null() && field.shape != ValueShape::Any {
            return false;
        }
        let written = entry.written().to_owned();
        if self.dialect == Dialect::Bare && name == "metadata" {
            unfold_json(&mut entry.node);
        }
        if let (ValueShape::OneOf(words), NodeKind::Text(text)) = (&field.shape, &entry.node.kind)
            && self.dialect == Dialect::Bare
            && DEFAULTED_CHOICES.contains(&name)
            && !words.contains(text)
        {
            let message = format!("'{}' is not one of {} and is ignored", excerpt(text), words.join(", "));
            self.report(Problem::warning(path.key(&written).to_string(), message), entry.node.position);
            return false;
        }
        if self.value(&mut entry.node, &field.shape, &path.key(&written)) {
            return true;
        }
        entry.node = Node { position: entry.node.position, ..placeholder(&field.shape) };
        field.required
    }

    fn real_name<'r>(&self, entry: &Entry, record: &'r RecordSchema) -> Option<&'r str> {
        match self.dialect {
            Dialect::Envelope => record.names_exactly(&entry.key),
            Dialect::Bare => record.named_in_snake_case(&entry.key),
        }
    }

    fn unknown(&mut self, entry: &Entry, record: &RecordSchema, path: &Path<'_>) {
        let field = path.key(&entry.key).to_string();
        if let Some((name, hint)) = REMOVED.iter().find(|(name, _)| *name == &*entry.key) {
            self.report(
                Problem::error(field, format!("the field `{name}` no longer exists")).hint(*hint),
                entry.position,
            );
            return;
        }
        if let Some((name, hint)) = SETTINGS.iter().find(|(name, _)| *name == snake_case(&entry.key)) {
            let message = format!("`{name}` is a setting of runners and has no effect in a document");
            self.report(Problem::warning(field, message).hint(*hint), entry.position);
            return;
        }
        let message = format!("unknown field `{}`", excerpt(&entry.key));
        let problem = match self.dialect {
            Dialect::Envelope => Problem::error(field, message),
            Dialect::Bare => Problem::warning(field, format!("{message} is ignored")),
        };
        let meant = self
            .listed
            .has_room(problem.severity)
            .then(|| nearest(&entry.key, record.names()))
            .flatten()
            .map(|name| format!("did you mean `{}`?", self.shown(name)));
        self.report(with_hint(problem, meant), entry.position);
    }

    fn shown(&self, name: &str) -> String {
        match self.dialect {
            Dialect::Envelope => name.to_owned(),
            Dialect::Bare => snake_case(name),
        }
    }

    fn in_range(&mut self, value: i64, least: i64, most: i64, position: Position, path: &Path<'_>) -> bool {
        let message = if value < least {
            format!("must be at least {least}, not {value}")
        } else if value > most {
            format!("must be at most {most}, not {value}")
        } else {
            return true;
        };
        self.report(Problem::error(path.to_string(), message), position);
        false
    }

    fn long_enough(&mut self, length: usize, least: usize, most: usize, position: Position, path: &Path<'_>) -> bool {
        let message = if length < least {
            "must not be empty".to_owned()
        } else if length > most {
            format!("must have at most {most} characters, not {length}")
        } else {
            return true;
        };
        self.report(Problem::error(path.to_string(), message), position);
        false
    }

    fn text(&mut self, text: &str, plain: bool, position: Position, path: &Path<'_>) -> bool {
        if plain && self.dialect == Dialect::Envelope && text.len() <= 3 && is_boolean_for_kubectl(text) {
            let message = format!("kubectl reads the unquoted word {text} as a boolean");
            let hint = format!("put it in quotes: \"{text}\"");
            self.report(Problem::warning(path.to_string(), message).hint(hint), position);
        }
        true
    }

    fn one_of(&mut self, text: &str, words: &[String], position: Position, path: &Path<'_>) -> bool {
        if words.iter().any(|word| word == text) {
            return true;
        }
        let message = format!("'{}' is not one of {}", excerpt(text), words.join(", "));
        let worth_it = self.listed.has_room(Severity::Error);
        let meant = worth_it.then(|| nearest(text, words.iter().map(String::as_str)));
        let meant = meant.flatten().map(|word| format!("did you mean `{word}`?"));
        self.report(with_hint(Problem::error(path.to_string(), message), meant), position);
        false
    }

    fn report(&mut self, mut problem: Problem, position: Position) {
        problem.position = Some(position);
        self.listed.add(problem);
    }
}

/// Returns an integer. Like kubectl, accepts it as `2.0`, too.
fn whole(number: &mut Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(float) = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT)
    {
        #[allow(clippy::cast_possible_truncation, reason = "it is exact")]
        let value = float as i64;
        *number = Number::from(value);
    }
    number.as_i64()
}

/// Parses metadata that is JSON in a string, as the manual of Torc 1.0 describes.
fn unfold_json(node: &mut Node) {
    let parsed = node.as_text().and_then(|text| json::parse(text, &LoadOptions::default()).ok());
    if let Some(parsed) = parsed.filter(|parsed| matches!(parsed.kind, NodeKind::Map(_))) {
        node.kind = parsed.kind;
    }
}

fn with_hint(problem: Problem, hint: Option<String>) -> Problem {
    match hint {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

fn wanted(shape: &ValueShape) -> String {
    match shape {
        ValueShape::Any => "a value".to_owned(),
        ValueShape::Bool => "true or false".to_owned(),
        ValueShape::Integer { .. } => "an integer".to_owned(),
        ValueShape::Number => "a number".to_owned(),
        ValueShape::Text { .. } => "a text".to_owned(),
        ValueShape::OneOf(words) => format!("one of {}", words.join(", ")),
        ValueShape::List { .. } => "a list".to_owned(),
        ValueShape::Map { .. } | ValueShape::RecordSchema(_) => "a mapping".to_owned(),
    }
}

/// Returns a hint for a value of the wrong type.
fn advice(shape: &ValueShape, node: &Node, path: &Path<'_>) -> Option<String> {
    match (shape, &node.kind) {
        // Quotes do not help: a duration needs a unit.
        (ValueShape::Text { .. }, NodeKind::Number(number))
            if path.last_key().is_some_and(|key| DURATIONS.contains(&key)) =>
        {
            parse_duration(&number.to_string()).err().map(|error| error.hint())
        }
        (ValueShape::Text { .. } | ValueShape::OneOf(_), NodeKind::Bool(value)) => {
            Some(format!("put it in quotes: \"{value}\""))
        }
        (ValueShape::Text { .. } | ValueShape::OneOf(_), NodeKind::Number(number)) => {
            Some(format!("put it in quotes: \"{number}\""))
        }
        (ValueShape::Integer { .. } | ValueShape::Number, NodeKind::Text(text))
            if text.trim().parse::<f64>().is_ok() =>
        {
            Some("remove the quotes".to_owned())
        }
        (ValueShape::Bool, NodeKind::Text(text)) => match text.to_ascii_lowercase().as_str() {
            "yes" | "y" | "on" | "true" => Some("write true".to_owned()),
            "no" | "n" | "off" | "false" => Some("write false".to_owned()),
            _ => None,
        },
        (ValueShape::List { .. }, NodeKind::Text(text)) => Some(format!("write [{}]", excerpt(text))),
        _ => None,
    }
}

/// Returns a valid placeholder of this shape.
fn placeholder(shape: &ValueShape) -> Node {
    let kind = match shape {
        ValueShape::Any => NodeKind::Null,
        ValueShape::Bool => NodeKind::Bool(false),
        ValueShape::Integer { least, most } => NodeKind::Number(Number::from(1_i64.clamp(*least, (*most).max(*least)))),
        ValueShape::Number => NodeKind::Number(Number::from(0)),
        ValueShape::Text { .. } => NodeKind::Text(String::new()),
        ValueShape::OneOf(words) => NodeKind::Text(words.first().cloned().unwrap_or_default()),
        ValueShape::List { .. } => NodeKind::List(Vec::new()),
        ValueShape::Map { .. } => NodeKind::Map(Vec::new()),
        ValueShape::RecordSchema(record) => {
            let entry = |name| Entry::new(name, Position::default(), placeholder(record.shape_of(name)));
            NodeKind::Map(record.required().map(entry).collect())
        }
    };
    Node::new(Position::default(), kind)
}
