//! Leaves a server in the background that runs what is applied and ends by itself.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use torc_api::setting::{FlagGroup, Setting};

use super::acquire::{StoreAccess, acquire_or_attach, connect};
use crate::client::Client;
use crate::embedded::listening::Exposure;
use crate::embedded::store_dir::{ServerInfo, StoreDir};
use crate::error::CliError;
use crate::settings::{ServerSettings, Settings, as_arguments};

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// It ends when it has had nothing to do for so many seconds.
const IDLE_SECONDS: u64 = 30;

/// Starts a server in the background and waits until it, or one that was started at the same moment, answers.
pub async fn start(store_dir: &StoreDir, settings: &Settings, who: Exposure) -> Result<(ServerInfo, Client), CliError> {
    let failed = |error: std::io::Error| CliError::unexpected("could not start a server in the background", error);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(store_dir.log_file()).map_err(failed)?;
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
        .args(arguments(store_dir, settings, who))
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    if let Some(bind) = bind_to_note(&settings.server, who) {
        store_dir.note_bind(&bind);
    }
    let start = Instant::now();
    loop {
        if let Some(info) = store_dir.server_info().filter(|info| info.pid == child.id())
            && let Some(client) = connect(&info, settings.namespace.as_deref()).await
        {
            return Ok((info, client));
        }
        if let Some(status) = child.try_wait().map_err(failed)? {
            // Another command may have started one at the same moment: then that one serves the store.
            return match acquire_or_attach(store_dir, settings.namespace.as_deref()).await? {
                StoreAccess::Attached(info, client) => Ok((*info, *client)),
                StoreAccess::Acquired(_) => Err(silent(store_dir, &format!("it ended at once: {status}"))),
            };
        }
        if start.elapsed() > PATIENCE {
            return Err(silent(store_dir, "it does not answer"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn silent(store_dir: &StoreDir, reason: &str) -> CliError {
    CliError::new(crate::error::ExitStatus::Unexpected, format!("could not start a server in the background: {reason}"))
        .hint(format!("see {}", store_dir.log_file().display()))
}

/// Returns the server's command line. It inherits the folder and the environment, and so the settings of files and variables.
fn arguments(store_dir: &StoreDir, settings: &Settings, exposure: Exposure) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["server", "--background", "--with-runner"].map(Into::into).into();
    let mut add = |flag: &str, value: OsString| arguments.extend([flag.into(), value]);
    add("--database", store_dir.database.clone().into_os_string());
    add("--bind", bind_of(&settings.server, exposure).into());
    add("--idle-exit", format!("{IDLE_SECONDS}s").into());
    let typed = settings.layers.flags().filter(|(setting, _)| is_handed_over(setting));
    arguments.extend(as_arguments(typed).into_iter().map(OsString::from));
    arguments
}

/// Flags of every command say whom this command speaks with and how it prints; the address was decided on already.
fn is_handed_over(setting: &Setting) -> bool {
    setting.flag.is_some_and(|flag| !matches!(flag.group, FlagGroup::Global | FlagGroup::EmbeddedListener))
}

fn bind_of(server: &ServerSettings, exposure: Exposure) -> String {
    server.embedded_bind.clone().unwrap_or_else(|| exposure.default_bind().to_owned())
}

/// Returns the address that later servers of the store take over. A loopback address that the user did not set is not recorded.
pub fn bind_to_note(server: &ServerSettings, exposure: Exposure) -> Option<String> {
    let is_decided = server.embedded_bind.is_some() || exposure == Exposure::OtherMachines;
    is_decided.then(|| bind_of(server, exposure))
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::cli::{self, Command as Verb};
    use crate::settings::tests::EXAMPLES;
    use crate::settings::{self, EnvCredentials, Environment, Layers};

    fn resolved(flags: Layers) -> Settings {
        let folder = std::path::Path::new("/folder");
        let environment = Environment { variable: &|_| None, folder, system: std::path::Path::new("/nowhere") };
        let (layers, _) = settings::gather(flags, &environment).expect("settings");
        settings::resolve(&layers, EnvCredentials::default()).expect("settings")
    }

    /// Settings of a command line, as the server in the background would have them.
    fn settings_of(words: &[OsString]) -> Settings {
        let line = std::iter::once(OsString::from("torc")).chain(words.iter().cloned());
        let (cli, flags) = cli::parse(line).expect("flags that a server takes");
        assert!(matches!(cli.command, Verb::Server(_)), "a server");
        resolved(flags)
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    /// Every flag of every command that runs jobs or listens.
    #[test]
    fn every_setting_reaches_a_server_in_the_background() {
        let store_dir = StoreDir::in_folder("/f".into());
        let (mut count, own) = (0, ["server.bind", "client.run.bind", "server.database"]);
        for (key, text) in EXAMPLES {
            let setting = settings::all().find(|setting| setting.key == key).expect("a setting");
            let Some(flag) = setting.flag.filter(|flag| flag.group != FlagGroup::Global) else { continue };
            if own.contains(&key) {
                continue;
            }
            let text = if flag.value.is_none() { "true" } else { text };
            let mut flags = Layers::default();
            // A certificate and its key come together, and one flag sets both intervals.
            let partners = settings::all().filter(|other| {
                other.flag.is_some_and(|other| other.long == flag.long) || flag.requires == Some(other.key)
            });
            for partner in partners {
                flags.below(partner.key, text.to_owned(), settings::Origin::Flag);
            }
            flags.below(setting.key, text.to_owned(), settings::Origin::Flag);
            let found = settings_of(&arguments(&store_dir, &resolved(flags), Exposure::ThisMachine));
            let said = found.layers.get(key).map(|value| value.text.as_str());
            assert_eq!(said, Some(text), "{key}");
            count += 1;
        }
        let is_flag = |setting: &Setting| setting.flag.is_some_and(|flag| flag.group != FlagGroup::Global);
        assert_eq!(
            count + own.len(),
            settings::all().filter(|setting| is_flag(setting)).count(),
            "all have an example"
        );
    }

    #[test]
    fn a_server_in_the_background_has_the_same_settings() {
        let store_dir = StoreDir::in_folder("/f".into());
        let said = "server --num-cpus 1 --memory 2097152 --num-gpus 3 -j 4 --label a --label b --output-dir o --time-limit 5s \
            --poll-interval 6.5 --claim-backoff-max-secs 7 --long-poll false --offline-drain false --drain-ping-interval-secs 8 \
            --persistent --prefetch off --prefetch-batch-size 9 --prefetch-max-queued 10 --prefetch-refill-threshold 11 \
            --lease-seconds 12 --advertise there --tls --tls-cert c --tls-key k --tls-ca a --token-key-file t \
            --admin-token-file i --metrics-token-file m --max-jobs 13";
        let mut wanted = settings_of(&words(said));
        wanted.server.embedded_bind = Some("10.0.0.1:5".to_owned());
        let found = settings_of(&arguments(&store_dir, &wanted, Exposure::ThisMachine));
        assert_eq!(found.run, wanted.run);
        let server = ServerSettings {
            bind: "10.0.0.1:5".to_owned(),
            embedded_bind: None,
            database: Some("/f/torc.db".to_owned()),
            ..wanted.server
        };
        assert_eq!(found.server, server);
        let mut open = settings_of(&words("server --insecure-http --end-time 2026-01-01T00:00:09Z --prefetch on"));
        open.server.embedded_bind = None;
        let found = settings_of(&arguments(&store_dir, &open, Exposure::OtherMachines));
        assert_eq!(found.server.bind, "0.0.0.0:0");
        assert_eq!(found.run, open.run);
        assert!(found.server.insecure_http && !found.server.tls);
    }

    #[test]
    fn an_address_is_noted_where_others_need_it() {
        let named = |bind: Option<&str>| ServerSettings {
            embedded_bind: bind.map(str::to_owned),
            ..settings_of(&words("server")).server
        };
        for (bind, exposure, expected) in [
            (None, Exposure::ThisMachine, None),
            (None, Exposure::OtherMachines, Some("0.0.0.0:0")),
            (Some("127.0.0.1:5"), Exposure::ThisMachine, Some("127.0.0.1:5")),
            (Some("127.0.0.1:5"), Exposure::OtherMachines, Some("127.0.0.1:5")),
        ] {
            assert_eq!(bind_to_note(&named(bind), exposure).as_deref(), expected, "{bind:?} {exposure:?}");
        }
    }

    #[test]
    fn it_is_of_the_background_runs_jobs_and_leaves() {
        let store_dir = StoreDir::in_folder("/f".into());
        let line: Vec<String> = arguments(&store_dir, &settings_of(&words("server")), Exposure::ThisMachine)
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let expected = "server --background --with-runner --database /f/torc.db --bind 127.0.0.1:0 --idle-exit 30s";
        assert_eq!(line.join(" "), expected);
    }
}
