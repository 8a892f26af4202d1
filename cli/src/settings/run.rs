//! The settings of the local runner.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use torc_api::failure::Prefetch;
use torc_api::setting::FlagGroup::Runner;
use torc_api::setting::{
    parse_count, parse_duration, parse_memory, parse_minutes, parse_path, parse_seconds, parse_switch, parse_words,
};
use torc_runner::OfflineSettings;

/// Values of the setting `client.run.prefetch`.
const PREFETCH: &[(&str, &str)] = &[
    ("auto", "As the workflow says; it does when it says nothing"),
    ("on", "Whatever the workflow says"),
    ("off", "Never"),
];

torc_api::settings! {
    /// What the local runner may use, and for how long; what is absent is detected.
    pub struct RunSettings {
        /// CPUs of the local runner (detected when absent).
        "client.run.num_cpus" (flag: Some(Runner.flag("num-cpus").checked("N")))
        num_cpus: Option<i64> = parse_count::<i64, 1>;
        /// Memory of the local runner, e.g. `200g` (detected when absent).
        "client.run.memory" (flag: Some(Runner.flag("memory").value("SIZE")))
        memory_bytes: Option<i64> = parse_memory;
        /// GPUs of the local runner (detected when absent).
        "client.run.num_gpus" (flag: Some(Runner.flag("num-gpus").checked("N")))
        num_gpus: Option<i64> = parse_count::<i64, 0>;
        /// Run so many jobs at once, whatever they need.
        "client.run.max_parallel_jobs" (flag: Some(Runner.flag("max-parallel-jobs").checked("N").short('j')))
        max_parallel_jobs: Option<u32> = parse_count::<u32, 1>;
        /// Labels of this machine, with commas between them: jobs with labels only run where all of them are.
        "client.run.labels" (flag: Some(Runner.flag("label").value("LABEL").list()))
        labels: Vec<String> = parse_labels;
        /// Where job logs go.
        "client.run.output_dir" (default: Some("torc_output"), flag: Some(Runner.flag("output-dir").value("FOLDER")))
        output_dir: PathBuf = parse_path;
        /// The local runner leaves after this time, e.g. `4h`.
        "client.run.time_limit" (flag: Some(Runner.flag("time-limit").value("TIME")))
        time_limit: Option<Duration> = parse_duration;
        /// The local runner leaves at this time, e.g. `2026-11-16T12:00:00Z`; a time limit wins.
        "client.run.end_time" (flag: Some(Runner.flag("end-time").value("TIMESTAMP").conflicts(&["client.run.time_limit"])))
        end_time: Option<Timestamp> = parse_time;
        /// Seconds between two calls of the runner when nothing of it waits on the server, and at most between two attempts to reach it.
        "client.run.poll_interval" (
            default: Some("5"),
            flag: Some(Runner.flag("poll-interval").checked("SECONDS").short('p').alias("job-completion-poll-interval").advanced()),
        )
        poll_interval: Duration = parse_seconds;
        /// The same for a runner in a Slurm allocation.
        "client.slurm.poll_interval" (default: Some("30"), flag: Some(Runner.flag("poll-interval").checked("SECONDS")))
        slurm_poll_interval: Duration = parse_seconds;
        /// While jobs run and nothing else happens the wait between two calls doubles up to so many seconds (and never exceeds a third
        /// of the lease).
        "client.run.claim_backoff_max_secs" (
            default: Some("300"),
            flag: Some(Runner.flag("claim-backoff-max-secs").checked("SECONDS").advanced()),
        )
        claim_backoff_max: Duration = parse_seconds;
        /// Calls of the runner wait on the server for news; `false` for proxies that cut long requests.
        "client.run.long_poll" (default: Some("true"), flag: Some(Runner.flag("long-poll").checked("BOOL").advanced()))
        long_poll: bool = parse_switch;
        /// When the server stays away, running jobs end and their results are kept in a journal; `false`: jobs are ended and the runner
        /// leaves.
        "client.offline.enabled" (
            default: Some("true"),
            variable: Some("TORC_CLIENT__OFFLINE__ENABLED"),
            flag: Some(Runner.flag("offline-drain").checked("BOOL").advanced()),
        )
        offline_drain: bool = parse_switch;
        /// Seconds between two looks whether the server is back.
        "client.offline.drain_ping_interval_secs" (
            default: Some("120"),
            variable: Some("TORC_CLIENT__OFFLINE__DRAIN_PING_INTERVAL_SECS"),
            flag: Some(Runner.flag("drain-ping-interval-secs").checked("SECONDS").advanced()),
        )
        drain_ping_interval: Duration = parse_seconds;
        /// Minutes, fractions too, that calls are repeated before that; wins over `compute_node_wait_for_healthy_database_minutes` of
        /// the workflows (20 when nobody says).
        "client.offline.wait_for_healthy_database_minutes" (variable: Some("TORC_CLIENT__OFFLINE__WAIT_FOR_HEALTHY_DATABASE_MINUTES"))
        server_retry_window: Option<Duration> = parse_minutes;
        /// The local runner stays while there may be work to come, however long there is none.
        "client.run.persistent" (default: Some("false"), flag: Some(Runner.flag("persistent").advanced()))
        persistent: bool = parse_switch;
        /// A runner works with a server of another version.
        "client.run.skip_version_check" (default: Some("false"), flag: Some(Runner.flag("skip-version-check").advanced()))
        skip_version_check: bool = parse_switch;
        /// Lease jobs ahead of free resources: `auto` (as the workflow says), `on` or `off`.
        "client.run.prefetch" (
            default: Some("auto"),
            flag: Some(Runner.flag("prefetch").value("WHEN").choices(PREFETCH).advanced()),
        )
        prefetch_enabled: Option<bool> = parse_prefetch;
        /// The most jobs leased in one message (the workflow's when absent).
        "client.run.prefetch_batch_size" (flag: Some(Runner.flag("prefetch-batch-size").checked("N").advanced()))
        prefetch_batch_size: Option<i32> = parse_count::<i32, 1>;
        /// The most jobs that wait in the runner (the workflow's when absent).
        "client.run.prefetch_max_queued" (flag: Some(Runner.flag("prefetch-max-queued").checked("N").advanced()))
        prefetch_max_queued: Option<i32> = parse_count::<i32, 0>;
        /// More jobs are asked for when fewer than these wait (the workflow's when absent).
        "client.run.prefetch_refill_threshold" (flag: Some(Runner.flag("prefetch-refill-threshold").checked("N").advanced()))
        prefetch_refill_threshold: Option<i32> = parse_count::<i32, 0>;
        /// How long this runner may be silent before its leases go to others (the workflow's when absent).
        "client.run.lease_seconds" (flag: Some(Runner.flag("lease-seconds").checked("SECONDS").advanced()))
        lease_seconds: Option<i32> = parse_count::<i32, 5>;
    }
}

impl RunSettings {
    /// How much time is left.
    pub fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let until = |end: Timestamp| Duration::try_from(end.duration_since(now)).unwrap_or_default();
        self.time_limit.or_else(|| self.end_time.map(until))
    }

    /// What to do when the server stays away.
    pub fn offline(&self) -> OfflineSettings {
        OfflineSettings {
            enabled: self.offline_drain,
            ping_interval: self.drain_ping_interval,
            retry_window: self.server_retry_window,
        }
    }

    /// How far it leases ahead, where that is not left to the workflow.
    pub fn prefetch(&self) -> Prefetch {
        Prefetch {
            enabled: self.prefetch_enabled,
            batch_size: self.prefetch_batch_size,
            max_queued: self.prefetch_max_queued,
            refill_threshold: self.prefetch_refill_threshold,
            lease_seconds: self.lease_seconds,
            horizon_seconds: None,
        }
    }
}

/// Labels are a set: sorted, each once.
fn parse_labels(text: &str) -> Result<Vec<String>, String> {
    let mut labels = parse_words(text)?;
    labels.sort();
    labels.dedup();
    Ok(labels)
}

/// RFC 3339; without an offset it is UTC, as in everything that Torc prints.
fn parse_time(text: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    text.parse::<Timestamp>()
        .or_else(|error| format!("{text}Z").parse().map_err(|_| error))
        .map_err(|error| format!("is no time such as 2026-11-16T12:00:00Z: {error}"))
}

fn parse_prefetch(text: &str) -> Result<Option<bool>, String> {
    match text.trim() {
        "auto" => Ok(None),
        "on" | "true" => Ok(Some(true)),
        "off" | "false" => Ok(Some(false)),
        _ => Err("must be auto, on or off".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_a_limit_or_an_end() {
        let now = parse_time("2026-11-16T12:00:00Z").expect("a time");
        let left = |settings: RunSettings| settings.time_left(now).map(|left| left.as_secs());
        assert_eq!(left(RunSettings::default()), None);
        assert_eq!(left(RunSettings { time_limit: Some(Duration::from_secs(5)), ..RunSettings::default() }), Some(5));
        let until =
            |text: &str| RunSettings { end_time: Some(parse_time(text).expect("a time")), ..RunSettings::default() };
        for (text, seconds) in [
            ("2026-11-16T13:00:00", 3_600),
            ("2026-11-16T13:00:00Z", 3_600),
            ("2026-11-16 13:00:00Z", 3_600),
            ("2026-11-16T13:00:00+01:00", 0),
            ("2026-11-16T11:00:00Z", 0),
        ] {
            assert_eq!(left(until(text)), Some(seconds), "{text}");
        }
        assert!(parse_time("tomorrow").is_err());
    }

    #[test]
    fn words() {
        assert_eq!(parse_labels(" gpu, fast,,gpu"), Ok(vec!["fast".to_owned(), "gpu".to_owned()]));
        assert_eq!((parse_prefetch("auto"), parse_prefetch("off")), (Ok(None), Ok(Some(false))));
        assert!(parse_prefetch("perhaps").is_err());
    }

    #[test]
    fn what_is_built_in_is_what_a_runner_does_by_itself() {
        assert_eq!(RunSettings::default().offline(), OfflineSettings::default());
        assert_eq!(RunSettings::default().prefetch(), Prefetch::default());
    }
}
