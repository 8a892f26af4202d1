//! The modules of a crate, the uses between them, and the cycles, read from the source text.
//!
//! A file is one module of the graph; a module in braces belongs to its file. Items under `#[cfg(test)]`
//! are skipped. Uses are paths: `use` items and paths in code, also within macros. Method calls are not seen.
//!
//! A cycle is searched among the children of each module. A child stands for all of its descendants. Uses between a module and
//! its own descendants do not count.

mod cycles;
mod levels;
mod resolve;
mod source;
mod tokens;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use cycles::{Component, components};
pub use levels::siblings;

/// A use of one module by another, at the first place of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    pub from: String,
    pub to: String,
    pub file: String,
    pub line: usize,
    /// The path as written.
    pub path: String,
}

/// The modules of a crate by their paths. The root is `crate`.
#[derive(Debug, Default)]
pub struct Modules {
    pub(crate) by_path: BTreeMap<String, Module>,
}

#[derive(Debug)]
pub(crate) struct Module {
    /// The path of the file module that contains this one: the module itself unless it is in braces.
    pub node: String,
    pub file: String,
    pub scope: source::Scope,
}

impl Modules {
    /// Reads the module tree of a crate root such as `core/src/lib.rs`. File names are relative to `base`.
    pub fn read(base: &Path, root: &str) -> io::Result<Self> {
        let mut modules = Self::default();
        let mut open = vec![("crate".to_owned(), base.join(root))];
        while let Some((path, file)) = open.pop() {
            let text = fs::read_to_string(&file)?;
            let name = file.strip_prefix(base).unwrap_or(&file).to_string_lossy().into_owned();
            for child in modules.add(&path, &name, &text) {
                let found = child_file(&file, path == "crate", &child)
                    .ok_or_else(|| io::Error::other(format!("{name}: module {child} has no file")))?;
                open.push((format!("{path}::{child}"), found));
            }
        }
        Ok(modules)
    }

    /// Adds the modules of a file and returns the names of its child modules in other files.
    pub(crate) fn add(&mut self, path: &str, file: &str, text: &str) -> Vec<String> {
        let parsed = source::parse(text);
        for (inner, scope) in parsed.scopes {
            let full = inner.iter().fold(path.to_owned(), |whole, part| format!("{whole}::{part}"));
            self.by_path.insert(full, Module { node: path.to_owned(), file: file.to_owned(), scope });
        }
        parsed.file_children
    }
}

fn child_file(parent: &Path, is_root: bool, child: &str) -> Option<PathBuf> {
    let stem = parent.file_stem()?;
    let folder = if is_root || stem == "mod" { parent.parent()?.to_owned() } else { parent.parent()?.join(stem) };
    [folder.join(format!("{child}.rs")), folder.join(child).join("mod.rs")].into_iter().find(|file| file.exists())
}

#[cfg(test)]
mod tests;
