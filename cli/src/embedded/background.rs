//! Leaves a server in the background that runs what is applied and ends by itself.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::acquire::{StoreAccess, acquire_or_attach, connect};
use crate::client::Client;
use crate::embedded::listening::Exposure;
use crate::embedded::store_dir::{ServerInfo, StoreDir};
use crate::error::CommandError;
use crate::settings::{RunSettings, ServerSettings, Settings};

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// It ends when it has had nothing to do for so many seconds.
const IDLE_SECONDS: u64 = 30;

/// Starts a server in the background and waits until it, or one that was started at the same moment, answers.
pub async fn start(
    store_dir: &StoreDir,
    settings: &Settings,
    who: Exposure,
) -> Result<(ServerInfo, Client), CommandError> {
    let failed = |error: std::io::Error| CommandError::unexpected("could not start a server in the background", error);
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

fn silent(store_dir: &StoreDir, reason: &str) -> CommandError {
    CommandError::new(
        crate::error::ExitStatus::Unexpected,
        format!("could not start a server in the background: {reason}"),
    )
    .hint(format!("see {}", store_dir.log_file().display()))
}

fn arguments(store_dir: &StoreDir, settings: &Settings, exposure: Exposure) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["server", "--background", "--with-runner"].map(Into::into).into();
    let mut add = |flag: &str, value: OsString| arguments.extend([flag.into(), value]);
    add("--database", store_dir.database.clone().into_os_string());
    for (flag, value) in listen_flags(&settings.server, exposure) {
        add(flag, value);
    }
    add("--idle-exit", format!("{IDLE_SECONDS}s").into());
    for (flag, value) in runner_flags(&settings.run) {
        add(flag, value);
    }
    let switches = [
        ("--persistent", settings.run.persistent),
        ("--tls", settings.server.tls),
        ("--insecure-http", settings.server.insecure_http),
    ];
    arguments.extend(switches.into_iter().filter(|(_, on)| *on).map(|(flag, _)| flag.into()));
    arguments
}

fn bind_of(server: &ServerSettings, exposure: Exposure) -> String {
    server.embedded_bind.clone().unwrap_or_else(|| exposure.default_bind().to_owned())
}

/// Returns the address that later servers of the store take over. A loopback address that the user did not set is not recorded.
pub fn bind_to_note(server: &ServerSettings, exposure: Exposure) -> Option<String> {
    let is_decided = server.embedded_bind.is_some() || exposure == Exposure::OtherMachines;
    is_decided.then(|| bind_of(server, exposure))
}

/// Where it listens, as flags with their values.
fn listen_flags(server: &ServerSettings, exposure: Exposure) -> Vec<(&'static str, OsString)> {
    let bind = bind_of(server, exposure);
    let mut flags: Vec<(&str, OsString)> = vec![("--bind", bind.into())];
    flags.extend(server.advertise.as_ref().map(|advertise| ("--advertise", advertise.into())));
    if let Some(files) = &server.certificate {
        flags.push(("--tls-cert", files.certificate.clone().into_os_string()));
        flags.push(("--tls-key", files.key.clone().into_os_string()));
    }
    flags.extend(server.token_key_file.as_ref().map(|path| ("--token-key-file", path.into())));
    flags
}

/// Every setting of a runner as a flag with its value.
fn runner_flags(run: &RunSettings) -> Vec<(&'static str, OsString)> {
    let small = |number: Option<i32>| number.map(i64::from);
    let numbers = [
        ("--num-cpus", run.num_cpus),
        ("--memory", run.memory_bytes),
        ("--num-gpus", run.num_gpus),
        ("--max-parallel-jobs", run.max_parallel_jobs.map(i64::from)),
        ("--prefetch-batch-size", small(run.prefetch.batch_size)),
        ("--prefetch-max-queued", small(run.prefetch.max_queued)),
        ("--prefetch-refill-threshold", small(run.prefetch.refill_threshold)),
        ("--lease-seconds", small(run.prefetch.lease_seconds)),
    ];
    let texts = [
        ("--time-limit", run.time_limit.map(|limit| format!("{}s", limit.as_secs()))),
        ("--end-time", run.end_time.filter(|_| run.time_limit.is_none()).map(|end| end.to_string())),
        ("--prefetch", run.prefetch.enabled.map(|on| if on { "on" } else { "off" }.to_owned())),
        ("--poll-interval", Some(run.poll_interval.as_secs_f64().to_string())),
        ("--claim-backoff-max-secs", Some(run.claim_backoff_max.as_secs_f64().to_string())),
        ("--long-poll", Some(run.long_poll.to_string())),
        ("--offline-drain", Some(run.offline.enabled.to_string())),
        ("--drain-ping-interval-secs", Some(run.offline.ping_interval.as_secs_f64().to_string())),
    ];
    let mut flags: Vec<(&str, OsString)> =
        numbers.into_iter().filter_map(|(flag, number)| Some((flag, number?.to_string().into()))).collect();
    flags.extend(texts.into_iter().filter_map(|(flag, text)| Some((flag, text?.into()))));
    flags.extend(run.labels.iter().map(|label| ("--label", label.into())));
    flags.push(("--output-dir", run.output_dir.clone().into_os_string()));
    flags
}

#[cfg(test)]
mod tests {

    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command as Verb};
    use crate::settings::{self, Handed, Layers, Surroundings};

    /// Settings of a command line, as the server in the background would have them.
    fn settings_of(words: &[OsString]) -> Settings {
        let line = std::iter::once(OsString::from("torc")).chain(words.iter().cloned());
        let cli = Cli::try_parse_from(line).expect("flags that a server takes");
        let Verb::Server(args) = &cli.command else { panic!("a server") };
        let mut flags = settings::flags(&cli.global, Some(&args.runner));
        args.add_flags(&mut flags);
        let folder = std::path::Path::new("/folder");
        let surroundings = Surroundings { variable: &|_| None, folder, system: std::path::Path::new("/nowhere") };
        let (layers, _): (Layers, _) = settings::gather(flags, &surroundings).expect("settings");
        settings::resolve(&layers, Handed::default()).expect("settings")
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_server_in_the_background_has_the_same_settings() {
        let store_dir = StoreDir::in_folder("/f".into());
        let said = "server --num-cpus 1 --memory 2097152 --num-gpus 3 -j 4 --label a --label b --output-dir o --time-limit 5s \
            --poll-interval 6.5 --claim-backoff-max-secs 7 --long-poll false --offline-drain false --drain-ping-interval-secs 8 \
            --persistent --prefetch off --prefetch-batch-size 9 --prefetch-max-queued 10 --prefetch-refill-threshold 11 \
            --lease-seconds 12 --advertise there --tls --tls-cert c --tls-key k --token-key-file t";
        let mut wanted = settings_of(&words(said));
        wanted.server.embedded_bind = Some("10.0.0.1:5".to_owned());
        let found = settings_of(&arguments(&store_dir, &wanted, Exposure::ThisMachine));
        assert_eq!(found.run, wanted.run);
        assert_eq!(found.server.bind, "10.0.0.1:5");
        assert_eq!(found.server.database.as_deref(), Some("/f/torc.db"));
        let same = |server: &ServerSettings| {
            (
                server.advertise.clone(),
                server.certificate.clone(),
                server.token_key_file.clone(),
                server.tls,
                server.insecure_http,
            )
        };
        assert_eq!(same(&found.server), same(&wanted.server));
        let mut open = settings_of(&words("server --insecure-http --end-time 2026-01-01T00:00:09Z --prefetch on"));
        open.server.embedded_bind = None;
        let found = settings_of(&arguments(&store_dir, &open, Exposure::OtherMachines));
        assert_eq!(found.server.bind, "0.0.0.0:0");
        // One flag sets both intervals, and the second one is for runners in allocations.
        assert_eq!(RunSettings { slurm_poll_interval: open.run.slurm_poll_interval, ..found.run }, open.run);
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
        let expected = "server --background --with-runner --database /f/torc.db --bind 127.0.0.1:0 --idle-exit 30s --poll-interval 5 \
            --claim-backoff-max-secs 300 --long-poll true --offline-drain true --drain-ping-interval-secs 120 --output-dir torc_output";
        assert_eq!(line.join(" "), expected);
    }
}
