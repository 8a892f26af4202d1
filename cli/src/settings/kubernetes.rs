//! How `torc server --kubernetes` looks after custom resources.

use std::path::PathBuf;

use torc_controller::{KubernetesConfig, Pool};

use super::{Layers, run};
use crate::error::CommandError;
use crate::host::host_name;

pub(super) fn resolve(layers: &Layers) -> Result<KubernetesConfig, CommandError> {
    let text = |key: &str| layers.get(key).map(|value| value.text.trim().to_owned()).filter(|text| !text.is_empty());
    let list = |key: &str| words(text(key).as_deref().unwrap_or_default());
    Ok(KubernetesConfig {
        identity: text("server.kubernetes.pod_name").unwrap_or_else(process_name),
        namespace: text("server.kubernetes.pod_namespace").unwrap_or_default(),
        lease: text("server.kubernetes.lease"),
        namespaces: list("server.kubernetes.namespaces"),
        sources: layers.parsed("server.kubernetes.sources", run::parse_flag)?.unwrap_or_default(),
        ssh_secrets: text("server.kubernetes.ssh_secrets").map(PathBuf::from),
        audience: text("server.kubernetes.audience"),
        runner_accounts: list("server.kubernetes.runner_accounts"),
        admin_accounts: list("server.kubernetes.admin_accounts"),
        viewer_account: text("server.kubernetes.viewer_account").unwrap_or_default(),
        editor_account: text("server.kubernetes.editor_account").unwrap_or_default(),
        pools: layers.parsed("server.kubernetes.pools", parse_pools)?.unwrap_or_default(),
        working_dir: text("server.kubernetes.working_dir").unwrap_or_default(),
        cleanup_patience: layers.parsed("server.kubernetes.cleanup_seconds", run::parse_seconds)?.unwrap_or_default(),
    })
}

/// Unlike that of any other process that lives: what the lease says of an earlier process of the same name is not waited for.
fn process_name() -> String {
    format!("{}-{}", host_name(), std::process::id())
}

fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn parse_pools(text: &str) -> Result<Vec<Pool>, String> {
    serde_json::from_str(text).map_err(|error| format!("is no list of runner pools: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::Origin;
    use super::*;

    #[test]
    fn variables_of_the_chart_are_understood() {
        let mut layers = Layers::default();
        for (key, text) in [
            ("server.kubernetes.namespaces", " a, b,,"),
            ("server.kubernetes.sources", "true"),
            ("server.kubernetes.runner_accounts", "torc/torc-runner"),
            ("server.kubernetes.lease", ""),
            (
                "server.kubernetes.pools",
                r#"[{"deployment":"torc-cpu","idle":0,"max":4,"limits":{"cpu":"2"},"labels":[],"workflow":""}]"#,
            ),
        ] {
            layers.below(key, text.to_owned(), Origin::BuiltIn);
        }
        let config = resolve(&layers).unwrap();
        assert_eq!(config.namespaces, ["a", "b"]);
        assert!(config.identity.ends_with(&std::process::id().to_string()), "no two processes have the same name");
        assert_eq!((config.sources, config.lease), (true, None), "an empty variable says nothing");
        assert_eq!((config.runner_accounts.len(), config.pools.len(), config.pools[0].max), (1, 1, 4));
        layers = Layers::default();
        layers.below("server.kubernetes.pools", "[{}]".to_owned(), Origin::BuiltIn);
        let error = resolve(&layers).unwrap_err();
        assert!(error.message.contains("is no list of runner pools"), "{}", error.message);
    }
}
