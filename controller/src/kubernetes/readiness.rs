//! Readiness of a server: the parts that are missing, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The name of the list of workflow objects.
const WORKFLOWS: &str = "workflows";

/// The missing parts. Clones share state. A new value lacks nothing.
#[derive(Clone, Default)]
pub(crate) struct Readiness {
    missing: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Readiness {
    /// Adds a missing part and the reason.
    pub fn add_missing(&self, what: &'static str, why: impl Into<String>) {
        self.lock().insert(what, why.into());
    }

    /// Removes a missing part.
    pub fn has(&self, what: &'static str) {
        self.lock().remove(what);
    }

    /// Records that the first list of objects has begun.
    pub fn lists(&self) {
        self.add_missing(WORKFLOWS, "are being listed");
    }

    /// Records the reason why objects cannot be listed. After the first list, this no longer affects readiness.
    pub fn cannot_list(&self, why: &str) {
        if let Some(said) = self.lock().get_mut(WORKFLOWS) {
            *said = format!("are not listed: {why}");
        }
    }

    /// Records the end of the first list.
    pub fn listed(&self) {
        self.has(WORKFLOWS);
    }

    pub fn has_listed(&self) -> bool {
        !self.lock().contains_key(WORKFLOWS)
    }

    /// Returns a sentence about all missing parts.
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
    fn a_server_is_ready_if_nothing_is_missing() {
        let readiness = Readiness::default();
        assert_eq!(readiness.missing(), None);
        readiness.lists();
        readiness.add_missing("definitions", "Workflow has no field `spec.x`");
        let problem = "definitions: Workflow has no field `spec.x`; workflows: are being listed";
        assert_eq!(readiness.missing().as_deref(), Some(problem));
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
