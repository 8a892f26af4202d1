//! A server: a store, its engine and the HTTP API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use torc_core::expand::Limits;
use torc_store::{OpenOptions, Store, StoreError};

use crate::engine::{Engine, EngineError, Stop};
use crate::handover::Handover;
use crate::http;
use crate::metrics::Metrics;
use crate::slurm::{SlurmConfig, SlurmHandle};

/// What a server needs to know.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The store's file.
    pub database: PathBuf,
    /// Where to listen; none for a server that only this process uses.
    pub bind: Option<SocketAddr>,
    /// The secret that every request but those about health must bring.
    pub token: String,
    /// Documents with more jobs are refused.
    pub max_jobs: usize,
    /// How allocations are asked for; none for a server that has nothing to do with Slurm.
    pub slurm: Option<SlurmConfig>,
}

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
}

/// A running server.
pub struct Server {
    engine: Engine,
    store: Store,
    address: Option<SocketAddr>,
    stop: Stop,
    writer: JoinHandle<()>,
    http: Option<JoinHandle<std::io::Result<()>>>,
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
        let started = Engine::start(store.clone(), limits, metrics, stop.clone()).await;
        let (engine, writer) = started.map_err(StartError::Load)?;
        let mut server = Self { engine, store, address: None, stop, writer, http: None, slurm: None, slurm_loop: None };
        let listener = match config.bind {
            Some(address) => Some(server.bind(address).await?),
            None => None,
        };
        if let Some(slurm) = config.slurm {
            server.serve_slurm(slurm, &config.token).await?;
        }
        if let Some(listener) = listener {
            server.listen(listener, &config.token);
        }
        Ok(server)
    }

    /// Starts looking after allocations; their runners are told where this server answers.
    async fn serve_slurm(&mut self, config: SlurmConfig, token: &str) -> Result<(), StartError> {
        if config.serves.is_some() {
            self.engine.serve_slurm().await.map_err(StartError::Load)?;
        }
        let url = self.address.map_or_else(String::new, |address| format!("http://{}", reachable(address)));
        let handover = Handover { url, token: token.to_owned(), certificate_sha256: None };
        let stop = self.stop.waiting.clone();
        let (handle, task) = SlurmHandle::start(self.engine.clone(), config, handover, stop);
        self.slurm = Some(handle);
        self.slurm_loop = task;
        Ok(())
    }

    async fn bind(&mut self, address: SocketAddr) -> Result<TcpListener, StartError> {
        let bind_error = |source| StartError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind_error)?;
        self.address = Some(listener.local_addr().map_err(bind_error)?);
        Ok(listener)
    }

    fn listen(&mut self, listener: TcpListener, token: &str) {
        let stop = self.stop.waiting.clone();
        let app = http::app(self.engine.clone(), self.slurm.clone(), token, stop.clone());
        let serve = axum::serve(listener, app).with_graceful_shutdown(async move { stop.cancelled().await });
        self.http = Some(tokio::spawn(serve.into_future()));
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
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

/// An address that can be connected to: a server that listens everywhere also listens here.
fn reachable(address: SocketAddr) -> SocketAddr {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
    }
    address
}
