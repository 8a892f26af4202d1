//! Issues tokens, with the signing key and the certificate that they name.

use std::sync::Arc;

use torc_api::token::{Claims, Credential, Fingerprint, Grant};
use torc_core::ids::WorkflowId;
use torc_core::tokens::{TokenError, TokenKey};

/// Signs and verifies tokens.
#[derive(Clone)]
pub(crate) struct Issuer {
    key: Arc<TokenKey>,
    pin: Option<Fingerprint>,
}

impl Issuer {
    pub fn new(key: TokenKey, pin: Option<Fingerprint>) -> Self {
        Self { key: Arc::new(key), pin }
    }

    /// Returns a token with these claims and the fingerprint of the certificate.
    pub fn issue(&self, statement: &Claims) -> String {
        Credential { token: self.key.sign(statement), certificate: self.pin }.to_string()
    }

    /// Returns the claims of a token that this server has signed.
    pub fn verify(&self, token: &str, now_seconds: i64) -> Result<Claims, TokenError> {
        self.key.verify(token, now_seconds)
    }

    /// Returns the fingerprint that is attached to tokens.
    pub fn pin(&self) -> Option<Fingerprint> {
        self.pin
    }

    /// Returns the token of a workflow's jobs. It is always the same, so a runner keeps one file for all of them. It is
    /// valid as long as the workflow exists, because workflow numbers are never reused.
    pub fn for_jobs(&self, workflow: WorkflowId) -> String {
        let grant = Grant::Runner { workflow: workflow.0 };
        self.issue(&Claims { grant, issuer: "server".to_owned(), issued: 0, expires: None })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn tokens_travel_with_the_certificate_that_they_are_for() {
        let key = || TokenKey::new(&[1; 32]).unwrap();
        let pin = Fingerprint([2; 32]);
        let (pinned, plain) = (Issuer::new(key(), Some(pin)), Issuer::new(key(), None));
        let statement = Claims { grant: Grant::Pool, issuer: "i".to_owned(), issued: 3, expires: Some(9) };
        assert_eq!(pinned.issue(&statement), format!("{}~{pin}", plain.issue(&statement)));
        assert_eq!((pinned.pin(), plain.pin()), (Some(pin), None));
        assert_eq!(plain.verify(&plain.issue(&statement), 8), Ok(statement));
    }

    #[test]
    fn the_token_of_jobs_is_always_the_same_and_of_one_workflow() {
        let issuer = Issuer::new(TokenKey::new(&[1; 32]).unwrap(), None);
        let token = issuer.for_jobs(WorkflowId(7));
        assert_eq!(token, issuer.for_jobs(WorkflowId(7)));
        let statement = issuer.verify(&token, i64::MAX).unwrap();
        assert_eq!((statement.grant, statement.expires), (Grant::Runner { workflow: 7 }, None));
        assert_eq!((statement.issuer.as_str(), statement.issued), ("server", 0));
    }
}
