//! Torc's server inside a cluster: its Service, a token for it, and its CA certificate. The chart describes the server in annotations of
//! the Service.

use std::io::Write as _;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use tempfile::NamedTempFile;

use super::forward::{ForwardTarget, PortForward};
use super::{KubernetesCluster, server_access_error};
use crate::error::{CliError, ExitStatus};
use crate::settings::Settings;

/// The annotation with the administrators' account, which is in the Service's namespace.
const ADMIN: &str = "torc.dev/admin";
/// The annotation with the name of the accounts that may change workflows of their own namespace.
const EDITOR: &str = "torc.dev/editor";
/// The annotation with the name of the accounts that may read workflows of their own namespace.
const VIEWER: &str = "torc.dev/viewer";
/// The annotation with the name of the ConfigMap that contains the server's CA certificate.
const AUTHORITY: &str = "torc.dev/authority";
/// The annotation with the audience of the accounts' tokens.
const AUDIENCE: &str = "torc.dev/audience";
/// The annotation with the scheme of the server's URL.
const SCHEME: &str = "torc.dev/scheme";
/// The label selector of the Service.
const LABELS: &str = "app.kubernetes.io/component=server";
/// The default namespace and name of the Service, for users who may not list Services.
const DEFAULT_SERVICE: (&str, &str) = ("torc-system", "torc");
/// The lifetime of a token: longer than most commands. A command that follows a workflow requests another one.
const TOKEN_LIFETIME_SECONDS: i64 = 3_600;

/// The resources behind a connection: the settings from [`reach_server`] are valid until this is dropped.
pub struct ServerAccess {
    _forward: PortForward,
    _authority: Option<NamedTempFile>,
}

/// Returns settings that lead to the server of a cluster, as if `--url` had named it.
pub async fn reach_server(
    cluster: &KubernetesCluster,
    settings: &Settings,
) -> Result<(Settings, ServerAccess), CliError> {
    let service = find(cluster, settings.service.as_deref()).await?;
    let about = ServiceInfo::of(&service)?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &about.namespace);
    let (selector, port) = (about.selector.clone(), about.port.clone());
    let forward = PortForward::open(ForwardTarget { pods, selector, port }).await?;
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
    Ok((settings, ServerAccess { _forward: forward, _authority: authority }))
}

/// The annotations and the selector of the Service.
#[derive(Debug, PartialEq, Eq)]
struct ServiceInfo {
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

impl ServiceInfo {
    fn of(service: &Service) -> Result<Self, CliError> {
        let metadata = &service.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let (name, namespace) = (metadata.name.clone(), metadata.namespace.clone());
        let spec = service.spec.as_ref();
        let selector = spec.and_then(|spec| spec.selector.as_ref()).into_iter().flatten();
        let selector: Vec<String> = selector.map(|(key, value)| format!("{key}={value}")).collect();
        match (name, namespace, annotation(SCHEME)) {
            (Some(name), Some(namespace), Some(scheme)) if !selector.is_empty() => Ok(Self {
                authority: annotation(AUTHORITY).unwrap_or_else(|| format!("{name}-client")),
                name,
                namespace,
                scheme,
                selector: selector.join(","),
                port: "api".to_owned(),
                admin: annotation(ADMIN),
                editor: annotation(EDITOR),
                viewer: annotation(VIEWER),
                audience: annotation(AUDIENCE).unwrap_or_else(|| "torc".to_owned()),
            }),
            (name, ..) => {
                let message = format!("the Service {} was not created by Torc's chart", name.unwrap_or_default());
                Err(CliError::invalid(message).hint("set TORC_SERVICE=NAMESPACE/NAME to the Service of Torc"))
            }
        }
    }

    /// Returns the accounts to request tokens of, those with the most permissions first.
    fn accounts(&self, namespace: &str) -> Vec<(String, String)> {
        let at = |namespace: &str, name: &Option<String>| name.clone().map(|name| (namespace.to_owned(), name));
        [at(&self.namespace, &self.admin), at(namespace, &self.editor), at(namespace, &self.viewer)]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Finds the named Service, or the only Service of Torc's chart.
async fn find(cluster: &KubernetesCluster, named: Option<&str>) -> Result<Service, CliError> {
    if let Some(reference) = named {
        let (namespace, name) = reference.split_once('/').unwrap_or((&cluster.namespace, reference));
        let services: Api<Service> = Api::namespaced(cluster.client.clone(), namespace);
        return services
            .get(name)
            .await
            .map_err(|error| server_access_error(&format!("find the Service {reference}"), error));
    }
    let services: Api<Service> = Api::all(cluster.client.clone());
    match services.list(&ListParams::default().labels(LABELS)).await {
        Ok(found) => only(found.items),
        Err(error) => {
            let services: Api<Service> = Api::namespaced(cluster.client.clone(), DEFAULT_SERVICE.0);
            services.get(DEFAULT_SERVICE.1).await.map_err(|_| {
                server_access_error("find Torc's Service", error).hint("name the Service: TORC_SERVICE=NAMESPACE/NAME")
            })
        }
    }
}

fn only(services: Vec<Service>) -> Result<Service, CliError> {
    let mut ours: Vec<Service> = services.into_iter().filter(|service| ServiceInfo::of(service).is_ok()).collect();
    let names: Vec<String> = ours
        .iter()
        .map(|service| {
            let part = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{}/{}", part(&service.metadata.namespace), part(&service.metadata.name))
        })
        .collect();
    match (ours.pop(), ours.is_empty()) {
        (Some(service), true) => Ok(service),
        (None, _) => Err(CliError::not_found("Torc is not installed in this cluster: no Service of its chart found")
            .hint("see docs/how-to/kubernetes.md, or name the Service: TORC_SERVICE=NAMESPACE/NAME")),
        (Some(_), false) => Err(CliError::usage(format!("the cluster has several Torc servers: {}", names.join(", ")))
            .hint("name one: TORC_SERVICE=NAMESPACE/NAME")),
    }
}

/// Requests a token of the account with the most permissions among those that the user may act as.
async fn token(cluster: &KubernetesCluster, about: &ServiceInfo) -> Result<String, CliError> {
    let mut refused = None;
    for (namespace, account) in about.accounts(&cluster.namespace) {
        match token_of(cluster, about, &namespace, &account).await {
            Ok(token) => return Ok(token),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                refused = Some((namespace, account, status));
            }
            Err(error) => return Err(server_access_error(&token_request(&namespace, &account), error)),
        }
    }
    let Some((namespace, account, status)) = refused else {
        let message =
            format!("the server {}/{} does not accept tokens of service accounts", about.namespace, about.name);
        let hint = "name a token with --token-file, or install the chart with client.create and tokenReview.enabled";
        return Err(CliError::new(ExitStatus::Refused, message).hint(hint));
    };
    let hint = match status.code {
        404 => format!("ask an administrator to run `kubectl create serviceaccount {account} -n {namespace}`"),
        _ => format!("ask an administrator for the ClusterRole `view` of the namespace, or for `{account}`"),
    };
    let message = format!("could not {}: {}", token_request(&namespace, &account), status.message);
    Err(CliError::new(ExitStatus::Refused, message).hint(hint))
}

fn token_request(namespace: &str, account: &str) -> String {
    format!("get a token of the account {namespace}/{account}")
}

async fn token_of(
    cluster: &KubernetesCluster,
    about: &ServiceInfo,
    namespace: &str,
    account: &str,
) -> kube::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), namespace);
    let spec = TokenRequestSpec {
        audiences: vec![about.audience.clone()],
        expiration_seconds: Some(TOKEN_LIFETIME_SECONDS),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let response = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    Ok(response.status.map(|status| status.token).unwrap_or_default())
}

/// Writes the server's CA certificate to a temporary file, for the setting `client.ca_cert`.
async fn authority_file(cluster: &KubernetesCluster, about: &ServiceInfo) -> Result<NamedTempFile, CliError> {
    let name = &about.authority;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &about.namespace);
    let what = format!("read the server's CA certificate from the ConfigMap {}/{name}", about.namespace);
    let map = maps.get(name).await;
    let map = map.map_err(|error| server_access_error(&what, error).hint("or name a CA certificate with --ca-cert"))?;
    let text = map.data.and_then(|mut data| data.remove("ca.crt")).unwrap_or_default();
    let failed = |error| CliError::unexpected("could not write the CA certificate to a temporary file", error);
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
    fn annotations_describe_the_server() {
        let notes = json!({ ADMIN: "torc-admin", VIEWER: "torc-viewer", AUDIENCE: "workflows", SCHEME: "https" });
        let about = ServiceInfo::of(&service("torc", notes)).unwrap();
        assert_eq!((about.selector.as_str(), about.audience.as_str()), ("a=1,b=2", "workflows"));
        assert_eq!((about.scheme.as_str(), about.authority.as_str()), ("https", "torc-client"));
        let account = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        assert_eq!(about.accounts("lab"), [account("torc-system", "torc-admin"), account("lab", "torc-viewer")]);
        assert!(ServiceInfo::of(&service("nginx", json!({}))).is_err());
        assert!(ServiceInfo::of(&Service::default()).is_err());
        let mut aimless = service("torc", json!({ SCHEME: "https" }));
        aimless.spec = None;
        assert!(ServiceInfo::of(&aimless).is_err(), "a Service without a selector");
    }

    #[test]
    fn several_services_are_ambiguous() {
        let ours = |name: &str| service(name, json!({ SCHEME: "http" }));
        let other = service("nginx", json!({}));
        assert_eq!(only(vec![other.clone(), ours("torc")]).unwrap().metadata.name.as_deref(), Some("torc"));
        assert_eq!(only(vec![other]).unwrap_err().kind, ExitStatus::NotFound);
        let question = only(vec![ours("a"), ours("b")]).unwrap_err();
        assert!(question.message.contains("torc-system/a, torc-system/b"), "{}", question.message);
    }
}
