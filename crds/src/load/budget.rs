//! Limits the depth of a document and its number of values.

use super::{LoadOptions, SyntaxError};
use crate::problem::Position;

/// The remaining depth and number of values of one file.
pub(super) struct Budget {
    depth: usize,
    most: usize,
    left: usize,
}

impl Budget {
    pub fn new(options: &LoadOptions) -> Self {
        Self { depth: options.max_depth, most: options.max_values, left: options.max_values }
    }

    /// Takes this number of values from the budget.
    pub fn spend(&mut self, values: usize, place: Position) -> Result<(), SyntaxError> {
        match self.left.checked_sub(values) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(SyntaxError::new(place, format!("the document has more than {} values", self.most))
                .hint("use parameters to make many jobs from one entry")),
        }
    }

    /// Checks that a value at this depth may contain others.
    pub fn descend(&self, depth: usize, place: Position) -> Result<(), SyntaxError> {
        if depth < self.depth {
            return Ok(());
        }
        Err(Self::too_deep(self.depth, place))
    }

    /// Returns the error for values that nest deeper than `depth`.
    pub fn too_deep(depth: usize, place: Position) -> SyntaxError {
        SyntaxError::new(place, format!("values are nested more than {depth} deep"))
    }
}
