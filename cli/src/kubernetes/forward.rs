//! A port of this machine that leads into a Pod, through the API server.

use std::net::{Ipv4Addr, SocketAddr};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::way_refused;
use crate::error::{CliError, ExitStatus};

/// The port; it is closed when this is dropped.
pub struct Forward {
    address: SocketAddr,
    task: JoinHandle<()>,
}

/// Which Pods, and which of their ports.
#[derive(Clone)]
pub struct ForwardTarget {
    /// The Pods of the Service's namespace.
    pub pods: Api<Pod>,
    /// The Service's selector.
    pub selector: String,
    /// The name of the port in the Pod.
    pub port: String,
}

impl Forward {
    /// Begins to listen. Only a process of this machine can come in, and it needs the server's token like everybody else.
    pub async fn open(target: ForwardTarget) -> Result<Self, CliError> {
        // What stands in the way is told at once, by its name.
        drop(target.stream().await?);
        let failed = |error| CliError::unexpected("could not listen on a port of this machine", error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let target = target.clone();
                tokio::spawn(async move {
                    if let Err(error) = carry(connection, &target).await {
                        tracing::warn!("{}", error.message);
                    }
                });
            }
        });
        Ok(Self { address, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut connection: TcpStream, target: &ForwardTarget) -> Result<(), CliError> {
    let mut stream = target.stream().await?;
    // One of both sides goes first; that is no news.
    let _ = tokio::io::copy_bidirectional(&mut connection, &mut stream).await;
    Ok(())
}

impl ForwardTarget {
    /// A way into a Pod. It is looked for anew each time: it may have been replaced meanwhile.
    async fn stream(&self) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, CliError> {
        let what = "reach Torc's server through the API server";
        let refused = |error| way_refused(what, error);
        let pods = self.pods.list(&ListParams::default().labels(&self.selector)).await.map_err(refused)?;
        let ready = pods.items.iter().filter(|pod| is_ready(pod));
        let mut places = ready.filter_map(|pod| Some((pod.metadata.name.clone()?, port(pod, &self.port)?)));
        let Some((name, port)) = places.next() else {
            return Err(CliError::new(ExitStatus::Unreachable, format!("could not {what}: none of its Pods is ready"))
                .hint(format!("`kubectl get pods -A -l {}` shows them", self.selector)));
        };
        let mut forwarder = self.pods.portforward(&name, &[port]).await.map_err(refused)?;
        forwarder.take_stream(port).ok_or_else(|| CliError::new(ExitStatus::Unreachable, format!("could not {what}")))
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ready = |kind: &str| conditions.clone().any(|condition| condition.type_ == kind && condition.status == "True");
    pod.metadata.deletion_timestamp.is_none() && ready("Ready")
}

fn port(pod: &Pod, name: &str) -> Option<u16> {
    let containers = pod.spec.as_ref()?.containers.iter();
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(name))?;
    u16::try_from(port.container_port).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_ready_has_the_port() {
        let pod = |status: &str, ending: bool| -> Pod {
            let mut value = json!({
                "metadata": { "name": "p" },
                "spec": { "containers": [{ "name": "c", "ports": [{ "name": "api", "containerPort": 7421 }] }] },
                "status": { "conditions": [{ "type": "Ready", "status": status }] },
            });
            if ending {
                value["metadata"]["deletionTimestamp"] = json!("2026-11-16T12:00:00Z");
            }
            serde_json::from_value(value).unwrap()
        };
        for (status, ending, expected) in [("True", false, true), ("False", false, false), ("True", true, false)] {
            assert_eq!(is_ready(&pod(status, ending)), expected, "{status} {ending}");
        }
        assert_eq!(port(&pod("True", false), "api"), Some(7421));
        assert_eq!(port(&pod("True", false), "other"), None);
        assert!(!is_ready(&Pod::default()));
    }
}
