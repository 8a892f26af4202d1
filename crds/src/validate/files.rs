//! Checks the identifiers of files in the provenance record.

use std::collections::{HashMap, HashSet};

use super::{Findings, is_template};
use crate::problem::Problem;
use crate::workflow::WorkflowSpec;

/// Identifiers that Torc uses in the record itself.
const RESERVED: [&str; 2] = ["ro-crate-metadata.json", "./"];
const RESERVED_PREFIXES: [&str; 3] = ["#torc-", "#software-", "#job-"];

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    if spec.files.iter().all(|file| file.identifier.is_none()) {
        return;
    }
    let paths: HashMap<&str, &str> = spec.files.iter().map(|file| (file.path.as_str(), file.name.as_str())).collect();
    let written: HashSet<&str> =
        spec.jobs.iter().flat_map(|job| job.output_files.iter().flatten()).map(String::as_str).collect();
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (index, file) in spec.files.iter().enumerate() {
        let Some(identifier) = file.identifier.as_deref() else { continue };
        let field = format!("spec.files[{index}].identifier");
        if spec.enable_ro_crate != Some(true) {
            found.add(
                Problem::error(field.as_str(), "an identifier needs the provenance record")
                    .hint("set `enable_ro_crate: true` (`enableRoCrate`) or remove the identifier"),
            );
        }
        if identifier.trim().is_empty() {
            found.error(field.as_str(), "must not be empty");
            continue;
        }
        if RESERVED.contains(&identifier) || RESERVED_PREFIXES.iter().any(|prefix| identifier.starts_with(prefix)) {
            found.error(field.as_str(), format!("'{identifier}' is reserved"));
        }
        if let Some(other) = paths.get(identifier).filter(|other| **other != file.name) {
            found.error(field.as_str(), format!("'{identifier}' is the path of the file '{other}'"));
        }
        if !is_template(identifier)
            && let Some(other) = seen.insert(identifier, &file.name)
        {
            found.error(field.as_str(), format!("the file '{other}' has the identifier '{identifier}' too"));
        }
        if written.contains(file.name.as_str()) {
            found.add(
                Problem::error(field, format!("'{}' is the output of a job; only inputs have identifiers", file.name))
                    .hint("remove the identifier"),
            );
        }
    }
}
