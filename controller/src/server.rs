//! A server: a store, its engine and the HTTP API.

mod in_cluster;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use nix::sys::resource::{Resource, getrlimit};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use torc_api::token::Fingerprint;
use torc_core::expand::ExpansionLimits;
use torc_core::tokens::TokenKey;
use torc_store::{OpenOptions, Store, StoreError};

use crate::credentials::{CredentialIssuer, ServerTrust};
use crate::engine::{EngineError, EngineHandle, ShutdownTokens};
use crate::http::{self, Identities};
use crate::issuer::Issuer;
use crate::kubernetes::{KubernetesConfig, NoCluster, Readiness};
use crate::leadership::Leadership;
use crate::listener::{Listener, connection_limit};
use crate::slurm::{SlurmConfig, SlurmHandle};
use crate::tls::{Certificates, TlsError, TlsFiles, certificates_of};

/// The configuration of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// The file of the store.
    pub database: PathBuf,
    /// The address to listen at; `None` for a server inside this process only.
    pub bind: Option<SocketAddr>,
    pub token: String,
    /// A token that only reads metrics.
    pub metrics_token: Option<String>,
    /// The key that signs restricted tokens.
    pub token_key: TokenKey,
    /// The certificate and key of a server with TLS.
    pub tls: Option<TlsFiles>,
    /// The fingerprint of a self-signed certificate, attached to tokens.
    pub pin: Option<Fingerprint>,
    /// A file with the certificate authority of the server, or of a proxy in front of it, for runners elsewhere.
    pub authority: Option<PathBuf>,
    /// Lifetime of the tokens of runners in allocations, which are renewed in time.
    pub runner_token_lifetime: Duration,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Returns the public URL of a listening address.
    pub advertise: Advertise,
    /// Maximum number of jobs of a document.
    pub max_jobs: usize,
    /// Settings of the Slurm loop; `None` for a server without Slurm.
    pub slurm: Option<SlurmConfig>,
    /// Settings of the controller of custom resources; `None` outside of Kubernetes.
    pub kubernetes: Option<KubernetesConfig>,
}

/// A function from a listening address, which is only known after binding, to the public URL.
pub type Advertise = Arc<dyn Fn(SocketAddr) -> String + Send + Sync>;

/// The reason why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be opened.
    #[error("the store cannot be opened")]
    Store(#[source] StoreError),
    /// The store cannot be read.
    #[error("the store cannot be read")]
    Load(#[source] EngineError),
    /// The server cannot listen at the address.
    #[error("cannot listen on {address}")]
    Bind {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    /// The certificate cannot be used.
    #[error("the certificate cannot be used")]
    Tls(#[source] TlsError),
    /// The Kubernetes API cannot be reached.
    #[error("the controller of custom resources cannot start")]
    Cluster(#[source] NoCluster),
}

/// A running server: the engine with its store, the listener and the background tasks.
pub struct Server {
    engine: EngineHandle,
    store: Store,
    address: Option<SocketAddr>,
    stop: ShutdownTokens,
    writer: JoinHandle<()>,
    http: Option<JoinHandle<()>>,
    credentials: CredentialIssuer,
    slurm: Option<SlurmHandle>,
    slurm_loop: Option<JoinHandle<()>>,
    /// Tasks of the controller of custom resources.
    watchers: Vec<JoinHandle<()>>,
    /// The task that renews the lease, and the token that makes it release the lease.
    leader_task: Option<(JoinHandle<()>, CancellationToken)>,
}

impl Server {
    /// Opens the store, reads it, and listens. In a cluster, this waits until the server leads.
    pub async fn start(config: ServerConfig) -> Result<Self, StartError> {
        if config.kubernetes.is_some() {
            return in_cluster::start(config).await;
        }
        let stop = ShutdownTokens::default();
        let certificates = certificates(&config)?;
        let options = OpenOptions { path: config.database.clone(), create: true, ..OpenOptions::default() };
        let store = Store::open(options).await.map_err(StartError::Store)?;
        let opened =
            EngineHandle::start(store.clone(), limits(&config), Arc::default(), stop.clone(), issuer(&config)).await;
        let opened = opened.map_err(StartError::Load)?;
        let socket = bind(config.bind).await?;
        let address = socket.as_ref().and_then(|socket| socket.local_addr().ok());
        let trust = ServerTrust { shown: certificates.clone(), authority: config.authority.clone() };
        let credentials = credentials(&config, address, trust);
        let mut server =
            Self::assemble(&config, store, opened, (address, credentials), &Leadership::permanent(), stop).await?;
        if let Some(socket) = socket {
            let identities =
                Identities::new(config.token.clone(), issuer(&config)).with_metrics(config.metrics_token.clone());
            let app = server.app(identities, Readiness::default());
            server.http = Some(listen(socket, app, &config, certificates, &server.stop.waiting)?);
        }
        Ok(server)
    }

    /// Starts everything but the listener.
    async fn assemble(
        config: &ServerConfig,
        store: Store,
        (engine, writer): (EngineHandle, JoinHandle<()>),
        (address, credentials): (Option<SocketAddr>, CredentialIssuer),
        leadership: &Leadership,
        stop: ShutdownTokens,
    ) -> Result<Self, StartError> {
        let mut server = Self {
            engine,
            store,
            address,
            stop,
            writer,
            http: None,
            credentials,
            slurm: None,
            slurm_loop: None,
            watchers: Vec::new(),
            leader_task: None,
        };
        if let Some(slurm) = config.slurm.clone() {
            server.serve_slurm(slurm, leadership).await?;
        }
        Ok(server)
    }

    /// Starts the Slurm loop. Runners in allocations get the address of this server.
    async fn serve_slurm(&mut self, config: SlurmConfig, leadership: &Leadership) -> Result<(), StartError> {
        if config.serves.is_some() {
            self.engine.serve_slurm().await.map_err(StartError::Load)?;
        }
        let stop = self.stop.waiting.clone();
        let (handle, task) =
            SlurmHandle::start(self.engine.clone(), config, self.credentials.clone(), leadership.clone(), stop);
        self.slurm = Some(handle);
        self.slurm_loop = task;
        Ok(())
    }

    fn app(&self, identities: Identities, readiness: Readiness) -> Router {
        http::app(self.engine.clone(), self.slurm.clone(), identities, readiness, self.stop.waiting.clone())
    }

    /// Returns the listening address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the public URL; empty for a server that does not listen.
    pub fn url(&self) -> &str {
        self.credentials.url()
    }

    /// Returns the engine, for use in this process.
    pub fn engine(&self) -> EngineHandle {
        self.engine.clone()
    }

    /// Returns the handle of the Slurm loop.
    pub fn slurm(&self) -> Option<&SlurmHandle> {
        self.slurm.as_ref()
    }

    /// Waits until the writer has ended. Before `shutdown`, only a defect can cause this.
    pub async fn failed(&mut self) {
        // A panic and a return are the same to the caller.
        let _ = (&mut self.writer).await;
    }

    /// Waits until another process owns the store; this process must then end.
    pub async fn superseded(&self) {
        self.stop.superseded.cancelled().await;
    }

    /// Stops listening, finishes requests in progress, and closes the store.
    pub async fn shutdown(self) {
        self.stop.waiting.cancel();
        for watcher in self.watchers {
            // The next server repeats the reconciles that are cut short.
            let _ = tokio::time::timeout(Duration::from_secs(2), watcher).await;
        }
        if let Some(http) = self.http {
            // Clients that keep their connection open do not delay the shutdown further.
            let _ = tokio::time::timeout(Duration::from_secs(2), http).await;
        }
        if let Some(slurm_loop) = self.slurm_loop {
            // A hanging call does not delay the shutdown: the next server finds its allocation by name.
            let _ = tokio::time::timeout(Duration::from_secs(2), slurm_loop).await;
        }
        self.stop.queue.cancel();
        let _ = self.writer.await;
        if let Err(error) = self.store.close().await {
            tracing::warn!(%error, "the store was not closed cleanly");
        }
        if let Some((leader_task, release)) = self.leader_task {
            release.cancel();
            let _ = tokio::time::timeout(Duration::from_secs(5), leader_task).await;
        }
    }
}

fn limits(config: &ServerConfig) -> ExpansionLimits {
    ExpansionLimits { max_jobs: config.max_jobs, ..ExpansionLimits::default() }
}

fn issuer(config: &ServerConfig) -> Issuer {
    Issuer::new(config.token_key.clone(), config.pin)
}

/// Reads the certificate, and checks the files for runners, so that an unreadable file is reported at the start.
fn certificates(config: &ServerConfig) -> Result<Option<Arc<Certificates>>, StartError> {
    config.authority.as_deref().map(certificates_of).transpose().map_err(StartError::Tls)?;
    config.tls.clone().map(Certificates::read).transpose().map_err(StartError::Tls)
}

fn credentials(config: &ServerConfig, address: Option<SocketAddr>, trust: ServerTrust) -> CredentialIssuer {
    let url = address.map_or_else(String::new, |bound| (config.advertise)(bound));
    CredentialIssuer::new(url, issuer(config), config.runner_token_lifetime, trust)
}

async fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    TcpListener::bind(address).await.map(Some).map_err(|source| StartError::Bind { address, source })
}

/// Serves a socket, until `stop`.
fn listen(
    socket: TcpListener,
    app: Router,
    config: &ServerConfig,
    certificates: Option<Arc<Certificates>>,
    stop: &CancellationToken,
) -> Result<JoinHandle<()>, StartError> {
    let tls = certificates.as_ref().map(Certificates::server_config).transpose().map_err(StartError::Tls)?;
    if let Some(certificates) = certificates {
        tokio::spawn(certificates.follow(stop.clone()));
    }
    let limit = connection_limit(config.max_connections, open_files());
    let listener = Listener::new(socket, tls.map(TlsAcceptor::from), app, limit);
    Ok(tokio::spawn(listener.serve(stop.clone())))
}

/// Returns the limit of open files of this process.
fn open_files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, _)| soft)
}
