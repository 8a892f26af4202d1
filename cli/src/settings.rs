//! Settings are resolved once: flags, then environment, then files from near to far, then what is built in.
//!
//! Every setting is one row of [`KEYS`]; values travel as text with their origin, and are given a type at the end,
//! so that an error can say where the wrong value came from.

pub mod backend;
mod files;
mod keys;
mod kubernetes;
mod run;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backend::{Backend, choose};
pub use files::config_files;
pub use keys::KEYS;
pub use run::RunSettings;

use torc_api::token::{Fingerprint, NoFingerprint};
use torc_controller::KubernetesConfig;
use torc_controller::tls::TlsFiles;

use crate::args::GlobalArgs;
use crate::error::CommandError;
use crate::output::Format;
use crate::runner_args::RunnerArgs;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// An environment variable.
    Environment(String),
    /// A configuration file.
    File(PathBuf),
    /// Built in.
    BuiltIn,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::Environment(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::BuiltIn => f.write_str("built in"),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The text.
    pub text: String,
    /// Who said so.
    pub origin: Origin,
}

/// What was said, by key; the first layer that names a key wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    values: BTreeMap<&'static str, Value>,
}

impl Layers {
    /// Adds a layer below those that are there.
    pub fn below(&mut self, key: &'static str, text: String, origin: Origin) {
        self.values.entry(key).or_insert(Value { text, origin });
    }

    /// What was said about a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    fn parsed<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, CommandError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        parse(&value.text).map(Some).map_err(|reason| {
            CommandError::invalid(format!(
                "setting `{key}` is wrong: '{}' {reason} (from {})",
                value.text, value.origin
            ))
        })
    }
}

/// What a run of `torc` works with.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The server to talk to; absent: the store of this folder.
    pub url: Option<String>,
    /// The token itself.
    pub token: Option<String>,
    /// The file with the token.
    pub token_file: Option<PathBuf>,
    /// The file that says where the owner of this job's store answers.
    pub server_file: Option<PathBuf>,
    /// The file in which the server of an allocation keeps its certificates.
    pub server_certificates: Option<PathBuf>,
    /// The backend to talk to.
    pub backend: Backend,
    /// The Service of Torc's server in a cluster, as `namespace/name`.
    pub service: Option<String>,
    /// The name that the server's certificate is for, where it is not that of the URL.
    pub server_name: Option<String>,
    /// The only certificate that the server may have.
    pub certificate_sha256: Option<Fingerprint>,
    /// The file of those who vouch for servers.
    pub ca_cert: Option<PathBuf>,
    /// How results are printed.
    pub format: Format,
    /// The namespace; absent: `default`.
    pub namespace: Option<String>,
    /// The program that reaches workers, and its first words.
    pub ssh: String,
    /// What the local runner may use.
    pub run: RunSettings,
    /// How a server is started.
    pub server: ServerSettings,
}

/// How a server is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// Host and port.
    pub bind: String,
    /// The same for the server inside `torc apply` and `torc run`, where that was said.
    pub embedded_bind: Option<String>,
    /// How others reach it: a URL, a host, or a host with a port.
    pub advertise: Option<String>,
    /// The certificate to use.
    pub certificate: Option<TlsFiles>,
    /// The file with those who vouch for it, or for a proxy in front of it.
    pub authority: Option<PathBuf>,
    /// How long a token for the runners in allocations is good.
    pub runner_token_lifetime: Duration,
    /// TLS also where only this machine listens.
    pub tls: bool,
    /// No TLS, wherever it listens.
    pub insecure_http: bool,
    /// The file with the administrators' token; absent: one beside the database.
    pub admin_token_file: Option<PathBuf>,
    /// The file with a token that reads metrics.
    pub metrics_token_file: Option<PathBuf>,
    /// The key that signs tokens; absent: one beside the database.
    pub token_key_file: Option<PathBuf>,
    /// The most connections at once.
    pub max_connections: usize,
    /// The database; absent: that of the `.torc` folder.
    pub database: Option<String>,
    /// The most jobs of one workflow.
    pub max_jobs: usize,
    /// Between two looks at Slurm while allocations live.
    pub slurm_poll_interval: Duration,
    /// How custom resources are looked after, where that is asked for.
    pub kubernetes: KubernetesConfig,
}

/// What is handed over by variables and stands in no file.
#[derive(Clone, Debug, Default)]
pub struct Handed {
    /// The token itself.
    pub token: Option<String>,
    /// The file that says where the owner of this job's store answers.
    pub server_file: Option<PathBuf>,
    /// The file in which the server of an allocation keeps its certificates.
    pub server_certificates: Option<PathBuf>,
    /// The program was called as a plugin of kubectl.
    pub plugin: bool,
}

impl Handed {
    /// What the environment holds.
    pub fn from(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let said = |name: &str| variable(name).filter(|text| !text.is_empty());
        let path = |name: &str| said(name).map(PathBuf::from);
        Self {
            token: said(crate::env::TOKEN),
            server_file: path(crate::env::SERVER_FILE),
            server_certificates: path(crate::env::SERVER_CERTIFICATES),
            plugin: false,
        }
    }
}

/// The world that settings are read from, so that tests need neither a home nor an environment.
pub struct Surroundings<'a> {
    /// Looks up an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The current folder.
    pub folder: &'a Path,
    /// The system's configuration folder.
    pub system: &'a Path,
}

/// What was said, from all sources, and warnings about what nobody understands.
pub fn gather(flags: Layers, surroundings: &Surroundings<'_>) -> Result<(Layers, Vec<String>), CommandError> {
    let mut layers = flags;
    for key in KEYS {
        for variable in [key.variable.to_owned(), key.variable_by_section()] {
            if let Some(text) = (surroundings.variable)(&variable).filter(|text| !text.is_empty()) {
                layers.below(key.name, text, Origin::Environment(variable));
            }
        }
    }
    let mut warnings = Vec::new();
    for path in config_files(surroundings) {
        warnings.extend(files::add(&mut layers, &path)?);
    }
    for key in KEYS {
        if let Some(text) = key.default {
            layers.below(key.name, text.to_owned(), Origin::BuiltIn);
        }
    }
    Ok((layers, warnings))
}

/// The layer of the command line.
pub fn flags(global: &GlobalArgs, runner: Option<&RunnerArgs>) -> Layers {
    let mut layers = Layers::default();
    let mut said = |key: &'static str, text: Option<String>| {
        if let Some(text) = text {
            layers.below(key, text, Origin::Flag);
        }
    };
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    said("client.url", global.url.clone());
    said("client.context", global.context.clone());
    said("client.kubeconfig", global.kubeconfig.as_ref().map(path));
    said("client.token_file", global.token_file.as_ref().map(path));
    said("client.ca_cert", global.ca_cert.as_ref().map(path));
    said("client.certificate_sha256", global.certificate_sha256.clone());
    said("client.format", global.format.map(|format| format.name().to_owned()));
    said("client.namespace", global.namespace.clone());
    if let Some(runner) = runner {
        for (key, text) in runner.said() {
            said(key, Some(text));
        }
    }
    layers
}

/// Gives what was said its types.
pub fn resolve(layers: &Layers, handed: Handed) -> Result<Settings, CommandError> {
    let text = |key: &str| layers.get(key).map(|value| value.text.clone());
    let backend = choose(layers, handed.plugin)?;
    Ok(Settings {
        // A server that somebody farther away has named is not meant.
        url: layers.parsed("client.url", parse_url)?.filter(|_| backend == Backend::Server),
        backend,
        service: text("client.service"),
        server_name: None,
        token: handed.token,
        server_file: handed.server_file,
        server_certificates: handed.server_certificates,
        token_file: text("client.token_file").map(PathBuf::from),
        certificate_sha256: layers.parsed("client.certificate_sha256", parse_fingerprint)?,
        ca_cert: text("client.ca_cert").map(PathBuf::from),
        format: layers.parsed("client.format", Format::from_name)?.unwrap_or_default(),
        namespace: text("client.namespace"),
        ssh: text("client.ssh").unwrap_or_default(),
        run: run::resolve(layers)?,
        server: resolve_server(layers)?,
    })
}

fn resolve_server(layers: &Layers) -> Result<ServerSettings, CommandError> {
    let text = |key: &str| layers.get(key).map(|value| value.text.clone());
    let number = |key: &str| {
        let number = layers.parsed(key, |text| parse_count(text, 1))?;
        Ok::<_, CommandError>(number.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX)))
    };
    let certificate = match (text("server.tls_cert"), text("server.tls_key")) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate: certificate.into(), key: key.into() }),
        (None, None) => None,
        (Some(_), None) => return Err(CommandError::usage("a certificate needs its key: say --tls-key, too")),
        (None, Some(_)) => return Err(CommandError::usage("a key needs its certificate: say --tls-cert, too")),
    };
    Ok(ServerSettings {
        bind: text("server.bind").unwrap_or_default(),
        embedded_bind: text("client.run.bind"),
        advertise: text("server.advertise"),
        certificate,
        authority: text("server.tls_ca").map(PathBuf::from),
        runner_token_lifetime: layers.parsed("server.runner_token_lifetime", run::parse_duration)?.unwrap_or_default(),
        tls: layers.parsed("server.tls", run::parse_flag)?.unwrap_or_default(),
        insecure_http: layers.parsed("server.insecure_http", run::parse_flag)?.unwrap_or_default(),
        admin_token_file: text("server.admin_token_file").map(PathBuf::from),
        metrics_token_file: text("server.metrics_token_file").map(PathBuf::from),
        token_key_file: text("server.token_key_file").map(PathBuf::from),
        max_connections: number("server.max_connections")?,
        database: text("server.database"),
        max_jobs: number("server.max_jobs")?,
        slurm_poll_interval: layers.parsed("server.slurm_poll_interval", run::parse_seconds)?.unwrap_or_default(),
        kubernetes: kubernetes::resolve(layers)?,
    })
}

fn parse_fingerprint(text: &str) -> Result<Fingerprint, String> {
    text.parse().map_err(|error: NoFingerprint| error.to_string())
}

fn parse_url(text: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn parse_count(text: &str, least: i64) -> Result<i64, String> {
    match text.trim().parse::<i64>() {
        Ok(number) if number >= least => Ok(number),
        _ => Err(format!("must be a whole number of at least {least}")),
    }
}

#[cfg(test)]
mod tests;
