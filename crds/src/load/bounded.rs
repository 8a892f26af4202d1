//! A bounded list of problems.

use crate::problem::{Problem, Severity};

/// A list of problems up to a limit, and the number of further ones. Errors take precedence over warnings.
#[derive(Debug)]
pub(super) struct BoundedProblems {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    most: usize,
    left_out: usize,
}

impl BoundedProblems {
    pub fn new(most: usize) -> Self {
        Self { errors: Vec::new(), warnings: Vec::new(), most, left_out: 0 }
    }

    pub fn add(&mut self, problem: Problem) {
        let list = if problem.is_error() { &mut self.errors } else { &mut self.warnings };
        if list.len() < self.most {
            list.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    pub fn append(&mut self, other: Self) {
        self.left_out += other.left_out;
        for problem in other.errors.into_iter().chain(other.warnings) {
            self.add(problem);
        }
    }

    /// Returns whether the next problem of this severity will be shown, so that its hint is worth computing.
    pub fn has_room(&self, severity: Severity) -> bool {
        match severity {
            Severity::Error => self.errors.len() < self.most,
            Severity::Warning => self.warnings.len() < self.most,
        }
    }

    /// Returns whether no problem was left out.
    pub fn is_complete(&self) -> bool {
        self.left_out == 0
    }

    pub fn errors(&self) -> &[Problem] {
        &self.errors
    }

    /// Returns the problems in the order of the text, with a note about those left out.
    pub fn into_problems(mut self) -> Vec<Problem> {
        let any_error = !self.errors.is_empty();
        let room = self.most - self.errors.len().min(self.most);
        self.warnings.sort_by_key(|problem| problem.position);
        self.left_out += self.warnings.len().saturating_sub(room);
        self.warnings.truncate(room);
        let mut problems = self.errors;
        problems.append(&mut self.warnings);
        problems.sort_by_key(|problem| problem.position);
        if self.left_out > 0 {
            let message = match self.left_out {
                1 => "1 more problem is not listed".to_owned(),
                more => format!("{more} more problems are not listed"),
            };
            problems.push(if any_error { Problem::error("", message) } else { Problem::warning("", message) });
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_counted_for_each_severity() {
        let mut listed = BoundedProblems::new(2);
        for _ in 0..2 {
            assert!(listed.has_room(Severity::Warning));
            listed.add(Problem::warning("x", "odd"));
        }
        assert!(!listed.has_room(Severity::Warning) && listed.has_room(Severity::Error) && listed.is_complete());
        listed.add(Problem::warning("x", "odd"));
        assert!(!listed.is_complete());
    }
}
