//! Chooses the host that other machines use to reach a server on all interfaces, unless `--advertise` names one. The choice depends
//! on the host names of this machine, their addresses, and its interfaces.

use std::net::{IpAddr, SocketAddr};

mod host_info;

pub use host_info::{addresses_of, host_info};

/// Host names and interfaces of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInfo {
    /// Host names with the addresses that they resolve to, the full name first.
    pub names: Vec<(String, Vec<IpAddr>)>,
    /// Addresses of interfaces that other machines can reach; the one of the default route first.
    pub interfaces: Vec<IpAddr>,
}

/// A host for other machines, with a warning if they may not reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertisedHost {
    /// The host in URL syntax.
    pub host: String,
    pub warning: Option<String>,
}

/// Chooses a host in this order: a name that resolves to an interface of this machine; the address of an interface; a
/// name that resolves to another address. Otherwise the short host name is used, with a warning.
pub fn choose(here: &HostInfo, bound: IpAddr) -> AdvertisedHost {
    let reaches = |address: &IpAddr| bound.is_ipv6() || address.is_ipv4();
    let is_own = |address: &IpAddr| reaches(address) && here.interfaces.contains(address);
    let name_with = |rule: &dyn Fn(&IpAddr) -> bool| {
        here.names.iter().find(|(_, addresses)| addresses.iter().any(rule)).map(|(name, _)| name.clone())
    };
    let sure = |host: String| AdvertisedHost { host, warning: None };
    let by_name = || name_with(&is_own).map(sure);
    let by_address = || here.interfaces.iter().find(|address| reaches(address)).map(|address| sure(in_url(*address)));
    let by_foreign_address = || {
        let host = name_with(&reaches)?;
        let warning = format!("'{host}' does not resolve to an interface of this machine");
        Some(AdvertisedHost { host, warning: Some(warning) })
    };
    by_name().or_else(by_address).or_else(by_foreign_address).unwrap_or_else(|| {
        let host = here.names.last().map_or_else(|| "localhost".to_owned(), |(name, _)| name.clone());
        let warning =
            format!("'{host}' does not resolve, and this machine has no interface that other machines can reach");
        AdvertisedHost { host, warning: Some(warning) }
    })
}

/// Returns a warning if the host of `--advertise` does not resolve; `found` are its addresses.
pub fn unresolved_host_warning(host: &str, found: &[IpAddr], here: &HostInfo) -> Option<String> {
    if !found.is_empty() {
        return None;
    }
    let known: Vec<String> = here.interfaces.iter().take(4).map(|address| in_url(*address)).collect();
    let known = if known.is_empty() { String::new() } else { format!(" (this machine has {})", known.join(", ")) };
    Some(format!(
        "'{host}' of --advertise does not resolve on this machine, so runners may not find this server; \
         name a host or an address that they can reach{known}"
    ))
}

/// Returns the host of a value of `--advertise`: a URL, a host, or `HOST:PORT`.
pub fn host_of(advertised: &str) -> &str {
    let rest = advertised.split_once("://").map_or(advertised, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.strip_prefix('[') {
        Some(inner) => inner.split(']').next().unwrap_or(inner),
        None if authority.matches(':').count() > 1 => authority,
        None => authority.split(':').next().unwrap_or(authority),
    }
}

/// Formats an address as the host of a URL.
fn in_url(address: IpAddr) -> String {
    SocketAddr::new(address, 0).to_string().trim_end_matches(":0").to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn here(names: &[(&str, &[&str])], interfaces: &[&str]) -> HostInfo {
        let names = names.iter().map(|(name, found)| ((*name).to_owned(), addresses(found))).collect();
        HostInfo { names, interfaces: addresses(interfaces) }
    }

    #[test]
    fn the_most_reachable_host_is_chosen() {
        let (everywhere, also_6) = ("0.0.0.0", "::");
        for (said, here, bound, host, is_doubted) in [
            (
                "the full name, if it resolves to this machine",
                here(&[("login1.hpc.org", &["10.0.0.5"]), ("login1", &["10.0.0.5"])], &["192.0.2.7", "10.0.0.5"]),
                everywhere,
                "login1.hpc.org",
                false,
            ),
            (
                "the short name, if only that does",
                here(&[("login1.hpc.org", &[]), ("login1", &["10.0.0.5"])], &["10.0.0.5"]),
                everywhere,
                "login1",
                false,
            ),
            (
                "an address, if the name resolves to loopback only",
                here(&[("login1", &["127.0.1.1", "::1"])], &["10.0.0.5"]),
                everywhere,
                "10.0.0.5",
                false,
            ),
            (
                "an address, if the name does not resolve",
                here(&[("vm", &[])], &["10.0.0.5", "10.0.1.1"]),
                everywhere,
                "10.0.0.5",
                false,
            ),
            (
                "an address, if the name resolves to another machine",
                here(&[("vm", &["203.0.113.9"])], &["10.0.0.5"]),
                everywhere,
                "10.0.0.5",
                false,
            ),
            (
                "a server on IPv4 only",
                here(&[("n", &["fd00::2"])], &["fd00::2", "10.0.0.5"]),
                everywhere,
                "10.0.0.5",
                false,
            ),
            ("a server on IPv4 and IPv6", here(&[("n", &["fd00::2"])], &["fd00::2"]), also_6, "n", false),
            ("an IPv6 address", here(&[("n", &[])], &["fd00::2"]), also_6, "[fd00::2]", false),
            ("a machine without a network", here(&[("laptop", &["127.0.1.1"])], &[]), everywhere, "laptop", true),
            ("names without addresses", here(&[("vm.x", &[]), ("vm", &[])], &[]), everywhere, "vm", true),
            ("a machine without a name", here(&[], &[]), everywhere, "localhost", true),
        ] {
            let choice = choose(&here, bound.parse().unwrap());
            assert_eq!((choice.host.as_str(), choice.warning.is_some()), (host, is_doubted), "{said}");
        }
    }

    #[test]
    fn the_host_is_taken_from_urls_hosts_and_addresses() {
        for (said, host) in [
            ("login1", "login1"),
            ("login1:80", "login1"),
            ("https://login1.hpc.org:7421/torc", "login1.hpc.org"),
            ("[fd00::2]:80", "fd00::2"),
            ("https://[fd00::2]/", "fd00::2"),
            ("fd00::2", "fd00::2"),
            ("10.0.0.5", "10.0.0.5"),
        ] {
            assert_eq!(host_of(said), host, "{said}");
        }
    }

    #[test]
    fn an_unresolved_host_is_a_warning_with_alternatives() {
        let here = here(&[], &["10.0.0.5", "fd00::2"]);
        let warning = unresolved_host_warning("logn1", &[], &here).unwrap();
        assert!(warning.contains("'logn1'") && warning.contains("(this machine has 10.0.0.5, [fd00::2])"), "{warning}");
        assert_eq!(unresolved_host_warning("login1", &addresses(&["10.0.0.5"]), &here), None);
    }

    #[test]
    fn a_name_of_this_machine_comes_before_its_addresses() {
        let (name, two) = ("login1", ["10.0.0.5", "10.0.0.6"]);
        for (said, here, bound, host, warning) in [
            (
                "a name that resolves to the second interface",
                here(&[(name, &["10.0.0.6"])], &two),
                "0.0.0.0",
                name,
                None,
            ),
            ("the first of two names", here(&[("a", &["10.0.0.6"]), ("b", &["10.0.0.5"])], &two), "0.0.0.0", "a", None),
            (
                "one of several addresses of a name",
                here(&[(name, &["127.0.1.1", "10.0.0.5"])], &two),
                "0.0.0.0",
                name,
                None,
            ),
            (
                "hearsay",
                here(&[("a", &[]), (name, &["203.0.113.9"])], &[]),
                "0.0.0.0",
                name,
                Some("'login1' does not resolve to an interface of this machine"),
            ),
            (
                "another machine's IPv6 address only",
                here(&[(name, &["fd00::9"])], &[]),
                "0.0.0.0",
                name,
                Some("'login1' does not resolve, and this machine has no interface that other machines can reach"),
            ),
            ("an IPv6 address first", here(&[(name, &[])], &["fd00::2", "10.0.0.5"]), "::", "[fd00::2]", None),
        ] {
            let choice = choose(&here, bound.parse().unwrap());
            assert_eq!((choice.host.as_str(), choice.warning.as_deref()), (host, warning), "{said}");
        }
    }

    #[test]
    fn a_warning_lists_at_most_four_addresses() {
        let here = here(&[], &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]);
        let warning = unresolved_host_warning("x", &[], &here).unwrap();
        assert!(warning.contains("10.0.0.4)") && !warning.contains("10.0.0.5"), "{warning}");
        assert!(!unresolved_host_warning("x", &[], &HostInfo::default()).unwrap().contains("this machine has"));
    }
}
