//! Checks names, labels and annotations of documents by the rules of Kubernetes, also without Kubernetes.

use super::Findings;
use crate::document::Metadata;
use crate::problem::Problem;

/// The largest length of the prefix of a key, which is a DNS name.
const MAX_PREFIX_CHARS: usize = 253;
/// The largest size of all annotations of an object, in bytes.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;
const KEY_HINT: &str = "use at most 63 letters, digits, '-', '_' and '.', optionally after a domain and a '/'";
/// The largest length of a namespace, which is a DNS label.
const MAX_NAMESPACE_CHARS: usize = 63;

pub(super) fn check(metadata: &Metadata, found: &mut Findings) {
    let name = &metadata.name;
    let parts_are_labels = name.split('.').all(is_label);
    if !parts_are_labels {
        found.add(
            Problem::error("metadata.name", format!("'{name}' is not a valid name"))
                .hint("use lower-case letters, digits, '-' and '.', and begin and end with a letter or digit"),
        );
    }
    if let Some(namespace) = &metadata.namespace
        && (!is_label(namespace) || namespace.len() > MAX_NAMESPACE_CHARS)
    {
        found.add(
            Problem::error("metadata.namespace", format!("'{namespace}' is not a valid namespace"))
                .hint("use at most 63 lower-case letters, digits and '-'"),
        );
    }
    labels(metadata, found);
    annotations(metadata, found);
}

fn labels(metadata: &Metadata, found: &mut Findings) {
    for (key, value) in &metadata.labels {
        let field = format!("metadata.labels.{key}");
        if !is_qualified(key) {
            found.add(Problem::error(field.as_str(), format!("'{key}' is not a valid label key")).hint(KEY_HINT));
        }
        if !value.is_empty() && !is_short_word(value) {
            found.add(
                Problem::error(field, format!("'{value}' is not a valid label value"))
                    .hint("use at most 63 letters, digits, '-', '_' and '.'; an annotation may hold any text"),
            );
        }
    }
}

fn annotations(metadata: &Metadata, found: &mut Findings) {
    for key in metadata.annotations.keys().filter(|key| !is_qualified(&key.to_ascii_lowercase())) {
        let field = format!("metadata.annotations.{key}");
        found.add(Problem::error(field, format!("'{key}' is not a valid annotation key")).hint(KEY_HINT));
    }
    let size: usize = metadata.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_ANNOTATION_BYTES {
        let message = format!("all annotations together must have at most {MAX_ANNOTATION_BYTES} bytes, not {size}");
        found.error("metadata.annotations", message);
    }
}

/// Returns whether a key is `name` or `example.org/name`.
fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => {
            prefix.len() <= MAX_PREFIX_CHARS && prefix.split('.').all(is_label) && is_short_word(name)
        }
        None => is_short_word(key),
    }
}

fn is_short_word(text: &str) -> bool {
    let at_the_ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAMESPACE_CHARS
        && at_the_ends(bytes.first())
        && at_the_ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Returns whether a text is a label by RFC 1123, as Kubernetes reads it.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}
