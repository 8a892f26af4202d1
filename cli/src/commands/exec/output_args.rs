//! Flags of `torc exec` for measurements and logs, as keys of the document.

use clap::Args;
use serde_json::{Map, Value, json};

#[derive(Debug, Default, Args)]
pub struct OutputArgs {
    /// Detail of the resource measurements of jobs (default: summary)
    #[arg(long, value_name = "HOW", value_parser = MONITOR)]
    pub monitor: Option<String>,
    /// Detail of the resource measurements of this machine (default: off)
    #[arg(long, value_name = "HOW", value_parser = MONITOR)]
    pub monitor_compute_node: Option<String>,
    /// Seconds between samples (default: 10)
    #[arg(short = 'i', long, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(1..))]
    pub sample_interval_seconds: Option<i32>,
    /// Write plots of the measurements at the end
    #[arg(long)]
    pub generate_plots: bool,
    /// Files for the output of jobs (default: separate)
    #[arg(long, value_name = "MODE", value_parser = STDIO)]
    pub stdio: Option<String>,
}

const MONITOR: [&str; 3] = ["off", "summary", "time-series"];
const STDIO: [&str; 6] = ["separate", "combined", "no_stdout", "no_stderr", "none", "packed"];

impl OutputArgs {
    /// Returns the keys of the document; none for flags that are absent.
    pub fn keys(&self) -> Map<String, Value> {
        let mut monitor = Map::new();
        let mut set = |key: &str, value: Option<Value>| {
            value.into_iter().for_each(|value| drop(monitor.insert(key.to_owned(), value)));
        };
        set("jobs", self.monitor.as_deref().map(scope));
        set("compute_node", self.monitor_compute_node.as_deref().map(scope));
        set("sample_interval_seconds", self.sample_interval_seconds.map(Value::from));
        set("generate_plots", self.generate_plots.then_some(Value::Bool(true)));
        let stdio = self.stdio.as_ref().map(|mode| json!({ "stdio": { "mode": mode } }));
        let monitor = (!monitor.is_empty()).then_some(Value::Object(monitor));
        let keys = [("resource_monitor", monitor), ("execution_config", stdio)];
        keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

fn scope(how: &str) -> Value {
    match how {
        "off" => json!({ "enabled": false }),
        how => json!({ "enabled": true, "granularity": how.replace('-', "_") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_in_the_document() {
        assert_eq!(OutputArgs::default().keys(), Map::new());
        let all = OutputArgs {
            monitor: Some("time-series".to_owned()),
            monitor_compute_node: Some("off".to_owned()),
            sample_interval_seconds: Some(2),
            generate_plots: true,
            stdio: Some("no_stderr".to_owned()),
        };
        let expected = json!({
            "resource_monitor": {
                "jobs": { "enabled": true, "granularity": "time_series" },
                "compute_node": { "enabled": false },
                "sample_interval_seconds": 2,
                "generate_plots": true,
            },
            "execution_config": { "stdio": { "mode": "no_stderr" } },
        });
        assert_eq!(Value::Object(all.keys()), expected);
    }
}
