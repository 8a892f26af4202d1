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
use torc_core::trust::TokenKey;
use torc_store::{OpenOptions, Store, StoreError};

use crate::credentials::{CredentialIssuer, ServerTrust};
use crate::engine::{EngineError, EngineHandle, Stop};
use crate::http::{self, Identities};
use crate::issuer::Issuer;
use crate::kubernetes::{KubernetesConfig, NoCluster, Readiness};
use crate::leadership::Leadership;
use crate::listener::{Listener, connection_limit};
use crate::slurm::{SlurmConfig, SlurmHandle};
use crate::tls::{Certificates, TlsError, TlsFiles, certificates_of};

/// What a server needs to know.
#[derive(Clone)]
pub struct ServerConfig {
    /// The store's file.
    pub database: PathBuf,
    /// Where to listen; none for a server that only this process uses.
    pub bind: Option<SocketAddr>,
    /// The administrator's token.
    pub token: String,
    /// A token that reads metrics, and nothing else.
    pub metrics_token: Option<String>,
    /// The key that signs tokens which allow less.
    pub token_key: TokenKey,
    /// The certificate, for a server that speaks TLS.
    pub tls: Option<TlsFiles>,
    /// Passed on with tokens: the certificate's fingerprint, where nobody but this server vouches for it.
    pub pin: Option<Fingerprint>,
    /// A file with the certificates of those who vouch for the server, or for a proxy in front of it: for runners elsewhere.
    pub authority: Option<PathBuf>,
    /// How long a token for the runners in allocations is good; they get another one in time.
    pub runner_token_lifetime: Duration,
    /// The most connections at once.
    pub max_connections: usize,
    /// How others reach what listens at an address.
    pub advertise: Advertise,
    /// Documents with more jobs are refused.
    pub max_jobs: usize,
    /// How allocations are asked for; none for a server that has nothing to do with Slurm.
    pub slurm: Option<SlurmConfig>,
    /// How custom resources are looked after; none for a server that has nothing to do with Kubernetes.
    pub kubernetes: Option<KubernetesConfig>,
}

/// How others reach what listens at an address, which is known only when it does.
pub type Advertise = Arc<dyn Fn(SocketAddr) -> String + Send + Sync>;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be opened.
    #[error("the store cannot be opened")]
    Store(#[source] StoreError),
    /// The store cannot be read.
    #[error("the store cannot be read")]
    Load(#[source] EngineError),
    /// The address cannot be used.
    #[error("cannot listen on {address}")]
    Bind {
        /// Which address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The certificate cannot be used.
    #[error("the certificate cannot be used")]
    Tls(#[source] TlsError),
    /// There is no Kubernetes.
    #[error("custom resources cannot be looked after")]
    Cluster(#[source] NoCluster),
}

/// A running server.
pub struct Server {
    engine: EngineHandle,
    store: Store,
    address: Option<SocketAddr>,
    stop: Stop,
    writer: JoinHandle<()>,
    http: Option<JoinHandle<()>>,
    credentials: CredentialIssuer,
    slurm: Option<SlurmHandle>,
    slurm_loop: Option<JoinHandle<()>>,
    /// Those that look after custom resources.
    watchers: Vec<JoinHandle<()>>,
    /// Holds the lease, and gives it back when it is told to.
    tenure: Option<(JoinHandle<()>, CancellationToken)>,
}

impl Server {
    /// Opens the store, reads it, and listens. In a cluster this takes until this server leads.
    pub async fn start(config: ServerConfig) -> Result<Self, StartError> {
        if config.kubernetes.is_some() {
            return in_cluster::start(config).await;
        }
        let stop = Stop::default();
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
            server.http = Some(listen(socket, app, (&config, certificates), &server.stop.waiting)?);
        }
        Ok(server)
    }

    /// Everything but the listener.
    async fn assemble(
        config: &ServerConfig,
        store: Store,
        (engine, writer): (EngineHandle, JoinHandle<()>),
        (address, credentials): (Option<SocketAddr>, CredentialIssuer),
        leadership: &Leadership,
        stop: Stop,
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
            tenure: None,
        };
        if let Some(slurm) = config.slurm.clone() {
            server.serve_slurm(slurm, leadership).await?;
        }
        Ok(server)
    }

    /// Starts looking after allocations; their runners are told where this server answers.
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

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// How others reach it; empty for a server that does not listen.
    pub fn url(&self) -> &str {
        self.credentials.url()
    }

    /// Its engine, for use in this process.
    pub fn engine(&self) -> EngineHandle {
        self.engine.clone()
    }

    /// The way to Slurm, if there is one.
    pub fn slurm(&self) -> Option<&SlurmHandle> {
        self.slurm.as_ref()
    }

    /// Ends once the writer has ended, which only a defect makes it do before `shutdown`.
    pub async fn failed(&mut self) {
        // Whether it panicked or returned makes no difference to the caller.
        let _ = (&mut self.writer).await;
    }

    /// Ends once somebody else owns the store: this process must not go on.
    pub async fn superseded(&self) {
        self.stop.superseded.cancelled().await;
    }

    /// Stops listening, lets what is under way end, and closes the store.
    pub async fn shutdown(self) {
        self.stop.waiting.cancel();
        for watcher in self.watchers {
            // What it was about to write is worked out again by the next one.
            let _ = tokio::time::timeout(Duration::from_secs(2), watcher).await;
        }
        if let Some(http) = self.http {
            // Clients that keep their connection open are not waited for longer than this.
            let _ = tokio::time::timeout(Duration::from_secs(2), http).await;
        }
        if let Some(slurm_loop) = self.slurm_loop {
            // A call that hangs is not waited for: what it submits is found again by its name.
            let _ = tokio::time::timeout(Duration::from_secs(2), slurm_loop).await;
        }
        self.stop.queue.cancel();
        let _ = self.writer.await;
        if let Err(error) = self.store.close().await {
            tracing::warn!(%error, "the store was not closed cleanly");
        }
        if let Some((tenure, release)) = self.tenure {
            release.cancel();
            let _ = tokio::time::timeout(Duration::from_secs(5), tenure).await;
        }
    }
}

fn limits(config: &ServerConfig) -> ExpansionLimits {
    ExpansionLimits { max_jobs: config.max_jobs, ..ExpansionLimits::default() }
}

fn issuer(config: &ServerConfig) -> Issuer {
    Issuer::new(config.token_key.clone(), config.pin)
}

/// The certificate that is shown, and a look at what else runners will be handed: what cannot be read is told at the start.
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

/// Answers what comes in on a socket, until `stop`.
fn listen(
    socket: TcpListener,
    app: Router,
    (config, certificates): (&ServerConfig, Option<Arc<Certificates>>),
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

/// How many files this process may have open.
fn open_files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, _)| soft)
}
