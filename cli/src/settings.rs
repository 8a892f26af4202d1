//! Settings are resolved once: flags, then environment, then files from near to far, then what is built in.
//!
//! A setting is one field, declared by [`torc_api::settings!`]. Values travel as text with their origin, and are given a type at the
//! end, so that an error can say where the wrong value came from.

pub mod backend;
mod files;
mod flags;
mod server;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use backend::{Backend, choose};
pub use files::config_files;
pub use flags::{Flags, RunnerArgs, as_arguments, bit, layer};
pub use server::ServerSettings;
pub use torc_runner::RunnerSettings;

use torc_api::setting::FlagGroup::Global;
use torc_api::setting::{InvalidSetting, Setting, parse_path, parse_text};
use torc_api::token::{Fingerprint, ParseFingerprintError};
use torc_controller::KubernetesConfig;

use crate::env;
use crate::error::CliError;
use crate::host::host_name;
use crate::output::OutputFormat;

/// Every setting.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    [Settings::SETTINGS, RunnerSettings::SETTINGS, ServerSettings::SETTINGS, KubernetesConfig::SETTINGS]
        .into_iter()
        .flatten()
}

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

    /// Replaces what was said.
    pub fn set(&mut self, key: &'static str, text: String, origin: Origin) {
        self.values.insert(key, Value { text, origin });
    }

    /// What was said about a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Whether it was said on the command line.
    pub fn is_typed(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.origin == Origin::Flag)
    }

    /// What was said on the command line, in the order of all settings.
    pub fn flags(&self) -> impl Iterator<Item = (&'static Setting, &str)> {
        all().filter_map(|setting| {
            let value = self.get(setting.key).filter(|value| value.origin == Origin::Flag)?;
            Some((setting, value.text.as_str()))
        })
    }

    fn read<T>(
        &self,
        read: impl Fn(torc_api::setting::Lookup<'_>) -> Result<T, InvalidSetting>,
    ) -> Result<T, CliError> {
        read(&|key| self.get(key).map(|value| value.text.as_str())).map_err(|error| {
            let origin = self.get(error.key).map_or(&Origin::BuiltIn, |value| &value.origin);
            CliError::invalid(format!("{error} (from {origin})"))
        })
    }
}

torc_api::settings! {
    /// What a run of `torc` works with.
    pub struct Settings {
        /// The server to talk to, e.g. `http://127.0.0.1:7421`; without it the store of the `.torc` folder here or above.
        "client.url" (variable: Some(env::API_URL), flag: Some(Global.flag("url").value("URL")))
        url: Option<String> = parse_url;
        /// The file that holds the server's token.
        "client.token_file" (flag: Some(Global.flag("token-file").value("FILE")))
        token_file: Option<PathBuf> = parse_path;
        /// A file with certificates in PEM: servers that they vouch for are trusted, and no others (the machine's own when absent).
        "client.ca_cert" (flag: Some(Global.flag("ca-cert").value("FILE")))
        ca_cert: Option<PathBuf> = parse_path;
        /// The fingerprint of the only certificate that the server may have; a token file of a server with its own certificate holds it,
        /// too.
        "client.certificate_sha256" (flag: Some(Global.flag("certificate-sha256").value("HEX")))
        certificate_sha256: Option<Fingerprint> = parse_fingerprint;
        /// The context of the kubeconfig whose Kubernetes cluster to talk to; without this and the next one no cluster is meant,
        /// whatever kubeconfig there is.
        "client.context" (flag: Some(Global.flag("context").value("NAME")))
        context: Option<String> = parse_text;
        /// The kubeconfig (`KUBECONFIG` or `~/.kube/config` when absent and a context is named).
        "client.kubeconfig" (flag: Some(Global.flag("kubeconfig").value("FILE")))
        kubeconfig: Option<PathBuf> = parse_path;
        /// The Service of Torc's server in a cluster, as `namespace/name` (looked for when absent).
        "client.service" ()
        service: Option<String> = parse_text;
        /// How results are printed: `table`, `wide`, `json` or `yaml`.
        "client.format" (
            default: Some("table"),
            flag: Some(Global.flag("output").value("FORMAT").short('o').choices(OutputFormat::CHOICES)),
        )
        format: OutputFormat = OutputFormat::from_name;
        /// The namespace of the workflows (that of the kubeconfig's context, else `default`, when absent).
        "client.namespace" (flag: Some(Global.flag("namespace").value("NAMESPACE").short('n')))
        namespace: Option<String> = parse_text;
        /// The program that `torc remote` reaches workers with, and its first words.
        "client.ssh" (default: Some("ssh"))
        ssh: String = parse_text;
    }
    {
        /// The token itself.
        token: Option<String>;
        /// The file that says where the owner of this job's store answers.
        server_file: Option<PathBuf>;
        /// The file in which the server of an allocation keeps its certificates.
        server_certificates: Option<PathBuf>;
        /// The backend to talk to.
        backend: Backend;
        /// The name that the server's certificate is for, where it is not that of the URL.
        server_name: Option<String>;
        /// What the local runner may use.
        run: RunnerSettings;
        /// How a server is started.
        server: ServerSettings;
        /// What was said, with its origins.
        layers: Layers;
    }
}

/// What is handed over by variables and stands in no file.
#[derive(Clone, Debug, Default)]
pub struct EnvCredentials {
    /// The token itself.
    pub token: Option<String>,
    /// The file that says where the owner of this job's store answers.
    pub server_file: Option<PathBuf>,
    /// The file in which the server of an allocation keeps its certificates.
    pub server_certificates: Option<PathBuf>,
    /// The program was called as a plugin of kubectl.
    pub plugin: bool,
}

impl EnvCredentials {
    /// What the environment holds.
    pub fn from(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let said = |name: &str| variable(name).filter(|text| !text.is_empty());
        let path = |name: &str| said(name).map(PathBuf::from);
        Self {
            token: said(env::TOKEN),
            server_file: path(env::SERVER_FILE),
            server_certificates: path(env::SERVER_CERTIFICATES),
            plugin: false,
        }
    }
}

/// The world that settings are read from, so that tests need neither a home nor an environment.
pub struct Environment<'a> {
    /// Looks up an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The current folder.
    pub folder: &'a Path,
    /// The system's configuration folder.
    pub system: &'a Path,
}

/// What was said, from all sources, and warnings about what nobody understands.
pub fn gather(flags: Layers, surroundings: &Environment<'_>) -> Result<(Layers, Vec<String>), CliError> {
    let mut layers = flags;
    for setting in all() {
        for variable in [setting.variable(), setting.variable_by_section()] {
            if let Some(text) = (surroundings.variable)(&variable).filter(|text| !text.is_empty()) {
                layers.below(setting.key, text, Origin::Environment(variable));
            }
        }
    }
    let mut warnings = Vec::new();
    for path in config_files(surroundings) {
        warnings.extend(files::add(&mut layers, &path)?);
    }
    for setting in all() {
        if let Some(text) = setting.default {
            layers.below(setting.key, text.to_owned(), Origin::BuiltIn);
        }
    }
    Ok((layers, warnings))
}

/// Gives what was said its types.
pub fn resolve(layers: &Layers, handed: EnvCredentials) -> Result<Settings, CliError> {
    let backend = choose(layers, handed.plugin)?;
    let settings = layers.read(Settings::read)?;
    Ok(Settings {
        // A server that somebody farther away has named is not meant.
        url: settings.url.filter(|_| backend == Backend::Server),
        backend,
        token: handed.token,
        server_file: handed.server_file,
        server_certificates: handed.server_certificates,
        run: layers.read(RunnerSettings::read)?,
        server: resolve_server(layers)?,
        layers: layers.clone(),
        ..settings
    })
}

fn resolve_server(layers: &Layers) -> Result<ServerSettings, CliError> {
    let server = layers.read(ServerSettings::read)?;
    server.check()?;
    let mut kubernetes = layers.read(KubernetesConfig::read)?;
    if kubernetes.identity.is_empty() {
        // Unlike that of any other process that lives: a lease of an earlier process of the same name would not be waited for.
        kubernetes.identity = format!("{}-{}", host_name(), std::process::id());
    }
    Ok(ServerSettings { kubernetes, ..server })
}

fn parse_fingerprint(text: &str) -> Result<Fingerprint, String> {
    text.parse().map_err(|error: ParseFingerprintError| error.to_string())
}

fn parse_url(text: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
pub mod tests;
