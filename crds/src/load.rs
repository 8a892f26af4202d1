//! Loads documents from text, in every format and both forms, and reports all problems with their positions.
//!
//! Text becomes one tree of values with positions, whatever its format. `check` compares the tree with the schema that
//! the types generate. Then the tree becomes the types, and `validate` applies the rules that a schema cannot express.
//! Deliberately absent: reading files and standard input, expanding parameters, anything that needs several documents.

use crate::document::Document;
use crate::problem::{Position, Problem};

mod bounded;
mod budget;
mod check;
mod cursor;
mod deserialize;
mod envelope;
mod json;
mod kdl;
mod keys;
mod path;
mod positions;
mod slug;
mod tree;
mod yaml;

pub use positions::Positions;
pub use slug::MAX_NAME_CHARS;
pub use yaml::layout::{YamlEntry, YamlKind, YamlNode, layout as yaml_layout};

use bounded::BoundedProblems;
use tree::{Node, NodeKind};

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML 1.2: files `.yaml` and `.yml`.
    Yaml,
    /// JSON: files `.json`. Comments and trailing commas are accepted.
    Json,
    /// JSON with JSON5's extensions: files `.json5`.
    Json5,
    /// KDL 1 and KDL 2: files `.kdl`.
    Kdl,
}

impl Format {
    /// Returns the format of a file extension.
    pub fn from_path(path: &str) -> Option<Self> {
        let name = path.rsplit(['/', '\\']).next()?;
        let (_, extension) = name.rsplit_once('.')?;
        match extension.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "json5" => Some(Self::Json5),
            "kdl" => Some(Self::Kdl),
            _ => None,
        }
    }
}

/// Limits of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// The largest size of a file in bytes.
    pub max_bytes: usize,
    /// The greatest depth of nested values.
    pub max_depth: usize,
    /// The largest number of values in a file, with aliases resolved.
    pub max_values: usize,
    /// The largest number of problems that are listed.
    pub max_problems: usize,
    /// The name that a bare document without one gets; none to report an error.
    pub default_name: Option<String>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { max_bytes: 64 << 20, max_depth: 64, max_values: 6_000_000, max_problems: 200, default_name: None }
    }
}

/// The documents of a file, and its problems.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The documents that can be used.
    pub documents: Vec<LoadedDocument>,
    /// The documents with errors, as far as they could be read.
    pub flawed: Vec<InvalidDocument>,
    /// Errors and warnings of the whole file, in the order of their positions.
    pub problems: Vec<Problem>,
}

impl Loaded {
    /// Returns whether the file has errors.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(Problem::is_error)
    }
}

/// A document and the positions of its fields.
#[derive(Debug)]
pub struct LoadedDocument {
    /// The document with its types.
    pub document: Document,
    /// It is a bare file: a specification without an envelope, as in Torc 1.0.
    pub bare: bool,
    /// The positions of its fields.
    pub positions: Positions,
}

/// A document with errors. Placeholders replace the wrong values, so it only serves to find further problems.
#[derive(Debug)]
pub struct InvalidDocument {
    /// The part that could be read.
    pub read: LoadedDocument,
    /// The fields that are wrong, with their names in the envelope, e.g. `spec.jobs[2].comand`.
    pub wrong: Vec<String>,
}

impl LoadedDocument {
    /// Adds the position to a problem that was found later, and spells its field as the file does.
    pub fn locate(&self, mut problem: Problem) -> Problem {
        problem.position = self.positions.of(&problem.field);
        problem.field = self.positions.as_written(&problem.field);
        problem
    }
}

/// An error that ends the parsing of a file.
#[derive(Debug)]
struct SyntaxError {
    position: Position,
    message: String,
    hint: Option<String>,
}

impl SyntaxError {
    fn new(position: Position, message: impl Into<String>) -> Self {
        Self { position, message: message.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn into_problem(self) -> Problem {
        let position = Some(self.position);
        Problem { hint: self.hint, position, ..Problem::error("", self.message) }
    }
}

/// Loads the documents of a file. With `format: None`, as for standard input, the format is guessed.
pub fn load(text: &[u8], format: Option<Format>, options: &LoadOptions) -> Loaded {
    if text.len() > options.max_bytes {
        let message = format!("the file has more than {}, which is the limit", bytes_in_words(options.max_bytes));
        return refused(Problem::error("", message).hint("use parameters to make many jobs from one entry"));
    }
    let text = match decode(text) {
        Ok(text) => text,
        Err(problem) => return refused(problem),
    };
    let Parsed { documents, problems } = match format {
        Some(Format::Yaml) => parse_yaml(text, options),
        Some(Format::Json | Format::Json5) => Parsed::one(json::parse(text, options)),
        Some(Format::Kdl) => parse_kdl(text, options),
        None => guess(text, options),
    };
    let mut listed = BoundedProblems::new(options.max_problems);
    problems.into_iter().for_each(|problem| listed.add(problem));
    let mut present = documents.into_iter().filter(|document| !document.is_null()).peekable();
    if present.peek().is_none() && listed.errors().is_empty() {
        listed.add(Problem::error("", "the file holds no document"));
    }
    let mut loaded = Loaded::default();
    for document in present {
        let interpreted = envelope::interpret(document, options);
        loaded.documents.extend(interpreted.document);
        loaded.flawed.extend(interpreted.flawed);
        listed.append(interpreted.problems);
    }
    Loaded { problems: listed.into_problems(), ..loaded }
}

fn refused(problem: Problem) -> Loaded {
    Loaded { problems: vec![problem], ..Loaded::default() }
}

/// Returns an amount of bytes in words; limits are whole MiB.
fn bytes_in_words(bytes: usize) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{bytes} bytes")
    }
}

/// Decodes UTF-8 and removes a byte order mark.
fn decode(bytes: &[u8]) -> Result<&str, Problem> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before.iter().skip(start).filter(|byte| **byte & 0xC0 != 0x80).count();
        let problem =
            Problem { position: Some(Position::new(line, column)), ..Problem::error("", "the file is not UTF-8 text") };
        match bytes {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => problem.hint("it seems to be UTF-16; save it as UTF-8"),
            [0x1f, 0x8b, ..] => problem.hint("it seems to be compressed with gzip"),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => problem.hint("it seems to be compressed with zstd"),
            _ => problem,
        }
    })
}

/// The trees of a file, and the problems of parsing.
struct Parsed {
    documents: Vec<Node>,
    problems: Vec<Problem>,
}

impl Parsed {
    fn one(result: Result<Node, SyntaxError>) -> Self {
        match result {
            Ok(document) => Self { documents: vec![document], problems: Vec::new() },
            Err(error) => Self { documents: Vec::new(), problems: vec![error.into_problem()] },
        }
    }
}

fn parse_yaml(text: &str, options: &LoadOptions) -> Parsed {
    let (documents, error) = yaml::parse(text, options);
    Parsed { documents, problems: error.into_iter().map(SyntaxError::into_problem).collect() }
}

fn parse_kdl(text: &str, options: &LoadOptions) -> Parsed {
    match kdl::parse(text, options) {
        Ok((document, problems)) => Parsed { documents: vec![document], problems },
        Err(error) => Parsed { documents: Vec::new(), problems: vec![error.into_problem()] },
    }
}

/// Parses a text of unknown format: a leading brace means JSON, a YAML mapping means YAML, the rest may be KDL.
fn guess(text: &str, options: &LoadOptions) -> Parsed {
    if json::begins_with_brace(text) {
        return Parsed::one(json::parse(text, options));
    }
    let yaml = parse_yaml(text, options);
    let is_yaml = yaml.problems.is_empty()
        && yaml.documents.iter().all(|document| matches!(document.kind, NodeKind::Map(_) | NodeKind::Null));
    if is_yaml {
        return yaml;
    }
    let kdl = parse_kdl(text, options);
    let is_kdl = kdl.problems.iter().all(|problem| !problem.is_error())
        && kdl.documents.iter().any(|document| document.get("name").is_some());
    if is_kdl { kdl } else { yaml }
}

#[cfg(test)]
mod tests;
