//! The flags of every verb that runs jobs here: `apply`, `run`, `runner`, `server`. Each is also a setting.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What the local runner may use, and for how long.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Local runner")]
pub struct RunnerArgs {
    /// CPUs for jobs (what this process may use when absent).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub num_cpus: Option<i64>,
    /// Memory for jobs, e.g. `200g` (what this process may use when absent).
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// The same in GiB, as Torc 1.0 spells it.
    #[arg(long, value_name = "GIB", hide = true, conflicts_with = "memory")]
    pub memory_gb: Option<f64>,
    /// GPUs for jobs (what this process may use when absent).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub num_gpus: Option<i64>,
    /// Run so many jobs at once, whatever they need.
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_parallel_jobs: Option<u32>,
    /// A label of this machine: jobs with labels only run where all of them are; may be given several times.
    #[arg(long = "label", value_name = "LABEL")]
    pub labels: Vec<String>,
    /// Where job logs go.
    #[arg(long, value_name = "FOLDER")]
    pub output_dir: Option<PathBuf>,
    /// Leave after this time, e.g. `4h`; jobs that do not fit into what is left are not started.
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<String>,
    /// Leave at this time, e.g. `2026-11-16T12:00:00+01:00`; UTC when no offset is said.
    #[arg(long, value_name = "TIMESTAMP", conflicts_with = "time_limit")]
    pub end_time: Option<String>,
    /// Work with a server of another version.
    #[arg(long, hide_short_help = true)]
    pub skip_version_check: bool,
    /// Seconds between two calls when nothing of the runner waits on the server.
    #[arg(short = 'p', long, alias = "job-completion-poll-interval", value_name = "SECONDS", hide_short_help = true)]
    pub poll_interval: Option<f64>,
    /// While jobs run and nothing else happens the wait between two calls doubles up to so many seconds.
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub claim_backoff_max_secs: Option<f64>,
    /// Calls wait on the server for news; `false` for proxies that cut long requests.
    #[arg(long, value_name = "BOOL", hide_short_help = true)]
    pub long_poll: Option<bool>,
    /// When the server stays away let running jobs end and keep their results; `false`: end them and leave.
    #[arg(long, value_name = "BOOL", hide_short_help = true)]
    pub offline_drain: Option<bool>,
    /// Seconds between two looks whether a server that stayed away is back.
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub drain_ping_interval_secs: Option<f64>,
    /// Stay while there may be work to come, however long there is none.
    #[arg(long, hide_short_help = true)]
    pub persistent: bool,
    /// Lease jobs ahead of free resources: as the workflow says (`auto`), always, or never.
    #[arg(long, value_name = "WHEN", value_enum, hide_short_help = true)]
    pub prefetch: Option<PrefetchWhen>,
    /// The most jobs leased in one message.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(i32).range(1..))]
    pub prefetch_batch_size: Option<i32>,
    /// The most jobs that wait here.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(i32).range(0..))]
    pub prefetch_max_queued: Option<i32>,
    /// Ask for more when fewer than these wait.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(i32).range(0..))]
    pub prefetch_refill_threshold: Option<i32>,
    /// How long this runner may be silent before its leases go to others.
    #[arg(long, value_name = "SECONDS", hide_short_help = true, value_parser = clap::value_parser!(i32).range(5..))]
    pub lease_seconds: Option<i32>,
}

/// Whether jobs are leased ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrefetchWhen {
    /// As the workflow says; it does when it says nothing.
    Auto,
    /// Whatever the workflow says.
    On,
    /// Never.
    Off,
}

impl PrefetchWhen {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl RunnerArgs {
    /// What was typed, by the key of the setting.
    pub fn said(&self) -> Vec<(&'static str, String)> {
        let number = |value: Option<i64>| value.map(|number| number.to_string());
        let seconds = |value: Option<f64>| value.map(|number| number.to_string());
        let small = |value: Option<i32>| value.map(|number| number.to_string());
        let gibibytes = |value: f64| ((value * f64::from(1 << 30)) as i64).to_string();
        let all = [
            ("client.run.num_cpus", number(self.num_cpus)),
            ("client.run.memory", self.memory.clone().or_else(|| self.memory_gb.map(gibibytes))),
            ("client.run.num_gpus", number(self.num_gpus)),
            ("client.run.max_parallel_jobs", number(self.max_parallel_jobs.map(i64::from))),
            ("client.run.labels", (!self.labels.is_empty()).then(|| self.labels.join(","))),
            ("client.run.output_dir", self.output_dir.as_ref().map(|path| path.to_string_lossy().into_owned())),
            ("client.run.time_limit", self.time_limit.clone()),
            ("client.run.end_time", self.end_time.clone()),
            ("client.run.poll_interval", seconds(self.poll_interval)),
            ("client.slurm.poll_interval", seconds(self.poll_interval)),
            ("client.run.claim_backoff_max_secs", seconds(self.claim_backoff_max_secs)),
            ("client.run.long_poll", self.long_poll.map(|flag| flag.to_string())),
            ("client.offline.enabled", self.offline_drain.map(|flag| flag.to_string())),
            ("client.offline.drain_ping_interval_secs", seconds(self.drain_ping_interval_secs)),
            ("client.run.persistent", self.persistent.then(|| "true".to_owned())),
            ("client.run.skip_version_check", self.skip_version_check.then(|| "true".to_owned())),
            ("client.run.prefetch", self.prefetch.map(|when| when.name().to_owned())),
            ("client.run.prefetch_batch_size", small(self.prefetch_batch_size)),
            ("client.run.prefetch_max_queued", small(self.prefetch_max_queued)),
            ("client.run.prefetch_refill_threshold", small(self.prefetch_refill_threshold)),
            ("client.run.lease_seconds", small(self.lease_seconds)),
        ];
        all.into_iter().filter_map(|(key, text)| Some((key, text?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P05
    #[test]
    fn every_flag_about_leasing_ahead_is_a_setting() {
        let args = RunnerArgs {
            prefetch: Some(PrefetchWhen::Off),
            prefetch_batch_size: Some(1),
            prefetch_max_queued: Some(2),
            prefetch_refill_threshold: Some(3),
            lease_seconds: Some(60),
            ..RunnerArgs::default()
        };
        let expected = [
            ("client.run.prefetch", "off"),
            ("client.run.prefetch_batch_size", "1"),
            ("client.run.prefetch_max_queued", "2"),
            ("client.run.prefetch_refill_threshold", "3"),
            ("client.run.lease_seconds", "60"),
        ];
        assert_eq!(args.said(), expected.map(|(key, text)| (key, text.to_owned())));
    }
}
