//! Torc's server inside a cluster: its Service, a token for it, and the certificate to expect. The chart writes on the Service how it is
//! reached.

use std::io::Write as _;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use tempfile::NamedTempFile;

use super::forward::{Forward, ForwardTarget};
use super::{KubernetesCluster, way_refused};
use crate::error::{CliError, ExitStatus};
use crate::settings::Settings;

/// The account of administrators, in the Service's namespace.
const ADMIN: &str = "torc.dev/admin";
/// The name of the accounts that may change what is in their own namespace.
const EDITOR: &str = "torc.dev/editor";
/// The name of the accounts that may read it.
const VIEWER: &str = "torc.dev/viewer";
/// The ConfigMap with the certificate of whoever vouches for the server.
const AUTHORITY: &str = "torc.dev/authority";
/// What those tokens are for.
const AUDIENCE: &str = "torc.dev/audience";
/// Whether the server speaks TLS.
const SCHEME: &str = "torc.dev/scheme";
/// Services of which one may be Torc's.
const LABELS: &str = "app.kubernetes.io/component=server";
/// Where Torc is, if nobody may look for it.
const USUAL: (&str, &str) = ("torc-system", "torc");
/// A command does not take longer; one that follows something asks again.
const TOKEN_SECONDS: i64 = 3_600;

/// What keeps the way open: as long as this lives, the settings lead to the server.
pub struct Held {
    _forward: Forward,
    _authority: Option<NamedTempFile>,
}

/// Settings that lead to the server of a cluster, as if it had been named with `--url`.
pub async fn reach_server(cluster: &KubernetesCluster, settings: &Settings) -> Result<(Settings, Held), CliError> {
    let service = find(cluster, settings.service.as_deref()).await?;
    let about = ServiceStatus::of(&service)?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &about.namespace);
    let (selector, port) = (about.selector.clone(), about.port.clone());
    let forward = Forward::open(ForwardTarget { pods, selector, port }).await?;
    let mut settings = settings.clone();
    settings.url = Some(format!("{}://{}", about.scheme, forward.address()));
    settings.namespace = Some(cluster.namespace.clone());
    if settings.token.is_none() && settings.token_file.is_none() {
        settings.token = Some(token(cluster, &about).await?);
    }
    let mut authority = None;
    if about.scheme == "https" && settings.certificate_sha256.is_none() {
        settings.server_name = Some(format!("{}.{}.svc", about.name, about.namespace));
        if settings.ca_cert.is_none() {
            let file = authority_file(cluster, &about).await?;
            settings.ca_cert = Some(file.path().to_owned());
            authority = Some(file);
        }
    }
    Ok((settings, Held { _forward: forward, _authority: authority }))
}

/// What the Service says of itself.
#[derive(Debug, PartialEq, Eq)]
struct ServiceStatus {
    name: String,
    namespace: String,
    scheme: String,
    selector: String,
    port: String,
    admin: Option<String>,
    editor: Option<String>,
    viewer: Option<String>,
    authority: String,
    audience: String,
}

impl ServiceStatus {
    fn of(service: &Service) -> Result<Self, CliError> {
        let metadata = &service.metadata;
        let noted = |key: &str| metadata.annotations.as_ref().and_then(|notes| notes.get(key)).cloned();
        let (name, namespace) = (metadata.name.clone(), metadata.namespace.clone());
        let spec = service.spec.as_ref();
        let selector = spec.and_then(|spec| spec.selector.as_ref()).into_iter().flatten();
        let selector: Vec<String> = selector.map(|(key, value)| format!("{key}={value}")).collect();
        match (name, namespace, noted(SCHEME)) {
            (Some(name), Some(namespace), Some(scheme)) if !selector.is_empty() => Ok(Self {
                authority: noted(AUTHORITY).unwrap_or_else(|| format!("{name}-client")),
                name,
                namespace,
                scheme,
                selector: selector.join(","),
                port: "api".to_owned(),
                admin: noted(ADMIN),
                editor: noted(EDITOR),
                viewer: noted(VIEWER),
                audience: noted(AUDIENCE).unwrap_or_else(|| "torc".to_owned()),
            }),
            (name, ..) => {
                let message = format!("the Service {} is not one of Torc's chart", name.unwrap_or_default());
                Err(CliError::invalid(message).hint("name the right one: TORC_SERVICE=NAMESPACE/NAME"))
            }
        }
    }

    /// The accounts whose tokens may be asked for, those that allow the most first.
    fn accounts(&self, namespace: &str) -> Vec<(String, String)> {
        let at = |place: &str, name: &Option<String>| name.clone().map(|name| (place.to_owned(), name));
        [at(&self.namespace, &self.admin), at(namespace, &self.editor), at(namespace, &self.viewer)]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// The Service that was named, or the only one there is.
async fn find(cluster: &KubernetesCluster, named: Option<&str>) -> Result<Service, CliError> {
    if let Some(reference) = named {
        let (namespace, name) = reference.split_once('/').unwrap_or((&cluster.namespace, reference));
        let services: Api<Service> = Api::namespaced(cluster.client.clone(), namespace);
        return services.get(name).await.map_err(|error| way_refused(&format!("find the Service {reference}"), error));
    }
    let services: Api<Service> = Api::all(cluster.client.clone());
    match services.list(&ListParams::default().labels(LABELS)).await {
        Ok(found) => only(found.items),
        Err(error) => {
            let usual: Api<Service> = Api::namespaced(cluster.client.clone(), USUAL.0);
            usual.get(USUAL.1).await.map_err(|_| {
                way_refused("look for Torc's Service", error)
                    .hint("name it, then nobody has to look: TORC_SERVICE=NAMESPACE/NAME")
            })
        }
    }
}

fn only(services: Vec<Service>) -> Result<Service, CliError> {
    let mut ours: Vec<Service> = services.into_iter().filter(|service| ServiceStatus::of(service).is_ok()).collect();
    let names: Vec<String> = ours
        .iter()
        .map(|service| {
            let part = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{}/{}", part(&service.metadata.namespace), part(&service.metadata.name))
        })
        .collect();
    match (ours.pop(), ours.is_empty()) {
        (Some(service), true) => Ok(service),
        (None, _) => {
            Err(CliError::not_found("Torc is not installed in this cluster: there is no Service of its chart")
                .hint("see docs/how-to/kubernetes.md, or name the Service: TORC_SERVICE=NAMESPACE/NAME"))
        }
        (Some(_), false) => Err(CliError::usage(format!("there are several servers: {}", names.join(", ")))
            .hint("name one: TORC_SERVICE=NAMESPACE/NAME")),
    }
}

/// A token, good for an hour, of the account that allows the most among those whose tokens this user may have.
async fn token(cluster: &KubernetesCluster, about: &ServiceStatus) -> Result<String, CliError> {
    let mut refused = None;
    for (namespace, account) in about.accounts(&cluster.namespace) {
        match token_of(cluster, about, &namespace, &account).await {
            Ok(token) => return Ok(token),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                refused = Some((namespace, account, status));
            }
            Err(error) => return Err(way_refused(&asking(&namespace, &account), error)),
        }
    }
    let Some((namespace, account, status)) = refused else {
        let message = format!("the server {}/{} gives no tokens to clients", about.namespace, about.name);
        let hint = "name one with --token-file, or install the chart with client.create and tokenReview.enabled";
        return Err(CliError::new(ExitStatus::Refused, message).hint(hint));
    };
    let hint = match status.code {
        404 => format!("an administrator makes it: `kubectl create serviceaccount {account} -n {namespace}`"),
        _ => format!("whoever may view the namespace may have one: the ClusterRole `view`, or `{account}`"),
    };
    let message = format!("could not {}: {}", asking(&namespace, &account), status.message);
    Err(CliError::new(ExitStatus::Refused, message).hint(hint))
}

fn asking(namespace: &str, account: &str) -> String {
    format!("get a token of the account {namespace}/{account}")
}

async fn token_of(
    cluster: &KubernetesCluster,
    about: &ServiceStatus,
    namespace: &str,
    account: &str,
) -> kube::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), namespace);
    let spec = TokenRequestSpec {
        audiences: vec![about.audience.clone()],
        expiration_seconds: Some(TOKEN_SECONDS),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let response = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    Ok(response.status.map(|status| status.token).unwrap_or_default())
}

/// The certificate of whoever vouches for the server, in a file, as other servers' are.
async fn authority_file(cluster: &KubernetesCluster, about: &ServiceStatus) -> Result<NamedTempFile, CliError> {
    let name = &about.authority;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &about.namespace);
    let what = format!("read the server's authority from the ConfigMap {}/{name}", about.namespace);
    let map = maps.get(name).await;
    let map = map.map_err(|error| way_refused(&what, error).hint("or name its certificate with --ca-cert"))?;
    let text = map.data.and_then(|mut data| data.remove("ca.crt")).unwrap_or_default();
    let failed = |error| CliError::unexpected("could not write the authority's certificate", error);
    let mut file = NamedTempFile::new().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn service(name: &str, annotations: serde_json::Value) -> Service {
        let metadata = json!({ "name": name, "namespace": "torc-system", "annotations": annotations });
        serde_json::from_value(json!({ "metadata": metadata, "spec": { "selector": { "b": "2", "a": "1" } } })).unwrap()
    }

    #[test]
    fn the_service_says_how_it_is_reached() {
        let notes = json!({ ADMIN: "torc-admin", VIEWER: "torc-viewer", AUDIENCE: "workflows", SCHEME: "https" });
        let about = ServiceStatus::of(&service("torc", notes)).unwrap();
        assert_eq!((about.selector.as_str(), about.audience.as_str()), ("a=1,b=2", "workflows"));
        assert_eq!((about.scheme.as_str(), about.authority.as_str()), ("https", "torc-client"));
        let account = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        assert_eq!(about.accounts("lab"), [account("torc-system", "torc-admin"), account("lab", "torc-viewer")]);
        assert!(ServiceStatus::of(&service("nginx", json!({}))).is_err());
        assert!(ServiceStatus::of(&Service::default()).is_err());
        let mut aimless = service("torc", json!({ SCHEME: "https" }));
        aimless.spec = None;
        assert!(ServiceStatus::of(&aimless).is_err(), "it leads to no Pod");
    }

    #[test]
    fn one_service_is_taken_and_several_are_a_question() {
        let ours = |name: &str| service(name, json!({ SCHEME: "http" }));
        let other = service("nginx", json!({}));
        assert_eq!(only(vec![other.clone(), ours("torc")]).unwrap().metadata.name.as_deref(), Some("torc"));
        assert_eq!(only(vec![other]).unwrap_err().kind, ExitStatus::NotFound);
        let question = only(vec![ours("a"), ours("b")]).unwrap_err();
        assert!(question.message.contains("torc-system/a, torc-system/b"), "{}", question.message);
    }
}
