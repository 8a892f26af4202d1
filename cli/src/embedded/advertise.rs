//! By which host others find a server that listens everywhere, when nobody has said it. A name is as good as what it leads to: what
//! is chosen is decided by one function from what this machine knows of itself.

use std::net::{IpAddr, SocketAddr};

mod host_info;

pub use host_info::{addresses_of, host_info};

/// What a machine knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInfo {
    /// Its names with what they lead to, the whole name first.
    pub names: Vec<(String, Vec<IpAddr>)>,
    /// Addresses of its interfaces, those that others most likely use first.
    pub interfaces: Vec<IpAddr>,
}

/// A host for others, and why they may not get there by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertisedHost {
    /// As in a URL.
    pub host: String,
    /// What a person should know.
    pub warning: Option<String>,
}

/// Chooses. The first of: a name that leads to an interface of this machine; such an interface; a name that leads somewhere; the name.
pub fn choose(here: &HostInfo, bound: IpAddr) -> AdvertisedHost {
    let reaches = |address: &IpAddr| bound.is_ipv6() || address.is_ipv4();
    let is_own = |address: &IpAddr| reaches(address) && here.interfaces.contains(address);
    let led = |rule: &dyn Fn(&IpAddr) -> bool| {
        here.names.iter().find(|(_, addresses)| addresses.iter().any(rule)).map(|(name, _)| name.clone())
    };
    let sure = |host: String| AdvertisedHost { host, warning: None };
    let by_name = || led(&is_own).map(sure);
    let by_address = || here.interfaces.iter().find(|address| reaches(address)).map(|address| sure(in_url(*address)));
    let by_hearsay = || {
        let host = led(&reaches)?;
        let warning = format!("'{host}' does not lead to an interface of this machine");
        Some(AdvertisedHost { host, warning: Some(warning) })
    };
    by_name().or_else(by_address).or_else(by_hearsay).unwrap_or_else(|| {
        let host = here.names.last().map_or_else(|| "localhost".to_owned(), |(name, _)| name.clone());
        let warning = format!("'{host}' leads nowhere, and this machine has no interface for others");
        AdvertisedHost { host, warning: Some(warning) }
    })
}

/// What is wrong with a host that a person has named; `found` is what it leads to.
pub fn unresolved_host_warning(host: &str, found: &[IpAddr], here: &HostInfo) -> Option<String> {
    if !found.is_empty() {
        return None;
    }
    let known: Vec<String> = here.interfaces.iter().take(4).map(|address| in_url(*address)).collect();
    let known = if known.is_empty() { String::new() } else { format!(" (this machine has {})", known.join(", ")) };
    Some(format!(
        "--advertise names '{host}', which leads nowhere from here: runners will not find this server unless they know more; \
         name a host or an address that they can reach{known}"
    ))
}

/// The host in what a person has said of the address: a URL, a host, or a host with a port.
pub fn host_of(advertised: &str) -> &str {
    let rest = advertised.split_once("://").map_or(advertised, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.strip_prefix('[') {
        Some(inner) => inner.split(']').next().unwrap_or(inner),
        None if authority.matches(':').count() > 1 => authority,
        None => authority.split(':').next().unwrap_or(authority),
    }
}

/// An address as the host of a URL.
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
    fn the_best_of_what_there_is_is_chosen() {
        let (everywhere, also_6) = ("0.0.0.0", "::");
        for (said, here, bound, host, is_doubted) in [
            (
                "the whole name, if it leads here",
                here(&[("login1.hpc.org", &["10.0.0.5"]), ("login1", &["10.0.0.5"])], &["192.0.2.7", "10.0.0.5"]),
                everywhere,
                "login1.hpc.org",
                false,
            ),
            (
                "the short one, if only that does",
                here(&[("login1.hpc.org", &[]), ("login1", &["10.0.0.5"])], &["10.0.0.5"]),
                everywhere,
                "login1",
                false,
            ),
            (
                "an address, if the name leads to this machine's inside only",
                here(&[("login1", &["127.0.1.1", "::1"])], &["10.0.0.5"]),
                everywhere,
                "10.0.0.5",
                false,
            ),
            (
                "an address, if it leads nowhere",
                here(&[("vm", &[])], &["10.0.0.5", "10.0.1.1"]),
                everywhere,
                "10.0.0.5",
                false,
            ),
            (
                "an address, if it leads to somebody else",
                here(&[("vm", &["203.0.113.9"])], &["10.0.0.5"]),
                everywhere,
                "10.0.0.5",
                false,
            ),
            (
                "what listens on IPv4 only",
                here(&[("n", &["fd00::2"])], &["fd00::2", "10.0.0.5"]),
                everywhere,
                "10.0.0.5",
                false,
            ),
            ("what listens on both", here(&[("n", &["fd00::2"])], &["fd00::2"]), also_6, "n", false),
            ("an address of IPv6", here(&[("n", &[])], &["fd00::2"]), also_6, "[fd00::2]", false),
            ("a machine on its own", here(&[("laptop", &["127.0.1.1"])], &[]), everywhere, "laptop", true),
            ("a machine that knows nothing", here(&[("vm.x", &[]), ("vm", &[])], &[]), everywhere, "vm", true),
            ("a machine without a name", here(&[], &[]), everywhere, "localhost", true),
        ] {
            let choice = choose(&here, bound.parse().unwrap());
            assert_eq!((choice.host.as_str(), choice.warning.is_some()), (host, is_doubted), "{said}");
        }
    }

    #[test]
    fn hosts_of_what_people_say() {
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
    fn a_name_that_leads_nowhere_is_told_with_what_to_do() {
        let here = here(&[], &["10.0.0.5", "fd00::2"]);
        let warning = unresolved_host_warning("logn1", &[], &here).unwrap();
        assert!(warning.contains("'logn1'") && warning.contains("(this machine has 10.0.0.5, [fd00::2])"), "{warning}");
        assert_eq!(unresolved_host_warning("login1", &addresses(&["10.0.0.5"]), &here), None);
    }

    #[test]
    fn a_name_of_this_machine_comes_before_its_addresses() {
        let (name, two) = ("login1", ["10.0.0.5", "10.0.0.6"]);
        for (said, here, bound, host, warning) in [
            ("a name that leads to the second interface", here(&[(name, &["10.0.0.6"])], &two), "0.0.0.0", name, None),
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
                Some("'login1' does not lead to an interface of this machine"),
            ),
            (
                "hearsay of IPv6 only",
                here(&[(name, &["fd00::9"])], &[]),
                "0.0.0.0",
                name,
                Some("'login1' leads nowhere, and this machine has no interface for others"),
            ),
            ("an address of IPv6 first", here(&[(name, &[])], &["fd00::2", "10.0.0.5"]), "::", "[fd00::2]", None),
        ] {
            let choice = choose(&here, bound.parse().unwrap());
            assert_eq!((choice.host.as_str(), choice.warning.as_deref()), (host, warning), "{said}");
        }
    }

    #[test]
    fn at_most_four_addresses_are_told() {
        let here = here(&[], &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]);
        let warning = unresolved_host_warning("x", &[], &here).unwrap();
        assert!(warning.contains("10.0.0.4)") && !warning.contains("10.0.0.5"), "{warning}");
        assert!(!unresolved_host_warning("x", &[], &HostInfo::default()).unwrap().contains("this machine has"));
    }
}
