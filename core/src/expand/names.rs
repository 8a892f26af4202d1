//! Looks up names of one kind (jobs, files, data), literally or by regular expression.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;
use torc_api::nearest::nearest;

use super::pattern::{Candidates, candidates};

/// The number of full scans after which building an index of all substrings is worthwhile.
const SCANS_BEFORE_INDEX: usize = 16;

/// The names of one kind by number, with indexes that are built on demand.
#[derive(Debug)]
pub struct Names<'a> {
    names: &'a [String],
    numbers: HashMap<&'a str, u32>,
    sorted: Option<Vec<u32>>,
    suffixes: Option<Vec<(u32, u32)>>,
    scans: usize,
    patterns: HashMap<String, Arc<[u32]>>,
    /// Compiled tails by text: expressions of a family differ only in their literal start.
    tails: HashMap<String, Regex>,
}

/// Two entries of one kind with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    pub first: usize,
    pub second: usize,
}

impl<'a> Names<'a> {
    /// Numbers the names in their order. Of duplicate names the first counts.
    pub fn new(names: &'a [String]) -> (Self, Vec<Duplicate>) {
        let mut numbers = HashMap::with_capacity(names.len());
        let mut duplicates = Vec::new();
        for (number, name) in (0u32..).zip(names) {
            match numbers.entry(name.as_str()) {
                std::collections::hash_map::Entry::Vacant(entry) => {
                    entry.insert(number);
                }
                std::collections::hash_map::Entry::Occupied(entry) => {
                    duplicates.push(Duplicate { first: *entry.get() as usize, second: number as usize });
                }
            }
        }
        let index = Self {
            names,
            numbers,
            sorted: None,
            suffixes: None,
            scans: 0,
            patterns: HashMap::new(),
            tails: HashMap::new(),
        };
        (index, duplicates)
    }

    /// Returns the name with this number.
    pub fn name(&self, number: usize) -> &'a str {
        self.names.get(number).map_or("", String::as_str)
    }

    /// Returns the number of a name; none if there is no such name.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Returns the most similar name, if one is similar enough.
    pub fn nearest(&self, name: &str) -> Option<&'a str> {
        nearest(name, self.names.iter().map(String::as_str))
    }

    /// Returns the sorted numbers of all names that an expression matches anywhere in the name.
    pub fn matching(&mut self, pattern: &str) -> Result<Arc<[u32]>, String> {
        if let Some(known) = self.patterns.get(pattern) {
            return Ok(Arc::clone(known));
        }
        let mut found = self.search(pattern)?;
        found.sort_unstable();
        found.dedup();
        let found: Arc<[u32]> = found.into();
        self.patterns.insert(pattern.to_owned(), Arc::clone(&found));
        Ok(found)
    }

    fn search(&mut self, pattern: &str) -> Result<Vec<u32>, String> {
        let names = self.names;
        let compiled = || Regex::new(pattern).map_err(|error| error.to_string());
        let filter = |numbers: Vec<u32>| -> Result<Vec<u32>, String> {
            let regex = compiled()?;
            let matches = |number: &u32| names.get(*number as usize).is_some_and(|name| regex.is_match(name));
            Ok(numbers.into_iter().filter(matches).collect())
        };
        match candidates(pattern) {
            Candidates::Exactly(name) => Ok(self.find(&name).into_iter().collect()),
            Candidates::StartingWith(prefix) => Ok(self.starting_with(&prefix)),
            Candidates::AmongStartingWith { prefix, tail } => self.continuing(&prefix, &tail),
            Candidates::Containing(text) => Ok(self.containing(&text)),
            Candidates::AmongContaining(text) => filter(self.containing(&text)),
            Candidates::Any => filter((0u32..).take(names.len()).collect()),
        }
    }

    fn starting_with(&mut self, prefix: &str) -> Vec<u32> {
        let names = self.names;
        let name = |number: &u32| names.get(*number as usize).map_or("", String::as_str);
        let sorted = self.sorted.get_or_insert_with(|| {
            let mut numbers: Vec<u32> = (0u32..).take(names.len()).collect();
            numbers.sort_by_key(name);
            numbers
        });
        let from = sorted.partition_point(|number| name(number) < prefix);
        sorted.iter().skip(from).take_while(|number| name(number).starts_with(prefix)).copied().collect()
    }

    fn continuing(&mut self, prefix: &str, tail: &str) -> Result<Vec<u32>, String> {
        let mut numbers = self.starting_with(prefix);
        if !self.tails.contains_key(tail) {
            self.tails.insert(tail.to_owned(), Regex::new(tail).map_err(|error| error.to_string())?);
        }
        let (names, regex) = (self.names, self.tails.get(tail));
        let rest = |number: &u32| names.get(*number as usize).and_then(|name| name.get(prefix.len()..));
        numbers.retain(|number| rest(number).is_some_and(|rest| regex.is_some_and(|regex| regex.is_match(rest))));
        Ok(numbers)
    }

    fn containing(&mut self, text: &str) -> Vec<u32> {
        let names = self.names;
        self.scans += 1;
        if self.scans <= SCANS_BEFORE_INDEX {
            let numbered = (0u32..).zip(names);
            return numbered.filter(|(_, name)| name.contains(text)).map(|(number, _)| number).collect();
        }
        let suffix = |&(number, at): &(u32, u32)| -> &[u8] {
            names.get(number as usize).and_then(|name| name.as_bytes().get(at as usize..)).unwrap_or_default()
        };
        let suffixes = self.suffixes.get_or_insert_with(|| {
            let of_name = |(number, name): (u32, &String)| (0u32..).take(name.len()).map(move |at| (number, at));
            let mut all: Vec<(u32, u32)> = (0u32..).zip(names).flat_map(of_name).collect();
            all.sort_unstable_by_key(suffix);
            all
        });
        let from = suffixes.partition_point(|place| suffix(place) < text.as_bytes());
        let found = suffixes.iter().skip(from).take_while(|place| suffix(place).starts_with(text.as_bytes()));
        found.map(|(number, _)| *number).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_found_and_duplicates_reported() {
        let names: Vec<String> = ["a", "b", "a"].map(str::to_owned).into();
        let (index, duplicates) = Names::new(&names);
        assert_eq!((index.find("a"), index.find("b"), index.find("c")), (Some(0), Some(1), None));
        assert_eq!(duplicates, [Duplicate { first: 0, second: 2 }]);
    }

    #[test]
    fn a_bad_expression_is_an_error() {
        let names = vec!["a".to_owned()];
        assert!(Names::new(&names).0.matching("(").is_err());
        assert!(Names::new(&names).0.matching("a**b[").is_err());
    }

    proptest! {
        /// The indexes find the same names as a plain scan with the regex crate.
        #[test]
        fn short_cuts_change_nothing(
            names in prop::collection::vec("[ab_]{1,3}[0-9.]{0,3}(\n)?", 0..30),
            patterns in prop::collection::vec(
                prop_oneof![
                    "\\^?[ab_]{1,3}(\\.\\*|\\\\d\\+|[0-9])?\\$?",
                    "[ab]\\|\\^b", "\\(a\\|b\\)_", "\\^a[0-9]\\?\\\\\\.", "a\\{2\\}b", "\\^a\\[\\^_0\\]\\+\\$", "\\^a\\(\\^b\\|_\\)", "\\^ab\\\\b", "\\^a\\(_\\\\b\\|\\\\b\\)", "\\^b_\\?", "\\[ab\\]_", "\\.\\*_1", "\\^\\$", "\\.",
                ],
                1..40,
            ),
        ) {
            let (mut index, _) = Names::new(&names);
            for pattern in &patterns {
                let regex = Regex::new(pattern);
                let found = index.matching(pattern);
                prop_assert_eq!(found.is_ok(), regex.is_ok(), "{}", pattern);
                let (Ok(found), Ok(regex)) = (found, regex) else { continue };
                let first = |name: &String| names.iter().position(|other| other == name);
                let mut expected: Vec<u32> =
                    (0u32..).zip(&names).filter(|(_, name)| regex.is_match(name)).map(|(number, _)| number).collect();
                // A literal name finds only the first of duplicates, which are errors elsewhere.
                if matches!(candidates(pattern), Candidates::Exactly(_)) {
                    expected.retain(|number| first(&names[*number as usize]) == Some(*number as usize));
                }
                prop_assert_eq!(&found[..], &expected[..], "{}", pattern);
            }
        }
    }

    #[test]
    fn names_have_numbers_and_expressions_are_remembered() {
        let names: Vec<String> = ["a", "b", "ab"].map(str::to_owned).into();
        let (mut index, _) = Names::new(&names);
        assert_eq!((index.name(0), index.name(2), index.name(3)), ("a", "ab", ""));
        for _ in 0..2 {
            assert_eq!(&index.matching("^a").unwrap()[..], [0, 2]);
            assert_eq!(&index.matching("b").unwrap()[..], [1, 2]);
            assert_eq!(&index.matching("^a[b]$").unwrap()[..], [2]);
        }
    }
}
