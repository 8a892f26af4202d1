//! A local port that is forwarded to a Pod through the API server.

use std::net::{Ipv4Addr, SocketAddr};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::server_access_error;
use crate::error::{CliError, ExitStatus};

/// A forwarded port. Dropping it closes the port.
pub struct PortForward {
    address: SocketAddr,
    task: JoinHandle<()>,
}

/// The Pods of a Service and one of their ports.
#[derive(Clone)]
pub struct ForwardTarget {
    pub pods: Api<Pod>,
    /// The label selector of the Service.
    pub selector: String,
    /// The name of the port in the Pod.
    pub port: String,
}

impl PortForward {
    /// Listens on a free loopback port. Connections to the server need its token, also from this machine.
    pub async fn open(target: ForwardTarget) -> Result<Self, CliError> {
        // Errors such as missing permissions appear here, not at the first connection.
        drop(target.stream().await?);
        let failed = |error| CliError::unexpected("could not listen on a port of this machine", error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let target = target.clone();
                tokio::spawn(async move {
                    if let Err(error) = copy(connection, &target).await {
                        tracing::warn!("cannot forward a connection to Torc's server: {}", error.message);
                    }
                });
            }
        });
        Ok(Self { address, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PortForward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn copy(mut connection: TcpStream, target: &ForwardTarget) -> Result<(), CliError> {
    let mut stream = target.stream().await?;
    // Either side may close the connection first, which is no error.
    let _ = tokio::io::copy_bidirectional(&mut connection, &mut stream).await;
    Ok(())
}

impl ForwardTarget {
    /// Opens a stream to a ready Pod. Pods are listed each time, because they may have been replaced.
    async fn stream(&self) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, CliError> {
        let what = "connect to Torc's server through the API server";
        let refused = |error| server_access_error(what, error);
        let pods = self.pods.list(&ListParams::default().labels(&self.selector)).await.map_err(refused)?;
        let ready = pods.items.iter().filter(|pod| is_ready(pod));
        let mut candidates = ready.filter_map(|pod| Some((pod.metadata.name.clone()?, port(pod, &self.port)?)));
        let Some((name, port)) = candidates.next() else {
            return Err(CliError::new(ExitStatus::Unreachable, format!("could not {what}: it has no ready Pod"))
                .hint(format!("list its Pods with `kubectl get pods -A -l {}`", self.selector)));
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
    fn only_a_ready_pod_with_the_port_is_used() {
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
