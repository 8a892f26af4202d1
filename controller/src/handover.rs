//! What a runner in an allocation needs to reach this server, and how it gets there.
//!
//! It travels in a file that only its owner can read, never on a command line, which everybody on a machine can see.

use std::collections::BTreeMap;

/// What a runner is handed.
#[derive(Clone, PartialEq, Eq)]
pub struct Handover {
    /// Where the server answers, as seen from the nodes.
    pub url: String,
    /// The secret that the runner's requests bring.
    pub token: String,
    /// The server's certificate, when it is one of its own making.
    pub certificate_sha256: Option<String>,
}

impl std::fmt::Debug for Handover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handover").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Handover {
    /// The variables of the environment file for the runner of an allocation.
    pub fn variables(&self, allocation: &str) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::from([
            ("TORC_API_URL".to_owned(), self.url.clone()),
            ("TORC_TOKEN".to_owned(), self.token.clone()),
            ("TORC_ALLOCATION".to_owned(), allocation.to_owned()),
        ]);
        if let Some(fingerprint) = &self.certificate_sha256 {
            variables.insert("TORC_CERTIFICATE_SHA256".to_owned(), fingerprint.clone());
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_in_the_file_and_not_in_logs() {
        let handover = Handover { url: "http://h:1".to_owned(), token: "s3cret".to_owned(), certificate_sha256: None };
        let variables = handover.variables("torc-wf1-a2");
        assert_eq!(variables["TORC_TOKEN"], "s3cret");
        assert_eq!(
            (variables["TORC_API_URL"].as_str(), variables["TORC_ALLOCATION"].as_str()),
            ("http://h:1", "torc-wf1-a2")
        );
        assert!(!format!("{handover:?}").contains("s3cret"));
        assert!(!variables.contains_key("TORC_CERTIFICATE_SHA256"));
    }
}
