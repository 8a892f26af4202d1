//! The settings of servers.

use std::path::PathBuf;
use std::time::Duration;

use torc_api::setting::FlagGroup::{EmbeddedListener, Listener, Listening, Server};
use torc_api::setting::{parse_count, parse_duration, parse_path, parse_seconds, parse_switch, parse_text};
use torc_controller::KubernetesConfig;
use torc_controller::tls::TlsFiles;

use crate::error::CliError;

torc_api::settings! {
    /// How a server is started.
    pub struct ServerSettings {
        /// Where `torc server` listens; port 0 takes a free one.
        "server.bind" (default: Some("127.0.0.1:7421"), flag: Some(Listener.flag("bind").value("HOST:PORT")))
        bind: String = parse_text;
        /// Where the server inside `torc apply` and `torc run` listens (`127.0.0.1:0`; `0.0.0.0:0` for documents that need Slurm).
        "client.run.bind" (flag: Some(EmbeddedListener.flag("bind").value("HOST:PORT")))
        embedded_bind: Option<String> = parse_text;
        /// How others reach a server: a URL, a host, or a host with a port (when absent a name of this machine that leads to it, else
        /// one of its addresses).
        "server.advertise" (flag: Some(Listening.flag("advertise").value("URL|HOST")))
        advertise: Option<String> = parse_text;
        /// TLS also where only this machine listens; beyond it TLS is always on.
        "server.tls" (default: Some("false"), flag: Some(Listening.flag("tls")))
        tls: bool = parse_switch;
        /// The server's certificate in PEM (one of its own when absent).
        "server.tls_cert" (flag: Some(Listening.flag("tls-cert").value("FILE").requires("server.tls_key")))
        tls_cert: Option<PathBuf> = parse_path;
        /// Its private key in PEM.
        "server.tls_key" (flag: Some(Listening.flag("tls-key").value("FILE").requires("server.tls_cert")))
        tls_key: Option<PathBuf> = parse_path;
        /// Certificates in PEM of those who vouch for the server's certificate, or for that of a proxy in front: handed to runners in
        /// allocations (which always get the server's own, and those in its file).
        "server.tls_ca" (flag: Some(Listening.flag("tls-ca").value("FILE")))
        tls_ca: Option<PathBuf> = parse_path;
        /// Plain HTTP beyond this machine, for a proxy in front that speaks TLS.
        "server.insecure_http" (
            default: Some("false"),
            flag: Some(Listening.flag("insecure-http").conflicts(&["server.tls", "server.tls_cert"])),
        )
        insecure_http: bool = parse_switch;
        /// How long a token for the runners in allocations is good; after half of it they are handed another one.
        "server.runner_token_lifetime" (default: Some("30d"))
        runner_token_lifetime: Duration = parse_duration;
        /// A file with the administrators' token (one that the server makes beside the database when absent).
        "server.admin_token_file" (flag: Some(Server.flag("admin-token-file").value("FILE")))
        admin_token_file: Option<PathBuf> = parse_path;
        /// A file with a token that reads metrics and nothing else.
        "server.metrics_token_file" (flag: Some(Server.flag("metrics-token-file").value("FILE")))
        metrics_token_file: Option<PathBuf> = parse_path;
        /// The key that signs tokens, at least 32 bytes (one of its own beside the database when absent).
        "server.token_key_file" (flag: Some(Server.flag("token-key-file").value("FILE")))
        token_key_file: Option<PathBuf> = parse_path;
        /// The most connections at once.
        "server.max_connections" (default: Some("4096"))
        max_connections: usize = parse_count::<usize, 1>;
        /// The database of `torc server`: a path or a `sqlite:` URL (`.torc/torc.db` when absent).
        "server.database" (flag: Some(Server.flag("database").value("PATH_OR_URL")))
        database: Option<String> = parse_text;
        /// The most jobs that one workflow may come to.
        "server.max_jobs" (default: Some("1000000"), flag: Some(Server.flag("max-jobs").checked("N")))
        max_jobs: usize = parse_count::<usize, 1>;
        /// Seconds between two looks at Slurm while allocations wait or run.
        "server.slurm_poll_interval" (default: Some("15"))
        slurm_poll_interval: Duration = parse_seconds;
    }
    {
        /// How custom resources are looked after, where that is asked for.
        kubernetes: KubernetesConfig;
    }
}

impl ServerSettings {
    /// The certificate to use.
    pub fn certificate(&self) -> Option<TlsFiles> {
        let (certificate, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { certificate, key })
    }

    /// Refuses a certificate without its key, and a key without its certificate.
    pub(super) fn check(&self) -> Result<(), CliError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) => Err(CliError::usage("a certificate needs its key: say --tls-key, too")),
            (None, Some(_)) => Err(CliError::usage("a key needs its certificate: say --tls-cert, too")),
            _ => Ok(()),
        }
    }
}
