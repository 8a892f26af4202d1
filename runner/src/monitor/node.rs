//! Usage of the whole node.

use std::fs;

use super::NodeSample;
use crate::procfs;

/// Reads the counters from `/proc`.
pub fn read() -> Option<NodeSample> {
    parse(&fs::read_to_string("/proc/stat").ok()?, &fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(stat: &str, meminfo: &str) -> Option<NodeSample> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // The fields are user, nice, system, idle, iowait, irq, softirq and steal. User time includes guests.
    let ticks: Vec<u64> = line.split_ascii_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    let all: u64 = ticks.iter().sum();
    let bytes = |label| procfs::kilobytes(meminfo, label).and_then(|bytes| i64::try_from(bytes).ok());
    let total = bytes("MemTotal:")?;
    Some(NodeSample {
        busy_ticks: all - idle,
        all_ticks: all,
        memory_bytes: total - bytes("MemAvailable:")?,
        total_memory_bytes: total,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_is_not_busy() {
        let stat = "cpu  10 20 30 400 50 6 7 8 9 9\ncpu0 1 2\n";
        let meminfo = "MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 30 kB\n";
        let expected =
            NodeSample { busy_ticks: 81, all_ticks: 531, memory_bytes: 70 << 10, total_memory_bytes: 100 << 10 };
        assert_eq!(parse(stat, meminfo), Some(expected));
        assert_eq!(parse("intr 1", meminfo), None);
        assert_eq!(parse(stat, "MemTotal: 1 kB"), None);
    }
}
