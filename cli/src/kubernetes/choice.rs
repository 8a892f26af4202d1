//! Whom a command speaks with. Pure: what was said, and by whom, decides.
//!
//! A cluster is only ever chosen in so many words: by `--context` or `--kubeconfig`, by a setting of the same name, or by calling the
//! program as `kubectl torc`. That a kubeconfig lies around on a laptop chooses nothing.

use std::path::{Path, PathBuf};

use crate::args::Command;
use crate::error::CommandError;
use crate::settings::{Layers, Origin};

/// A cluster that was chosen; what is absent is as the kubeconfig says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// A context of the kubeconfig.
    pub context: Option<String>,
    /// The kubeconfig.
    pub kubeconfig: Option<PathBuf>,
}

/// Whom to speak with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// The store of this folder.
    #[default]
    Here,
    /// The server that the setting `client.url` names.
    Server,
    /// A Kubernetes cluster.
    Cluster(Choice),
}

impl Way {
    /// The cluster for a verb that makes sense only with one: whoever says it means one, that of the kubeconfig if no other was named.
    pub fn choice(&self) -> Choice {
        match self {
            Self::Cluster(choice) => choice.clone(),
            Self::Here | Self::Server => Choice::default(),
        }
    }
}

/// The name of the program as a plugin of kubectl.
const PLUGIN: &str = "kubectl-torc";

/// Whether this is `kubectl torc`.
pub fn is_plugin(program: Option<&Path>) -> bool {
    program.and_then(Path::file_name).is_some_and(|name| name == PLUGIN)
}

/// Who is nearer counts more: the command line, then the environment, then files.
fn nearness(origin: &Origin) -> u8 {
    match origin {
        Origin::Flag => 0,
        Origin::Environment(_) => 1,
        Origin::File(_) => 2,
        Origin::BuiltIn => 3,
    }
}

/// Decides by what was said. For kubectl's plugin a cluster is meant, unless a server is named on the command line.
pub fn choose(layers: &Layers, plugin: bool) -> Result<Way, CommandError> {
    let said = |key: &str| layers.get(key).map(|value| nearness(&value.origin));
    let server = said("client.url").filter(|near| !plugin || *near == 0);
    let cluster = said("client.context").into_iter().chain(said("client.kubeconfig")).min();
    let cluster = if plugin { Some(cluster.unwrap_or(1).min(1)) } else { cluster };
    match (server, cluster) {
        (None, None) => Ok(Way::Here),
        (Some(server), Some(cluster)) if server == cluster => {
            let message = "a server and a cluster are named: which one is meant?";
            Err(CommandError::usage(message).hint("leave out --url (TORC_API_URL), or --context and --kubeconfig"))
        }
        (Some(server), cluster) if cluster.is_none_or(|cluster| server < cluster) => Ok(Way::Server),
        _ => {
            let text = |key: &str| layers.get(key).map(|value| value.text.clone());
            let kubeconfig = text("client.kubeconfig").map(PathBuf::from);
            Ok(Way::Cluster(Choice { context: text("client.context"), kubeconfig }))
        }
    }
}

/// What of a cluster a verb needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing: it speaks with nobody, or finds the cluster itself.
    Nothing,
    /// The API server alone.
    Objects,
    /// Torc's server.
    Server,
    /// It is about this machine, and cannot be done in a cluster.
    ThisMachine(&'static str),
}

/// What a verb needs of a cluster.
pub fn reach(command: &Command) -> Reach {
    match command {
        Command::Apply(_)
        | Command::Diff(_)
        | Command::Delete(_)
        | Command::Cancel(_)
        | Command::Suspend(_)
        | Command::Resume(_)
        | Command::Wait(_) => Reach::Objects,
        Command::Retry(args) if args.jobs.is_empty() && !args.changed && !args.dry_run => Reach::Objects,
        Command::Get(args) if args.is_of_objects() && !args.watch => Reach::Objects,
        Command::Run(_) => Reach::ThisMachine("run"),
        Command::Exec(_) => Reach::ThisMachine("exec"),
        Command::Submit(_) => Reach::ThisMachine("submit"),
        Command::Remote(_) => Reach::ThisMachine("remote"),
        Command::Restore(_) => Reach::ThisMachine("restore"),
        Command::Plan(_)
        | Command::Validate(_)
        | Command::Admin(_)
        | Command::Crd(_)
        | Command::Config(_)
        | Command::Completions(_)
        | Command::CopyProgram(_)
        | Command::Reference(_)
        | Command::Unpack(_)
        | Command::Hpc(_)
        | Command::Server(_)
        | Command::RemoteAgent(_)
        | Command::Keeper(_) => Reach::Nothing,
        _ => Reach::Server,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    fn layers(said: &[(&'static str, Origin)]) -> Layers {
        let mut layers = Layers::default();
        for (key, origin) in said {
            layers.below(key, format!("{key}-value"), origin.clone());
        }
        layers
    }

    fn environment() -> Origin {
        Origin::Environment("X".to_owned())
    }

    fn file() -> Origin {
        Origin::File("/f".into())
    }

    #[test]
    fn a_cluster_is_chosen_in_so_many_words() {
        let context = || Way::Cluster(Choice { context: Some("client.context-value".to_owned()), kubeconfig: None });
        for (said, expected) in [
            (&[][..], Way::Here),
            (&[("client.url", file())], Way::Server),
            (&[("client.context", file())], context()),
            (&[("client.url", environment()), ("client.context", Origin::Flag)], context()),
            (&[("client.url", Origin::Flag), ("client.context", environment())], Way::Server),
            (&[("client.url", file()), ("client.context", environment())], context()),
            (
                &[("client.kubeconfig", Origin::Flag)],
                Way::Cluster(Choice { context: None, kubeconfig: Some("client.kubeconfig-value".into()) }),
            ),
        ] {
            assert_eq!(choose(&layers(said), false).unwrap(), expected, "{said:?}");
        }
    }

    #[test]
    fn a_server_and_a_cluster_at_once_are_a_question() {
        for origin in [Origin::Flag, environment(), file()] {
            let both = layers(&[("client.url", origin.clone()), ("client.context", origin)]);
            assert!(choose(&both, false).unwrap_err().message.contains("which one is meant"));
        }
    }

    #[test]
    fn kubectl_torc_means_the_cluster_of_kubectl() {
        let current = Way::Cluster(Choice::default());
        assert_eq!(choose(&layers(&[]), true).unwrap(), current);
        assert_eq!(choose(&layers(&[("client.url", environment())]), true).unwrap(), current);
        assert_eq!(choose(&layers(&[("client.url", Origin::Flag)]), true).unwrap(), Way::Server);
        for (program, expected) in
            [("/usr/bin/kubectl-torc", true), ("kubectl-torc", true), ("/usr/bin/torc", false), ("kubectl", false)]
        {
            assert_eq!(is_plugin(Some(Path::new(program))), expected, "{program}");
        }
        assert!(!is_plugin(None));
    }

    #[test]
    fn what_verbs_need() {
        for (line, expected) in [
            ("torc apply -f a.yaml", Reach::Objects),
            ("torc get workflows", Reach::Objects),
            ("torc get slc", Reach::Objects),
            ("torc get twf/a", Reach::Objects),
            ("torc get workflows -w", Reach::Server),
            ("torc get jobs", Reach::Server),
            ("torc retry a", Reach::Objects),
            ("torc retry a --job b", Reach::Server),
            ("torc retry a --changed", Reach::Server),
            ("torc retry a --dry-run", Reach::Server),
            ("torc logs a", Reach::Server),
            ("torc validate a.yaml", Reach::Nothing),
            ("torc run a.yaml", Reach::ThisMachine("run")),
        ] {
            let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
            assert_eq!(reach(&cli.command), expected, "{line}");
        }
    }

    /// Every command, and what it needs of a cluster.
    #[test]
    fn every_verb_has_its_reach() {
        use clap::CommandFactory as _;
        let (nothing, objects, server) = (Reach::Nothing, Reach::Objects, Reach::Server);
        let table = [
            ("apply -f a", objects),
            ("run a", Reach::ThisMachine("run")),
            ("exec -c a", Reach::ThisMachine("exec")),
            ("plan a", nothing),
            ("diff -f a", objects),
            ("validate a", nothing),
            ("get jobs", server),
            ("get slurmclusters", objects),
            ("describe workflow", server),
            ("explain a", server),
            ("status", server),
            ("logs a", server),
            ("unpack", nothing),
            ("plot", server),
            ("wait", objects),
            ("submit a", Reach::ThisMachine("submit")),
            ("recover", server),
            ("watch", server),
            ("cancel", objects),
            ("suspend", objects),
            ("resume", objects),
            ("retry", objects),
            ("retry --all", objects),
            ("delete a", objects),
            ("workflows export", server),
            ("jobs retry", server),
            ("user-data list", server),
            ("slurm stats", server),
            ("spawn --lineage l --converged", server),
            ("ro-crate export", server),
            ("server", nothing),
            ("runner", server),
            ("remote run a", Reach::ThisMachine("remote")),
            ("hpc list", nothing),
            ("token show", server),
            ("ping", server),
            ("gc --older-than 1d", server),
            ("backup a", server),
            ("restore a", Reach::ThisMachine("restore")),
            ("crd print", nothing),
            ("admin release-finalizers", nothing),
            ("config show", nothing),
            ("completions bash", nothing),
            ("copy-program a", nothing),
            ("keeper", nothing),
            ("remote-agent", nothing),
            ("reference cli", nothing),
        ];
        for (line, expected) in table {
            let cli = Cli::try_parse_from(format!("torc {line}").split_whitespace()).unwrap();
            assert_eq!(reach(&cli.command), expected, "{line}");
        }
        let command = Cli::command();
        let verbs = command.get_subcommands().map(|verb| verb.get_name()).filter(|name| *name != "help");
        for verb in verbs {
            assert!(table.iter().any(|(line, _)| line.split(' ').next() == Some(verb)), "no row for {verb}");
        }
    }

    #[test]
    fn the_nearest_word_about_a_cluster_counts() {
        let both = |context: Origin, kubeconfig: Origin, url: Origin| {
            choose(
                &layers(&[("client.context", context), ("client.kubeconfig", kubeconfig), ("client.url", url)]),
                false,
            )
        };
        let cluster = Way::Cluster(Choice {
            context: Some("client.context-value".to_owned()),
            kubeconfig: Some("client.kubeconfig-value".into()),
        });
        assert_eq!(both(file(), Origin::Flag, environment()).unwrap(), cluster);
        assert_eq!(both(Origin::Flag, file(), environment()).unwrap(), cluster);
        assert_eq!(both(file(), file(), environment()).unwrap(), Way::Server);
        assert!(both(file(), environment(), environment()).is_err());
        let order = [Origin::Flag, environment(), file(), Origin::BuiltIn].map(|origin| nearness(&origin));
        assert_eq!(order, [0, 1, 2, 3]);
        assert_eq!(cluster.choice().context.as_deref(), Some("client.context-value"));
        assert_eq!((Way::Here.choice(), Way::Server.choice()), (Choice::default(), Choice::default()));
        let plugin = choose(&layers(&[("client.context", file()), ("client.url", Origin::Flag)]), true).unwrap();
        assert_eq!(plugin, Way::Server, "the command line is nearer than being a plugin");
    }
}
