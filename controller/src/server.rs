//! A server: a store, its engine and the HTTP API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use torc_api::token::Fingerprint;
use torc_core::expand::Limits;
use torc_core::trust::TokenKey;
use torc_store::{OpenOptions, Store, StoreError};

use crate::engine::{Engine, EngineError, Stop};
use crate::handover::Handovers;
use crate::http::{self, Identities};
use crate::issuer::Issuer;
use crate::listener::{Listener, connection_limit};
use crate::metrics::Metrics;
use crate::slurm::{SlurmConfig, SlurmHandle};
use crate::tls::{Certificates, TlsError, TlsFiles};

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
    /// The most connections at once.
    pub max_connections: usize,
    /// How others reach what listens at an address.
    pub advertise: Advertise,
    /// Documents with more jobs are refused.
    pub max_jobs: usize,
    /// How allocations are asked for; none for a server that has nothing to do with Slurm.
    pub slurm: Option<SlurmConfig>,
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
}

/// A running server.
pub struct Server {
    engine: Engine,
    store: Store,
    address: Option<SocketAddr>,
    stop: Stop,
    writer: JoinHandle<()>,
    http: Option<JoinHandle<()>>,
    handovers: Handovers,
    slurm: Option<SlurmHandle>,
    slurm_loop: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the store, reads it, and listens.
    pub async fn start(config: ServerConfig) -> Result<Self, StartError> {
        let store = Store::open(OpenOptions { path: config.database, create: true, exclusive: None })
            .await
            .map_err(StartError::Store)?;
        let limits = Limits { max_jobs: config.max_jobs, ..Limits::default() };
        let metrics = Arc::new(Metrics::default());
        let stop = Stop::default();
        let issuer = Issuer::new(config.token_key, config.pin);
        let started = Engine::start(store.clone(), limits, metrics, stop.clone(), issuer.clone()).await;
        let (engine, writer) = started.map_err(StartError::Load)?;
        let listener = match config.bind {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let address = listener.as_ref().and_then(|socket| socket.local_addr().ok());
        let url = address.map_or_else(String::new, |bound| (config.advertise)(bound));
        let handovers = Handovers::new(url, issuer.clone());
        let mut server =
            Self { engine, store, address, stop, writer, http: None, handovers, slurm: None, slurm_loop: None };
        if let Some(slurm) = config.slurm {
            server.serve_slurm(slurm).await?;
        }
        if let Some(socket) = listener {
            let certificates = config.tls.map(Certificates::read).transpose().map_err(StartError::Tls)?;
            let identities = Identities::new(config.token, issuer).with_metrics(config.metrics_token);
            server.listen(socket, identities, certificates, config.max_connections)?;
        }
        Ok(server)
    }

    /// Starts looking after allocations; their runners are told where this server answers.
    async fn serve_slurm(&mut self, config: SlurmConfig) -> Result<(), StartError> {
        if config.serves.is_some() {
            self.engine.serve_slurm().await.map_err(StartError::Load)?;
        }
        let stop = self.stop.waiting.clone();
        let (handle, task) = SlurmHandle::start(self.engine.clone(), config, self.handovers.clone(), stop);
        self.slurm = Some(handle);
        self.slurm_loop = task;
        Ok(())
    }

    fn listen(
        &mut self,
        socket: TcpListener,
        identities: Identities,
        certificates: Option<Arc<Certificates>>,
        max_connections: usize,
    ) -> Result<(), StartError> {
        let stop = self.stop.waiting.clone();
        let app = http::app(self.engine.clone(), self.slurm.clone(), identities, stop.clone());
        let tls = certificates.as_ref().map(Certificates::server_config).transpose().map_err(StartError::Tls)?;
        if let Some(certificates) = certificates {
            tokio::spawn(certificates.follow(stop.clone()));
        }
        let limit = connection_limit(max_connections, open_files());
        let listener = Listener::new(socket, tls.map(TlsAcceptor::from), app, limit);
        self.http = Some(tokio::spawn(listener.serve(stop)));
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// How others reach it; empty for a server that does not listen.
    pub fn url(&self) -> &str {
        self.handovers.url()
    }

    /// Its engine, for use in this process.
    pub fn engine(&self) -> Engine {
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

    /// Stops listening, lets what is under way end, and closes the store.
    pub async fn shutdown(self) {
        self.stop.waiting.cancel();
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
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Bind { address, source })
}

/// How many files this process may have open.
fn open_files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, _)| soft)
}
