//! Looks up what a machine knows of itself: its names, where they lead, and its interfaces.

use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::HostInfo;
use crate::host::host_name;

/// A name server that does not answer is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bridges to containers and virtual machines of this machine begin with these; nobody else is there.
const INSIDE: [&str; 8] = ["docker", "br-", "virbr", "veth", "cni", "podman", "flannel", "lxc"];

/// Looks.
pub fn host_info() -> HostInfo {
    let short = host_name();
    let mut names: Vec<String> = whole_name().into_iter().filter(|whole| *whole != short).collect();
    names.push(short);
    let names = names.into_iter().map(|name| (name.clone(), addresses_of(&name))).collect();
    HostInfo { names, interfaces: interfaces() }
}

/// Where a name leads; nowhere if that cannot be found out soon.
pub fn addresses_of(name: &str) -> Vec<IpAddr> {
    let (name, (answer, found)) = (name.to_owned(), mpsc::channel());
    std::thread::spawn(move || {
        let addresses = (name.as_str(), 0).to_socket_addrs().map(|all| all.map(|one| one.ip()).collect());
        // Whoever has asked may have given up.
        let _ = answer.send(addresses.unwrap_or_default());
    });
    found.recv_timeout(PATIENCE).unwrap_or_default()
}

/// The name with its domain, as the resolver of this machine says it.
fn whole_name() -> Option<String> {
    let (answer, found) = mpsc::channel();
    std::thread::spawn(move || {
        let said = Command::new("hostname").arg("-f").stdin(Stdio::null()).stderr(Stdio::null()).output();
        let _ = answer.send(said.ok().filter(|said| said.status.success()).map(|said| said.stdout));
    });
    let name = String::from_utf8(found.recv_timeout(PATIENCE).ok()??).ok()?.trim().to_owned();
    let is_name = name.contains('.') && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    is_name.then_some(name)
}

/// Addresses that others can use; that of the way out of here first.
fn interfaces() -> Vec<IpAddr> {
    let usable = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let all = getifaddrs().into_iter().flatten().filter(|one| {
        let is_inside = INSIDE.iter().any(|beginning| one.interface_name.starts_with(beginning));
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
    let out = way_out();
    found.sort_by_key(|address| (Some(*address) != out, address.is_ipv6()));
    found
}

/// The address with which this machine speaks to the rest of the world. Nothing is sent: the routes tell.
fn way_out() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_knows_itself() {
        let here = host_info();
        assert_eq!(here.names.last().map(|(name, _)| name.clone()), Some(host_name()));
        assert!(here.interfaces.iter().all(|address| !address.is_loopback() && !address.is_unspecified()));
        assert!(addresses_of("localhost").iter().all(IpAddr::is_loopback));
        assert!(addresses_of("nobody.invalid").is_empty());
        assert_eq!(addresses_of("10.0.0.5"), ["10.0.0.5".parse::<IpAddr>().unwrap_or(IpAddr::from([0; 4]))]);
    }
}
