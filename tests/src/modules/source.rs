//! Parses a file into its modules with their children, items, imports and paths.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{Token, tokens};

/// A name that a `use` item brings in, or all names of a module (`*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub path: Vec<String>,
    /// The imported name; `None` stands for `*`.
    pub name: Option<String>,
    /// The import is a re-export.
    pub is_public: bool,
    pub line: usize,
}

/// A path in code, such as `super::lease::expire`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePath {
    pub path: Vec<String>,
    pub line: usize,
}

/// The text of a module without its inner modules.
#[derive(Debug, Default)]
pub struct Scope {
    pub children: BTreeSet<String>,
    pub items: BTreeSet<String>,
    pub imports: Vec<Import>,
    pub paths: Vec<CodePath>,
    /// Names in code without `::`, with their first line.
    pub names: BTreeMap<String, usize>,
}

#[derive(Debug, Default)]
pub struct Source {
    /// Scopes by their path within the file. The file's own module has the empty path.
    pub scopes: BTreeMap<Vec<String>, Scope>,
    pub file_children: Vec<String>,
}

pub fn parse(text: &str) -> Source {
    let mut parser = Parser { tokens: tokens(text), at: 0, source: Source::default(), inner: Vec::new(), depth: 0 };
    parser.source.scopes.insert(Vec::new(), Scope::default());
    while parser.at < parser.tokens.len() {
        parser.next();
    }
    parser.source
}

/// A module in braces that encloses the current token.
struct Inner {
    name: String,
    /// The number of open braces outside the module.
    depth: usize,
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    source: Source,
    inner: Vec<Inner>,
    depth: usize,
}

const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];

impl Parser {
    fn next(&mut self) {
        match self.text(0) {
            "#" if self.is_test_attribute() => self.skip_item(),
            "#" if self.text(1) == "[" => {
                self.at += 1;
                self.skip_group();
            }
            "{" => self.open(),
            "}" => self.close(),
            "mod" if self.name(1) && matches!(self.text(2), ";" | "{") => self.module(),
            "use" => self.import(),
            "macro_rules" if self.text(1) == "!" => {
                let name = self.text(2).to_owned();
                self.scope().items.insert(name);
                self.at += 3;
            }
            keyword if ITEMS.contains(&keyword) && self.is_at_module_level() && self.name(1) => {
                let name = self.text(1).to_owned();
                self.scope().items.insert(name);
                self.at += 2;
            }
            _ if self.name(0) => self.path(),
            _ => self.at += 1,
        }
    }

    fn text(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |token| &token.text)
    }

    fn name(&self, ahead: usize) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(Token::is_name)
    }

    fn scope(&mut self) -> &mut Scope {
        let path: Vec<String> = self.inner.iter().map(|inner| inner.name.clone()).collect();
        self.source.scopes.entry(path).or_default()
    }

    fn is_at_module_level(&self) -> bool {
        self.depth == self.inner.last().map_or(0, |inner| inner.depth + 1)
    }

    fn open(&mut self) {
        self.depth += 1;
        self.at += 1;
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.inner.last().is_some_and(|inner| inner.depth == self.depth) {
            self.inner.pop();
        }
        self.at += 1;
    }

    fn is_test_attribute(&self) -> bool {
        let words: Vec<&str> = (0..5).map(|ahead| self.text(ahead)).collect();
        words == ["#", "[", "cfg", "(", "test"] && self.text(5) == ")"
            || words == ["#", "[", "cfg", "(", "all"] && self.text(5) == "(" && self.text(6) == "test"
    }

    /// Skips the attributes and the item that start here.
    fn skip_item(&mut self) {
        while self.text(0) == "#" {
            self.at += 1;
            self.skip_group();
        }
        let ends_with_semicolon = (0..6).any(|ahead| self.text(ahead) == "use");
        while self.at < self.tokens.len() {
            match self.text(0) {
                ";" => return self.at += 1,
                "{" if !ends_with_semicolon => return self.skip_group(),
                "{" | "(" | "[" => self.skip_group(),
                _ => self.at += 1,
            }
        }
    }

    /// Skips from an opening bracket past its closing one.
    fn skip_group(&mut self) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    fn module(&mut self) {
        let name = self.text(1).to_owned();
        self.scope().children.insert(name.clone());
        if self.text(2) == ";" {
            if self.inner.is_empty() {
                self.source.file_children.push(name);
            }
        } else {
            self.inner.push(Inner { name, depth: self.depth });
            self.scope();
            self.depth += 1;
        }
        self.at += 3;
    }

    fn import(&mut self) {
        let is_public = self.at > 0 && matches!(self.tokens[self.at - 1].text.as_str(), "pub" | ")");
        self.at += 1;
        // `use<'a>` in a return type is no import.
        if self.text(0) == "<" {
            return;
        }
        self.tree(&[], is_public);
    }

    /// Reads one branch of a `use` item.
    fn tree(&mut self, prefix: &[String], is_public: bool) {
        let mut path = prefix.to_vec();
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        loop {
            match self.text(0) {
                "::" => self.at += 1,
                "{" => return self.branches(&path, is_public),
                "*" => {
                    self.at += 1;
                    return self.scope().imports.push(Import { path, name: None, is_public, line });
                }
                "as" => {
                    let name = Some(self.text(1).to_owned());
                    self.at += 2;
                    return self.scope().imports.push(Import { path, name, is_public, line });
                }
                "self" if !path.is_empty() => self.at += 1,
                _ if self.name(0) => {
                    path.push(self.text(0).to_owned());
                    self.at += 1;
                }
                _ => {
                    let name = path.last().cloned();
                    return self.scope().imports.push(Import { path, name, is_public, line });
                }
            }
        }
    }

    fn branches(&mut self, prefix: &[String], is_public: bool) {
        self.at += 1;
        while !matches!(self.text(0), "}" | "") {
            self.tree(prefix, is_public);
            if self.text(0) == "," {
                self.at += 1;
            }
        }
        self.at += 1;
    }

    fn path(&mut self) {
        let line = self.tokens[self.at].line;
        let mut path = vec![self.text(0).to_owned()];
        let is_absolute = self.at > 0 && self.tokens[self.at - 1].text == "::";
        self.at += 1;
        while self.text(0) == "::" && self.name(1) {
            path.push(self.text(1).to_owned());
            self.at += 2;
        }
        if path.len() > 1 && !is_absolute {
            self.scope().paths.push(CodePath { path, line });
        } else if !is_absolute {
            let name = path.remove(0);
            self.scope().names.entry(name).or_insert(line);
        }
    }
}
