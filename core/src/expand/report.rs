//! Collects the problems of a document: one for each field, however many rows of a family have it.

use std::collections::HashSet;

use torc_api::problem::Problem;

/// The number of problems that are collected. More would not help the user.
const MAX_PROBLEMS: usize = 500;

/// Collects problems in the order in which they are found.
#[derive(Debug, Default)]
pub struct ProblemCollector {
    problems: Vec<Problem>,
    fields: HashSet<String>,
    left_out: usize,
}

impl ProblemCollector {
    /// Adds a problem unless its field has one already.
    pub fn add(&mut self, problem: Problem) {
        if self.fields.insert(problem.field.clone()) {
            self.add_another(problem);
        }
    }

    /// Adds a problem even if its field has one already.
    pub fn add_another(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// Returns whether another problem will be shown, so that its hint is worth computing.
    pub fn may_show_hint(&self) -> bool {
        self.problems.len() < 20
    }

    /// Returns `value`, or all problems if there are any.
    pub fn finish<T>(mut self, value: T) -> Result<T, Vec<Problem>> {
        if self.left_out > 0 {
            self.problems.push(Problem::error("spec", format!("{} more problems of this kind", self.left_out)));
        }
        if self.problems.is_empty() { Ok(value) } else { Err(self.problems) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(count: usize) -> ProblemCollector {
        let mut report = ProblemCollector::default();
        for number in 0..count {
            report.add(Problem::error(format!("spec.jobs[{number}]"), "wrong"));
        }
        report
    }

    #[test]
    fn a_field_is_reported_once_unless_it_is_said_otherwise() {
        let mut report = report(1);
        report.add(Problem::error("spec.jobs[0]", "another"));
        report.add_another(Problem::error("spec.jobs[0]", "a third"));
        let messages: Vec<String> =
            report.finish(()).err().into_iter().flatten().map(|problem| problem.message).collect();
        assert_eq!(messages, ["wrong", "a third"]);
        assert_eq!(ProblemCollector::default().finish(7), Ok(7));
    }

    #[test]
    fn at_most_500_problems_are_listed_and_the_rest_is_counted() {
        for (count, listed, last) in
            [(499, 499, "wrong"), (500, 500, "wrong"), (503, 501, "3 more problems of this kind")]
        {
            let problems = report(count).finish(()).err().unwrap_or_default();
            assert_eq!(problems.len(), listed, "{count}");
            assert_eq!(problems.last().map(|problem| problem.message.as_str()), Some(last), "{count}");
        }
    }

    #[test]
    fn the_first_20_problems_have_hints() {
        for (count, expected) in [(0, true), (19, true), (20, false)] {
            assert_eq!(report(count).may_show_hint(), expected, "{count}");
        }
    }
}
