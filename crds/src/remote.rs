//! Remote workers: machines that are reached over SSH and run a workflow's jobs.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A worker of a workflow, as the server stores it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteWorker {
    /// The address as `[user@]host[:port]`.
    pub address: String,
    /// The folder on that machine in which its runner was started last; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The path of `torc` on that machine, from the last `--remote-torc`; `torc` in the PATH of a login if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_torc: Option<String>,
    /// The time at which the worker was added. The server sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<String>,
}

/// `POST /v1/workflows/{workflow}/remote-workers`: workers to add. An existing worker keeps the fields that are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteWorkersRequest {
    /// The workers, each with its own address.
    pub workers: Vec<RemoteWorker>,
}

/// The address of a worker: `[user@]host[:port]`, an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerAddress {
    /// The login name; none to let ssh choose it.
    pub user: Option<String>,
    /// A host name, an alias of ssh's configuration, or an IP address.
    pub host: String,
    /// The port; none to let ssh choose it.
    pub port: Option<u16>,
}

/// The reason why a text is not an address of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// The user or the host is empty.
    #[error("the user or the host is empty: write [user@]host[:port]")]
    Empty,
    /// The port is not a number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// The text has a character that is not allowed in an address, because ssh or a shell would interpret it.
    #[error("'{0}' is not allowed in an address: write [user@]host[:port]")]
    Character(char),
    /// The user or the host begins with `-`, so ssh would read it as an option.
    #[error("it must not begin with '-'")]
    Option,
}

impl FromStr for WorkerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        let (host, port) = split_port(rest)?;
        for part in user.into_iter().chain([host]) {
            if part.is_empty() {
                return Err(AddressError::Empty);
            }
            if part.starts_with('-') {
                return Err(AddressError::Option);
            }
        }
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        let strange_user = user.and_then(|user| user.chars().find(|c| !is_plain(*c) && !matches!(c, '+' | '\\' | '$')));
        let strange_host = host.chars().find(|c| !is_plain(*c) && !matches!(c, ':' | '%'));
        if let Some(strange) = strange_user.or(strange_host) {
            return Err(AddressError::Character(strange));
        }
        let port = port.map(|port| port.parse().ok().filter(|port| *port > 0).ok_or(AddressError::Port)).transpose()?;
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port })
    }
}

/// Splits an address into the host without brackets and the port. Several colons without brackets mean an IPv6 address.
fn split_port(text: &str) -> Result<(&str, Option<&str>), AddressError> {
    if let Some(inner) = text.strip_prefix('[') {
        let (host, rest) = inner.split_once(']').ok_or(AddressError::Character('['))?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(AddressError::Character(']')),
        };
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => Ok((host, Some(port))),
        _ => Ok((text, None)),
    }
}

impl fmt::Display for WorkerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        let brackets = self.host.contains(':') && self.port.is_some();
        if brackets { write!(f, "[{}]", self.host) } else { f.write_str(&self.host) }?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl WorkerAddress {
    /// Returns the destination argument of ssh; the port is a separate option.
    pub fn destination(&self) -> String {
        self.user.as_ref().map_or_else(|| self.host.clone(), |user| format!("{user}@{}", self.host))
    }

    /// Returns whether the address names the machine with `host_name`.
    pub fn is_this_machine(&self, host_name: &str) -> bool {
        is_loopback_host(&self.host) || self.host == host_name
    }

    /// Returns the address as a part of a file name; unusual characters become `_`.
    pub fn file_name(&self) -> String {
        self.to_string()
            .chars()
            .map(|c| if c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '@') { c } else { '_' })
            .collect()
    }
}

/// Returns whether a host is the loopback interface.
pub fn is_loopback_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<core::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The workers in a text with one per line, and the lines that were not accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerList {
    /// The workers in the order of the text, without duplicates.
    pub workers: Vec<WorkerAddress>,
    /// Lines that repeat a worker: the line number and the worker.
    pub repeated: Vec<(usize, WorkerAddress)>,
    /// Lines that are not addresses: the line number, the text and the error.
    pub wrong: Vec<(usize, String, AddressError)>,
}

/// Parses a list of workers with one per line. `#` begins a comment; empty lines are ignored.
pub fn parse_workers(text: &str) -> WorkerList {
    let mut list = WorkerList::default();
    for (number, line) in (1..).zip(text.lines()) {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        match entry.parse::<WorkerAddress>() {
            Err(error) => list.wrong.push((number, entry.to_owned(), error)),
            Ok(worker) if list.workers.contains(&worker) => list.repeated.push((number, worker)),
            Ok(worker) => list.workers.push(worker),
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<WorkerAddress, AddressError> {
        text.parse()
    }

    #[test]
    fn addresses_and_back() {
        for (text, user, host, port) in [
            ("node1", None, "node1", None),
            ("alice@node1", Some("alice"), "node1", None),
            ("alice@node1:2222", Some("alice"), "node1", Some(2222)),
            ("10.0.0.7:22", None, "10.0.0.7", Some(22)),
            ("[::1]:2222", None, "::1", Some(2222)),
            ("fe80::1%eth0", None, "fe80::1%eth0", None),
        ] {
            let parsed = address(text).expect(text);
            let expected = WorkerAddress { user: user.map(str::to_owned), host: host.to_owned(), port };
            assert_eq!((parsed.to_string().as_str(), parsed), (text, expected));
        }
        assert_eq!(address("[::1]").expect("an address").to_string(), "::1");
    }

    #[test]
    fn what_ssh_or_a_shell_would_misunderstand_is_refused() {
        for (text, error) in [
            ("", AddressError::Empty),
            ("@node1", AddressError::Empty),
            ("alice@", AddressError::Empty),
            ("-oProxyCommand=x", AddressError::Option),
            ("alice@-x", AddressError::Option),
            ("-l@node1", AddressError::Option),
            ("node1:0", AddressError::Port),
            ("node1:ssh", AddressError::Port),
            ("node1:65536", AddressError::Port),
            ("node1:", AddressError::Port),
            ("node 1", AddressError::Character(' ')),
            ("a;b", AddressError::Character(';')),
            ("x/y", AddressError::Character('/')),
            ("[::1", AddressError::Character('[')),
            ("[::1]x", AddressError::Character(']')),
        ] {
            assert_eq!(address(text), Err(error), "{text}");
        }
    }

    #[test]
    fn addresses_at_their_limits() {
        for text in ["n:1", "n:65535", "a+b@n", "dom\\\\a$@n", "n_1.x-y", "fe80::1"] {
            let text = text.replace("\\\\", "\\");
            assert_eq!(address(&text).expect("an address").to_string(), text);
        }
        assert_eq!(address("a@b@c"), Err(AddressError::Character('@')));
        assert_eq!(address("a:b@c"), Err(AddressError::Character(':')));
        assert_eq!(address("a+b"), Err(AddressError::Character('+')));
        assert_eq!(address("n:-1"), Err(AddressError::Port));
        let texts = [
            (AddressError::Empty, "the user or the host is empty: write [user@]host[:port]"),
            (AddressError::Port, "the port must be a number from 1 to 65535"),
            (AddressError::Character(';'), "';' is not allowed in an address: write [user@]host[:port]"),
            (AddressError::Option, "it must not begin with '-'"),
        ];
        for (error, text) in texts {
            assert_eq!(error.to_string(), text);
        }
        assert_eq!(address("n1:22").expect("an address").destination(), "n1");
        for (host, expected) in
            [("localhost", true), ("[::1]", true), ("127.1.2.3", true), ("128.0.0.1", false), ("local", false)]
        {
            assert_eq!(is_loopback_host(host), expected, "{host}");
        }
    }

    // J04
    #[test]
    fn a_list_has_one_worker_a_line() {
        let list = parse_workers("# two machines\nalice@a\n\n  b:2222  # fast\nalice@a\nno good\r\nb\n");
        let names: Vec<String> = list.workers.iter().map(WorkerAddress::to_string).collect();
        assert_eq!(names, ["alice@a", "b:2222", "b"]);
        assert_eq!(list.repeated, [(5, address("alice@a").expect("an address"))]);
        assert_eq!(list.wrong, [(6, "no good".to_owned(), AddressError::Character(' '))]);
    }

    #[test]
    fn this_machine_and_others() {
        for (text, here) in
            [("localhost:22", true), ("a@127.0.0.2", true), ("[::1]:1", true), ("me", true), ("n", false)]
        {
            assert_eq!(address(text).expect("an address").is_this_machine("me"), here, "{text}");
        }
    }

    #[test]
    fn names_of_files() {
        assert_eq!(address("a@[fe80::1%e]:22").expect("an address").file_name(), "a@_fe80__1_e__22");
        assert_eq!(address("a@n1:22").expect("an address").destination(), "a@n1");
    }
}
