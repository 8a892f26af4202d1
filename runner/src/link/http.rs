//! The way to a server over HTTP.

use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use torc_api::causes::with_causes;
use torc_api::wire::{RegisterRequest, RegisterResponse, SyncRequest, SyncResponse};

use super::{LinkError, ServerLink};

/// What an answer may take beyond the time that the server was asked to wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server at a URL. Certificates and proxies are settings of the client it is given.
#[derive(Clone, Debug)]
pub struct HttpLink {
    client: Client,
    base: String,
    token: Option<String>,
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
    pub fn new(client: Client, base: &str, token: Option<String>) -> Self {
        Self { client, base: base.trim_end_matches('/').to_owned(), token }
    }

    async fn post<Q: Serialize + Sync, A: DeserializeOwned>(
        &self,
        path: String,
        body: &Q,
        timeout: Duration,
    ) -> Result<A, LinkError> {
        let mut request = self.client.post(format!("{}{path}", self.base)).timeout(timeout).json(body);
        if let Some(token) = &self.token {
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

impl ServerLink for HttpLink {
    async fn register(&self, request: &RegisterRequest) -> Result<RegisterResponse, LinkError> {
        self.post("/v1/runners".to_owned(), request, PATIENCE).await
    }

    async fn sync(&self, runner: i64, request: &SyncRequest) -> Result<SyncResponse, LinkError> {
        let timeout = PATIENCE + Duration::from_millis(request.wait_ms);
        self.post(format!("/v1/runners/{runner}/sync"), request, timeout).await
    }
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
}
