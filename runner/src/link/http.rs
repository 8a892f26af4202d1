//! The connection to a server over HTTP.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use torc_api::causes::error_chain;
use torc_api::logs::{LogSyncRequest, LogSyncResponse};
use torc_api::token::Credential;
use torc_api::wire::{LONG_POLL_SECONDS, RegisterRequest, RegisterResponse, SyncRequest, SyncResponse};

use super::{LinkError, ServerLink};

/// Time for an answer beyond the requested waiting time of a long poll.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A server at a URL. The client has the settings for certificates and proxies.
#[derive(Clone, Debug)]
pub struct HttpLink {
    client: Client,
    base: String,
    bearer: Bearer,
}

/// The token of a runner. A token from a file may be replaced there while the runner runs, as Kubernetes does with
/// those of service accounts: a rejected token is read again. Clones share state.
#[derive(Clone, Debug, Default)]
pub struct Bearer {
    token: Arc<Mutex<Option<String>>>,
    file: Option<PathBuf>,
}

impl Bearer {
    /// Creates a bearer from a token and the file that has it.
    pub fn new(token: Option<String>, file: Option<PathBuf>) -> Self {
        Self { token: Arc::new(Mutex::new(token)), file }
    }

    fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again. Returns whether it has another token.
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

/// The body of an error response; absent fields are empty.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct ErrorResponse {
    code: String,
    message: String,
}

impl HttpLink {
    /// Creates a link to `base`, e.g. `http://127.0.0.1:8080`.
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
        let response = request.send().await.map_err(|error| LinkError::Unreachable(error_chain(&error)))?;
        let status = response.status();
        if status.is_success() {
            return response.json().await.map_err(|error| LinkError::Unreachable(error_chain(&error)));
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
    /// Sends the requested log chunks, and waits for further requests.
    pub async fn exchange_logs(&self, exchange: &LogSyncRequest) -> Result<LogSyncResponse, LinkError> {
        let timeout = Duration::from_secs(LONG_POLL_SECONDS) + ANSWER_TIMEOUT;
        self.post("/v1/logs".to_owned(), exchange, timeout).await
    }
}

impl ServerLink for HttpLink {
    async fn register(&self, request: &RegisterRequest) -> Result<RegisterResponse, LinkError> {
        self.post("/v1/runners".to_owned(), request, ANSWER_TIMEOUT).await
    }

    async fn sync(&self, runner: i64, request: &SyncRequest) -> Result<SyncResponse, LinkError> {
        self.post(format!("/v1/runners/{runner}/sync"), request, sync_timeout(request)).await
    }
}

/// Returns the timeout of a sync, including the time for which the server may wait for news.
fn sync_timeout(request: &SyncRequest) -> Duration {
    ANSWER_TIMEOUT + Duration::from_millis(request.wait_ms)
}

/// Returns the error for a status other than success.
fn refusal(status: StatusCode, text: &str) -> LinkError {
    let body: ErrorResponse = serde_json::from_str(text).unwrap_or_default();
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

    /// Serves each request with the next of these answers, and returns the requests.
    struct ScriptedServer {
        base: String,
        requests: std::thread::JoinHandle<Vec<String>>,
    }

    impl ScriptedServer {
        fn start(answers: &[(u16, &str)]) -> Self {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let base = format!("http://{}/", listener.local_addr().expect("an address"));
            let answers: Vec<(u16, String)> =
                answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
            let serve = move || answers.iter().map(|(status, body)| answer_one(&listener, *status, body)).collect();
            Self { base, requests: std::thread::spawn(serve) }
        }

        fn link(&self, bearer: Bearer) -> HttpLink {
            HttpLink::new(client(), &self.base, bearer)
        }

        fn requests(self) -> Vec<String> {
            self.requests.join().expect("a server that ends")
        }
    }

    fn client() -> Client {
        // Another test may have installed it before, which is no error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::new()
    }

    /// Reads and answers one request. Returns its first line, its token and its body.
    fn answer_one(listener: &std::net::TcpListener, status: u16, body: &str) -> String {
        use std::io::{BufRead as _, Read as _, Write as _};
        let (mut stream, _) = listener.accept().expect("a caller");
        let mut reader = std::io::BufReader::new(stream.try_clone().expect("a second end"));
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a line");
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_owned());
        }
        let header = |name: &str| {
            let found = lines.iter().filter_map(|line| line.split_once(": "));
            found.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
        };
        let length = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut received = vec![0; length];
        reader.read_exact(&mut received).expect("a body");
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("an answer");
        let token = header("authorization").unwrap_or_else(|| "-".to_owned());
        format!("{} {token} {}", lines[0], String::from_utf8_lossy(&received))
    }

    const SYNCED: &str = r#"{"sequence":3,"leaseMs":1}"#;

    #[tokio::test]
    async fn every_call_goes_to_its_path_with_the_token() {
        let registered = r#"{"runner":7,"version":"v","leaseMs":5}"#;
        let server = ScriptedServer::start(&[(200, registered), (200, SYNCED), (200, r#"{"wanted":[]}"#)]);
        let link = server.link(Bearer::new(Some("secret".to_owned()), None));
        assert_eq!(link.register(&RegisterRequest::default()).await.map(|answer| answer.runner), Ok(7));
        let request = SyncRequest { sequence: 3, ..SyncRequest::default() };
        assert_eq!(link.sync(7, &request).await.map(|answer| answer.sequence), Ok(3));
        assert!(link.exchange_logs(&LogSyncRequest::default()).await.is_ok());
        let requests = server.requests();
        let starts = ["POST /v1/runners HTTP/1.1", "POST /v1/runners/7/sync HTTP/1.1", "POST /v1/logs HTTP/1.1"];
        for (request, start) in requests.iter().zip(starts) {
            assert!(request.starts_with(&format!("{start} Bearer secret {{")), "{request}");
        }
        assert!(requests[1].contains("\"sequence\":3"), "{}", requests[1]);
    }

    #[tokio::test]
    async fn a_refused_token_is_read_again_and_tried_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let link = |server: &ScriptedServer, file: bool| {
            server.link(Bearer::new(Some("old".to_owned()), file.then(|| path.clone())))
        };
        let request = SyncRequest::default();
        std::fs::write(&path, "new").expect("written");
        let server = ScriptedServer::start(&[(401, ""), (200, SYNCED)]);
        assert!(link(&server, true).sync(1, &request).await.is_ok());
        let tokens: Vec<bool> = server.requests().iter().map(|request| request.contains("Bearer new")).collect();
        assert_eq!(tokens, [false, true]);

        let server = ScriptedServer::start(&[(401, ""), (401, "")]);
        assert_eq!(
            link(&server, true).sync(1, &request).await,
            Err(LinkError::Outdated),
            "the new one is refused, too"
        );
        assert_eq!(server.requests().len(), 2);
        std::fs::write(&path, "old").expect("written");
        let server = ScriptedServer::start(&[(401, "")]);
        assert_eq!(link(&server, true).sync(1, &request).await, Err(LinkError::Outdated), "there is no other");
        assert_eq!(server.requests().len(), 1);
        let server = ScriptedServer::start(&[(401, "")]);
        assert_eq!(link(&server, false).sync(1, &request).await, Err(LinkError::Unauthorized), "none will come");
        assert_eq!(server.requests().len(), 1);
    }

    #[tokio::test]
    async fn answers_that_cannot_be_read_are_no_answers() {
        let server = ScriptedServer::start(&[(200, "no JSON")]);
        let answer = server.link(Bearer::default()).sync(1, &SyncRequest::default()).await;
        assert!(matches!(answer, Err(LinkError::Unreachable(_))), "{answer:?}");
        let requests = server.requests();
        assert!(requests[0].starts_with("POST /v1/runners/1/sync HTTP/1.1 - "), "without a token none is sent");
        let closed = HttpLink::new(client(), "http://127.0.0.1:9", Bearer::default());
        assert!(matches!(closed.sync(1, &SyncRequest::default()).await, Err(LinkError::Unreachable(_))));
        let server = ScriptedServer::start(&[(409, r#"{"code":"Conflict","message":"m"}"#)]);
        let refused = server.link(Bearer::default()).register(&RegisterRequest::default()).await;
        assert_eq!(refused, Err(LinkError::Refused { code: "Conflict".to_owned(), message: "m".to_owned() }));
        assert_eq!(server.requests().len(), 1);
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
