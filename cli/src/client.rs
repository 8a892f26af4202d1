//! The client of the HTTP API: one method for each route.

mod data;
mod error;
mod recovery;
mod slurm;
mod trust;
mod trust_error;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::{Method, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use torc_api::api::{
    AffectedJobs, ApplyRequest, ApplyResponse, AuditEntry, Event, GcRequest, GcResponse, Job, JobResult, Page,
    RetryRequest, Runner, Version, Workflow, WorkflowAction,
};

use torc_api::explain::{JobExplanation, WorkflowExplanation};
use torc_api::filter::{JobFilter, ResultFilter, RunnerFilter, SlurmStatsFilter};
use torc_api::logs::{LogChunk, LogChunkRequest};
use torc_api::remote::{RemoteWorker, RemoteWorkersRequest, is_loopback_host};
use torc_api::slurm_stats::SlurmStats;
use torc_api::token::{Credential, TokenRequest, TokenResponse};
use torc_api::wire::{ReplayRequest, ReplayResponse, Replayed};
use torc_runner::{Bearer, HttpLink};

pub use error::ClientError;
pub use trust::Trust;
pub use watch::{EventStream, WatchMessage};

/// The page size of lists; the server allows no more.
const PAGE_SIZE: usize = 5_000;
/// Time after which idle connections are closed. It is shorter than that of servers, so that they do not close a
/// connection in use.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to a server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<String>,
    token_file: Option<PathBuf>,
    trust: Trust,
    namespace: Option<String>,
    user: Option<HeaderValue>,
}

/// A change of a whole workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkflowControl {
    Cancel,
    Suspend,
    Resume,
}

impl WorkflowControl {
    const fn path(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
        }
    }
}

type QueryPairs = Vec<(&'static str, String)>;

impl Client {
    /// Creates a client of the server at a URL. A certificate pinned by the token takes precedence over `trust`.
    pub fn new(
        url: &str,
        token: Option<String>,
        trust: &Trust,
        namespace: Option<String>,
    ) -> Result<Self, ClientError> {
        let wrong = |reason: String| ClientError::Url { url: url.to_owned(), reason };
        let base = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        let credential = token.map(|word| Credential::parse(&word)).transpose();
        let credential = credential
            .map_err(|error| ClientError::Trust { reason: format!("the certificate pinned by the token {error}") })?;
        let pin = credential.as_ref().and_then(|credential| credential.certificate);
        let secure = base.scheme() == "https";
        if pin.is_some() && !secure && !base.host_str().is_some_and(is_loopback_host) {
            // Plain HTTP to another machine would reveal a token that is bound to a certificate.
            return Err(wrong("the token is bound to a certificate: use https://".to_owned()));
        }
        let trust = pin.map_or_else(|| trust.clone(), Trust::Certificate);
        let token = credential.map(|credential| credential.token);
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(Trust::client_config(secure.then_some(&trust))?)
            .connect_timeout(Duration::from_secs(10))
            .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
            .user_agent(concat!("torc/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|source| ClientError::Build { source })?;
        Ok(Self { http, base, token, token_file: None, trust, namespace, user: user_name() })
    }

    /// Sets the file that a runner reads newer tokens from.
    #[must_use]
    pub fn with_token_file(self, token_file: Option<PathBuf>) -> Self {
        Self { token_file, ..self }
    }

    /// Returns the server's URL.
    pub fn url(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    /// Returns the certificates that this client accepts.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Creates a token with fewer rights than this client's.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<TokenResponse, ClientError> {
        self.post(&["tokens"], request).await
    }

    /// Returns the audit log, oldest first.
    pub async fn audit(&self) -> Result<Vec<AuditEntry>, ClientError> {
        self.pages(&["audit"], Vec::new(), None).await
    }

    /// Returns the link of a runner to the same server.
    pub fn runner_link(&self) -> HttpLink {
        let bearer = Bearer::new(self.token.clone(), self.token_file.clone());
        HttpLink::new(self.http.clone(), &self.url(), bearer)
    }

    /// Returns the server's version; a success shows that the server answers and accepts the token.
    pub async fn version(&self) -> Result<Version, ClientError> {
        self.get(&["version"], Vec::new()).await
    }

    /// Creates or updates a workflow.
    pub async fn apply(&self, request: &ApplyRequest) -> Result<ApplyResponse, ClientError> {
        self.post(&["workflows"], request).await
    }

    /// Returns the workflows of the namespace, without their documents.
    pub async fn workflows(&self) -> Result<Vec<Workflow>, ClientError> {
        self.pages(&["workflows"], self.in_namespace(), None).await
    }

    /// Returns the workflows of all namespaces, without their documents.
    pub async fn workflows_everywhere(&self) -> Result<Vec<Workflow>, ClientError> {
        self.pages(&["workflows"], QueryPairs::new(), None).await
    }

    /// Returns the first `limit` workflows of the namespace.
    pub async fn first_workflows(&self, limit: usize) -> Result<Vec<Workflow>, ClientError> {
        self.pages(&["workflows"], self.in_namespace(), Some(limit)).await
    }

    /// Returns a workflow by name or number, with its document.
    pub async fn workflow(&self, workflow: &str) -> Result<Workflow, ClientError> {
        self.get(&["workflows", workflow], self.in_namespace()).await
    }

    /// Replays results from a journal of a runner; returns the outcome of each.
    pub async fn replay(
        &self,
        workflow: &str,
        run: i32,
        request: &ReplayRequest,
    ) -> Result<Vec<Replayed>, ClientError> {
        let path = ["workflows", workflow, "runs", &run.to_string(), "results"];
        let response: ReplayResponse = self.post(&path, request).await?;
        Ok(response.replayed)
    }

    /// Deletes a workflow; with `force` even if its allocations cannot be canceled.
    pub async fn delete_workflow(&self, workflow: &str, force: bool) -> Result<(), ClientError> {
        let mut query = self.in_namespace();
        add(&mut query, "force", force.then_some(&true));
        let url = self.url_of(&["workflows", workflow], &query);
        self.send(self.request(Method::DELETE, url)).await.map(drop)
    }

    /// Returns the actions of a workflow.
    pub async fn actions(&self, workflow: &str) -> Result<Vec<WorkflowAction>, ClientError> {
        self.pages(&["workflows", workflow, "actions"], self.in_namespace(), None).await
    }

    /// Cancels, suspends or resumes a workflow.
    pub async fn control(&self, workflow: &str, control: WorkflowControl) -> Result<Workflow, ClientError> {
        self.post(&["workflows", workflow, control.path()], &serde_json::json!({})).await
    }

    /// Resets jobs to ready, so that they run again.
    pub async fn retry(&self, workflow: &str, request: &RetryRequest) -> Result<AffectedJobs, ClientError> {
        self.post(&["workflows", workflow, "retry"], request).await
    }

    /// Returns at most `limit` jobs of a workflow.
    pub async fn jobs(
        &self,
        workflow: &str,
        filter: &JobFilter,
        limit: Option<usize>,
    ) -> Result<Vec<Job>, ClientError> {
        self.filtered_pages(&["workflows", workflow, "jobs"], self.in_namespace(), filter, limit).await
    }

    /// Returns a job by name or number.
    pub async fn job(&self, workflow: &str, job: &str) -> Result<Job, ClientError> {
        self.get(&["workflows", workflow, "jobs", job], self.in_namespace()).await
    }

    /// Explains the state of a job.
    pub async fn explain_job(&self, workflow: &str, job: &str) -> Result<JobExplanation, ClientError> {
        self.get(&["workflows", workflow, "jobs", job, "explain"], self.in_namespace()).await
    }

    /// Explains the state of a workflow.
    pub async fn explain_workflow(&self, workflow: &str) -> Result<WorkflowExplanation, ClientError> {
        self.get(&["workflows", workflow, "explain"], self.in_namespace()).await
    }

    /// Returns a chunk of a log from the disk of a runner.
    pub async fn log_chunk(
        &self,
        workflow: &str,
        job: &str,
        request: &LogChunkRequest,
    ) -> Result<LogChunk, ClientError> {
        let mut query = self.in_namespace();
        add(&mut query, "path", Some(&request.path));
        add(&mut query, "offset", Some(&request.offset));
        add(&mut query, "lines", request.lines.as_ref());
        self.get(&["workflows", workflow, "jobs", job, "log"], query).await
    }

    /// Returns at most `limit` results of a workflow.
    pub async fn results(
        &self,
        workflow: &str,
        filter: &ResultFilter,
        limit: Option<usize>,
    ) -> Result<Vec<JobResult>, ClientError> {
        self.filtered_pages(&["workflows", workflow, "results"], self.in_namespace(), filter, limit).await
    }

    /// Returns Slurm's accounting data of a workflow's steps.
    pub async fn slurm_stats(&self, workflow: &str, filter: &SlurmStatsFilter) -> Result<Vec<SlurmStats>, ClientError> {
        let mut query = self.in_namespace();
        add(&mut query, "workflow_id", Some(&workflow));
        self.filtered_pages(&["slurm_stats"], query, filter, None).await
    }

    /// Returns at most `limit` events after a sequence number.
    pub async fn events(
        &self,
        workflow: Option<i64>,
        after: Option<i64>,
        limit: Option<usize>,
    ) -> Result<Vec<Event>, ClientError> {
        let max = limit.unwrap_or(usize::MAX);
        let mut events: Vec<Event> = Vec::new();
        let mut after = after;
        loop {
            let mut query = QueryPairs::new();
            add(&mut query, "workflow", workflow.as_ref());
            add(&mut query, "after", after.as_ref());
            add(&mut query, "limit", Some(&PAGE_SIZE.min(max - events.len())));
            let page: Page<Event> = self.get(&["events"], query).await?;
            let more = page.next.is_some() && !page.items.is_empty();
            events.extend(page.items);
            after = events.last().map(|event| event.sequence).or(after);
            if !more || events.len() >= max {
                events.truncate(max);
                return Ok(events);
            }
        }
    }

    /// Returns the highest sequence number of all events, by binary search over single events.
    pub async fn last_sequence(&self) -> Result<i64, ClientError> {
        let (mut low, mut high) = (0, 1);
        while self.has_event_after(high).await? {
            low = high;
            high *= 2;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.has_event_after(middle).await? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    async fn has_event_after(&self, sequence: i64) -> Result<bool, ClientError> {
        Ok(!self.events(None, Some(sequence), Some(1)).await?.is_empty())
    }

    /// Returns the runners; `all` includes those that have exited.
    pub async fn runners(&self, all: bool) -> Result<Vec<Runner>, ClientError> {
        self.filtered_pages(&["runners"], QueryPairs::new(), &RunnerFilter { all }, None).await
    }

    /// Returns the remote workers of a workflow.
    pub async fn remote_workers(&self, workflow: &str) -> Result<Vec<RemoteWorker>, ClientError> {
        self.pages(&["workflows", workflow, "remote-workers"], self.in_namespace(), None).await
    }

    /// Adds remote workers to a workflow; returns all of its workers.
    pub async fn add_remote_workers(
        &self,
        workflow: &str,
        workers: Vec<RemoteWorker>,
    ) -> Result<Vec<RemoteWorker>, ClientError> {
        let request = RemoteWorkersRequest { workers };
        let page: Page<RemoteWorker> = self.post(&["workflows", workflow, "remote-workers"], &request).await?;
        Ok(page.items)
    }

    /// Removes a remote worker from a workflow.
    pub async fn remove_remote_worker(&self, workflow: &str, address: &str) -> Result<(), ClientError> {
        let url = self.url_of(&["workflows", workflow, "remote-workers", address], &self.in_namespace());
        self.send(self.request(Method::DELETE, url)).await.map(drop)
    }

    /// Deletes data of workflows that ended long ago.
    pub async fn gc(&self, request: &GcRequest) -> Result<GcResponse, ClientError> {
        self.post(&["gc"], request).await
    }

    /// Writes a backup of the store to a path on the server's machine.
    pub async fn backup(&self, path: &str) -> Result<(), ClientError> {
        let url = self.url_of(&["backup"], &[]);
        let body = serde_json::json!({ "path": path });
        self.send(self.request(Method::POST, url).json(&body)).await.map(drop)
    }

    /// Opens the stream of events and statuses, of one workflow or all, after a sequence number.
    pub async fn watch(&self, workflow: Option<i64>, after: Option<i64>) -> Result<EventStream, ClientError> {
        let mut query = QueryPairs::new();
        add(&mut query, "workflow", workflow.as_ref());
        add(&mut query, "after", after.as_ref());
        let url = self.url_of(&["watch"], &query);
        Ok(EventStream::new(self.send(self.request(Method::GET, url)).await?))
    }

    /// Returns the namespace of workflow names; without one, the server's default applies.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    fn in_namespace(&self) -> QueryPairs {
        let mut query = QueryPairs::new();
        add(&mut query, "namespace", self.namespace.as_ref());
        query
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: QueryPairs) -> Result<T, ClientError> {
        let url = self.url_of(path, &query);
        decode(self.send(self.request(Method::GET, url)).await?).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<T, ClientError> {
        let url = self.url_of(path, &self.in_namespace());
        decode(self.send(self.request(Method::POST, url).json(body)).await?).await
    }

    async fn pages<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: QueryPairs,
        limit: Option<usize>,
    ) -> Result<Vec<T>, ClientError> {
        self.filtered_pages(path, query, &(), limit).await
    }

    async fn filtered_pages<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: QueryPairs,
        filter: &impl Serialize,
        limit: Option<usize>,
    ) -> Result<Vec<T>, ClientError> {
        let url = self.url_of(path, &query);
        let max = limit.unwrap_or(usize::MAX);
        let mut items: Vec<T> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut range = QueryPairs::new();
            add(&mut range, "limit", Some(&PAGE_SIZE.min(max - items.len())));
            add(&mut range, "cursor", cursor.as_ref());
            let request = self.request(Method::GET, url.clone()).query(filter).query(&range);
            let page: Page<T> = decode(self.send(request).await?).await?;
            let was_empty = page.items.is_empty();
            items.extend(page.items);
            match page.next {
                Some(next) if items.len() < max && !was_empty => cursor = Some(next),
                _ => break,
            }
        }
        items.truncate(max);
        Ok(items)
    }

    fn url_of(&self, path: &[&str], query: &[(&'static str, String)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    fn request(&self, method: Method, url: Url) -> reqwest::RequestBuilder {
        let request = self.http.request(method, url);
        let request = match &self.user {
            Some(user) => request.header("x-torc-user", user.clone()),
            None => request,
        };
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|source| ClientError::unanswered(self.url(), source))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let text = response.text().await.unwrap_or_default();
        Err(ClientError::answer(status, &text))
    }
}

/// Returns the local user name for audit entries; an authenticated identity overrides it on the server.
fn user_name() -> Option<HeaderValue> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok()??;
    HeaderValue::from_str(&user.name).ok()
}

fn add(query: &mut QueryPairs, key: &'static str, value: Option<&impl ToString>) {
    if let Some(value) = value {
        query.push((key, value.to_string()));
    }
}

async fn decode<T: DeserializeOwned>(response: Response) -> Result<T, ClientError> {
    let bytes = response.bytes().await.map_err(|source| ClientError::CutOff { source })?;
    serde_json::from_slice(&bytes).map_err(|source| ClientError::Decode { source })
}

#[cfg(test)]
mod tests;
