//! The settings of the local runner.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use torc_api::failure::Prefetch;
use torc_api::quantity;
use torc_runner::OfflineSettings;

use super::{Layers, parse_count};
use crate::error::CommandError;

/// What the local runner may use, and for how long; what is absent is detected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSettings {
    /// CPUs.
    pub num_cpus: Option<i64>,
    /// Bytes of memory.
    pub memory_bytes: Option<i64>,
    /// GPUs.
    pub num_gpus: Option<i64>,
    /// The queue strategy: so many jobs at once.
    pub max_parallel_jobs: Option<u32>,
    /// Which labelled jobs it may run, sorted.
    pub labels: Vec<String>,
    /// Where job logs go.
    pub output_dir: PathBuf,
    /// Its time is over after this much.
    pub time_limit: Option<Duration>,
    /// Its time is over then.
    pub end_time: Option<Timestamp>,
    /// Time between two calls when nothing waits on the server.
    pub poll_interval: Duration,
    /// The same for a runner in a Slurm allocation.
    pub slurm_poll_interval: Duration,
    /// What that doubles up to while jobs run and nothing else happens.
    pub claim_backoff_max: Duration,
    /// Calls wait on the server for news.
    pub long_poll: bool,
    /// What to do when the server stays away.
    pub offline: OfflineSettings,
    /// It stays while there may be work to come.
    pub persistent: bool,
    /// It works with a server of another version.
    pub skip_version_check: bool,
    /// How far it leases ahead, where that is not left to the workflow.
    pub prefetch: Prefetch,
}

impl RunSettings {
    /// How much time is left.
    pub fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let until = |end: Timestamp| Duration::try_from(end.duration_since(now)).unwrap_or_default();
        self.time_limit.or_else(|| self.end_time.map(until))
    }
}

/// Gives what was said its types.
pub fn resolve(layers: &Layers) -> Result<RunSettings, CommandError> {
    let text = |key: &str| layers.get(key).map(|value| value.text.clone());
    let count = |key: &str, least: i64| layers.parsed(key, |text| parse_count(text, least));
    let small = |key: &str, least: i64| -> Result<Option<i32>, CommandError> {
        Ok(count(key, least)?.map(|number| i32::try_from(number).unwrap_or(i32::MAX)))
    };
    Ok(RunSettings {
        num_cpus: count("client.run.num_cpus", 1)?,
        memory_bytes: layers.parsed("client.run.memory", parse_memory)?,
        num_gpus: count("client.run.num_gpus", 0)?,
        max_parallel_jobs: count("client.run.max_parallel_jobs", 1)?.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        labels: text("client.run.labels").map(|text| parse_labels(&text)).unwrap_or_default(),
        output_dir: text("client.run.output_dir").map(PathBuf::from).unwrap_or_default(),
        time_limit: layers.parsed("client.run.time_limit", parse_duration)?,
        end_time: layers.parsed("client.run.end_time", parse_time)?,
        poll_interval: layers.parsed("client.run.poll_interval", parse_seconds)?.unwrap_or_default(),
        slurm_poll_interval: layers.parsed("client.slurm.poll_interval", parse_seconds)?.unwrap_or_default(),
        claim_backoff_max: layers.parsed("client.run.claim_backoff_max_secs", parse_seconds)?.unwrap_or_default(),
        long_poll: layers.parsed("client.run.long_poll", parse_flag)?.unwrap_or(true),
        offline: offline(layers)?,
        persistent: layers.parsed("client.run.persistent", parse_flag)?.unwrap_or(false),
        skip_version_check: layers.parsed("client.run.skip_version_check", parse_flag)?.unwrap_or(false),
        prefetch: Prefetch {
            enabled: layers.parsed("client.run.prefetch", parse_prefetch)?.flatten(),
            batch_size: small("client.run.prefetch_batch_size", 1)?,
            max_queued: small("client.run.prefetch_max_queued", 0)?,
            refill_threshold: small("client.run.prefetch_refill_threshold", 0)?,
            lease_seconds: small("client.run.lease_seconds", 5)?,
            horizon_seconds: None,
        },
    })
}

fn offline(layers: &Layers) -> Result<OfflineSettings, CommandError> {
    let usual = OfflineSettings::default();
    let ping_interval = layers.parsed("client.offline.drain_ping_interval_secs", parse_seconds)?;
    Ok(OfflineSettings {
        enabled: layers.parsed("client.offline.enabled", parse_flag)?.unwrap_or(usual.enabled),
        ping_interval: ping_interval.unwrap_or(usual.ping_interval),
        retry_window: layers.parsed("client.offline.wait_for_healthy_database_minutes", parse_minutes)?,
    })
}

fn parse_memory(text: &str) -> Result<i64, String> {
    quantity::parse_memory(text).map_err(|error| format!("is no amount of memory: {error}"))
}

fn parse_labels(text: &str) -> Vec<String> {
    let mut labels: Vec<String> =
        text.split(',').map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()).collect();
    labels.sort();
    labels.dedup();
    labels
}

pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = quantity::parse_duration(text).map_err(|error| format!("is no duration: {error}"))?;
    u64::try_from(seconds).map(Duration::from_secs).map_err(|_| "must not be negative".to_owned())
}

/// RFC 3339; without an offset it is UTC, as in everything that Torc prints.
fn parse_time(text: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    text.parse::<Timestamp>()
        .or_else(|error| format!("{text}Z").parse().map_err(|_| error))
        .map_err(|error| format!("is no time such as 2026-11-16T12:00:00Z: {error}"))
}

pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    text.trim()
        .parse::<f64>()
        .ok()
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "must be a number of seconds above 0".to_owned())
}

fn parse_minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.trim().parse::<f64>().ok().filter(|minutes| *minutes >= 0.0);
    minutes
        .and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok())
        .ok_or_else(|| "must be a number of minutes of at least 0".to_owned())
}

pub(super) fn parse_flag(text: &str) -> Result<bool, String> {
    match text.trim() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
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
        assert_eq!(parse_labels(" gpu, fast,,gpu"), ["fast", "gpu"]);
        assert_eq!((parse_prefetch("auto"), parse_prefetch("off")), (Ok(None), Ok(Some(false))));
        assert!(parse_prefetch("perhaps").is_err() && parse_flag("maybe").is_err() && parse_duration("4").is_err());
    }
}
