//! The way to a Kubernetes cluster: the contexts of kubectl.
//!
//! Objects go through the API server, with the rights of whoever asks. What is in the store (jobs, results, logs) comes from Torc's
//! server, through a port-forward to its Service.

mod forward;
pub mod objects;
mod service;

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub use service::reach_server;

use crate::error::{CliError, ExitStatus};
use crate::settings::backend::ClusterChoice;

/// Longer than this nobody waits for one answer of an API server.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster, and the namespace in it that is meant.
pub struct KubernetesCluster {
    /// The API server.
    pub client: Client,
    /// The namespace that was named, or that of the context.
    pub namespace: String,
}

/// Finds a cluster that was chosen.
pub async fn find(choice: &ClusterChoice, namespace: Option<&str>) -> Result<KubernetesCluster, CliError> {
    let config = config(choice).await?;
    let namespace = namespace.map_or_else(|| config.default_namespace.clone(), str::to_owned);
    Ok(KubernetesCluster { client: client(config)?, namespace })
}

/// The API server of a cluster that was chosen; when nothing was said, of the current context, or of the cluster that this Pod is in.
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
                let hint = "name it with --kubeconfig, or set KUBECONFIG, or make ~/.kube/config";
                CliError::not_found("there is no kubeconfig").because(error).hint(hint)
            });
        }
    };
    found.map_err(|error| {
        let which =
            choice.context.as_ref().map_or_else(|| "current context".to_owned(), |name| format!("context '{name}'"));
        let message = format!("the kubeconfig has no usable {which}");
        CliError::not_found(message).because(error).hint("`kubectl config get-contexts` lists them")
    })
}

fn client(mut config: Config) -> Result<Client, CliError> {
    torc_controller::tls::install_cryptography();
    // A command tells at once what went wrong; a person decides whether to try again.
    config.default_retry = false;
    config.connect_timeout = Some(PATIENCE);
    config.read_timeout = None;
    Client::try_from(config).map_err(|error| CliError::unexpected("could not use the kubeconfig", error))
}

/// The same for what leads to Torc's server: the chart has a Role for those who may.
fn way_refused(what: &str, error: kube::Error) -> CliError {
    let forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
    let refused = refusal(what, error);
    match forbidden {
        true => refused.hint("the Role RELEASE-client of its namespace, e.g. `torc-client`, gives the right to do so"),
        false => refused,
    }
}

/// What an API server's refusal means for a command.
pub fn refusal(what: &str, error: kube::Error) -> CliError {
    let kube::Error::Api(status) = &error else {
        return CliError::new(ExitStatus::Unreachable, format!("could not {what}: the API server does not answer"))
            .because(error)
            .hint("`kubectl get --raw /readyz` tells whether it works");
    };
    // The API server finds that out while it merges, and calls it an error of its own.
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
        _ if is_unknown => {
            refused.hint("the definitions are older than this program: `torc crd install`, or the chart torc-crds")
        }
        // The API server names an object that it does not have; of a kind that it does not know it names nothing.
        404 if !names_an_object(status) => refused
            .hint("the custom resource definitions are not installed: `torc crd install`, or the chart torc-crds"),
        403 => refused.hint("`kubectl auth can-i --list` tells what you may do"),
        _ => refused,
    }
}

/// Whether a refusal is about an object, and not about a kind that the API server does not know.
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
    fn each_answer_of_an_api_server_has_its_code() {
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
            let error = refusal("do it", answer(code, "no"));
            assert_eq!((error.kind.code(), error.message.as_str()), (expected, "could not do it: no"), "{code}");
        }
        let unknown = refusal("do it", answer(500, "x: field not declared in schema"));
        assert_eq!(unknown.kind, ExitStatus::InvalidInput);
        let silent = refusal("do it", kube::Error::LinesCodecMaxLineLengthExceeded);
        assert_eq!(silent.kind, ExitStatus::Unreachable);
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let hint = |code, message: &str| refusal("x", answer(code, message)).hints.join("; ");
        assert!(hint(404, "the server could not find the requested resource").contains("torc crd install"));
        assert!(hint(404, "404 page not found").contains("torc crd install"));
        let missing = serde_json::json!({ "status": "Failure", "message": "workflows \"w\" not found", "reason": "NotFound",
            "details": { "name": "w", "kind": "workflows" }, "code": 404 });
        let missing = kube::Error::Api(serde_json::from_value(missing).expect("a status"));
        assert!(refusal("x", missing).hints.is_empty());
        assert!(hint(403, "no").contains("kubectl auth can-i"));
        assert!(hint(500, "field not declared in schema").contains("older"));
        assert!(way_refused("x", answer(403, "no")).hints.iter().any(|hint| hint.contains("torc-client")));
        assert!(!way_refused("x", answer(404, "no")).hints.iter().any(|hint| hint.contains("torc-client")));
    }
}
