//! Access to a store: one process owns it at a time, and others attach to the owner over HTTP.

use std::time::{Duration, Instant};

use torc_api::token::Credential;

use super::store_dir::{Lock, ServerInfo, StoreDir};
use crate::client::Client;
use crate::error::{CliError, ExitStatus};
use crate::host::host_name;

/// The longest wait for a lock owner that does not answer. It may be starting or restoring a backup.
const OWNER_TIMEOUT: Duration = Duration::from_secs(15);

/// Access to a store.
#[derive(Debug)]
pub enum StoreAccess {
    /// This process has locked the store.
    Acquired(Lock),
    /// Another process owns the store and answers.
    Attached(Box<ServerInfo>, Box<Client>),
}

/// Locks the store, or connects to its owner.
pub async fn acquire_or_attach(store_dir: &StoreDir, namespace: Option<&str>) -> Result<StoreAccess, CliError> {
    let start = Instant::now();
    loop {
        let info = store_dir.server_info();
        let foreign = info.as_ref().filter(|info| info.host != host_name());
        match store_dir.try_lock()? {
            Some(lock) => {
                // On network file systems, locks of other hosts may be invisible, and two owners would damage the store.
                if let Some(info) = foreign.filter(|_| store_dir.is_on_network()) {
                    return Err(owner_on_other_host(store_dir, info));
                }
                return Ok(StoreAccess::Acquired(lock));
            }
            None => {
                if let Some(info) = foreign.filter(|info| is_loopback(&info.url)) {
                    return Err(owner_on_other_host(store_dir, info));
                }
                if let Some(info) = info
                    && let Some(client) = connect(&info, namespace).await
                {
                    return Ok(StoreAccess::Attached(Box::new(info), Box::new(client)));
                }
            }
        }
        if start.elapsed() > OWNER_TIMEOUT {
            return Err(owner_unresponsive(store_dir));
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

pub async fn connect(info: &ServerInfo, namespace: Option<&str>) -> Option<Client> {
    let word = std::fs::read_to_string(&info.token_file).ok()?;
    // The owner file names the current certificate; the pin in the token file may be of an earlier owner.
    let token = Credential::token_of(word.trim()).to_owned();
    let url = info.url_from_here();
    let client = Client::new(url, Some(token), &info.trust(), namespace.map(str::to_owned)).ok()?;
    client.version().await.is_ok().then_some(client)
}

fn is_loopback(url: &str) -> bool {
    let url = reqwest::Url::parse(url);
    url.is_ok_and(|url| matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost")))
}

fn owner_on_other_host(store_dir: &StoreDir, info: &ServerInfo) -> CliError {
    let message = format!(
        "the store in {} is in use on {} (process {}, since {})",
        store_dir.folder.display(),
        info.host,
        info.pid,
        info.start_time
    );
    CliError::new(ExitStatus::Refused, message)
        .hint(format!("continue there: `ssh {}`, and run torc in this folder", info.host))
        .hint(format!("if that process no longer exists, remove {}", store_dir.folder.join("server.json").display()))
}

fn owner_unresponsive(store_dir: &StoreDir) -> CliError {
    let message =
        format!("the store in {} is locked by another process that does not answer", store_dir.folder.display());
    let error = CliError::new(ExitStatus::Unreachable, message);
    match store_dir.server_info() {
        Some(info) => error.hint(format!("the owner is process {} on {}", info.pid, info.host)),
        None => error.hint("the owner may be starting or restoring a backup; retry in a moment"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn info(store_dir: &StoreDir, host: &str, url: &str) -> ServerInfo {
        ServerInfo {
            host: host.to_owned(),
            pid: 1,
            url: url.to_owned(),
            token_file: store_dir.token_file(),
            start_time: "2026-01-01T00:00:00Z".to_owned(),
            runner: true,
            local_url: None,
            certificate_sha256: None,
            certificate_file: None,
        }
    }

    #[tokio::test]
    async fn a_store_with_a_dead_owner_is_acquired() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().to_owned());
        store_dir.write_server_info(&info(&store_dir, &host_name(), "http://127.0.0.1:1")).unwrap();
        assert!(matches!(acquire_or_attach(&store_dir, None).await.unwrap(), StoreAccess::Acquired(_)));
    }

    #[tokio::test]
    async fn an_owner_on_another_host_is_named() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().to_owned());
        store_dir.write_server_info(&info(&store_dir, "login7", "http://127.0.0.1:1")).unwrap();
        let _held = store_dir.try_lock().unwrap().unwrap();
        let error = acquire_or_attach(&store_dir, None).await.unwrap_err();
        assert_eq!(error.kind, ExitStatus::Refused);
        assert!(error.message.contains("in use on login7 (process 1"), "{}", error.message);
    }

    #[test]
    fn loopback_addresses_are_recognized() {
        assert!(
            is_loopback("http://127.0.0.1:80") && is_loopback("http://[::1]:80") && !is_loopback("http://node1:80")
        );
    }

    #[test]
    fn every_spelling_of_loopback_is_recognized() {
        for (url, expected) in [
            ("http://127.0.0.1:80", true),
            ("https://[::1]:80", true),
            ("http://localhost:80", true),
            ("http://127.0.0.2:80", false),
            ("http://node1", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_loopback(url), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn a_free_lock_on_a_local_disk_is_acquired() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().to_owned());
        // The lock is free: a dead owner on another host cannot use a local disk.
        store_dir.write_server_info(&info(&store_dir, "login7", "http://login7:1")).unwrap();
        assert!(!store_dir.is_on_network(), "a temporary folder is on a local disk");
        assert!(matches!(acquire_or_attach(&store_dir, None).await.unwrap(), StoreAccess::Acquired(_)));
        let error = owner_on_other_host(&store_dir, &info(&store_dir, "login7", "http://login7:1"));
        assert!(error.hints[0].contains("ssh login7") && error.hints[1].contains("server.json"), "{:?}", error.hints);
        assert_eq!(owner_unresponsive(&store_dir).kind, ExitStatus::Unreachable);
    }
}
