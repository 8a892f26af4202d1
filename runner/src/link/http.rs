//! The way to a server over HTTP.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use torc_api::causes::with_causes;
use torc_api::logs::{LogExchange, LogWishes};
use torc_api::token::Credential;
use torc_api::wire::{LONG_POLL_SECONDS, RegisterRequest, RegisterResponse, SyncRequest, SyncResponse};

use super::{LinkError, ServerLink};

/// What an answer may take beyond the time that the server was asked to wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server at a URL. Certificates and proxies are settings of the client it is given.
#[derive(Clone, Debug)]
pub struct HttpLink {
    client: Client,
    base: String,
    bearer: Bearer,
}

/// The token of a runner. One that is in a file may be replaced there while the runner lives, as Kubernetes does with those of service
/// accounts: one that is not accepted any more is read again. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Bearer {
    token: Arc<Mutex<Option<String>>>,
    file: Option<PathBuf>,
}

impl Bearer {
    /// A token, and the file that it was read from.
    pub fn new(token: Option<String>, file: Option<PathBuf>) -> Self {
        Self { token: Arc::new(Mutex::new(token)), file }
    }

    fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again; whether there is another token in it.
    fn renew(&self) -> bool {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let Some(text) = self.file.as_deref().and_then(read) else { return false };
        let new = Credential::token_of(text.trim()).to_owned();
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let another = !new.is_empty() && token.as_ref() != Some(&new);
        if another {
            *token = Some(new);
        }
        another
    }
}

/// The body of an error, as far as it is understood.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct ErrorBody {
    code: String,
    message: String,
}

impl HttpLink {
    /// A link to `base`, e.g. `http://127.0.0.1:8080`.
    pub fn new(client: Client, base: &str, bearer: Bearer) -> Self {
        Self { client, base: base.trim_end_matches('/').to_owned(), bearer }
    }

    async fn post<Q: Serialize + Sync, A: DeserializeOwned>(
        &self,
        path: String,
        body: &Q,
        timeout: Duration,
    ) -> Result<A, LinkError> {
        match self.post_once(&path, body, timeout).await {
            Err(LinkError::Unauthorized) if self.bearer.renew() => self.post_once(&path, body, timeout).await,
            answer => answer,
        }
        .map_err(|error| if self.bearer.file.is_some() { error.or_outdated() } else { error })
    }

    async fn post_once<Q: Serialize + Sync, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &Q,
        timeout: Duration,
    ) -> Result<A, LinkError> {
        let mut request = self.client.post(format!("{}{path}", self.base)).timeout(timeout).json(body);
        if let Some(token) = self.bearer.token() {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|error| LinkError::Unreachable(with_causes(&error)))?;
        let status = response.status();
        if status.is_success() {
            return response.json().await.map_err(|error| LinkError::Unreachable(with_causes(&error)));
        }
        let text = response.text().await.unwrap_or_default();
        Err(refusal(status, &text))
    }
}

impl LinkError {
    fn or_outdated(self) -> Self {
        if self == Self::Unauthorized { Self::Outdated } else { self }
    }
}

impl HttpLink {
    /// Brings the pieces of logs that were asked for, and waits until others are wanted.
    pub async fn exchange_logs(&self, exchange: &LogExchange) -> Result<LogWishes, LinkError> {
        let patience = Duration::from_secs(LONG_POLL_SECONDS) + PATIENCE;
        self.post("/v1/logs".to_owned(), exchange, patience).await
    }
}

impl ServerLink for HttpLink {
    async fn register(&self, request: &RegisterRequest) -> Result<RegisterResponse, LinkError> {
        self.post("/v1/runners".to_owned(), request, PATIENCE).await
    }

    async fn sync(&self, runner: i64, request: &SyncRequest) -> Result<SyncResponse, LinkError> {
        self.post(format!("/v1/runners/{runner}/sync"), request, sync_timeout(request)).await
    }
}

/// How long the answer to a sync may take: the server may wait for news before it answers.
fn sync_timeout(request: &SyncRequest) -> Duration {
    PATIENCE + Duration::from_millis(request.wait_ms)
}

/// What a status other than success means for a runner.
fn refusal(status: StatusCode, text: &str) -> LinkError {
    let body: ErrorBody = serde_json::from_str(text).unwrap_or_default();
    let message = if body.message.is_empty() { status.to_string() } else { body.message };
    match status {
        StatusCode::NOT_FOUND => LinkError::Unknown,
        StatusCode::UNAUTHORIZED => LinkError::Unauthorized,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => LinkError::Unreachable(message),
        _ if status.is_client_error() => {
            let code = if body.code.is_empty() { status.as_u16().to_string() } else { body.code };
            LinkError::Refused { code, message }
        }
        _ => LinkError::Unreachable(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_token_is_found_in_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "old\n").expect("written");
        let bearer = Bearer::new(Some("old".to_owned()), Some(path.clone()));
        assert!(!bearer.renew(), "nothing has changed");
        std::fs::write(&path, format!("new~{}\n", "ab".repeat(32))).expect("written");
        assert!(bearer.clone().renew());
        assert_eq!(bearer.token().as_deref(), Some("new"));
        for nothing in ["", "\n"] {
            std::fs::write(&path, nothing).expect("written");
            assert!(!bearer.renew(), "a file that is being written is no reason to forget");
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(!bearer.renew());
        assert!(!Bearer::new(Some("old".to_owned()), None).renew());
    }

    #[test]
    fn statuses_mean() {
        let refused =
            |code: &str, message: &str| LinkError::Refused { code: code.to_owned(), message: message.to_owned() };
        let unreachable = |message: &str| LinkError::Unreachable(message.to_owned());
        let cases = [
            (404, r#"{"code":"notFound","message":"no runner 3"}"#, LinkError::Unknown),
            (401, "", LinkError::Unauthorized),
            (403, r#"{"code":"Forbidden","message":"not yours"}"#, refused("Forbidden", "not yours")),
            (422, r#"{"code":"invalid","message":"bad protocol"}"#, refused("invalid", "bad protocol")),
            (400, "garbage", refused("400", "400 Bad Request")),
            (503, r#"{"message":"the disk is full"}"#, unreachable("the disk is full")),
            (429, "", unreachable("429 Too Many Requests")),
            (302, "", unreachable("302 Found")),
        ];
        for (status, body, expected) in cases {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(refusal(status, body), expected, "{status}");
        }
    }

    #[test]
    fn an_answer_may_take_longer_than_the_wait_by_thirty_seconds() {
        let after = |wait_ms| sync_timeout(&SyncRequest { wait_ms, ..SyncRequest::default() }).as_millis();
        assert_eq!((after(0), after(20_000)), (30_000, 50_000));
    }
}
