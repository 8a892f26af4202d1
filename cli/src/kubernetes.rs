//! The way to a Kubernetes cluster: the contexts of kubectl.

use std::time::Duration;

use kube::config::KubeConfigOptions;
use kube::{Client, Config};

use crate::error::{CommandError, ExitStatus};

/// Longer than this nobody waits for one answer of an API server.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client for a context of the kubeconfig; without a name for the current one, or for the cluster that this Pod is in.
pub async fn connect(context: Option<&str>) -> Result<Client, CommandError> {
    let mut config = match context {
        Some(name) => {
            let options = KubeConfigOptions { context: Some(name.to_owned()), ..KubeConfigOptions::default() };
            Config::from_kubeconfig(&options).await.map_err(|error| {
                let message = format!("the kubeconfig has no usable context '{name}'");
                CommandError::not_found(message).because(error).hint("`kubectl config get-contexts` lists them")
            })?
        }
        None => Config::infer().await.map_err(|error| {
            CommandError::not_found("there is no kubeconfig")
                .because(error)
                .hint("set KUBECONFIG, or make ~/.kube/config")
        })?,
    };
    // A command tells at once what went wrong; a person decides whether to try again.
    config.default_retry = false;
    config.connect_timeout = Some(PATIENCE);
    config.read_timeout = Some(PATIENCE);
    Client::try_from(config).map_err(|error| CommandError::unexpected("could not use the kubeconfig", error))
}

/// What an API server's refusal means for a command.
pub fn refusal(what: &str, error: kube::Error) -> CommandError {
    let kube::Error::Api(status) = &error else {
        return CommandError::new(ExitStatus::Unreachable, format!("could not {what}: the API server does not answer"))
            .because(error)
            .hint("`kubectl get --raw /readyz` tells whether it works");
    };
    let kind = match status.code {
        404 => ExitStatus::NotFound,
        400 | 422 => ExitStatus::InvalidInput,
        401 | 403 | 409 => ExitStatus::Refused,
        _ => ExitStatus::Unexpected,
    };
    CommandError::new(kind, format!("could not {what}: {}", status.message))
}
