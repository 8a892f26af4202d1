//! The server that this process embeds. It owns a store and has an address for other processes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use torc_api::token::Fingerprint;
use torc_api::wire::RunnerScope;
use torc_controller::tls::{TlsFiles, fingerprint_of};
use torc_controller::{KubernetesConfig, Server, ServerConfig, SlurmConfig, SlurmHandle, StartError};
use torc_core::engine::Activity;
use torc_slurm::call::Tool;
use torc_store::StoreError;

use super::advertise;
use super::link::EngineLink;
use super::listening::{Listening, TransportSecurity};
use super::store_dir::{Lock, PinUpdate, ServerInfo, StoreDir, read_key};
use crate::client::Client;
use crate::error::{CliError, ExitStatus};
use crate::host::host_name;
use crate::settings::Settings;
use crate::token_file::read_token;

/// The visibility of an embedded server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is one of it in a process")]
pub enum ServeMode {
    /// Only for this command; other commands wait until it ends.
    Private,
    /// Other processes may attach.
    Announced {
        listening: Listening,
        /// True if this process also runs jobs.
        runner: bool,
        /// The workflows to request Slurm allocations for; `None` for no allocations.
        slurm: Option<RunnerScope>,
        /// The settings of the controller of custom resources; `None` without a controller.
        kubernetes: Option<Box<KubernetesConfig>>,
    },
}

/// A server in this process that owns a store.
pub struct EmbeddedServer {
    store_dir: StoreDir,
    server: Server,
    client: Client,
    url: String,
    token_file: PathBuf,
    certificate: Option<Fingerprint>,
    warning: Option<String>,
    announced: bool,
    /// `None` if a Kubernetes Lease decides who owns the store.
    _lock: Option<Lock>,
}

impl EmbeddedServer {
    /// Starts the server of a store.
    pub async fn start(
        store_dir: &StoreDir,
        lock: Option<Lock>,
        settings: &Settings,
        mode: ServeMode,
    ) -> Result<Self, CliError> {
        let (listening, runner, slurm, kubernetes) = match mode {
            ServeMode::Private => (Listening::loopback(), None, None, None),
            ServeMode::Announced { mut listening, runner, slurm, kubernetes } => {
                listening.bind = store_dir.same_port(listening.bind);
                (listening, Some(runner), slurm, kubernetes)
            }
        };
        let advertised = tokio::task::spawn_blocking({
            let listening = listening.clone();
            move || listening.host(advertise::addresses_of, advertise::host_info)
        });
        let advertised =
            advertised.await.map_err(|error| CliError::unexpected("could not look up this machine", error))?;
        let certificate = Certificate::of(store_dir, &listening, &advertised.host)?;
        let (token, token_file) = match &settings.server.admin_token_file {
            Some(path) => (given_token(path)?, path.clone()),
            None => (store_dir.token(certificate.pinned())?, store_dir.token_file()),
        };
        let metrics_token = settings.server.metrics_token_file.as_deref().map(given_token).transpose()?;
        let token_key = match &settings.server.token_key_file {
            Some(path) => read_key(path)?,
            None => store_dir.token_key()?,
        };
        let config = ServerConfig {
            database: store_dir.database.clone(),
            bind: Some(listening.bind),
            token: token.clone(),
            metrics_token,
            token_key,
            tls: certificate.files,
            pin: certificate.pin,
            authority: settings.server.tls_ca.clone(),
            runner_token_lifetime: settings.server.runner_token_lifetime,
            max_connections: settings.server.max_connections,
            advertise: {
                let (listening, host) = (listening.clone(), advertised.host.clone());
                Arc::new(move |bound| listening.url(bound, &host))
            },
            max_jobs: settings.server.max_jobs,
            slurm: Some(slurm_config(store_dir, settings, slurm)?),
            kubernetes: kubernetes.map(|config| *config),
        };
        let server = Server::start(config).await.map_err(|error| could_not_start(store_dir, error))?;
        let address = server.address().unwrap_or(listening.bind);
        let local_url = listening.local_url(address);
        let url = server.url().to_owned();
        let info = ServerInfo {
            host: host_name(),
            pid: std::process::id(),
            url: url.clone(),
            token_file: token_file.clone(),
            start_time: jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string(),
            runner: runner.unwrap_or_default(),
            local_url: (local_url != url).then(|| local_url.clone()),
            certificate_sha256: certificate.pin,
            certificate_file: certificate.given,
        };
        let client = Client::new(&local_url, Some(token), &info.trust(), settings.namespace.clone())?;
        if runner.is_some() {
            store_dir.write_server_info(&info)?;
        }
        Ok(Self {
            store_dir: store_dir.clone(),
            server,
            client,
            url,
            token_file,
            certificate: certificate.pin,
            warning: advertised.warning,
            announced: runner.is_some(),
            _lock: lock,
        })
    }

    /// Returns the file with the administrators' token.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Returns a client of this server.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns a link for a runner in this process.
    pub fn link(&self) -> EngineLink {
        EngineLink::new(self.server.engine())
    }

    /// Returns whether jobs run or may start without the user, and the last event.
    pub async fn activity(&self, scope: &RunnerScope) -> Result<Activity, CliError> {
        let activity = self.server.engine().activity(scope.clone()).await;
        activity.map_err(|error| CliError::unexpected("could not query the store", error))
    }

    pub fn slurm(&self) -> Option<&SlurmHandle> {
        self.server.slurm()
    }

    /// Returns the URL for other machines.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the fingerprint of the self-signed certificate, if there is one.
    pub fn certificate(&self) -> Option<Fingerprint> {
        self.certificate
    }

    /// Returns the reason why other machines may not reach it.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Waits until another process owns the store.
    pub async fn superseded(&self) {
        self.server.superseded().await;
    }

    /// Stops the server and releases the store.
    pub async fn shutdown(self) {
        if self.announced {
            self.store_dir.remove_server_info();
        }
        self.server.shutdown().await;
    }
}

/// Returns the settings of Slurm allocations. Their runners use this program.
fn slurm_config(
    store_dir: &StoreDir,
    settings: &Settings,
    serves: Option<RunnerScope>,
) -> Result<SlurmConfig, CliError> {
    let program = std::env::current_exe()
        .map_err(|error| CliError::unexpected("could not find the path of this program", error))?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let runner = vec![text(&program), crate::SLURM_JOB_RUNNER.to_owned()];
    let replaced = Tool::ALL.into_iter().map(Tool::replacement_variable);
    Ok(SlurmConfig {
        serves,
        poll: settings.server.slurm_poll_interval,
        runner,
        folder: store_dir.allocations_folder()?,
        output_dir: settings.run.output_dir.clone(),
        ssh_secrets: settings.server.kubernetes.ssh_secrets.clone(),
        replaced: replaced.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect(),
    })
}

/// The certificate of a server.
struct Certificate {
    files: Option<TlsFiles>,
    /// The fingerprint of a self-signed certificate, which clients pin.
    pin: Option<Fingerprint>,
    /// The file of a certificate that the user set.
    given: Option<PathBuf>,
}

impl Certificate {
    fn of(store_dir: &StoreDir, listening: &Listening, host: &str) -> Result<Self, CliError> {
        match &listening.protection {
            TransportSecurity::Plain => Ok(Self { files: None, pin: None, given: None }),
            TransportSecurity::Given(files) => {
                let given = std::path::absolute(&files.certificate).ok();
                Ok(Self { files: Some(files.clone()), pin: None, given })
            }
            TransportSecurity::Own => {
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let names = [host_name(), host, "localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
                let names: BTreeSet<String> = names.into();
                let files = store_dir.own_certificate(names.into_iter().collect())?;
                let unusable = |error| could_not_start(store_dir, StartError::Tls(error));
                let pin = fingerprint_of(&files.certificate).map_err(unusable)?;
                Ok(Self { files: Some(files), pin: Some(pin), given: None })
            }
        }
    }

    /// Returns the pin for the token file.
    fn pinned(&self) -> PinUpdate {
        match (self.pin, &self.given) {
            (Some(fingerprint), _) => PinUpdate::Certificate(fingerprint),
            (None, Some(_)) => PinUpdate::Remove,
            (None, None) => PinUpdate::Keep,
        }
    }
}

/// Reads a token that the user created. Short tokens are refused, because they can be guessed.
fn given_token(path: &Path) -> Result<String, CliError> {
    let word = read_token(path)?;
    if word.len() < 16 {
        let message = format!("the token in {} has less than 16 characters", path.display());
        return Err(CliError::invalid(message).hint("create one with `openssl rand -hex 32`"));
    }
    Ok(word)
}

fn could_not_start(store_dir: &StoreDir, error: StartError) -> CliError {
    let (kind, hint) = match &error {
        StartError::Bind { .. } => {
            (ExitStatus::Refused, Some("name another address with --bind; port 0 picks a free port"))
        }
        StartError::Tls(_) => (
            ExitStatus::InvalidInput,
            Some(
                "name a certificate and its key in PEM with --tls-cert and --tls-key, or omit both for a self-signed one",
            ),
        ),
        StartError::Store(StoreError::NewerSchema { .. }) => (
            ExitStatus::InvalidInput,
            Some("a newer version of torc wrote it: install that version; nothing was changed"),
        ),
        StartError::Store(StoreError::OlderSchema { .. }) => (
            ExitStatus::InvalidInput,
            Some(
                "a version before the first release wrote it: move it away and apply the workflows again; nothing was changed",
            ),
        ),
        StartError::Store(StoreError::NotADatabase { .. } | StoreError::Corrupt { .. }) => {
            (ExitStatus::InvalidInput, Some("nothing was changed; restore a backup with `torc restore`"))
        }
        StartError::Store(StoreError::ReadOnly { .. }) => {
            (ExitStatus::Refused, Some("the file and its folder must be writable"))
        }
        StartError::Store(StoreError::Locked { .. } | StoreError::Superseded { .. }) => (ExitStatus::Refused, None),
        StartError::Cluster(_) => (
            ExitStatus::InvalidInput,
            Some("set KUBECONFIG to the kubeconfig of a cluster, or run it in a Pod with a service account"),
        ),
        StartError::Store(StoreError::DiskFull { .. } | StoreError::DatabaseIo { .. }) => (
            ExitStatus::Unreachable,
            Some("the disk or a quota may be full: free some space and retry; nothing was lost"),
        ),
        _ => (ExitStatus::Unexpected, None),
    };
    let command =
        CliError::new(kind, format!("could not serve the store {}", store_dir.database.display())).because(error);
    match hint {
        Some(hint) => command.hint(hint),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Each error of a start, and the code that it ends the command with.
    #[test]
    fn what_keeps_a_store_from_being_served_has_its_code() {
        let store_dir = StoreDir::in_folder("/f".into());
        let path = || PathBuf::from("/f/torc.db");
        let io = || std::io::Error::other("x");
        let bind = StartError::Bind { address: ([127, 0, 0, 1], 1).into(), source: io() };
        for (error, code, has_hint) in [
            (bind, 7, true),
            (StartError::Store(StoreError::NewerSchema { path: path(), found: 2, known: 1 }), 4, true),
            (StartError::Store(StoreError::OlderSchema { path: path(), found: 2, oldest: 15 }), 4, true),
            (StartError::Store(StoreError::NotADatabase { path: path() }), 4, true),
            (StartError::Store(StoreError::Corrupt { path: path(), what: "w".to_owned() }), 4, true),
            (StartError::Store(StoreError::ReadOnly { path: path() }), 7, true),
            (StartError::Store(StoreError::Locked { path: path() }), 7, false),
            (StartError::Store(StoreError::Superseded { epoch: 1, by: 2 }), 7, false),
            (StartError::Store(StoreError::DiskFull { path: path() }), 6, true),
            (StartError::Store(StoreError::NotFound { path: path() }), 1, false),
            (StartError::Store(StoreError::Closed { path: path() }), 1, false),
        ] {
            let name = format!("{error:?}");
            let command = could_not_start(&store_dir, error);
            assert_eq!((command.kind.code(), !command.hints.is_empty()), (code, has_hint), "{name}");
            assert_eq!(command.message, "could not serve the store /f/torc.db");
        }
    }

    #[test]
    fn a_given_token_has_at_least_16_characters() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("token");
        for (length, accepted) in [(15, false), (16, true)] {
            std::fs::write(&path, format!("{}\n", "x".repeat(length))).unwrap();
            assert_eq!(given_token(&path).is_ok(), accepted, "{length}");
        }
        assert_eq!(given_token(&root.path().join("none")).unwrap_err().kind, ExitStatus::NotFound);
    }

    #[test]
    fn the_token_file_pins_only_a_self_signed_certificate() {
        let pin = Fingerprint([5; 32]);
        let certificate =
            |pin, given: Option<&str>| Certificate { files: None, pin, given: given.map(PathBuf::from) }.pinned();
        assert_eq!(certificate(Some(pin), None), PinUpdate::Certificate(pin));
        assert_eq!(certificate(None, Some("/c")), PinUpdate::Remove);
        assert_eq!(certificate(None, None), PinUpdate::Keep);
    }
}
