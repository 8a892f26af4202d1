//! Starts a background server that runs applied workflows and exits when it is idle.

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

/// The longest wait for the first response of a new server.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The idle time after which the server exits.
const IDLE_SECONDS: u64 = 30;

/// Starts a background server and waits until it answers, or until a concurrently started one does.
pub async fn start(
    store_dir: &StoreDir,
    settings: &Settings,
    exposure: Exposure,
) -> Result<(ServerInfo, Client), CliError> {
    let failed = |error: std::io::Error| CliError::unexpected("could not start a background server", error);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(store_dir.log_file()).map_err(failed)?;
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
        .args(arguments(store_dir, settings, exposure))
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    if let Some(bind) = bind_to_record(&settings.server, exposure) {
        store_dir.record_bind(&bind);
    }
    let start = Instant::now();
    loop {
        if let Some(info) = store_dir.server_info().filter(|info| info.pid == child.id())
            && let Some(client) = connect(&info, settings.namespace.as_deref()).await
        {
            return Ok((info, client));
        }
        if let Some(status) = child.try_wait().map_err(failed)? {
            // A concurrent command may have started a server, which then owns the store.
            return match acquire_or_attach(store_dir, settings.namespace.as_deref()).await? {
                StoreAccess::Attached(info, client) => Ok((*info, *client)),
                StoreAccess::Acquired(_) => Err(not_started(store_dir, &format!("it exited: {status}"))),
            };
        }
        if start.elapsed() > START_TIMEOUT {
            return Err(not_started(store_dir, "it does not answer"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn not_started(store_dir: &StoreDir, reason: &str) -> CliError {
    CliError::new(crate::error::ExitStatus::Unexpected, format!("could not start a background server: {reason}"))
        .hint(format!("see {}", store_dir.log_file().display()))
}

/// Returns the server's command line. The server inherits the settings of files and variables with the folder and the environment.
fn arguments(store_dir: &StoreDir, settings: &Settings, exposure: Exposure) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["server", "--background", "--with-runner"].map(Into::into).into();
    let mut add = |flag: &str, value: OsString| arguments.extend([flag.into(), value]);
    add("--database", store_dir.database.clone().into_os_string());
    add("--bind", bind_of(&settings.server, exposure).into());
    add("--idle-exit", format!("{IDLE_SECONDS}s").into());
    let typed = settings.layers.flags().filter(|(setting, _)| is_passed_on(setting));
    arguments.extend(as_arguments(typed).into_iter().map(OsString::from));
    arguments
}

/// Returns whether a flag is passed on. Global flags select the backend and the output of this command, and the address is resolved
/// already.
fn is_passed_on(setting: &Setting) -> bool {
    setting.flag.is_some_and(|flag| !matches!(flag.group, FlagGroup::Global | FlagGroup::EmbeddedListener))
}

fn bind_of(server: &ServerSettings, exposure: Exposure) -> String {
    server.embedded_bind.clone().unwrap_or_else(|| exposure.default_bind().to_owned())
}

/// Returns the address that later servers of the store take over. A loopback address that the user did not set is not recorded.
pub fn bind_to_record(server: &ServerSettings, exposure: Exposure) -> Option<String> {
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

    /// Returns the settings of a background server with this command line.
    fn settings_of(words: &[OsString]) -> Settings {
        let line = std::iter::once(OsString::from("torc")).chain(words.iter().cloned());
        let (cli, flags) = cli::parse(line).expect("flags that a server takes");
        assert!(matches!(cli.command, Verb::Server(_)), "a server");
        resolved(flags)
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn every_setting_reaches_the_background_server() {
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
            // A certificate needs its key, and one flag sets both poll intervals.
            let partners = settings::all().filter(|other| {
                other.flag.is_some_and(|other| other.long == flag.long) || flag.requires == Some(other.key)
            });
            for partner in partners {
                flags.below(partner.key, text.to_owned(), settings::SettingOrigin::Flag);
            }
            flags.below(setting.key, text.to_owned(), settings::SettingOrigin::Flag);
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
    fn the_background_server_has_the_same_settings() {
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
    fn an_address_is_recorded_if_it_is_set_or_exposed() {
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
            assert_eq!(bind_to_record(&named(bind), exposure).as_deref(), expected, "{bind:?} {exposure:?}");
        }
    }

    #[test]
    fn the_command_line_of_the_background_server() {
        let store_dir = StoreDir::in_folder("/f".into());
        let line: Vec<String> = arguments(&store_dir, &settings_of(&words("server")), Exposure::ThisMachine)
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let expected = "server --background --with-runner --database /f/torc.db --bind 127.0.0.1:0 --idle-exit 30s";
        assert_eq!(line.join(" "), expected);
    }
}
