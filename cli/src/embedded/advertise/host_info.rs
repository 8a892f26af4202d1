//! Looks up the host names of this machine, their addresses, and its interfaces.

use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::HostInfo;
use crate::host::host_name;

/// The timeout of name resolution: a name server that does not answer must not delay the start of a server.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Name prefixes of bridges to containers and virtual machines, which other machines cannot reach.
const INTERNAL_INTERFACES: [&str; 8] = ["docker", "br-", "virbr", "veth", "cni", "podman", "flannel", "lxc"];

/// Collects host names and interfaces.
pub fn host_info() -> HostInfo {
    let short = host_name();
    let mut names: Vec<String> = full_name().into_iter().filter(|full| *full != short).collect();
    names.push(short);
    let names = names.into_iter().map(|name| (name.clone(), addresses_of(&name))).collect();
    HostInfo { names, interfaces: interfaces() }
}

/// Resolves a name; returns no address on an error or a timeout.
pub fn addresses_of(name: &str) -> Vec<IpAddr> {
    let (name, (answer, found)) = (name.to_owned(), mpsc::channel());
    std::thread::spawn(move || {
        let addresses = (name.as_str(), 0).to_socket_addrs().map(|all| all.map(|one| one.ip()).collect());
        // The receiver may have timed out.
        let _ = answer.send(addresses.unwrap_or_default());
    });
    found.recv_timeout(RESOLVE_TIMEOUT).unwrap_or_default()
}

/// Returns the full host name with its domain, from `hostname -f`.
fn full_name() -> Option<String> {
    let (answer, found) = mpsc::channel();
    std::thread::spawn(move || {
        let said = Command::new("hostname").arg("-f").stdin(Stdio::null()).stderr(Stdio::null()).output();
        let _ = answer.send(said.ok().filter(|said| said.status.success()).map(|said| said.stdout));
    });
    let name = String::from_utf8(found.recv_timeout(RESOLVE_TIMEOUT).ok()??).ok()?.trim().to_owned();
    let is_name = name.contains('.') && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    is_name.then_some(name)
}

/// Returns the addresses that other machines can reach; the one of the default route first.
fn interfaces() -> Vec<IpAddr> {
    let usable = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let all = getifaddrs().into_iter().flatten().filter(|one| {
        let is_inside = INTERNAL_INTERFACES.iter().any(|beginning| one.interface_name.starts_with(beginning));
        one.flags.contains(usable) && !one.flags.contains(InterfaceFlags::IFF_LOOPBACK) && !is_inside
    });
    let mut found: Vec<IpAddr> = all
        .filter_map(|one| {
            let address = one.address?;
            let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
            four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
        })
        .filter(|address| match address {
            IpAddr::V4(four) => !four.is_link_local() && !four.is_loopback(),
            IpAddr::V6(six) => !six.is_unicast_link_local() && !six.is_loopback(),
        })
        .collect();
    let out = default_route_address();
    found.sort_by_key(|address| (Some(*address) != out, address.is_ipv6()));
    found
}

/// Returns the local address of the default route. Connecting a UDP socket only looks up the route and sends nothing.
fn default_route_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_name_and_loopback_resolve() {
        let here = host_info();
        assert_eq!(here.names.last().map(|(name, _)| name.clone()), Some(host_name()));
        assert!(here.interfaces.iter().all(|address| !address.is_loopback() && !address.is_unspecified()));
        assert!(addresses_of("localhost").iter().all(IpAddr::is_loopback));
        assert!(addresses_of("unknown.invalid").is_empty());
        assert_eq!(addresses_of("10.0.0.5"), ["10.0.0.5".parse::<IpAddr>().unwrap_or(IpAddr::from([0; 4]))]);
    }
}
