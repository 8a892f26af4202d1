//! A problem of a document whose dialect is not known yet.

use crate::problem::{Problem, Severity};

/// A problem, and whether Torc 1.0 tolerated it.
#[derive(Debug)]
pub(crate) struct Finding {
    problem: Problem,
    tolerated: bool,
}

impl Finding {
    pub fn new(problem: Problem, tolerated: bool) -> Self {
        Self { problem, tolerated }
    }

    pub fn into_problem(self) -> Problem {
        self.in_dialect(false)
    }

    /// Returns the problem. In a bare file, a tolerated problem is a warning.
    pub fn in_dialect(self, bare: bool) -> Problem {
        match self.tolerated && bare {
            true => Problem { severity: Severity::Warning, ..self.problem },
            false => self.problem,
        }
    }
}
