//! Human-readable times and amounts.

use jiff::Timestamp;
pub use torc_api::quantity::count;
use torc_api::wire::Usage;

const UNITS: [(&str, i64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Formats a duration in at most two units, e.g. `3m20s`, `5h`, `12d`.
pub fn duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let Some(first) = UNITS.iter().position(|(_, size)| seconds >= *size) else {
        return "0s".to_owned();
    };
    let (unit, size) = UNITS[first];
    let mut text = format!("{}{unit}", seconds / size);
    if let Some((unit, smaller)) = UNITS.get(first + 1) {
        let rest = seconds % size / smaller;
        if rest > 0 && seconds / size < 10 {
            text.push_str(&format!("{rest}{unit}"));
        }
    }
    text
}

/// Formats a duration that may be less than a second.
pub fn precise(seconds: f64) -> String {
    if seconds < 0.0005 {
        "0s".to_owned()
    } else if seconds < 1.0 {
        format!("{:.0}ms", seconds * 1000.0)
    } else if seconds < 60.0 {
        format!("{seconds:.1}s")
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "fractions of long times are not shown")]
        let whole = seconds.round() as i64;
        duration(whole)
    }
}

/// Formats the time since an RFC 3339 time.
pub fn age(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(then) => duration(now.as_second() - then.as_second()),
        Err(_) => "unknown".to_owned(),
    }
}

/// Returns the seconds between two RFC 3339 times.
pub fn between(start: &str, end: &str) -> Option<f64> {
    let start: Timestamp = start.parse().ok()?;
    let end: Timestamp = end.parse().ok()?;
    Some(end.duration_since(start).as_secs_f64())
}

/// Formats bytes in powers of 1024.
pub fn bytes(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["B", "Ki", "Mi", "Gi", "Ti"];
    let mut index = 0;
    let mut unit = 1_i64;
    while index + 1 < UNITS.len() && bytes / unit >= 1024 {
        unit *= 1024;
        index += 1;
    }
    let name = UNITS[index];
    if bytes % unit == 0 { format!("{}{name}", bytes / unit) } else { format!("{:.1}{name}", fraction(bytes, unit)) }
}

/// Formats the resource usage of an attempt, e.g. `1.2Gi memory peak, 800Mi average; 180% CPU peak`; `None` without data.
pub fn usage(usage: &Usage) -> Option<String> {
    let pair = |peak: Option<String>, average: Option<String>, of: &str| match (peak, average) {
        (Some(peak), Some(average)) => Some(format!("{peak}{of} peak, {average} average")),
        (Some(peak), None) => Some(format!("{peak}{of} peak")),
        (None, Some(average)) => Some(format!("{average}{of} average")),
        (None, None) => None,
    };
    let memory = pair(usage.peak_memory_bytes.map(bytes), usage.average_memory_bytes.map(bytes), " memory");
    let cpu = pair(usage.peak_cpu_percent.map(percent), usage.average_cpu_percent.map(percent), " CPU");
    let gpu = pair(usage.peak_gpu_percent.map(percent), usage.average_gpu_percent.map(percent), " GPU");
    let gpu_memory = pair(usage.peak_gpu_memory_bytes.map(bytes), None, " GPU memory");
    let parts: Vec<String> = [memory, cpu, gpu, gpu_memory].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Formats percent of one CPU.
pub fn percent(percent: f64) -> String {
    format!("{percent:.0}%")
}

#[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
fn fraction(amount: i64, unit: i64) -> f64 {
    amount as f64 / unit as f64
}

/// The exit code of a job that exceeded its time limit. It does not stand for signal 24.
const TIMEOUT_EXIT_CODE: i32 = 152;

/// Formats an exit code, with the signal that it stands for.
pub fn exit_code(code: i32) -> String {
    match nix::sys::signal::Signal::try_from(code - 128) {
        Ok(signal) if code != TIMEOUT_EXIT_CODE => {
            let name = signal.as_str();
            format!("exit code {code}, signal {} ({})", code - 128, name.strip_prefix("SIG").unwrap_or(name))
        }
        _ => format!("exit code {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        for (seconds, text) in [
            (-3, "0s"),
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (200, "3m20s"),
            (3_600 * 5, "5h"),
            (3_600 * 9 + 61, "9h1m"),
            (3_600 * 11 + 61, "11h"),
            (86_400 * 12 + 5, "12d"),
        ] {
            assert_eq!(duration(seconds), text);
        }
        for (seconds, text) in [(0.0, "0s"), (0.0123, "12ms"), (1.26, "1.3s"), (61.2, "1m1s")] {
            assert_eq!(precise(seconds), text);
        }
    }

    #[test]
    fn exit_codes_of_signals_name_them() {
        for (code, text) in [
            (0, "exit code 0"),
            (7, "exit code 7"),
            (128, "exit code 128"),
            (137, "exit code 137, signal 9 (KILL)"),
            (143, "exit code 143, signal 15 (TERM)"),
            (152, "exit code 152"),
            (255, "exit code 255"),
            (-128, "exit code -128"),
        ] {
            assert_eq!(exit_code(code), text);
        }
    }

    #[test]
    fn ages_bytes_and_counts_are_readable() {
        let now: Timestamp = "2026-01-02T00:00:30Z".parse().expect("a time");
        assert_eq!(age("2026-01-02T00:00:00Z", now), "30s");
        assert_eq!(age("yesterday", now), "unknown");
        for (amount, text) in [(0, "0B"), (1023, "1023B"), (1 << 20, "1Mi"), (3 << 29, "1.5Gi"), (5 << 40, "5Ti")] {
            assert_eq!(bytes(amount), text);
        }
        assert_eq!([count(1, "job"), count(2, "job")], ["1 job", "2 jobs"]);
    }

    #[test]
    fn durations_change_their_unit_at_its_size() {
        for (seconds, text) in [
            (1, "1s"),
            (60, "1m"),
            (61, "1m1s"),
            (119, "1m59s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (601, "10m"),
            (659, "10m"),
            (3_599, "59m"),
            (3_600, "1h"),
            (3_659, "1h"),
            (3_660, "1h1m"),
            (35_999, "9h59m"),
            (36_000, "10h"),
            (86_399, "23h"),
            (86_400, "1d"),
            (89_999, "1d"),
            (90_000, "1d1h"),
            (863_999, "9d23h"),
            (864_000, "10d"),
            (i64::MIN, "0s"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
        for (seconds, text) in [
            (0.0004, "0s"),
            (0.0005, "0ms"),
            (0.0006, "1ms"),
            (0.999, "999ms"),
            (1.0, "1.0s"),
            (59.94, "59.9s"),
            (60.0, "1m"),
            (60.4, "1m"),
            (60.5, "1m1s"),
        ] {
            assert_eq!(precise(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn amounts_change_their_unit_at_1024() {
        for (amount, text) in [
            (1, "1B"),
            (1_023, "1023B"),
            (1_024, "1Ki"),
            (1_025, "1.0Ki"),
            (1_536, "1.5Ki"),
            ((1 << 20) - 1, "1024.0Ki"),
            (1 << 20, "1Mi"),
            (1 << 30, "1Gi"),
            (1 << 40, "1Ti"),
            (1 << 50, "1024Ti"),
            (3 << 39, "1.5Ti"),
        ] {
            assert_eq!(bytes(amount), text, "{amount}");
        }
        assert_eq!([percent(0.4), percent(0.6), percent(99.5)], ["0%", "1%", "100%"]);
        assert_eq!([count(0, "job"), count(-1, "job")], ["0 jobs", "-1 jobs"]);
        let between = |start: &str, end: &str| between(start, end);
        assert_eq!(between("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.5Z"), Some(1.5));
        assert_eq!((between("x", "2026-01-01T00:00:00Z"), between("2026-01-01T00:00:00Z", "x")), (None, None));
    }

    #[test]
    fn usage_lists_only_known_values() {
        let all = Usage {
            peak_memory_bytes: Some(1 << 20),
            average_memory_bytes: Some(2 << 20),
            peak_cpu_percent: Some(3.0),
            average_cpu_percent: Some(4.0),
            peak_gpu_percent: Some(5.0),
            average_gpu_percent: Some(6.0),
            peak_gpu_memory_bytes: Some(7 << 20),
        };
        let expected =
            "1Mi memory peak, 2Mi average; 3% CPU peak, 4% average; 5% GPU peak, 6% average; 7Mi GPU memory peak";
        assert_eq!(usage(&all).as_deref(), Some(expected));
        assert_eq!(
            usage(&Usage { average_cpu_percent: Some(4.0), ..Usage::default() }).as_deref(),
            Some("4% CPU average")
        );
        assert_eq!(usage(&Usage { peak_cpu_percent: Some(4.0), ..Usage::default() }).as_deref(), Some("4% CPU peak"));
        assert_eq!(usage(&Usage::default()), None);
    }
}
