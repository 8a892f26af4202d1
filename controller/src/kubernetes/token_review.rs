//! Tokens of Kubernetes service accounts: the API server identifies the account, and lists define its rights.

mod cache;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::Client;
use kube::api::{Api, PostParams};
use torc_api::token::Grant;

use super::KubernetesConfig;
use super::log_once::{LogOnce, explained};
use crate::caller::Caller;
use cache::ReviewCache;

/// Prefix of the user names of service accounts.
const ACCOUNT: &str = "system:serviceaccount:";
/// Timeout of a review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Identifies service accounts. Clones share state.
#[derive(Clone)]
pub(crate) struct Reviews {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    audience: String,
    lists: Lists,
    cache: Mutex<ReviewCache>,
    log_once: Mutex<LogOnce>,
}

/// The rights of service accounts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    /// Accounts that run jobs of all namespaces, as `namespace/name`.
    runners: Vec<String>,
    /// Accounts of administrators, as `namespace/name`.
    admins: Vec<String>,
    /// The name of accounts that may read the workflows of their own namespace. RBAC rules of the namespace decide who may use
    /// them. Empty for none.
    viewer: String,
    /// The name of accounts that may also change these workflows. Empty for none.
    editor: String,
}

impl Reviews {
    pub fn new(client: Client, audience: String, lists: Lists) -> Self {
        Self { inner: Arc::new(Inner { client, audience, lists, cache: Mutex::default(), log_once: Mutex::default() }) }
    }

    /// Returns the bearer of a token. Results are cached for a short time.
    pub async fn caller(&self, token: &str) -> Option<Caller> {
        // A token of another form cannot be of the API server: no call is needed.
        if token.split('.').count() != 3 {
            return None;
        }
        let lock = || self.inner.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().recall(token, Instant::now()) {
            return known;
        }
        let caller = match tokio::time::timeout(REVIEW_TIMEOUT, self.review(token)).await {
            Ok(Ok(status)) => self.inner.lists.caller(&status, &self.inner.audience),
            Ok(Err(error)) => return self.unanswered(&explained(&error)),
            Err(_) => return self.unanswered("no answer in time"),
        };
        self.log_once().reset();
        lock().remember(token, caller.clone(), Instant::now());
        caller
    }

    /// Logs a failed review. The result is not cached: the next request asks again.
    fn unanswered(&self, why: &str) -> Option<Caller> {
        if self.log_once().should_log(why) {
            tracing::warn!(error = why, "tokens of service accounts cannot be reviewed");
        }
        None
    }

    fn log_once(&self) -> MutexGuard<'_, LogOnce> {
        self.inner.log_once.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn review(&self, token: &str) -> kube::Result<TokenReviewStatus> {
        let spec =
            TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![self.inner.audience.clone()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.inner.client.clone());
        Ok(reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default())
    }
}

impl Lists {
    pub fn of(config: &KubernetesConfig) -> Self {
        Self {
            runners: config.runner_accounts.clone(),
            admins: config.admin_accounts.clone(),
            viewer: config.viewer_account.clone(),
            editor: config.editor_account.clone(),
        }
    }

    /// Returns the caller of a review: the token must be meant for this server, and the account must be on a list.
    fn caller(&self, status: &TokenReviewStatus, audience: &str) -> Option<Caller> {
        let is_meant = status.audiences.iter().flatten().any(|meant| meant == audience);
        if status.authenticated != Some(true) || !is_meant {
            return None;
        }
        let name = status.user.as_ref()?.username.as_deref()?;
        let (namespace, name) = name.strip_prefix(ACCOUNT)?.split_once(':')?;
        let (account, own) = (format!("{namespace}/{name}"), || namespace.to_owned());
        let grant = match name {
            _ if self.admins.contains(&account) => Grant::Admin,
            _ if self.runners.contains(&account) => Grant::Pool,
            "" => return None,
            name if name == self.editor => Grant::Editor { namespace: own() },
            name if name == self.viewer => Grant::Viewer { namespace: own() },
            _ => return None,
        };
        Some(Caller { grant, name: account })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    #[test]
    fn accounts_on_a_list_are_known_if_their_token_is_meant_for_us() {
        let lists = Lists {
            runners: vec!["torc/runner".to_owned()],
            admins: vec!["ops/admin".to_owned()],
            viewer: "reader".to_owned(),
            editor: "writer".to_owned(),
        };
        let lab = || "lab".to_owned();
        let review = |authenticated, audience: &str, username: &str| TokenReviewStatus {
            authenticated: Some(authenticated),
            audiences: Some(vec![audience.to_owned()]),
            user: Some(UserInfo { username: Some(username.to_owned()), ..UserInfo::default() }),
            ..TokenReviewStatus::default()
        };
        let runner = "system:serviceaccount:torc:runner";
        for (status, expected) in [
            (review(true, "torc", runner), Some((Grant::Pool, "torc/runner"))),
            (review(true, "torc", "system:serviceaccount:ops:admin"), Some((Grant::Admin, "ops/admin"))),
            (
                review(true, "torc", "system:serviceaccount:lab:reader"),
                Some((Grant::Viewer { namespace: lab() }, "lab/reader")),
            ),
            (
                review(true, "torc", "system:serviceaccount:lab:writer"),
                Some((Grant::Editor { namespace: lab() }, "lab/writer")),
            ),
            (review(true, "torc", "system:serviceaccount:torc:other"), None),
            (review(true, "torc", "system:serviceaccount:torc:"), None),
            (review(true, "torc", "lab:reader"), None),
            (review(true, "torc", "torc/runner"), None),
            (review(true, "https://kubernetes.default.svc", runner), None),
            (review(false, "torc", runner), None),
            (TokenReviewStatus::default(), None),
        ] {
            let caller = lists.caller(&status, "torc").map(|caller| (caller.grant, caller.name));
            assert_eq!(caller, expected.map(|(grant, name)| (grant, name.to_owned())), "{status:?}");
        }
        // Empty names match no account.
        assert_eq!(Lists::default().caller(&review(true, "torc", "system:serviceaccount:lab:"), "torc"), None);
    }
}
