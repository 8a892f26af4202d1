//! Names of documents, by the rules of Kubernetes, with or without Kubernetes.

use super::Findings;
use crate::document::Metadata;
use crate::load::LONGEST_NAME;
use crate::problem::Problem;

/// A namespace is a DNS label.
const LONGEST_NAMESPACE: usize = 63;

pub(super) fn check(metadata: &Metadata, found: &mut Findings) {
    let name = &metadata.name;
    let parts_are_labels = name.split('.').all(is_label);
    if !parts_are_labels {
        found.add(
            Problem::error("metadata.name", format!("'{name}' is not a name"))
                .hint("use lower-case letters, digits, '-' and '.', and begin and end with a letter or digit"),
        );
    } else if name.len() > LONGEST_NAME {
        found.error("metadata.name", format!("must have at most {LONGEST_NAME} characters, not {}", name.len()));
    }
    if let Some(namespace) = &metadata.namespace
        && (!is_label(namespace) || namespace.len() > LONGEST_NAMESPACE)
    {
        found.add(
            Problem::error("metadata.namespace", format!("'{namespace}' is not a namespace"))
                .hint("use at most 63 lower-case letters, digits and '-'"),
        );
    }
}

/// RFC 1123, as Kubernetes reads it.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}
