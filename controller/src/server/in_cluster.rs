//! A server in a Kubernetes cluster: it reports as not ready until it leads.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use torc_store::{Leader, OpenOptions, Store, StoreError};

use super::{Server, ServerConfig, StartError, bind, certificates, credentials, issuer, limits, listen};
use crate::credentials::ServerTrust;
use crate::engine::{EngineHandle, ShutdownTokens};
use crate::http::{Identities, ReadinessGate};
use crate::kubernetes::{self, Candidate, KubernetesConfig, Readiness, ReviewLists as Lists, Reviews, ServerParts};
use crate::leadership::Leadership;

/// The name under which the readiness lists missing leadership.
const LEADERSHIP: &str = "leadership";
/// Interval between attempts to open a store that another process holds.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn start(config: ServerConfig) -> Result<Server, StartError> {
    let kubernetes = config.kubernetes.clone().unwrap_or_default();
    let (client, impatient) = kubernetes::clients().await.map_err(StartError::Cluster)?;
    let stop = ShutdownTokens::default();
    let certificates = certificates(&config)?;
    let readiness = Readiness::default();
    readiness.add_missing(LEADERSHIP, "the lease has not been read yet");
    let gate = ReadinessGate::new(readiness.clone());
    let socket = bind(config.bind).await?;
    let address = socket.as_ref().and_then(|socket| socket.local_addr().ok());
    let http = match socket {
        Some(socket) => Some(listen(socket, gate.router(), &config, certificates.clone(), &stop.waiting)?),
        None => None,
    };

    let mut election = LeaderElection::new(&kubernetes, impatient, &stop);
    let leader = election.win(&config, &readiness).await;
    let store = open(&config, leader, &readiness).await?;
    let opened =
        EngineHandle::start(store.clone(), limits(&config), Arc::default(), stop.clone(), issuer(&config)).await;
    let opened = opened.map_err(StartError::Load)?;
    readiness.add_missing("definitions", "are being compared");
    readiness.lists();
    readiness.has(LEADERSHIP);

    let credentials =
        credentials(&config, address, ServerTrust { shown: certificates, authority: config.authority.clone() });
    let place = (address, credentials);
    let mut server = Server::assemble(&config, store, opened, place, &election.leadership, stop.clone()).await?;
    server.http = http;
    server.leader_task = election.leader_task;
    let identities = Identities::new(config.token.clone(), issuer(&config));
    let identities = identities.with_metrics(config.metrics_token.clone()).with_reviews(reviews(&kubernetes, &client));
    gate.open(server.app(identities, readiness.clone()));
    let parts = ServerParts {
        engine: server.engine.clone(),
        slurm: server.slurm.clone(),
        client,
        leadership: election.leadership,
        readiness,
        api_url: server.url().to_owned(),
    };
    server.watchers = kubernetes::start(parts, kubernetes, &stop.waiting);
    Ok(server)
}

/// Returns the reviews of service accounts, if an audience is configured.
fn reviews(config: &KubernetesConfig, client: &kube::Client) -> Option<Reviews> {
    let audience = config.audience.clone()?;
    Some(Reviews::new(client.clone(), audience, Lists::of(config)))
}

/// The Lease client of a server that must lead.
struct LeaderElection {
    candidate: Option<Candidate>,
    leadership: Leadership,
    superseded: CancellationToken,
    leader_task: Option<(tokio::task::JoinHandle<()>, CancellationToken)>,
}

impl LeaderElection {
    fn new(config: &KubernetesConfig, client: kube::Client, stop: &ShutdownTokens) -> Self {
        let candidate =
            config.lease.as_deref().map(|lease| Candidate::new(client, &config.namespace, lease, &config.identity));
        Self { candidate, leadership: Leadership::permanent(), superseded: stop.superseded.clone(), leader_task: None }
    }

    /// Waits until this server leads and keeps the lease from then on. A server without a Lease leads at once.
    async fn win(&mut self, config: &ServerConfig, readiness: &Readiness) -> Option<Leader> {
        let mut candidate = self.candidate.take()?;
        let standing_by = |holder: &str| readiness.add_missing(LEADERSHIP, leader_message(holder));
        let (leader, asked) = candidate.win(&config.database, standing_by).await;
        readiness.add_missing(LEADERSHIP, "the store is being opened");
        tracing::info!(epoch = leader.epoch, holder = leader.holder, "leadership acquired");
        self.leadership = Leadership::of_lease(asked, self.superseded.clone());
        let release = CancellationToken::new();
        let leader_task = tokio::spawn(candidate.hold(self.leadership.clone(), release.clone()));
        self.leader_task = Some((leader_task, release));
        Some(leader)
    }
}

/// Returns a message about the leader. The holder is empty when the lease cannot be read.
fn leader_message(holder: &str) -> String {
    if holder.is_empty() { "the leader is unknown".to_owned() } else { format!("{holder} leads") }
}

/// Opens the store. A crashed leader may hold it for a moment, and a frozen one until it is killed: its name in the store
/// identifies it.
async fn open(config: &ServerConfig, leader: Option<Leader>, readiness: &Readiness) -> Result<Store, StartError> {
    let options = OpenOptions { path: config.database.clone(), create: true, leader, ..OpenOptions::default() };
    let mut has_told = false;
    loop {
        match Store::open(options.clone()).await {
            Err(StoreError::Locked { .. }) if options.leader.is_some() => {
                if !std::mem::replace(&mut has_told, true) {
                    let said = held_by(torc_store::last_leader(&config.database).await.unwrap_or_default());
                    tracing::warn!(reason = said, "store is not open yet");
                    readiness.add_missing(LEADERSHIP, said);
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            opened => return opened.map_err(StartError::Store),
        }
    }
}

/// Returns the message about a store that another process keeps writing.
fn held_by(last: Leader) -> String {
    let who = if last.holder.is_empty() { "another process".to_owned() } else { last.holder };
    format!("{who} holds an unfinished write transaction of the store: if it is frozen, delete its Pod or kill it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_stands_by_says_who_leads() {
        assert_eq!(leader_message("torc-1_00ff"), "torc-1_00ff leads");
        assert_eq!(leader_message(""), "the leader is unknown");
    }

    #[test]
    fn the_holder_of_the_store_is_named() {
        let said = held_by(Leader { epoch: 3, holder: "torc-1_00ff".to_owned() });
        assert!(said.starts_with("torc-1_00ff holds an unfinished write") && said.contains("delete its Pod"), "{said}");
        assert!(held_by(Leader::default()).starts_with("another process holds"));
    }

    #[tokio::test]
    async fn service_accounts_are_known_where_an_audience_was_said() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = kube::Config::new(axum::http::Uri::from_static("http://127.0.0.1:1"));
        let client = kube::Client::try_from(config).expect("a client");
        let with = |audience: Option<&str>| KubernetesConfig {
            audience: audience.map(str::to_owned),
            ..KubernetesConfig::default()
        };
        assert!(reviews(&with(None), &client).is_none() && reviews(&with(Some("torc")), &client).is_some());
    }
}
