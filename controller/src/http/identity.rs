//! Identifies the caller of a request by its token.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use torc_api::token::{Credential, Grant};
use torc_core::tokens::{self, TokenError};

use crate::caller::Caller;
use crate::issuer::Issuer;
use crate::kubernetes::Reviews;

/// All ways to identify a caller. Each is an arm of `identify`.
#[derive(Clone)]
pub(crate) struct Identities {
    admin: Arc<str>,
    /// A token that reads metrics and nothing else.
    metrics: Option<Arc<str>>,
    pub issuer: Issuer,
    /// Reviews tokens of Kubernetes service accounts.
    reviews: Option<Reviews>,
}

impl Identities {
    pub fn new(admin: String, issuer: Issuer) -> Self {
        Self { admin: Arc::from(admin), metrics: None, issuer, reviews: None }
    }

    /// Accepts this token for reading metrics.
    pub fn with_metrics(self, word: Option<String>) -> Self {
        Self { metrics: word.map(Arc::from), ..self }
    }

    /// Accepts tokens of service accounts.
    pub fn with_reviews(self, reviews: Option<Reviews>) -> Self {
        Self { reviews, ..self }
    }

    /// Returns the caller. `None` as the error means that there was no token, or one of unknown origin.
    pub async fn identify(&self, headers: &HeaderMap, now_seconds: i64) -> Result<Caller, Option<TokenError>> {
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        // The fingerprint after a token is for the client alone.
        let token = Credential::token_of(bearer.ok_or(None)?.trim());
        if tokens::constant_time_eq(token.as_bytes(), self.admin.as_bytes()) {
            return Ok(Caller { grant: Grant::Admin, name: claimed_name(headers) });
        }
        if self.metrics.as_ref().is_some_and(|word| tokens::constant_time_eq(token.as_bytes(), word.as_bytes())) {
            return Ok(Caller { grant: Grant::Metrics, name: "metrics".to_owned() });
        }
        if !tokens::is_signed(token) {
            let Some(reviews) = &self.reviews else { return Err(None) };
            return reviews.caller(token).await.ok_or(None);
        }
        let statement = self.issuer.verify(token, now_seconds).map_err(Some)?;
        let name = match &statement.grant {
            Grant::Admin => claimed_name(headers),
            Grant::Owner { user } => user.clone(),
            Grant::Viewer { namespace } => format!("viewer of {namespace}"),
            Grant::Editor { namespace } => format!("editor of {namespace}"),
            Grant::Runner { workflow } => format!("runner of workflow {workflow}"),
            Grant::Pool => "runner of a pool".to_owned(),
            Grant::Metrics => "metrics".to_owned(),
        };
        Ok(Caller { grant: statement.grant, name })
    }
}

/// Returns the user name that an administrator sends in a header. The server trusts it.
fn claimed_name(headers: &HeaderMap) -> String {
    headers.get("x-torc-user").and_then(|value| value.to_str().ok()).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use torc_api::token::{Claims, Fingerprint};
    use torc_core::tokens::TokenKey;

    use super::*;

    fn identities() -> Identities {
        let issuer = Issuer::new(TokenKey::new(&[1; 32]).unwrap(), Some(Fingerprint([2; 32])));
        Identities::new("secret".to_owned(), issuer).with_metrics(Some("figures".to_owned()))
    }

    fn headers(authorization: &str, user: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        user.map(|user| headers.insert("x-torc-user", user.parse().unwrap()));
        headers
    }

    #[tokio::test]
    async fn bearers_become_callers() {
        let identities = identities();
        let issue =
            |grant| identities.issuer.issue(&Claims { grant, issuer: "i".to_owned(), issued: 0, expires: Some(10) });
        let owner = Grant::Owner { user: "ada".to_owned() };
        for (word, user, grant, name) in [
            ("secret".to_owned(), Some("bob"), Grant::Admin, "bob"),
            (format!("secret~{}", Fingerprint([9; 32])), None, Grant::Admin, "unknown"),
            ("figures".to_owned(), Some("bob"), Grant::Metrics, "metrics"),
            (issue(owner.clone()), Some("bob"), owner, "ada"),
            (issue(Grant::Runner { workflow: 3 }), None, Grant::Runner { workflow: 3 }, "runner of workflow 3"),
        ] {
            let caller = identities.identify(&headers(&format!("Bearer {word}"), user), 9).await.unwrap();
            assert_eq!(caller, Caller { grant, name: name.to_owned() });
        }
    }

    #[tokio::test]
    async fn all_other_callers_are_rejected() {
        let identities = identities();
        assert_eq!(identities.identify(&HeaderMap::new(), 0).await, Err(None));
        for wrong in ["secret", "Basic secret", "Bearer ", "Bearer secre", "Bearer secrets", "Bearer ~"] {
            assert_eq!(identities.identify(&headers(wrong, None), 0).await, Err(None), "{wrong}");
        }
        let statement = Claims { grant: Grant::Admin, issuer: "i".to_owned(), issued: 0, expires: Some(10) };
        let late = identities.issuer.issue(&statement);
        let said = headers(&format!("Bearer {late}"), None);
        assert_eq!(identities.identify(&said, 10).await, Err(Some(TokenError::Expired)));
        let foreign = TokenKey::new(&[3; 32]).unwrap().sign(&statement);
        let said = headers(&format!("Bearer {foreign}"), None);
        assert_eq!(identities.identify(&said, 0).await, Err(Some(TokenError::Forged)));
    }

    #[tokio::test]
    async fn every_grant_has_a_name_for_the_audit() {
        let identities = identities();
        let lab = || "lab".to_owned();
        for (grant, name) in [
            (Grant::Admin, "bob"),
            (Grant::Owner { user: "ada".to_owned() }, "ada"),
            (Grant::Viewer { namespace: lab() }, "viewer of lab"),
            (Grant::Editor { namespace: lab() }, "editor of lab"),
            (Grant::Runner { workflow: 7 }, "runner of workflow 7"),
            (Grant::Pool, "runner of a pool"),
            (Grant::Metrics, "metrics"),
        ] {
            let statement = Claims { grant: grant.clone(), issuer: "i".to_owned(), issued: 0, expires: None };
            let said = headers(&format!("Bearer {}", identities.issuer.issue(&statement)), Some("bob"));
            let caller = identities.identify(&said, 9).await.unwrap();
            assert_eq!(caller, Caller { grant, name: name.to_owned() });
        }
    }
}
