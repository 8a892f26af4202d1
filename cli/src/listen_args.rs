//! Flags that say where a server listens and how.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use clap::Args;

use crate::error::CommandError;
use crate::settings::{Layers, Origin};

/// Where a server listens, and how others reach it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Listening")]
pub struct ListenArgs {
    /// Where to listen; port 0 takes a free one. Beyond this machine the server speaks TLS.
    #[arg(long, value_name = "HOST:PORT")]
    pub bind: Option<String>,
    /// How runners and clients on other machines reach it: a URL, a host, or a host with a port.
    #[arg(long, value_name = "URL|HOST")]
    pub advertise: Option<String>,
    /// Speak TLS also where only this machine listens.
    #[arg(long)]
    pub tls: bool,
    /// The certificate, and those above it, in PEM; read again when it changes. Without it the server makes its own.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Those who vouch for the certificate, or for that of a proxy in front, in PEM: for runners in Slurm allocations.
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Speak plain HTTP beyond this machine: for a proxy in front that speaks TLS.
    #[arg(long, conflicts_with_all = ["tls", "tls_cert"])]
    pub insecure_http: bool,
}

impl ListenArgs {
    /// The flags as settings; `bind` is the key of the address.
    pub fn add_flags(&self, bind: &'static str, layers: &mut Layers) {
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let switch = |on: bool| on.then(|| "true".to_owned());
        for (key, text) in [
            (bind, self.bind.clone()),
            ("server.advertise", self.advertise.clone()),
            ("server.tls", switch(self.tls)),
            ("server.tls_cert", self.tls_cert.as_ref().map(path)),
            ("server.tls_key", self.tls_key.as_ref().map(path)),
            ("server.tls_ca", self.tls_ca.as_ref().map(path)),
            ("server.insecure_http", switch(self.insecure_http)),
        ] {
            if let Some(text) = text {
                layers.below(key, text, Origin::Flag);
            }
        }
    }
}

/// The address of a host and port.
pub fn resolve(bind: &str) -> Result<SocketAddr, CommandError> {
    let wrong = || CommandError::invalid(format!("'{bind}' is no address to listen on: write HOST:PORT"));
    bind.to_socket_addrs().map_err(|error| wrong().because(error))?.next().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ExitStatus;

    #[test]
    fn addresses() {
        assert_eq!(resolve("127.0.0.1:80").expect("an address").to_string(), "127.0.0.1:80");
        assert_eq!(resolve("80").expect_err("no port").kind, ExitStatus::InvalidInput);
    }
}
