//! Settings are resolved once: flags, then environment, then files from near to far, then defaults.
//!
//! A setting is one field, declared by [`torc_api::settings!`]. Values are kept as text with their origin and parsed last, so that an
//! error can name the origin of a wrong value.

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

/// Returns the declarations of all settings.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    [Settings::SETTINGS, RunnerSettings::SETTINGS, ServerSettings::SETTINGS, KubernetesConfig::SETTINGS]
        .into_iter()
        .flatten()
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// A flag on the command line.
    Flag,
    /// The environment variable with this name.
    Environment(String),
    /// The configuration file with this path.
    File(PathBuf),
    /// The default in the setting's declaration.
    BuiltIn,
}

impl std::fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::Environment(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::BuiltIn => f.write_str("built in"),
        }
    }
}

/// A value with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub text: String,
    pub origin: SettingOrigin,
}

/// Values by key. The first layer that names a key wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    values: BTreeMap<&'static str, Value>,
}

impl Layers {
    /// Sets a value unless a nearer layer has set it.
    pub fn below(&mut self, key: &'static str, text: String, origin: SettingOrigin) {
        self.values.entry(key).or_insert(Value { text, origin });
    }

    /// Sets a value, and replaces that of every layer.
    pub fn set(&mut self, key: &'static str, text: String, origin: SettingOrigin) {
        self.values.insert(key, Value { text, origin });
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Returns whether the command line sets a key.
    pub fn is_typed(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.origin == SettingOrigin::Flag)
    }

    /// Returns the values of the command line, in the order of all settings.
    pub fn flags(&self) -> impl Iterator<Item = (&'static Setting, &str)> {
        all().filter_map(|setting| {
            let value = self.get(setting.key).filter(|value| value.origin == SettingOrigin::Flag)?;
            Some((setting, value.text.as_str()))
        })
    }

    fn read<T>(
        &self,
        read: impl Fn(torc_api::setting::Lookup<'_>) -> Result<T, InvalidSetting>,
    ) -> Result<T, CliError> {
        read(&|key| self.get(key).map(|value| value.text.as_str())).map_err(|error| {
            let origin = self.get(error.key).map_or(&SettingOrigin::BuiltIn, |value| &value.origin);
            CliError::invalid(format!("{error} (from {origin})"))
        })
    }
}

torc_api::settings! {
    /// The settings of one run of `torc`.
    pub struct Settings {
        /// The URL of the server, e.g. `http://127.0.0.1:7421` (default: the store in the nearest `.torc` folder).
        "client.url" (variable: Some(env::API_URL), flag: Some(Global.flag("url").value("URL")))
        url: Option<String> = parse_url;
        /// The file with the server's token.
        "client.token_file" (flag: Some(Global.flag("token-file").value("FILE")))
        token_file: Option<PathBuf> = parse_path;
        /// A file with CA certificates in PEM. Only servers with a certificate of these CAs are trusted (default: the CAs of this machine).
        "client.ca_cert" (flag: Some(Global.flag("ca-cert").value("FILE")))
        ca_cert: Option<PathBuf> = parse_path;
        /// The SHA-256 fingerprint of the server's certificate; no other certificate is trusted. The token file of a server with a
        /// self-signed certificate contains it.
        "client.certificate_sha256" (flag: Some(Global.flag("certificate-sha256").value("HEX")))
        certificate_sha256: Option<Fingerprint> = parse_fingerprint;
        /// The context of the kubeconfig that selects a Kubernetes cluster. Without this flag and `--kubeconfig`, no cluster is used, even
        /// if there is a kubeconfig.
        "client.context" (flag: Some(Global.flag("context").value("NAME")))
        context: Option<String> = parse_text;
        /// The kubeconfig (default with `--context`: `KUBECONFIG` or `~/.kube/config`).
        "client.kubeconfig" (flag: Some(Global.flag("kubeconfig").value("FILE")))
        kubeconfig: Option<PathBuf> = parse_path;
        /// The Service of Torc's server in a cluster, as `namespace/name` (default: found by its label).
        "client.service" ()
        service: Option<String> = parse_text;
        /// The output format: `table`, `wide`, `json` or `yaml`.
        "client.format" (
            default: Some("table"),
            flag: Some(Global.flag("output").value("FORMAT").short('o').choices(OutputFormat::CHOICES)),
        )
        format: OutputFormat = OutputFormat::from_name;
        /// The namespace of the workflows (default: the namespace of the kubeconfig's context, else `default`).
        "client.namespace" (flag: Some(Global.flag("namespace").value("NAMESPACE").short('n')))
        namespace: Option<String> = parse_text;
        /// The SSH command of `torc remote`, with arguments.
        "client.ssh" (default: Some("ssh"))
        ssh: String = parse_text;
    }
    {
        token: Option<String>;
        /// The file with the address of the server that owns this job's store.
        server_file: Option<PathBuf>;
        /// The file in which the server of an allocation keeps its certificates.
        server_certificates: Option<PathBuf>;
        backend: Backend;
        /// The name in the server's certificate, where it differs from the host of the URL.
        server_name: Option<String>;
        run: RunnerSettings;
        server: ServerSettings;
        /// The values before parsing, with their origins.
        layers: Layers;
    }
}

/// Credentials that come only from environment variables, never from a configuration file.
#[derive(Clone, Debug, Default)]
pub struct EnvCredentials {
    pub token: Option<String>,
    /// The file with the address of the server that owns this job's store.
    pub server_file: Option<PathBuf>,
    /// The file in which the server of an allocation keeps its certificates.
    pub server_certificates: Option<PathBuf>,
    /// True if the program was called as a plugin of kubectl.
    pub plugin: bool,
}

impl EnvCredentials {
    /// Reads the credentials from environment variables.
    pub fn from(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let text = |name: &str| variable(name).filter(|text| !text.is_empty());
        let path = |name: &str| text(name).map(PathBuf::from);
        Self {
            token: text(env::TOKEN),
            server_file: path(env::SERVER_FILE),
            server_certificates: path(env::SERVER_CERTIFICATES),
            plugin: false,
        }
    }
}

/// The environment that settings are read from. Tests replace it.
pub struct Environment<'a> {
    /// Looks up an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    pub folder: &'a Path,
    /// The system's configuration folder.
    pub system: &'a Path,
}

/// Collects the values of all sources, with warnings about unknown keys.
pub fn gather(flags: Layers, environment: &Environment<'_>) -> Result<(Layers, Vec<String>), CliError> {
    let mut layers = flags;
    for setting in all() {
        for variable in [setting.variable(), setting.variable_by_section()] {
            if let Some(text) = (environment.variable)(&variable).filter(|text| !text.is_empty()) {
                layers.below(setting.key, text, SettingOrigin::Environment(variable));
            }
        }
    }
    let mut warnings = Vec::new();
    for path in config_files(environment) {
        warnings.extend(files::add(&mut layers, &path)?);
    }
    for setting in all() {
        if let Some(text) = setting.default {
            layers.below(setting.key, text.to_owned(), SettingOrigin::BuiltIn);
        }
    }
    Ok((layers, warnings))
}

/// Parses the collected values.
pub fn resolve(layers: &Layers, handed: EnvCredentials) -> Result<Settings, CliError> {
    let backend = choose(layers, handed.plugin)?;
    let settings = layers.read(Settings::read)?;
    Ok(Settings {
        // A farther source may name a server while a nearer one selects a cluster.
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
        // The PID makes the identity unique: with the name of a dead process, its lease would count as held by this one.
        kubernetes.identity = format!("{}-{}", host_name(), std::process::id());
    }
    Ok(ServerSettings { kubernetes, ..server })
}

fn parse_fingerprint(text: &str) -> Result<Fingerprint, String> {
    text.parse().map_err(|error: ParseFingerprintError| error.to_string())
}

fn parse_url(text: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
pub mod tests;
