//! The backend of a command: a local store, a server or a cluster. The settings and their origins decide.
//!
//! A cluster is only selected explicitly: by `--context` or `--kubeconfig`, by a setting of the same name, or by calling the
//! program as `kubectl torc`. The presence of a kubeconfig selects nothing.

use std::path::{Path, PathBuf};

use super::{Layers, SettingOrigin};
use crate::error::CliError;

/// A selected cluster. Absent fields follow the kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterChoice {
    pub context: Option<String>,
    pub kubeconfig: Option<PathBuf>,
}

/// The place where workflows are stored and run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The store of this folder.
    #[default]
    Store,
    /// The server that the setting `client.url` names.
    Server,
    /// The Kubernetes cluster that the user selected.
    Cluster(ClusterChoice),
}

impl Backend {
    /// Returns the cluster for a command that needs one; without a choice, the current context of the kubeconfig.
    pub fn choice(&self) -> ClusterChoice {
        match self {
            Self::Cluster(choice) => choice.clone(),
            Self::Store | Self::Server => ClusterChoice::default(),
        }
    }
}

/// The name of the program as a plugin of kubectl.
const PLUGIN: &str = "kubectl-torc";

/// Returns whether the program was called as `kubectl torc`.
pub fn is_plugin(program: Option<&Path>) -> bool {
    program.and_then(Path::file_name).is_some_and(|name| name == PLUGIN)
}

/// Returns the rank of an origin; a lower rank wins.
fn nearness(origin: &SettingOrigin) -> u8 {
    match origin {
        SettingOrigin::Flag => 0,
        SettingOrigin::Environment(_) => 1,
        SettingOrigin::File(_) => 2,
        SettingOrigin::BuiltIn => 3,
    }
}

/// Chooses the backend. The plugin of kubectl uses a cluster unless the command line names a server.
pub fn choose(layers: &Layers, plugin: bool) -> Result<Backend, CliError> {
    let said = |key: &str| layers.get(key).map(|value| nearness(&value.origin));
    let server = said("client.url").filter(|near| !plugin || *near == 0);
    let cluster = said("client.context").into_iter().chain(said("client.kubeconfig")).min();
    let cluster = if plugin { Some(cluster.unwrap_or(1).min(1)) } else { cluster };
    match (server, cluster) {
        (None, None) => Ok(Backend::Store),
        (Some(server), Some(cluster)) if server == cluster => {
            let message = "both a server and a cluster are named";
            Err(CliError::usage(message).hint("remove --url (TORC_API_URL), or remove --context and --kubeconfig"))
        }
        (Some(server), cluster) if cluster.is_none_or(|cluster| server < cluster) => Ok(Backend::Server),
        _ => {
            let text = |key: &str| layers.get(key).map(|value| value.text.clone());
            let kubeconfig = text("client.kubeconfig").map(PathBuf::from);
            Ok(Backend::Cluster(ClusterChoice { context: text("client.context"), kubeconfig }))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn layers(said: &[(&'static str, SettingOrigin)]) -> Layers {
        let mut layers = Layers::default();
        for (key, origin) in said {
            layers.below(key, format!("{key}-value"), origin.clone());
        }
        layers
    }

    fn environment() -> SettingOrigin {
        SettingOrigin::Environment("X".to_owned())
    }

    fn file() -> SettingOrigin {
        SettingOrigin::File("/f".into())
    }

    #[test]
    fn a_cluster_is_only_selected_explicitly() {
        let context =
            || Backend::Cluster(ClusterChoice { context: Some("client.context-value".to_owned()), kubeconfig: None });
        for (said, expected) in [
            (&[][..], Backend::Store),
            (&[("client.url", file())], Backend::Server),
            (&[("client.context", file())], context()),
            (&[("client.url", environment()), ("client.context", SettingOrigin::Flag)], context()),
            (&[("client.url", SettingOrigin::Flag), ("client.context", environment())], Backend::Server),
            (&[("client.url", file()), ("client.context", environment())], context()),
            (
                &[("client.kubeconfig", SettingOrigin::Flag)],
                Backend::Cluster(ClusterChoice { context: None, kubeconfig: Some("client.kubeconfig-value".into()) }),
            ),
        ] {
            assert_eq!(choose(&layers(said), false).unwrap(), expected, "{said:?}");
        }
    }

    #[test]
    fn a_server_and_a_cluster_at_once_are_refused() {
        for origin in [SettingOrigin::Flag, environment(), file()] {
            let both = layers(&[("client.url", origin.clone()), ("client.context", origin)]);
            assert!(choose(&both, false).unwrap_err().message.contains("both a server and a cluster"));
        }
    }

    #[test]
    fn kubectl_torc_uses_the_cluster_of_kubectl() {
        let current = Backend::Cluster(ClusterChoice::default());
        assert_eq!(choose(&layers(&[]), true).unwrap(), current);
        assert_eq!(choose(&layers(&[("client.url", environment())]), true).unwrap(), current);
        assert_eq!(choose(&layers(&[("client.url", SettingOrigin::Flag)]), true).unwrap(), Backend::Server);
        for (program, expected) in
            [("/usr/bin/kubectl-torc", true), ("kubectl-torc", true), ("/usr/bin/torc", false), ("kubectl", false)]
        {
            assert_eq!(is_plugin(Some(Path::new(program))), expected, "{program}");
        }
        assert!(!is_plugin(None));
    }

    #[test]
    fn the_nearest_origin_decides_between_server_and_cluster() {
        let both = |context: SettingOrigin, kubeconfig: SettingOrigin, url: SettingOrigin| {
            choose(
                &layers(&[("client.context", context), ("client.kubeconfig", kubeconfig), ("client.url", url)]),
                false,
            )
        };
        let cluster = Backend::Cluster(ClusterChoice {
            context: Some("client.context-value".to_owned()),
            kubeconfig: Some("client.kubeconfig-value".into()),
        });
        assert_eq!(both(file(), SettingOrigin::Flag, environment()).unwrap(), cluster);
        assert_eq!(both(SettingOrigin::Flag, file(), environment()).unwrap(), cluster);
        assert_eq!(both(file(), file(), environment()).unwrap(), Backend::Server);
        assert!(both(file(), environment(), environment()).is_err());
        let order =
            [SettingOrigin::Flag, environment(), file(), SettingOrigin::BuiltIn].map(|origin| nearness(&origin));
        assert_eq!(order, [0, 1, 2, 3]);
        assert_eq!(cluster.choice().context.as_deref(), Some("client.context-value"));
        assert_eq!(
            (Backend::Store.choice(), Backend::Server.choice()),
            (ClusterChoice::default(), ClusterChoice::default())
        );
        let plugin = choose(&layers(&[("client.context", file()), ("client.url", SettingOrigin::Flag)]), true).unwrap();
        assert_eq!(plugin, Backend::Server, "the command line is nearer than being a plugin");
    }
}
