//! The settings of a runner. The CLI reads all of them from flags, variables and files. The agent gets them unchanged,
//! and each is read where it is used.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use torc_api::failure::Prefetch;
use torc_api::setting::FlagGroup::Runner;
use torc_api::setting::{
    parse_count, parse_duration, parse_memory, parse_minutes, parse_path, parse_seconds, parse_switch, parse_words,
};

/// Values of the setting `client.run.prefetch`.
const PREFETCH: &[(&str, &str)] =
    &[("auto", "Follow the workflow's setting (default: on)"), ("on", "Always"), ("off", "Never")];

torc_api::settings! {
    /// Limits and behavior of the local runner. Absent resources are detected.
    pub struct RunnerSettings {
        /// CPUs of the local runner (default: detected).
        "client.run.num_cpus" (flag: Some(Runner.flag("num-cpus").checked("N")))
        num_cpus: Option<i64> = parse_count::<i64, 1>;
        /// Memory of the local runner, e.g. `200g` (default: detected).
        "client.run.memory" (flag: Some(Runner.flag("memory").value("SIZE")))
        memory_bytes: Option<i64> = parse_memory;
        /// GPUs of the local runner (default: detected).
        "client.run.num_gpus" (flag: Some(Runner.flag("num-gpus").checked("N")))
        num_gpus: Option<i64> = parse_count::<i64, 0>;
        /// The number of jobs to run at once, regardless of their requirements.
        "client.run.max_parallel_jobs" (flag: Some(Runner.flag("max-parallel-jobs").checked("N").short('j')))
        max_parallel_jobs: Option<u32> = parse_count::<u32, 1>;
        /// Labels of this machine, separated by commas. A job with labels only runs on machines that have all of them.
        "client.run.labels" (flag: Some(Runner.flag("label").value("LABEL").list()))
        labels: Vec<String> = parse_labels;
        /// The folder of job logs.
        "client.run.output_dir" (default: Some("torc_output"), flag: Some(Runner.flag("output-dir").value("FOLDER")))
        output_dir: PathBuf = parse_path;
        /// The time after which the local runner exits, e.g. `4h`.
        "client.run.time_limit" (flag: Some(Runner.flag("time-limit").value("TIME")))
        time_limit: Option<Duration> = parse_duration;
        /// The moment when the local runner exits, e.g. `2026-11-16T12:00:00Z`; a time limit takes precedence.
        "client.run.end_time" (flag: Some(Runner.flag("end-time").value("TIMESTAMP").conflicts(&["client.run.time_limit"])))
        end_time: Option<Timestamp> = parse_time;
        /// Seconds between two syncs of the runner without a long poll, and the longest delay between two attempts to reach the server.
        "client.run.poll_interval" (
            default: Some("5"),
            flag: Some(Runner.flag("poll-interval").checked("SECONDS").short('p').alias("job-completion-poll-interval").advanced()),
        )
        poll_interval: Duration = parse_seconds;
        /// The poll interval of a runner in a Slurm allocation, in seconds.
        "client.slurm.poll_interval" (default: Some("30"), flag: Some(Runner.flag("poll-interval").checked("SECONDS")))
        slurm_poll_interval: Duration = parse_seconds;
        /// The longest delay between two syncs while jobs run and nothing changes, in seconds. The delay doubles up to this value and never
        /// exceeds a third of the lease.
        "client.run.claim_backoff_max_secs" (
            default: Some("300"),
            flag: Some(Runner.flag("claim-backoff-max-secs").checked("SECONDS").advanced()),
        )
        claim_backoff_max: Duration = parse_seconds;
        /// Whether the server delays its response until there is news (long polling); use `false` for proxies that cut long requests.
        "client.run.long_poll" (default: Some("true"), flag: Some(Runner.flag("long-poll").checked("BOOL").advanced()))
        long_poll: bool = parse_switch;
        /// Whether running jobs finish while the server is unreachable, with their results in a journal; with `false`, the runner terminates
        /// them and exits.
        "client.offline.enabled" (
            default: Some("true"),
            variable: Some("TORC_CLIENT__OFFLINE__ENABLED"),
            flag: Some(Runner.flag("offline-drain").checked("BOOL").advanced()),
        )
        offline_drain: bool = parse_switch;
        /// Seconds between two attempts to reach a server that was unreachable.
        "client.offline.drain_ping_interval_secs" (
            default: Some("120"),
            variable: Some("TORC_CLIENT__OFFLINE__DRAIN_PING_INTERVAL_SECS"),
            flag: Some(Runner.flag("drain-ping-interval-secs").checked("SECONDS").advanced()),
        )
        drain_ping_interval: Duration = parse_seconds;
        /// Minutes (fractions are allowed) that the runner retries calls before it goes offline. Overrides
        /// `compute_node_wait_for_healthy_database_minutes` of the workflows (default: 20).
        "client.offline.wait_for_healthy_database_minutes" (variable: Some("TORC_CLIENT__OFFLINE__WAIT_FOR_HEALTHY_DATABASE_MINUTES"))
        server_retry_window: Option<Duration> = parse_minutes;
        /// Keep the local runner while more work may come, however long it is idle.
        "client.run.persistent" (default: Some("false"), flag: Some(Runner.flag("persistent").advanced()))
        persistent: bool = parse_switch;
        /// Let a runner work with a server of another version.
        "client.run.skip_version_check" (default: Some("false"), flag: Some(Runner.flag("skip-version-check").advanced()))
        skip_version_check: bool = parse_switch;
        /// Lease jobs ahead of free resources: `auto` (follow the workflow), `on` or `off`.
        "client.run.prefetch" (
            default: Some("auto"),
            flag: Some(Runner.flag("prefetch").value("WHEN").choices(PREFETCH).advanced()),
        )
        prefetch_enabled: Option<bool> = parse_prefetch;
        /// The maximum number of jobs leased in one message (default: the workflow's setting).
        "client.run.prefetch_batch_size" (flag: Some(Runner.flag("prefetch-batch-size").checked("N").advanced()))
        prefetch_batch_size: Option<i32> = parse_count::<i32, 1>;
        /// The maximum number of jobs that wait in the runner (default: the workflow's setting).
        "client.run.prefetch_max_queued" (flag: Some(Runner.flag("prefetch-max-queued").checked("N").advanced()))
        prefetch_max_queued: Option<i32> = parse_count::<i32, 0>;
        /// The number of waiting jobs below which the runner requests more (default: the workflow's setting).
        "client.run.prefetch_refill_threshold" (flag: Some(Runner.flag("prefetch-refill-threshold").checked("N").advanced()))
        prefetch_refill_threshold: Option<i32> = parse_count::<i32, 0>;
        /// Seconds without contact after which the leases of this runner expire (default: the workflow's setting).
        "client.run.lease_seconds" (flag: Some(Runner.flag("lease-seconds").checked("SECONDS").advanced()))
        lease_seconds: Option<i32> = parse_count::<i32, 5>;
    }
}

impl RunnerSettings {
    /// Returns the time until the runner must exit.
    pub fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let until = |end: Timestamp| Duration::try_from(end.duration_since(now)).unwrap_or_default();
        self.time_limit.or_else(|| self.end_time.map(until))
    }

    /// Returns the prefetch settings; the workflow's apply to absent fields.
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

/// Parses labels into a sorted list without duplicates.
fn parse_labels(text: &str) -> Result<Vec<String>, String> {
    let mut labels = parse_words(text)?;
    labels.sort();
    labels.dedup();
    Ok(labels)
}

/// Parses an RFC 3339 time; without an offset it is UTC, like all times that Torc prints.
fn parse_time(text: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    text.parse::<Timestamp>()
        .or_else(|error| format!("{text}Z").parse().map_err(|_| error))
        .map_err(|error| format!("is not a time such as 2026-11-16T12:00:00Z: {error}"))
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
        let left = |settings: RunnerSettings| settings.time_left(now).map(|left| left.as_secs());
        assert_eq!(left(RunnerSettings::default()), None);
        assert_eq!(
            left(RunnerSettings { time_limit: Some(Duration::from_secs(5)), ..RunnerSettings::default() }),
            Some(5)
        );
        let until = |text: &str| RunnerSettings {
            end_time: Some(parse_time(text).expect("a time")),
            ..RunnerSettings::default()
        };
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
    fn labels_are_sorted_and_prefetch_is_a_choice() {
        assert_eq!(parse_labels(" gpu, fast,,gpu"), Ok(vec!["fast".to_owned(), "gpu".to_owned()]));
        assert_eq!((parse_prefetch("auto"), parse_prefetch("off")), (Ok(None), Ok(Some(false))));
        assert!(parse_prefetch("perhaps").is_err());
    }

    #[test]
    fn prefetch_is_left_to_the_workflow_by_default() {
        assert_eq!(RunnerSettings::default().prefetch(), Prefetch::default());
    }
}
