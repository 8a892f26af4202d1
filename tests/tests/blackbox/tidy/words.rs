//! No tracked text file contains a retired name or word.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use torc_tests::env::project_root;

/// Retired names and words, their replacements, and the exceptions.
const LIST: &str = include_str!("words.txt");
/// The start of the paths of the list and of this file.
const OWN_PATHS: &str = "tests/tests/blackbox/tidy/words.";
/// The page of the book with the names that stay.
const FIXED_NAMES: &str = "docs/reference/fixed-names.md";
/// Folders that git does not track.
const UNTRACKED: [&str; 4] = [".git", ".torc", "target", "torc_output"];

#[derive(Default)]
struct List<'a> {
    /// Whole identifiers, by name.
    names: BTreeMap<&'a str, &'a str>,
    /// Phrases as their words in lower case, by the first one.
    phrases: BTreeMap<String, Vec<(Vec<String>, &'a str)>>,
    /// A path, or the start of one, and the text that it may contain.
    exceptions: Vec<(&'a str, &'a str)>,
}

impl<'a> List<'a> {
    fn parse(text: &'a str, fixed_names: &'a str) -> Self {
        let mut list = Self::default();
        let mut section = "";
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name;
                continue;
            }
            match section {
                "exceptions" => {
                    let parts: Vec<&str> = line.splitn(3, " | ").collect();
                    let [path, text, _reason] = parts[..] else {
                        panic!("an exception is `PATH | TEXT | REASON`: {line}")
                    };
                    list.exceptions.push((if path == "*" { "" } else { path }, text));
                }
                _ => {
                    let (old, new) = line.split_once(" -> ").unwrap_or_else(|| panic!("expected `OLD -> NEW`: {line}"));
                    if section == "names" {
                        old.split(' ').for_each(|old| assert!(list.names.insert(old, new).is_none(), "{old} twice"));
                    } else {
                        let words: Vec<String> = words(old).into_iter().map(|(_, word)| word).collect();
                        list.phrases.entry(words[0].clone()).or_default().push((words, new));
                    }
                }
            }
        }
        list.exceptions.extend(fixed_names.split('`').skip(1).step_by(2).map(|name| ("", name)));
        list
    }

    /// Returns the retired names and words of a file, as `PATH:LINE: OLD (use NEW)`.
    fn check(&self, path: &str, text: &str) -> Vec<String> {
        let mut text = text.to_owned();
        for (_, allowed) in self.exceptions.iter().filter(|(start, _)| path.starts_with(start)) {
            if text.contains(allowed) {
                text = text.replace(allowed, &"\n".repeat(allowed.matches('\n').count()));
            }
        }
        let mut found = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            for name in line.split(|c: char| !c.is_alphanumeric() && c != '_') {
                found.extend(self.names.get(name).map(|new| (number + 1, name.to_owned(), *new)));
            }
        }
        let words = words(&text);
        for (at, (line, word)) in words.iter().enumerate() {
            for (phrase, new) in self.phrases.get(word).into_iter().flatten() {
                let next = words[at..].iter().map(|(_, word)| word).take(phrase.len());
                if next.eq(phrase) {
                    found.insert((*line, phrase.join(" "), *new));
                }
            }
        }
        found.into_iter().map(|(line, old, new)| format!("{path}:{line}: {old} (use {new})")).collect()
    }
}

/// Returns the words of a text in lower case with their lines. `lostDesk` and `lost_desk` are two words each.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    let (mut line, mut word, mut previous) = (1, String::new(), ' ');
    for c in text.chars().chain(['\n']) {
        if !word.is_empty() && (!c.is_alphanumeric() || (previous.is_lowercase() && c.is_uppercase())) {
            words.push((line, std::mem::take(&mut word)));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        line += usize::from(c == '\n');
        previous = c;
    }
    words
}

fn visit_files(folder: &Path, visit: &mut dyn FnMut(&str, &str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if UNTRACKED.iter().any(|name| entry.file_name() == *name) {
        } else if entry.file_type().unwrap().is_dir() {
            visit_files(&path, visit);
        } else if let Ok(text) = fs::read_to_string(&path) {
            visit(path.strip_prefix(project_root()).unwrap().to_str().unwrap(), &text);
        }
    }
}

#[test]
fn no_file_contains_a_retired_word() {
    let fixed_names = fs::read_to_string(project_root().join(FIXED_NAMES)).unwrap();
    let list = List::parse(LIST, &fixed_names);
    let mut found = Vec::new();
    visit_files(project_root(), &mut |path, text| {
        if !path.starts_with(OWN_PATHS) {
            found.extend(list.check(path, text));
        }
    });
    assert!(found.is_empty(), "{} retired words, see {OWN_PATHS}txt:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_check_finds_names_words_and_phrases() {
    let text = "[names]\nTale -> EventNote\n[words]\ndesk -> Context\nasked for -> submitted\n[exceptions]\na/ | desk.txt | a file\n";
    let list = List::parse(text, "`Standing desk`");
    let found = |path: &str, text: &str| list.check(path, text);
    assert_eq!(found("f", "a desktop, a tale, Tales, TaleOf"), Vec::<String>::new());
    assert_eq!(found("f", "one\nfn tell(tale: Tale)"), ["f:2: Tale (use EventNote)"]);
    let places = "lostDesk\nDESK\nlost_desk\nit asked\n    /// for more\nStanding desk";
    let expected = [
        "f:1: desk (use Context)",
        "f:2: desk (use Context)",
        "f:3: desk (use Context)",
        "f:4: asked for (use submitted)",
    ];
    assert_eq!(found("f", places), expected);
    assert_eq!(found("a/b", "desk.txt"), Vec::<String>::new());
    assert_eq!(found("b/b", "desk.txt"), ["b/b:1: desk (use Context)"]);
}

#[test]
fn every_exception_is_needed() {
    let list = List::parse(LIST, "");
    for (start, text) in &list.exceptions {
        let mut used = false;
        visit_files(project_root(), &mut |path, content| {
            used |= !path.starts_with(OWN_PATHS) && path.starts_with(start) && content.contains(text);
        });
        assert!(used, "{start} does not contain {text}: remove the exception");
    }
}
