//! Detects keys that occur twice in one mapping.

use std::collections::HashSet;

use super::SyntaxError;
use super::tree::{Entry, excerpt};
use crate::problem::Position;

/// The number of keys from which hashing is faster than a linear search.
const HASHED_FROM: usize = 16;

/// The keys seen so far.
#[derive(Default)]
pub(super) struct Keys {
    many: HashSet<String>,
}

impl Keys {
    /// Adds a key that comes after `entries`.
    pub fn add(&mut self, entries: &[Entry], key: &str, position: Position) -> Result<(), SyntaxError> {
        if !self.is_known(entries, key) {
            return Ok(());
        }
        let first = entries.iter().find(|entry| &*entry.key == key).map_or(0, |entry| entry.position.line);
        Err(SyntaxError::new(position, format!("the key `{}` occurs twice", excerpt(key)))
            .hint(format!("it is also on line {first}")))
    }

    fn is_known(&mut self, entries: &[Entry], key: &str) -> bool {
        if entries.len() < HASHED_FROM {
            return entries.iter().any(|entry| &*entry.key == key);
        }
        if self.many.is_empty() {
            self.many.extend(entries.iter().map(|entry| entry.key.to_string()));
        }
        !self.many.insert(key.to_owned())
    }
}
