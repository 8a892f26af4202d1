//! The size limit of Kubernetes objects.

use serde_json::json;

use crate::document::WorkflowDocument;
use crate::problem::{Problem, ProblemKind};

/// The largest size of a workflow as JSON, in bytes. etcd rejects requests of more than 1.5 MiB, and the object also
/// holds the managed fields and the status.
const MAX_OBJECT_BYTES: usize = 900 << 10;

/// Returns a problem if a workflow is too large for an API server. Without Kubernetes there is no such limit.
pub fn too_large(document: &WorkflowDocument) -> Option<Problem> {
    let object = json!({ "metadata": document.metadata, "spec": document.spec });
    too_many_bytes(serde_json::to_vec(&object).map_or(0, |text| text.len()))
}

/// Returns a problem if an object of this size in bytes is too large.
pub fn too_many_bytes(size: usize) -> Option<Problem> {
    (size > MAX_OBJECT_BYTES).then(|| {
        let message = format!("the object would have {} KiB; the limit is {} KiB", size.div_ceil(1 << 10), MAX_OBJECT_BYTES >> 10);
        Problem::error("spec", message).kind(ProblemKind::TooLarge).hint(
            "generate many jobs from one entry with `parameters` (`i: 1:100000` takes a few bytes), and put long tables into \
             ConfigMaps that `sources` lists",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobSpec;

    #[test]
    fn the_limit_itself_fits_and_one_more_byte_does_not() {
        assert_eq!(too_many_bytes(921_600), None);
        let problem = too_many_bytes(921_601).expect("too large");
        assert_eq!(problem.message, "the object would have 901 KiB; the limit is 900 KiB");
        assert_eq!((problem.field.as_str(), problem.kind, problem.is_error()), ("spec", ProblemKind::TooLarge, true));
    }

    #[test]
    fn what_does_not_fit_is_told_with_a_way_out() {
        let mut document = WorkflowDocument::default();
        assert_eq!(too_large(&document), None);
        let command = "x".repeat(1 << 10);
        document.spec.jobs = (0..870).map(|_| JobSpec { command: command.clone(), ..JobSpec::default() }).collect();
        assert_eq!(too_large(&document), None, "870 jobs of a kibibyte");
        document.spec.jobs.resize(900, JobSpec { command, ..JobSpec::default() });
        let problem = too_large(&document).expect("too large");
        assert_eq!(problem.message, "the object would have 923 KiB; the limit is 900 KiB");
        let mut labelled = WorkflowDocument::default();
        labelled.metadata.annotations.insert("long".to_owned(), "x".repeat(MAX_OBJECT_BYTES));
        assert!(too_large(&labelled).is_some(), "annotations count, too");
        assert!(problem.hint.is_some_and(|hint| hint.contains("`parameters`") && hint.contains("ConfigMaps")));
    }
}
