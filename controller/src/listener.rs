//! Connections: their number, their timeouts and TLS. A public server must survive clients that never finish a request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use torc_api::api::ErrorBody;
use torc_api::error_code::ErrorCode;

/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the headers of a request. It also closes idle connections; our own clients close theirs earlier.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum number of bytes that are read of a request that will not be answered.
const MAX_DISCARDED_BYTES: u64 = 1 << 20;
/// Delay after connections cannot be accepted, for example because too many files are open.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Files that a process needs besides connections: the database, logs, the shim.
const OTHER_FILES: u64 = 64;

/// Returns the number of connections that a process may have, given the setting and the limit of open files.
pub(crate) fn connection_limit(requested: usize, open_files: u64) -> usize {
    let possible = usize::try_from(open_files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    requested.min(possible.max(1)).min(Semaphore::MAX_PERMITS)
}

/// Accepts and serves connections on a socket.
pub(crate) struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
    app: Router,
    connections: Arc<Semaphore>,
    open: GracefulShutdown,
}

impl Listener {
    pub fn new(socket: TcpListener, tls: Option<TlsAcceptor>, app: Router, limit: usize) -> Self {
        let connections = Arc::new(Semaphore::new(limit));
        Self { socket, tls, app, connections, open: GracefulShutdown::new() }
    }

    /// Serves until `stop`, and then until all requests in progress are answered.
    pub async fn serve(self, stop: CancellationToken) {
        while let Some((stream, permit)) = stop.run_until_cancelled(self.accept()).await {
            // Sends small answers at once. Fails only for a connection that is closed.
            let _ = stream.set_nodelay(true);
            let (app, watcher) = (self.app.clone(), self.open.watcher());
            let tls = self.tls.clone();
            tokio::spawn(async move {
                match tls {
                    None => answer(stream, app, watcher).await,
                    Some(tls) => {
                        if let Some(stream) = accept_tls(stream, tls).await {
                            answer(stream, app, watcher).await;
                        }
                    }
                }
                drop(permit);
            });
        }
        self.open.shutdown().await;
    }

    /// Accepts the next connection, once the limit allows it.
    async fn accept(&self) -> (TcpStream, Option<OwnedSemaphorePermit>) {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.connections).acquire_owned().await.ok();
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => return (stream, permit),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            }
        }
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    app: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let connection = protocol.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    // The client notices errors of its connection.
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended early");
    }
}

type TlsConnection = tokio_rustls::server::TlsStream<TcpStream>;

/// Begins TLS. A client that speaks plain HTTP gets an error in plain HTTP, which is the only one that it can read.
async fn accept_tls(mut stream: TcpStream, tls: TlsAcceptor) -> Option<TlsConnection> {
    let greeting = async move {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
            stream.write_all(plain_http_response().as_bytes()).await?;
            stream.shutdown().await?;
            // The request must be read: otherwise the connection is reset and the answer is lost.
            tokio::io::copy(&mut stream.take(MAX_DISCARDED_BYTES), &mut tokio::io::sink()).await?;
            return Ok(None);
        }
        tls.accept(stream).await.map(Some)
    };
    let shaken: Result<io::Result<Option<TlsConnection>>, _> = tokio::time::timeout(HANDSHAKE_TIMEOUT, greeting).await;
    match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}

/// Returns the answer to plain HTTP.
fn plain_http_response() -> String {
    let body = ErrorBody {
        code: ErrorCode::TlsRequired,
        message: "this server requires HTTPS, but the request used HTTP".to_owned(),
        hint: Some("use https:// in the URL".to_owned()),
        ..ErrorBody::default()
    };
    let json = serde_json::to_string(&body).unwrap_or_default();
    format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{json}",
        json.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        for (requested, files, expected) in [
            (1_000, 1_024, 960),
            (100, 1_024, 100),
            (10_000, 1 << 20, 10_000),
            (10, 10, 1),
            (usize::MAX, u64::MAX, Semaphore::MAX_PERMITS),
        ] {
            assert_eq!(connection_limit(requested, files), expected, "{requested} {files}");
        }
    }
}
