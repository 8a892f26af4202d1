//! Formats problems of documents like a compiler: file, line, column, message, field, hint.

use std::fmt::Write as _;

use serde_json::{Value, json};
use torc_api::document::SlurmClusterDocument;
use torc_api::problem::{Problem, Severity};

use crate::error::CliError;
use crate::output::Printer;

/// The problems of some files.
#[derive(Debug, Default)]
pub struct ProblemReport {
    problems: Vec<(String, Problem)>,
    documents: usize,
    clusters: Vec<SlurmClusterDocument>,
}

impl ProblemReport {
    pub fn add(&mut self, file: &str, problems: Vec<Problem>) {
        self.problems.extend(problems.into_iter().map(|problem| (file.to_owned(), problem)));
    }

    /// Counts a document of any kind.
    pub fn count_document(&mut self) {
        self.documents += 1;
    }

    /// Adds a Slurm cluster.
    pub fn add_cluster(&mut self, cluster: SlurmClusterDocument) {
        self.clusters.push(cluster);
    }

    /// Returns the Slurm clusters of the files.
    pub fn clusters(&self) -> &[SlurmClusterDocument] {
        &self.clusters
    }

    /// Takes the Slurm clusters of the files.
    pub fn take_clusters(&mut self) -> Vec<SlurmClusterDocument> {
        std::mem::take(&mut self.clusters)
    }

    /// Returns whether the files contain a document.
    pub fn has_documents(&self) -> bool {
        self.documents > 0
    }

    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|(_, problem)| problem.is_error())
    }

    pub fn print_warnings(&self, output: Printer) {
        for (file, problem) in self.problems.iter().filter(|(_, problem)| !problem.is_error()) {
            output.progress(problem_lines(file, problem).trim_end());
        }
    }

    /// Returns an error with all problems, unless they are only warnings.
    pub fn into_result(self) -> Result<(), CliError> {
        let errors: Vec<&(String, Problem)> = self.problems.iter().filter(|(_, problem)| problem.is_error()).collect();
        if errors.is_empty() {
            return Ok(());
        }
        let mut files: Vec<&str> = errors.iter().map(|(file, _)| file.as_str()).collect();
        files.dedup();
        let count = crate::output::human::count(i64::try_from(errors.len()).unwrap_or(i64::MAX), "problem");
        let message = format!("{count} in {}", files.join(", "));
        let lines: Vec<String> =
            errors.iter().map(|(file, problem)| problem_lines(file, problem).trim_end().to_owned()).collect();
        Err(CliError::invalid(message).lines(lines).details(self.to_json()))
    }

    /// Formats all problems as JSON.
    pub fn to_json(&self) -> Value {
        self.problems
            .iter()
            .map(|(file, problem)| {
                let mut value = json!({
                    "file": file,
                    "severity": problem.severity,
                    "field": problem.field,
                    "message": problem.message,
                });
                if let Some(position) = problem.position {
                    value["line"] = json!(position.line);
                    value["column"] = json!(position.column);
                }
                if let Some(hint) = &problem.hint {
                    value["hint"] = json!(hint);
                }
                value
            })
            .collect()
    }
}

/// Formats a problem as text.
pub fn problem_lines(file: &str, problem: &Problem) -> String {
    let mut text = file.to_owned();
    if let Some(position) = problem.position {
        let _ = write!(text, ":{}:{}", position.line, position.column);
    }
    let (word, color) = match problem.severity {
        Severity::Error => ("error", anstyle::AnsiColor::Red),
        Severity::Warning => ("warning", anstyle::AnsiColor::Yellow),
    };
    let style = color.on_default().bold();
    let _ = write!(text, ": {style}{word}:{style:#} {}", problem.message);
    if !problem.field.is_empty() {
        let _ = write!(text, " ({})", problem.field);
    }
    text.push('\n');
    if let Some(hint) = &problem.hint {
        let style = anstyle::AnsiColor::Cyan.on_default();
        let _ = writeln!(text, "  {style}hint:{style:#} {hint}");
    }
    text
}

#[cfg(test)]
mod tests {
    use torc_api::problem::Position;

    use super::*;

    #[test]
    fn problems_look_like_those_of_a_compiler() {
        let mut problem = Problem::error("spec.jobs[0].comand", "unknown field").hint("did you mean `command`?");
        problem.position = Some(Position { line: 3, column: 5 });
        let plain = anstream::adapter::strip_str(&problem_lines("a.yaml", &problem)).to_string();
        assert_eq!(plain, "a.yaml:3:5: error: unknown field (spec.jobs[0].comand)\n  hint: did you mean `command`?\n");
        let whole = anstream::adapter::strip_str(&problem_lines("b", &Problem::warning("", "odd"))).to_string();
        assert_eq!(whole, "b: warning: odd\n");
    }

    #[test]
    fn warnings_are_not_errors() {
        let mut report = ProblemReport::default();
        report.add("a", vec![Problem::warning("x", "odd")]);
        assert!(!report.has_errors());
        report.add("a", vec![Problem::error("x", "wrong"), Problem::error("y", "wrong too")]);
        assert_eq!(report.to_json().as_array().map(Vec::len), Some(3));
        let error = report.into_result().expect_err("two errors");
        assert_eq!((error.message.as_str(), error.lines.len()), ("2 problems in a", 2));
    }

    #[test]
    fn problems_in_json_have_all_fields() {
        let mut report = ProblemReport::default();
        let mut placed = Problem::error("spec.x", "wrong").hint("do this");
        placed.position = Some(Position { line: 3, column: 5 });
        report.add("a.yaml", vec![placed]);
        report.add("b.yaml", vec![Problem::warning("", "odd")]);
        let severity = |severity: Severity| json!(severity);
        let expected = json!([
            { "file": "a.yaml", "severity": severity(Severity::Error), "field": "spec.x", "message": "wrong", "line": 3, "column": 5, "hint": "do this" },
            { "file": "b.yaml", "severity": severity(Severity::Warning), "field": "", "message": "odd" },
        ]);
        assert_eq!(report.to_json(), expected);
        let error = report.into_result().expect_err("an error");
        assert_eq!((error.message.as_str(), error.lines.len()), ("1 problem in a.yaml", 1), "a warning is no problem");
    }
}
