//! The address of a server, its protection, and the URL for other machines; [`Listening::decide`] decides all three.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use torc_api::workflow::WorkflowSpec;
use torc_controller::tls::TlsFiles;

use super::advertise::{AdvertisedHost, HostInfo, choose, host_of, unresolved_host_warning};
use crate::error::CliError;
use crate::settings::ServerSettings;

/// The machines that must reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    ThisMachine,
    /// This machine and runners on other machines.
    OtherMachines,
}

impl Exposure {
    /// Returns the exposure that workflows need: runners in Slurm allocations are on other machines.
    pub fn of<'a>(specs: impl IntoIterator<Item = &'a WorkflowSpec>) -> Self {
        if specs.into_iter().any(WorkflowSpec::needs_slurm) { Self::OtherMachines } else { Self::ThisMachine }
    }

    /// Returns the default address to listen on.
    pub const fn default_bind(self) -> &'static str {
        match self {
            Self::ThisMachine => "127.0.0.1:0",
            Self::OtherMachines => "0.0.0.0:0",
        }
    }
}

/// The protection of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportSecurity {
    /// Plain HTTP: tokens are sent unencrypted.
    Plain,
    /// TLS with the certificate of these files.
    Given(TlsFiles),
    /// TLS with a self-signed certificate of the store.
    Own,
}

impl TransportSecurity {
    const fn scheme(&self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::Given(_) | Self::Own => "https",
        }
    }
}

/// The listening address of a server and its protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The address; port 0 picks a free port.
    pub bind: SocketAddr,
    pub protection: TransportSecurity,
    /// The value of `--advertise`.
    advertise: Option<String>,
}

impl Listening {
    /// Returns plain HTTP on a free loopback port.
    pub const fn loopback() -> Self {
        let bind = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self { bind, protection: TransportSecurity::Plain, advertise: None }
    }

    /// Decides by settings. `bind` is the configured address, `default_bind` applies without one, and `resolve` looks up names.
    pub fn decide(
        settings: &ServerSettings,
        bind: Option<&str>,
        default_bind: &str,
        resolve: impl Fn(&str) -> Result<SocketAddr, CliError>,
    ) -> Result<Self, CliError> {
        let bind = resolve(bind.unwrap_or(default_bind))?;
        let protection = match (settings.certificate(), settings.insecure_http, settings.tls) {
            (Some(_), true, _) | (None, true, true) => {
                let message = "--insecure-http conflicts with --tls and --tls-cert";
                return Err(CliError::usage(message).hint("remove --insecure-http, or remove the TLS flags"));
            }
            (Some(files), false, _) => TransportSecurity::Given(files),
            (None, true, false) => TransportSecurity::Plain,
            (None, false, true) => TransportSecurity::Own,
            (None, false, false) if bind.ip().is_loopback() => TransportSecurity::Plain,
            (None, false, false) => TransportSecurity::Own,
        };
        if settings.tls_ca.is_some() && protection == TransportSecurity::Own {
            let message = "--tls-ca needs a certificate of that CA, but the server would use a self-signed one";
            return Err(CliError::usage(message).hint("name the certificate with --tls-cert and --tls-key"));
        }
        Ok(Self { bind, protection, advertise: settings.advertise.clone() })
    }

    /// Decides for the server of one command. Other commands of the folder attach to it; `exposure` says whether
    /// runners on other machines do, too.
    pub fn embedded(
        settings: &ServerSettings,
        exposure: Exposure,
        resolve: impl Fn(&str) -> Result<SocketAddr, CliError>,
    ) -> Result<Self, CliError> {
        Self::decide(settings, settings.embedded_bind.as_deref(), exposure.default_bind(), resolve)
    }

    /// Returns the host for other machines: the advertised one, else one of this machine if the server listens on all interfaces.
    pub fn host(&self, addresses_of: impl Fn(&str) -> Vec<IpAddr>, host_info: impl Fn() -> HostInfo) -> AdvertisedHost {
        match self.advertise.as_deref().map(host_of) {
            Some(host) => {
                let found = addresses_of(host);
                let warning = if found.is_empty() { unresolved_host_warning(host, &found, &host_info()) } else { None };
                AdvertisedHost { host: host.to_owned(), warning }
            }
            None if self.bind.ip().is_unspecified() => {
                let choice = choose(&host_info(), self.bind.ip());
                let advice =
                    |warning| format!("{warning}: set --advertise to a host that runners on other machines can reach");
                AdvertisedHost { warning: choice.warning.map(advice), ..choice }
            }
            None => AdvertisedHost { host: self.bind.ip().to_string(), warning: None },
        }
    }

    /// Returns the URL for other machines; `bound` is the address with the actual port.
    pub fn url(&self, bound: SocketAddr, host: &str) -> String {
        let scheme = self.protection.scheme();
        match self.advertise.as_deref() {
            Some(url) if url.contains("://") => url.trim_end_matches('/').to_owned(),
            Some(host) if has_port(host) => format!("{scheme}://{host}"),
            Some(host) => format!("{scheme}://{host}:{}", bound.port()),
            None if bound.ip().is_unspecified() => format!("{scheme}://{host}:{}", bound.port()),
            None => format!("{scheme}://{bound}"),
        }
    }

    /// Returns the URL on this machine; a server on all interfaces also listens on loopback.
    pub fn local_url(&self, bound: SocketAddr) -> String {
        let mut address = bound;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                Ipv4Addr::LOCALHOST.into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        format!("{}://{address}", self.protection.scheme())
    }

    /// Returns whether other machines can use plain HTTP.
    pub fn is_exposed(&self) -> bool {
        self.protection == TransportSecurity::Plain && !self.bind.ip().is_loopback()
    }
}

/// Returns whether a host ends with a port: `host:1` and `[::1]:1` do, `host` and `[::1]` do not.
fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn said() -> ServerSettings {
        ServerSettings { max_jobs: 1, max_connections: 1, ..ServerSettings::default() }
    }

    fn files() -> TlsFiles {
        TlsFiles { certificate: "c".into(), key: "k".into() }
    }

    fn parse(text: &str) -> Result<SocketAddr, CliError> {
        text.parse().map_err(|_| CliError::usage("no address"))
    }

    #[test]
    fn settings_decide_address_protection_and_urls() {
        let tls = || ServerSettings { tls: true, ..said() };
        let given = || ServerSettings { tls_cert: Some("c".into()), tls_key: Some("k".into()), ..said() };
        let open = || ServerSettings { insecure_http: true, ..said() };
        let name = |name: &str| ServerSettings { advertise: Some(name.to_owned()), ..said() };
        let bind = |bind: &str| ServerSettings { embedded_bind: Some(bind.to_owned()), ..said() };
        use Exposure::{OtherMachines, ThisMachine};
        for (said, exposure, bound, protection, url, local) in [
            (said(), ThisMachine, "127.0.0.1", TransportSecurity::Plain, "http://127.0.0.1:9", "http://127.0.0.1:9"),
            (said(), OtherMachines, "0.0.0.0", TransportSecurity::Own, "https://login1:9", "https://127.0.0.1:9"),
            (tls(), ThisMachine, "127.0.0.1", TransportSecurity::Own, "https://127.0.0.1:9", "https://127.0.0.1:9"),
            (
                given(),
                ThisMachine,
                "127.0.0.1",
                TransportSecurity::Given(files()),
                "https://127.0.0.1:9",
                "https://127.0.0.1:9",
            ),
            (
                given(),
                OtherMachines,
                "0.0.0.0",
                TransportSecurity::Given(files()),
                "https://login1:9",
                "https://127.0.0.1:9",
            ),
            (open(), OtherMachines, "0.0.0.0", TransportSecurity::Plain, "http://login1:9", "http://127.0.0.1:9"),
            (name("ib0"), OtherMachines, "0.0.0.0", TransportSecurity::Own, "https://ib0:9", "https://127.0.0.1:9"),
            (name("ib0:80"), OtherMachines, "0.0.0.0", TransportSecurity::Own, "https://ib0:80", "https://127.0.0.1:9"),
            (name("[::1]"), ThisMachine, "127.0.0.1", TransportSecurity::Plain, "http://[::1]:9", "http://127.0.0.1:9"),
            (
                name("https://p/x/"),
                ThisMachine,
                "127.0.0.1",
                TransportSecurity::Plain,
                "https://p/x",
                "http://127.0.0.1:9",
            ),
            (
                bind("10.0.0.7:0"),
                ThisMachine,
                "10.0.0.7",
                TransportSecurity::Own,
                "https://10.0.0.7:9",
                "https://10.0.0.7:9",
            ),
            (
                bind("127.0.0.2:0"),
                OtherMachines,
                "127.0.0.2",
                TransportSecurity::Plain,
                "http://127.0.0.2:9",
                "http://127.0.0.2:9",
            ),
            (bind("[::]:0"), ThisMachine, "::", TransportSecurity::Own, "https://login1:9", "https://[::1]:9"),
        ] {
            let decided = Listening::embedded(&said, exposure, parse).unwrap();
            assert_eq!(decided.bind, SocketAddr::new(bound.parse().unwrap(), 0), "{said:?}");
            assert_eq!(decided.protection, protection, "{said:?}");
            let at = SocketAddr::new(bound.parse().unwrap(), 9);
            assert_eq!((decided.url(at, "login1").as_str(), decided.local_url(at).as_str()), (url, local), "{said:?}");
        }
    }

    #[test]
    fn hosts_are_looked_up_only_if_other_machines_need_one() {
        let here = || HostInfo {
            names: vec![("login1".to_owned(), Vec::new())],
            interfaces: vec![IpAddr::from([10, 0, 0, 5])],
        };
        let addresses_of = |name: &str| if name == "known" { vec![IpAddr::from([10, 0, 0, 9])] } else { Vec::new() };
        let name = |name: &str| ServerSettings { advertise: Some(name.to_owned()), ..said() };
        for (said, bind, host, warning) in [
            (said(), "0.0.0.0:0", "10.0.0.5", None),
            (said(), "10.0.0.7:0", "10.0.0.7", None),
            (name("https://known:1/x"), "0.0.0.0:0", "known", None),
            (name("typo"), "0.0.0.0:0", "typo", Some("'typo' of --advertise does not resolve")),
        ] {
            let choice = Listening::decide(&said, Some(bind), "", parse).unwrap().host(addresses_of, here);
            assert_eq!(choice.host, host);
            let warning_text = choice.warning.unwrap_or_default();
            assert!(warning.map_or(warning_text.is_empty(), |words| warning_text.contains(words)), "{warning_text}");
        }
        let choice = Listening::decide(&said(), Some("0.0.0.0:0"), "", parse).unwrap();
        let warning_text = choice.host(addresses_of, || HostInfo { interfaces: Vec::new(), ..here() }).warning.unwrap();
        assert!(
            warning_text.contains("'login1' does not resolve") && warning_text.contains("--advertise"),
            "{warning_text}"
        );
    }

    #[test]
    fn contradictory_settings_are_refused() {
        for wrong in [
            ServerSettings { tls_cert: Some("c".into()), tls_key: Some("k".into()), insecure_http: true, ..said() },
            ServerSettings { tls: true, insecure_http: true, ..said() },
            ServerSettings { tls: true, tls_ca: Some("ca".into()), ..said() },
        ] {
            assert!(Listening::decide(&wrong, None, "127.0.0.1:0", parse).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_plain_http_beyond_this_machine_is_exposed() {
        let open = ServerSettings { insecure_http: true, ..said() };
        for (said, bind, exposed) in [
            (open.clone(), "0.0.0.0:0", true),
            (open, "127.0.0.1:0", false),
            (said(), "0.0.0.0:0", false),
            (said(), "127.0.0.1:0", false),
        ] {
            assert_eq!(Listening::decide(&said, Some(bind), "", parse).unwrap().is_exposed(), exposed, "{bind}");
        }
    }

    #[test]
    fn workflows_that_need_slurm_expose_the_server() {
        let action = |kind: &str, scheduler: &str| {
            let text = format!(
                r#"{{"triggerType": "on_workflow_start", "actionType": "{kind}", "schedulerType": "{scheduler}"}}"#
            );
            WorkflowSpec { actions: vec![serde_json::from_str(&text).unwrap()], ..WorkflowSpec::default() }
        };
        let cluster = WorkflowSpec { slurm_cluster: Some("c".to_owned()), ..WorkflowSpec::default() };
        for (spec, exposure) in [
            (WorkflowSpec::default(), Exposure::ThisMachine),
            (action("run_commands", "slurm"), Exposure::ThisMachine),
            (action("schedule_nodes", "slurm"), Exposure::OtherMachines),
            (action("schedule_nodes", "local"), Exposure::ThisMachine),
            (cluster, Exposure::OtherMachines),
        ] {
            assert_eq!(Exposure::of([&WorkflowSpec::default(), &spec]), exposure);
        }
    }

    #[test]
    fn what_was_said_of_the_address_wins_over_the_usual() {
        let decide =
            |bind: Option<&str>| Listening::decide(&said(), bind, "127.0.0.1:7", parse).unwrap().bind.to_string();
        assert_eq!((decide(None), decide(Some("127.0.0.1:8"))), ("127.0.0.1:7".to_owned(), "127.0.0.1:8".to_owned()));
        assert_eq!(
            (Exposure::ThisMachine.default_bind(), Exposure::OtherMachines.default_bind()),
            ("127.0.0.1:0", "0.0.0.0:0")
        );
        let here = Listening::loopback();
        assert_eq!((here.bind.to_string().as_str(), here.protection), ("127.0.0.1:0", TransportSecurity::Plain));
        for (host, expected) in
            [("h:1", true), ("[::1]:1", true), ("h", false), ("h:", false), ("h:x", false), ("[::1]", false)]
        {
            assert_eq!(has_port(host), expected, "{host}");
        }
    }

    #[test]
    fn an_authority_needs_a_certificate_that_was_given() {
        let authority = || Some("ca".into());
        for (said, accepted) in [
            (
                ServerSettings { tls_ca: authority(), tls_cert: Some("c".into()), tls_key: Some("k".into()), ..said() },
                true,
            ),
            (ServerSettings { tls_ca: authority(), ..said() }, true),
            (ServerSettings { tls_ca: authority(), insecure_http: true, ..said() }, true),
            (ServerSettings { tls_ca: authority(), tls: true, ..said() }, false),
            (ServerSettings { tls: true, tls_cert: Some("c".into()), tls_key: Some("k".into()), ..said() }, true),
        ] {
            assert_eq!(Listening::decide(&said, None, "127.0.0.1:0", parse).is_ok(), accepted, "{said:?}");
        }
        let beyond = ServerSettings { tls_ca: authority(), ..said() };
        assert!(Listening::decide(&beyond, None, "0.0.0.0:0", parse).is_err(), "it would make its own there");
    }
}
