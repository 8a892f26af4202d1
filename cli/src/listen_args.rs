//! Flags that say where a server listens and how.

use std::net::{SocketAddr, ToSocketAddrs as _};

use torc_api::setting::FlagGroup;

use crate::error::CliError;
use crate::settings::{Flags, bit};

/// Where the server inside of a command listens, and how others reach it.
pub type ListenArgs = Flags<{ bit(FlagGroup::EmbeddedListener) | bit(FlagGroup::Listening) }>;

/// The address of a host and port.
pub fn resolve(bind: &str) -> Result<SocketAddr, CliError> {
    let wrong = || CliError::invalid(format!("'{bind}' is no address to listen on: write HOST:PORT"));
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
