//! What a runner in an allocation is handed: the way to the server, a token that is good for its workflow and nothing else, and
//! the only certificate that the server may have. It travels in a file that only its owner can read, never on a command line.

use std::collections::BTreeMap;
use std::time::Duration;

use torc_api::token::{Credential, Grant, Statement};
use torc_core::ids::WorkflowId;

use crate::issuer::Issuer;

/// An allocation may wait for weeks in a queue before its runner shows the token for the first time.
const LONGEST_QUEUE: Duration = Duration::from_secs(90 * 24 * 3_600);

/// What a runner in an allocation is handed.
#[derive(Clone, PartialEq, Eq)]
pub struct Handover {
    /// Where the server answers.
    pub url: String,
    /// A token for the runners and jobs of one workflow.
    pub token: String,
    /// The certificate that the server has made for itself.
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
        variables.extend(self.certificate_sha256.iter().map(|pin| ("TORC_CERTIFICATE_SHA256".to_owned(), pin.clone())));
        variables
    }
}

/// Makes handovers for the runners of a server.
#[derive(Clone)]
pub struct Handovers {
    url: String,
    issuer: Issuer,
}

impl Handovers {
    pub(crate) fn new(url: String, issuer: Issuer) -> Self {
        Self { url, issuer }
    }

    /// How others reach the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// For an allocation of a workflow that is submitted now and may run for so long. What ends the token earlier is the end of the
    /// workflow, or another key.
    pub fn to_allocation(&self, workflow: WorkflowId, walltime: Duration, now_seconds: i64) -> Handover {
        let lifetime = i64::try_from((LONGEST_QUEUE + walltime).as_secs()).unwrap_or(i64::MAX);
        let statement = Statement {
            grant: Grant::Runner { workflow: workflow.0 },
            issuer: "server".to_owned(),
            issued: now_seconds,
            expires: Some(now_seconds.saturating_add(lifetime)),
        };
        let word = self.issuer.issue(&statement);
        Handover {
            url: self.url.clone(),
            token: Credential::token_of(&word).to_owned(),
            certificate_sha256: self.issuer.pin().map(|pin| pin.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use torc_api::token::Fingerprint;
    use torc_core::trust::TokenKey;

    use super::*;

    #[test]
    fn an_allocation_gets_a_token_of_its_workflow_that_outlives_the_queue() {
        let key = TokenKey::new(&[1; 32]).unwrap();
        let pin = Fingerprint([2; 32]);
        let handovers = Handovers::new("https://login1:7421".to_owned(), Issuer::new(key.clone(), Some(pin)));
        let hour = Duration::from_secs(3_600);
        let handover = handovers.to_allocation(WorkflowId(3), hour, 1_000);
        let statement = key.verify(&handover.token, 1_000 + 89 * 24 * 3_600).unwrap();
        assert_eq!(statement.grant, Grant::Runner { workflow: 3 });
        assert_eq!(statement.expires, Some(1_000 + 90 * 24 * 3_600 + 3_600));
        let variables = handover.variables("torc-wf3-a12");
        assert_eq!(variables["TORC_ALLOCATION"], "torc-wf3-a12");
        assert!(!format!("{handover:?}").contains(&handover.token), "nobody prints it by mistake");
        assert_eq!(variables["TORC_API_URL"], "https://login1:7421");
        assert_eq!(variables["TORC_TOKEN"], handover.token);
        assert_eq!(variables["TORC_CERTIFICATE_SHA256"], pin.to_string());
        let plain = Handovers::new("http://h".to_owned(), Issuer::new(key, None));
        assert!(!plain.to_allocation(WorkflowId(3), hour, 0).variables("a").contains_key("TORC_CERTIFICATE_SHA256"));
    }
}
