//! Formats an error and its causes in one line.

use std::error::Error;

/// Returns an error and its chain of causes, separated by colons.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn every_cause_is_told_in_order() {
        let chain = Layer("a", Some(Box::new(Layer("b", Some(Box::new(Layer("c", None)))))));
        assert_eq!(error_chain(&chain), "a: b: c");
        assert_eq!(error_chain(&Layer("alone", None)), "alone");
    }
}
