//! Limits the depth of a document and its number of values.

use super::{LoadOptions, SyntaxError};
use crate::problem::Position;

/// The remaining depth and number of values of one file.
pub(super) struct Budget {
    depth: usize,
    most: usize,
    remaining: usize,
}

impl Budget {
    pub fn new(options: &LoadOptions) -> Self {
        Self { depth: options.max_depth, most: options.max_values, remaining: options.max_values }
    }

    /// Takes this number of values from the budget.
    pub fn consume(&mut self, values: usize, position: Position) -> Result<(), SyntaxError> {
        match self.remaining.checked_sub(values) {
            Some(remaining) => {
                self.remaining = remaining;
                Ok(())
            }
            None => Err(SyntaxError::new(position, format!("the document has more than {} values", self.most))
                .hint("use parameters to make many jobs from one entry")),
        }
    }

    /// Checks that a value at this depth may contain others.
    pub fn descend(&self, depth: usize, position: Position) -> Result<(), SyntaxError> {
        if depth < self.depth {
            return Ok(());
        }
        Err(Self::too_deep(self.depth, position))
    }

    /// Returns the error for values that nest deeper than `depth`.
    pub fn too_deep(depth: usize, position: Position) -> SyntaxError {
        SyntaxError::new(position, format!("values are nested more than {depth} deep"))
    }
}
