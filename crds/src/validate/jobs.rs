//! Labels, environment variables and fields without effect.

use std::collections::BTreeMap;

use super::Findings;
use crate::job::JobSpec;
use crate::problem::Problem;
use crate::quantity::count;
use crate::workflow::WorkflowSpec;

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    environment("spec.env", &spec.env, found);
    for (index, job) in spec.jobs.iter().enumerate() {
        if !job.env.is_empty() {
            environment(&format!("spec.jobs[{index}].env"), &job.env, found);
        }
        if !job.labels.is_empty() {
            labels(index, job, found);
        }
    }
    without_effect(spec, found);
}

fn environment(field: &str, env: &BTreeMap<String, String>, found: &mut Findings) {
    for name in env.keys() {
        let mut letters = name.bytes();
        let begins = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
        if !begins || !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_') {
            found.add(
                Problem::error(
                    format!("{field}.{name}"),
                    format!("'{name}' is not a valid name of an environment variable"),
                )
                .hint("use letters, digits and '_', and do not begin with a digit"),
            );
        }
    }
}

fn labels(index: usize, job: &JobSpec, found: &mut Findings) {
    for (at, label) in job.labels.iter().enumerate() {
        let wrong = if label.trim().is_empty() {
            "a label must not be empty"
        } else if label.contains(',') {
            "a label must not contain a comma"
        } else if label.trim() != label {
            "a label must not begin or end with a blank"
        } else {
            continue;
        };
        found.error(format!("spec.jobs[{index}].labels[{at}]"), wrong);
    }
}

/// Fields that old files have and that never did anything, or no longer do: one warning for each.
fn without_effect(spec: &WorkflowSpec, found: &mut Findings) {
    let mut with_termination = spec.jobs.iter().enumerate().filter(|(_, job)| job.supports_termination.is_some());
    if let Some((index, _)) = with_termination.next() {
        let message = match with_termination.count() {
            0 => "has no effect".to_owned(),
            others => format!("has no effect, here and in {}", count(others, "other job")),
        };
        found.add(Problem::warning(format!("spec.jobs[{index}].supportsTermination"), message).hint("remove it"));
    }
    if spec.compute_node_expiration_buffer_seconds.is_some() {
        let field = "spec.computeNodeExpirationBufferSeconds";
        found.add(
            Problem::warning(field, "has no effect").hint("see `sigkill_headroom_seconds` of the execution config"),
        );
    }
}
