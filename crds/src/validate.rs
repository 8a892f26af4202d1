//! Checks the rules of one document that need no expansion: those of `rules`, and those that CEL cannot express.
//!
//! Deliberately absent: rules about expanded jobs (names after expansion, dependencies, cycles, regular expressions),
//! which the planner checks. Texts with a `{` are templates, which are checked after expansion.

use crate::document::{Document, SlurmClusterDocument, WorkflowDocument};
use crate::finding::Finding;
use crate::nearest::nearest;
use crate::problem::Problem;
use crate::rules;

mod actions;
mod cluster;
mod files;
mod jobs;
mod metadata;
mod names;
mod parameters;
mod policies;
mod references;
mod resources;

/// Returns all problems of a document, unordered and without positions.
pub fn validate(document: &Document) -> Vec<Problem> {
    findings(document).into_iter().map(Finding::into_problem).collect()
}

pub(crate) fn findings(document: &Document) -> Vec<Finding> {
    let mut found = Findings { list: rules::creation_findings(document), suggestions: 0 };
    match document {
        Document::Workflow(workflow) => check_workflow(workflow, &mut found),
        Document::SlurmCluster(cluster) => check_cluster(cluster, &mut found),
    }
    found.list
}

fn check_workflow(WorkflowDocument { metadata, spec, .. }: &WorkflowDocument, found: &mut Findings) {
    metadata::check(metadata, found);
    names::check(spec, found);
    jobs::check(spec, found);
    references::check(spec, found);
    parameters::check(spec, found);
    files::check(spec, found);
    resources::check(spec, found);
    actions::check(spec, found);
    policies::check(spec, found);
}

fn check_cluster(SlurmClusterDocument { metadata, spec, .. }: &SlurmClusterDocument, found: &mut Findings) {
    metadata::check(metadata, found);
    cluster::check(spec, found);
}

/// The number of problems that get a suggestion. The cost of finding the nearest word is the product of all words.
const MAX_SUGGESTIONS: usize = 100;

/// The findings so far.
struct Findings {
    list: Vec<Finding>,
    suggestions: usize,
}

impl Findings {
    fn add(&mut self, problem: Problem) {
        self.list.push(Finding::new(problem, false));
    }

    /// Adds to a problem with an unknown name the known one that may have been meant.
    fn with_nearest<'k>(&mut self, problem: Problem, name: &str, known: impl Iterator<Item = &'k str>) -> Problem {
        self.suggestions += 1;
        let worth_it = self.suggestions <= MAX_SUGGESTIONS;
        match worth_it.then(|| nearest(name, known)).flatten() {
            Some(known) => problem.hint(format!("did you mean '{known}'?")),
            None => problem,
        }
    }

    fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(Problem::error(field, message));
    }

    /// Adds an error that is a warning in a bare file.
    fn tolerated(&mut self, problem: Problem) {
        self.list.push(Finding::new(problem, true));
    }
}

/// Returns whether a text contains parameters or variables.
fn is_template(text: &str) -> bool {
    text.contains('{')
}

#[cfg(test)]
mod tests;
