//! Access to a Kubernetes cluster through the contexts of kubectl.
//!
//! Commands read and write objects through the API server, with the user's permissions. They read the store (jobs, results, logs) from
//! Torc's server, through a port-forward to its Service.

mod forward;
pub mod objects;
mod service;

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub use service::reach_server;

use crate::error::{CliError, ExitStatus};
use crate::settings::backend::ClusterChoice;

/// The timeout of a connection to an API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A cluster with the namespace of the command.
pub struct KubernetesCluster {
    pub client: Client,
    /// The namespace of the command line, or that of the context.
    pub namespace: String,
}

/// Connects to a selected cluster and determines the namespace.
pub async fn find(choice: &ClusterChoice, namespace: Option<&str>) -> Result<KubernetesCluster, CliError> {
    let config = config(choice).await?;
    let namespace = namespace.map_or_else(|| config.default_namespace.clone(), str::to_owned);
    Ok(KubernetesCluster { client: client(config)?, namespace })
}

/// Returns a client of the selected cluster; by default the cluster of the current context, or the cluster of this Pod.
pub async fn connect(choice: &ClusterChoice) -> Result<Client, CliError> {
    client(config(choice).await?)
}

async fn config(choice: &ClusterChoice) -> Result<Config, CliError> {
    let options = KubeConfigOptions { context: choice.context.clone(), ..KubeConfigOptions::default() };
    let found = match &choice.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| {
                CliError::not_found(format!("could not read the kubeconfig {}", path.display())).because(error)
            })?;
            Config::from_custom_kubeconfig(file, &options).await
        }
        None if choice.context.is_some() => Config::from_kubeconfig(&options).await,
        None => {
            return Config::infer().await.map_err(|error| {
                let hint = "name one with --kubeconfig or KUBECONFIG, or create ~/.kube/config";
                CliError::not_found("no kubeconfig found").because(error).hint(hint)
            });
        }
    };
    found.map_err(|error| {
        let which =
            choice.context.as_ref().map_or_else(|| "current context".to_owned(), |name| format!("context '{name}'"));
        let message = format!("the kubeconfig has no usable {which}");
        CliError::not_found(message).because(error).hint("list the contexts with `kubectl config get-contexts`")
    })
}

fn client(mut config: Config) -> Result<Client, CliError> {
    torc_controller::tls::install_cryptography();
    // A command reports an error at once; the user decides whether to retry.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = None;
    Client::try_from(config).map_err(|error| CliError::unexpected("could not use the kubeconfig", error))
}

/// Converts an error on the way to Torc's server; a missing permission gets a hint to the chart's Role.
fn server_access_error(what: &str, error: kube::Error) -> CliError {
    let forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
    let refused = api_error(what, error);
    match forbidden {
        true => refused.hint("ask an administrator for the Role RELEASE-client of its namespace, e.g. `torc-client`"),
        false => refused,
    }
}

/// Converts an error of an API server.
pub fn api_error(what: &str, error: kube::Error) -> CliError {
    let kube::Error::Api(status) = &error else {
        return CliError::new(ExitStatus::Unreachable, format!("could not {what}: the API server does not answer"))
            .because(error)
            .hint("check it with `kubectl get --raw /readyz`");
    };
    // The API server detects an unknown field while it merges, and reports an internal error.
    let is_unknown = status.message.contains("field not declared in schema");
    let kind = match status.code {
        _ if is_unknown => ExitStatus::InvalidInput,
        404 => ExitStatus::NotFound,
        400 | 413 | 422 => ExitStatus::InvalidInput,
        401 | 403 | 409 => ExitStatus::Refused,
        _ => ExitStatus::Unexpected,
    };
    let refused = CliError::new(kind, format!("could not {what}: {}", status.message));
    match status.code {
        _ if is_unknown => refused.hint(
            "the definitions are older than this program: update them with `torc crd install` or the chart torc-crds",
        ),
        // The error of a missing object contains its name; the error of an unknown kind contains no name.
        404 if !names_an_object(status) => refused.hint(
            "the custom resource definitions are missing: install them with `torc crd install` or the chart torc-crds",
        ),
        403 => refused.hint("list your permissions with `kubectl auth can-i --list`"),
        _ => refused,
    }
}

/// Returns whether an error is about an object, and not about a kind that the API server does not know.
pub fn names_an_object(status: &kube::core::Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

#[cfg(test)]
mod tests {

    use super::*;

    fn answer(code: u16, message: &str) -> kube::Error {
        let status = serde_json::json!({ "status": "Failure", "message": message, "reason": "r", "code": code });
        kube::Error::Api(serde_json::from_value(status).expect("a status"))
    }

    #[test]
    fn each_status_of_an_api_server_has_its_exit_code() {
        for (code, expected) in [
            (400, 4),
            (401, 7),
            (403, 7),
            (404, 5),
            (405, 1),
            (409, 7),
            (410, 1),
            (413, 4),
            (422, 4),
            (429, 1),
            (500, 1),
            (503, 1),
        ] {
            let error = api_error("do it", answer(code, "no"));
            assert_eq!((error.kind.code(), error.message.as_str()), (expected, "could not do it: no"), "{code}");
        }
        let unknown = api_error("do it", answer(500, "x: field not declared in schema"));
        assert_eq!(unknown.kind, ExitStatus::InvalidInput);
        let silent = api_error("do it", kube::Error::LinesCodecMaxLineLengthExceeded);
        assert_eq!(silent.kind, ExitStatus::Unreachable);
    }

    #[test]
    fn errors_of_an_api_server_have_hints() {
        let hint = |code, message: &str| api_error("x", answer(code, message)).hints.join("; ");
        assert!(hint(404, "the server could not find the requested resource").contains("torc crd install"));
        assert!(hint(404, "404 page not found").contains("torc crd install"));
        let missing = serde_json::json!({ "status": "Failure", "message": "workflows \"w\" not found", "reason": "NotFound",
            "details": { "name": "w", "kind": "workflows" }, "code": 404 });
        let missing = kube::Error::Api(serde_json::from_value(missing).expect("a status"));
        assert!(api_error("x", missing).hints.is_empty());
        assert!(hint(403, "no").contains("kubectl auth can-i"));
        assert!(hint(500, "field not declared in schema").contains("older"));
        assert!(server_access_error("x", answer(403, "no")).hints.iter().any(|hint| hint.contains("torc-client")));
        assert!(!server_access_error("x", answer(404, "no")).hints.iter().any(|hint| hint.contains("torc-client")));
    }
}
