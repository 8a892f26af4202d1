//! Problems of documents and their positions.

use serde::{Deserialize, Serialize};

/// One thing that is wrong, or odd, in a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The severity, which decides whether the document is usable.
    pub severity: Severity,
    /// The field, e.g. `spec.jobs[3].command`; empty for the document as a whole.
    pub field: String,
    /// The problem in a sentence.
    pub message: String,
    /// A hint that helps to solve the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The position in the text, if the text is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// The kind of mistake, for programs.
    #[serde(default, skip_serializing_if = "ProblemKind::is_plain")]
    pub kind: ProblemKind,
}

/// Kinds of mistakes that a status names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProblemKind {
    /// None of the others.
    #[default]
    Plain,
    /// Two have the same name.
    Duplicate,
    /// Jobs wait for each other.
    Cycle,
    /// It comes to more than is allowed.
    TooLarge,
    /// A name refers to nothing in the document.
    UnknownReference,
}

impl ProblemKind {
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

/// A place in a text, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The line in the text.
    pub line: u32,
    /// The character in the line.
    pub column: u32,
}

impl Position {
    /// The first character of a text.
    pub const START: Self = Self { line: 1, column: 1 };

    /// Takes counts; what is beyond `u32` counts as the greatest number.
    pub fn new(line: usize, column: usize) -> Self {
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: narrow(line), column: narrow(column) }
    }
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// The document cannot be used.
    Error,
    /// The document can be used, but look at this.
    Warning,
}

impl Problem {
    /// Creates a problem that makes the document unusable.
    pub fn error(field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        Self { severity: Severity::Error, field, message, hint: None, position: None, kind: ProblemKind::Plain }
    }

    /// Creates a problem that does no harm.
    pub fn warning(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(field, message) }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says what kind of mistake it is.
    #[must_use]
    pub fn kind(mut self, kind: ProblemKind) -> Self {
        self.kind = kind;
        self
    }

    /// Returns whether the problem makes the document unusable.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}
