//! Checks the identifiers of files in the provenance record.
//!
//! Only files that jobs read and none writes can have one, and Torc's own identifiers are reserved.

use std::collections::HashMap;

use torc_api::problem::Problem;
use torc_api::workflow::WorkflowSpec;

use crate::expanded::{Expanded, ExpandedFile};

use super::report::ProblemCollector;

const RESERVED_PREFIXES: [&str; 3] = ["#torc-", "#software-", "#job-"];
const RESERVED: [&str; 2] = ["ro-crate-metadata.json", "./"];

/// Reports identifiers that cannot be recorded. `entries` has the index of the document's entry for each file.
pub fn check(spec: &WorkflowSpec, expanded: &Expanded, entries: &[u32], report: &mut ProblemCollector) {
    if expanded.files.iter().all(|file| file.identifier.is_none()) {
        return;
    }
    let uses = IdentifierUses::of(expanded);
    let paths: HashMap<&str, usize> = expanded.files.iter().enumerate().map(|(n, f)| (f.path.as_str(), n)).collect();
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for ((number, file), entry) in expanded.files.iter().enumerate().zip(entries) {
        let Some(identifier) = file.identifier.as_deref() else { continue };
        let declared = spec.files.get(*entry as usize);
        let is_recorded = declared.is_some_and(|file| file.st_mtime.is_some());
        let other_path = paths.get(identifier).filter(|other| **other != number);
        let wrong = if spec.enable_ro_crate != Some(true) {
            Some("an identifier needs `enableRoCrate: true`".to_owned())
        } else if let Some(first) = seen.insert(identifier, &file.name) {
            Some(format!("files `{first}` and `{}` have the same identifier `{identifier}`", file.name))
        } else if let Some(other) = other_path.and_then(|other| expanded.files.get(*other)) {
            Some(format!("`{identifier}` is the path of file `{}`", other.name))
        } else {
            uses.wrong(number, file, is_recorded)
        };
        if let Some(message) = wrong {
            report.add(Problem::error(format!("spec.files[{entry}].identifier"), message));
        }
    }
}

struct IdentifierUses {
    read: Vec<bool>,
    written: Vec<bool>,
}

impl IdentifierUses {
    fn of(expanded: &Expanded) -> Self {
        let mut uses = Self { read: vec![false; expanded.files.len()], written: vec![false; expanded.files.len()] };
        for job in &expanded.jobs {
            mark(&mut uses.read, &job.input_files);
            mark(&mut uses.written, &job.output_files);
        }
        uses
    }

    fn wrong(&self, number: usize, file: &ExpandedFile, is_recorded: bool) -> Option<String> {
        let identifier = file.identifier.as_deref().unwrap_or_default();
        let is_reserved = RESERVED.contains(&identifier) || RESERVED_PREFIXES.iter().any(|p| identifier.starts_with(p));
        if identifier.trim().is_empty() {
            Some("the identifier must not be blank".to_owned())
        } else if is_reserved {
            Some(format!("`{identifier}` is reserved by Torc"))
        } else if self.written.get(number) == Some(&true) {
            Some(format!("file `{}` is the output of a job; only inputs can have an identifier", file.name))
        } else if self.read.get(number) != Some(&true) && !is_recorded {
            Some(format!("no job reads file `{}`", file.name))
        } else {
            None
        }
    }
}

fn mark(flags: &mut [bool], numbers: &[u32]) {
    for number in numbers {
        if let Some(flag) = flags.get_mut(*number as usize) {
            *flag = true;
        }
    }
}
