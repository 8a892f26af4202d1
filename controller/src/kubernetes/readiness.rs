//! Whether a server may be asked: what it still waits for, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What objects have to be listed first.
const WORKFLOWS: &str = "workflows";

/// What is missing. Clones are the same; one that nobody has said anything about is ready.
#[derive(Clone, Default)]
pub(crate) struct Readiness {
    missing: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Readiness {
    /// Something is missing, and why.
    pub fn lacks(&self, what: &'static str, why: impl Into<String>) {
        self.lock().insert(what, why.into());
    }

    /// It is there now.
    pub fn has(&self, what: &'static str) {
        self.lock().remove(what);
    }

    /// Objects are being listed.
    pub fn lists(&self) {
        self.lacks(WORKFLOWS, "are being listed");
    }

    /// They cannot be, and why; once they have been, that is no matter of being ready.
    pub fn cannot_list(&self, why: &str) {
        if let Some(said) = self.lock().get_mut(WORKFLOWS) {
            *said = format!("are not listed: {why}");
        }
    }

    /// They have been.
    pub fn listed(&self) {
        self.has(WORKFLOWS);
    }

    pub fn has_listed(&self) -> bool {
        !self.lock().contains_key(WORKFLOWS)
    }

    /// A sentence about everything that is missing.
    pub fn missing(&self) -> Option<String> {
        let missing = self.lock();
        let sentences: Vec<String> = missing.iter().map(|(what, why)| format!("{what}: {why}")).collect();
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_whoever_lacks_nothing() {
        let readiness = Readiness::default();
        assert_eq!(readiness.missing(), None);
        readiness.lists();
        readiness.lacks("definitions", "Workflow has no field `spec.x`");
        let complaint = "definitions: Workflow has no field `spec.x`; workflows: are being listed";
        assert_eq!(readiness.missing().as_deref(), Some(complaint));
        assert!(!readiness.has_listed());
        readiness.cannot_list("forbidden");
        assert!(!readiness.has_listed());
        assert!(readiness.missing().is_some_and(|said| said.ends_with("workflows: are not listed: forbidden")));
        readiness.listed();
        readiness.cannot_list("a watch was cut short");
        readiness.has("definitions");
        assert_eq!(readiness.missing(), None);
    }
}
