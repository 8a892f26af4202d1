//! Formats the results of tests.

use std::fmt::Write as _;
use std::time::Duration;

use super::catalog::Test;

/// Number of tests that the summary lists as the slowest.
const SLOWEST_SHOWN: usize = 10;
/// Number of lines shown of a failed test's output: the last lines name the cause.
const OUTPUT_LINES_SHOWN: usize = 150;

/// The package whose tests need `--labs`.
const LAB_PACKAGE: &str = "torc-labs";

/// The end of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// The reason that the test printed, e.g. `needs root`.
    Skipped(String),
    Failed(String),
}

/// The outcome of one test.
#[derive(Clone, Debug)]
pub struct TestResult {
    pub test: Test,
    pub outcome: Outcome,
    pub duration: Duration,
    pub output: String,
}

/// Returns the command that runs one test alone.
pub fn rerun_command(test: &Test) -> String {
    let tier = if test.binary.package == LAB_PACKAGE { " --labs" } else { "" };
    format!("tests/run{tier} --exact '{}'", test.full_name())
}

/// Returns the report of a failure, with the end of the output.
pub fn failure_text(result: &TestResult, reason: &str) -> String {
    let lines: Vec<&str> = result.output.lines().collect();
    let hidden = lines.len().saturating_sub(OUTPUT_LINES_SHOWN);
    let mut text = format!("\nFAILED {}: {reason}\n", result.test.full_name());
    if hidden > 0 {
        let _ = writeln!(text, "    ({hidden} lines before)");
    }
    for line in &lines[hidden..] {
        let _ = writeln!(text, "    {line}");
    }
    text
}

/// Returns the summary of a run. Its last line has the counts.
pub fn summary(results: &[TestResult], elapsed: Duration) -> String {
    let mut text = String::from("\nslowest tests:\n");
    let mut slowest: Vec<&TestResult> = results.iter().collect();
    slowest.sort_by_key(|result| std::cmp::Reverse(result.duration));
    for result in slowest.iter().take(SLOWEST_SHOWN) {
        let seconds = result.duration.as_secs_f64();
        let _ = writeln!(text, "{seconds:8.1} s  {}", result.test.full_name());
    }
    let skipped: Vec<(&TestResult, &str)> = results
        .iter()
        .filter_map(|result| match &result.outcome {
            Outcome::Skipped(reason) => Some((result, reason.as_str())),
            _ => None,
        })
        .collect();
    for (result, reason) in &skipped {
        let _ = writeln!(text, "skipped ({reason}): {}", result.test.full_name());
    }
    let failed: Vec<&TestResult> =
        results.iter().filter(|result| matches!(result.outcome, Outcome::Failed(_))).collect();
    if !failed.is_empty() {
        text.push_str("\nfailed tests, each with the command that runs it alone:\n");
    }
    for result in &failed {
        let _ = writeln!(text, "  {}", rerun_command(&result.test));
    }
    let passed = results.len() - failed.len() - skipped.len();
    let _ = writeln!(text, "\ntests took {:.0} s", elapsed.as_secs_f64());
    let _ = writeln!(text, "{passed} passed, {} failed, {} skipped", failed.len(), skipped.len());
    text
}

#[cfg(test)]
mod tests {
    use super::super::catalog::Binary;
    use super::*;

    fn result(name: &str, outcome: Outcome, seconds: u64) -> TestResult {
        let binary = Binary {
            package: "torc-tests".to_owned(),
            target: "blackbox".to_owned(),
            executable: "/nowhere".into(),
            package_folder: "/".into(),
        };
        let test = Test { binary, name: name.to_owned() };
        TestResult { test, outcome, duration: Duration::from_secs(seconds), output: String::new() }
    }

    #[test]
    fn the_summary_counts_and_names_what_to_type() {
        let mut results: Vec<TestResult> =
            (0..11).map(|i| result(&format!("t{i:02}"), Outcome::Passed, i + 1)).collect();
        results.push(result("apply::bad", Outcome::Failed("exit code 101".to_owned()), 0));
        results.push(result("disk::full", Outcome::Skipped("needs root".to_owned()), 0));
        let text = summary(&results, Duration::from_secs(95));
        assert!(text.ends_with("\ntests took 95 s\n11 passed, 1 failed, 1 skipped\n"), "{text}");
        assert!(text.contains("  tests/run --exact 'blackbox apply::bad'\n"), "{text}");
        assert!(text.contains("skipped (needs root): blackbox disk::full\n"), "{text}");
        assert!(text.contains("11.0 s  blackbox t10") && !text.contains("blackbox t00"), "ten slowest: {text}");
        let clean = summary(&results[..11], Duration::from_secs(1));
        assert!(!clean.contains("failed tests"), "{clean}");
    }

    #[test]
    fn a_failure_shows_the_end_of_a_long_output() {
        let mut failed = result("a", Outcome::Passed, 0);
        failed.output = (0..200).map(|i| format!("line {i}\n")).collect();
        let text = failure_text(&failed, "exit code 101");
        assert!(text.contains("FAILED blackbox a: exit code 101"), "{text}");
        assert!(text.contains("(50 lines before)") && text.contains("line 199"), "{text}");
        assert!(!text.contains("line 49\n") && text.contains("line 50\n"), "{text}");
    }
}
