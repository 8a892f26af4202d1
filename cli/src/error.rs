//! Errors of commands, with hints and an exit code for scripts.
//!
//! Libraries return what failed; this module formats the message. It lists each cause once and prints hints last.

use std::error::Error;
use std::fmt::Write as _;

use serde_json::{Value, json};

/// The exit status of a command. The numbers are stable and documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitStatus {
    /// Success; where the command followed a workflow, all of its jobs succeeded.
    Success,
    /// An error that has no status of its own.
    Unexpected,
    /// The command line was wrong.
    Usage,
    /// A workflow failed, was canceled, or needs a manual decision.
    WorkflowFailed,
    /// A document or a setting was wrong.
    InvalidInput,
    /// The named workflow, job or file does not exist.
    NotFound,
    /// The server cannot be reached, or is not ready.
    Unreachable,
    /// The server refused the request: no token, no permission, or a conflict.
    Refused,
    /// The timeout of a wait expired.
    Timeout,
    /// `torc diff` found differences.
    Different,
    /// A signal stopped the command.
    Interrupted,
}

impl ExitStatus {
    /// All statuses, ordered by number.
    pub const ALL: [Self; 11] = [
        Self::Success,
        Self::Unexpected,
        Self::Usage,
        Self::WorkflowFailed,
        Self::InvalidInput,
        Self::NotFound,
        Self::Unreachable,
        Self::Refused,
        Self::Timeout,
        Self::Different,
        Self::Interrupted,
    ];

    /// Returns the exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Unexpected => 1,
            Self::Usage => 2,
            Self::WorkflowFailed => 3,
            Self::InvalidInput => 4,
            Self::NotFound => 5,
            Self::Unreachable => 6,
            Self::Refused => 7,
            Self::Timeout => 8,
            Self::Different => 9,
            Self::Interrupted => 130,
        }
    }

    /// Returns the name in errors printed as JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Unexpected => "Unexpected",
            Self::Usage => "Usage",
            Self::WorkflowFailed => "WorkflowFailed",
            Self::InvalidInput => "InvalidInput",
            Self::NotFound => "NotFound",
            Self::Unreachable => "Unreachable",
            Self::Refused => "Refused",
            Self::Timeout => "Timeout",
            Self::Different => "Different",
            Self::Interrupted => "Interrupted",
        }
    }

    /// Returns the description of the reference page.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Success => "Success; where the command followed a workflow, all of its jobs succeeded",
            Self::Unexpected => "An unexpected error; the message describes it",
            Self::Usage => "The command line is wrong",
            Self::WorkflowFailed => "The workflow failed, was canceled, or needs a manual decision",
            Self::InvalidInput => "A document, a table or a setting is wrong",
            Self::NotFound => "The named workflow, job or file does not exist",
            Self::Unreachable => "The server cannot be reached, or is not ready",
            Self::Refused => {
                "The server or the owner of the store refused the request: no token, no permission, or a conflict"
            }
            Self::Timeout => "The time of `--timeout` expired",
            Self::Different => "`torc diff` found differences, or `torc crd check` found an older definition",
            Self::Interrupted => "Stopped by Ctrl-C or SIGTERM",
        }
    }
}

type BoxedError = Box<dyn Error + Send + Sync>;

/// An error of a command.
#[derive(Debug)]
pub struct CliError {
    /// The kind, which decides the exit code.
    pub kind: ExitStatus,
    /// The message, without its causes.
    pub message: String,
    pub source: Option<BoxedError>,
    pub hints: Vec<String>,
    /// Details in lines of their own, between the message and its causes.
    pub lines: Vec<String>,
    /// Details for JSON output, e.g. the problems of a document.
    pub details: Option<Box<Value>>,
    /// True if nothing is printed, because the reader closed the output pipe.
    pub silent: bool,
}

impl CliError {
    /// Creates an error without causes, hints and details.
    pub fn new(kind: ExitStatus, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
            hints: Vec::new(),
            lines: Vec::new(),
            details: None,
            silent: false,
        }
    }

    /// Creates an error of a wrong command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitStatus::Usage, message)
    }

    /// Creates an error of a wrong document or setting.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ExitStatus::InvalidInput, message)
    }

    /// Creates an error of a missing object.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ExitStatus::NotFound, message)
    }

    /// Creates an error of an unexpected failure with its cause.
    pub fn unexpected(message: impl Into<String>, source: impl Into<BoxedError>) -> Self {
        Self::new(ExitStatus::Unexpected, message).because(source)
    }

    #[must_use]
    pub fn because(mut self, source: impl Into<BoxedError>) -> Self {
        self.source = Some(source.into());
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds details in lines of their own.
    #[must_use]
    pub fn lines(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.lines.extend(lines);
        self
    }

    /// Adds details for JSON output.
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Formats the error as text: the message, its causes, the hints.
    pub fn render(&self) -> String {
        let error = anstyle::AnsiColor::Red.on_default().bold();
        let hint = anstyle::AnsiColor::Cyan.on_default();
        let mut text = format!("{error}error:{error:#} {}\n", self.message);
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        for cause in self.causes() {
            let _ = writeln!(text, "  caused by: {cause}");
        }
        for line in &self.hints {
            let _ = writeln!(text, "{hint}hint:{hint:#} {line}");
        }
        text
    }

    /// Formats the error as JSON.
    pub fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.kind.word(), "exitCode": self.kind.code(), "message": self.message });
        let causes = self.causes();
        if !causes.is_empty() {
            error["causes"] = json!(causes);
        }
        if !self.hints.is_empty() {
            error["hint"] = json!(self.hints.join("; "));
        }
        if let Some(details) = &self.details {
            error["problems"] = Value::clone(details);
        }
        json!({ "error": error })
    }

    fn causes(&self) -> Vec<String> {
        let mut causes: Vec<String> = Vec::new();
        let mut next = self.source.as_deref().map(|source| source as &dyn Error);
        while let Some(cause) = next {
            let text = cause.to_string();
            // Some libraries repeat the text of their source.
            if !causes.last().is_some_and(|last| last.contains(&text)) {
                causes.push(text);
            }
            next = cause.source();
        }
        causes
    }
}

impl From<std::io::Error> for CliError {
    /// Converts an error of writing output.
    fn from(error: std::io::Error) -> Self {
        let silent = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self { silent, ..Self::unexpected("could not write the output", error) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        #[source]
        source: Option<Box<Layer>>,
    }

    #[test]
    fn exit_codes_are_distinct_and_as_promised() {
        let codes: HashSet<u8> = ExitStatus::ALL.iter().map(|status| status.code()).collect();
        assert_eq!(codes.len(), ExitStatus::ALL.len());
        let promised = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 130];
        assert_eq!(ExitStatus::ALL.map(ExitStatus::code), promised);
    }

    #[test]
    fn a_cause_is_listed_once_and_hints_come_last() {
        let inner = Layer { text: "connection refused", source: None };
        let middle = Layer { text: "connect: connection refused", source: Some(Box::new(inner)) };
        let error = CliError::new(ExitStatus::Unreachable, "could not reach the server")
            .because(middle)
            .hint("start it with `torc server`");
        let plain = anstream::adapter::strip_str(&error.render()).to_string();
        assert_eq!(
            plain,
            "error: could not reach the server\n  caused by: connect: connection refused\n\
             hint: start it with `torc server`\n"
        );
        assert_eq!(error.to_json()["error"]["exitCode"], 6);
        assert_eq!(error.to_json()["error"]["causes"], json!(["connect: connection refused"]));
    }

    #[test]
    fn a_closed_pipe_is_silent() {
        let error = CliError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(error.silent);
        assert!(!CliError::from(std::io::Error::from(std::io::ErrorKind::StorageFull)).silent);
    }

    #[test]
    fn codes_names_and_descriptions_are_stable() {
        let expected = [
            (0, "Success", "Success; where the command followed a workflow, all of its jobs succeeded"),
            (1, "Unexpected", "An unexpected error; the message describes it"),
            (2, "Usage", "The command line is wrong"),
            (3, "WorkflowFailed", "The workflow failed, was canceled, or needs a manual decision"),
            (4, "InvalidInput", "A document, a table or a setting is wrong"),
            (5, "NotFound", "The named workflow, job or file does not exist"),
            (6, "Unreachable", "The server cannot be reached, or is not ready"),
            (
                7,
                "Refused",
                "The server or the owner of the store refused the request: no token, no permission, or a conflict",
            ),
            (8, "Timeout", "The time of `--timeout` expired"),
            (9, "Different", "`torc diff` found differences, or `torc crd check` found an older definition"),
            (130, "Interrupted", "Stopped by Ctrl-C or SIGTERM"),
        ];
        let found = ExitStatus::ALL.map(|status| (status.code(), status.word(), status.meaning()));
        assert_eq!(found, expected);
        for (error, status) in [
            (CliError::usage("m"), ExitStatus::Usage),
            (CliError::invalid("m"), ExitStatus::InvalidInput),
            (CliError::not_found("m"), ExitStatus::NotFound),
            (CliError::unexpected("m", "why"), ExitStatus::Unexpected),
            (std::io::Error::other("x").into(), ExitStatus::Unexpected),
        ] {
            assert_eq!(error.kind, status);
        }
    }

    #[test]
    fn json_contains_all_parts_of_an_error() {
        let bare = CliError::new(ExitStatus::Timeout, "late").to_json();
        assert_eq!(bare, json!({ "error": { "code": "Timeout", "exitCode": 8, "message": "late" } }));
        let full = CliError::invalid("wrong")
            .because("outer")
            .lines(["  line".to_owned()])
            .hint("one")
            .hint("two")
            .details(json!([{ "field": "x" }]));
        let expected = json!({ "error": { "code": "InvalidInput", "exitCode": 4, "message": "wrong", "causes": ["outer"],
            "hint": "one; two", "problems": [{ "field": "x" }] } });
        assert_eq!(full.to_json(), expected);
        let plain = anstream::adapter::strip_str(&full.render()).to_string();
        assert_eq!(plain, "error: wrong\n  line\n  caused by: outer\nhint: one\nhint: two\n");
    }

    #[test]
    fn all_distinct_causes_are_listed() {
        let inner = Layer { text: "third", source: None };
        let middle = Layer { text: "second", source: Some(Box::new(inner)) };
        let outer = Layer { text: "first", source: Some(Box::new(middle)) };
        assert_eq!(CliError::invalid("m").because(outer).causes(), ["first", "second", "third"]);
    }
}
