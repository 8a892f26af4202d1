//! Flags for the address and the protection of a server.

use std::net::{SocketAddr, ToSocketAddrs as _};

use torc_api::setting::FlagGroup;

use crate::error::CliError;
use crate::settings::{Flags, bit};

/// The flags of the server inside `torc apply` and `torc run`.
pub type ListenArgs = Flags<{ bit(FlagGroup::EmbeddedListener) | bit(FlagGroup::Listening) }>;

/// Resolves `HOST:PORT` to a socket address.
pub fn resolve(bind: &str) -> Result<SocketAddr, CliError> {
    let wrong = || CliError::invalid(format!("'{bind}' is not an address to listen on: use HOST:PORT"));
    bind.to_socket_addrs().map_err(|error| wrong().because(error))?.next().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ExitStatus;

    #[test]
    fn an_address_needs_a_port() {
        assert_eq!(resolve("127.0.0.1:80").expect("an address").to_string(), "127.0.0.1:80");
        assert_eq!(resolve("80").expect_err("no port").kind, ExitStatus::InvalidInput);
    }
}
