//! The settings of servers.

use std::path::PathBuf;
use std::time::Duration;

use torc_api::setting::FlagGroup::{EmbeddedListener, Listener, Listening, Server};
use torc_api::setting::{parse_count, parse_duration, parse_path, parse_seconds, parse_switch, parse_text};
use torc_controller::KubernetesConfig;
use torc_controller::tls::TlsFiles;

use crate::error::CliError;

torc_api::settings! {
    /// Settings of `torc server` and of servers inside other commands.
    pub struct ServerSettings {
        /// The address of `torc server`; port 0 picks a free port.
        "server.bind" (default: Some("127.0.0.1:7421"), flag: Some(Listener.flag("bind").value("HOST:PORT")))
        bind: String = parse_text;
        /// The address of the server inside `torc apply` and `torc run` (default: `127.0.0.1:0`, or `0.0.0.0:0` for workflows that need
        /// Slurm).
        "client.run.bind" (flag: Some(EmbeddedListener.flag("bind").value("HOST:PORT")))
        embedded_bind: Option<String> = parse_text;
        /// The address that runners use to reach the server: a URL, a host, or `HOST:PORT` (default: a host name that resolves to this
        /// machine, else one of its IP addresses).
        "server.advertise" (flag: Some(Listening.flag("advertise").value("URL|HOST")))
        advertise: Option<String> = parse_text;
        /// Use TLS on loopback addresses too; on other addresses TLS is always on.
        "server.tls" (default: Some("false"), flag: Some(Listening.flag("tls")))
        tls: bool = parse_switch;
        /// The server's certificate in PEM (default: a self-signed one).
        "server.tls_cert" (flag: Some(Listening.flag("tls-cert").value("FILE").requires("server.tls_key")))
        tls_cert: Option<PathBuf> = parse_path;
        /// The private key of the server's certificate in PEM.
        "server.tls_key" (flag: Some(Listening.flag("tls-key").value("FILE").requires("server.tls_cert")))
        tls_key: Option<PathBuf> = parse_path;
        /// CA certificates in PEM for the server's certificate, or for the certificate of a proxy in front. Runners in allocations get them in
        /// addition to the server's certificate file.
        "server.tls_ca" (flag: Some(Listening.flag("tls-ca").value("FILE")))
        tls_ca: Option<PathBuf> = parse_path;
        /// Use plain HTTP on addresses that other machines can reach, for a proxy in front that terminates TLS.
        "server.insecure_http" (
            default: Some("false"),
            flag: Some(Listening.flag("insecure-http").conflicts(&["server.tls", "server.tls_cert"])),
        )
        insecure_http: bool = parse_switch;
        /// The lifetime of tokens for runners in allocations; each is replaced after half of it.
        "server.runner_token_lifetime" (default: Some("30d"))
        runner_token_lifetime: Duration = parse_duration;
        /// The file with the administrators' token (default: created beside the database).
        "server.admin_token_file" (flag: Some(Server.flag("admin-token-file").value("FILE")))
        admin_token_file: Option<PathBuf> = parse_path;
        /// The file with a token that can only read metrics.
        "server.metrics_token_file" (flag: Some(Server.flag("metrics-token-file").value("FILE")))
        metrics_token_file: Option<PathBuf> = parse_path;
        /// The file with the key that signs tokens, at least 32 bytes (default: created beside the database).
        "server.token_key_file" (flag: Some(Server.flag("token-key-file").value("FILE")))
        token_key_file: Option<PathBuf> = parse_path;
        /// The maximum number of concurrent connections.
        "server.max_connections" (default: Some("4096"))
        max_connections: usize = parse_count::<usize, 1>;
        /// The database of `torc server`: a path or a `sqlite:` URL (default: `.torc/torc.db`).
        "server.database" (flag: Some(Server.flag("database").value("PATH_OR_URL")))
        database: Option<String> = parse_text;
        /// The maximum number of jobs of one workflow after expansion.
        "server.max_jobs" (default: Some("1000000"), flag: Some(Server.flag("max-jobs").checked("N")))
        max_jobs: usize = parse_count::<usize, 1>;
        /// Seconds between two polls of Slurm while allocations are pending or running.
        "server.slurm_poll_interval" (default: Some("15"))
        slurm_poll_interval: Duration = parse_seconds;
    }
    {
        /// Settings of the controller of custom resources.
                kubernetes: KubernetesConfig;
    }
}

impl ServerSettings {
    /// Returns the certificate with its key, if both are set.
    pub fn certificate(&self) -> Option<TlsFiles> {
        let (certificate, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { certificate, key })
    }

    /// Rejects a certificate without a key, and a key without a certificate.
    pub(super) fn check(&self) -> Result<(), CliError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) => Err(CliError::usage("the TLS certificate has no key: add --tls-key FILE")),
            (None, Some(_)) => Err(CliError::usage("the TLS key has no certificate: add --tls-cert FILE")),
            _ => Ok(()),
        }
    }
}
