//! Connects a command to a store: through the configured server, the owner of the store, or a server embedded for one command.

use std::path::{Path, PathBuf};

use torc_api::api::Workflow;
use torc_api::document::DEFAULT_NAMESPACE;
use torc_api::token::Credential;

use crate::client::{Client, ClientError, Trust};
use crate::embedded::store_dir::{FOLDER, ServerInfo, StoreDir};
use crate::embedded::{EmbeddedServer, ServeMode, StoreAccess, acquire_or_attach};
use crate::error::CliError;
use crate::settings::Settings;
use crate::token_file::read_token;

/// A connection to a store.
pub enum ServerConnection {
    /// The server of another process, which keeps running.
    Attached(Box<Client>),
    /// A server in this process, for the duration of this command.
    Embedded(Box<EmbeddedServer>),
}

impl ServerConnection {
    /// Connects to the configured server, or to the nearest store.
    pub async fn open(settings: &Settings, folder: &Path) -> Result<Self, CliError> {
        if let Some(url) = &settings.url {
            return Ok(Self::Attached(Box::new(remote(settings, url, folder)?)));
        }
        let store_dir = StoreDir::find(folder).ok_or_else(no_store)?;
        match acquire_or_attach(&store_dir, settings.namespace.as_deref()).await? {
            StoreAccess::Attached(_, client) => Ok(Self::Attached(client)),
            StoreAccess::Acquired(lock) => Ok(Self::Embedded(Box::new(
                EmbeddedServer::start(&store_dir, Some(lock), settings, ServeMode::Private).await?,
            ))),
        }
    }

    pub fn client(&self) -> &Client {
        match self {
            Self::Attached(client) => client,
            Self::Embedded(server) => server.client(),
        }
    }

    /// Returns whether another process serves the store, so that it can change during this command.
    pub fn is_served(&self) -> bool {
        matches!(self, Self::Attached(_))
    }

    /// Shuts an embedded server down.
    pub async fn close(self) {
        if let Self::Embedded(server) = self {
            server.shutdown().await;
        }
    }
}

/// Runs `action` with a connection and closes the connection, also after an error.
pub async fn with_client<T>(
    settings: &Settings,
    folder: &Path,
    action: impl AsyncFnOnce(&Client) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let connection = ServerConnection::open(settings, folder).await?;
    let result = action(connection.client()).await;
    connection.close().await;
    result
}

/// Returns a client of the server at a URL.
pub fn remote(settings: &Settings, url: &str, folder: &Path) -> Result<Client, CliError> {
    let here = known_server(settings, url, folder);
    let token = match (&settings.token, &settings.token_file) {
        (Some(token), _) => Some(token.clone()),
        (None, Some(path)) => Some(read_token(path)?),
        (None, None) => here.as_ref().and_then(|info| read_token(&info.token_file).ok()),
    };
    // Settings take precedence over the pin in the token, which takes precedence over the store's owner file.
    let has_trust_setting = settings.certificate_sha256.is_some() || settings.ca_cert.is_some();
    let token = if has_trust_setting { token.map(|word| Credential::token_of(&word).to_owned()) } else { token };
    let certificates = settings.server_certificates.clone();
    let trust = match (settings.certificate_sha256, &settings.ca_cert, certificates, here) {
        (Some(fingerprint), ..) => Trust::Certificate(fingerprint),
        (None, Some(path), ..) => match &settings.server_name {
            Some(name) => Trust::Named { authority: path.clone(), name: name.clone() },
            None => Trust::Authority(path.clone()),
        },
        // `info` names a path on the server's machine, which may be another file here.
        (None, None, Some(path), _) => Trust::CertificateFile(path),
        (None, None, None, Some(info)) => info.trust(),
        (None, None, None, None) => Trust::System,
    };
    let token_file = settings.token_file.clone().filter(|_| settings.token.is_none());
    Ok(Client::new(url, token, &trust, settings.namespace.clone())?.with_token_file(token_file))
}

/// Returns the owner of the store of this job or of this folder, if it has this URL.
fn known_server(settings: &Settings, url: &str, folder: &Path) -> Option<ServerInfo> {
    let answers_there = |info: &ServerInfo| info.url == url || info.local_url.as_deref() == Some(url);
    let of_job = settings.server_file.as_deref().and_then(ServerInfo::read).filter(answers_there);
    of_job.or_else(|| StoreDir::find(folder)?.server_info().filter(answers_there))
}

/// Returns the owner file of this folder's store, if the server at `url` owns it. Jobs that outlive the owner read the file.
pub fn server_file(url: &str, folder: &Path) -> Option<PathBuf> {
    let store_dir = StoreDir::find(folder)?;
    let info = store_dir.server_info()?;
    (info.url == url || info.local_url.as_deref() == Some(url)).then(|| store_dir.server_file())
}

/// Returns the store of this folder or one above; creates one in this folder if there is none.
pub fn create_store_dir(folder: &Path) -> Result<StoreDir, CliError> {
    let store_dir = StoreDir::find(folder).unwrap_or_else(|| StoreDir::in_folder(folder.join(FOLDER)));
    store_dir.create_folder()?;
    Ok(store_dir)
}

/// Creates the error for a folder without a store and without a configured server.
pub fn no_store() -> CliError {
    CliError::not_found("no store found: there is no `.torc` folder in this folder or above")
        .hint("create one with `torc apply -f FILE`, or name a server with --url")
}

/// Returns the name or number in `NAME`, `workflow/NAME` or `workflows/NAME`.
pub fn bare_name(reference: &str) -> &str {
    const KINDS: [&str; 5] = ["workflow", "workflows", "wf", "twf", "workflow.torc.dev"];
    match reference.split_once('/') {
        Some((kind, name)) if KINDS.contains(&kind) => name,
        _ => reference,
    }
}

/// Returns the referenced workflow, or the only one of the store.
pub async fn resolve_workflow(client: &Client, reference: Option<&str>) -> Result<String, CliError> {
    if let Some(reference) = reference {
        let reference = bare_name(reference);
        return if is_number(reference) {
            let workflow = client.workflow(reference).await.map_err(explain_missing)?;
            Ok(shown_reference(client, &workflow))
        } else {
            Ok(reference.to_owned())
        };
    }
    let workflows = client.first_workflows(6).await?;
    match workflows.as_slice() {
        [only] => Ok(shown_reference(client, only)),
        [] => Err(CliError::not_found("the store contains no workflow")),
        several => {
            let names: Vec<&str> = several.iter().take(5).map(|workflow| workflow.name.as_str()).collect();
            let more = if several.len() > 5 { ", …" } else { "" };
            let hint = format!("workflows: {}{more}", names.join(", "));
            Err(CliError::usage("the store contains several workflows; name one of them").hint(hint))
        }
    }
}

fn is_number(reference: &str) -> bool {
    !reference.is_empty() && reference.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the name of a workflow for messages, or its number if the name is ambiguous because it is in another namespace.
fn shown_reference(client: &Client, workflow: &Workflow) -> String {
    let namespace = client.namespace().unwrap_or(DEFAULT_NAMESPACE);
    if workflow.namespace == namespace { workflow.name.clone() } else { workflow.id.to_string() }
}

/// Adds a hint to the error of a missing workflow.
pub fn explain_missing(error: ClientError) -> CliError {
    let missing = error.is_not_found();
    let command = CliError::from(error);
    if missing && command.hints.is_empty() {
        command.hint("list the workflows with `torc get workflows`")
    } else {
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ExitStatus;

    #[test]
    fn a_reference_may_have_a_kind() {
        for (reference, name) in [("a", "a"), ("workflow/a", "a"), ("wf/7", "7"), ("x/a", "x/a"), ("workflows/", "")] {
            assert_eq!(bare_name(reference), name);
        }
    }

    #[test]
    fn every_spelling_of_the_kind_is_removed() {
        for kind in ["workflow", "workflows", "wf", "twf", "workflow.torc.dev"] {
            assert_eq!(bare_name(&format!("{kind}/a")), "a");
        }
        assert_eq!((bare_name("job/a"), bare_name("a/b")), ("job/a", "a/b"));
    }

    #[test]
    fn the_error_of_a_missing_workflow_has_a_hint() {
        let hints = |status, text: &str| explain_missing(ClientError::answer(status, text)).hints;
        assert_eq!(hints(404, ""), ["list the workflows with `torc get workflows`"]);
        assert_eq!(hints(404, r#"{"code":"c","message":"m","hint":"own"}"#), ["own"]);
        assert_eq!(hints(409, ""), Vec::<String>::new());
        assert_eq!(no_store().kind, ExitStatus::NotFound);
    }

    fn settings() -> Settings {
        crate::context::tests::context().settings
    }

    #[test]
    fn trust_settings_override_the_token_and_the_owner_file() {
        use torc_api::token::Fingerprint;
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let ca = at("ca.pem");
        std::fs::write(&ca, torc_controller::tls::make_certificate(vec!["n".to_owned()]).expect("a certificate").0)
            .expect("a file");
        let pinned = format!("secret~{}", Fingerprint([7; 32]));
        let url = "https://h:1";
        let trust = |settings: Settings| remote(&settings, url, folder.path()).expect("a client").trust().clone();
        let pin = Some(Fingerprint([9; 32]));
        let token = Some(pinned);
        assert_eq!(trust(settings()), Trust::System);
        assert_eq!(trust(Settings { token: token.clone(), ..settings() }), Trust::Certificate(Fingerprint([7; 32])));
        assert_eq!(
            trust(Settings { token: token.clone(), certificate_sha256: pin, ca_cert: Some(ca.clone()), ..settings() }),
            Trust::Certificate(Fingerprint([9; 32])),
            "a setting takes precedence over the pin in the token"
        );
        assert_eq!(trust(Settings { token, ca_cert: Some(ca.clone()), ..settings() }), Trust::Authority(ca.clone()));
        let named = Settings { ca_cert: Some(ca.clone()), server_name: Some("svc".to_owned()), ..settings() };
        assert_eq!(trust(named), Trust::Named { authority: ca, name: "svc".to_owned() });
        let in_allocation = Settings { server_certificates: Some(at("certificates")), ..settings() };
        assert_eq!(trust(in_allocation), Trust::CertificateFile(at("certificates")));
    }

    #[test]
    fn the_owner_of_a_store_is_found_by_either_of_its_urls() {
        let folder = tempfile::tempdir().expect("a folder");
        let store_dir = StoreDir::in_folder(folder.path().join(".torc"));
        store_dir.create_folder().expect("a folder");
        let info = ServerInfo {
            host: crate::host::host_name(),
            pid: 1,
            url: "https://login1:1".to_owned(),
            token_file: store_dir.token_file(),
            start_time: "t".to_owned(),
            runner: false,
            local_url: Some("https://127.0.0.1:1".to_owned()),
            certificate_sha256: None,
            certificate_file: None,
        };
        store_dir.write_server_info(&info).expect("a file");
        for (url, expected) in [("https://login1:1", true), ("https://127.0.0.1:1", true), ("https://login1:2", false)]
        {
            assert_eq!(known_server(&settings(), url, folder.path()).is_some(), expected, "{url}");
            assert_eq!(server_file(url, folder.path()), expected.then(|| store_dir.server_file()), "{url}");
        }
        let of_job = Settings { server_file: Some(store_dir.server_file()), ..settings() };
        assert!(known_server(&of_job, "https://login1:1", Path::new("/")).is_some());
    }
}
