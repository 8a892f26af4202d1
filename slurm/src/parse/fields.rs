//! Small values that many Slurm commands print: absent values, times, limits, pairs.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Returns a text unless it is one of Slurm's words for an absent value.
pub fn present_value(text: &str) -> Option<&str> {
    const NOTHING: [&str; 9] = ["", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "None assigned", "(None)"];
    let text = text.trim();
    (!NOTHING.contains(&text)).then_some(text)
}

/// Returns a time such as `2026-11-16T09:45:30` in seconds since 1970. All calls request UTC.
pub fn parse_time(text: &str) -> Option<i64> {
    let civil: DateTime = present_value(text)?.parse().ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

/// A time limit of a job or a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// A number of seconds.
    Seconds(i64),
    Unlimited,
}

/// Returns a limit such as `1-02:00:00`, `30:00`, `0:45`, `infinite` or `UNLIMITED`; `None` for `NOT_SET` and the like.
pub fn limit(text: &str) -> Option<Limit> {
    let text = text.trim();
    if ["unlimited", "infinite", "infinity"].contains(&text.to_ascii_lowercase().as_str()) {
        return Some(Limit::Unlimited);
    }
    let seconds = crate::allocation::time_left(text)?;
    Some(Limit::Seconds(i64::try_from(seconds).ok()?))
}

/// Returns the `Key=value` pairs of one record of `scontrol -o`. A value with blanks includes the words that follow.
pub fn pairs(line: &str) -> Vec<(&str, String)> {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    for word in line.split_whitespace() {
        match word.split_once('=') {
            Some((key, value)) if is_key(key) => pairs.push((key, value.to_owned())),
            _ => {
                if let Some((_, value)) = pairs.last_mut() {
                    value.push(' ');
                    value.push_str(word);
                }
            }
        }
    }
    pairs
}

fn is_key(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "/:_".contains(c))
}

/// Returns the value of a key.
pub fn value<'a>(pairs: &'a [(&str, String)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(name, _)| *name == key).and_then(|(_, value)| present_value(value))
}

/// Returns the number of GPUs in a list of generic resources such as `gpu:a100:4(S:0-1),gpu:2,nvme:1`, and the first type.
pub fn gpus(gres: &str) -> (i64, Option<String>) {
    let mut total = 0_i64;
    let mut kind = None;
    for item in present_value(gres).unwrap_or_default().split(',') {
        let item = item.split('(').next().unwrap_or_default().trim();
        let words: Vec<&str> = item.split(':').collect();
        let (count, name) = match words.as_slice() {
            ["gpu"] => (Some(1), None),
            ["gpu", last] => match last.parse::<i64>() {
                Ok(count) => (Some(count), None),
                Err(_) => (Some(1), Some(*last)),
            },
            ["gpu", name, .., count] => (count.parse().ok(), Some(*name)),
            _ => (None, None),
        };
        total = total.saturating_add(count.unwrap_or(0).max(0));
        kind = kind.or_else(|| name.map(str::to_owned));
    }
    (total, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_limits() {
        assert_eq!(parse_time("2026-11-16T09:45:30"), Some(1_794_822_330));
        for text in ["Unknown", "N/A", "NONE", "None", "", "2026-13-01T00:00:00", "yesterday"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        let cases = [
            ("1-02:00:00", Some(Limit::Seconds(93_600))),
            ("30:00", Some(Limit::Seconds(1_800))),
            ("4:00:00", Some(Limit::Seconds(14_400))),
            ("0:57", Some(Limit::Seconds(57))),
            ("infinite", Some(Limit::Unlimited)),
            ("UNLIMITED", Some(Limit::Unlimited)),
            ("NOT_SET", None),
            ("Partition_Limit", None),
            ("INVALID", None),
            ("n/a", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(limit(text), expected, "{text}");
        }
    }

    #[test]
    fn every_way_to_write_nothing() {
        for nothing in ["", " ", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "None assigned", "(None)", " None "]
        {
            assert_eq!(present_value(nothing), None, "{nothing:?}");
        }
        for text in ["none", "null", "0", "(none)", "unknown"] {
            assert_eq!(present_value(text), Some(text));
        }
        assert_eq!(present_value(" a b "), Some("a b"));
        for text in ["unlimited", "INFINITE", "Infinity", " infinite "] {
            assert_eq!(limit(text), Some(Limit::Unlimited), "{text}");
        }
        assert!(Limit::Seconds(i64::MAX) < Limit::Unlimited);
    }

    #[test]
    fn records_of_scontrol() {
        let line = "JobId=7 JobName=a=b Reason=ReqNodeNotAvail, UnavailableNodes:n4 TRES=cpu=2,mem=200M \
                    CPUs/Task=2 ReqB:S:C:T=0:0:*:* OS=Linux 6.18 #1 SMP  Comment=(null) Power= ";
        let pairs = pairs(line);
        assert_eq!(value(&pairs, "JobId"), Some("7"));
        assert_eq!(value(&pairs, "JobName"), Some("a=b"));
        assert_eq!(value(&pairs, "Reason"), Some("ReqNodeNotAvail, UnavailableNodes:n4"));
        assert_eq!(value(&pairs, "TRES"), Some("cpu=2,mem=200M"));
        assert_eq!(value(&pairs, "CPUs/Task"), Some("2"));
        assert_eq!(value(&pairs, "OS"), Some("Linux 6.18 #1 SMP"));
        assert_eq!(value(&pairs, "Comment"), None);
        assert_eq!(value(&pairs, "Power"), None);
        assert_eq!(value(&pairs, "Missing"), None);
    }

    #[test]
    fn gpus_of_a_node() {
        let cases = [
            ("gpu:2", 2, None),
            ("gpu:a100:4(S:0-1)", 4, Some("a100")),
            ("gpu:h100:2,gpu:h100:2", 4, Some("h100")),
            ("gpu", 1, None),
            ("gpu:tesla", 1, Some("tesla")),
            ("nvme:1,gpu:3(IDX:0-2)", 3, None),
            ("(null)", 0, None),
            ("", 0, None),
            ("gpu:a100:many", 0, Some("a100")),
            ("gpu:-3,gpu:2", 2, None),
            ("gpu:a:b:3", 3, Some("a")),
            ("gpu:1,gpu:b:2,gpu:c:4", 7, Some("b")),
            ("gpus:3,mps:gpu:2", 0, None),
        ];
        for (text, count, kind) in cases {
            assert_eq!(gpus(text), (count, kind.map(str::to_owned)), "{text}");
        }
    }
}
