//! Detects keys that occur twice in one mapping.

use std::collections::HashSet;

use super::SyntaxError;
use super::tree::{Entry, excerpt};
use crate::problem::Position;

/// The number of keys from which hashing is faster than a linear search.
const FEW: usize = 16;

/// The keys seen so far.
#[derive(Default)]
pub(super) struct Keys {
    many: HashSet<String>,
}

impl Keys {
    /// Adds a key that comes after `entries`.
    pub fn add(&mut self, entries: &[Entry], key: &str, place: Position) -> Result<(), SyntaxError> {
        if !self.is_known(entries, key) {
            return Ok(());
        }
        let first = entries.iter().find(|entry| &*entry.key == key).map_or(0, |entry| entry.place.line);
        Err(SyntaxError::new(place, format!("the key `{}` occurs twice", excerpt(key)))
            .hint(format!("it is also on line {first}")))
    }

    fn is_known(&mut self, entries: &[Entry], key: &str) -> bool {
        if entries.len() < FEW {
            return entries.iter().any(|entry| &*entry.key == key);
        }
        if self.many.is_empty() {
            self.many.extend(entries.iter().map(|entry| entry.key.to_string()));
        }
        !self.many.insert(key.to_owned())
    }
}
