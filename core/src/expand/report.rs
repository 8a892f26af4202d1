//! Problems as they are found: one for each field, however many rows of a family have it.

use std::collections::HashSet;

use torc_api::problem::Problem;

/// More problems than this help nobody.
const MOST: usize = 500;

/// Collects problems in the order in which they are found.
#[derive(Debug, Default)]
pub struct Report {
    problems: Vec<Problem>,
    fields: HashSet<String>,
    left_out: usize,
}

impl Report {
    /// Adds a problem unless its field has one already.
    pub fn add(&mut self, problem: Problem) {
        if self.fields.insert(problem.field.clone()) {
            self.add_another(problem);
        }
    }

    /// Adds a problem whatever else is wrong with its field.
    pub fn add_another(&mut self, problem: Problem) {
        if self.problems.len() < MOST {
            self.problems.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// Whether there is room for another problem with the effort of a good hint.
    pub fn deserves_hint(&self) -> bool {
        self.problems.len() < 20
    }

    /// `value`, or everything that was wrong.
    pub fn finish<T>(mut self, value: T) -> Result<T, Vec<Problem>> {
        if self.left_out > 0 {
            self.problems.push(Problem::error("spec", format!("{} more problems of this kind", self.left_out)));
        }
        if self.problems.is_empty() { Ok(value) } else { Err(self.problems) }
    }
}
